//! Receivers of a hostile source, each of them a process: `haul serve`, `haul fetch`, and the side
//! that ssh starts.

use crate::remote::{Fixture, Server, TEST_TIMEOUT, assert_alike, assert_ended, assert_no_strays, by};
use haul_lab::misbehaving_peer::scripts::accepted;
use haul_lab::misbehaving_peer::{MisbehavingPeer, connect};
use haul_model::ObjectSize;
use haul_net::{
    Address, DialSettings, Dialer, Grant, Host, Identity, ListenSettings, Listener, Role, StreamLane, Ticket,
    TicketTable, Uses,
};
use haul_proto::{JobOptions, Keep, Message, Reason, Window};
use std::fs;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// Size in bytes of an object.
pub(super) const OBJECT: usize = 64 << 10;

/// Content of the file outside the root.
const SENTINEL: &str = "of another directory";

/// Kind of a receiving process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Receiver {
    /// `haul serve` with a ticket that only writes; the source is a client.
    Serve,
    /// `haul fetch` with a ticket; the source is a server.
    Fetch,
    /// `haul meet`; the source uses the ticket that it announces.
    Ssh,
    /// `haul meet`; the source uses its pipes.
    InsideSsh,
}

impl Receiver {
    pub(super) const ALL: [Receiver; 4] =
        [Receiver::Serve, Receiver::Fetch, Receiver::Ssh, Receiver::InsideSsh];
}

/// Job of a hostile source.
pub(super) struct Job<'a> {
    /// Options that the source chooses, if it does.
    pub(super) options: JobOptions,
    /// ID of the job and request of a log; `None` for a job without a log.
    pub(super) resumes: bool,
    /// Options of `haul fetch`, which stand for `options`.
    pub(super) fetch: &'a [&'a str],
    /// Operand of `haul fetch`.
    pub(super) from: &'a str,
    /// Options of `haul serve`.
    pub(super) serve: &'a [&'a str],
    /// Maximum number of open files of the receiver.
    pub(super) descriptors: Option<u32>,
}

impl Default for Job<'_> {
    fn default() -> Self {
        let object = ObjectSize::new(OBJECT as u64).unwrap();
        let options = JobOptions { object, keep: Keep(u32::MAX), ..JobOptions::default() };
        Job { options, resumes: false, fetch: &[], from: ":", serve: &[], descriptors: None }
    }
}

/// A hostile source within a session.
pub(super) struct Liar {
    pub(super) peer: MisbehavingPeer,
    /// Window that the receiver granted.
    pub(super) window: Window,
    process: u32,
}

impl Liar {
    /// Writes a frame. Returns false if the receiver has closed the lane, or reads no more.
    pub(super) fn try_say(&mut self, message: &Message, payload: &[u8]) -> bool {
        let frame = haul_lab::misbehaving_peer::frame(message);
        self.peer.writer.write_all_vectored(&[&frame, payload]).is_ok()
    }

    /// Reads until the receiver has sent BYE or closed the lane.
    pub(super) fn hear_all(&mut self) {
        let _ = self.peer.writer.finish();
        while self.peer.reader.read_some(&mut [0; 64 << 10]).is_ok_and(|read| read > 0) {}
    }

    /// Returns the private memory of the receiver in KiB.
    pub(super) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.process)).unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:"));
        line.map_or(0, |line| line.split_whitespace().next().unwrap().parse().unwrap())
    }

    /// Returns the number of open files of the receiver.
    pub(super) fn descriptors(&self) -> usize {
        fs::read_dir(format!("/proc/{}/fd", self.process)).unwrap().count()
    }
}

/// Result of a session: the exit status of the receiver, unless it serves further sessions, and
/// what it reported.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) status: Option<i32>,
    pub(super) log: String,
}

/// A receiver with its directories, and a tree for a correct transfer.
pub(super) struct World<'a> {
    pub(super) fixture: Fixture,
    pub(super) receiver: Receiver,
    job: Job<'a>,
    server: Option<Server>,
}

