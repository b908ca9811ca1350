//! `haul repair` with replicas on other hosts: only damaged bytes travel, haul accepts only correct
//! bytes, and no temporary file remains.

use super::stopped::{far_sides, wait_until};
use super::{Bed, Ended, assert_alike, assert_ended, assert_no_strays, bytes};
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
fn bed() -> Bed {
    let bed = Bed::new();
    bed.tree("data");
    summed(&bed);
    bed
}

fn summed(bed: &Bed) {
    let sum = ["sum", "-r", "-a", "blake3,md5", "--object-size", "64K", "--waybill", "w", "data"];
    // The output may not be UTF-8.
    assert!(bed.haul(&sum).output().unwrap().status.success());
    copied(bed, "there/replica");
}

/// Creates a complete replica in this directory.
fn copied(bed: &Bed, replica: &str) {
    fs::create_dir_all(bed.path(replica)).unwrap();
    assert_ended(&bed.run(&["cp", "-a", "data", replica]), 0);
}

const FROM_THERE: [&str; 4] = ["w", ".", "--from", "localhost:replica"];

fn repair(bed: &Bed, more: &[&str]) -> Ended {
    bed.over_ssh("repair", &[&FROM_THERE[..], more].concat())
}

/// Returns the events of this kind from a run with `--json`.
fn events(ended: &Ended, kind: &str) -> Vec<Value> {
    let all = ended.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    all.filter(|event| event["event"] == kind).collect()
}

/// Returns the number of bytes received over the network.
#[track_caller]
fn received(ended: &Ended) -> u64 {
    events(ended, "summary")[0]["received"].as_u64().unwrap()
}

/// Asserts that all files match the waybill and that no temporary file remains.
#[track_caller]
fn assert_whole(bed: &Bed) {
    let ended = bed.run(&["verify", "-q", "w", "."]);
    assert!((ended.status, &*ended.out) == (Some(0), ""), "{ended:#?}");
    assert_no_strays(bed.home.path());
}

#[test]
fn damage_of_every_shape_is_mended_and_only_damaged_objects_travel() {
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
    let bed = bed();
    let server = bed.serve(&["--root", "there/replica", "--read-only"]);
    let by_ticket = ["repair", "w", ".", "--from", ":", "--ticket-file", "ticket", "--json"];
    for (what, change, objects) in changes {
        for way in ["beside ssh", "inside ssh", "ticket"] {
            rot(&bed.path("data/big"), change);
            let ended = match way {
                "beside ssh" => repair(&bed, &["--json"]),
                "inside ssh" => repair(&bed, &["--json", "--inside-ssh"]),
                _ => bed.run(&by_ticket),
            };
            assert_ended(&ended, 0);
            let asked = events(&ended, "asks");
            assert_eq!((asked.len(), &asked[0]["files"]), (1, &1.into()), "{what}, {way}: {asked:?}");
            let travelled = received(&ended);
            assert!(travelled <= objects * OBJECT + BESIDE, "{what}, {way}: {travelled} bytes came");
            assert_whole(&bed);
        }
    }
    drop(server);
}

#[test]
fn swapped_files_are_mended_each_from_its_own() {
    let bed = Bed::new();
    for (name, seed) in [("a", 1), ("b", 2)] {
        bed.file("data/x", 0);
        fs::write(bed.path("data").join(name), bytes(200_000, seed)).unwrap();
    }
    summed(&bed);
    let (a, b) = (bed.path("data/a"), bed.path("data/b"));
    let (of_a, of_b) = (fs::read(&a).unwrap(), fs::read(&b).unwrap());
    rot(&a, |bytes| *bytes = of_b);
    rot(&b, |bytes| *bytes = of_a);
    let ended = repair(&bed, &[]);
    assert_ended(&ended, 0);
    assert!(ended.err.contains("asking 'localhost:replica' for 390.6 KiB of 2 files"), "{ended:#?}");
    assert_whole(&bed);
}

