//! Jobs of a transfer, as each side is asked to do them, and what both sides know of a handshake.

use super::error::TransferError;
use super::logs::Logs;
use super::parts::Parts;
use super::resume::Resume;
use super::sink::SinkPolicy;
use super::source::{Filter, Rule};
use haul_net::{FrameError, FrameReader, LaneError};
use haul_proto::{JobOptions, Keep, Message};
use haul_storage::Storage;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

/// Maximum time that the peer may be silent before CONNECT, or its answer, has arrived.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// Name of this program on the wire.
pub(super) const AGENT: &str = concat!("haul ", env!("CARGO_PKG_VERSION"));

/// A job that sends files.
#[derive(Clone, Debug)]
pub struct SendJob {
    /// Storage in which the paths are opened.
    pub storage: Arc<dyn Storage>,
    /// Paths to send. A directory keeps its last component. A trailing slash sends only its
    /// contents.
    pub sources: Vec<OsString>,
    /// Filter of names beneath the sources.
    pub filter: Filter,
    /// True if directories on other file systems stay empty.
    pub one_file_system: bool,
    /// Options of the job.
    pub options: JobOptions,
    /// Destination directory beneath the peer's root; empty for the root itself.
    pub to: Vec<u8>,
    /// Maximum number of lanes; `None` to choose by the round-trip time.
    pub lanes: Option<u32>,
    /// Maximum number of bytes of objects in flight.
    pub buffers: u64,
    /// Resume settings; `None` if an interrupted job starts from the beginning.
    pub resume: Option<Resume>,
    /// Action if the sink has less space than the job needs.
    pub check_space: CheckSpace,
    /// True to send nothing and delete what an interrupted run of this job left at the sink.
    pub forgets: bool,
}

/// A job that fetches files.
#[derive(Clone, Debug)]
pub struct FetchJob {
    /// Paths beneath the peer's root. A trailing slash means the contents, as in
    /// [`SendJob::sources`].
    pub paths: Vec<Vec<u8>>,
    /// Destination directory. It is created if only its last component is missing.
    pub into: OsString,
    /// Rules for names beneath `paths`, in order. The peer applies them.
    pub rules: Vec<Rule>,
    /// Accepted parts of the accepted files; `None` to accept everything.
    pub parts: Option<Arc<Parts>>,
    /// Options of the job.
    pub options: JobOptions,
    /// Entries and metadata that this side accepts.
    pub policy: SinkPolicy,
    /// Maximum number of lanes; `None` to choose by the round-trip time.
    pub lanes: Option<u32>,
    /// Maximum number of bytes of objects in flight.
    pub buffers: u64,
    /// Resume settings; `None` if an interrupted job starts from the beginning.
    pub resume: Option<Resume>,
}

/// Limits that an answering side sets.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Root directory. No path leads out of it.
    pub root: OsString,
    /// Storage in which the root is opened.
    pub storage: Arc<dyn Storage>,
    /// True if the peer may fetch files.
    pub may_read: bool,
    /// True if the peer may send files.
    pub may_write: bool,
    /// True if a peer that sends files may learn which names exist, as a job that deletes requires.
    pub may_list: bool,
    /// Maximum number of lanes.
    pub lanes: u32,
    /// Maximum number of bytes of objects in flight.
    pub buffers: u64,
    /// Maximum number of concurrent sessions of this process, which share its file descriptors.
    pub sessions: usize,
    /// Maximum number of bytes that the peer may send; `None` for no limit.
    pub quota: Option<u64>,
    /// Metadata that a job may preserve. Without [`Keep::SETUID`] no program gains rights by it.
    pub keep: Keep,
    /// Entries and metadata that this side accepts if the peer sends.
    pub policy: SinkPolicy,
    /// Location of the logs from which interrupted uploads resume.
    pub logs: Logs,
}

/// Action if the sink has less space than the job needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckSpace {
    /// Print a note if the size of the job is known without a walk: no operand is a directory.
    #[default]
    Files,
    /// Print a note. The source is walked before the job starts.
    Warn,
    /// Send nothing. The source is walked before the job starts.
    Refuse,
}

/// Returns the next message of a lane during the handshake.
pub(super) fn read(frames: &mut dyn FrameReader) -> Result<Message, TransferError> {
    match frames.next() {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(TransferError::Lane(LaneError::Ended)),
        Err(FrameError::Lane(error)) => Err(TransferError::Lane(error)),
        Err(FrameError::Flaw(flaw)) => Err(TransferError::NotUnderstood(flaw.to_string())),
    }
}
