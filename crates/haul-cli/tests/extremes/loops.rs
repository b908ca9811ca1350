//! Trees whose paths lead back up, by mounts and by links.

use crate::faults::fixture::{HAUL, haul};
use haul_lab::needs::{Need, met_or_skip};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Result of a script: its status, its output and its messages, with sorted lines.
type ScriptResult = (Option<i32>, String, String);

/// Runs a script in a private mount namespace, whose mounts end with it. `$cp` and `$haul` are the
/// tools.
fn with_mounts(home: &TempDir, cp: &str, script: &str) -> ScriptResult {
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).current_dir(home.path());
    let output = command.env("cp", cp).env("haul", HAUL).env("LC_ALL", "C").output().unwrap();
    let text = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes).replace("/usr/bin/", "").replace("haul ", "");
        let mut lines: Vec<&str> = text.lines().collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Creates a tree with mount points.
fn home() -> Option<TempDir> {
    if !met_or_skip(&[Need::Mount, Need::Program("unshare")]) {
        return None;
    }
    let home = tempfile::tempdir().unwrap();
    fs::create_dir_all(home.path().join("t/a/b/c")).unwrap();
    fs::create_dir_all(home.path().join("t/side")).unwrap();
    for name in ["t/top", "t/a/in-a", "t/a/b/in-b", "t/side/in-side"] {
        fs::write(home.path().join(name), name).unwrap();
    }
    Some(home)
}

/// Asserts that both tools have the same results and messages.
#[track_caller]
fn as_gnu(home: &TempDir, script: &str) -> ScriptResult {
    tool_as_gnu(home, "cp", script)
}

/// Does the same as [`as_gnu`] for another tool, which the script still calls `$cp`.
#[track_caller]
fn tool_as_gnu(home: &TempDir, tool: &str, script: &str) -> ScriptResult {
    let programs = [format!("/usr/bin/{tool}"), format!("{HAUL} {tool}")];
    let [gnu, ours] = programs.map(|program| with_mounts(home, &program, script));
    assert_eq!(ours, gnu, "{script}");
    ours
}

const LIST: &str = "s=$?; find z | sort; rm -rf z; exit $s";

#[test]
fn a_directory_mounted_in_itself_is_reported_and_the_rest_copied() {
    let Some(home) = home() else { return };
    let said = as_gnu(&home, &format!("mount --bind t/a t/a/b/c; $cp -r t z; {LIST}"));
    assert_eq!((said.0, &*said.2), (Some(1), "cp: cannot copy cyclic symbolic link 't/a/b/c'"));
    for name in ["z/top", "z/a/in-a", "z/a/b/in-b", "z/side/in-side"] {
        assert!(said.1.lines().any(|line| line == name), "{name} is missing: {}", said.1);
    }
}

#[test]
fn an_operand_mounted_in_itself_is_reported_and_the_rest_copied() {
    let Some(home) = home() else { return };
    let said = as_gnu(&home, &format!("mount --bind t t/a/b/c; $cp -a t z; {LIST}"));
    assert_eq!(said.0, Some(1));
    assert!(said.2.contains("will not create hard link 'z/a/b/c' to directory 'z'"), "{}", said.2);
    assert!(said.1.contains("z/side/in-side"), "{}", said.1);
}

#[test]
fn a_directory_mounted_twice_is_not_a_loop() {
    let Some(home) = home() else { return };
    let said = as_gnu(&home, &format!("mount --bind t/side t/a/b/c; $cp -a t z; {LIST}"));
    assert_eq!((said.0, &*said.2), (Some(0), ""));
    assert!(said.1.contains("z/a/b/c/in-side"), "{}", said.1);
}

/// Moves `s`, a copy of the tree, to another file system while something is mounted in it. Returns
/// the locations of all files.
fn moved_with(home: &TempDir, mount: &str) -> ScriptResult {
    let script = format!(
        "cp -a t s; mkdir far s/m; mount -t tmpfs none far; {mount}; $cp s far; s=$?
         find s -mindepth 1 | sort | sed 's/^/stays /'; umount s/m s/a/b/c 2> /dev/null
         find far | sort; umount far; rm -rf s far; exit $s"
    );
    tool_as_gnu(home, "mv", &script)
}

#[test]
fn a_move_with_a_mount_loop_removes_nothing() {
    let Some(home) = home() else { return };
    let said = moved_with(&home, "mount --bind s/a s/a/b/c");
    assert_eq!(said.0, Some(1), "{said:?}");
    for name in ["stays s/top", "stays s/a/in-a", "stays s/side/in-side"] {
        assert!(said.1.lines().any(|line| line == name), "{name}: {}", said.1);
    }
}

#[test]
fn mounted_files_in_a_moved_tree_move_and_the_mount_point_stays() {
    let Some(home) = home() else { return };
    let said = moved_with(&home, "mount -t tmpfs none s/m; echo x > s/m/f");
    assert_eq!(said.0, Some(1), "a mount cannot be removed: {said:?}");
    assert!(said.1.lines().any(|line| line == "far/s/m/f"), "{}", said.1);
}

