//! Digests stored with files: every form is found again, every kind of damage is reported, and the
//! limits of each file system are respected.

use super::{good, haul, pattern, run, tree};
use haul_digest::{Algorithm, digest};
use haul_lab::mounts::{Format, FsKind, SmallFs, shared_dir};
use haul_lab::needs::met_or_skip;
use haul_sys::CWD;
use haul_sys::metadata::{Place, get_xattr, list_xattrs, set_xattr};
use std::ffi::CString;
use std::fs::{self, File, FileTimes, OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;

const STORE: [&str; 6] = ["sum", "-r", "-a", "md5", "--object-size", "64K"];

/// Stores the digests of `data` in a form, and returns the output.
fn store(dir: &Path, form: &str) -> String {
    let option = format!("--store={form}");
    let args: Vec<&str> = STORE.iter().copied().chain([option.as_str(), "data"]).collect();
    good(dir, &args)
}

/// Changes a byte without a change of size or time.
fn rot(path: &Path, at: u64) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mtime = file.metadata().unwrap().modified().unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    file.set_times(FileTimes::new().set_modified(mtime)).unwrap();
}

fn attribute(path: &Path, name: &str) -> Option<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    get_xattr(Place::name(&CWD, &path), &CString::new(name).unwrap()).unwrap()
}

fn set_attribute(path: &Path, name: &str, value: &[u8]) {
    let path = CString::new(path.as_os_str().as_bytes()).unwrap();
    set_xattr(Place::name(&CWD, &path), &CString::new(name).unwrap(), value).unwrap();
}

/// Returns true if a file in `dir` accepts a user attribute.
fn keeps_attributes(dir: &Path) -> bool {
    let file = File::create(dir.join("probe")).unwrap();
    set_xattr(Place::file(&file), c"user.probe", b"x").is_ok()
}

/// Verifies `data` through the page cache. Returns the status and the sorted output.
fn verify(dir: &Path) -> (Option<i32>, Vec<String>) {
    let ran = run(dir, &["verify", "--cached", "-q", "data"]);
    assert_eq!(ran.err, "");
    let mut lines: Vec<String> = ran.out.lines().map(str::to_owned).collect();
    lines.sort();
    (ran.status, lines)
}

#[test]
fn stored_digests_detect_damage_on_every_file_system() {
    for kind in [FsKind::Ext4, FsKind::Xfs, FsKind::Btrfs, FsKind::Tmpfs] {
        let Some(room) = shared_dir(kind) else { continue };
        for form in ["xattr", "tree"] {
            let dir = tempfile::tempdir_in(&room).unwrap();
            let dir = dir.path();
            tree(dir);
            if form == "xattr" && !keeps_attributes(dir) {
                // tmpfs before Linux 6.6.
                assert_eq!(kind, FsKind::Tmpfs);
                let ran = run(dir, &["sum", "--store=xattr", "data/small"]);
                assert_eq!(ran.status, Some(1));
                assert!(ran.err.contains("this file system has no extended attributes"), "{}", ran.err);
                continue;
            }
            let plain = good(dir, &["sum", "-r", "-a", "md5", "data"]);
            assert_eq!(store(dir, form), plain, "{form} on {kind:?}");
            assert_eq!(store(dir, form), plain, "again, with what is stored lying there");
            assert_eq!(verify(dir), (Some(0), vec![]), "{form} on {kind:?}");
            let data = dir.join("data");
            rot(&data.join("big"), 200_000);
            rot(&data.join("big"), 262_144);
            rot(&data.join("small"), 99);
            fs::write(data.join("one-object"), pattern(65_536, 99)).unwrap();
            fs::write(data.join("empty"), "no longer").unwrap();
            fs::write(data.join("new"), "bytes").unwrap();
            let (status, lines) = verify(dir);
            let mut expected = vec![
                "'big': rotted: bytes 196608-327680".to_owned(),
                "'empty': modified: 0 bytes before, 9 now".to_owned(),
                "'new': unproven: no recorded digest".to_owned(),
                "'one-object': modified: different bytes and modification time: bytes 0-65536".to_owned(),
                "'small': rotted: bytes 0-100".to_owned(),
            ];
            expected.sort();
            assert_eq!((status, lines), (Some(2), expected), "{form} on {kind:?}");
        }
    }
}

