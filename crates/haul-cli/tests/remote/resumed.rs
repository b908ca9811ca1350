//! Jobs that are interrupted at any moment, by SIGKILL of either side or both, and started again:
//! all files arrive, and no durable data is sent again.

use super::claims::{Claim, claims};
use super::cut::{cut_in_the_middle, ended_when};
use super::stopped::{remote_processes, wait_until};
use super::{Fixture, RunResult, assert_alike, assert_ended, assert_no_strays};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::{Random, soak_seed};
use haul_lab::traced;
use haul_log::objects::{Facts, Identity, Job, replay};
use haul_model::{ObjectIndex, ObjectSize};
use haul_sys::filesystem::FileSystem;
use haul_sys::{CWD, Follow, stat};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Number of log styles: each mechanism with each encoding.
const STYLES: u64 = 3 * 6;

/// Number of points at which each of send and fetch is interrupted: each style with each victim and
/// each of four sync policies.
const POINTS: u64 = STYLES * 3 * 4;

/// Number of jobs that run concurrently. They mostly wait for their rate limit.
const AT_ONCE: usize = 4;

/// Rate limit of a job that is to be interrupted, in bytes per second.
pub(super) const RATE: u64 = 24 << 20;

/// Lowest such limit, for a machine so busy that a faster job ends before the test checks it.
pub(super) const RATE_LEAST: u64 = RATE >> 6;

/// Maximum number of bytes that travel in addition to the objects of a job of about 30 files.
pub(super) const WIRE_BESIDE: u64 = 300 << 10;

pub(super) const OBJECT: u64 = 64 << 10;

/// Direction of the files, seen from the side that starts the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Send,
    Fetch,
}

/// Side of a job that is killed.
#[derive(Clone, Copy, Debug)]
pub(super) enum KilledSide {
    Source,
    Sink,
    Both,
}

const VICTIMS: [KilledSide; 3] = [KilledSide::Source, KilledSide::Sink, KilledSide::Both];

/// A job in a test directory, with a tree of about 6 MiB: files larger and smaller than an object.
pub(super) struct ResumeScenario {
    pub(super) fixture: Fixture,
    direction: Direction,
    options: Vec<String>,
}

impl ResumeScenario {
    pub(super) fn new(direction: Direction, options: &[&str]) -> ResumeScenario {
        let fixture = Fixture::new();
        let from = if direction == Direction::Send { "data" } else { "there/data" };
        for (name, len) in
            [("a", 900_000), ("m/b", 2_500_001), ("z", 1_800_000), ("one", 65_536), ("empty", 0)]
        {
            fixture.file(&format!("{from}/{name}"), len);
        }
        for number in 0..24 {
            fixture.file(&format!("{from}/many/{number}"), number * 997);
        }
        fs::hard_link(fixture.path(from).join("a"), fixture.path(from).join("again")).unwrap();
        let command = if direction == Direction::Send { "send" } else { "fetch" };
        let options = fixture.words_of_sender(command, options).into_iter().map(str::to_owned).collect();
        ResumeScenario { fixture, direction, options }
    }

    pub(super) fn source(&self) -> PathBuf {
        self.fixture.path(if self.direction == Direction::Send { "data" } else { "there/data" })
    }

    pub(super) fn sink(&self) -> PathBuf {
        self.fixture.path(if self.direction == Direction::Send { "there/in/data" } else { "in/data" })
    }

