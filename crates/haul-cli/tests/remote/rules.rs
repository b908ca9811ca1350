//! Selection of files to send, to keep and to delete, and the exit status.

use super::{Fixture, assert_alike, assert_ended};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::snapshot::{Facets, Snapshot};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

fn portrait(path: &Path) -> Snapshot {
    Snapshot::take(path).unwrap()
}

#[test]
fn an_unreadable_source_fails_the_job_and_the_rest_arrives() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fixture.tree("there/in/data");
    fixture.file("there/in/data/extra", 10);
    let sent = fixture.over_ssh("send", &["--delete", "no/such", "data", "localhost:in"]);
    assert_ended(&sent, 1);
    assert!(sent.err.contains("no/such") && sent.err.contains("deletions skipped"), "{sent:#?}");
    fs::remove_file(fixture.path("there/in/data/extra")).expect("it was not deleted");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    let sent = fixture.over_ssh("send", &["no/such", "localhost:none"]);
    assert_ended(&sent, 2);
    assert!(!fixture.path("there/none").exists());
}

#[test]
fn unreadable_entries_fail_the_job_and_prevent_deletion() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let fixture = Fixture::new();
    fixture.tree("data");
    fixture.file("there/in/data/extra", 10);
    // Another user than root cannot read everything.
    let home = fixture.path("");
    chown_all(&home, 65_534);
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(fixture.path("data/sub"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(fixture.path("data/one"), fs::Permissions::from_mode(0o000)).unwrap();
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let args =
        ["send", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--delete", "data", "localhost:in"];
    let ended = fixture.haul(&args).uid(65_534).gid(65_534).stdin(Stdio::null()).output().unwrap();
    let reported = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{reported}");
    assert!(
        reported.contains("sub") && reported.contains("one") && reported.contains("deletions skipped"),
        "{reported}"
    );
    assert!(fixture.path("there/in/data/extra").exists());
    assert_eq!(
        fs::read(fixture.path("there/in/data/big")).unwrap(),
        fs::read(fixture.path("data/big")).unwrap()
    );
}

fn chown_all(dir: &Path, id: u32) {
    let done = Command::new("chown").arg("-R").arg(format!("{id}:{id}")).arg(dir).status().unwrap();
    assert!(done.success());
}

#[test]
fn delete_removes_extraneous_files() {
    let fixture = Fixture::new();
    fixture.tree("data");
    assert_ended(&fixture.over_ssh("send", &["data", "localhost:"]), 0);
    fixture.file("there/data/extra", 10);
    fixture.file("there/data/sub/deep/extra", 10);
    fixture.file("there/beside", 10);
    let sent = fixture.over_ssh("send", &["-v", "--delete", "data", "localhost:"]);
    assert_ended(&sent, 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    assert!(fixture.path("there/beside").exists(), "what lies outside the directories that were sent stays");
    assert!(sent.err.contains("3 deleted"), "{sent:#?}");
    // If this side is the sink, it names the deleted files.
    fixture.file("back/data/extra", 10);
    let fetched = fixture.over_ssh("fetch", &["-v", "--delete", "localhost:data", "back"]);
    assert_ended(&fetched, 0);
    assert!(fetched.out.contains("data/extra': deleted"), "{fetched:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("back/data"));
}

#[test]
fn deletions_are_guarded_and_limited() {
    let fixture = Fixture::new();
    fixture.file("data/f", 10);
    fs::create_dir(fixture.path("empty")).unwrap();
    for name in ["data/1", "data/2", "data/3", "empty/1"] {
        fixture.file(&format!("there/{name}"), 10);
        fixture.file(&format!("back/{name}"), 10);
    }
    for (way, paths) in [("send", ["data", "localhost:"]), ("fetch", ["localhost:data", "back"])] {
        let limited = fixture.over_ssh(way, &["--delete", "--max-delete=2", paths[0], paths[1]]);
        assert_ended(&limited, 1);
        assert!(limited.err.contains("2 deleted, 1 not deleted because of --max-delete"), "{limited:#?}");
        assert_ended(&fixture.over_ssh(way, &["--delete", "--max-delete=2", paths[0], paths[1]]), 0);
    }
    for (way, paths, name) in [
        ("send", ["empty", "localhost:"], "there/empty/1"),
        ("fetch", ["localhost:empty", "back"], "back/empty/1"),
    ] {
        let guarded = fixture.over_ssh(way, &["--delete", paths[0], paths[1]]);
        assert_ended(&guarded, 1);
        assert!(guarded.err.contains("use --delete-all"), "{guarded:#?}");
        assert!(fixture.path(name).exists());
        assert_ended(&fixture.over_ssh(way, &["--delete-all", paths[0], paths[1]]), 0);
        assert!(!fixture.path(name).exists());
    }
}

#[test]
fn a_dry_run_changes_nothing_and_reports_its_actions() {
    let fixture = Fixture::new();
    fixture.tree("data");
    assert_ended(&fixture.over_ssh("send", &["data", "localhost:"]), 0);
    fixture.file("there/data/extra", 10);
    fixture.file("data/new", 10);
    let before = portrait(&fixture.path("there"));
    let sent = fixture.over_ssh("send", &["-n", "--delete", "--update", "data", "localhost:"]);
    assert_ended(&sent, 0);
    assert!(sent.out.contains("new'") && sent.out.contains("would be sent"), "{sent:#?}");
    assert!(sent.err.contains("1 would be deleted"), "{sent:#?}");
    before.assert_same(&portrait(&fixture.path("there")), Facets::ALL);
    let sent = fixture.over_ssh("send", &["-n", "data", "localhost:missing"]);
    assert!(!fixture.path("there/missing").exists(), "{sent:#?}");
    let fetched = fixture.over_ssh("fetch", &["-n", "localhost:data", "missing"]);
    assert!(!fixture.path("missing").exists(), "{fetched:#?}");
}

#[test]
fn update_rules_keep_unchanged_files() {
    let fixture = Fixture::new();
    fixture.tree("data");
    assert_ended(&fixture.over_ssh("send", &["data", "localhost:"]), 0);
    let big = fixture.path("there/data/big");
    let ino = || fs::metadata(&big).unwrap().ino();
    let first = ino();
    for rule in ["--update", "--update=newer", "--update=missing", "--update=digest", "--checksum"] {
        let sent = fixture.over_ssh("send", &["--json", rule, "data", "localhost:"]);
        assert_ended(&sent, 0);
        assert_eq!(ino(), first, "{rule}: {sent:#?}");
        assert!(summary(&sent.out)["same"].as_u64().unwrap() >= 5, "{rule}: {sent:#?}");
    }
    assert_ended(&fixture.over_ssh("send", &["data", "localhost:"]), 0);
    assert_ne!(ino(), first, "without a rule all is sent");
}

#[test]
fn update_object_sends_only_differing_objects() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let options = ["--object-size=64K", "--json", "--update=object", "data", "localhost:"];
    assert_ended(&fixture.over_ssh("send", &options), 0);
    for (at, in_place) in [&[][..], &["--inplace"]].into_iter().enumerate() {
        let ino = || fs::metadata(fixture.path("there/data/big")).unwrap().ino();
        let before = ino();
        let mut changed = fs::read(fixture.path("data/big")).unwrap();
        changed[300_000 + at] ^= 1;
        fs::write(fixture.path("data/big"), &changed).unwrap();
        let sent = fixture.over_ssh("send", &[in_place, &options].concat());
        assert_ended(&sent, 0);
        assert_alike(&fixture.path("data"), &fixture.path("there/data"));
        let wire = summary(&sent.out)["wire"]["out"].as_u64().unwrap();
        assert!(wire < 3 * 65_536, "one object of eleven differs, and {wire} bytes travelled: {sent:#?}");
        assert_eq!(ino() == before, !in_place.is_empty(), "{in_place:?}");
    }
}

#[test]
fn the_last_matching_filter_wins() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fixture.file("data/sub/keep.o", 7);
    fixture.file("data/a.o", 7);
    let send = |target: &str, options: &[&str]| {
        assert_ended(&fixture.over_ssh("send", &[options, &["data", target]].concat()), 0);
    };
    send("localhost:one", &["--exclude=*.o", "--include=keep.o"]);
    assert!(
        fixture.path("there/one/data/sub/keep.o").exists() && !fixture.path("there/one/data/a.o").exists()
    );
    send("localhost:two", &["--include=keep.o", "--exclude=*.o", "--exclude=sub/"]);
    assert!(!fixture.path("there/two/data/sub").exists() && !fixture.path("there/two/data/a.o").exists());
    assert!(fixture.path("there/two/data/big").exists());
}

#[test]
fn fetch_filters_are_applied_at_the_source() {
    let fixture = Fixture::new();
    fixture.tree("there/data");
    fixture.file("there/data/sub/keep.o", 7);
    fixture.file("there/data/a.o", 7);
    let rules = ["--exclude=*.o", "--include=keep.o", "--exclude=/data/big"];
    let fetch = |target: &str, options: &[&str]| {
        let fetched = fixture.over_ssh("fetch", &[&rules, options, &["localhost:data", target]].concat());
        assert_ended(&fetched, 0);
    };
    fetch("one", &[]);
    let has = |name: &str| fixture.path(name).exists();
    assert!(
        has("one/data/sub/keep.o") && has("one/data/small") && !has("one/data/a.o") && !has("one/data/big")
    );
    // A filtered file is not deleted; a file that the source does not have is deleted.
    fixture.file("one/data/a.o", 3);
    fixture.file("one/data/extra", 3);
    fetch("one", &["--delete"]);
    assert!(has("one/data/a.o") && !has("one/data/extra"));
    let _server = fixture.serve(&["--root", "there", "--read-only"]);
    let args = ["fetch", "--ticket-file", "ticket", "--exclude=sub/", ":data/", "two"];
    assert_ended(&fixture.run(&args), 0);
    assert!(has("two/big") && has("two/a.o") && !has("two/sub"));
}

#[test]
fn fetch_reads_its_sources_from_a_list() {
    let fixture = Fixture::new();
    fixture.tree("there/data");
    let _server = fixture.serve(&["--root", "there", "--read-only"]);
    fs::write(fixture.path("list"), ":data/big\n:data/sub\n").unwrap();
    assert_ended(&fixture.run(&["fetch", "--ticket-file", "ticket", "--files-from=list", "in"]), 0);
    assert_alike(&fixture.path("there/data/sub"), &fixture.path("in/sub"));
    assert!(fixture.path("in/big").exists() && !fixture.path("in/small").exists());
    let both = fixture.run(&["fetch", "--ticket-file=-", "--files-from=-", "in"]);
    assert_ended(&both, 2);
    fs::write(fixture.path("list"), ":data/big\0:data/sub\0").unwrap();
    let no_lines = fixture.run(&["fetch", "--ticket-file", "ticket", "--files-from=list", "in"]);
    assert_ended(&no_lines, 2);
    assert!(no_lines.err.contains("-0"), "{no_lines:#?}");
}

/// Creates `count` names of one file in `there/data`, beneath the directories `dirs`, and returns
/// their paths.
fn many_names(fixture: &Fixture, count: usize, dirs: &str) -> Vec<String> {
    fs::create_dir_all(fixture.path("there/data").join(dirs)).unwrap();
    let names: Vec<String> = (0..count).map(|name| format!("data/{dirs}f{name:05}")).collect();
    let path = |name: &String| fixture.path("there").join(name);
    fs::write(path(&names[0]), dirs).unwrap();
    names[1..].iter().for_each(|name| fs::hard_link(path(&names[0]), path(name)).unwrap());
    names
}

/// Earlier versions accepted at most 256 names for one job.
#[test]
fn fetch_accepts_a_list_of_20000_names() {
    let fixture = Fixture::new();
    let names = many_names(&fixture, 20_000, "");
    let _server = fixture.serve(&["--root", "there", "--read-only"]);
    let list: String = names.iter().map(|name| format!(":{name}\n")).collect();
    fs::write(fixture.path("list"), list).unwrap();
    assert_ended(&fixture.run(&["fetch", "--ticket-file", "ticket", "--files-from=list", "in"]), 0);
    assert_alike(&fixture.path("there/data"), &fixture.path("in"));
}

/// The list is longer than a line of the dialogue over ssh may be.
#[test]
fn a_list_longer_than_a_line_is_sent_over_ssh() {
    let fixture = Fixture::new();
    let dirs = format!("{}/{}/", "d".repeat(250), "e".repeat(250));
    let names = many_names(&fixture, 2500, &dirs);
    let list: String = names.iter().map(|name| format!("localhost:{name}\n")).collect();
    assert!(list.len() > 1 << 20);
    fs::write(fixture.path("list"), list).unwrap();
    for (into, options) in [("beside", &[][..]), ("inside", &["--inside-ssh"])] {
        let fetched = fixture.over_ssh("fetch", &[options, &["--files-from=list", into]].concat());
        assert_ended(&fetched, 0);
        assert_alike(&fixture.path("there/data").join(&dirs), &fixture.path(into));
    }
}

/// In earlier versions each name kept a directory open from the start.
#[test]
fn a_long_list_needs_few_descriptors() {
    let fixture = Fixture::new();
    let names = many_names(&fixture, 1500, "");
    let list: String = names.iter().map(|name| format!("there/{name}\n")).collect();
    fs::write(fixture.path("list"), list).unwrap();
    let haul = env!("CARGO_BIN_EXE_haul");
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let sent = Command::new("sh")
        .args(["-c", "ulimit -n 256 && exec \"$@\"", "sh", haul, "send", "-e", &ssh, "--remote-haul", haul])
        .args(["--files-from=list", "localhost:in"])
        .env("XDG_STATE_HOME", fixture.path("state"))
        .env_remove("SSH_CONNECTION")
        .current_dir(fixture.path(""))
        .output()
        .unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    assert_alike(&fixture.path("there/data"), &fixture.path("there/in"));
}

#[test]
fn send_reads_its_operands_from_a_list() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::write(fixture.path("list"), "data/big\0data/sub\0").unwrap();
    assert_ended(&fixture.over_ssh("send", &["--files-from=list", "-0", "localhost:in"]), 0);
    assert_alike(&fixture.path("data/sub"), &fixture.path("there/in/sub"));
    assert!(fixture.path("there/in/big").exists() && !fixture.path("there/in/small").exists());
}

#[test]
fn obstacles_at_the_sink_are_reported_and_kept() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::create_dir_all(fixture.path("there/data/small/full")).unwrap();
    let sent = fixture.over_ssh("send", &["data", "localhost:"]);
    assert_ended(&sent, 1);
    assert!(sent.err.contains("small") && sent.err.contains("1 failed"), "{sent:#?}");
    assert!(fixture.path("there/data/small/full").is_dir());
    assert_eq!(
        fs::read(fixture.path("there/data/big")).unwrap(),
        fs::read(fixture.path("data/big")).unwrap()
    );
    fixture.file("there/file", 3);
    let sent = fixture.over_ssh("send", &["data", "localhost:file"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("is not a directory"), "{sent:#?}");
}

#[test]
fn links_at_the_sink_are_not_followed_out_of_it() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::create_dir_all(fixture.path("there/in/data")).unwrap();
    fs::create_dir(fixture.path("outside")).unwrap();
    std::os::unix::fs::symlink(fixture.path("outside"), fixture.path("there/in/data/sub")).unwrap();
    let sent = fixture.over_ssh("send", &["data", "localhost:in"]);
    assert_eq!(fs::read_dir(fixture.path("outside")).unwrap().count(), 0, "{sent:#?}");
}

