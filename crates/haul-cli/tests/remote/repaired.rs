//! `haul repair` with replicas on other hosts: only damaged bytes travel, haul accepts only correct
//! bytes, and no temporary file remains.

use super::stopped::{remote_processes, wait_until};
use super::{Fixture, RunResult, assert_alike, assert_ended, assert_no_strays, bytes};
use crate::waybill::rot;
use haul_lab::mounts::SmallFs;
use haul_lab::needs::{Need, met_or_skip};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Stdio};

const OBJECT: u64 = 65_536;
const BIG: usize = 700_000;

/// Maximum number of bytes on the network in addition to objects: the hello of both sides, names,
/// frames.
const BESIDE: u64 = 24 << 10;

/// Returns a test directory with a tree `data`, its waybill `w`, and its replica in `replica` on
/// the other host.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.tree("data");
    summed(&fixture);
    fixture
}

fn summed(fixture: &Fixture) {
    let sum = ["sum", "-r", "-a", "blake3,md5", "--object-size", "64K", "--waybill", "w", "data"];
    // The output may not be UTF-8.
    assert!(fixture.haul(&sum).output().unwrap().status.success());
    copied(fixture, "there/replica");
}

/// Creates a complete replica in this directory.
fn copied(fixture: &Fixture, replica: &str) {
    fs::create_dir_all(fixture.path(replica)).unwrap();
    assert_ended(&fixture.run(&["cp", "-a", "data", replica]), 0);
}

const FROM_THERE: [&str; 4] = ["w", ".", "--from", "localhost:replica"];

fn repair(fixture: &Fixture, more: &[&str]) -> RunResult {
    fixture.over_ssh("repair", &[&FROM_THERE[..], more].concat())
}

/// Returns the events of this kind from a run with `--json`.
fn events(ended: &RunResult, kind: &str) -> Vec<Value> {
    let all = ended.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|event| event["event"] == kind).collect()
}

/// Returns the number of bytes received over the network.
#[track_caller]
fn received(ended: &RunResult) -> u64 {
    events(ended, "summary")[0]["received"].as_u64().unwrap()
}

/// Asserts that all files match the waybill and that no temporary file remains.
#[track_caller]
fn assert_whole(fixture: &Fixture) {
    let ended = fixture.run(&["verify", "-q", "w", "."]);
    assert!((ended.status, &*ended.out) == (Some(0), ""), "{ended:#?}");
    assert_no_strays(fixture.home.path());
}

#[test]
fn repair_fetches_only_damaged_objects() {
    type Change = fn(&mut Vec<u8>);
    let changes: [(&str, Change, u64); 6] = [
        ("a flip", |bytes| bytes[77] ^= 1, 1),
        ("flips far apart", |bytes| [5, 300_000, BIG - 1].iter().for_each(|&at| bytes[at] ^= 0x10), 3),
        ("zeroed", |bytes| bytes[100_000..140_000].fill(0), 2),
        (
            "swapped objects",
            |bytes| {
                let (head, tail) = bytes.split_at_mut(131_072);
                head[..65_536].swap_with_slice(&mut tail[..65_536]);
            },
            2,
        ),
        ("the end", |bytes| bytes[BIG - 1] ^= 1, 1),
        ("all of it", |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 1), 11),
    ];
    let fixture = fixture();
    let server = fixture.serve(&["--root", "there/replica", "--read-only"]);
    let by_ticket = ["repair", "w", ".", "--from", ":", "--ticket-file", "ticket", "--json"];
    for (what, change, objects) in changes {
        for way in ["beside ssh", "inside ssh", "ticket"] {
            rot(&fixture.path("data/big"), change);
            let ended = match way {
                "beside ssh" => repair(&fixture, &["--json"]),
                "inside ssh" => repair(&fixture, &["--json", "--inside-ssh"]),
                _ => fixture.run(&by_ticket),
            };
            assert_ended(&ended, 0);
            let asked = events(&ended, "asks");
            assert_eq!((asked.len(), &asked[0]["files"]), (1, &1.into()), "{what}, {way}: {asked:?}");
            let travelled = received(&ended);
            assert!(travelled <= objects * OBJECT + BESIDE, "{what}, {way}: {travelled} bytes came");
            assert_whole(&fixture);
        }
    }
    drop(server);
}

