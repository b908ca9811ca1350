//! Slow components: the summary names the bottleneck, whichever side started the job, and a slow
//! sink does not fill the memory.

use super::ends::{DIRECTIONS, Direction, transfer};
use super::{Fixture, RunResult, assert_alike, assert_ended, assert_no_strays, inside};
use haul_lab::attempt::{Inconclusive, attempt};
use haul_lab::emulated_link::{self, EmulatedLink, End};
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip, shown_or_skip};
use haul_sys::process::Thread;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde_json::Value;
use std::fs;
use std::hint::spin_loop;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// A job with one slow component. It has few steps that take long, so that the CPU wait time of its
/// threads is short in comparison.
struct SlowJob {
    /// Fault rules of the file systems at the source and at the sink.
    rules: [&'static str; 2],
    options: &'static [&'static str],
    /// Number of files, and their approximate size in bytes.
    files: (usize, usize),
    /// Possible bottlenecks: the summary must name one of them.
    culprits: &'static [&'static str],
}

/// Reason that makes an attempt inconclusive.
const CROWDED: &str = "other processes kept the processors busy";

const PROCESSORS: [&str; 2] = ["the processors of the source", "the processors of the sink"];

const JOBS: [SlowJob; 8] = [
    SlowJob {
        rules: ["* read .. delay 250", ""],
        options: &[],
        files: (1, 1 << 20),
        culprits: &["the storage of the source"],
    },
    SlowJob {
        rules: ["* open .. delay 150", ""],
        options: &[],
        files: (12, 100),
        culprits: &["the storage of the source"],
    },
    SlowJob {
        rules: ["* list .. delay 2000", ""],
        options: &[],
        files: (1, 100),
        culprits: &["the storage of the source"],
    },
    SlowJob {
        rules: ["", "* write .. delay 250"],
        options: &[],
        files: (1, 1 << 20),
        culprits: &["the storage of the sink"],
    },
    SlowJob {
        rules: ["", "* fsync .. delay 1000"],
        options: &["--verify=reread"],
        files: (2, 1 << 20),
        culprits: &["the storage of the sink"],
    },
    SlowJob {
        rules: ["", "* rename .. delay 150"],
        options: &[],
        files: (12, 100),
        culprits: &["the storage of the sink"],
    },
    SlowJob { rules: ["", ""], options: &["--rate=4M"], files: (2, 2 << 20), culprits: &["the network"] },
    SlowJob {
        rules: ["", ""],
        // The slowest digest, computed after all bytes were sent: neither side then waits for the
        // other while it holds data.
        //
        // Both sides compute it, each in the same time. With other load it may wait for a CPU for
        // longer than it computes.
        options: &["-a", "sm3", "--plain", "--verify=sequential"],
        files: (1, 48 << 20),
        culprits: &["hashing at the source", "hashing at the sink", PROCESSORS[0], PROCESSORS[1]],
    },
];

impl SlowJob {
    /// Transfers the files. Retries if other processes kept the processors busy and
    /// `names_processors` returns true. A job that computes may lack processors by itself, and is
    /// not retried.
    fn transfer(
        &self,
        way: Direction,
        more: &[&str],
        names_processors: impl Fn(&RunResult) -> bool,
    ) -> RunResult {
        let computes = self.culprits.contains(&PROCESSORS[0]);
        attempt(|| match self.transfer_once(way, more) {
            (ended, true) if !computes && names_processors(&ended) => Err(Inconclusive::new(CROWDED)),
            (ended, _) => Ok(ended),
        })
    }

