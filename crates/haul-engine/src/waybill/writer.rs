//! Writer of a waybill file.

use super::cut_off::{Files, SectionPosition, take_up};
use super::earlier::EarlierEntries;
use super::known::{EarlierDigests, Wanted};
use super::{LeafStore, LeafSums, Scratch};
use crate::log::{DeferredRecord, StampFile, Stamped};
use haul_digest::ObjectTable;
use haul_log::waybill::{
    Content, End, Entry, Job, Kind, LINE_BYTES_MAX, ObjectDigests, Proven, TAIL_BYTES, Tail, TailError,
    WriteError, Writer, may_append,
};
use haul_model::{LeafSize, ObjectIndex, ObjectSize};
use haul_storage::Stat;
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Seek, SeekFrom};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// Waybill in progress; any number of workers can write to it.
#[derive(Debug)]
pub struct WaybillWriter {
    path: OsString,
    /// Device and inode.
    identity: (u64, u64),
    /// Offset of the section in the file.
    begin: u64,
    /// True if this job created the file.
    is_new: bool,
    /// State of a resumable section; `None` for other jobs.
    resumable_section: Option<ResumableSection>,
    state: Mutex<State>,
    // Lock order: `earlier` before `state`.
    earlier: Mutex<Earlier>,
}

/// Entries of the earlier sections, which are read when the first entry is added.
#[derive(Debug)]
enum Earlier {
    /// The open waybill.
    NotRead(File),
    Read(EarlierEntries),
    /// No earlier sections, or they cannot be used.
    None,
}

/// Resumable section of a waybill.
#[derive(Debug)]
struct ResumableSection {
    deferred_record: Arc<DeferredRecord>,
    /// Offset of the section in the file.
    offset: u64,
    stamped: Stamped,
}

#[derive(Debug)]
struct State {
    /// `None` after a failed write.
    writer: Option<Writer<BufWriter<File>>>,
    /// Open file, for the removal of the section; `None` after the section is closed. The lock
    /// belongs to it.
    file: Option<File>,
    failure: Option<WriteError>,
    /// Stamps of the files, and the number of entries.
    stamps: StampFile,
    entries: u64,
    /// True if the job directory records which section this is.
    is_told: bool,
}

/// Reason why there is no waybill.
#[derive(Debug, Error)]
pub enum WaybillError {
    /// The file cannot be opened, read, or synced.
    #[error("cannot {action} the waybill {}: {}", crate::copy::quote(path), crate::sum::reason(source))]
    File {
        /// Action that failed.
        action: &'static str,
        /// Path of the waybill.
        path: OsString,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The existing file does not allow appending.
    #[error(
        "cannot append to the waybill {}: {source}; name a file that does not exist yet",
        crate::copy::quote(path)
    )]
    NotAppendable {
        /// Path of the existing file.
        path: OsString,
        /// Reason why appending is impossible.
        source: TailError,
    },
    /// A write failed: the work so far has no complete receipt.
    #[error("cannot write the waybill {}: {source}", crate::copy::quote(path))]
    Write {
        /// Path of the waybill.
        path: OsString,
        /// Cause of the failure.
        source: WriteError,
    },
}

impl WaybillWriter {
    /// Starts a waybill, or appends a section to an existing one: receipts are never overwritten.
    ///
    /// # Errors
    /// Returns a [`WaybillError`] if the file cannot be opened or locked, or is not a complete
    /// waybill.
    pub fn begin(path: &OsStr, job: &Job) -> Result<WaybillWriter, WaybillError> {
        let (file, is_new) = open_locked(path)?;
        let facts = file.metadata().map_err(|source| WaybillError::File {
            action: "open",
            path: path.to_owned(),
            source,
        })?;
        WaybillWriter::write(path, job, file, is_new, &facts, None)
    }

    /// Same as [`begin`](WaybillWriter::begin), for a job that repeats or checks all work of an
    /// earlier run of the same command. If that run was interrupted in the waybill's last section,
    /// the section is rewritten, because it is not a complete receipt.
    ///
    /// # Errors
    /// Same as [`begin`](WaybillWriter::begin).
    pub fn begin_again(path: &OsStr, job: &Job) -> Result<WaybillWriter, WaybillError> {
        let (mut file, is_new) = open_locked(path)?;
        let facts = cut_off(path, &mut file, None, job)?;
        WaybillWriter::write(path, job, file, is_new, &facts, None)
    }

