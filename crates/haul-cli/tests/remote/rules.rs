//! Selection of files to send, to keep and to delete, and the exit status.

use super::{Bed, assert_alike, assert_ended};
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
fn a_source_that_cannot_be_read_fails_the_status_and_the_rest_arrives() {
    let bed = Bed::new();
    bed.tree("data");
    bed.tree("there/in/data");
    bed.file("there/in/data/extra", 10);
    let sent = bed.over_ssh("send", &["--delete", "no/such", "data", "localhost:in"]);
    assert_ended(&sent, 1);
    assert!(sent.err.contains("no/such") && sent.err.contains("deletions skipped"), "{sent:#?}");
    fs::remove_file(bed.path("there/in/data/extra")).expect("it was not deleted");
    assert_alike(&bed.path("data"), &bed.path("there/in/data"));
    let sent = bed.over_ssh("send", &["no/such", "localhost:none"]);
    assert_ended(&sent, 2);
    assert!(!bed.path("there/none").exists());
}

#[test]
fn what_the_walk_cannot_read_fails_the_status_and_nothing_is_deleted() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let bed = Bed::new();
    bed.tree("data");
    bed.file("there/in/data/extra", 10);
    // Another user than root cannot read everything.
    let home = bed.path("");
    chown_all(&home, 65_534);
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(bed.path("data/sub"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(bed.path("data/one"), fs::Permissions::from_mode(0o000)).unwrap();
    let ssh = format!("sh {}", bed.path("fake-ssh").display());
    let args =
        ["send", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--delete", "data", "localhost:in"];
    let ended = bed.haul(&args).uid(65_534).gid(65_534).stdin(Stdio::null()).output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{told}");
    assert!(told.contains("sub") && told.contains("one") && told.contains("deletions skipped"), "{told}");
    assert!(bed.path("there/in/data/extra").exists());
    assert_eq!(fs::read(bed.path("there/in/data/big")).unwrap(), fs::read(bed.path("data/big")).unwrap());
}

fn chown_all(dir: &Path, id: u32) {
    let done = Command::new("chown").arg("-R").arg(format!("{id}:{id}")).arg(dir).status().unwrap();
    assert!(done.success());
}

#[test]
fn delete_takes_what_the_source_lacks() {
    let bed = Bed::new();
    bed.tree("data");
    assert_ended(&bed.over_ssh("send", &["data", "localhost:"]), 0);
    bed.file("there/data/extra", 10);
    bed.file("there/data/sub/deep/extra", 10);
    bed.file("there/beside", 10);
    let sent = bed.over_ssh("send", &["-v", "--delete", "data", "localhost:"]);
    assert_ended(&sent, 0);
    assert_alike(&bed.path("data"), &bed.path("there/data"));
    assert!(bed.path("there/beside").exists(), "what lies outside the directories that were sent stays");
    assert!(sent.err.contains("3 deleted"), "{sent:#?}");
    // If this side is the sink, it names the deleted files.
    bed.file("back/data/extra", 10);
    let fetched = bed.over_ssh("fetch", &["-v", "--delete", "localhost:data", "back"]);
    assert_ended(&fetched, 0);
    assert!(fetched.out.contains("data/extra': deleted"), "{fetched:#?}");
    assert_alike(&bed.path("data"), &bed.path("back/data"));
}

#[test]
fn a_dry_run_changes_nothing_and_says_what_it_would_do() {
    let bed = Bed::new();
    bed.tree("data");
    assert_ended(&bed.over_ssh("send", &["data", "localhost:"]), 0);
    bed.file("there/data/extra", 10);
    bed.file("data/new", 10);
    let before = portrait(&bed.path("there"));
    let sent = bed.over_ssh("send", &["-n", "--delete", "--update", "data", "localhost:"]);
    assert_ended(&sent, 0);
    assert!(sent.out.contains("new'") && sent.out.contains("would be sent"), "{sent:#?}");
    assert!(sent.err.contains("1 would be deleted"), "{sent:#?}");
    before.assert_same(&portrait(&bed.path("there")), Facets::ALL);
    let sent = bed.over_ssh("send", &["-n", "data", "localhost:missing"]);
    assert!(!bed.path("there/missing").exists(), "{sent:#?}");
    let fetched = bed.over_ssh("fetch", &["-n", "localhost:data", "missing"]);
    assert!(!bed.path("missing").exists(), "{fetched:#?}");
}

#[test]
fn update_rules_leave_what_is_there() {
    let bed = Bed::new();
    bed.tree("data");
    assert_ended(&bed.over_ssh("send", &["data", "localhost:"]), 0);
    let big = bed.path("there/data/big");
    let ino = || fs::metadata(&big).unwrap().ino();
    let first = ino();
    for rule in ["--update", "--update=newer", "--update=missing", "--update=digest", "--checksum"] {
        let sent = bed.over_ssh("send", &["--json", rule, "data", "localhost:"]);
        assert_ended(&sent, 0);
        assert_eq!(ino(), first, "{rule}: {sent:#?}");
        assert!(summary(&sent.out)["same"].as_u64().unwrap() >= 5, "{rule}: {sent:#?}");
    }
    assert_ended(&bed.over_ssh("send", &["data", "localhost:"]), 0);
    assert_ne!(ino(), first, "without a rule all is sent");
}

#[test]
fn the_rule_by_object_sends_only_objects_that_differ() {
    let bed = Bed::new();
    bed.tree("data");
    let options = ["--object-size=64K", "--json", "--update=object", "data", "localhost:"];
    assert_ended(&bed.over_ssh("send", &options), 0);
    for (at, in_place) in [&[][..], &["--inplace"]].into_iter().enumerate() {
        let ino = || fs::metadata(bed.path("there/data/big")).unwrap().ino();
        let before = ino();
        let mut changed = fs::read(bed.path("data/big")).unwrap();
        changed[300_000 + at] ^= 1;
        fs::write(bed.path("data/big"), &changed).unwrap();
        let sent = bed.over_ssh("send", &[in_place, &options].concat());
        assert_ended(&sent, 0);
        assert_alike(&bed.path("data"), &bed.path("there/data"));
        let wire = summary(&sent.out)["wire"]["out"].as_u64().unwrap();
        assert!(wire < 3 * 65_536, "one object of eleven differs, and {wire} bytes travelled: {sent:#?}");
        assert_eq!(ino() == before, !in_place.is_empty(), "{in_place:?}");
    }
}

#[test]
fn filters_hold_in_the_order_they_were_typed() {
    let bed = Bed::new();
    bed.tree("data");
    bed.file("data/sub/keep.o", 7);
    bed.file("data/a.o", 7);
    let send = |target: &str, options: &[&str]| {
        assert_ended(&bed.over_ssh("send", &[options, &["data", target]].concat()), 0);
    };
    send("localhost:one", &["--exclude=*.o", "--include=keep.o"]);
    assert!(bed.path("there/one/data/sub/keep.o").exists() && !bed.path("there/one/data/a.o").exists());
    send("localhost:two", &["--include=keep.o", "--exclude=*.o", "--exclude=sub/"]);
    assert!(!bed.path("there/two/data/sub").exists() && !bed.path("there/two/data/a.o").exists());
    assert!(bed.path("there/two/data/big").exists());
}

#[test]
fn a_fetch_is_filtered_by_the_side_that_has_the_files() {
    let bed = Bed::new();
    bed.tree("there/data");
    bed.file("there/data/sub/keep.o", 7);
    bed.file("there/data/a.o", 7);
    let rules = ["--exclude=*.o", "--include=keep.o", "--exclude=/data/big"];
    let fetch = |target: &str, options: &[&str]| {
        let fetched = bed.over_ssh("fetch", &[&rules, options, &["localhost:data", target]].concat());
        assert_ended(&fetched, 0);
    };
    fetch("one", &[]);
    let has = |name: &str| bed.path(name).exists();
    assert!(
        has("one/data/sub/keep.o") && has("one/data/small") && !has("one/data/a.o") && !has("one/data/big")
    );
    // A filtered file is not deleted; a file that the source does not have is deleted.
    bed.file("one/data/a.o", 3);
    bed.file("one/data/extra", 3);
    fetch("one", &["--delete"]);
    assert!(has("one/data/a.o") && !has("one/data/extra"));
    let _server = bed.serve(&["--root", "there", "--read-only"]);
    let args = ["fetch", "--ticket-file", "ticket", "--exclude=sub/", ":data/", "two"];
    assert_ended(&bed.run(&args), 0);
    assert!(has("two/big") && has("two/a.o") && !has("two/sub"));
}

#[test]
fn what_is_fetched_may_come_from_a_list() {
    let bed = Bed::new();
    bed.tree("there/data");
    let _server = bed.serve(&["--root", "there", "--read-only"]);
    fs::write(bed.path("list"), ":data/big\n:data/sub\n").unwrap();
    assert_ended(&bed.run(&["fetch", "--ticket-file", "ticket", "--files-from=list", "in"]), 0);
    assert_alike(&bed.path("there/data/sub"), &bed.path("in/sub"));
    assert!(bed.path("in/big").exists() && !bed.path("in/small").exists());
    let both = bed.run(&["fetch", "--ticket-file=-", "--files-from=-", "in"]);
    assert_ended(&both, 2);
    fs::write(bed.path("list"), ":data/big\0:data/sub\0").unwrap();
    let no_lines = bed.run(&["fetch", "--ticket-file", "ticket", "--files-from=list", "in"]);
    assert_ended(&no_lines, 2);
    assert!(no_lines.err.contains("-0"), "{no_lines:#?}");
}

/// Creates `count` names of one file in `there/data`, beneath the directories `dirs`, and returns
/// their paths.
fn many_names(bed: &Bed, count: usize, dirs: &str) -> Vec<String> {
    fs::create_dir_all(bed.path("there/data").join(dirs)).unwrap();
    let names: Vec<String> = (0..count).map(|name| format!("data/{dirs}f{name:05}")).collect();
    let path = |name: &String| bed.path("there").join(name);
    fs::write(path(&names[0]), dirs).unwrap();
    names[1..].iter().for_each(|name| fs::hard_link(path(&names[0]), path(name)).unwrap());
    names
}

/// Earlier versions accepted at most 256 names for one job.
#[test]
fn a_list_may_be_of_very_many_names() {
    let bed = Bed::new();
    let names = many_names(&bed, 20_000, "");
    let _server = bed.serve(&["--root", "there", "--read-only"]);
    let list: String = names.iter().map(|name| format!(":{name}\n")).collect();
    fs::write(bed.path("list"), list).unwrap();
    assert_ended(&bed.run(&["fetch", "--ticket-file", "ticket", "--files-from=list", "in"]), 0);
    assert_alike(&bed.path("there/data"), &bed.path("in"));
}

/// The list is longer than a line of the dialogue over ssh may be.
#[test]
fn a_long_list_goes_over_ssh_as_well() {
    let bed = Bed::new();
    let dirs = format!("{}/{}/", "d".repeat(250), "e".repeat(250));
    let names = many_names(&bed, 2500, &dirs);
    let list: String = names.iter().map(|name| format!("localhost:{name}\n")).collect();
    assert!(list.len() > 1 << 20);
    fs::write(bed.path("list"), list).unwrap();
    for (into, options) in [("beside", &[][..]), ("inside", &["--inside-ssh"])] {
        let fetched = bed.over_ssh("fetch", &[options, &["--files-from=list", into]].concat());
        assert_ended(&fetched, 0);
        assert_alike(&bed.path("there/data").join(&dirs), &bed.path(into));
    }
}

/// In earlier versions each name kept a directory open from the start.
#[test]
fn a_long_list_needs_few_descriptors() {
    let bed = Bed::new();
    let names = many_names(&bed, 1500, "");
    let list: String = names.iter().map(|name| format!("there/{name}\n")).collect();
    fs::write(bed.path("list"), list).unwrap();
    let haul = env!("CARGO_BIN_EXE_haul");
    let ssh = format!("sh {}", bed.path("fake-ssh").display());
    let sent = Command::new("sh")
        .args(["-c", "ulimit -n 256 && exec \"$@\"", "sh", haul, "send", "-e", &ssh, "--remote-haul", haul])
        .args(["--files-from=list", "localhost:in"])
        .env("XDG_STATE_HOME", bed.path("state"))
        .env_remove("SSH_CONNECTION")
        .current_dir(bed.path(""))
        .output()
        .unwrap();
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    assert_alike(&bed.path("there/data"), &bed.path("there/in"));
}

#[test]
fn operands_may_come_from_a_list() {
    let bed = Bed::new();
    bed.tree("data");
    fs::write(bed.path("list"), "data/big\0data/sub\0").unwrap();
    assert_ended(&bed.over_ssh("send", &["--files-from=list", "-0", "localhost:in"]), 0);
    assert_alike(&bed.path("data/sub"), &bed.path("there/in/sub"));
    assert!(bed.path("there/in/big").exists() && !bed.path("there/in/small").exists());
}

#[test]
fn what_stands_in_the_way_is_named_and_left() {
    let bed = Bed::new();
    bed.tree("data");
    fs::create_dir_all(bed.path("there/data/small/full")).unwrap();
    let sent = bed.over_ssh("send", &["data", "localhost:"]);
    assert_ended(&sent, 1);
    assert!(sent.err.contains("small") && sent.err.contains("1 failed"), "{sent:#?}");
    assert!(bed.path("there/data/small/full").is_dir());
    assert_eq!(fs::read(bed.path("there/data/big")).unwrap(), fs::read(bed.path("data/big")).unwrap());
    bed.file("there/file", 3);
    let sent = bed.over_ssh("send", &["data", "localhost:file"]);
    assert_ended(&sent, 2);
    assert!(sent.err.contains("is not a directory"), "{sent:#?}");
}

#[test]
fn no_link_of_the_sink_leads_out_of_it() {
    let bed = Bed::new();
    bed.tree("data");
    fs::create_dir_all(bed.path("there/in/data")).unwrap();
    fs::create_dir(bed.path("outside")).unwrap();
    std::os::unix::fs::symlink(bed.path("outside"), bed.path("there/in/data/sub")).unwrap();
    let sent = bed.over_ssh("send", &["data", "localhost:in"]);
    assert_eq!(fs::read_dir(bed.path("outside")).unwrap().count(), 0, "{sent:#?}");
}

#[test]
fn events_and_the_summary_are_json() {
    let bed = Bed::new();
    bed.tree("data");
    let sent = bed.over_ssh("send", &["--json", "data", "localhost:"]);
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
fn command_lines_that_mean_nothing_are_refused_with_the_next_step() {
    let bed = Bed::new();
    bed.tree("data");
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
        let ended = bed.run(args);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(words), "{words}: {ended:#?}");
    }
}

fn summary(out: &str) -> Value {
    serde_json::from_str(out.lines().last().unwrap()).unwrap()
}
