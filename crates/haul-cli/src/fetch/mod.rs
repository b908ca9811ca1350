//! `haul fetch`: files of another host to this one.

use crate::interrupt::Interrupt;
use crate::remote::args::{JobArgs, JobMeant};
use crate::remote::ending::{Other, Run};
use crate::remote::output::{Output, Side};
use crate::remote::pick::PickArgs;
use crate::remote::place::{Login, Place};
use crate::remote::ssh::{Ssh, SshArgs};
use crate::remote::way::{self, Way};
use crate::remote::words::Way as Direction;
use crate::remote::{ticket, typed};
use clap::{ArgMatches, Parser};
use haul_engine::copy::quote;
use haul_engine::transfer::{self, FetchJob, Filter, Rule};
use haul_net::Ticket;
use haul_proto::Keep;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

const NAME: &str = "haul fetch";

/// Fetch files and trees of another host, and have every object compared here.
///
/// HOST:PATH goes by ssh, which starts haul there and only hands the keys over; the data takes connections of its own beside
/// it, encrypted, or goes inside ssh where no port can be reached. DIR is a directory, and made if it is missing. A directory
/// goes by its name; with a slash behind it, what lies in it goes without it.
///
/// With --ticket-file the other side is a 'haul serve': write :PATH, beneath the directory that it serves, or : for all of
/// it. A ticket is a secret and stands in a file or comes by standard input, never among the arguments.
///
/// Exit status: 0 all arrived, 1 not all, 2 nothing could be begun.
#[derive(Debug, Parser)]
#[command(
    name = "haul fetch",
    disable_version_flag = true,
    override_usage = "haul fetch [OPTION]... [USER@]HOST:PATH... DIR\n       haul fetch [OPTION]... --ticket-file FILE :PATH... DIR"
)]
struct Args {
    /// What to fetch, all of one host, and where to.
    #[arg(value_name = "HOST:PATH... DIR", required = true)]
    operands: Vec<OsString>,
    /// The ticket that 'haul serve' printed, in a file that only you may read; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh", "remote_haul", "ports", "inside_ssh", "waybill_there"], help_heading = "The other host")]
    ticket_file: Option<OsString>,
    #[command(flatten)]
    ssh: SshArgs,
    /// Keep setuid and setgid bits, too: only from a host that you trust as you trust this one.
    #[arg(long, help_heading = "What is kept")]
    setuid: bool,
    #[command(flatten)]
    pick: PickArgs,
    #[command(flatten)]
    job: JobArgs,
}

/// What was meant.
struct Meant {
    paths: Vec<Vec<u8>>,
    from: Origin,
    into: OsString,
    rules: Vec<Rule>,
    job: JobMeant,
}

enum Origin {
    Ssh { ssh: Ssh, login: Login },
    Server(Box<Ticket>),
}

/// Fetches what `args` say; they come without the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    typed::run::<Args>(NAME, args, |args, matches| start(args, args.resolve(matches)?))
}

impl Args {
    fn resolve(&self, matches: &ArgMatches) -> Result<Meant, String> {
        let mut job = self.job.resolve()?;
        let rules = self.pick.rules(matches);
        // A pattern that can't be understood is told before anyone is asked.
        Filter::new(&rules).map_err(|error| error.to_string())?;
        if !self.setuid {
            job.options.keep = Keep(job.options.keep.0 & !Keep::SETUID.0);
        }
        let (last, sources) = self.operands.split_last().ok_or("nothing to fetch")?;
        let from_stdin = OsString::from("-");
        if self.ticket_file.as_ref() == Some(&from_stdin) && self.pick.reads_stdin() {
            return Err("the ticket and --files-from can't both come by standard input".to_owned());
        }
        let listed = self.pick.listed()?;
        let sources: Vec<&OsString> = sources.iter().chain(&listed).collect();
        if sources.is_empty() {
            return Err("say where to: HOST:PATH... DIR".to_owned());
        }
        let Place::Local(into) = Place::parse(last).map_err(|error| error.to_string())? else {
            return Err(typed::not_local(last));
        };
        let (mut paths, mut host) = (Vec::new(), None);
        for operand in sources {
            let (path, login) = self.source(operand)?;
            if paths.is_empty() {
                host = login;
            } else if host != login {
                return Err(format!("{}: all that is fetched at once is of one host", quote(operand)));
            }
            paths.push(path);
        }
        let from = match (host, &self.ticket_file) {
            (Some(login), _) => Origin::Ssh { ssh: self.ssh.resolve()?, login },
            (None, Some(file)) => {
                if job.rate.is_some() || job.link.congestion.is_some() {
                    return Err(
                        "--rate and --cc are for the side that sends: 'haul serve' has them, too".to_owned()
                    );
                }
                Origin::Server(Box::new(ticket::read(file)?))
            }
            (None, None) => return Err("say HOST:PATH, or --ticket-file FILE".to_owned()),
        };
        Ok(Meant { paths, from, into, rules, job })
    }