    /// Same as [`begin`](WaybillWriter::begin), for a resumable job. If an earlier run of the job
    /// started the waybill's last section, that section is rewritten, and its contents are returned
    /// as [`EarlierDigests`].
    ///
    /// # Errors
    /// Same as [`begin`](WaybillWriter::begin). Also returns [`WaybillError::File`] if the contents
    /// of the earlier section cannot be read.
    pub fn begin_or_resume(
        path: &OsStr,
        job: &Job,
        deferred_record: &Arc<DeferredRecord>,
        wanted: impl FnOnce(&WaybillWriter) -> Result<Wanted, WaybillError>,
    ) -> Result<(WaybillWriter, Option<EarlierDigests>), WaybillError> {
        let failed = |action| move |source| WaybillError::File { action, path: path.to_owned(), source };
        let stamped = Stamped::now();
        let (mut file, is_new) = open_locked(path)?;
        let files = deferred_record.folder().map(|folder| Files::of(&folder));
        let facts = cut_off(path, &mut file, files.as_ref(), job)?;
        let resumable_section =
            ResumableSection { deferred_record: Arc::clone(deferred_record), offset: facts.len(), stamped };
        let waybill_writer = WaybillWriter::write(path, job, file, is_new, &facts, Some(resumable_section))?;
        let known = match files.filter(|files| files.known.exists()) {
            Some(files) => {
                let known = EarlierDigests::open(&files.known, &files.known_stamps, wanted(&waybill_writer)?);
                Some(known.map_err(failed("read the saved digests of"))?)
            }
            None => None,
        };
        Ok((waybill_writer, known))
    }

    fn write(
        path: &OsStr,
        job: &Job,
        mut file: File,
        is_new: bool,
        facts: &Metadata,
        resumable_section: Option<ResumableSection>,
    ) -> Result<WaybillWriter, WaybillError> {
        let failed = |action| move |source| WaybillError::File { action, path: path.to_owned(), source };
        let written = |source| WaybillError::Write { path: path.to_owned(), source };
        let not_appendable = |source| WaybillError::NotAppendable { path: path.to_owned(), source };
        let held = file.try_clone().map_err(failed("open"))?;
        let mut first = Vec::new();
        file.seek(SeekFrom::Start(0)).map_err(failed("read"))?;
        (&mut file).take(LINE_BYTES_MAX as u64).read_to_end(&mut first).map_err(failed("read"))?;
        may_append(&first).map_err(not_appendable)?;
        file.seek(SeekFrom::Start(facts.len().saturating_sub(TAIL_BYTES as u64))).map_err(failed("read"))?;
        let writer = if facts.len() == 0 {
            Writer::new(BufWriter::new(file), job)
        } else {
            let mut bytes = Vec::new();
            (&mut file).take(TAIL_BYTES as u64).read_to_end(&mut bytes).map_err(failed("read"))?;
            let tail = Tail::of(&bytes).map_err(not_appendable)?;
            Writer::append(BufWriter::new(file), job, &tail)
        };
        let writer = Some(writer.map_err(written)?);
        let earlier =
            if facts.len() == 0 { Ok(Earlier::None) } else { held.try_clone().map(Earlier::NotRead) };
        let earlier = Mutex::new(earlier.map_err(failed("open"))?);
        let file = Some(held);
        let state =
            State { writer, file, failure: None, stamps: StampFile::default(), entries: 0, is_told: false };
        Ok(WaybillWriter {
            path: path.to_owned(),
            identity: identity(facts),
            begin: facts.len(),
            is_new,
            resumable_section,
            state: Mutex::new(state),
            earlier,
        })
    }

    /// Returns the device and inode of the file, so that a job skips the waybill among its own
    /// files.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// Creates a store for the leaves of files that wait for their entries. The store is in the
    /// directory of the waybill, whose file system needs the space for the leaves anyway. If no
    /// file can be created there, the directory for temporary files is used.
    ///
    /// # Errors
    /// Returns [`WaybillError::File`] if neither directory works.
    pub fn leaf_store(&self, leaf: LeafSize, object: ObjectSize) -> Result<Arc<LeafStore>, WaybillError> {
        let failed =
            |source| WaybillError::File { action: "store leaf digests of", path: self.path.clone(), source };
        let spill = Scratch::beside(Path::new(&self.path)).map_err(failed)?;
        Ok(LeafStore::new(spill, leaf, object))
    }

