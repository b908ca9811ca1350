//! Survey of a file: its damaged pieces, and the replicas that have them intact.

use super::places::Replica;
use super::repair_target::{Piece, RepairTarget};
use super::{LeftReason, RepairedRange};
use crate::pipeline::BLOCK_BYTES;
use crate::pipeline::{BlockFault, read_blocks};
use haul_digest::Algorithm;
use haul_model::ByteRange;
use haul_storage::{DropRetries, SourceFile};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Result of a survey: actions for a file.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Intact ranges that stay, in order, with adjacent ranges joined.
    pub(super) kept: Vec<ByteRange>,
    /// Pieces that replicas provide, each with the number of its replica.
    pub(super) mended: Vec<(Piece, usize)>,
    /// Ranges that no replica has.
    pub(super) lost: Vec<ByteRange>,
    /// Algorithm of a damaged piece whose digest does not prove the bytes of a replica.
    pub(super) unproven: Option<Algorithm>,
}

/// Files of the replicas at one path, each opened once.
pub(super) struct Sources {
    files: Vec<Option<Arc<dyn SourceFile>>>,
    /// First read error of each replica.
    unread: Vec<Option<io::Error>>,
    /// True for each available replica without such a file.
    lacks: Vec<bool>,
    /// Replica that provided the last piece; it is likely to have the next one.
    last: usize,
}

impl Sources {
    /// Opens the files of the available replicas; the others keep their numbers.
    pub(super) fn of(repair_target: &RepairTarget, replicas: &[Option<Replica>]) -> Sources {
        let (mut files, mut unread, mut lacks) = (Vec::new(), Vec::new(), Vec::new());
        for replica in replicas {
            let opened = replica.as_ref().map(|replica| replica.file(&repair_target.entry.path));
            lacks.push(matches!(opened, Some(Ok(None))));
            let (file, error) = match opened.transpose() {
                Ok(found) => (found.flatten(), None),
                Err(error) => (None, Some(error)),
            };
            files.push(file);
            unread.push(error);
        }
        Sources { files, unread, lacks, last: 0 }
    }

    /// Returns the numbers and errors of the unreadable replicas, each once.
    pub(super) fn take_unread(&mut self) -> impl Iterator<Item = (usize, io::Error)> + '_ {
        self.unread.iter_mut().enumerate().filter_map(|(number, error)| Some((number, error.take()?)))
    }

    /// Returns the numbers of the available replicas that have no file of this name.
    pub(super) fn absent(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.files.len()).filter(|&at| self.lacks[at])
    }

    /// Returns a replica whose bytes of this piece are verified. A replica that is unreadable there
    /// is skipped.
    /// Returns `None` as well once `stop` is true.
    fn find(&mut self, piece: Piece, buffer: &mut [u8], stop: &AtomicBool) -> Option<usize> {
        let order = std::iter::once(self.last).chain((0..self.files.len()).filter(|&at| at != self.last));
        for at in order {
            let Some(Some(file)) = self.files.get(at) else { continue };
            let size = file.opened().size;
            if size < piece.range.end.0 && file.device().capabilities.lengths.is_certain(size) {
                continue;
            }
            match holds(&**file, piece, buffer, stop, |_, _| Ok::<(), Infallible>(())) {
                _ if stop.load(Ordering::Relaxed) => return None,
                Ok(true) => {
                    self.last = at;
                    return Some(at);
                }
                Ok(false) => {}
                Err(fault) => {
                    self.unread[at].get_or_insert(read_error(fault));
                }
            }
        }
        None
    }

    /// Returns the file of one replica.
    pub(super) fn file(&self, replica: usize) -> Option<&dyn SourceFile> {
        self.files.get(replica)?.as_deref()
    }
}

