//! Tests of the worked examples of docs/formats/log.md, byte by byte.

use super::medium::Medium;
use super::{OBJECT, job, mark, read};
use haul_log::objects::{Encoding, Identity, Job, Log, Mechanism, Order, SourceVersion, Style, Subject};
use haul_model::{Moment, ObjectSize, RelPath};
use std::fmt::Write;

/// Returns the example: `a` of 20 objects of 64 KiB, with 0 and 17 logged in one commit and 9 in
/// the next.
fn example(style: Style) -> (Medium, Vec<Order>) {
    let id = Identity(*b"the id of a job.");
    let job = Job { id, object: ObjectSize::new(OBJECT).unwrap() };
    let source = SourceVersion {
        size: 20 * OBJECT,
        mtime: Moment { sec: 1_700_000_000, nsec: 5 },
        identity: Identity(*b"device and inode"),
    };
    let path = RelPath::new(b"a").unwrap();
    let subject = Subject { path, source, sink: Identity(*b"the sink's inode") };
    let (mut medium, mut log) = (Medium::default(), Log::new(job, style, 6));
    let key = log.open(&subject).unwrap();
    mark(&mut log, key, [17, 0]);
    medium.perform(&log.commit());
    mark(&mut log, key, [9]);
    let orders = log.commit();
    medium.perform(&orders);
    assert!(super::replay(&job, &medium.files).flaws.is_empty());
    (medium, orders)
}

/// Returns a hex dump with sixteen bytes per line, like `hexdump -C`.
fn hex(name: &str, bytes: &[u8], from: usize) -> String {
    let mut text = format!("{name}\n");
    for (number, line) in bytes.chunks(16).enumerate().skip_while(|(number, _)| (number + 1) * 16 <= from) {
        let words: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let shown: String =
            line.iter().map(|&b| if (0x20..0x7f).contains(&b) { b as char } else { '.' }).collect();
        writeln!(text, "{:04x}  {:<47}  {shown}", number * 16, words.join(" ")).unwrap();
    }
    text
}

#[test]
fn written_bytes_match_the_documentation() {
    let documented = include_str!("../../../../../docs/formats/log.md");
    let mut expected = String::new();
    for style in
        [Mechanism::Universal, Mechanism::File].map(|mechanism| Style { mechanism, encoding: Encoding::Bit8 })
    {
        for (name, bytes) in &example(style).0.files {
            expected += &hex(name, bytes, 0);
        }
    }
    for encoding in Encoding::ALL {
        let (medium, _) = example(Style { mechanism: Mechanism::Universal, encoding });
        let bytes = &medium.files["universal-0000000000000007.log"];
        expected += &hex(&format!("{encoding}: from 0x2c on"), bytes, 44);
    }
    let bit8 = |mechanism| example(Style { mechanism, encoding: Encoding::Bit8 }).0.files;
    let (transaction, universal) = (bit8(Mechanism::ALL[1]), bit8(Mechanism::Universal));
    assert!(transaction.values().eq(universal.values()), "the same bytes in files of other names");
    transaction.keys().for_each(|name| expected += &format!("{name}\n"));
    let is_there = expected.lines().all(|line| documented.lines().any(|found| found == line));
    assert!(is_there, "docs/formats/log.md is to have these lines:\n{expected}");
}

#[test]
fn a_commit_of_one_object_is_one_small_write() {
    for (encoding, len) in Encoding::ALL.into_iter().zip([12, 14, 7, 10, 11, 16]) {
        let (_, orders) = example(Style { mechanism: Mechanism::Universal, encoding });
        let [Order::Write { bytes, .. }, Order::Sync] = &orders[..] else { panic!("{orders:?}") };
        assert_eq!(bytes.len(), len, "{encoding}");
    }
    assert!(read(&Medium::default()).facts.is_empty() && job().object.bytes() == OBJECT);
}
