//! List of the jobs below a state directory.

use super::locked_job::{LockedJob, jobs_folder};
use super::{Holder, LogError, command, folder, job_lock, record_writer};
use haul_log::objects::Identity;
use haul_log::record::{JobRecord, RecordFlaw, Status, nanoseconds};
use haul_storage::{FileKind, Follow, Name, local};
use std::cmp::Reverse;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Maximum number of kept records of finished jobs.
pub const FINISHED_MAX: usize = 100;

/// Maximum age of the record of a finished job, in days.
pub const FINISHED_DAYS_MAX: i128 = 30;

/// Maximum number of kept records of stopped and failed jobs, in addition to recently used ones.
pub const UNFINISHED_MAX: usize = 1000;

/// Age limit of a recently used job, in days. The count limit never applies to such a job.
pub const LATELY_DAYS: i128 = 7;

/// Maximum age of a stopped or failed job, in days since its last use.
pub const UNFINISHED_DAYS_MAX: i128 = 90;

/// Interval between two searches for jobs that are no longer kept.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

const DAY_NANOSECONDS: i128 = 86_400 * 1_000_000_000;

/// State of a job on disk.
#[derive(Clone, Debug)]
pub struct Listed {
    /// ID of the job.
    pub id: Identity,
    /// Process that runs the job, if any.
    pub holder: Option<Holder>,
    /// Record of the job; `None` for a job that never wrote one.
    pub record: Option<Result<JobRecord, RecordFlaw>>,
    /// Reason why the job cannot be examined; for example, it belongs to another user. Nothing else
    /// is known about the job then.
    pub trouble: Option<Arc<LogError>>,
    /// Size of its object logs, in bytes.
    pub log_bytes: u64,
    /// Object logs of its sink, if they have IDs of their own. They have no records.
    pub logs: Vec<Identity>,
    /// Time of the last use, in nanoseconds since 1970, from the modification times of its files. A
    /// running job writes every few seconds.
    pub touched: i128,
}

impl Listed {
    fn unseen(id: Identity, error: LogError) -> Listed {
        let trouble = Some(Arc::new(error));
        Listed { id, holder: None, record: None, trouble, log_bytes: 0, logs: Vec::new(), touched: i128::MIN }
    }

    /// Returns the status of the job. A job whose record says "running", but that no process holds,
    /// was interrupted.
    pub fn status(&self) -> Status {
        match (&self.holder, &self.record) {
            (Some(_), _) => Status::Running,
            (None, Some(Ok(record))) if record.status != Status::Running => record.status,
            (None, _) => Status::Stopped,
        }
    }

    /// Deletes the job with its object logs.
    ///
    /// # Errors
    /// Returns [`LogError::Held`] if a process runs the job, and [`LogError::Io`] if a part of the
    /// job remains.
    pub fn forget(&self, state: &Path) -> Result<(), LogError> {
        let locked_job = LockedJob::take(state, self.id, false)?;
        for log in &self.logs {
            LockedJob::take(state, *log, false)?.forget()?;
        }
        locked_job.forget()
    }

    fn begun(&self) -> i128 {
        self.whole().map_or(i128::MIN, |record| nanoseconds(record.begun))
    }

    /// Returns its record if the record is valid.
    pub fn whole(&self) -> Option<&JobRecord> {
        self.record.as_ref().and_then(|record| record.as_ref().ok())
    }
}

/// Returns the job with this ID, or `None` if there is none.
///
/// # Errors
/// Returns [`LogError::Io`] if its directory cannot be read.
pub fn find(state: &Path, id: Identity) -> Result<Option<Listed>, LogError> {
    read_job(&job_folder(state, id), id)
}

/// Returns all jobs, the most recently started one first. A job that cannot be examined holds the
/// reason.
///
/// # Errors
/// Returns [`LogError::Io`] if the directory of the jobs cannot be read.
pub fn jobs(state: &Path) -> Result<Vec<Listed>, LogError> {
    let mut found = Vec::new();
    for id in ids(state)? {
        let job = read_job(&job_folder(state, id), id);
        found.extend(job.unwrap_or_else(|error| Some(Listed::unseen(id, error))));
    }
    let mut found = with_logs(state, found);
    found.sort_by_key(|job| (Reverse(job.begun()), job.id));
    Ok(found)
}

/// Merges the object logs of sinks into the jobs of the commands that started them.
fn with_logs(state: &Path, found: Vec<Listed>) -> Vec<Listed> {
    let (mut jobs, bare): (Vec<_>, Vec<_>) = found.into_iter().partition(|job| job.record.is_some());
    for log in bare {
        let command = command::read(&job_folder(state, log.id));
        match jobs.iter_mut().find(|job| Some(job.id) == command) {
            Some(job) => {
                job.log_bytes = job.log_bytes.saturating_add(log.log_bytes);
                job.logs.push(log.id);
            }
            None => jobs.push(log),
        }
    }
    jobs
}