    /// Transfers the files once. Returns the result, and true if other processes kept the
    /// processors busy.
    fn transfer_once(&self, way: Direction, more: &[&str]) -> (RunResult, bool) {
        let fixture = Fixture::new();
        let (count, size) = self.files;
        (0..count).for_each(|number| fixture.file(&format!("data/f{number}"), size + number));
        for name in ["store", "source", "sink"] {
            fs::create_dir(fixture.path(name)).unwrap();
        }
        let views = [("data", "source"), ("store", "sink")]
            .map(|(below, view)| (fixture.path(below), fixture.path(view)));
        let mut mounted = Vec::new();
        let [source, sink] = [0, 1].map(|end| {
            let (below, view) = &views[end];
            let rules = self.rules[end];
            if rules.is_empty() {
                return below.clone();
            }
            mounted.push(FaultFs::mount(below, view, rules.parse().unwrap()).unwrap());
            view.clone()
        });
        let options = [&["--object-size=256K"], self.options, more].concat();
        let (ended, is_crowded) = watched(|| transfer(&fixture, way, &options, &source, &sink));
        mounted.into_iter().for_each(FaultFs::close);
        let arrived = fixture.path("store").join(source.file_name().unwrap());
        assert_ended(&ended, 0);
        assert_alike(&fixture.path("data"), &arrived);
        (ended, is_crowded)
    }
}

/// Checks all jobs. All jobs except the last sleep most of the time and run concurrently, because
/// together they need no more processors than there are.
fn each_job(check: impl Fn(&SlowJob) + Sync) {
    let test = thread::current().name().unwrap_or_default().to_owned();
    let Some((computing, sleeping)) = JOBS.split_last() else { unreachable!("there are jobs") };
    thread::scope(|scope| {
        for job in sleeping {
            let check = &check;
            thread::Builder::new().name(test.clone()).spawn_scoped(scope, move || check(job)).unwrap();
        }
    });
    check(computing);
}

/// Returns the words of the summary for a culprit, which JSON names by its key.
fn in_words(culprit: &str) -> &str {
    match culprit {
        "the storage of the source" => "the sender's storage",
        "the processors of the source" => "the sender's CPU",
        "the processors of the sink" => "the receiver's CPU",
        "the storage of the sink" => "the receiver's storage",
        "hashing at the source" => "hashing at the sender",
        "hashing at the sink" => "hashing at the receiver",
        other => other,
    }
}

/// Returns true if a summary names a culprit.
fn is_named(summary: &str, culprit: &str) -> bool {
    summary.contains(&format!("; limited by {} (", in_words(culprit)))
}

/// Returns true if a summary names the processors of either side.
fn names_processors(summary: &str) -> bool {
    PROCESSORS.iter().any(|culprit| is_named(summary, culprit))
}

/// Runs `work`. The second value is true if the machine is so busy that a sleeping thread waits for
/// a processor each time it wakes.
fn watched<T>(work: impl FnOnce() -> T) -> (T, bool) {
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut slept = 0;
            while !is_over.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
                slept += 1;
            }
            let times = Thread::current().sched_times();
            times.is_some_and(|times| times.run_delay > Duration::from_micros(200) * slept)
        });
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        (done, watching.join().unwrap())
    })
}

#[test]
fn the_summary_names_the_bottleneck() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    each_job(|job| {
        // With one lane no more threads are runnable than there are processors.
        let ended = job.transfer(Direction::Send, &["--streams=1"], |ended| names_processors(&ended.err));
        let is_right = job.culprits.iter().any(|culprit| is_named(&ended.err, culprit));
        assert!(is_right, "{:?} {:?}: {ended:#?}", job.rules, job.options);
    });
}

