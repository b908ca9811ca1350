//! How often each way to verify reads a file: FIVER takes its digests from the one read that the transfer is, the rivals read again.

use super::{Bed, assert_alike, assert_ended};
use haul_lab::faults::{FaultFs, Op};
use haul_lab::needs::{Need, met_or_skip};
use std::fs;
use std::path::Path;

/// How often the beginning of `name` was read.
fn reads(storage: &FaultFs, name: &str) -> usize {
    let is_first = |path: &Path| path.to_str().is_some_and(|path| path.ends_with(name));
    let fired = storage.fired();
    fired.iter().filter(|fired| fired.op == Op::Read && fired.from == 0 && is_first(&fired.path)).count()
}

#[test]
fn a_stream_is_one_read_and_the_rivals_are_two() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    // At the source, and at the sink.
    for (options, expected) in [
        (&["--verify=none"][..], [1, 0]),
        (&["--verify=stream"], [1, 0]),
        (&["--verify=hybrid"], [1, 0]),
        (&["--verify=sequential"], [2, 1]),
        (&["--verify=file-pipeline"], [2, 1]),
        (&["--verify=block-pipeline"], [2, 1]),
        // Several digests of one read: the one that is compared by, that of the whole file, and the waybill's.
        (&["--verify=stream", "-a", "md5", "--granularity=file", "--waybill=bill"], [1, 0]),
        (&["--verify=stream", "-a", "crc64nvme", "--waybill=bill"], [1, 0]),
    ] {
        let bed = Bed::new();
        // Of many objects, and of one.
        bed.file("store/data/large", 700_000);
        bed.file("store/data/small", 5000);
        for name in ["view", "there/in", "there/in-store"] {
            fs::create_dir(bed.path(name)).unwrap();
        }
        // No delay at all: that each read is told is what it is for.
        let rules = || "* read .. delay 0\n".parse().unwrap();
        let source = FaultFs::mount(&bed.path("store"), &bed.path("view"), rules()).unwrap();
        let sink = FaultFs::mount(&bed.path("there/in-store"), &bed.path("there/in"), rules()).unwrap();
        let args = [options, &["--object-size=64K", "view/data", "localhost:in"]].concat();
        assert_ended(&bed.over_ssh("send", &args), 0);
        let at_source = ["large", "small"].map(|name| reads(&source, name));
        let fired = sink.fired();
        let at_sink = fired.iter().filter(|fired| fired.op == Op::Read && fired.from == 0).count();
        assert_eq!(at_source, [expected[0]; 2], "{options:?}: at the source");
        assert_eq!(at_sink, expected[1] * 2, "{options:?}: at the sink");
        assert_alike(&bed.path("store/data"), &bed.path("there/in-store/data"));
        source.close();
        sink.close();
    }
}
