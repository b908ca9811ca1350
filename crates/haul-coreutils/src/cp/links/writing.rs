//! Set of sinks being written. Two names may lead to one file, and its bytes must come from one
//! source at a time.

use crate::cp::directory::Identity;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::HashSet;
use std::sync::Arc;

/// The inodes that have a writer.
#[derive(Debug, Default)]
pub(crate) struct Writing {
    taken: Mutex<HashSet<Identity>>,
    given_back: Condvar,
}

/// The right to write one inode, released on drop. Its holder waits for no other inode and for no
/// name of a source, so that every wait ends.
#[derive(Debug)]
pub(crate) struct WriteTurn {
    writing: Arc<Writing>,
    identity: Identity,
}

impl Writing {
    /// Waits until no other writer has the inode. Returns true if the call had to wait.
    pub(crate) fn wait(self: &Arc<Self>, identity: Identity) -> (WriteTurn, bool) {
        let mut taken = self.taken();
        let mut waited = false;
        while !taken.insert(identity) {
            waited = true;
            self.given_back.wait(&mut taken);
        }
        drop(taken);
        (WriteTurn { writing: Arc::clone(self), identity }, waited)
    }

    fn taken(&self) -> MutexGuard<'_, HashSet<Identity>> {
        // Each call leaves the set consistent, whatever error the worker meets later.
        self.taken.lock()
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        self.writing.taken().remove(&self.identity);
        self.writing.given_back.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn one_inode_has_one_writer() {
        let writing = Arc::new(Writing::default());
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let (_turn, _) = writing.wait((1, 2));
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 1);
    }

    #[test]
    fn other_inodes_do_not_wait() {
        let writing = Arc::new(Writing::default());
        let (first, waited) = writing.wait((1, 1));
        assert!(!waited);
        let (_second, waited) = writing.wait((1, 2));
        assert!(!waited);
        drop(first);
        assert!(!writing.wait((1, 1)).1);
    }
}
