//! Jobs that run again over existing copies: few files are open, few bytes are read, and no
//! finished file changes.

use super::{Facets, Fixture, RunResult, Snapshot};
use crate::faults::fixture::copy_haul;
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::traced;
use haul_sys::filesystem::FileSystem;
use rustix::fs::{Timespec, Timestamps, UTIME_NOW};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The present time, for a call that sets times.
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };

/// Runs the job of these tests with a limit on open files.
fn with_files(fixture: &Fixture, most: u64, more: &[&str]) -> RunResult {
    let job = fixture.cp(more);
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -n {most}; exec \"$0\" \"$@\"")]);
    command.arg(job.get_program()).args(job.get_args()).current_dir(fixture.home.path());
    command.env("LC_ALL", "C").env("XDG_STATE_HOME", fixture.path("state")).stdin(Stdio::null());
    RunResult::of(command.output().unwrap())
}

/// Returns the regular files beneath a directory.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn changed(path: &Path) -> (i64, i64) {
    let found = fs::metadata(path).unwrap();
    (found.ctime(), found.ctime_nsec())
}

/// Earlier versions held a descriptor for each file until a second had passed. Files without a
/// descriptor were left with an additional byte and a time of 1970.
#[test]
fn a_rerun_over_many_small_files_holds_few_descriptors() {
    let fixture = Fixture::empty();
    for directory in 0..100 {
        let folder = fixture.path(&format!("source/{directory}"));
        fs::create_dir_all(&folder).unwrap();
        for number in 0..40_u32 {
            fs::write(folder.join(number.to_string()), [number as u8; 1024]).unwrap();
        }
    }
    with_files(&fixture, 256, &[]).is_fine("first");
    fixture.is_whole("first");
    let ended = with_files(&fixture, 256, &[]);
    ended.is_fine("again");
    assert_eq!((ended.count("bytes_kept"), ended.count("bytes")), (4_096_000, 4_096_000), "{ended:?}");
    fixture.is_whole("again");
    fs::remove_dir_all(fixture.path("state")).unwrap();
    let ended = with_files(&fixture, 256, &[]);
    ended.is_fine("without a log");
    assert_eq!((ended.count("bytes_kept"), ended.count("bytes")), (4_096_000, 4_096_000), "{ended:?}");
    fixture.is_whole("without a log");
}

/// The same for files of several objects, which are held open until they are logged.
#[test]
fn a_rerun_over_many_multi_object_files_holds_few_descriptors() {
    let fixture = Fixture::empty();
    fs::create_dir(fixture.path("source")).unwrap();
    for number in 0..400_u32 {
        fs::write(fixture.path(&format!("source/{number}")), vec![number as u8; 65_537]).unwrap();
    }
    with_files(&fixture, 200, &[]).is_fine("first");
    fs::remove_dir_all(fixture.path("state")).unwrap();
    let ended = with_files(&fixture, 200, &[]);
    ended.is_fine("without a log");
    assert_eq!(ended.count("bytes_kept"), 400 * 65_537, "{ended:?}");
    fixture.is_whole("without a log");
}

#[test]
fn a_rerun_of_a_finished_job_reads_only_changed_files() {
    let fixture = Fixture::new(31);
    fixture.ends(&["--threads=1"]).is_fine("first");
    let known = files(&fixture.path("sink")).into_iter().filter(|path| !path.is_symlink()).count() as u64;
    let victim = fixture.path("sink/dir/deeper/one");
    let modified = fs::metadata(&victim).unwrap().modified().unwrap();
    fs::write(&victim, vec![7; fs::metadata(&victim).unwrap().len() as usize]).unwrap();
    fs::File::options().write(true).open(&victim).unwrap().set_modified(modified).unwrap();
    let ended = fixture.ends(&["--threads=1"]);
    ended.is_fine("again");
    // The victim is copied.
    assert_eq!(ended.count("files_kept"), known - 1, "{ended:?}");
    fixture.is_whole("again");
    let ended = fixture.ends(&["--threads=1"]);
    assert_eq!((ended.count("files_kept"), ended.moved()), (known, 0), "{ended:?}");
}

