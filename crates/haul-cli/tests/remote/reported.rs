//! Reports and leftovers of a job agree with the work that it did.

use super::stopped::{far_sides, wait_until};
use super::{Bed, assert_alike, assert_ended, assert_no_strays};
use haul_lab::needs::{Need, met_or_skip};
use haul_sys::metadata::{ACL_DEFAULT, Place, get_xattr};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Command, Stdio};

/// In earlier versions a dry run failed if the real run would create the directory.
#[test]
fn a_dry_run_into_a_directory_that_would_be_made_says_what_the_real_one_does() {
    let bed = Bed::new();
    bed.tree("data");
    let there = bed.path("there");
    let new = format!("localhost:{}/new", there.display());
    for target in ["localhost:new", &new] {
        let dry = bed.over_ssh("send", &["-n", "data", target]);
        assert_ended(&dry, 0);
        assert!(dry.out.contains("big': would be sent"), "{dry:#?}");
        assert!(!there.join("new").exists());
        assert_ended(&bed.over_ssh("send", &["data", target]), 0);
        fs::remove_dir_all(there.join("new")).unwrap();
    }
    // Neither run creates more than one directory.
    for dry_run in [&["-n"][..], &[]] {
        assert_ended(&bed.over_ssh("send", &[dry_run, &["data", "localhost:new/deeper"]].concat()), 2);
    }
    fs::rename(bed.path("data"), there.join("data")).unwrap();
    let dry = bed.over_ssh("fetch", &["-n", "localhost:data", "new"]);
    assert_ended(&dry, 0);
    assert!(dry.err.contains("7 would be sent") && !bed.path("new").exists(), "{dry:#?}");
    assert_ended(&bed.over_ssh("fetch", &["-n", "localhost:data", "no/new"]), 2);
}

/// In earlier versions 20 unchanged files of 1 KB filled a quota of 5 KB.
#[test]
fn a_quota_is_not_charged_for_what_does_not_travel() {
    let bed = Bed::new();
    (0..20).for_each(|file| bed.file(&format!("data/{file}"), 1000));
    let first = bed.serve(&["--root", "there"]);
    assert_ended(&bed.run(&["send", "--ticket-file", "ticket", "data", ":"]), 0);
    drop(first);
    let _server = bed.serve(&["--root", "there", "--quota", "5K"]);
    for rule in ["--update", "--update=digest", "--update=object", "--update=missing"] {
        assert_ended(&bed.run(&["send", rule, "--ticket-file", "ticket", "data", ":"]), 0);
    }
    assert_ended(&bed.run(&["send", "--ticket-file", "ticket", "data", ":"]), 1);
}

/// In earlier versions the waybill had a section without an end, and the same command could not
/// append to it.
#[test]
fn the_same_command_goes_on_after_a_kill_with_its_waybill() {
    let bed = Bed::new();
    (0..400).for_each(|file| bed.file(&format!("data/{file}"), 3000));
    let ssh = format!("sh {}", bed.path("fake-ssh").display());
    let job = ["-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--waybill=w", "--rate=300K"];
    let job = [&["send"], &job[..], &["data", "localhost:in"]].concat();
    let mut child = bed.haul(&job).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let waybill = bed.path("w");
    wait_until("a waybill", || fs::metadata(&waybill).is_ok_and(|facts| facts.len() > 0));
    child.kill().unwrap();
    child.wait().unwrap();
    let there = bed.path("there").canonicalize().unwrap();
    wait_until("the end of the peer", || far_sides(&there).is_empty());
    assert_ended(&bed.run(&job), 0);
    assert_alike(&bed.path("data"), &bed.path("there/in/data"));
    let verified = bed.run(&["verify", "--cached", "w", "there/in"]);
    assert_ended(&verified, 0);
    let text = fs::read_to_string(&waybill).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("file ")).count(), 400);
}

