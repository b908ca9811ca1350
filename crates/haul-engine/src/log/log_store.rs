//! Shared log store of a server: limits on the size, count and age of the logs of many clients'
//! jobs. If a limit is reached, the least recently used job without a session makes way; its client
//! does not matter.

use super::locked_job::jobs_folder;
use super::{LogError, LogStoreLimit, Target, list};
use haul_log::objects::Identity;
use haul_sys::sandbox;
use parking_lot::{Mutex, MutexGuard};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Minimum size that a file counts for, in bytes: a block of most file systems. Without this
/// minimum many small files would count for nothing.
const DISK_BLOCK_BYTES: u64 = 4096;

/// Size that a job counts for in addition to its log, in bytes. It covers two directories, the lock
/// file, the run history (at most two blocks) and the target (two blocks).
const JOB_BYTES: u64 = 8 * DISK_BLOCK_BYTES;

/// Client of the jobs whose target file is missing or damaged.
const UNKNOWN: Identity = Identity([0; 16]);

/// Files of a job that each use modifies.
const TOUCHED: [&str; 2] = ["lock", "begun"];

/// Limits on the logs below one state directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogStoreLimits {
    /// Maximum size, in bytes. Each file counts in whole blocks of 4 KiB, and each job counts eight
    /// blocks in addition to its log.
    pub bytes: u64,
    /// Maximum number of unfinished jobs.
    pub jobs: usize,
    /// Retention time: a job that is idle for this long is deleted.
    pub age: Duration,
}

impl Default for LogStoreLimits {
    /// Returns 64 MiB, 1,000 jobs and 14 days.
    fn default() -> LogStoreLimits {
        LogStoreLimits { bytes: 64 << 20, jobs: 1000, age: Duration::from_secs(14 * 86_400) }
    }
}

/// Log space used by one job.
#[derive(Clone, Debug)]
struct JobUsage {
    /// Size in bytes; 0 for a finished job, which no longer counts.
    bytes: u64,
    /// Number of sessions that run the job or wait for it.
    sessions: u32,
    /// Client that owns the job. All jobs without a known owner belong to one client.
    client: Identity,
    /// Time of the last use.
    touched: SystemTime,
}

/// Answer to a request for log space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// Granted.
    Granted,
    /// May be granted after the eviction of this job.
    Without(Identity),
    /// Refused because of this limit.
    Full(LogStoreLimit),
}

/// Function that deletes a job below a state directory, including its files at the sink, which this
/// module does not know. Returns true if the job is deleted, and false if a process holds it.
pub type Forget = fn(&Path, Identity) -> Result<bool, LogError>;

/// Shared log store of a server: a state directory for the jobs of untrusted clients.
#[derive(Debug)]
pub struct LogStore {
    state: PathBuf,
    limits: LogStoreLimits,
    forget: Forget,
    jobs: Mutex<BTreeMap<Identity, JobUsage>>,
}

impl LogStore {
    /// Opens the log store in a state directory, which may be missing; existing jobs count.
    /// `forget` deletes the jobs that are evicted.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the state directory cannot be read.
    pub fn open(state: PathBuf, limits: LogStoreLimits, forget: Forget) -> Result<LogStore, LogError> {
        let log_store = LogStore { state, limits, forget, jobs: Mutex::default() };
        log_store.recount()?;
        Ok(log_store)
    }

    /// Returns the state directory.
    pub fn state(&self) -> &Path {
        &self.state
    }

    /// Counts the existing jobs again, because another process may have changed them.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the state directory cannot be read.
    pub fn recount(&self) -> Result<(), LogError> {
        let begun = SystemTime::now();
        let mut found = BTreeMap::new();
        for id in list::ids(&self.state)? {
            found.insert(id, self.read_usage(id)?);
        }
        let mut jobs = self.lock();
        // A job that started or ended during the count may be missing from `found`, or still be in
        // it.
        let is_there = |id: &Identity| self.home(*id).exists();
        jobs.retain(|id, usage| usage.sessions > 0 || found.contains_key(id) || is_there(id));
        for (id, seen) in found {
            match jobs.get_mut(&id) {
                // The active session has the newer numbers.
                Some(usage) if usage.sessions > 0 || usage.touched > begun => {}
                Some(usage) => usage.bytes = seen.bytes,
                None if is_there(&id) => drop(jobs.insert(id, seen)),
                None => {}
            }
        }
        Ok(())
    }

