//! The jobs below a state directory.

use super::hold::{Hold, jobs_folder};
use super::{Holder, LogError, claim, ledger};
use haul_log::objects::Identity;
use haul_log::record::{JobRecord, RecordFlaw, Status, nanoseconds};
use std::cmp::Reverse;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// How many records of finished jobs are kept.
pub const FINISHED_MAX: usize = 100;

/// How long they are kept at most, in days.
pub const FINISHED_DAYS_MAX: i128 = 30;

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
    /// Bytes of its object log.
    pub log_bytes: u64,
}

impl Listed {
    /// How it stands: one whose record says that it runs, and that nobody is at, was cut off.
    pub fn status(&self) -> Status {
        match (&self.holder, &self.record) {
            (Some(_), _) => Status::Running,
            (None, Some(Ok(record))) if record.status != Status::Running => record.status,
            (None, _) => Status::Stopped,
        }
    }

    fn begun(&self) -> i128 {
        self.whole().map_or(i128::MIN, |record| nanoseconds(record.begun))
    }

    /// Its record, if it is whole.
    pub fn whole(&self) -> Option<&JobRecord> {
        self.record.as_ref().and_then(|record| record.as_ref().ok())
    }
}

/// All jobs, the one that began last first.
///
/// # Errors
/// [`LogError::Io`]: the folder of the jobs, or something in it, can't be read.
pub fn jobs(state: &Path) -> Result<Vec<Listed>, LogError> {
    let mut found = Vec::new();
    for id in ids(state)? {
        found.extend(look(&job_folder(state, id), id)?);
    }
    found.sort_by_key(|job| (Reverse(job.begun()), job.id));
    Ok(found)
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
    let log_bytes = bytes_in(&home.join("log"))?;
    let is_gone = record.is_none() && !home.is_dir();
    Ok((!is_gone).then_some(Listed { id, holder, record, log_bytes }))
}

fn bytes_in(log: &Path) -> Result<u64, LogError> {
    let failed = || LogError::io("look at the log", log);
    let entries = match fs::read_dir(log) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
        entries => entries.map_err(failed())?,
    };
    let mut bytes = 0;
    for entry in entries {
        match entry.and_then(|entry| entry.metadata()) {
            // A running job's files come and go.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => bytes += found.map_err(failed())?.len(),
        }
    }
    Ok(bytes)
}

/// Forgets finished jobs: all but the last [`FINISHED_MAX`], and those that ended more than [`FINISHED_DAYS_MAX`] days ago. Jobs that can be gone on
/// with stay until they are forgotten by name.
///
/// # Errors
/// [`LogError::Io`].
pub fn prune(state: &Path) -> Result<(), LogError> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i128::try_from(since.as_nanos()).unwrap_or(i128::MAX);
    for job in too_many(jobs(state)?, now) {
        match Hold::take(state, job, false) {
            Ok(hold) => hold.forget()?,
            // Somebody began it again meanwhile.
            Err(LogError::Held { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Which jobs are not kept.
fn too_many(jobs: Vec<Listed>, now: i128) -> Vec<Identity> {
    let ended = |job: &Listed| job.whole().and_then(|record| record.ended).map_or(0, nanoseconds);
    let mut finished: Vec<(i128, Identity)> =
        jobs.iter().filter(|job| job.status() == Status::Finished).map(|job| (ended(job), job.id)).collect();
    finished.sort_by_key(|&(ended, id)| (Reverse(ended), id));
    let is_old = |ended: i128| now - ended > FINISHED_DAYS_MAX * DAY_NANOSECONDS;
    let numbered = finished.into_iter().enumerate();
    numbered.filter(|(at, (ended, _))| *at >= FINISHED_MAX || is_old(*ended)).map(|(_, (_, id))| id).collect()
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
        Listed { id: Identity([number; 16]), holder: None, record: Some(Ok(record)), log_bytes: 0 }
    }

    #[test]
    fn finished_jobs_are_kept_by_number_and_age_and_others_always() {
        let day = 86_400;
        let now = i128::from(100 * day) * 1_000_000_000;
        let mut jobs: Vec<Listed> =
            (0..110).map(|n| ended(n, Status::Finished, 100 * day - i64::from(n))).collect();
        jobs.extend((110..115).map(|n| ended(n, Status::Stopped, 1)));
        jobs.extend((115..120).map(|n| ended(n, Status::Failed, 1)));
        assert_eq!(too_many(jobs, now), Vec::from_iter((100..110).map(|n| Identity([n; 16]))));
        let old = [ended(1, Status::Finished, 69 * day), ended(2, Status::Finished, 71 * day)];
        assert_eq!(too_many(old.to_vec(), now), [Identity([1; 16])]);
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
