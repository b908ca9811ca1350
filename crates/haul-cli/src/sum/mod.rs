//! `haul sum`, also as md5sum, sha256sum, b3sum, cksum, msum and similar tools: prints and checks
//! checksums.

mod args;
mod b3sum;
pub(crate) mod base64;
mod check;
mod combine;
mod format;
mod getopt;
mod gnu;
mod keyed;
pub(crate) mod line;
pub(crate) mod list;
pub(crate) mod output;
mod personality;
mod quote;
mod resolve;
mod store;
mod waybill;

use crate::console::this_command;
use crate::interrupt::Interrupt;
use crate::jobs::own::OwnJob;
use crate::progress::{self, ProgressSnapshot};
use crate::tool::without_controls;
use args::{Args, Stop};
use haul_engine::sum::{Counters, Listed, Operands, Outcome, SumError, Walk, WalkTag, run as hash};
use haul_engine::waybill::{OrderTag, ReusingOrders};
use list::List;
use output::Output;
use personality::{Family, Personality};
use resolve::{Files, PrintJob, SumJob, resolve};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use waybill::{AddOutcome, OpenWaybill};

/// Exit status of b3sum for a usage error.
const EXIT_USAGE_B3SUM: u8 = 2;

/// Runs the command as the tool `name`; `args` do not include the tool's name.
pub(crate) fn run(name: &str, args: &[OsString]) -> ExitCode {
    let tool = Personality::of(name);
    let meaning = match tool.family {
        Family::Coreutils | Family::Cksum | Family::Sum => gnu::read(tool, args),
        Family::B3sum => b3sum::read(tool, args),
        _ => Args::read(tool, args).and_then(|args| resolve(tool, args).map_err(Stop::UsageError)),
    };
    match meaning {
        Ok(meaning) => start(tool, &meaning),
        Err(Stop::Answer(text)) => {
            let never = AtomicBool::new(false);
            let mut out = Output::new(tool.name, &never);
            out.line(text.as_bytes());
            exit(out.close())
        }
        Err(Stop::Failure(text)) => {
            text.lines().for_each(|line| eprintln!("{}: {}", tool.name, without_controls(line)));
            ExitCode::FAILURE
        }
        Err(Stop::UsageError(text)) => {
            let text = without_controls(&text);
            eprintln!("{}: {text}\nTry '{} --help' for more information.", tool.name, tool.name);
            if tool.family == Family::B3sum { ExitCode::from(EXIT_USAGE_B3SUM) } else { ExitCode::FAILURE }
        }
        Err(Stop::Words(text)) => {
            eprint!("{}", without_controls(&text));
            ExitCode::FAILURE
        }
        Err(Stop::Usage) => {
            eprintln!("Try '{} --help' for more information.", tool.name);
            ExitCode::FAILURE
        }
    }
}

