//! Names that are swapped between a check and the next call. A file system with a delay holds the
//! copy at a known place while the test swaps the file that is opened next. Nothing outside may be
//! read or written.

use crate::faults::fixture::{FaultFixture, HAUL, HOLD, RunResult, haul, noise, start, write_old};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::traced;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Creates the directory `outside`, which no copy may write to. `/etc` represents all targets of
/// links that lead out.
fn outside(fixture: &FaultFixture) -> PathBuf {
    let outside = fixture.path("outside");
    fs::create_dir(&outside).unwrap();
    write_old(&outside.join("secret"), b"secret");
    write_old(&outside.join("file"), b"not ours");
    fs::set_permissions(&outside, fs::Permissions::from_mode(0o711)).unwrap();
    outside
}

/// Panics if anything outside has changed.
#[track_caller]
fn assert_untouched(outside: &Path, ended: &RunResult) {
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

/// Regression test: the mode was set by name, in a directory that may belong to another user.
#[test]
fn install_sets_owner_and_mode_of_the_file_that_it_copied() {
    if !met_or_skip(&[Need::Root, traced::NEED]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let [source, sink, other] = ["source", "sink", "other"].map(|name| home.path().join(name));
    fs::write(&source, "copied").unwrap();
    fs::write(&other, "secret").unwrap();
    let facts = |path: &Path| fs::metadata(path).map(|found| (found.uid(), found.mode() & 0o7777)).unwrap();
    let before = facts(&other);
    let mut command = Command::new(HAUL);
    command.args(["install", "-o", "1", "-m", "4755"]).args([&source, &sink]);
    let mut child = traced::signalled(&command, "fchown,fchownat,chown,lchown", "STOP", "1").spawn().unwrap();
    assert!(traced::is_stopped(&child), "the owner is set");
    fs::rename(&sink, home.path().join("was")).unwrap();
    fs::hard_link(&other, &sink).unwrap();
    traced::continue_child(&child);
    assert!(child.wait().unwrap().success());
    assert_eq!(facts(&other), before);
    assert_eq!(facts(&home.path().join("was")), (1, 0o4755));
}

/// A strip program must get a name, so another user may swap the file meanwhile.
#[test]
fn install_refuses_another_file_after_the_strip_program() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let outside = outside(&fixture);
    let mode = fs::metadata(outside.join("file")).unwrap().mode();
    write_old(&fixture.path("source"), &noise(1000));
    let strip = fixture.path("strip");
    fs::write(&strip, format!("#!/bin/sh\nexec ln -f {}/file \"$1\"\n", outside.display())).unwrap();
    fs::set_permissions(&strip, PermissionsExt::from_mode(0o755)).unwrap();
    let [source, sink] = ["source", "sink"].map(|name| fixture.path(name));
    let program = format!("--strip-program={}", strip.display());
    let ended =
        start([Path::new("install"), "-s".as_ref(), program.as_ref(), "-m777".as_ref(), &source, &sink])
            .end();
    ended.failed_with(&["cannot set the owner and mode of ", "sink'"]);
    assert_untouched(&outside, &ended);
    assert_eq!(fs::metadata(outside.join("file")).unwrap().mode(), mode, "{ended:?}");
}

/// The old file of the sink is renamed to its backup after the source was checked and before it is
/// opened.
#[test]
fn a_source_file_replaced_by_a_link_is_not_read() {
    for options in [&["-ab"][..], &["-rbL"], &["-bT"]] {
        let Some(fixture) = FaultFixture::new("") else { return };
        let outside = outside(&fixture);
        fs::create_dir_all(fixture.path("source")).unwrap();
        fs::create_dir_all(fixture.path("store/sink")).unwrap();
        write_old(&fixture.path("source/victim"), &noise(1000));
        fs::write(fixture.path("store/sink/victim"), "old").unwrap();
        fixture.rules(&format!("sink/victim rename .. delay {HOLD} times 1"));
        let (source, sink) = match options {
            ["-bT"] => (fixture.path("source/victim"), fixture.path("view/sink/victim")),
            _ => (fixture.path("source/."), fixture.path("view/sink")),
        };
        let running = start(args(options, &source, &sink));
        fixture.held();
        swap_for_link(&fixture.path("source/victim"), &outside.join("secret"));
        fixture.release();
        let ended = running.end();
        ended.failed_with(&["source/", "victim'"]);
        assert_eq!(fs::read(fixture.path("store/sink/victim")).unwrap(), b"old", "{options:?} {ended:?}");
        assert_untouched(&outside, &ended);
    }
}

/// Runs `tool` with a link that leads to the target at the start, and to `outside` while the first
/// file is written.
fn fill_by_a_link_that_is_swapped(tool: &[&str]) -> Option<(FaultFixture, RunResult)> {
    let fixture = FaultFixture::new(&format!("sink/* write .. delay {HOLD} times 1"))?;
    let outside = outside(&fixture);
    fs::create_dir_all(fixture.path("store/sink")).unwrap();
    symlink(fixture.path("view/sink"), fixture.path("way")).unwrap();
    for name in ["file", "secret"] {
        write_old(&fixture.path(name), &noise(1000));
        for file in [fixture.path(name), outside.join(name)] {
            fs::set_permissions(file, fs::Permissions::from_mode(0o604)).unwrap();
        }
    }
    let names = ["file", "secret"].map(|name| fixture.path(name));
    let way = fixture.path("way");
    let args = tool.iter().map(Path::new).chain(names.iter().map(PathBuf::as_path)).chain([&*way]);
    let running = start(args.collect::<Vec<_>>());
    fixture.held();
    fs::remove_file(&way).unwrap();
    symlink(&outside, &way).unwrap();
    fixture.release();
    let ended = running.end();
    assert_untouched(&outside, &ended);
    for name in ["file", "secret"] {
        assert_eq!(fs::metadata(outside.join(name)).unwrap().mode() & 0o777, 0o604, "{name} {ended:?}");
        assert_eq!(fs::read(fixture.path("store/sink").join(name)).unwrap(), noise(1000), "{name} {ended:?}");
    }
    Some((fixture, ended))
}

#[test]
fn mv_keeps_its_target_if_the_link_to_it_is_replaced() {
    let Some((fixture, ended)) = fill_by_a_link_that_is_swapped(&["mv"]) else { return };
    ended.is_fine();
    assert!(!fixture.path("file").exists() && !fixture.path("secret").exists());
}

/// An installed file gets its permissions at the end: they must not be set on the file of the same
/// name elsewhere.
#[test]
fn install_keeps_its_target_if_the_link_to_it_is_replaced() {
    let tool = ["install", "-p", "-m", "751"];
    let Some((fixture, ended)) = fill_by_a_link_that_is_swapped(&tool) else { return };
    ended.is_fine();
    for name in ["file", "secret"] {
        let found = fs::metadata(fixture.path("store/sink").join(name)).unwrap();
        assert_eq!((found.mode() & 0o7777, found.mtime()), (0o751, 1_000_000_000), "{name}");
    }
}

/// A link at the name of an installed file is not written through, and gets no owner and no mode.
#[test]
fn install_does_not_write_through_a_link_created_meanwhile() {
    let Some(fixture) = FaultFixture::new(&format!("source/file open .. delay {HOLD} times 1")) else {
        return;
    };
    let outside = outside(&fixture);
    fs::create_dir_all(fixture.path("store/source")).unwrap();
    fs::create_dir(fixture.path("sink")).unwrap();
    write_old(&fixture.path("store/source/file"), &noise(1000));
    let (source, sink) = (fixture.path("view/source/file"), fixture.path("sink"));
    let words = ["install", "-m", "777", "-o", "1"].map(Path::new);
    let running = start(words.into_iter().chain([&*source, &*sink]).collect::<Vec<_>>());
    fixture.held();
    symlink(outside.join("file"), sink.join("file")).unwrap();
    fixture.release();
    let ended = running.end();
    ended.failed_with(&["sink/file'"]);
    assert_untouched(&outside, &ended);
    let found = fs::metadata(outside.join("file")).unwrap();
    assert!(found.uid() != 1 && found.mode() & 0o777 != 0o777, "{ended:?}");
}

/// The same if the directory above one new name is swapped.
#[test]
fn install_sets_metadata_on_the_file_it_wrote() {
    let Some(fixture) = FaultFixture::new(&format!("sink/* write .. delay {HOLD} times 1")) else { return };
    let outside = outside(&fixture);
    fs::create_dir_all(fixture.path("store/sink")).unwrap();
    symlink(fixture.path("view/sink"), fixture.path("way")).unwrap();
    write_old(&fixture.path("source"), &noise(1000));
    fs::set_permissions(outside.join("file"), fs::Permissions::from_mode(0o604)).unwrap();
    let (source, way) = (fixture.path("source"), fixture.path("way"));
    let sink = way.join("file");
    let words = ["install", "-T", "-m", "751"].map(Path::new);
    let running = start(words.into_iter().chain([&*source, &*sink]).collect::<Vec<_>>());
    fixture.held();
    fs::remove_file(&way).unwrap();
    symlink(&outside, &way).unwrap();
    fixture.release();
    let ended = running.end();
    ended.is_fine();
    assert_untouched(&outside, &ended);
    assert_eq!(fs::metadata(outside.join("file")).unwrap().mode() & 0o777, 0o604, "{ended:?}");
    assert_eq!(fs::metadata(fixture.path("store/sink/file")).unwrap().mode() & 0o7777, 0o751, "{ended:?}");
}

/// A directory is opened after its copy was created.
#[test]
fn a_source_directory_replaced_by_a_link_is_not_entered() {
    for options in ["-a", "-rL"] {
        let Some(fixture) = FaultFixture::new("") else { return };
        fs::create_dir_all(fixture.path("source/dir")).unwrap();
        fs::write(fixture.path("source/dir/inside"), "inside").unwrap();
        fs::write(fixture.path("source/beside"), "beside").unwrap();
        fixture.rules(&format!("sink/dir create .. delay {HOLD} times 1"));
        let (source, sink) = (fixture.path("source"), fixture.path("view/sink"));
        let options = [options];
        let running = start(args(&options, &source, &sink));
        fixture.held();
        swap_for_link(&fixture.path("source/dir"), Path::new("/etc"));
        fixture.release();
        let ended = running.end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("source/dir'"), "{ended:?}");
        let made = fs::symlink_metadata(fixture.path("store/sink/dir")).unwrap();
        assert!(made.is_dir(), "{ended:?}");
        assert_eq!(fs::read_dir(fixture.path("store/sink/dir")).unwrap().count(), 0, "{options:?} {ended:?}");
        assert_eq!(fs::read(fixture.path("store/sink/beside")).unwrap(), b"beside");
    }
}

