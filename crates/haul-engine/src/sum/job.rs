//! Checksum job: workers take orders, hash, and pass results on in order.

use super::counters::Counters;
use super::lanes::LaneHands;
use super::order::{Order, Orders, Outcome, SumError, Task, Work};
use super::relay::{Relay, RelayJob};
use super::serial::{RunningDigests, check_parts, hash_in_order};
use super::settings::{ENTRIES_PER_TURN, Settings, WINDOW};
use super::source::Opened;
use super::split::{Progress, Split, Turn};
use super::window::Window;
use crate::open_files::{files_left, workers_within};
use crate::pool::{Pool, WorkItem};
use haul_sys::process;
use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Hashes the files of `orders`, and calls `sink` with every ticket and its outcome, strictly in
/// the order of the tickets. Returns early after `stop` turns true; results that `sink` has not
/// received are then lost.
///
/// Memory is bounded by the buffers of the workers and by [`WINDOW`] results, for any number and
/// size of files.
pub fn run<O: Orders>(
    settings: &Settings,
    orders: O,
    counters: &Counters,
    stop: &AtomicBool,
    sink: impl FnMut(O::Ticket, Outcome) + Send,
) {
    let (workers, files_at_once) = within_open_files(settings.workers);
    let settings = &Settings { workers, ..settings.clone() };
    let job = Job {
        settings,
        files_at_once,
        counters,
        pool: Pool::new(settings.workers, stop),
        feed: Mutex::new(Feed { orders, issued: 0, ended: false }),
        passed_on: AtomicU64::new(0),
        out: Mutex::new(Results { window: Window::new(), is_passing: false, parked: false }),
        sink: Mutex::new(sink),
        batches: Mutex::new(Batches(BTreeMap::new())),
        waiting: AtomicUsize::new(0),
        stop,
    };
    job.offer();
    let begin = |_| LaneHands::new(settings);
    job.pool.run(settings.workers, begin, |hands, turn| match turn {
        WorkItem::Walk(QueueToken) => {
            job.waiting.fetch_sub(1, Ordering::Relaxed);
            // In a separate statement, so that the batches are not locked while this worker
            // processes one.
            let oldest = job.batches.lock().take();
            match oldest {
                Some(batch) => job.work_through(batch, hands),
                None => job.take_from_feed(hands),
            }
        }
        WorkItem::Object(..) => unreachable!("the workers of a file divide its parts"),
        WorkItem::Help(shared) => match &shared.0.method {
            ShareMethod::Split(split) => job.help(&shared, split, hands),
            ShareMethod::Relay(relay) => {
                job.pool.close_file(&shared);
                relay.answered();
                job.run_relay(&shared, relay, true, hands);
            }
        },
    });
}

/// Open files of a process from which on their number limits nothing.
const OPEN_FILES_ENOUGH: u64 = 1024;

/// Descriptors of one file: its own and its directory's, while it is hashed, and while one more
/// waits for it.
const DESCRIPTORS_OF_A_FILE: u64 = 8;

/// Returns the number of workers, at most `asked`, and the number of files that each may have at
/// once, for what the process may open.
fn within_open_files(asked: usize) -> (usize, usize) {
    if process::open_file_limit() >= OPEN_FILES_ENOUGH {
        return (asked, usize::MAX);
    }
    let open_files = files_left();
    let workers = workers_within(asked, open_files);
    let files = open_files / (DESCRIPTORS_OF_A_FILE * workers as u64);
    (workers, usize::try_from(files).unwrap_or(usize::MAX).max(1))
}

/// Order with its position in the sequence.
#[derive(Debug)]
pub(super) struct Entry<T> {
    pub(super) number: u64,
    pub(super) ticket: T,
    pub(super) task: Task,
    /// True if the file must be hashed by itself, because lanes would be slower.
    pub(super) alone: bool,
    /// The source, if it is open already.
    pub(super) opened: Option<Opened>,
    /// Number of earlier reads of the file.
    pub(super) read: u32,
}

/// Maximum number of reads of a file whose change time moves while it is read.
const READS_MAX: u32 = 4;

/// Work for a worker besides open files. There is one for each batch, and one for the right to take
/// orders from the feed. The right exists once in the job, and is parked while the window is full.
///
/// A worker that takes a token processes the oldest batch, or uses the right if there is no batch.
/// So younger orders do not overtake an older one for long. Otherwise the results, and the memory
/// for them, would have to wait for the older order.
struct QueueToken;

/// Orders that a worker took and could not start because it met a large file.
type Batch<T> = VecDeque<Entry<T>>;

/// Waiting batches, by the number of their first order.
#[derive(Debug)]
struct Batches<T>(BTreeMap<u64, Batch<T>>);

