//! `haul cp --resume` and `haul jobs`: jobs that are interrupted, resumed, listed and forgotten.

mod again;
mod bad;
mod disk;
mod full;
mod jobs;
mod matrix;
mod power;
mod rerun;

use haul_lab::needs::met_or_skip;
use haul_lab::random::Random;
use haul_lab::snapshot::{Facets, Snapshot};
use haul_lab::traced;
use haul_log::objects::{Facts, Identity, Job, replay};
use haul_log::record::JobRecord;
use haul_model::{ByteLen, Geometry, ObjectSize, RelPath};
use haul_sys::{CWD, Follow, stat};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use tempfile::TempDir;

/// Object size in bytes.
const OBJECT: u64 = 64 << 10;

/// A test directory with a tree `source`, in which `sink` and `state` are created.
struct Fixture {
    home: TempDir,
}

impl Fixture {
    /// Creates a source with files of several objects, one of them with two names, and small files
    /// in a directory.
    fn new(seed: u64) -> Fixture {
        let fixture = Fixture::empty();
        let source = fixture.path("source");
        fs::create_dir_all(source.join("dir/deeper")).unwrap();
        let mut random = Random::from_seed(seed);
        for number in 0..4 {
            let len = OBJECT * (6 + random.below(8)) + random.below(OBJECT);
            write(&source.join(format!("large{number}")), len, seed * 10 + number);
        }
        for number in 0..12 {
            write(&source.join(format!("dir/small{number}")), random.below(OBJECT), seed * 10 + 5 + number);
        }
        write(&source.join("dir/deeper/one"), OBJECT, seed);
        fs::hard_link(source.join("large0"), source.join("dir/also-large0")).unwrap();
        std::os::unix::fs::symlink("large1", source.join("link")).unwrap();
        fixture
    }

    /// Does the same as [`Fixture::new`], for jobs that are interrupted. Returns `None` (the test
    /// is skipped) if no tool can stop a job at a sync.
    fn to_cut_off(seed: u64) -> Option<Fixture> {
        met_or_skip(&[traced::NEED]).then(|| Fixture::new(seed))
    }