/// Returns the IDs of all jobs that have a directory.
pub(super) fn ids(state: &Path) -> Result<Vec<Identity>, LogError> {
    let jobs = jobs_folder(state);
    let failed = || LogError::io("list the jobs in", &jobs);
    let entries = match local::open(&jobs, Follow::Yes).and_then(|dir| folder::entries(&*dir)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed())?,
    };
    // Any other name does not belong to a job.
    let id = |(name, _): (Name, FileKind)| Identity::from_hex(std::str::from_utf8(name.as_bytes()).ok()?);
    let mut found: Vec<Identity> = entries.into_iter().filter_map(id).collect();
    found.sort_unstable();
    Ok(found)
}

/// Reads the state of one job; returns `None` if the job was deleted meanwhile.
fn read_job(home: &Path, id: Identity) -> Result<Option<Listed>, LogError> {
    let holder = job_lock::holder(&home.join("lock"))?;
    let record = record_writer::read(&home.join("record"))?;
    let log_bytes = sizes_in(&home.join("log"))?.into_iter().sum();
    let is_gone = record.is_none() && !home.is_dir();
    let touched = touched(home);
    Ok((!is_gone).then_some(Listed {
        id,
        holder,
        record,
        trouble: None,
        log_bytes,
        logs: Vec::new(),
        touched,
    }))
}

/// Returns the latest modification time of the job directory and of the files that a running job
/// writes.
fn touched(home: &Path) -> i128 {
    let written = |name: &str| fs::symlink_metadata(home.join(name)).and_then(|facts| facts.modified()).ok();
    ["", "lock", "record", "log"].into_iter().filter_map(written).map(since_1970).max().unwrap_or(i128::MIN)
}

fn since_1970(time: SystemTime) -> i128 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

/// Returns the sizes of the files of a log, in bytes; empty if there is no log.
pub(super) fn sizes_in(log: &Path) -> Result<Vec<u64>, LogError> {
    let failed = || LogError::io("check log", log);
    let dir = match local::open(log, Follow::Yes) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        dir => dir.map_err(failed())?,
    };
    let mut sizes = Vec::new();
    for (name, _) in folder::entries(&*dir).map_err(failed())? {
        match dir.stat_at(&name, Follow::No) {
            // A running job creates and removes files.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => sizes.push(found.map_err(failed())?.size),
        }
    }
    Ok(sizes)
}

/// Deletes the records of old jobs.
///
/// - A finished job is deleted if it is not among the last [`FINISHED_MAX`], or if it ended more
///   than [`FINISHED_DAYS_MAX`] days ago.
/// - A resumable job, stopped or failed, is deleted [`UNFINISHED_DAYS_MAX`] days after its last
///   use. If there are more than [`UNFINISHED_MAX`] of them, the oldest ones are deleted
///   [`LATELY_DAYS`] days after their last use.
///
/// A running job is never deleted. A job that cannot be deleted stays, without an error.
///
/// Examines all jobs, at most once in [`PRUNE_EVERY`].
///
/// # Errors
/// Returns [`LogError::Io`] if the directory of the jobs cannot be read.
pub fn prune(state: &Path) -> Result<(), LogError> {
    let mark = state.join("pruned");
    let since = fs::symlink_metadata(&mark).and_then(|facts| facts.modified()).ok();
    if since.and_then(|since| since.elapsed().ok()).is_some_and(|since| since < PRUNE_EVERY) {
        return Ok(());
    }
    // If the file cannot be written, the next job only examines all jobs again.
    let _ = folder::options().write(true).create(true).truncate(true).open(&mark);
    let jobs = jobs(state)?;
    for id in too_many(&jobs, since_1970(SystemTime::now())) {
        for job in jobs.iter().filter(|job| job.id == id) {
            // Fails if another process runs the job again, or if the job belongs to another user.
            let _ = job.forget(state);
        }
    }
    Ok(())
}

