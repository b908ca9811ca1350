//! Bad lines: connections that are cut, reset, stalled and bent under a job. Whatever they do, a file that has its name is
//! right, and the exit status says whether all of them are there.

use super::resumed::{OBJECT, finished_bytes, logged_bytes};
use super::stopped::wait_until;
use super::ticketed::is_let_go;
use super::{Bed, Ended, Server, assert_alike, assert_ended, assert_no_strays};
use haul_lab::line::{Fate, Ill, Line, Over, Way};
use haul_lab::random::Random;
use serde_json::Value;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::time::Duration;

/// Lanes of each job.
const LANES: usize = 4;

/// Bytes that a lane carries at least, whatever the others do: a fate lies before.
const LANE_BYTES: u64 = 600_000;

struct Storm {
    bed: Bed,
    server: Server,
    is_plain: bool,
}

impl Storm {
    /// A server behind a bad line, and 8 MiB to send to it.
    fn new(fates: Vec<Fate>, is_plain: bool) -> Storm {
        let bed = Bed::new();
        for at in 0..8 {
            bed.file(&format!("data/{at}"), (1 << 20) + at);
        }
        let line = TcpListener::bind("127.0.0.1:0").unwrap();
        let told = format!("--address={}", line.local_addr().unwrap());
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, bed.free_port()));
        let mut args = vec!["--root", "there", &told];
        args.extend(is_plain.then_some("--plain"));
        let server = bed.serve_at(&at.to_string(), &args);
        Line::between(line, at, fates).unwrap();
        Storm { bed, server, is_plain }
    }

    /// Sends all of it, not faster than so that every lane is used.
    fn send(&self) -> Ended {
        self.send_by("blake3")
    }

    /// The same, compared by another digest.
    fn send_by(&self, algorithm: &str) -> Ended {
        let mut args = vec!["send", "--json", "--ticket-file=ticket", "--object-size=64K", "--rate=16M"];
        args.extend(["-a", algorithm]);
        args.extend(self.is_plain.then_some("--plain"));
        self.bed.run(&[&args[..], &["data", ":"]].concat())
    }

    /// Folders of the server's jobs that are not over.
    fn jobs(&self) -> Vec<PathBuf> {
        let found = fs::read_dir(self.bed.path("state/haul/serve/jobs")).into_iter().flatten().flatten();
        found.map(|job| job.path()).collect()
    }

    fn assert_all_there(&self) {
        assert_alike(&self.bed.path("data"), &self.bed.path("there/data"));
        assert_no_strays(&self.bed.path("there"));
    }
}

fn summary(ended: &Ended) -> Value {
    serde_json::from_str(ended.out.lines().last().unwrap()).unwrap()
}

#[test]
fn connections_that_are_cut_reset_stalled_or_bent_cost_no_file() {
    let mut lost = 0;
    for seed in 0..6 {
        let mut random = Random::from_seed(seed);
        let ills = [Ill::Cut, Ill::Reset, Ill::Stall(Duration::from_millis(700)), Ill::Flip];
        let mut fate = |connection| Fate {
            over: Over::Connection(connection),
            way: Way::ToServer,
            at: 2000 + random.below(LANE_BYTES),
            ill: ills[random.index(ills.len())],
        };
        // The first connection carries the job; two of the others live on.
        let fates = vec![fate(1 + seed as usize % (LANES - 1)), fate(1 + (seed as usize + 1) % (LANES - 1))];
        let told = format!("{fates:?}");
        let storm = Storm::new(fates, false);
        let ended = storm.send();
        assert_eq!(ended.status, Some(0), "seed {seed}, {told}: {ended:#?}");
        storm.assert_all_there();
        lost += ended.err.matches(" was lost: ").count();
    }
    assert!(lost > 0, "no connection was ever lost: nothing was tried");
}

#[test]
fn a_job_whose_first_connection_is_lost_says_so_and_is_finished_by_another() {
    for (seed, ill) in [Ill::Cut, Ill::Reset, Ill::Flip].into_iter().enumerate() {
        let at = 2000 + Random::from_seed(seed as u64).below(LANE_BYTES);
        let storm = Storm::new(vec![Fate { over: Over::Connection(0), way: Way::ToServer, at, ill }], false);
        let ended = storm.send();
        assert_ended(&ended, 1);
        assert_eq!(summary(&ended)["whole"], Value::Bool(false), "{ill:?}: {ended:#?}");
        assert_ended(&storm.send(), 0);
        storm.assert_all_there();
    }
}

/// What came is told by what stands at the sink when its session is over, however far that was.
#[test]
fn what_came_before_the_network_was_lost_is_not_sent_again() {
    let mut durable = 0;
    for (seed, ill) in (10..).zip([Ill::Cut, Ill::Reset, Ill::Cut, Ill::Reset]) {
        let at = 5 * OBJECT + Random::from_seed(seed).below(LANE_BYTES - 5 * OBJECT);
        let storm = Storm::new(vec![Fate { over: Over::Connection(0), way: Way::ToServer, at, ill }], false);
        let ended = storm.send();
        assert_ended(&ended, 1);
        storm.server.says("not finished");
        wait_until("the end of the session", || storm.jobs().iter().all(|job| is_let_go(job)));
        let sink = storm.bed.path("there/data");
        let came =
            finished_bytes(&sink) + storm.jobs().iter().map(|job| logged_bytes(job, &sink)).sum::<u64>();
        let again = storm.send();
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
    let mut sent_again = 0;
    for seed in 0..8 {
        let mut random = Random::from_seed(100 + seed);
        let mut fate = |connection| {
            let (over, at) = (Over::Connection(connection), 2000 + random.below(LANE_BYTES));
            Fate { over, way: Way::ToServer, at, ill: Ill::Flip }
        };
        let storm = Storm::new((0..LANES).map(&mut fate).collect(), true);
        // Objects are hashed one by one, or several at once before they are sent.
        let ended = storm.send_by(["blake3", "md5"][seed as usize % 2]);
        match ended.status {
            Some(0) => storm.assert_all_there(),
            // A frame's head that is bent ends its connection, and the first one's the job.
            Some(1) => {
                assert_ended(&storm.send(), 0);
                storm.assert_all_there();
            }
            _ => panic!("seed {seed}: {ended:#?}"),
        }
        sent_again += summary(&ended)["objects_sent_again"].as_u64().unwrap();
    }
    assert!(sent_again >= 8, "{sent_again} damaged objects were found in 8 jobs of 4 flips each");
}
