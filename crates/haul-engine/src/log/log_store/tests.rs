//! Tests of the log store on real files.

use super::*;
use crate::log::{LockedJob, LogWriter, Settings, SyncPolicy};
use haul_log::objects::{Encoding, Job, Mechanism, SourceVersion, Style, Subject};
use haul_model::{Moment, ObjectIndex, ObjectSize, RelPath};
use std::fs::File;

fn id(number: u8) -> Identity {
    Identity([number; 16])
}

fn limits(bytes: u64, jobs: usize) -> LogStoreLimits {
    LogStoreLimits { bytes, jobs, ..LogStoreLimits::default() }
}

fn open(home: &tempfile::TempDir, limits: LogStoreLimits) -> Arc<LogStore> {
    Arc::new(LogStore::open(home.path().to_path_buf(), limits, forget).unwrap())
}

fn forget(state: &Path, job: Identity) -> Result<bool, LogError> {
    match LockedJob::take(state, job, false) {
        Err(LogError::Held { .. }) => Ok(false),
        usage => usage?.forget().map(|()| true),
    }
}

/// Returns the size of all jobs, in bytes.
fn sum(log_store: &LogStore) -> u64 {
    log_store.lock().values().map(|usage| usage.bytes).sum()
}

fn keep(log_store: &Arc<LogStore>, number: u8) -> Result<LogWriter, LogError> {
    within(log_store, b"client", number)
}

fn within(log_store: &Arc<LogStore>, client: &[u8], number: u8) -> Result<LogWriter, LogError> {
    let settings = Settings {
        style: Style { mechanism: Mechanism::File, encoding: Encoding::Bit8 },
        sync: SyncPolicy::None,
        wait: false,
    };
    let job = Job { id: id(number), object: ObjectSize::new(64 << 10).unwrap() };
    LogWriter::within(log_store, client, job, settings).map(|(log_writer, _)| log_writer)
}

/// Opens a log like a session does, which also records the owner.
fn keep_for(log_store: &Arc<LogStore>, client: &[u8], number: u8) -> Result<LogWriter, LogError> {
    let log_writer = within(log_store, client, number)?;
    let (root, into) = (PathBuf::from("/srv"), Vec::new());
    let object = ObjectSize::new(64 << 10).unwrap();
    Target { root, into, object, client: Identity::of(client) }.write(log_writer.home())?;
    Ok(log_writer)
}

/// Sets the time of the last use of a job to some seconds ago.
fn touch(log_store: &LogStore, number: u8, ago: u64) {
    let at = SystemTime::now() - Duration::from_secs(ago);
    for name in TOUCHED {
        let opened = File::options().write(true).open(log_store.home(id(number)).join(name));
        if let Ok(file) = opened {
            file.set_modified(at).unwrap();
        }
    }
}

/// Finishes a job like a session does.
fn finish(log_writer: LogWriter) {
    Target::remove(log_writer.home()).unwrap();
    log_writer.finish().unwrap();
}

fn subject(number: u64) -> Subject {
    let source = SourceVersion { size: 1 << 20, mtime: Moment { sec: 1, nsec: 2 }, identity: id(8) };
    let path = RelPath::new(format!("file {number}").as_bytes()).unwrap();
    Subject { path, source, sink: id(9) }
}

/// Logs one object of each of `files` files, one by one. Returns the number of files that fit.
fn fill(log_writer: &LogWriter, files: u64) -> u64 {
    let log = |number: &u64| {
        let (key, _) = log_writer.file(&subject(*number))?;
        log_writer.durable(key, ObjectIndex(3), 1)?;
        log_writer.commit()
    };
    (0..files).take_while(|number| log(number).is_ok()).count() as u64
}

#[test]
fn jobs_count_until_they_finish() {
    let home = tempfile::tempdir().unwrap();
    let log_store = open(&home, limits(1 << 20, 2));
    let (one, two) = (keep(&log_store, 1).unwrap(), keep_for(&log_store, b"client", 2).unwrap());
    let full = keep(&log_store, 3).unwrap_err();
    assert!(matches!(full, LogError::Full { limit: LogStoreLimit::Jobs(2), .. }), "{full}");
    one.finish().unwrap();
    let three = keep_for(&log_store, b"client", 3).unwrap();
    two.close().unwrap();
    three.close().unwrap();
    assert_eq!(log_store.jobs_of(b"client"), [id(2), id(3)], "resumable jobs count");
    let again = open(&home, limits(1 << 20, 2));
    assert_eq!(again.jobs_of(b"client"), [id(2), id(3)], "by the next process as well");
    finish(keep(&log_store, 2).unwrap());
    keep(&log_store, 4).unwrap().finish().unwrap();
    assert_eq!(log_store.jobs_of(b"client"), [id(3)]);
    assert!(log_store.jobs_of(b"stranger").is_empty());
}