#[test]
fn swapped_files_are_each_repaired_from_the_right_replica_file() {
    let fixture = Fixture::new();
    for (name, seed) in [("a", 1), ("b", 2)] {
        fixture.file("data/x", 0);
        fs::write(fixture.path("data").join(name), bytes(200_000, seed)).unwrap();
    }
    summed(&fixture);
    let (a, b) = (fixture.path("data/a"), fixture.path("data/b"));
    let (of_a, of_b) = (fs::read(&a).unwrap(), fs::read(&b).unwrap());
    rot(&a, |bytes| *bytes = of_b);
    rot(&b, |bytes| *bytes = of_a);
    let ended = repair(&fixture, &[]);
    assert_ended(&ended, 0);
    assert!(ended.err.contains("requesting 390.6 KiB of 2 files from 'localhost:replica'"), "{ended:#?}");
    assert_whole(&fixture);
}

#[test]
fn missing_files_are_fetched_and_truncated_files_on_request() {
    let fixture = fixture();
    let before = fs::metadata(fixture.path("data/sub/x y")).unwrap();
    fs::remove_dir_all(fixture.path("data/sub")).unwrap();
    fs::remove_file(fixture.path("data/empty")).unwrap();
    fs::remove_file(fixture.path("data/one")).unwrap();
    rot(&fixture.path("data/big"), |bytes| bytes.truncate(400_000));
    let ended = repair(&fixture, &["--json"]);
    assert_ended(&ended, 1);
    assert!(received(&ended) <= 65_536 + 5000 + BESIDE, "{ended:#?}");
    let entries = events(&ended, "entry");
    let left: Vec<&Value> = entries.iter().filter(|entry| entry["result"] == "left").collect();
    assert!(left.len() == 1 && left[0]["path"] == "data/big", "{entries:?}");
    let after = fs::metadata(fixture.path("data/sub/x y")).unwrap();
    let facts = |of: &fs::Metadata| (of.mode(), of.mtime(), of.mtime_nsec(), of.uid());
    assert_eq!(facts(&before), facts(&after));
    let ended = repair(&fixture, &["--json", "--modified", "--keep-damaged", "kept"]);
    assert_ended(&ended, 0);
    // The bytes before the truncation stay. The repair fetches everything from the truncated object
    // on.
    assert!(received(&ended) <= 5 * OBJECT + BESIDE, "{ended:#?}");
    assert_eq!(fs::metadata(fixture.path("kept/data/big.0-400000")).unwrap().len(), 400_000);
    assert_whole(&fixture);
}

/// Entries without data come last, so that a directory keeps its times although files are created
/// in it.
#[test]
fn directories_and_links_are_created_after_the_files() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::hard_link(fixture.path("data/small"), fixture.path("data/zweite")).unwrap();
    std::os::unix::fs::symlink("small", fixture.path("data/link")).unwrap();
    copied(&fixture, "there/replica");
    fs::create_dir(fixture.path("copies")).unwrap();
    assert_ended(&fixture.run(&["cp", "-a", "--waybill", "w", "data", "copies"]), 0);
    let times = || {
        let facts = fs::metadata(fixture.path("copies/data/sub")).unwrap();
        (facts.mode(), facts.mtime(), facts.mtime_nsec())
    };
    let before = times();
    fs::remove_dir_all(fixture.path("copies/data/sub")).unwrap();
    for name in ["small", "zweite", "link"] {
        fs::remove_file(fixture.path("copies/data").join(name)).unwrap();
    }
    let ended = fixture.over_ssh("repair", &["w", "copies", "--from", "localhost:replica"]);
    assert_ended(&ended, 0);
    assert_eq!(times(), before);
    assert_eq!(fs::metadata(fixture.path("copies/data/zweite")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(fixture.path("copies/data/link")).unwrap(), Path::new("small"));
    assert_alike(&fixture.path("data"), &fixture.path("copies/data"));
    assert_no_strays(fixture.home.path());
}

