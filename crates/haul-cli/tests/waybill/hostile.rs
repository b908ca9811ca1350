//! Waybills with paths out of the root, and waybills of a later version. Each command refuses them
//! with line and reason, and neither opens, writes nor prints the files that they name.

use super::{good, run, tree};
use crate::repair::refused::{crc32, entry, forged, names_that_lead_out, with_a_far_object};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;

/// An inotify watch for accesses to a directory.
struct Watch(OwnedFd);

impl Watch {
    fn over(dir: &Path) -> Watch {
        let watch = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).unwrap();
        let touched = WatchFlags::OPEN | WatchFlags::ACCESS | WatchFlags::MODIFY | WatchFlags::CREATE;
        inotify::add_watch(&watch, dir, touched | WatchFlags::ATTRIB | WatchFlags::MOVE | WatchFlags::DELETE)
            .unwrap();
        Watch(watch)
    }

    /// Returns the number of events since the previous call.
    fn seen(&self) -> usize {
        let mut room = [MaybeUninit::uninit(); 4096];
        let mut events = Reader::new(&self.0, &mut room);
        let mut seen = 0;
        loop {
            match events.next() {
                Ok(_) => seen += 1,
                Err(Errno::WOULDBLOCK) => return seen,
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn no_name_in_a_waybill_opens_a_path_outside_the_root() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    for name in ["root/sub", "replica/absolute", "replica/relative", "replica/sub", "outside"] {
        fs::create_dir_all(dir.join(name)).unwrap();
    }
    // A command that left the root would find everything as the waybill says, or bytes to repair
    // with.
    fs::write(dir.join("outside/f"), "precious").unwrap();
    for name in ["absolute/f", "relative/f", "last", "sub/f"] {
        fs::write(dir.join("replica").join(name), "precious").unwrap();
    }
    symlink(dir.join("outside"), dir.join("root/absolute")).unwrap();
    symlink("../outside", dir.join("root/relative")).unwrap();
    symlink("../outside/f", dir.join("root/last")).unwrap();
    symlink(dir.join("outside"), dir.join("replica/linked")).unwrap();
    let watch = Watch::over(&dir.join("outside"));
    let absolute = dir.join("outside/f").to_str().unwrap().to_owned();
    let commands: [&[&str]; 8] = [
        &["verify", "w", "root"],
        &["verify", "--cached", "--locate", "w", "root"],
        &["verify", "--extra", "--json", "w", "root"],
        &["repair", "w", "root", "--from", "replica"],
        &["repair", "w", "root", "--from", "replica", "--in-place", "--modified", "--keep-damaged", "kept"],
        &["waybill", "check", "w"],
        &["waybill", "export", "w"],
        &["waybill", "show", "w"],
    ];
    for (path, reason) in [
        ("../outside/f", "it contains '..'"),
        ("sub/../../outside/f", "it contains '..'"),
        ("%2E./outside/f", "it contains '..'"),
        (&*absolute, "it is absolute"),
        ("sub//f", "a component of it is empty or '.'"),
    ] {
        fs::write(dir.join("w"), forged(&[entry(path)])).unwrap();
        for command in commands {
            let ran = run(dir, command);
            assert_eq!(ran.status, Some(2), "{path}: {command:?}: {ran:?}");
            let reported = format!("line 2: invalid path: {reason}");
            assert!(format!("{}{}", ran.err, ran.out).contains(&reported), "{path}: {command:?}: {ran:?}");
            assert!(!ran.out.contains("outside"), "{path}: {command:?}: {ran:?}");
        }
        assert_eq!(watch.seen(), 0, "{path}");
    }
    for path in ["absolute/f", "relative/f", "last"] {
        fs::write(dir.join("w"), forged(&[entry(path)])).unwrap();
        for command in &commands[..5] {
            let ran = run(dir, command);
            assert_eq!(ran.status, Some(1), "{path}: {command:?}: {ran:?}");
        }
        assert_eq!(watch.seen(), 0, "{path}");
    }
    fs::write(dir.join("root/sub/f"), "precious").unwrap();
    symlink("../outside/none", dir.join("root/dangling")).unwrap();
    for entries in names_that_lead_out() {
        fs::write(dir.join("w"), forged(&entries)).unwrap();
        for command in &commands[..5] {
            let ran = run(dir, command);
            assert_eq!(ran.status, Some(1), "{entries:?}: {command:?}: {ran:?}");
        }
        assert_eq!(watch.seen(), 0, "{entries:?}");
    }
    // A replica that leads outside is not read for a repair either. The name `here` exists because
    // repair refuses a root that has none of the names.
    fs::write(dir.join("root/here"), "x").unwrap();
    fs::write(dir.join("w"), forged(&[entry("here"), entry("linked/f")])).unwrap();
    let ran = run(dir, &["repair", "w", "root", "--from", "replica"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    assert!(ran.out.contains("no replica has the correct bytes 0-8"), "{ran:?}");
    assert_eq!(watch.seen(), 0);
    assert!(!dir.join("kept").exists() || fs::read_dir(dir.join("kept")).unwrap().count() == 0);
    // The watch does report accesses.
    fs::read(dir.join("outside/f")).unwrap();
    assert!(watch.seen() > 0);
}

/// Regression: after a damaged line the number of an object was arbitrary, and the list of digests
/// up to it ended the process.
#[test]
fn an_object_number_takes_no_memory() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    for name in ["root", "replica"] {
        fs::create_dir(dir.join(name)).unwrap();
        fs::write(dir.join(name).join("f"), "short").unwrap();
    }
    fs::write(dir.join("w"), with_a_far_object()).unwrap();
    for command in [
        &["verify", "w", "root"][..],
        &["verify", "--cached", "--locate", "w", "root"],
        &["repair", "w", "root", "--from", "replica"],
        &["waybill", "check", "w"],
    ] {
        let ran = run(dir, command);
        let said = format!("{}{}", ran.err, ran.out);
        assert!(ran.status == Some(2) && said.contains("line 3: checksum mismatch"), "{command:?}: {ran:?}");
    }
}

/// Returns a valid waybill with another version in its first line, which all versions have.
fn of_version(version: u32, whole: &str) -> String {
    let (head, rest) = whole.split_once('\n').unwrap();
    let body = head[..head.len() - 8].replace("version=1 ", &format!("version={version} "));
    format!("{body}{:08x}\n{rest}", crc32(0, body.as_bytes()))
}

#[test]
fn a_newer_version_is_refused_by_every_command_and_not_appended_to() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    tree(dir);
    good(dir, &["sum", "-r", "--waybill", "w", "data"]);
    let newer = of_version(2, &fs::read_to_string(dir.join("w")).unwrap());
    fs::write(dir.join("w"), &newer).unwrap();
    fs::create_dir(dir.join("replica")).unwrap();
    fs::remove_file(dir.join("data/small")).unwrap();
    fs::write(dir.join("key"), "no key").unwrap();
    let commands: [(&[&str], i32); 9] = [
        (&["verify", "w"], 2),
        (&["verify", "--extra", "--sample=5", "w"], 2),
        (&["repair", "w", ".", "--from", "replica"], 2),
        (&["waybill", "check", "w"], 2),
        (&["waybill", "show", "w"], 2),
        (&["waybill", "export", "w"], 2),
        (&["waybill", "sign", "--key", "key", "w"], 2),
        (&["sum", "--waybill", "w", "data/big"], 1),
        (&["cp", "--waybill", "w", "data/big", "copy"], 1),
    ];
    for (command, status) in commands {
        let ran = run(dir, command);
        assert_eq!((ran.status, &*ran.out), (Some(status), ""), "{command:?}: {ran:?}");
        let reported = "line 1: unsupported waybill version 2 (this program supports up to 1)";
        assert!(ran.err.contains(reported), "{command:?}: {ran:?}");
        assert_eq!(fs::read_to_string(dir.join("w")).unwrap(), newer, "{command:?}");
    }
    assert!(!dir.join("copy").exists());
    // A waybill with the same lines and this version can be appended to.
    fs::write(dir.join("w"), of_version(1, &newer.replace("version=2", "version=1"))).unwrap();
    good(dir, &["sum", "--waybill", "w", "data/big"]);
}
