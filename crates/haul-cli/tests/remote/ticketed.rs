//! Jobs with a ticket that are interrupted and started again: all files arrive, and no durable data
//! travels again.
//!
//! No client resumes the job of another ticket, and the state of the jobs on a server stays within
//! its limits.

use super::resumed::{files_beneath, finished_bytes, is_temporary, logged_bytes};
use super::stopped::wait_until;
use super::{Fixture, RunResult, Server, assert_alike, assert_ended, assert_no_strays, own_port};
use crate::faults::fixture::pasted;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, SystemTime};

const OBJECT: u64 = 64 << 10;

/// Rate limit of a job that is to be interrupted, in bytes per second. The job would take half a
/// minute; it is interrupted when a few objects are logged.
const SLOWLY: &str = "256K";

/// Minimum number of logged objects before a job is interrupted.
const LOGGED: u64 = 3;

const DAY: Duration = Duration::from_secs(86_400);

/// The directories of a server, and a tree of about 6 MiB on each side: files larger and smaller
/// than an object.
pub(super) struct ServerFixture {
    pub(super) fixture: Fixture,
    port: u16,
}

impl ServerFixture {
    /// Creates the directories and a configuration with `settings` in addition to the common ones.
    pub(super) fn new(settings: &str) -> ServerFixture {
        let fixture = Fixture::new();
        for tree in ["data", "out/data"] {
            for (name, len) in
                [("a", 900_000), ("m/b", 2_500_001), ("z", 1_800_000), ("one", 65_536), ("empty", 0)]
            {
                fixture.file(&format!("{tree}/{name}"), len);
            }
            (0..12).for_each(|number| fixture.file(&format!("{tree}/many/{number}"), number * 997));
        }
        fs::create_dir(fixture.path("in")).unwrap();
        let desk = ServerFixture { fixture, port: own_port() };
        desk.configure(settings);
        desk
    }

    fn configure(&self, settings: &str) {
        let port = self.port;
        let share = |root: &str, ticket: &str, access: &str| {
            format!("[[share]]\nroot = '{root}'\nticket = '{ticket}.ticket'\naccess = '{access}'\n")
        };
        let shares =
            [share("in", "one", "write"), share("in", "other", "write"), share("out", "out", "read")];
        let text = format!(
            "listen = ['127.0.0.1:{port}']\nidentity = 'identity.pem'\n{settings}\n{}",
            shares.concat()
        );
        fs::write(self.fixture.path("serve.toml"), text).unwrap();
    }

    pub(super) fn serve(&self) -> Server {
        let server = self.fixture.serve_config("serve.toml");
        server.wait_for_log("listening on");
        server.wait_for_log("'out'");
        server
    }

    fn source(&self) -> PathBuf {
        self.fixture.path("data")
    }