#[test]
fn no_host_is_contacted_if_local_data_suffices() {
    let fixture = fixture();
    copied(&fixture, "a");
    let ended = repair(&fixture, &[]);
    assert_ended(&ended, 0);
    rot(&fixture.path("data/big"), |bytes| bytes[70_000] ^= 1);
    let ended = fixture.over_ssh("repair", &["w", ".", "--from", "a", "--from", "localhost:replica"]);
    assert_ended(&ended, 0);
    assert_eq!(ended.out, "'data/big': repaired: bytes 65536-131072 from 'a'\n");
    assert!(!fixture.path("argv").exists(), "a login happened");
    assert_whole(&fixture);
}

#[test]
fn each_host_is_asked_only_for_data_that_earlier_replicas_lack() {
    let fixture = fixture();
    copied(&fixture, "a");
    copied(&fixture, "there/second");
    rot(&fixture.path("data/big"), |bytes| bytes[..200_000].fill(7));
    rot(&fixture.path("a/data/big"), |bytes| bytes[70_000] ^= 1);
    rot(&fixture.path("a/data/big"), |bytes| bytes[140_000] ^= 1);
    rot(&fixture.path("there/replica/data/big"), |bytes| bytes[140_000] ^= 1);
    let replicas = ["--from", "a", "--from", "localhost:replica", "--from", "localhost:second"];
    let ended = fixture.over_ssh("repair", &[&["w", ".", "--json"], &replicas[..]].concat());
    assert_ended(&ended, 0);
    let asked: Vec<(Value, Value)> =
        events(&ended, "asks").iter().map(|event| (event["from"].clone(), event["bytes"].clone())).collect();
    let expected = [("localhost:replica", 131_072), ("localhost:second", 65_536)];
    assert_eq!(asked, expected.map(|(from, bytes)| (from.into(), bytes.into())));
    let mended = &events(&ended, "entry")[0]["mended"];
    let came: Vec<(u64, &str)> = mended
        .as_array()
        .unwrap()
        .iter()
        .map(|part| (part["range"][0].as_u64().unwrap(), part["from"].as_str().unwrap()))
        .collect();
    let expected = [(0, "a"), (65_536, "localhost:replica"), (131_072, "localhost:second"), (196_608, "a")];
    assert_eq!(came, expected);
    assert_whole(&fixture);
}

/// In earlier versions a remote copy of ROOT itself sent nothing, although it was perfect.
#[test]
fn a_remote_replica_replaces_the_first_component_if_it_has_none_of_the_names() {
    let fixture = fixture();
    assert_ended(&fixture.run(&["cp", "-a", "data", "there/backup"]), 0);
    rot(&fixture.path("data/big"), |bytes| bytes[70_000] ^= 1);
    let ended = fixture.over_ssh("repair", &["w", "data", "--from", "localhost:backup", "--json"]);
    assert_ended(&ended, 0);
    assert!(received(&ended) <= OBJECT + 2 * BESIDE, "{ended:#?}");
    assert_whole(&fixture);
    fs::create_dir(fixture.path("there/empty")).unwrap();
    rot(&fixture.path("data/big"), |bytes| bytes[70_000] ^= 1);
    let ended = fixture.over_ssh("repair", &["w", "data", "--from", "localhost:empty"]);
    assert_ended(&ended, 1);
    assert!(ended.err.contains("it has none of the names that were requested"), "{ended:#?}");
}

#[test]
fn a_damaged_remote_replica_causes_no_further_damage() {
    let fixture = fixture();
    rot(&fixture.path("data/big"), |bytes| bytes[70_000..270_000].fill(0));
    rot(&fixture.path("data/one"), |bytes| bytes[3] ^= 1);
    let changes: [fn(&Path); 4] = [
        |path| rot(path, |bytes| bytes[80_000] ^= 1),
        |path| rot(path, |bytes| bytes.truncate(100_000)),
        |path| rot(path, |bytes| *bytes = vec![0; 3 * BIG]),
        |path| fs::remove_file(path).unwrap(),
    ];
    let before = fs::read(fixture.path("data/big")).unwrap();
    let facts = fs::metadata(fixture.path("data/big")).unwrap();
    for change in changes {
        let copy = fixture.path("there/replica/data/big");
        change(&copy);
        let ended = repair(&fixture, &[]);
        assert_ended(&ended, 1);
        assert!(
            ended.out.contains("'data/big': not repaired: no replica has the correct bytes"),
            "{ended:#?}"
        );
        assert!(fs::read(fixture.path("data/big")).unwrap() == before);
        let now = fs::metadata(fixture.path("data/big")).unwrap();
        assert_eq!((now.ino(), now.mtime_nsec()), (facts.ino(), facts.mtime_nsec()));
        assert_no_strays(fixture.home.path());
        fs::write(&copy, bytes(BIG, BIG as u64 + 1)).unwrap();
    }
    assert_eq!(fs::read(fixture.path("data/one")).unwrap(), bytes(65_536, 65_537), "the other was repaired");
    assert_ended(&repair(&fixture, &[]), 0);
    assert_whole(&fixture);
}

