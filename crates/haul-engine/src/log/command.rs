//! Link from the object log of a sink to the record of the command. If both are in one state
//! directory, `haul jobs` lists them as one job.

use super::{LogError, folder};
use haul_log::objects::Identity;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

/// Name of the file in the directory of the log. It contains 32 hexadecimal digits.
const NAME: &str = "command";

/// Records the ID of the job that holds the command's record. Like the start of a run that syncs,
/// the file is not synced.
///
/// # Errors
/// Returns [`LogError::Io`] if the file cannot be written.
pub(crate) fn write(home: &Path, job: Identity) -> Result<(), LogError> {
    let path = home.join(NAME);
    let opened = folder::options().write(true).create(true).truncate(true).open(&path);
    let written = opened.and_then(|mut file| file.write_all(job.to_hex().as_bytes()));
    written.map_err(LogError::io("write the command to", &path))
}

/// Reads the ID that [`write`] wrote. Returns `None` if there is none; the log is then listed as a
/// job of its own.
pub(super) fn read(home: &Path) -> Option<Identity> {
    let mut digits = String::new();
    folder::options().open(home.join(NAME)).ok()?.take(64).read_to_string(&mut digits).ok()?;
    Identity::from_hex(&digits)
}

/// Removes the link of a finished log.
///
/// # Errors
/// Returns [`LogError::Io`] if the file cannot be removed.
pub(crate) fn remove(home: &Path) -> Result<(), LogError> {
    let path = home.join(NAME);
    match fs::remove_file(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(LogError::io("remove", &path)),
    }
}