#[test]
fn a_source_directory_replaced_by_a_directory_is_not_entered() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let outside = outside(&fixture);
    fs::create_dir_all(fixture.path("source/dir")).unwrap();
    fixture.rules(&format!("sink/dir create .. delay {HOLD} times 1"));
    let (source, sink) = (fixture.path("source"), fixture.path("view/sink"));
    let running = start(args(&["-a"], &source, &sink));
    fixture.held();
    fs::rename(fixture.path("source/dir"), fixture.path("source/was")).unwrap();
    fs::rename(&outside, fixture.path("source/dir")).unwrap();
    fixture.release();
    let ended = running.end();
    ended.failed_with(&["skipping file", "source/dir'", "replaced while being copied"]);
    assert_eq!(fs::read_dir(fixture.path("store/sink/dir")).unwrap().count(), 0, "{ended:?}");
    assert_untouched(&fixture.path("source/dir"), &ended);
}

/// The source is opened after the sink was checked and before the sink is opened.
#[test]
fn a_sink_file_replaced_by_a_link_is_not_written_through() {
    for options in [&["-a"][..], &["-r"], &["-rf"]] {
        let Some(fixture) = FaultFixture::new(&format!("source/file open .. delay {HOLD} times 1")) else {
            return;
        };
        let outside = outside(&fixture);
        fs::create_dir_all(fixture.path("store/source")).unwrap();
        fs::create_dir_all(fixture.path("sink")).unwrap();
        write_old(&fixture.path("store/source/file"), &noise(1000));
        fs::write(fixture.path("sink/file"), "old").unwrap();
        let (source, sink) = (fixture.path("view/source/."), fixture.path("sink"));
        let running = start(args(options, &source, &sink));
        fixture.held();
        swap_for_link(&fixture.path("sink/file"), &outside.join("file"));
        fixture.release();
        let ended = running.end();
        ended.failed_with(&["skipping file", "sink/./file'", "replaced while being copied"]);
        assert_untouched(&outside, &ended);
        assert_eq!(fs::read(fixture.path("sink/file.was")).unwrap(), b"old", "{ended:?}");
    }
}

