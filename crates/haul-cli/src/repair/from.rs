//! Replicas of a repair: parsing, and connections to other hosts.

use crate::remote::args::ResolvedJobArgs;
use crate::remote::host::{Peer, RemoteHost};
use crate::remote::place::Location;
use crate::remote::ssh::LoginArgs;
use crate::remote::ticket;
use crate::remote::typed;
use crate::remote::way::StoppableDialer;
use haul_engine::repair::{Remotes, ReplicaAt, ReplicaRequest, ReplicaResponse};
use haul_engine::transfer::{self, Failure, FetchJob, Report, RunContext};
use haul_proto::Reason;
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of reported failures per replica.
const NOTES_MAX: usize = 1000;

/// Options that name replicas.
#[derive(clap::Args, Debug)]
pub(super) struct FromArgs {
    /// Read correct bytes from REPLICA, a directory with the same paths: a local PATH, HOST:PATH
    /// over ssh, or :PATH of a 'haul serve' with --ticket-file. Repeat the option for several
    /// replicas. A remote replica sends only damaged bytes that the replicas before it lack.
    #[arg(long, value_name = "REPLICA", required = true)]
    pub(super) from: Vec<OsString>,
    #[command(flatten)]
    login: LoginArgs,
    /// Read the ticket of 'haul serve' from FILE, which only you may read; - is standard input.
    /// Use one option for all --from :PATH, or one for each, in the same order.
    #[arg(long, value_name = "FILE", help_heading = "Remote host")]
    ticket_file: Vec<OsString>,
    /// Store data received from other hosts temporarily in DIR [default: ROOT].
    #[arg(long, value_name = "DIR", help_heading = "Remote host")]
    pub(super) staging: Option<OsString>,
}

/// Replicas on other hosts, by their numbers.
pub(super) struct Hosts {
    origins: Vec<Option<Origin>>,
    resolved: ResolvedJobArgs,
}

/// A directory on another host.
struct Origin {
    host: RemoteHost,
    path: Vec<u8>,
}

impl FromArgs {
    /// Resolves the options; a host that ssh reaches sends at most `rate` bytes per second. The
    /// error is a message.
    pub(super) fn resolve(&self, rate: Option<u64>) -> Result<(Vec<ReplicaAt>, Hosts), String> {
        let ssh = self.login.resolve()?;
        let places = self.from.iter().map(|from| place(from)).collect::<Result<Vec<_>, _>>()?;
        let served = places.iter().filter(|place| matches!(place, Location::Ticket(_))).count();
        match (self.ticket_file.len(), served) {
            (given, served) if given == served || (given == 1 && served > 1) => {}
            (0, _) => {
                return Err("--from :PATH names no host; use HOST:PATH, or --ticket-file FILE".to_owned());
            }
            _ => return Err("--ticket-file: use one for all --from :PATH, or one for each".to_owned()),
        }
        let tickets =
            self.ticket_file.iter().map(|file| ticket::read(file)).collect::<Result<Vec<_>, _>>()?;
        let mut tickets = tickets.iter().cycle();
        let (mut replicas, mut origins) = (Vec::new(), Vec::new());
        for place in places {
            let (host, path) = match place {
                Location::Local(path) => {
                    replicas.push(ReplicaAt::Here(path));
                    origins.push(None);
                    continue;
                }
                Location::Ssh { login, path } => (RemoteHost::Ssh { ssh: ssh.clone(), login }, path),
                Location::Ticket(path) => {
                    let ticket = tickets.next().ok_or("--from :PATH needs --ticket-file FILE")?;
                    (RemoteHost::Server(Box::new(ticket.clone())), typed::beneath_root(&path))
                }
            };
            replicas.push(ReplicaAt::There([&host.identity_bytes()[..], &path].join(&0)));
            origins.push(Some(Origin { host, path }));
        }
        Ok((replicas, Hosts { origins, resolved: ResolvedJobArgs::plain(rate) }))
    }
}

/// Parses the place of a replica. The error is a message, which repeats no secret.
fn place(from: &OsStr) -> Result<Location, String> {
    if typed::looks_like_ticket(from) {
        return Err(typed::not_local(from));
    }
    Location::parse(from).map_err(|error| error.to_string())
}

/// Connects to the hosts of replicas.
pub(super) struct HostConnector<'a> {
    pub(super) hosts: &'a Hosts,
    pub(super) stop: &'a AtomicBool,
}

impl Remotes for HostConnector<'_> {
    fn fetch(&self, replica: usize, asked: &ReplicaRequest<'_>) -> ReplicaResponse {
        let Some(Some(origin)) = self.hosts.origins.get(replica) else { return ().fetch(replica, asked) };
        let met = origin.host.connect(&self.hosts.resolved, &origin.path, self.stop);
        let (other, path, note) = match met {
            Ok(met) => met,
            Err(why) => return ReplicaResponse { broken: Some(why), ..ReplicaResponse::default() },
        };
        let (into, parts) = (asked.into.to_owned(), Arc::clone(&asked.parts));
        let lanes = other.lanes(self.hosts.resolved.lanes);
        let job = FetchJob { lanes, ..FetchJob::of_parts(path, into, asked.object, parts) };
        let heard = NoteCollector::default();
        let run_context = RunContext { stop: self.stop, tally: asked.tally, report: &heard, receipt: None };
        let ended = transfer::fetch_confined(
            &StoppableDialer { way: other.way(), stop: self.stop },
            &job,
            &run_context,
        );
        if let Peer::SshPeer(met) = other {
            // The exit of the remote haul does not affect the received data.
            met.part();
        }
        let (broken, received) = match ended {
            Ok(outcome) => {
                (outcome.broken.and_then(|reason| heard.cause_at_replica(&reason)), outcome.traffic.received)
            }
            Err(error) => (Some(error.to_string()), 0),
        };
        ReplicaResponse { notes: note.into_iter().chain(heard.into_notes()).collect(), broken, received }
    }
}

/// Collects notes on files that were not received, for the end of the session.
#[derive(Default)]
struct NoteCollector {
    notes: Mutex<Vec<String>>,
    /// True if this side has no free space for the files.
    lacks_room: AtomicBool,
}

impl NoteCollector {
    fn add(&self, note: String) {
        let mut notes = self.notes.lock();
        if notes.len() < NOTES_MAX {
            notes.push(note);
        }
    }

    /// Returns the reason for the end of a session, unless it is a lack of space on this host,
    /// which becomes a note.
    fn cause_at_replica(&self, reason: &Reason) -> Option<String> {
        if !reason.why.is_shortage() {
            return Some(reason.to_string());
        }
        self.lacks_room.store(true, Ordering::Relaxed);
        self.add(reason.to_string());
        None
    }

    fn into_notes(self) -> Vec<String> {
        let mut notes = self.notes.into_inner();
        if self.lacks_room.into_inner() {
            let next = "no space for received data; free space, or use --staging DIR on another file system";
            notes.push(next.to_owned());
        }
        notes
    }
}

impl Report for NoteCollector {
    fn failed(&self, failure: &Failure) {
        if failure.here && failure.reason.why.is_shortage() {
            self.lacks_room.store(true, Ordering::Relaxed);
        }
        self.add(failure.to_string());
    }

    fn note(&self, text: &str) {
        self.add(text.to_owned());
    }

    fn lane_lost(&self, lane: u32, why: &str) {
        self.add(format!("connection {lane} lost: {why}"));
    }
}
