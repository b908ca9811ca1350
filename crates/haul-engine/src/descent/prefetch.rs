//! Threads that examine entries and read directories before the walk reaches them.
//!
//! A walk in one thread waits for each call of the storage. On a network file system, or on a disk
//! whose cache is cold, these waits are nearly all of its time. Several threads wait at the same
//! time. The walk takes each result when it reaches the entry, so the order stays that of the
//! names. It examines an entry itself if there is no result, or an old one.

use super::examine::{Examine, ExaminedEntry, examine_ahead};
use haul_storage::{Dir, FileKind, Name};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// Maximum age of a result. The walk may wait for hours in one directory until a peer has room.
pub(super) const AGE_MAX: Duration = Duration::from_secs(1);

/// Limit on the bytes of results of one level that wait for the walk. Each thread, and the walk
/// itself, may exceed it by one result.
pub(super) const LEVEL_BYTES: usize = 1 << 20;

/// Limit on the bytes of results of all levels.
const RESULT_BYTES: usize = 16 * LEVEL_BYTES;

/// `errno` values of resources that other threads use: `ENOMEM`, `ENFILE` and `EMFILE`.
const SHORTAGES: [i32; 3] = [12, 23, 24];

/// Order of the requests, and their identity: the level of the directory, innermost first, then as
/// they came.
type Turn = (Reverse<usize>, u64);

/// Reference to a request, with which the walk takes its result.
#[derive(Debug)]
pub(super) struct Ticket(Turn);

/// Request to examine an entry.
#[derive(Debug)]
pub(super) struct Request<E> {
    pub(super) examiner: Arc<E>,
    pub(super) dir: Arc<dyn Dir>,
    pub(super) name: Name,
    pub(super) kind: Option<FileKind>,
}

/// Result of [`examine_ahead`].
type Response<E> = io::Result<Option<ExaminedEntry<<E as Examine>::Examined>>>;

/// Threads that examine entries ahead of the walk. After this value was dropped, each ends with its
/// present call of the storage.
#[derive(Debug)]
pub(super) struct Prefetcher<E: Examine> {
    shared: Arc<Shared<E>>,
    /// Number of threads.
    threads: usize,
    /// Number of requests so far.
    requested: u64,
}

#[derive(Debug)]
struct Shared<E: Examine> {
    state: Mutex<State<E>>,
    /// Notified when a request was added or may start, and at the end.
    added: Condvar,
    /// Notified when the result is there that the walk waits for.
    ended: Condvar,
}

#[derive(Debug)]
struct State<E: Examine> {
    /// Requests that no thread has started.
    waiting: BTreeMap<Turn, Request<E>>,
    running: HashSet<Turn>,
    /// Results, each with the time at which it was requested of the storage.
    results: HashMap<Turn, (Instant, Response<E>)>,
    /// Bytes of the results by level, and of all levels.
    bytes: (HashMap<usize, usize>, usize),
    /// The request that the walk waits for.
    awaited: Option<Turn>,
    is_over: bool,
    /// True if a thread panicked.
    is_broken: bool,
}

impl<E: Examine> Default for Prefetcher<E> {
    fn default() -> Prefetcher<E> {
        let state = State {
            waiting: BTreeMap::new(),
            running: HashSet::new(),
            results: HashMap::new(),
            bytes: (HashMap::new(), 0),
            awaited: None,
            is_over: false,
            is_broken: false,
        };
        let shared = Shared { state: Mutex::new(state), added: Condvar::new(), ended: Condvar::new() };
        Prefetcher { shared: Arc::new(shared), threads: 0, requested: 0 }
    }
}

impl<E: Examine> Prefetcher<E> {
    /// Starts `count` threads, or as many as the system grants.
    pub(super) fn start(&mut self, count: usize) {
        let start = |_: &usize| {
            let shared = Arc::clone(&self.shared);
            thread::Builder::new().spawn(move || shared.run()).is_ok()
        };
        self.threads = (0..count).take_while(start).count();
    }

    /// Returns true if there are threads.
    pub(super) fn is_started(&self) -> bool {
        self.threads > 0
    }

    /// Adds a request for an entry of the directory at this level. Call [`Prefetcher::wake`] after
    /// the last one.
    pub(super) fn request(&mut self, level: usize, request: Request<E>) -> Ticket {
        let turn = (Reverse(level), self.requested);
        self.requested += 1;
        self.shared.state().waiting.insert(turn, request);
        Ticket(turn)
    }

    /// Wakes the threads for new requests.
    pub(super) fn wake(&self) {
        self.shared.added.notify_all();
    }

