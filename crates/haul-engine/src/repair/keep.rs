//! Archive of replaced bytes, in a separate directory. The files are stored under their paths and
//! never overwritten.

use super::LeftReason;
use super::places::{NameAt, Root, name_at_with_parents, split};
use crate::pipeline::BLOCK_BYTES;
use haul_log::waybill::RelPath;
use haul_model::ByteRange;
use haul_storage::{Create, Name, Remove, SinkFile, SourceFile, SyncWhat};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io;
use std::sync::Arc;

/// Maximum length of the kept part of a file name, in bytes; the range follows it, and names have
/// at most 255 bytes.
const NAME_BYTES_MAX: usize = 180;

/// Maximum number of times that the same range of the same file can be kept.
const GENERATIONS_MAX: u32 = 10_000;

/// Block size after a read error, in bytes, so that intact bytes next to a bad sector are kept.
const SMALL_BYTES: usize = 4096;

/// The directory of `--keep-damaged`.
#[derive(Debug)]
pub(super) struct DamageArchive {
    root: Root,
    /// Directories that were created, locked until they are durable.
    made: Mutex<HashSet<Vec<u8>>>,
}

impl DamageArchive {
    /// Opens the directory; creates it if only its last component is missing.
    pub(super) fn open(path: &OsStr) -> io::Result<DamageArchive> {
        match std::fs::create_dir(path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        Ok(DamageArchive::new(Root::open(path)?))
    }

    /// Creates an archive in an open directory.
    pub(super) fn new(root: Root) -> DamageArchive {
        DamageArchive { root, made: Mutex::default() }
    }

    /// Copies ranges of a file to `PATH.START-END`, durably. An unreadable range becomes a hole.
    pub(super) fn keep(
        &self,
        path: &RelPath,
        file: &dyn SourceFile,
        ranges: &[ByteRange],
    ) -> Result<(), LeftReason> {
        // Another file counts on a new directory only when its name is durable.
        let name_at = name_at_with_parents(&self.root, path, &mut self.made.lock())?;
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let kept = create(&name_at, path, *range).and_then(|(name, kept)| {
                let copied = copy(file, &*kept, *range).and_then(|()| kept.sync(SyncWhat::All));
                // An incomplete file would look like the replaced bytes. The first error counts.
                copied.inspect_err(|_| _ = name_at.dir.remove(&name, Remove::File))
            });
            kept.map_err(LeftReason::io("keep the replaced bytes"))?;
        }
        name_at.sync()
    }
}

/// Creates a new file next to those of earlier repairs.
fn create(name_at: &NameAt, path: &RelPath, range: ByteRange) -> io::Result<(Name, Arc<dyn SinkFile>)> {
    let (_, name) = split(path.as_bytes());
    let mut stem = name[..name.len().min(NAME_BYTES_MAX)].to_vec();
    if stem.len() < name.len() {
        // Keep names with the same beginning distinct.
        let digest = haul_digest::digest(haul_digest::Algorithm::Xxh64, name);
        stem.extend_from_slice(format!("~{digest}").as_bytes());
    }
    stem.extend_from_slice(format!(".{range}").as_bytes());
    for generation in 0..GENERATIONS_MAX {
        let mut name = stem.clone();
        if generation > 0 {
            name.extend_from_slice(format!(".{generation}").as_bytes());
        }
        let name = Name::new(name).ok_or(io::ErrorKind::InvalidFilename)?;
        match name_at.dir.sink(&name, Create::New { mode: 0o600 }) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|file| (name, file)),
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn copy(file: &dyn SourceFile, kept: &dyn SinkFile, range: ByteRange) -> io::Result<()> {
    let mut buffer = vec![0; BLOCK_BYTES];
    let mut at = range.start.0;
    while at < range.end.0 {
        let want = (BLOCK_BYTES as u64).min(range.end.0 - at) as usize;
        let to = at - range.start.0;
        if let Ok(got) = file.read_at(at, &mut buffer[..want]) {
            kept.write_at(to, &buffer[..got])?;
        } else {
            for from in (0..want).step_by(SMALL_BYTES) {
                let small = SMALL_BYTES.min(want - from);
                // Unreadable bytes are lost already.
                let Ok(got) = file.read_at(at + from as u64, &mut buffer[..small]) else {
                    continue;
                };
                kept.write_at(to + from as u64, &buffer[..got])?;
            }
        }
        at += want as u64;
    }
    kept.set_len(range.len())
}
