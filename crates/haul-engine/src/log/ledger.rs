//! The record of a running job, kept on disk.

use super::folder;
use super::{Hold, LogError};
use haul_log::record::{
    JobRecord, KEPT_MAX, Kept, Progress, RECORD_BYTES_MAX, RecordFlaw, Status, nanoseconds,
};
use haul_model::Moment;
use haul_sys::process;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often progress is written down.
const EVERY: Duration = Duration::from_secs(2);

/// What of a new record outlasts a loss of power.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lasting {
    /// The record that is there may be the old one or the new one, and may be torn.
    No,
    /// It may be the old one or the new one.
    Bytes,
    /// It is the new one.
    Name,
}

impl Lasting {
    /// A record that keeps the one of these ranges takes the place of one that keeps the other.
    fn of_kept(old: &[Kept], new: &[Kept], syncs: bool) -> Lasting {
        let is_within =
            |old: &Kept, new: &Kept| old.dev == new.dev && new.from <= old.from && old.until <= new.until;
        match old.iter().all(|old| new.iter().any(|new| is_within(old, new))) {
            _ if !syncs => Lasting::No,
            // Where the new name is lost, the old record says less, and nothing that is wrong.
            true => Lasting::Bytes,
            // What is taken out must not come back.
            false => Lasting::Name,
        }
    }
}

/// What a job is called by.
#[derive(Clone, Debug)]
pub struct Call {
    /// The command: `cp`, `send`, ...
    pub kind: &'static str,
    /// All words of the command line behind the program's name, so that `haul WORDS` in `cwd` is the job again.
    pub words: Vec<OsString>,
    /// The directory it was begun in.
    pub cwd: PathBuf,
}

/// The record of a running job. It is replaced as a whole, at most every two seconds but for beginning and end.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    record: JobRecord,
    written: Instant,
    /// The record on disk, or one that a loss of power brings back, may keep what this one does not any more.
    owes: bool,
}

impl Ledger {
    /// Writes down that the job runs, durably. Returns what its record said before: of an earlier run, if it is there and whole.
    ///
    /// # Errors
    /// [`LogError`]: the record can't be written; or a newer program wrote the one that is there, or the log beside it, and all stays as it was found.
    pub fn begin(hold: &Hold, call: Call) -> Result<(Ledger, Option<JobRecord>), LogError> {
        let path = hold.folder().join("record");
        let usable = usable(hold, &path).inspect_err(|_| {
            // Best effort: that it is refused is what is told.
            let _ = hold.put_back();
        });
        let before = usable?.map(as_told_now);
        let goes_on = before.as_ref().filter(|record| record.status != Status::Finished);
        let record = JobRecord {
            kind: call.kind.to_owned(),
            words: call.words.into_iter().map(OsString::into_vec).collect(),
            cwd: call.cwd.into_os_string().into_vec(),
            begun: goes_on.map_or_else(now, |record| record.begun),
            runs: goes_on.map_or(0, |record| record.runs).saturating_add(1),
            status: Status::Running,
            boot: process::boot_id(),
            // Of a run that finished, too: what was durable is durable.
            kept: before.as_ref().map(|record| record.kept.clone()).unwrap_or_default(),
            ..JobRecord::default()
        };
        let ledger =
            Ledger { path, state: Mutex::new(State { record, written: Instant::now(), owes: false }) };
        ledger.write(&mut ledger.lock(), Lasting::Name)?;
        Ok((ledger, before))
    }

    /// How far the job came; written down if that was not done lately.
    ///
    /// # Errors
    /// [`LogError::Io`]. The job can go on: only what `haul jobs` tells of it is older then.
    pub fn progress(&self, progress: Progress) -> Result<(), LogError> {
        let mut state = self.lock();
        state.record.progress = progress;
        if state.written.elapsed() < EVERY { Ok(()) } else { self.write(&mut state, Lasting::No) }
    }

