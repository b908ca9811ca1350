//! Tests of sessions that are stopped midway and resumed.

use super::pair::Pair;
use super::small_objects;
use haul_digest::Algorithm;
use haul_engine::log::ResumeCheck;
use haul_lab::random::Random;
use haul_lab::snapshot::{Facets, Snapshot};
use haul_model::Level;
use haul_proto::{JobOptions, Unit, Update, Verify};
use std::fs;
use std::path::Path;

/// Number of bytes in the trees that are sent: far more than are in flight when a session is
/// stopped.
const LARGE: usize = 24 << 20;

fn write(path: &Path, len: usize, seed: u64) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut bytes = vec![0; len];
    Random::from_seed(seed).fill(&mut bytes);
    fs::write(path, bytes).unwrap();
}

fn grow(pair: &Pair) {
    let tree = pair.source().join("t");
    (0..20).for_each(|number| write(&tree.join(format!("a{number}")), number * 3001, number as u64));
    write(&tree.join("b"), LARGE, 77);
    write(&tree.join("c"), LARGE / 2, 78);
}

#[track_caller]
fn assert_same(pair: &Pair) {
    let (source, sink) = (pair.source().join("t"), pair.sink().join("t"));
    Snapshot::take(&source).unwrap().assert_same(&Snapshot::take(&sink).unwrap(), Facets::ARCHIVE);
    pair.nothing_is_left_over();
    assert!(pair.jobs().is_empty(), "a job that is over leaves nothing: {:?}", pair.jobs());
}

/// Stops a transfer with these options and resumes it to its end. Returns the number of bytes that
/// were not sent again.
#[track_caller]
fn stopped_and_gone_on_with(pair: &Pair, options: &JobOptions, fetched: bool) -> u64 {
    grow(pair);
    let stopped =
        if fetched { pair.fetch_stopped(&["t"], options) } else { pair.send_stopped(&["t"], options, 0) };
    assert!(stopped.was_stopped(), "it was over before it could be stopped");
    assert!(pair.jobs().len() == 1 || options.settle >= Level::Durable, "{options:?}");
    let told = if fetched { pair.fetch(&["t"], options, 2) } else { pair.send(&["t"], options, 2) };
    told.is_fine();
    assert_same(pair);
    let [here, there] = told.reused_bytes();
    assert_eq!(here, there, "both ends count the same: {options:?}");
    here
}

/// Regression: a file that the first run had written in part, or a first name that it had made,
/// counted as an existing file of the sink. The file stayed incomplete with status 0, and further
/// names became files of their own.
#[test]
fn update_rules_do_not_judge_what_the_job_itself_made() {
    for update in [Update::Missing, Update::Newer] {
        for (in_place, fetched) in [(false, false), (false, true), (true, false), (true, true)] {
            let pair = Pair::resuming(None);
            for number in 0..20 {
                let name = |start: &str| pair.source().join(format!("t/{start}{number}"));
                write(&name("first"), 5000 + number, number as u64);
                fs::hard_link(name("first"), name("second")).unwrap();
                fs::hard_link(name("first"), name("third")).unwrap();
            }
            let options = JobOptions { update, in_place, ..small_objects() };
            stopped_and_gone_on_with(&pair, &options, fetched);
        }
    }
}

#[test]
fn stopped_session_resumes_with_every_verification() {
    use Algorithm::{Blake3, Crc32c, Md5};
    let of =
        |verify, unit, settle, algorithm| JobOptions { verify, unit, settle, algorithm, ..small_objects() };
    for options in [
        of(Verify::Stream, Unit::Object, Level::Verified, Blake3),
        of(Verify::Stream, Unit::Object, Level::Durable, Md5),
        of(Verify::None, Unit::Object, Level::Received, Blake3),
        of(Verify::Reread, Unit::Object, Level::Reread, Crc32c),
        of(Verify::Hybrid, Unit::Object, Level::Verified, Blake3),
        of(Verify::Stream, Unit::File, Level::Verified, Blake3),
    ] {
        for recheck in [None, Some(ResumeCheck::Sample), Some(ResumeCheck::All)] {
            let reused_bytes = stopped_and_gone_on_with(&Pair::resuming(recheck), &options, false);
            // If objects must be durable or read back before they count, any number of them may be
            // pending.
            let least = if options.settle >= Level::Durable { 0 } else { 1 << 20 };
            assert!(reused_bytes >= least, "only {reused_bytes} bytes were spared: {recheck:?}, {options:?}");
        }
    }
}

#[test]
fn stopped_fetch_resumes() {
    for recheck in [None, Some(ResumeCheck::Sample), Some(ResumeCheck::All)] {
        let reused_bytes = stopped_and_gone_on_with(&Pair::resuming(recheck), &small_objects(), true);
        assert!(reused_bytes > 1 << 20, "only {reused_bytes} bytes were spared: {recheck:?}");
    }
}

