//! Tests of holes: kept, created and filled as requested, at any file length.

use super::bed::{Place, copy_file, onto, run};
use super::variants::{K, each, plain};
use haul_coreutils::cp::CopyRules;
use haul_digest::Algorithm;
use haul_engine::copy::{HashForm, Moving, SparseRule, Verify, Workers};
use haul_lab::mounts::FsKind;
use haul_lab::needs::shown_or_skip;
use haul_lab::random::Random;
use haul_model::ObjectSize;
use rustix::fs::{SeekFrom, seek};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

/// Creates a file of `len` bytes with a block of random bytes at each of `places` and holes
/// elsewhere.
fn sparse_file(path: &Path, len: u64, places: &[u64]) {
    let file = File::create(path).unwrap();
    let mut block = vec![0; 4096];
    for &at in places {
        Random::from_seed(at).fill(&mut block);
        file.write_all_at(&block, at).unwrap();
    }
    file.set_len(len).unwrap();
}

/// Checks that the sink has the source's length, its blocks at `places`, and holes elsewhere.
#[track_caller]
fn check_places(path: &Path, len: u64, places: &[u64]) {
    let file = File::open(path).unwrap();
    assert_eq!(file.metadata().unwrap().len(), len);
    let (mut block, mut wanted) = (vec![0; 4096], vec![0; 4096]);
    for &at in places {
        Random::from_seed(at).fill(&mut wanted);
        file.read_exact_at(&mut block, at).unwrap();
        assert!(block == wanted, "the block at {at}");
    }
    // There is no data elsewhere.
    let mut at = 0;
    while let Ok(from) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(from)).unwrap();
        let known = places.iter().filter(|&&place| from < place + 4096 && place < at).count() as u64;
        assert!(at - from <= known * 64 * K, "{from}..{at} should be a hole");
    }
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).unwrap().blocks() * 512
}

/// Returns true if this file system supports sparse files of length `len`.
fn makes(place: &Place, len: u64) -> bool {
    let path = place.path("probe");
    let made = File::create(&path).unwrap().set_len(len);
    let fits = made.is_ok() && allocated(&path) < MIB;
    fs::remove_file(&path).unwrap();
    shown_or_skip(fits, "sparse files where temporary files are")
}

#[test]
fn sparse_tebibyte_is_copied_without_writing_its_holes() {
    let place = Place::new();
    if !makes(&place, TIB) {
        return;
    }
    let (source, sink) = (place.path("source"), place.path("sink"));
    let places = [0, 4 * MIB - 4096, 4 * MIB, TIB / 2 + 8192, TIB - 4096];
    sparse_file(&source, TIB, &places);
    for workers in [1, 2] {
        let moving = Moving::with(Workers::exactly(workers));
        copy_file(&source, &sink, &moving);
        check_places(&sink, TIB, &places);
        assert!(allocated(&sink) < 4 * MIB, "{} bytes on disk", allocated(&sink));
    }
    // A hole is not read back either: that would take an hour.
    fs::remove_file(&sink).unwrap();
    copy_file(&source, &sink, &Moving { verify: Verify::ReadBack, ..Moving::with(Workers::exactly(2)) });
    check_places(&sink, TIB, &places);
    assert!(allocated(&sink) < 4 * MIB, "{} bytes on disk", allocated(&sink));
}

#[test]
fn tebibyte_hole_is_copied() {
    let place = Place::new();
    if !makes(&place, TIB + 1) {
        return;
    }
    let (source, sink) = (place.path("source"), place.path("sink"));
    sparse_file(&source, TIB + 1, &[]);
    copy_file(&source, &sink, &Moving { object: ObjectSize::round_up(1 << 30), ..plain() });
    check_places(&sink, TIB + 1, &[]);
    assert!(allocated(&sink) < MIB);
}

/// A trillion objects: only work that does not depend on the length of a hole ends.
#[test]
fn exabytes_of_holes_are_copied_at_once() {
    const EIB: u64 = 1 << 60;
    let Some(place) = Place::on(FsKind::Tmpfs) else { return };
    let (source, sink) = (place.path("source"), place.path("sink"));
    let places = [4 * MIB, 3 * EIB + 4096, 7 * EIB - 4096];
    sparse_file(&source, 7 * EIB, &places);
    for workers in [1, 2] {
        for verify in [Verify::No, Verify::ReadBack] {
            copy_file(&source, &sink, &Moving { verify, ..Moving::with(Workers::exactly(workers)) });
            check_places(&sink, 7 * EIB, &places);
            fs::remove_file(&sink).unwrap();
        }
    }
}

#[test]
fn holes_are_kept_with_digests_and_verification() {
    let place = Place::new();
    if !makes(&place, 16 * MIB) {
        return;
    }
    let (source, sink) = (place.path("source"), place.path("sink"));
    let places = [4096, 5 * MIB, 16 * MIB - 4096];
    sparse_file(&source, 16 * MIB, &places);
    for digest in [None, Some((Algorithm::Crc32, HashForm::Plain)), Some((Algorithm::Md5, HashForm::Plain))] {
        for verify in [Verify::No, Verify::ReadBack] {
            for direct_write in [false, true] {
                let moving = Moving { digest, verify, direct_write, ..plain() };
                copy_file(&source, &sink, &moving);
                check_places(&sink, 16 * MIB, &places);
                fs::remove_file(&sink).unwrap();
            }
        }
    }
}

#[test]
fn sparse_always_creates_holes_and_sparse_never_fills_them() {
    let place = Place::new();
    if !makes(&place, 8 * MIB) {
        return;
    }
    let [holes, zeros, sink] = ["holes", "zeros", "sink"].map(|name| place.path(name));
    let places = [3 * MIB];
    sparse_file(&holes, 8 * MIB, &places);
    fs::write(&zeros, fs::read(&holes).unwrap()).unwrap();
    for (name, moving) in each() {
        let copy = |source: &Path, sparse| {
            let _ = fs::remove_file(&sink);
            let moving = Moving { sparse, ..moving.clone() };
            run(&onto(source, &sink, CopyRules::default(), &moving)).is_fine();
            check_bytes(&sink, &holes, &name);
            allocated(&sink)
        };
        assert!(copy(&zeros, SparseRule::Always) < MIB, "{name}");
        assert!(copy(&holes, SparseRule::Auto) < MIB, "{name}");
        assert!(copy(&holes, SparseRule::Never) >= 8 * MIB, "{name}");
    }
}

fn check_bytes(sink: &Path, source: &Path, name: &str) {
    assert!(fs::read(sink).unwrap() == fs::read(source).unwrap(), "{name}");
}

#[test]
fn trailing_hole_keeps_the_file_length() {
    let place = Place::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    for len in [1, 64 * K, 3 * 64 * K + 7] {
        sparse_file(&source, len, &[]);
        for (name, moving) in each() {
            for sparse in [SparseRule::Auto, SparseRule::Always] {
                let _ = fs::remove_file(&sink);
                let moving = Moving { sparse, ..moving.clone() };
                run(&onto(&source, &sink, CopyRules::default(), &moving)).is_fine();
                assert_eq!(fs::metadata(&sink).unwrap().len(), len, "{sparse:?}, {name}");
            }
        }
    }
}
