//! A waybill on disk that a job writes.

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

/// A waybill being written, by any number of workers.
#[derive(Debug)]
pub struct Bill {
    path: OsString,
    /// Device and inode.
    identity: (u64, u64),
    /// Offset of the section in the file.
    begin: u64,
    /// This job made the file.
    is_new: bool,
    /// Of a job that can be gone on with.
    course: Option<Course>,
    state: Mutex<State>,
}

/// How a job that can be gone on with writes its section.
#[derive(Debug)]
struct Course {
    listing: Arc<Listing>,
    /// Where the section begins.
    offset: u64,
    stamped: Stamped,
}

#[derive(Debug)]
struct State {
    /// Gone once a write failed.
    writer: Option<Writer<BufWriter<File>>>,
    /// The file, to cut the section off again; gone when the section is closed, and the lock with it.
    file: Option<File>,
    failure: Option<WriteError>,
    /// What the files of the entries looked like, and how many entries there are.
    stamps: StampFile,
    entries: u64,
    /// The job's folder says which section this is.
    is_told: bool,
}

/// Why there is no waybill.
#[derive(Debug, Error)]
pub enum BillError {
    /// The file can't be opened, read, or made durable.
    #[error("cannot {action} the waybill {}: {}", crate::copy::quote(path), crate::sum::reason(source))]
    File {
        /// What was tried.
        action: &'static str,
        /// The waybill.
        path: OsString,
        /// What the kernel said.
        source: io::Error,
    },
    /// Something stands there that can't be appended to.
    #[error(
        "cannot append to the waybill {}: {source}; name a file that does not exist yet",
        crate::copy::quote(path)
    )]
    NotAppendable {
        /// What stands there.
        path: OsString,
        /// What is wrong with it.
        source: TailError,
    },
    /// Writing failed: what was done so far has no complete receipt.
    #[error("cannot write the waybill {}: {source}", crate::copy::quote(path))]
    Write {
        /// The waybill.
        path: OsString,
        /// Why.
        source: WriteError,
    },
}

impl Bill {
    /// Begins a waybill, or a further section where one stands already: receipts are never overwritten.
    ///
    /// # Errors
    /// [`BillError`].
    pub fn begin(path: &OsStr, job: &Job) -> Result<Bill, BillError> {
        let (file, is_new) = open_locked(path)?;
        let facts = stat_fd(&file).map_err(|source| BillError::File {
            action: "open",
            path: path.to_owned(),
            source,
        })?;
        Bill::write(path, job, (file, is_new), &facts, None)
    }

    /// [`begin`](Bill::begin) by a job that does again, or looks at again, all that an earlier run of the same command did. If that run was ended in the
    /// waybill's last section, the section is rewritten: it is no receipt.
    ///
    /// # Errors
    /// [`BillError`].
    pub fn begin_again(path: &OsStr, job: &Job) -> Result<Bill, BillError> {
        let (mut file, is_new) = open_locked(path)?;
        let facts = cut_off(path, &mut file, None, job)?;
        Bill::write(path, job, (file, is_new), &facts, None)
    }

    /// [`begin`](Bill::begin) by a job that can be gone on with. The section that an earlier run of it began and that is the waybill's last is written anew,
    /// and what that run had in it is known.
    ///
    /// # Errors
    /// [`BillError`].
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
                Some(known.map_err(failed("read what is known of"))?)
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

    /// Device and inode of the file: a job that meets it among its files leaves it out.
    pub fn identity(&self) -> (u64, u64) {
        self.identity
    }

    /// A place where the leaves of files wait for their entries: in the waybill's own directory, whose file system needs
    /// room for them anyway, or where nothing can be made there, in the one for temporary files.
    ///
    /// # Errors
    /// [`BillError::File`].
    pub fn leaf_store(&self, leaf: LeafSize, object: ObjectSize) -> Result<Arc<LeafStore>, BillError> {
        let dir = Path::new(&self.path).parent().filter(|dir| !dir.as_os_str().is_empty());
        let failed =
            |source| BillError::File { action: "keep leaves beside", path: self.path.clone(), source };
        LeafStore::new(dir.unwrap_or(Path::new(".")), leaf, object)
            .or_else(|_| LeafStore::new(&std::env::temp_dir(), leaf, object))
            .map_err(failed)
    }

    /// Writes an entry with the digests of its objects and leaves. A failure is kept, and told by [`Bill::close`]; what
    /// comes after it is not written.
    pub fn add(&self, entry: &Entry, objects: Option<&ObjectSums>, leaves: Option<&LeafSums>) {
        self.with(|writer| put(writer, entry, objects, leaves));
    }

