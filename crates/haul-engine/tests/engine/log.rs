//! Tests of the object log's keeper on real files: killed processes, two processes at one job, and
//! failing storage.

mod full;
mod refused;
mod synced;

use haul_engine::log::{
    CommandLine, LockedJob, LogContents, LogError, LogWriter, RecordWriter, RunHistory, Settings, SyncPolicy,
};
use haul_lab::faults::{FaultFs, Recorded, Rules};
use haul_lab::mounts::{Access, Mounted, SmallFs};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::newer;
use haul_log::objects::{
    Encoding, FileKey, Flaw, Identity, Job, Mechanism, ObjectSet, SourceVersion, Style, Subject,
};
use haul_log::record::SyncedRange;
use haul_model::{Moment, ObjectIndex, ObjectSize, RelPath};
use std::fs;
use std::io::{BufRead, BufReader};
use std::num::NonZeroU32;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

const OBJECT: u64 = 64 << 10;

fn job() -> Job {
    Job { id: Identity::of(b"cp a b"), object: ObjectSize::new(OBJECT).unwrap() }
}

fn settings(sync: SyncPolicy) -> Settings {
    Settings { style: Style::DEFAULT, sync, wait: false }
}

fn subject(number: u64, objects: u64) -> Subject {
    Subject {
        path: RelPath::new(format!("dir/{number}").as_bytes()).unwrap(),
        source: SourceVersion {
            size: objects * OBJECT,
            mtime: Moment { sec: 1, nsec: 2 },
            identity: Identity([3; 16]),
        },
        sink: Identity([4; 16]),
    }
}

fn styles() -> impl Iterator<Item = Style> {
    let two = NonZeroU32::new(2).unwrap();
    let mechanisms = [Mechanism::File, Mechanism::Transaction(two), Mechanism::Universal].into_iter();
    mechanisms.flat_map(|mechanism| Encoding::ALL.map(|encoding| Style { mechanism, encoding }))
}

/// Opens a log that no run holds. Each test of this module runs in its own process. Otherwise a
/// child that another test forks would inherit its locks until exec.
fn open(state: &Path, settings: Settings) -> (LogWriter, LogContents) {
    LogWriter::open(state, job(), settings).unwrap_or_else(|error| panic!("{error}"))
}

fn note(log_writer: &LogWriter, key: FileKey, objects: impl IntoIterator<Item = u64>) {
    objects.into_iter().for_each(|object| log_writer.durable(key, ObjectIndex(object), OBJECT).unwrap());
}

fn numbers(set: &ObjectSet) -> Vec<u64> {
    set.iter().map(|object| object.0).collect()
}

/// Returns the files of a job's log.
fn files(state: &Path) -> Vec<PathBuf> {
    let dir = state.join("jobs").join(job().id.to_hex()).join("log");
    let mut found: Vec<PathBuf> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    found.sort();
    found
}

#[test]
fn released_job_is_resumed_and_finished_job_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    for style in styles() {
        let settings = Settings { style, ..settings(SyncPolicy::Group) };
        let (log_writer, found) = open(dir.path(), settings);
        assert_eq!((found.files, found.unclean_holder, found.flaws.len()), (0, None, 0));
        assert_eq!(files(dir.path()), [] as [PathBuf; 0], "nothing is written before a first object");
        let (a, known) = log_writer.file(&subject(1, 100)).unwrap();
        assert!(known.is_empty());
        let (b, _) = log_writer.file(&subject(2, 5000)).unwrap();
        note(&log_writer, a, [7, 3, 99]);
        note(&log_writer, b, 10..20);
        log_writer.close().unwrap();

        let (log_writer, found) = open(dir.path(), settings);
        assert_eq!(
            (found.files, found.objects, found.unclean_holder, found.flaws.len()),
            (2, 13, None, 0),
            "{style:?}"
        );
        let (a, known) = log_writer.file(&subject(1, 100)).unwrap();
        assert_eq!(numbers(&known), [3, 7, 99]);
        log_writer.complete(a);
        let (b, known) = log_writer.file(&subject(2, 5000)).unwrap();
        assert_eq!(numbers(&known), Vec::from_iter(10..20));
        log_writer.revoke(b).unwrap();
        drop(log_writer);

        // The end of the process releases the lock; the run itself does not.
        let (log_writer, found) = open(dir.path(), settings);
        assert_eq!(found.files, 0, "{style:?}");
        assert_eq!(found.unclean_holder.and_then(|holder| holder.pid), Some(std::process::id()));
        log_writer.finish().unwrap();
        assert_eq!(fs::read_dir(dir.path().join("jobs")).unwrap().count(), 0);
    }
}