#[test]
fn missing_files_come_whole_and_those_cut_off_by_request() {
    let bed = bed();
    let before = fs::metadata(bed.path("data/sub/x y")).unwrap();
    fs::remove_dir_all(bed.path("data/sub")).unwrap();
    fs::remove_file(bed.path("data/empty")).unwrap();
    fs::remove_file(bed.path("data/one")).unwrap();
    rot(&bed.path("data/big"), |bytes| bytes.truncate(400_000));
    let ended = repair(&bed, &["--json"]);
    assert_ended(&ended, 1);
    assert!(received(&ended) <= 65_536 + 5000 + BESIDE, "{ended:#?}");
    let entries = events(&ended, "entry");
    let left: Vec<&Value> = entries.iter().filter(|entry| entry["result"] == "left").collect();
    assert!(left.len() == 1 && left[0]["path"] == "data/big", "{entries:?}");
    let after = fs::metadata(bed.path("data/sub/x y")).unwrap();
    let facts = |of: &fs::Metadata| (of.mode(), of.mtime(), of.mtime_nsec(), of.uid());
    assert_eq!(facts(&before), facts(&after));
    let ended = repair(&bed, &["--json", "--modified", "--keep-damaged", "kept"]);
    assert_ended(&ended, 0);
    // The bytes before the truncation stay. The repair fetches everything from the truncated object
    // on.
    assert!(received(&ended) <= 5 * OBJECT + BESIDE, "{ended:#?}");
    assert_eq!(fs::metadata(bed.path("kept/data/big.0-400000")).unwrap().len(), 400_000);
    assert_whole(&bed);
}

/// Entries without data come last, so that a directory keeps its times although files are created
/// in it.
#[test]
fn missing_directories_and_names_are_made_after_the_files_in_them() {
    let bed = Bed::new();
    bed.tree("data");
    fs::hard_link(bed.path("data/small"), bed.path("data/zweite")).unwrap();
    std::os::unix::fs::symlink("small", bed.path("data/link")).unwrap();
    copied(&bed, "there/replica");
    fs::create_dir(bed.path("copies")).unwrap();
    assert_ended(&bed.run(&["cp", "-a", "--waybill", "w", "data", "copies"]), 0);
    let times = || {
        let facts = fs::metadata(bed.path("copies/data/sub")).unwrap();
        (facts.mode(), facts.mtime(), facts.mtime_nsec())
    };
    let before = times();
    fs::remove_dir_all(bed.path("copies/data/sub")).unwrap();
    for name in ["small", "zweite", "link"] {
        fs::remove_file(bed.path("copies/data").join(name)).unwrap();
    }
    let ended = bed.over_ssh("repair", &["w", "copies", "--from", "localhost:replica"]);
    assert_ended(&ended, 0);
    assert_eq!(times(), before);
    assert_eq!(fs::metadata(bed.path("copies/data/zweite")).unwrap().nlink(), 2);
    assert_eq!(fs::read_link(bed.path("copies/data/link")).unwrap(), Path::new("small"));
    assert_alike(&bed.path("data"), &bed.path("copies/data"));
    assert_no_strays(bed.home.path());
}

#[test]
fn nobody_is_asked_when_nothing_is_damaged_or_a_replica_of_this_host_has_it() {
    let bed = bed();
    copied(&bed, "a");
    let ended = repair(&bed, &[]);
    assert_ended(&ended, 0);
    rot(&bed.path("data/big"), |bytes| bytes[70_000] ^= 1);
    let ended = bed.over_ssh("repair", &["w", ".", "--from", "a", "--from", "localhost:replica"]);
    assert_ended(&ended, 0);
    assert_eq!(ended.out, "'data/big': repaired: bytes 65536-131072 from 'a'\n");
    assert!(!bed.path("argv").exists(), "a login happened");
    assert_whole(&bed);
}

#[test]
fn another_host_is_asked_only_for_what_those_before_it_lack_and_the_next_for_the_rest() {
    let bed = bed();
    copied(&bed, "a");
    copied(&bed, "there/second");
    rot(&bed.path("data/big"), |bytes| bytes[..200_000].fill(7));
    rot(&bed.path("a/data/big"), |bytes| bytes[70_000] ^= 1);
    rot(&bed.path("a/data/big"), |bytes| bytes[140_000] ^= 1);
    rot(&bed.path("there/replica/data/big"), |bytes| bytes[140_000] ^= 1);
    let replicas = ["--from", "a", "--from", "localhost:replica", "--from", "localhost:second"];
    let ended = bed.over_ssh("repair", &[&["w", ".", "--json"], &replicas[..]].concat());
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
    assert_whole(&bed);
}

