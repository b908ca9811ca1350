//! Trees with more levels of directories than the process may have open files: closed directories
//! are found again.

use super::chain::{
    DeepTreeDir, assert_same_trees, haul_with_files, make, mark, open_dir, read, root, walk, write,
};
use crate::faults::fixture::{HAUL, Running, copy_haul};
use haul_lab::needs::{Need, met_or_skip};
use rustix::fs::{AtFlags, Mode, OFlags, fstat, linkat, mkdirat, openat, symlinkat};
use std::fs;
use std::os::unix::fs::{chown, symlink};
use std::path::Path;
use std::process::Command;

/// Number of descriptors that a process may have: enough for ten directories and one worker.
const FILES: u32 = 64;

#[test]
fn siblings_of_a_deep_path_are_copied_with_few_descriptors() {
    let place = DeepTreeDir::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    make(&source, 400, "d", |level, dir| {
        write(dir, "a", &[level as u8; 10]);
        mkdirat(dir, "side", Mode::RWXU).unwrap();
        let side = open_dir(dir, "side").unwrap();
        write(&side, "b", &[level as u8; 20]);
        symlinkat("../a", &side, "link").unwrap();
    });
    walk(&source, "d", |level, dir| {
        mark(level + 1, &open_dir(dir, "side").unwrap());
        mark(level, dir);
    });
    for (files, threads) in [(FILES, 1), (FILES, 4), (128, 4), (40, 2)] {
        let threads = format!("--threads={threads}");
        let args = ["cp", "-a", &threads].map(Path::new);
        haul_with_files(files, args.into_iter().chain([&*source, &*sink])).is_fine();
        assert_same_trees(&source, &sink);
        Command::new("rm").arg("-rf").arg(&sink).status().unwrap();
    }
    let args = ["sum", "-a", "crc32", "-r"].map(Path::new);
    let [few, many] = [FILES, 1000].map(|files| haul_with_files(files, args.into_iter().chain([&*source])));
    assert_eq!(few.is_fine().stdout.lines().count(), 802);
    assert!(few.stdout == many.stdout);
}

#[test]
fn a_deep_tree_is_summed_with_sixteen_descriptors() {
    let place = DeepTreeDir::new();
    let source = place.path("source");
    make(&source, 60, "d", |level, dir| {
        for number in 0..if level % 20 == 0 { 300 } else { 1 } {
            write(dir, &format!("f{number}"), &[level as u8]);
        }
    });
    for algorithm in ["md5", "blake3", "crc32"] {
        let args = ["sum", "-a", algorithm, "-r"].map(Path::new);
        let [few, many] = [16, 2000].map(|files| haul_with_files(files, args.into_iter().chain([&*source])));
        assert!(few.is_fine().stdout == many.stdout, "{algorithm}");
    }
}

/// The descriptors are two directories on each side, in addition to the standard streams and the
/// target, or one directory on each side and both ends of a file.
#[test]
fn a_deep_tree_is_copied_with_eight_descriptors() {
    let place = DeepTreeDir::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    make(&source, 60, "d", |level, dir| {
        for number in 0..if level % 20 == 0 { 300 } else { 1 } {
            write(dir, &format!("f{number}"), &[level as u8]);
        }
    });
    walk(&source, "d", mark);
    for files in [8, 10] {
        haul_with_files(files, ["cp".as_ref(), "-a".as_ref(), &*source, &*sink]).is_fine();
        assert_same_trees(&source, &sink);
        Command::new("rm").arg("-rf").arg(&sink).status().unwrap();
    }
}

/// Inherited descriptors reduce the number of files that the process may open.
#[test]
fn inherited_descriptors_are_taken_into_account() {
    let place = DeepTreeDir::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    make(&source, 200, "d", |level, dir| write(dir, "f", &[level as u8]));
    let script =
        "ulimit -n 128; for number in {20..99}; do eval \"exec $number</dev/null\"; done; exec \"$@\"";
    let mut command = Command::new("bash");
    command.args(["-c", script, "bash", HAUL, "cp", "-a", "--threads=4"]).args([&source, &sink]);
    Running::new(&mut command).end().is_fine();
    assert_same_trees(&source, &sink);
}