    /// Takes the result of a request. Waits for it if a thread has started the request, and handles
    /// others of this level meanwhile. Returns `None` if the walk has to examine the entry itself.
    ///
    /// # Panics
    /// Panics if a thread panicked.
    pub(super) fn take(&self, Ticket(turn): Ticket) -> Option<io::Result<ExaminedEntry<E::Examined>>> {
        let mut state = self.shared.state();
        if state.waiting.remove(&turn).is_some() {
            return None;
        }
        loop {
            if let Some((begin, response)) = self.shared.take_result(&mut state, turn) {
                let is_shortage =
                    |error: &io::Error| error.raw_os_error().is_some_and(|errno| SHORTAGES.contains(&errno));
                let is_usable = begin.elapsed() <= AGE_MAX && !response.as_ref().is_err_and(is_shortage);
                return if is_usable { response.transpose() } else { None };
            }
            assert!(!state.is_broken, "a thread of the walk panicked");
            if !self.shared.handle_one(&mut state, Some(turn.0)) {
                state.awaited = Some(turn);
                self.shared.ended.wait(&mut state);
                state.awaited = None;
            }
        }
    }

    /// Returns true if no request waits and none is running.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        let state = self.shared.state();
        state.waiting.is_empty() && state.running.is_empty()
    }

    /// Removes requests whose results are not needed.
    pub(super) fn forget(&self, tickets: impl Iterator<Item = Ticket>) {
        let mut state = self.shared.state();
        for Ticket(turn) in tickets {
            if state.waiting.remove(&turn).is_none() && !state.running.remove(&turn) {
                self.shared.take_result(&mut state, turn);
            }
        }
    }
}

impl<E: Examine> Drop for Prefetcher<E> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.is_over = true;
        let left = (std::mem::take(&mut state.waiting), std::mem::take(&mut state.results));
        drop(state);
        drop(left);
        self.shared.added.notify_all();
    }
}

impl<E: Examine> Shared<E> {
    /// Handles requests until the end, in one of the threads.
    fn run(&self) {
        let _breaks = BreaksOnPanic(self);
        let mut state = self.state();
        while !state.is_over {
            if !self.handle_one(&mut state, None) {
                self.added.wait(&mut state);
            }
        }
    }

    /// Handles the first request, of this level if one is given, without the lock. Returns false if
    /// there is none.
    fn handle_one(&self, state: &mut MutexGuard<'_, State<E>>, level: Option<Reverse<usize>>) -> bool {
        let Some((turn, request)) = state.start(level) else { return false };
        let (begin, response) = MutexGuard::unlocked(state, move || {
            (Instant::now(), examine_ahead(&*request.examiner, &request.dir, &request.name, request.kind))
        });
        // The walk may have removed it meanwhile.
        if state.running.remove(&turn) && !state.is_over {
            state.add_bytes(turn, bytes::<E>(&response));
            state.results.insert(turn, (begin, response));
            if state.awaited == Some(turn) {
                self.ended.notify_one();
            }
        }
        true
    }

    /// Takes a result, and wakes the threads if requests may start now that waited for its bytes.
    fn take_result(&self, state: &mut State<E>, turn: Turn) -> Option<(Instant, Response<E>)> {
        let result = state.results.remove(&turn)?;
        let had_room = state.has_room(turn.0);
        state.remove_bytes(turn, bytes::<E>(&result.1));
        if !had_room {
            self.added.notify_all();
        }
        Some(result)
    }

    fn state(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock()
    }
}

impl<E: Examine> State<E> {
    /// Starts the first request, of this level if one is given, whose results have room.
    fn start(&mut self, level: Option<Reverse<usize>>) -> Option<(Turn, Request<E>)> {
        let may_start = |turn: &&Turn| level.is_none_or(|level| turn.0 == level) && self.has_room(turn.0);
        let turn = *self.waiting.keys().find(may_start)?;
        let request = self.waiting.remove(&turn)?;
        self.running.insert(turn);
        Some((turn, request))
    }

    fn has_room(&self, Reverse(level): Reverse<usize>) -> bool {
        let (levels, all) = &self.bytes;
        levels.get(&level).is_none_or(|bytes| *bytes < LEVEL_BYTES) && *all < RESULT_BYTES
    }

    fn add_bytes(&mut self, (Reverse(level), _): Turn, bytes: usize) {
        let (levels, all) = &mut self.bytes;
        *levels.entry(level).or_default() += bytes;
        *all += bytes;
    }

    fn remove_bytes(&mut self, (Reverse(level), _): Turn, bytes: usize) {
        let (levels, all) = &mut self.bytes;
        *all -= bytes;
        if let Some(of_level) = levels.get_mut(&level) {
            *of_level -= bytes;
            if *of_level == 0 {
                levels.remove(&level);
            }
        }
    }
}

/// Returns the approximate number of bytes that a result takes beyond its own size.
fn bytes<E: Examine>(response: &Response<E>) -> usize {
    match response {
        Ok(Some(ExaminedEntry::Other(_, examined))) => E::bytes(examined),
        Ok(Some(ExaminedEntry::Directory(sorted, _, examined))) => sorted.bytes() + E::bytes(examined),
        Ok(None) | Err(_) => 0,
    }
}

/// Tells the walk if a thread panics.
struct BreaksOnPanic<'a, E: Examine>(&'a Shared<E>);

impl<E: Examine> Drop for BreaksOnPanic<'_, E> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.state().is_broken = true;
            self.0.ended.notify_all();
        }
    }
}