impl<'a> World<'a> {
    pub(super) fn new(receiver: Receiver, job: Job<'a>) -> World<'a> {
        let fixture = Fixture::new();
        for (name, len) in [("data/one", 1000), ("data/sub/two", 5000), ("data/empty", 0)] {
            fixture.file(name, len);
        }
        fs::create_dir(fixture.path("outside")).unwrap();
        fs::create_dir(fixture.path("waybills")).unwrap();
        fs::write(fixture.path("outside/secret"), SENTINEL).unwrap();
        let mut world = World { fixture, receiver, job, server: None };
        if receiver == Receiver::Serve {
            let fixed = ["serve", "--listen", "127.0.0.1:0", "--root", "there", "--write-only"];
            let command = world.fixture.haul(&[&fixed[..], world.job.serve].concat());
            world.server = Some(world.fixture.serve_by(world.limited(command)));
        }
        world
    }

    /// The directory that receives.
    pub(super) fn root(&self) -> PathBuf {
        self.fixture.path("there")
    }

    fn limited(&self, command: Command) -> Command {
        match self.job.descriptors {
            Some(most) => by(&["sh", "-c", &format!("ulimit -n {most}; exec \"$@\""), "sh"], &command),
            None => command,
        }
    }

    /// Runs a session with a hostile source to its end.
    #[track_caller]
    pub(super) fn session(&self, lies: impl FnOnce(&mut Liar)) -> Ended {
        let ended = match self.receiver {
            Receiver::Serve => self.to_server(lies),
            Receiver::Fetch => self.to_fetch(lies),
            Receiver::Ssh => self.to_meet(false, lies),
            Receiver::InsideSsh => self.to_meet(true, lies),
        };
        assert!(!ended.log.contains("panicked"), "{:?}: {}", self.receiver, ended.log);
        ended
    }

    /// Starts a job as its source, and lies.
    fn ask(&self, lane: StreamLane, process: u32, lies: impl FnOnce(&mut Liar)) {
        let mut peer = MisbehavingPeer::at(lane);
        let mut request = connect(&self.job.options);
        if self.job.resumes {
            request.job = [5; 16];
            request.log =
                Some(haul_proto::LogRequest { mechanism: 0, files: 0, encoding: 0, sync: 0, verify: 0 });
        }
        peer.say(&Message::Connect(Box::new(request)), &[]);
        let window = match peer.hear() {
            Message::Accept(accept) => accept.window,
            other => panic!("{:?}: {other:?}", self.receiver),
        };
        lies(&mut Liar { peer, window, process });
    }

    fn dialer(&self) -> Dialer {
        let ticket = Ticket::parse(&fs::read_to_string(self.fixture.path("ticket")).unwrap()).unwrap();
        Dialer::new(ticket, DialSettings::default()).unwrap()
    }

    /// Starts a job at the server, which must refuse it, and returns the reason.
    #[track_caller]
    pub(super) fn refusal(&self) -> Reason {
        let mut peer = MisbehavingPeer::at(self.dialer().lane(0).unwrap());
        peer.say(&Message::Connect(Box::new(connect(&self.job.options))), &[]);
        match peer.hear() {
            Message::Refuse(reason) => reason,
            other => panic!("{other:?}"),
        }
    }

    fn to_server(&self, lies: impl FnOnce(&mut Liar)) -> Ended {
        let server = self.server.as_ref().unwrap();
        let dialer = self.dialer();
        let lane = dialer.lane(0).unwrap();
        self.ask(lane, server.child.id(), lies);
        let session = format!("session {}: ", dialer.session());
        let mut log = String::new();
        loop {
            let line = server.log.recv_timeout(TEST_TIMEOUT).unwrap_or_else(|_| panic!("no end: {log}"));
            log += &line;
            log.push('\n');
            // The last line of a session begins with its counts.
            let counts = line.split_once(&session).and_then(|(_, rest)| rest.split_once(' '));
            if counts
                .is_some_and(|(count, rest)| count.parse::<u64>().is_ok() && rest.starts_with("transferred"))
            {
                return Ended { status: None, log };
            }
        }
    }

    fn to_fetch(&self, lies: impl FnOnce(&mut Liar)) -> Ended {
        let identity = Identity::generate().unwrap();
        let tickets = Arc::new(TicketTable::default());
        let anywhere: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let settings = ListenSettings::default();
        let listener =
            Listener::start(&[anywhere], Some(&identity), tickets.clone(), settings, |_| {}).unwrap();
        let port = listener.local_addresses()[0].port();
        let grant = Grant { role: Role::Both, uses: Uses::Lasting, expires: None };
        let ticket = Ticket::issue(grant, vec![local(port)], Some(identity.fingerprint())).unwrap();
        self.fixture.secret("liar.ticket", &ticket.to_line());
        tickets.insert(ticket);
        let fixed = ["fetch", "--ticket-file=liar.ticket", "--streams=1", "--object-size=64K"];
        let command = self.fixture.haul(&[&fixed[..], self.job.fetch, &[self.job.from, "there"]].concat());
        let mut child = start(self.limited(command));
        let log = collected(&mut child);
        let session = listener.next_session_within(TEST_TIMEOUT).expect("the fetch connects");
        let (_, lane) = session.next_lane(TEST_TIMEOUT).expect("a lane");
        let mut peer = MisbehavingPeer::at(lane);
        let Message::Connect(asked) = peer.hear() else { panic!("CONNECT comes first") };
        peer.say(&accepted(&asked), &[]);
        lies(&mut Liar { peer, window: asked.window, process: child.id() });
        ended(child, log)
    }

    fn to_meet(&self, inside: bool, lies: impl FnOnce(&mut Liar)) -> Ended {
        let mut command = self.fixture.haul(&["meet"]);
        command.current_dir(self.root());
        let mut child = start(self.limited(command));
        let log = collected(&mut child);
        let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let request = serde_json::json!({
            "meet": 2, "way": "send", "paths": [""], "lanes": 1, "buffers": 64 << 20, "ports": null, "rate": null,
            "congestion": null, "multipath": false, "plain": false, "waybill": null,
        });
        writeln!(input, "{request}").unwrap();
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            output.read_exact(&mut byte).unwrap();
            line.extend(byte);
        }
        let reply = line.strip_prefix(b"haul-meet ").expect("an answer of haul");
        let reply: serde_json::Value = serde_json::from_slice(reply).unwrap();
        let process = child.id();
        if inside {
            input.write_all(b"inside\n").unwrap();
            let lane =
                StreamLane::over_pipes(OwnedFd::from(output), OwnedFd::from(input), Some(TEST_TIMEOUT))
                    .unwrap();
            self.ask(lane, process, lies);
        } else {
            let ticket = Ticket::parse(reply["ready"]["ticket"].as_str().expect("a ticket")).unwrap();
            let port = ticket.addresses()[0].port;
            let dialer =
                Dialer::new(ticket.with_addresses(vec![local(port)]).unwrap(), DialSettings::default());
            input.write_all(b"outside\n").unwrap();
            self.ask(dialer.unwrap().lane(0).unwrap(), process, lies);
        }
        // For a lane outside, the pipe closes only now.
        ended(child, log)
    }

