//! The remote host of a job: its options and the connection to it.

use super::args::JobMeant;
use super::ending::Run;
use super::output::Output;
use super::pick::PickArgs;
use super::place::{Login, Place};
use super::ssh::{Met, Ssh, SshArgs};
use super::ticket;
use super::typed::{self, Unbegun};
use super::way::{self, Way};
use super::words;
use clap::Args;
use haul_net::Ticket;
use std::ffi::{OsStr, OsString};

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
pub(crate) enum OtherHost {
    /// A host to log in to with ssh.
    Ssh { ssh: Ssh, login: Login },
    /// A server that accepts the ticket.
    Server(Box<Ticket>),
}

/// The peer, after it was reached.
pub(crate) enum Other {
    /// Reached over ssh.
    Met(Box<Met>),
    /// Reached with a ticket.
    Server(Way),
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
    pub(crate) fn place(&self, operand: &OsStr) -> Result<(Vec<u8>, Option<Login>), String> {
        match (Place::parse(operand).map_err(|error| error.to_string())?, &self.ticket_file) {
            (Place::Ssh { login, path }, None) => Ok((path, Some(login))),
            (Place::Ticket(path), Some(_)) => Ok((typed::beneath_root(&path), None)),
            (place, file) => Err(typed::wrong_target(operand, &place, file.is_some(), "haul cp")),
        }
    }

    /// Returns the host of `login`, or the host of the ticket if there is no login. The error is a
    /// message.
    pub(crate) fn resolve(&self, login: Option<Login>) -> Result<OtherHost, String> {
        match (login, &self.ticket_file) {
            (Some(login), _) => Ok(OtherHost::Ssh { ssh: self.ssh.resolve()?, login }),
            (None, Some(file)) => Ok(OtherHost::Server(Box::new(ticket::read(file)?))),
            (None, None) => {
                Err("no remote host given; write HOST:PATH, or use --ticket-file FILE".to_owned())
            }
        }
    }
}

impl OtherHost {
    /// Returns the identity of the host, by which jobs distinguish hosts.
    pub(crate) fn told_apart_by(&self) -> Vec<u8> {
        match self {
            OtherHost::Ssh { login, .. } => login.argument().into_encoded_bytes(),
            OtherHost::Server(ticket) => ticket::told_apart_by(ticket),
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
        job: &JobMeant,
        paths: Vec<Vec<u8>>,
        output: &Output<'_>,
    ) -> Result<(Other, Vec<Vec<u8>>), Unbegun> {
        match self {
            OtherHost::Ssh { ssh, login } => {
                let request = typed::request(job, &ssh, run.way, &paths);
                let met = ssh.meet(&login, &request, job, run.interrupt.flag());
                let mut met = met.map_err(|error| typed::not_met(output, &error, run.interrupt))?;
                typed::tell_way(output, &met, run.args.quiet);
                let paths = std::mem::take(&mut met.paths);
                Ok((Other::Met(Box::new(met)), paths))
            }
            OtherHost::Server(ticket) => {
                // Only the sender keeps the rate.
                let rate = job.rate.filter(|_| run.way == words::Way::Send);
                let dialer = way::dialer(*ticket, &job.link, (rate, job.lanes), false);
                let dialer = dialer.map_err(|error| error.to_string())?;
                Ok((Other::Server(Way::outside(dialer, None)), paths))
            }
        }
    }
}

impl Other {
    /// Returns the possible number of lanes, of `wanted`.
    pub(crate) fn lanes(&self, wanted: Option<u32>) -> Option<u32> {
        self.way().lanes(wanted)
    }

    /// Returns the opener of the lanes.
    pub(crate) fn way(&self) -> &Way {
        match self {
            Other::Met(met) => &met.way,
            Other::Server(way) => way,
        }
    }
}
