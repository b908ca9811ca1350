//! Writer of the record of a running job.

use super::folder;
use super::{LockedJob, LogError};
use haul_log::record::{
    JobRecord, KEPT_MAX, Progress, RECORD_BYTES_MAX, RecordFlaw, Status, SyncedRange, nanoseconds,
};
use haul_model::Moment;
use haul_storage::{Durability, Replacement, Writers, replace_path};
use haul_sys::process;
use parking_lot::{Mutex, MutexGuard};
use std::ffi::OsString;
use std::io::{self, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Minimum interval between two writes of progress.
const EVERY: Duration = Duration::from_secs(2);

/// Returns the durability that is needed when a record with the ranges `new` replaces one with the
/// ranges `old`.
fn durability_for(old: &[SyncedRange], new: &[SyncedRange], syncs: bool) -> Durability {
    let is_within = |old: &SyncedRange, new: &SyncedRange| {
        old.dev == new.dev && new.from <= old.from && old.until <= new.until
    };
    match old.iter().all(|old| new.iter().any(|new| is_within(old, new))) {
        _ if !syncs => Durability::None,
        // If the new name is lost, the old record lists fewer files, and nothing that is wrong.
        true => Durability::Data,
        // A removed range must not come back.
        false => Durability::DataAndName,
    }
}

/// Command line that a job is listed by.
#[derive(Clone, Debug)]
pub struct CommandLine {
    /// Name of the command: `cp`, `send`, ...
    pub kind: &'static str,
    /// All arguments after the program's name, so that `haul WORDS` in `cwd` runs the job again.
    pub words: Vec<OsString>,
    /// Directory that the command was started in.
    pub cwd: PathBuf,
}

/// Writer of the record of a running job. Each write replaces the whole record. Progress alone is
/// written at most every two seconds.
#[derive(Debug)]
pub struct RecordWriter {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    record: JobRecord,
    written: Instant,
    /// True if the record on disk, or an older one that a power failure brings back, may list
    /// ranges that this record no longer lists.
    owes: bool,
}

impl RecordWriter {
    /// Records durably that the job runs. Returns the record of an earlier run if it exists and is
    /// valid.
    ///
    /// # Errors
    /// Returns [`LogError::Record`] or [`LogError::Newer`] if a newer version of haul wrote the
    /// existing record or the log next to it; the job is left unchanged. Any other error means that
    /// the record cannot be read or written.
    pub fn begin(
        locked_job: &LockedJob,
        command_line: CommandLine,
    ) -> Result<(RecordWriter, Option<JobRecord>), LogError> {
        let path = locked_job.folder().join("record");
        let usable = usable(locked_job, &path).inspect_err(|_| {
            // If the restore fails, the next run only treats the job as interrupted. The caller
            // reports the refusal.
            let _ = locked_job.restore();
        });
        let before = usable?.map(drop_future_ranges);
        let unfinished = before.as_ref().filter(|record| record.status != Status::Finished);
        let record = JobRecord {
            kind: command_line.kind.to_owned(),
            words: command_line.words.into_iter().map(OsString::into_vec).collect(),
            cwd: command_line.cwd.into_os_string().into_vec(),
            begun: unfinished.map_or_else(now, |record| record.begun),
            runs: unfinished.map_or(0, |record| record.runs).saturating_add(1),
            status: Status::Running,
            progress: Progress { is_counting: true, ..Progress::default() },
            boot: process::boot_id(),
            // Ranges of a finished run count as well: durable files stay durable.
            kept: before.as_ref().map(|record| record.kept.clone()).unwrap_or_default(),
            ..JobRecord::default()
        };
        let record_writer =
            RecordWriter { path, state: Mutex::new(State { record, written: Instant::now(), owes: false }) };
        record_writer.write(&mut record_writer.lock(), Durability::DataAndName)?;
        Ok((record_writer, before))
    }

    /// Updates the progress; writes it if the last write is at least two seconds old.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the write fails. The job can continue; `haul jobs` then shows
    /// older progress.
    pub fn progress(&self, progress: Progress) -> Result<(), LogError> {
        let mut state = self.lock();
        state.record.progress = progress;
        if state.written.elapsed() < EVERY { Ok(()) } else { self.write(&mut state, Durability::None) }
    }

    /// Records that the finished files of these ranges are durable. Writes the record immediately,
    /// and syncs it if `syncs` is true.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the record cannot be written.
    pub fn keep(&self, kept: &[SyncedRange], syncs: bool) -> Result<(), LogError> {
        let mut state = self.lock();
        let kept: Vec<SyncedRange> = kept.iter().take(KEPT_MAX).copied().collect();
        let durability = durability_for(&state.record.kept, &kept, syncs);
        state.record.kept = kept;
        // Stays set until a durable write succeeds.
        state.owes |= durability == Durability::DataAndName;
        let durability = if state.owes { Durability::DataAndName } else { durability };
        self.write(&mut state, durability)
    }

    /// Records the end of the job durably.
    ///
    /// # Errors
    /// Returns [`LogError::Io`] if the record cannot be written.
    pub fn end(&self, status: Status, exit: u8, progress: Progress) -> Result<(), LogError> {
        let mut state = self.lock();
        let record = &mut state.record;
        (record.status, record.exit, record.ended) = (status, Some(exit), Some(now()));
        record.progress = progress;
        self.write(&mut state, Durability::DataAndName)
    }

    fn write(&self, state: &mut State, durability: Durability) -> Result<(), LogError> {
        state.written = Instant::now();
        let bytes = state.record.encode();
        let replacement = Replacement::private(Writers::One, durability);
        replace_path(&self.path, replacement, |out| out.write_all(&bytes))
            .map_err(LogError::io("write job record", &self.path))?;
        state.owes &= durability != Durability::DataAndName;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// Returns the record of an earlier run if it exists and is valid.
///
/// # Errors
/// Returns an error if the record or the log cannot be read, or if a newer version of haul wrote
/// one of them.
fn usable(locked_job: &LockedJob, path: &Path) -> Result<Option<JobRecord>, LogError> {
    let before = match read(path)? {
        Some(Err(flaw @ RecordFlaw::Newer(_))) => {
            return Err(LogError::Record { path: path.to_path_buf(), flaw });
        }
        Some(Err(RecordFlaw::Damaged)) | None => None,
        Some(Ok(record)) => Some(record),
    };
    folder::refuse_newer(&locked_job.folder().join("log"))?;
    Ok(before)
}

/// Drops the ranges of an earlier run that the current clock does not support. If the clock stepped
/// back across a reboot, files that were never synced may get times within a durable range.
fn drop_future_ranges(mut record: JobRecord) -> JobRecord {
    if record.boot.is_empty() || record.boot != process::boot_id() {
        let now = nanoseconds(now());
        record.kept.retain(|kept| kept.until <= now);
    }
    record
}

/// Reads the record at `path`; returns `None` if there is none.
pub(super) fn read(path: &Path) -> Result<Option<Result<JobRecord, RecordFlaw>>, LogError> {
    let failed = || LogError::io("read job record", path);
    let file = match folder::options().open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed())?,
    };
    let mut bytes = Vec::new();
    file.take(RECORD_BYTES_MAX).read_to_end(&mut bytes).map_err(failed())?;
    Ok(Some(JobRecord::decode(&bytes)))
}

/// Returns the current time of this machine.
pub(crate) fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nsec: since.subsec_nanos() }
}

