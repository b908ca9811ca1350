//! `haul verify`: compares data with a waybill, or with digests stored with the files.

mod args;
mod output;
mod signer;

use crate::console;
use crate::interrupt::Interrupt;
use crate::jobs::own::OwnJob;
use crate::progress::{self, Standing};
use args::{Against, Args};
pub(crate) use args::{keep_pace, root_of};
use haul_engine::copy::quote;
use haul_engine::signature::Proof;
use haul_engine::sum::Counters;
use haul_engine::verify::{Tallied, VerifyError, VerifySettings, verify, verify_stored};
use haul_log::waybill::{Reader, Record};
pub(crate) use output::{Output, going_on};
pub(crate) use signer::{SignerArgs, told};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::atomic::Ordering;

/// Exit status if the data does not match the waybill.
const DAMAGE: u8 = 1;

/// Exit status if something could not be checked.
const TROUBLE: u8 = 2;

const NAME: &str = "haul verify";

/// Runs the command with `args`, which do not include the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let args = match console::typed::<Args>(NAME, args, TROUBLE) {
        Ok(args) => args,
        Err(status) => return status,
    };
    match start(args) {
        Ok(status) => ExitCode::from(status),
        Err(message) => {
            eprintln!("{NAME}: {message}");
            ExitCode::from(TROUBLE)
        }
    }
}

fn start(args: Args) -> Result<u8, String> {
    let mut against = args.meaning()?;
    let proof = match &against {
        Against::Waybill(settings) => args.signer.check(&settings.waybill)?,
        Against::Stored(_) => None,
    };
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let counters = Counters::new();
    let job = match &mut against {
        Against::Waybill(settings) => {
            let job = OwnJob::open(NAME, "verify", &args.place);
            settings.resume = settings.resume.take().or_else(|| job.state_file());
            job
        }
        // Digests stored with the files have no fixed order, so that the verification is not
        // resumable.
        Against::Stored(_) => OwnJob::never(NAME),
    };
    let ended = verify_as(&args, &against, &job, &counters, &interrupt, proof.as_ref());
    let (exit, was_stopped) = match &ended {
        Ok(Ended { status, was_stopped }) => (*status, *was_stopped),
        Err(_) => (TROUBLE, interrupt.flag().load(Ordering::Relaxed)),
    };
    job.end(exit, was_stopped, &counters);
    ended.map(|ended| ended.status)
}

/// Result of a verification.
struct Ended {
    status: u8,
    was_stopped: bool,
}

fn verify_as(
    args: &Args,
    against: &Against,
    job: &OwnJob,
    counters: &Counters,
    interrupt: &Interrupt,
    proof: Option<&Proof>,
) -> Result<Ended, String> {
    let mut output = Output::new(NAME, args.json, args.verbose, interrupt.flag());
    output.set_root(match against {
        Against::Waybill(settings) => &settings.root,
        Against::Stored(settings) => &settings.root,
    });
    if let Some(proof) = proof {
        output.signed(proof, !args.quiet);
    }
    let wanted = args.progress || progress::is_drawn_unasked(NAME, true);
    let stop = interrupt.flag();
    let work = || match against {
        Against::Waybill(settings) => verify(settings, &mut output, counters, stop),
        Against::Stored(settings) => verify_stored(settings, &mut output, counters, stop),
    };
    let tallied = progress::watch(wanted, || Standing::from(counters), || job.during(counters, || (), work));
    let broken = output.is_broken();
    let interrupted = interrupt.flag().load(Ordering::Relaxed) && !broken;
    let tallied = match tallied {
        Ok(tallied) => tallied,
        Err(error @ VerifyError::Refused { .. }) => return Err(format!("{error}; nothing was verified")),
        Err(error) => return Err(error.to_string()),
    };
    // The waybill was read more than once: the signed bytes must be the ones that were used.
    if let Some(proof) = proof {
        proof.still_holds(&args.waybill).map_err(|error| error.to_string())?;
    }
    output.summary(&tallied, !args.quiet, interrupted);
    if let Against::Waybill(settings) = against
        && tallied.found_none()
        && !(args.quiet || args.json || interrupted || output.is_broken())
    {
        ask_for_root(settings);
    }
    if let Some(error) = output.close() {
        return Ok(Ended { status: console::unwritten(NAME, &error, TROUBLE), was_stopped: false });
    }
    if interrupted {
        return Ok(Ended { status: interrupt.status(), was_stopped: true });
    }
    Ok(Ended { status: status(&tallied), was_stopped: false })
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

fn status(tallied: &Tallied) -> u8 {
    match (tallied.has_trouble(), tallied.has_damage()) {
        (true, _) => TROUBLE,
        (false, true) => DAMAGE,
        (false, false) => 0,
    }
}
