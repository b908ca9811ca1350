//! One regular file (or stream) in progress, open at both ends.

use super::details::CopyDetails;
use super::digesting::{self, FileHash};
use super::error::CopyError;
use super::resume::Logged;
use super::settings::Moving;
use haul_model::{ByteLen, ByteOffset, ByteRange, Level};
use haul_plan::{FileFacts, Plan, Requirements};
use haul_storage::local::Stream;
use haul_storage::{Change, FileKind, Inode, SinkFile, SourceFile, Stat, Version};
use parking_lot::Mutex;
use std::ffi::OsString;
use std::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A range of one file: its first byte, its length, and its offset in the sink; `None` as in
/// [`haul_plan::Requirements`].
pub type Part = (ByteOffset, Option<ByteLen>, Option<ByteOffset>);

/// State of the sink when it was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SinkState {
    /// No file existed; this job created it.
    New,
    /// A file existed and is now truncated to zero bytes.
    Truncated,
    /// An existing file that may already hold objects of its source; each object is checked.
    Resumed,
    /// A file of an earlier run that was compared with its source and is complete. It is open for
    /// reading only.
    Complete,
    /// A sink that keeps its contents: a device, a pipe, or a file that receives a part.
    Kept,
}

/// Decisions of the caller about a file: its names, and its end.
pub trait Finish: Debug + Send + Sync {
    /// Returns the path of the source for messages.
    fn source_path(&self) -> OsString;
    /// Returns the path of the sink for messages.
    fn sink_path(&self) -> OsString;
    /// Opens the device of the sink for its syncs: a directory or a file on it that stays open.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    fn open_device(&self, file: &FileJob<'_>) -> io::Result<Arc<dyn Inode>>;
    /// Returns true if the name of the source still leads to the file that was opened.
    fn has_source_name(&self, file: &FileJob<'_>) -> bool;
    /// Returns true if another worker may wait for the end of this file.
    fn is_awaited(&self) -> bool;
    /// Ends the file: its bytes were copied, or failed to be.
    fn complete(&self, file: &FileJob<'_>, moved: Result<Moved, CopyError>);
}

/// Result of copying a file.
#[derive(Debug)]
pub struct Moved {
    /// Number of bytes that reached the sink.
    pub bytes: u64,
    /// Digest of the file, if one was requested.
    pub hash: Option<FileHash>,
    /// Verification level of the bytes.
    pub level: Level,
    /// Ranges that were re-read from the device, if not all bytes were.
    pub parts_reread: Vec<ByteRange>,
}

impl Moved {
    /// Creates the result for bytes that the sink accepted and that were not verified.
    pub fn received(bytes: u64) -> Moved {
        Moved { bytes, hash: None, level: Level::Received, parts_reread: Vec::new() }
    }
}

/// End of a file from which the bytes come.
#[derive(Clone, Debug)]
pub enum CopySource {
    /// A regular file that is not empty.
    File(Arc<dyn SourceFile>),
    /// A regular file of length 0. A server may generate its bytes when it is read, and then has no
    /// offsets.
    Generated(Arc<dyn SourceFile>, Stream),
    /// A pipe or a device.
    Stream(Stream),
}

impl CopySource {
    /// Returns the source for a regular file that was just opened.
    pub fn of(file: Arc<dyn SourceFile>) -> CopySource {
        match file.opened().size {
            0 => CopySource::Generated(Arc::clone(&file), Stream::of(file)),
            _ => CopySource::File(file),
        }
    }

    /// Returns the source for its metadata.
    pub fn inode(&self) -> &dyn Inode {
        match self {
            CopySource::File(file) | CopySource::Generated(file, _) => &**file,
            CopySource::Stream(stream) => stream.file(),
        }
    }

    /// Returns the file that is read at offsets.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotSeekable`] for a stream.
    pub fn file(&self) -> io::Result<&dyn SourceFile> {
        match self {
            CopySource::File(file) | CopySource::Generated(file, _) => Ok(&**file),
            CopySource::Stream(_) => Err(io::ErrorKind::NotSeekable.into()),
        }
    }

    /// Returns the metadata of the source now.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    pub fn stat(&self) -> io::Result<Stat> {
        self.inode().stat()
    }

    /// Fills `into` with the next bytes of a source of which `read` bytes were read, in order.
    /// Returns the number of bytes, which is less only at the end, or `None` once `is_stopping`
    /// returns true.
    ///
    /// # Errors
    /// Returns the errors of read(2).
    pub(crate) fn read_next(
        &self,
        read: u64,
        into: &mut [u8],
        is_stopping: impl Fn() -> bool,
    ) -> io::Result<Option<usize>> {
        match self {
            CopySource::File(file) => file.read_at(read, into).map(Some),
            CopySource::Generated(_, stream) | CopySource::Stream(stream) => stream.read(into, is_stopping),
        }
    }
}

/// End of a file to which the bytes go.
#[derive(Clone, Debug)]
pub enum CopySink {
    /// A regular file.
    File(Arc<dyn SinkFile>),
    /// A pipe or a device.
    Stream(Stream),
}

impl CopySink {
    /// Returns the sink for its metadata.
    pub fn inode(&self) -> &dyn Inode {
        match self {
            CopySink::File(file) => &**file,
            CopySink::Stream(stream) => stream.file(),
        }
    }

    /// Returns the file that is written at offsets.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotSeekable`] for a stream.
    pub fn file(&self) -> io::Result<&Arc<dyn SinkFile>> {
        match self {
            CopySink::File(file) => Ok(file),
            CopySink::Stream(_) => Err(io::ErrorKind::NotSeekable.into()),
        }
    }