    /// Checks that the session changed nothing outside the root and left no special file, no set-ID
    /// bit and no temporary file, and that a correct transfer to the same place succeeds.
    #[track_caller]
    pub(super) fn assert_unharmed(&self) {
        let who = self.receiver;
        assert_eq!(fs::read_to_string(self.fixture.path("outside/secret")).unwrap(), SENTINEL, "{who:?}");
        assert_eq!(names_in(&self.fixture.path("outside")), ["secret"], "{who:?}");
        let known = [
            "argv",
            "data",
            "fake-ssh",
            "liar.ticket",
            "outside",
            "replica.ticket",
            "state",
            "there",
            "ticket",
            "waybill",
            "waybills",
        ];
        let all = names_in(self.fixture.home.path());
        assert!(all.iter().all(|name| known.contains(&name.as_str())), "{who:?}: {all:?}");
        assert_ordinary(&self.root());
        self.assert_honest("honest");
        assert_no_strays(&self.root());
    }

    /// Checks that a correct transfer to the directory `to` below the root succeeds.
    #[track_caller]
    pub(super) fn assert_honest(&self, to: &str) {
        let ended = match self.receiver {
            Receiver::Serve => self.fixture.run(&["send", "--ticket-file=ticket", "data", &format!(":{to}")]),
            Receiver::Fetch => self.fixture.over_ssh("fetch", &["localhost:../data", &format!("there/{to}")]),
            Receiver::Ssh => self.fixture.over_ssh("send", &["data", &format!("localhost:{to}")]),
            Receiver::InsideSsh => {
                self.fixture.over_ssh("send", &["--inside-ssh", "data", &format!("localhost:{to}")])
            }
        };
        assert_ended(&ended, 0);
        assert_alike(&self.fixture.path("data"), &self.root().join(to).join("data"));
    }

    /// Waits for the exit of a server for one session.
    pub(super) fn server_status(mut self) -> Option<i32> {
        self.server.take().expect("a server").status()
    }
}

/// Asserts that a directory contains only files, directories and links, none with a set-ID bit.
#[track_caller]
fn assert_ordinary(dir: &Path) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        assert!(kind.is_file() || kind.is_dir() || kind.is_symlink(), "{} is special", path.display());
        assert!(!kind.is_char_device() && !kind.is_block_device());
        if kind.is_symlink() {
            continue;
        }
        let mode = entry.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o6000, 0, "{} has mode {mode:o}", path.display());
        if kind.is_dir() {
            assert_ordinary(&path);
        }
    }
}

pub(super) fn names_in(dir: &Path) -> Vec<String> {
    let found = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut found: Vec<String> = found.collect();
    found.sort();
    found
}

fn local(port: u16) -> Address {
    Address { host: Host::parse("127.0.0.1").unwrap(), port }
}

fn start(mut command: Command) -> Child {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Collects the error output of a process, which must not wait for a reader.
fn collected(child: &mut Child) -> std::thread::JoinHandle<String> {
    let mut errors = child.stderr.take().unwrap();
    std::thread::spawn(move || {
        let mut text = String::new();
        errors.read_to_string(&mut text).unwrap();
        text
    })
}

/// Waits for the exit of a receiver whose source has gone.
#[track_caller]
fn ended(mut child: Child, log: std::thread::JoinHandle<String>) -> Ended {
    let begun = std::time::Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > TEST_TIMEOUT {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the receiver does not exit: {}", log.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ended { status: status.code(), log: log.join().unwrap() }
}