#[test]
fn lock_held_by_another_process_returns_its_holder_or_waits() {
    let dir = tempfile::tempdir().unwrap();
    let (log_writer, _) = open(dir.path(), settings(SyncPolicy::Group));
    let (key, _) = log_writer.file(&subject(1, 10)).unwrap();
    note(&log_writer, key, [5]);
    let error = LogWriter::open(dir.path(), job(), settings(SyncPolicy::Group)).unwrap_err();
    let LogError::Held { holder, .. } = &error else { panic!("{error}") };
    assert_eq!(holder.pid, Some(std::process::id()));
    let host = Command::new("uname").arg("-n").output().unwrap().stdout;
    assert_eq!(holder.host, String::from_utf8(host).unwrap().trim());
    assert!(error.to_string().contains("wait for it to finish"), "{error}");
    // Another job is not locked.
    let other = Job { id: Identity::of(b"cp c d"), ..job() };
    assert!(LogWriter::open(dir.path(), other, settings(SyncPolicy::Group)).is_ok());

    let waiting = {
        let dir = dir.path().to_path_buf();
        thread::spawn(move || open(&dir, Settings { wait: true, ..settings(SyncPolicy::Group) }).1)
    };
    log_writer.close().unwrap();
    let found = waiting.join().unwrap();
    assert_eq!((found.objects, found.unclean_holder), (1, None));

    // A process that waited for a finished job begins a new one, in a folder of its own.
    let (log_writer, _) = open(dir.path(), settings(SyncPolicy::Group));
    let waiting = {
        let dir = dir.path().to_path_buf();
        thread::spawn(move || open(&dir, Settings { wait: true, ..settings(SyncPolicy::Group) }))
    };
    log_writer.finish().unwrap();
    let (log_writer, found) = waiting.join().unwrap();
    assert_eq!(found.objects, 0);
    let (key, _) = log_writer.file(&subject(1, 10)).unwrap();
    note(&log_writer, key, [6]);
    log_writer.close().unwrap();
    assert_eq!(open(dir.path(), settings(SyncPolicy::Group)).1.objects, 1);
}

/// Regression: while one process ended the job, another found its folder missing between two steps
/// and gave up. While one process forgot the job, it also removed the files that the next one had
/// created, including the lock.
#[test]
fn jobs_end_and_are_deleted_while_others_wait() {
    let dir = tempfile::tempdir().unwrap();
    let (state, is_held) = (dir.path(), &AtomicBool::new(false));
    thread::scope(|scope| {
        for worker in 0..4 {
            scope.spawn(move || {
                for round in 0..100 {
                    let hold = LockedJob::take(state, job().id, true).unwrap();
                    assert!(!is_held.swap(true, Ordering::SeqCst), "two have one job");
                    let own: Vec<PathBuf> =
                        (0..8).map(|at| hold.folder().join(format!("{worker}-{at}"))).collect();
                    own.iter().for_each(|path| fs::write(path, "mine").unwrap());
                    thread::yield_now();
                    assert!(own.iter().all(|path| path.exists()), "worker {worker}, round {round}");
                    is_held.store(false, Ordering::SeqCst);
                    if (worker + round) % 2 == 0 {
                        hold.forget().unwrap();
                    } else {
                        own.iter().for_each(|path| fs::remove_file(path).unwrap());
                        hold.finish().unwrap();
                    }
                }
            });
        }
    });
    assert_eq!(fs::read_dir(state.join("jobs")).unwrap().count(), 0);
}

/// Regression: the lock file was truncated first. The next run took that for a clean release by the
/// previous run.
#[test]
fn failed_lock_write_keeps_the_killed_holder() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [store, view] = ["store", "view"].map(|name| dir.path().join(name));
    for dir in [&store, &view] {
        fs::create_dir(dir).unwrap();
    }
    let rules: Rules = "*/lock write .. errno ENOSPC after 1".parse().unwrap();
    let faults = FaultFs::mount(&store, &view, rules).unwrap();
    drop(take(&view).unwrap());
    let error = take(&view).unwrap_err();
    assert!(error.to_string().contains("free space"), "{error}");
    faults.close();
    let hold = take(&store).unwrap();
    assert_eq!(hold.unclean_holder().and_then(|holder| holder.pid), Some(std::process::id()));
}