#[test]
fn logs_grow_up_to_the_limit_and_stay_valid() {
    let home = tempfile::tempdir().unwrap();
    let most = 2 * JOB_BYTES + 5 * DISK_BLOCK_BYTES;
    let log_store = open(&home, limits(most, 9));
    let one = keep(&log_store, 1).unwrap();
    assert_eq!(fill(&one, 3), 3, "a file of a log takes a block");
    let two = keep(&log_store, 2).unwrap();
    assert_eq!(fill(&two, 9), 2, "what others take counts");
    assert!(matches!(two.commit(), Ok(())), "refused space is not requested again");
    assert!(matches!(two.file(&subject(50)), Err(LogError::Full { .. })));
    assert!(keep(&log_store, 3).is_err());
    assert_eq!(sum(&log_store), most);
    assert_eq!(log_store.lock().len(), 2);
    one.close().unwrap();
    drop(two);
    let again = open(&home, limits(most, 9));
    assert_eq!(sum(&again), most, "what is on the disk is what was counted");
    let two = keep(&again, 2).unwrap();
    assert_eq!(two.before().len(), 2, "what was logged is there, and nothing that was refused");
    keep(&again, 1).unwrap().finish().unwrap();
    assert_eq!(fill(&two, 9), 9, "there is room again");
}

#[test]
fn only_long_unused_idle_jobs_expire() {
    let home = tempfile::tempdir().unwrap();
    let log_store =
        open(&home, LogStoreLimits { age: Duration::from_secs(3600), ..LogStoreLimits::default() });
    let kept: Vec<LogWriter> = [1, 2, 3].map(|number| keep(&log_store, number).unwrap()).into();
    let mut kept = kept.into_iter();
    let running = kept.next().unwrap();
    kept.for_each(|log_writer| log_writer.close().unwrap());
    assert!(log_store.expired().unwrap().is_empty());
    [1, 2].into_iter().for_each(|number| touch(&log_store, number, 7200));
    touch(&log_store, 3, 1800);
    assert_eq!(log_store.expired().unwrap(), [id(2)], "one is running, one was touched");
    running.close().unwrap();
    touch(&log_store, 1, 7200);
    assert_eq!(log_store.expired().unwrap(), [id(1), id(2)]);
}

/// Returns the answer for a job of this size. The jobs have a number, a size and an idle time in
/// seconds; `None` for an active job.
fn asked(of: &[(u8, u64, Option<u64>)], limits: LogStoreLimits, request: (u8, u64), stay: &[u8]) -> Answer {
    let usage = |&(job, bytes, ago): &(u8, u64, Option<u64>)| {
        let touched = SystemTime::UNIX_EPOCH + Duration::from_secs(1000 - ago.unwrap_or(0));
        (id(job), JobUsage { bytes, sessions: u32::from(ago.is_none()), client: UNKNOWN, touched })
    };
    let stay = stay.iter().map(|&number| id(number)).collect();
    answer(&of.iter().map(usage).collect(), &limits, id(request.0), request.1, &stay)
}

#[test]
fn the_least_recently_used_job_makes_way_for_a_new_one() {
    let full = Answer::Full(LogStoreLimit::Jobs(4));
    let four = [(1, 9, Some(10)), (2, 9, Some(30)), (3, 9, None), (4, 9, Some(20))];
    let few = |jobs: &[_], request, stay: &[u8]| asked(jobs, limits(1 << 30, 4), request, stay);
    assert_eq!(few(&four, (5, 1), &[]), Answer::Without(id(2)));
    assert_eq!(few(&four, (5, 1), &[2]), Answer::Without(id(4)), "another process holds the oldest job");
    assert_eq!(few(&four, (5, 1), &[2, 4, 1]), full);
    assert_eq!(few(&four, (1, 10), &[]), Answer::Granted, "an existing job needs no additional space");
    let ended = [(1, 0, Some(10)), four[1], four[2], four[3]];
    assert_eq!(few(&ended, (5, 1), &[]), Answer::Granted, "a finished job does not count");
    assert_eq!(asked(&[], limits(1 << 30, 0), (5, 1), &[]), Answer::Full(LogStoreLimit::Jobs(0)));
}

#[test]
fn jobs_make_way_only_if_the_space_then_suffices() {
    let full = Answer::Full(LogStoreLimit::Bytes(100));
    let three = [(1, 50, Some(5)), (2, 10, Some(9)), (3, 30, None)];
    let few = |request, stay: &[u8]| asked(&three, limits(100, 9), request, stay);
    assert_eq!(few((3, 40), &[]), Answer::Granted);
    assert_eq!(few((3, 41), &[]), Answer::Without(id(2)));
    assert_eq!(few((3, 100), &[]), Answer::Without(id(2)));
    assert_eq!(few((3, 101), &[]), full, "more than the limit");
    assert_eq!(few((4, 70), &[]), Answer::Without(id(2)));
    assert_eq!(few((4, 71), &[]), full, "a job in use stays");
    assert_eq!(few((4, 21), &[1]), full);
    assert_eq!(few((1, 50), &[]), Answer::Granted, "a request for no more than a job has");
}