/// After the command has succeeded, a power loss removes no stored digest.
#[test]
fn stored_digests_survive_a_power_loss() {
    if !met_or_skip(&Format::Ext4.needs()) {
        return;
    }
    for form in ["xattr", "tree"] {
        let small = SmallFs::new(48).unwrap();
        tree(&small.path());
        small.sync().unwrap();
        store(&small.path(), form);
        let after = small.after_power_loss().unwrap();
        assert_eq!(verify(&after.path()), (Some(0), vec![]), "{form}");
        after.close().unwrap();
        small.close().unwrap();
    }
}

#[test]
fn removed_files_are_missing_if_digests_are_stored_in_files() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    store(dir, "tree");
    fs::remove_file(dir.join("data/small")).unwrap();
    fs::remove_dir_all(dir.join("data/sub dir")).unwrap();
    let (status, lines) = verify(dir);
    assert_eq!(status, Some(1));
    assert!(lines.contains(&"'small': missing".to_owned()), "{lines:?}");
    assert!(lines.len() >= 3 && lines.iter().all(|line| line.ends_with(": missing")), "{lines:?}");
    // A directory replaces a file, and a file replaces a directory: the old digests are removed.
    fs::create_dir_all(dir.join("data/small")).unwrap();
    fs::write(dir.join("data/small/inner"), "x").unwrap();
    fs::write(dir.join("data/sub dir"), "y").unwrap();
    store(dir, "tree");
    assert_eq!(verify(dir), (Some(0), vec![]));
    let left: Vec<_> = fs::read_dir(dir.join("data/.haul")).unwrap().collect();
    assert_eq!(left.len(), 1, "nothing but the mirror is left");
}

#[test]
fn digests_too_large_for_attributes_are_refused_without_residue() {
    for (kind, fits) in [(FsKind::Ext4, false), (FsKind::Xfs, true), (FsKind::Btrfs, true)] {
        let Some(room) = shared_dir(kind) else { continue };
        let dir = tempfile::tempdir_in(&room).unwrap();
        let dir = dir.path();
        let big = dir.join("data/big");
        fs::create_dir(dir.join("data")).unwrap();
        // Holes: 800 objects, whose digests take 25,600 bytes and two attributes.
        let file = File::create(&big).unwrap();
        file.set_len(800 << 16).unwrap();
        let args = ["sum", "-r", "-a", "md5", "--object-size", "64K", "--store=xattr", "data"];
        let ran = run(dir, &args);
        let names = list_xattrs(Place::file(&file)).unwrap();
        let ours = names.iter().filter(|name| name.to_bytes().starts_with(b"user.surehaul")).count();
        if fits {
            assert_eq!((ran.status, ours), (Some(0), 2), "{kind:?}: {ran:?}");
            rot(&big, 799 << 16);
            assert_eq!(verify(dir).1, ["'big': rotted: bytes 52363264-52428800"]);
            // A smaller value replaces a larger one and leaves no part of the larger one.
            let args = ["sum", "-r", "--object-size", "64M", "--store=xattr", "--accept-changes", "data"];
            good(dir, &args);
            assert_eq!(attribute(&big, "user.surehaul.sums.1"), None);
        } else {
            assert_eq!((ran.status, ours), (Some(1), 0), "{kind:?}: {ran:?}");
            assert!(ran.err.contains("choose a larger --object-size, --store=tree"), "{}", ran.err);
            good(dir, &["sum", "-r", "--object-size", "64K", "--store=tree", "data"]);
        }
        assert_eq!(verify(dir), (Some(0), vec![]));
    }
}