#[test]
fn a_link_created_at_a_new_name_is_not_written_through() {
    for target in ["file", "new"] {
        let Some(fixture) = FaultFixture::new(&format!("source/file open .. delay {HOLD} times 1")) else {
            return;
        };
        let outside = outside(&fixture);
        fs::create_dir_all(fixture.path("store/source")).unwrap();
        write_old(&fixture.path("store/source/file"), &noise(1000));
        let (source, sink) = (fixture.path("view/source"), fixture.path("sink"));
        let running = start(args(&["-a"], &source, &sink));
        fixture.held();
        symlink(outside.join(target), fixture.path("sink/file")).unwrap();
        fixture.release();
        let ended = running.end();
        ended.failed_with(&["sink/file'"]);
        assert_untouched(&outside, &ended);
    }
}

/// The source directory is opened after its copy was created and before the copy is opened.
#[test]
fn a_new_directory_replaced_by_a_link_is_not_filled() {
    for options in ["-a", "-r", "-rL"] {
        let Some(fixture) = FaultFixture::new(&format!("source/dir list .. delay {HOLD} times 1")) else {
            return;
        };
        let outside = outside(&fixture);
        fs::create_dir_all(fixture.path("store/source/dir")).unwrap();
        for name in ["file", "more"] {
            write_old(&fixture.path("store/source/dir").join(name), &noise(1000));
        }
        let (source, sink) = (fixture.path("view/source"), fixture.path("sink"));
        let options = [options];
        let running = start(args(&options, &source, &sink));
        fixture.held();
        swap_for_link(&fixture.path("sink/dir"), &outside);
        fixture.release();
        let ended = running.end();
        assert_eq!(ended.code, Some(1), "{ended:?}");
        assert!(ended.stderr.contains("sink/dir'"), "{ended:?}");
        assert_untouched(&outside, &ended);
    }
}

