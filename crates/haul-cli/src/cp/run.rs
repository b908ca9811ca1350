//! Run of one copy, from the command line to the exit status.

use super::options::{self, OPTIONS};
use super::resolve::{Environment, Invocation, Resolved, resolve};
use super::resume;
use crate::console::{Console, Totals, answer, refuse, say};
use crate::getopt::{self, backup::BackupEnvironment};
use crate::interrupt::Interrupt;
use crate::progress::{self, ProgressSnapshot};
use haul_coreutils::cp::{self, Existing, Operands, Outcome};
use haul_engine::copy::{Tally, Verify, quote, quote_for_shell};
use haul_log::record::Status;
use haul_sys::selinux;
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

/// Runs the copy of `args`. `tool` is the name that messages start with: `cp`, `mcp` or `haul cp`.
pub(crate) fn run(tool: &str, args: &[OsString]) -> ExitCode {
    let options_first = std::env::var_os("POSIXLY_CORRECT").is_some();
    let environment = Environment {
        backup: BackupEnvironment::of_process(),
        posix: options_first,
        policy: selinux::policy(),
    };
    match resolve(getopt::parse(OPTIONS, args, options_first), &environment, &mut |warning| {
        say(tool, &warning);
    }) {
        Ok(Invocation::Copy(resolved)) => copy(tool, args, &resolved),
        Ok(Invocation::Help) => answer(tool, &options::help(tool)),
        Ok(Invocation::Version) => {
            answer(tool, &format!("{tool} (Surehaul) {}\n", env!("CARGO_PKG_VERSION")))
        }
        Err(error) => refuse(tool, &error, error.has_hint()),
    }
}

fn copy(tool: &str, args: &[OsString], resolved: &Resolved) -> ExitCode {
    let mut settings = resolved.settings.clone();
    let interrupt = match Interrupt::watch_as(tool) {
        Ok(interrupt) => interrupt,
        Err(error) => {
            say(tool, &format_args!("cannot watch for signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let console = Console::new(tool, resolved.json, &settings.print, interrupt.flag());
    let begun = resolved.waybill.as_ref().map(|order| order.begin(tool)).transpose();
    let receipt = match begun {
        Ok(receipt) => receipt,
        Err(error) => {
            say(tool, &error);
            return ExitCode::FAILURE;
        }
    };
    settings.moving.receipt = receipt.clone();
    let wants_bar = wants_bar(tool, resolved);
    settings.moving.counts_ahead =
        resolved.json || resolved.resume.is_some() || progress::is_drawn(wants_bar);
    let begun = resolved.resume.as_ref().map(|order| order.begin(args, &mut |text| console.say(&text)));
    let begun = match begun.transpose() {
        Ok(begun) => begun,
        Err(error) => {
            console.failure(&error);
            return console.close(true);
        }
    };
    let (log, state) = begun.map(|begun| (Arc::new(begun.log), begun.state)).unzip();
    settings.log = log.clone();
    // An error is ignored: with the current limit, deep trees may fail and then report it.
    let _ = haul_sys::process::raise_open_file_limit();
    let (tally, begun) = (Tally::default(), Instant::now());
    let work = || cp::copy(&settings, &console, &tally, interrupt.flag());
    let outcome = progress::watch(wants_bar, || ProgressSnapshot::from(&tally), work);
    let verify = settings.moving.verify;
    drop(settings);
    console.summary(&tally, outcome.failures, outcome.interrupted);
    let closed = receipt.map_or(Ok(()), |receipt| receipt.waybill_writer().close().map(drop));
    if let Err(error) = &closed {
        say(tool, error);
    }
    let (status, exit) = match () {
        () if outcome.interrupted => (Status::Stopped, interrupt.status()),
        () if outcome.failures > 0 || closed.is_err() => (Status::Failed, 1),
        () => (Status::Finished, 0),
    };
    let let_go = log
        .and_then(Arc::into_inner)
        .zip(state)
        .map(|(log, state)| resume::close(log, &state, status, exit, &tally));
    if let Some(Err(error)) = &let_go {
        console.failure(error);
    }
    let goes_on = resolved.resume.is_some();
    if let Some(found) = resume::found_there(&tally, status).filter(|_| goes_on && !resolved.json) {
        console.say(&found);
    }
    if outcome.interrupted {
        tell_interrupted(&console, &outcome, &advice(tool, args, resolved, outcome.sink_is_own));
        return interrupt.end();
    }
    let failed = outcome.failures > 0 || closed.is_err() || matches!(let_go, Some(Err(_)));
    let totals = Totals {
        is_asked: resolved.progress || verify != Verify::No,
        is_verified: verify != Verify::No && Tally::get(&tally.files_unverified) == 0,
        is_complete: !failed,
    };
    console.totals(&tally, begun.elapsed(), &totals);
    console.close(failed)
}

/// Returns true if progress is to be drawn: by default under haul's own names, as `cp` only with
/// the option.
fn wants_bar(tool: &str, resolved: &Resolved) -> bool {
    let asks = resolved.settings.rules.existing == Existing::Ask;
    let prints_lines = resolved.json || resolved.settings.rules.verbose || resolved.settings.print.hash;
    let unasked = progress::is_shown_by_default(tool, prints_lines);
    (resolved.progress || unasked) && !asks
}

/// Returns the command that completes an interrupted copy, quoted for a shell, with what it does.
/// `sink_is_own` is true if all files at the sink are of the interrupted copy. Otherwise `--update`
/// would leave out files that the copy did not reach.
fn advice(tool: &str, args: &[OsString], resolved: &Resolved, sink_is_own: bool) -> String {
    let resumes = resolved.resume.is_some();
    // The target exists now: without -T a directory would be copied into it.
    let more: &[&str] = match resolved.settings.operands {
        _ if resumes => &[],
        Operands::Onto { .. } if sink_is_own => &["--update", "-T"],
        Operands::Onto { .. } => &["-T"],
        Operands::IntoDirectory { .. } | Operands::Batch(_) => &[],
    };
    let words = more.iter().map(OsStr::new).chain(resume::without_restart(args).map(OsString::as_os_str));
    let words: Vec<String> = words.map(|word| quote_for_shell(word).to_string()).collect();
    let command = format!("{tool} {}", words.join(" "));
    match resolved.settings.operands {
        _ if resumes => format!("to resume, run: {command}"),
        Operands::Batch(_) => format!("to copy the files again, run with the same lines: {command}"),
        _ if sink_is_own => format!("to copy the missing files, run: {command}"),
        _ => format!("to copy the files again, run: {command}"),
    }
}

/// Reports the incomplete files of an interrupted job and the command that resumes it.
fn tell_interrupted(console: &Console<'_>, outcome: &Outcome, advice: &str) {
    for sink in &outcome.cut_off {
        console.say(&format_args!("interrupted: {} is incomplete", quote(sink)));
    }
    console.say(&format_args!("interrupted: {advice}"));
}
