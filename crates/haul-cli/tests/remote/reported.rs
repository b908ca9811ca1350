//! Reports and leftovers of a job agree with the work that it did.

use super::stopped::{remote_processes, wait_until};
use super::{Fixture, assert_alike, assert_ended, assert_no_strays};
use haul_lab::needs::{Need, met_or_skip};
use haul_sys::metadata::{ACL_DEFAULT, Place, get_xattr};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::process::{Command, Stdio};

/// In earlier versions a dry run failed if the real run would create the directory.
#[test]
fn a_dry_run_into_a_missing_directory_reports_as_the_real_run() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let there = fixture.path("there");
    let new = format!("localhost:{}/new", there.display());
    for target in ["localhost:new", &new] {
        let dry = fixture.over_ssh("send", &["-n", "data", target]);
        assert_ended(&dry, 0);
        assert!(dry.out.contains("big': would be sent"), "{dry:#?}");
        assert!(!there.join("new").exists());
        assert_ended(&fixture.over_ssh("send", &["data", target]), 0);
        fs::remove_dir_all(there.join("new")).unwrap();
    }
    // Neither run creates more than one directory.
    for dry_run in [&["-n"][..], &[]] {
        assert_ended(&fixture.over_ssh("send", &[dry_run, &["data", "localhost:new/deeper"]].concat()), 2);
    }
    fs::rename(fixture.path("data"), there.join("data")).unwrap();
    let dry = fixture.over_ssh("fetch", &["-n", "localhost:data", "new"]);
    assert_ended(&dry, 0);
    assert!(dry.err.contains("7 would be sent") && !fixture.path("new").exists(), "{dry:#?}");
    // Five files and two directories.
    let names: Vec<&str> = dry.out.lines().collect();
    let has = |name: &str| names.contains(&&*format!("'{name}': would be sent"));
    assert!(names.len() == 7 && has("data") && has("data/sub") && has("data/sub/x y"), "{dry:#?}");
    // Files that are compared first.
    fixture.tree("new/data");
    for rule in ["--update", "--update=digest", "--update=object"] {
        fixture.file("new/data/small", 101);
        let dry = fixture.over_ssh("fetch", &["-n", "--no-times", rule, "localhost:data", "new"]);
        assert_ended(&dry, 0);
        assert!(dry.out.contains("'data/small': would be sent"), "{rule}: {dry:#?}");
    }
    assert_ended(&fixture.over_ssh("fetch", &["-n", "localhost:data", "no/new"]), 2);
}

/// In earlier versions 20 unchanged files of 1 KB filled a quota of 5 KB.
#[test]
fn unchanged_files_do_not_count_against_the_quota() {
    let fixture = Fixture::new();
    (0..20).for_each(|file| fixture.file(&format!("data/{file}"), 1000));
    let first = fixture.serve(&["--root", "there"]);
    assert_ended(&fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]), 0);
    drop(first);
    let _server = fixture.serve(&["--root", "there", "--quota", "5K"]);
    for rule in ["--update", "--update=digest", "--update=object", "--update=missing"] {
        assert_ended(&fixture.run(&["send", rule, "--ticket-file", "ticket", "data", ":"]), 0);
    }
    assert_ended(&fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]), 1);
}

/// Earlier versions sent everything, and printed a line for each of the remaining files.
#[test]
fn a_quota_that_is_used_up_ends_the_job_with_one_line() {
    let fixture = Fixture::new();
    (0..6000).for_each(|file| fixture.file(&format!("data/{file}"), 1000));
    let _server = fixture.serve(&["--root", "there", "--quota", "300K"]);
    let sent = fixture.run(&["send", "--ticket-file", "ticket", "data", ":"]);
    assert_ended(&sent, 1);
    let [line] = sent.err.lines().collect::<Vec<_>>()[..] else { panic!("{sent:#?}") };
    assert!(line.contains("quota exceeded: data/") && line.contains(" files failed; "), "{line}");
    assert!(!line.contains("haul jobs forget"), "nothing is kept: {line}");
    let arrived = fs::read_dir(fixture.path("there/data")).unwrap().count();
    assert!((100..=200).contains(&arrived), "{arrived} files of 1,000 bytes, and 512 for each name");
}