/// For a directory that was reached through a link, `..` is not the directory that contains the
/// link.
#[test]
fn a_chain_of_followed_links_is_copied_with_few_descriptors() {
    const LEVELS: usize = 300;
    let place = DeepTreeDir::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    fs::create_dir(&source).unwrap();
    for level in 0..LEVELS {
        let dir = place.path(&format!("source/l{level}"));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("f"), [level as u8; 5]).unwrap();
        let target = place.path(&format!("source/l{}", level + 1));
        let _ = symlink(target, dir.join("next"));
    }
    fs::create_dir(place.path(&format!("source/l{LEVELS}"))).unwrap();
    let first = place.path("source/l0");
    haul_with_files(FILES, ["cp".as_ref(), "-rLp".as_ref(), &*first, &*sink]).is_fine();
    let levels = walk(&sink, "next", |level, dir| {
        let expected = (level < LEVELS).then(|| vec![level as u8; 5]);
        assert_eq!(read(dir, c"f"), expected, "level {level}");
        let facts = fstat(root(&place.path(&format!("source/l{level}")))).unwrap();
        assert_eq!(fstat(dir).unwrap().st_mtime_nsec, facts.st_mtime_nsec, "level {level}");
    });
    assert_eq!(levels, LEVELS);
}

#[test]
fn partly_read_directories_do_not_exhaust_the_descriptors() {
    const ENTRIES: usize = 1100;
    let place = DeepTreeDir::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    make(&source, 14, "d", |_, dir| {
        for number in 0..ENTRIES {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::CLOEXEC;
            drop(openat(dir, format!("f{number}"), flags, Mode::RUSR).unwrap());
        }
        // Whichever name comes last on disk, some directories come before the end.
        for number in 0..20 {
            mkdirat(dir, format!("s{number}"), Mode::RWXU).unwrap();
        }
    });
    for threads in ["--threads=1", "--threads=4"] {
        haul_with_files(40, ["cp", "-r", threads].map(Path::new).into_iter().chain([&*source, &*sink]))
            .is_fine();
        let levels = walk(&sink, "d", |level, dir| {
            let expected = ENTRIES + 20 + usize::from(level < 14);
            assert_eq!(super::chain::names(dir).len(), expected, "level {level}");
        });
        assert_eq!(levels, 14);
        fs::remove_dir_all(&sink).unwrap();
    }
}

#[test]
fn hard_links_are_kept_at_any_depth() {
    const LEVELS: usize = 1500;
    let place = DeepTreeDir::new();
    fs::create_dir(place.path("source")).unwrap();
    let [a, b] = ["source/a", "source/b"].map(|name| place.path(name));
    // Far beyond the limit of a path for one call: 1500 names of ten bytes.
    for path in [&a, &b] {
        make(path, LEVELS, "ten-bytes-", |_, _| {});
    }
    let mut ends = [root(&a), root(&b)];
    for level in 0..LEVELS {
        if level % 250 == 0 || level == LEVELS - 1 {
            write(&ends[0], "one", &[level as u8; 7]);
            linkat(&ends[0], "one", &ends[1], "two", AtFlags::empty()).unwrap();
        }
        ends = ends.map(|dir| open_dir(&dir, "ten-bytes-").unwrap());
    }
    let (source, sink) = (place.path("source"), place.path("sink"));
    haul_with_files(FILES, ["cp".as_ref(), "-a".as_ref(), &*source, &*sink]).is_fine();
    let mut ends = ["a", "b"].map(|name| root(&sink.join(name)));
    let mut met = 0;
    for level in 0..LEVELS {
        if let Some(bytes) = read(&ends[0], c"one") {
            assert_eq!(bytes, [level as u8; 7]);
            let find =
                |end: usize, name: &str| rustix::fs::statat(&ends[end], name, AtFlags::empty()).unwrap();
            let [one, two] = [find(0, "one"), find(1, "two")];
            assert_eq!((one.st_ino, one.st_nlink), (two.st_ino, 2), "level {level}");
            met += 1;
        }
        ends = ends.map(|dir| open_dir(&dir, "ten-bytes-").unwrap());
    }
    assert_eq!(met, 7);
}

