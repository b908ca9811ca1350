//! Claims of the study: they are computed, and hold for other seeds.

use super::{Settings, text};
use clap::Parser;
use serde_json::Value;

#[derive(Parser)]
struct Args {
    #[command(flatten)]
    settings: Settings,
}

fn told(words: &[&str]) -> String {
    text(&Args::try_parse_from(["", "--quick"].iter().chain(words)).expect("valid words").settings)
}

fn lines(words: &[&str]) -> Vec<Value> {
    let all: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    told(&all).lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn table_lists_missed_corruptions_by_algorithm() {
    let text = told(&["-a", "adler32,crc32c,md5,blake3"]);
    let row = |name: &str| text.lines().find(|line| line.starts_with(name)).expect(name).to_owned();
    assert_eq!(row("adler32").matches("MISSED").count(), 7);
    assert_eq!(row("crc32c").matches("MISSED").count(), 1);
    for sharp in ["md5", "blake3", "tree of sha256s"] {
        assert!(!row(sharp).contains("MISSED") && row(sharp).contains("seen"), "{sharp}");
    }
    assert!(row("xor of sha256s").contains("MISSED"));
    assert!(text.contains("Wang and Yu"), "what md5 is not good for is said: {text}");
}

#[test]
fn json_verdicts_are_equal_for_all_seeds_but_the_bytes_differ() {
    let mut changed = Vec::new();
    for seed in ["1", "4294967295"] {
        let found = lines(&["-a", "adler32,crc16,crc64nvme,sha256", "--seed", seed]);
        let made = || found.iter().filter(|line| line["kind"] == "made");
        let missed =
            |digest: &str| made().filter(|line| line["digest"] == digest && line["seen"] == false).count();
        assert_eq!([missed("adler32"), missed("crc16"), missed("crc64nvme"), missed("sha256")], [7, 2, 2, 0]);
        assert!(made().all(|line| line["changed_bytes"].as_u64() > Some(0)));
        let xor = found.iter().find(|line| line["kind"] == "drawn" && line["digest"] == "xor of sha256s");
        let xor = xor.expect("the XOR is judged");
        assert_eq!(xor["missed"], xor["trials"]);
        let birthdays: Vec<&Value> = found.iter().filter(|line| line["kind"] == "birthday").collect();
        assert!(birthdays.iter().all(|line| line["drawn_mean"].is_null()
            == (line["digest"] == "sha256" || line["digest"] == "crc64nvme")));
        changed.push(made().map(|line| line["changed_bytes"].as_u64()).collect::<Vec<_>>());
    }
    assert_ne!(changed[0], changed[1], "other seeds, other data");
}
