//! `haul jobs`: list, show, resume and forget.

use super::Bed;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::symlink;

fn jobs(bed: &Bed, words: &[&str]) -> (Option<i32>, String, String) {
    let output = bed.haul(&[&["jobs"], words].concat()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn listed(bed: &Bed) -> Vec<Value> {
    let (code, out, said) = jobs(bed, &["--json"]);
    assert_eq!((code, &*said), (Some(0), ""));
    out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn jobs_are_listed_with_how_they_stand_and_how_far_they_came() {
    let Some(bed) = Bed::to_cut_off(31) else { return };
    assert_eq!(jobs(&bed, &[]), (Some(0), String::new(), String::new()), "no jobs, no lines");
    bed.cut_off(&["--sync=object", "--threads=1"]);
    let finished = bed.haul(&["cp", "-aT", "--resume", "source", "sink 2"]).output().unwrap();
    assert!(finished.status.success(), "{finished:?}");
    // A missing source fails for every user.
    let failed = bed.haul(&["cp", "-a", "--resume", "source/large2", "gone", "sink"]).output().unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let all = listed(&bed);
    let with =
        |status: &str| all.iter().find(|job| job["status"] == status).unwrap_or_else(|| panic!("{all:?}"));
    assert_eq!(all.len(), 3);
    let (stopped, finished, failed) = (with("stopped"), with("finished"), with("failed"));
    assert!(
        stopped["exit"].is_null() && stopped["ended"].is_null() && stopped["log_bytes"].as_u64() > Some(0)
    );
    assert_eq!((&finished["exit"], &finished["kind"]), (&Value::from(0), &Value::from("cp")));
    assert!(finished["bytes_done"].as_u64() > Some(0) && finished["bytes_found"].as_u64() > Some(0));
    assert!(finished["files_done"].as_u64() > Some(10));
    assert_eq!(failed["exit"], Value::from(1));

    let (code, table, _) = jobs(&bed, &[]);
    assert_eq!((code, table.lines().count()), (Some(0), 4), "{table}");
    assert!(table.contains("haul cp -aT --resume source 'sink 2'"), "{table}");
    assert!(table.contains("100%") && table.contains("stopped") && table.contains("failed"), "{table}");
    let id = finished["id"].as_str().unwrap();
    let (code, shown, _) = jobs(&bed, &["show", &id[..8]]);
    assert_eq!(code, Some(0));
    for part in [id, "finished", "exit:", "runs:", "directory:", bed.home.path().to_str().unwrap()] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let (_, shown, _) = jobs(&bed, &["show", id, "--json"]);
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()["id"], finished["id"]);
}

/// In earlier versions one job of another user (started by sudo with the same home) prevented the
/// list of all others. It also made each completed copy fail.
#[test]
fn a_job_that_can_not_be_looked_at_hides_no_other_and_fails_none() {
    let bed = Bed::new(36);
    bed.ends(&[]).is_fine("alone");
    let strange = bed.path("state/haul/jobs/00112233445566778899aabbccddeeff");
    fs::create_dir(&strange).unwrap();
    // Root can read any regular file, so that the lock is a dangling link.
    symlink("nowhere", strange.join("lock")).unwrap();
    bed.ends(&[]).is_fine("beside it");
    let all = listed(&bed);
    let troubles: Vec<&str> = all.iter().filter_map(|job| job["trouble"].as_str()).collect();
    assert!(matches!(troubles[..], [why] if why.contains("cannot open lock")), "{all:?}");
    assert!(all.len() == 2 && all.iter().any(|job| job["status"] == "finished"), "{all:?}");
    let (code, table, _) = jobs(&bed, &[]);
    assert!(code == Some(0) && table.contains("unusable: "), "{table}");
    let (code, _, said) = jobs(&bed, &["forget", "00112233"]);
    assert!(code == Some(1) && said.contains("cannot open lock"), "{said}");
    assert!(strange.join("lock").is_symlink());
}

#[test]
fn a_job_is_gone_on_with_from_anywhere_and_a_finished_one_is_not() {
    let Some(bed) = Bed::to_cut_off(32) else { return };
    bed.cut_off(&["--sync=object", "--threads=1"]);
    let id = listed(&bed)[0]["id"].as_str().unwrap().to_owned();
    let output = bed.haul(&["jobs", "resume", &id[..6]]).current_dir("/").output().unwrap();
    let ended = super::Ended::of(output);
    ended.is_fine("resumed");
    assert!(ended.count("bytes_kept") > 0, "{ended:?}");
    bed.is_whole("resumed");
    let (code, _, said) = jobs(&bed, &["resume", &id]);
    assert!(code == Some(1) && said.contains("already finished"), "{said}");
    for (words, part) in [(["show", "ffffff"], "no such job"), (["resume", "xyz"], "invalid job ID")] {
        let (code, _, said) = jobs(&bed, &words);
        assert!(code == Some(1) && said.contains(part), "{said}");
    }
}

#[test]
fn a_forgotten_job_begins_anew_and_one_that_runs_is_not_forgotten() {
    let Some(bed) = Bed::to_cut_off(33) else { return };
    let mut running = bed.held_at_work(bed.cp(&["--sync=object", "--threads=1"]));
    let all = listed(&bed);
    assert_eq!((all.len(), &all[0]["status"]), (1, &Value::from("running")), "{all:?}");
    let id = all[0]["id"].as_str().unwrap().to_owned();
    for words in [["forget", &id], ["resume", &id]] {
        let (code, _, said) = jobs(&bed, &words);
        assert!(code == Some(1) && said.contains(&format!("process {}", running.id())), "{said}");
    }
    super::kill(&mut running);
    assert_eq!(jobs(&bed, &["forget", &id]), (Some(0), String::new(), String::new()));
    assert!(listed(&bed).is_empty() && fs::read_dir(bed.jobs()).unwrap().next().is_none());
    assert!(bed.path("sink").exists(), "what was copied stays");
    bed.ends(&[]).is_fine("restarted");
    assert_eq!(bed.record().runs, 1);
    bed.is_whole("restarted");
}

#[test]
fn the_directory_of_jobs_is_the_one_asked_for() {
    let bed = Bed::new(34);
    let output = bed.haul(&["cp", "-aT", "--resume", "--state-dir=mine", "source", "sink"]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(fs::read_dir(bed.path("mine/jobs")).unwrap().count(), 1);
    assert!(!bed.path("state").exists());
    let (code, table, _) = jobs(&bed, &["--state-dir", "mine"]);
    assert!(code == Some(0) && table.contains("finished"), "{table}");
    let (_, none, _) = jobs(&bed, &[]);
    assert_eq!(none, "");
}