/// In earlier versions the waybill had a section without an end, and the same command could not
/// append to it.
#[test]
fn the_same_command_with_a_waybill_resumes_after_a_kill() {
    let fixture = Fixture::new();
    (0..400).for_each(|file| fixture.file(&format!("data/{file}"), 3000));
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let job = ["-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--waybill=w", "--rate=300K"];
    let job = [&["send"], &job[..], &["data", "localhost:in"]].concat();
    let mut child = fixture.haul(&job).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let waybill = fixture.path("w");
    wait_until("a waybill", || fs::metadata(&waybill).is_ok_and(|facts| facts.len() > 0));
    child.kill().unwrap();
    child.wait().unwrap();
    let there = fixture.path("there").canonicalize().unwrap();
    wait_until("the end of the peer", || remote_processes(&there).is_empty());
    assert_ended(&fixture.run(&job), 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    let verified = fixture.run(&["verify", "--cached", "w", "there/in"]);
    assert_ended(&verified, 0);
    let text = fs::read_to_string(&waybill).unwrap();
    assert_eq!(text.lines().filter(|line| line.starts_with("file ")).count(), 400);
}

/// In earlier versions, jobs that start their files from the beginning left their temporary files
/// after a kill.
#[test]
fn a_rerun_removes_the_temporary_files_of_a_killed_fetch() {
    for way in [
        &["--verify=sequential"][..],
        &["--verify=file-pipeline"],
        &["--verify=block-pipeline"],
        &["-a", "md5", "--granularity=file"],
        &["--verify=stream"],
    ] {
        let fixture = Fixture::new();
        fixture.file("there/data/sub/gone later", 2 << 20);
        fixture.file("there/data/stays", 2 << 20);
        let ssh = format!("sh {}", fixture.path("fake-ssh").display());
        let job = ["fetch", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--rate=1M"];
        let job = [&job[..], way, &["localhost:data", "in"]].concat();
        let mut child = fixture.haul(&job).stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let has_begun = |dir: &str| {
            let entries = fs::read_dir(fixture.path(dir)).into_iter().flatten().flatten();
            entries.map(|entry| entry.file_name()).any(|name| name.as_encoded_bytes().starts_with(b".haul-"))
        };
        wait_until("a file", || has_begun("in/data") || has_begun("in/data/sub"));
        child.kill().unwrap();
        child.wait().unwrap();
        let there = fixture.path("there").canonicalize().unwrap();
        wait_until("the end of the peer", || remote_processes(&there).is_empty());
        // The second run transfers no file of this name.
        fs::remove_file(fixture.path("there/data/sub/gone later")).unwrap();
        assert_ended(&fixture.run(&job), 0);
        assert_alike(&fixture.path("there/data"), &fixture.path("in/data"));
        assert_no_strays(&fixture.path("in"));
    }
}

/// An earlier fetch reported no unchanged files, and gave no reason for owners that it did not
/// keep.
#[test]
fn fetch_reports_unchanged_files_and_unpreserved_owners() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let fixture = Fixture::new();
    (0..3).for_each(|file| fixture.file(&format!("there/data/{file}"), 1000));
    let server = fixture.serve(&["--root", "there"]);
    let fetch = ["fetch", "--json", "--update", "--ticket-file", "ticket", ":data", "."];
    let first = fixture.run(&fetch);
    assert_ended(&first, 0);
    assert!(first.err.contains("--keep-owner"), "{first:#?}");
    let second = fixture.run(&fetch);
    assert_ended(&second, 0);
    assert_eq!(second.out.matches("\"the same\"").count(), 3, "{second:#?}");
    drop(server);
    let _server = fixture.serve(&["--root", "there", "--keep-owner"]);
    assert!(!fixture.run(&fetch).err.contains("--keep-owner"));
}

/// A command that ends with a status other than 0 prints a message.
#[test]
fn an_unfinished_quiet_job_reports_the_reason() {
    for word in ["-q", "--json"] {
        let fixture = Fixture::new();
        fixture.file("data/big", 20 << 20);
        let server = fixture.serve(&["--root", "there"]);
        let job = ["send", word, "--rate=500K", "--ticket-file", "ticket", "data", ":"];
        let mut job = fixture.haul(&job);
        let child = job.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        wait_until("the job", || fixture.path("there/data").exists());
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
fn default_acls_are_those_of_the_source() {
    if !met_or_skip(&[Need::Root, Need::Program("setfacl")]) {
        return;
    }
    let fixture = Fixture::new();
    let list = |place: &str, entries: &str| {
        let listed = Command::new("setfacl").args(["-d", "-m", entries]).arg(fixture.path(place)).status();
        assert!(listed.unwrap().success());
    };
    fs::create_dir_all(fixture.path("data/had")).unwrap();
    fs::create_dir_all(fixture.path("data/has")).unwrap();
    fs::create_dir_all(fixture.path("there/in/data/had")).unwrap();
    list("data/has", "u:1:rwx");
    list("there/in/data/had", "u:2:rwx");
    list("there/in", "u:3:rwx");
    assert_ended(&fixture.over_ssh("send", &["data", "localhost:in"]), 0);
    let shown = |dir: &str| {
        let dir = fs::File::open(fixture.path(dir)).unwrap();
        get_xattr(Place::file(&dir), ACL_DEFAULT).unwrap()
    };
    for dir in ["", "/had", "/has"] {
        assert_eq!(shown(&format!("there/in/data{dir}")), shown(&format!("data{dir}")), "data{dir}");
    }
}