/// A symbolic link that leads out of the replica, a directory and a pipe in place of the requested
/// files.
#[test]
fn remote_replica_names_that_are_not_regular_files_are_not_used() {
    let fixture = fixture();
    fs::write(fixture.path("there/secret"), bytes(65_536, 65_537)).unwrap();
    let replica = fixture.path("there/replica/data");
    for (name, put) in [
        ("one", (|path: &Path| std::os::unix::fs::symlink("../../secret", path).unwrap()) as fn(&Path)),
        ("small", |path| fs::create_dir(path).unwrap()),
        ("sub/x y", |path| {
            rustix::fs::mknodat(
                rustix::fs::CWD,
                path,
                rustix::fs::FileType::Fifo,
                rustix::fs::Mode::from_raw_mode(0o600),
                0,
            )
            .unwrap();
        }),
    ] {
        rot(&fixture.path("data").join(name), |bytes| bytes[3] ^= 1);
        fs::remove_file(replica.join(name)).unwrap();
        put(&replica.join(name));
    }
    let ended = repair(&fixture, &[]);
    assert_ended(&ended, 1);
    assert_eq!(ended.out.matches("not repaired: no replica has the correct bytes").count(), 3, "{ended:#?}");
    assert_no_strays(fixture.home.path());
}

#[test]
fn an_unreachable_host_is_reported_and_the_others_are_asked() {
    let fixture = fixture();
    copied(&fixture, "a");
    let script = fs::read_to_string(fixture.path("fake-ssh")).unwrap();
    let script = script.replace("shift\n", "test \"$1\" = down && exit 255\nshift\n");
    fs::write(fixture.path("fake-ssh"), script).unwrap();
    let hurt = || rot(&fixture.path("data/big"), |bytes| bytes[70_000] ^= 1);
    hurt();
    let before = fs::read(fixture.path("data/big")).unwrap();
    let alone = fixture.over_ssh("repair", &["w", ".", "--from", "down:replica", "--json"]);
    assert_ended(&alone, 2);
    assert!(alone.err.contains("'down:replica': cannot log in to down with ssh"), "{alone:#?}");
    assert_eq!(events(&alone, "error")[0]["from"], "down:replica");
    assert_eq!(events(&alone, "summary")[0]["unreached"], 1);
    assert!(fs::read(fixture.path("data/big")).unwrap() == before);
    for other in ["a", "localhost:replica"] {
        let ended = fixture.over_ssh("repair", &["w", ".", "--from", "down:replica", "--from", other]);
        assert_ended(&ended, 0);
        assert!(ended.err.contains("'down:replica': cannot log in"), "{ended:#?}");
        assert_eq!(ended.out, format!("'data/big': repaired: bytes 65536-131072 from '{other}'\n"));
        assert_whole(&fixture);
        hurt();
    }
    // A directory that does not exist, and a server that has exited.
    let ended = fixture.over_ssh("repair", &["w", ".", "--from", "localhost:nowhere"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("nowhere") && ended.err.contains("No such file or directory"), "{ended:#?}");
    drop(fixture.serve(&["--root", "there/replica"]));
    let ended = fixture.run(&["repair", "w", ".", "--from", ":", "--ticket-file", "ticket"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("':': cannot connect to the remote host"), "{ended:#?}");
    assert_no_strays(fixture.home.path());
}

#[test]
fn served_replicas_use_one_ticket_each_or_a_common_ticket() {
    let fixture = fixture();
    rot(&fixture.path("data/big"), |bytes| bytes[70_000] ^= 1);
    copied(&fixture, "there/rotten");
    rot(&fixture.path("there/rotten/data/big"), |bytes| bytes[70_000] ^= 2);
    let one = fixture.serve(&["--root", "there/rotten"]);
    fs::rename(fixture.path("ticket"), fixture.path("ticket1")).unwrap();
    let other = fixture.serve(&["--root", "there"]);
    let mended = "'data/big': repaired: bytes 65536-131072 from ':replica'\n";
    let from = ["repair", "w", ".", "--from", ":", "--from", ":replica"];
    let ended = fixture.run(&[&from[..], &["--ticket-file", "ticket1", "--ticket-file", "ticket"]].concat());
    assert_ended(&ended, 0);
    assert_eq!(ended.out, mended);
    rot(&fixture.path("data/big"), |bytes| bytes[70_000] ^= 1);
    let from = ["repair", "w", ".", "--from", ":rotten", "--from", ":replica", "--ticket-file", "ticket"];
    let ended = fixture.run(&from);
    assert_ended(&ended, 0);
    assert_eq!(ended.out, mended);
    assert_whole(&fixture);
    drop((one, other));
    let ticket = fs::read_to_string(fixture.path("ticket")).unwrap();
    for (words, reported) in [
        (&["--from", ":replica"][..], "use HOST:PATH, or --ticket-file FILE"),
        (&["--from", "a", "--ticket-file", "ticket"], "--ticket-file"),
        (&["--from", ":", "--ticket-file", "ticket", "--ticket-file", "ticket1"], "one for each"),
        (&["--from", ":", "--ticket-file", "nowhere"], "cannot read the ticket"),
        (&["--from", "a b:/x"], "invalid host name"),
        (&["--from", ticket.trim()], "refusing a ticket on the command line"),
    ] {
        let ended = fixture.run(&[&["repair", "w", "."], words].concat());
        assert_ended(&ended, 2);
        assert!(ended.err.contains(reported) && !ended.err.contains(ticket.trim()), "{reported}: {ended:#?}");
    }
}

#[test]
fn a_replica_with_a_slash_before_the_colon_is_local() {
    let fixture = fixture();
    copied(&fixture, "local:replica");
    rot(&fixture.path("data/big"), |bytes| bytes[70_000] ^= 1);
    let ended = fixture.over_ssh("repair", &["w", ".", "--from", "./local:replica"]);
    assert_ended(&ended, 0);
    assert_eq!(ended.out, "'data/big': repaired: bytes 65536-131072 from './local:replica'\n");
    assert!(!fixture.path("argv").exists());
}

#[test]
fn a_dry_run_contacts_no_host_and_reports_that() {
    let fixture = fixture();
    copied(&fixture, "a");
    rot(&fixture.path("data/big"), |bytes| bytes[70_000] ^= 1);
    let ended = repair(&fixture, &["--dry-run"]);
    assert_ended(&ended, 1);
    let words =
        "no replica on this host has the correct bytes 65536-131072, and a dry run does not ask other hosts";
    assert_eq!(ended.out, format!("'data/big': not repaired: {words}\n"));
    let ended = repair(&fixture, &["--dry-run", "--from", "a"]);
    assert_ended(&ended, 0);
    assert_eq!(ended.out, "'data/big': would be repaired: bytes 65536-131072 from 'a'\n");
    assert!(!fixture.path("argv").exists());
    assert_no_strays(fixture.home.path());
}

/// The owner of a missing file comes from another host. The repaired file therefore gets no setuid
/// or setgid bit.
#[test]
fn repaired_files_get_no_setuid_bits_from_another_host() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::set_permissions(fixture.path("data/one"), fs::Permissions::from_mode(0o6755)).unwrap();
    summed(&fixture);
    fs::remove_file(fixture.path("data/one")).unwrap();
    assert_ended(&repair(&fixture, &[]), 0);
    assert_eq!(fs::metadata(fixture.path("data/one")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read(fixture.path("data/one")).unwrap(), bytes(65_536, 65_537));
}

#[test]
fn leaf_digests_limit_fetched_data_and_in_place_keeps_the_inode() {
    let fixture = Fixture::new();
    fixture.file("data/big", 5 << 20);
    let sum = ["sum", "-r", "--leaf", "--waybill", "w", "data"];
    assert_ended(&fixture.run(&sum), 0);
    copied(&fixture, "there/replica");
    rot(&fixture.path("data/big"), |bytes| bytes[3_000_000] ^= 1);
    let before = fs::metadata(fixture.path("data/big")).unwrap().ino();
    let ended = repair(&fixture, &["--json", "--in-place"]);
    assert_ended(&ended, 0);
    assert!(received(&ended) <= OBJECT + BESIDE, "{ended:#?}");
    let mended = &events(&ended, "entry")[0]["mended"];
    assert_eq!(mended[0]["range"], serde_json::json!([2_999_296, 3_000_320]));
    assert_eq!(fs::metadata(fixture.path("data/big")).unwrap().ino(), before);
    assert_whole(&fixture);
}

#[test]
fn names_with_pattern_characters_or_invalid_utf8_are_fetched() {
    use std::os::unix::ffi::OsStrExt;
    let fixture = Fixture::new();
    let names: [&[u8]; 6] = [b"*", b"a[1]?/!x", b"#y ", b"\xff\xfe/z\n", "ä/{b,c}".as_bytes(), b"\\"];
    let path = |name: &[u8]| fixture.path("data").join(std::ffi::OsStr::from_bytes(name));
    for (number, name) in names.iter().enumerate() {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), bytes(3000, number as u64)).unwrap();
    }
    summed(&fixture);
    names.iter().for_each(|name| rot(&path(name), |bytes| bytes[5] ^= 1));
    let ended = repair(&fixture, &[]);
    assert_ended(&ended, 0);
    assert_whole(&fixture);
}