    /// A source's path and, where ssh is to reach it, its host.
    fn source(&self, operand: &OsStr) -> Result<(Vec<u8>, Option<Login>), String> {
        match (Place::parse(operand).map_err(|error| error.to_string())?, &self.ticket_file) {
            (Place::Ssh { login, path }, None) => Ok((path, Some(login))),
            (Place::Ticket(path), Some(_)) => Ok((typed::beneath_root(&path), None)),
            (place, file) => Err(typed::wrong_target(operand, &place, file.is_some(), "haul cp")),
        }
    }
}

/// Whether what another host calls a path beneath the directory that it opens brings the name that was asked for, and no other:
/// files appear here by the last part of it. Of a directory's contents any name may come.
fn is_answer(asked: &[u8], told: &[u8]) -> bool {
    let last = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
    let name = last(asked);
    asked == b"~" || matches!(&name[..], b"" | b"." | b"..") || name == last(told)
}

fn start(args: &Args, meant: Meant) -> Result<u8, String> {
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let stop = interrupt.flag();
    let output = Output::new(NAME, args.job.json, args.job.verbose, args.job.dry_run, stop);
    let Meant { paths, from, into, rules, job } = meant;
    let tell = |why: &str| output.note(why);
    let typed = |server: &[u8]| {
        let words: Vec<&[u8]> = std::iter::once(server).chain(paths.iter().map(Vec::as_slice)).collect();
        job.resume(&words, tell)
    };
    let (other, resume, met_paths) = match from {
        Origin::Ssh { ssh, login } => {
            let resume = typed(login.argument().as_encoded_bytes());
            let request = typed::request(&job, &ssh, Direction::Fetch, &paths, job.rate);
            let mut met = match ssh.meet(&login, &request, &job, stop) {
                Ok(met) => met,
                Err(error) => return Ok(typed::not_met(output, &error, &interrupt)),
            };
            typed::tell_way(&output, &met, args.job.quiet);
            let told = std::mem::take(&mut met.paths);
            if let Some((path, _)) = paths.iter().zip(&told).find(|(path, told)| !is_answer(path, told)) {
                return Err(format!(
                    "{}: haul at {} answers with another path; nothing is taken from it",
                    quote(OsStr::from_bytes(path)),
                    quote(&login.argument()),
                ));
            }
            (Other::Met(Box::new(met)), resume, Some(told))
        }
        Origin::Server(ticket) => {
            let resume = typed(&ticket::told_apart_by(&ticket));
            let dialer = way::dialer(*ticket, &job.link, (None, job.lanes), false)
                .map_err(|error| error.to_string())?;
            (Other::Server(Way::outside(dialer, None)), resume, None)
        }
    };
    let lanes = other.lanes(job.lanes);
    let paths = met_paths.unwrap_or(paths);
    let fetch = FetchJob { paths, into, rules, options: job.options, lanes, buffers: job.buffers, resume };
    let run = Run {
        tool: NAME,
        args: &args.job,
        interrupt: &interrupt,
        side: Side::Sink,
        has_waybill_there: args.ssh.has_waybill_there(),
        state: fetch.resume.as_ref().map(|resume| resume.state.clone()),
    };
    Ok(run.go(other, output, |dial, watch| transfer::fetch(dial, &fetch, watch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_believed_by_the_name_that_was_asked_for() {
        for (asked, told) in [
            ("data", "data"),
            ("/a/b/data", "b/data"),
            ("~/data", "data"),
            ("data/", "elsewhere/"),
            ("", "home/"),
            ("~", "home/"),
            ("a/..", "."),
        ] {
            assert!(is_answer(asked.as_bytes(), told.as_bytes()), "{asked} {told}");
        }
        for (asked, told) in [("data", ".bashrc"), ("data", "data/"), ("a/data", "a"), ("x/~", "y")] {
            assert!(!is_answer(asked.as_bytes(), told.as_bytes()), "{asked} {told}");
        }
    }
}