fn take(state: &Path) -> Result<LockedJob, LogError> {
    LockedJob::take(state, job().id, false)
}

#[test]
fn concurrent_workers_log_all_objects() {
    let dir = tempfile::tempdir().unwrap();
    for sync in [SyncPolicy::Object, SyncPolicy::Group, SyncPolicy::None] {
        let (log_writer, _) = open(dir.path(), settings(sync));
        let next = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let (key, _) = log_writer.file(&subject(1, 400)).unwrap();
                    while let object @ 0..400 = next.fetch_add(1, Ordering::Relaxed) {
                        note(&log_writer, key, [object]);
                    }
                });
            }
        });
        log_writer.close().unwrap();
        let (log_writer, found) = open(dir.path(), settings(sync));
        assert_eq!((found.objects, found.flaws.len()), (400, 0), "{sync:?}");
        log_writer.finish().unwrap();
    }
}

#[test]
fn damaged_log_is_reported_and_continued() {
    let dir = tempfile::tempdir().unwrap();
    for style in styles() {
        let settings = Settings { style, ..settings(SyncPolicy::Group) };
        let (log_writer, _) = open(dir.path(), settings);
        let (key, _) = log_writer.file(&subject(1, 100)).unwrap();
        note(&log_writer, key, [1, 2]);
        log_writer.commit().unwrap();
        drop(log_writer);
        let log =
            files(dir.path()).into_iter().find(|path| path.extension().is_some_and(|e| e == "log")).unwrap();
        let mut bytes = fs::read(&log).unwrap();
        let last = bytes.len() - 1;
        bytes[last] ^= 4;
        fs::write(&log, bytes).unwrap();
        let (log_writer, found) = open(dir.path(), settings);
        let [flaw] = &found.flaws[..] else { panic!("{:?}", found.flaws) };
        assert!(flaw.to_string().contains(log.file_name().unwrap().to_str().unwrap()), "{flaw}");
        assert_eq!(found.objects, 0, "{style:?}");
        // The log continues, and the damage is repaired.
        let (key, _) = log_writer.file(&subject(1, 100)).unwrap();
        note(&log_writer, key, [3]);
        log_writer.close().unwrap();
        let (log_writer, found) = open(dir.path(), settings);
        assert_eq!((found.flaws.len(), found.objects), (0, 1), "{style:?}");
        log_writer.finish().unwrap();
    }
}

#[test]
fn newer_logs_and_foreign_directories_are_refused_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let (log_writer, _) = open(dir.path(), settings(SyncPolicy::Group));
    let (key, _) = log_writer.file(&subject(1, 100)).unwrap();
    note(&log_writer, key, [1]);
    log_writer.close().unwrap();
    let index = files(dir.path()).into_iter().find(|path| path.ends_with("universal.index")).unwrap();
    let whole = fs::read(&index).unwrap();
    let mut newer = whole.clone();
    newer::log(&mut newer, 9);
    fs::write(&index, &newer).unwrap();
    let error = LogWriter::open(dir.path(), job(), settings(SyncPolicy::Group)).unwrap_err();
    assert!(matches!(error, LogError::Newer { flaw: Flaw::Newer { version: 9, .. }, .. }), "{error}");
    assert_eq!(fs::read(&index).unwrap(), newer);
    fs::write(&index, &whole).unwrap();

    let home = dir.path().join("jobs").join(job().id.to_hex());
    fs::set_permissions(&home, fs::Permissions::from_mode(0o770)).unwrap();
    let error = LogWriter::open(dir.path(), job(), settings(SyncPolicy::Group)).unwrap_err();
    assert!(matches!(error, LogError::Exposed { .. }), "{error}");
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700)).unwrap();
    // A symbolic link in place of the lock is not followed.
    fs::write(dir.path().join("mine"), "precious").unwrap();
    fs::remove_file(home.join("lock")).unwrap();
    symlink(dir.path().join("mine"), home.join("lock")).unwrap();
    assert!(matches!(
        LogWriter::open(dir.path(), job(), settings(SyncPolicy::Group)),
        Err(LogError::Io { what: "open lock", .. })
    ));
    assert_eq!(fs::read(dir.path().join("mine")).unwrap(), b"precious");
    fs::remove_file(home.join("lock")).unwrap();
    assert_eq!(open(dir.path(), settings(SyncPolicy::Group)).1.objects, 1);
}