fn start(tool: Personality, meaning: &SumJob) -> ExitCode {
    // Under another tool's name a signal ends the process as it ends that tool, so that a shell
    // sees the signal. A read of a list from a terminal or a pipe cannot poll a flag.
    let dies = tool.family != Family::Haul || meaning.reads_stdin();
    let watched = if dies { Ok(Interrupt::default()) } else { Interrupt::watch() };
    let interrupt = match watched {
        Ok(interrupt) => interrupt,
        Err(error) => {
            eprintln!("{}: cannot watch for signals: {error}", tool.name);
            return ExitCode::FAILURE;
        }
    };
    let stop = interrupt.flag();
    let counters = Counters::new();
    let mut out = Output::new(tool.name, stop);
    let unasked = progress::is_shown_by_default(tool.name, true);
    let listed = match meaning {
        SumJob::Print(PrintJob { waybill: Some(order), .. }) => order.job(tool),
        _ => OwnJob::never(tool.name),
    };
    let mut well = match meaning {
        SumJob::Combine(job) => job.run(&mut out),
        SumJob::Keyed(job) => job.run(&mut out),
        SumJob::Check(job) => {
            watch(job.progress || unasked, &counters, || job.run(tool, &counters, stop, &mut out))
        }
        SumJob::Print(job) => {
            watch(job.progress || unasked, &counters, || print(tool, job, &listed, &counters, stop, &mut out))
        }
    };
    if tool.is_gnus() && meaning.reads_stdin() && haul_sys::program::was_closed(0) {
        out.complain("standard input: Bad file descriptor");
        well = false;
    }
    let interrupted = stop.load(Ordering::Relaxed) && !out.ended_the_job();
    let closed = out.close();
    let status = match (interrupted, well && closed) {
        (true, _) => interrupt.status(),
        (false, well) => u8::from(!well),
    };
    listed.end(status, stop.load(Ordering::Relaxed), &counters);
    if interrupted {
        let left = match meaning {
            SumJob::Check(_) => "files not listed were not checked; to check all, run",
            SumJob::Print(PrintJob { waybill: Some(_), .. }) if listed.is_short() => {
                "nothing was written to the waybill; to write it, run"
            }
            _ if listed.is_kept() => "files not listed were not hashed; to resume, run",
            _ => "files not listed were not hashed; to hash all, run",
        };
        eprintln!("{}: interrupted; {left}: {}", tool.name, this_command());
    }
    ExitCode::from(status)
}