#[test]
fn a_rotten_replica_of_another_host_makes_nothing_worse() {
    let bed = bed();
    rot(&bed.path("data/big"), |bytes| bytes[70_000..270_000].fill(0));
    rot(&bed.path("data/one"), |bytes| bytes[3] ^= 1);
    let changes: [fn(&Path); 4] = [
        |path| rot(path, |bytes| bytes[80_000] ^= 1),
        |path| rot(path, |bytes| bytes.truncate(100_000)),
        |path| rot(path, |bytes| *bytes = vec![0; 3 * BIG]),
        |path| fs::remove_file(path).unwrap(),
    ];
    let before = fs::read(bed.path("data/big")).unwrap();
    let facts = fs::metadata(bed.path("data/big")).unwrap();
    for change in changes {
        let copy = bed.path("there/replica/data/big");
        change(&copy);
        let ended = repair(&bed, &[]);
        assert_ended(&ended, 1);
        assert!(
            ended.out.contains("'data/big': not repaired: no replica has the correct bytes"),
            "{ended:#?}"
        );
        assert!(fs::read(bed.path("data/big")).unwrap() == before);
        let now = fs::metadata(bed.path("data/big")).unwrap();
        assert_eq!((now.ino(), now.mtime_nsec()), (facts.ino(), facts.mtime_nsec()));
        assert_no_strays(bed.home.path());
        fs::write(&copy, bytes(BIG, BIG as u64 + 1)).unwrap();
    }
    assert_eq!(fs::read(bed.path("data/one")).unwrap(), bytes(65_536, 65_537), "the other was repaired");
    assert_ended(&repair(&bed, &[]), 0);
    assert_whole(&bed);
}

/// A symbolic link that leads out of the replica, a directory and a pipe in place of the requested
/// files.
#[test]
fn what_is_no_file_there_is_not_taken_and_led_nowhere() {
    let bed = bed();
    fs::write(bed.path("there/secret"), bytes(65_536, 65_537)).unwrap();
    let replica = bed.path("there/replica/data");
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
        rot(&bed.path("data").join(name), |bytes| bytes[3] ^= 1);
        fs::remove_file(replica.join(name)).unwrap();
        put(&replica.join(name));
    }
    let ended = repair(&bed, &[]);
    assert_ended(&ended, 1);
    assert_eq!(ended.out.matches("not repaired: no replica has the correct bytes").count(), 3, "{ended:#?}");
    assert_no_strays(bed.home.path());
}