    fn empty() -> Fixture {
        Fixture { home: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Returns the command `haul` for the test directory, with a state directory there.
    fn haul(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.current_dir(self.home.path()).args(words);
        command.env("LC_ALL", "C").env("XDG_STATE_HOME", self.path("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Returns the job of these tests, with additional options.
    fn cp(&self, more: &[&str]) -> Command {
        let words = ["cp", "-aT", "--resume", "--split-size=64K", "--json"];
        self.haul(&[&words[..], more, &["source", "sink"]].concat())
    }

    /// Runs the job until it exits.
    fn ends(&self, more: &[&str]) -> RunResult {
        RunResult::of(self.cp(more).output().unwrap())
    }

    /// Returns the directory of all jobs.
    fn jobs(&self) -> PathBuf {
        self.path("state/haul/jobs")
    }

    /// Returns the directory of the only job.
    fn job(&self) -> PathBuf {
        let all: Vec<PathBuf> =
            fs::read_dir(self.jobs()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [job] = &all[..] else { panic!("{all:?}") };
        job.clone()
    }

    fn record(&self) -> JobRecord {
        JobRecord::decode(&fs::read(self.job().join("record")).unwrap()).unwrap()
    }

    /// Returns the durable objects in the log of the only job.
    fn facts(&self) -> Facts {
        facts(&self.job())
    }

    /// Starts the job and kills it when its log contains a large file with one name.
    fn cut_off(&self, more: &[&str]) {
        kill(&mut self.held_at_work(self.cp(more)));
    }

    /// Does the same as [`Fixture::cut_off`] for the job with these words.
    fn cut_off_words(&self, words: &[&str]) {
        kill(&mut self.held_at_work(self.haul(words)));
    }

    /// Starts a job that stops (`SIGSTOP`) after each sync, and leaves it stopped when its log
    /// contains a large file. The log is checked while the job is stopped, so that it is the same
    /// when the job is killed. The file lacks most of its objects.
    fn held_at_work(&self, job: Command) -> Child {
        let is_logged = || self.facts_or_none().is_some_and(|facts| logged_file(&facts).is_some());
        held_where(&job, is_logged)
    }

    fn facts_or_none(&self) -> Option<Facts> {
        let mut found = fs::read_dir(self.jobs()).ok()?;
        found.next()?.ok().filter(|entry| entry.path().join("log").is_dir()).map(|_| self.facts())
    }

    /// Returns the first logged file with one name, relative to the test directory, and the numbers
    /// of its logged objects.
    fn logged_file(&self) -> (String, Vec<u64>) {
        logged_file(&self.facts()).expect("the job was interrupted after a file was logged")
    }

    /// Panics unless the tree has arrived with everything that is kept.
    #[track_caller]
    fn is_whole(&self, what: &str) {
        let [a, b] = ["source", "sink"].map(|name| Snapshot::take(&self.path(name)).unwrap());
        let differences = a.diff(&b, Facets::ARCHIVE, 5);
        assert!(differences.is_empty(), "{what}: {differences:?}");
    }

    /// Returns the number of bytes that the log or the record claims to be durable at the sink.
    /// Panics if claimed data differs from the source. Files with several names are checked and not
    /// counted.
    #[track_caller]
    fn claimed(&self, what: &str) -> u64 {
        let (finished, mut claimed) =
            finished_files(&self.job(), &self.path("source"), &self.path("sink"), what);
        for (name, object, bytes) in
            logged_objects(&self.job(), &self.path("source"), (&self.path("sink"), None))
        {
            let source = File::open(self.path("source").join(&name)).unwrap();
            let mut right = vec![0; bytes.len()];
            source.read_exact_at(&mut right, object * OBJECT).unwrap();
            assert!(right == bytes, "{what}: object {object} of {name}");
            // If links are kept, an incomplete file with several names is copied from the
            // beginning.
            let starts_over = source.metadata().unwrap().nlink() > 1;
            // The record claims a file before the log drops its objects.
            let is_counted = starts_over || finished.contains(Path::new(&name));
            claimed += if is_counted { 0 } else { bytes.len() as u64 };
        }
        claimed
    }
}

/// Starts a job that stops (`SIGSTOP`) after each sync, and leaves it stopped at the first sync
/// after which `holds` returns true.
fn held_where(job: &Command, holds: impl FnMut() -> bool) -> Child {
    let mut traced = traced::signalled(job, "fdatasync", "STOP", "1+");
    let child = traced.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(traced::stops_when(&child, holds), "the job ended before that");
    child
}

/// Returns the durable objects in the log of a job directory.
fn facts(job: &Path) -> Facts {
    let id = Identity::from_hex(job.file_name().unwrap().to_str().unwrap()).unwrap();
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(job.join("log")).into_iter().flatten() {
        let entry = entry.unwrap();
        // Files of a running job appear and disappear.
        if let Ok(bytes) = fs::read(entry.path()) {
            files.insert(entry.file_name().into_string().unwrap(), bytes);
        }
    }
    replay(&Job { id, object: ObjectSize::new(OBJECT).unwrap() }, &files).facts
}

/// Returns the first large file with one name, and the numbers of its objects. If links are kept, a
/// file with several names is copied from the beginning, whatever its log contains.
fn logged_file(facts: &Facts) -> Option<(String, Vec<u64>)> {
    let name = |path: &RelPath| String::from_utf8(path.as_bytes().to_vec()).unwrap();
    let mut files = facts.iter().map(|(subject, objects)| (name(&subject.path), objects));
    let (name, objects) = files.find(|(name, _)| name.contains("/large") && !name.ends_with("large0"))?;
    Some((name, objects.iter().map(|object| object.0).collect()))
}

/// Returns each object that the log of a job claims: its file beneath the sink, its number, and its
/// bytes. `device` is the number of the sink's device when the log was written, if it has changed.
fn logged_objects(
    job: &Path,
    source: &Path,
    (sink, device): (&Path, Option<u64>),
) -> Vec<(String, u64, Vec<u8>)> {
    let mut found = Vec::new();
    for (subject, objects) in facts(job).iter() {
        let path = String::from_utf8(subject.path.as_bytes().to_vec()).unwrap();
        let (_, name) = path.split_once("sink/").unwrap();
        let is_meant = logged_as(&sink.join(name), device) == Some(subject.sink);
        if !is_meant {
            // An incomplete file with several names is copied from the beginning, perhaps by its
            // other name. A kill may come before the log records that. No run trusts a log entry
            // for another file than the logged one.
            let names = fs::metadata(source.join(name)).unwrap().nlink();
            assert!(names > 1, "{name} is another file than the one that was logged");
            continue;
        }
        let bytes = fs::read(sink.join(name)).unwrap();
        let geometry = Geometry::new(ByteLen(subject.source.size), ObjectSize::new(OBJECT).unwrap());
        for object in objects.iter() {
            let range = geometry.object(object).unwrap().range;
            let stands = bytes.get(range.start.0 as usize..range.end.0 as usize);
            let stands = stands.unwrap_or_else(|| panic!("object {} of {name} lies past the end", object.0));
            found.push((name.to_owned(), object.0, stands.to_vec()));
        }
    }
    found
}

/// Returns the identity that a log stores for a file at the sink, or `None` if there is no file.
fn logged_as(path: &Path, device: Option<u64>) -> Option<Identity> {
    let found = stat::stat_at(CWD, path, Follow::No).ok()?;
    let birth = found.btime.unwrap_or_default();
    let mut bytes = Vec::new();
    bytes.extend(device.unwrap_or(found.dev).to_le_bytes());
    bytes.extend(found.ino.to_le_bytes());
    bytes.extend(birth.sec.to_le_bytes());
    bytes.extend(birth.nsec.to_le_bytes());
    Some(Identity::of(&bytes))
}

/// Returns the boot ID.
pub(crate) fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

/// Replaces the run history of a job. A history that is incomplete stays unchanged.
pub(crate) fn edit_run_history(job: &Path, edit: impl FnOnce(&str) -> String) {
    let path = job.join("begun");
    let Ok(text) = fs::read_to_string(&path) else { return };
    if let Some((lines, _)) = text.split_once("blake3=") {
        write_run_history(job, &edit(lines));
    }
}

/// Writes the run history of a job.
pub(crate) fn write_run_history(job: &Path, lines: &str) {
    let sum = haul_digest::digest(haul_digest::Algorithm::Blake3, lines.as_bytes());
    fs::write(job.join("begun"), format!("{lines}blake3={sum}\n")).unwrap();
}

/// Replaces the boot ID in the state of a job, as if the job had run on another boot.
fn set_other_boot(job: &Path) {
    let other = "00000000-0000-4000-8000-000000000000";
    edit_run_history(job, |lines| lines.replace(&boot_id(), other));
    // The record may be missing, or contain only zeros.
    let record = fs::read(job.join("record")).ok().and_then(|bytes| JobRecord::decode(&bytes).ok());
    if let Some(record) = record {
        fs::write(job.join("record"), JobRecord { boot: other.to_owned(), ..record }.encode()).unwrap();
    }
}

/// Returns the files and bytes that the record of a job claims to be complete and durable, on any
/// device. Panics if a file differs from the source.
#[track_caller]
fn finished_files(job: &Path, source: &Path, sink: &Path, what: &str) -> (BTreeSet<PathBuf>, u64) {
    let record = fs::read(job.join("record")).ok().and_then(|bytes| JobRecord::decode(&bytes).ok());
    let (Some(record), Ok(found)) = (record, Snapshot::take(sink)) else { return Default::default() };
    let (mut files, mut bytes) = (BTreeSet::new(), 0);
    for (path, _) in found.entries() {
        let (from, to) = (source.join(path), sink.join(path));
        let (a, b) = (fs::symlink_metadata(&from).unwrap(), fs::symlink_metadata(&to).unwrap());
        let changed = haul_model::Moment { sec: b.ctime(), nsec: b.ctime_nsec() as u32 };
        let same_time = (a.mtime(), a.mtime_nsec()) == (b.mtime(), b.mtime_nsec());
        let is_kept = record.kept.iter().any(|kept| record.keeps(kept.dev, changed));
        if b.is_file() && a.len() == b.len() && same_time && is_kept {
            assert!(fs::read(&from).unwrap() == fs::read(&to).unwrap(), "{what}: {}", path.display());
            files.insert(path.to_owned());
            bytes += if a.nlink() > 1 { 0 } else { b.len() };
        }
    }
    (files, bytes)
}

/// Result of a copy.
#[derive(Debug)]
struct RunResult {
    code: Option<i32>,
    summary: Value,
    stderr: String,
}

impl RunResult {
    fn of(output: Output) -> RunResult {
        let text = String::from_utf8(output.stdout).unwrap();
        let mut events = text.lines().rev().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let summary = events.find(|event| event["event"] == "summary").unwrap_or_default();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        RunResult { code: output.status.code(), summary, stderr }
    }

    fn count(&self, name: &str) -> u64 {
        self.summary[name].as_u64().unwrap_or(0)
    }

    /// Returns the number of bytes that did not exist before the run.
    fn moved(&self) -> u64 {
        self.count("bytes") - self.count("bytes_kept")
    }

    #[track_caller]
    fn is_fine(&self, what: &str) -> &RunResult {
        assert_eq!(self.code, Some(0), "{what}: {self:?}");
        self
    }
}

fn kill(child: &mut Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn write(path: &Path, len: u64, seed: u64) {
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    Random::from_seed(seed ^ 0x5eed).fill(&mut bytes);
    fs::write(path, bytes).unwrap();
}
