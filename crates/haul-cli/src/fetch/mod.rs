//! `haul fetch`: fetches files from another host.

use crate::interrupt::Interrupt;
use crate::jobs::log_args::StyleArgs;
use crate::remote::args::{JobArgs, ResolvedJobArgs};
use crate::remote::ending::Run;
use crate::remote::entry;
use crate::remote::host::{HostArgs, RemoteHost};
use crate::remote::output::{Output, Side};
use crate::remote::pick::PickArgs;
use crate::remote::place::Location;
use crate::remote::policy::PolicyArgs;
use crate::remote::typed::{self, StartError};
use crate::remote::words::Direction;
use clap::{ArgMatches, Parser};
use haul_engine::copy::quote;
use haul_engine::transfer::{self, FetchJob, Filter, Rule};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

const NAME: &str = "haul fetch";

/// Fetch files and trees from another host, and compare every object here.
///
/// HOST:PATH uses ssh, which starts haul there and only transfers the keys. The data uses
/// separate encrypted connections, or goes through ssh if no port is reachable. DIR is a directory
/// and is created if it is missing. A directory is copied under its name; with a trailing slash,
/// only its contents are copied.
///
/// With --ticket-file the remote host runs 'haul serve': write :PATH, below the served directory,
/// or : for all of it. A ticket is a secret: pass it in a file or on standard input, never as an
/// argument.
///
/// Exit status: 0 all files arrived, 1 some files did not arrive, 2 nothing was started.
#[derive(Debug, Parser)]
#[command(
    name = "haul fetch",
    disable_version_flag = true,
    override_usage = "haul fetch [OPTION]... [USER@]HOST:PATH... DIR\n       haul fetch [OPTION]... --ticket-file FILE :PATH... DIR"
)]
struct Args {
    /// Fetch these files, all from one host, into DIR.
    #[arg(value_name = "HOST:PATH... DIR", required = true)]
    operands: Vec<OsString>,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    accept: PolicyArgs,
    #[command(flatten)]
    pick: PickArgs,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    log: StyleArgs,
}

/// Resolved options of the command.
struct ResolvedArgs {
    paths: Vec<Vec<u8>>,
    host: RemoteHost,
    into: OsString,
    rules: Vec<Rule>,
    job: ResolvedJobArgs,
}

/// Runs the command with `args`, which do not include the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    typed::run::<Args>(NAME, args, |args, matches| start(args, args.resolve(matches)?))
}

impl Args {
    fn resolve(&self, matches: &ArgMatches) -> Result<ResolvedArgs, String> {
        let mut job = self.job.resolve()?.with_log_style(self.log.style());
        let rules = self.pick.rules(matches);
        // An invalid pattern is reported before any connection is opened.
        Filter::new(&rules).map_err(|error| error.to_string())?;
        job.options.keep = self.accept.limit(job.options.keep);
        let (last, sources) =
            self.operands.split_last().ok_or("missing HOST:PATH; write HOST:PATH... DIR")?;
        self.host.shares_no_stdin_with(&self.pick)?;
        let listed = self.pick.listed()?;
        let sources: Vec<&OsString> = sources.iter().chain(&listed).collect();
        if sources.is_empty() {
            return Err("missing HOST:PATH or DIR; write HOST:PATH... DIR".to_owned());
        }
        let Location::Local(into) = Location::parse(last).map_err(|error| error.to_string())? else {
            return Err(typed::not_local(last));
        };
        let (mut paths, mut login) = (Vec::new(), None);
        for operand in sources {
            let (path, of) = self.host.place(operand)?;
            if paths.is_empty() {
                login = of;
            } else if login != of {
                return Err(format!("{} is on another host; fetch from one host at a time", quote(operand)));
            }
            paths.push(path);
        }
        if login.is_none() && (job.rate.is_some() || job.link.congestion.is_some()) {
            return Err("--rate and --cc apply to the sender; set them on 'haul serve' instead".to_owned());
        }
        let host = self.host.resolve(login)?;
        Ok(ResolvedArgs { paths, host, into, rules, job })
    }
}

/// Returns true if `told`, a path below the directory that the remote host opens, ends in the
/// requested name. Files appear here under the last part of that path. If the contents of a
/// directory were requested, any name is accepted.
fn is_answer(asked: &[u8], told: &[u8]) -> bool {
    let last = |path: &[u8]| path.rsplit(|&byte| byte == b'/').next().unwrap_or_default().to_vec();
    let name = last(asked);
    asked == b"~" || matches!(&name[..], b"" | b"." | b"..") || name == last(told)
}

fn start(args: &Args, resolved: ResolvedArgs) -> Result<u8, StartError> {
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let (json, verbose, dry_run) = (args.job.json, args.job.verbose, args.job.dry_run);
    let output = Output::new(NAME, json, verbose, dry_run, interrupt.flag())
        .with_recorder(args.job.transport.recorder(Side::Sink)?);
    let ResolvedArgs { paths, host, into, rules, job } = resolved;
    let server = host.identity_bytes();
    let words: Vec<&[u8]> = std::iter::once(&server).chain(&paths).map(Vec::as_slice).collect();
    let mut resume = job.resume(&words, |why| output.note(why));
    if let Some(resume) = resume.as_mut().filter(|_| !dry_run) {
        // The sink's log belongs to this command's job.
        resume.command =
            Some(entry::job("fetch", &entry::words(), &std::env::current_dir().unwrap_or_default()));
    }
    let run = Run {
        tool: NAME,
        args: &args.job,
        interrupt: &interrupt,
        way: Direction::Fetch,
        has_waybill_there: args.host.has_waybill_there(),
        state: resume.as_ref().map(|resume| resume.state.clone()),
        rate: job.rate,
    };
    let (other, told) = host.reach(&run, &job, paths.clone(), &output)?;
    if let Some((path, _)) = paths.iter().zip(&told).find(|(path, told)| !is_answer(path, told)) {
        let path = quote(OsStr::from_bytes(path));
        return Err(
            format!("{path}: the remote haul answered with a different path; nothing was fetched").into()
        );
    }
    let fetch = FetchJob {
        paths: told,
        into,
        rules,
        parts: None,
        options: job.options,
        policy: args.accept.policy(),
        lanes: other.lanes(job.lanes),
        buffers: job.buffers,
        resume,
    };
    Ok(run.go(other, output, |dial, watch| transfer::fetch_confined(dial, &fetch, watch)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_from_the_server_must_end_in_the_requested_name() {
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
