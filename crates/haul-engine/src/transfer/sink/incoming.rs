//! A file between its announcement and its end, at the sink.

use super::arriving::{Arriving, Tag, spot, stands};
use super::metadata::Keeper;
use super::places::{Missing, Places};
use crate::transfer::hashing::{Passed, RootHash};
use crate::transfer::reason::reason;
use haul_digest::Digest;
use haul_log::objects::FileKey;
use haul_model::{ByteOffset, ByteRange, Level, Object, RelPath};
use haul_proto::{Close, FileKind, NewFile, Outcome, Reason, Runs, Why, sink::Unfinished};
use haul_sys::metadata::Place;
use haul_sys::{Stat, open, stat, transfer};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A regular file that is taken.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) facts: Arc<NewFile>,
    pub(super) path: RelPath,
    tag: Tag,
    in_place: bool,
    /// Bytes of it that are to come, where it is not all of them.
    part: Option<u64>,
    /// Made when the first bytes come, or at the end.
    arriving: Mutex<Tries>,
    /// What holds bytes that are the same.
    base: Mutex<Option<Base>>,
    /// What an earlier run left, where samples of it are compared, and all else with what stands under the name.
    left: Mutex<Option<Arc<OwnedFd>>>,
    /// Of a comparison by objects: those that are there and are not looked at, and those that must agree.
    compared: Mutex<(Runs, Runs)>,
    /// Whether there are objects that a later run of the job can go on with.
    is_kept: AtomicBool,
    /// Bytes of it that were counted as done.
    counted: AtomicU64,
    /// Whether this side lacks what it takes, so that a later run may bring the file to its end.
    lacks: AtomicBool,
    /// Whether its temporary name is the job's and its own, to be found by it.
    pub(super) is_claimed: bool,
    /// The digests of the whole, as far as the bytes came.
    pub(super) root: Mutex<RootHash>,
    /// The digest of what stood under the name, where the source was asked for that.
    pub(super) standing_digest: Mutex<Option<Digest>>,
}

/// What the bytes of each try of a file go to, the last one behind.
#[derive(Debug, Default)]
struct Tries {
    made: Vec<(u16, Arc<Arriving>)>,
    /// The try that the file is at.
    attempt: u16,
    /// Whether the file has ended: nothing is made for it any more.
    has_ended: bool,
}

/// A file of this side that has bytes of the source.
#[derive(Clone, Debug)]
struct Base {
    file: Arc<OwnedFd>,
    /// Whether it is the one that is written: what is the same stays.
    is_arriving: bool,
}

impl Incoming {
    pub(super) fn new(
        facts: Arc<NewFile>,
        path: RelPath,
        (tag, is_claimed): (Tag, bool),
        in_place: bool,
        root: RootHash,
    ) -> Incoming {
        Incoming {
            facts,
            path,
            tag,
            in_place,
            part: None,
            arriving: Mutex::default(),
            base: Mutex::default(),
            left: Mutex::default(),
            compared: Mutex::default(),
            is_kept: AtomicBool::new(false),
            counted: AtomicU64::new(0),
            lacks: AtomicBool::new(false),
            is_claimed,
            root: Mutex::new(root),
            standing_digest: Mutex::default(),
        }
    }

    /// So many bytes of it are to come, where it is not all of them.
    pub(super) fn taken_in_part(self, part: Option<u64>) -> Incoming {
        Incoming { part, ..self }
    }

    /// Bytes of it that are to come.
    pub(super) fn asked_bytes(&self) -> u64 {
        self.part.unwrap_or_else(|| self.facts.size())
    }

