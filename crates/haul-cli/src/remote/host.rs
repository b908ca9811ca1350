//! The remote host of a job: its options and the connection to it.

use super::args::ResolvedJobArgs;
use super::ending::Run;
use super::output::Output;
use super::pick::PickArgs;
use super::place::{Location, SshDestination};
use super::policy::PolicyArgs;
use super::ssh::{Ssh, SshArgs, SshPeer};
use super::ticket;
use super::typed::{self, StartError};
use super::way::{self, Connector};
use super::words;
use clap::Args;
use haul_net::Ticket;
use std::ffi::{OsStr, OsString};
use std::sync::atomic::AtomicBool;

/// Options that select the remote host.
#[derive(Args, Clone, Debug)]
pub(crate) struct HostArgs {
    /// Read the ticket of 'haul serve' from FILE, which must be readable only by you; - is standard
    /// input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh", "remote_haul", "ports", "inside_ssh", "waybill_there"], help_heading = "Remote host")]
    ticket_file: Option<OsString>,
    #[command(flatten)]
    ssh: SshArgs,
}

/// The remote host, before any data is sent to it.
pub(crate) enum RemoteHost {
    /// A host to log in to with ssh.
    Ssh { ssh: Ssh, login: SshDestination },
    /// A server that accepts the ticket.
    Server(Box<Ticket>),
}

/// The peer, after it was reached.
pub(crate) enum Peer {
    /// Reached over ssh.
    SshPeer(Box<SshPeer>),
    /// Reached with a ticket.
    Server(Connector),
}

impl HostArgs {
    /// Returns true if haul on the remote host writes a waybill.
    pub(crate) fn has_waybill_there(&self) -> bool {
        self.ssh.has_waybill_there()
    }

    /// Checks that the ticket and the operands of `pick` do not both come from standard input. The
    /// error is a message.
    pub(crate) fn shares_no_stdin_with(&self, pick: &PickArgs) -> Result<(), String> {
        if self.ticket_file.as_deref() == Some(OsStr::new("-")) && pick.reads_stdin() {
            return Err("cannot read both the ticket and --files-from from standard input; use a file for one of them".to_owned());
        }
        Ok(())
    }

    /// Returns the path of `operand` on the remote host, and the login if ssh is used. The error is
    /// a message.
    pub(crate) fn place(&self, operand: &OsStr) -> Result<(Vec<u8>, Option<SshDestination>), String> {
        match (Location::parse(operand).map_err(|error| error.to_string())?, &self.ticket_file) {
            (Location::Ssh { login, path }, None) => Ok((path, Some(login))),
            (Location::Ticket(path), Some(_)) => Ok((typed::beneath_root(&path), None)),
            (place, file) => Err(typed::wrong_target(operand, &place, file.is_some(), "haul cp")),
        }
    }

    /// Returns the host of `login`, or the host of the ticket if there is no login. The error is a
    /// message.
    pub(crate) fn resolve(&self, login: Option<SshDestination>) -> Result<RemoteHost, String> {
        match (login, &self.ticket_file) {
            (Some(login), _) => Ok(RemoteHost::Ssh { ssh: self.ssh.resolve()?, login }),
            (None, Some(file)) => Ok(RemoteHost::Server(Box::new(ticket::read(file)?))),
            (None, None) => {
                Err("no remote host given; write HOST:PATH, or use --ticket-file FILE".to_owned())
            }
        }
    }
}

impl RemoteHost {
    /// Lets the receiver at this host accept what `accept` names. The error is a message: a server
    /// decides for itself.
    pub(crate) fn accepting(self, accept: PolicyArgs) -> Result<RemoteHost, String> {
        match (self, accept.words().first()) {
            (RemoteHost::Ssh { mut ssh, login }, _) => {
                ssh.accept = accept;
                Ok(RemoteHost::Ssh { ssh, login })
            }
            (RemoteHost::Server(_), Some(word)) => {
                Err(format!("{word}: the server decides what it accepts; use the options of 'haul serve'"))
            }
            (server, None) => Ok(server),
        }
    }

