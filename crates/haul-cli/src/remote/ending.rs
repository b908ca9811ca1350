//! The job itself: watched, told, and what its end means for the exit status.

use super::args::JobArgs;
use super::output::{Output, Side};
use super::ssh::Met;
use super::typed::TROUBLE;
use super::way::Way;
use crate::interrupt::Interrupt;
use crate::progress::{self, Standing};
use haul_engine::transfer::{Dial, Outcome, Receipt, Tally, TransferError, Watch};
use haul_engine::waybill::Root;
use std::ffi::OsString;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Something did not arrive.
pub(crate) const FAILED: u8 = 1;

/// What is to be done once the way stands.
pub(crate) struct Run<'a> {
    pub(crate) tool: &'a str,
    pub(crate) args: &'a JobArgs,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) side: Side,
    /// Whether the other side was asked for a waybill of its own.
    pub(crate) has_waybill_there: bool,
}

/// The other side, however it was reached.
pub(crate) enum Other {
    /// By ssh.
    Met(Box<Met>),
    /// By a ticket.
    Server(Way),
}

impl Other {
    /// How many of `wanted` lanes there can be.
    pub(crate) fn lanes(&self, wanted: Option<u32>) -> Option<u32> {
        match self {
            Other::Met(met) => met.way.lanes(wanted),
            Other::Server(way) => way.lanes(wanted),
        }
    }
}

impl Run<'_> {
    /// Runs `job` over the lanes of `other`, tells what it came to, and gives the exit status.
    pub(crate) fn go(
        &self,
        other: Other,
        output: Output<'_>,
        job: impl FnOnce(Dial<'_>, &Watch<'_>) -> Result<Outcome, TransferError>,
    ) -> u8 {
        let stop = self.interrupt.flag();
        let (tally, begun) = (Tally::default(), Instant::now());
        let way = match &other {
            Other::Met(met) => &met.way,
            Other::Server(way) => way,
        };
        let dial: Dial<'_> = &|number| way.lane(number).map_err(Into::into);
        let receipt = self.args.waybill.as_ref().map(|file| {
            // The engine says what the paths are relative to.
            Receipt::new(file.clone(), crate::receipt::job(self.tool, &Root::new(OsString::new())))
        });
        let watch = Watch { stop, tally: &tally, report: &output, receipt: receipt.as_ref() };
        let prints = self.args.verbose || self.args.json || self.args.dry_run;
        let wanted = self.args.progress || progress::is_drawn_unasked(self.tool, prints);
        let ended = progress::watch(wanted, || standing(&tally), || job(dial, &watch));
        let took = begun.elapsed();
        let is_there_fine = match other {
            Other::Met(met) => met.part(),
            Other::Server(_) => true,
        };
        let mut status = match &ended {
            Ok(outcome) => {
                output.summary(outcome, self.side, took, !self.args.quiet);
                if outcome.is_whole() { 0 } else { FAILED }
            }
            Err(error) => {
                output.failure(error);
                TROUBLE
            }
        };
        if let Some(Err(error)) = receipt.map(|receipt| receipt.close()) {
            output.failure(&error);
            status = status.max(FAILED);
        }
        if status == 0 && self.has_waybill_there && !is_there_fine {
            output.failure(&"the other side did not end well: its waybill may not be complete");
            status = FAILED;
        }
        let interrupted = stop.load(Ordering::Relaxed);
        match output.into_failure() {
            Some(error) => {
                crate::console::say(self.tool, &format_args!("write error: {error}"));
                FAILED
            }
            // One that was over before it was to stop is not interrupted.
            None if interrupted && status != 0 => self.interrupt.status(),
            None => status,
        }
    }
}

fn standing(tally: &Tally) -> Standing {
    let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    Standing {
        files_found: get(&tally.files_found),
        files_done: get(&tally.files_done),
        bytes_found: get(&tally.bytes_found),
        bytes_done: get(&tally.bytes_done),
        walked: tally.walked.load(Ordering::Relaxed),
    }
}
