//! Output of `haul jobs` for interrupted commands.

use super::{Fixture, RunResult, rot};
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_log::record::JobRecord;
use rustix::process::Signal;
use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

const SLOWLY: [&str; 4] = ["verify", "--threads=1", "--bwlimit=100K", "w"];

fn fixture(seed: u64) -> Fixture {
    let fixture = Fixture::new(60, 16 << 10, seed);
    fixture.aside(&["sum", "-r", "--waybill", "w", "data"]);
    fixture.rest();
    fixture
}

#[test]
fn a_running_verify_is_listed_and_a_second_one_names_the_holder() {
    let fixture = fixture(1);
    let mut child = fixture.haul(&SLOWLY).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let progress = || JobRecord::decode(&fixture.of_job("record")?).ok().map(|record| record.progress);
    let is_under_way =
        || fixture.state("done").is_some() && progress().is_some_and(|progress| progress.files_done > 0);
    assert!(super::waited(&mut child, is_under_way));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::STOP).unwrap();
    let job = fixture.listed();
    assert_eq!(
        (&job["status"], &job["kind"], &job["runs"]),
        (&"running".into(), &"verify".into(), &1.into())
    );
    assert!(job["files_done"].as_u64() > Some(0) && job["bytes_done"].as_u64() > Some(0), "{job}");
    assert_eq!((&job["files_found"], &job["bytes_found"]), (&60.into(), &(60 * (16 << 10)).into()), "{job}");
    let second = fixture.run(&SLOWLY);
    let holder = format!("process {}", child.id());
    assert!(second.status == Some(0) && second.err.contains(&holder), "{second:?}");
    assert!(second.err.contains("this run is not listed"), "{second:?}");
    let forgotten = fixture.run(&["jobs", "forget", job["id"].as_str().unwrap()]);
    assert!(forgotten.status == Some(1) && forgotten.err.contains(&holder), "{forgotten:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(fixture.listed()["status"], "stopped");
}

/// Sets the times of a job back, as if the job had been idle for `days` days.
fn age(folder: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 86_400);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in files.chain([folder.to_owned()]) {
        File::open(path).unwrap().set_times(FileTimes::new().set_modified(then)).unwrap();
    }
}

#[test]
fn stopped_jobs_are_kept_for_90_days() {
    for (days, is_kept) in [(89, true), (91, false)] {
        let fixture = fixture(2);
        assert!(fixture.ended(&SLOWLY, Signal::KILL, || fixture.state("done").is_some()));
        let folder = fixture.jobs().remove(0);
        age(&folder, days);
        // Another job, which finishes.
        let another = ["verify", "--threads=1", "--bwlimit=200K", "-q", "w"];
        assert_eq!(fixture.run(&another).status, Some(0));
        assert_eq!(folder.exists(), is_kept, "{days}");
    }
}

/// The state of a job serves a later run. Without space for the state, or for the progress, the run
/// completes and reports the reason once. Earlier versions repeated the report every two seconds.
#[test]
fn jobs_without_space_for_their_state_report_once_and_complete() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for (seed, full) in [(3, "*"), (4, "*/state*")] {
        let fixture = fixture(seed);
        for name in ["store", "state"] {
            fs::create_dir_all(fixture.path(name)).unwrap();
        }
        let rules = format!("{full} write .. errno ENOSPC").parse().unwrap();
        let faults = FaultFs::mount(&fixture.path("store"), &fixture.path("state"), rules).unwrap();
        fs::create_dir(fixture.path("replica")).unwrap();
        fixture.aside(&["cp", "-a", "data", "replica"]);
        rot(&fixture.file(7));
        let slowly = ["--json", "--threads=1", "--bwlimit=400K", "w"];
        let verified = fixture.run(&[&["verify"][..], &slowly].concat());
        assert_eq!(verified.status, Some(1), "{full}: {verified:?}");
        assert_eq!(verified.told("verdict"), [("data/007".to_owned(), "rotted".to_owned())], "{full}");
        let told = |ran: &RunResult| format!("{}{}", ran.out, ran.err).matches("No space left").count();
        assert_eq!(told(&verified), 1, "{full}: {verified:?}");
        let repaired = fixture.run(&[&["repair"][..], &slowly, &[".", "--from", "replica"]].concat());
        assert_eq!((repaired.status, repaired.summary("repaired")), (Some(0), 1), "{full}: {repaired:?}");
        assert_eq!(told(&repaired), 1, "{full}: {repaired:?}");
        faults.close();
    }
}
