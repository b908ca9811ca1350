//! Record of a job: description, progress and result. The text is always replaced completely.
//!
//! ```text
//!  haul-job version=1
//!  kind=cp                                     the command
//!  status=running                              or stopped, finished, failed
//!  begun=SECONDS.NANOS runs=2                  when it first began, and how often it did
//!  ended=SECONDS.NANOS exit=0                  nothing behind both signs while it runs
//!  files=DONE/FOUND bytes=DONE/FOUND           FOUND begins with + while more may be found
//!  boot=TEXT                                   the life of the machine that it ran in last
//!  cwd=PATH                                    percent-encoded, as words are
//!  word=WORD                                   a line for each word of the command
//!  kept=DEVICE:FROM:UNTIL                      what is whole and durable at the sink
//!  blake3=HEX                                  of the lines above
//! ```
//!
//! Earlier versions read `+12` as 12. Some wrote the sign at the end, which is read as well.
//!
//! A `kept` line covers the files that this job finished on the device and whose change time
//! (ctime) is from FROM to before UNTIL. These files are durable with all their metadata. The times
//! are in nanoseconds since 1970. One line covers any number of files.

mod text;

use haul_model::Moment;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Version that is written, and the highest version that is read.
pub const VERSION: u16 = 1;

/// Maximum size of a record in bytes: that of the words of a command, each byte percent-encoded.
pub const RECORD_BYTES_MAX: u64 = 8 << 20;

/// Maximum number of file systems whose finished files a record covers. Files on other file systems
/// are compared byte by byte on resume.
pub const KEPT_MAX: usize = 64;

/// Contents of a job record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRecord {
    /// Command: `cp`, `send`, `fetch`, `verify`, `repair`, `sum`.
    pub kind: String,
    /// All words of the command line after the program name.
    pub words: Vec<Vec<u8>>,
    /// Directory in which the job was started.
    pub cwd: Vec<u8>,
    /// Start time of the first run.
    pub begun: Moment,
    /// Number of runs; more than one if the job was resumed.
    pub runs: u32,
    /// Status of the job.
    pub status: Status,
    /// Progress of the job.
    pub progress: Progress,
    /// End time of the job.
    pub ended: Option<Moment>,
    /// Exit status of the job.
    pub exit: Option<u8>,
    /// ID of the boot in which the job last ran.
    pub boot: String,
    /// Files that are complete and durable at the sink.
    pub kept: Vec<SyncedRange>,
}

/// Status of a job. A job that is recorded as running, but whose lock no process holds, was
/// interrupted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// A process runs the job, or ran it until it was interrupted.
    #[default]
    Running,
    /// The job was stopped or interrupted; it is resumable.
    Stopped,
    /// The job succeeded.
    Finished,
    /// The job ran to its end with failures.
    Failed,
}

impl Status {
    const NAMES: [(&'static str, Status); 4] = [
        ("running", Status::Running),
        ("stopped", Status::Stopped),
        ("finished", Status::Finished),
        ("failed", Status::Failed),
    ];

    /// Returns the name of the status.
    pub fn name(self) -> &'static str {
        Status::NAMES.into_iter().find(|(_, status)| *status == self).map_or("", |(name, _)| name)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Status {
    type Err = RecordFlaw;

    fn from_str(word: &str) -> Result<Status, RecordFlaw> {
        let found = Status::NAMES.into_iter().find(|(name, _)| *name == word);
        found.map(|(_, status)| status).ok_or(RecordFlaw::Damaged)
    }
}

/// Progress of a job. The `found` counts grow until the complete source has been walked. Until then,
/// no share of the job is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files that are finished.
    pub files_done: u64,
    /// Files found so far.
    pub files_found: u64,
    /// Bytes that are finished.
    pub bytes_done: u64,
    /// Bytes of the files found so far.
    pub bytes_found: u64,
    /// True while more files may be found.
    pub is_counting: bool,
}

/// Change times for which the finished files of one file system are known to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncedRange {
    /// Device number of the file system.
    pub dev: u64,
    /// First change time of the range.
    pub from: i128,
    /// Exclusive end of the range.
    pub until: i128,
}

/// Returns a moment in nanoseconds since 1970.
pub fn nanoseconds(moment: Moment) -> i128 {
    i128::from(moment.sec) * 1_000_000_000 + i128::from(moment.nsec)
}

impl JobRecord {
    /// Returns true if a finished file with this change time is known to be durable.
    pub fn keeps(&self, dev: u64, changed: Moment) -> bool {
        let changed = nanoseconds(changed);
        self.kept.iter().any(|kept| kept.dev == dev && (kept.from..kept.until).contains(&changed))
    }

    /// Returns the bytes of the record.
    pub fn encode(&self) -> Vec<u8> {
        text::encode(self)
    }

    /// Decodes the output of [`encode`](JobRecord::encode).
    ///
    /// # Errors
    ///
    /// Returns a [`RecordFlaw`] if the bytes are damaged or have a newer version.
    pub fn decode(bytes: &[u8]) -> Result<JobRecord, RecordFlaw> {
        text::decode(bytes)
    }
}

/// Reason why a record is rejected.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordFlaw {
    /// A byte was changed, or the end is missing.
    #[error("damaged or truncated")]
    Damaged,
    /// A newer version of the format.
    #[error("unsupported version {0} (this program supports up to {VERSION}); use a newer haul")]
    Newer(u16),
}