#[test]
fn read_only_state_directory_error_suggests_state_dir() {
    if !met_or_skip(&[Need::Mount]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let bound = Mounted::bind(dir.path(), Access::ReadOnly).unwrap();
    let error = LogWriter::open(&bound.path(), job(), settings(SyncPolicy::Group)).unwrap_err();
    assert!(
        error.to_string().contains("Read-only file system") && error.to_string().contains("--state-dir"),
        "{error}"
    );
    bound.close().unwrap();
}

#[test]
fn committed_objects_survive_a_power_failure() {
    if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    let disk = SmallFs::new(64).unwrap();
    for (number, style) in styles().enumerate() {
        let state = disk.path().join(number.to_string());
        let (log_writer, _) = open(&state, Settings { style, ..settings(SyncPolicy::Group) });
        let (key, _) = log_writer.file(&subject(1, 9000)).unwrap();
        note(&log_writer, key, [1, 8999]);
        log_writer.commit().unwrap();
        note(&log_writer, key, [2]);
        log_writer.commit().unwrap();
        let (gone, _) = log_writer.file(&subject(2, 9)).unwrap();
        note(&log_writer, gone, [1]);
        log_writer.commit().unwrap();
        log_writer.revoke(gone).unwrap();
        // Noted and not committed.
        note(&log_writer, key, [3]);
        std::mem::forget(log_writer);
    }
    let after = disk.after_power_loss().unwrap();
    for (number, style) in styles().enumerate() {
        let state = after.path().join(number.to_string());
        let (log_writer, found) = open(&state, Settings { style, ..settings(SyncPolicy::Group) });
        assert_eq!((found.files, found.flaws.len()), (1, 0), "{style:?}: {:?}", found.flaws);
        let (_, known) = log_writer.file(&subject(1, 9000)).unwrap();
        assert_eq!(numbers(&known), [1, 2, 8999], "{style:?}");
        assert!(found.unclean_holder.is_some());
    }
    after.close().unwrap();
}

/// If a run syncs nothing, a power loss may take logged objects. Only `begun` tells the next boot
/// about that, so `begun` is durable before any object is logged.
#[test]
fn run_history_is_durable_for_unsynced_or_extended_runs() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [store, view] = ["store", "view"].map(|name| dir.path().join(name));
    for place in [&store, &view] {
        fs::create_dir(place).unwrap();
    }
    let faults = FaultFs::mount(&store, &view, Rules::default()).unwrap();
    let home = view.join("job");
    let at = |sec| Moment { sec, nsec: 0 };
    let mut begun = RunHistory::default();
    let mut is_durable = |step: &mut dyn FnMut(&mut RunHistory)| {
        faults.begin_record();
        step(&mut begun);
        let events = faults.end_record();
        let is_write =
            |event: &Recorded| matches!(event, Recorded::Write { path, .. } if path.ends_with("begun.new"));
        let is_sync =
            |event: &Recorded| matches!(event, Recorded::Sync { path } if path.ends_with("begun.new"));
        let written =
            events.iter().rposition(is_write).unwrap_or_else(|| panic!("nothing was written: {events:?}"));
        assert!(fs::read(home.join("begun")).is_ok() && !home.join("begun.new").exists());
        events[written..].iter().any(is_sync)
    };
    let run = |begun: &mut RunHistory, sync| begun.run(&home, at(10), sync).unwrap();
    let group = &mut |begun: &mut RunHistory| run(begun, SyncPolicy::Group);
    assert!(!is_durable(group), "nothing is lost by that but sending again");
    assert!(is_durable(&mut |begun| begun.heartbeat(&home, at(20)).unwrap()));
    assert!(is_durable(&mut |begun| run(begun, SyncPolicy::None)));
    assert!(is_durable(group), "an earlier run synced nothing");
    faults.close();
}