    /// Returns the identity of the host, by which jobs distinguish hosts.
    pub(crate) fn identity_bytes(&self) -> Vec<u8> {
        match self {
            RemoteHost::Ssh { login, .. } => login.argument().into_encoded_bytes(),
            RemoteHost::Server(ticket) => ticket::identity_bytes(ticket),
        }
    }

    /// Connects to the host for `run`. Returns the peer, and the names of `paths` on that host.
    /// Prints the messages of ssh.
    ///
    /// # Errors
    /// Returns an error if the host cannot be reached or the two sides do not agree.
    pub(crate) fn reach(
        self,
        run: &Run<'_>,
        job: &ResolvedJobArgs,
        paths: Vec<Vec<u8>>,
        output: &Output<'_>,
    ) -> Result<(Peer, Vec<Vec<u8>>), StartError> {
        match self {
            RemoteHost::Ssh { .. } if job.link.sctp => {
                Err("--transport=sctp needs a ticket; use 'haul serve --transport=sctp'".to_owned().into())
            }
            RemoteHost::Ssh { ssh, login } => {
                let request = typed::request(job, &ssh, run.way, &paths);
                let met = ssh.meet(&login, &request, job, run.interrupt.flag());
                let mut met = met.map_err(|error| typed::not_met(output, &error, run.interrupt))?;
                typed::report_connection(output, &met, run.args.quiet);
                let paths = std::mem::take(&mut met.paths);
                Ok((Peer::SshPeer(Box::new(met)), paths))
            }
            RemoteHost::Server(ticket) => {
                // Only the sender keeps the rate.
                let rate = job.rate.filter(|_| run.way == words::Direction::Send);
                let dialer = way::dialer(*ticket, &job.link, rate, job.lanes, false);
                let dialer = dialer.map_err(|error| error.to_string())?;
                Ok((Peer::Server(Connector::outside(dialer, None)), paths))
            }
        }
    }
}

impl RemoteHost {
    /// Connects to the host to read its directory `path`, until `stop` is set. Returns the peer,
    /// the path there, and a note if the data goes inside ssh. The error is a message.
    pub(crate) fn connect(
        &self,
        resolved: &ResolvedJobArgs,
        path: &[u8],
        stop: &AtomicBool,
    ) -> Result<(Peer, Vec<u8>, Option<String>), String> {
        match self {
            RemoteHost::Ssh { ssh, login } => {
                let mut path = path.to_vec();
                if !path.is_empty() && !path.ends_with(b"/") {
                    path.push(b'/');
                }
                let request = typed::request(resolved, ssh, words::Direction::Fetch, &[path]);
                let met = ssh.meet(login, &request, resolved, stop);
                let mut met = met.map_err(|error| error.to_string())?;
                let path = met.paths.pop().ok_or("the remote haul sent no path")?;
                let note = met.note.take().map(|why| {
                    format!(
                        "sending the data through ssh in one connection: no direct connection possible: {why}"
                    )
                });
                Ok((Peer::SshPeer(Box::new(met)), path, note))
            }
            RemoteHost::Server(ticket) => {
                let ticket = Ticket::clone(ticket);
                let dialer = way::dialer(ticket, &resolved.link, None, resolved.lanes, false);
                let dialer = dialer.map_err(|error| error.to_string())?;
                Ok((Peer::Server(Connector::outside(dialer, None)), path.to_vec(), None))
            }
        }
    }
}

impl Peer {
    /// Returns the possible number of lanes, of `wanted`.
    pub(crate) fn lanes(&self, wanted: Option<u32>) -> Option<u32> {
        self.way().lanes(wanted)
    }

    /// Returns the opener of the lanes.
    pub(crate) fn way(&self) -> &Connector {
        match self {
            Peer::SshPeer(met) => &met.way,
            Peer::Server(way) => way,
        }
    }
}