#[test]
fn a_full_disk_is_reported_with_a_hint_and_changes_nothing() {
    if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    const MIB: u64 = 1 << 20;
    let small = SmallFs::new(48).unwrap();
    let fixture = Fixture::new();
    let root = small.path().to_str().unwrap().to_owned();
    fs::create_dir(small.path().join("data")).unwrap();
    fs::write(small.path().join("data/big"), bytes(16 << 20, 1)).unwrap();
    let sum = ["sum", "-r", "--object-size", "64K", "--waybill", "w", &format!("{root}/data")];
    assert_ended(&fixture.run(&sum), 0);
    fs::create_dir_all(fixture.path("there/replica")).unwrap();
    assert_ended(&fixture.run(&["cp", "-aT", &format!("{root}/data"), "there/replica"]), 0);
    rot(&small.path().join("data/big"), |bytes| bytes[9 << 20..12 << 20].fill(0));
    let before = fs::read(small.path().join("data/big")).unwrap();
    let data = format!("{root}/data");
    let args = ["w", &data, "--from", "localhost:replica", "--in-place"];
    small.leave(MIB).unwrap();
    let ended = fixture.over_ssh("repair", &args);
    assert_ended(&ended, 1);
    assert!(ended.err.contains("no space for received data; free space, or use --staging DIR"), "{ended:#?}");
    assert!(fs::read(small.path().join("data/big")).unwrap() == before);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "nothing is left beside it");
    // If there is space for the journal alone, `--staging` stores the fetched data elsewhere.
    small.leave(5 * MIB).unwrap();
    fs::create_dir(fixture.path("elsewhere")).unwrap();
    let ended = fixture.over_ssh("repair", &[&args[..], &["--staging", "elsewhere"]].concat());
    assert_ended(&ended, 0);
    assert!(fs::read(small.path().join("data/big")).unwrap() == bytes(16 << 20, 1));
    assert_eq!(fs::read_dir(fixture.path("elsewhere")).unwrap().count(), 0);
    assert_ended(&fixture.run(&["cp", "-a", &format!("{data}/big"), "big"]), 0);
    rot(&fixture.path("big"), |bytes| bytes[9 << 20..12 << 20].fill(0));
    small.close().unwrap();
    let ended =
        fixture.over_ssh("repair", &["w", ".", "--from", "localhost:replica", "--staging", "nowhere"]);
    assert_ended(&ended, 2);
    assert!(
        ended.err.contains("cannot store received data in 'nowhere': No such file or directory"),
        "{ended:#?}"
    );
}