#[test]
fn a_host_that_is_not_reached_is_told_and_the_others_are_asked() {
    let bed = bed();
    copied(&bed, "a");
    let script = fs::read_to_string(bed.path("fake-ssh")).unwrap();
    let script = script.replace("shift\n", "test \"$1\" = down && exit 255\nshift\n");
    fs::write(bed.path("fake-ssh"), script).unwrap();
    let hurt = || rot(&bed.path("data/big"), |bytes| bytes[70_000] ^= 1);
    hurt();
    let before = fs::read(bed.path("data/big")).unwrap();
    let alone = bed.over_ssh("repair", &["w", ".", "--from", "down:replica", "--json"]);
    assert_ended(&alone, 2);
    assert!(alone.err.contains("'down:replica': cannot log in to down with ssh"), "{alone:#?}");
    assert_eq!(events(&alone, "error")[0]["from"], "down:replica");
    assert_eq!(events(&alone, "summary")[0]["unreached"], 1);
    assert!(fs::read(bed.path("data/big")).unwrap() == before);
    for other in ["a", "localhost:replica"] {
        let ended = bed.over_ssh("repair", &["w", ".", "--from", "down:replica", "--from", other]);
        assert_ended(&ended, 0);
        assert!(ended.err.contains("'down:replica': cannot log in"), "{ended:#?}");
        assert_eq!(ended.out, format!("'data/big': repaired: bytes 65536-131072 from '{other}'\n"));
        assert_whole(&bed);
        hurt();
    }
    // A directory that does not exist, and a server that has exited.
    let ended = bed.over_ssh("repair", &["w", ".", "--from", "localhost:nowhere"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("nowhere") && ended.err.contains("No such file or directory"), "{ended:#?}");
    drop(bed.serve(&["--root", "there/replica"]));
    let ended = bed.run(&["repair", "w", ".", "--from", ":", "--ticket-file", "ticket"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("':': cannot connect to the remote host"), "{ended:#?}");
    assert_no_strays(bed.home.path());
}

#[test]
fn each_served_replica_has_its_ticket_or_all_have_one() {
    let bed = bed();
    rot(&bed.path("data/big"), |bytes| bytes[70_000] ^= 1);
    copied(&bed, "there/rotten");
    rot(&bed.path("there/rotten/data/big"), |bytes| bytes[70_000] ^= 2);
    let one = bed.serve(&["--root", "there/rotten"]);
    fs::rename(bed.path("ticket"), bed.path("ticket1")).unwrap();
    let other = bed.serve(&["--root", "there"]);
    let mended = "'data/big': repaired: bytes 65536-131072 from ':replica'\n";
    let from = ["repair", "w", ".", "--from", ":", "--from", ":replica"];
    let ended = bed.run(&[&from[..], &["--ticket-file", "ticket1", "--ticket-file", "ticket"]].concat());
    assert_ended(&ended, 0);
    assert_eq!(ended.out, mended);
    rot(&bed.path("data/big"), |bytes| bytes[70_000] ^= 1);
    let from = ["repair", "w", ".", "--from", ":rotten", "--from", ":replica", "--ticket-file", "ticket"];
    let ended = bed.run(&from);
    assert_ended(&ended, 0);
    assert_eq!(ended.out, mended);
    assert_whole(&bed);
    drop((one, other));
    let ticket = fs::read_to_string(bed.path("ticket")).unwrap();
    for (words, told) in [
        (&["--from", ":replica"][..], "use HOST:PATH, or --ticket-file FILE"),
        (&["--from", "a", "--ticket-file", "ticket"], "--ticket-file"),
        (&["--from", ":", "--ticket-file", "ticket", "--ticket-file", "ticket1"], "one for each"),
        (&["--from", ":", "--ticket-file", "nowhere"], "cannot read the ticket"),
        (&["--from", "a b:/x"], "invalid host name"),
        (&["--from", ticket.trim()], "refusing a ticket on the command line"),
    ] {
        let ended = bed.run(&[&["repair", "w", "."], words].concat());
        assert_ended(&ended, 2);
        assert!(ended.err.contains(told) && !ended.err.contains(ticket.trim()), "{told}: {ended:#?}");
    }
}

#[test]
fn a_colon_behind_a_slash_is_of_this_host() {
    let bed = bed();
    copied(&bed, "local:replica");
    rot(&bed.path("data/big"), |bytes| bytes[70_000] ^= 1);
    let ended = bed.over_ssh("repair", &["w", ".", "--from", "./local:replica"]);
    assert_ended(&ended, 0);
    assert_eq!(ended.out, "'data/big': repaired: bytes 65536-131072 from './local:replica'\n");
    assert!(!bed.path("argv").exists());
}

#[test]
fn a_dry_run_asks_nobody_and_says_so() {
    let bed = bed();
    copied(&bed, "a");
    rot(&bed.path("data/big"), |bytes| bytes[70_000] ^= 1);
    let ended = repair(&bed, &["--dry-run"]);
    assert_ended(&ended, 1);
    let words =
        "no replica on this host has the correct bytes 65536-131072, and a dry run does not ask other hosts";
    assert_eq!(ended.out, format!("'data/big': not repaired: {words}\n"));
    let ended = repair(&bed, &["--dry-run", "--from", "a"]);
    assert_ended(&ended, 0);
    assert_eq!(ended.out, "'data/big': would be repaired: bytes 65536-131072 from 'a'\n");
    assert!(!bed.path("argv").exists());
    assert_no_strays(bed.home.path());
}

/// The owner of a missing file comes from another host. The repaired file therefore gets no setuid
/// or setgid bit.
#[test]
fn no_program_gets_rights_from_another_host() {
    let bed = Bed::new();
    bed.tree("data");
    fs::set_permissions(bed.path("data/one"), fs::Permissions::from_mode(0o6755)).unwrap();
    summed(&bed);
    fs::remove_file(bed.path("data/one")).unwrap();
    assert_ended(&repair(&bed, &[]), 0);
    assert_eq!(fs::metadata(bed.path("data/one")).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read(bed.path("data/one")).unwrap(), bytes(65_536, 65_537));
}

#[test]
fn leaves_of_a_waybill_bring_the_smallest_objects_and_files_in_place_stay_the_same() {
    let bed = Bed::new();
    bed.file("data/big", 5 << 20);
    let sum = ["sum", "-r", "--leaf", "--waybill", "w", "data"];
    assert_ended(&bed.run(&sum), 0);
    copied(&bed, "there/replica");
    rot(&bed.path("data/big"), |bytes| bytes[3_000_000] ^= 1);
    let before = fs::metadata(bed.path("data/big")).unwrap().ino();
    let ended = repair(&bed, &["--json", "--in-place"]);
    assert_ended(&ended, 0);
    assert!(received(&ended) <= OBJECT + BESIDE, "{ended:#?}");
    let mended = &events(&ended, "entry")[0]["mended"];
    assert_eq!(mended[0]["range"], serde_json::json!([2_999_296, 3_000_320]));
    assert_eq!(fs::metadata(bed.path("data/big")).unwrap().ino(), before);
    assert_whole(&bed);
}

#[test]
fn names_that_are_no_text_or_mean_something_in_patterns_are_found_there() {
    use std::os::unix::ffi::OsStrExt;
    let bed = Bed::new();
    let names: [&[u8]; 6] = [b"*", b"a[1]?/!x", b"#y ", b"\xff\xfe/z\n", "ä/{b,c}".as_bytes(), b"\\"];
    let path = |name: &[u8]| bed.path("data").join(std::ffi::OsStr::from_bytes(name));
    for (number, name) in names.iter().enumerate() {
        fs::create_dir_all(path(name).parent().unwrap()).unwrap();
        fs::write(path(name), bytes(3000, number as u64)).unwrap();
    }
    summed(&bed);
    names.iter().for_each(|name| rot(&path(name), |bytes| bytes[5] ^= 1));
    let ended = repair(&bed, &[]);
    assert_ended(&ended, 0);
    assert_whole(&bed);
}

#[test]
fn a_full_disk_is_told_with_the_next_step_and_leaves_everything() {
    if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    const MIB: u64 = 1 << 20;
    let small = SmallFs::new(48).unwrap();
    let bed = Bed::new();
    let root = small.path().to_str().unwrap().to_owned();
    fs::create_dir(small.path().join("data")).unwrap();
    fs::write(small.path().join("data/big"), bytes(16 << 20, 1)).unwrap();
    let sum = ["sum", "-r", "--object-size", "64K", "--waybill", "w", &format!("{root}/data")];
    assert_ended(&bed.run(&sum), 0);
    fs::create_dir_all(bed.path("there/replica")).unwrap();
    assert_ended(&bed.run(&["cp", "-aT", &format!("{root}/data"), "there/replica"]), 0);
    rot(&small.path().join("data/big"), |bytes| bytes[9 << 20..12 << 20].fill(0));
    let before = fs::read(small.path().join("data/big")).unwrap();
    let data = format!("{root}/data");
    let args = ["w", &data, "--from", "localhost:replica", "--in-place"];
    small.leave(MIB).unwrap();
    let ended = bed.over_ssh("repair", &args);
    assert_ended(&ended, 1);
    assert!(ended.err.contains("no space for received data; free space, or use --staging DIR"), "{ended:#?}");
    assert!(fs::read(small.path().join("data/big")).unwrap() == before);
    assert_eq!(fs::read_dir(&data).unwrap().count(), 1, "nothing is left beside it");
    // If there is space for the journal alone, `--staging` stores the fetched data elsewhere.
    small.leave(5 * MIB).unwrap();
    fs::create_dir(bed.path("elsewhere")).unwrap();
    let ended = bed.over_ssh("repair", &[&args[..], &["--staging", "elsewhere"]].concat());
    assert_ended(&ended, 0);
    assert!(fs::read(small.path().join("data/big")).unwrap() == bytes(16 << 20, 1));
    assert_eq!(fs::read_dir(bed.path("elsewhere")).unwrap().count(), 0);
    assert_ended(&bed.run(&["cp", "-a", &format!("{data}/big"), "big"]), 0);
    rot(&bed.path("big"), |bytes| bytes[9 << 20..12 << 20].fill(0));
    small.close().unwrap();
    let ended = bed.over_ssh("repair", &["w", ".", "--from", "localhost:replica", "--staging", "nowhere"]);
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
fn slow(bed: &Bed, rate: &str, objects: u64) -> Child {
    fs::remove_file(bed.path("data/huge")).unwrap();
    let ssh = format!("sh {}", bed.path("fake-ssh").display());
    let args = ["repair", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), rate];
    let mut command = bed.haul(&[&args[..], &FROM_THERE].concat());
    let child = command.stdin(Stdio::null()).stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    wait_until("some of the file", || staged(bed) >= objects * OBJECT);
    child
}

/// Returns the number of bytes on the disk beneath staging directories.
fn staged(bed: &Bed) -> u64 {
    let Ok(found) = fs::read_dir(bed.path(".haul-fetched-0")) else { return 0 };
    let file = |entry: fs::DirEntry| fs::metadata(entry.path().join("data/huge")).ok();
    found.flatten().filter_map(file).map(|facts| facts.blocks() * 512).sum()
}

fn bed_with_huge() -> Bed {
    let bed = Bed::new();
    bed.file("data/huge", 6 << 20);
    bed.file("data/small", 100);
    summed(&bed);
    bed
}

#[test]
fn killed_while_it_fetches_the_next_repair_takes_what_came_and_asks_for_the_rest() {
    let bed = bed_with_huge();
    let mut child = slow(&bed, HALF_A_MEBIBYTE, CAME);
    child.kill().unwrap();
    child.wait().unwrap();
    let there = bed.path("there").canonicalize().unwrap();
    wait_until("the exit of the remote haul", || far_sides(&there).is_empty());
    let came = staged(&bed);
    assert!(!bed.path("data/huge").exists());
    let ended = repair(&bed, &["--json"]);
    assert_ended(&ended, 0);
    let travelled = received(&ended);
    // Each lane may have received a part of its last object.
    let most = (6 << 20) - came + 8 * OBJECT + BESIDE;
    assert!(came >= CAME * OBJECT && travelled <= most, "{came} were there, and {travelled} travelled");
    assert_eq!(fs::read(bed.path("data/huge")).unwrap(), bytes(6 << 20, (6 << 20) + 1));
    assert_whole(&bed);
}

#[test]
fn killed_and_needed_no_more_what_came_is_removed_by_the_next_repair() {
    let bed = bed_with_huge();
    let mut child = slow(&bed, HALF_A_MEBIBYTE, CAME);
    child.kill().unwrap();
    child.wait().unwrap();
    copied(&bed, "a");
    fs::create_dir_all(bed.path("a/data")).unwrap();
    fs::copy(bed.path("there/replica/data/huge"), bed.path("a/data/huge")).unwrap();
    assert_ended(&bed.run(&["repair", "w", ".", "--from", "a"]), 0);
    assert_whole(&bed);
}

#[test]
fn interrupted_while_it_fetches_nothing_stays_and_two_at_once_keep_apart() {
    let bed = bed_with_huge();
    // The repair would take most of a minute.
    let child = slow(&bed, "--bwlimit=128K", 2);
    // A concurrent repair of the same files has a staging directory of its own.
    let other = repair(&bed, &["--json"]);
    assert_ended(&other, 0);
    assert!(bed.path(".haul-fetched-0").exists() && !bed.path(".haul-fetched-1").exists());
    fs::remove_file(bed.path("data/huge")).unwrap();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(130), "{told}");
    assert!(told.contains("interrupted: the remaining files were not repaired"), "{told}");
    assert!(!bed.path("data/huge").exists());
    assert_no_strays(bed.home.path());
    let there = bed.path("there").canonicalize().unwrap();
    wait_until("the exit of the remote haul", || far_sides(&there).is_empty());
    assert_ended(&repair(&bed, &[]), 0);
    assert_whole(&bed);
}
