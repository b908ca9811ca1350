//! Names that are swapped between a check and the next call. A file system with a delay holds the
//! copy at a known place while the test swaps the file that is opened next. Nothing outside may be
//! read or written.

use crate::faults::bed::{Ended, FaultBed, HOLD, haul, noise, start, write_old};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Creates the directory `outside`, which no copy may write to. `/etc` represents all targets of
/// links that lead out.
fn outside(bed: &FaultBed) -> PathBuf {
    let outside = bed.path("outside");
    fs::create_dir(&outside).unwrap();
    write_old(&outside.join("secret"), b"secret");
    write_old(&outside.join("file"), b"not ours");
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o711)).unwrap();
    outside
}

/// Panics if anything outside has changed.
#[track_caller]
fn assert_untouched(outside: &Path, ended: &Ended) {
    let mut names: Vec<_> = fs::read_dir(outside).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["file", "secret"], "{ended:?}");
    for (name, bytes) in [("secret", &b"secret"[..]), ("file", b"not ours")] {
        assert_eq!(fs::read(outside.join(name)).unwrap(), bytes, "{ended:?}");
        assert_eq!(fs::metadata(outside.join(name)).unwrap().mtime(), 1_000_000_000, "{ended:?}");
    }
    assert_eq!(fs::metadata(outside).unwrap().mode() & 0o777, 0o711, "{ended:?}");
}

