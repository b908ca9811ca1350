//! The room that the logs of many clients' jobs have together: how much they may take, and for how long.

use super::hold::jobs_folder;
use super::{LogError, list};
use haul_log::objects::Identity;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// What a file takes at least, in bytes: a block of most file systems. Without that many small files would count for nothing.
const BLOCK_BYTES: u64 = 4096;

/// What a job takes beside its log, in bytes: two folders, the lock, when it began (two blocks at most), and where it goes (two blocks).
const JOB_BYTES: u64 = 8 * BLOCK_BYTES;

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

/// A state directory whose jobs come from clients that nobody here need trust.
#[derive(Debug)]
pub struct Room {
    state: PathBuf,
    limits: RoomLimits,
    jobs: Mutex<BTreeMap<Identity, Taken>>,
}

/// What one job takes.
#[derive(Clone, Debug, Default)]
struct Taken {
    bytes: u64,
    /// Sessions that are at it, or wait for it.
    sessions: u32,
    /// Whose it is, where it was met by this process.
    guest: Vec<u8>,
}

impl Room {
    /// The room in a state directory, which need not be there; what is in it counts.
    ///
    /// # Errors
    /// [`LogError::Io`]: it can't be looked at.
    pub fn open(state: PathBuf, limits: RoomLimits) -> Result<Room, LogError> {
        let room = Room { state, limits, jobs: Mutex::default() };
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
        let mut found = BTreeMap::new();
        for id in list::ids(&self.state)? {
            let log = list::sizes_in(&self.home(id).join("log"))?;
            found.insert(id, JOB_BYTES + log.into_iter().map(in_blocks).sum::<u64>());
        }
        let mut jobs = self.lock();
        jobs.retain(|id, taken| taken.sessions > 0 || found.contains_key(id));
        for (id, bytes) in found {
            let taken = jobs.entry(id).or_default();
            // Of a running job its own session knows better.
            if taken.sessions == 0 {
                taken.bytes = bytes;
            }
        }
        Ok(())
    }

    /// Jobs to which nothing happened for longer than the limit says, and that nobody is at.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn expired(&self) -> Result<Vec<Identity>, LogError> {
        let now = SystemTime::now();
        let is_old = |id: &Identity| {
            let touched = ["lock", "begun"].map(|name| self.home(*id).join(name).metadata());
            let last = touched.into_iter().flatten().filter_map(|found| found.modified().ok()).max();
            // A time that lies ahead is no age.
            last.is_some_and(|last| now.duration_since(last).is_ok_and(|age| age > self.limits.age))
        };
        let running: Vec<Identity> = self.running();
        let ids = list::ids(&self.state)?;
        Ok(ids.into_iter().filter(|id| !running.contains(id) && is_old(id)).collect())
    }

    /// The jobs of a guest that this process met.
    pub fn jobs_of(&self, guest: &[u8]) -> Vec<Identity> {
        self.lock().iter().filter(|(_, taken)| taken.guest == guest).map(|(id, _)| *id).collect()
    }

    /// A guest's job gets its place.
    ///
    /// # Errors
    /// [`LogError::Full`].
    pub(crate) fn enter(self: &Arc<Room>, job: Identity, guest: &[u8]) -> Result<Place, LogError> {
        let mut jobs = self.lock();
        if !jobs.contains_key(&job) {
            if jobs.len() >= self.limits.jobs {
                return Err(self.full(RoomLimit::Jobs(self.limits.jobs)));
            }
            if sum(&jobs).saturating_add(JOB_BYTES) > self.limits.bytes {
                return Err(self.full(RoomLimit::Bytes(self.limits.bytes)));
            }
        }
        let taken = jobs.entry(job).or_default();
        taken.bytes = taken.bytes.max(JOB_BYTES);
        taken.sessions += 1;
        taken.guest = guest.to_vec();
        drop(jobs);
        Ok(Place { room: Arc::clone(self), job })
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
}

impl Place {
    /// The log is about to have files of these lengths.
    ///
    /// # Errors
    /// [`LogError::Full`]: it has no room to grow so far.
    pub(super) fn takes(&self, lengths: impl Iterator<Item = u64>) -> Result<(), LogError> {
        let bytes = JOB_BYTES + lengths.map(in_blocks).sum::<u64>();
        let mut jobs = self.room.lock();
        let all = sum(&jobs);
        let taken = jobs.entry(self.job).or_default();
        let after = (all - taken.bytes).saturating_add(bytes);
        // Whoever takes less than before is not held up by others.
        if bytes > taken.bytes && after > self.room.limits.bytes {
            drop(jobs);
            return Err(self.full());
        }
        taken.bytes = bytes;
        Ok(())
    }

    /// The job is over, and its log gone: what it took is free before its folder goes, so that whoever sees that finds room.
    pub(super) fn over(self) {
        let mut jobs = self.room.lock();
        if jobs.get(&self.job).is_some_and(|taken| taken.sessions <= 1) {
            jobs.remove(&self.job);
        }
    }

    /// Why it may not grow.
    pub(super) fn full(&self) -> LogError {
        self.room.full(RoomLimit::Bytes(self.room.limits.bytes))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let is_gone = !self.room.home(self.job).exists();
        let mut jobs = self.room.lock();
        if let Some(taken) = jobs.get_mut(&self.job) {
            taken.sessions = taken.sessions.saturating_sub(1);
            if is_gone && taken.sessions == 0 {
                jobs.remove(&self.job);
            }
        }
    }
}

