//! `haul send`: sends files of this host to another host.

use crate::interrupt::Interrupt;
use crate::remote::args::{JobArgs, ResolvedJobArgs};
use crate::remote::ending::{EXIT_FAILED, Run};
use crate::remote::host::{HostArgs, RemoteHost};
use crate::remote::output::{Output, Side};
use crate::remote::pick::PickArgs;
use crate::remote::place::Location;
use crate::remote::policy::PolicyArgs;
use crate::remote::typed::{self, EXIT_ERROR, StartError};
use crate::remote::words::Direction;
use clap::Parser;
use haul_engine::copy::quote;
use haul_engine::transfer::{self, CheckSpace, Filter, SendJob};
use haul_storage::local::LocalStorage;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::Arc;

const NAME: &str = "haul send";

/// Send files and trees to another host, and compare every object there.
///
/// HOST:DIR uses ssh, which starts haul there and only transfers the keys. The data uses separate
/// encrypted connections, or goes through ssh if no port is reachable. DIR is a directory and is
/// created if it is missing. A SOURCE directory is copied under its name; with a trailing slash,
/// only its contents are copied.
///
/// With --ticket-file the remote host runs 'haul serve': write :DIR, below the served directory, or
/// : for the served directory itself. A ticket is a secret: pass it in a file or on standard input,
/// never as an argument.
///
/// Exit status: 0 all files arrived, 1 some files did not arrive, 2 nothing was started.
#[derive(Debug, Parser)]
#[command(
    name = "haul send",
    disable_version_flag = true,
    override_usage = "haul send [OPTION]... SOURCE... [USER@]HOST:DIR\n       haul send [OPTION]... --ticket-file FILE SOURCE... :DIR"
)]
struct Args {
    /// Send SOURCE... to the directory HOST:DIR.
    #[arg(value_name = "SOURCE... HOST:DIR", required = true)]
    operands: Vec<OsString>,
    #[command(flatten)]
    host: HostArgs,
    #[command(flatten)]
    accept: PolicyArgs,
    #[command(flatten)]
    pick: PickArgs,
    /// Do not cross file systems below a SOURCE.
    #[arg(short = 'x', long, help_heading = "File selection")]
    one_file_system: bool,
    /// Add up the sizes before the job starts and compare them with the free space of the remote
    /// host: warn, or refuse to send.
    #[arg(long, value_name = "HOW", value_parser = ["warn", "refuse"], help_heading = "File selection")]
    check_space: Option<String>,
    /// Send nothing, and delete what an interrupted run left at the remote host; used by 'haul jobs
    /// forget'.
    #[arg(long, hide = true)]
    forget: bool,
    #[command(flatten)]
    job: JobArgs,
    /// Refused: the receiver chooses the layout of its log.
    #[arg(long, value_name = "MECHANISM", hide = true)]
    log_mechanism: Option<OsString>,
    /// Refused: the receiver chooses the layout of its log.
    #[arg(long, value_name = "ENCODING", hide = true)]
    log_encoding: Option<OsString>,
}

/// Resolved options of the command.
struct ResolvedArgs {
    sources: Vec<OsString>,
    filter: Filter,
    host: RemoteHost,
    directory: Vec<u8>,
    job: ResolvedJobArgs,
}

/// Runs the command with `args`, which do not include the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    typed::run::<Args>(NAME, args, |args, matches| start(args, args.resolve(matches)?))
}

impl Args {
    fn resolve(&self, matches: &clap::ArgMatches) -> Result<ResolvedArgs, String> {
        let of_receiver = [("--log-mechanism", &self.log_mechanism), ("--log-encoding", &self.log_encoding)];
        if let Some((option, _)) = of_receiver.into_iter().find(|(_, typed)| typed.is_some()) {
            return Err(format!(
                "{option}: the receiver chooses the layout of its log; use the option with 'haul serve', \
                 or with 'haul meet' in a forced command of ssh"
            ));
        }
        let job = self.job.resolve()?;
        let filter = self.pick.filter(matches)?;
        let (last, sources) = self.operands.split_last().ok_or("missing SOURCE; write SOURCE... HOST:DIR")?;
        self.host.shares_no_stdin_with(&self.pick)?;
        let mut sources = sources.iter().map(|operand| local(operand)).collect::<Result<Vec<_>, _>>()?;
        let (directory, login) = self.host.place(last)?;
        let host = self.host.resolve(login)?.accepting(self.accept)?;
        sources.extend(self.pick.listed()?);
        if sources.is_empty() {
            return Err("missing SOURCE; write SOURCE... HOST:DIR".to_owned());
        }
        Ok(ResolvedArgs { sources, filter, host, directory, job })
    }
}

/// Returns a source operand, which must be on this host.
fn local(operand: &OsStr) -> Result<OsString, String> {
    match Location::parse(operand).map_err(|error| error.to_string())? {
        Location::Local(path) => Ok(path),
        Location::Ssh { .. } | Location::Ticket(_) => Err(typed::not_local(operand)),
    }
}

fn start(args: &Args, resolved: ResolvedArgs) -> Result<u8, StartError> {
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let (json, verbose, dry_run) = (args.job.json, args.job.verbose, args.job.dry_run);
    let output = Output::new(NAME, json, verbose, dry_run, interrupt.flag())
        .with_recorder(args.job.transport.recorder(Side::Source)?);
    let ResolvedArgs { sources, filter, host, directory, mut job } = resolved;
    let asked = sources.len();
    let sources = if args.forget { sources } else { present(sources, &output) };
    if sources.is_empty() {
        return Ok(EXIT_ERROR);
    }
    let is_missing_some = sources.len() < asked;
    if is_missing_some && job.options.delete {
        output.note("deletions skipped: some sources cannot be read");
        job.options.delete = false;
    }
    let resume = job.resume(&[&host.identity_bytes(), &directory], |why| output.note(why));
    let mut forgetting = args.job.clone();
    forgetting.waybill = None;
    let run = Run {
        tool: NAME,
        args: if args.forget { &forgetting } else { &args.job },
        interrupt: &interrupt,
        way: Direction::Send,
        has_waybill_there: args.host.has_waybill_there(),
        state: resume.as_ref().filter(|_| !args.forget).map(|resume| resume.state.clone()),
        rate: job.rate,
    };
    let (other, mut directory) = host.reach(&run, &job, vec![directory], &output)?;
    let send = SendJob {
        storage: Arc::new(LocalStorage),
        sources,
        filter,
        one_file_system: args.one_file_system,
        options: job.options,
        to: directory.pop().unwrap_or_default(),
        lanes: other.lanes(job.lanes),
        buffers: job.buffers,
        resume,
        check_space: match args.check_space.as_deref() {
            Some("refuse") => CheckSpace::Refuse,
            Some(_) => CheckSpace::Warn,
            None => CheckSpace::Files,
        },
        forgets: args.forget,
    };
    let status = run.go(other, output, |dial, watch| transfer::send(dial, &send, watch));
    Ok(if status == 0 && is_missing_some { EXIT_FAILED } else { status })
}

/// Returns the existing sources and reports the others.
fn present(sources: Vec<OsString>, output: &Output<'_>) -> Vec<OsString> {
    let is_there = |source: &OsString| match std::fs::symlink_metadata(source) {
        Ok(_) => true,
        Err(error) => {
            output.failure(&format_args!(
                "cannot read {}: {}",
                quote(source),
                haul_engine::sum::reason(&error)
            ));
            false
        }
    };
    sources.into_iter().filter(is_there).collect()
}