/// Regression: after a failed write (ENOSPC) of a smaller record, the next record was not synced
/// under its name. A removed range could then reappear.
#[test]
fn removed_range_stays_removed_after_a_failed_record_write() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [store, view] = ["store", "view"].map(|name| dir.path().join(name));
    for place in [&store, &view] {
        fs::create_dir(place).unwrap();
    }
    // The folder of the job can be synced once, when the record is first written, and never again.
    let home = "jobs/".to_owned() + &"?".repeat(32);
    let rules =
        format!("*/record.new write .. errno ENOSPC after 2 times 1\n{home} fsync .. errno EIO after 1");
    let faults = FaultFs::mount(&store, &view, rules.parse().unwrap()).unwrap();
    let hold = take(&view).unwrap();
    let (record_writer, _) =
        RecordWriter::begin(&hold, CommandLine { kind: "cp", words: Vec::new(), cwd: view.clone() }).unwrap();
    let range = |from| SyncedRange { dev: 1, from, until: from + 5 };
    record_writer.keep(&[range(10)], true).unwrap();
    let error = record_writer.keep(&[], true).unwrap_err();
    assert!(error.to_string().contains("free space"), "{error}");
    let error = record_writer.keep(&[range(20)], true).unwrap_err();
    assert!(error.to_string().contains("Input/output error"), "the folder is synced: {error}");
    drop((record_writer, hold));
    faults.close();
}

/// Body of the killed process: logs objects and prints each committed one. It does nothing unless a
/// test starts it.
#[test]
fn killed() {
    let (Some(state), Some(style)) =
        (std::env::var_os("HAUL_TEST_STATE"), std::env::var_os("HAUL_TEST_STYLE"))
    else {
        return;
    };
    let style = styles().nth(style.to_str().unwrap().parse().unwrap()).unwrap();
    let (log_writer, _) = open(Path::new(&state), Settings { style, ..settings(SyncPolicy::None) });
    for round in 0.. {
        let (key, known) = log_writer.file(&subject(round, 5000)).unwrap();
        for object in (0..60).filter(|&object| !known.contains(ObjectIndex(object))) {
            note(&log_writer, key, [object]);
            log_writer.commit().unwrap();
            println!("logged {round} {object}");
        }
        if round % 3 == 0 {
            println!("completes {round} 0");
            log_writer.complete(key);
        }
    }
}

#[test]
fn killed_process_leaves_all_committed_objects() {
    for (number, style) in styles().enumerate() {
        let dir = tempfile::tempdir().unwrap();
        let (mut said, mut completes) = (Vec::new(), Vec::new());
        for run in 0..3 {
            let mut child = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "log::killed", "--nocapture"])
                .env("HAUL_TEST_STATE", dir.path())
                .env("HAUL_TEST_STYLE", number.to_string())
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
            let mut left = 20 + 13 * ((number + 5 * run) % 9);
            let mut lines = lines.filter_map(|line| {
                let mut words = line.rsplitn(3, ' ').map(str::to_owned);
                let (object, round) =
                    (words.next()?.parse::<u64>().ok()?, words.next()?.parse::<u64>().ok()?);
                Some((words.next()?, round, object))
            });
            let mut take = |what: String, round, object| match &what {
                what if what.ends_with("logged") => said.push((round, object)),
                what if what.ends_with("completes") => completes.push(round),
                _ => {}
            };
            while left > 0
                && let Some((what, round, object)) = lines.next()
            {
                take(what, round, object);
                left -= 1;
            }
            assert_eq!(left, 0, "{style:?}: the process ended by itself");
            child.kill().unwrap();
            // Lines that the process printed before the signal reached it.
            lines.for_each(|(what, round, object)| take(what, round, object));
            let pid = child.id();
            child.wait().unwrap();

            let (log_writer, found) = open(dir.path(), Settings { style, ..settings(SyncPolicy::None) });
            assert_eq!(found.unclean_holder.and_then(|holder| holder.pid), Some(pid));
            for &(round, object) in &said {
                let (_, known) = log_writer.file(&subject(round, 5000)).unwrap();
                assert!(
                    completes.contains(&round) || known.contains(ObjectIndex(object)),
                    "{style:?}: object {object} of {round} was committed"
                );
                assert!(known.len() <= 60);
            }
        }
    }
}