#[test]
fn xrootd_and_eos_checksum_attributes_are_interoperable() {
    let Some(room) = shared_dir(FsKind::Ext4) else { return };
    let dir = tempfile::tempdir_in(&room).unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("data")).unwrap();
    let file = dir.join("data/f");
    fs::write(&file, "123456789").unwrap();
    let seconds = |path: &Path| {
        let since = fs::metadata(path).unwrap().modified().unwrap().duration_since(std::time::UNIX_EPOCH);
        since.unwrap().as_secs()
    };
    good(dir, &["sum", "-a", "adler32,crc32c,cksum", "--store=xrootd", "data/f"]);
    let adler = attribute(&file, "user.XrdCks.adler32").unwrap();
    assert_eq!((adler.len(), &adler[..16]), (96, &b"adler32\0\0\0\0\0\0\0\0\0"[..]));
    assert_eq!(adler[16..24], seconds(&file).to_be_bytes());
    assert_eq!(adler[28..36], [0, 0, 0, 4, 0x09, 0x1e, 0x01, 0xde]);
    let posix = digest(Algorithm::Cksum, b"123456789");
    assert_eq!(&attribute(&file, "user.XrdCks.crc32").unwrap()[32..36], posix.as_bytes());
    assert!(attribute(&file, "user.XrdCks.crc32c").is_some());
    assert_eq!(verify(dir), (Some(0), vec![]));
    rot(&file, 3);
    assert_eq!(verify(dir), (Some(1), vec!["'f': rotted: bytes 0-9".to_owned()]));

    let other = dir.join("data/g");
    fs::write(&other, "123456789").unwrap();
    fs::remove_file(&file).unwrap();
    good(dir, &["sum", "-a", "adler32", "--store=eos", "data/g"]);
    assert_eq!(attribute(&other, "user.eos.checksum").unwrap(), [0xde, 0x01, 0x1e, 0x09]);
    assert_eq!(attribute(&other, "user.eos.checksumtype").unwrap(), b"adler");
    assert_eq!(verify(dir), (Some(0), vec![]));
    set_attribute(&other, "user.eos.checksum", &[0, 1, 2, 3]);
    assert_eq!(verify(dir), (Some(1), vec!["'g': rotted: bytes 0-9".to_owned()]));
    // EOS stores half of the value for this type. haul cannot compare it and reports that.
    set_attribute(&other, "user.eos.checksumtype", b"crc64");
    let (status, lines) = verify(dir);
    assert_eq!(status, Some(2));
    assert!(
        lines[0].starts_with("'g': unreadable: user.eos.checksum: unsupported checksum type 'crc64'"),
        "{lines:?}"
    );
}

#[test]
fn damaged_stored_digests_are_reported_as_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    store(dir, "tree");
    let kept = dir.join("data/.haul/sums/big");
    let whole = fs::read(&kept).unwrap();
    for at in [0, 8, 30, whole.len() / 2, whole.len() - 1] {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x80;
        fs::write(&kept, &damaged).unwrap();
        let (status, lines) = verify(dir);
        assert_eq!((status, lines.len()), (Some(2), 1), "{lines:?}");
        assert!(lines[0].starts_with("'big': unreadable: stored digests: "), "{lines:?}");
    }
    fs::write(&kept, &whole[..whole.len() - 1]).unwrap();
    assert_eq!(verify(dir).0, Some(2));

    let Some(room) = shared_dir(FsKind::Ext4) else { return };
    let dir = tempfile::tempdir_in(&room).unwrap();
    let dir = dir.path();
    tree(dir);
    store(dir, "xattr");
    let file = dir.join("data/big");
    let whole = attribute(&file, "user.surehaul.sums").unwrap();
    let flipped = |at: usize| {
        let mut damaged = whole.clone();
        damaged[at] ^= 0x80;
        damaged
    };
    let cut = whole[..whole.len() - 1].to_vec();
    for damaged in [0, 8, 30, whole.len() / 2, whole.len() - 1].map(flipped).into_iter().chain([cut]) {
        set_attribute(&file, "user.surehaul.sums", &damaged);
        let (status, lines) = verify(dir);
        assert_eq!((status, lines.len()), (Some(2), 1), "{lines:?}");
        assert!(lines[0].starts_with("'big': unreadable: stored digests: "), "{lines:?}");
    }
}

#[test]
fn links_in_place_of_the_store_are_neither_followed_nor_removed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    fs::create_dir(dir.join("elsewhere")).unwrap();
    symlink("../elsewhere", dir.join("data/.haul")).unwrap();
    let ran = run(dir, &["sum", "-r", "--store=tree", "data"]);
    assert_eq!(ran.status, Some(1));
    assert!(ran.err.contains("cannot create .haul in"), "{}", ran.err);
    assert_eq!(fs::read_dir(dir.join("elsewhere")).unwrap().count(), 0);
    assert!(fs::symlink_metadata(dir.join("data/.haul")).unwrap().is_symlink());
}

