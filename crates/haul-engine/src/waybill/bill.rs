//! Writer of a waybill file.

use super::cut_off::{Files, Place, take_up};
use super::known::{Known, Wanted};
use super::{LeafStore, LeafSums, ObjectSums};
use crate::log::{Listing, StampFile, Stamped};
use haul_log::waybill::{
    Content, End, Entry, Job, Kind, LINE_BYTES_MAX, ObjectDigests, Proven, TAIL_BYTES, Tail, TailError,
    WriteError, Writer, may_append,
};
use haul_model::{LeafSize, ObjectIndex, ObjectSize};
use haul_sys::stat::{stat_at, stat_fd};
use haul_sys::{CWD, FileKind, Follow, Stat};
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use thiserror::Error;

/// Waybill in progress; any number of workers can write to it.
#[derive(Debug)]
pub struct Bill {
    path: OsString,
    /// Device and inode.
    identity: (u64, u64),
    /// Offset of the section in the file.
    begin: u64,
    /// True if this job created the file.
    is_new: bool,
    /// State of a resumable section; `None` for other jobs.
    course: Option<Course>,
    state: Mutex<State>,
}

/// Resumable section of a waybill.
#[derive(Debug)]
struct Course {
    listing: Arc<Listing>,
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
pub enum BillError {
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

impl Bill {
    /// Starts a waybill, or appends a section to an existing one: receipts are never overwritten.
    ///
    /// # Errors
    /// Returns a [`BillError`] if the file cannot be opened or locked, or is not a complete
    /// waybill.
    pub fn begin(path: &OsStr, job: &Job) -> Result<Bill, BillError> {
        let (file, is_new) = open_locked(path)?;
        let facts = stat_fd(&file).map_err(|source| BillError::File {
            action: "open",
            path: path.to_owned(),
            source,
        })?;
        Bill::write(path, job, (file, is_new), &facts, None)
    }

    /// Same as [`begin`](Bill::begin), for a job that repeats or checks all work of an earlier run
    /// of the same command. If that run was interrupted in the waybill's last section, the section
    /// is rewritten, because it is not a complete receipt.
    ///
    /// # Errors
    /// Same as [`begin`](Bill::begin).
    pub fn begin_again(path: &OsStr, job: &Job) -> Result<Bill, BillError> {
        let (mut file, is_new) = open_locked(path)?;
        let facts = cut_off(path, &mut file, None, job)?;
        Bill::write(path, job, (file, is_new), &facts, None)
    }

    /// Same as [`begin`](Bill::begin), for a resumable job. If an earlier run of the job started
    /// the waybill's last section, that section is rewritten, and its contents are returned as
    /// [`Known`].
    ///
    /// # Errors
    /// Same as [`begin`](Bill::begin). Also returns [`BillError::File`] if the contents of the
    /// earlier section cannot be read.
    pub fn begin_or_go_on(
        path: &OsStr,
        job: &Job,
        listing: &Arc<Listing>,
        wanted: impl FnOnce(&Bill) -> Result<Wanted, BillError>,
    ) -> Result<(Bill, Option<Known>), BillError> {
        let failed = |action| move |source| BillError::File { action, path: path.to_owned(), source };
        let stamped = Stamped::now();
        let (mut file, is_new) = open_locked(path)?;
        let files = listing.folder().map(|folder| Files::of(&folder));
        let facts = cut_off(path, &mut file, files.as_ref(), job)?;
        let course = Course { listing: Arc::clone(listing), offset: facts.size, stamped };
        let bill = Bill::write(path, job, (file, is_new), &facts, Some(course))?;
        let known = match files.filter(|files| files.known.exists()) {
            Some(files) => {
                let known = Known::open(&files.known, &files.known_stamps, wanted(&bill)?);
                Some(known.map_err(failed("read the saved digests of"))?)
            }
            None => None,
        };
        Ok((bill, known))
    }

