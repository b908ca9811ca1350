//! `haul cp --resume` and `haul jobs`: jobs that are cut off, gone on with, listed and forgotten.

mod again;
mod bad;
mod disk;
mod full;
mod going_on;
mod jobs;
mod matrix;
mod power;

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

/// The size of objects here.
const OBJECT: u64 = 64 << 10;

/// A folder with a tree `source`, where `sink` and `state` come to be.
struct Bed {
    home: TempDir,
}

impl Bed {
    /// A source of some files of some objects each, two with several names, and small ones in a directory.
    fn new(seed: u64) -> Bed {
        let bed = Bed::empty();
        let source = bed.path("source");
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
        bed
    }

    /// As [`Bed::new`], for jobs that are interrupted; `None` (the test is skipped) where nothing can stop a job at a sync.
    fn to_cut_off(seed: u64) -> Option<Bed> {
        met_or_skip(&[traced::NEED]).then(|| Bed::new(seed))
    }

    fn empty() -> Bed {
        Bed { home: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// `haul` in the folder, with a state directory there.
    fn haul(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.current_dir(self.home.path()).args(words);
        command.env("LC_ALL", "C").env("XDG_STATE_HOME", self.path("state"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// The job of these tests, with more options.
    fn cp(&self, more: &[&str]) -> Command {
        let words = ["cp", "-aT", "--resume", "--split-size=64K", "--json"];
        self.haul(&[&words[..], more, &["source", "sink"]].concat())
    }

    /// Runs the job to its end.
    fn ends(&self, more: &[&str]) -> Ended {
        Ended::of(self.cp(more).output().unwrap())
    }

    /// Where the jobs are kept.
    fn jobs(&self) -> PathBuf {
        self.path("state/haul/jobs")
    }

    /// The folder of the only job.
    fn job(&self) -> PathBuf {
        let all: Vec<PathBuf> =
            fs::read_dir(self.jobs()).unwrap().map(|entry| entry.unwrap().path()).collect();
        let [job] = &all[..] else { panic!("{all:?}") };
        job.clone()
    }

    fn record(&self) -> JobRecord {
        JobRecord::decode(&fs::read(self.job().join("record")).unwrap()).unwrap()
    }

    /// What the log of the only job says.
    fn facts(&self) -> Facts {
        facts(&self.job())
    }

    /// Starts the job and kills it when its log tells of a large file of one name.
    fn cut_off(&self, more: &[&str]) {
        kill(&mut self.held_at_work(self.cp(more)));
    }

    /// As [`Bed::cut_off`], of the job of these words.
    fn cut_off_words(&self, words: &[&str]) {
        kill(&mut self.held_at_work(self.haul(words)));
    }

    /// Starts a job that stops (`SIGSTOP`) behind each sync, and leaves it stopped when its log names a large file. The log is checked while
    /// the job is stopped, so that it says the same when the job is killed; the file lacks most of its objects.
    fn held_at_work(&self, job: Command) -> Child {
        let is_logged = || self.facts_or_none().is_some_and(|facts| logged_file(&facts).is_some());
        held_where(&job, is_logged)
    }

    fn facts_or_none(&self) -> Option<Facts> {
        let mut found = fs::read_dir(self.jobs()).ok()?;
        found.next()?.ok().filter(|entry| entry.path().join("log").is_dir()).map(|_| self.facts())
    }

    /// The first file of one name that the log tells of, below the folder, and the numbers of its objects that lie there.
    fn logged_file(&self) -> (String, Vec<u64>) {
        logged_file(&self.facts()).expect("the job was cut off once a file was logged")
    }

    /// Panics unless the tree arrived with all that is kept.
    #[track_caller]
    fn is_whole(&self, what: &str) {
        let [a, b] = ["source", "sink"].map(|name| Snapshot::take(&self.path(name)).unwrap());
        let differences = a.diff(&b, Facets::ARCHIVE, 5);
        assert!(differences.is_empty(), "{what}: {differences:?}");
    }

    /// Bytes that are durable at the sink as far as anything says: objects of the log, and files that the record keeps. Panics where
    /// one of them is not what the source has. Those of files with several names are looked at and not counted.
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
            // Where links are kept, a file of several names that is not finished is begun anew.
            let starts_over = source.metadata().unwrap().nlink() > 1;
            // The record says it of a file before the log forgets its objects.
            let is_counted = starts_over || finished.contains(Path::new(&name));
            claimed += if is_counted { 0 } else { bytes.len() as u64 };
        }
        claimed
    }
}

/// Starts a job that stops (`SIGSTOP`) behind each sync, and leaves it stopped at the first one behind which `holds`.
fn held_where(job: &Command, holds: impl FnMut() -> bool) -> Child {
    let mut traced = traced::signalled(job, "fdatasync", "STOP", "1+");
    let child = traced.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    assert!(traced::stops_where(&child, holds), "the job ended before that");
    child
}

/// What the log in a job's folder says.
fn facts(job: &Path) -> Facts {
    let id = Identity::from_hex(job.file_name().unwrap().to_str().unwrap()).unwrap();
    let mut files = BTreeMap::new();
    for entry in fs::read_dir(job.join("log")).into_iter().flatten() {
        let entry = entry.unwrap();
        // A running job's files come and go.
        if let Ok(bytes) = fs::read(entry.path()) {
            files.insert(entry.file_name().into_string().unwrap(), bytes);
        }
    }
    replay(&Job { id, object: ObjectSize::new(OBJECT).unwrap() }, &files).facts
}

/// The first large file of one name among these facts (where links are kept, one of several names is copied from the beginning, whatever its log says), and
/// the numbers of its objects.
fn logged_file(facts: &Facts) -> Option<(String, Vec<u64>)> {
    let name = |path: &RelPath| String::from_utf8(path.as_bytes().to_vec()).unwrap();
    let mut files = facts.iter().map(|(subject, objects)| (name(&subject.path), objects));
    let (name, objects) = files.find(|(name, _)| name.contains("/large") && !name.ends_with("large0"))?;
    Some((name, objects.iter().map(|object| object.0).collect()))
}

/// Each object that the log of a job claims: its file below the sink, its number, and the bytes that stand there. `device` is the number that the
/// sink's device had when the log was written, where it has another one by now.
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
            // A file of several names that is not finished is begun anew, perhaps by its other name, and a kill may come before the log hears of it.
            // Nobody takes the log's word for another file than the one that was logged.
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

/// What a log knows a file at the sink by; `None` where none stands there.
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

/// What this life of the machine is told apart by.
pub(crate) fn this_life() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned()
}

/// Writes down other runs of a job than there were. Where nothing whole is written, it stays so.
pub(crate) fn edit_begun(job: &Path, edit: impl FnOnce(&str) -> String) {
    let path = job.join("begun");
    let Ok(text) = fs::read_to_string(&path) else { return };
    if let Some((lines, _)) = text.split_once("blake3=") {
        write_begun(job, &edit(lines));
    }
}

/// Writes down the runs of a job.
pub(crate) fn write_begun(job: &Path, lines: &str) {
    let sum = haul_digest::digest(haul_digest::Algorithm::Blake3, lines.as_bytes());
    fs::write(job.join("begun"), format!("{lines}blake3={sum}\n")).unwrap();
}

/// What was written down of a job so far was so in another life of the machine: the number of this one is taken out of it.
fn in_another_life(job: &Path) {
    let other = "00000000-0000-4000-8000-000000000000";
    edit_begun(job, |lines| lines.replace(&this_life(), other));
    // It may be gone, or nothing but zeros.
    let record = fs::read(job.join("record")).ok().and_then(|bytes| JobRecord::decode(&bytes).ok());
    if let Some(record) = record {
        fs::write(job.join("record"), JobRecord { boot: other.to_owned(), ..record }.encode()).unwrap();
    }
}

/// Files and bytes that the record of a job says to be whole and durable, on whatever device. Panics where one is not what the
/// source has.
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

/// How a copy ended.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    summary: Value,
    stderr: String,
}

impl Ended {
    fn of(output: Output) -> Ended {
        let text = String::from_utf8(output.stdout).unwrap();
        let mut events = text.lines().rev().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let summary = events.find(|event| event["event"] == "summary").unwrap_or_default();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        Ended { code: output.status.code(), summary, stderr }
    }

    fn count(&self, name: &str) -> u64 {
        self.summary[name].as_u64().unwrap_or(0)
    }

    /// Bytes that were not there already.
    fn moved(&self) -> u64 {
        self.count("bytes") - self.count("bytes_kept")
    }

    #[track_caller]
    fn is_fine(&self, what: &str) -> &Ended {
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