#[test]
fn a_new_directory_replaced_by_a_directory_is_not_filled() {
    let Some(fixture) = FaultFixture::new(&format!("source/dir list .. delay {HOLD} times 1")) else {
        return;
    };
    let outside = outside(&fixture);
    fs::create_dir_all(fixture.path("store/source/dir")).unwrap();
    write_old(&fixture.path("store/source/dir/more"), &noise(1000));
    let (source, sink) = (fixture.path("view/source"), fixture.path("sink"));
    let running = start(args(&["-a"], &source, &sink));
    fixture.held();
    fs::rename(fixture.path("sink/dir"), fixture.path("sink/was")).unwrap();
    fs::rename(&outside, fixture.path("sink/dir")).unwrap();
    fixture.release();
    let ended = running.end();
    ended.failed_with(&["skipping file", "sink/dir'", "replaced while being copied"]);
    assert_eq!(fs::read_dir(fixture.path("sink/was")).unwrap().count(), 0, "{ended:?}");
    // The copy may set metadata by name on its own directory only: the tests of a swapped link
    // prove that none is set elsewhere.
    let names = fs::read_dir(fixture.path("sink/dir")).unwrap().count();
    assert_eq!(names, 2, "{ended:?}");
}

/// A checksum list reads nothing through a link that was a directory or a file before.
#[test]
fn a_directory_replaced_by_a_link_is_not_summed() {
    let Some(fixture) = FaultFixture::new(&format!("tree/a list .. delay {HOLD} times 1")) else { return };
    let outside = outside(&fixture);
    for name in ["a", "b"] {
        fs::create_dir_all(fixture.path("store/tree").join(name)).unwrap();
        fs::write(fixture.path("store/tree").join(name).join("f"), name).unwrap();
    }
    fs::write(fixture.path("store/tree/c"), "c").unwrap();
    let tree = fixture.path("view/tree");
    let running = start([Path::new("sum"), "-r".as_ref(), "-a".as_ref(), "md5".as_ref(), &tree]);
    fixture.held();
    swap_for_link(&fixture.path("store/tree/b"), &outside);
    swap_for_link(&fixture.path("store/tree/c"), &outside.join("secret"));
    fixture.release();
    let ended = running.end();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let secret = haul([Path::new("md5sum"), &outside.join("secret")]).stdout;
    assert!(!ended.stdout.contains(&secret[..32]), "{ended:?}");
    assert!(ended.stdout.contains("tree/a/f"), "{ended:?}");
    assert_untouched(&outside, &ended);
}
