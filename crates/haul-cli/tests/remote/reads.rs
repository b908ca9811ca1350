//! Number of reads of a file on both sides, for each verification mode. FIVER states these numbers
//! for itself and for its alternatives (papers/fiver.txt, section III). File systems that observe
//! each read count them.
//!
//! `faults/limited` tests `hybrid` with files larger than the available memory.

use super::ends::{DIRECTIONS, transfer};
use super::{Fixture, assert_alike, assert_ended};
use haul_lab::faults::{FaultFs, Rules};
use haul_lab::needs::{Need, met_or_skip};
use std::fs;

/// Sizes in bytes: less than one object, one object, several objects.
const SIZES: [usize; 3] = [5000, 64 << 10, 300_000];

/// Options, and the number of reads of the source and of the sink. haul requests read-ahead
/// (fadvise) for data that it reads back from the device. A file system without a cache may observe
/// that as another read.
const MODES: [(&[&str], u64, &[u64]); 10] = [
    (&["--verify=none"], 1, &[0]),
    (&["--verify=stream"], 1, &[0]),
    (&["--verify=stream", "-a", "md5"], 1, &[0]),
    (&["--verify=stream", "-a", "md5", "--granularity=file"], 1, &[0]),
    (&["--verify=hybrid"], 1, &[0]),
    (&["--verify=reread"], 1, &[1, 2]),
    (&["--verify=reread", "-a", "sha256"], 1, &[1, 2]),
    (&["--verify=sequential"], 2, &[1]),
    (&["--verify=file-pipeline", "-a", "md5"], 2, &[1]),
    (&["--verify=block-pipeline"], 2, &[1]),
];

#[test]
fn each_verify_method_reads_both_sides_as_often_as_documented() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let size: u64 = SIZES.iter().map(|size| *size as u64).sum();
    for direction in DIRECTIONS {
        let fixture = Fixture::new();
        for size in SIZES {
            fixture.file(&format!("data/{size}"), size);
        }
        for name in ["source", "store", "view"] {
            fs::create_dir(fixture.path(name)).unwrap();
        }
        let source =
            FaultFs::mount(&fixture.path("data"), &fixture.path("source"), Rules::default()).unwrap();
        let sink = FaultFs::mount(&fixture.path("store"), &fixture.path("view"), Rules::default()).unwrap();
        for (at, (options, at_source, at_sink)) in MODES.into_iter().enumerate() {
            let before = [&source, &sink].map(FaultFs::bytes_read);
            let options = [&["--object-size=64K"], options].concat();
            let into = fixture.path(&format!("view/{at}"));
            assert_ended(&transfer(&fixture, direction, &options, &fixture.path("source"), &into), 0);
            let after = [&source, &sink].map(FaultFs::bytes_read);
            assert_eq!(after[0] - before[0], at_source * size, "the source, {direction:?} {options:?}");
            let read = after[1] - before[1];
            assert!(
                at_sink.iter().any(|times| times * size == read),
                "{read} bytes of the sink, {direction:?} {options:?}"
            );
            assert_alike(&fixture.path("data"), &fixture.path(&format!("store/{at}/source")));
        }
        source.close();
        sink.close();
    }
}
