//! `--compress`: fewer bytes on the network, identical files.

use super::{Fixture, RunResult, assert_alike, assert_ended};
use serde_json::Value;
use std::fs;

/// Creates a directory with text of about `len` bytes and with random bytes.
fn texts(fixture: &Fixture, len: usize) {
    let lines =
        (0..len / 40).map(|line| format!("{line:07} the same words {:03} on each line\n", line % 331));
    fs::create_dir_all(fixture.path("data/sub")).unwrap();
    fs::write(fixture.path("data/text"), lines.collect::<String>()).unwrap();
    fs::write(fixture.path("data/sub/short"), "word ".repeat(1000)).unwrap();
    fixture.file("data/noise", 300_000);
}

fn summary(ended: &RunResult) -> Value {
    serde_json::from_str(ended.out.lines().last().unwrap()).unwrap()
}

fn number(summary: &Value, path: &str) -> u64 {
    summary.pointer(path).and_then(Value::as_u64).unwrap_or_else(|| panic!("{path} in {summary}"))
}

#[test]
fn compressed_text_arrives_unchanged() {
    let fixture = Fixture::new();
    texts(&fixture, 4 << 20);
    for (at, how) in ["--compress=zstd", "--compress=zstd:-5", "--compress=zstd:9"].into_iter().enumerate() {
        let target = format!("localhost:to{at}");
        let sent = fixture.over_ssh("send", &["--json", how, "data", &target]);
        assert_ended(&sent, 0);
        assert_alike(&fixture.path("data"), &fixture.path(&format!("there/to{at}/data")));
        let summary = summary(&sent);
        let (bytes, out) = (number(&summary, "/bytes"), number(&summary, "/wire/out"));
        assert!(out < bytes / 2, "{how}: {out} of {bytes}");
        let (from, to) = (number(&summary, "/wire/compressed/from"), number(&summary, "/wire/compressed/to"));
        assert!(from > 4 << 20 && to < out, "{how}: {from} to {to}");
        assert!(from <= bytes - 300_000, "noise goes as it is: {from} of {bytes}");
    }
    let plain = fixture.over_ssh("send", &["--json", "--compress=none", "data", "localhost:plain"]);
    let plain = summary(&plain);
    assert!(number(&plain, "/wire/out") > number(&plain, "/bytes"));
}

#[test]
fn fetched_data_is_compressed_by_the_server() {
    let fixture = Fixture::new();
    texts(&fixture, 2 << 20);
    fs::rename(fixture.path("data"), fixture.path("there/data")).unwrap();
    let there = fixture.path("there");
    let _server = fixture.serve(&["--root", there.to_str().unwrap()]);
    let fetched =
        fixture.run(&["fetch", "--json", "--compress=zstd:1", "--ticket-file", "ticket", ":data", "."]);
    assert_ended(&fetched, 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    let summary = summary(&fetched);
    assert!(number(&summary, "/wire/in") < number(&summary, "/bytes") / 2, "{summary}");
}

#[test]
fn auto_compresses_if_the_network_is_slower_than_zstd() {
    let fixture = Fixture::new();
    // The first seconds show which is slower.
    texts(&fixture, 12 << 20);
    let sent = fixture.over_ssh("send", &["--compress", "--rate=2M", "--streams=2", "data", "localhost:"]);
    assert_ended(&sent, 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    assert!(sent.err.contains("over the network (") && sent.err.contains(" compressed to "), "{sent:#?}");
    let again =
        fixture.over_ssh("send", &["--json", "--compress", "--rate=2M", "--streams=2", "data", "localhost:"]);
    let summary = summary(&again);
    assert!(number(&summary, "/wire/out") < number(&summary, "/bytes") * 2 / 3, "{summary}");
}
