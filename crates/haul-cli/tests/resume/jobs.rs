//! `haul jobs`: list, show, resume and forget.

use super::Fixture;
use crate::faults::fixture::{HOLD, Running};
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::wait_until;
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;

fn jobs(fixture: &Fixture, words: &[&str]) -> (Option<i32>, String, String) {
    let output = fixture.haul(&[&["jobs"], words].concat()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn listed(fixture: &Fixture) -> Vec<Value> {
    let (code, out, said) = jobs(fixture, &["--json"]);
    assert_eq!((code, &*said), (Some(0), ""));
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn jobs_are_listed_with_status_and_progress() {
    let Some(fixture) = Fixture::to_cut_off(31) else { return };
    assert_eq!(jobs(&fixture, &[]), (Some(0), String::new(), String::new()), "no jobs, no lines");
    fixture.cut_off(&["--sync=object", "--threads=1"]);
    let finished = fixture.haul(&["cp", "-aT", "--resume", "source", "sink 2"]).output().unwrap();
    assert!(finished.status.success(), "{finished:?}");
    // A missing source fails for every user.
    let failed = fixture.haul(&["cp", "-a", "--resume", "source/large2", "gone", "sink"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let all = listed(&fixture);
    let with =
        |status: &str| all.iter().find(|job| job["status"] == status).unwrap_or_else(|| panic!("{all:?}"));
    assert_eq!(all.len(), 3);
    let (stopped, finished, failed) = (with("stopped"), with("finished"), with("failed"));
    // The share of a copy that was stopped before it found everything is unknown.
    assert_eq!([stopped, finished, failed].map(|job| &job["counting"]), [true, false, false]);
    assert!(
        stopped["exit"].is_null() && stopped["ended"].is_null() && stopped["log_bytes"].as_u64() > Some(0)
    );
    assert_eq!((&finished["exit"], &finished["kind"]), (&Value::from(0), &Value::from("cp")));
    assert!(finished["bytes_done"].as_u64() > Some(0) && finished["bytes_found"].as_u64() > Some(0));
    assert!(finished["files_done"].as_u64() > Some(10));
    assert_eq!(failed["exit"], Value::from(1));

    let (code, table, _) = jobs(&fixture, &[]);
    assert_eq!((code, table.lines().count()), (Some(0), 4), "{table}");
    assert!(table.contains("haul cp -aT --resume source 'sink 2'"), "{table}");
    let stopped = table.lines().find(|line| line.contains("stopped")).unwrap();
    let mut columns = stopped.split_whitespace().skip(2);
    assert_eq!(columns.next(), Some("-"), "{table}");
    assert!(columns.next().is_some_and(|files| files.ends_with('+')), "{table}");
    assert!(table.contains("100%") && table.contains("stopped") && table.contains("failed"), "{table}");
    let id = finished["id"].as_str().unwrap();
    let (code, shown, _) = jobs(&fixture, &["show", &id[..8]]);
    assert_eq!(code, Some(0));
    for part in [id, "finished", "exit:", "runs:", "directory:", fixture.home.path().to_str().unwrap()] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let (_, shown, _) = jobs(&fixture, &["show", id, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["id"], finished["id"]);
}

/// Regression test: a copy that was stopped early was listed as 100%.
#[test]
fn a_stopped_copy_is_listed_with_its_share_of_the_total() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let fixture = Fixture::new(32);
    for name in ["held", "view"] {
        fs::create_dir(fixture.path(name)).unwrap();
    }
    fs::rename(fixture.path("source"), fixture.path("held/source")).unwrap();
    let rules = format!("source/large* read .. delay {HOLD}");
    let faults =
        FaultFs::mount(&fixture.path("held"), &fixture.path("view"), rules.parse().unwrap()).unwrap();
    let mut copy = fixture.haul(&["cp", "-aT", "--resume", "--threads=1", "view/source", "sink"]);
    let running = Running::new(&mut copy);
    wait_until("a held read", || !faults.fired().is_empty());
    running.deliver(Signal::INT);
    faults.release();
    running.end();
    let job = &listed(&fixture)[0];
    let number = |name: &str| job[name].as_u64().unwrap();
    assert_eq!((&job["status"], &job["counting"]), (&"stopped".into(), &false.into()), "{job}");
    assert_eq!(number("files_found"), 18, "four large, twelve small, one, and a second name: {job}");
    assert!(number("bytes_done") < number("bytes_found") / 2, "{job}");
    let (_, table, _) = jobs(&fixture, &[]);
    assert!(!table.contains("100%") && !table.contains('+') && table.contains('%'), "{table}");
    faults.close();
}

/// In earlier versions one job of another user (started by sudo with the same home) prevented the
/// list of all others. It also made each completed copy fail.
#[test]
fn an_unreadable_job_does_not_affect_other_jobs() {
    let fixture = Fixture::new(36);
    fixture.ends(&[]).is_fine("alone");
    let strange = fixture.path("state/haul/jobs/00112233445566778899aabbccddeeff");
    fs::create_dir(&strange).unwrap();
    // Root can read any regular file, so that the lock is a dangling link.
    symlink("nowhere", strange.join("lock")).unwrap();
    fixture.ends(&[]).is_fine("beside it");
    let all = listed(&fixture);
    let troubles: Vec<&str> = all.iter().filter_map(|job| job["trouble"].as_str()).collect();
    assert!(matches!(troubles[..], [why] if why.contains("cannot open lock")), "{all:?}");
    assert!(all.len() == 2 && all.iter().any(|job| job["status"] == "finished"), "{all:?}");
    let (code, table, _) = jobs(&fixture, &[]);
    assert!(code == Some(0) && table.contains("unusable: "), "{table}");
    let (code, _, said) = jobs(&fixture, &["forget", "00112233"]);
    assert!(code == Some(1) && said.contains("cannot open lock"), "{said}");
    assert!(strange.join("lock").is_symlink());
}

#[test]
fn an_unfinished_job_is_resumed_by_id_and_a_finished_one_is_not() {
    let Some(fixture) = Fixture::to_cut_off(32) else { return };
    fixture.cut_off(&["--sync=object", "--threads=1"]);
    let id = listed(&fixture)[0]["id"].as_str().unwrap().to_owned();
    let output = fixture.haul(&["jobs", "resume", &id[..6]]).current_dir("/").output().unwrap();
    let ended = super::RunResult::of(output);
    ended.is_fine("resumed");
    assert!(ended.count("bytes_kept") > 0, "{ended:?}");
    fixture.is_whole("resumed");
    let (code, _, said) = jobs(&fixture, &["resume", &id]);
    assert!(code == Some(1) && said.contains("already finished"), "{said}");
    for (words, part) in [(["show", "ffffff"], "no such job"), (["resume", "xyz"], "invalid job ID")] {
        let (code, _, said) = jobs(&fixture, &words);
        assert!(code == Some(1) && said.contains(part), "{said}");
    }
}

#[test]
fn a_forgotten_job_restarts_and_a_running_job_is_not_forgotten() {
    let Some(fixture) = Fixture::to_cut_off(33) else { return };
    let mut running = fixture.held_at_work(fixture.cp(&["--sync=object", "--threads=1"]));
    let all = listed(&fixture);
    assert_eq!((all.len(), &all[0]["status"]), (1, &Value::from("running")), "{all:?}");
    let id = all[0]["id"].as_str().unwrap().to_owned();
    for words in [["forget", &id], ["resume", &id]] {
        let (code, _, said) = jobs(&fixture, &words);
        assert!(code == Some(1) && said.contains(&format!("process {}", running.id())), "{said}");
    }
    super::kill(&mut running);
    assert_eq!(jobs(&fixture, &["forget", &id]), (Some(0), String::new(), String::new()));
    assert!(listed(&fixture).is_empty() && fs::read_dir(fixture.jobs()).unwrap().next().is_none());
    assert!(fixture.path("sink").exists(), "what was copied stays");
    fixture.ends(&[]).is_fine("restarted");
    assert_eq!(fixture.record().runs, 1);
    fixture.is_whole("restarted");
}

#[test]
fn the_state_directory_is_selected_by_option() {
    let fixture = Fixture::new(34);
    let output =
        fixture.haul(&["cp", "-aT", "--resume", "--state-dir=mine", "source", "sink"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_dir(fixture.path("mine/jobs")).unwrap().count(), 1);
    assert!(!fixture.path("state").exists());
    let (code, table, _) = jobs(&fixture, &["--state-dir", "mine"]);
    assert!(code == Some(0) && table.contains("finished"), "{table}");
    let (_, none, _) = jobs(&fixture, &[]);
    assert_eq!(none, "");
}
