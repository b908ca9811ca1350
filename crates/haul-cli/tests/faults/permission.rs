//! Files that an ordinary user may not read or write.

use super::fixture::{RunResult, Running, copy_haul};
use haul_lab::needs::{Need, met_or_skip};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// User ID of `nobody` on Linux.
const NOBODY: u32 = 65534;

/// The directory of an ordinary user, with a copy of the binary that the user can reach.
struct Home(TempDir);

impl Home {
    fn new() -> Option<Home> {
        let is_root = rustix::process::geteuid().is_root();
        if is_root && !met_or_skip(&[Need::Program("setpriv")]) {
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        set_mode(home.path(), 0o755);
        copy_haul(&home.path().join("haul"));
        let home = Home(home);
        fs::create_dir(home.path("of_user")).unwrap();
        home.give("of_user");
        Some(home)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes the user the owner.
    fn give(&self, name: &str) {
        if rustix::process::geteuid().is_root() {
            chown(self.path(name), Some(NOBODY), Some(NOBODY)).unwrap();
        }
    }

    /// Runs `haul` as the user, in the directory of the user.
    fn haul<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> RunResult {
        let haul = self.path("haul");
        let mut command = if rustix::process::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
            command.args([&*user, &*group, "--clear-groups", "--"]).arg(haul);
            command
        } else {
            Command::new(haul)
        };
        Running::new(command.args(args).current_dir(self.path("of_user"))).end()
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
}

#[test]
fn unreadable_entries_are_reported_and_the_rest_copied() {
    let Some(home) = Home::new() else { return };
    let source = home.path("source");
    for dir in ["open", "closed"] {
        fs::create_dir_all(source.join(dir)).unwrap();
        fs::write(source.join(dir).join("file"), dir).unwrap();
    }
    fs::write(source.join("plain"), b"plain").unwrap();
    fs::write(source.join("secret"), b"secret").unwrap();
    for name in ["secret", "closed"] {
        set_mode(&source.join(name), 0);
    }
    let ended = home.haul(["cp", "-r", "../source", "sink"]);
    set_mode(&source.join("closed"), 0o755);
    ended.failed_with(&["cannot open '../source/secret' for reading", "Permission denied"]);
    ended.failed_with(&["cannot access '../source/closed'", "Permission denied"]);
    assert_eq!(ended.complaints(), 2, "{ended:?}");
    let sink = home.path("of_user/sink");
    assert_eq!(fs::read(sink.join("plain")).unwrap(), b"plain");
    assert_eq!(fs::read(sink.join("open/file")).unwrap(), b"open");
    if sink.join("closed").exists() {
        set_mode(&sink.join("closed"), 0o755);
    }
    assert!(!sink.join("secret").exists() && !sink.join("closed/file").exists());
}

#[test]
fn an_unwritable_directory_keeps_its_contents() {
    let Some(home) = Home::new() else { return };
    let sink = home.path("of_user/sink");
    fs::create_dir(&sink).unwrap();
    fs::write(sink.join("a"), b"old").unwrap();
    home.give("of_user/sink/a");
    set_mode(&sink.join("a"), 0o444);
    home.give("of_user/sink");
    set_mode(&sink, 0o555);
    for name in ["a", "b"] {
        fs::write(home.path("of_user").join(name), b"new").unwrap();
    }
    for options in [&[][..], &["-f"], &["--remove-destination"]] {
        let ended = home.haul(["cp"].iter().chain(options).chain(&["a", "b", "sink"]));
        for name in ["a", "b"] {
            ended.failed_with(&[&format!("'sink/{name}'"), "Permission denied"]);
        }
        assert_eq!(fs::read(sink.join("a")).unwrap(), b"old", "{options:?}");
        assert!(!sink.join("b").exists());
    }
    set_mode(&sink, 0o755);
    home.haul(["cp", "-f", "a", "b", "sink"]).is_fine();
    assert_eq!(fs::read(sink.join("a")).unwrap(), b"new");
}

#[test]
fn a_read_only_source_tree_is_copied_and_stays_read_only() {
    let Some(home) = Home::new() else { return };
    let source = home.path("source");
    fs::create_dir_all(source.join("d/e")).unwrap();
    fs::write(source.join("d/e/file"), b"deep").unwrap();
    for name in ["d/e/file", "d/e", "d", ""] {
        set_mode(&source.join(name), if name == "d/e/file" { 0o444 } else { 0o555 });
    }
    home.haul(["cp", "-a", "../source", "sink"]).is_fine();
    let sink = home.path("of_user/sink");
    assert_eq!(fs::read(sink.join("d/e/file")).unwrap(), b"deep");
    for name in ["d/e", "d", ""] {
        for root in [&sink, &source] {
            let mode = fs::metadata(root.join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o555, "{}", root.join(name).display());
        }
    }
    for root in [&sink, &source] {
        ["", "d", "d/e"].iter().for_each(|name| set_mode(&root.join(name), 0o755));
    }
}

/// In earlier versions a copied link got the group of its source if the user was a member of this
/// group.
#[test]
fn a_group_member_preserves_the_group_of_files_and_not_of_links() {
    use std::os::unix::fs::{MetadataExt, lchown, symlink};
    const GROUP: u32 = 4242;
    if !met_or_skip(&[Need::Root, Need::Program("setpriv")]) {
        return;
    }
    let Some(home) = Home::new() else { return };
    fs::create_dir(home.path("source")).unwrap();
    fs::write(home.path("source/file"), "bytes").unwrap();
    symlink("file", home.path("source/link")).unwrap();
    for name in ["source/file", "source/link"] {
        lchown(home.path(name), Some(0), Some(GROUP)).unwrap();
    }
    let haul = home.path("haul");
    let tools: [(&[&OsStr], &str); 2] =
        [(&["/usr/bin/cp".as_ref()], "gnu"), (&[haul.as_os_str(), "cp".as_ref()], "ours")];
    for (tool, into) in tools {
        let mut command = Command::new("setpriv");
        let (user, group) = (format!("--reuid={NOBODY}"), format!("--regid={NOBODY}"));
        command.args([&*user, &*group, &format!("--groups={GROUP}"), "--"]).args(tool);
        command.args(["-a", "../source", into]).current_dir(home.path("of_user"));
        assert!(command.status().unwrap().success(), "{into}");
        let owners = |name: &str| {
            let found = fs::symlink_metadata(home.path(&format!("of_user/{into}/{name}"))).unwrap();
            (found.uid(), found.gid())
        };
        assert_eq!((owners("file"), owners("link")), ((NOBODY, GROUP), (NOBODY, NOBODY)), "{into}");
    }
}
