//! Tests of damaged logs: flipped bits, cut lengths, and arbitrary bytes.

use super::medium::Medium;
use super::{is_within, job, mark, plain, read, sample, styles, subject};
use haul_lab::newer;
use haul_log::objects::{Facts, Flaw, Identity, Job, Log, Mechanism, Order, Style, replay};
use haul_model::ObjectSize;
use proptest::prelude::*;

/// Returns everything that [`sample`] ever logged, including the completed file.
fn all(facts: &Facts) -> super::Plain {
    let mut all = plain(facts);
    all.insert(subject("c", 3, 0), [1].into());
    all
}

#[test]
fn flipped_bits_never_add_objects() {
    for style in styles() {
        let (medium, log) = sample(style);
        let most = all(&log.facts());
        for (name, bytes) in &medium.files {
            // The pages of the large file are similar, so only some bytes are damaged.
            let step = if bytes.len() > 3000 { 7 } else { 1 };
            let mut hurt = medium.clone();
            for at in (0..bytes.len()).step_by(step) {
                for bit in 0..8 {
                    hurt.files.get_mut(name).unwrap()[at] ^= 1 << bit;
                    let found = read(&hurt);
                    let is_told = !found.flaws.is_empty() || found.facts == log.facts();
                    assert!(is_told, "{style:?}: bit {bit} of byte {at} of {name}");
                    assert!(
                        is_within(&plain(&found.facts), &most),
                        "{style:?}: bit {bit} of byte {at} of {name}"
                    );
                    hurt.files.get_mut(name).unwrap()[at] ^= 1 << bit;
                }
            }
        }
    }
}

#[test]
fn truncated_or_extended_files_never_add_objects() {
    for style in styles() {
        let (medium, log) = sample(style);
        let most = all(&log.facts());
        for (name, bytes) in &medium.files {
            let mut hurt = medium.clone();
            for len in (0..bytes.len()).rev() {
                hurt.files.get_mut(name).unwrap().truncate(len);
                assert!(is_within(&plain(&read(&hurt).facts), &most), "{style:?}: {name} truncated at {len}");
            }
            hurt.files.remove(name);
            let found = read(&hurt);
            assert!(is_within(&plain(&found.facts), &most));
            let is_index_left = hurt.files.keys().any(|left| left.ends_with(".index"));
            let is_log_gone = !name.ends_with(".index") && style.mechanism == Mechanism::Universal;
            assert!(!(is_index_left && is_log_gone) || matches!(found.flaws[..], [Flaw::LogMissing { .. }]));
            let mut longer = medium.clone();
            longer.files.get_mut(name).unwrap().extend(b"more");
            assert_eq!(read(&longer).facts, log.facts(), "{style:?}: extra bytes after {name}");
        }
    }
}

#[test]
fn damage_to_a_bit_vector_costs_no_more_than_its_last_commit() {
    for style in styles().filter(|style| style.encoding.to_string().starts_with("bit")) {
        let (medium, log) = sample(style);
        let whole = plain(&log.facts());
        let names = medium.files.keys().filter(|name| name.ends_with(".log"));
        for name in names {
            for at in 200..medium.files[name].len() {
                let mut hurt = medium.clone();
                hurt.files.get_mut(name).unwrap()[at] ^= 0x10;
                let left = plain(&read(&hurt).facts);
                let lost: usize =
                    whole.values().zip(left.values()).map(|(all, left)| all.len() - left.len()).sum();
                assert!(left.len() == whole.len() && lost <= 100, "{style:?}: {lost} lost at {at} of {name}");
            }
        }
    }
}

#[test]
fn logs_of_other_jobs_sizes_and_versions_are_detected() {
    for style in styles() {
        let (mut medium, _) = sample(style);
        let flaws = |medium: &Medium, job: &Job| {
            let found = replay(job, &medium.files);
            assert!(found.facts.is_empty());
            found.flaws
        };
        let other = Job { id: Identity::of(b"another"), ..job() };
        assert!(flaws(&medium, &other).iter().all(|flaw| matches!(flaw, Flaw::OtherJob { .. })));
        let larger = Job { object: ObjectSize::new(1 << 20).unwrap(), ..job() };
        let is_other = |flaw: &Flaw| matches!(flaw, Flaw::OtherObjectSize { found: 16, asked: 20, .. });
        assert!(flaws(&medium, &larger).iter().all(is_other) && !flaws(&medium, &larger).is_empty());
        for bytes in medium.files.values_mut() {
            newer::log(bytes, 2);
        }
        let found = replay(&job(), &medium.files);
        assert!(matches!(found.flaws[0], Flaw::Newer { version: 2, .. }), "{:?}", found.flaws);
        let is_left = |name: &String| name.starts_with("file-") || name.ends_with(".index");
        assert!(!found.names.iter().any(is_left), "what a newer program wrote is left alone");
    }
}

