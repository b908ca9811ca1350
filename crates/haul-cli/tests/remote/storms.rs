//! Faulty connections: cut, reset, stalled and corrupted during a job. A file with its final name
//! is always correct, and the exit status shows if files are missing.

use super::ends::{self, WAYS};
use super::resumed::{OBJECT, finished_bytes, logged_bytes};
use super::stopped::wait_until;
use super::ticketed::is_let_go;
use super::{Bed, Ended, Server, assert_alike, assert_ended, assert_no_strays, own_port};
use haul_lab::line::{Fate, Ill, Line, Over, Way};
use haul_lab::random::Random;
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

/// Number of lanes of each job.
const LANES: usize = 4;

/// Minimum number of bytes that a lane carries, whatever the other lanes do. Faults are injected
/// before that.
const LANE_BYTES: u64 = 600_000;

/// Rate limit of the sending side.
const RATE: &str = "--rate=16M";

struct Storm {
    bed: Bed,
    server: Server,
    line: Line,
    job: ends::Way,
    is_plain: bool,
}

/// Returns the direction of the file data in such a job.
fn downstream(job: ends::Way) -> Way {
    match job {
        ends::Way::Send => Way::ToServer,
        ends::Way::Fetch => Way::ToClient,
    }
}

impl Storm {
    /// Starts a server behind a fault proxy, with 8 MiB to send to the server or to fetch from it.
    fn new(job: ends::Way, fates: Vec<Fate>, is_plain: bool) -> Storm {
        let bed = Bed::new();
        let source = if job == ends::Way::Send { "data" } else { "there/data" };
        for at in 0..8 {
            bed.file(&format!("{source}/{at}"), (1 << 20) + at);
        }
        let line = TcpListener::bind("127.0.0.1:0").unwrap();
        let told = format!("--address={}", line.local_addr().unwrap());
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, own_port()));
        let mut args = vec!["--root", "there", RATE, &told];
        args.extend(is_plain.then_some("--plain"));
        let server = bed.serve_at(&at.to_string(), &args);
        let line = Line::between(line, at, fates).unwrap();
        Storm { bed, server, line, job, is_plain }
    }

    /// Transfers all files, at a rate limit at which the job uses every lane.
    fn bring(&self) -> Ended {
        self.bring_by("blake3")
    }

    /// Does the same with another digest.
    fn bring_by(&self, algorithm: &str) -> Ended {
        let mut args = vec!["--json", "--ticket-file=ticket", "--object-size=64K", "-a", algorithm];
        args.extend(self.is_plain.then_some("--plain"));
        // Only the sending side enforces the rate.
        self.bed.run(&match self.job {
            ends::Way::Send => [&["send", RATE][..], &args, &["data", ":"]].concat(),
            ends::Way::Fetch => [&["fetch"][..], &args, &[":data", "back"]].concat(),
        })
    }

    /// Returns the directories of the server's unfinished jobs.
    fn jobs(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.bed.path("state/haul/serve/jobs")).into_iter().flatten().flatten();
        found.map(|job| job.path()).collect()
    }

    fn assert_all_there(&self) {
        let [source, sink] = match self.job {
            ends::Way::Send => ["data", "there"],
            ends::Way::Fetch => ["there/data", "back"],
        };
        assert_alike(&self.bed.path(source), &self.bed.path(sink).join("data"));
        assert_no_strays(&self.bed.path(sink));
    }
}

fn summary(ended: &Ended) -> Value {
    serde_json::from_str(ended.out.lines().last().unwrap()).unwrap()
}

#[test]
fn connections_that_are_cut_reset_stalled_or_bent_cost_no_file() {
    let mut befallen = [0, 0];
    for seed in 0..12 {
        let job = WAYS[seed as usize % 2];
        let mut random = Random::from_seed(seed);
        let ills = [Ill::Cut, Ill::Reset, Ill::Stall(Duration::from_millis(700)), Ill::Flip];
        // Each fault occurs in both directions, together with a randomly drawn one.
        let (ill, drawn) = (ills[seed as usize / 2 % ills.len()], ills[random.index(ills.len())]);
        let mut fate = |connection, ill| Fate {
            over: Over::Connection(connection),
            way: downstream(job),
            at: 2000 + random.below(LANE_BYTES),
            ill,
        };
        // The first connection carries the job; one of the others stays intact.
        let [one, other] = [0, 1].map(|further| 1 + (seed as usize + further) % (LANES - 1));
        let fates = vec![fate(one, ill), fate(other, drawn)];
        let told = format!("{fates:?}");
        let storm = Storm::new(job, fates, false);
        let ended = storm.bring();
        assert_eq!(ended.status, Some(0), "seed {seed}, {job:?}, {told}: {ended:#?}");
        storm.assert_all_there();
        befallen[seed as usize % 2] += storm.line.befallen();
    }
    // Every connection reaches the offset of its fault, for any seed. The last moments of the job
    // decide how many connections are reported as lost.
    assert!(befallen.iter().all(|count| *count > 0), "no ill was ever done: nothing was tried: {befallen:?}");
}

