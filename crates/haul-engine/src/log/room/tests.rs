//! Tests of the log store on real files.

use super::*;
use crate::log::{Hold, Keeper, Settings, SyncPolicy};
use haul_log::objects::{Encoding, Job, Mechanism, SourceVersion, Style, Subject};
use haul_model::{Moment, ObjectIndex, ObjectSize, RelPath};
use std::fs::File;

fn id(number: u8) -> Identity {
    Identity([number; 16])
}

fn limits(bytes: u64, jobs: usize) -> RoomLimits {
    RoomLimits { bytes, jobs, ..RoomLimits::default() }
}

fn open(home: &tempfile::TempDir, limits: RoomLimits) -> Arc<Room> {
    Arc::new(Room::open(home.path().to_path_buf(), limits, forget).unwrap())
}

fn forget(room: &Room, job: Identity) -> Result<bool, LogError> {
    match Hold::take(room.state(), job, false) {
        Err(LogError::Held { .. }) => Ok(false),
        taken => taken?.forget().map(|()| true),
    }
}

/// Returns the size of all jobs, in bytes.
fn sum(room: &Room) -> u64 {
    room.lock().values().map(|taken| taken.bytes).sum()
}

fn keep(room: &Arc<Room>, number: u8) -> Result<Keeper, LogError> {
    within(room, b"client", number)
}

fn within(room: &Arc<Room>, guest: &[u8], number: u8) -> Result<Keeper, LogError> {
    let settings = Settings {
        style: Style { mechanism: Mechanism::File, encoding: Encoding::Bit8 },
        sync: SyncPolicy::None,
        wait: false,
    };
    let job = Job { id: id(number), object: ObjectSize::new(64 << 10).unwrap() };
    Keeper::within(room, guest, job, settings).map(|(keeper, _)| keeper)
}

/// Opens a log like a session does, which also records the owner.
fn keep_for(room: &Arc<Room>, guest: &[u8], number: u8) -> Result<Keeper, LogError> {
    let keeper = within(room, guest, number)?;
    let (root, into) = (PathBuf::from("/srv"), Vec::new());
    let object = ObjectSize::new(64 << 10).unwrap();
    Target { root, into, object, guest: Identity::of(guest) }.write(keeper.home())?;
    Ok(keeper)
}

/// Finishes a job like a session does.
fn finish(keeper: Keeper) {
    Target::remove(keeper.home()).unwrap();
    keeper.finish().unwrap();
}

fn subject(number: u64) -> Subject {
    let source = SourceVersion { size: 1 << 20, mtime: Moment { sec: 1, nsec: 2 }, identity: id(8) };
    let path = RelPath::new(format!("file {number}").as_bytes()).unwrap();
    Subject { path, source, sink: id(9) }
}

/// Logs one object of each of `files` files, one by one. Returns the number of files that fit.
fn fill(keeper: &Keeper, files: u64) -> u64 {
    let log = |number: &u64| {
        let (key, _) = keeper.file(&subject(*number))?;
        keeper.durable(key, ObjectIndex(3), 1)?;
        keeper.commit()
    };
    (0..files).take_while(|number| log(number).is_ok()).count() as u64
}

#[test]
fn jobs_are_counted_until_they_are_over() {
    let home = tempfile::tempdir().unwrap();
    let room = open(&home, limits(1 << 20, 2));
    let (one, two) = (keep(&room, 1).unwrap(), keep_for(&room, b"client", 2).unwrap());
    let full = keep(&room, 3).unwrap_err();
    assert!(matches!(full, LogError::Full { limit: RoomLimit::Jobs(2), .. }), "{full}");
    one.finish().unwrap();
    let three = keep_for(&room, b"client", 3).unwrap();
    two.close().unwrap();
    three.close().unwrap();
    assert!(keep(&room, 4).is_err(), "resumable jobs count");
    assert!(keep(&open(&home, limits(1 << 20, 2)), 4).is_err(), "by the next process as well");
    finish(keep(&room, 2).unwrap());
    keep(&room, 4).unwrap().finish().unwrap();
    assert_eq!(room.jobs_of(b"client"), [id(3)]);
    assert!(room.jobs_of(b"stranger").is_empty());
}