#[test]
fn json_prints_events_and_the_summary() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let sent = fixture.over_ssh("send", &["--json", "data", "localhost:"]);
    assert_ended(&sent, 0);
    let events: Vec<Value> = sent.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let entries: Vec<&str> = events.iter().filter_map(|event| event["path"].as_str()).collect();
    assert!(entries.iter().any(|path| path.ends_with("sub/x y")), "{entries:?}");
    let summary = summary(&sent.out);
    assert_eq!((summary["whole"].as_bool(), summary["failed"].as_u64()), (Some(true), Some(0)), "{summary}");
    assert_eq!(summary["bytes"].as_u64(), Some(700_000 + 65_536 + 100 + 5000), "{summary}");
    assert!(summary["spent"]["hashing"].as_f64().is_some(), "{summary}");
}

#[test]
fn invalid_command_lines_are_refused_with_a_hint() {
    let fixture = Fixture::new();
    fixture.tree("data");
    for (args, words) in [
        (&["send", "data", "here"][..], "use 'haul cp' within one host"),
        (&["send", "host:a", "host:b"], "is a remote path"),
        (&["send", "host:b"], "missing SOURCE"),
        (&["send", "data", ":box"], "--ticket-file"),
        (&["send", "data", "-oProxyCommand=x:"], "unexpected argument"),
        (&["send", "--", "data", "-oProxyCommand=x:"], "invalid host name"),
        (
            &["send", "--ticket-file=nowhere", "data", ":"],
            "the ticket in 'nowhere': No such file or directory\n",
        ),
        (
            &["send", "--files-from=nowhere", "data", "h:"],
            "cannot read 'nowhere': No such file or directory\n",
        ),
        (
            &["send", "--ssh=/no/such/ssh", "data", "h:"],
            "No such file or directory; specify another ssh command with --ssh",
        ),
        (&["fetch", "host:a"], "missing HOST:PATH or DIR"),
        (&["fetch", "host:a", "other:b", "."], "from one host at a time"),
        (&["fetch", "a", "."], "within one host"),
        (&["send", "--update=never", "data", "h:"], "--update"),
        (&["send", "--exclude={a", "data", "h:"], "'{a'"),
        (&["fetch", "--exclude={a", "h:data", "in"], "'{a'"),
        (&["send", "--verify=reread", "--granularity=file", "data", "h:"], "compare objects"),
    ] {
        let ended = fixture.run(args);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(words), "{words}: {ended:#?}");
    }
}

fn summary(out: &str) -> Value {
    serde_json::from_str(out.lines().last().unwrap()).unwrap()
}
