//! Test of the example in the format's description: it is recreated from its facts, byte for byte,
//! and read again.

use crate::facts::{file, pattern};
use crate::{read, write};
use haul_digest::Algorithm;
use haul_log::waybill::{Content, Entry, Job, Kind, Moment, Objects, Proven, Record, RelPath, Tail};
use haul_model::{ByteRange, Level, ObjectSize};
use std::path::Path;

const EXAMPLE: &str = include_str!("example.waybill");

fn entry(path: &str, kind: Kind, mode: u32) -> Record {
    let (path, mtime) = (RelPath::new(path.as_bytes()).unwrap(), Moment { sec: 1_795_000_000, nsec: 0 });
    Record::Entry(Entry { path, kind, mode, mtime })
}

fn example() -> Vec<(Job, Vec<Record>)> {
    let objects = Objects { size: ObjectSize::round_up(0), algorithms: vec![Algorithm::Blake3], leaf: None };
    let job = |run: &str, at| Job {
        run: run.into(),
        program: "haul 0.1.0".to_owned(),
        at,
        root: b"/archive".to_vec(),
    };
    let algorithms = [Algorithm::Blake3, Algorithm::Adler32];
    let mut first = file("run42/big data.nc", &pattern(150_000, 0), &algorithms, Some(objects));
    first.push(Record::Proven(Proven { range: ByteRange::between(0, 65_536), level: Level::Verified }));
    first.extend(file("run42/empty", b"", &algorithms, None));
    first.push(entry("run42/again", Kind::Same { first: RelPath::new(b"run42/empty").unwrap() }, 0o644));
    first.push(entry("run42/latest", Kind::Link { target: b"../run41/\x1b[2J".to_vec() }, 0o777));
    first.push(entry("run42", Kind::Directory, 0o755));
    let mut second = file("notes.txt", b"all is well\n", &[Algorithm::Blake3, Algorithm::Sha256], None);
    if let Record::Entry(Entry { kind: Kind::File(Content { way, level, .. }), .. }) = &mut second[0] {
        (*way, *level) = (None, None);
    }
    vec![
        (job("haul cp -a --split-size 64K /data/run42 /archive --waybill w", 1_795_000_010), first),
        (job("haul sum -a sha256 --waybill w notes.txt", 1_795_000_100), second),
    ]
}

#[test]
fn example_waybill_is_written_and_read_unchanged() {
    let (bytes, expected) = write(&example());
    let text = String::from_utf8(bytes).unwrap();
    for (ours, theirs) in text.lines().zip(EXAMPLE.lines()) {
        assert_eq!(ours, theirs);
    }
    assert_eq!(text, EXAMPLE, "as long as the example");
    assert_eq!(read(EXAMPLE.as_bytes()), expected);
}

#[test]
fn documentation_contains_the_example() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/waybill.md");
    let description = std::fs::read_to_string(path).unwrap();
    assert!(
        description.contains(&format!("```\n{EXAMPLE}```\n")),
        "docs/formats/waybill.md shows another example"
    );
}

#[test]
fn appending_needs_a_closed_waybill() {
    let good = Tail::of(EXAMPLE.as_bytes()).unwrap();
    assert_eq!(good.section, 2);
    assert!(EXAMPLE.trim_end().lines().last().unwrap().contains(&good.digest.to_string()));
    assert!(Tail::of(&EXAMPLE.as_bytes()[..EXAMPLE.len() - 1]).is_err());
    assert!(Tail::of(b"").is_err() && Tail::of(b"\n\n").is_err() && Tail::of(b"some\ntext\n").is_err());
    let hurt = EXAMPLE.replace("entries=1", "entries=3");
    assert_ne!(hurt, EXAMPLE);
    assert_eq!(Tail::of(hurt.as_bytes()).unwrap_err().to_string(), "the closing line is damaged");
}
