//! Files of the simulated world. Each cell of 16 KiB is stored as one number, so that a session of
//! many megabytes is cheap; 0 is a cell of zeros.

use super::dice::{Dice, mix};
use haul_digest::{Algorithm, Digest, KeyedDigest};
use haul_model::{ByteRange, Moment};
use haul_proto::{FileKind, NewFile, Runs};
use std::collections::BTreeMap;

pub(crate) const CELL: u64 = 16 << 10;

/// Fault of a file at the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ill {
    Well,
    CannotOpen,
    /// Reads fail from this object on.
    CannotRead(u64),
    Changes,
}

#[derive(Clone, Debug)]
pub(crate) struct SourceFile {
    pub(crate) path: Vec<u8>,
    pub(crate) kind: FileKind,
    pub(crate) seed: u64,
    pub(crate) mtime: i64,
    pub(crate) ill: Ill,
    /// For a hard link: index of the file with the first name.
    pub(crate) first: Option<usize>,
}

impl SourceFile {
    pub(crate) fn size(&self) -> u64 {
        if let FileKind::File { size, .. } = self.kind { size } else { 0 }
    }

    pub(crate) fn cell(&self, number: u64) -> u64 {
        let value = mix(self.seed ^ mix(number));
        if value.is_multiple_of(7) { 0 } else { value }
    }

    pub(crate) fn facts(&self) -> NewFile {
        NewFile {
            mode: 0o644,
            mtime: Moment { sec: self.mtime, nsec: 5 },
            uid: 1,
            gid: 2,
            ..NewFile::new(self.path.clone(), self.kind.clone())
        }
    }

    pub(crate) fn digest(&self, range: ByteRange) -> Digest {
        digest_of(cells(range).map(|cell| self.cell(cell)))
    }
}

/// Returns the cells of a byte range; the range begins at a cell boundary.
pub(crate) fn cells(range: ByteRange) -> impl Iterator<Item = u64> {
    range.start.0 / CELL..range.end.0.div_ceil(CELL)
}

pub(crate) fn digest_of(cells: impl Iterator<Item = u64>) -> Digest {
    let value = cells.fold(1, |sum, cell| mix(sum ^ mix(cell.wrapping_add(3))));
    let bytes: Vec<u8> = (0..4).flat_map(|part| mix(value ^ part).to_le_bytes()).collect();
    Digest::from_bytes(Algorithm::Blake3, &bytes).unwrap()
}

/// Returns a digest as one under the key of the session.
pub(crate) fn keyed(digest: Digest) -> KeyedDigest {
    KeyedDigest::from_bytes(*digest.as_bytes().first_chunk().unwrap())
}

/// A file at the sink under its final name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SinkFile {
    pub(crate) size: u64,
    pub(crate) cells: Vec<u64>,
    pub(crate) mtime: i64,
    /// True if the file survives a crash.
    pub(crate) is_durable: bool,
}

impl SinkFile {
    pub(crate) fn digest(&self, range: ByteRange) -> Digest {
        digest_of(cells(range).map(|cell| self.cells[cell as usize]))
    }
}

/// A file at the sink under its temporary name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Partial {
    /// Cells in the page cache.
    pub(crate) cells: BTreeMap<u64, u64>,
    /// Cells on the device.
    pub(crate) device: BTreeMap<u64, u64>,
    /// Objects that the sink's own log records as durable for this version of the source.
    pub(crate) log: Runs,
    pub(crate) size: u64,
    pub(crate) mtime: i64,
}

/// Returns the file of an entry: the entry itself, or the first name of a hard link.
pub(crate) fn file_of(files: &[SourceFile], at: usize) -> &SourceFile {
    &files[files[at].first.unwrap_or(at)]
}

/// Creates the source's tree of one world.
pub(crate) fn grow(dice: &mut Dice, object: u64, ill: u64) -> Vec<SourceFile> {
    let mut files: Vec<SourceFile> = Vec::new();
    let count = dice.below(25);
    for number in 0..count {
        let size = match dice.below(5) {
            0 => 0,
            1 => dice.below(object),
            2 => object,
            _ => dice.below(9 * object),
        };
        let regular: Vec<usize> = (0..files.len()).filter(|at| files[*at].first.is_none()).collect();
        let regular: Vec<usize> =
            regular.into_iter().filter(|at| matches!(files[*at].kind, FileKind::File { .. })).collect();
        let mut first = None;
        let kind = match dice.below(10) {
            0 => FileKind::Directory,
            1 => FileKind::Symlink { target: Box::from(&b"../anywhere"[..]) },
            2 if !regular.is_empty() => {
                let at = dice.pick(&regular);
                first = Some(at);
                FileKind::HardLink { first: files[at].path.clone().into() }
            }
            _ => FileKind::File { size, holes: Runs::default() },
        };
        let is_ill = dice.once_in(ill) && matches!(kind, FileKind::File { .. });
        let ill = match dice.below(3) {
            _ if !is_ill => Ill::Well,
            0 => Ill::CannotOpen,
            1 => Ill::CannotRead(dice.below(4)),
            _ => Ill::Changes,
        };
        let path = format!("d{}/f{number}", number % 3).into_bytes();
        let mut file = SourceFile { path, kind, seed: dice.next(), mtime: dice.below(3) as i64, ill, first };
        if let Some(first) = first {
            // Both names belong to the same file.
            (file.seed, file.mtime, file.ill) = (files[first].seed, files[first].mtime, files[first].ill);
        }
        files.push(file);
    }
    files
}
