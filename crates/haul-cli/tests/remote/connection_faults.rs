//! Faulty connections: cut, reset, stalled and corrupted during a job. A file with its final name
//! is always correct, and the exit status shows if files are missing.

use super::ends::{self, DIRECTIONS};
use super::resumed::{OBJECT, finished_bytes, logged_bytes};
use super::stopped::wait_until;
use super::ticketed::is_unlocked;
use super::{Fixture, RunResult, Server, assert_alike, assert_ended, assert_no_strays, own_port};
use haul_lab::fault_proxy::{Direction, FaultKind, FaultProxy, InjectedFault, Scope};
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

struct FaultScenario {
    fixture: Fixture,
    server: Server,
    line: FaultProxy,
    job: ends::Direction,
    is_plain: bool,
}

/// Returns the direction of the file data in such a job.
fn downstream(job: ends::Direction) -> Direction {
    match job {
        ends::Direction::Send => Direction::ToServer,
        ends::Direction::Fetch => Direction::ToClient,
    }
}

impl FaultScenario {
    /// Starts a server behind a fault proxy, with 8 MiB to send to the server or to fetch from it.
    fn new(job: ends::Direction, faults: Vec<InjectedFault>, is_plain: bool) -> FaultScenario {
        let fixture = Fixture::new();
        let source = if job == ends::Direction::Send { "data" } else { "there/data" };
        for at in 0..8 {
            fixture.file(&format!("{source}/{at}"), (1 << 20) + at);
        }
        let line = TcpListener::bind("127.0.0.1:0").unwrap();
        let told = format!("--address={}", line.local_addr().unwrap());
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, own_port()));
        let mut args = vec!["--root", "there", RATE, &told];
        args.extend(is_plain.then_some("--plain"));
        let server = fixture.serve_at(&at.to_string(), &args);
        let line = FaultProxy::between(line, at, faults).unwrap();
        FaultScenario { fixture, server, line, job, is_plain }
    }

    /// Transfers all files, at a rate limit at which the job uses every lane.
    fn transfer(&self) -> RunResult {
        self.transfer_with("blake3")
    }

    /// Does the same with another digest.
    fn transfer_with(&self, algorithm: &str) -> RunResult {
        let mut args = vec!["--json", "--ticket-file=ticket", "--object-size=64K", "-a", algorithm];
        args.extend(self.is_plain.then_some("--plain"));
        // Only the sending side enforces the rate.
        self.fixture.run(&match self.job {
            ends::Direction::Send => [&["send", RATE][..], &args, &["data", ":"]].concat(),
            ends::Direction::Fetch => [&["fetch"][..], &args, &[":data", "back"]].concat(),
        })
    }

    /// Returns the directories of the server's unfinished jobs.
    fn jobs(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.fixture.path("state/haul/serve/jobs")).into_iter().flatten().flatten();
        found.map(|job| job.path()).collect()
    }

    fn assert_all_there(&self) {
        let [source, sink] = match self.job {
            ends::Direction::Send => ["data", "there"],
            ends::Direction::Fetch => ["there/data", "back"],
        };
        assert_alike(&self.fixture.path(source), &self.fixture.path(sink).join("data"));
        assert_no_strays(&self.fixture.path(sink));
    }
}

fn summary(ended: &RunResult) -> Value {
    serde_json::from_str(ended.out.lines().last().unwrap()).unwrap()
}

#[test]
fn cut_reset_stalled_or_corrupted_connections_lose_no_file() {
    let mut injected = [0, 0];
    for seed in 0..12 {
        let job = DIRECTIONS[seed as usize % 2];
        let mut random = Random::from_seed(seed);
        let ills =
            [FaultKind::Cut, FaultKind::Reset, FaultKind::Stall(Duration::from_millis(700)), FaultKind::Flip];
        // Each fault occurs in both directions, together with a randomly drawn one.
        let (kind, drawn) = (ills[seed as usize / 2 % ills.len()], ills[random.index(ills.len())]);
        let mut fault = |connection, kind| InjectedFault {
            scope: Scope::Connection(connection),
            direction: downstream(job),
            at: 2000 + random.below(LANE_BYTES),
            kind,
        };
        // The first connection carries the job; one of the others stays intact.
        let [one, other] = [0, 1].map(|further| 1 + (seed as usize + further) % (LANES - 1));
        let faults = vec![fault(one, kind), fault(other, drawn)];
        let told = format!("{faults:?}");
        let storm = FaultScenario::new(job, faults, false);
        let ended = storm.transfer();
        assert_eq!(ended.status, Some(0), "seed {seed}, {job:?}, {told}: {ended:#?}");
        storm.assert_all_there();
        injected[seed as usize % 2] += storm.line.injected();
    }
    // Every connection reaches the offset of its fault, for any seed. The last moments of the job
    // decide how many connections are reported as lost.
    assert!(injected.iter().all(|count| *count > 0), "no ill was ever done: nothing was tried: {injected:?}");
}

