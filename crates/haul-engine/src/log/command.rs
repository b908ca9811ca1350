//! The link from the log of a sink to the record of the command, if both are in one state directory: `haul jobs` lists them as one job.

use super::{LogError, folder};
use haul_log::objects::Identity;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

/// The file in the folder of the log: 32 hexadecimal digits.
const NAME: &str = "command";

/// Writes down the job that the command's record is kept under. Like the time of the log's beginning it is not made durable.
///
/// # Errors
/// [`LogError::Io`].
pub(crate) fn write(home: &Path, job: Identity) -> Result<(), LogError> {
    let path = home.join(NAME);
    let opened = folder::options().write(true).create(true).truncate(true).open(&path);
    let written = opened.and_then(|mut file| file.write_all(job.to_hex().as_bytes()));
    written.map_err(LogError::io("write which command the log belongs to into", &path))
}

/// Reads what [`write`] wrote. Returns `None` if there is nothing: the log is listed by itself then.
pub(super) fn read(home: &Path) -> Option<Identity> {
    let mut digits = String::new();
    folder::options().open(home.join(NAME)).ok()?.take(64).read_to_string(&mut digits).ok()?;
    Identity::from_hex(&digits)
}

/// The log is over.
///
/// # Errors
/// [`LogError::Io`].
pub(crate) fn remove(home: &Path) -> Result<(), LogError> {
    let path = home.join(NAME);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(LogError::io("remove", &path)),
    }
}