#[test]
fn a_job_whose_first_connection_is_lost_says_so_and_is_finished_by_another() {
    for (seed, ill) in [Ill::Cut, Ill::Reset, Ill::Flip].into_iter().enumerate() {
        for job in WAYS {
            let at = 2000 + Random::from_seed(seed as u64).below(LANE_BYTES);
            let fate = Fate { over: Over::Connection(0), way: downstream(job), at, ill };
            let storm = Storm::new(job, vec![fate], false);
            let ended = storm.bring();
            assert_ended(&ended, 1);
            assert_eq!(summary(&ended)["whole"], Value::Bool(false), "{job:?}, {ill:?}: {ended:#?}");
            assert_ended(&storm.bring(), 0);
            storm.assert_all_there();
        }
    }
}

/// When the session has ended, the state of the sink shows which data arrived.
#[test]
fn what_came_before_the_network_was_lost_is_not_sent_again() {
    let mut durable = 0;
    for (seed, ill) in (10..).zip([Ill::Cut, Ill::Reset, Ill::Cut, Ill::Reset]) {
        let at = 5 * OBJECT + Random::from_seed(seed).below(LANE_BYTES - 5 * OBJECT);
        let fate = Fate { over: Over::Connection(0), way: Way::ToServer, at, ill };
        let storm = Storm::new(ends::Way::Send, vec![fate], false);
        let ended = storm.bring();
        assert_ended(&ended, 1);
        storm.server.says("incomplete");
        wait_until("the end of the session", || storm.jobs().iter().all(|job| is_let_go(job)));
        let sink = storm.bed.path("there/data");
        let came =
            finished_bytes(&sink) + storm.jobs().iter().map(|job| logged_bytes(job, &sink)).sum::<u64>();
        let again = storm.bring();
        assert_ended(&again, 0);
        storm.assert_all_there();
        let told = summary(&again);
        let spared = told["bytes_of_earlier_runs"].as_u64().unwrap();
        assert!(spared >= came, "{ill:?} at {at}: of {came} bytes only {spared} were spared: {told}");
        let wire = told["wire"]["out"].as_u64().unwrap();
        let most = finished_bytes(&storm.bed.path("data")) - spared + (300 << 10);
        assert!(wire <= most, "{ill:?} at {at}: {wire} bytes travelled where {most} would do: {told}");
        durable += came;
    }
    assert!(durable > 0, "nothing had come before any loss");
}

#[test]
fn bits_flipped_on_a_plain_connection_reach_no_file() {
    let (mut sent_again, mut befallen) = ([0, 0], [0, 0]);
    for seed in 0..16 {
        let job = WAYS[seed as usize / 2 % 2];
        let mut random = Random::from_seed(100 + seed);
        let mut fate = |connection| {
            let (over, at) = (Over::Connection(connection), 2000 + random.below(LANE_BYTES));
            Fate { over, way: downstream(job), at, ill: Ill::Flip }
        };
        let storm = Storm::new(job, (0..LANES).map(&mut fate).collect(), true);
        // With BLAKE3 a lane hashes objects one by one; with MD5 it hashes several in parallel
        // before it sends them.
        let ended = storm.bring_by(["blake3", "md5"][seed as usize % 2]);
        match ended.status {
            Some(0) => storm.assert_all_there(),
            // A corrupted frame header ends its connection. On the first connection this also ends
            // the job.
            Some(1) => {
                assert_ended(&storm.bring(), 0);
                storm.assert_all_there();
            }
            _ => panic!("seed {seed}, {job:?}: {ended:#?}"),
        }
        let (again, flips) = (summary(&ended)["objects_sent_again"].as_u64().unwrap(), storm.line.befallen());
        assert!(again <= flips, "seed {seed}, {job:?}: {again} objects were sent again for {flips} flips");
        sent_again[seed as usize / 2 % 2] += again;
        befallen[seed as usize / 2 % 2] += flips;
    }
    // A flip that damages no object corrupts a frame header. Headers are less than one byte in a
    // hundred of the transferred data: with no seed half of all flips hit a header.
    let found = sent_again.iter().zip(&befallen).all(|(again, flips)| *again > 0 && 2 * again >= *flips);
    assert!(found, "{sent_again:?} damaged objects were found of {befallen:?} flips");
}
