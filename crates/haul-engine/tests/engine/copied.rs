//! Files copied from one storage in memory to another, of which each call fails once.

use haul_digest::Algorithm;
use haul_engine::copy::{
    CopyContext, CopyError, CopyObserver, CopySink, CopySource, FileEnds, FileFigures, FileJob, Finish,
    HashForm, HashLine, HeldFiles, Helpers, JobLog, JobObserver, LogOrder, Moved, Moving, Proof, Question,
    Reflink, SharedFile, SinkState, SparseRule, Tally, Verify, Worker, Workers, check_source, unfinished,
};
use haul_engine::log::{CommandLine, Settings, SyncPolicy, identity};
use haul_log::record::Status;
use haul_model::{Level, ObjectSize, Runs};
use haul_plan::{Depth, FileId, Layout, ObjectOrder, ObjectTask, Scheduler, TaskId, WorkerId};
use haul_storage::memory::{Call, MemoryStorage};
use haul_storage::{Create, Dir, Follow, Inode, Missing, Name, Times};
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

/// Size of an object, in bytes.
const OBJECT: u64 = 64 << 10;

/// State of the sink before a copy.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    Nothing,
    /// A part of the bytes, and other bytes: what an interrupted run leaves.
    Partial,
    /// All bytes, which the storage has not stored durably.
    Whole,
}

/// One way to copy a file.
struct Case {
    name: &'static str,
    moving: Moving,
    before: Before,
    /// True if both ends are in one storage.
    is_one_storage: bool,
}

fn moving() -> Moving {
    Moving {
        object: ObjectSize::new(OBJECT).unwrap(),
        block: Some(16 << 10),
        ..Moving::with(Workers::exactly(2))
    }
}

fn cases() -> Vec<Case> {
    let case = |name, moving| Case { name, moving, before: Before::Nothing, is_one_storage: false };
    let verified = |verify| Moving { verify, ..moving() };
    let synced_behind = Moving { fadvise_write: true, reflink: Reflink::Never, ..verified(Verify::ReadBack) };
    let serial = Some((Algorithm::Sha256, HashForm::Plain));
    vec![
        case("not verified", moving()),
        Case { is_one_storage: true, ..case("within one storage", moving()) },
        case("hashed", verified(Verify::Stream)),
        case("read back", verified(Verify::ReadBack)),
        case("re-read", verified(Verify::Reread)),
        case(
            "serial digest beside the copy",
            Moving { digest: serial, double_buffer: Some(true), ..moving() },
        ),
        case(
            "serial digest",
            Moving { digest: serial, workers: Workers::exactly(1), ..verified(Verify::ReadBack) },
        ),
        case("zeros left out", Moving { sparse: SparseRule::Always, ..verified(Verify::ReadBack) }),
        case("all zeros written", Moving { sparse: SparseRule::Never, ..moving() }),
        case("synced behind", Moving { fadvise_write: true, reflink: Reflink::Never, ..moving() }),
        case("moved", Moving { removes_source: true, sync_each: true, ..verified(Verify::ReadBack) }),
        Case { before: Before::Partial, ..case("resumed", moving()) },
        Case { before: Before::Partial, ..case("resumed and re-read", verified(Verify::Reread)) },
        Case { before: Before::Partial, ..case("resumed and synced behind", synced_behind.clone()) },
        Case { before: Before::Whole, ..case("found whole and synced behind", synced_behind) },
    ]
}

/// Bytes of the file: data, a hole of two objects, and data.
fn bytes() -> Vec<u8> {
    let mut bytes: Vec<u8> = (0..5 * OBJECT as u32 + 777).map(|at| ((at * 7) >> 4) as u8).collect();
    bytes[OBJECT as usize..3 * OBJECT as usize].fill(0);
    bytes
}

fn name() -> Name {
    Name::new("f").unwrap()
}

/// Creates the source file, with a hole where its bytes are zeros.
fn plant(storage: &MemoryStorage) {
    let file = storage.root().sink(&name(), Create::New { mode: 0o644 }).unwrap();
    let bytes = bytes();
    file.write_at(0, &bytes[..OBJECT as usize]).unwrap();
    file.write_at(3 * OBJECT, &bytes[3 * OBJECT as usize..]).unwrap();
    file.set_times(Times { atime: None, mtime: Some(haul_storage::Timespec { sec: 1000, nsec: 5 }) })
        .unwrap();
}