/// On overlayfs the birth time of a directory changes when something in it is changed. It is still
/// the same directory.
#[test]
fn overlayfs_directories_are_recognized_after_copy_up() {
    if !met_or_skip(&[Need::Mount, Need::FileSystem("overlay"), Need::Program("unshare")]) {
        return;
    }
    let place = DeepTreeDir::new();
    for name in ["source", "lower"] {
        make(&place.path(name), 150, "d", |level, dir| write(dir, "f", &[level as u8]));
    }
    walk(&place.path("source"), "d", mark);
    // At first only the last directory differs: all directories above are copied up with it.
    let script = format!(
        "mount -t tmpfs tmpfs home && mkdir home/upper home/work home/sink home/lower && cp -a lower/. home/lower &&
        mount -t overlay overlay -o lowerdir=home/lower,upperdir=home/upper,workdir=home/work home/sink || exit 99
        ulimit -n {FILES}; $haul cp -aTf --threads=1 source home/sink && $haul cp -a home/sink copy"
    );
    std::fs::create_dir(place.path("home")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).current_dir(place.path("")).env("haul", HAUL);
    Running::new(&mut command).end().is_fine();
    assert_same_trees(&place.path("source"), &place.path("copy"));
}

/// Without an index, as in containers, a file with several names gets another inode number when it
/// is opened for writing. It is not a file that replaced the first.
#[test]
fn overlayfs_files_with_several_names_are_overwritten() {
    if !met_or_skip(&[Need::Mount, Need::FileSystem("overlay"), Need::Program("unshare")]) {
        return;
    }
    let script = "mount -t tmpfs tmpfs home && cd home && mkdir upper work sink lower && echo old > lower/a &&
        ln lower/a lower/b && ln lower/a lower/c && ln lower/a lower/d && printf 'new contents' > source &&
        mount -t overlay overlay -o index=off,lowerdir=lower,upperdir=upper,workdir=work sink || exit 99
        $haul cp source sink/a && $haul cp --resume --state-dir=state source sink/b && $haul cp --verify source sink/c
        cat sink/a sink/b sink/c sink/d; $haul cp sink/d sink/d; echo $?";
    let place = DeepTreeDir::new();
    std::fs::create_dir(place.path("home")).unwrap();
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).current_dir(place.path("")).env("haul", HAUL);
    let ended = Running::new(&mut command).end();
    assert_eq!(ended.stdout, "new contentsnew contentsnew contentsold\n1\n", "{ended:?}");
    assert!(!ended.stderr.contains("replaced"), "{ended:?}");
}

/// A directory without search permission is left before it gets this mode.
#[test]
fn an_unprivileged_user_copies_a_deep_read_only_tree() {
    if !met_or_skip(&[Need::Root, Need::Program("setpriv")]) {
        return;
    }
    let place = DeepTreeDir::new();
    let (source, home) = (place.path("source"), place.path("home"));
    make(&source, 200, "d", |level, dir| write(dir, "f", &[level as u8]));
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    walk(&source, "d", |level, dir| {
        rustix::fs::fchmod(dir, Mode::from_raw_mode(if level % 2 == 0 { 0o555 } else { 0o577 })).unwrap();
        let file = openat(dir, "f", flags, Mode::empty()).unwrap();
        rustix::fs::fchmod(file, Mode::from_raw_mode(0o444)).unwrap();
    });
    fs::create_dir(&home).unwrap();
    chown(&home, Some(65534), Some(65534)).unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(home.parent().unwrap(), open).unwrap();
    let program = home.join("haul");
    copy_haul(&program);
    let script = format!("ulimit -n {FILES}; exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$@\"");
    let mut command = Command::new("sh");
    command.args(["-c", &script, "sh"]).args([
        &*program,
        "cp".as_ref(),
        "-rp".as_ref(),
        &source,
        &home.join("sink"),
    ]);
    Running::new(&mut command).end().is_fine();
    assert_same_trees(&source, &home.join("sink"));
}
