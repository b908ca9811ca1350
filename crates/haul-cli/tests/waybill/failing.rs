//! Storage that fails during sum, verify or repair: haul names each file that it cannot read,
//! processes the others, and reports the failure in the exit status.

use super::{good, run};
use crate::faults::fixture::{FaultFixture, noise};
use std::fs;
use std::path::{Path, PathBuf};

/// Errors on open, in the middle of a file, and on stat.
const FAULTS: &str = "closed open .. errno EIO\nhurt read 200000..200100 errno EIO\nlost stat .. errno EIO";

/// Creates files of several objects in `store`, their waybill `w` next to it, and their replica in
/// `a`. The view has no faults yet.
fn fixture() -> Option<FaultFixture> {
    let fixture = FaultFixture::new("")?;
    let store = fixture.path("store");
    for dir in ["a", "store/dir"] {
        fs::create_dir(fixture.path(dir)).unwrap();
    }
    for (name, len) in [("closed", 5000), ("dir/x", 100), ("fine", 300_000), ("hurt", 400_000), ("lost", 10)]
    {
        fs::write(store.join(name), noise(len)).unwrap();
    }
    good(&store, &["sum", "-r", "--object-size", "64K", "--leaf", "--waybill", "../w", "."]);
    good(&home(&fixture), &["cp", "-aT", "store", "a"]);
    Some(fixture)
}

fn home(fixture: &FaultFixture) -> PathBuf {
    fixture.path("")
}