    /// Returns the metadata of the sink now.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    pub fn stat(&self) -> io::Result<Stat> {
        self.inode().stat()
    }

    /// Returns true for a regular file.
    pub fn is_file(&self) -> bool {
        matches!(self, CopySink::File(_))
    }
}

/// A file whose two ends are open and whose bytes are to be copied.
#[derive(Debug)]
pub struct FileJob<'j> {
    /// The open source.
    pub source: CopySource,
    /// Metadata of the source from when it was opened.
    pub source_stat: Stat,
    /// The open sink.
    pub sink: CopySink,
    /// State of the sink when it was opened.
    pub sink_state: SinkState,
    /// Range to copy if the file has its own ranges (`--read-stdin`). Otherwise the job's settings
    /// apply.
    pub part: Option<Part>,
    /// Time at which the source was opened.
    pub opened_at: Instant,
    /// Copy method.
    pub details: CopyDetails,
    /// Log of the file's objects.
    pub logged: Option<Arc<Logged>>,
    /// True while an existing file is unchanged, in its bytes and its times.
    untouched: Mutex<bool>,
    /// Names of the file, and its end.
    pub finish: Box<dyn Finish + 'j>,
}

/// The two open ends of a file.
#[derive(Debug)]
pub struct FileEnds {
    /// The open source.
    pub source: CopySource,
    /// Metadata of the source from when it was opened.
    pub source_stat: Stat,
    /// The open sink.
    pub sink: CopySink,
    /// State of the sink when it was opened.
    pub sink_state: SinkState,
}

impl<'j> FileJob<'j> {
    /// Creates the job of a file that was opened at `opened_at`. `part` is the range to copy if it
    /// differs from the job's settings.
    pub fn new(
        ends: FileEnds,
        part: Option<Part>,
        opened_at: Instant,
        finish: impl Finish + 'j,
    ) -> FileJob<'j> {
        let FileEnds { source, source_stat, sink, sink_state } = ends;
        FileJob {
            source,
            source_stat,
            sink,
            sink_state,
            part,
            opened_at,
            details: CopyDetails::default(),
            logged: None,
            untouched: Mutex::new(matches!(sink_state, SinkState::Resumed | SinkState::Complete)),
            finish: Box::new(finish),
        }
    }

    /// Returns the path of the source for messages.
    pub fn source_path(&self) -> OsString {
        self.finish.source_path()
    }

    /// Returns the path of the sink for messages.
    pub fn sink_path(&self) -> OsString {
        self.finish.sink_path()
    }

    /// Returns the plan of a file: its objects and the offset of its bytes in the sink.
    pub fn plan(&self, moving: &Moving) -> Plan {
        let (offset, length, sink_offset) =
            self.part.unwrap_or((moving.offset, moving.length, moving.sink_offset));
        let facts = FileFacts {
            len: ByteLen(self.source_stat.size),
            seekable: self.source_stat.kind == FileKind::Regular && self.sink.is_file(),
        };
        let wanted = Requirements {
            object: moving.object_size(),
            serial_digest: digesting::is_serial(moving),
            offset,
            length,
            sink_offset,
        };
        Plan::new(facts, &wanted)
    }

    /// Ends the file.
    pub fn complete(&self, moved: Result<Moved, CopyError>) {
        self.finish.complete(self, moved);
    }

    /// Returns true if the source's size or modification time changed since it was opened. Pipes
    /// and devices have no state to compare.
    pub fn source_was_replaced(&self) -> bool {
        let is_same = |now: Stat| self.source_change(&now).is_none_or(|change| change == Change::Unknown);
        self.source_stat.kind == FileKind::Regular && !self.source.stat().is_ok_and(is_same)
    }

    /// Compares the present metadata of the open source with that from when it was opened. The
    /// inode number is no difference: an overlay gives a file another one when it copies it up.
    pub(crate) fn source_change(&self, now: &Stat) -> Option<Change> {
        Version { inode: now.identity(), ..Version::of(&self.source_stat) }.change(now)
    }

    /// Marks an existing file as unfinished before its first byte is overwritten, by giving it a
    /// length other than its source's.
    ///
    /// # Errors
    /// Returns the error of ftruncate(2). The caller must not write then.
    pub fn touch(&self) -> Result<(), CopyError> {
        // Other workers of the file wait until it is marked.
        let mut untouched = self.untouched.lock();
        if *untouched {
            let failed = |source| CopyError::Cannot { action: "resume", path: self.sink_path(), source };
            let sink = self.sink.file().map_err(failed)?;
            sink.set_len(self.source_stat.size + 1).map_err(failed)?;
            *untouched = false;
        }
        Ok(())
    }

    /// Returns true while an existing file is unchanged.
    pub fn is_untouched(&self) -> bool {
        *self.untouched.lock()
    }

    /// Records that a sync of the file failed: no object of it counts as durable from then on.
    pub fn sync_failed(&self) {
        self.logged.iter().for_each(|logged| logged.mark_failed());
    }

    /// Returns the error for a source whose size or time changed during the copy.
    pub fn changed(&self) -> CopyError {
        CopyError::SourceChanged { path: self.source_path(), sink: self.sink_path() }
    }

    /// Returns the error for a stopped job.
    pub fn interrupted(&self) -> CopyError {
        CopyError::Interrupted { path: self.source_path(), sink: self.sink_path() }
    }
}