/// Transfers that cannot be resumed send everything again, and the data arrives.
#[test]
fn modes_without_a_log_restart_from_the_beginning() {
    for (verify, unit, algorithm) in [
        (Verify::Sequential, Unit::File, Algorithm::Blake3),
        (Verify::BlockPipeline, Unit::Object, Algorithm::Blake3),
        (Verify::Stream, Unit::File, Algorithm::Md5),
    ] {
        let in_order = algorithm == Algorithm::Md5;
        let options = JobOptions { verify, unit, algorithm, in_order, ..small_objects() };
        let pair = Pair::resuming(None);
        grow(&pair);
        let stopped = pair.send_stopped(&["t"], &options, 0);
        assert!(stopped.was_stopped() && pair.jobs().is_empty());
        pair.nothing_is_left_over();
        pair.send(&["t"], &options, 2).is_fine();
        assert_same(&pair);
    }
}

#[test]
fn in_place_files_are_compared_on_resume() {
    let options = JobOptions { in_place: true, ..small_objects() };
    let reused_bytes = stopped_and_gone_on_with(&Pair::resuming(None), &options, false);
    assert!(reused_bytes > 1 << 20, "only {reused_bytes} bytes were spared");
}

#[test]
fn stopped_updating_job_resumes() {
    for update in [Update::SizeTime, Update::Missing, Update::Digest, Update::Object] {
        let pair = Pair::resuming(None);
        let options = JobOptions { update, ..small_objects() };
        grow(&pair);
        // The destination already has a file of this name.
        write(&pair.sink().join("t/c"), LARGE / 2, 79);
        assert!(pair.send_stopped(&["t"], &options, 0).was_stopped());
        pair.send(&["t"], &options, 2).is_fine();
        if update == Update::Missing {
            fs::remove_file(pair.sink().join("t/c")).unwrap();
            pair.send(&["t"], &options, 2).is_fine();
        }
        assert_same(&pair);
    }
}

/// Objects of an earlier run are in the temporary file, and so is the sample that is compared. All
/// other objects are compared with the file under the final name.
#[test]
fn sample_is_compared_with_the_temporary_file() {
    for recheck in [None, Some(ResumeCheck::Sample), Some(ResumeCheck::All)] {
        let pair = Pair::resuming(recheck);
        let options = JobOptions { update: Update::Object, ..small_objects() };
        grow(&pair);
        write(&pair.sink().join("t/b"), LARGE, 79);
        assert!(pair.send_stopped(&["t"], &options, 0).was_stopped());
        let told = pair.send(&["t"], &options, 2);
        told.is_fine();
        assert_same(&pair);
        let reused_bytes = told.reused_bytes()[1];
        assert_eq!(
            reused_bytes > 0,
            recheck != Some(ResumeCheck::All),
            "{reused_bytes} bytes were spared: {recheck:?}"
        );
    }
}

/// The waybills of both sides contain every file, with digests of data that this run did not see.
#[test]
fn waybills_of_a_resumed_job_are_complete() {
    let pair = Pair::resuming(None).also_with_waybills();
    stopped_and_gone_on_with(&pair, &small_objects(), false);
    for started in [true, false] {
        let text = fs::read_to_string(pair.waybill(started)).unwrap();
        let last = text.rsplit("surehaul-waybill").next().unwrap();
        for name in (0..20).map(|number| format!("t/a{number}")).chain(["t/b".to_owned(), "t/c".to_owned()]) {
            assert!(last.contains(&name), "{name} is not in the last section: {last}");
        }
    }
}

/// Two sources of one name have one destination. The first one is there, whole, in each run.
#[test]
fn the_second_file_of_one_path_is_refused_in_each_run() {
    let pair = Pair::resuming(None);
    write(&pair.source().join("x/f"), 9 << 20, 1);
    write(&pair.source().join("y/f"), 9 << 20, 2);
    for _ in 0..4 {
        let reported = pair.send(&["x/f", "y/f"], &small_objects(), 4);
        assert_eq!((reported.summary().done, reported.summary().unread), (1, 1), "{reported}");
        let [first, arrived] =
            [pair.source().join("x/f"), pair.sink().join("f")].map(|f| fs::read(f).unwrap());
        assert!(first == arrived, "it is the second file or a mixture of both");
        pair.nothing_is_left_over();
    }
}

/// A job with other options neither uses the objects of the stopped job nor removes that job.
#[test]
fn job_with_other_options_is_separate() {
    let pair = Pair::resuming(None);
    grow(&pair);
    assert!(pair.send_stopped(&["t"], &small_objects(), 0).was_stopped());
    let others = JobOptions { update: Update::Newer, ..small_objects() };
    let told = pair.send(&["t"], &others, 2);
    told.is_fine();
    assert_eq!(told.reused_bytes(), [0, 0]);
    assert_eq!(pair.jobs().len(), 1, "the job that was stopped waits for its own command");
}