/// Returns the sorted lines of a text.
fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn unreadable_files_are_reported_and_the_rest_verified() {
    let Some(fixture) = fixture() else { return };
    fixture.rules(FAULTS);
    for more in [&[][..], &["--cached"], &["--threads", "1"], &["--locate"], &["--bwlimit", "100M"]] {
        let ran = run(&home(&fixture), &[&["verify", "w", "view"], more].concat());
        assert_eq!(ran.status, Some(2), "{more:?}: {ran:?}");
        let lines = sorted(&ran.out);
        assert_eq!(lines.len(), 3, "{more:?}: {ran:?}");
        assert_eq!(lines[0], "'closed': unreadable: Input/output error");
        assert!(lines[1].starts_with("'hurt': unreadable: Input/output error at byte "), "{lines:?}");
        assert_eq!(lines[2], "'lost': unreadable: Input/output error");
        assert!(ran.err.starts_with("haul verify: 2 intact, 3 unproven; "), "{more:?}: {ran:?}");
    }
    let ran = run(&home(&fixture), &["verify", "--json", "w", "view"]);
    assert_eq!((ran.status, ran.err.as_str()), (Some(2), ""));
    assert_eq!(ran.out.matches(r#""verdict":"unreadable","detail":"Input/output error"#).count(), 3);
    let summary = ran.out.lines().last().unwrap();
    assert!(summary.starts_with(r#"{"event":"summary","intact":2,"#), "{summary}");
    assert!(summary.contains(r#""unproven":3"#), "{summary}");
}

#[test]
fn unlistable_directories_are_reported_and_the_others_searched() {
    let Some(fixture) = fixture() else { return };
    for name in ["before", "dir", "deep/er", "last"] {
        let dir = fixture.path("store").join(name);
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join("stray"), "").unwrap();
    }
    fixture.rules("dir list .. errno EIO\ndeep/er list .. errno EIO");
    let ran = run(&home(&fixture), &["verify", "--extra", "w", "view"]);
    let reported = [
        "'before/stray': extra",
        "'deep/er': unreadable: Input/output error",
        "'dir': unreadable: Input/output error",
        "'last/stray': extra",
    ];
    assert_eq!((ran.status, sorted(&ran.out)), (Some(2), reported.to_vec()), "{}", ran.err);
    assert!(ran.err.starts_with("haul verify: 5 intact, 2 extra, 2 unproven; "), "{}", ran.err);
    // If the root cannot be listed, nothing is known about extraneous files.
    fixture.rules("* list .. errno EIO");
    let ran = run(&home(&fixture), &["verify", "--extra", "w", "view"]);
    assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""));
    assert_eq!(ran.err, "haul verify: cannot list 'view': Input/output error\n");
}

#[test]
fn an_unlistable_digest_directory_does_not_hide_other_digests() {
    let Some(fixture) = fixture() else { return };
    let store = fixture.path("store");
    fs::create_dir(store.join("gone")).unwrap();
    fs::write(store.join("gone/y"), "y").unwrap();
    good(&store, &["sum", "-r", "--store=tree", "."]);
    for name in ["gone/y", "dir/x", "fine"] {
        fs::remove_file(store.join(name)).unwrap();
    }
    fixture.rules(".haul/sums/dir list .. errno EIO\nhurt read 200000..200100 errno EIO");
    let ran = run(&home(&fixture), &["verify", "--cached", "view"]);
    assert_eq!(ran.status, Some(2), "{ran:?}");
    let lines = sorted(&ran.out);
    assert_eq!(
        lines[..3],
        ["'.haul/sums/dir': unreadable: Input/output error", "'fine': missing", "'gone/y': missing"]
    );
    assert!(lines.len() == 4 && lines[3].starts_with("'hurt': unreadable: Input/output error"), "{lines:?}");
    assert!(ran.err.starts_with("haul verify: 2 intact, 2 missing, 2 unproven; "), "{ran:?}");
}

#[test]
fn unreadable_files_are_omitted_from_the_waybill() {
    let Some(fixture) = fixture() else { return };
    fs::create_dir(fixture.path("store/shut")).unwrap();
    fixture.rules(&format!("{FAULTS}\nshut list .. errno EIO"));
    for (number, algorithm) in ["blake3", "md5", "crc64nvme,sha256"].iter().enumerate() {
        let waybill = format!("w{number}");
        let ran = run(&home(&fixture), &["sum", "-r", "-a", algorithm, "--waybill", &waybill, "view"]);
        assert_eq!(ran.status, Some(1), "{algorithm}: {ran:?}");
        let reported = ["closed", "hurt", "lost", "shut"]
            .map(|name| format!("haul sum: view/{name}: Input/output error"));
        assert_eq!(sorted(&ran.err), reported, "{algorithm}");
        let summed: Vec<&str> = ran.out.lines().collect();
        let times = algorithm.split(',').count();
        for name in ["view/dir/x", "view/fine"] {
            assert_eq!(
                summed.iter().filter(|found| found.contains(name)).count(),
                times,
                "{algorithm}: {ran:?}"
            );
        }
        assert_eq!(summed.len(), 2 * times, "{algorithm}: {ran:?}");
        fixture.rules("");
        let ran = run(&home(&fixture), &["verify", &waybill, "."]);
        assert_eq!(ran.status, Some(0), "{ran:?}");
        assert!(ran.err.starts_with("haul verify: 2 intact; "), "{ran:?}");
        fixture.rules(&format!("{FAULTS}\nshut list .. errno EIO"));
    }
}

#[test]
fn unreadable_listed_files_are_reported_and_the_rest_checked() {
    let Some(fixture) = fixture() else { return };
    let list = good(&fixture.path("store"), &["sum", "-r", "-a", "md5", "."]);
    fs::write(fixture.path("list"), list).unwrap();
    fixture.rules(FAULTS);
    for args in [&["check", "-C", "view", "list"][..], &["check", "-C", "view", "-a", "md5", "list"]] {
        let ran = run(&home(&fixture), args);
        assert_eq!(ran.status, Some(1), "{ran:?}");
        let reported = [
            "./closed: FAILED open or read",
            "./dir/x: OK",
            "./fine: OK",
            "./hurt: FAILED open or read",
            "./lost: FAILED open or read",
        ];
        assert_eq!(sorted(&ran.out), reported);
        assert!(ran.err.contains("WARNING: 3 listed files could not be read\n"), "{ran:?}");
    }
}

/// Runs `haul repair` for `a` from the replica `view`. Returns its status and its sorted output.
fn repaired_from_view(dir: &Path, more: &[&str]) -> (Option<i32>, String) {
    let ran = run(dir, &[&["repair", "-q", "w", "a", "--from", "view"], more].concat());
    (ran.status, sorted(&ran.out).join("\n"))
}

#[test]
fn an_unreadable_replica_is_reported_and_others_are_used() {
    let Some(fixture) = fixture() else { return };
    let dir = home(&fixture);
    for name in ["closed", "fine", "hurt"] {
        super::rot(&dir.join("a").join(name), |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        });
    }
    fixture.rules(FAULTS);
    let left = "not repaired: no replica has the correct bytes";
    let reported = format!(
        "'closed': {left} 2048-3072; cannot read the file in 'view': Input/output error\n\
         'fine': repaired: bytes 149504-150528 from 'view'\n\
         'hurt': {left} 199680-200704; cannot read the file in 'view': Input/output error"
    );
    assert_eq!(repaired_from_view(&dir, &[]), (Some(1), reported));
    // If another replica has the bytes, haul does not report the failing one.
    good(&dir, &["cp", "-aT", "store", "b"]);
    let reported =
        "'closed': repaired: bytes 2048-3072 from 'b'\n'hurt': repaired: bytes 199680-200704 from 'b'";
    assert_eq!(repaired_from_view(&dir, &["--from", "b"]), (Some(0), reported.to_owned()));
    good(&dir, &["verify", "-q", "w", "a"]);
}

#[test]
fn unreadable_data_is_repaired_if_the_file_can_be_opened() {
    let Some(fixture) = fixture() else { return };
    fixture.rules(FAULTS);
    let ran = run(&home(&fixture), &["repair", "-q", "w", "view", "--from", "a"]);
    assert_eq!(ran.status, Some(1), "{ran:?}");
    let reported = [
        "'closed': not repaired: cannot open the file: Input/output error",
        "'hurt': repaired: bytes 199680-200704 from 'a'",
        "'lost': not repaired: cannot open the file: Input/output error",
    ];
    assert_eq!(sorted(&ran.out), reported);
    fixture.rules("");
    good(&home(&fixture), &["verify", "-q", "w", "store"]);
}