    /// Writes an entry with the digests of its objects and leaves. After a failed write, nothing
    /// more is written, and [`WaybillWriter::close`] returns the error.
    ///
    /// If an earlier section has digests of the same bytes that the entry lacks, they are added to
    /// it: the entry replaces that of the earlier section.
    pub fn add(&self, entry: &Entry, objects: Option<&ObjectTable>, leaves: Option<&LeafSums>) {
        self.add_proven(entry, objects, leaves, &[], &AtomicBool::new(false));
    }

    /// Returns true if an earlier section has another digest of the file of this entry, at the same
    /// size and modification time: the bytes decayed, or were changed without a trace.
    pub fn contradicts(&self, entry: &Entry) -> bool {
        self.with_earlier(|earlier| earlier.contradicts(entry)).unwrap_or(false)
    }

    /// Calls `work` with the entries of the earlier sections. Returns `None` if there are none. An
    /// error ends the section like a failed write.
    fn with_earlier<T>(&self, work: impl FnOnce(&mut EarlierEntries) -> io::Result<T>) -> Option<T> {
        if self.begin == 0 {
            return None;
        }
        let mut earlier = self.earlier.lock();
        if let Earlier::NotRead(waybill) = &*earlier {
            let opened = waybill.try_clone().and_then(|waybill| {
                // Confined sessions cannot create files everywhere; they write complete entries.
                let Ok(table) = Scratch::beside(Path::new(&self.path)) else { return Ok(Earlier::None) };
                EarlierEntries::open(waybill, self.begin, table).map(Earlier::Read)
            });
            *earlier = opened.unwrap_or_else(|error| {
                self.with(|_| Err(error.into()));
                Earlier::None
            });
        }
        let Earlier::Read(entries) = &mut *earlier else { return None };
        let done = work(entries);
        done.map_err(|error| self.with(|_| Err(error.into()))).ok()
    }

    /// Same as [`WaybillWriter::add`], for a file with the metadata `facts` in a resumable job. A
    /// later run finds the entry by this metadata. Returns false, without an entry, if `stop`
    /// became true.
    pub fn add_read(
        &self,
        entry: &Entry,
        objects: Option<&ObjectTable>,
        leaves: Option<&LeafSums>,
        facts: &Stat,
        stop: &AtomicBool,
    ) -> bool {
        if !self.add_proven(entry, objects, leaves, &[], stop) {
            return false;
        }
        let Some(resumable_section) = self
            .resumable_section
            .as_ref()
            .filter(|resumable_section| !resumable_section.deferred_record.is_given_up())
        else {
            return true;
        };
        let stamp = resumable_section.stamped.stamp(entry.path.as_bytes(), facts);
        let mut state = self.lock();
        let number = state.entries;
        state.entries += 1;
        // A stamp that does not fit costs only another read of the file.
        state.stamps.set(number, stamp);
        true
    }

    /// Flushes the entries, and records in the job directory what a later run needs. Ignores
    /// errors: a later run then reads more files again.
    pub fn keep(&self) {
        let Some(resumable_section) = &self.resumable_section else { return };
        self.with(Writer::flush);
        let Some(files) = resumable_section.deferred_record.folder().map(|folder| Files::of(&folder)) else {
            return;
        };
        let mut state = self.lock();
        if !state.is_told {
            let place = File::open(&self.path)
                .and_then(|mut file| SectionPosition::of(&mut file, resumable_section.offset));
            state.is_told = place.and_then(|place| place.write(&files)).is_ok();
        }
        if state.is_told {
            let _ = state.stamps.write(&files.stamps, false);
        }
    }

    /// Deletes the resume state after the end of the job.
    ///
    /// # Errors
    /// Returns [`WaybillError::File`] if the state remains; a later run of the same command would
    /// then resume the finished job.
    pub fn forget(&self) -> Result<(), WaybillError> {
        let folder = self
            .resumable_section
            .as_ref()
            .and_then(|resumable_section| resumable_section.deferred_record.folder());
        let Some(folder) = folder else { return Ok(()) };
        let removed = Files::of(&folder).remove();
        let path = folder.into_os_string();
        removed.map_err(|source| WaybillError::File { action: "remove the saved digests of", path, source })
    }

