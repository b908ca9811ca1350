//! Waybills on the command line: written, verified against all kinds of damage, and exported to
//! checksum tools.

mod checksums;
mod copied;
mod damage;
mod described;
mod device;
mod every_position;
mod export;
mod failing;
mod hostile;
mod located;
mod receipts;
mod resumed;
mod signed;
mod stored;
pub(crate) mod twin;
mod unwritable;
mod written;

use std::path::Path;
use std::process::{Command, Output};

/// Returns the command `haul` for a working directory.
fn haul(dir: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    // There is no place for a list of jobs, because the duration of a command depends on the
    // machine.
    command.current_dir(dir).env("LC_ALL", "C.UTF-8").env_remove("XDG_STATE_HOME").env("HOME", "");
    command
}

/// Exit status, standard output and standard error of a run.
#[derive(Debug, PartialEq, Eq)]
struct RunResult {
    status: Option<i32>,
    out: String,
    err: String,
}

fn run(dir: &Path, args: &[&str]) -> RunResult {
    let Output { status, stdout, stderr } = haul(dir).args(args).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    RunResult { status: status.code(), out: text(stdout), err: text(stderr) }
}

/// Runs a command that must succeed without standard error, and returns its standard output.
fn good(dir: &Path, args: &[&str]) -> String {
    let ran = run(dir, args);
    assert_eq!((ran.status, ran.err.as_str()), (Some(0), ""), "{args:?}: {ran:?}");
    ran.out
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// Creates a tree with small and large files, names that need quoting, and an empty file.
fn tree(dir: &Path) {
    std::fs::create_dir_all(dir.join("data/sub dir")).unwrap();
    for (name, len) in [
        ("data/big", 700_000),
        ("data/one-object", 65_536),
        ("data/small", 100),
        ("data/empty", 0),
        ("data/sub dir/line\nbreak", 10),
        ("data/sub dir/back\\slash 100%", 20),
    ] {
        std::fs::write(dir.join(name), pattern(len, len as u64 + 1)).unwrap();
    }
}

/// Changes bytes and restores the modification time, like bit rot.
pub(crate) fn rot(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let before = std::fs::metadata(path).unwrap().modified().unwrap();
    let mut bytes = std::fs::read(path).unwrap();
    change(&mut bytes);
    std::fs::write(path, bytes).unwrap();
    std::fs::File::options().write(true).open(path).unwrap().set_modified(before).unwrap();
}