#[test]
fn logs_grow_until_their_room_is_taken_and_what_stands_there_stays_true() {
    let home = tempfile::tempdir().unwrap();
    let most = 2 * JOB_BYTES + 5 * BLOCK_BYTES;
    let room = open(&home, limits(most, 9));
    let one = keep(&room, 1).unwrap();
    assert_eq!(fill(&one, 3), 3, "a file of a log takes a block");
    let two = keep(&room, 2).unwrap();
    assert_eq!(fill(&two, 9), 2, "what others take counts");
    assert!(matches!(two.commit(), Ok(())), "refused space is not requested again");
    assert!(matches!(two.file(&subject(50)), Err(LogError::Full { .. })));
    assert!(keep(&room, 3).is_err());
    assert_eq!(sum(&room), most);
    assert_eq!(room.lock().len(), 2);
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
fn only_what_nobody_touched_for_long_is_old() {
    let home = tempfile::tempdir().unwrap();
    let room = open(&home, RoomLimits { age: Duration::from_secs(3600), ..RoomLimits::default() });
    let kept: Vec<Keeper> = [1, 2, 3].map(|number| keep(&room, number).unwrap()).into();
    let mut kept = kept.into_iter();
    let running = kept.next().unwrap();
    kept.for_each(|keeper| keeper.close().unwrap());
    let touch = |number: u8, ago: u64| {
        let lock = room.home(id(number)).join("lock");
        let at = SystemTime::now() - Duration::from_secs(ago);
        File::options().write(true).open(lock).unwrap().set_modified(at).unwrap();
    };
    assert!(room.expired().unwrap().is_empty());
    [1, 2].into_iter().for_each(|number| touch(number, 7200));
    touch(3, 1800);
    assert_eq!(room.expired().unwrap(), [id(2)], "one is running, one was touched");
    running.close().unwrap();
    touch(1, 7200);
    assert_eq!(room.expired().unwrap(), [id(1), id(2)]);
}

#[test]
fn who_has_more_than_a_share_gives_way_and_what_runs_does_not() {
    let home = tempfile::tempdir().unwrap();
    let room = open(&home, limits(1 << 20, 4));
    for number in 1..=3 {
        keep_for(&room, b"many", number).unwrap().close().unwrap();
    }
    let running = keep_for(&room, b"many", 4).unwrap();
    assert!(keep_for(&room, b"many", 5).is_err(), "a client does not evict its own jobs");
    let first = keep_for(&room, b"few", 6).unwrap();
    assert!(!room.home(id(1)).exists(), "the oldest one is gone, from the disk as well");
    keep_for(&room, b"few", 7).unwrap().close().unwrap();
    assert!(keep_for(&room, b"few", 8).is_err(), "both have a half");
    assert!(keep_for(&room, b"many", 1).is_err(), "it is a new job by now");
    assert_eq!(room.jobs_of(b"many"), [id(3), id(4)]);
    assert_eq!(room.jobs_of(b"few"), [id(6), id(7)]);
    // The owners are still known after a restart.
    drop((running, first));
    let again = open(&home, limits(1 << 20, 4));
    assert_eq!(again.jobs_of(b"many"), [id(3), id(4)]);
    keep_for(&again, b"third", 9).unwrap().close().unwrap();
    assert_eq!(again.lock().len(), 4);
    assert_eq!(again.jobs_of(b"third"), [id(9)]);
    assert!(keep_for(&again, b"third", 10).is_err());
}

#[test]
fn a_log_grows_into_what_others_have_beyond_their_share() {
    let home = tempfile::tempdir().unwrap();
    let most = 4 * JOB_BYTES;
    let room = open(&home, limits(most, 99));
    let large = keep_for(&room, b"many", 1).unwrap();
    assert_eq!(fill(&large, 99), 24, "one alone may have all");
    large.close().unwrap();
    let small = keep_for(&room, b"few", 2).unwrap();
    assert!(room.jobs_of(b"many").is_empty() && !room.home(id(1)).exists());
    assert_eq!(fill(&small, 3), 3);
    let other = keep_for(&room, b"many", 1).unwrap();
    assert_eq!(fill(&other, 99), 13, "all space that no other client uses");
    assert_eq!(fill(&small, 99), 3, "no more: a job in use is not evicted");
    assert_eq!(sum(&room), most);
}

#[test]
fn what_is_counted_is_what_is_there_however_many_come_at_once() {
    let home = tempfile::tempdir().unwrap();
    let room = open(&home, limits(10 * JOB_BYTES, 7));
    let worker = |guest: u8| {
        let mut got_in = 0;
        for turn in 0..60 {
            match keep_for(&room, &[guest], guest * 10 + turn % 10) {
                Ok(keeper) => {
                    got_in += 1;
                    fill(&keeper, u64::from(turn % 5));
                    if turn % 7 == 0 { finish(keeper) } else { drop(keeper) }
                }
                // Another thread may also be deleting the job.
                Err(error) => {
                    assert!(matches!(error, LogError::Full { .. } | LogError::Held { .. }), "{error}");
                }
            }
            let jobs = room.lock();
            assert!(jobs.values().filter(|taken| taken.bytes > 0).count() <= 7);
            assert!(jobs.values().map(|taken| taken.bytes).sum::<u64>() <= 10 * JOB_BYTES);
        }
        got_in
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (1..=4).map(|guest| scope.spawn(move || worker(guest))).collect();
        let got_in: Vec<i32> = workers.into_iter().map(|worker| worker.join().unwrap()).collect();
        assert!(got_in.iter().all(|&turns| turns > 0), "{got_in:?}");
    });
    let counted =
        |room: &Room| Vec::from_iter(room.lock().iter().map(|(id, taken)| (*id, taken.bytes, taken.guest)));
    assert_eq!(counted(&open(&home, limits(u64::MAX, 99))), counted(&room));
}
