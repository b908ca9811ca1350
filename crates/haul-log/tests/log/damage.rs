//! Tests of damaged waybills: every bit flipped, every length cut, lines moved. Each damage is
//! found, and at its line.

use crate::facts::{file, pattern, sections};
use crate::{flaws, read, write};
use haul_digest::Algorithm;
use haul_log::waybill::{Job, Objects, Reader, Record};
use haul_model::{LeafSize, ObjectSize};
use proptest::prelude::*;

fn line_of(bytes: &[u8], at: usize) -> u64 {
    1 + bytes[..at].iter().filter(|&&byte| byte == b'\n').count() as u64
}

fn small() -> Vec<u8> {
    let objects = |leaf: Option<u64>| {
        Some(Objects {
            size: ObjectSize::round_up(0),
            algorithms: vec![Algorithm::Blake3, Algorithm::Crc32],
            leaf: leaf.map(|bytes| LeafSize::new(bytes, ObjectSize::round_up(0)).unwrap()),
        })
    };
    let algorithms = [Algorithm::Blake3, Algorithm::Crc32, Algorithm::Md5];
    let first = [
        file("one", &pattern(150_000, 1), &algorithms, objects(None)),
        file("two", &pattern(70_000, 2), &algorithms, objects(Some(32 << 10))),
        file("three", b"3", &algorithms, None),
    ]
    .concat();
    let second = file("four", &pattern(140_000, 4), &algorithms, objects(None));
    write(&[(Job::default(), first), (Job::default(), second)]).0
}

#[test]
fn every_flipped_bit_is_found_at_its_line() {
    let bytes = small();
    assert!(flaws(&bytes).is_empty());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut hurt = bytes.clone();
            hurt[at] ^= 1 << bit;
            let found = flaws(&hurt);
            let (line, expected) = (found.first().map(|flaw| flaw.0), line_of(&bytes, at));
            assert_eq!(line, Some(expected), "byte {at}, bit {bit}: {found:?}");
            // If a byte becomes a line end, or a line end another byte, the adjacent line may be
            // damaged too.
            assert!(found.iter().all(|(line, _)| *line <= expected + 1), "byte {at}, bit {bit}: {found:?}");
        }
    }
}

#[test]
fn every_truncation_is_found_at_its_line() {
    let bytes = small();
    let text = std::str::from_utf8(&bytes).unwrap();
    let first_section =
        text.find("\nend ").map(|at| at + 1 + text[at + 1..].find('\n').unwrap() + 1).unwrap();
    for len in 0..bytes.len() {
        let found = flaws(&bytes[..len]);
        if len == first_section {
            // The part before the second job was appended is a waybill of its own.
            assert!(found.is_empty());
        } else {
            assert_eq!(
                found.first().map(|flaw| flaw.0),
                Some(line_of(&bytes, len)),
                "cut to {len}: {found:?}"
            );
        }
    }
}

#[test]
fn moved_lost_and_doubled_lines_are_found() {
    let bytes = small();
    let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
    let check = |order: Vec<usize>, first: usize| {
        let hurt: Vec<u8> = order.iter().flat_map(|&at| lines[at]).copied().collect();
        let found = flaws(&hurt);
        assert_eq!(found.first().map(|flaw| flaw.0), Some(first as u64 + 1), "{order:?}: {found:?}");
    };
    for at in 1..lines.len() {
        let all = 0..lines.len();
        let mut swapped: Vec<usize> = all.clone().collect();
        swapped.swap(at - 1, at);
        check(swapped, at - 1);
        check(all.clone().filter(|&line| line != at).collect(), at);
        check(all.flat_map(|line| if line == at { vec![line, line] } else { vec![line] }).collect(), at + 1);
    }
}

/// Two sections of whole lines, exchanged or joined from two waybills.
#[test]
fn misplaced_sections_are_detected() {
    let (one, two) = (small(), write(&[(Job::default(), Vec::new())]).0);
    let joined = flaws(&[one.clone(), two].concat());
    assert_eq!(joined.len(), 1, "{joined:?}");
    assert!(joined[0].1.contains("does not continue"), "{joined:?}");
    let text = std::str::from_utf8(&one).unwrap();
    let second = text.rfind("surehaul-waybill").unwrap();
    let exchanged = [&one[second..], &one[..second]].concat();
    let found = flaws(&exchanged);
    assert_eq!(found.first().map(|flaw| flaw.0), Some(1), "{found:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_damage_to_any_waybill_is_located(sections in sections(), place in 0.0f64..1.0, bit in 0u8..8, cut in any::<bool>()) {
        let (bytes, expected) = write(&sections);
        let at = (place * bytes.len() as f64) as usize;
        let mut hurt = bytes.clone();
        if cut {
            hurt.truncate(at);
        } else {
            hurt[at] ^= 1 << bit;
        }
        let found = flaws(&hurt);
        let closed = hurt.is_empty() || bytes[..at].ends_with(b"\n");
        if cut && closed && found.is_empty() {
            // A cut between two sections leaves the waybill as it was before the later ones.
            prop_assert!(expected.starts_with(&read(&hurt)));
            prop_assert!(matches!(read(&hurt).last(), Some(Record::End(_))));
        } else {
            prop_assert_eq!(found.first().map(|flaw| flaw.0), Some(line_of(&bytes, at)), "{:?}", found);
        }
    }
}

/// If one line of leaves of a file is damaged, all objects and all other leaves are still read.
#[test]
fn damaged_leaf_line_hides_no_other_record() {
    let size = ObjectSize::round_up(0);
    let leaf = Some(LeafSize::new(1024, size).unwrap());
    for len in [50_000, 65_536, 200_000] {
        let objects = Objects { size, algorithms: vec![Algorithm::Blake3], leaf };
        let records = file("one", &pattern(len, 1), &[Algorithm::Blake3], Some(objects));
        let after = file("two", &pattern(10, 2), &[Algorithm::Blake3], None);
        let (bytes, expected) = write(&[(Job::default(), [records, after].concat())]);
        let lines: Vec<&[u8]> = bytes.split_inclusive(|&byte| byte == b'\n').collect();
        for at in 0..lines.len() {
            // Each line has one record.
            if !matches!(expected[at], Record::Leaves(_)) {
                continue;
            }
            let mut hurt = lines.iter().map(|line| line.to_vec()).collect::<Vec<_>>();
            let middle = hurt[at].len() / 2;
            hurt[at][middle] ^= 1;
            let hurt = hurt.concat();
            let found: Vec<Record> = Reader::new(&hurt[..]).filter_map(Result::ok).collect();
            let others = expected.iter().enumerate().filter(|(other, _)| *other != at);
            // The closing line of a section with a flaw is not returned.
            let others: Vec<Record> = others.map(|(_, record)| record.clone()).collect();
            assert_eq!(found, others[..others.len() - 1], "{len} bytes, line {}", at + 1);
            assert_eq!(flaws(&hurt), [(at as u64 + 1, flaws(&hurt)[0].1.clone())]);
        }
    }
}