impl<T> Batches<T> {
    /// Adds a batch; returns false if it is empty.
    fn put(&mut self, batch: Batch<T>) -> bool {
        let first = batch.front().map(|entry| entry.number);
        first.map(|number| self.0.insert(number, batch)).is_some()
    }

    /// Takes the batch with the oldest orders.
    fn take(&mut self) -> Option<Batch<T>> {
        self.0.pop_first().map(|(_, batch)| batch)
    }
}

pub(super) struct Job<'a, O: Orders, S> {
    pub(super) settings: &'a Settings,
    /// Files that a worker has open or has taken, at most.
    pub(super) files_at_once: usize,
    pub(super) counters: &'a Counters,
    pub(super) stop: &'a AtomicBool,
    pool: Pool<'a, QueueToken, Shared<O::Ticket>>,
    feed: Mutex<Feed<O>>,
    batches: Mutex<Batches<O::Ticket>>,
    /// Number of results that have left the window.
    passed_on: AtomicU64,
    out: Mutex<Results<O::Ticket>>,
    /// Receiver of the results. Only the worker that passes results on locks it.
    sink: Mutex<S>,
    /// Number of [`QueueToken`]s that wait for a worker.
    waiting: AtomicUsize,
}

struct Feed<O> {
    orders: O,
    issued: u64,
    ended: bool,
}

struct Results<T> {
    window: Window<(T, Outcome)>,
    /// True while a worker passes results on.
    is_passing: bool,
    /// True if the feed is parked until results leave the window.
    parked: bool,
}

/// File in the schedule that several workers hash; equal only to itself.
struct Shared<T>(Arc<SharedFile<T>>);

struct SharedFile<T> {
    method: ShareMethod,
    entry: Mutex<Option<Entry<T>>>,
}

/// Method of sharing a file.
enum ShareMethod {
    /// Workers hash its pieces independently, in any order.
    Split(Split),
    /// Workers read its blocks in parallel and hash them in turn.
    Relay(Relay),
}

impl<T> Clone for Shared<T> {
    fn clone(&self) -> Self {
        Shared(Arc::clone(&self.0))
    }
}

impl<T> PartialEq for Shared<T> {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

/// State of the feed after a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FeedState {
    More,
    Full,
    Ended,
}