    /// Further bytes of it are there: how many of them are to be counted, for what came again was counted before.
    pub(super) fn count(&self, bytes: u64) -> u64 {
        let most = self.asked_bytes();
        let then = |before: u64| Some(before.saturating_add(bytes).min(most));
        let before = self.counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, then);
        bytes.min(most.saturating_sub(before.unwrap_or_else(|same| same)))
    }

    /// Opens the existing regular file with the name, with its facts. Returns `None` if there is none, or an entry of another
    /// kind.
    ///
    /// # Errors
    /// Errors of openat(2) for a regular file.
    pub(super) fn standing(&self, places: &Places) -> io::Result<Option<(Arc<OwnedFd>, Stat)>> {
        let found = spot(places, self.path.as_bytes(), Missing::Fails)
            .and_then(|(place, name)| open::open_entry_at(&place, name.as_c_str()));
        let file = match found {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            // Neither a symbolic link nor a socket can be opened: the file replaces them.
            Err(error) => {
                return match self.stands(places)? {
                    Some(standing) if standing.kind == haul_sys::FileKind::Regular => Err(error),
                    _ => Ok(None),
                };
            }
        };
        let facts = stat::stat_fd(&file)?;
        if facts.kind != haul_sys::FileKind::Regular {
            return Ok(None);
        }
        // As for [`Arriving::in_place`].
        let is_arriving = self.in_place && facts.nlink == 1;
        *lock(&self.base) = Some(Base { file: Arc::clone(&file), is_arriving });
        Ok(Some((file, facts)))
    }

    /// Returns the facts of the existing entry with the name, of any kind, or `None` if there is none.
    ///
    /// # Errors
    /// As [`stands`].
    pub(super) fn stands(&self, places: &Places) -> io::Result<Option<Stat>> {
        stands(places, &self.path)
    }

    /// What objects are compared with: what an earlier run left, or what stands under the name; open, and its length.
    pub(super) fn compared(&self, places: &Places) -> Option<(Arc<OwnedFd>, u64)> {
        let base = lock(&self.base).clone();
        if let Some(base) = base.filter(|base| base.is_arriving) {
            let size = stat::stat_fd(&base.file).ok()?.size;
            return Some((base.file, size));
        }
        self.standing(places).ok().flatten().map(|(file, facts)| (file, facts.size))
    }

    /// What was opened to be gone on with is not what objects are compared with, but for samples of it.
    pub(super) fn compare_with_standing(&self) {
        let left = lock(&self.base).take_if(|base| base.is_arriving);
        *lock(&self.left) = left.map(|left| left.file);
    }

    /// What samples are compared with where that is another file than objects are; open, and its length.
    pub(super) fn sampled(&self) -> Option<(Arc<OwnedFd>, u64)> {
        let left = lock(&self.left).clone().filter(|_| !lock(&self.compared).1.is_empty())?;
        let size = stat::stat_fd(&left).ok()?.size;
        Some((left, size))
    }

    /// Objects that are not looked at in a comparison, and those that must agree.
    pub(super) fn compared_by(&self) -> (Runs, Runs) {
        lock(&self.compared).clone()
    }

    /// A comparison is to leave out `have`, and `samples` must agree.
    pub(super) fn compare_by(&self, have: Runs, samples: Runs) {
        *lock(&self.compared) = (have, samples);
    }

    /// Opens what an earlier run left of the file, to go on with it; its facts as they were found, or `None` where nothing is.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn reopen(&self, places: &Places) -> io::Result<Option<Stat>> {
        let spot = match spot(places, self.path.as_bytes(), Missing::Fails) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            found => found?,
        };
        let lengths = (self.facts.size(), self.room());
        let again = Arriving::again(spot, &self.tag, lengths, places.spelling())?;
        let Some((arriving, found)) = again else { return Ok(None) };
        self.clear_holes(&arriving)?;
        let file = Arc::new(open::reopen_source(arriving.fd(), false)?);
        *lock(&self.base) = Some(Base { file, is_arriving: true });
        lock(&self.arriving).made = vec![(0, Arc::new(arriving))];
        Ok(Some(found))
    }

    /// Removes what [`Incoming::reopen`] opened: it is of no use.
    pub(super) fn forget(&self) {
        *lock(&self.base) = None;
        if let Some((_, arriving)) = lock(&self.arriving).made.pop() {
            arriving.abandon();
        }
    }

    /// What [`Incoming::reopen`] opened is this user's alone again.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn take_back(&self) -> io::Result<()> {
        self.last().map_or(Ok(()), |arriving| arriving.take_back())
    }

    /// What [`Incoming::reopen`] opened is in the log.
    pub(super) fn is_logged_as(&self, key: FileKey) {
        if let Some((_, arriving)) = lock(&self.arriving).made.last() {
            arriving.logged.get_or_init(|| key);
        }
    }

    /// There are objects that a later run can go on with.
    pub(super) fn keep_for_later(&self) {
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// The file fails for this reason, of this side.
    pub(super) fn fails_for(&self, reason: &Reason) {
        let lacks = matches!(reason.why, Why::NoSpace | Why::Quota | Why::Io | Why::ReadOnly);
        self.lacks.fetch_or(lacks, Ordering::Relaxed);
    }

    /// Whether a later run may bring it to its end, though this one goes on without it.
    pub(super) fn may_come_later(&self) -> bool {
        self.lacks.load(Ordering::Relaxed)
    }

    /// Whether there are.
    pub(super) fn is_kept_for_later(&self) -> bool {
        self.is_kept.load(Ordering::Relaxed)
    }

    /// The file that bytes went to last.
    pub(super) fn last(&self) -> Option<Arc<Arriving>> {
        lock(&self.arriving).made.last().map(|(_, arriving)| Arc::clone(arriving))
    }

    /// The file that the bytes of a try go to, if it is open.
    pub(super) fn open_for(&self, attempt: u16) -> Option<Arc<Arriving>> {
        let tries = lock(&self.arriving);
        let made = tries.made.iter().rev().find(|(of, _)| *of <= attempt);
        made.filter(|_| attempt == tries.attempt).map(|(_, arriving)| Arc::clone(arriving))
    }

    /// The file that the bytes of this try go to.
    ///
    /// # Errors
    /// It can't be made; [`Why::Stopped`] where the file has ended.
    pub(super) fn arriving_of(&self, places: &Places, attempt: u16) -> Result<Arc<Arriving>, Reason> {
        let mut tries = lock(&self.arriving);
        tries.attempt = tries.attempt.max(attempt);
        // A late writer of an earlier try keeps to what it had, and is not heard.
        if let Some((of, arriving)) = tries.made.iter().rev().find(|(of, _)| *of <= attempt) {
            let (of, arriving) = (*of, Arc::clone(arriving));
            if of == attempt || attempt < tries.attempt {
                return Ok(arriving);
            }
            // What is logged, or about to be, is never written over: its log might outlive it.
            if !self.is_kept_for_later() || self.in_place {
                tries.made.push((attempt, Arc::clone(&arriving)));
                return Ok(arriving);
            }
        }
        if tries.has_ended {
            return Err(Why::Stopped.into());
        }
        let made = spot(places, self.path.as_bytes(), Missing::IsMade).and_then(|spot| {
            let spelling = places.spelling();
            if self.in_place
                && let Some(arriving) =
                    Arriving::in_place(spot.clone(), self.facts.size(), self.room(), spelling)?
            {
                self.clear_holes(&arriving)?;
                return Ok(arriving);
            }
            Arriving::beside(spot, &self.tag, self.room(), spelling)
        });
        let made = Arc::new(made.map_err(|error| reason("cannot make", &error))?);
        self.is_kept.store(false, Ordering::Relaxed);
        tries.made.push((attempt, Arc::clone(&made)));
        Ok(made)
    }

    /// As [`Incoming::arriving_of`], of the try that the file is at.
    ///
    /// # Errors
    /// As there.
    pub(super) fn arriving(&self, places: &Places) -> Result<Arc<Arriving>, Reason> {
        let attempt = lock(&self.arriving).attempt;
        self.arriving_of(places, attempt)
    }

    /// Bytes that are kept free for it.
    fn room(&self) -> u64 {
        // A file with holes may be far longer than the disk, and so may one of which only a part comes.
        let has_holes =
            matches!(&self.facts.kind, haul_proto::FileKind::File { holes, .. } if !holes.is_empty());
        if has_holes || self.part.is_some() { 0 } else { self.facts.size() }
    }

    /// In a file that was there, what the source has as holes is no hole yet, and nothing comes for it.
    fn clear_holes(&self, arriving: &Arriving) -> io::Result<()> {
        let FileKind::File { holes, .. } = &self.facts.kind else { return Ok(()) };
        let geometry = lock(&self.root).geometry();
        let byte = |index: u64| index.saturating_mul(geometry.object_size().bytes()).min(geometry.len());
        let end = stat::stat_fd(arriving.fd())?.size;
        for (first, past) in holes.iter() {
            let (from, to) = (byte(first), byte(past).min(end));
            if from < to {
                arriving.clear(ByteRange::between(from, to))?;
            }
        }
        Ok(())
    }

    /// Takes over a range that is the same in what this side has; whether it stays where it is.
    ///
    /// # Errors
    /// What the system says; [`Why::Changed`] where it is no longer there.
    pub(super) fn keep_same(
        &self,
        arriving: &Arriving,
        range: ByteRange,
        block: &mut [u8],
        mut see: impl FnMut(&[u8]),
    ) -> Result<bool, Reason> {
        let base = self.base_at(range.start).ok_or_else(|| Reason::from(Why::Protocol))?;
        let Base { file: base, is_arriving } = base;
        let identity = |file: BorrowedFd<'_>| stat::stat_fd(file).map(|stat| stat.identity()).ok();
        // If the file has got a second name since it was opened, it is not written in place.
        let is_arriving = is_arriving && identity(base.as_fd()) == identity(arriving.fd());
        let mut at = range.start.0;
        while at < range.end.0 {
            let len = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(block.len());
            let got = transfer::read_at(&base, at, &mut block[..len]);
            if got.map_err(|error| reason("cannot read what is there", &error))? < len {
                return Err(Why::Changed.into());
            }
            see(&block[..len]);
            if !is_arriving {
                arriving.write(at, &block[..len]).map_err(|error| reason("cannot write", &error))?;
            }
            at += len as u64;
        }
        Ok(is_arriving)
    }

    /// What has the object that begins here.
    fn base_at(&self, at: ByteOffset) -> Option<Base> {
        let index = at.0 / lock(&self.root).geometry().object_size().bytes();
        let left = lock(&self.left).clone().filter(|_| lock(&self.compared).1.contains(index));
        match left {
            Some(file) => Some(Base { file, is_arriving: true }),
            None => lock(&self.base).clone(),
        }
    }

    /// Forgets the bytes that came before this try of the file.
    pub(super) fn restart(&self, attempt: u16) {
        let mut tries = lock(&self.arriving);
        tries.attempt = tries.attempt.max(attempt);
        drop(tries);
        lock(&self.base).take_if(|base| base.is_arriving && !self.in_place);
        *lock(&self.left) = None;
        lock(&self.root).turn_to(attempt);
    }

    /// Whether it has no second object.
    pub(super) fn is_one_object(&self) -> bool {
        lock(&self.root).geometry().count() <= 1
    }

    /// Whether objects did not come that its digests are made of.
    pub(super) fn is_incomplete(&self, close: &Close) -> bool {
        matches!(close, Close::Read { .. }) && self.missing(0).is_some()
    }

    /// The next object that did not come.
    pub(super) fn missing(&self, from: u64) -> Option<Object> {
        lock(&self.root).missing(from)
    }

    /// Takes one of them, hashed as it stands here.
    pub(super) fn add_late(&self, object: Object, passed: Passed) {
        lock(&self.root).add_late(object, passed);
    }

    /// What the file is now: the one that arrived, or the one that was left.
    pub(super) fn stat(&self) -> Option<Stat> {
        if let Some((_, arriving)) = lock(&self.arriving).made.last() {
            return stat::stat_fd(arriving.fd()).ok();
        }
        lock(&self.base).as_ref().and_then(|base| stat::stat_fd(&base.file).ok())
    }

    /// Gives the file all it is to have, and its name. What is durable then is not asked.
    ///
    /// # Errors
    /// [`Unfinished`]: the digest differs, or the system refuses something.
    pub(super) fn finish(
        &self,
        places: &Places,
        keeper: &Keeper,
        close: &Close,
        settle: Level,
    ) -> Result<Outcome, Unfinished> {
        let Some(arriving) = self.prepare(places, keeper, close)? else { return Ok(Outcome::Same) };
        arriving.take_name().map_err(failed("cannot name"))?;
        Ok(Outcome::Done(settle))
    }

    /// Gives the file all it is to have but its name; `None` where it stood there already and has it.
    ///
    /// # Errors
    /// As [`Incoming::finish`]; what came of it is let go of with the file.
    pub(super) fn prepare(
        &self,
        places: &Places,
        keeper: &Keeper,
        close: &Close,
    ) -> Result<Option<Arc<Arriving>>, Unfinished> {
        let (size, stated) = match close {
            Close::Read { size, root, .. } => (*size, *root),
            Close::Same => {
                let found = self.standing(places).map_err(failed("cannot open"))?;
                let (file, _) = found.ok_or_else(|| Unfinished::Failed(Why::NotFound.into()))?;
                keeper.apply(Place::file(&file), &self.facts, None).map_err(Unfinished::Failed)?;
                return Ok(None);
            }
            Close::Failed(reason) => return Err(Unfinished::Failed(reason.clone())),
        };
        if size != self.facts.size() {
            return Err(Unfinished::Failed(Why::Changed.into()));
        }
        self.compare(stated, size)?;
        let arriving = self.arriving(places).map_err(Unfinished::Failed)?;
        let done = arriving.set_len(size).map_err(failed("cannot set the length")).and_then(|now| {
            if self.part.is_some() {
                // It is only looked into, by this user.
                keeper.give_owner(Place::File(arriving.fd()), &self.facts);
                return Ok(());
            }
            let new = Some(&now).filter(|_| arriving.is_new);
            keeper.apply(Place::File(arriving.fd()), &self.facts, new).map_err(Unfinished::Failed)
        });
        done.map(|()| Some(arriving))
    }

    /// Holds the digest of what came against the source's, where whole files are compared as they pass. Without both nothing
    /// was compared, and the file is not taken for right.
    fn compare(&self, stated: Option<Digest>, size: u64) -> Result<(), Unfinished> {
        let root = lock(&self.root);
        if !root.is_compared() {
            return Ok(());
        }
        let untold = || Reason::new(Why::Protocol, "the source told no digest of the whole file");
        let stated = stated.ok_or_else(|| Unfinished::Failed(untold()))?;
        let found = root.finish(size).ok_or_else(|| Unfinished::Failed(Why::Internal.into()))?;
        if found == stated { Ok(()) } else { Err(Unfinished::Differs) }
    }

    /// The end of the file: what came of it goes, unless a later run can go on with it.
    pub(super) fn let_go(&self, keeps: bool) {
        let mut tries = lock(&self.arriving);
        tries.has_ended = true;
        let last = tries.made.pop();
        let Some((attempt, arriving)) = last else { return };
        // Another try than the last was never logged, or its file is gone.
        if !keeps || attempt < tries.attempt {
            arriving.abandon();
        }
    }
}

fn failed(doing: &str) -> impl FnOnce(io::Error) -> Unfinished {
    move |error| Unfinished::Failed(reason(doing, &error))
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
