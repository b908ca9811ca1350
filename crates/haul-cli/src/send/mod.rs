//! `haul send`: files of this host to another.

use crate::interrupt::Interrupt;
use crate::remote::args::{JobArgs, JobMeant};
use crate::remote::ending::{FAILED, Other, Run};
use crate::remote::output::{Output, Side};
use crate::remote::pick::PickArgs;
use crate::remote::place::{Login, Place};
use crate::remote::ssh::{Ssh, SshArgs};
use crate::remote::ticket;
use crate::remote::typed::{self, TROUBLE};
use crate::remote::way::{self, Way};
use crate::remote::words::Way as Direction;
use clap::Parser;
use haul_engine::copy::quote;
use haul_engine::transfer::{self, Filter, SendJob};
use haul_net::Ticket;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

const NAME: &str = "haul send";

/// Send files and trees to another host, and have every object compared there.
///
/// HOST:DIR goes by ssh, which starts haul there and only hands the keys over; the data takes connections of its own beside
/// it, encrypted, or goes inside ssh where no port can be reached. DIR is a directory, and made if it is missing. A SOURCE
/// directory goes by its name; with a slash behind it, what lies in it goes without it.
///
/// With --ticket-file the other side is a 'haul serve': write :DIR, beneath the directory that it serves, or : for that
/// itself. A ticket is a secret and stands in a file or comes by standard input, never among the arguments.
///
/// Exit status: 0 all arrived, 1 not all, 2 nothing could be begun.
#[derive(Debug, Parser)]
#[command(
    name = "haul send",
    disable_version_flag = true,
    override_usage = "haul send [OPTION]... SOURCE... [USER@]HOST:DIR\n       haul send [OPTION]... --ticket-file FILE SOURCE... :DIR"
)]
struct Args {
    /// What to send, and where to.
    #[arg(value_name = "SOURCE... HOST:DIR", required = true)]
    operands: Vec<OsString>,
    /// The ticket that 'haul serve' printed, in a file that only you may read; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh", "remote_haul", "ports", "inside_ssh", "waybill_there"], help_heading = "The other host")]
    ticket_file: Option<OsString>,
    #[command(flatten)]
    ssh: SshArgs,
    #[command(flatten)]
    pick: PickArgs,
    /// Stay in each SOURCE's file system.
    #[arg(short = 'x', long, help_heading = "What is sent")]
    one_file_system: bool,
    #[command(flatten)]
    job: JobArgs,
}

/// What was meant.
struct Meant {
    sources: Vec<OsString>,
    filter: Filter,
    to: To,
    job: JobMeant,
}

enum To {
    Ssh { ssh: Ssh, login: Login, directory: Vec<u8> },
    Server { ticket: Box<Ticket>, directory: Vec<u8> },
}

/// Sends what `args` say; they come without the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    typed::run::<Args>(NAME, args, |args, matches| {
        let meant = args.resolve(matches)?;
        start(args, meant)
    })
}

impl Args {
    fn resolve(&self, matches: &clap::ArgMatches) -> Result<Meant, String> {
        let job = self.job.resolve()?;
        let filter = self.pick.filter(matches)?;
        let (last, sources) = self.operands.split_last().ok_or("nothing to send")?;
        let from_stdin = OsString::from("-");
        if self.ticket_file.as_ref() == Some(&from_stdin) && self.pick.reads_stdin() {
            return Err("the ticket and --files-from can't both come by standard input".to_owned());
        }
        let mut sources = sources.iter().map(|operand| local(operand)).collect::<Result<Vec<_>, _>>()?;
        let target = Place::parse(last).map_err(|error| error.to_string())?;
        let to = match (target, &self.ticket_file) {
            (Place::Ssh { login, path }, None) => {
                To::Ssh { ssh: self.ssh.resolve()?, login, directory: path }
            }
            (Place::Ticket(directory), Some(file)) => {
                let directory = typed::beneath_root(&directory);
                To::Server { ticket: Box::new(ticket::read(file)?), directory }
            }
            (place, file) => return Err(typed::wrong_target(last, &place, file.is_some(), "haul cp")),
        };
        sources.extend(self.pick.listed()?);
        if sources.is_empty() {
            return Err("nothing to send: name a SOURCE before the HOST:DIR".to_owned());
        }
        Ok(Meant { sources, filter, to, job })
    }
}

/// A source, which is of this host.
fn local(operand: &OsStr) -> Result<OsString, String> {
    match Place::parse(operand).map_err(|error| error.to_string())? {
        Place::Local(path) => Ok(path),
        Place::Ssh { .. } | Place::Ticket(_) => Err(typed::not_local(operand)),
    }
}

fn start(args: &Args, meant: Meant) -> Result<u8, String> {
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let stop = interrupt.flag();
    let output = Output::new(NAME, args.job.json, args.job.verbose, args.job.dry_run, stop);
    let Meant { sources, filter, to, mut job } = meant;
    let asked = sources.len();
    let sources = present(sources, &output);
    if sources.is_empty() {
        return Ok(TROUBLE);
    }
    let is_missing_some = sources.len() < asked;
    if is_missing_some && job.options.delete {
        output.note("nothing is deleted, because not all of the source is there");
        job.options.delete = false;
    }
    let (other, directory, resume) = match to {
        To::Ssh { ssh, login, directory } => {
            let host = login.argument();
            let resume = job.resume(&[host.as_encoded_bytes(), &directory], |why| output.note(why));
            let request = typed::request(&job, &ssh, Direction::Send, &[directory], None);
            let mut met = match ssh.meet(&login, &request, &job, stop) {
                Ok(met) => met,
                Err(error) => return Ok(typed::not_met(output, &error, &interrupt)),
            };
            typed::tell_way(&output, &met, args.job.quiet);
            let directory = met.paths.pop().unwrap_or_default();
            (Other::Met(Box::new(met)), directory, resume)
        }
        To::Server { ticket, directory } => {
            let server = ticket::told_apart_by(&ticket);
            let resume = job.resume(&[&server, &directory], |why| output.note(why));
            let dialer = way::dialer(*ticket, &job.link, (job.rate, job.lanes), false)
                .map_err(|error| error.to_string())?;
            (Other::Server(Way::outside(dialer, None)), directory, resume)
        }
    };
    let lanes = other.lanes(job.lanes);
    let one_file_system = args.one_file_system;
    let send = SendJob {
        sources,
        filter,
        one_file_system,
        options: job.options,
        to: directory,
        lanes,
        buffers: job.buffers,
        resume,
    };
    let run = Run {
        tool: NAME,
        args: &args.job,
        interrupt: &interrupt,
        side: Side::Source,
        has_waybill_there: args.ssh.has_waybill_there(),
        state: send.resume.as_ref().map(|resume| resume.state.clone()),
    };
    let status = run.go(other, output, |dial, watch| transfer::send(dial, &send, watch));
    Ok(if status == 0 && is_missing_some { FAILED } else { status })
}

/// The sources that are there; the others are told.
fn present(sources: Vec<OsString>, output: &Output<'_>) -> Vec<OsString> {
    let is_there = |source: &OsString| match std::fs::symlink_metadata(source) {
        Ok(_) => true,
        Err(error) => {
            output.failure(&format_args!("{}: {}", quote(source), haul_engine::sum::reason(&error)));
            false
        }
    };
    sources.into_iter().filter(is_there).collect()
}