fn exit(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn watch<T>(wanted: bool, counters: &Counters, work: impl FnOnce() -> T) -> T {
    progress::watch(wanted, || ProgressSnapshot::from(counters), work)
}

/// Prints the digests of all files; returns true if all could be read.
fn print(
    tool: Personality,
    job: &PrintJob,
    listed: &OwnJob,
    counters: &Counters,
    stop: &AtomicBool,
    out: &mut Output<'_>,
) -> bool {
    match &job.files {
        Files::Given(paths) => {
            let operands = Listed::new(paths.clone(), job.offset, job.length);
            print_all(tool, job, operands, listed, counters, stop, out)
        }
        Files::Listed(names, kind) => names.iter().fold(true, |well, name| {
            let all = match List::open(name, *kind, job.offset, job.length) {
                Ok(list) => print_all(tool, job, list, listed, counters, stop, out),
                Err(error) => {
                    out.complain_of(name, &haul_engine::sum::reason(&error));
                    false
                }
            };
            well && all
        }),
    }
}

fn print_all(
    tool: Personality,
    job: &PrintJob,
    operands: impl Operands,
    listed: &OwnJob,
    counters: &Counters,
    stop: &AtomicBool,
    out: &mut Output<'_>,
) -> bool {
    if job.recurse {
        // An error is ignored: with the current limit, fewer directories stay open.
        let _ = haul_sys::process::raise_open_file_limit();
    }
    let begun = job.waybill.as_ref().map(|order| OpenWaybill::begin(tool, order, listed)).transpose();
    let (receipt, known) = match begun {
        Ok(begun) => {
            begun.map_or((None, None), |(receipt, known)| (Some(receipt.with_operands(&job.files)), known))
        }
        Err(error) => {
            out.complain(&error.to_string());
            return false;
        }
    };
    let known = known.zip(receipt.as_ref().map(OpenWaybill::root));
    let opened = job.store.as_ref().map(|order| order.open().map(|store| (order, store)));
    let store = match opened.transpose() {
        Ok(store) => store,
        Err(error) => {
            out.complain(&error.to_string());
            return false;
        }
    };
    let walk = Walk::new(operands, Arc::clone(&job.recipe), job.recurse);
    let mut settings = job.settings.clone();
    settings.leaves = receipt.as_ref().and_then(OpenWaybill::leaves);
    let (mut well, mut spared, mut is_refused) = (true, 0_u64, false);
    let mut line = Vec::new();
    let keep = || receipt.iter().for_each(OpenWaybill::keep);
    let mut take = |ticket: WalkTag, outcome: Outcome| match (ticket, outcome) {
        (WalkTag::File(path), Outcome::Done(_))
            if job.store.as_ref().is_some_and(|order| order.is_own(&path)) => {}
        (WalkTag::File(path), Outcome::Done(mut sums)) => {
            let mut aside = store.as_ref().map(|_| sums.clone());
            if let Some(receipt) = &receipt {
                match receipt.add(&path, &mut sums, stop) {
                    Ok(AddOutcome::Written) => {}
                    Ok(AddOutcome::TheWaybillItself) => return,
                    // The end by a signal is reported once, at the end.
                    Ok(AddOutcome::Stopped) => {
                        well = false;
                        return;
                    }
                    Ok(AddOutcome::Rotted) => {
                        well = false;
                        out.complain_of(&path, ROTTED);
                        // Digests that the waybill does not accept are not stored either.
                        aside = None;
                    }
                    Err(error) => {
                        well = false;
                        out.complain_of(&path, &error.to_string());
                    }
                }
            }
            if let Some(((order, store), mut all)) = store.as_ref().zip(aside) {
                let aside = order.set_aside(&mut all);
                sums.digests = all.digests;
                if let Err(error) = order.keep(store, &path, aside) {
                    well = false;
                    out.complain_of(&path, &error.to_string());
                }
            }
            line.clear();
            job.format.lines(&path, job.named, &sums, &mut line);
            out.line(&line);
        }
        // The end by a signal is reported once, at the end.
        (_, Outcome::Failed(SumError::Stopped)) => well = false,
        (WalkTag::File(path), Outcome::Failed(error)) => {
            well = false;
            // A receipt without the files of a directory would look like a receipt of all of them.
            is_refused |= matches!(error, SumError::Directory) && receipt.is_some();
            tell(tool, &path, &error, out);
        }
        (WalkTag::File(_), Outcome::Nothing) => {}
        (WalkTag::Malformed(complaint), _) => {
            well = false;
            out.complain(&complaint);
        }
    };
    let orders = ReusingOrders::new(walk, known);
    listed.during(counters, keep, || {
        hash(&settings, orders, counters, stop, |OrderTag { walked, sums }, outcome| {
            if let Some(sums) = &sums {
                spared += 1;
                counters.was_done_before(sums.range.len());
            }
            take(walked, sums.map_or(outcome, |sums| Outcome::Done(*sums)));
        });
    });
    if spared > 0 {
        let text = format!("resumed: {spared} files already hashed and unchanged since");
        out.complain(&text);
    }
    if let Some(receipt) = &receipt {
        // The order matters: a run that is killed here resumes, and finds all files done.
        receipt.keep();
        let was_stopped = stop.load(Ordering::Relaxed);
        // A run that was stopped so early leaves no record for a later run, and its section would
        // stay.
        let leaves_nothing = was_stopped && listed.is_short();
        let failed = !was_stopped && (is_refused || (!well && receipt.is_empty()));
        if is_refused {
            out.complain("nothing was written to the waybill: to add directories, use -r");
        }
        let closed = if leaves_nothing || failed { receipt.discard() } else { receipt.close() };
        let is_over = !was_stopped && closed.is_ok();
        if let Err(error) = closed.and_then(|()| if is_over { receipt.forget() } else { Ok(()) }) {
            well = false;
            out.complain(&error.to_string());
        }
    }
    if let Some(Err(error)) = store.map(|(_, store)| store.close()) {
        well = false;
        out.complain(&error.to_string());
    }
    well
}

/// Report of a file whose bytes changed without a trace.
const ROTTED: &str = "rotted: the size and the time are those in the waybill, and the digest is not; \
                      the waybill keeps the earlier digest; to replace it, use --accept-changes";

/// Reports the reason why a file has no digest, in the tool's format.
fn tell(tool: Personality, path: &OsStr, error: &SumError, out: &mut Output<'_>) {
    if tool.family == Family::B3sum {
        let why = check::in_rust(error);
        return out.complain(&without_controls(&format!("{}: {why}", path.to_string_lossy())));
    }
    out.complain_of(path, &error.to_string());
}
