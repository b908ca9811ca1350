//! File systems that refuse attributes, lists, owners, modes, times, links, devices or space.
//! Messages and leftovers are those of cp.

use super::everything::{Holds, build};
use super::fixture::{Twins, assert_alike};
use crate::faults::fixture::FaultFixture;
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::snapshot::Facets;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Name and rules of each refusal.
const REFUSALS: [(&str, &str); 14] = [
    ("no attributes", "* xattr .. errno ENOTSUP"),
    ("no attributes, another error", "* xattr .. errno EPERM"),
    ("no room for attributes", "* xattr .. errno ENOSPC"),
    ("no owners", "* chown .. errno EPERM"),
    ("no owners, another error", "* chown .. errno EINVAL"),
    ("no modes and no attributes", "* chmod .. errno EPERM\n* xattr .. errno ENOTSUP"),
    ("no times", "* utimens .. errno EPERM"),
    ("no devices", "* mknod .. errno EPERM"),
    ("no pipes", "* mknod .. errno ENOSYS"),
    ("no symbolic links", "* symlink .. errno EPERM"),
    ("no room to be kept", "* allocate .. errno ENOTSUP"),
    ("no holes reported", "* seek .. errno ENOSYS"),
    // Operations that the kernel drivers for vfat and exFAT refuse, and the resolution of vfat's
    // times.
    (
        "like vfat",
        "* xattr .. errno ENOTSUP\n* chown .. errno EPERM\n* mknod .. errno EPERM\n* symlink .. errno EPERM\n\
         * link .. errno EPERM\n* stat .. coarse 2000\n* allocate .. errno ENOTSUP\n* seek .. errno ENOSYS",
    ),
    (
        "like an NFS server that trusts no root",
        "* chown .. errno EPERM\n* xattr .. errno ENOTSUP\n* mknod .. errno EPERM",
    ),
];

const OPTIONS: [&[&str]; 8] = [
    &["-a"],
    &["-r"],
    &["-rp"],
    &["-dR", "--preserve=all"],
    &["-r", "--preserve=xattr"],
    &["-r", "--preserve=mode"],
    &["-r", "--preserve=ownership"],
    &["-r", "--preserve=timestamps", "--attributes-only"],
];

/// Removes one of two names of each file, because the order of the directory decides which name is
/// first.
fn thin_out(source: &Path) {
    // Large files are removed, too: each rule and each option copies the tree.
    for name in ["sub/other name", "sub/other pipe", "large", "sparse"] {
        fs::remove_file(source.join("special").join(name)).unwrap();
    }
    fs::remove_dir_all(source.join("random")).unwrap();
}

/// Removes special files, because reading pipes and devices as files never ends.
fn unlink_nodes(source: &Path) {
    for name in ["pipe", "null", "loop7", "far", "socket"] {
        fs::remove_file(source.join("special").join(name)).unwrap();
    }
}

#[test]
fn sink_refusals_are_reported_as_in_gnu() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let mut wrong = Vec::new();
    for lists in [false, true] {
        let Some(fixture) = FaultFixture::new("") else { return };
        let Some(room) = shared_dir(FsKind::Ext4) else { return };
        let source = room.path().join("tree");
        build(&source, Holds { lists, attributes: true });
        thin_out(&source);
        for (name, rules) in REFUSALS {
            // Most options run only with lists; without lists, a few show if anything else differs.
            for (number, options) in
                OPTIONS.into_iter().enumerate().take(if lists { OPTIONS.len() } else { 2 })
            {
                fixture.rules(rules);
                let args: Vec<&OsStr> =
                    options.iter().map(OsStr::new).chain([source.as_os_str(), "z".as_ref()]).collect();
                let twins = Twins::run(&fixture.path("view"), &format!("z{number}"), &args);
                let keeps_times = options
                    .iter()
                    .any(|o| ["-a", "-rp", "--preserve=all", "--preserve=timestamps"].contains(o));
                let facets = match name {
                    // haul sets times last, as the mark of a complete copy. GNU sets times first
                    // and then skips the rest. The other metadata therefore differs on purpose.
                    "no times" => Facets { links: true, ..Facets::CONTENT },
                    _ => Facets { mtime: keeps_times, dir_mtime: keeps_times, ..Facets::ARCHIVE },
                };
                // Rules for reading attributes would affect the comparison.
                fixture.rules(if rules.contains("coarse") { "* stat .. coarse 2000" } else { "" });
                let text = twins.differences("z", facets);
                if !text.is_empty() {
                    wrong.push((format!("{name} {options:?} lists {lists}"), text));
                }
                twins.remove();
            }
        }
    }
    assert_alike(&wrong);
}

#[test]
fn source_refusals_are_reported_as_in_gnu() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let Some(fixture) = FaultFixture::new("") else { return };
    let Some(sink) = shared_dir(FsKind::Ext4) else { return };
    let store = fixture.path("store/tree");
    build(&store, Holds { lists: false, attributes: true });
    thin_out(&store);
    unlink_nodes(&store);
    let mut wrong = Vec::new();
    for rules in [
        "* xattr .. errno ENOTSUP",
        "* xattr .. errno EACCES",
        "* seek .. errno ENOSYS",
        "* seek .. errno EINVAL",
    ] {
        for options in [&["-a"][..], &["-r"], &["-r", "--preserve=all"], &["-r", "--preserve=xattr"]] {
            fixture.rules(rules);
            let source = fixture.path("view/tree");
            let args: Vec<&OsStr> =
                options.iter().map(OsStr::new).chain([source.as_os_str(), "z".as_ref()]).collect();
            let twins = Twins::run(sink.path(), "z", &args);
            fixture.rules("");
            let text = twins.differences("z", Facets { mtime: false, dir_mtime: false, ..Facets::ARCHIVE });
            if !text.is_empty() {
                wrong.push((format!("{rules} {options:?}"), text));
            }
            twins.remove();
        }
    }
    assert_alike(&wrong);
}

/// Second names without hard links: one name arrives, and the other is reported. The order of the
/// work decides which one is first.
#[test]
fn a_sink_without_hard_links_is_reported_as_in_gnu() {
    let Some(room) = shared_dir(FsKind::Ext4) else { return };
    fs::write(room.path().join("one"), b"both").unwrap();
    fs::hard_link(room.path().join("one"), room.path().join("two")).unwrap();
    for errno in ["EPERM", "ENOTSUP", "ENOSYS", "EXDEV"] {
        let Some(fixture) = FaultFixture::new("") else { return };
        for name in ["one", "two"] {
            fs::write(fixture.path("store").join(name), b"both").unwrap();
        }
        fixture.rules(&format!("* link .. errno {errno}"));
        for (option, source, arrive) in
            [("-at", room.path(), 1), ("-dt", room.path(), 1), ("-lt", &*fixture.path("view"), 0)]
        {
            let operands = ["one", "two"].map(|name| source.join(name));
            let args = [option.as_ref(), "z".as_ref(), operands[0].as_os_str(), operands[1].as_os_str()];
            let make = |folder: &Path| fs::create_dir(folder.join("z")).unwrap();
            let twins = Twins::prepared(&fixture.path("view"), "z", make, &args);
            let [gnu, ours] = twins.runs.each_ref().map(|run| {
                let either = run.err.replace("/one'", "/?'").replace("/two'", "/?'");
                (run.status, run.out.clone(), either)
            });
            assert_eq!(gnu, ours, "{errno} {option}");
            for folder in &twins.folders {
                assert_eq!(fs::read_dir(folder.join("z")).unwrap().count(), arrive, "{errno} {option}");
            }
            twins.remove();
        }
    }
}