/// Objects of a missing file (96 in total) that have arrived when a repair is interrupted.
const CAME: u64 = 40;

/// Rate limit of a repair that is to be interrupted, in bytes per second. The rest of the file
/// takes seven seconds.
const HALF_A_MEBIBYTE: &str = "--bwlimit=512K";

/// Starts a repair that fetches a missing file of 6 MiB at this rate. Returns the process when
/// `objects` objects have arrived.
fn slow(fixture: &Fixture, rate: &str, objects: u64) -> Child {
    fs::remove_file(fixture.path("data/huge")).unwrap();
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let args = ["repair", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), rate];
    let mut command = fixture.haul(&[&args[..], &FROM_THERE].concat());
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("some of the file", || staged(fixture) >= objects * OBJECT);
    child
}

/// Returns the number of bytes on the disk beneath staging directories.
fn staged(fixture: &Fixture) -> u64 {
    let Ok(found) = fs::read_dir(fixture.path(".haul-fetched-0")) else { return 0 };
    let file = |entry: fs::DirEntry| fs::metadata(entry.path().join("data/huge")).ok();
    found.flatten().filter_map(file).map(|facts| facts.blocks() * 512).sum()
}

fn fixture_with_huge() -> Fixture {
    let fixture = Fixture::new();
    fixture.file("data/huge", 6 << 20);
    fixture.file("data/small", 100);
    summed(&fixture);
    fixture
}