/// Receiver of the events, which are not needed.
struct Ignored;

impl CopyObserver for Ignored {
    fn failed(&self, _: &CopyError) {}
    fn warned(&self, _: &CopyError) {}
    fn made(&self, _: &OsStr) {}
    fn hashed(&self, _: &HashLine<'_>) {}
    fn wants_figures(&self) -> bool {
        false
    }
    fn finished(&self, _: &FileFigures<'_>) {}
    fn ask(&self, _: &Question<'_>) -> bool {
        false
    }
}

/// A job with one worker.
struct Alone(Scheduler<()>);

impl Alone {
    fn new() -> Alone {
        Alone(Scheduler::new(1))
    }
}

impl<'j> Helpers<'j> for Alone {
    fn open(&mut self, file: &Arc<SharedFile<'j>>) -> FileId {
        let layout = Layout::one(self.0.target(Depth::Workers));
        self.0.open(file.geometry(), Runs::default(), &layout, &layout, ObjectOrder::Any)
    }
    fn next_object(&mut self, file: FileId, finished: Option<TaskId>) -> Option<ObjectTask> {
        match finished {
            Some(task) => self.0.next_after(WorkerId(0), task),
            None => self.0.next_of(WorkerId(0), file),
        }
    }
    fn take_until(&mut self, file: FileId, end: u64) -> Runs {
        self.0.take_until(file, end)
    }
    fn is_one_idle(&self) -> bool {
        true
    }
}

/// End of a file as cp has it: the source is checked, and the times are set last.
struct End<'a> {
    context: &'a CopyContext<'a>,
    to: &'a MemoryStorage,
    sink_dir: Arc<dyn Dir>,
    result: &'a Mutex<Vec<Result<Moved, CopyError>>>,
}

impl std::fmt::Debug for End<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("End")
    }
}

impl Finish for End<'_> {
    fn source_path(&self) -> OsString {
        "source".into()
    }

    fn sink_path(&self) -> OsString {
        "sink".into()
    }

    fn open_device(&self, _: &FileJob<'_>) -> io::Result<Arc<dyn Inode>> {
        Ok(Arc::clone(&self.sink_dir) as Arc<dyn Inode>)
    }

    fn has_source_name(&self, _: &FileJob<'_>) -> bool {
        true
    }

    fn is_awaited(&self) -> bool {
        false
    }

    fn complete(&self, file: &FileJob<'_>, moved: Result<Moved, CopyError>) {
        let CopySink::File(sink) = &file.sink else { unreachable!("a file in memory") };
        let failed = |source| CopyError::CloseFailed { path: "sink".into(), source };
        let settled = moved.and_then(|moved| {
            check_source(self.context, file, &moved)?;
            if let Some(error) = file.logged.as_ref().and_then(|logged| logged.take_failure()) {
                return Err(error);
            }
            sink.flush().and_then(|()| sink.set_times(Times::of(&file.source_stat))).map_err(failed)?;
            if self.context.moving.sync_each {
                sink.sync(haul_storage::SyncWhat::All).map_err(failed)?;
            }
            Ok(moved)
        });
        match &settled {
            Ok(moved) => {
                for seed in (0..4).filter(|_| moved.level >= Level::Durable) {
                    let after = found(&self.to.after_power_cut(seed));
                    assert!(
                        after.is_some_and(|(found, _)| found == bytes()),
                        "{:?} is reported, but a power cut loses bytes, seed {seed}",
                        moved.level
                    );
                }
                if let Some(log) = self.context.log {
                    log.finished(&self.context.observer, file, moved.bytes);
                }
            }
            Err(_) if file.is_untouched() => {}
            Err(_) => _ = sink.set_times(unfinished(&file.source_stat)),
        }
        self.result.lock().push(settled);
    }
}

/// Result of one copy.
struct Copied {
    moved: Result<Moved, CopyError>,
    /// Failures that the job reported, beside that of the file.
    failures: u64,
    /// True if the job has a log: then the file is durable at the end.
    is_logged: bool,
}

