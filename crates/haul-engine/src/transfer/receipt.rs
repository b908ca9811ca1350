//! Waybill that one side of a transfer writes: one entry per name when its outcome is known, with
//! the levels that the sink reported.

use super::hashing::RootHash;
use crate::waybill::{FileFacts, WaybillError, WaybillWriter, file_entry, moment, name_entry};
use haul_digest::Digest;
use haul_log::waybill::{CopyMethod, End, Entry, Job, Kind, Proven, RelPath};
use haul_model::{ByteRange, Geometry, Level};
use haul_proto::Runs;
use haul_storage::Stat;
use haul_sys::sandbox;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use thiserror::Error;

/// A waybill that is started together with its session, so that a refused job leaves none.
#[derive(Debug)]
pub struct Receipt {
    path: OsString,
    job: Job,
    waybill_writer: OnceLock<WaybillWriter>,
}

/// Error that prevents a side from writing its waybill.
#[derive(Debug, Error)]
pub enum ReceiptError {
    /// The waybill file cannot be written.
    #[error(transparent)]
    WaybillWriter(#[from] WaybillError),
    /// The job would delete its own waybill.
    #[error(
        "cannot write the waybill {}: it is inside the directory in which --delete deletes files; name a file outside this directory",
        crate::copy::quote(path)
    )]
    WouldBeDeleted {
        /// Path of the waybill.
        path: OsString,
    },
}

impl Receipt {
    /// Creates a waybill at `path` for the job `job`. Its root is set when the session starts.
    pub fn new(path: OsString, job: Job) -> Receipt {
        Receipt { path, job, waybill_writer: OnceLock::new() }
    }

    /// Starts the waybill with paths relative to `root`. `deletes` is true if the job deletes in
    /// that directory.
    pub(super) fn begin(&self, root: &OsStr, deletes: bool) -> Result<(), ReceiptError> {
        if deletes && lies_in(Path::new(&self.path), Path::new(root)) {
            return Err(ReceiptError::WouldBeDeleted { path: self.path.clone() });
        }
        let job = Job { root: root.as_bytes().to_vec(), ..self.job.clone() };
        // Replace the section of an interrupted run: its files are sent or compared again. The file
        // is outside the directories of a session.
        let path = self.path.clone();
        let begun = sandbox::outside(move || WaybillWriter::begin_again(&path, &job));
        let waybill_writer = begun.map_err(|source| WaybillError::File {
            action: "open",
            path: self.path.clone(),
            source,
        })??;
        // Ignore a second session with the same waybill: the lock on the file has already reported
        // this error of the caller.
        let _ = self.waybill_writer.set(waybill_writer);
        Ok(())
    }

    /// Closes the section and makes it durable. Returns `None` if no session started.
    ///
    /// # Errors
    /// Returns a [`WaybillError`] if the section cannot be completed. Readers of the waybill then
    /// report that it is incomplete.
    pub fn close(&self) -> Result<Option<End>, WaybillError> {
        self.waybill_writer.get().map(WaybillWriter::close).transpose()
    }

    /// Returns true if `identity` is the waybill itself, which is neither sent nor overwritten.
    pub(super) fn is(&self, identity: (u64, u64)) -> bool {
        self.waybill_writer.get().is_some_and(|waybill_writer| waybill_writer.identity() == identity)
    }

    /// Writes the entry of a transferred file, all of which reached `level`.
    /// Once `stop` is true, a file of many objects gets no entry.
    pub(super) fn file(
        &self,
        path: &[u8],
        stat: &Stat,
        holes: &Runs,
        level: Level,
        hash: &RootHash,
        stop: &AtomicBool,
    ) {
        let (Some(waybill_writer), Ok(path)) = (self.waybill_writer.get(), RelPath::new(path)) else {
            return;
        };
        let Some((digests, objects)) = hash.for_waybill() else { return };
        let geometry = hash.geometry();
        let (all, proven) = levels(geometry, holes, level);
        let objects = Some(objects).filter(|objects| objects.len() > 1);
        let facts = FileFacts {
            size: geometry.len(),
            digests: &digests,
            objects,
            leaves: None,
            way: Some(CopyMethod::ReadWrite),
            level: Some(all),
        };
        waybill_writer.add_proven(&file_entry(path, stat, &facts), objects, None, &proven, stop);
    }

    /// Writes the entry of a file that was not sent because both sides computed the same digest.
    pub(super) fn same_digest(&self, path: &[u8], stat: &Stat, digest: Digest) {
        let (Some(waybill_writer), Ok(path)) = (self.waybill_writer.get(), RelPath::new(path)) else {
            return;
        };
        let digests = &[digest];
        let facts =
            FileFacts { size: stat.size, digests, objects: None, leaves: None, way: None, level: None };
        waybill_writer.add(&file_entry(path, stat, &facts), None, None);
    }

