//! The jobs below a state directory.

use super::hold::{Hold, jobs_folder};
use super::{Holder, LogError, claim, command, ledger};
use haul_log::objects::Identity;
use haul_log::record::{JobRecord, RecordFlaw, Status, nanoseconds};
use haul_sys::open::NO_FOLLOW;
use std::cmp::Reverse;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How many records of finished jobs are kept.
pub const FINISHED_MAX: usize = 100;

/// How long they are kept at most, in days.
pub const FINISHED_DAYS_MAX: i128 = 30;

/// How many records of stopped and failed jobs are kept, beside those that somebody was at lately.
pub const UNFINISHED_MAX: usize = 1000;

/// How many days ago "lately" ends: a job that somebody was at since then is never too many.
pub const LATELY_DAYS: i128 = 7;

/// How long stopped and failed jobs are kept at most, in days since somebody was at them last.
pub const UNFINISHED_DAYS_MAX: i128 = 90;

/// Interval between two searches for jobs that are no longer kept.
const PRUNE_EVERY: Duration = Duration::from_secs(600);

const DAY_NANOSECONDS: i128 = 86_400 * 1_000_000_000;

/// A job as it stands on disk.
#[derive(Clone, Debug)]
pub struct Listed {
    /// What it is told apart by.
    pub id: Identity,
    /// Who is at it.
    pub holder: Option<Holder>,
    /// What its record says; `None` for a job that never wrote one.
    pub record: Option<Result<JobRecord, RecordFlaw>>,
    /// Why it can't be looked at: it is another user's, for example. Nothing else is known of it then.
    pub trouble: Option<Arc<LogError>>,
    /// Bytes of its object logs.
    pub log_bytes: u64,
    /// The logs of its sink, where that is another job to the log: they have no record of their own.
    pub logs: Vec<Identity>,
    /// When somebody was at it last, in nanoseconds since 1970, as its files tell; a running job writes every few seconds.
    pub touched: i128,
}

impl Listed {
    fn unseen(id: Identity, error: LogError) -> Listed {
        let trouble = Some(Arc::new(error));
        Listed { id, holder: None, record: None, trouble, log_bytes: 0, logs: Vec::new(), touched: i128::MIN }
    }

    /// How it stands: one whose record says that it runs, and that nobody is at, was cut off.
    pub fn status(&self) -> Status {
        match (&self.holder, &self.record) {
            (Some(_), _) => Status::Running,
            (None, Some(Ok(record))) if record.status != Status::Running => record.status,
            (None, _) => Status::Stopped,
        }
    }

    /// Removes what is kept of it.
    ///
    /// # Errors
    /// [`LogError::Held`]: a process runs it; [`LogError::Io`]: a part of it remains.
    pub fn forget(&self, state: &Path) -> Result<(), LogError> {
        let hold = Hold::take(state, self.id, false)?;
        for log in &self.logs {
            Hold::take(state, *log, false)?.forget()?;
        }
        hold.forget()
    }

    fn begun(&self) -> i128 {
        self.whole().map_or(i128::MIN, |record| nanoseconds(record.begun))
    }

    /// Its record, if it is whole.
    pub fn whole(&self) -> Option<&JobRecord> {
        self.record.as_ref().and_then(|record| record.as_ref().ok())
    }
}

/// The job with this id; `None` where there is none.
///
/// # Errors
/// [`LogError::Io`]: its folder cannot be read.
pub fn find(state: &Path, id: Identity) -> Result<Option<Listed>, LogError> {
    look(&job_folder(state, id), id)
}

/// All jobs, the one that began last first. One that can't be looked at says why.
///
/// # Errors
/// [`LogError::Io`]: the folder of the jobs can't be read.
pub fn jobs(state: &Path) -> Result<Vec<Listed>, LogError> {
    let mut found = Vec::new();
    for id in ids(state)? {
        let job = look(&job_folder(state, id), id);
        found.extend(job.unwrap_or_else(|error| Some(Listed::unseen(id, error))));
    }
    let mut found = with_logs(state, found);
    found.sort_by_key(|job| (Reverse(job.begun()), job.id));
    Ok(found)
}

/// Joins the logs of sinks with the jobs whose records the commands keep that began them.
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

/// What the jobs that have a folder are told apart by.
pub(super) fn ids(state: &Path) -> Result<Vec<Identity>, LogError> {
    let folder = jobs_folder(state);
    let failed = || LogError::io("read the folder of the jobs", &folder);
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed())?,
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry.map_err(failed())?.file_name();
        // What is called otherwise is no job's.
        found.extend(name.to_str().and_then(Identity::from_hex));
    }
    found.sort_unstable();
    Ok(found)
}