#[test]
fn the_oldest_idle_jobs_of_all_clients_are_evicted_and_running_jobs_stay() {
    let home = tempfile::tempdir().unwrap();
    let log_store = open(&home, limits(1 << 20, 4));
    for number in 1..=3 {
        keep_for(&log_store, b"many", number).unwrap().close().unwrap();
    }
    let running = keep_for(&log_store, b"many", 4).unwrap();
    keep_for(&log_store, b"many", 5).unwrap().close().unwrap();
    assert!(!log_store.home(id(1)).exists(), "the oldest one is gone, from the disk as well");
    let few = [6, 7, 8].map(|number| keep_for(&log_store, b"few", number).unwrap());
    assert_eq!(log_store.jobs_of(b"many"), [id(4)]);
    assert_eq!(log_store.jobs_of(b"few"), [id(6), id(7), id(8)]);
    assert!(keep_for(&log_store, b"third", 9).is_err(), "all jobs are in use");
    // The owners and the order are still known after a restart.
    drop((running, few));
    for (number, ago) in [(4, 10), (6, 30), (7, 40), (8, 20)] {
        touch(&log_store, number, ago);
    }
    let again = open(&home, limits(1 << 20, 4));
    assert_eq!(again.jobs_of(b"many"), [id(4)]);
    keep_for(&again, b"third", 9).unwrap().close().unwrap();
    keep_for(&again, b"third", 10).unwrap().close().unwrap();
    assert_eq!(again.jobs_of(b"few"), [id(8)]);
    assert_eq!(again.jobs_of(b"third"), [id(9), id(10)]);
}

#[test]
fn log_grows_into_the_space_of_idle_jobs() {
    let home = tempfile::tempdir().unwrap();
    let most = 4 * JOB_BYTES;
    let log_store = open(&home, limits(most, 99));
    let large = keep_for(&log_store, b"many", 1).unwrap();
    assert_eq!(fill(&large, 99), 24, "one alone may have all");
    large.close().unwrap();
    let small = keep_for(&log_store, b"few", 2).unwrap();
    assert!(log_store.jobs_of(b"many").is_empty() && !log_store.home(id(1)).exists());
    assert_eq!(fill(&small, 3), 3);
    let other = keep_for(&log_store, b"many", 1).unwrap();
    assert_eq!(fill(&other, 99), 13, "all space that no other client uses");
    assert_eq!(fill(&small, 99), 3, "no more: a job in use is not evicted");
    assert_eq!(sum(&log_store), most);
}

#[test]
fn accounting_matches_the_disk_under_concurrent_jobs() {
    let home = tempfile::tempdir().unwrap();
    let log_store = open(&home, limits(10 * JOB_BYTES, 7));
    let worker = |client: u8| {
        let mut got_in = 0;
        for turn in 0..60 {
            match keep_for(&log_store, &[client], client * 10 + turn % 10) {
                Ok(log_writer) => {
                    got_in += 1;
                    fill(&log_writer, u64::from(turn % 5));
                    if turn % 7 == 0 { finish(log_writer) } else { drop(log_writer) }
                }
                // Another thread may also be deleting the job.
                Err(error) => {
                    assert!(matches!(error, LogError::Full { .. } | LogError::Held { .. }), "{error}");
                }
            }
            let jobs = log_store.lock();
            assert!(jobs.values().filter(|usage| usage.bytes > 0).count() <= 7);
            assert!(jobs.values().map(|usage| usage.bytes).sum::<u64>() <= 10 * JOB_BYTES);
        }
        got_in
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=4).map(|client| scope.spawn(move || worker(client))).collect();
        let got_in: Vec<i32> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        assert!(got_in.iter().all(|&turns| turns > 0), "{got_in:?}");
    });
    let counted = |log_store: &LogStore| {
        Vec::from_iter(log_store.lock().iter().map(|(id, usage)| (*id, usage.bytes, usage.client)))
    };
    assert_eq!(counted(&open(&home, limits(u64::MAX, 99))), counted(&log_store));
}

/// The quota counts the length of a log before anything of it is written.
#[test]
fn a_log_as_long_as_a_large_file_needs_is_refused_first() {
    let home = tempfile::tempdir().unwrap();
    let log_store = open(&home, limits(1 << 20, 2));
    let one = keep(&log_store, 1).unwrap();
    let objects = Encoding::Bit8.objects_max();
    let source = SourceVersion { size: objects * (64 << 10), ..subject(1).source };
    let (key, _) = one.file(&Subject { source, ..subject(1) }).unwrap();
    one.durable(key, ObjectIndex(objects - 1), 1).unwrap();
    let refused = one.commit().unwrap_err();
    assert!(matches!(refused, LogError::Full { limit: LogStoreLimit::Bytes(_), .. }), "{refused}");
    assert_eq!(list::sizes_in(&one.home().join("log")).unwrap(), Vec::<u64>::new());
}