    /// Reads the usage of a job that no session holds.
    fn read_usage(&self, id: Identity) -> Result<JobUsage, LogError> {
        let home = self.home(id);
        let client = Target::read(&home).ok().flatten().map_or(UNKNOWN, |target| target.client);
        let touched = touched(&home).unwrap_or(SystemTime::UNIX_EPOCH);
        let log: u64 = list::sizes_in(&home.join("log"))?.into_iter().map(in_blocks).sum();
        Ok(JobUsage { bytes: JOB_BYTES + log, sessions: 0, client, touched })
    }

    /// Returns the jobs that are idle for longer than the retention time.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the state directory cannot be read.
    pub fn expired(&self) -> Result<Vec<Identity>, LogError> {
        let now = SystemTime::now();
        // A time in the future is no age.
        let is_old = |id: &Identity| {
            let last = touched(&self.home(*id));
            last.is_some_and(|last| now.duration_since(last).is_ok_and(|age| age > self.limits.age))
        };
        let running: Vec<Identity> = self.running();
        let ids = list::ids(&self.state)?;
        Ok(ids.into_iter().filter(|id| !running.contains(id) && is_old(id)).collect())
    }

    /// Returns the jobs of a client.
    pub fn jobs_of(&self, client: &[u8]) -> Vec<Identity> {
        let client = Identity::of(client);
        self.lock().iter().filter(|(_, usage)| usage.client == client).map(|(id, _)| *id).collect()
    }

    /// Reserves space for a client's job.
    ///
    /// # Errors
    /// Returns [`LogError::Full`] if a limit is reached.
    pub(crate) fn enter(self: &Arc<LogStore>, job: Identity, client: &[u8]) -> Result<Reservation, LogError> {
        let client = Identity::of(client);
        self.grant(job, JOB_BYTES, |jobs| {
            let none = JobUsage { bytes: 0, sessions: 0, client, touched: SystemTime::now() };
            let usage = jobs.entry(job).or_insert(none);
            usage.bytes = usage.bytes.max(JOB_BYTES);
            usage.sessions += 1;
            usage.client = client;
        })?;
        Ok(Reservation { log_store: Arc::clone(self), job })
    }

    /// Grants a job a size in bytes and calls `write_down`. If a limit is reached, evicts the least
    /// recently used jobs.
    ///
    /// A request that does not increase the usage is always granted.
    fn grant(
        &self,
        job: Identity,
        bytes: u64,
        write_down: impl FnOnce(&mut BTreeMap<Identity, JobUsage>),
    ) -> Result<(), LogError> {
        let mut stay = BTreeSet::new();
        loop {
            let mut jobs = self.lock();
            match answer(&jobs, &self.limits, job, bytes, &stay) {
                Answer::Granted => {
                    write_down(&mut jobs);
                    return Ok(());
                }
                Answer::Full(limit) => return Err(self.full(limit)),
                Answer::Without(other) => {
                    // The deletion can take a moment; release the lock, so that no other session
                    // waits for it. A session that takes the freed space meanwhile is entitled to
                    // it.
                    drop(jobs);
                    // The files of the other job can be beneath another root than this session's.
                    let (forget, state) = (self.forget, self.state.clone());
                    let forgotten = sandbox::outside(move || forget(&state, other).unwrap_or(false));
                    if forgotten.unwrap_or(false) {
                        self.forgotten(other);
                    } else {
                        // A process holds the job, or it cannot be deleted: evict another one.
                        stay.insert(other);
                    }
                }
            }
        }
    }

    /// Removes a deleted job from the count, unless a session started it again meanwhile.
    fn forgotten(&self, job: Identity) {
        let mut jobs = self.lock();
        if jobs.get(&job).is_some_and(|usage| usage.sessions == 0) && !self.home(job).exists() {
            jobs.remove(&job);
        }
    }

    fn full(&self, limit: LogStoreLimit) -> LogError {
        LogError::Full { path: self.state.clone(), limit }
    }

    fn running(&self) -> Vec<Identity> {
        self.lock().iter().filter(|(_, usage)| usage.sessions > 0).map(|(id, _)| *id).collect()
    }

