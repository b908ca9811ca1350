//! Tests of shared extents: whole files, and parts that are written into an existing sink.

use super::bed::{Place, onto, run};
use super::parts::{Part, twin};
use super::variants::plain;
use haul_coreutils::cp::CopyRules;
use haul_engine::copy::{Moving, Reflink, Verify};
use haul_lab::mounts::FsKind;
use haul_lab::random::noise;
use haul_model::{ByteLen, ByteOffset, Level};
use std::fs;

/// File systems with shared extents; their blocks are 4 KiB.
const SHARING: [FsKind; 3] = [FsKind::Xfs, FsKind::Btrfs, FsKind::BtrfsZstd];

const BLOCK: u64 = 4096;

/// Returns parts that begin and end at block boundaries or beside them. Sources have whole blocks
/// or some bytes more. Sinks are new, shorter, of the same length or longer.
fn parts() -> Vec<Part> {
    let mut parts = Vec::new();
    for len in [20 * BLOCK, 20 * BLOCK + 7] {
        for (offset, length) in [
            (0, None),
            (0, Some(len)),
            (0, Some(4 * BLOCK)),
            (4 * BLOCK, None),
            (4 * BLOCK, Some(8 * BLOCK)),
            (4 * BLOCK, Some(8 * BLOCK + 1)),
            (BLOCK + 1, Some(BLOCK)),
        ] {
            for sink_offset in [None, Some(0), Some(BLOCK), Some(40 * BLOCK), Some(3)] {
                for standing in [None, Some(0), Some(10 * BLOCK + 5), Some(len), Some(100 * BLOCK)] {
                    parts.push(Part { len, offset, length, sink_offset, standing });
                }
            }
        }
    }
    parts
}

/// Returns true if the kernel can share this part: it begins at block boundaries on both sides, and
/// it ends at a block boundary or at the source's end, if the sink ends there too.
fn can_be_shared(part: &Part) -> bool {
    let len = part.length.unwrap_or(u64::MAX).min(part.len - part.offset);
    let to = part.sink_offset.unwrap_or(part.offset);
    let begins = part.offset.is_multiple_of(BLOCK) && to.is_multiple_of(BLOCK);
    let ends_well = part.offset + len == part.len && to + len >= part.standing.unwrap_or(0);
    let is_whole_new =
        part.offset == 0 && to == 0 && len == part.len && part.sink_offset.is_none() && part.length.is_none();
    is_whole_new || (begins && (len.is_multiple_of(BLOCK) || ends_well))
}

/// A shared part has exactly the requested bytes, and the rest of the sink stays. A clone of the
/// whole file instead of the part would give other bytes, another offset or another length.
#[test]
fn shared_part_has_its_bytes_and_keeps_the_rest_of_the_sink() {
    for kind in SHARING {
        let Some(place) = Place::on(kind) else { continue };
        let (source, sink) = (place.path("source"), place.path("sink"));
        for part in parts() {
            let bytes = place.noise("source", part.len);
            let standing = part.standing.map(|len| noise(len, 78));
            let wanted = twin(&bytes, standing.as_deref(), &part);
            for (reflink, verify) in [
                (Reflink::Auto, Verify::No),
                (Reflink::Always, Verify::No),
                (Reflink::Always, Verify::ReadBack),
            ] {
                let _ = fs::remove_file(&sink);
                if let Some(old) = &standing {
                    fs::write(&sink, old).unwrap();
                }
                let moving = Moving {
                    offset: ByteOffset(part.offset),
                    length: part.length.map(ByteLen),
                    sink_offset: part.sink_offset.map(ByteOffset),
                    verify,
                    reflink,
                    ..plain()
                };
                let told = run(&onto(&source, &sink, CopyRules::default(), &moving));
                let name = format!("{kind:?} {reflink:?} {verify:?} {part:?}");
                if reflink == Reflink::Always && !can_be_shared(&part) {
                    assert_eq!(told.outcome.failures, 1, "{name}");
                    assert!(told.failed[0].contains("failed to clone"), "{name}: {:?}", told.failed);
                    let left = fs::read(&sink).unwrap_or_default();
                    assert!(left == standing.clone().unwrap_or_default(), "{name}: the sink was touched");
                } else {
                    told.is_fine();
                    assert!(fs::read(&sink).unwrap() == wanted, "{name}");
                }
            }
        }
    }
}

/// A clone proves nothing about new media. If proof of the bytes is requested, the bytes are
/// copied. Only if a clone is required is it made, and it is then reported as not read back.
#[test]
fn verified_copy_is_written_and_required_clone_is_reported() {
    for kind in SHARING {
        let Some(place) = Place::on(kind) else { continue };
        let (source, sink) = (place.path("source"), place.path("sink"));
        let bytes = place.noise("source", 300 * BLOCK + 9);
        for (reflink, verify, level, warnings) in [
            (Reflink::Auto, Verify::No, Level::Received, 0),
            (Reflink::Auto, Verify::Stream, Level::Received, 0),
            (Reflink::Auto, Verify::Reread, Level::Reread, 0),
            (Reflink::Auto, Verify::Hybrid, Level::Received, 0),
            (Reflink::Always, Verify::Reread, Level::Received, 1),
            (Reflink::Never, Verify::Reread, Level::Reread, 0),
        ] {
            let _ = fs::remove_file(&sink);
            let moving = Moving { verify, reflink, ..plain() };
            let told = run(&onto(&source, &sink, CopyRules::default(), &moving));
            let name = format!("{kind:?} {reflink:?} {verify:?}");
            assert_eq!((told.failed.len(), told.warned.len()), (0, warnings), "{name}: {:?}", told.warned);
            assert!(told.warned.iter().all(|line| line.contains("shares its blocks")), "{:?}", told.warned);
            assert_eq!(told.levels, [level], "{name}");
            assert!(fs::read(&sink).unwrap() == bytes, "{name}");
        }
    }
}

#[test]
fn listed_parts_are_shared_at_their_offsets() {
    use haul_coreutils::cp::{Batch, BatchItem, CopySettings, Operands};
    for kind in SHARING {
        let Some(place) = Place::on(kind) else { continue };
        let (source, sink) = (place.path("source"), place.path("sink"));
        let bytes = place.noise("source", 30 * BLOCK + 9);
        let ranges = vec![(8 * BLOCK, 16 * BLOCK), (0, 8 * BLOCK), (16 * BLOCK, 30 * BLOCK + 9)];
        let moving = Moving { reflink: Reflink::Always, ..plain() };
        let item = BatchItem { source: source.into(), sink: sink.clone().into(), ranges, backup: None };
        let settings = CopySettings {
            operands: Operands::Batch(Batch::new(vec![item].into_iter())),
            ..onto("".as_ref(), "".as_ref(), CopyRules::default(), &moving)
        };
        run(&settings).is_fine();
        assert!(fs::read(&sink).unwrap() == bytes, "{kind:?}");
    }
}
