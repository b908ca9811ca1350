//! The first failed sync of a file.

use parking_lot::Mutex;
use std::io;

/// `errno` of an input or output error, the same on every architecture of Linux.
const EIO: i32 = 5;

/// Remembers the first error of the syncs of one file. The kernel reports a lost write to one sync
/// of an open file only, so a later success proves nothing.
#[derive(Debug, Default)]
pub struct FirstFailure(Mutex<Option<i32>>);

impl FirstFailure {
    /// Runs `sync`, after any other sync of the file.
    ///
    /// # Errors
    /// Returns the error of `sync`. From then on returns the same error and runs nothing.
    pub fn run<T>(&self, sync: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let mut failure = self.0.lock();
        if let Some(errno) = *failure {
            return Err(io::Error::from_raw_os_error(errno));
        }
        sync().inspect_err(|error| *failure = Some(error.raw_os_error().unwrap_or(EIO)))
    }

    /// Runs `step`, which is not a sync, if no sync failed and none is running. Its errors are not
    /// remembered.
    ///
    /// # Errors
    /// Returns the error of the first failed sync, and otherwise the error of `step`.
    pub fn unless_failed<T>(&self, step: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        let failure = self.0.lock();
        failure.map_or_else(step, |errno| Err(io::Error::from_raw_os_error(errno)))
    }

    /// Returns the error of the first failed sync. Waits for a sync that is running.
    pub fn get(&self) -> Option<io::Error> {
        self.0.lock().map(io::Error::from_raw_os_error)
    }

    /// Returns true while another thread syncs the file.
    pub fn is_syncing(&self) -> bool {
        self.0.is_locked()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_fails_every_later_sync() {
        let first = FirstFailure::default();
        first.run(|| Ok(())).expect("nothing failed yet");
        assert!(first.get().is_none());
        first.unless_failed(|| Err::<(), _>(io::ErrorKind::NotFound.into())).expect_err("its own error");
        first.run(|| Err::<(), _>(io::Error::from_raw_os_error(28))).expect_err("fails");
        let later = first.run(|| -> io::Result<()> { unreachable!("no sync is run") });
        assert_eq!(later.expect_err("remembered").raw_os_error(), Some(28));
        let step = first.unless_failed(|| -> io::Result<()> { unreachable!("no step is run") });
        assert_eq!(step.expect_err("remembered").raw_os_error(), Some(28));
        assert_eq!(first.get().and_then(|error| error.raw_os_error()), Some(28));
    }

    #[test]
    fn an_error_without_a_number_is_remembered_as_an_input_or_output_error() {
        let first = FirstFailure::default();
        first.run(|| Err::<(), _>(io::Error::other("no number"))).expect_err("fails");
        assert_eq!(first.get().and_then(|error| error.raw_os_error()), Some(EIO));
    }
}