#[test]
fn unknown_files_are_reported_and_not_read_as_logs() {
    let (mut medium, log) = sample(Style::DEFAULT);
    for name in ["notes", "notes.log", "index", "Universal.index", "universal.txt"] {
        medium.files.insert(name.to_owned(), b"mine".to_vec());
    }
    let found = read(&medium);
    assert_eq!(found.facts, log.facts());
    assert_eq!((found.flaws.len(), found.names.len()), (5, 2));
    assert!(found.flaws.iter().all(|flaw| matches!(flaw, Flaw::UnknownFile { .. })), "{:?}", found.flaws);
    assert!(found.flaws[0].to_string().contains("move the file elsewhere"));
}

/// A write: file name, offset and bytes.
type Written = (String, u64, Vec<u8>);

/// Returns a log in which two files alternately got an object, from `first` on, and the writes to
/// log files that made it.
fn turns(style: Style, life: u64, first: u64) -> (Medium, Log, Vec<Written>) {
    let (mut medium, mut log, mut writes) = (Medium::default(), Log::new(job(), style, life), Vec::new());
    let keys = ["x", "y"].map(|path| log.open(&subject(path, 20, 0)).unwrap());
    for (object, key) in (first..first + 8).zip(keys.into_iter().cycle()) {
        mark(&mut log, key, [object]);
        let orders = log.commit();
        medium.perform(&orders);
        let logged = orders.into_iter().filter_map(|order| match order {
            Order::Write { name, at, bytes } if name.ends_with(".log") => Some((name, at, bytes)),
            _ => None,
        });
        writes.extend(logged);
    }
    (medium, log, writes)
}

#[test]
fn bytes_of_another_file_offset_or_log_id_are_refused() {
    for style in styles() {
        let (medium, log, writes) = turns(style, 1, 0);
        let most = plain(&log.facts());
        let others = turns(style, 1000, 10).2;
        for (_, _, bytes) in writes.iter().chain(&others) {
            for (name, at, _) in writes.iter().filter(|(_, at, _)| *at > 0) {
                let mut hurt = medium.clone();
                let file = hurt.files.get_mut(name).unwrap();
                let at = *at as usize;
                file.resize(file.len().max(at + bytes.len()), 0);
                file[at..at + bytes.len()].copy_from_slice(bytes);
                let found = plain(&read(&hurt).facts);
                assert!(
                    is_within(&found, &most),
                    "{style:?}: {found:?} of {most:?}, changed at {at} of {name}"
                );
            }
        }
        // The log of another `life` under the name of this one.
        let mut mixed = medium.clone();
        let theirs = turns(style, 1000, 10).0;
        for ((_, ours), (_, theirs)) in
            mixed.files.iter_mut().zip(&theirs.files).filter(|((name, _), _)| name.ends_with(".log"))
        {
            ours.clone_from(theirs);
        }
        let found = read(&mixed);
        let is_sheet = style.mechanism == Mechanism::File;
        assert!(
            is_sheet || matches!(found.flaws[..], [Flaw::Contradictory { at: 11, .. }]),
            "{:?}",
            found.flaws
        );
        assert!(is_sheet || found.facts.is_empty());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    #[test]
    fn arbitrary_bytes_add_no_objects(
        style in 0_usize..18,
        which in any::<prop::sample::Index>(),
        at in any::<prop::sample::Index>(),
        bytes in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let (mut medium, log) = sample(styles().nth(style).unwrap());
        let most = all(&log.facts());
        let name = which.get(&medium.files.keys().cloned().collect::<Vec<_>>()).clone();
        let file = medium.files.get_mut(&name).unwrap();
        let at = at.index(file.len());
        file.splice(at..(at + bytes.len()).min(file.len()), bytes.iter().copied());
        prop_assert!(is_within(&plain(&read(&medium).facts), &most));
        medium.files.insert(name, bytes);
        prop_assert!(is_within(&plain(&read(&medium).facts), &most));
    }

    /// Checksums protect against accidents, not against attackers: hostile bytes with correct
    /// checksums must be read without harm.
    #[test]
    fn hostile_bytes_with_valid_checksums_stay_in_range(
        style in 0_usize..18, which in any::<prop::sample::Index>(), at in 4_usize..84, byte in any::<u8>(), again in 0_usize..8,
    ) {
        let (mut medium, _) = sample(styles().nth(style).unwrap());
        let has_records = |name: &&String| name.starts_with("file-") || name.ends_with(".index");
        let names: Vec<String> = medium.files.keys().filter(has_records).cloned().collect();
        let file = medium.files.get_mut(which.get(&names)).unwrap();
        // The first record after the head, which has the subject.
        let len = usize::from(file[46]) + 256 * usize::from(file[47]);
        if file.len() >= 44 + len && len > at {
            file[44 + at] = byte;
            file[44 + 8 + again] ^= byte;
            newer::seal(file, 44..44 + len);
        }
        let found = read(&medium);
        for (subject, set) in found.facts.iter() {
            let count = subject.geometry(&job()).count();
            prop_assert!(set.iter().all(|object| object.0 < count));
        }
    }
}
