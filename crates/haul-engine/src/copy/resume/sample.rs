//! Sample of an earlier run's objects: a piece of one object in sixteen. It is compared with the
//! source if that run did not end cleanly.
//!
//! Such an end may lose data of a sink although it was reported as durable. The loss affects a
//! group or the device's own writes, and therefore many objects or all of one. Many small pieces
//! detect that sooner than few complete objects, and reading them costs almost nothing. Single
//! corrupt bytes are the task of `haul verify`, which reads everything.

use crate::log::SAMPLE_ONE_IN;
use haul_model::{ByteRange, Geometry, ObjectIndex};
use haul_storage::{SourceFile, Stat};
use std::io;

/// Number of bytes compared per object.
const PIECE_BYTES: u64 = 64 << 10;

/// Approximate maximum number of pieces per finished file in the sample. More pieces would only
/// find losses of less than a thousandth of the file.
const PIECES_MAX: u64 = 1024;

/// Returns true if this number is in the sample. The choice is pseudorandom and reproducible.
pub(super) fn is_sampled(number: u64) -> bool {
    spread(number).is_multiple_of(SAMPLE_ONE_IN)
}

/// Returns the number that decides about an object of a file.
pub(super) fn number_of(source: &Stat, object: u64) -> u64 {
    object ^ source.ino.rotate_left(20)
}

/// Returns the piece of a range to compare, reproducibly; a short range is compared completely.
pub(super) fn piece_of(range: ByteRange, number: u64) -> ByteRange {
    let pieces = range.len().div_ceil(PIECE_BYTES).max(1);
    let start = range.start.0 + spread(!number) % pieces * PIECE_BYTES;
    ByteRange::between(start, range.end.0.min(start.saturating_add(PIECE_BYTES)))
}

/// Fibonacci hashing: adjacent numbers get distant values.
fn spread(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40
}

/// Returns the pieces of a finished file that are in the sample; most small files have none.
pub(super) fn pieces(source: &Stat, cut: Geometry) -> impl Iterator<Item = ByteRange> + '_ {
    let step = cut.count().div_ceil(PIECES_MAX * SAMPLE_ONE_IN).max(1);
    let looked_at = (0..cut.count().div_ceil(step)).filter_map(move |at| cut.object(ObjectIndex(at * step)));
    looked_at.filter_map(|object| {
        let number = number_of(source, object.index.0);
        is_sampled(number).then(|| piece_of(object.range, number))
    })
}

/// Returns true if both open files have the same bytes in these pieces.
///
/// # Errors
/// Returns an error if one of the files cannot be read.
pub(super) fn have_same(
    source: &dyn SourceFile,
    sink: &dyn SourceFile,
    pieces: impl IntoIterator<Item = ByteRange>,
) -> io::Result<bool> {
    let [mut here, mut there] = [(); 2].map(|()| vec![0; usize::try_from(PIECE_BYTES).unwrap_or(0)]);
    for piece in pieces {
        let len = usize::try_from(piece.len()).unwrap_or(usize::MAX).min(here.len());
        let got = source.read_at(piece.start.0, &mut here[..len])?;
        if got < len || sink.read_at(piece.start.0, &mut there[..len])? < len || here[..len] != there[..len] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Like [`have_same`], for all of the first `len` bytes.
///
/// # Errors
/// Returns an error if one of the files cannot be read.
pub(super) fn have_all(source: &dyn SourceFile, sink: &dyn SourceFile, len: u64) -> io::Result<bool> {
    let step = usize::try_from(PIECE_BYTES).unwrap_or(1);
    have_same(
        source,
        sink,
        (0..len).step_by(step).map(|at| ByteRange::between(at, len.min(at + PIECE_BYTES))),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_model::{ByteLen, ObjectSize};
    use haul_storage::memory::MemoryStorage;
    use haul_storage::{Create, Follow, Name};

    #[test]
    fn sample_selects_about_one_in_sixteen() {
        for step in [1, 2, 16, 4096, 1 << 20, 1 << 32] {
            let taken = (0..16_000_u64).filter(|number| is_sampled(number * step)).count();
            assert!((800..1200).contains(&taken), "{taken} of steps of {step}");
        }
    }

    #[test]
    fn sample_pieces_are_spread_within_their_objects() {
        let root = MemoryStorage::new(1).root();
        let stat = |ino| Stat { ino, ..root.stat().unwrap() };
        for (len, object, least, most) in [
            (0, 4 << 20, 0, 0),
            (1 << 30, 4 << 20, 4, 40),
            (1 << 50, 4 << 20, 700, 1400),
            ((1 << 62) + 1, 1 << 20, 700, 1400),
        ] {
            let cut = Geometry::new(ByteLen(len), ObjectSize::new(object).unwrap());
            let all: Vec<ByteRange> = pieces(&stat(77), cut).collect();
            assert!((least..=most).contains(&all.len()), "{} of {len}", all.len());
            for piece in &all {
                let object = cut.object_at(piece.start).unwrap();
                assert_eq!(object.range.intersect(*piece), Some(*piece));
                assert!(piece.len() == PIECE_BYTES || piece.end == object.range.end);
            }
            let inside = all.iter().filter(|piece| !piece.start.0.is_multiple_of(object)).count();
            assert!(inside * 4 >= all.len() * 3, "{inside} of {}", all.len());
        }
        // Among files of one object, one in sixteen has a piece.
        let one = Geometry::new(ByteLen(9), ObjectSize::new(4 << 20).unwrap());
        let some = (0..1600).filter(|ino| pieces(&stat(*ino), one).next().is_some()).count();
        assert!((60..140).contains(&some), "{some}");
    }

    #[test]
    fn files_match_if_every_piece_matches() {
        let root = MemoryStorage::new(1).root();
        let [one, other] = ["one", "other"].map(|name| Name::new(name).unwrap());
        let bytes: Vec<u8> = (0..300_000_u32).map(|at| (at % 251) as u8).collect();
        let file = |name| root.sink(name, Create::New { mode: 0o600 }).unwrap();
        file(&one).write_at(0, &bytes).unwrap();
        let sink = file(&other);
        sink.write_at(0, &bytes).unwrap();
        let piece = |start, end| ByteRange::between(start, end);
        let same = |pieces: &[ByteRange]| {
            let [one, other] = [&one, &other].map(|name| root.source(name, Follow::No).unwrap());
            have_same(&*one, &*other, pieces.iter().copied()).unwrap()
        };
        assert!(same(&[piece(0, 65_536), piece(196_608, 262_144), piece(262_144, 300_000)]));
        sink.write_at(299_999, &[9]).unwrap();
        assert!(same(&[piece(0, 65_536)]) && !same(&[piece(0, 65_536), piece(262_144, 300_000)]));
        sink.set_len(299_999).unwrap();
        sink.write_at(0, &bytes[..299_999]).unwrap();
        assert!(!same(&[piece(262_144, 300_000)]), "it is too short");
    }
}