/// Returns the ID of a job: a hash of its command, its working directory and the arguments that
/// decide which bytes go where. Each part is hashed with its length, so that different lists of
/// arguments never hash the same bytes.
pub fn identity<'w>(
    kind: &str,
    cwd: &Path,
    words: impl IntoIterator<Item = &'w [u8]>,
) -> haul_log::objects::Identity {
    let mut bytes = Vec::new();
    let mut add = |word: &[u8]| {
        bytes.extend((word.len() as u64).to_le_bytes());
        bytes.extend(word);
    };
    add(kind.as_bytes());
    add(cwd.as_os_str().as_bytes());
    words.into_iter().for_each(add);
    haul_log::objects::Identity::of(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(dev: u64, from: i128, until: i128) -> SyncedRange {
        SyncedRange { dev, from, until }
    }

    /// Regression test: a range that a clock change had invalidated came back after an immediate
    /// power failure.
    #[test]
    fn record_with_less_than_before_is_synced_with_its_name() {
        let old = [range(1, 100, 120), range(2, 50, 60)];
        let of = |new: &[SyncedRange]| durability_for(&old, new, true);
        assert_eq!(of(&old), Durability::Data);
        assert_eq!(of(&[range(3, 1, 2), range(1, 100, 130), range(2, 40, 60)]), Durability::Data);
        for less in [
            &[range(1, 100, 120)][..],
            &[range(1, 100, 119), range(2, 50, 60)],
            &[range(1, 101, 120), range(2, 50, 60)],
            &[range(3, 100, 120), range(2, 50, 60)],
            &[],
        ] {
            assert_eq!(of(less), Durability::DataAndName, "{less:?}");
            assert_eq!(durability_for(&old, less, false), Durability::None, "{less:?}");
        }
    }

    #[test]
    fn future_ranges_count_only_in_their_own_boot() {
        let now = nanoseconds(now());
        let (past, future) = (range(1, 5, now - 1_000_000_000), range(1, 5, now + 3_600_000_000_000));
        for (boot, kept) in
            [("another life", vec![past]), ("", vec![past]), (&process::boot_id(), vec![past, future])]
        {
            let record =
                JobRecord { boot: boot.to_owned(), kept: vec![past, future], ..JobRecord::default() };
            assert_eq!(drop_future_ranges(record).kept, kept, "{boot:?}");
        }
    }
}