/// Regression: a second job silently replaced the stored digests of files that had rotted, in the
/// same form, or by those of a form that takes precedence.
#[test]
fn bytes_that_changed_without_a_trace_keep_their_stored_digests() {
    let Some(room) = shared_dir(FsKind::Ext4) else { return };
    let forms = ["xattr", "tree", "xrootd", "eos"];
    for (first, second) in forms.iter().flat_map(|first| forms.map(|second| (first, second))) {
        let dir = tempfile::tempdir_in(&room).unwrap();
        let dir = dir.path();
        tree(dir);
        store(dir, first);
        let rotten = [("small", 99), ("big", 70_000)];
        rotten.iter().for_each(|(name, at)| rot(&dir.join("data").join(name), *at));
        let found = verify(dir);
        assert_eq!((found.0, found.1.len()), (Some(1), 2), "{first}");
        let option = format!("--store={second}");
        let again = [&STORE[..], &[&option, "data"]].concat();
        for _ in 0..2 {
            let ran = run(dir, &again);
            assert_eq!(ran.status, Some(1), "{first}, {second}: {ran:?}");
            for (name, _) in rotten {
                let is_it = |line: &&str| line.contains(&format!("data/{name}: rotted: "));
                assert_eq!(ran.err.lines().filter(is_it).count(), 1, "{first}, {second}: {ran:?}");
            }
            assert_eq!(ran.err.lines().count(), 2, "{first}, {second}: {ran:?}");
            assert_eq!(ran.err.matches("--accept-changes").count(), 2, "{ran:?}");
            assert_eq!(verify(dir), found, "{first}, {second}");
        }
        good(dir, &[&again[..], &["--accept-changes"]].concat());
        assert_eq!(verify(dir), (Some(0), vec![]), "{first}, {second}");
        good(dir, &again);
        // A change with a new time needs no consent, if the form has the time.
        let small = dir.join("data/small");
        fs::write(&small, "another").unwrap();
        let later = fs::metadata(&small).unwrap().modified().unwrap() + std::time::Duration::from_secs(9);
        OpenOptions::new().write(true).open(&small).unwrap().set_modified(later).unwrap();
        assert_eq!(run(dir, &again).status, Some(i32::from(second == "eos")), "{first}, {second}");
    }
}

/// Digests that contradict the waybill of the same job are not stored either.
#[test]
fn digests_that_a_waybill_refuses_are_not_stored() {
    let Some(room) = shared_dir(FsKind::Ext4) else { return };
    let dir = tempfile::tempdir_in(&room).unwrap();
    let dir = dir.path();
    tree(dir);
    good(dir, &["sum", "-r", "--waybill=w", "data"]);
    rot(&dir.join("data/small"), 9);
    let both = ["sum", "-r", "--waybill=w", "--store=xattr", "data"];
    let ran = run(dir, &both);
    assert_eq!((ran.status, ran.err.matches("data/small: rotted: ").count()), (Some(1), 1), "{ran:?}");
    assert_eq!(attribute(&dir.join("data/small"), "user.surehaul.sums"), None);
    assert!(attribute(&dir.join("data/big"), "user.surehaul.sums").is_some());
    good(dir, &[&both[..], &["--accept-changes"]].concat());
    assert_eq!(verify(dir), (Some(0), vec![]));
}

/// Regression: digests of a file with mode 0600 could be read by all users.
#[test]
fn stored_digests_have_no_more_readers_than_their_files() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::create_dir_all(dir.join("data/closed")).unwrap();
    let mode = |name: &str| fs::metadata(dir.join(name)).unwrap().permissions().mode() & 0o777;
    let set = |name: &str, mode| fs::set_permissions(dir.join(name), Permissions::from_mode(mode)).unwrap();
    for (name, mode) in [("data/open", 0o644), ("data/own", 0o600), ("data/closed/inside", 0o644)] {
        fs::write(dir.join(name), name).unwrap();
        set(name, mode);
    }
    set("data/closed", 0o700);
    good(dir, &["sum", "-r", "--store=tree", "data"]);
    assert_eq!([mode("data/.haul/sums/own"), mode("data/.haul/sums/closed")], [0o600, 0o700]);
    // The umask of the test can deny some of these bits.
    let open = mode("data/.haul/sums/open");
    assert!(open & !0o644 == 0 && open & 0o600 == 0o600, "{open:o}");
    set("data/open", 0o600);
    good(dir, &["sum", "-r", "--store=tree", "data"]);
    assert_eq!(mode("data/.haul/sums/open"), 0o600);
}