/// In earlier versions, jobs that start their files from the beginning left their temporary files
/// after a kill.
#[test]
fn a_killed_fetch_leaves_nothing_when_the_same_command_has_succeeded() {
    for way in [
        &["--verify=sequential"][..],
        &["--verify=file-pipeline"],
        &["--verify=block-pipeline"],
        &["-a", "md5", "--granularity=file"],
        &["--verify=stream"],
    ] {
        let bed = Bed::new();
        bed.file("there/data/sub/gone later", 2 << 20);
        bed.file("there/data/stays", 2 << 20);
        let ssh = format!("sh {}", bed.path("fake-ssh").display());
        let job = ["fetch", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--rate=1M"];
        let job = [&job[..], way, &["localhost:data", "in"]].concat();
        let mut child = bed.haul(&job).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let has_begun = |dir: &str| {
            let entries = fs::read_dir(bed.path(dir)).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name()).any(|name| name.as_encoded_bytes().starts_with(b".haul-"))
        };
        wait_until("a file", || has_begun("in/data") || has_begun("in/data/sub"));
        child.kill().unwrap();
        child.wait().unwrap();
        let there = bed.path("there").canonicalize().unwrap();
        wait_until("the end of the peer", || far_sides(&there).is_empty());
        // The second run transfers no file of this name.
        fs::remove_file(bed.path("there/data/sub/gone later")).unwrap();
        assert_ended(&bed.run(&job), 0);
        assert_alike(&bed.path("there/data"), &bed.path("in/data"));
        assert_no_strays(&bed.path("in"));
    }
}

/// An earlier fetch reported no unchanged files, and gave no reason for owners that it did not
/// keep.
#[test]
fn a_fetch_tells_of_what_is_the_same_and_of_owners_that_it_does_not_get() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let bed = Bed::new();
    (0..3).for_each(|file| bed.file(&format!("there/data/{file}"), 1000));
    let server = bed.serve(&["--root", "there"]);
    let fetch = ["fetch", "--json", "--update", "--ticket-file", "ticket", ":data", "."];
    let first = bed.run(&fetch);
    assert_ended(&first, 0);
    assert!(first.err.contains("--keep-owner"), "{first:#?}");
    let second = bed.run(&fetch);
    assert_ended(&second, 0);
    assert_eq!(second.out.matches("\"the same\"").count(), 3, "{second:#?}");
    drop(server);
    let _server = bed.serve(&["--root", "there", "--keep-owner"]);
    assert!(!bed.run(&fetch).err.contains("--keep-owner"));
}

/// A command that ends with a status other than 0 prints a message.
#[test]
fn a_quiet_job_that_does_not_finish_says_why() {
    for word in ["-q", "--json"] {
        let bed = Bed::new();
        bed.file("data/big", 20 << 20);
        let server = bed.serve(&["--root", "there"]);
        let job = ["send", word, "--rate=500K", "--ticket-file", "ticket", "data", ":"];
        let mut job = bed.haul(&job);
        let child = job.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the job", || bed.path("there/data").exists());
        kill_process(Pid::from_child(&server.child), Signal::KILL).unwrap();
        let ended = child.wait_with_output().unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{told}");
        assert!(told.contains("incomplete"), "{word}: {told}");
    }
}

/// In earlier versions an existing directory kept its default ACL, and a new one inherited that of
/// its parent. Files created later were open to other users.
#[test]
fn default_access_control_lists_are_those_of_the_source() {
    if !met_or_skip(&[Need::Root, Need::Program("setfacl")]) {
        return;
    }
    let bed = Bed::new();
    let list = |place: &str, entries: &str| {
        let listed = Command::new("setfacl").args(["-d", "-m", entries]).arg(bed.path(place)).status();
        assert!(listed.unwrap().success());
    };
    fs::create_dir_all(bed.path("data/had")).unwrap();
    fs::create_dir_all(bed.path("data/has")).unwrap();
    fs::create_dir_all(bed.path("there/in/data/had")).unwrap();
    list("data/has", "u:1:rwx");
    list("there/in/data/had", "u:2:rwx");
    list("there/in", "u:3:rwx");
    assert_ended(&bed.over_ssh("send", &["data", "localhost:in"]), 0);
    let shown = |dir: &str| {
        let dir = fs::File::open(bed.path(dir)).unwrap();
        get_xattr(Place::file(&dir), ACL_DEFAULT).unwrap()
    };
    for dir in ["", "/had", "/has"] {
        assert_eq!(shown(&format!("there/in/data{dir}")), shown(&format!("data{dir}")), "data{dir}");
    }
}