fn sum(jobs: &BTreeMap<Identity, Taken>) -> u64 {
    jobs.values().map(|taken| taken.bytes).sum()
}

fn in_blocks(bytes: u64) -> u64 {
    bytes.div_ceil(BLOCK_BYTES).max(1).saturating_mul(BLOCK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::{Keeper, Settings, SyncPolicy};
    use haul_log::objects::{Encoding, Job, Mechanism, SourceVersion, Style, Subject};
    use haul_model::{Moment, ObjectIndex, ObjectSize, RelPath};
    use std::fs::File;

    fn id(number: u8) -> Identity {
        Identity([number; 16])
    }

    fn limits(bytes: u64, jobs: usize) -> RoomLimits {
        RoomLimits { bytes, jobs, ..RoomLimits::default() }
    }

    fn open(home: &tempfile::TempDir, limits: RoomLimits) -> Arc<Room> {
        Arc::new(Room::open(home.path().to_path_buf(), limits).unwrap())
    }

    fn keep(room: &Arc<Room>, number: u8) -> Result<Keeper, LogError> {
        let settings = Settings {
            style: Style { mechanism: Mechanism::File, encoding: Encoding::Bit8 },
            sync: SyncPolicy::None,
            wait: false,
        };
        let job = Job { id: id(number), object: ObjectSize::new(64 << 10).unwrap() };
        Keeper::within(room, b"guest", job, settings).map(|(keeper, _)| keeper)
    }

    fn subject(number: u64) -> Subject {
        let source = SourceVersion { size: 1 << 20, mtime: Moment { sec: 1, nsec: 2 }, identity: id(8) };
        let path = RelPath::new(format!("file {number}").as_bytes()).unwrap();
        Subject { path, source, sink: id(9) }
    }

    /// Logs one object of so many files, one by one; how many had room.
    fn fill(keeper: &Keeper, files: u64) -> u64 {
        let log = |number: &u64| {
            let (key, _) = keeper.file(&subject(*number))?;
            keeper.durable(key, ObjectIndex(3), 1)?;
            keeper.commit()
        };
        (0..files).take_while(|number| log(number).is_ok()).count() as u64
    }

    #[test]
    fn jobs_are_counted_until_they_are_over() {
        let home = tempfile::tempdir().unwrap();
        let room = open(&home, limits(1 << 20, 2));
        let (one, two) = (keep(&room, 1).unwrap(), keep(&room, 2).unwrap());
        let full = keep(&room, 3).unwrap_err();
        assert!(matches!(full, LogError::Full { limit: RoomLimit::Jobs(2), .. }), "{full}");
        one.finish().unwrap();
        let three = keep(&room, 3).unwrap();
        two.close().unwrap();
        three.close().unwrap();
        assert!(keep(&room, 4).is_err(), "jobs that wait to be gone on with count");
        assert!(keep(&open(&home, limits(1 << 20, 2)), 4).is_err(), "by the next process as well");
        keep(&room, 2).unwrap().finish().unwrap();
        keep(&room, 4).unwrap().finish().unwrap();
        assert_eq!(room.jobs_of(b"guest"), [id(3)]);
        assert!(room.jobs_of(b"stranger").is_empty());
    }

    #[test]
    fn logs_grow_until_their_room_is_taken_and_what_stands_there_stays_true() {
        let home = tempfile::tempdir().unwrap();
        let most = 2 * JOB_BYTES + 5 * BLOCK_BYTES;
        let room = open(&home, limits(most, 9));
        let one = keep(&room, 1).unwrap();
        assert_eq!(fill(&one, 3), 3, "a file of a log takes a block");
        let two = keep(&room, 2).unwrap();
        assert_eq!(fill(&two, 9), 2, "what others take counts");
        assert!(matches!(two.commit(), Ok(())), "what was refused is not asked for again");
        assert!(matches!(two.file(&subject(50)), Err(LogError::Full { .. })));
        assert!(keep(&room, 3).is_err());
        assert_eq!(sum(&room.lock()), most);
        assert_eq!(room.lock().len(), 2);
        one.close().unwrap();
        drop(two);
        let again = open(&home, limits(most, 9));
        assert_eq!(sum(&again.lock()), most, "what is on the disk is what was counted");
        let two = keep(&again, 2).unwrap();
        assert_eq!(two.before().len(), 2, "what was logged is there, and nothing that was refused");
        keep(&again, 1).unwrap().finish().unwrap();
        assert_eq!(fill(&two, 9), 9, "there is room again");
    }

    #[test]
    fn only_what_nobody_touched_for_long_is_old() {
        let home = tempfile::tempdir().unwrap();
        let room = open(&home, RoomLimits { age: Duration::from_secs(3600), ..RoomLimits::default() });
        let kept: Vec<Keeper> = [1, 2, 3].map(|number| keep(&room, number).unwrap()).into();
        let mut kept = kept.into_iter();
        let running = kept.next().unwrap();
        kept.for_each(|keeper| keeper.close().unwrap());
        let touch = |number: u8, ago: u64| {
            let lock = room.home(id(number)).join("lock");
            let at = SystemTime::now() - Duration::from_secs(ago);
            File::options().write(true).open(lock).unwrap().set_modified(at).unwrap();
        };
        assert!(room.expired().unwrap().is_empty());
        [1, 2].into_iter().for_each(|number| touch(number, 7200));
        touch(3, 1800);
        assert_eq!(room.expired().unwrap(), [id(2)], "one is running, one was touched");
        running.close().unwrap();
        touch(1, 7200);
        assert_eq!(room.expired().unwrap(), [id(1), id(2)]);
    }
}