/// Returns the IDs of the jobs to delete.
fn too_many(jobs: &[Listed], now: i128) -> Vec<Identity> {
    let ended = |job: &Listed| job.whole().and_then(|record| record.ended).map_or(0, nanoseconds);
    let is_finished = |job: &&Listed| job.status() == Status::Finished;
    let is_idle =
        |job: &&Listed| matches!(job.status(), Status::Stopped | Status::Failed) && job.trouble.is_none();
    let finished = newest_first(jobs.iter().filter(is_finished), ended);
    let idle = newest_first(jobs.iter().filter(is_idle), |job| job.touched);
    let is_older = |then: i128, days: i128| now.saturating_sub(then) > days * DAY_NANOSECONDS;
    let finished = finished
        .into_iter()
        .enumerate()
        .filter(|&(at, (ended, _))| at >= FINISHED_MAX || is_older(ended, FINISHED_DAYS_MAX));
    let idle = idle.into_iter().enumerate().filter(|&(at, (touched, _))| {
        let days = if at >= UNFINISHED_MAX { LATELY_DAYS } else { UNFINISHED_DAYS_MAX };
        is_older(touched, days)
    });
    finished.chain(idle).map(|(_, (_, id))| id).collect()
}

fn newest_first<'j>(
    jobs: impl Iterator<Item = &'j Listed>,
    time: impl Fn(&Listed) -> i128,
) -> Vec<(i128, Identity)> {
    let mut dated: Vec<_> = jobs.map(|job| (time(job), job.id)).collect();
    dated.sort_by_key(|&(time, id)| (Reverse(time), id));
    dated
}

/// Returns the directory of a job.
pub fn job_folder(state: &Path, job: Identity) -> PathBuf {
    jobs_folder(state).join(job.to_hex())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::Moment;

    fn ended(number: u8, status: Status, seconds: i64) -> Listed {
        let ended = Some(Moment { sec: seconds, nsec: 0 });
        let record = JobRecord { status, ended, ..JobRecord::default() };
        let touched = i128::from(seconds) * 1_000_000_000;
        let id = Identity([number; 16]);
        Listed {
            id,
            holder: None,
            record: Some(Ok(record)),
            trouble: None,
            log_bytes: 0,
            logs: Vec::new(),
            touched,
        }
    }

    #[test]
    fn finished_jobs_are_limited_by_count_and_age() {
        let day = 86_400;
        let now = i128::from(100 * day) * 1_000_000_000;
        let mut jobs: Vec<Listed> =
            (0..110).map(|n| ended(n, Status::Finished, 100 * day - i64::from(n))).collect();
        jobs.extend((110..115).map(|n| ended(n, Status::Stopped, 11 * day)));
        jobs.extend((115..120).map(|n| ended(n, Status::Failed, 11 * day)));
        assert_eq!(too_many(&jobs, now), Vec::from_iter((100..110).map(|n| Identity([n; 16]))));
        let old = [ended(1, Status::Finished, 69 * day), ended(2, Status::Finished, 71 * day)];
        assert_eq!(too_many(&old, now), [Identity([1; 16])]);
    }

    #[test]
    fn resumable_jobs_expire_after_long_disuse() {
        let day = 86_400;
        let now = i128::from(100 * day) * 1_000_000_000;
        let numbered = |number: usize, job: Listed| {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(number as u64).to_be_bytes());
            Listed { id: Identity(id), ..job }
        };
        let old = [
            numbered(0, ended(0, Status::Stopped, 11 * day)),
            numbered(1, ended(0, Status::Stopped, 9 * day)),
            numbered(2, ended(0, Status::Failed, 9 * day)),
            // Interrupted: its record still says "running".
            numbered(3, ended(0, Status::Running, 9 * day)),
            numbered(4, Listed { holder: Some(Holder::default()), ..ended(0, Status::Running, 0) }),
            numbered(5, Listed { record: None, ..ended(0, Status::Failed, 9 * day) }),
        ];
        let gone = |jobs: &[Listed]| Vec::from_iter(too_many(jobs, now).iter().map(|id| id.0[7]));
        assert_eq!(gone(&old), [1, 2, 3, 5]);
        // Above the count limit: only jobs that were not used for a week are deleted.
        let many = |seconds: i64| {
            Vec::from_iter((0..1100).map(|n| numbered(n, ended(0, Status::Stopped, seconds - n as i64))))
        };
        assert_eq!(too_many(&many(100 * day), now), []);
        let gone = too_many(&many(92 * day), now);
        let expected = many(92 * day).split_off(UNFINISHED_MAX);
        assert_eq!(gone, Vec::from_iter(expected.iter().map(|job| job.id)));
    }

    #[test]
    fn running_job_without_a_lock_is_listed_as_stopped() {
        let running = ended(1, Status::Running, 0);
        assert_eq!(running.status(), Status::Stopped);
        assert_eq!(Listed { holder: Some(Holder::default()), ..running }.status(), Status::Running);
        assert_eq!(Listed { record: None, ..ended(1, Status::Failed, 0) }.status(), Status::Stopped);
        let damaged = Listed { record: Some(Err(RecordFlaw::Damaged)), ..ended(1, Status::Failed, 0) };
        assert_eq!(damaged.status(), Status::Stopped);
    }
}
