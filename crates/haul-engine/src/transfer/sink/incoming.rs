//! A file between its announcement and its end, at the sink.

use super::arriving::{Arriving, Tag, spot};
use super::metadata::Keeper;
use super::places::{Missing, Places};
use crate::transfer::hashing::{Passed, RootHash};
use crate::transfer::reason::reason;
use haul_digest::Digest;
use haul_model::{ByteRange, Level, Object, RelPath};
use haul_proto::{Close, FileKind, NewFile, Outcome, Reason, Why, sink::Unfinished};
use haul_sys::metadata::Place;
use haul_sys::{Stat, open, stat, transfer};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// A regular file that is taken.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) facts: Arc<NewFile>,
    path: RelPath,
    tag: Tag,
    in_place: bool,
    /// Made when the first bytes come, or at the end.
    arriving: Mutex<Option<Arc<Arriving>>>,
    /// What stood under the name, for bytes that are the same there.
    base: Mutex<Option<Arc<OwnedFd>>>,
    /// The digests of the whole, as far as the bytes came.
    pub(super) root: Mutex<RootHash>,
    /// The digest of what stood under the name, where the source was asked for that.
    pub(super) standing_digest: Mutex<Option<Digest>>,
}

impl Incoming {
    pub(super) fn new(
        facts: Arc<NewFile>,
        path: RelPath,
        tag: Tag,
        in_place: bool,
        root: RootHash,
    ) -> Incoming {
        Incoming {
            facts,
            path,
            tag,
            in_place,
            arriving: Mutex::default(),
            base: Mutex::default(),
            root: Mutex::new(root),
            standing_digest: Mutex::default(),
        }
    }

    /// What stands under the name: a regular file, open, and its facts.
    ///
    /// # Errors
    /// What the system says, but for a name that is free.
    pub(super) fn standing(&self, places: &Places) -> io::Result<Option<(Arc<OwnedFd>, Stat)>> {
        let found = spot(places, self.path.as_bytes(), Missing::Fails)
            .and_then(|(place, name)| open::open_entry_at(&place, name.as_c_str()));
        let file = match found {
            Ok(file) => Arc::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let facts = stat::stat_fd(&file)?;
        if facts.kind != haul_sys::FileKind::Regular {
            return Ok(None);
        }
        *lock(&self.base) = Some(Arc::clone(&file));
        Ok(Some((file, facts)))
    }

    /// The file that the bytes go to.
    ///
    /// # Errors
    /// It can't be made.
    pub(super) fn arriving(&self, places: &Places) -> Result<Arc<Arriving>, Reason> {
        let mut arriving = lock(&self.arriving);
        if let Some(arriving) = &*arriving {
            return Ok(Arc::clone(arriving));
        }
        let made = spot(places, self.path.as_bytes(), Missing::IsMade).and_then(|(place, name)| {
            // A file with holes may be far longer than the disk.
            let has_holes =
                matches!(&self.facts.kind, haul_proto::FileKind::File { holes, .. } if !holes.is_empty());
            let room = if has_holes { 0 } else { self.facts.size() };
            if self.in_place {
                let arriving = Arriving::in_place(place, name, self.facts.size(), room)?;
                self.clear_holes(&arriving)?;
                Ok(arriving)
            } else {
                Arriving::beside(place, name, &self.tag, room)
            }
        });
        let made = Arc::new(made.map_err(|error| reason("cannot make", &error))?);
        *arriving = Some(Arc::clone(&made));
        Ok(made)
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

    /// Takes over a range that is the same in what stands under the name.
    ///
    /// # Errors
    /// What the system says; [`Why::Changed`] where it is no longer there.
    pub(super) fn keep_same(
        &self,
        arriving: &Arriving,
        range: ByteRange,
        block: &mut [u8],
        mut see: impl FnMut(&[u8]),
    ) -> Result<(), Reason> {
        let base = lock(&self.base).clone().ok_or_else(|| Reason::from(Why::Protocol))?;
        let mut at = range.start.0;
        while at < range.end.0 {
            let len = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(block.len());
            let got = transfer::read_at(&base, at, &mut block[..len]);
            if got.map_err(|error| reason("cannot read what is there", &error))? < len {
                return Err(Why::Changed.into());
            }
            see(&block[..len]);
            if !self.in_place {
                arriving.write(at, &block[..len]).map_err(|error| reason("cannot write", &error))?;
            }
            at += len as u64;
        }
        Ok(())
    }

    /// Forgets the bytes that came before this try of the file.
    pub(super) fn restart(&self, attempt: u16) {
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
        if let Some(arriving) = &*lock(&self.arriving) {
            return stat::stat_fd(arriving.fd()).ok();
        }
        lock(&self.base).as_ref().and_then(|base| stat::stat_fd(base).ok())
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
    /// As [`Incoming::finish`]; nothing of what came is left then.
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
            let new = Some(&now).filter(|_| !self.in_place);
            keeper.apply(Place::File(arriving.fd()), &self.facts, new).map_err(Unfinished::Failed)
        });
        match done {
            Ok(()) => Ok(Some(arriving)),
            Err(unfinished) => {
                arriving.abandon();
                Err(unfinished)
            }
        }
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

    /// Lets go of what came.
    pub(super) fn abandon(&self) {
        if let Some(arriving) = lock(&self.arriving).take() {
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
