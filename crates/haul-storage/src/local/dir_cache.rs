//! The one cache of open directories of this process.
//!
//! A directory that something lies beneath is needed again, and a deep tree has more such
//! directories than a process has descriptors. If too many are open, those that were not used for
//! the longest time are closed and opened again when they are needed (decision 0004).

use super::dir_fd::DirFd;
use haul_model::limits::OPEN_DIRECTORIES_MAX;
use haul_sys::process;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Weak};

/// Part of the limit of open files that directories may use: one quarter. The rest is left to
/// files, connections and logs.
const SHARE: u64 = 4;

/// Minimum number of directories that stay open: a directory and the one above it.
const OPEN_MIN: usize = 2;

/// Descriptors of directories, at most [`OPEN_DIRECTORIES_MAX`] of them.
#[derive(Debug)]
pub(super) struct DirCache {
    /// Maximum number of directories that stay open.
    most: usize,
    /// Number of open directories, counted by [`OpenDir`].
    open: Arc<AtomicUsize>,
    /// Open directories, the next one to close first. Some of them have been dropped by now.
    oldest: Mutex<VecDeque<Weak<DirSlot>>>,
}

/// Storage for the descriptor of one directory.
#[derive(Debug)]
pub(super) struct DirSlot {
    state: Mutex<SlotState>,
    /// True if the directory was used since the cache last tried to close it.
    is_used: AtomicBool,
}

#[derive(Debug)]
enum SlotState {
    Open(Arc<OpenDir>),
    /// Another holder may still have the directory open.
    Closed(Weak<OpenDir>),
}

/// A descriptor of a directory, which stays open as long as a reference to it exists.
#[derive(Debug)]
pub(super) struct OpenDir {
    dir: DirFd,
    /// True while a list uses the position of the descriptor.
    is_listed: AtomicBool,
    /// True once the descriptor was used since the directory was opened.
    is_used: AtomicBool,
    /// Counter of open directories. `None` for a root, which is never closed.
    counted: Option<Arc<AtomicUsize>>,
}

impl DirCache {
    /// Returns the cache of the process.
    pub(super) fn of_process() -> &'static DirCache {
        static CACHE: LazyLock<DirCache> = LazyLock::new(|| {
            let limit = process::open_file_limit();
            // With a low limit, what the process has inherited leaves less of it.
            let is_low = limit / SHARE < OPEN_DIRECTORIES_MAX as u64;
            let taken = if is_low { process::open_files().unwrap_or(0) } else { 0 };
            let share = limit.saturating_sub(taken) / SHARE;
            DirCache::new(usize::try_from(share).unwrap_or(usize::MAX))
        });
        &CACHE
    }

    /// Creates a cache that keeps at most `most` directories open, at least two.
    pub(super) fn new(most: usize) -> DirCache {
        DirCache {
            most: most.clamp(OPEN_MIN, OPEN_DIRECTORIES_MAX),
            open: Arc::default(),
            oldest: Mutex::default(),
        }
    }

    /// Puts a newly opened directory into its slot, and closes others if too many are open. If
    /// another thread was faster, `dir` is closed and the other descriptor is used.
    pub(super) fn admit(&self, slot: &Arc<DirSlot>, dir: DirFd) -> Arc<OpenDir> {
        let mut state = slot.state.lock();
        let open = match &*state {
            SlotState::Open(open) => return Arc::clone(open),
            SlotState::Closed(open) => open.upgrade(),
        };
        let open = open.unwrap_or_else(|| {
            self.open.fetch_add(1, Ordering::Relaxed);
            Arc::new(OpenDir::new(dir, Some(Arc::clone(&self.open))))
        });
        *state = SlotState::Open(Arc::clone(&open));
        drop(state);
        self.register(slot);
        open
    }

    /// Returns the open directory of a slot, if it is open.
    pub(super) fn held(&self, slot: &Arc<DirSlot>) -> Option<Arc<OpenDir>> {
        let mut state = slot.state.lock();
        let open = match &*state {
            SlotState::Open(open) => {
                slot.is_used.store(true, Ordering::Relaxed);
                return Some(Arc::clone(open));
            }
            SlotState::Closed(open) => open.upgrade()?,
        };
        *state = SlotState::Open(Arc::clone(&open));
        drop(state);
        self.register(slot);
        Some(open)
    }

    fn register(&self, slot: &Arc<DirSlot>) {
        let mut oldest = self.oldest.lock();
        oldest.push_back(Arc::downgrade(slot));
        if oldest.len() > 4 * self.most {
            oldest.retain(|slot| slot.strong_count() > 0);
        }
        let excess = self.open.load(Ordering::Relaxed).saturating_sub(self.most);
        let mut closing = Vec::new();
        // Each directory is passed over once at most, so this ends.
        let mut rounds = 2 * oldest.len();
        while closing.len() < excess && oldest.len() > 1 && rounds > 0 {
            rounds -= 1;
            let Some(next) = oldest.pop_front().and_then(|next| next.upgrade()) else { continue };
            // If all others were used since, the one that was just opened stays open too.
            if next.is_used.swap(false, Ordering::Relaxed) || Arc::ptr_eq(&next, slot) {
                oldest.push_back(Arc::downgrade(&next));
            } else {
                closing.push(next);
            }
        }
        drop(oldest);
        closing.iter().for_each(|slot| slot.close());
    }

    /// Returns the number of open directories.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl DirSlot {
    /// Returns the slot of a directory that is not open.
    pub(super) fn closed() -> Arc<DirSlot> {
        Arc::new(DirSlot {
            state: Mutex::new(SlotState::Closed(Weak::new())),
            is_used: AtomicBool::new(false),
        })
    }

    /// Returns the slot of a root, which is never closed.
    pub(super) fn root(dir: DirFd) -> Arc<DirSlot> {
        let open = Arc::new(OpenDir::new(dir, None));
        Arc::new(DirSlot { state: Mutex::new(SlotState::Open(open)), is_used: AtomicBool::new(false) })
    }

    /// Closes the directory, immediately or when its last holder drops it.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        if let SlotState::Open(open) = &*state {
            let closed = SlotState::Closed(Arc::downgrade(open));
            let open = std::mem::replace(&mut *state, closed);
            drop(state);
            drop(open);
        }
    }
}