#[test]
fn a_mount_loop_is_summed_once_and_reported() {
    let Some(home) = home() else { return };
    let said = with_mounts(&home, "", "mount --bind t/a t/a/b/c; exec $haul sum -a crc32 -r t");
    assert_eq!(said.0, Some(1));
    assert_eq!(said.1.lines().count(), 4, "{}", said.1);
    assert!(said.2.contains("t/a/b/c: mount point of a directory that it lies in"), "{}", said.2);
    let said = with_mounts(&home, "", "mount --bind t/side t/a/b/c; exec $haul sum -a crc32 -r t");
    assert_eq!((said.0, said.1.lines().count()), (Some(0), 5), "{}", said.2);
}

#[test]
fn followed_links_to_ancestors_are_reported_and_the_rest_copied() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir_all(at("t/a/b")).unwrap();
    fs::create_dir_all(at("t/c")).unwrap();
    fs::write(at("t/a/b/file"), "file").unwrap();
    for (target, link) in
        [("..", "t/a/up"), ("../..", "t/a/b/top"), ("../c", "t/a/to-c"), ("../a", "t/c/to-a")]
    {
        symlink(target, at(link)).unwrap();
    }
    let run = |program: &[&str], sink: &str| {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).args(["-rL", "t/a", sink]).current_dir(home.path()).env("LC_ALL", "C");
        let output = command.output().unwrap();
        let mut lines: Vec<String> = String::from_utf8(output.stderr)
            .unwrap()
            .lines()
            .map(|line| line.split_once("cp: ").unwrap().1.to_owned())
            .collect();
        lines.sort_unstable();
        (output.status.code(), lines)
    };
    let [gnu, ours] = [run(&["/usr/bin/cp"], "gnu"), run(&[HAUL, "cp"], "ours")];
    let names = |sink: &str| {
        let output = Command::new("find").arg(".").current_dir(at(sink)).output().unwrap();
        let mut names: Vec<String> =
            String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect();
        names.sort_unstable();
        names
    };
    assert_eq!(gnu, ours);
    assert_eq!(names("gnu"), names("ours"));
    assert_eq!(ours.0, Some(1));
    assert!(ours.1.iter().any(|line| line.starts_with("cannot copy cyclic symbolic link")), "{:?}", ours.1);
    assert!(at("ours/b/file").exists());
}

#[test]
fn link_loops_and_long_link_chains_are_reported() {
    let home = tempfile::tempdir().unwrap();
    let at = |name: &str| home.path().join(name);
    fs::create_dir(at("t")).unwrap();
    symlink("itself", at("t/itself")).unwrap();
    symlink("pong", at("t/ping")).unwrap();
    symlink("ping", at("t/pong")).unwrap();
    // One more link than the kernel follows.
    fs::write(at("t/end"), "end").unwrap();
    symlink("end", at("t/l0")).unwrap();
    for number in 1..=40 {
        symlink(format!("l{}", number - 1), at(&format!("t/l{number}"))).unwrap();
    }
    let ended = haul(["cp".as_ref(), "-rL".as_ref(), &*at("t"), &*at("z")]);
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for name in ["itself", "ping", "pong", "l40"] {
        let line =
            format!("cannot stat '{}': Too many levels of symbolic links", at("t").join(name).display());
        assert!(ended.stderr.contains(&line), "{line}: {}", ended.stderr);
    }
    assert_eq!((ended.complaints(), fs::read(at("z/l39")).unwrap()), (4, b"end".to_vec()));
    // As links they are copied without a message.
    haul(["cp".as_ref(), "-a".as_ref(), &*at("t"), &*at("y")]).is_fine();
    assert_eq!(fs::read_link(at("y/itself")).unwrap(), Path::new("itself"));
    let ended = haul(["sum".as_ref(), "-r".as_ref(), &*at("t")]);
    assert_eq!(ended.is_fine().stdout.lines().count(), 1, "links found in directories are left out");
    let ended = haul(["sum".as_ref(), &*at("t/ping")]);
    ended.failed_with(&["t/ping: Too many levels of symbolic links"]);
}

/// In earlier versions haul did not detect that a target with a name of one letter is in a source,
/// if the path to the copy had to be created.
#[test]
fn cp_parents_into_its_source_terminates() {
    let Some(home) = home() else { return };
    for (make, words) in [
        ("mkdir -p b/c", "b/../b b"),
        ("mkdir -p bb/c", "bb/../bb bb"),
        ("mkdir -p a/b; touch a/b/f", "a/b/f a/b a/b"),
        ("mkdir -p aa/bb; touch aa/bb/f", "aa/bb/f aa/bb aa/bb"),
        ("mkdir -p a d; touch a/f", "a/f a/.. d"),
        ("mkdir -p aa dd; touch aa/f", "aa/f aa/.. dd"),
    ] {
        let script = format!(
            "mkdir far; mount -t tmpfs -o nr_inodes=2000 none far; cd far; {make}; $cp -r --parents {words}; s=$?
             find . | wc -l; cd ..; umount far; rmdir far; exit $s"
        );
        let ours = with_mounts(&home, &format!("{HAUL} cp"), &script);
        let made: u64 = ours.1.trim().parse().unwrap();
        assert!(ours.0 == Some(1) && made < 20, "{words}: {ours:?}");
        assert!(ours.2.contains("into itself"), "{words}: {ours:?}");
    }
}