#[test]
fn json_reports_the_time_breakdown_with_all_parts() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    each_job(|job| {
        let summary =
            |ended: &RunResult| -> Value { serde_json::from_str(ended.out.lines().last().unwrap()).unwrap() };
        let ended = job.transfer(Direction::Fetch, &["--json", "--streams=1"], |ended| {
            PROCESSORS.iter().any(|culprit| summary(ended)["held_back"]["by"] == *culprit)
        });
        let summary = summary(&ended);
        let reported = format!("{:?} {:?}: {summary:#}", job.rules, job.options);
        let by = summary["held_back"]["by"].as_str().unwrap();
        assert!(job.culprits.contains(&by), "{reported}");
        let percent = summary["held_back"]["percent"].as_u64().unwrap();
        assert!((1..=100).contains(&percent), "{reported}");
        let took = summary["seconds"].as_f64().unwrap();
        let split = &summary["split"];
        let mut explained = 0.0;
        for side in ["source", "sink"] {
            let parts = split[side].as_object().unwrap();
            assert_eq!(parts.len(), 7, "{reported}");
            let of = |part: &str| parts[part].as_f64().unwrap();
            assert!(parts.values().all(|part| part.as_f64().unwrap() >= 0.0), "{reported}");
            let work = of("storage") + of("hashing") + of("compression") + of("crypto") + of("processor");
            // The lane has two workers. The walk, background tasks and second reads add threads. No
            // part takes more time than its threads have.
            assert!(work + of("sending") + of("receiving") <= 8.0 * took, "{reported}");
            explained += work;
        }
        let network = split["network"].as_f64().unwrap();
        let [sending, receiving] = [&split["source"]["sending"], &split["sink"]["receiving"]];
        assert!(network <= sending.as_f64().unwrap().min(receiving.as_f64().unwrap()), "{reported}");
        assert_eq!(summary["spent"], split["sink"], "who fetches is the sink: {reported}");
        // The slow component takes most of the time of the job, including start and end.
        assert!(explained + network >= 0.5 * took, "{reported}");
    });
}

#[test]
fn a_slow_link_is_named_as_the_bottleneck() {
    const PORT: u16 = 7433;
    if !met_or_skip(&[Need::Links]) {
        return;
    }
    let way = emulated_link::LinkProfile { delay: Duration::ZERO, rate: Some(16_000_000), queue: 256 << 10 };
    let link = EmulatedLink::make(&format!("haul-thin-{}", std::process::id()), way).unwrap();
    let listen = format!("{}:{PORT}", End::Far.address());
    attempt(|| {
        let fixture = Fixture::new();
        fixture.file("data/f", 3 << 20);
        let serve = fixture.haul(&["serve", "--root", "there", "--listen", &listen]);
        let server = fixture.serve_by(inside(&link.namespace(End::Far), &serve));
        let send = fixture.haul(&["send", "--ticket-file=ticket", "data", ":"]);
        let (ended, is_crowded) = watched(|| inside(&link.namespace(End::Near), &send).output().unwrap());
        let summary = String::from_utf8(ended.stderr).unwrap();
        if is_crowded && names_processors(&summary) {
            return Err(Inconclusive::new(CROWDED));
        }
        assert!(ended.status.success() && is_named(&summary, "the network"), "{summary}");
        assert!(is_named(&server.wait_for_log("transferred"), "the network"), "both sides say the same");
        assert_alike(&fixture.path("data"), &fixture.path("there/data"));
        Ok(())
    });
    link.close().unwrap();
}

/// Both sides and four threads that only spin share one processor. Earlier versions attributed the
/// CPU wait time of the two sides to the network.
#[test]
fn busy_processors_are_named_as_the_bottleneck() {
    if !shown_or_skip(Thread::current().sched_times().is_some(), "run delays") {
        return;
    }
    let fixture = Fixture::new();
    fixture.file("data/f", 16 << 20);
    let is_over = AtomicBool::new(false);
    let (here, is_enough) = (&fixture, &is_over);
    let ended = thread::scope(|scope| {
        // The job has a thread of its own, because the processes that it starts inherit the CPU
        // affinity.
        let crowded = scope.spawn(move || {
            let all = sched_getaffinity(None).unwrap();
            let mut one = CpuSet::new();
            one.set((0..CpuSet::MAX_CPU).find(|cpu| all.is_set(*cpu)).unwrap());
            sched_setaffinity(None, &one).unwrap();
            for _ in 0..4 {
                scope.spawn(move || {
                    while !is_enough.load(Ordering::Relaxed) {
                        spin_loop();
                    }
                });
            }
            let ended = here.over_ssh("send", &["--object-size=256K", "data", "localhost:"]);
            is_enough.store(true, Ordering::Relaxed);
            ended
        });
        crowded.join().unwrap()
    });
    assert_ended(&ended, 0);
    assert!(names_processors(&ended.err), "{ended:#?}");
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
}