#[test]
fn repair_killed_while_fetching_resumes_with_the_fetched_data() {
    let fixture = fixture_with_huge();
    let mut child = slow(&fixture, HALF_A_MEBIBYTE, CAME);
    child.kill().unwrap();
    child.wait().unwrap();
    let there = fixture.path("there").canonicalize().unwrap();
    wait_until("the exit of the remote haul", || remote_processes(&there).is_empty());
    let came = staged(&fixture);
    assert!(!fixture.path("data/huge").exists());
    let ended = repair(&fixture, &["--json"]);
    assert_ended(&ended, 0);
    let travelled = received(&ended);
    // Each lane may have received a part of its last object.
    let most = (6 << 20) - came + 8 * OBJECT + BESIDE;
    assert!(came >= CAME * OBJECT && travelled <= most, "{came} were there, and {travelled} travelled");
    assert_eq!(fs::read(fixture.path("data/huge")).unwrap(), bytes(6 << 20, (6 << 20) + 1));
    assert_whole(&fixture);
}

#[test]
fn unneeded_fetched_data_is_removed_by_the_next_repair() {
    let fixture = fixture_with_huge();
    let mut child = slow(&fixture, HALF_A_MEBIBYTE, CAME);
    child.kill().unwrap();
    child.wait().unwrap();
    copied(&fixture, "a");
    fs::create_dir_all(fixture.path("a/data")).unwrap();
    fs::copy(fixture.path("there/replica/data/huge"), fixture.path("a/data/huge")).unwrap();
    assert_ended(&fixture.run(&["repair", "w", ".", "--from", "a"]), 0);
    assert_whole(&fixture);
}

#[test]
fn interrupted_fetch_is_cleaned_up_and_concurrent_repairs_are_separate() {
    let fixture = fixture_with_huge();
    // The repair would take most of a minute.
    let child = slow(&fixture, "--bwlimit=128K", 2);
    // A concurrent repair of the same files has a staging directory of its own.
    let other = repair(&fixture, &["--json"]);
    assert_ended(&other, 0);
    assert!(fixture.path(".haul-fetched-0").exists() && !fixture.path(".haul-fetched-1").exists());
    fs::remove_file(fixture.path("data/huge")).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let reported = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{reported}");
    assert!(reported.contains("interrupted: the remaining files were not repaired"), "{reported}");
    assert!(!fixture.path("data/huge").exists());
    assert_no_strays(fixture.home.path());
    let there = fixture.path("there").canonicalize().unwrap();
    wait_until("the exit of the remote haul", || remote_processes(&there).is_empty());
    assert_ended(&repair(&fixture, &[]), 0);
    assert_whole(&fixture);
}
