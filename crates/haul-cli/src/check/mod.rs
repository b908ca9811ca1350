//! `haul check`: checks lists of checksums in any known format in parallel, and reports in order.
//!
//! ```text
//! lists -> list_reader (lines) -> haul_digest::list (claims) -> feed (one order a file) -> engine
//!                                                                ^                          |
//!            guess: which of a digest's meanings to compute -----+               report <---+
//! ```

mod args;
mod bag;
mod decoded;
mod feed;
mod guess;
pub(crate) mod json;
mod list_reader;
mod report;
mod resolve;
mod tally;

use crate::console::this_command;
use crate::interrupt::Interrupt;
use crate::progress::{self, ProgressSnapshot};
use crate::sum::output::Output;
use crate::tool::without_controls;
use args::Args;
use clap::Parser;
use clap::error::ErrorKind;
use feed::Feed;
pub(crate) use guess::{agrees, measure};
use haul_engine::sum::{Counters, run as hash};
use report::Report;
use resolve::{Job, resolve};
use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

/// Name in messages.
const NAME: &str = "haul check";

/// Exit status of a usage error; a check that fails has 1.
const EXIT_USAGE: u8 = 2;

/// Runs the command; `args` do not include its name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let args = match Args::try_parse_from(args) {
        Ok(args) => args,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            let never = AtomicBool::new(false);
            let mut out = Output::new(NAME, &never);
            out.line(error.render().to_string().as_bytes());
            return if out.close() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        Err(error) => {
            let text = error.render().to_string();
            let text = text.lines().next().unwrap_or_default();
            return mistake(text.strip_prefix("error: ").unwrap_or(text));
        }
    };
    match resolve(args) {
        Ok(job) => start(&job),
        Err(error) => mistake(&error.to_string()),
    }
}

fn mistake(text: &str) -> ExitCode {
    eprintln!("{NAME}: {}\nTry '{NAME} --help' for more information.", without_controls(text));
    ExitCode::from(EXIT_USAGE)
}

fn start(job: &Job) -> ExitCode {
    // A read from a terminal or a pipe cannot poll a flag: there the first signal ends the process.
    let reads_stdin = job.lists.iter().any(|list| list == "-");
    let watched = if reads_stdin { Ok(Interrupt::default()) } else { Interrupt::watch() };
    let interrupt = match watched {
        Ok(interrupt) => interrupt,
        Err(error) => {
            eprintln!("{NAME}: cannot watch for signals: {error}");
            return ExitCode::FAILURE;
        }
    };
    let stop = interrupt.flag();
    let counters = Counters::new();
    let mut out = Output::new(NAME, stop);
    let wanted = job.progress || progress::is_shown_by_default(NAME, !job.output_options.status);
    let well = watch(wanted, &counters, || {
        let mut report = Report::new(job, stop, &mut out);
        let feed = Feed::new(job, stop, report.leaf());
        hash(&job.settings, feed, &counters, stop, |ticket, outcome| report.take(ticket, outcome));
        report.is_well()
    });
    let closed = out.close();
    // A failed write, which is already reported, also stops the job.
    if closed && stop.load(Ordering::Relaxed) {
        eprintln!(
            "{NAME}: interrupted; files not listed were not checked; to check all, run: {}",
            this_command()
        );
        return ExitCode::from(interrupt.status());
    }
    if well && closed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn watch<T>(wanted: bool, counters: &Counters, work: impl FnOnce() -> T) -> T {
    progress::watch(wanted, || ProgressSnapshot::from(counters), work)
}
