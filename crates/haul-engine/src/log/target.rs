//! Owner and destination of a client's job. A server uses them to find the files of a job that no
//! client resumes.

use super::folder::{self, LogDir};
use super::{LockedJob, LogError};
use haul_log::objects::{Identity, Job, replay};
use haul_model::{ObjectSize, RelPath};
use haul_storage::{Durability, Replacement, Writers, replace_path};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// Name of the file in the directory of a job.
const NAME: &str = "target";

/// Maximum size of the file, in bytes. Targets with longer paths are not recorded.
const BYTES_MAX: usize = 8 << 10;

/// Destination directory of a job.
///
/// ```text
///  OBJECT LENGTH CLIENT\n ROOT INTO    object size, bytes of ROOT, 32 hex digits; then both paths
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// Directory that the server shares with the client.
    pub(crate) root: PathBuf,
    /// Directory below the root; the path is resolved without following links.
    pub(crate) into: Vec<u8>,
    /// Object size of the job.
    pub(crate) object: ObjectSize,
    /// Client that owns the job.
    pub(crate) client: Identity,
}

impl Target {
    /// Writes the target to the directory of a job. Like the start of a run that syncs, the file is
    /// not synced.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the file cannot be written.
    pub(crate) fn write(&self, home: &Path) -> Result<(), LogError> {
        let bytes = self.encode();
        if bytes.len() > BYTES_MAX {
            return Ok(());
        }
        let path = home.join(NAME);
        let written = replace_path(&path, Replacement::private(Writers::One, Durability::None), |out| {
            out.write_all(&bytes)
        });
        written.map_err(LogError::io("write the destination of the job to", &path))
    }

    /// Reads the target of a job; returns `None` if the file is missing or damaged.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the file cannot be read.
    pub(crate) fn read(home: &Path) -> Result<Option<Target>, LogError> {
        let path = home.join(NAME);
        let failed = || LogError::io("read the destination of the job from", &path);
        let file = match folder::options().open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(failed())?,
        };
        let mut bytes = Vec::new();
        file.take(BYTES_MAX as u64).read_to_end(&mut bytes).map_err(failed())?;
        Ok(Target::decode(&bytes))
    }

    /// Removes the target of a finished job.
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

    fn encode(&self) -> Vec<u8> {
        let root = self.root.as_os_str().as_bytes();
        let head = format!("{} {} {}\n", self.object.bytes(), root.len(), self.client.to_hex());
        [head.as_bytes(), root, &self.into].concat()
    }

    fn decode(bytes: &[u8]) -> Option<Target> {
        let end = bytes.iter().position(|&byte| byte == b'\n')?;
        let mut words = std::str::from_utf8(&bytes[..end]).ok()?.split(' ');
        let object = ObjectSize::new(words.next()?.parse().ok()?).ok()?;
        let (root, into) = bytes[end + 1..].split_at_checked(words.next()?.parse().ok()?)?;
        let client = Identity::from_hex(words.next()?)?;
        let root = PathBuf::from(OsString::from_vec(root.to_vec()));
        let is_whole = words.next().is_none() && root.is_absolute();
        is_whole.then(|| Target { root, into: into.to_vec(), object, client })
    }
}

/// Returns the paths of the files that have logged objects, for a job that this process holds.
///
/// # Errors
/// Returns an error if the log cannot be read.
pub(crate) fn logged_paths(
    locked_job: &LockedJob,
    id: Identity,
    object: ObjectSize,
) -> Result<BTreeSet<RelPath>, LogError> {
    let mut folder = LogDir::open(locked_job.folder().join("log"), false)?;
    let found = replay(&Job { id, object }, &folder.read()?);
    Ok(found.facts.iter().map(|(subject, _)| subject.path.clone()).collect())
}

/// Checks for any bytes that they are a target, or refused, and that an accepted target is the same
/// after it is written and read again.
pub(crate) fn any(bytes: &[u8]) {
    if let Some(target) = Target::decode(bytes) {
        assert!(target.root.is_absolute());
        assert_eq!(Target::decode(&target.encode()), Some(target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target() -> Target {
        let object = ObjectSize::new(1 << 20).unwrap();
        let (root, client) = (PathBuf::from("/srv/in\nbox"), Identity([7; 16]));
        Target { root, into: b"sub/of 9\n".to_vec(), object, client }
    }

    #[test]
    fn target_round_trips_until_removed() {
        let home = tempfile::tempdir().unwrap();
        assert_eq!(Target::read(home.path()).unwrap(), None);
        target().write(home.path()).unwrap();
        assert_eq!(Target::read(home.path()).unwrap(), Some(target()));
        Target::remove(home.path()).unwrap();
        Target::remove(home.path()).unwrap();
        let long = Target { into: vec![b'x'; BYTES_MAX], ..target() };
        long.write(home.path()).unwrap();
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
    }

    #[test]
    fn damaged_target_names_no_other_directory() {
        let bytes = target().encode();
        for cut in 0..bytes.len() {
            let read = Target::decode(&bytes[..cut]);
            assert!(read.is_none_or(|read| read.root == target().root), "{cut}");
        }
        let client = Identity([7; 16]).to_hex();
        for damaged in [
            "",
            "\n",
            "3 1 G\n/",
            "65536 9 G\n/a",
            "65536 4 G\nsrv/",
            "65536 -1 G\n/",
            "65536 1 G",
            "65536 1\n/",
        ] {
            let damaged = damaged.replace('G', &client);
            assert_eq!(Target::decode(damaged.as_bytes()), None, "{damaged:?}");
        }
        assert!(Target::decode(format!("65536 1 {client}\n/").as_bytes()).is_some());
        for client in ["", "7", "no-number", &format!("{client} 1")] {
            assert_eq!(Target::decode(format!("65536 1 {client}\n/").as_bytes()), None, "{client:?}");
        }
    }
}
