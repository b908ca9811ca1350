//! The record of a job: what it is, how far it came, and how it ended. A text that is replaced as a whole.
//!
//! ```text
//!  haul-job version=1
//!  kind=cp                                     the command
//!  status=running                              or stopped, finished, failed
//!  begun=SECONDS.NANOS runs=2                  when it first began, and how often it did
//!  ended=SECONDS.NANOS exit=0                  nothing behind both signs while it runs
//!  files=DONE/FOUND bytes=DONE/FOUND
//!  boot=TEXT                                   the life of the machine that it ran in last
//!  cwd=PATH                                    percent-encoded, as words are
//!  word=WORD                                   a line for each word of the command
//!  kept=DEVICE:FROM:UNTIL                      what is whole and durable at the sink
//!  blake3=HEX                                  of the lines above
//! ```
//!
//! A line `kept` says: files that this job finished on the device and that have a change time (ctime) from FROM to before UNTIL, in
//! nanoseconds since 1970, are durable with all their metadata. One line stands for any number of files.

mod text;

use haul_model::Moment;
use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// The version that is written, and the highest that is read.
pub const VERSION: u16 = 1;

/// Most bytes of a record: what the words of a command may take, each byte percent-encoded.
pub const RECORD_BYTES_MAX: u64 = 8 << 20;

/// Most file systems whose finished files a record can tell apart; files on others are looked at byte by byte on resume.
pub const KEPT_MAX: usize = 64;

/// A job as its record tells of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobRecord {
    /// The command: `cp`, `send`, `fetch`, `verify`, `repair`, `sum`.
    pub kind: String,
    /// All words of the command line, behind the program's name.
    pub words: Vec<Vec<u8>>,
    /// The directory it was begun in.
    pub cwd: Vec<u8>,
    /// When it first began.
    pub begun: Moment,
    /// How often it was begun: more than once where it went on.
    pub runs: u32,
    /// How it stands.
    pub status: Status,
    /// How far it came.
    pub progress: Progress,
    /// When it ended.
    pub ended: Option<Moment>,
    /// The exit status it ended with.
    pub exit: Option<u8>,
    /// What the machine's life since it was started is told apart by.
    pub boot: String,
    /// What is whole and durable at the sink.
    pub kept: Vec<Kept>,
}

/// How a job stands. One that says it is running while nobody holds its lock was cut off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Status {
    /// A process is at it, or was when it was cut off.
    #[default]
    Running,
    /// It was told to stop, or was cut off; it can be gone on with.
    Stopped,
    /// All is done.
    Finished,
    /// It came to its end, and not all went well.
    Failed,
}

impl Status {
    const NAMES: [(&'static str, Status); 4] = [
        ("running", Status::Running),
        ("stopped", Status::Stopped),
        ("finished", Status::Finished),
        ("failed", Status::Failed),
    ];

    /// Its name.
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

/// How far a job came. What is found grows until all of the source was met.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files that are through.
    pub files_done: u64,
    /// Files met so far.
    pub files_found: u64,
    /// Bytes that are through.
    pub bytes_done: u64,
    /// Bytes of the files met so far.
    pub bytes_found: u64,
}

/// Finished files of one file system that are known to be durable, by the change times they have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The device number of the file system.
    pub dev: u64,
    /// The first change time that counts.
    pub from: i128,
    /// The first that counts no more.
    pub until: i128,
}

/// A moment in nanoseconds since 1970.
pub fn nanoseconds(moment: Moment) -> i128 {
    i128::from(moment.sec) * 1_000_000_000 + i128::from(moment.nsec)
}

impl JobRecord {
    /// Whether a finished file with this change time is known to be durable.
    pub fn keeps(&self, dev: u64, changed: Moment) -> bool {
        let changed = nanoseconds(changed);
        self.kept.iter().any(|kept| kept.dev == dev && (kept.from..kept.until).contains(&changed))
    }

    /// The bytes of the record.
    pub fn encode(&self) -> Vec<u8> {
        text::encode(self)
    }

    /// What [`encode`](JobRecord::encode) wrote.
    ///
    /// # Errors
    /// [`RecordFlaw`]: these are other bytes.
    pub fn decode(bytes: &[u8]) -> Result<JobRecord, RecordFlaw> {
        text::decode(bytes)
    }
}

/// Why a record is not taken.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum RecordFlaw {
    /// Some byte is not as it was written, or the end is missing.
    #[error("it is damaged or cut off")]
    Damaged,
    /// A newer program wrote it.
    #[error("it has version {0}, and this program reads up to version {VERSION}; use a newer haul")]
    Newer(u16),
}