    fn home(&self, job: Identity) -> PathBuf {
        jobs_folder(&self.state).join(job.to_hex())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Identity, JobUsage>> {
        self.jobs.lock()
    }
}

/// Reservation of a job in the log store during a session. Files that the job leaves there still
/// count afterwards.
#[derive(Debug)]
pub(crate) struct Reservation {
    log_store: Arc<LogStore>,
    job: Identity,
}

impl Reservation {
    /// Reserves space for a log whose files have these lengths, in bytes.
    ///
    /// # Errors
    /// Returns [`LogError::Full`] if the limit does not allow the log to grow that far.
    pub(super) fn reserve(&self, lengths: impl Iterator<Item = u64>) -> Result<(), LogError> {
        let bytes = JOB_BYTES + lengths.map(in_blocks).sum::<u64>();
        // The job of a session stays in the list.
        self.log_store.grant(self.job, bytes, |jobs| {
            jobs.entry(self.job).and_modify(|usage| usage.bytes = bytes);
        })
    }

    /// Frees the space of a finished job whose log is deleted. This happens before its directory is
    /// deleted, so that a process that sees the deletion also finds the space.
    pub(super) fn over(&self) {
        let mut jobs = self.log_store.lock();
        if let Some(usage) = jobs.get_mut(&self.job).filter(|usage| usage.sessions <= 1) {
            usage.bytes = 0;
        }
    }

    /// Returns the error for a log that exceeds the size limit.
    pub(super) fn full(&self) -> LogError {
        self.log_store.full(LogStoreLimit::Bytes(self.log_store.limits.bytes))
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let mut jobs = self.log_store.lock();
        let is_gone = !self.log_store.home(self.job).exists();
        if let Some(usage) = jobs.get_mut(&self.job) {
            usage.sessions = usage.sessions.saturating_sub(1);
            usage.touched = SystemTime::now();
            if usage.sessions == 0 && (is_gone || usage.bytes == 0) {
                jobs.remove(&self.job);
            }
        }
    }
}

/// Decides if a job may use this size in bytes, given the usage of all jobs. Evicts no job with a
/// session and none in `stay`, and no job at all if the remaining ones would leave too little
/// space.
fn answer(
    jobs: &BTreeMap<Identity, JobUsage>,
    limits: &LogStoreLimits,
    job: Identity,
    bytes: u64,
    stay: &BTreeSet<Identity>,
) -> Answer {
    let has = jobs.get(&job).map_or(0, |usage| usage.bytes);
    if bytes <= has {
        return Answer::Granted;
    }
    let others = || jobs.iter().filter(|(id, usage)| **id != job && usage.bytes > 0);
    let may_go = |(id, usage): &(&Identity, &JobUsage)| usage.sessions == 0 && !stay.contains(*id);
    let sum = |all: &mut dyn Iterator<Item = (&Identity, &JobUsage)>| {
        all.fold(bytes, |sum, (_, usage)| sum.saturating_add(usage.bytes))
    };
    let stays = || others().filter(|other| !may_go(other));
    let (limit, is_hopeless) = if has == 0 && others().count() >= limits.jobs {
        (LogStoreLimit::Jobs(limits.jobs), stays().count() >= limits.jobs)
    } else if sum(&mut others()) > limits.bytes {
        (LogStoreLimit::Bytes(limits.bytes), sum(&mut stays()) > limits.bytes)
    } else {
        return Answer::Granted;
    };
    let oldest = others().filter(may_go).min_by_key(|(_, usage)| usage.touched);
    match oldest {
        Some((id, _)) if !is_hopeless => Answer::Without(*id),
        _ => Answer::Full(limit),
    }
}

/// Returns the time of the last use of a job, from the modification times of its files.
fn touched(home: &Path) -> Option<SystemTime> {
    let written = TOUCHED.map(|name| home.join(name).metadata().and_then(|found| found.modified()));
    written.into_iter().flatten().max()
}

fn in_blocks(bytes: u64) -> u64 {
    bytes.div_ceil(DISK_BLOCK_BYTES).max(1).saturating_mul(DISK_BLOCK_BYTES)
}

#[cfg(test)]
mod tests;
