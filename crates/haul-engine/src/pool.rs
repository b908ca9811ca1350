//! Mutex around [`Schedule`]: worker threads request work, wait for it, and return it here.

use haul_plan::{Next, Schedule};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Unit of work for a worker.
#[derive(Debug)]
pub enum WorkItem<D, F> {
    /// Take entries from this walk, and return it by [`Pool::offer_walk`] if entries are left.
    Walk(D),
    /// Take objects from this open file until none is left.
    Help(F),
}

/// One schedule, shared by all workers.
#[derive(Debug)]
pub struct Pool<'a, D, F> {
    schedule: Mutex<Schedule<D, F>>,
    wake: Condvar,
    idle: AtomicUsize,
    stop: &'a AtomicBool,
}

impl<'a, D: Send, F: Clone + PartialEq + Send> Pool<'a, D, F> {
    /// Creates a pool without work. If `stop` becomes true, waiting work is dropped and each worker
    /// ends after its present turn.
    pub fn new(stop: &'a AtomicBool) -> Pool<'a, D, F> {
        Pool { schedule: Mutex::new(Schedule::new()), wake: Condvar::new(), idle: AtomicUsize::new(0), stop }
    }

    /// Returns true if the job is to stop.
    pub fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Adds a walk, or returns one.
    pub fn offer_walk(&self, walk: D) {
        self.schedule().offer_walk(walk);
        self.wake_one();
    }

    /// Adds files that wait until the walk ahead has ended.
    pub fn offer_later(&self, files: D) {
        self.schedule().offer_later(files);
        self.wake_one();
    }

    /// Ends the walk ahead: waiting files come before further directories.
    pub fn end_ahead(&self) {
        self.schedule().end_ahead();
    }

    /// Opens a file for helpers.
    pub fn offer_file(&self, file: F) {
        self.schedule().offer_file(file);
        self.wake.notify_all();
    }

    /// Closes a file for helpers.
    pub fn close_file(&self, file: &F) {
        self.schedule().close_file(file);
    }

    /// Returns true if a worker is idle, so that sharing work is worth its cost.
    pub fn someone_is_idle(&self) -> bool {
        self.idle.load(Ordering::Relaxed) > 0
    }

    /// Runs `workers` threads, or as many as the system grants, until no work is left. If one is
    /// enough or the system grants none, the calling thread does the work. Each worker creates its
    /// state by calling `begin` and passes it to every turn; `turn` may offer more work.
    pub fn run<W>(
        &self,
        workers: usize,
        begin: impl Fn() -> W + Sync,
        turn: impl Fn(&mut W, WorkItem<D, F>) + Sync,
    ) {
        let work = || {
            let mut worker = begin();
            while let Some(next) = self.take() {
                let _turn = WorkItemGuard { pool: self };
                turn(&mut worker, next);
            }
        };
        if workers == 1 {
            return work();
        }
        std::thread::scope(|scope| {
            let hire = |_: &usize| std::thread::Builder::new().spawn_scoped(scope, work).is_ok();
            // A limit that refuses one thread also refuses the next.
            if (0..workers).take_while(hire).count() == 0 {
                work();
            }
        });
    }

    fn take(&self) -> Option<WorkItem<D, F>> {
        let mut schedule = self.schedule();
        loop {
            if self.stopping() {
                // The walks are dropped outside the lock, because closing directories takes time.
                let forgotten = schedule.clear();
                drop(schedule);
                drop(forgotten);
                self.wake.notify_all();
                return None;
            }
            match schedule.next_work() {
                Next::Walk(walk) => return Some(WorkItem::Walk(walk)),
                Next::Help(file) => return Some(WorkItem::Help(file)),
                Next::Finished => return None,
                Next::Wait => {
                    self.idle.fetch_add(1, Ordering::Relaxed);
                    self.wake.wait(&mut schedule);
                    self.idle.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
    }

    fn wake_one(&self) {
        if self.someone_is_idle() {
            self.wake.notify_one();
        }
    }

    fn schedule(&self) -> MutexGuard<'_, Schedule<D, F>> {
        // The schedule is consistent between its calls, so it stays usable after a worker's panic.
        self.schedule.lock()
    }
}

/// Reports the end of a turn, also on panic. Otherwise the other workers would wait for it forever.
struct WorkItemGuard<'a, 'b, D: Send, F: Clone + PartialEq + Send> {
    pool: &'a Pool<'b, D, F>,
}

impl<D: Send, F: Clone + PartialEq + Send> Drop for WorkItemGuard<'_, '_, D, F> {
    fn drop(&mut self) {
        if self.pool.schedule().done() {
            self.pool.wake.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_end_when_the_last_work_is_done() {
        let stop = AtomicBool::new(false);
        let pool: Pool<'_, u32, u8> = Pool::new(&stop);
        let seen = AtomicUsize::new(0);
        pool.offer_walk(12);
        pool.run(
            4,
            || (),
            |(), turn| {
                let WorkItem::Walk(depth) = turn else { panic!("no file was offered") };
                seen.fetch_add(1, Ordering::Relaxed);
                for _ in 0..2 {
                    if depth > 0 {
                        pool.offer_walk(depth - 1);
                    }
                }
            },
        );
        assert_eq!(seen.load(Ordering::Relaxed), (1 << 13) - 1);
    }

    #[test]
    fn without_a_thread_the_caller_does_the_work() {
        let stop = AtomicBool::new(false);
        let pool: Pool<'_, u32, u8> = Pool::new(&stop);
        let (seen, caller) = (AtomicUsize::new(0), std::thread::current().id());
        (0..100).for_each(|walk| pool.offer_walk(walk));
        pool.run(
            0,
            || (),
            |(), _| {
                assert_eq!(std::thread::current().id(), caller);
                seen.fetch_add(1, Ordering::Relaxed);
            },
        );
        assert_eq!(seen.load(Ordering::Relaxed), 100);
    }

    #[test]
    fn stopped_pool_drops_queued_work() {
        let stop = AtomicBool::new(false);
        let pool: Pool<'_, u32, u8> = Pool::new(&stop);
        let seen = AtomicUsize::new(0);
        (0..100).for_each(|walk| pool.offer_walk(walk));
        pool.run(
            2,
            || (),
            |(), _| {
                seen.fetch_add(1, Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
            },
        );
        assert!(seen.load(Ordering::Relaxed) <= 2);
    }
}