    /// Same as [`WaybillWriter::add`], for a file with ranges that reached a higher level than the
    /// whole file. The ranges are sorted.
    ///
    /// Returns false, without an entry, if `stop` became true. A file can have billions of lines,
    /// so this is checked after each [`LINES_UNCHECKED_MAX`] of them.
    pub fn add_proven(
        &self,
        entry: &Entry,
        objects: Option<&ObjectTable>,
        leaves: Option<&LeafSums>,
        proven: &[Proven],
        stop: &AtomicBool,
    ) -> bool {
        let store = |leaf, object| self.leaf_store(leaf, object).map_err(io::Error::other);
        let is_file = matches!(entry.kind, Kind::File(_));
        let carried = is_file.then(|| self.with_earlier(|earlier| earlier.carry(entry, store)));
        let carried = carried.flatten().flatten();
        let entry = carried.as_ref().map_or(entry, |carried| &carried.entry);
        let sums = carried.as_ref().and_then(|carried| carried.sums.as_ref());
        let (objects, leaves) =
            sums.map_or((objects, leaves), |(objects, leaves)| (Some(objects), leaves.as_ref()));
        let mut is_whole = true;
        self.with(|writer| {
            is_whole = put_unless_stopped(writer, entry, objects, leaves, proven, stop)?;
            Ok(())
        });
        is_whole
    }

    /// Closes the file of the earlier sections, because the lock belongs to every open file.
    fn release_earlier(&self) {
        *self.earlier.lock() = Earlier::None;
    }

    fn with(&self, write: impl FnOnce(&mut Writer<BufWriter<File>>) -> Result<(), WriteError>) {
        let mut state = self.lock();
        let Some(writer) = &mut state.writer else { return };
        if let Err(failure) = write(writer) {
            (state.writer, state.failure) = (None, Some(failure));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Returns true if a write failed, so that the job can no longer get a receipt.
    pub fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Removes the section: restores the previous waybill, or removes the file if this job created
    /// it.
    ///
    /// # Errors
    /// Returns [`WaybillError::File`] if the file cannot be truncated or removed.
    pub fn discard(&self) -> Result<(), WaybillError> {
        self.release_earlier();
        // Dropping the writer flushes it; the truncation then removes the flushed bytes as well.
        let mut state = self.lock();
        drop(state.writer.take());
        let Some(file) = state.file.take() else { return Ok(()) };
        drop(state);
        let failed = |action| move |source| WaybillError::File { action, path: self.path.clone(), source };
        file.set_len(self.begin).map_err(failed("truncate"))?;
        let is_ours =
            || fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity);
        if self.is_new && is_ours() {
            fs::remove_file(&self.path).map_err(failed("remove"))?;
        }
        Ok(())
    }

    /// Closes the section and syncs the waybill.
    ///
    /// # Errors
    /// Returns a [`WaybillError`] if a write or the sync failed. The section is then incomplete,
    /// and readers report this.
    ///
    /// # Panics
    /// Panics if the section is already closed: a programming error.
    pub fn close(&self) -> Result<End, WaybillError> {
        let path = self.path.clone();
        self.release_earlier();
        let mut state = self.lock();
        state.file = None;
        if let Some(source) = state.failure.take() {
            return Err(WaybillError::Write { path, source });
        }
        let writer = state.writer.take().expect("a waybill is closed once");
        let (out, end) = match writer.close() {
            Ok(closed) => closed,
            Err(source) => return Err(WaybillError::Write { path, source }),
        };
        let synced =
            out.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| file.sync_all());
        synced.map_err(|source| WaybillError::File { action: "sync", path, source })?;
        Ok(end)
    }
}

/// Removes the last section if an earlier run of the job left it unfinished. Returns the metadata
/// of the file afterwards.
fn cut_off(
    path: &OsStr,
    file: &mut File,
    files: Option<&Files>,
    job: &Job,
) -> Result<Metadata, WaybillError> {
    let failed = |action| move |source| WaybillError::File { action, path: path.to_owned(), source };
    if let Some(offset) = take_up(file, files, job).map_err(failed("resume"))? {
        file.set_len(offset).map_err(failed("truncate"))?;
    }
    file.metadata().map_err(failed("open"))
}