    /// [`Bill::add`] for a file that was read when these were its facts, in a job that can be gone on with: a later run finds it by them.
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
        // What finds no room is read again.
        state.stamps.set(number, stamp);
    }

    /// Sends on what was written, and tells the job's folder what a later run needs. Best effort: what can't be kept is read again.
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

    /// The job came to its end, and nothing is to be gone on with.
    ///
    /// # Errors
    /// [`BillError::File`]: a later run of the same command would go on with what is done.
    pub fn forget(&self) -> Result<(), BillError> {
        let folder = self.course.as_ref().and_then(|course| course.listing.folder());
        let Some(folder) = folder else { return Ok(()) };
        let removed = Files::of(&folder).remove();
        let path = folder.into_os_string();
        removed.map_err(|source| BillError::File { action: "remove what was kept of", path, source })
    }

    /// [`Bill::add`] for a file of which ranges, in their order, reached more than its own level.
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

    /// Whether a write failed, so that going on with the job brings no receipt.
    pub fn has_failed(&self) -> bool {
        self.lock().failure.is_some()
    }

    /// Takes the section back: the waybill is what it was before, and is removed if this job made it.
    ///
    /// # Errors
    /// [`BillError::File`].
    pub fn discard(&self) -> Result<(), BillError> {
        // What waits to be written is written now, and truncated with the rest.
        let mut state = self.lock();
        drop(state.writer.take());
        let Some(file) = state.file.take() else { return Ok(()) };
        drop(state);
        let failed = |action| move |source| BillError::File { action, path: self.path.clone(), source };
        file.set_len(self.begin).map_err(failed("cut"))?;
        let is_ours =
            || stat_at(CWD, &*self.path, Follow::No).is_ok_and(|found| found.identity() == self.identity);
        if self.is_new && is_ours() {
            std::fs::remove_file(&self.path).map_err(failed("remove"))?;
        }
        Ok(())
    }

    /// Closes the section and makes the waybill durable.
    ///
    /// # Errors
    /// [`BillError`]: then the section is not complete, and its readers will say so.
    ///
    /// # Panics
    /// If it was closed before: a mistake of the caller.
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

/// Cuts off the section that an earlier run of the job left unfinished, if it is the last one. Returns the facts of the file then.
fn cut_off(path: &OsStr, file: &mut File, files: Option<&Files>, job: &Job) -> Result<Stat, BillError> {
    let failed = |action| move |source| BillError::File { action, path: path.to_owned(), source };
    if let Some(offset) = take_up(file, files, job).map_err(failed("go on with"))? {
        file.set_len(offset).map_err(failed("cut"))?;
    }
    stat_fd(&*file).map_err(failed("open"))
}

/// Opens and locks a waybill. Creates the file if it does not exist, and returns true with it then.
fn open_locked(path: &OsStr) -> Result<(File, bool), BillError> {
    let failed = |action| move |source| BillError::File { action, path: path.to_owned(), source };
    if path == "-" {
        // Who types that means the standard output, and would look for the receipt there.
        let why = "a receipt is a file of its own; for one of that name write ./-";
        return Err(failed("write")(io::Error::new(io::ErrorKind::InvalidInput, why)));
    }
    let mut options = OpenOptions::new();
    // Not truncated: what stands there is looked at first. Never a pipe: a receipt stays.
    options.read(true).write(true).truncate(false).custom_flags(O_NONBLOCK);
    let (file, is_new) = match options.clone().create_new(true).open(path) {
        // A link that leads nowhere is followed as well.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            (options.create(true).open(path), false)
        }
        made => (made, true),
    };
    let file = file.map_err(failed("open"))?;
    file.try_lock().map_err(|error| match error {
        TryLockError::Error(source) => failed("lock")(source),
        TryLockError::WouldBlock => {
            failed("lock")(io::Error::new(io::ErrorKind::WouldBlock, "another job writes to it"))
        }
    })?;
    let facts = stat_fd(&file).map_err(failed("open"))?;
    if facts.kind != FileKind::Regular {
        let source = io::Error::new(io::ErrorKind::InvalidInput, "Not a regular file");
        return Err(failed("write")(source));
    }
    Ok((file, is_new))
}

/// `O_NONBLOCK`: opening a pipe that stands in the waybill's place must not wait for its other end.
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
        assert!(error.to_string().contains("another job writes to it"), "{error}");
        held.close().unwrap();
        // One that is taken back.
        let before = std::fs::read(&path).unwrap();
        Bill::begin(path.as_os_str(), &job("discarded")).unwrap().discard().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), before);
        let new = dir.path().join("new");
        Bill::begin(new.as_os_str(), &job("discarded")).unwrap().discard().unwrap();
        assert!(!new.exists());
        // A section that was not closed, and a file that is none.
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
