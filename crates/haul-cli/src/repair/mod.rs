//! `haul repair`: repairs damaged data from replicas, by a waybill.

mod args;
mod from;
mod output;

use crate::console;
use crate::interrupt::Interrupt;
use crate::jobs::own::OwnJob;
use crate::progress::{self, ProgressSnapshot};
use args::Args;
use from::HostConnector;
use haul_engine::repair::{Remotes, RepairSettings, RepairTally, repair};
use haul_engine::sum::Counters;
use output::Output;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Exit status if damage is left.
const EXIT_LEFT_DAMAGED: u8 = 1;

/// Exit status if nothing, or not everything, could be checked.
const EXIT_ERROR: u8 = 2;

const NAME: &str = "haul repair";

/// Runs the command with `args`, which do not include the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let args = match console::typed::<Args>(NAME, args, EXIT_ERROR) {
        Ok(args) => args,
        Err(status) => return status,
    };
    match start(&args) {
        Ok(status) => ExitCode::from(status),
        Err(message) => {
            eprintln!("{NAME}: {message}");
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn start(args: &Args) -> Result<u8, String> {
    let (mut settings, hosts) = args.resolve()?;
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let counters = Counters::new();
    let job = OwnJob::open(NAME, "repair", &args.place);
    settings.resume = job.state_file();
    let reach = HostConnector { hosts: &hosts, stop: interrupt.flag() };
    let ended = repair_as(args, &settings, &reach, &job, &counters, &interrupt);
    let was_stopped = interrupt.flag().load(Ordering::Relaxed);
    job.end(*ended.as_ref().unwrap_or(&EXIT_ERROR), was_stopped, &counters);
    ended
}

fn repair_as(
    args: &Args,
    settings: &RepairSettings,
    remotes: &dyn Remotes,
    job: &OwnJob,
    counters: &Counters,
    interrupt: &Interrupt,
) -> Result<u8, String> {
    let stop = interrupt.flag();
    let Args { json, dry_run, quiet, .. } = *args;
    let replicas = &args.from.from[..];
    let mut output = Output { name: NAME, json, dry_run, quiet, replicas, broken: None, stop };
    let wanted = args.progress || progress::is_shown_by_default(NAME, true);
    let work = || repair(settings, remotes, &mut output, counters, stop);
    let tally =
        progress::watch(wanted, || ProgressSnapshot::from(counters), || job.during(counters, || (), work));
    let tally = tally.map_err(|error| error.to_string())?;
    let interrupted = stop.load(Ordering::Relaxed) && output.broken.is_none();
    output.summary(&tally, interrupted);
    if let Some(error) = output.broken {
        return Ok(console::unwritten(NAME, &error, EXIT_ERROR));
    }
    if interrupted {
        return Ok(interrupt.status());
    }
    Ok(match tally {
        RepairTally { left: 0, .. } => 0,
        RepairTally { unreached: 0, .. } => EXIT_LEFT_DAMAGED,
        _ => EXIT_ERROR,
    })
}
