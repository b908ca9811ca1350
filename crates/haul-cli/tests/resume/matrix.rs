//! Copies that are killed at points drawn from seeds, in every way to keep the log.

use super::{Bed, kill};
use haul_lab::random::Random;
use std::time::{Duration, Instant};
use std::{fs, thread};

const MECHANISMS: [&str; 3] = ["file", "transaction:2", "universal"];
const ENCODINGS: [&str; 6] = ["char", "int", "enc", "binary", "bit8", "bit64"];

/// Points for each way.
const POINTS: u64 = 5;

#[test]
fn killed_anywhere_a_copy_goes_on_in_every_style() {
    let (mut cut_off, mut went_on, mut claimed_some) = (0, 0, 0);
    for (number, (mechanism, encoding)) in
        MECHANISMS.iter().flat_map(|mechanism| ENCODINGS.map(|encoding| (mechanism, encoding))).enumerate()
    {
        let bed = Bed::new(number as u64);
        let [mechanism, encoding] =
            [format!("--log-mechanism={mechanism}"), format!("--log-encoding={encoding}")];
        // Every object is logged by itself, so that there is something to find at each point.
        let style = [&*mechanism, &*encoding, "--sync=object"];
        let begun = Instant::now();
        let whole = bed.ends(&style);
        whole.is_fine(&format!("{style:?}"));
        let (took, total) = (begun.elapsed(), whole.count("bytes"));
        bed.is_whole(&format!("{style:?}"));
        for point in 0..POINTS {
            fs::remove_dir_all(bed.path("sink")).unwrap();
            fs::remove_dir_all(bed.path("state")).unwrap();
            let what = format!("{style:?}, point {point}");
            let mut random = Random::for_part(number as u64, point);
            let mut claimed = 0;
            // Cut off once, or several times in a row.
            for _ in 0..=random.below(2) {
                let after = took.mul_f64((5 + random.below(90)) as f64 / 100.0);
                let mut child = bed.cp(&style).spawn().unwrap();
                thread::sleep(after);
                let was_over = child.try_wait().unwrap().is_some();
                kill(&mut child);
                cut_off += u32::from(!was_over);
                if was_over || !bed.jobs().exists() || bed.facts_or_none().is_none() {
                    claimed = 0;
                    break;
                }
                claimed = bed.claimed(&what);
                claimed_some += u32::from(claimed > 0);
            }
            let ended = bed.ends(&style);
            ended.is_fine(&what);
            bed.is_whole(&what);
            assert!(ended.moved() <= total - claimed, "{what}: {claimed} of {total} were there: {ended:?}");
            went_on += u32::from(ended.count("bytes_kept") > 0);
            assert!(bed.facts().is_empty(), "{what}: the log goes with the job");
        }
    }
    assert!(
        cut_off > 60 && went_on > 40 && claimed_some > 40,
        "{cut_off} cut off, {claimed_some} with something logged, {went_on} went on: the points are not where they should be"
    );
}

#[test]
fn what_a_group_of_a_second_made_durable_is_not_copied_again() {
    let bed = Bed::empty();
    fs::create_dir(bed.path("source")).unwrap();
    for number in 0..3 {
        super::write(&bed.path(&format!("source/large{number}")), 48 << 20, number);
    }
    for number in 0..200 {
        super::write(&bed.path(&format!("source/small{number}")), 9000, 10 + number);
    }
    let total = 3 * (48 << 20) + 200 * 9000;
    // Direct writes are slow enough to be cut off, whatever the machine.
    let slow = ["--direct-write", "--threads=1"];
    let mut child = bed.cp(&slow).spawn().unwrap();
    let begun = Instant::now();
    while bed.facts_or_none().is_none_or(|facts| facts.is_empty()) {
        if child.try_wait().unwrap().is_some() {
            // A machine that copies all of it within a group has nothing to go on with.
            return bed.is_whole("within a group");
        }
        assert!(begun.elapsed() < super::PATIENCE);
        thread::sleep(Duration::from_millis(5));
    }
    kill(&mut child);
    let claimed = bed.claimed("a group");
    assert!(claimed > 0);
    let ended = bed.ends(&slow);
    ended.is_fine("a group");
    assert!(ended.moved() <= total - claimed && ended.count("bytes") == total, "{claimed}: {ended:?}");
    bed.is_whole("a group");
}