impl<O: Orders, S: FnMut(O::Ticket, Outcome) + Send> Job<'_, O, S> {
    fn take_from_feed(&self, hands: &mut LaneHands) {
        let mut batch = VecDeque::new();
        let state = self.pull(ENTRIES_PER_TURN.min(self.files_at_once), false, &mut batch);
        match state {
            FeedState::More => self.offer(),
            FeedState::Full if self.park() => {}
            FeedState::Full => self.offer(),
            FeedState::Ended => {}
        }
        self.work_through(batch, hands);
    }

    fn offer(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.pool.offer_walk(QueueToken);
    }

    /// Takes up to `max` orders with work; orders without work get their result immediately. With
    /// `only_ready`, never blocks on the feed or on its lock.
    fn pull(&self, max: usize, only_ready: bool, batch: &mut Batch<O::Ticket>) -> FeedState {
        let feed = if only_ready { self.feed.try_lock() } else { Some(self.feed.lock()) };
        let Some(mut feed) = feed else { return FeedState::More };
        let mut idle = Vec::new();
        let mut state = FeedState::More;
        for taken in 0.. {
            if feed.ended {
                state = FeedState::Ended;
                break;
            }
            if feed.issued - self.passed_on.load(Ordering::Acquire) >= WINDOW {
                state = FeedState::Full;
                break;
            }
            let may_wait = taken == 0 && !only_ready;
            if batch.len() >= max || idle.len() >= max || !(may_wait || feed.orders.ready()) {
                break;
            }
            let Some(Order { ticket, work }) = feed.orders.next() else {
                feed.ended = true;
                self.counters.end_walk();
                continue;
            };
            let number = feed.issued;
            feed.issued += 1;
            match work {
                Work::Hash(task) => {
                    self.counters.found_file();
                    batch.push_back(Entry { number, ticket, task, alone: false, opened: None, read: 0 });
                }
                Work::Nothing => idle.push((number, ticket, Outcome::Nothing)),
                Work::Failed(error) => idle.push((number, ticket, Outcome::Failed(error))),
            }
        }
        drop(feed);
        for (number, ticket, outcome) in idle {
            self.store_result(number, ticket, outcome);
        }
        state
    }

    /// Parks the feed until results leave the window; returns false if some have left meanwhile.
    fn park(&self) -> bool {
        let issued = self.feed.lock().issued;
        let mut out = self.out.lock();
        out.parked = issued - self.passed_on.load(Ordering::Acquire) >= WINDOW;
        out.parked
    }

    /// Stores a result. If no other worker passes results on, passes on all that are next in order.
    ///
    /// The sink may block, for example while it prints. Workers that store results meanwhile do not
    /// wait for it: up to [`WINDOW`] results wait in the window.
    fn store_result(&self, number: u64, ticket: O::Ticket, outcome: Outcome) {
        let mut out = self.out.lock();
        out.window.put(number, (ticket, outcome));
        if std::mem::replace(&mut out.is_passing, true) {
            return;
        }
        let mut sink = self.sink.lock();
        while let Some((ticket, outcome)) = out.window.pop() {
            let passed_on = out.window.passed_on();
            drop(out);
            if !self.stop.load(Ordering::Relaxed) {
                (*sink)(ticket, outcome);
            }
            out = self.out.lock();
            self.passed_on.store(passed_on, Ordering::Release);
            if std::mem::take(&mut out.parked) {
                drop(out);
                self.offer();
                out = self.out.lock();
            }
        }
        out.is_passing = false;
    }

    /// Finishes an entry. If the bytes may have changed during the read, has the file read again.
    pub(super) fn finish(&self, mut entry: Entry<O::Ticket>, result: Result<super::Sums, SumError>) {
        let outcome = match result {
            Err(SumError::MayHaveChanged)
                if entry.task.source.can_be_reopened() && entry.read + 1 < READS_MAX =>
            {
                entry.read += 1;
                return self.give_back(VecDeque::from([entry]));
            }
            Err(SumError::MayHaveChanged) => Outcome::Failed(SumError::Changed),
            Err(error) => Outcome::Failed(error),
            Ok(sums) => Outcome::Done(sums),
        };
        self.counters.done_file();
        self.store_result(entry.number, entry.ticket, outcome);
    }

    /// Takes more orders for a worker that hashes files in lanes. Returns true if there may be
    /// more.
    pub(super) fn pull_ready(&self, max: usize, batch: &mut Batch<O::Ticket>) -> bool {
        self.pull(max, true, batch) == FeedState::More
    }

    /// Returns entries to the queue, for any worker.
    pub(super) fn give_back(&self, batch: Batch<O::Ticket>) {
        let waits = self.batches.lock().put(batch);
        if waits {
            self.offer();
        }
    }

    /// Returns an open file to the queue, to be hashed by itself.
    pub(super) fn give_back_open(&self, mut entry: Entry<O::Ticket>, opened: Opened) {
        entry.opened = Some(opened);
        self.give_back(VecDeque::from([entry]));
    }

    fn work_through(&self, mut batch: Batch<O::Ticket>, hands: &mut LaneHands) {
        while let Some(mut entry) = batch.pop_front() {
            if self.pool.stopping() {
                return;
            }
            if let Some(opened) = entry.opened.take() {
                self.give_back(std::mem::take(&mut batch));
                self.hash_alone(entry, opened, hands);
                continue;
            }
            let takes_lane = !entry.alone && hands.may_take(&entry.task.recipe);
            if takes_lane && !self.has_only_one_order() {
                batch.push_front(entry);
                self.side_by_side(&mut batch, hands);
                continue;
            }
            match Opened::open(&entry.task, self.settings, self.stop) {
                Err(error) => self.finish(entry, Err(error)),
                Ok(opened) => {
                    if opened.len() > self.settings.object.bytes() {
                        self.give_back(std::mem::take(&mut batch));
                    }
                    self.counters.found_bytes(opened.len());
                    self.hash_alone(entry, opened, hands);
                }
            }
        }
    }

    /// Returns true if the job has only this file. No other file can share the lanes with it, and
    /// creating the lanes would take longer than hashing a small file.
    fn has_only_one_order(&self) -> bool {
        self.feed.try_lock().is_some_and(|feed| feed.ended && feed.issued == 1)
    }

    /// Hashes one open file, with the help of other workers if possible.
    pub(super) fn hash_alone(&self, entry: Entry<O::Ticket>, opened: Opened, hands: &mut LaneHands) {
        let Settings { object, workers, block_bytes, .. } = *self.settings;
        let recipe = Arc::clone(&entry.task.recipe);
        let leaves = self.settings.leaves.as_ref();
        let share = |entry: Entry<O::Ticket>, method: ShareMethod| {
            Shared(Arc::new(SharedFile { method, entry: Mutex::new(Some(entry)) }))
        };
        if let Err(error) = check_parts(recipe.form, opened.len()) {
            self.finish(entry, Err(error));
        } else if let Some(plan) = Split::plan(&opened, &recipe, object, hands, workers) {
            let shared = share(entry, ShareMethod::Split(Split::new(opened, &recipe, plan, leaves)));
            self.pool.offer_file(shared.clone());
            if let ShareMethod::Split(split) = &shared.0.method {
                self.help(&shared, split, hands);
            }
        } else if Relay::pays(&opened, block_bytes, workers) {
            let running_digests = RunningDigests::new(&recipe, leaves);
            let shared = share(entry, ShareMethod::Relay(Relay::new(opened, running_digests, block_bytes)));
            if let ShareMethod::Relay(relay) = &shared.0.method {
                self.run_relay(&shared, relay, false, hands);
            }
        } else {
            let result = match hands.block() {
                Ok(buffer) => {
                    let running_digests = RunningDigests::new(&recipe, leaves);
                    hash_in_order(&opened, &recipe, running_digests, buffer, self.counters, self.stop)
                }
                Err(error) => Err(error),
            };
            self.finish(entry, result);
        }
    }

    /// Takes pieces of a shared file until none is left.
    fn help(&self, shared: &Shared<O::Ticket>, split: &Split, hands: &mut LaneHands) {
        while let Some(piece) = split.take() {
            if split.all_taken() {
                self.pool.close_file(shared);
            }
            let turn = Turn { counters: self.counters, stop: self.stop };
            let progress = split.work(piece, hands, turn);
            if let Progress::Last = progress {
                self.finish_shared(shared, split.finish());
            }
        }
        self.pool.close_file(shared);
    }

    /// Takes blocks of a shared file in turn with other workers. A helper stops when other files
    /// wait; the owner continues until no block is left.
    fn run_relay(&self, shared: &Shared<O::Ticket>, relay: &Relay, guest: bool, hands: &mut LaneHands) {
        let result = match hands.block() {
            Ok(buffer) => relay.run(buffer, self.counters, &Runner { job: self, shared, relay, guest }),
            // If a helper has no buffer, the others continue. If the owner has none, possibly no
            // other worker is there to continue.
            Err(error) => (!guest && relay.abandon()).then_some(Err(error)),
        };
        if let Some(result) = result {
            self.pool.close_file(shared);
            self.finish_shared(shared, result);
        }
    }

    fn finish_shared(&self, shared: &Shared<O::Ticket>, result: Result<super::Sums, SumError>) {
        let entry = shared.0.entry.lock().take();
        if let Some(entry) = entry {
            self.finish(entry, result);
        }
    }
}

