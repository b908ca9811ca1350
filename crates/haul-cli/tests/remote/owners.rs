//! Owners on two hosts where the same users have different numbers: each side has its own users and
//! groups.

use super::{Fixture, by};
use haul_lab::needs::{Need, met_or_skip};
use rustix::fs::{XattrFlags, lgetxattr, lsetxattr};
use std::fs;
use std::os::unix::fs::{MetadataExt, lchown, symlink};
use std::path::Path;
use std::process::Stdio;

/// Names and numbers of the users on each side. The group of each user has the next number.
const HERE: [(&str, u32); 2] = [("alice", 41_000), ("carol", 42_000)];
const THERE: [(&str, u32); 2] = [("alice", 51_000), ("mallory", 41_000)];

/// Number of a user that neither side knows.
const STRANGER: u32 = 43_000;

/// Creates user and group files for one side of the test. Returns shell words that mount these
/// files and then execute the following command.
fn seeing(fixture: &Fixture, side: &str, users: &[(&str, u32)]) -> String {
    let dir = fixture.path(&format!("users-{side}"));
    fs::create_dir(&dir).unwrap();
    let lines = |line: &dyn Fn(&str, u32) -> String| -> String {
        [("root", 0)].iter().chain(users).map(|(name, number)| line(name, *number)).collect()
    };
    let group = |number: u32| if number == 0 { 0 } else { number + 1 };
    let passwd = |name: &str, number| format!("{name}:x:{number}:{}::/:/bin/sh\n", group(number));
    fs::write(dir.join("passwd"), lines(&passwd)).unwrap();
    fs::write(dir.join("group"), lines(&|name, number| format!("{name}:x:{}:\n", group(number)))).unwrap();
    let bind = |name: &str| format!("mount --bind {}/{name} /etc/{name}", dir.display());
    format!("{} && {} && exec \"$@\"", bind("passwd"), bind("group"))
}

/// Returns a test directory whose remote side has its own users, and the shell words that give the
/// local side its users.
fn fixture() -> (Fixture, String) {
    let fixture = Fixture::new();
    let (here, there) = (seeing(&fixture, "here", &HERE), seeing(&fixture, "there", &THERE));
    let script = fs::read_to_string(fixture.path("fake-ssh")).unwrap();
    let own = format!("exec unshare -m sh -c '{there}' sh sh");
    fs::write(fixture.path("fake-ssh"), script.replace("exec sh", &own)).unwrap();
    for (name, owner) in [("alices", 41_000), ("carols", 42_000), ("strange", STRANGER)] {
        fixture.file(&format!("data/{name}/f"), 100);
        symlink("f", fixture.path(&format!("data/{name}/l"))).unwrap();
        for path in ["", "/f", "/l"] {
            lchown(fixture.path(&format!("data/{name}{path}")), Some(owner), Some(owner + 1)).unwrap();
        }
    }
    (fixture, here)
}

#[track_caller]
fn transfer(fixture: &Fixture, here: &str, command: &str, args: &[&str]) {
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let haul =
        fixture.haul(&[&[command, "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul")], args].concat());
    let ended = by(&["unshare", "-m", "sh", "-c", here, "sh"], &haul).stdin(Stdio::null()).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Asserts the owners of the entries beneath `dir`: for alice, for carol, and for the unknown user.
#[track_caller]
fn assert_owners(dir: &Path, owners: [u32; 3]) {
    for (name, owner) in ["alices", "carols", "strange"].into_iter().zip(owners) {
        for path in ["", "/f", "/l"] {
            let path = dir.join(format!("{name}{path}"));
            let facts = fs::symlink_metadata(&path).unwrap();
            assert_eq!((facts.uid(), facts.gid()), (owner, owner + 1), "{}", path.display());
        }
    }
}

#[test]
fn owners_map_by_name_or_by_number_if_requested_or_unknown() {
    if !met_or_skip(&[Need::Root, Need::Mount, Need::Program("unshare")]) {
        return;
    }
    let (fixture, here) = fixture();
    transfer(&fixture, &here, "send", &["data", "localhost:names"]);
    assert_owners(&fixture.path("there/names/data"), [51_000, 42_000, STRANGER]);
    transfer(&fixture, &here, "send", &["--numeric-ids", "data", "localhost:numbers"]);
    assert_owners(&fixture.path("there/numbers/data"), [41_000, 42_000, STRANGER]);
    transfer(&fixture, &here, "fetch", &["localhost:names/data", "back"]);
    assert_owners(&fixture.path("back/data"), [41_000, 42_000, STRANGER]);
    transfer(&fixture, &here, "fetch", &["--numeric-ids", "localhost:names/data", "same"]);
    assert_owners(&fixture.path("same/data"), [51_000, 42_000, STRANGER]);
}

/// Returns an ACL in the format of the kernel (linux/posix_acl_xattr.h). In addition to the owners,
/// one user and one group may read.
fn list(user: u32) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries: [(u16, u16, u32); 6] = [
        (0x01, 6, NOBODY),
        (0x02, 4, user),
        (0x04, 4, NOBODY),
        (0x08, 4, user + 1),
        (0x10, 4, NOBODY),
        (0x20, 0, NOBODY),
    ];
    let bytes = |(tag, permissions, number): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &number.to_le_bytes()].concat()
    };
    [2_u32.to_le_bytes().to_vec(), entries.into_iter().flat_map(bytes).collect()].concat()
}

/// Files with an access ACL, a directory with a default ACL, and the attribute name of each.
const LISTED: [(&str, &str); 4] = [
    ("alices/f", "system.posix_acl_access"),
    ("alices", "system.posix_acl_default"),
    ("carols/f", "system.posix_acl_access"),
    ("strange/f", "system.posix_acl_access"),
];

/// Numbers identify different users on each host. Earlier versions kept the numbers in an ACL,
/// which gave rights to the users with these numbers at the sink.
#[test]
fn acl_entries_map_by_name_as_owners_do() {
    if !met_or_skip(&[Need::Root, Need::Mount, Need::Program("unshare")]) {
        return;
    }
    let (fixture, here) = fixture();
    for ((path, list_of), user) in LISTED.into_iter().zip([41_000, 41_000, 42_000, STRANGER]) {
        lsetxattr(fixture.path("data").join(path), list_of, &list(user), XattrFlags::empty()).unwrap();
    }
    let assert_lists = |dir: &str, users: [u32; 4]| {
        for ((path, list_of), user) in LISTED.into_iter().zip(users) {
            let mut found = [0; 200];
            let len = lgetxattr(fixture.path(dir).join(path), list_of, &mut found).unwrap();
            assert_eq!(found[..len], list(user), "{dir}/{path}");
        }
    };
    transfer(&fixture, &here, "send", &["data", "localhost:names"]);
    assert_lists("there/names/data", [51_000, 51_000, 42_000, STRANGER]);
    transfer(&fixture, &here, "send", &["--numeric-ids", "data", "localhost:numbers"]);
    assert_lists("there/numbers/data", [41_000, 41_000, 42_000, STRANGER]);
    transfer(&fixture, &here, "fetch", &["localhost:names/data", "back"]);
    assert_lists("back/data", [41_000, 41_000, 42_000, STRANGER]);
    // With `--no-owner`, the ACLs still give rights to the right users.
    transfer(&fixture, &here, "send", &["--no-owner", "data", "localhost:own"]);
    assert_lists("there/own/data", [51_000, 51_000, 42_000, STRANGER]);
}
