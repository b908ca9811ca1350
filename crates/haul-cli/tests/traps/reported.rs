//! Each failure is reported, and affects no other file.

use crate::faults::fixture::{FaultFixture, HAUL, haul, noise, write_old};
use haul_lab::needs::{Need, met_or_skip};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;

/// Links, pipes and directories are treated like files: metadata that cannot be set on them fails
/// the copy.
#[test]
fn metadata_errors_on_links_pipes_and_directories_fail_the_copy() {
    for name in ["link", "pipe", "dir"] {
        let Some(fixture) = FaultFixture::new(&format!("sink/{name} setattr .. errno EIO")) else { return };
        let source = fixture.path("source");
        fs::create_dir_all(source.join("dir")).unwrap();
        fs::create_dir(fixture.path("store/sink")).unwrap();
        symlink("nowhere", source.join("link")).unwrap();
        let status = Command::new("mkfifo").arg(source.join("pipe")).status().unwrap();
        assert!(status.success());
        write_old(&source.join("dir/file"), &noise(100));
        write_old(&source.join("file"), &noise(100));
        let view = fixture.path("view/sink");
        let ended = haul([Path::new("cp"), "-aT".as_ref(), &source, &view]);
        ended.failed_with(&[&format!("sink/{name}"), "Input/output error"]);
        for file in ["dir/file", "file"] {
            assert_eq!(fs::read(fixture.path("store/sink").join(file)).unwrap(), noise(100), "{ended:?}");
        }
    }
}

/// A file that `install` could not finish is accessible to no other user, is not executable, and
/// has no time that looks finished.
#[test]
fn an_incomplete_installed_file_is_private_and_the_others_succeed() {
    for rule in [
        "*victim write 262144.. errno EIO",
        "*victim write 262144.. errno ENOSPC",
        "*victim flush .. errno EIO",
    ] {
        let Some(fixture) = FaultFixture::new(rule) else { return };
        let names = ["one", "victim", "three"].map(|name| fixture.path(name));
        names.iter().for_each(|name| write_old(name, &noise(600_000)));
        fs::create_dir(fixture.path("store/d")).unwrap();
        let words = ["install", "-p", "-m", "4755", "-t"].map(Path::new);
        let view = fixture.path("view/d");
        let ended = haul(words.into_iter().chain([&*view]).chain(names.iter().map(|name| &**name)));
        ended.failed_with(&["/victim'", ": "]);
        assert_eq!(ended.complaints(), 1, "{rule} {ended:?}");
        let found = |name: &str| fs::metadata(fixture.path("store/d").join(name)).unwrap();
        for name in ["one", "three"] {
            assert_eq!((found(name).mode() & 0o7777, found(name).len()), (0o4755, 600_000), "{rule} {name}");
            assert_eq!(found(name).mtime(), 1_000_000_000, "{rule} {name}");
        }
        let left = found("victim");
        assert_eq!(left.mode() & 0o7777, 0o600, "{rule}");
        assert_ne!(left.mtime(), 1_000_000_000, "{rule}");
    }
}

#[test]
fn a_failed_symlink_fails_the_copy() {
    let Some(fixture) = FaultFixture::new("sink/link create .. errno EIO") else { return };
    let source = fixture.path("source");
    fs::create_dir(&source).unwrap();
    symlink("nowhere", source.join("link")).unwrap();
    write_old(&source.join("file"), &noise(100));
    let view = fixture.path("view/sink");
    let ended = haul([Path::new("cp"), "-a".as_ref(), &source, &view]);
    ended.failed_with(&["cannot create symbolic link", "sink/link'", "Input/output error"]);
    assert_eq!(fs::read(fixture.path("store/sink/file")).unwrap(), noise(100));
}

/// Only entries that a source replaces are removed at the sink, whatever failed at the source.
#[test]
fn extraneous_sink_files_are_kept_if_the_source_is_unreadable() {
    let Some(fixture) = FaultFixture::new("source/dir list .. errno EIO") else { return };
    fs::create_dir_all(fixture.path("store/source/dir")).unwrap();
    write_old(&fixture.path("store/source/dir/file"), &noise(100));
    write_old(&fixture.path("store/source/file"), &noise(100));
    let sink = fixture.path("sink");
    fs::create_dir_all(sink.join("dir/more")).unwrap();
    for name in ["file", "only-here", "dir/file", "dir/more/old"] {
        fs::write(sink.join(name), "old").unwrap();
    }
    let source = fixture.path("view/source");
    for options in ["-aT", "-aTf", "-rT"] {
        let ended =
            haul([Path::new("cp"), options.as_ref(), "--remove-destination".as_ref(), &source, &sink]);
        ended.failed_with(&["source/dir'", "Input/output error"]);
        for name in ["only-here", "dir/file", "dir/more/old"] {
            assert_eq!(fs::read(sink.join(name)).unwrap(), b"old", "{name} {ended:?}");
        }
        assert_eq!(fs::read(sink.join("file")).unwrap(), noise(100));
    }
}

#[test]
fn device_nodes_keep_their_numbers() {
    if !met_or_skip(&[Need::Root, Need::DeviceNodes]) {
        return;
    }
    let home = tempfile::tempdir().unwrap();
    let source = home.path().join("source");
    fs::create_dir(&source).unwrap();
    // Numbers that exceed eight bits, on each side.
    let nodes = [("c", "1", "3"), ("c", "259", "70000"), ("b", "7", "0"), ("b", "4000", "1048575")];
    for (kind, major, minor) in nodes {
        let made = Command::new("mknod")
            .arg(source.join(format!("{kind}{major}")))
            .args([kind, major, minor])
            .status();
        assert!(made.unwrap().success());
    }
    for options in ["-a", "-r", "-R"] {
        let sink = home.path().join("sink");
        haul([Path::new("cp"), options.as_ref(), &source, &sink]).is_fine();
        for (kind, major, _) in nodes {
            let [a, b] = [&source, &sink]
                .map(|root| fs::symlink_metadata(root.join(format!("{kind}{major}"))).unwrap());
            assert_eq!(a.rdev(), b.rdev(), "{kind} {major}");
            assert_eq!(b.file_type().is_block_device(), kind == "b");
        }
        fs::remove_dir_all(&sink).unwrap();
    }
}

/// With the limit on file sizes the write fails, and haul names the file.
#[test]
fn exceeding_the_file_size_limit_is_reported() {
    let home = tempfile::tempdir().unwrap();
    let [source, sink] = ["source", "sink"].map(|name| home.path().join(name));
    fs::write(&source, noise(1 << 20)).unwrap();
    let script = "trap '' XFSZ; ulimit -f 64; exec \"$@\"";
    for options in
        [&[][..], &["--threads=1"], &["--sparse=always"], &["--direct-write"], &["--double-buffer"]]
    {
        let mut command = Command::new("bash");
        command
            .args(["-c", script, "bash", HAUL, "cp"])
            .args(options)
            .args([&source, &sink])
            .env("LC_ALL", "C");
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{options:?} {said}");
        assert!(
            said.contains("error writing") && said.contains("sink': File too large"),
            "{options:?} {said}"
        );
        crate::faults::fixture::assert_unfinished(&sink);
        fs::remove_file(&sink).unwrap();
    }
}