#[test]
fn invalid_store_options_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    tree(dir);
    let senseless: [&[&str]; 9] = [
        &["sum", "--store=ether", "data/small"],
        &["sum", "--store=waybill", "data/small"],
        &["sum", "--store=xattr", "-"],
        &["sum", "--store=xattr", "--offset", "1", "data/small"],
        &["sum", "--store=tree", "--tree", "data/small"],
        &["sum", "--store=xrootd", "-a", "blake3", "data/small"],
        &["sum", "--store=xrootd", "-a", "crc32", "data/small"],
        &["sum", "--store=eos", "-a", "md5,adler32", "data/small"],
        &["verify", "data", "data"],
    ];
    for args in senseless {
        let ran = run(dir, args);
        assert!(ran.status != Some(0) && ran.out.is_empty() && !ran.err.is_empty(), "{args:?}: {ran:?}");
    }
    assert!(!dir.join("data/.haul").exists());
    // `waybill` is a valid form with `--waybill`.
    let printed =
        haul(dir).args(["sum", "--store=waybill", "--waybill", "w", "data/small"]).output().unwrap();
    assert!(printed.status.success() && dir.join("w").exists());
}

/// If a file has both forms, the form for the time of the file counts. Digests of other programs
/// count only if neither form exists.
#[test]
fn an_intact_form_for_the_file_time_is_used_if_the_other_is_damaged() {
    let Some(room) = shared_dir(FsKind::Ext4) else { return };
    let dir = tempfile::tempdir_in(&room).unwrap();
    let dir = dir.path();
    fs::create_dir(dir.join("data")).unwrap();
    let file = dir.join("data/f");
    fs::write(&file, pattern(200_000, 1)).unwrap();
    store(dir, "xattr");
    store(dir, "tree");
    let kept = dir.join("data/.haul/sums/f");
    let whole = attribute(&file, "user.surehaul.sums").unwrap();
    let mut damaged = whole.clone();
    damaged[40] ^= 1;
    let rotten = (Some(1), vec!["'f': rotted: bytes 65536-131072".to_owned()]);
    set_attribute(&file, "user.surehaul.sums", &damaged);
    assert_eq!(verify(dir), (Some(0), vec![]));
    rot(&file, 70_000);
    assert_eq!(verify(dir), rotten);
    set_attribute(&file, "user.surehaul.sums", &whole);
    fs::write(&kept, &damaged).unwrap();
    assert_eq!(verify(dir), rotten);
    rot(&file, 70_000);
    assert_eq!(verify(dir), (Some(0), vec![]));
    // The intact form has another time: the damaged form may be the one for the existing bytes.
    let later = fs::metadata(&file).unwrap().modified().unwrap() + std::time::Duration::from_secs(100);
    OpenOptions::new().write(true).open(&file).unwrap().set_modified(later).unwrap();
    let (status, lines) = verify(dir);
    assert_eq!((status, lines.len()), (Some(2), 1), "{lines:?}");
    assert!(lines[0].starts_with("'f': unreadable: stored digests: damaged"), "{lines:?}");
}

#[test]
fn the_stored_form_that_matches_the_file_time_is_used() {
    let Some(room) = shared_dir(FsKind::Ext4) else { return };
    for (first, second) in [("xattr", "tree"), ("tree", "xattr")] {
        let dir = tempfile::tempdir_in(&room).unwrap();
        let dir = dir.path();
        fs::create_dir(dir.join("data")).unwrap();
        let file = dir.join("data/f");
        let (old, new) = (pattern(200_000, 1), pattern(200_000, 2));
        fs::write(&file, &old).unwrap();
        let then = fs::metadata(&file).unwrap().modified().unwrap();
        store(dir, first);
        fs::write(&file, &new).unwrap();
        let later = then + std::time::Duration::from_secs(100);
        OpenOptions::new().write(true).open(&file).unwrap().set_modified(later).unwrap();
        // The first form describes other bytes at another time.
        assert_eq!(verify(dir).0, Some(1), "{first}");
        store(dir, second);
        assert_eq!(verify(dir), (Some(0), vec![]), "{first}, {second}");
        // The old file returns with its time. The first form describes it, although the second form
        // is newer.
        fs::write(&file, &old).unwrap();
        OpenOptions::new().write(true).open(&file).unwrap().set_modified(then).unwrap();
        assert_eq!(verify(dir), (Some(0), vec![]), "{first}, {second}");
        rot(&file, 70_000);
        assert_eq!(verify(dir), (Some(1), vec!["'f': rotted: bytes 65536-131072".to_owned()]), "{first}");
        // The EOS checksum differs, and haul does not use it.
        set_attribute(&file, "user.eos.checksum", &[0, 1, 2, 3]);
        set_attribute(&file, "user.eos.checksumtype", b"adler");
        rot(&file, 70_000);
        assert_eq!(verify(dir), (Some(0), vec![]), "{first}, {second}");
    }
}
