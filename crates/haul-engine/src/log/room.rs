//! The room that the logs of many clients' jobs have together: how much they may take, and for how long.

use super::hold::jobs_folder;
use super::shares::{Answer, Taken, Wish, answer};
use super::{LogError, Target, list};
use haul_log::objects::Identity;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// What a file takes at least, in bytes: a block of most file systems. Without that many small files would count for nothing.
const BLOCK_BYTES: u64 = 4096;

/// What a job takes beside its log, in bytes: two folders, the lock, when it began (two blocks at most), and where it goes (two blocks).
const JOB_BYTES: u64 = 8 * BLOCK_BYTES;

/// Whose jobs are of which that was not written down, or is damaged.
const UNKNOWN: Identity = Identity([0; 16]);

/// How much the logs below one state directory may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoomLimits {
    /// Bytes, each file counted by whole blocks of 4 KiB and each job with eight of them beside its log.
    pub bytes: u64,
    /// Jobs that are not at their end.
    pub jobs: usize,
    /// How long nothing need have happened to a job for it to be forgotten.
    pub age: Duration,
}

impl Default for RoomLimits {
    /// 64 MiB, 1,000 jobs, 14 days.
    fn default() -> RoomLimits {
        RoomLimits { bytes: 64 << 20, jobs: 1000, age: Duration::from_secs(14 * 86_400) }
    }
}

/// Which limit was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomLimit {
    /// So many bytes.
    Bytes(u64),
    /// So many jobs.
    Jobs(usize),
}

impl fmt::Display for RoomLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RoomLimit::Bytes(bytes) => {
                write!(
                    f,
                    "the logs of jobs that were cut off take as much as they may, {bytes} bytes; raise --log-quota"
                )
            }
            RoomLimit::Jobs(jobs) => {
                write!(f, "as many jobs that were cut off are kept as may be, {jobs}; raise --log-jobs")
            }
        }
    }
}

/// How a job is forgotten, with what it left at its sink, of which nothing is known here. Whether it is gone: not while somebody is at it.
pub type Forget = fn(&Room, Identity) -> Result<bool, LogError>;

/// A state directory whose jobs come from clients that nobody here need trust.
#[derive(Debug)]
pub struct Room {
    state: PathBuf,
    limits: RoomLimits,
    forget: Forget,
    jobs: Mutex<BTreeMap<Identity, Taken>>,
}

impl Room {
    /// The room in a state directory, which need not be there; what is in it counts. Jobs that give way to others' are forgotten by `forget`.
    ///
    /// # Errors
    /// [`LogError::Io`]: it can't be looked at.
    pub fn open(state: PathBuf, limits: RoomLimits, forget: Forget) -> Result<Room, LogError> {
        let room = Room { state, limits, forget, jobs: Mutex::default() };
        room.recount()?;
        Ok(room)
    }