/// Copies the file. `state` is the state directory of a job with a log.
fn copy(case: &Case, from: &MemoryStorage, to: &MemoryStorage, state: &Path) -> io::Result<Copied> {
    let (tally, stop, result) = (Tally::default(), AtomicBool::new(false), Mutex::new(Vec::new()));
    let observer = JobObserver { report: &Ignored, tally: &tally };
    let source_dir = from.root();
    let sink_dir = to.root().dir(&Name::new("d").unwrap(), Follow::No, Missing::Fail)?;
    let source = source_dir.source(&name(), Follow::No)?;
    let missing = Missing::Create { mode: 0o600 };
    let sink = sink_dir.sink(&name(), Create::InPlace { missing, follow: Follow::No })?;
    sink_dir.sync()?;
    to.root().sync()?;
    let is_resumed = case.before != Before::Nothing;
    let sink_state = if is_resumed { SinkState::Resumed } else { SinkState::New };
    let log = is_resumed.then(|| {
        let settings =
            Settings { style: haul_log::objects::Style::DEFAULT, sync: SyncPolicy::Group, wait: false };
        let command_line = CommandLine { kind: "cp", words: vec!["cp".into()], cwd: "/".into() };
        let id = identity("cp", Path::new("/"), [b"cp".as_slice()]);
        let object = case.moving.object;
        let order = LogOrder { state: state.to_owned(), id, settings, recheck: None, object, command_line };
        JobLog::begin(order).unwrap().0
    });
    let proof = Proof::new(&case.moving);
    let context = CopyContext { moving: &case.moving, log: log.as_ref(), observer, proof, stop: &stop };
    let work = || {
        let ends = FileEnds {
            source_stat: *source.opened(),
            source: CopySource::File(source),
            sink: CopySink::File(sink),
            sink_state,
        };
        let end = End { context: &context, to, sink_dir: Arc::clone(&sink_dir), result: &result };
        let held = HeldFiles::new(1, 1000, true);
        held.beside(&context, || {
            let mut worker = Worker::new(&context, &held);
            worker.move_file(&mut Alone::new(), FileJob::new(ends, None, Instant::now(), end));
            worker.end_turn();
        });
    };
    match &log {
        Some(log) => log.beside(&observer, work),
        None => work(),
    }
    let is_logged = log.is_some();
    if let Some(log) = log {
        log.close(Status::Finished, 0, &tally).unwrap();
    }
    let mut results = result.into_inner();
    let moved = results.pop().expect("the file has ended");
    assert!(results.is_empty(), "a file ends once");
    Ok(Copied { moved, failures: Tally::get(&tally.failures), is_logged })
}

/// Returns the bytes of the sink, or `None` if there is none.
fn found(storage: &MemoryStorage) -> Option<(Vec<u8>, haul_storage::Stat)> {
    let dir = storage.root().dir(&Name::new("d").unwrap(), Follow::No, Missing::Fail).ok()?;
    let file = dir.source(&name(), Follow::No).ok()?;
    let mut bytes = vec![0; usize::try_from(file.opened().size).unwrap()];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), bytes.len());
    Some((bytes, *file.opened()))
}

/// Returns the storages of a case before the copy: source and sink, which may be the same.
fn storages(case: &Case) -> (MemoryStorage, MemoryStorage) {
    let from = MemoryStorage::new(1);
    let to = if case.is_one_storage { from.clone() } else { MemoryStorage::new(2) };
    plant(&from);
    let dir = to.root().dir(&Name::new("d").unwrap(), Follow::No, Missing::Create { mode: 0o755 }).unwrap();
    if case.before != Before::Nothing {
        let file = dir.sink(&name(), Create::New { mode: 0o600 }).unwrap();
        let mut there = bytes();
        if case.before == Before::Partial {
            there.truncate(4 * OBJECT as usize);
            there[3 * OBJECT as usize + 5] ^= 1;
        }
        file.write_at(0, &there).unwrap();
    }
    (from, to)
}