/// Worker in a relay.
struct Runner<'j, 'a, O: Orders, S> {
    job: &'j Job<'a, O, S>,
    shared: &'j Shared<O::Ticket>,
    relay: &'j Relay,
    /// True if the worker helps with another worker's file.
    guest: bool,
}

impl<O: Orders, S: FnMut(O::Ticket, Outcome) + Send> RelayJob for Runner<'_, '_, O, S> {
    fn stays(&self) -> bool {
        !self.guest || self.job.waiting.load(Ordering::Relaxed) == 0
    }

    fn holds_hasher_state(&self) {
        if self.job.pool.someone_is_idle() && self.relay.wants_runner() {
            self.job.pool.offer_file(self.shared.clone());
        }
    }

    fn stopping(&self) -> bool {
        self.job.pool.stopping()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sum::{Form, Recipe, Source};
    use haul_digest::Algorithm;
    use haul_model::ByteOffset;

    fn batch(numbers: std::ops::Range<u64>) -> Batch<()> {
        let recipe = Arc::new(Recipe { algorithms: vec![Algorithm::Md5], form: Form::Plain });
        let task = Task { source: Source::Stdin, recipe, offset: ByteOffset(0), length: None };
        numbers
            .map(|number| Entry {
                number,
                ticket: (),
                task: task.clone(),
                alone: false,
                opened: None,
                read: 0,
            })
            .collect()
    }

    /// Regression test: a verification of large files reported nothing until its end, because the
    /// first batch was queued below all later ones.
    #[test]
    fn oldest_batch_is_taken_first() {
        let mut batches = Batches(BTreeMap::new());
        assert!(batches.take().is_none() && !batches.put(batch(0..0)));
        for numbers in [17..32, 1..16, 40..48, 33..34] {
            assert!(batches.put(batch(numbers)));
        }
        let mut first = Vec::new();
        while let Some(batch) = batches.take() {
            first.push(batch[0].number);
            // The rest of a batch that a worker returns is again taken before all younger batches.
            if batch.len() == 15 {
                assert!(batches.put(batch.into_iter().skip(1).collect()));
            }
        }
        assert_eq!(first, [1, 2, 17, 18, 33, 40]);
    }
}