fn args<'a>(options: &'a [&'a str], source: &'a Path, sink: &'a Path) -> Vec<&'a Path> {
    ["cp", "--threads=1"].iter().chain(options).map(Path::new).chain([source, sink]).collect()
}

/// Replaces `path` by a link to `target`; the old file is renamed.
fn swap_for_link(path: &Path, target: &Path) {
    fs::rename(path, path.with_extension("was")).unwrap();
    symlink(target, path).unwrap();
}

/// The old file of the sink is renamed to its backup after the source was checked and before it is
/// opened.
#[test]
fn a_source_file_swapped_for_a_link_after_it_was_looked_at_is_not_read() {
    for options in [&["-ab"][..], &["-rbL"], &["-bT"]] {
        let Some(bed) = FaultBed::new("") else { return };
        let outside = outside(&bed);
        fs::create_dir_all(bed.path("source")).unwrap();
        fs::create_dir_all(bed.path("store/sink")).unwrap();
        write_old(&bed.path("source/victim"), &noise(1000));
        fs::write(bed.path("store/sink/victim"), "old").unwrap();
        bed.rules(&format!("sink/victim rename .. delay {HOLD} times 1"));
        let (source, sink) = match options {
            ["-bT"] => (bed.path("source/victim"), bed.path("view/sink/victim")),
            _ => (bed.path("source/."), bed.path("view/sink")),
        };
        let running = start(args(options, &source, &sink));
        bed.held();
        swap_for_link(&bed.path("source/victim"), &outside.join("secret"));
        bed.let_go();
        let ended = running.end();
        ended.failed_with(&["source/", "victim'"]);
        assert_eq!(fs::read(bed.path("store/sink/victim")).unwrap(), b"old", "{options:?} {ended:?}");
        assert_untouched(&outside, &ended);
    }
}

/// Runs `tool` with a link that leads to the target at the start, and to `outside` while the first
/// file is written.
fn fill_by_a_link_that_is_swapped(tool: &[&str]) -> Option<(FaultBed, Ended)> {
    let bed = FaultBed::new(&format!("sink/* write .. delay {HOLD} times 1"))?;
    let outside = outside(&bed);
    fs::create_dir_all(bed.path("store/sink")).unwrap();
    symlink(bed.path("view/sink"), bed.path("way")).unwrap();
    for name in ["file", "secret"] {
        write_old(&bed.path(name), &noise(1000));
        for file in [bed.path(name), outside.join(name)] {
            fs::set_permissions(file, fs::Permissions::from_mode(0o604)).unwrap();
        }
    }
    let names = ["file", "secret"].map(|name| bed.path(name));
    let way = bed.path("way");
    let args = tool.iter().map(Path::new).chain(names.iter().map(PathBuf::as_path)).chain([&*way]);
    let running = start(args.collect::<Vec<_>>());
    bed.held();
    fs::remove_file(&way).unwrap();
    symlink(&outside, &way).unwrap();
    bed.let_go();
    let ended = running.end();
    assert_untouched(&outside, &ended);
    for name in ["file", "secret"] {
        assert_eq!(fs::metadata(outside.join(name)).unwrap().mode() & 0o777, 0o604, "{name} {ended:?}");
        assert_eq!(fs::read(bed.path("store/sink").join(name)).unwrap(), noise(1000), "{name} {ended:?}");
    }
    Some((bed, ended))
}

#[test]
fn a_target_whose_link_is_swapped_takes_all_that_is_moved_there() {
    let Some((bed, ended)) = fill_by_a_link_that_is_swapped(&["mv"]) else { return };
    ended.is_fine();
    assert!(!bed.path("file").exists() && !bed.path("secret").exists());
}

/// An installed file gets its permissions at the end: they must not be set on the file of the same
/// name elsewhere.
#[test]
fn a_target_whose_link_is_swapped_takes_all_that_is_installed_there() {
    let tool = ["install", "-p", "-m", "751"];
    let Some((bed, ended)) = fill_by_a_link_that_is_swapped(&tool) else { return };
    ended.is_fine();
    for name in ["file", "secret"] {
        let found = fs::metadata(bed.path("store/sink").join(name)).unwrap();
        assert_eq!((found.mode() & 0o7777, found.mtime()), (0o751, 1_000_000_000), "{name}");
    }
}

/// A link at the name of an installed file is not written through, and gets no owner and no mode.
#[test]
fn a_link_put_where_a_file_is_installed_is_not_written_through() {
    let Some(bed) = FaultBed::new(&format!("source/file open .. delay {HOLD} times 1")) else { return };
    let outside = outside(&bed);
    fs::create_dir_all(bed.path("store/source")).unwrap();
    fs::create_dir(bed.path("sink")).unwrap();
    write_old(&bed.path("store/source/file"), &noise(1000));
    let (source, sink) = (bed.path("view/source/file"), bed.path("sink"));
    let words = ["install", "-m", "777", "-o", "1"].map(Path::new);
    let running = start(words.into_iter().chain([&*source, &*sink]).collect::<Vec<_>>());
    bed.held();
    symlink(outside.join("file"), sink.join("file")).unwrap();
    bed.let_go();
    let ended = running.end();
    ended.failed_with(&["sink/file'"]);
    assert_untouched(&outside, &ended);
    let found = fs::metadata(outside.join("file")).unwrap();
    assert!(found.uid() != 1 && found.mode() & 0o777 != 0o777, "{ended:?}");
}

/// The same if the directory above one new name is swapped.
#[test]
fn an_installed_file_gets_its_properties_where_it_was_written() {
    let Some(bed) = FaultBed::new(&format!("sink/* write .. delay {HOLD} times 1")) else { return };
    let outside = outside(&bed);
    fs::create_dir_all(bed.path("store/sink")).unwrap();
    symlink(bed.path("view/sink"), bed.path("way")).unwrap();
    write_old(&bed.path("source"), &noise(1000));
    fs::set_permissions(outside.join("file"), fs::Permissions::from_mode(0o604)).unwrap();
    let (source, way) = (bed.path("source"), bed.path("way"));
    let sink = way.join("file");
    let words = ["install", "-T", "-m", "751"].map(Path::new);
    let running = start(words.into_iter().chain([&*source, &*sink]).collect::<Vec<_>>());
    bed.held();
    fs::remove_file(&way).unwrap();
    symlink(&outside, &way).unwrap();
    bed.let_go();
    let ended = running.end();
    ended.is_fine();
    assert_untouched(&outside, &ended);
    assert_eq!(fs::metadata(outside.join("file")).unwrap().mode() & 0o777, 0o604, "{ended:?}");
    assert_eq!(fs::metadata(bed.path("store/sink/file")).unwrap().mode() & 0o7777, 0o751, "{ended:?}");
}

/// A directory is opened after its copy was created.
#[test]
fn a_source_directory_swapped_for_a_link_after_it_was_looked_at_is_not_entered() {
    for options in ["-a", "-rL"] {
        let Some(bed) = FaultBed::new("") else { return };
        fs::create_dir_all(bed.path("source/dir")).unwrap();
        fs::write(bed.path("source/dir/inside"), "inside").unwrap();
        fs::write(bed.path("source/beside"), "beside").unwrap();
        bed.rules(&format!("sink/dir create .. delay {HOLD} times 1"));
        let (source, sink) = (bed.path("source"), bed.path("view/sink"));
        let options = [options];
        let running = start(args(&options, &source, &sink));
        bed.held();
        swap_for_link(&bed.path("source/dir"), Path::new("/etc"));
        bed.let_go();
        let ended = running.end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("source/dir'"), "{ended:?}");
        let made = fs::symlink_metadata(bed.path("store/sink/dir")).unwrap();
        assert!(made.is_dir(), "{ended:?}");
        assert_eq!(fs::read_dir(bed.path("store/sink/dir")).unwrap().count(), 0, "{options:?} {ended:?}");
        assert_eq!(fs::read(bed.path("store/sink/beside")).unwrap(), b"beside");
    }
}