/// Regression test: each run linked the further names of a file again. That changed the change time
/// of the file, and the next run copied the file again.
#[test]
fn a_file_with_several_names_is_copied_once() {
    for threads in ["--threads=1", "--threads=4"] {
        let fixture = Fixture::empty();
        fs::create_dir_all(fixture.path("source/z")).unwrap();
        for (name, bytes) in [("small", 4000), ("large", 300_000)] {
            let file = fixture.path("source").join(name);
            fs::write(&file, vec![3; bytes]).unwrap();
            // The last entries of the copy are names of files that were copied before.
            for other in ["z/1", "z/2"] {
                fs::hard_link(&file, fixture.path("source").join(format!("{other}{name}"))).unwrap();
            }
        }
        fixture.ends(&[threads]).is_fine("first");
        fixture.is_whole("first");
        let sinks = files(&fixture.path("sink"));
        for (lost, run) in
            [(None, "second"), (None, "third"), (Some("sink/z/2small"), "fourth"), (None, "fifth")]
        {
            if let Some(name) = lost {
                fs::remove_file(fixture.path(name)).unwrap();
            }
            let before: Vec<_> = sinks.iter().map(|path| path.exists().then(|| changed(path))).collect();
            let ended = fixture.ends(&[threads]);
            ended.is_fine(run);
            // The removed name is linked and does not count as kept, nor does a file whose change
            // time the removal changed.
            let expected = if lost.is_some() { 3 } else { 6 };
            assert_eq!(ended.count("files_kept"), expected, "{threads} {run}: {ended:?}");
            fixture.is_whole(run);
            let after: Vec<_> = sinks.iter().map(|path| Some(changed(path))).collect();
            assert!(lost.is_some() || before == after, "{threads} {run}: a finished file was changed");
        }
    }
}

/// Regression test: every run compared the file that the run before had finished last. A file whose
/// change time equals its modification time, because its source was written at that moment, counted
/// as a file of a file system without change times.
#[test]
fn a_rerun_reads_a_file_that_was_finished_last_or_just_written_at_most_once() {
    let fixture = Fixture::empty();
    let [source, sink] = ["source", "sink"].map(|name| fixture.path(name));
    for bytes in [100, 3 * 65_536] {
        let _ = fs::remove_file(&sink);
        fs::write(&source, vec![5; bytes]).unwrap();
        fixture.ends(&[]).is_fine("first");
        assert_eq!(fixture.ends(&[]).is_fine("second").count("files_kept"), 1, "{bytes}");
        // One call sets both times of the sink, to the same value.
        let file = fs::File::options().write(true).open(&sink).unwrap();
        rustix::fs::futimens(&file, &Timestamps { last_access: NOW, last_modification: NOW }).unwrap();
        let found = fs::metadata(&sink).unwrap();
        assert_eq!(changed(&sink), (found.mtime(), found.mtime_nsec()));
        fs::File::options()
            .write(true)
            .open(&source)
            .unwrap()
            .set_modified(found.modified().unwrap())
            .unwrap();
        for run in ["compares", "keeps", "keeps again"] {
            let ended = fixture.ends(&[]);
            ended.is_fine(run);
            assert_eq!(ended.count("files_kept"), u64::from(run != "compares"), "{bytes}: {run}: {ended:?}");
        }
    }
}

