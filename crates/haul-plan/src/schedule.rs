//! Selection of the next work for a free worker.
//!
//! Three kinds of work wait: directories to read, batches of entries that a worker returned for a
//! large file, and open files with objects that no worker has taken. New files have priority over
//! help with an open file: two workers in one file share the write lock of its inode, but two
//! workers in two files share nothing.
//!
//! Directories are taken last-in first-out, so that the walk is depth-first. The waiting work is
//! bounded by depth times batch size, whatever the number of files.
//!
//! If a job wants to know its total early, the walk runs ahead: files that it found wait until no
//! directory is left to read, or until the caller ends this, because the caller limits their
//! number.

use std::collections::VecDeque;

/// Answer to a worker that requests work.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<D, F> {
    /// Take entries from this walk. Return the walk by [`Schedule::offer_walk`] if it has more
    /// entries.
    Walk(D),
    /// Take objects from this open file until none is left.
    Help(F),
    /// No work now, but running workers may add some.
    Wait,
    /// No work, and no running worker that could add some.
    Finished,
}

/// Waiting work of one job. `D` is a walk (a directory or a list being read). `F` is an open file
/// that several workers can share.
#[derive(Debug)]
pub struct Schedule<D, F> {
    walks: Vec<D>,
    /// Files found by a walk that runs ahead, first-in first-out.
    later: VecDeque<D>,
    /// True while directories come before the files in `later`.
    is_ahead: bool,
    files: Vec<F>,
    running: usize,
}

impl<D, F: Clone + PartialEq> Schedule<D, F> {
    /// Creates an empty schedule.
    pub fn new() -> Schedule<D, F> {
        Schedule { walks: Vec::new(), later: VecDeque::new(), is_ahead: true, files: Vec::new(), running: 0 }
    }

    /// Adds a walk, or returns one that has more entries.
    pub fn offer_walk(&mut self, walk: D) {
        self.walks.push(walk);
    }

    /// Adds files that wait while a walk runs ahead.
    pub fn offer_later(&mut self, files: D) {
        self.later.push_back(files);
    }

    /// Ends the walk ahead: waiting files come before further directories from now on.
    pub fn end_ahead(&mut self) {
        self.is_ahead = false;
    }

    /// Opens a file for helpers.
    pub fn offer_file(&mut self, file: F) {
        self.files.push(file);
    }

    /// Closes a file for helpers: its last object has been taken.
    pub fn close_file(&mut self, file: &F) {
        self.files.retain(|other| other != file);
    }

    /// Returns work for an idle worker. A worker that received a walk or a file must call
    /// [`Schedule::done`] after it.
    ///
    /// Helpers are distributed over the open files in turn, so that no file gets all of them.
    pub fn next_work(&mut self) -> Next<D, F> {
        let walk = match self.is_ahead {
            true => self.walks.pop().or_else(|| self.later.pop_front()),
            false => self.later.pop_front().or_else(|| self.walks.pop()),
        };
        if let Some(walk) = walk {
            self.running += 1;
            return Next::Walk(walk);
        }
        if !self.files.is_empty() {
            self.files.rotate_left(1);
            self.running += 1;
            let last = self.files.len() - 1;
            return Next::Help(self.files[last].clone());
        }
        if self.running == 0 { Next::Finished } else { Next::Wait }
    }

    /// Reports that a worker has finished the work from [`Schedule::next_work`]. Returns true if
    /// that was the last work of the job.
    pub fn done(&mut self) -> bool {
        assert!(self.running > 0, "only a worker that got work reports it done");
        self.running -= 1;
        self.running == 0 && self.walks.is_empty() && self.later.is_empty() && self.files.is_empty()
    }

    /// Removes the waiting work, because the job must stop. Running workers still report their end.
    /// Returns the waiting walks.
    pub fn clear(&mut self) -> Vec<D> {
        self.files.clear();
        let mut walks = std::mem::take(&mut self.walks);
        walks.extend(self.later.drain(..));
        walks
    }
}

impl<D, F: Clone + PartialEq> Default for Schedule<D, F> {
    fn default() -> Self {
        Schedule::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn walks_come_before_help_and_newer_walks_first() {
        let mut schedule = Schedule::new();
        schedule.offer_file("file");
        schedule.offer_walk("top");
        schedule.offer_walk("below");
        assert_eq!(schedule.next_work(), Next::Walk("below"));
        assert_eq!(schedule.next_work(), Next::Walk("top"));
        assert_eq!(schedule.next_work(), Next::Help("file"));
        schedule.close_file(&"file");
        assert_eq!(schedule.next_work(), Next::Wait);
    }

    #[test]
    fn directories_come_before_waiting_files_until_the_walk_ahead_ends() {
        let mut schedule: Schedule<&str, u8> = Schedule::new();
        schedule.offer_later("first files");
        schedule.offer_walk("a");
        schedule.offer_later("more files");
        schedule.offer_walk("b");
        assert_eq!(schedule.next_work(), Next::Walk("b"));
        schedule.end_ahead();
        for expected in ["first files", "more files", "a"] {
            assert_eq!(schedule.next_work(), Next::Walk(expected));
        }
        assert_eq!(schedule.next_work(), Next::Wait);
        assert_eq!([0; 4].map(|_| schedule.done()), [false, false, false, true]);
        schedule.offer_later("files");
        assert_eq!(schedule.clear(), ["files"]);
    }

    #[test]
    fn helpers_spread_over_open_files() {
        let mut schedule: Schedule<(), _> = Schedule::new();
        for file in ["a", "b", "c"] {
            schedule.offer_file(file);
        }
        let mut helped: Vec<_> = (0..3).map(|_| schedule.next_work()).collect();
        helped.sort_by_key(|next| format!("{next:?}"));
        assert_eq!(helped, [Next::Help("a"), Next::Help("b"), Next::Help("c")]);
    }

    proptest! {
        /// Walks a random tree with simulated workers: they see every node once, and the end is
        /// reported only at the end.
        #[test]
        fn every_directory_is_walked_once(children in proptest::collection::vec(0usize..6, 1..80), workers in 1usize..6, seed in any::<u64>()) {
            let mut schedule: Schedule<usize, u8> = Schedule::new();
            let (mut unborn, mut seen, mut held, mut dice) = (1, 0, Vec::new(), seed);
            schedule.offer_walk(0);
            loop {
                dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                if held.len() < workers && dice >> 63 == 0 {
                    match schedule.next_work() {
                        Next::Walk(node) => held.push(node),
                        Next::Wait => prop_assert!(!held.is_empty()),
                        Next::Finished => { prop_assert!(held.is_empty()); break; }
                        Next::Help(_) => prop_assert!(false, "there is no file to help with"),
                    }
                } else if !held.is_empty() {
                    let node = held.swap_remove((dice >> 33) as usize % held.len());
                    seen += 1;
                    for _ in 0..children[node % children.len()] {
                        if unborn < children.len() {
                            schedule.offer_walk(unborn);
                            unborn += 1;
                        }
                    }
                    prop_assert_eq!(schedule.done(), held.is_empty() && seen == unborn);
                }
            }
            prop_assert_eq!(seen, unborn);
        }
    }
}