    /// Returns the command line that sends the tree to the target `to`.
    pub(super) fn sending<'a>(&self, ticket: &'a str, to: &'a str, more: &[&'a str]) -> Vec<&'a str> {
        let fixed =
            ["send", "--json", "--object-size=64K", "--sync=object", "--streams=2", "--ticket-file", ticket];
        [&fixed[..], more, &["data", to]].concat()
    }

    pub(super) fn start(&self, words: &[&str]) -> Child {
        let mut command = self.fixture.haul(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Starts a slow send, and stops the client when objects of incomplete files are logged.
    fn halted(&self, ticket: &str, to: &str) -> Child {
        let child = self.start(&self.sending(ticket, to, &[&format!("--rate={SLOWLY}")]));
        let sink = self.fixture.path("in").join(&to[1..]).join("data");
        wait_until("a log", || self.jobs().iter().any(|job| logged_bytes(job, &sink) >= LOGGED * OBJECT));
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        child
    }

    /// Sends a part of the tree and kills the client. Returns when the session has ended.
    pub(super) fn cut_off(&self, ticket: &str, to: &str) {
        let before = self.jobs();
        kill(self.halted(ticket, to));
        wait_until("the end of the session", || {
            self.jobs().iter().filter(|job| !before.contains(job)).all(|job| is_unlocked(job))
        });
    }

    /// Returns the directories of the server's unfinished jobs.
    pub(super) fn jobs(&self) -> Vec<PathBuf> {
        entries(&self.fixture.path("state/haul/serve/jobs"))
    }

    /// Returns the number of bytes of `sink` that need not travel again: in complete files, and in
    /// objects that the log of the job contains.
    pub(super) fn durable(&self, job: &Path, sink: &Path) -> u64 {
        finished_bytes(sink) + logged_bytes(job, sink)
    }

    /// Runs the job to its end. Asserts that it sent none of the `durable` bytes, and little more
    /// than the rest.
    #[track_caller]
    pub(super) fn finish(&self, words: &[&str], durable: u64, wire: &str) -> Value {
        let summary = whole(&self.fixture.run(words));
        let spared = summary["bytes_of_earlier_runs"].as_u64().unwrap();
        assert!(spared >= durable, "of {durable} bytes only {spared} were spared: {summary}");
        let travelled = summary["wire"][wire].as_u64().unwrap();
        let most = finished_bytes(&self.source()) - spared + (300 << 10);
        assert!(travelled <= most, "{travelled} bytes travelled where {most} would do: {summary}");
        summary
    }

    /// Asserts that all files have arrived, that no temporary file remains, and that `jobs`
    /// unfinished jobs remain.
    #[track_caller]
    pub(super) fn assert_whole(&self, to: &str, jobs: usize) {
        // The client learns that all files have arrived before the server has cleaned up.
        wait_until("the end of the job", || self.jobs().len() == jobs);
        assert_alike(&self.source(), &self.fixture.path("in").join(to).join("data"));
        assert_no_strays(&self.fixture.path("in").join(to));
    }
}

/// Returns the summary of a job that completed.
#[track_caller]
pub(super) fn whole(ended: &RunResult) -> Value {
    assert_ended(ended, 0);
    let summary: Value = serde_json::from_str(ended.out.lines().last().unwrap()).unwrap();
    assert_eq!((&summary["event"], &summary["whole"]), (&"summary".into(), &true.into()), "{summary}");
    summary
}

pub(super) fn kill(mut child: Child) {
    child.kill().unwrap();
    child.wait().unwrap();
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

/// Returns true if the session of the job has released its lock cleanly.
pub(super) fn is_unlocked(job: &Path) -> bool {
    fs::metadata(job.join("lock")).is_ok_and(|lock| lock.len() == 0)
}

/// Sets the times of a job's files as if the job had been idle for `ago`.
fn age(job: &Path, ago: Duration) {
    for name in ["lock", "begun"] {
        let file = fs::File::options().write(true).open(job.join(name)).unwrap();
        file.set_modified(SystemTime::now() - ago).unwrap();
    }
}

#[test]
fn a_send_resumes_after_its_client_was_killed() {
    let desk = ServerFixture::new("");
    let _server = desk.serve();
    desk.cut_off("one.ticket", ":x");
    let durable = desk.durable(&desk.jobs()[0], &desk.fixture.path("in/x/data"));
    assert!(durable >= LOGGED * OBJECT);
    desk.finish(&desk.sending("one.ticket", ":x", &[]), durable, "out");
    desk.assert_whole("x", 0);
}

#[test]
fn a_send_resumes_after_its_server_was_killed_and_restarted() {
    let desk = ServerFixture::new("");
    let server = desk.serve();
    let client = desk.halted("one.ticket", ":x");
    drop(server);
    kill_process(Pid::from_child(&client), Signal::CONT).unwrap();
    let ended = client.wait_with_output().unwrap();
    assert!(!ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let jobs = desk.jobs();
    assert!(jobs.len() == 1 && !is_unlocked(&jobs[0]), "the job is still locked: {jobs:?}");
    let durable = desk.durable(&jobs[0], &desk.fixture.path("in/x/data"));
    assert!(durable >= LOGGED * OBJECT);
    let _server = desk.serve();
    desk.finish(&desk.sending("one.ticket", ":x", &[]), durable, "out");
    desk.assert_whole("x", 0);
}

/// A fetch keeps its log at the sink, whatever connection leads to the source.
#[test]
fn a_fetch_resumes_after_either_side_was_killed() {
    for kills_server in [false, true] {
        let slow = format!("rate = '{SLOWLY}'");
        let desk = ServerFixture::new(&slow);
        let mut server = desk.serve();
        let words = [
            "fetch",
            "--json",
            "--object-size=64K",
            "--sync=object",
            "--ticket-file",
            "out.ticket",
            ":data",
            "x",
        ];
        let client = desk.start(&words);
        let sink = desk.fixture.path("x/data");
        let jobs = || {
            entries(&desk.fixture.path("state/haul/jobs")).into_iter().filter(|job| job.join("log").exists())
        };
        wait_until("a log", || jobs().any(|job| logged_bytes(&job, &sink) >= LOGGED * OBJECT));
        kill_process(Pid::from_child(&client), Signal::STOP).unwrap();
        if kills_server {
            server.child.kill().unwrap();
            server.child.wait().unwrap();
            kill_process(Pid::from_child(&client), Signal::CONT).unwrap();
            assert!(!client.wait_with_output().unwrap().status.success());
        } else {
            kill(client);
        }
        drop(server);
        let durable = desk.durable(&jobs().next().unwrap(), &sink);
        assert!(durable >= LOGGED * OBJECT);
        desk.configure("");
        let _server = desk.serve();
        desk.finish(&words, durable, "in");
        assert_alike(&desk.source(), &sink);
        assert_no_strays(&desk.fixture.path("x"));
        assert_eq!(jobs().count(), 0);
    }
}

#[test]
fn a_job_is_invisible_to_other_tickets() {
    let desk = ServerFixture::new("");
    let _server = desk.serve();
    let halted = desk.halted("one.ticket", ":x");
    let jobs = desk.jobs();
    // With another ticket, the same command sends all bytes and reveals nothing about the other
    // session.
    let other = desk.fixture.run(&desk.sending("other.ticket", ":x", &[]));
    assert_eq!(whole(&other)["bytes_of_earlier_runs"], 0, "{other:#?}");
    assert!(!other.err.contains("is held by"), "{other:#?}");
    wait_until("the end of the other job", || desk.jobs() == jobs);
    let left = files_beneath(&desk.fixture.path("in/x")).iter().filter(|path| is_temporary(path)).count();
    assert!(left > 0, "nothing of it was touched");
    // With the same ticket it is the same job, and the client learns nothing else.
    let same = desk.fixture.run(&desk.sending("one.ticket", ":x", &[]));
    assert_ended(&same, 2);
    assert!(same.err.contains("the job is held by another session"), "{same:#?}");
    assert!(!same.err.contains("state") && !same.err.contains("process"), "{same:#?}");
    kill(halted);
    wait_until("the end of the session", || desk.jobs().iter().all(|job| is_unlocked(job)));
    whole(&desk.fixture.run(&desk.sending("one.ticket", ":x", &[])));
    desk.assert_whole("x", 0);
}

#[test]
fn jobs_above_the_limit_are_not_logged_and_restart() {
    let desk = ServerFixture::new("log-jobs = 1");
    let server = desk.serve();
    let running = desk.halted("one.ticket", ":x");
    // A second job is interrupted and starts again from the beginning: the server keeps nothing of
    // it, under either ticket.
    let slowly = format!("--rate={SLOWLY}");
    let child = desk.start(&desk.sending("other.ticket", ":y", &[&slowly]));
    let line = server.wait_for_log("the logs of 1 interrupted jobs are kept");
    assert!(line.contains("session ") && line.contains("cannot be resumed"), "{line}");
    let unfinished = || files_beneath(&desk.fixture.path("in/y")).iter().any(|path| is_temporary(path));
    wait_until("a file", unfinished);
    kill(child);
    let session = line.split(": ").nth(1).unwrap();
    while !server.wait_for_log(session).contains("incomplete") {}
    assert!(!unfinished(), "data of a job that cannot be resumed is removed");
    assert_eq!(desk.jobs().len(), 1);
    let summary = whole(&desk.fixture.run(&desk.sending("other.ticket", ":y", &[])));
    assert_eq!(summary["bytes_of_earlier_runs"], 0, "{summary}");
    desk.assert_whole("y", 1);
    // The first job resumes, and then frees its slot for another job.
    kill(running);
    wait_until("the end of the session", || desk.jobs().iter().all(|job| is_unlocked(job)));
    let durable = desk.durable(&desk.jobs()[0], &desk.fixture.path("in/x/data"));
    desk.finish(&desk.sending("one.ticket", ":x", &[]), durable, "out");
    desk.assert_whole("x", 0);
    desk.cut_off("other.ticket", ":z");
    assert_eq!(desk.jobs().len(), 1);
}

#[test]
fn logs_above_the_quota_are_not_kept() {
    let desk = ServerFixture::new("log-quota = '20K'");
    let server = desk.serve();
    let summary = whole(&desk.fixture.run(&desk.sending("one.ticket", ":x", &[])));
    assert_eq!(summary["bytes_of_earlier_runs"], 0);
    server.wait_for_log("use all of 20480 bytes");
    desk.assert_whole("x", 0);
}

#[test]
fn expired_jobs_are_deleted_with_their_partial_files() {
    let desk = ServerFixture::new("");
    let server = desk.serve();
    desk.cut_off("one.ticket", ":x");
    let young = desk.jobs();
    desk.cut_off("other.ticket", ":y");
    server.signal(Signal::TERM);
    assert_eq!(server.status(), Some(0));
    let jobs = desk.jobs();
    assert_eq!(jobs.len(), 2, "tickets that are kept may be used again: {jobs:?}");
    for job in &jobs {
        age(job, if young.contains(job) { DAY * 13 } else { DAY * 15 });
    }
    let server = desk.fixture.serve_config("serve.toml");
    server.wait_for_log("deleted expired jobs: 1");
    assert_eq!(desk.jobs(), young);
    assert_no_strays(&desk.fixture.path("in/y"));
    server.wait_for_log("listening on");
    let durable = desk.durable(&young[0], &desk.fixture.path("in/x/data"));
    desk.finish(&desk.sending("one.ticket", ":x", &[]), durable, "out");
    desk.assert_whole("x", 0);
    // A client that returns too late starts from the beginning.
    assert_eq!(
        whole(&desk.fixture.run(&desk.sending("other.ticket", ":y", &[])))["bytes_of_earlier_runs"],
        0
    );
    desk.assert_whole("y", 0);
}

#[test]
fn a_running_server_deletes_expired_jobs() {
    let desk = ServerFixture::new("log-age = '1s'");
    let server = desk.serve();
    desk.cut_off("one.ticket", ":x");
    server.wait_for_log("deleted expired jobs: 1");
    assert!(desk.jobs().is_empty());
    assert_no_strays(&desk.fixture.path("in"));
}

/// Regression: the client said that its job was interrupted, and not that the server stopped.
#[test]
fn a_server_that_stops_tells_its_clients_and_keeps_what_they_resume_from() {
    let desk = ServerFixture::new("");
    let server = desk.serve();
    let halted = desk.halted("one.ticket", ":x");
    server.signal(Signal::TERM);
    kill_process(Pid::from_child(&halted), Signal::CONT).unwrap();
    let ended = halted.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("the server is stopping"), "{said}");
    let (_, advice) = said.split_once("to resume: ").expect(&said);
    assert_eq!(server.status(), Some(0));
    let durable = desk.durable(&desk.jobs()[0], &desk.fixture.path("in/x/data"));
    assert!(durable >= LOGGED * OBJECT, "{durable}");
    let _server = desk.serve();
    let resumed = pasted(desk.fixture.path(""), &advice.replace(SLOWLY, "500M"));
    let out = String::from_utf8(resumed.stdout).unwrap();
    let summary: Value = serde_json::from_str(out.lines().last().unwrap()).unwrap();
    assert!(summary["bytes_of_earlier_runs"].as_u64() >= Some(durable), "{durable}: {summary}");
    desk.assert_whole("x", 0);
}

/// Such a ticket is valid while its server runs, and so are the files of its interrupted jobs.
#[test]
fn jobs_of_a_temporary_ticket_are_deleted_with_its_server() {
    let desk = ServerFixture::new("");
    let server = desk.fixture.serve(&["--root", "in"]);
    desk.cut_off("ticket", ":x");
    let durable = desk.durable(&desk.jobs()[0], &desk.fixture.path("in/x/data"));
    desk.finish(&desk.sending("ticket", ":x", &[]), durable, "out");
    desk.assert_whole("x", 0);
    desk.cut_off("ticket", ":y");
    let halted = desk.halted("ticket", ":z");
    assert_eq!(desk.jobs().len(), 2);
    server.signal(Signal::TERM);
    kill(halted);
    assert_eq!(server.status(), Some(0));
    assert!(desk.jobs().is_empty());
    assert_no_strays(&desk.fixture.path("in"));
}

#[test]
fn no_log_is_kept_in_a_directory_open_to_clients() {
    let desk = ServerFixture::new("");
    let named = desk.fixture.run(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--root",
        ".",
        "--state-dir",
        "state/of/mine",
    ]);
    assert_ended(&named, 2);
    assert!(named.err.contains("open to clients") && named.err.contains("--state-dir"), "{named:#?}");
    assert_eq!(named.out, "", "no ticket is printed for what does not serve");
    let server = desk.fixture.serve(&["--root", "."]);
    assert!(server.wait_for_log("open to clients").contains("restart from the beginning"));
    whole(&desk.fixture.run(&desk.sending("ticket", ":in/x", &[])));
    desk.assert_whole("x", 0);
    assert!(!desk.fixture.path("state/haul/serve").exists());
    drop(server);
    // If no job may be kept, the server creates no log store.
    let server = desk.fixture.serve(&["--root", "in", "--log-jobs=0"]);
    whole(&desk.fixture.run(&desk.sending("ticket", ":y", &[])));
    drop(server);
    assert!(!desk.fixture.path("state/haul/serve").exists());
}

/// Regression: the holder of a write ticket chose the layout of the server's logs, and with it the
/// memory and space that they took.
#[test]
fn the_receiver_alone_chooses_the_layout_of_its_logs() {
    let desk = ServerFixture::new("log-mechanism = 'file'\nlog-encoding = 'char'");
    for option in ["--log-encoding=bit64", "--log-mechanism=universal"] {
        let refused = desk.fixture.run(&desk.sending("one.ticket", ":", &[option]));
        assert_ended(&refused, 2);
        let name = option.split('=').next().unwrap();
        let reason = format!("{name}: the receiver chooses the layout of its log; use the option with");
        assert!(refused.err.contains(&reason) && refused.err.contains("'haul serve'"), "{}", refused.err);
    }
    let _server = desk.serve();
    kill(desk.halted("one.ticket", ":"));
    let logs: Vec<PathBuf> = desk.jobs().iter().flat_map(|job| entries(&job.join("log"))).collect();
    let is_of_file = |log: &PathBuf| log.file_name().unwrap().to_str().unwrap().starts_with("file-");
    assert!(!logs.is_empty() && logs.iter().all(is_of_file), "{logs:?}");
    // The numbers of objects are digits.
    let is_char = |log: &PathBuf| fs::read(log).unwrap().windows(2).any(|two| two == b" #");
    assert!(logs.iter().any(is_char), "{logs:?}");
}