#[test]
fn a_source_directory_swapped_for_another_directory_is_not_entered() {
    let Some(bed) = FaultBed::new("") else { return };
    let outside = outside(&bed);
    fs::create_dir_all(bed.path("source/dir")).unwrap();
    bed.rules(&format!("sink/dir create .. delay {HOLD} times 1"));
    let (source, sink) = (bed.path("source"), bed.path("view/sink"));
    let running = start(args(&["-a"], &source, &sink));
    bed.held();
    fs::rename(bed.path("source/dir"), bed.path("source/was")).unwrap();
    fs::rename(&outside, bed.path("source/dir")).unwrap();
    bed.let_go();
    let ended = running.end();
    ended.failed_with(&["skipping file", "source/dir'", "replaced while being copied"]);
    assert_eq!(fs::read_dir(bed.path("store/sink/dir")).unwrap().count(), 0, "{ended:?}");
    assert_untouched(&bed.path("source/dir"), &ended);
}

/// The source is opened after the sink was checked and before the sink is opened.
#[test]
fn a_sink_file_swapped_for_a_link_after_it_was_looked_at_is_not_written_through() {
    for options in [&["-a"][..], &["-r"], &["-rf"]] {
        let Some(bed) = FaultBed::new(&format!("source/file open .. delay {HOLD} times 1")) else { return };
        let outside = outside(&bed);
        fs::create_dir_all(bed.path("store/source")).unwrap();
        fs::create_dir_all(bed.path("sink")).unwrap();
        write_old(&bed.path("store/source/file"), &noise(1000));
        fs::write(bed.path("sink/file"), "old").unwrap();
        let (source, sink) = (bed.path("view/source/."), bed.path("sink"));
        let running = start(args(options, &source, &sink));
        bed.held();
        swap_for_link(&bed.path("sink/file"), &outside.join("file"));
        bed.let_go();
        let ended = running.end();
        ended.failed_with(&["skipping file", "sink/./file'", "replaced while being copied"]);
        assert_untouched(&outside, &ended);
        assert_eq!(fs::read(bed.path("sink/file.was")).unwrap(), b"old", "{ended:?}");
    }
}

