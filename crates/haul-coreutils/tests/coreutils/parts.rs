//! Tests of copies of parts of files (`--offset`, `--length`, `--dst-offset`, ranges from a list)
//! against a model in memory.

use super::bed::{Place, onto, run};
use super::variants::{any_moving, expected, plain};
use haul_coreutils::cp::{Batch, BatchItem, CopyRules, CopySettings, Operands};
use haul_engine::copy::{Moving, Workers};
use haul_lab::random::noise;
use haul_model::{ByteLen, ByteOffset, ByteRange};
use proptest::option;
use proptest::prelude::*;
use std::fs;

/// A part to copy, and the existing contents of the sink.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) len: u64,
    pub(crate) offset: u64,
    pub(crate) length: Option<u64>,
    pub(crate) sink_offset: Option<u64>,
    pub(crate) standing: Option<u64>,
}

fn any_part() -> impl Strategy<Value = Part> {
    // Up to five objects of 64 KiB; boundaries of objects and pages are frequent.
    let place = || {
        prop_oneof![
            0_u64..350_000,
            (0_u64..6, 0_u64..3).prop_map(|(object, more)| (object * 65_536 + more).saturating_sub(1)),
            (0_u64..80).prop_map(|page| page * 4096),
        ]
    };
    (place(), place(), option::of(place()), option::of(place()), option::of(place())).prop_map(
        |(len, offset, length, sink_offset, standing)| Part { len, offset, length, sink_offset, standing },
    )
}

/// Returns the expected contents of the sink: one slice laid over another.
pub(crate) fn twin(source: &[u8], standing: Option<&[u8]>, part: &Part) -> Vec<u8> {
    let piece = piece(source, part);
    // A part is written into the existing file.
    let is_inside = part.offset > 0 || part.length.is_some() || part.sink_offset.is_some();
    let mut sink = standing.filter(|_| is_inside).unwrap_or_default().to_vec();
    let to = usize::try_from(part.sink_offset.unwrap_or(part.offset)).unwrap();
    if !piece.is_empty() {
        sink.resize(sink.len().max(to + piece.len()), 0);
        sink[to..to + piece.len()].copy_from_slice(piece);
    }
    sink
}

fn piece<'a>(source: &'a [u8], part: &Part) -> &'a [u8] {
    let start = source.len().min(usize::try_from(part.offset).unwrap());
    let most = part.length.map_or(usize::MAX, |length| usize::try_from(length).unwrap());
    &source[start..source.len().min(start.saturating_add(most))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 160, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn part_is_written_at_its_offset_and_nothing_else_changes(part in any_part(), moving in any_moving()) {
        let place = Place::new();
        let (source, sink) = (place.path("source"), place.path("sink"));
        let bytes = place.noise("source", part.len);
        let standing = part.standing.map(|len| noise(len, 77));
        if let Some(old) = &standing {
            fs::write(&sink, old).unwrap();
        }
        let moving = Moving {
            offset: ByteOffset(part.offset),
            length: part.length.map(ByteLen),
            sink_offset: part.sink_offset.map(ByteOffset),
            ..moving
        };
        let told = run(&onto(&source, &sink, CopyRules::default(), &moving));
        told.is_fine();
        let wanted = twin(&bytes, standing.as_deref(), &part);
        let got = fs::read(&sink).unwrap();
        prop_assert!(got == wanted, "{} bytes against {}", got.len(), wanted.len());
        if let Some((algorithm, form)) = moving.digest {
            let piece = piece(&bytes, &part);
            let is_part = part.offset > 0 || part.length.is_some();
            let range = ByteRange::from_len(ByteOffset(part.offset), ByteLen(piece.len() as u64));
            let (digests, tree) = expected(piece, algorithm, form);
            prop_assert_eq!(told.hashed.len(), 1);
            prop_assert_eq!((&told.hashed[0].digests, told.hashed[0].tree), (&digests, tree));
            prop_assert_eq!(told.hashed[0].part, is_part.then_some(range));
        }
    }

    #[test]
    fn listed_ranges_are_copied_to_their_offsets_in_any_order(
        len in 0_u64..400_000,
        cuts in prop::collection::vec(0_u64..400_000, 0..6),
        turn in any::<prop::sample::Index>(),
        workers in 1_usize..=5,
    ) {
        let place = Place::new();
        let (source, sink) = (place.path("source"), place.path("sink"));
        let bytes = place.noise("source", len);
        let mut borders: Vec<u64> = cuts.into_iter().chain([0, len]).filter(|&cut| cut <= len).collect();
        borders.sort_unstable();
        borders.dedup();
        let mut ranges: Vec<(u64, u64)> = borders.windows(2).map(|pair| (pair[0], pair[1])).collect();
        if !ranges.is_empty() {
            let by = turn.index(ranges.len());
            ranges.rotate_left(by);
        }
        let settings = CopySettings {
            operands: Operands::Batch(Batch::new(
                vec![BatchItem { source: source.into(), sink: sink.clone().into(), ranges, backup: None }].into_iter(),
            )),
            ..onto("".as_ref(), "".as_ref(), CopyRules::default(), &Moving { workers: Workers::exactly(workers), ..plain() })
        };
        run(&settings).is_fine();
        prop_assert!(fs::read(&sink).unwrap() == bytes);
    }
}

#[test]
fn part_near_the_maximum_offset_fails_and_names_the_sink() {
    let place = Place::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    place.noise("source", 100);
    for to in [i64::MAX.cast_unsigned(), u64::MAX - 5] {
        let moving = Moving { sink_offset: Some(ByteOffset(to)), ..plain() };
        let told = run(&onto(&source, &sink, CopyRules::default(), &moving));
        assert_eq!(told.outcome.failures, 1, "at {to}");
        assert!(told.failed[0].contains(sink.to_str().unwrap()), "{:?}", told.failed);
    }
}