/// Opens and locks a waybill. Creates the file if it does not exist, and returns true with it then.
fn open_locked(path: &OsStr) -> Result<(File, bool), WaybillError> {
    let failed = |action| move |source| WaybillError::File { action, path: path.to_owned(), source };
    if path == "-" {
        // A user who types `-` means the standard output and would expect the receipt there.
        let why = "standard output cannot hold a waybill; for a file named - use ./-";
        return Err(failed("write")(io::Error::new(io::ErrorKind::InvalidInput, why)));
    }
    let mut options = OpenOptions::new();
    // Do not truncate: the existing contents are checked first. Never a pipe: a receipt must
    // persist.
    options.read(true).write(true).truncate(false).custom_flags(O_NONBLOCK);
    let (file, is_new) = match options.clone().create_new(true).open(path) {
        // A dangling link is followed as well.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            (options.create(true).open(path), false)
        }
        made => (made, true),
    };
    let file = file.map_err(failed("open"))?;
    file.try_lock().map_err(|error| match error {
        TryLockError::Error(source) => failed("lock")(source),
        TryLockError::WouldBlock => {
            failed("lock")(io::Error::new(io::ErrorKind::WouldBlock, "another job holds the lock"))
        }
    })?;
    if !file.metadata().map_err(failed("open"))?.is_file() {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "Not a regular file");
        return Err(failed("write")(source));
    }
    Ok((file, is_new))
}

/// Returns the device and inode of a file.
fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// `O_NONBLOCK`: if the path is a pipe, the open call must not wait for its other end.
const O_NONBLOCK: i32 = 0o4000;

/// Maximum number of lines between two checks for a stop.
const LINES_UNCHECKED_MAX: u64 = 4096;

/// Writes an entry with the lines below it. If `stop` becomes true before the end, removes these
/// lines and returns false.
fn put_unless_stopped(
    writer: &mut Writer<BufWriter<File>>,
    entry: &Entry,
    objects: Option<&ObjectTable>,
    leaves: Option<&LeafSums>,
    proven: &[Proven],
    stop: &AtomicBool,
) -> Result<bool, WriteError> {
    let is_short = leaves.is_none() && objects.is_none_or(|objects| objects.len() < LINES_UNCHECKED_MAX);
    let begin = match is_short {
        true => None,
        false => {
            writer.flush()?;
            Some((writer.checkpoint(), writer.output().get_ref().stream_position()?))
        }
    };
    let (mut lines, mut is_stopped) = (0_u64, false);
    let mut check = || -> Result<(), WriteError> {
        lines += 1;
        is_stopped |= lines.is_multiple_of(LINES_UNCHECKED_MAX) && stop.load(Ordering::Relaxed);
        if is_stopped { Err(io::Error::from(io::ErrorKind::Interrupted).into()) } else { Ok(()) }
    };
    let done = put(writer, entry, objects, leaves, &mut check);
    match begin.filter(|_| is_stopped) {
        Some((earlier, place)) => {
            writer.flush()?;
            let mut file = writer.output().get_ref();
            file.set_len(place)?;
            file.seek(SeekFrom::Start(place))?;
            writer.restore(earlier);
            Ok(false)
        }
        None => {
            done?;
            proven.iter().try_for_each(|range| writer.proven(range))?;
            Ok(true)
        }
    }
}

/// Function that fails when the writing must end.
type Check<'c> = &'c mut dyn FnMut() -> Result<(), WriteError>;

