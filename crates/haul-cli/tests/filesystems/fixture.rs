//! Runs of GNU `cp` and of haul on one file system, and a comparison of the results.

use crate::faults::fixture::HAUL;
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::snapshot::{Facets, Kind, Snapshot};
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Seconds since 1970. The times of sources are before it. A later time was set during a copy, and
/// differs between GNU and haul.
const LATELY: i64 = 1_600_000_000;

/// Origin of a `cp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ToolOrigin {
    Gnu,
    Ours,
}

/// Result of a command. Lines of messages are sorted, because workers finish in any order.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RunResult {
    pub(super) status: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

/// Runs a `cp` in a directory.
pub(super) fn cp<S: AsRef<OsStr>>(
    maker: ToolOrigin,
    folder: &Path,
    args: impl IntoIterator<Item = S>,
) -> RunResult {
    let program = if maker == ToolOrigin::Gnu { "/usr/bin/cp" } else { HAUL };
    let mut command = Command::new(program);
    command.arg0("cp").args(args).current_dir(folder).env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
    for name in ["VERSION_CONTROL", "SIMPLE_BACKUP_SUFFIX", "POSIXLY_CORRECT", "LANGUAGE"] {
        command.env_remove(name);
    }
    let output = command.output().unwrap();
    let sorted = |bytes: &[u8]| {
        let text = String::from_utf8_lossy(bytes);
        let mut lines: Vec<&str> = text.lines().map(without_file_of_attribute).collect();
        lines.sort_unstable();
        lines.join("\n")
    };
    RunResult { status: output.status.code(), out: sorted(&output.stdout), err: sorted(&output.stderr) }
}

/// Returns a message about one attribute without the name of the file. GNU 9.1 repeats the name of
/// the attribute in its place, and haul names the file.
fn without_file_of_attribute(line: &str) -> &str {
    let is_about_one = line.starts_with("cp: setting attribute '") && line.contains("' for '");
    if is_about_one { line.split_once("' for '").map_or(line, |(before, _)| before) } else { line }
}

/// Results of GNU `cp` and of haul for the same command line.
pub(super) struct Twins {
    pub(super) folders: [PathBuf; 2],
    pub(super) runs: [RunResult; 2],
}

impl Twins {
    /// Runs a command line in the directories `NAME-gnu` and `NAME-ours`, which it creates in
    /// `room`.
    pub(super) fn run<S: AsRef<OsStr>>(room: &Path, name: &str, args: &[S]) -> Twins {
        Twins::prepared(room, name, |_| {}, args)
    }

    /// Does the same as [`Twins::run`] in directories that `prepare` fills.
    pub(super) fn prepared<S: AsRef<OsStr>>(
        room: &Path,
        name: &str,
        prepare: impl Fn(&Path),
        args: &[S],
    ) -> Twins {
        let folders = ["gnu", "ours"].map(|maker| room.join(format!("{name}-{maker}")));
        let mut runs =
            [ToolOrigin::Gnu, ToolOrigin::Ours].into_iter().zip(&folders).map(|(maker, folder)| {
                fs::create_dir(folder).unwrap();
                prepare(folder);
                cp(maker, folder, args)
            });
        let runs = [runs.next(), runs.next()].map(|run| run.expect("one run each"));
        Twins { folders, runs }
    }

    /// Returns a snapshot of `path` in both directories, or `None` if the path does not exist.
    pub(super) fn look(&self, path: &str) -> [Option<Snapshot>; 2] {
        self.folders.each_ref().map(|folder| {
            let path = folder.join(path);
            fs::symlink_metadata(&path).is_ok().then(|| Snapshot::take(&path).unwrap())
        })
    }

    /// Returns the differences in status, output, messages and the tree at `path`, or an empty text
    /// if there are none.
    pub(super) fn differences(&self, path: &str, facets: Facets) -> String {
        let mut text = String::new();
        let [gnu, ours] = &self.runs;
        if gnu.status != ours.status {
            let _ = writeln!(text, "  status {:?} against {:?}", gnu.status, ours.status);
        }
        for (what, gnu, ours) in [("out", &gnu.out, &ours.out), ("err", &gnu.err, &ours.err)] {
            for (maker, one, other) in [("gnu", gnu, ours), ("ours", ours, gnu)] {
                for line in one.lines().filter(|line| !other.lines().any(|o| o == *line)) {
                    let _ = writeln!(text, "  only {maker}, {what}: {line}");
                }
            }
            if gnu.lines().count() != ours.lines().count() {
                let _ = writeln!(
                    text,
                    "  {what}: {} lines against {}",
                    gnu.lines().count(),
                    ours.lines().count()
                );
            }
        }
        match self.look(path) {
            [Some(gnu), Some(ours)] => {
                let is_lately =
                    |tree: &Snapshot, path: &Path| tree.get(path).is_some_and(|e| e.mtime.0 > LATELY);
                for difference in gnu.diff(&ours, facets, 99) {
                    let path = &difference.path;
                    if difference.what.starts_with("mtime") && is_lately(&gnu, path) && is_lately(&ours, path)
                    {
                        continue;
                    }
                    let _ = writeln!(text, "  gnu against ours: {difference}");
                }
            }
            [None, None] => {}
            [gnu, _] => {
                let _ =
                    writeln!(text, "  only {} made something", if gnu.is_some() { "gnu" } else { "ours" });
            }
        }
        text
    }

    /// Removes both results.
    pub(super) fn remove(self) {
        for folder in self.folders {
            fs::remove_dir_all(folder).unwrap();
        }
    }
}

/// Returns the number of allocated bytes for each regular file of a tree, with its path.
pub(super) fn allocated(tree: &Snapshot) -> Vec<(PathBuf, u64)> {
    let files = tree.entries().filter_map(|(path, entry)| match entry.kind {
        Kind::File { allocated, .. } => Some((path.to_owned(), allocated)),
        _ => None,
    });
    files.collect()
}

/// Returns a directory on each kind of file system that is available.
pub(super) fn test_dirs() -> Vec<(FsKind, TempDir)> {
    FsKind::ALL.into_iter().filter_map(|kind| Some((kind, shared_dir(kind)?))).collect()
}

/// Panics with all differences if there are any.
#[track_caller]
pub(super) fn assert_alike(wrong: &[(String, String)]) {
    let told: Vec<String> = wrong.iter().map(|(name, what)| format!("{name}:\n{what}")).collect();
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), told.join("\n"));
}