    /// The state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Counts anew what is there: another process may have been in it.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn recount(&self) -> Result<(), LogError> {
        let begun = SystemTime::now();
        let mut found = BTreeMap::new();
        for id in list::ids(&self.state)? {
            found.insert(id, self.look(id)?);
        }
        let mut jobs = self.lock();
        // What began or ended while this looked is not in what was found, or still is.
        let is_there = |id: &Identity| self.home(*id).exists();
        jobs.retain(|id, taken| taken.sessions > 0 || found.contains_key(id) || is_there(id));
        for (id, seen) in found {
            match jobs.get_mut(&id) {
                // Its own session knows better.
                Some(taken) if taken.sessions > 0 || taken.touched > begun => {}
                Some(taken) => taken.bytes = seen.bytes,
                None if is_there(&id) => drop(jobs.insert(id, seen)),
                None => {}
            }
        }
        Ok(())
    }

    /// A job as it stands on disk, which nobody is at.
    fn look(&self, id: Identity) -> Result<Taken, LogError> {
        let home = self.home(id);
        let guest = Target::read(&home).ok().flatten().map_or(UNKNOWN, |target| target.guest);
        let touched = touched(&home).unwrap_or(SystemTime::UNIX_EPOCH);
        let log: u64 = list::sizes_in(&home.join("log"))?.into_iter().map(in_blocks).sum();
        Ok(Taken { bytes: JOB_BYTES + log, sessions: 0, guest, touched })
    }

    /// Jobs to which nothing happened for longer than the limit says, and that nobody is at.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn expired(&self) -> Result<Vec<Identity>, LogError> {
        let now = SystemTime::now();
        // A time that lies ahead is no age.
        let is_old = |id: &Identity| {
            let last = touched(&self.home(*id));
            last.is_some_and(|last| now.duration_since(last).is_ok_and(|age| age > self.limits.age))
        };
        let running: Vec<Identity> = self.running();
        let ids = list::ids(&self.state)?;
        Ok(ids.into_iter().filter(|id| !running.contains(id) && is_old(id)).collect())
    }

    /// The jobs of a guest.
    pub fn jobs_of(&self, guest: &[u8]) -> Vec<Identity> {
        let guest = Identity::of(guest);
        self.lock().iter().filter(|(_, taken)| taken.guest == guest).map(|(id, _)| *id).collect()
    }

    /// A guest's job gets its place.
    ///
    /// # Errors
    /// [`LogError::Full`].
    pub(crate) fn enter(self: &Arc<Room>, job: Identity, guest: &[u8]) -> Result<Place, LogError> {
        let guest = Identity::of(guest);
        self.grant(&Wish { job, guest, bytes: JOB_BYTES }, |taken| {
            taken.bytes = taken.bytes.max(JOB_BYTES);
            taken.sessions += 1;
            taken.guest = guest;
        })?;
        Ok(Place { room: Arc::clone(self), job, guest })
    }

    /// Writes down that something is taken, if there is room for it, or jobs of guests who have more than their share give way. Whoever takes
    /// no more than before is not held up by others.
    fn grant(&self, wish: &Wish, write_down: impl FnOnce(&mut Taken)) -> Result<(), LogError> {
        let mut stay = BTreeSet::new();
        loop {
            let mut jobs = self.lock();
            let has = jobs.get(&wish.job).map_or(0, |taken| taken.bytes);
            let found =
                if wish.bytes <= has { Answer::Room } else { answer(&jobs, &self.limits, wish, &stay) };
            match found {
                Answer::Room => {
                    let touched = SystemTime::now();
                    let none = Taken { bytes: 0, sessions: 0, guest: wish.guest, touched };
                    write_down(jobs.entry(wish.job).or_insert(none));
                    return Ok(());
                }
                Answer::Full(limit) => return Err(self.full(limit)),
                Answer::Without(other) => {
                    // It may take a moment, and nobody waits for that. Who takes this room meanwhile had the right to.
                    drop(jobs);
                    if (self.forget)(self, other).unwrap_or(false) {
                        self.forgotten(other);
                    } else {
                        // Somebody came for it, or it can't be removed: another one goes.
                        stay.insert(other);
                    }
                }
            }
        }
    }

    /// A job is gone, unless somebody began it anew meanwhile.
    fn forgotten(&self, job: Identity) {
        let mut jobs = self.lock();
        if jobs.get(&job).is_some_and(|taken| taken.sessions == 0) && !self.home(job).exists() {
            jobs.remove(&job);
        }
    }

    fn full(&self, limit: RoomLimit) -> LogError {
        LogError::Full { path: self.state.clone(), limit }
    }

    fn running(&self) -> Vec<Identity> {
        self.lock().iter().filter(|(_, taken)| taken.sessions > 0).map(|(id, _)| *id).collect()
    }

    fn home(&self, job: Identity) -> PathBuf {
        jobs_folder(&self.state).join(job.to_hex())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Identity, Taken>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A job's place in the room while a session is at it. What the job leaves there goes on to count.
#[derive(Debug)]
pub(crate) struct Place {
    room: Arc<Room>,
    job: Identity,
    guest: Identity,
}

impl Place {
    /// The log is about to have files of these lengths.
    ///
    /// # Errors
    /// [`LogError::Full`]: it has no room to grow so far.
    pub(super) fn takes(&self, lengths: impl Iterator<Item = u64>) -> Result<(), LogError> {
        let bytes = JOB_BYTES + lengths.map(in_blocks).sum::<u64>();
        let wish = Wish { job: self.job, guest: self.guest, bytes };
        self.room.grant(&wish, |taken| taken.bytes = bytes)
    }

    /// The job is over, and its log gone: what it took is free before its folder goes, so that whoever sees that finds room.
    pub(super) fn over(&self) {
        let mut jobs = self.room.lock();
        if let Some(taken) = jobs.get_mut(&self.job).filter(|taken| taken.sessions <= 1) {
            taken.bytes = 0;
        }
    }

    /// Why it may not grow.
    pub(super) fn full(&self) -> LogError {
        self.room.full(RoomLimit::Bytes(self.room.limits.bytes))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut jobs = self.room.lock();
        let is_gone = !self.room.home(self.job).exists();
        if let Some(taken) = jobs.get_mut(&self.job) {
            taken.sessions = taken.sessions.saturating_sub(1);
            taken.touched = SystemTime::now();
            if taken.sessions == 0 && (is_gone || taken.bytes == 0) {
                jobs.remove(&self.job);
            }
        }
    }
}

/// When somebody was at a job last, as its files tell.
fn touched(home: &Path) -> Option<SystemTime> {
    let written = ["lock", "begun"].map(|name| home.join(name).metadata().and_then(|found| found.modified()));
    written.into_iter().flatten().max()
}

fn in_blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).max(1).saturating_mul(BLOCK_BYTES)
}

#[cfg(test)]
mod tests;
