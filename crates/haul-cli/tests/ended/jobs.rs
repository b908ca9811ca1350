//! What `haul jobs` makes of commands that were ended.

use super::Bed;
use haul_log::record::JobRecord;
use rustix::process::Signal;
use std::fs::{self, File, FileTimes};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, SystemTime};

const SLOWLY: [&str; 4] = ["verify", "--threads=1", "--bwlimit=200K", "w"];

fn bed(seed: u64) -> Bed {
    let bed = Bed::new(60, 16 << 10, seed);
    bed.good(&["sum", "-r", "--waybill", "w", "data"]);
    bed.rest();
    bed
}

#[test]
fn one_that_runs_is_listed_and_a_second_one_says_who_has_it() {
    let bed = bed(1);
    let mut child = bed.haul(&SLOWLY).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let progress = || JobRecord::decode(&bed.of_job("record")?).ok().map(|record| record.progress);
    let is_under_way =
        || bed.state("done").is_some() && progress().is_some_and(|progress| progress.files_done > 0);
    assert!(super::waited(&mut child, is_under_way));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), Signal::STOP).unwrap();
    let job = bed.listed();
    assert_eq!(
        (&job["status"], &job["kind"], &job["runs"]),
        (&"running".into(), &"verify".into(), &1.into())
    );
    assert!(job["files_done"].as_u64() > Some(0) && job["bytes_done"].as_u64() > Some(0), "{job}");
    assert_eq!((&job["files_found"], &job["bytes_found"]), (&60.into(), &(60 * (16 << 10)).into()), "{job}");
    let second = bed.run(&SLOWLY);
    let holder = format!("process {}", child.id());
    assert!(second.status == Some(0) && second.err.contains(&holder), "{second:?}");
    assert!(second.err.contains("this run is not listed"), "{second:?}");
    let forgotten = bed.run(&["jobs", "forget", job["id"].as_str().unwrap()]);
    assert!(forgotten.status == Some(1) && forgotten.err.contains(&holder), "{forgotten:?}");
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(bed.listed()["status"], "stopped");
}

/// Makes a job look as if nobody had been at it for so many days.
fn age(folder: &Path, days: u64) {
    let then = SystemTime::now() - Duration::from_secs(days * 86_400);
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    for path in files.chain([folder.to_owned()]) {
        File::open(path).unwrap().set_times(FileTimes::new().set_modified(then)).unwrap();
    }
}

#[test]
fn stopped_jobs_are_kept_for_ninety_days() {
    for (days, is_kept) in [(89, true), (91, false)] {
        let bed = bed(2);
        assert!(bed.ended(&SLOWLY, Signal::KILL, || bed.state("done").is_some()));
        let folder = bed.jobs().remove(0);
        age(&folder, days);
        // Another job, which comes to its end.
        let another = ["verify", "--threads=1", "--bwlimit=200K", "-q", "w"];
        assert_eq!(bed.run(&another).status, Some(0));
        assert_eq!(folder.exists(), is_kept, "{days}");
    }
}