impl OpenDir {
    fn new(dir: DirFd, counted: Option<Arc<AtomicUsize>>) -> OpenDir {
        OpenDir { dir, is_listed: AtomicBool::new(false), is_used: AtomicBool::new(false), counted }
    }

    /// Returns the descriptor.
    pub(super) fn fd(&self) -> &OwnedFd {
        &self.dir.fd
    }

    /// Returns true if the directory can be read by its descriptor, and not only resolve names.
    pub(super) fn is_readable(&self) -> bool {
        self.dir.is_readable
    }

    /// Records a use of the descriptor. Returns true for the first one.
    pub(super) fn mark_used(&self) -> bool {
        // A load first: workers in one directory share this line of the cache.
        !self.is_used.load(Ordering::Relaxed) && !self.is_used.swap(true, Ordering::Relaxed)
    }
}

/// The position of an open directory, of which each descriptor has one.
#[derive(Debug)]
pub(super) struct DirPosition(Arc<OpenDir>);

impl DirPosition {
    /// Takes the position of a directory. Returns `None` if the directory cannot be read by this
    /// descriptor, or another list uses the position.
    pub(super) fn take(open: &Arc<OpenDir>) -> Option<DirPosition> {
        let is_free = open.is_readable() && !open.is_listed.swap(true, Ordering::Acquire);
        is_free.then(|| DirPosition(Arc::clone(open)))
    }
}

impl AsFd for DirPosition {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for DirPosition {
    fn drop(&mut self) {
        self.0.is_listed.store(false, Ordering::Release);
    }
}

impl AsFd for OpenDir {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.dir.fd.as_fd()
    }
}

impl Drop for OpenDir {
    fn drop(&mut self) {
        if let Some(open) = &self.counted {
            open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::{CWD, Follow};

    fn descriptor() -> DirFd {
        DirFd::open(CWD, c"/", Follow::Yes).unwrap()
    }

    #[test]
    fn directories_used_last_stay_open() {
        let cache = DirCache::new(4);
        let slots: Vec<_> = (0..4).map(|_| DirSlot::closed()).collect();
        for slot in &slots {
            cache.admit(slot, descriptor());
        }
        assert_eq!(cache.count(), 4);
        cache.held(&slots[0]).expect("open");
        let late = DirSlot::closed();
        cache.admit(&late, descriptor());
        assert_eq!(cache.count(), 4);
        let open: Vec<bool> = slots.iter().map(|slot| cache.held(slot).is_some()).collect();
        assert_eq!(open, [true, false, true, true], "the first one was used again");
    }

    /// Regression: on the way up a deep tree, a directory that was just opened by `..` was closed
    /// at once, because all others had been used. Each level was then opened from the root.
    #[test]
    fn directory_just_opened_stays_open_when_all_others_were_used() {
        let cache = DirCache::new(4);
        let slots: Vec<_> = (0..4).map(|_| DirSlot::closed()).collect();
        for slot in &slots {
            cache.admit(slot, descriptor());
            cache.held(slot).expect("open");
        }
        let late = DirSlot::closed();
        cache.admit(&late, descriptor());
        assert_eq!(cache.count(), 4);
        assert!(cache.held(&late).is_some() && cache.held(&slots[0]).is_none());
    }

    #[test]
    fn held_directory_stays_open_and_returns_to_its_slot() {
        let cache = DirCache::new(2);
        let slot = DirSlot::closed();
        let held = cache.admit(&slot, descriptor());
        slot.close();
        assert_eq!(cache.count(), 1);
        let again = cache.held(&slot).expect("still open");
        assert!(Arc::ptr_eq(&held, &again));
        drop((held, again));
        slot.close();
        assert_eq!(cache.count(), 0);
        assert!(cache.held(&slot).is_none());
    }

    #[test]
    fn second_descriptor_of_a_slot_is_closed() {
        let cache = DirCache::new(2);
        let slot = DirSlot::closed();
        let (one, other) = (cache.admit(&slot, descriptor()), cache.admit(&slot, descriptor()));
        assert!(Arc::ptr_eq(&one, &other) && cache.count() == 1);
    }

    #[test]
    fn roots_do_not_count_and_the_limit_is_bounded() {
        let root = DirSlot::root(descriptor());
        let cache = DirCache::new(usize::MAX);
        assert_eq!((cache.most, DirCache::new(0).most), (OPEN_DIRECTORIES_MAX, OPEN_MIN));
        assert!(cache.held(&root).is_some() && cache.count() == 0);
    }
}