/// Examines the pieces that intersect the `suspect` ranges; without such ranges, examines all
/// pieces.
///
/// # Errors
/// Returns [`LeftReason::Stopped`] if the repair was stopped.
pub(super) fn survey(
    repair_target: &RepairTarget,
    old: Option<&dyn SourceFile>,
    suspect: &[ByteRange],
    sources: &mut Sources,
    stop: &AtomicBool,
) -> Result<Survey, LeftReason> {
    let mut survey = Survey::default();
    let mut buffer = vec![0; BLOCK_BYTES];
    for object in repair_target.pieces() {
        let is_suspect = |range: &ByteRange| range.intersect(object.range).is_some();
        if old.is_some() && !suspect.is_empty() && !suspect.iter().any(is_suspect) {
            join(&mut survey.kept, object.range);
            continue;
        }
        for piece in repair_target.finer(object) {
            if stop.load(Ordering::Relaxed) {
                return Err(LeftReason::Stopped);
            }
            // Unreadable bytes count as lost; a replica may have them.
            let is_right = |file: &dyn SourceFile| {
                let reaches = file.opened().size >= piece.range.end.0;
                reaches && holds_on_device(file, piece, &mut buffer, stop).unwrap_or(false)
            };
            if old.is_some_and(is_right) {
                join(&mut survey.kept, piece.range);
                continue;
            }
            if !piece.proves_bytes() {
                survey.unproven = Some(piece.algorithm());
            }
            let found = sources.find(piece, &mut buffer, stop);
            // A piece is as long as an object, up to the whole file.
            if stop.load(Ordering::Relaxed) {
                return Err(LeftReason::Stopped);
            }
            if let Some(replica) = found {
                survey.mended.push((piece, replica));
            } else {
                join(&mut survey.lost, piece.range);
            }
        }
    }
    Ok(survey)
}

impl Survey {
    /// Returns the replaced ranges with their replicas; adjacent ranges from one replica are
    /// joined.
    pub(super) fn mended(&self) -> Vec<RepairedRange> {
        let mut joined: Vec<RepairedRange> = Vec::new();
        for (piece, replica) in self.mended.iter().filter(|(piece, _)| !piece.range.is_empty()) {
            match joined.last_mut() {
                Some(last) if last.range.end == piece.range.start && last.replica == *replica => {
                    last.range.end = piece.range.end;
                }
                _ => joined.push(RepairedRange { range: piece.range, replica: *replica }),
            }
        }
        joined
    }
}

/// Reads a piece and passes its blocks to `take`. Returns true if the bytes match the digest, and
/// false if the file ends before them.
///
/// # Errors
/// Returns the first [`BlockFault`], except [`BlockFault::Ended`].
pub(super) fn holds<E>(
    file: &dyn SourceFile,
    piece: Piece,
    buffer: &mut [u8],
    stop: &AtomicBool,
    mut take: impl FnMut(u64, &[u8]) -> Result<(), E>,
) -> Result<bool, BlockFault<E>> {
    let mut hasher = piece.hasher();
    let read = read_blocks(file, piece.range, buffer, stop, |at, bytes| {
        hasher.update(bytes);
        take(at, bytes)
    });
    match read {
        Ok(()) => Ok(piece.is_proven_by(hasher)),
        Err(BlockFault::Ended(..)) => Ok(false),
        Err(fault) => Err(fault),
    }
}

/// Same as [`holds`], but drops the bytes from the page cache first: the cache may still hold bytes
/// that the device lost.
fn holds_on_device(
    file: &dyn SourceFile,
    piece: Piece,
    buffer: &mut [u8],
    stop: &AtomicBool,
) -> io::Result<bool> {
    // An open file reports an earlier write error once, and keeps its pages then. If the cache
    // keeps the bytes in the end, check what every other reader sees.
    let evict = || file.evict(piece.range, DropRetries::None);
    let _ = evict().or_else(|_| evict());
    holds(file, piece, buffer, stop, |_, _| Ok::<(), Infallible>(())).map_err(read_error)
}

/// Returns the error of a read that only hashes.
fn read_error(fault: BlockFault<Infallible>) -> io::Error {
    match fault {
        BlockFault::Read(_, error) => error,
        BlockFault::Stopped => io::ErrorKind::Interrupted.into(),
        BlockFault::Ended(..) => io::ErrorKind::UnexpectedEof.into(),
        BlockFault::Receiver(never) => match never {},
    }
}

/// Appends a range after the previous ones; joins it with the last range if they are adjacent.
pub(super) fn join(ranges: &mut Vec<ByteRange>, range: ByteRange) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ if range.is_empty() => {}
        _ => ranges.push(range),
    }
}
