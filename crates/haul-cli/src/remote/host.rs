//! The other host of a job: what is typed about it, and the way there.

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

/// How the other host is found.
#[derive(Args, Clone, Debug)]
pub(crate) struct HostArgs {
    /// The ticket that 'haul serve' printed, in a file that only you may read; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh", "remote_haul", "ports", "inside_ssh", "waybill_there"], help_heading = "The other host")]
    ticket_file: Option<OsString>,
    #[command(flatten)]
    ssh: SshArgs,
}

/// The other host, before anything is said to it.
pub(crate) enum OtherHost {
    /// ssh logs in there.
    Ssh { ssh: Ssh, login: Login },
    /// It serves, and this lets us in.
    Server(Box<Ticket>),
}

/// The other side, however it was reached.
pub(crate) enum Other {
    /// By ssh.
    Met(Box<Met>),
    /// By a ticket.
    Server(Way),
}

impl HostArgs {
    /// Whether haul there is to write a receipt.
    pub(crate) fn has_waybill_there(&self) -> bool {
        self.ssh.has_waybill_there()
    }

    /// Standard input holds the ticket or the operands that `pick` reads, and not both. The error is a message.
    pub(crate) fn shares_no_stdin_with(&self, pick: &PickArgs) -> Result<(), String> {
        if self.ticket_file.as_deref() == Some(OsStr::new("-")) && pick.reads_stdin() {
            return Err("the ticket and --files-from can't both come by standard input".to_owned());
        }
        Ok(())
    }

    /// The path of `operand` at the other host and, where ssh leads there, who logs in. The error is a message.
    pub(crate) fn place(&self, operand: &OsStr) -> Result<(Vec<u8>, Option<Login>), String> {
        match (Place::parse(operand).map_err(|error| error.to_string())?, &self.ticket_file) {
            (Place::Ssh { login, path }, None) => Ok((path, Some(login))),
            (Place::Ticket(path), Some(_)) => Ok((typed::beneath_root(&path), None)),
            (place, file) => Err(typed::wrong_target(operand, &place, file.is_some(), "haul cp")),
        }
    }

    /// The host that `login` names or, without one, that the ticket is of. The error is a message.
    pub(crate) fn resolve(&self, login: Option<Login>) -> Result<OtherHost, String> {
        match (login, &self.ticket_file) {
            (Some(login), _) => Ok(OtherHost::Ssh { ssh: self.ssh.resolve()?, login }),
            (None, Some(file)) => Ok(OtherHost::Server(Box::new(ticket::read(file)?))),
            (None, None) => Err("say HOST:PATH, or --ticket-file FILE".to_owned()),
        }
    }
}

impl OtherHost {
    /// What it is told apart from other hosts by.
    pub(crate) fn told_apart_by(&self) -> Vec<u8> {
        match self {
            OtherHost::Ssh { login, .. } => login.argument().into_encoded_bytes(),
            OtherHost::Server(ticket) => ticket::told_apart_by(ticket),
        }
    }

    /// The way to it for `run`, and what `paths` are called there. What ssh has to say is told.
    ///
    /// # Errors
    /// There is no way, or no agreement.
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
                // Only who sends keeps the rate.
                let rate = job.rate.filter(|_| run.way == words::Way::Send);
                let dialer = way::dialer(*ticket, &job.link, (rate, job.lanes), false);
                let dialer = dialer.map_err(|error| error.to_string())?;
                Ok((Other::Server(Way::outside(dialer, None)), paths))
            }
        }
    }
}

impl Other {
    /// How many of `wanted` lanes there can be.
    pub(crate) fn lanes(&self, wanted: Option<u32>) -> Option<u32> {
        self.way().lanes(wanted)
    }

    /// What opens its lanes.
    pub(crate) fn way(&self) -> &Way {
        match self {
            Other::Met(met) => &met.way,
            Other::Server(way) => way,
        }
    }
}
