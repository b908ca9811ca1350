//! `haul verify`: compares data with a waybill, or with digests stored with the files.

mod args;
mod events;
mod output;
mod signer;

use crate::console;
use crate::interrupt::Interrupt;
use crate::jobs::own::OwnJob;
use crate::progress::{self, ProgressSnapshot};
use args::{Args, Reference};
pub(crate) use args::{keep_pace, root_of};
pub(crate) use events::Event;
use haul_engine::copy::quote;
use haul_engine::signature::Proof;
use haul_engine::sum::Counters;
use haul_engine::verify::{VerifyError, VerifySettings, VerifyTotals, verify, verify_stored};
use haul_log::waybill::{Reader, Record};
pub(crate) use output::{Output, resume_message};
pub(crate) use signer::{SignerArgs, told};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Exit status if the data does not match the waybill.
const EXIT_DAMAGE: u8 = 1;

/// Exit status if something could not be checked.
const EXIT_ERROR: u8 = 2;

const NAME: &str = "haul verify";

/// Runs the command with `args`, which do not include the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let args = match console::typed::<Args>(NAME, args, EXIT_ERROR) {
        Ok(args) => args,
        Err(status) => return status,
    };
    match start(args) {
        Ok(status) => ExitCode::from(status),
        Err(message) => {
            eprintln!("{NAME}: {message}");
            ExitCode::from(EXIT_ERROR)
        }
    }
}

fn start(args: Args) -> Result<u8, String> {
    let mut against = args.meaning()?;
    let proof = match &against {
        Reference::Waybill(settings) => args.signer.check(&settings.waybill)?,
        Reference::Stored(_) => None,
    };
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let counters = Counters::new();
    let job = match &mut against {
        Reference::Waybill(settings) => {
            let job = OwnJob::open(NAME, "verify", &args.place);
            settings.resume = settings.resume.take().or_else(|| job.state_file());
            job
        }
        // Digests stored with the files have no fixed order, so that the verification is not
        // resumable.
        Reference::Stored(_) => OwnJob::never(NAME),
    };
    let ended = verify_as(&args, &against, &job, &counters, &interrupt, proof.as_ref());
    let (exit, was_stopped) = match &ended {
        Ok(VerifyOutcome { status, was_stopped }) => (*status, *was_stopped),
        Err(_) => (EXIT_ERROR, interrupt.flag().load(Ordering::Relaxed)),
    };
    job.end(exit, was_stopped, &counters);
    ended.map(|ended| ended.status)
}

/// Result of a verification.
struct VerifyOutcome {
    status: u8,
    was_stopped: bool,
}

fn verify_as(
    args: &Args,
    against: &Reference,
    job: &OwnJob,
    counters: &Counters,
    interrupt: &Interrupt,
    proof: Option<&Proof>,
) -> Result<VerifyOutcome, String> {
    let mut output = Output::new(NAME, args.json, args.verbose, interrupt.flag());
    output.set_root(match against {
        Reference::Waybill(settings) => &settings.root,
        Reference::Stored(settings) => &settings.root,
    });
    if let Some(proof) = proof {
        output.signed(proof, !args.quiet);
    }
    let wanted = args.progress || progress::is_shown_by_default(NAME, true);
    let stop = interrupt.flag();
    let work = || match against {
        Reference::Waybill(settings) => verify(settings, &mut output, counters, stop),
        Reference::Stored(settings) => verify_stored(settings, &mut output, counters, stop),
    };
    let totals =
        progress::watch(wanted, || ProgressSnapshot::from(counters), || job.during(counters, || (), work));
    let broken = output.is_broken();
    let interrupted = interrupt.flag().load(Ordering::Relaxed) && !broken;
    let totals = match totals {
        Ok(totals) => totals,
        Err(error @ VerifyError::Refused { .. }) => return Err(format!("{error}; nothing was verified")),
        Err(error) => return Err(error.to_string()),
    };
    // The waybill was read more than once: the signed bytes must be the ones that were used.
    if let Some(proof) = proof {
        proof.still_holds(&args.waybill).map_err(|error| error.to_string())?;
    }
    output.summary(&totals, !args.quiet, interrupted);
    if let Reference::Waybill(settings) = against
        && totals.found_none()
        && !(args.quiet || args.json || interrupted || output.is_broken())
    {
        ask_for_root(settings);
    }
    if let Some(error) = output.close() {
        return Ok(VerifyOutcome {
            status: console::unwritten(NAME, &error, EXIT_ERROR),
            was_stopped: false,
        });
    }
    if interrupted {
        return Ok(VerifyOutcome { status: interrupt.status(), was_stopped: true });
    }
    Ok(VerifyOutcome { status: status(&totals), was_stopped: false })
}

/// Prints the root that the waybill recorded, for a user who named another directory.
fn ask_for_root(settings: &VerifySettings) {
    let first = File::open(&settings.waybill).ok().and_then(|file| Reader::new(BufReader::new(file)).next());
    let Some(Ok(Record::Section(section))) = first else { return };
    let (named, was) = (quote(&settings.root), quote(OsStr::from_bytes(&section.job.root)));
    eprintln!(
        "{NAME}: no name of the waybill exists in {named}; names are relative to ROOT; the waybill was written with ROOT {was}"
    );
}

fn status(totals: &VerifyTotals) -> u8 {
    match (totals.has_trouble(), totals.has_damage()) {
        (true, _) => EXIT_ERROR,
        (false, true) => EXIT_DAMAGE,
        (false, false) => 0,
    }
}
