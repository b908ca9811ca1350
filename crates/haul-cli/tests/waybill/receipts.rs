//! A later section of a waybill says no less than the earlier ones, and no receipt is one of
//! nothing.

use super::{good, rot, run, tree};
use std::fs;
use std::path::Path;

/// Returns the verdicts of a verification that reports intact files too.
fn verified(dir: &Path) -> (Option<i32>, String) {
    let ran = run(dir, &["verify", "-v", "w"]);
    (ran.status, ran.out)
}

/// Regression: such a job left an empty waybill, which was verified and could be signed.
#[test]
fn directories_without_r_leave_no_waybill() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    tree(dir);
    fs::write(dir.join("list"), "data/small\ndata\n").unwrap();
    for args in [
        &["data"][..],
        &["data/small", "data"],
        &["data", "data/small"],
        &["none"],
        &["--files-from", "list"],
    ] {
        let ran = run(dir, &[&["sum", "--waybill", "w"], args].concat());
        assert_eq!(ran.status, Some(1), "{args:?}: {ran:?}");
        assert!(!dir.join("w").exists(), "{args:?}");
        let says_how = ran.err.contains("nothing was written to the waybill: to add directories, use -r");
        assert_eq!(says_how, args != ["none"], "{args:?}: {ran:?}");
    }
    // An existing waybill stays as it is.
    good(dir, &["sum", "-r", "--waybill", "w", "data"]);
    let before = fs::read(dir.join("w")).unwrap();
    assert_eq!(run(dir, &["sum", "--waybill", "w", "data/small", "data"]).status, Some(1));
    assert_eq!(fs::read(dir.join("w")).unwrap(), before);
    // A file that is missing costs only its own entry.
    assert_eq!(run(dir, &["sum", "--waybill", "v", "data/small", "none"]).status, Some(1));
    good(dir, &["verify", "-q", "v"]);
}

/// Regression: the waybill of a copy that failed, or was interrupted in its first file, has no
/// entries. Its verification was successful.
#[test]
fn a_receipt_of_nothing_proves_nothing() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    tree(dir);
    assert_eq!(run(dir, &["cp", "--waybill=w", "none", "copy"]).status, Some(1));
    for args in [&["verify", "w", "."][..], &["repair", "w", ".", "--from", "data"]] {
        let ran = run(dir, args);
        assert!(ran.status == Some(2) && ran.err.contains("no entries"), "{args:?}: {ran:?}");
    }
}

/// Regression: a second section silently replaced the digests of files that had rotted.
#[test]
fn bytes_that_changed_without_a_trace_keep_their_earlier_digest() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    tree(dir);
    let sum = ["sum", "-r", "--waybill", "w", "data"];
    good(dir, &sum);
    rot(&dir.join("data/small"), |bytes| bytes[0] ^= 1);
    fs::write(dir.join("data/sub dir/new"), "new").unwrap();
    for _ in 0..2 {
        let ran = run(dir, &sum);
        assert_eq!(ran.status, Some(1), "{ran:?}");
        assert!(ran.err.contains("data/small: rotted: ") && ran.err.contains("--accept-changes"), "{ran:?}");
        assert_eq!(ran.err.lines().count(), 1, "{ran:?}");
        let (status, out) = verified(dir);
        assert_eq!(status, Some(1));
        assert!(out.contains("'data/small': rotted") && out.contains("'data/sub dir/new': intact"), "{out}");
    }
    good(dir, &["sum", "-r", "--accept-changes", "--waybill", "w", "data"]);
    good(dir, &["verify", "-q", "w"]);
    good(dir, &sum);
    // A change with a new time needs no consent.
    fs::write(dir.join("data/small"), "another").unwrap();
    good(dir, &sum);
    good(dir, &["verify", "-q", "w"]);
    let refused = run(dir, &["sum", "--accept-changes", "data/small"]);
    assert!(refused.status == Some(1) && refused.err.contains("needs --waybill"), "{refused:?}");
}

/// Regression: a later section without leaves, or with fewer algorithms, hid those of earlier ones.
#[test]
fn a_later_section_hides_no_digests_of_unchanged_files() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    tree(dir);
    let first = ["sum", "-r", "-a", "md5", "--leaf", "--object-size=64K", "--waybill", "w", "data"];
    good(dir, &first);
    let exported = |algorithm: &str| run(dir, &["waybill", "export", "-a", algorithm, "w"]);
    let md5 = exported("md5");
    assert_eq!(md5.status, Some(0), "{md5:?}");
    // The second one cuts files into other objects, the third one is that of a copy.
    good(dir, &["sum", "-r", "-a", "sha256", "--waybill", "w", "data"]);
    fs::create_dir(dir.join("src")).unwrap();
    good(dir, &["cp", "-a", "data", "src"]);
    good(dir, &["cp", "-a", "--remove-destination", "--waybill=w", "src/data", "."]);
    assert_eq!(exported("sha256").status, Some(0));
    let now = exported("md5");
    assert!(md5.out.lines().all(|line| now.out.lines().any(|other| other == line)), "{now:?}");
    rot(&dir.join("data/big"), |bytes| bytes[70_000] ^= 4);
    let ran = run(dir, &["verify", "--locate", "w"]);
    assert!(ran.out.contains("'data/big': rotted: bytes 69632-70656\n"), "{ran:?}");
    // A file that changed keeps nothing.
    fs::write(dir.join("data/small"), "another").unwrap();
    good(dir, &["sum", "--waybill", "w", "data/small"]);
    let now = exported("md5");
    assert_eq!(now.out.lines().filter(|line| line.ends_with("data/small")).count(), 0, "{now:?}");
}