/// One job; `None` where it is gone by now.
fn look(home: &Path, id: Identity) -> Result<Option<Listed>, LogError> {
    let holder = claim::holder(&home.join("lock"))?;
    let record = ledger::read(&home.join("record"))?;
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

/// When a job's folder, or one of its files that are written while it runs, was written last.
fn touched(home: &Path) -> i128 {
    let written = |name: &str| fs::symlink_metadata(home.join(name)).and_then(|facts| facts.modified()).ok();
    ["", "lock", "record", "log"].into_iter().filter_map(written).map(since_1970).max().unwrap_or(i128::MIN)
}

fn since_1970(time: SystemTime) -> i128 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

/// How long the files of a log are, in bytes; none where there is no log.
pub(super) fn sizes_in(log: &Path) -> Result<Vec<u64>, LogError> {
    let failed = || LogError::io("look at the log", log);
    let entries = match fs::read_dir(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.map_err(failed())?,
    };
    let mut sizes = Vec::new();
    for entry in entries {
        match entry.and_then(|entry| entry.metadata()) {
            // A running job's files come and go.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => sizes.push(found.map_err(failed())?.len()),
        }
    }
    Ok(sizes)
}

/// Forgets finished jobs: all but the last [`FINISHED_MAX`], and those that ended more than [`FINISHED_DAYS_MAX`] days ago. Jobs that can be gone on
/// with, stopped or failed, are forgotten [`UNFINISHED_DAYS_MAX`] days after somebody was at them last; where there are more than [`UNFINISHED_MAX`] of
/// them, the oldest already after [`LATELY_DAYS`]. A job that runs is never forgotten, and one that can't be stays: it is no other job's failure.
///
/// Examines all jobs, at most once in [`PRUNE_EVERY`].
///
/// # Errors
/// [`LogError::Io`]: the folder of the jobs can't be read.
pub fn prune(state: &Path) -> Result<(), LogError> {
    let mark = state.join("pruned");
    let since = fs::symlink_metadata(&mark).and_then(|facts| facts.modified()).ok();
    if since.and_then(|since| since.elapsed().ok()).is_some_and(|since| since < PRUNE_EVERY) {
        return Ok(());
    }
    // Best effort: without it the next job looks as well.
    let _ = File::options().write(true).create(true).truncate(true).custom_flags(NO_FOLLOW).open(&mark);
    let jobs = jobs(state)?;
    for id in too_many(&jobs, since_1970(SystemTime::now())) {
        for job in jobs.iter().filter(|job| job.id == id) {
            // Another process runs it again, or it belongs to another user.
            let _ = job.forget(state);
        }
    }
    Ok(())
}

/// Which jobs are not kept.
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

/// The folder of a job.
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
    fn finished_jobs_are_kept_by_number_and_age() {
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
    fn jobs_that_can_be_gone_on_with_go_when_nobody_was_at_them_for_long() {
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
            // Cut off: the record says that it runs.
            numbered(3, ended(0, Status::Running, 9 * day)),
            numbered(4, Listed { holder: Some(Holder::default()), ..ended(0, Status::Running, 0) }),
            numbered(5, Listed { record: None, ..ended(0, Status::Failed, 9 * day) }),
        ];
        let gone = |jobs: &[Listed]| Vec::from_iter(too_many(jobs, now).iter().map(|id| id.0[7]));
        assert_eq!(gone(&old), [1, 2, 3, 5]);
        // More than are kept: only those that nobody was at for a week.
        let many = |seconds: i64| {
            Vec::from_iter((0..1100).map(|n| numbered(n, ended(0, Status::Stopped, seconds - n as i64))))
        };
        assert_eq!(too_many(&many(100 * day), now), []);
        let gone = too_many(&many(92 * day), now);
        let expected = many(92 * day).split_off(UNFINISHED_MAX);
        assert_eq!(gone, Vec::from_iter(expected.iter().map(|job| job.id)));
    }

    #[test]
    fn who_says_running_and_holds_no_lock_was_cut_off() {
        let running = ended(1, Status::Running, 0);
        assert_eq!(running.status(), Status::Stopped);
        assert_eq!(Listed { holder: Some(Holder::default()), ..running }.status(), Status::Running);
        assert_eq!(Listed { record: None, ..ended(1, Status::Failed, 0) }.status(), Status::Stopped);
        let damaged = Listed { record: Some(Err(RecordFlaw::Damaged)), ..ended(1, Status::Failed, 0) };
        assert_eq!(damaged.status(), Status::Stopped);
    }
}