/// Writes an entry with its objects and leaves. Calls `check` before each line of these.
fn put(
    writer: &mut Writer<BufWriter<File>>,
    entry: &Entry,
    objects: Option<&ObjectTable>,
    leaves: Option<&LeafSums>,
    check: Check<'_>,
) -> Result<(), WriteError> {
    writer.entry(entry)?;
    let Kind::File(content) = &entry.kind else { return Ok(()) };
    let has_leaves =
        |content: &Content| content.objects.as_ref().is_some_and(|objects| objects.leaf.is_some());
    let leaves = leaves.filter(|_| has_leaves(content));
    let put_leaves = |writer: &mut Writer<BufWriter<File>>, check: Check<'_>, index| match leaves {
        Some(leaves) => leaves.each_run(index, |run| check().and_then(|()| writer.leaves(run))),
        None => Ok(()),
    };
    if content.object_lines() == 0 {
        return put_leaves(writer, check, ObjectIndex(0));
    }
    for (index, digest) in objects.into_iter().flat_map(ObjectTable::iter) {
        check()?;
        writer.object(&ObjectDigests { index, digests: vec![digest] })?;
        put_leaves(writer, check, index)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_digest::{Algorithm, digest};
    use haul_log::waybill::{Moment, Objects, Reader, Record, RelPath};

    fn job(run: &str) -> Job {
        Job { run: run.into(), program: "test 1".to_owned(), at: 0, root: b".".to_vec() }
    }

    /// Regression test: the lines of a file were written to the end, whatever signal came.
    #[test]
    fn stop_leaves_no_part_of_an_entry() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w");
        let size = ObjectSize::new(64 << 10).unwrap();
        let mut objects = ObjectTable::new(size);
        let count = 3 * LINES_UNCHECKED_MAX;
        for index in 0..count {
            objects.set(ObjectIndex(index), digest(Algorithm::Blake3, &index.to_le_bytes()));
        }
        let entry = |name: &str| Entry {
            path: RelPath::new(name.as_bytes()).unwrap(),
            kind: Kind::File(Content {
                size: count * size.bytes(),
                digests: Vec::new(),
                objects: Some(Objects { size, algorithms: vec![Algorithm::Blake3], leaf: None }),
                way: None,
                level: None,
            }),
            mode: 0o644,
            mtime: Moment { sec: 0, nsec: 0 },
        };
        let writer = WaybillWriter::begin(path.as_os_str(), &job("one")).unwrap();
        let put = |name: &str, stop| {
            writer.add_proven(&entry(name), Some(&objects), None, &[], &AtomicBool::new(stop))
        };
        assert!(put("a", false) && !put("b", true) && put("c", false));
        let end = writer.close().unwrap();
        assert_eq!((end.entries, end.files, end.lines), (2, 2, 2 * (1 + count) + 1));
        let mut names = Vec::new();
        for record in Reader::new(&std::fs::read(&path).unwrap()[..]) {
            if let Record::Entry(entry) = record.unwrap() {
                names.push(entry.path.to_string());
            }
        }
        assert_eq!(names, ["a", "c"]);
    }

    #[test]
    fn later_jobs_append_and_other_files_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w");
        for run in ["one", "two", "three"] {
            let end = WaybillWriter::begin(path.as_os_str(), &job(run)).unwrap().close().unwrap();
            assert_eq!(end.lines, 1);
        }
        let bytes = std::fs::read(&path).unwrap();
        let records: Vec<_> = Reader::new(&bytes[..]).collect::<Result<_, _>>().unwrap();
        assert_eq!(records.len(), 6);
        let held = WaybillWriter::begin(path.as_os_str(), &job("four")).unwrap();
        let error = WaybillWriter::begin(path.as_os_str(), &job("at the same time")).unwrap_err();
        assert!(error.to_string().contains("another job holds the lock"), "{error}");
        held.close().unwrap();
        // A section that is removed again.
        let before = std::fs::read(&path).unwrap();
        WaybillWriter::begin(path.as_os_str(), &job("discarded")).unwrap().discard().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before);
        let new = dir.path().join("new");
        WaybillWriter::begin(new.as_os_str(), &job("discarded")).unwrap().discard().unwrap();
        assert!(!new.exists());
        // A section that was not closed, and a file that is not a waybill.
        drop(WaybillWriter::begin(path.as_os_str(), &job("killed")).unwrap());
        let error = WaybillWriter::begin(path.as_os_str(), &job("next")).unwrap_err();
        assert!(matches!(error, WaybillError::NotAppendable { .. }), "{error}");
        std::fs::write(&path, "precious\n").unwrap();
        assert!(WaybillWriter::begin(path.as_os_str(), &job("x")).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious\n");
        let fifo = dir.path().join("fifo");
        haul_sys::open::mknod_at(haul_sys::CWD, fifo.as_os_str(), haul_sys::FileKind::Fifo, 0o600, 0)
            .unwrap();
        assert!(matches!(WaybillWriter::begin(fifo.as_os_str(), &job("x")), Err(WaybillError::File { .. })));
        assert!(WaybillWriter::begin(dir.path().as_os_str(), &job("x")).is_err());
    }
}
