//! `haul repair`: all kinds of damage are repaired, and no file gets worse.

mod bad;
mod generated;
mod in_place;
mod interrupted;
mod journals;
pub(crate) mod refused;
mod repaired;
mod root;
mod shared;
pub(crate) mod untrusted;

use crate::waybill::rot;
use haul_lab::random::Random;
use haul_lab::traced;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

fn haul(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.current_dir(dir).env("LC_ALL", "C.UTF-8").args(args);
    // There is no place for a list of jobs, because the duration of a command depends on the
    // machine. An interrupted in-place repair needs a place for its key.
    command.env_remove("XDG_STATE_HOME").env("HOME", "");
    if dir.join("state").is_dir() {
        command.env("XDG_STATE_HOME", dir.join("state"));
    }
    command
}

/// Creates the state directory for the commands that [`haul`] returns from now on: it holds the key
/// of journals.
fn with_state(dir: &Path) {
    fs::create_dir(dir.join("state")).unwrap();
}

/// Returns status, standard output and standard error of a run in `dir`.
fn run(dir: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let ended = haul(dir, args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

/// Kills a command at each system call of these names in turn: at the first call, the second call,
/// and so on, until the command succeeds. Calls `ready` before each run, and `check` after each
/// kill with the system call.
#[track_caller]
fn killed_at_each(dir: &Path, args: &[&str], calls: &[&str], ready: impl Fn(), mut check: impl FnMut(&str)) {
    for call in calls {
        for when in 1.. {
            ready();
            let mut command = traced::signalled(&haul(dir, args), call, "KILL", &when.to_string());
            let ended = command.stdin(Stdio::null()).output().unwrap();
            if ended.status.signal() != Some(9) {
                assert!(ended.status.success() && when > 1, "{call} {when}: {ended:?}");
                break;
            }
            check(&format!("{call} {when}"));
        }
    }
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Random::from_seed(seed).fill(&mut bytes);
    bytes
}

/// Size of `data/big` in bytes, with objects of 64 KiB.
const BIG: usize = 700_000;

/// Creates the tree `data` with its waybill `w`, and the replicas `a` and `b` of the directory
/// around it.
fn fixture() -> TempDir {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    fs::create_dir_all(dir.join("data/sub")).unwrap();
    for (name, len) in [("big", BIG), ("one", 65_536), ("small", 100), ("empty", 0), ("sub/x y", 5000)] {
        fs::write(dir.join("data").join(name), bytes(len, len as u64 + 1)).unwrap();
    }
    let args = ["sum", "-r", "-a", "blake3,md5", "--object-size", "64K", "--waybill", "w", "data"];
    assert_eq!(run(dir, &args).0, Some(0));
    for replica in ["a", "b"] {
        fs::create_dir(dir.join(replica)).unwrap();
        let copied = run(dir, &["cp", "-a", "data", replica]);
        assert_eq!((copied.0, &*copied.2), (Some(0), ""));
    }
    home
}

/// Asserts that all files match the waybill, and that there are no extraneous files.
#[track_caller]
fn assert_whole(dir: &Path) {
    let ended = run(dir, &["verify", "--extra", "w", "."]);
    let strays: Vec<&str> = ended.1.lines().filter(|line| line.starts_with("'data/")).collect();
    assert!(strays.is_empty(), "{ended:?}");
    let replicas = ["a/data", "b/data"].iter().flat_map(|replica| fs::read_dir(dir.join(replica)).unwrap());
    assert!(replicas.flatten().all(|entry| !entry.file_name().to_string_lossy().contains("haul")));
}
