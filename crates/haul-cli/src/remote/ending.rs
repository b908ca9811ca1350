//! Run of a transfer: progress, output, and the exit status of its result.

use super::args::JobArgs;
use super::entry::Entry;
use super::host::Peer;
use super::output::{Output, Side};
use super::ssh::MeetError;
use super::statistics::Recorder;
use super::typed::EXIT_ERROR;
use super::way::Connector;
use super::words;
use crate::interrupt::Interrupt;
use crate::progress::{self, ProgressSnapshot};
use haul_engine::transfer::{BoxError, Dial, Outcome, Receipt, RunContext, Tally, TransferError};
use haul_engine::waybill::Root;
use haul_log::record::Status;
use haul_net::Lane;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Exit status if some files did not arrive.
pub(crate) const EXIT_FAILED: u8 = 1;

/// Parameters of a transfer that runs once the remote host is reached.
pub(crate) struct Run<'a> {
    pub(crate) tool: &'a str,
    pub(crate) args: &'a JobArgs,
    pub(crate) interrupt: &'a Interrupt,
    pub(crate) way: words::Direction,
    /// True if the remote host was asked to write a waybill.
    pub(crate) has_waybill_there: bool,
    /// The state directory, if jobs can be kept.
    pub(crate) state: Option<PathBuf>,
    /// Rate for all lanes together in bytes per second, if it is limited.
    pub(crate) rate: Option<u64>,
}

impl Run<'_> {
    /// Runs `job` over the lanes of `other`, prints the result and returns the exit status.
    pub(crate) fn go(
        &self,
        other: Peer,
        output: Output<'_>,
        job: impl FnOnce(&dyn Dial, &RunContext<'_>) -> Result<Outcome, TransferError>,
    ) -> u8 {
        let stop = self.interrupt.flag();
        let (tally, begun) = (Tally::default(), Instant::now());
        let dial = ReportingDialer { way: other.way(), output: &output, stop };
        if let Some(recorder) = &output.recorder {
            recorder.begin();
        }
        let receipt = self.args.waybill.as_ref().map(|file| {
            // The engine sets the root that the paths are relative to.
            Receipt::new(file.clone(), crate::receipt::job(self.tool, &Root::new(OsString::new())))
        });
        let run_context = RunContext { stop, tally: &tally, report: &output, receipt: receipt.as_ref() };
        let prints = self.args.verbose || self.args.json || self.args.dry_run;
        let wanted = self.args.progress || progress::is_shown_by_default(self.tool, prints);
        let entry = self.entry(&output);
        let snapshot = || ProgressSnapshot {
            link: output.recorder.as_ref().and_then(Recorder::recent),
            ..ProgressSnapshot::from(&tally)
        };
        let watched = || progress::watch(wanted, snapshot, || job(&dial, &run_context));
        let ended = match &entry {
            Some(entry) => entry.during(&tally, watched),
            None => watched(),
        };
        let took = begun.elapsed();
        let is_there_fine = match other {
            Peer::SshPeer(met) => met.part(),
            Peer::Server(_) => true,
        };
        let mut status = match &ended {
            Ok(outcome) => {
                output.summary(outcome, self.side(), took, !self.args.quiet);
                if outcome.is_whole() { 0 } else { EXIT_FAILED }
            }
            Err(error) => {
                let is_stopped = stop.load(Ordering::Relaxed) && matches!(error, TransferError::Dial(_));
                if is_stopped {
                    output.failure(&MeetError::Interrupted);
                } else {
                    output.failure(&error);
                }
                EXIT_ERROR
            }
        };
        if let Some(Err(error)) = receipt.map(|receipt| receipt.close()) {
            output.failure(&error);
            status = status.max(EXIT_FAILED);
        }
        if let Some(recorder) = &output.recorder {
            let total = ended.as_ref().ok().and_then(|outcome| outcome.datagrams.as_ref());
            let written = recorder.finish(total);
            if let Some(note) = self.rate.and_then(|rate| recorder.shortfall(rate)) {
                output.note(&note);
            }
            if let Some(error) = written {
                output.failure(&error);
                status = status.max(EXIT_FAILED);
            }
        }
        if status == 0 && self.has_waybill_there && !is_there_fine {
            output.failure(&"the remote haul exited with an error; its waybill may be incomplete");
            status = EXIT_FAILED;
        }
        // A job that finished before the stop is not interrupted.
        let interrupted = stop.load(Ordering::Relaxed) && status != 0;
        if let Some(entry) = entry {
            let stands = match (status, interrupted) {
                (0, _) => Status::Finished,
                (_, true) => Status::Stopped,
                (_, false) => Status::Failed,
            };
            let exit = if interrupted { self.interrupt.status() } else { status };
            if let Err(error) = entry.end(stands, exit, &tally) {
                output.note(&error.to_string());
            }
        }
        match output.into_failure() {
            Some(error) => crate::console::unwritten(self.tool, &error, EXIT_FAILED),
            None if interrupted => self.interrupt.status(),
            None => status,
        }
    }
}

impl Run<'_> {
    fn side(&self) -> Side {
        match self.way {
            words::Direction::Send => Side::Source,
            words::Direction::Fetch => Side::Sink,
        }
    }

    /// Starts the job's record. The job also runs without one.
    fn entry(&self, output: &Output<'_>) -> Option<Entry> {
        let state = self.state.as_ref().filter(|_| !self.args.dry_run)?;
        let kind = match self.way {
            words::Direction::Send => "send",
            words::Direction::Fetch => "fetch",
        };
        Entry::begin(kind, state).unwrap_or_else(|error| {
            output.note(&format!("{error}; 'haul jobs' will not list this job"));
            None
        })
    }
}

/// Opens lanes, and reports settings of the first connection that are not available.
struct ReportingDialer<'a> {
    way: &'a Connector,
    output: &'a Output<'a>,
    stop: &'a AtomicBool,
}

impl Dial for ReportingDialer<'_> {
    fn lane(&self, number: u32) -> Result<Box<dyn Lane>, BoxError> {
        let lane = self.way.lane(number, self.stop)?;
        let control = lane.control();
        for note in control.facts().notes.iter().filter(|_| number == 0) {
            self.output.note(&format!("connections: {note}"));
        }
        Ok(lane.into())
    }

    fn give_up(&self) {
        self.way.give_up();
    }
}
