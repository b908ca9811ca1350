//! File systems that may report lost bytes at close.

use haul_sys::closing;
use parking_lot::Mutex;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

/// File systems of a job, by their device numbers. Each is checked once.
#[derive(Debug, Default)]
pub struct CloseChecks {
    known: Mutex<Vec<(u64, bool)>>,
    /// Device number of the last file system that reports nothing, plus one. With it, a million
    /// small files need no lock.
    quiet: AtomicU64,
}

impl CloseChecks {
    /// Makes the file system `dev` of a file report now the errors that it would report at close,
    /// if it reports any. This must happen before the times are set, because a late write-back
    /// would change them.
    ///
    /// # Errors
    /// Same as [`closing::flush`].
    pub fn flush(&self, file: impl AsFd, dev: u64) -> io::Result<()> {
        if self.may_fail(&file, dev) { closing::flush(file) } else { Ok(()) }
    }

    fn may_fail(&self, file: impl AsFd, dev: u64) -> bool {
        if self.quiet.load(Ordering::Relaxed) == dev.wrapping_add(1) {
            return false;
        }
        let mut known = self.known.lock();
        let asked = known.iter().find(|(known, _)| *known == dev).map(|(_, may_fail)| *may_fail);
        let may_fail = asked.unwrap_or_else(|| {
            let may_fail = closing::may_fail(file);
            known.push((dev, may_fail));
            may_fail
        });
        if !may_fail {
            self.quiet.store(dev.wrapping_add(1), Ordering::Relaxed);
        }
        may_fail
    }
}