    /// Returns the command line of the job.
    fn words(&self, more: &[&str]) -> Vec<String> {
        let (command, operands) = match self.direction {
            Direction::Send => ("send", ["data", "localhost:in"]),
            Direction::Fetch => ("fetch", ["localhost:data", "in"]),
        };
        let ssh = format!("sh {}", self.fixture.path("fake-ssh").display());
        let fixed =
            [command, "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), "--object-size=64K", "--json"];
        let mut words: Vec<String> = fixed.map(str::to_owned).to_vec();
        words.extend(self.options.iter().cloned());
        words.extend(more.iter().chain(&operands).map(|&word| word.to_owned()));
        words
    }

    pub(super) fn start(&self, more: &[&str]) -> Child {
        let words = self.words(more);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mut command = self.fixture.haul(&words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Runs the job until it ends, with any exit status.
    pub(super) fn run(&self, more: &[&str]) -> RunResult {
        let words = self.words(more);
        self.fixture.run(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Runs the job until it succeeds. Returns its summary and its standard error.
    #[track_caller]
    pub(super) fn finish(&self, more: &[&str]) -> (Value, String) {
        let ended = self.run(more);
        assert_ended(&ended, 0);
        // An error that occurs while the end of the job is recorded is reported after the summary.
        let mut lines = ended.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let summary = lines.rfind(|line| line["event"] == "summary").unwrap();
        assert_eq!(summary["whole"], true, "{summary}");
        (summary, ended.err)
    }

    /// Starts the job at `rate`. Kills `victim` when `bytes` bytes are at the sink and `then` has
    /// passed. Returns true if the job was still running: on a busy machine it may end before the
    /// check.
    fn cut_off_at(&self, rate: u64, victim: KilledSide, bytes: u64, then: Duration) -> bool {
        let mut child = self.start(&[&format!("--rate={rate}")]);
        let sink = self.sink();
        let is_there = || sink.exists() && bytes_beneath(&sink) >= bytes;
        wait_until("the bytes", || is_there() || child.try_wait().unwrap().is_some());
        std::thread::sleep(then);
        let is_at_work = child.try_wait().unwrap().is_none();
        if is_at_work {
            self.kill(child, victim);
        }
        self.wait_for_remote_exit();
        is_at_work
    }

    /// Kills one side of a job or both, and waits for both sides to exit.
    pub(super) fn kill(&self, mut child: Child, victim: KilledSide) {
        let there = self.fixture.path("there").canonicalize().unwrap();
        let (here, far) = match (self.direction, victim) {
            (_, KilledSide::Both) => (true, true),
            (Direction::Send, KilledSide::Source) | (Direction::Fetch, KilledSide::Sink) => (true, false),
            (Direction::Send, KilledSide::Sink) | (Direction::Fetch, KilledSide::Source) => (false, true),
        };
        if far {
            for pid in remote_processes(&there) {
                // The process may have exited by itself at this moment.
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        if here {
            let _ = kill_process(Pid::from_child(&child), Signal::KILL);
        }
        child.wait().unwrap();
        wait_until("the exit of the remote haul", || remote_processes(&there).is_empty());
    }

    /// Waits until the side that ssh started has exited.
    pub(super) fn wait_for_remote_exit(&self) {
        let there = self.fixture.path("there").canonicalize().unwrap();
        wait_until("the exit of the remote haul", || remote_processes(&there).is_empty());
    }

    /// Returns the job directories of the sink that contain a log.
    pub(super) fn jobs(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.fixture.path("state/haul/jobs")).into_iter().flatten().flatten();
        found.map(|entry| entry.path()).filter(|job| job.join("log").exists()).collect()
    }

    /// Returns true if the sink treats the job as finished. This is the first step of its end: a
    /// kill after this step leaves the directory of a finished job.
    fn is_over(&self) -> bool {
        self.jobs().iter().all(|job| !job.join("begun").exists())
    }

    /// Returns the entry of the job in the output of `haul jobs`, from the record on the side that
    /// started the job.
    #[track_caller]
    fn listed(&self) -> Value {
        let listed = self.fixture.run(&["jobs", "--json"]);
        assert_ended(&listed, 0);
        let jobs = listed.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        // The receiver of a `send` uses the same state directory, and keeps its log there.
        let is_own = |job: &Value| self.direction == Direction::Fetch || !job["kind"].is_null();
        let mut jobs: Vec<Value> = jobs.filter(is_own).collect();
        assert_eq!(jobs.len(), 1, "{}", listed.out);
        jobs.remove(0)
    }

    /// Returns the numbers of bytes that need not travel again: in files with their final names,
    /// and in logged objects of other files.
    pub(super) fn durable(&self) -> (u64, u64) {
        let logged = self.jobs().pop().map_or(0, |home| logged_bytes(&home, &self.sink()));
        (finished_bytes(&self.sink()), logged)
    }

    #[track_caller]
    pub(super) fn assert_whole(&self, what: &str) {
        assert_alike(&self.source(), &self.sink());
        assert_no_strays(&self.fixture.path("there"));
        assert_no_strays(&self.fixture.path(""));
        assert!(self.jobs().is_empty(), "{what}: the job is over, and leaves nothing");
    }

    pub(super) fn total(&self) -> u64 {
        finished_bytes(&self.source())
    }

    /// Asserts that a resumed run took all durable bytes, `finished` and `logged`, from earlier
    /// runs. It may send little in addition to the rest.
    #[track_caller]
    pub(super) fn assert_skipped(&self, summary: &Value, (finished, logged): (u64, u64), what: &str) {
        let spared = summary["bytes_of_earlier_runs"].as_u64().unwrap();
        assert!(
            spared >= finished + logged,
            "of {finished} and {logged} bytes only {spared} were spared: {what}"
        );
        let wire =
            summary["wire"][if self.direction == Direction::Send { "out" } else { "in" }].as_u64().unwrap();
        let most = self.total() - spared + WIRE_BESIDE;
        assert!(wire <= most, "{wire} bytes travelled where {most} would do: {what}");
    }
}

/// Returns the number of bytes in logged objects (64 KiB) of incomplete files beneath `sink`. The
/// job, whose directory is `home`, may be running.
pub(super) fn logged_bytes(home: &Path, sink: &Path) -> u64 {
    let there = files_beneath(sink);
    let unfinished: Vec<Identity> =
        there.iter().filter(|path| is_temporary(path)).filter_map(|path| identity(path)).collect();
    let facts = facts_in(home);
    let of = facts.iter().filter(|(subject, _)| unfinished.contains(&subject.sink));
    let bytes = |size: u64, at: ObjectIndex| (size - at.0 * OBJECT).min(OBJECT);
    of.map(|(subject, objects)| objects.iter().map(|at| bytes(subject.source.size, at)).sum::<u64>()).sum()
}

/// Returns the durable objects in the log of a job.
pub(super) fn facts_in(home: &Path) -> Facts {
    let id = Identity::from_hex(home.file_name().unwrap().to_str().unwrap()).unwrap();
    let files = fs::read_dir(home.join("log")).into_iter().flatten().flatten();
    let files: BTreeMap<String, Vec<u8>> = files
        .filter_map(|entry| Some((entry.file_name().into_string().ok()?, fs::read(entry.path()).ok()?)))
        .collect();
    replay(&Job { id, object: ObjectSize::new(OBJECT).unwrap() }, &files).facts
}

pub(super) fn files_beneath(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            true => found.extend(files_beneath(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

pub(super) fn is_temporary(path: &Path) -> bool {
    path.file_name().unwrap().to_string_lossy().starts_with(".haul-")
}

/// Returns the number of bytes in all files, complete or not. Files may appear and disappear
/// meanwhile.
pub(super) fn bytes_beneath(dir: &Path) -> u64 {
    files_beneath(dir).iter().filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum()
}

/// Returns the number of bytes in files with their final names, without the hard link `again`.
pub(super) fn finished_bytes(dir: &Path) -> u64 {
    let whole = files_beneath(dir).into_iter().filter(|path| !is_temporary(path));
    let whole = whole.filter(|path| path.file_name().unwrap() != "again");
    // A file in transfer may have got another name since.
    whole.filter_map(|path| path.metadata().ok()).map(|found| found.len()).sum()
}

/// Returns the identity that the log stores for a file of the sink.
pub(super) fn identity(path: &Path) -> Option<Identity> {
    identity_on(path, None)
}

/// Does the same as [`identity`] for the device number at the time when the log was written.
pub(super) fn identity_on(path: &Path, device: Option<u64>) -> Option<Identity> {
    let found = stat::stat_at(CWD, path, Follow::No).ok()?;
    let birth = found.btime.unwrap_or_default();
    let parts = [device.unwrap_or(found.dev), found.ino, birth.sec.cast_unsigned(), u64::from(birth.nsec)];
    Some(Identity::of(&parts.map(u64::to_le_bytes).concat()))
}

/// Returns the style, the sync policy and the victim of a point, which differ from point to point.
fn drawn(point: u64) -> ([String; 3], KilledSide) {
    let (style, rest) = (point % STYLES, point / STYLES);
    // A transaction has four files, or one.
    let mechanisms = ["file", if rest < 6 { "transaction" } else { "transaction:1" }, "universal"];
    let encodings = ["char", "int", "enc", "binary", "bit8", "bit64"];
    // With groups of one second, few objects of a job of half a second are logged.
    let sync = ["object", "none", "object", "group"];
    let options = [
        format!("--log-mechanism={}", mechanisms[(style / 6) as usize]),
        format!("--log-encoding={}", encodings[(style % 6) as usize]),
        format!("--sync={}", sync[(rest / 3) as usize]),
    ];
    (options, VICTIMS[(rest % 3) as usize])
}

/// Interrupts a job at a random moment, perhaps twice, and then runs it to its end. Returns true if
/// objects of incomplete files were durable.
fn run_point(direction: Direction, point: u64) -> bool {
    let mut random = Random::from_seed(point ^ if direction == Direction::Send { 0 } else { 1 << 32 });
    let (options, mut victim) = drawn(point);
    let mut scenario = ResumeScenario::new(direction, &options.each_ref().map(String::as_str));
    let what = format!("{direction:?}, point {point}, {victim:?}, {options:?}");
    let mut before = (0, 0);
    for cut in 0..1 + point % 7 / 6 {
        let bytes = random.below(scenario.total() * 19 / 20);
        let then = Duration::from_millis(random.below(10));
        let mut rate = RATE;
        while !scenario.cut_off_at(rate, victim, bytes, then) && cut == 0 && rate > RATE_LEAST {
            rate /= 4;
            scenario = ResumeScenario::new(direction, &options.each_ref().map(String::as_str));
        }
        victim = VICTIMS[random.index(VICTIMS.len())];
        for path in files_beneath(&scenario.sink()).iter().filter(|path| !is_temporary(path)) {
            let name = path.strip_prefix(scenario.sink()).unwrap();
            assert!(
                fs::read(path).unwrap() == fs::read(scenario.source().join(name)).unwrap(),
                "{what}: {name:?} has its name and is not whole"
            );
        }
        for Claim { place, holds } in
            scenario.jobs().iter().flat_map(|home| claims(&scenario, home, identity))
        {
            assert_ne!(holds, Some(false), "{what}: {place}");
        }
        let now = scenario.durable();
        assert!(now.0 >= before.0, "{what}: what was finished stays so");
        before = now;
        // On a busy machine the kill may come too late. An additional run would then start from the
        // beginning, and be interrupted among files that it did not transfer.
        if scenario.is_over() {
            break;
        }
    }
    let is_over = scenario.is_over();
    let (summary, told) = scenario.finish(&[]);
    scenario.assert_whole(&what);
    if !is_over {
        scenario.assert_skipped(&summary, before, &format!("{what}: {told}"));
    }
    before.1 > 0
}

/// Returns the points to run: each style with each victim once, with alternating sync policies. A
/// soak run uses all points.
fn points() -> Vec<u64> {
    if soak_seed().is_some() {
        return (0..POINTS).collect();
    }
    let all = (0..STYLES).flat_map(|style| (0..3).map(move |victim| (style, victim)));
    all.map(|(style, victim)| style + STYLES * ((style + victim) % 4 * 3 + victim)).collect()
}

/// Runs the points of one direction, some concurrently. Panics if few of them had logged objects,
/// because the test would then prove nothing.
fn run_all_points(direction: Direction) {
    let points = points();
    let had_objects: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..AT_ONCE)
            .map(|first| {
                let points = points.iter().skip(first).step_by(AT_ONCE);
                scope.spawn(move || points.filter(|&&point| run_point(direction, point)).count())
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    let all = points.len();
    assert!(had_objects > all / 5, "only {had_objects} of {all} points had logged objects");
}

#[test]
fn a_send_killed_at_any_point_resumes() {
    run_all_points(Direction::Send);
}

#[test]
fn a_fetch_killed_at_any_point_resumes() {
    run_all_points(Direction::Fetch);
}

#[test]
fn a_transfer_is_listed_and_resumed_by_its_id() {
    for (direction, kind) in [(Direction::Send, "send"), (Direction::Fetch, "fetch")] {
        let scenario = cut_in_the_middle(direction, &[]);
        let stopped = scenario.listed();
        assert_eq!((&stopped["kind"], &stopped["status"]), (&kind.into(), &"stopped".into()), "{stopped}");
        let resumed = scenario.fixture.run(&["jobs", "resume", stopped["id"].as_str().unwrap()]);
        assert_ended(&resumed, 0);
        let summary: Value = serde_json::from_str(resumed.out.lines().last().unwrap()).unwrap();
        assert!(summary["bytes_of_earlier_runs"].as_u64() > Some(0), "{summary}");
        let finished = scenario.listed();
        assert_eq!((&finished["status"], &finished["runs"]), (&"finished".into(), &2.into()), "{finished}");
        assert!(finished["bytes_done"].as_u64() >= Some(scenario.total()), "{finished}");
        scenario.assert_whole(kind);
    }
}

/// Earlier versions counted the bytes of a file when all of it had arrived. A fetch of a large file
/// therefore stayed at zero until its end.
#[test]
fn an_interrupted_fetch_records_its_progress() {
    let interrupt = |_: &ResumeScenario, mut child: Child| {
        kill_process(Pid::from_child(&child), Signal::INT).unwrap();
        child.wait().unwrap();
    };
    let has_objects = |scenario: &ResumeScenario| scenario.durable().1 > 0;
    let (scenario, ()) = ended_when((Direction::Fetch, &[]), |_| (), has_objects, interrupt);
    let (_, logged) = scenario.durable();
    // A small file counts when it has its final name. The last ones may have got their names after
    // the last count.
    let large =
        ["a", "m/b", "z"].map(|name| fs::metadata(scenario.sink().join(name)).map_or(0, |found| found.len()));
    let there = large.iter().sum::<u64>() + logged;
    let done = scenario.listed()["bytes_done"].as_u64().unwrap();
    assert!(logged > 0 && done >= there, "{done} where {there} are there");
    assert!(done < scenario.total(), "{done}");
}

#[test]
fn verify_resume_selects_the_comparison_of_partial_files() {
    for how in ["none", "sample", "all"] {
        let scenario = cut_in_the_middle(Direction::Send, &[]);
        let (finished, logged) = scenario.durable();
        let (summary, _) = scenario.finish(&[&format!("--verify-resume={how}")]);
        scenario.assert_whole(how);
        assert!(summary["bytes_of_earlier_runs"].as_u64() >= Some(finished + logged), "{how}: {summary}");
    }
}

#[test]
fn a_changed_source_file_is_sent_from_the_beginning() {
    let scenario = cut_in_the_middle(Direction::Send, &[]);
    for name in ["a", "m/b", "z"] {
        let path = scenario.source().join(name);
        let bytes: Vec<u8> = fs::read(&path).unwrap().iter().map(|byte| byte ^ 7).collect();
        fs::write(path, bytes).unwrap();
    }
    scenario.finish(&["--verify-resume=none"]);
    scenario.assert_whole("changed");
}

#[test]
fn partial_files_of_removed_source_files_are_deleted() {
    let scenario = cut_in_the_middle(Direction::Send, &[]);
    for name in ["a", "again", "m/b", "z"] {
        fs::remove_file(scenario.source().join(name)).unwrap();
    }
    for path in files_beneath(&scenario.sink()) {
        let name = path.strip_prefix(scenario.sink()).unwrap().to_owned();
        if !is_temporary(&path) && !scenario.source().join(name).exists() {
            fs::remove_file(path).unwrap();
        }
    }
    scenario.finish(&[]);
    scenario.assert_whole("gone");
}

/// In earlier versions a symbolic link had a temporary name that no later run knew, and remained
/// indefinitely.
#[test]
fn temporary_names_of_links_are_deleted_by_a_rerun() {
    if !met_or_skip(&[Need::Program("strace")]) {
        return;
    }
    let fixture = Fixture::new();
    fs::create_dir(fixture.path("there/data")).unwrap();
    std::os::unix::fs::symlink("nowhere", fixture.path("there/data/link")).unwrap();
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let haul = env!("CARGO_BIN_EXE_haul");
    let words = ["fetch", "-e", &ssh, "--remote-haul", haul, "localhost:data", "in"];
    // Of the two sides, only the sink renames files.
    let mut command = Command::new(haul);
    command.args(words).current_dir(fixture.path("")).env("XDG_STATE_HOME", fixture.path("state"));
    let (effect, log) = ("error=EIO:signal=SIGKILL", fixture.path("trace"));
    let places = [fixture.path("in"), fixture.path("in/data")];
    let mut command = traced::injected_at(&command, &places, "renameat,renameat2", effect, &log);
    let killed = command.stdin(Stdio::null()).output().unwrap();
    assert!(!killed.status.success(), "{killed:?}");
    assert!(files_beneath(&fixture.path("in")).iter().any(|path| is_temporary(path)), "{killed:?}");
    let there = fixture.path("there").canonicalize().unwrap();
    wait_until("the exit of the remote haul", || remote_processes(&there).is_empty());
    assert_ended(&fixture.run(&words), 0);
    assert_no_strays(&fixture.path("in"));
    assert_eq!(fs::read_link(fixture.path("in/data/link")).unwrap(), Path::new("nowhere"));
}

/// Regression test: a failed sync of the file system reports the lost writes of all files once. The
/// files of later groups, which it may have been about, were then synced by another such call.
#[test]
fn no_sync_of_the_file_system_follows_a_failed_one() {
    if !met_or_skip(&[traced::NEED]) {
        return;
    }
    let fixture = Fixture::new();
    for number in 0..400 {
        let dir = fixture.path(&format!("there/data/{}", number % 20));
        fs::create_dir_all(&dir).unwrap();
        fs::write(dir.join(number.to_string()), [7; 5000]).unwrap();
    }
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    let haul = env!("CARGO_BIN_EXE_haul");
    let mut command = Command::new(haul);
    command.args(["fetch", "--verify=reread", "-e", &ssh, "--remote-haul", haul, "localhost:data", "in"]);
    command.current_dir(fixture.path("")).env("XDG_STATE_HOME", fixture.path("state"));
    let log = fixture.path("trace");
    let mut command = traced::injected(&command, "syncfs", "error=EIO", &log);
    let ended = command.stdin(Stdio::null()).output().unwrap();
    // Each file and each directory is synced instead.
    assert!(ended.status.success(), "{ended:?}");
    let calls = fs::read_to_string(&log).unwrap();
    let is_whole = FileSystem::of(fs::File::open(fixture.path("")).unwrap()).syncs_as_a_whole();
    assert_eq!(calls.matches("syncfs(").count(), usize::from(is_whole), "{calls}");
    assert_alike(&fixture.path("there/data"), &fixture.path("in/data"));
}

#[test]
fn a_job_without_a_state_directory_completes() {
    for direction in [Direction::Send, Direction::Fetch] {
        let scenario = ResumeScenario::new(direction, &[]);
        fs::write(scenario.fixture.path("state"), "a file").unwrap();
        let (_, told) = scenario.finish(&[]);
        assert!(told.contains("cannot be resumed if it is interrupted"), "{told}");
        assert_alike(&scenario.source(), &scenario.sink());
    }
}

#[test]
fn a_second_process_waits_for_the_lock_or_names_the_holder() {
    let scenario = ResumeScenario::new(Direction::Send, &[]);
    let mut first = scenario.start(&["--rate=50K"]);
    let sink = scenario.sink();
    wait_until("the job", || sink.exists());
    let second = scenario.run(&[]);
    assert_ended(&second, 2);
    assert!(second.err.contains("the job is held by") && second.err.contains("process "), "{second:#?}");
    let third = scenario.start(&[]);
    std::thread::sleep(Duration::from_millis(300));
    first.kill().unwrap();
    first.wait().unwrap();
    let ended = third.wait_with_output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    scenario.assert_whole("the third");
}

/// Earlier versions let a process with another state directory run the job. Each process then gave
/// final names to files that the other one was writing.
#[test]
fn a_second_process_with_another_state_directory_waits() {
    let scenario = ResumeScenario::new(Direction::Fetch, &[]);
    let mut first = scenario.start(&["--rate=50K"]);
    let sink = scenario.sink();
    wait_until("the job", || sink.exists());
    let second = scenario.run(&["--state-dir=elsewhere"]);
    assert_ended(&second, 2);
    assert!(second.err.contains("held by another process"), "{second:#?}");
    first.kill().unwrap();
    first.wait().unwrap();
    let (_, told) = scenario.finish(&["--state-dir=elsewhere"]);
    assert_alike(&scenario.source(), &sink);
    assert_no_strays(&scenario.fixture.path("in"));
    assert!(!told.contains("held by"), "{told}");
}

/// A finished job is not resumed: a rerun follows its options and sends everything.
#[test]
fn a_finished_job_is_not_resumed() {
    let scenario = ResumeScenario::new(Direction::Send, &[]);
    let (first, _) = scenario.finish(&[]);
    let (second, _) = scenario.finish(&[]);
    for summary in [&first, &second] {
        assert_eq!(summary["bytes_of_earlier_runs"], 0, "{summary}");
    }
    assert_eq!(first["sent"], second["sent"]);
}

/// A file from before the job has the size and time of the source by coincidence. The job did not
/// create it.
#[test]
fn a_file_older_than_the_job_is_sent_whatever_its_times() {
    let scenario = ResumeScenario::new(Direction::Send, &["--sync=object"]);
    let old = scenario.sink().join("z");
    fs::create_dir_all(scenario.sink()).unwrap();
    fs::write(&old, vec![b'x'; 1_800_000]).unwrap();
    let times = fs::metadata(scenario.source().join("z")).unwrap().modified().unwrap();
    fs::File::options().write(true).open(&old).unwrap().set_modified(times).unwrap();
    let before = fs::read(&old).unwrap();
    // The last file is complete after ten seconds.
    let mut child = scenario.start(&["--rate=500K"]);
    wait_until("a file of the job", || {
        scenario.sink().join("many/3").exists() || scenario.sink().join("a").exists()
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let there = scenario.fixture.path("there").canonicalize().unwrap();
    wait_until("the exit of the remote haul", || remote_processes(&there).is_empty());
    assert!(fs::read(&old).unwrap() == before, "the file that comes last was not reached");
    scenario.finish(&[]);
    scenario.assert_whole("old files");
}