#[test]
fn a_link_put_where_a_new_file_is_to_be_is_not_written_through() {
    for target in ["file", "new"] {
        let Some(bed) = FaultBed::new(&format!("source/file open .. delay {HOLD} times 1")) else { return };
        let outside = outside(&bed);
        fs::create_dir_all(bed.path("store/source")).unwrap();
        write_old(&bed.path("store/source/file"), &noise(1000));
        let (source, sink) = (bed.path("view/source"), bed.path("sink"));
        let running = start(args(&["-a"], &source, &sink));
        bed.held();
        symlink(outside.join(target), bed.path("sink/file")).unwrap();
        bed.let_go();
        let ended = running.end();
        ended.failed_with(&["sink/file'"]);
        assert_untouched(&outside, &ended);
    }
}

/// The source directory is opened after its copy was created and before the copy is opened.
#[test]
fn a_new_directory_swapped_for_a_link_is_not_filled() {
    for options in ["-a", "-r", "-rL"] {
        let Some(bed) = FaultBed::new(&format!("source/dir list .. delay {HOLD} times 1")) else { return };
        let outside = outside(&bed);
        fs::create_dir_all(bed.path("store/source/dir")).unwrap();
        for name in ["file", "more"] {
            write_old(&bed.path("store/source/dir").join(name), &noise(1000));
        }
        let (source, sink) = (bed.path("view/source"), bed.path("sink"));
        let options = [options];
        let running = start(args(&options, &source, &sink));
        bed.held();
        swap_for_link(&bed.path("sink/dir"), &outside);
        bed.let_go();
        let ended = running.end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("sink/dir'"), "{ended:?}");
        assert_untouched(&outside, &ended);
    }
}

#[test]
fn a_new_directory_swapped_for_another_directory_is_not_filled() {
    let Some(bed) = FaultBed::new(&format!("source/dir list .. delay {HOLD} times 1")) else { return };
    let outside = outside(&bed);
    fs::create_dir_all(bed.path("store/source/dir")).unwrap();
    write_old(&bed.path("store/source/dir/more"), &noise(1000));
    let (source, sink) = (bed.path("view/source"), bed.path("sink"));
    let running = start(args(&["-a"], &source, &sink));
    bed.held();
    fs::rename(bed.path("sink/dir"), bed.path("sink/was")).unwrap();
    fs::rename(&outside, bed.path("sink/dir")).unwrap();
    bed.let_go();
    let ended = running.end();
    ended.failed_with(&["skipping file", "sink/dir'", "replaced while being copied"]);
    assert_eq!(fs::read_dir(bed.path("sink/was")).unwrap().count(), 0, "{ended:?}");
    // The copy may set metadata by name on its own directory only: the tests of a swapped link
    // prove that none is set elsewhere.
    let names = fs::read_dir(bed.path("sink/dir")).unwrap().count();
    assert_eq!(names, 2, "{ended:?}");
}

/// A checksum list reads nothing through a link that was a directory or a file before.
#[test]
fn a_directory_swapped_for_a_link_is_not_summed() {
    let Some(bed) = FaultBed::new(&format!("tree/a list .. delay {HOLD} times 1")) else { return };
    let outside = outside(&bed);
    for name in ["a", "b"] {
        fs::create_dir_all(bed.path("store/tree").join(name)).unwrap();
        fs::write(bed.path("store/tree").join(name).join("f"), name).unwrap();
    }
    fs::write(bed.path("store/tree/c"), "c").unwrap();
    let tree = bed.path("view/tree");
    let running = start([Path::new("sum"), "-r".as_ref(), "-a".as_ref(), "md5".as_ref(), &tree]);
    bed.held();
    swap_for_link(&bed.path("store/tree/b"), &outside);
    swap_for_link(&bed.path("store/tree/c"), &outside.join("secret"));
    bed.let_go();
    let ended = running.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let secret = haul([Path::new("md5sum"), &outside.join("secret")]).stdout;
    assert!(!ended.stdout.contains(&secret[..32]), "{ended:?}");
    assert!(ended.stdout.contains("tree/a/f"), "{ended:?}");
    assert_untouched(&outside, &ended);
}