    /// Finished files of these ranges are durable. Written down at once, and durable itself if `syncs`.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn keep(&self, kept: &[Kept], syncs: bool) -> Result<(), LogError> {
        let mut state = self.lock();
        let kept: Vec<Kept> = kept.iter().take(KEPT_MAX).copied().collect();
        let lasting = Lasting::of_kept(&state.record.kept, &kept, syncs);
        state.record.kept = kept;
        // Until it is done, if it could not be done at once.
        state.owes |= lasting == Lasting::Name;
        let lasting = if state.owes { Lasting::Name } else { lasting };
        self.write(&mut state, lasting)
    }

    /// The job ended: written down, durably.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn end(&self, status: Status, exit: u8, progress: Progress) -> Result<(), LogError> {
        let mut state = self.lock();
        let record = &mut state.record;
        (record.status, record.exit, record.ended) = (status, Some(exit), Some(now()));
        record.progress = progress;
        self.write(&mut state, Lasting::Name)
    }

    fn write(&self, state: &mut State, lasting: Lasting) -> Result<(), LogError> {
        state.written = Instant::now();
        let bytes = state.record.encode();
        replace(&self.path, &bytes, lasting)
            .map_err(LogError::io("write the record of the job", &self.path))?;
        state.owes &= lasting != Lasting::Name;
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The record of an earlier run, if it is there and whole.
///
/// # Errors
/// [`LogError`]: it can't be read; or a newer program wrote it or the log.
fn usable(hold: &Hold, path: &Path) -> Result<Option<JobRecord>, LogError> {
    let before = match read(path)? {
        Some(Err(flaw @ RecordFlaw::Newer(_))) => {
            return Err(LogError::Record { path: path.to_path_buf(), flaw });
        }
        Some(Err(RecordFlaw::Damaged)) | None => None,
        Some(Ok(record)) => Some(record),
    };
    folder::refuse_newer(&hold.folder().join("log"))?;
    Ok(before)
}

/// What an earlier run wrote down, as far as it can be told by the clock of now. Where the machine was started since and its clock went back, files
/// that nobody made durable may come to have the times of others that are.
fn as_told_now(mut record: JobRecord) -> JobRecord {
    if record.boot.is_empty() || record.boot != process::boot_id() {
        let now = nanoseconds(now());
        record.kept.retain(|kept| kept.until <= now);
    }
    record
}

/// The record at a path; `None` where there is none.
pub(super) fn read(path: &Path) -> Result<Option<Result<JobRecord, RecordFlaw>>, LogError> {
    let failed = || LogError::io("read the record of the job", path);
    let file = match folder::options().open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(failed())?,
    };
    let mut bytes = Vec::new();
    file.take(RECORD_BYTES_MAX).read_to_end(&mut bytes).map_err(failed())?;
    Ok(Some(JobRecord::decode(&bytes)))
}

fn replace(path: &Path, bytes: &[u8], lasting: Lasting) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(haul_sys::open::NO_FOLLOW);
    let mut file = options.open(&draft)?;
    file.write_all(bytes)?;
    if lasting != Lasting::No {
        file.sync_data()?;
    }
    fs::rename(&draft, path)?;
    if let (Lasting::Name, Some(folder)) = (lasting, path.parent()) {
        File::open(folder)?.sync_all()?;
    }
    Ok(())
}

/// The time of this machine.
pub(crate) fn now() -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Moment { sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), nsec: since.subsec_nanos() }
}

/// What a job is told apart from others by: its command, the directory that its names are relative to, and the words that decide what
/// becomes of which bytes. Each counts with its length, so that no two lists of words are one.
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

    fn range(dev: u64, from: i128, until: i128) -> Kept {
        Kept { dev, from, until }
    }

    /// A range that a clock took the meaning of came back when the power was lost right after.
    #[test]
    fn a_record_that_says_less_than_the_one_before_is_durable_by_its_name() {
        let old = [range(1, 100, 120), range(2, 50, 60)];
        let of = |new: &[Kept]| Lasting::of_kept(&old, new, true);
        assert_eq!(of(&old), Lasting::Bytes);
        assert_eq!(of(&[range(3, 1, 2), range(1, 100, 130), range(2, 40, 60)]), Lasting::Bytes);
        for less in [
            &[range(1, 100, 120)][..],
            &[range(1, 100, 119), range(2, 50, 60)],
            &[range(1, 101, 120), range(2, 50, 60)],
            &[range(3, 100, 120), range(2, 50, 60)],
            &[],
        ] {
            assert_eq!(of(less), Lasting::Name, "{less:?}");
            assert_eq!(Lasting::of_kept(&old, less, false), Lasting::No, "{less:?}");
        }
    }

    #[test]
    fn ranges_that_end_in_the_future_count_in_their_own_life_of_the_machine_alone() {
        let now = nanoseconds(now());
        let (past, future) = (range(1, 5, now - 1_000_000_000), range(1, 5, now + 3_600_000_000_000));
        for (boot, kept) in
            [("another life", vec![past]), ("", vec![past]), (&process::boot_id(), vec![past, future])]
        {
            let record =
                JobRecord { boot: boot.to_owned(), kept: vec![past, future], ..JobRecord::default() };
            assert_eq!(as_told_now(record).kept, kept, "{boot:?}");
        }
    }
}
