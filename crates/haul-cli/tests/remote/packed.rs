//! `--compress`: fewer bytes on the network, identical files.

use super::{Bed, Ended, assert_alike, assert_ended};
use serde_json::Value;
use std::fs;

/// Creates a directory with text of about `len` bytes and with random bytes.
fn texts(bed: &Bed, len: usize) {
    let lines =
        (0..len / 40).map(|line| format!("{line:07} the same words {:03} on each line\n", line % 331));
    fs::create_dir_all(bed.path("data/sub")).unwrap();
    fs::write(bed.path("data/text"), lines.collect::<String>()).unwrap();
    fs::write(bed.path("data/sub/short"), "word ".repeat(1000)).unwrap();
    bed.file("data/noise", 300_000);
}

fn summary(ended: &Ended) -> Value {
    serde_json::from_str(ended.out.lines().last().unwrap()).unwrap()
}

fn number(summary: &Value, path: &str) -> u64 {
    summary.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {summary}"))
}

#[test]
fn text_goes_compressed_and_arrives_as_it_was() {
    let bed = Bed::new();
    texts(&bed, 4 << 20);
    for (at, how) in ["--compress=zstd", "--compress=zstd:-5", "--compress=zstd:9"].into_iter().enumerate() {
        let target = format!("localhost:to{at}");
        let sent = bed.over_ssh("send", &["--json", how, "data", &target]);
        assert_ended(&sent, 0);
        assert_alike(&bed.path("data"), &bed.path(&format!("there/to{at}/data")));
        let summary = summary(&sent);
        let (bytes, out) = (number(&summary, "/bytes"), number(&summary, "/wire/out"));
        assert!(out < bytes / 2, "{how}: {out} of {bytes}");
        let (from, to) = (number(&summary, "/wire/compressed/from"), number(&summary, "/wire/compressed/to"));
        assert!(from > 4 << 20 && to < out, "{how}: {from} to {to}");
        assert!(from <= bytes - 300_000, "noise goes as it is: {from} of {bytes}");
    }
    let plain = bed.over_ssh("send", &["--json", "--compress=none", "data", "localhost:plain"]);
    let plain = summary(&plain);
    assert!(number(&plain, "/wire/out") > number(&plain, "/bytes"));
}

#[test]
fn what_is_fetched_is_compressed_at_the_other_side() {
    let bed = Bed::new();
    texts(&bed, 2 << 20);
    fs::rename(bed.path("data"), bed.path("there/data")).unwrap();
    let there = bed.path("there");
    let _server = bed.serve(&["--root", there.to_str().unwrap()]);
    let fetched = bed.run(&["fetch", "--json", "--compress=zstd:1", "--ticket-file", "ticket", ":data", "."]);
    assert_ended(&fetched, 0);
    assert_alike(&bed.path("data"), &bed.path("there/data"));
    let summary = summary(&fetched);
    assert!(number(&summary, "/wire/in") < number(&summary, "/bytes") / 2, "{summary}");
}

#[test]
fn auto_compresses_where_the_rate_is_far_below_what_zstd_does() {
    let bed = Bed::new();
    texts(&bed, 6 << 20);
    let sent = bed.over_ssh("send", &["--compress", "--rate=2M", "--streams=2", "data", "localhost:"]);
    assert_ended(&sent, 0);
    assert_alike(&bed.path("data"), &bed.path("there/data"));
    assert!(sent.err.contains("over the network (") && sent.err.contains(" compressed to "), "{sent:#?}");
    let again =
        bed.over_ssh("send", &["--json", "--compress", "--rate=2M", "--streams=2", "data", "localhost:"]);
    let summary = summary(&again);
    assert!(number(&summary, "/wire/out") < number(&summary, "/bytes") * 2 / 3, "{summary}");
}