/// The side that started the job displays the bytes that are settled at the sink, whichever side is
/// the sink.
#[test]
fn a_transfer_shows_a_progress_bar_on_a_terminal() {
    if !met_or_skip(&[Need::Program("script")]) {
        return;
    }
    // The sink does not know when the walk of the source has ended.
    for (command, operands, total) in
        [("send", "data localhost:in", "/3.0 MiB"), ("fetch", "localhost:data in", "/at least 3.0 MiB")]
    {
        let fixture = Fixture::new();
        fixture.file("data/f", 3 << 20);
        fixture.file("there/data/f", 3 << 20);
        let (haul, ssh) = (env!("CARGO_BIN_EXE_haul"), fixture.path("fake-ssh"));
        let line = format!(
            "stty cols 120; exec '{haul}' {command} -e 'sh {}' --remote-haul '{haul}' --object-size=64K --rate=1M {operands}",
            ssh.display()
        );
        let mut script = Command::new("script");
        script.args(["-qec", &line, "/dev/null"]).current_dir(fixture.path(""));
        script.env("TERM", "xterm").env("COLUMNS", "120").env("XDG_STATE_HOME", fixture.path("state"));
        let ended = script.env_remove("SSH_CONNECTION").stdin(Stdio::null()).output().unwrap();
        let drawn = String::from_utf8_lossy(&ended.stdout);
        assert!(ended.status.success(), "{command}: {drawn:?}");
        for part in [" files", total, "/s"] {
            assert!(drawn.contains(part), "{command}: no {part:?} in {drawn:?}");
        }
    }
}

/// Returns the anonymous memory of a process in KiB, or 0 if the process has exited.
fn memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

#[test]
fn a_slow_sink_does_not_grow_memory_on_either_side() {
    const SIZE: usize = 96 << 20;
    const MOST_KIB: u64 = 40 << 10;
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for way in DIRECTIONS {
        let fixture = Fixture::new();
        let [source, sink] = match way {
            Direction::Send => ["data", "view"],
            Direction::Fetch => ["there/data", "view/data"],
        };
        fixture.file(&format!("{source}/f"), SIZE);
        for name in ["store", "view"] {
            fs::create_dir(fixture.path(name)).unwrap();
        }
        let rules = "* write .. delay 3\n* fsync .. delay 50".parse().unwrap();
        let view = FaultFs::mount(&fixture.path("store"), &fixture.path("view"), rules).unwrap();
        let root = if way == Direction::Send { "view" } else { "there" };
        let server = fixture.serve(&["--root", root, "--buffers=8M"]);
        let common = ["--ticket-file=ticket", "--buffers=8M", "--object-size=1M"];
        let job = match way {
            Direction::Send => [&["send"][..], &common, &["data", ":"]].concat(),
            Direction::Fetch => [&["fetch"][..], &common, &[":data/", sink]].concat(),
        };
        let mut client = fixture.haul(&job).stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut peaks = [0, 0];
        while client.try_wait().unwrap().is_none() {
            for (peak, pid) in peaks.iter_mut().zip([server.child.id(), client.id()]) {
                *peak = memory(pid).max(*peak);
            }
            thread::sleep(Duration::from_millis(5));
        }
        let ended = client.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert!(peaks.iter().all(|peak| (1..MOST_KIB).contains(peak)), "{way:?}: {peaks:?} KiB");
        // The server has the file system open.
        drop(server);
        view.close();
        assert_alike(&fixture.path(source), &fixture.path("store/data"));
        assert_no_strays(&fixture.path("store"));
    }
}