/// Regression test: after a failed sync the next run compared the small files that were finished
/// before it, and counted them as durable. The page cache may have their bytes, and the device not.
#[test]
fn small_files_of_a_failed_sync_are_copied_again() {
    if !met_or_skip(&[traced::NEED]) {
        return;
    }
    let fixture = Fixture::empty();
    let (source, log) = (fixture.path("source"), fixture.path("trace"));
    fs::create_dir(&source).unwrap();
    for number in 0..5_u8 {
        fs::write(source.join(number.to_string()), [number; 8000]).unwrap();
    }
    // Each object of this file is synced by itself.
    fs::write(source.join("large"), vec![6; 200_000]).unwrap();
    fs::hard_link(source.join("0"), source.join("other")).unwrap();
    let fails = |run: &str, effect: &str| {
        let mut traced = traced::injected(&fixture.cp(&["--threads=1"]), "syncfs", effect, &log);
        let ended = RunResult::of(traced.stdin(Stdio::null()).output().unwrap());
        let calls = fs::read_to_string(&log).unwrap();
        let is_whole = FileSystem::of(fs::File::open(&source).unwrap()).syncs_as_a_whole();
        assert_eq!(
            (calls.contains("(INJECTED)"), ended.code),
            (is_whole, Some(i32::from(is_whole))),
            "{run}"
        );
        assert!(!is_whole || ended.stderr.contains("error syncing"), "{run}: {ended:?}");
        (is_whole, ended)
    };
    let (is_whole, _) = fails("first", "error=EIO");
    fixture.is_whole("first");
    if !is_whole {
        return;
    }
    for run in ["second", "third"] {
        let (_, ended) = fails(run, "error=EIO");
        assert_eq!((ended.count("files_kept"), ended.moved()), (0, 40_000), "{run}: {ended:?}");
    }
    let ended = fixture.ends(&[]);
    assert_eq!(ended.is_fine("fourth").moved(), 40_000, "{ended:?}");
    fixture.is_whole("fourth");
    let ended = fixture.ends(&[]);
    assert_eq!((ended.is_fine("fifth").count("files_kept"), ended.moved()), (7, 0), "{ended:?}");
}

/// Earlier versions opened a finished file without a log entry for writing, and created a link
/// again in a read-only directory.
#[test]
fn an_unprivileged_user_resumes_read_only_files_and_directories() {
    if !met_or_skip(&[Need::Root, Need::Program("setpriv")]) {
        return;
    }
    for way in ["-aT", "-rT"] {
        let fixture = Fixture::empty();
        let closed = fixture.path("source/closed");
        fs::create_dir_all(closed.join("below")).unwrap();
        for name in ["closed/whole", "closed/wrong", "closed/lost", "closed/below/f"] {
            fs::write(fixture.path("source").join(name), format!("bytes of {name}")).unwrap();
        }
        fs::write(closed.join("large"), vec![5; 200_000]).unwrap();
        symlink("whole", closed.join("link")).unwrap();
        let mode = |path: &Path, mode| fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        for path in files(&closed).iter().filter(|path| !path.is_symlink()) {
            mode(path, 0o444);
        }
        let program = fixture.path("haul");
        copy_haul(&program);
        mode(fixture.home.path(), 0o777);
        for path in ["source", "source/closed", "source/closed/below"]
            .iter()
            .map(|path| fixture.path(path))
            .chain(files(&closed))
        {
            std::os::unix::fs::lchown(path, Some(65534), Some(65534)).unwrap();
        }
        [closed.join("below"), closed.clone()].iter().for_each(|path| mode(path, 0o555));
        let run = || {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).arg(&program);
            command.args(["cp", way, "--resume", "--split-size=64K", "--json", "source", "sink"]);
            command
                .current_dir(fixture.home.path())
                .env("LC_ALL", "C")
                .env("XDG_STATE_HOME", fixture.path("state"));
            RunResult::of(command.stdin(Stdio::null()).output().unwrap())
        };
        run().is_fine("first");
        // As if the job had been interrupted before its first log record: root may change read-only
        // directories.
        fs::remove_dir_all(fixture.path("state")).unwrap();
        fs::remove_file(fixture.path("sink/closed/lost")).unwrap();
        fs::remove_file(fixture.path("sink/closed/link")).unwrap();
        for (name, bytes) in [("wrong", &b"other"[..]), ("large", &[6; 100_000])] {
            fs::write(fixture.path("sink/closed").join(name), bytes).unwrap();
        }
        fs::write(fixture.path("sink/closed/below/f"), "other").unwrap();
        chown(fixture.path("sink/closed/wrong"), Some(65534), Some(65534)).unwrap();
        for what in ["the second run", "the third run"] {
            run().is_fine(&format!("{way}: {what}"));
            let [a, b] = ["source", "sink"].map(|name| Snapshot::take(&fixture.path(name)).unwrap());
            let facets = Facets { mode: true, ..Facets::CONTENT };
            let differences = a.diff(&b, facets, 5);
            assert!(differences.is_empty(), "{way}: {what}: {differences:?}");
        }
    }
}