    /// Writes the entry of an additional name of the file `first`.
    pub(super) fn additional_name(&self, path: &[u8], stat: &Stat, first: &[u8]) {
        let (Some(waybill_writer), Ok(path), Ok(first)) =
            (self.waybill_writer.get(), RelPath::new(path), RelPath::new(first))
        else {
            return;
        };
        let kind = Kind::Same { first };
        waybill_writer.add(&Entry { path, kind, mode: stat.mode & 0o7777, mtime: moment(stat) }, None, None);
    }

    /// Writes the entry of a name without data. `target` is the target of a symbolic link.
    pub(super) fn name(&self, path: &[u8], stat: &Stat, target: Option<OsString>) {
        let (Some(waybill_writer), Ok(path)) = (self.waybill_writer.get(), RelPath::new(path)) else {
            return;
        };
        if let Some(entry) = name_entry(path, stat, target) {
            waybill_writer.add(&entry, None, None);
        }
    }
}

/// Returns the level that the whole file reached, and the ranges that reached a higher one. Objects
/// that consist of a hole were not transferred. For them the sink only recorded that they are
/// holes.
fn levels(geometry: Geometry, holes: &Runs, level: Level) -> (Level, Vec<Proven>) {
    if holes.is_empty() || level == Level::Received {
        return (level, Vec::new());
    }
    let mut data = Runs::of(0, geometry.count());
    data.subtract(holes);
    let byte = |index: u64| index.saturating_mul(geometry.object_size().bytes()).min(geometry.len());
    let ranges = data.iter().map(|(start, end)| ByteRange::between(byte(start), byte(end)));
    (Level::Received, ranges.map(|range| Proven { range, level }).collect())
}

/// Returns true if a file, which may not exist yet, is located beneath a directory. Returns false
/// if either path cannot be resolved.
fn lies_in(file: &Path, dir: &Path) -> bool {
    let above = file.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (above.canonicalize(), dir.canonicalize()) {
        (Ok(above), Ok(dir)) => above.starts_with(dir),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::{ByteLen, ObjectSize};

    #[test]
    fn deleting_job_refuses_a_waybill_inside_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let (root, path) = (dir.path().join("root"), dir.path().join("root/sub/w"));
        std::fs::create_dir_all(root.join("sub")).unwrap();
        let receipt = Receipt::new(path.clone().into(), Job::default());
        let error = receipt.begin(root.as_os_str(), true).unwrap_err();
        assert!(error.to_string().contains("name a file outside this directory"), "{error}");
        assert!(!path.exists() && receipt.close().unwrap().is_none());
        receipt.begin(root.as_os_str(), false).unwrap();
        assert_eq!(receipt.close().unwrap().map(|end| end.entries), Some(0));
    }

    /// The section of a killed run that had reached the file once prevented the same command from
    /// appending to the waybill.
    #[test]
    fn rerun_replaces_the_section_of_a_killed_run() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("w");
        let receipt =
            |run: &str| Receipt::new(path.clone().into(), Job { run: run.into(), ..Job::default() });
        let entries = |count: usize, receipt: &Receipt| {
            receipt.begin(dir.path().as_os_str(), false).unwrap();
            let root =
                haul_storage::local::open(std::path::Path::new("/"), haul_storage::Follow::Yes).unwrap();
            let stat = root.stat().unwrap();
            (0..count).for_each(|entry| receipt.name(format!("d{entry}").as_bytes(), &stat, None));
        };
        let first = receipt("other");
        entries(2, &first);
        first.close().unwrap();
        let killed = receipt("same");
        // Far more entries than are kept in memory.
        entries(5000, &killed);
        drop(killed);
        assert!(std::fs::metadata(&path).unwrap().len() > 100_000, "entries reached the file");
        assert!(receipt("another").begin(dir.path().as_os_str(), false).is_err());
        let again = receipt("same");
        entries(3, &again);
        assert_eq!(again.close().unwrap().map(|end| end.entries), Some(3));
        let reader =
            haul_log::waybill::Reader::new(std::io::BufReader::new(std::fs::File::open(&path).unwrap()));
        // Two sections, each with its header and its end record.
        assert_eq!(reader.collect::<Result<Vec<_>, _>>().unwrap().len(), 2 + 3 + 2 * 2);
    }

    #[test]
    fn holes_have_level_received_and_data_has_ranges() {
        let object = ObjectSize::new(64 << 10).unwrap();
        let size = (4 << 16) + 5;
        let geometry = Geometry::new(ByteLen(size), object);
        assert_eq!(levels(geometry, &Runs::default(), Level::Durable), (Level::Durable, Vec::new()));
        let proven = |start, end| Proven { range: ByteRange::between(start, end), level: Level::Reread };
        let (all, ranges) = levels(geometry, &Runs::of(1, 3), Level::Reread);
        assert_eq!((all, ranges), (Level::Received, vec![proven(0, 1 << 16), proven(3 << 16, size)]));
        let (all, ranges) = levels(geometry, &Runs::of(0, 5), Level::Verified);
        assert_eq!((all, ranges), (Level::Received, Vec::new()));
    }
}
