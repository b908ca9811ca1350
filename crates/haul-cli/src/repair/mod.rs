//! `haul repair`: damaged data mended from replicas, by a waybill.

mod args;
mod output;

use crate::console;
use crate::interrupt::Interrupt;
use crate::jobs::own::OwnJob;
use crate::progress::{self, Standing};
use args::Args;
use haul_engine::repair::{RepairSettings, repair};
use haul_engine::sum::Counters;
use output::Output;
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Something is not as the waybill says, still.
const LEFT: u8 = 1;

/// Nothing, or not all, could be looked at.
const TROUBLE: u8 = 2;

const NAME: &str = "haul repair";

/// Repairs what `args` say; they come without the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let args = match console::typed::<Args>(NAME, args, TROUBLE) {
        Ok(args) => args,
        Err(status) => return status,
    };
    match start(&args) {
        Ok(status) => ExitCode::from(status),
        Err(message) => {
            eprintln!("{NAME}: {message}");
            ExitCode::from(TROUBLE)
        }
    }
}

fn start(args: &Args) -> Result<u8, String> {
    let mut settings = args.resolve()?;
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let counters = Counters::new();
    let job = OwnJob::open(NAME, "repair", &args.place);
    settings.resume = job.state_file();
    let ended = repair_as(args, &settings, &job, &counters, &interrupt);
    let was_stopped = interrupt.flag().load(Ordering::Relaxed);
    job.end(*ended.as_ref().unwrap_or(&TROUBLE), was_stopped, &counters);
    ended
}

fn repair_as(
    args: &Args,
    settings: &RepairSettings,
    job: &OwnJob,
    counters: &Counters,
    interrupt: &Interrupt,
) -> Result<u8, String> {
    let stop = interrupt.flag();
    let (json, dry_run, replicas) = (args.json, args.dry_run, &settings.replicas[..]);
    let mut output = Output { name: NAME, json, dry_run, replicas, broken: None, stop };
    let wanted = args.progress || progress::is_drawn_unasked(NAME, true);
    let work = || repair(settings, &mut output, counters, stop);
    let tally = progress::watch(wanted, || Standing::from(counters), || job.during(counters, || (), work));
    let tally = tally.map_err(|error| error.to_string())?;
    let interrupted = stop.load(Ordering::Relaxed) && output.broken.is_none();
    output.summary(&tally, !args.quiet, interrupted);
    if let Some(error) = output.broken {
        return Err(format!("write error: {error}"));
    }
    if interrupted {
        return Ok(interrupt.status());
    }
    Ok(if tally.left > 0 { LEFT } else { 0 })
}
