//! `haul repair` with a hostile replica on another host: forged bytes, metadata and names.

use super::{Fixture, RunResult, assert_ended, assert_no_strays, bytes};
use crate::repair::untrusted::{forge_crc32, write_waybill};
use crate::waybill::rot;
use haul_digest::Algorithm;
use haul_lab::needs::{Need, met_or_skip};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};

/// Creates a tree with its waybill, and its replica on the other host.
fn fixture() -> Fixture {
    let fixture = Fixture::new();
    fixture.tree("data");
    assert_ended(&fixture.run(&["sum", "-r", "--waybill", "w", "data"]), 0);
    fs::create_dir(fixture.path("there/replica")).unwrap();
    assert_ended(&fixture.run(&["cp", "-a", "data", "there/replica"]), 0);
    fixture
}

/// Repairs over ssh, and from a server by its ticket. Calls `ready` before each repair, and `check`
/// with its result.
fn each_way(fixture: &Fixture, more: &[&str], ready: impl Fn(), check: impl Fn(&RunResult)) {
    ready();
    check(&fixture.over_ssh("repair", &[&["w", ".", "--from", "localhost:replica"], more].concat()));
    assert_no_strays(fixture.home.path());
    let server = fixture.serve(&["--root", "there/replica", "--read-only"]);
    ready();
    check(&fixture.run(&[&["repair", "w", ".", "--from", ":", "--ticket-file", "ticket"], more].concat()));
    assert_no_strays(fixture.home.path());
    drop(server);
}

#[test]
fn forged_bytes_from_another_host_are_not_accepted() {
    let fixture = fixture();
    write_waybill(fixture.home.path(), &[Algorithm::Crc32], &[]);
    fs::rename(fixture.path("w2"), fixture.path("w")).unwrap();
    let honest = bytes(700_000, 700_001);
    let change = |bytes: &mut [u8]| bytes[..7].copy_from_slice(b"forged!");
    rot(&fixture.path("there/replica/data/big"), |bytes| forge_crc32(bytes, change));
    let big = fixture.path("data/big");
    let restore = || {
        rot(&big, |bytes| {
            bytes.copy_from_slice(&honest);
            bytes[9] ^= 1;
        });
    };
    each_way(&fixture, &[], restore, |ended| {
        assert_ended(ended, 1);
        let reason =
            "'data/big': not repaired: cannot prove the bytes of a replica: crc32, the strongest digest";
        assert!(ended.out.starts_with(reason) && ended.out.contains("--trust-replica"), "{ended:#?}");
        assert!(!ended.err.contains("requesting"), "nothing is fetched: {ended:#?}");
        assert_ne!(fs::read(&big).unwrap()[..7], *b"forged!");
    });
    each_way(&fixture, &["--trust-replica"], restore, |ended| {
        assert_ended(ended, 0);
        assert_eq!(fs::read(&big).unwrap()[..7], *b"forged!");
    });
}

/// Owners, modes and attributes of a remote replica, names that the waybill does not have, and
/// links and pipes in place of its files.
#[test]
fn metadata_and_names_of_another_host_are_not_used() {
    if !met_or_skip(&[Need::Root, Need::Program("setfattr"), Need::Program("getfattr")]) {
        return;
    }
    let fixture = fixture();
    let replica = fixture.path("there/replica/data");
    for name in ["small", "one", "sub", "sub/x y"] {
        chown(replica.join(name), Some(65534), Some(65534)).unwrap();
        fs::set_permissions(replica.join(name), PermissionsExt::from_mode(0o6777)).unwrap();
    }
    fs::write(replica.join("sub/extra"), "planted").unwrap();
    symlink("/etc", replica.join("sub/link")).unwrap();
    let fifo = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o6777));
    rustix::fs::mknodat(rustix::fs::CWD, replica.join("sub/pipe"), fifo.0, fifo.1, 0).unwrap();
    let script = "setfattr -n user.note -v planted small one sub 'sub/x y'";
    let set = std::process::Command::new("sh").args(["-c", script]).current_dir(&replica).status().unwrap();
    assert!(set.success());
    let ready = || {
        rot(&fixture.path("data/one"), |bytes| bytes[1] ^= 1);
        fs::remove_file(fixture.path("data/small")).unwrap();
        fs::remove_dir_all(fixture.path("data/sub")).unwrap();
    };
    each_way(&fixture, &[], ready, |ended| {
        assert_ended(ended, 0);
        for (name, mode) in [("one", 0o644), ("small", 0o644), ("sub", 0o700), ("sub/x y", 0o644)] {
            let facts = fs::metadata(fixture.path("data").join(name)).unwrap();
            assert_eq!((facts.mode() & 0o7777, facts.uid(), facts.gid()), (mode, 0, 0), "{name}");
        }
        let names = |name: &str| fs::read_dir(fixture.path(name)).unwrap().count();
        assert_eq!((names("data"), names("data/sub")), (5, 1), "no name of the replica arrived");
        let mut shown = std::process::Command::new("getfattr");
        let shown = shown.args(["-R", "-d", "data"]).current_dir(fixture.home.path()).output().unwrap();
        assert!(shown.status.success() && shown.stdout.is_empty(), "{shown:?}");
        assert_ended(&fixture.run(&["verify", "-q", "w", "."]), 0);
    });
}
