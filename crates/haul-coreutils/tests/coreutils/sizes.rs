//! Tests of lengths around object boundaries, with every method of moving bytes.

use super::bed::{Place, archive, copy_file, onto, run};
use super::variants::{K, each, expected, plain};
use haul_coreutils::cp::CopyRules;
use haul_engine::copy::{SparseRule, Workers};
use haul_lab::random::noise;
use haul_lab::snapshot::{Facets, Snapshot};
use std::fs;

const OBJECT: u64 = 64 * K;

const SIZES: [u64; 7] = [0, 1, OBJECT - 1, OBJECT, OBJECT + 1, 2 * OBJECT, 3 * OBJECT + 7];

#[test]
fn every_length_is_copied_completely_by_every_variant() {
    let place = Place::new();
    let source = place.path("source");
    fs::create_dir(&source).unwrap();
    for size in SIZES {
        place.noise(&format!("source/{size}"), size);
    }
    let before = Snapshot::take(&source).unwrap();
    for (name, moving) in each() {
        let sink = place.path("sink");
        let told = run(&onto(&source, &sink, archive(), &moving));
        assert_eq!((&*told.failed, &*told.warned), (&[][..], &[][..]), "{name}");
        let after = Snapshot::take(&sink).unwrap();
        assert_eq!(before.diff(&after, Facets::ARCHIVE, 9), [], "{name}");
        assert_eq!(told.bytes_done, SIZES.iter().sum::<u64>(), "{name}");
        let wanted = if moving.digest.is_some() { SIZES.len() } else { 0 };
        assert_eq!(told.hashed.len(), wanted, "{name}");
        for line in told.hashed {
            let (algorithm, form) = moving.digest.unwrap();
            let digests = expected(&fs::read(&line.name).unwrap(), algorithm, form);
            assert_eq!((line.digests, line.tree), digests, "{name}: {:?}", line.name);
        }
        fs::remove_dir_all(&sink).unwrap();
    }
}

#[test]
fn longer_sink_keeps_no_old_bytes() {
    let place = Place::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    for size in SIZES {
        let bytes = place.noise("source", size);
        for (name, moving) in each() {
            fs::write(&sink, noise(3 * OBJECT + 100, 1)).unwrap();
            copy_file(&source, &sink, &moving);
            assert!(fs::read(&sink).unwrap() == bytes, "{size} bytes, {name}");
        }
    }
}

#[test]
fn skipped_zeros_do_not_expose_old_sink_bytes() {
    let place = Place::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    let mut bytes = vec![0; usize::try_from(3 * OBJECT + 7).unwrap()];
    bytes[70_000] = 1;
    fs::write(&source, &bytes).unwrap();
    for sparse in [SparseRule::Auto, SparseRule::Always, SparseRule::Never] {
        for (name, moving) in each() {
            fs::write(&sink, noise(4 * OBJECT, 2)).unwrap();
            let moving = haul_engine::copy::Moving { sparse, ..moving };
            run(&onto(&source, &sink, CopyRules::default(), &moving)).is_fine();
            assert!(fs::read(&sink).unwrap() == bytes, "{sparse:?}, {name}");
        }
    }
}

#[test]
fn lengths_around_the_default_object_size_are_copied_completely() {
    let place = Place::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    let usual = haul_engine::copy::Moving::with(Workers::exactly(2));
    for size in [usual.object.bytes() - 1, usual.object.bytes(), usual.object.bytes() + 1] {
        let bytes = place.noise("source", size);
        copy_file(&source, &sink, &usual);
        assert!(fs::read(&sink).unwrap() == bytes, "{size}");
    }
    // Copies other bytes of the same length, so that the existing sink hides nothing.
    let bytes = place.noise("source", plain().object.bytes() * 5);
    copy_file(&source, &sink, &usual);
    assert!(fs::read(&sink).unwrap() == bytes);
}
