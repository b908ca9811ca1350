//! Test fixture for copies: a folder, a recorder of reports, and a run with a time limit.

use haul_coreutils::cp::{CopyRules, CopySettings, Dereference, Operands, Outcome, Preserve, Print, copy};
use haul_digest::Digest;
use haul_engine::copy::{CopyError, CopyObserver, FileFigures, HashLine, Moving, Question, Tally};
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::random::noise;
use haul_lab::snapshot::{Kind, Snapshot};
use haul_model::{ByteRange, Level};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;

/// Time limit of a copy. A longer copy hangs, even on a loaded machine.
const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// A folder that is removed with its contents, whatever the modes of its directories are.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    /// Returns a folder on a file system of this kind; `None` and a printed skip if this machine
    /// cannot mount one.
    pub(crate) fn on(kind: FsKind) -> Option<Place> {
        shared_dir(kind).map(Place)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Writes a file of `len` random bytes and returns them.
    pub(crate) fn noise(&self, name: &str, len: u64) -> Vec<u8> {
        let bytes = noise(len, len ^ 0x5eed);
        fs::write(self.path(name), &bytes).unwrap();
        bytes
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        open_directories(self.0.path());
    }
}

/// Makes read-only directories writable, so that an ordinary user can remove the tree.
fn open_directories(root: &Path) {
    let Ok(entries) = fs::read_dir(root) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            let _ = fs::set_permissions(entry.path(), PermissionsExt::from_mode(0o700));
            open_directories(&entry.path());
        }
    }
}

/// A digest as reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) name: PathBuf,
    pub(crate) digests: Vec<Digest>,
    pub(crate) tree: bool,
    pub(crate) part: Option<ByteRange>,
}

/// Recorder of all reports of a job.
#[derive(Default)]
pub(crate) struct RecordingObserver {
    failed: Mutex<Vec<String>>,
    warned: Mutex<Vec<String>>,
    hashed: Mutex<Vec<Heard>>,
    finished: Mutex<Vec<(OsString, u64)>>,
    levels: Mutex<Vec<Level>>,
}

impl CopyObserver for RecordingObserver {
    fn failed(&self, error: &CopyError) {
        held(&self.failed).push(error.to_string());
    }
    fn warned(&self, warning: &CopyError) {
        held(&self.warned).push(warning.to_string());
    }
    fn made(&self, _: &OsStr) {}
    fn hashed(&self, line: &HashLine<'_>) {
        held(&self.hashed).push(Heard {
            name: line.name.into(),
            digests: line.digests.to_vec(),
            tree: line.tree,
            part: line.part,
        });
    }
    fn wants_figures(&self) -> bool {
        true
    }
    fn finished(&self, figures: &FileFigures<'_>) {
        held(&self.finished).push((figures.source.to_owned(), figures.bytes));
        held(&self.levels).push(figures.level);
    }
    fn ask(&self, question: &Question<'_>) -> bool {
        panic!("a question without -i: {:?}", question.text)
    }
}

fn held<T>(list: &Mutex<T>) -> MutexGuard<'_, T> {
    list.lock().unwrap()
}

/// Result of a copy.
#[derive(Debug)]
pub(crate) struct Told {
    pub(crate) outcome: Outcome,
    pub(crate) failed: Vec<String>,
    pub(crate) warned: Vec<String>,
    pub(crate) hashed: Vec<Heard>,
    pub(crate) finished: Vec<(OsString, u64)>,
    /// Proven level of each finished file, in the same order.
    pub(crate) levels: Vec<Level>,
    pub(crate) bytes_done: u64,
}

impl Told {
    /// Panics if there was an error or a warning.
    #[track_caller]
    pub(crate) fn is_fine(&self) {
        assert!(self.failed.is_empty() && self.warned.is_empty(), "{:?} {:?}", self.failed, self.warned);
        assert_eq!((self.outcome.failures, self.outcome.interrupted), (0, false));
        assert_eq!(self.outcome.cut_off, Vec::<OsString>::new());
    }
}

/// Copies with these settings.
pub(crate) fn run(settings: &CopySettings) -> Told {
    let (ear, tally, stop) = (RecordingObserver::default(), Tally::default(), AtomicBool::new(false));
    let watchdog = Watchdog::new(TEST_TIMEOUT);
    let outcome = copy(settings, &ear, &tally, &stop);
    watchdog.leave();
    let found = Tally::get(&tally.files_found);
    assert_eq!(Tally::get(&tally.files_done), found, "every file that was found has finished");
    Told {
        outcome,
        failed: ear.failed.into_inner().unwrap(),
        warned: ear.warned.into_inner().unwrap(),
        hashed: ear.hashed.into_inner().unwrap(),
        finished: ear.finished.into_inner().unwrap(),
        levels: ear.levels.into_inner().unwrap(),
        bytes_done: Tally::get(&tally.bytes_done),
    }
}

/// Time limit that aborts the whole test run, because a hanging thread cannot be ended alone.
struct Watchdog {
    leash: mpsc::Sender<()>,
    thread: JoinHandle<()>,
}

impl Watchdog {
    fn new(patience: Duration) -> Watchdog {
        let (leash, over) = mpsc::channel();
        let name = thread::current().name().unwrap_or("a test").to_owned();
        let thread = thread::spawn(move || {
            if over.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{name}: the copy hangs since {patience:?}");
                std::process::abort();
            }
        });
        Watchdog { leash, thread }
    }

    fn leave(self) {
        drop(self.leash);
        self.thread.join().unwrap();
    }
}

/// Returns the rules of `-a`.
pub(crate) fn archive() -> CopyRules {
    CopyRules {
        recursive: true,
        dereference: Dereference::Never,
        preserve: Preserve {
            mode: true,
            ownership: true,
            timestamps: true,
            links: true,
            xattr: true,
            reduce_diagnostics: true,
            ..Preserve::default()
        },
        ..CopyRules::default()
    }
}

/// Returns settings that copy one source to one name and report digests under the source's name.
pub(crate) fn onto(source: &Path, sink: &Path, rules: CopyRules, moving: &Moving) -> CopySettings {
    CopySettings {
        operands: Operands::Onto { source: source.into(), sink: sink.into() },
        source: None,
        place: None,
        rules,
        moving: moving.clone(),
        log: None,
        print: Print { hash: true, stats: true, source_name: true },
    }
}

/// Copies one file with the default rules of cp.
#[track_caller]
pub(crate) fn copy_file(source: &Path, sink: &Path, moving: &Moving) -> Told {
    let told = run(&onto(source, sink, CopyRules::default(), moving));
    told.is_fine();
    told
}

/// Returns the regular files of a tree: the path relative to its root and the length. Of several
/// names of one file, returns the first.
pub(crate) fn files_of(tree: &Snapshot) -> Vec<(PathBuf, u64)> {
    let files = tree.entries().filter_map(|(path, entry)| {
        let is_first = entry.same_as.as_deref().is_none_or(|first| first == path);
        match entry.kind {
            Kind::File { len, .. } if is_first => Some((path.to_owned(), len)),
            _ => None,
        }
    });
    files.collect()
}
