//! Key of a user: authenticates files that haul leaves in directories of others and reads again.

use super::{LogError, folder};
use haul_digest::{DigestKey, KEYED_DIGEST_BYTES};
use haul_storage::{Durability, Replacement, Writers, replace_path};
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Name of the file in the state directory that holds the key.
const NAME: &str = "key";

/// Name of the file that is locked while a key is created.
const LOCK: &str = "key.new";

/// Mode bits that let another user read or write the key.
const OTHERS: u32 = 0o077;

/// Returns the key of journals, from the state directory. Returns `None` if there is no key yet.
///
/// # Errors
/// Returns [`LogError::Exposed`] if other users can write to the state directory,
/// [`LogError::ExposedKey`] if the file is not a key that only this user can access, and
/// [`LogError::Io`] if the file cannot be read.
pub fn journal_key(state: &Path) -> Result<Option<DigestKey>, LogError> {
    match fs::symlink_metadata(state) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        _ => folder::make(state)?,
    }
    let path = state.join(NAME);
    let failed = || LogError::io("read the key", &path);
    let mut file = match folder::options().open(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed())?,
    };
    let facts = file.metadata().map_err(failed())?;
    let is_private = folder::is_own(&facts) && facts.mode() & OTHERS == 0;
    if !facts.is_file() || !is_private || facts.len() != KEYED_DIGEST_BYTES as u64 {
        return Err(LogError::ExposedKey { path });
    }
    let mut secret = [0; KEYED_DIGEST_BYTES];
    file.read_exact(&mut secret).map_err(failed())?;
    Ok(Some(DigestKey::of_journals(&secret)))
}

/// Returns the key of journals; creates it, durably, if there is none.
///
/// # Errors
/// Returns the errors of [`journal_key`], and [`LogError::Io`] if the key cannot be created.
pub fn new_journal_key(state: &Path) -> Result<DigestKey, LogError> {
    folder::make(state)?;
    if let Some(key) = journal_key(state)? {
        return Ok(key);
    }
    let path = state.join(NAME);
    create(state, &path).map_err(LogError::io("create the key", &path))?;
    let missing = || LogError::io("read the key", &path)(io::ErrorKind::NotFound.into());
    journal_key(state)?.ok_or_else(missing)
}

/// Creates the key unless another process does. The lock decides which one.
fn create(state: &Path, path: &Path) -> io::Result<()> {
    let lock = state.join(LOCK);
    let file = folder::options().write(true).create(true).open(&lock)?;
    file.lock()?;
    // If the key exists, the process that held the lock before has created it.
    if !fs::exists(path)? {
        let secret = random()?;
        let durable = Replacement::private(Writers::Many, Durability::DataAndName);
        replace_path(path, durable, |out| out.write_all(&secret))?;
    }
    match fs::remove_file(&lock) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Returns a random key, which is lost when this process exits.
///
/// # Errors
/// Returns an error if the system has no randomness.
pub(crate) fn passing_key() -> io::Result<DigestKey> {
    random().map(|secret| DigestKey::of_journals(&secret))
}

fn random() -> io::Result<[u8; KEYED_DIGEST_BYTES]> {
    let mut secret = [0; KEYED_DIGEST_BYTES];
    aws_lc_rs::rand::fill(&mut secret).map_err(|_| io::Error::other("no randomness"))?;
    Ok(secret)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn key_is_created_once_and_private() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("state");
        assert!(journal_key(&state).unwrap().is_none() && !state.exists());
        let digests: Vec<_> = std::thread::scope(|scope| {
            let digest = || new_journal_key(&state).unwrap().digest(b"journal");
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(digest)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(digests.iter().all(|digest| *digest == digests[0]));
        assert_eq!(journal_key(&state).unwrap().unwrap().digest(b"journal"), digests[0]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&state), mode(&state.join("key"))), (0o700, 0o600));
        assert_eq!(fs::read_dir(&state).unwrap().count(), 1, "no draft stays");
        let other = tempfile::tempdir().unwrap();
        assert_ne!(new_journal_key(&other.path().join("state")).unwrap().digest(b"journal"), digests[0]);
    }

    #[test]
    fn keys_that_others_may_know_are_refused() {
        let home = tempfile::tempdir().unwrap();
        let state = home.path().join("state");
        new_journal_key(&state).unwrap();
        let path = state.join("key");
        let set_mode =
            |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        let refused = || matches!(new_journal_key(&state), Err(LogError::ExposedKey { .. }));
        for mode in [0o640, 0o604, 0o620] {
            set_mode(&path, mode);
            assert!(refused(), "{mode:o}");
        }
        set_mode(&path, 0o600);
        let whole = fs::read(&path).unwrap();
        for wrong in [&[][..], &whole[1..], &[&whole[..], b"x"].concat()] {
            fs::write(&path, wrong).unwrap();
            assert!(refused());
        }
        fs::write(home.path().join("known"), &whole).unwrap();
        fs::remove_file(&path).unwrap();
        symlink(home.path().join("known"), &path).unwrap();
        assert!(matches!(new_journal_key(&state), Err(LogError::Io { .. })));
        fs::remove_file(&path).unwrap();
        set_mode(&state, 0o770);
        assert!(matches!(new_journal_key(&state), Err(LogError::Exposed { .. })));
        assert!(matches!(journal_key(&state), Err(LogError::Exposed { .. })));
    }
}