/// Checks what a copy left: a file that is reported as copied has the bytes of its source, also
/// after a power cut if it is reported as durable. One that failed does not look finished.
fn check(case: &Case, copied: &io::Result<Copied>, to: &MemoryStorage, what: &str) -> bool {
    let Ok(copied) = copied else { return true };
    let Ok(moved) = &copied.moved else {
        let looks_finished = found(to)
            .is_some_and(|(bytes, stat)| stat.mtime.sec == 1000 && bytes.len() == self::bytes().len());
        // A fault of the call that would mark it is possible once.
        assert!(!looks_finished || what.contains("SetTimes"), "{what}: looks finished");
        return true;
    };
    let expected = bytes();
    assert!(found(to).is_some_and(|(bytes, _)| bytes == expected), "{what}: other bytes");
    let is_durable = moved.level >= Level::Durable || case.moving.sync_each || copied.is_logged;
    for seed in (0..4).filter(|_| is_durable && copied.failures == 0) {
        let after = found(&to.after_power_cut(seed));
        assert!(
            after.is_some_and(|(bytes, _)| bytes == expected),
            "{what}: lost by a power cut, seed {seed}"
        );
    }
    copied.failures > 0
}

#[test]
fn no_failed_call_of_a_copy_loses_or_falsifies_a_file() {
    let state = tempfile::tempdir().unwrap();
    let mut copies = 0;
    for case in cases() {
        let (from, to) = storages(&case);
        let before = Call::ALL.map(|call| [&from, &to].map(|storage| storage.count(call)));
        let whole = copy(&case, &from, &to, state.path());
        let after = Call::ALL.map(|call| [&from, &to].map(|storage| storage.count(call)));
        assert!(
            !check(&case, &whole, &to, case.name),
            "{}: {:?}",
            case.name,
            whole.map(|copied| copied.moved)
        );
        for end in 0..if case.is_one_storage { 1 } else { 2 } {
            for ((call, before), after) in Call::ALL.into_iter().zip(before).zip(after) {
                let count = after[end] - before[end];
                let mut reported = 0;
                for nth in 1..=count {
                    let (from, to) = storages(&case);
                    let errno = if call == Call::Write { ENOSPC } else { EIO };
                    [&from, &to][end].fail(call, nth, errno);
                    let what = format!("{}, {call:?} {nth} of {count} fails at end {end}", case.name);
                    let copied = copy(&case, &from, &to, state.path());
                    // A fault that this copy did not meet must not fail the check.
                    reported += u32::from(check(&case, &copied, &to.after_kill(), &what));
                    copies += 1;
                }
                // A failed read of the sink is repeated after a rewrite.
                let must_be_reported = match call {
                    Call::OpenSource | Call::Read => end == 0,
                    Call::OpenSink | Call::Write | Call::SetTimes | Call::Flush => true,
                    _ => false,
                };
                assert!(
                    count == 0 || reported > 0 || !must_be_reported,
                    "{}: {call:?} at end {end}",
                    case.name
                );
            }
        }
    }
    assert!(copies > 300, "a copy makes calls of its storages: {copies}");
}

/// Regression test: before a damaged object was read from its source again, the dirty pages of the
/// source were written to its device.
#[test]
fn rewrite_of_a_damaged_object_writes_nothing_of_its_source() {
    let state = tempfile::tempdir().unwrap();
    let moving = Moving { verify: Verify::Reread, workers: Workers::exactly(1), ..moving() };
    let case = Case { name: "re-read", moving, before: Before::Nothing, is_one_storage: false };
    let reads_of_source = |is_damaged: bool| {
        let (from, to) = storages(&case);
        let (disk, is_done) = (to.clone(), AtomicBool::new(!is_damaged));
        to.observe(move |call, _| {
            if call == Call::Read && !is_done.swap(true, Ordering::Relaxed) {
                let dir = disk.root().dir(&Name::new("d").unwrap(), Follow::No, Missing::Fail).unwrap();
                let sink = dir.stat_at(&name(), Follow::No).unwrap();
                assert!(disk.damage(sink.ino, 5), "the device has the first object");
            }
        });
        let copied = copy(&case, &from, &to, state.path());
        assert!(!check(&case, &copied, &to.after_kill(), case.name) && copied.unwrap().moved.is_ok());
        assert_eq!(from.count(Call::WriteBack), 0);
        from.count(Call::Read)
    };
    assert!(reads_of_source(true) > reads_of_source(false), "the damaged object is read again");
}