#[test]
fn a_job_that_loses_its_first_connection_fails_and_a_rerun_completes() {
    for (seed, kind) in [FaultKind::Cut, FaultKind::Reset, FaultKind::Flip].into_iter().enumerate() {
        for job in DIRECTIONS {
            let at = 2000 + Random::from_seed(seed as u64).below(LANE_BYTES);
            let fault = InjectedFault { scope: Scope::Connection(0), direction: downstream(job), at, kind };
            let storm = FaultScenario::new(job, vec![fault], false);
            let ended = storm.transfer();
            assert_ended(&ended, 1);
            assert_eq!(summary(&ended)["whole"], Value::Bool(false), "{job:?}, {kind:?}: {ended:#?}");
            assert_ended(&storm.transfer(), 0);
            storm.assert_all_there();
        }
    }
}

/// When the session has ended, the state of the sink shows which data arrived.
#[test]
fn data_received_before_a_network_loss_is_not_resent() {
    let mut durable = 0;
    for (seed, kind) in (10..).zip([FaultKind::Cut, FaultKind::Reset, FaultKind::Cut, FaultKind::Reset]) {
        let at = 5 * OBJECT + Random::from_seed(seed).below(LANE_BYTES - 5 * OBJECT);
        let fault = InjectedFault { scope: Scope::Connection(0), direction: Direction::ToServer, at, kind };
        let storm = FaultScenario::new(ends::Direction::Send, vec![fault], false);
        let ended = storm.transfer();
        assert_ended(&ended, 1);
        storm.server.wait_for_log("incomplete");
        wait_until("the end of the session", || storm.jobs().iter().all(|job| is_unlocked(job)));
        let sink = storm.fixture.path("there/data");
        let came =
            finished_bytes(&sink) + storm.jobs().iter().map(|job| logged_bytes(job, &sink)).sum::<u64>();
        let again = storm.transfer();
        assert_ended(&again, 0);
        storm.assert_all_there();
        let told = summary(&again);
        let spared = told["bytes_of_earlier_runs"].as_u64().unwrap();
        assert!(spared >= came, "{kind:?} at {at}: of {came} bytes only {spared} were spared: {told}");
        let wire = told["wire"]["out"].as_u64().unwrap();
        let most = finished_bytes(&storm.fixture.path("data")) - spared + (300 << 10);
        assert!(wire <= most, "{kind:?} at {at}: {wire} bytes travelled where {most} would do: {told}");
        durable += came;
    }
    assert!(durable > 0, "nothing had come before any loss");
}

#[test]
fn bits_flipped_on_a_plain_connection_are_detected() {
    let (mut sent_again, mut injected) = ([0, 0], [0, 0]);
    for seed in 0..16 {
        let job = DIRECTIONS[seed as usize / 2 % 2];
        let mut random = Random::from_seed(100 + seed);
        let mut fault = |connection| {
            let (scope, at) = (Scope::Connection(connection), 2000 + random.below(LANE_BYTES));
            InjectedFault { scope, direction: downstream(job), at, kind: FaultKind::Flip }
        };
        let storm = FaultScenario::new(job, (0..LANES).map(&mut fault).collect(), true);
        // With BLAKE3 a lane hashes objects one by one; with MD5 it hashes several in parallel
        // before it sends them.
        let ended = storm.transfer_with(["blake3", "md5"][seed as usize % 2]);
        match ended.status {
            Some(0) => storm.assert_all_there(),
            // A corrupted frame header ends its connection. On the first connection this also ends
            // the job.
            Some(1) => {
                assert_ended(&storm.transfer(), 0);
                storm.assert_all_there();
            }
            _ => panic!("seed {seed}, {job:?}: {ended:#?}"),
        }
        let (again, flips) = (summary(&ended)["objects_sent_again"].as_u64().unwrap(), storm.line.injected());
        assert!(again <= flips, "seed {seed}, {job:?}: {again} objects were sent again for {flips} flips");
        sent_again[seed as usize / 2 % 2] += again;
        injected[seed as usize / 2 % 2] += flips;
    }
    // A flip that damages no object corrupts a frame header. Headers are less than one byte in a
    // hundred of the transferred data: with no seed half of all flips hit a header.
    let found = sent_again.iter().zip(&injected).all(|(again, flips)| *again > 0 && 2 * again >= *flips);
    assert!(found, "{sent_again:?} damaged objects were found of {injected:?} flips");
}