    fn write(
        path: &OsStr,
        job: &Job,
        (mut file, is_new): (File, bool),
        facts: &Stat,
        course: Option<Course>,
    ) -> Result<Bill, BillError> {
        let failed = |action| move |source| BillError::File { action, path: path.to_owned(), source };
        let written = |source| BillError::Write { path: path.to_owned(), source };
        let not_appendable = |source| BillError::NotAppendable { path: path.to_owned(), source };
        let held = file.try_clone().map_err(failed("open"))?;
        let mut first = Vec::new();
        file.seek(SeekFrom::Start(0)).map_err(failed("read"))?;
        (&mut file).take(LINE_BYTES_MAX as u64).read_to_end(&mut first).map_err(failed("read"))?;
        may_append(&first).map_err(not_appendable)?;
        file.seek(SeekFrom::Start(facts.size.saturating_sub(TAIL_BYTES as u64))).map_err(failed("read"))?;
        let writer = if facts.size == 0 {
            Writer::new(BufWriter::new(file), job)
        } else {
            let mut bytes = Vec::new();
            (&mut file).take(TAIL_BYTES as u64).read_to_end(&mut bytes).map_err(failed("read"))?;
            let tail = Tail::of(&bytes).map_err(not_appendable)?;
            Writer::append(BufWriter::new(file), job, &tail)
        };
        let writer = Some(writer.map_err(written)?);
        let file = Some(held);
        let state =
            State { writer, file, failure: None, stamps: StampFile::default(), entries: 0, is_told: false };
        Ok(Bill {
            path: path.to_owned(),
            identity: facts.identity(),
            begin: facts.size,
            is_new,
            course,
            state: Mutex::new(state),
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
    /// Returns [`BillError::File`] if neither directory works.
    pub fn leaf_store(&self, leaf: LeafSize, object: ObjectSize) -> Result<Arc<LeafStore>, BillError> {
        let dir = Path::new(&self.path).parent().filter(|dir| !dir.as_os_str().is_empty());
        let failed =
            |source| BillError::File { action: "store leaf digests of", path: self.path.clone(), source };
        LeafStore::new(dir.unwrap_or(Path::new(".")), leaf, object)
            .or_else(|_| LeafStore::new(&std::env::temp_dir(), leaf, object))
            .map_err(failed)
    }

    /// Writes an entry with the digests of its objects and leaves. After a failed write, nothing
    /// more is written, and [`Bill::close`] returns the error.
    pub fn add(&self, entry: &Entry, objects: Option<&ObjectSums>, leaves: Option<&LeafSums>) {
        self.with(|writer| put(writer, entry, objects, leaves));
    }

    /// Same as [`Bill::add`], for a file with the metadata `facts` in a resumable job. A later run
    /// finds the entry by this metadata.
    pub fn add_read(
        &self,
        entry: &Entry,
        objects: Option<&ObjectSums>,
        leaves: Option<&LeafSums>,
        facts: &Stat,
    ) {
        self.add(entry, objects, leaves);
        let Some(course) = self.course.as_ref().filter(|course| !course.listing.is_given_up()) else {
            return;
        };
        let stamp = course.stamped.stamp(entry.path.as_bytes(), facts);
        let mut state = self.lock();
        let number = state.entries;
        state.entries += 1;
        // A stamp that does not fit costs only another read of the file.
        state.stamps.set(number, stamp);
    }

    /// Flushes the entries, and records in the job directory what a later run needs. Ignores
    /// errors: a later run then reads more files again.
    pub fn keep(&self) {
        let Some(course) = &self.course else { return };
        self.with(Writer::flush);
        let Some(files) = course.listing.folder().map(|folder| Files::of(&folder)) else { return };
        let mut state = self.lock();
        if !state.is_told {
            let place = File::open(&self.path).and_then(|mut file| Place::of(&mut file, course.offset));
            state.is_told = place.and_then(|place| place.write(&files)).is_ok();
        }
        if state.is_told {
            let _ = state.stamps.write(&files.stamps, false);
        }
    }

    /// Deletes the resume state after the end of the job.
    ///
    /// # Errors
    /// Returns [`BillError::File`] if the state remains; a later run of the same command would then
    /// resume the finished job.
    pub fn forget(&self) -> Result<(), BillError> {
        let folder = self.course.as_ref().and_then(|course| course.listing.folder());
        let Some(folder) = folder else { return Ok(()) };
        let removed = Files::of(&folder).remove();
        let path = folder.into_os_string();
        removed.map_err(|source| BillError::File { action: "remove the saved digests of", path, source })
    }

    /// Same as [`Bill::add`], for a file with ranges that reached a higher level than the whole
    /// file. The ranges are sorted.
    pub(crate) fn add_proven(
        &self,
        entry: &Entry,
        objects: Option<&ObjectSums>,
        leaves: Option<&LeafSums>,
        proven: &[Proven],
    ) {
        self.with(|writer| {
            put(writer, entry, objects, leaves)?;
            proven.iter().try_for_each(|range| writer.proven(range))
        });
    }

    fn with(&self, write: impl FnOnce(&mut Writer<BufWriter<File>>) -> Result<(), WriteError>) {
        let mut state = self.lock();
        let Some(writer) = &mut state.writer else { return };
        if let Err(failure) = write(writer) {
            (state.writer, state.failure) = (None, Some(failure));
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns true if a write failed, so that the job can no longer get a receipt.
    pub fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Removes the section: restores the previous waybill, or removes the file if this job created
    /// it.
    ///
    /// # Errors
    /// Returns [`BillError::File`] if the file cannot be truncated or removed.
    pub fn discard(&self) -> Result<(), BillError> {
        // Dropping the writer flushes it; the truncation then removes the flushed bytes as well.
        let mut state = self.lock();
        drop(state.writer.take());
        let Some(file) = state.file.take() else { return Ok(()) };
        drop(state);
        let failed = |action| move |source| BillError::File { action, path: self.path.clone(), source };
        file.set_len(self.begin).map_err(failed("truncate"))?;
        let is_ours =
            || stat_at(CWD, &*self.path, Follow::No).is_ok_and(|found| found.identity() == self.identity);
        if self.is_new && is_ours() {
            std::fs::remove_file(&self.path).map_err(failed("remove"))?;
        }
        Ok(())
    }

    /// Closes the section and syncs the waybill.
    ///
    /// # Errors
    /// Returns a [`BillError`] if a write or the sync failed. The section is then incomplete, and
    /// readers report this.
    ///
    /// # Panics
    /// Panics if the section is already closed: a programming error.
    pub fn close(&self) -> Result<End, BillError> {
        let path = self.path.clone();
        let mut state = self.lock();
        state.file = None;
        if let Some(source) = state.failure.take() {
            return Err(BillError::Write { path, source });
        }
        let writer = state.writer.take().expect("a waybill is closed once");
        let (out, end) = match writer.close() {
            Ok(closed) => closed,
            Err(source) => return Err(BillError::Write { path, source }),
        };
        let synced =
            out.into_inner().map_err(io::IntoInnerError::into_error).and_then(|file| file.sync_all());
        synced.map_err(|source| BillError::File { action: "sync", path, source })?;
        Ok(end)
    }
}

/// Removes the last section if an earlier run of the job left it unfinished. Returns the metadata
/// of the file afterwards.
fn cut_off(path: &OsStr, file: &mut File, files: Option<&Files>, job: &Job) -> Result<Stat, BillError> {
    let failed = |action| move |source| BillError::File { action, path: path.to_owned(), source };
    if let Some(offset) = take_up(file, files, job).map_err(failed("resume"))? {
        file.set_len(offset).map_err(failed("truncate"))?;
    }
    stat_fd(&*file).map_err(failed("open"))
}

/// Opens and locks a waybill. Creates the file if it does not exist, and returns true with it then.
fn open_locked(path: &OsStr) -> Result<(File, bool), BillError> {
    let failed = |action| move |source| BillError::File { action, path: path.to_owned(), source };
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
    let facts = stat_fd(&file).map_err(failed("open"))?;
    if facts.kind != FileKind::Regular {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "Not a regular file");
        return Err(failed("write")(source));
    }
    Ok((file, is_new))
}

/// `O_NONBLOCK`: if the path is a pipe, the open call must not wait for its other end.
const O_NONBLOCK: i32 = 0o4000;

fn put(
    writer: &mut Writer<BufWriter<File>>,
    entry: &Entry,
    objects: Option<&ObjectSums>,
    leaves: Option<&LeafSums>,
) -> Result<(), WriteError> {
    writer.entry(entry)?;
    let Kind::File(content) = &entry.kind else { return Ok(()) };
    let has_leaves =
        |content: &Content| content.objects.as_ref().is_some_and(|objects| objects.leaf.is_some());
    let leaves = leaves.filter(|_| has_leaves(content));
    let put_leaves = |writer: &mut Writer<_>, index| match leaves {
        Some(leaves) => leaves.each_run(index, |run| writer.leaves(run)),
        None => Ok(()),
    };
    if content.object_lines() == 0 {
        return put_leaves(writer, ObjectIndex(0));
    }
    for (index, digest) in objects.into_iter().flat_map(ObjectSums::iter) {
        writer.object(&ObjectDigests { index, digests: vec![digest] })?;
        put_leaves(writer, index)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_log::waybill::Reader;

    fn job(run: &str) -> Job {
        Job { run: run.into(), program: "test 1".to_owned(), at: 0, root: b".".to_vec() }
    }

    #[test]
    fn a_further_job_appends_and_nothing_else_is_written_to() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w");
        for run in ["one", "two", "three"] {
            let end = Bill::begin(path.as_os_str(), &job(run)).unwrap().close().unwrap();
            assert_eq!(end.lines, 1);
        }
        let bytes = std::fs::read(&path).unwrap();
        let records: Vec<_> = Reader::new(&bytes[..]).collect::<Result<_, _>>().unwrap();
        assert_eq!(records.len(), 6);
        let held = Bill::begin(path.as_os_str(), &job("four")).unwrap();
        let error = Bill::begin(path.as_os_str(), &job("at the same time")).unwrap_err();
        assert!(error.to_string().contains("another job holds the lock"), "{error}");
        held.close().unwrap();
        // A section that is removed again.
        let before = std::fs::read(&path).unwrap();
        Bill::begin(path.as_os_str(), &job("discarded")).unwrap().discard().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before);
        let new = dir.path().join("new");
        Bill::begin(new.as_os_str(), &job("discarded")).unwrap().discard().unwrap();
        assert!(!new.exists());
        // A section that was not closed, and a file that is not a waybill.
        drop(Bill::begin(path.as_os_str(), &job("killed")).unwrap());
        let error = Bill::begin(path.as_os_str(), &job("next")).unwrap_err();
        assert!(matches!(error, BillError::NotAppendable { .. }), "{error}");
        std::fs::write(&path, "precious\n").unwrap();
        assert!(Bill::begin(path.as_os_str(), &job("x")).is_err());
        assert_eq!(std::fs::read(&path).unwrap(), b"precious\n");
        let fifo = dir.path().join("fifo");
        haul_sys::open::mknod_at(haul_sys::CWD, fifo.as_os_str(), haul_sys::FileKind::Fifo, 0o600, 0)
            .unwrap();
        assert!(matches!(Bill::begin(fifo.as_os_str(), &job("x")), Err(BillError::File { .. })));
        assert!(Bill::begin(dir.path().as_os_str(), &job("x")).is_err());
    }
}
