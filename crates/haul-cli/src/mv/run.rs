//! Run of one move, from the command line to the exit status.

use super::options;
use super::resolve::{Invocation, Resolved, resolve};
use crate::console::{Console, Totals, answer, refuse, say};
use crate::getopt::backup::BackupEnvironment;
use crate::interrupt::Interrupt;
use crate::progress::{self, ProgressSnapshot};
use crate::tool::is_own_name;
use haul_coreutils::cp::Print;
use haul_coreutils::mv::{MoveExisting, MoveOperands, MoveSettings, Outcome, move_all};
use haul_engine::copy::{Tally, quote, quote_for_shell};
use haul_sys::selinux;
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

/// Runs the move of `args`. `tool` is the name that messages start with: `mv` or `haul mv`.
pub(crate) fn run(tool: &str, args: &[OsString]) -> ExitCode {
    let options_first = std::env::var_os("POSIXLY_CORRECT").is_some();
    let environment = BackupEnvironment::of_process();
    let mut warn = |warning: &str| say(tool, &warning);
    match resolve(args, options_first, &environment, selinux::policy(), &mut warn) {
        Ok(Invocation::Move(resolved)) => execute(tool, &resolved),
        Ok(Invocation::Help) => answer(tool, &options::help(tool)),
        Ok(Invocation::Version) => {
            answer(tool, &format!("{tool} (Surehaul) {}\n", env!("CARGO_PKG_VERSION")))
        }
        Err(error) => refuse(tool, &error, error.has_hint()),
    }
}

fn execute(tool: &str, resolved: &Resolved) -> ExitCode {
    let mut settings = resolved.settings.clone();
    let asks = settings.rules.existing == MoveExisting::Ask;
    let unasked = progress::is_shown_by_default(tool, resolved.json || settings.rules.verbose);
    let wants_bar = (resolved.progress || unasked) && !asks;
    settings.moving.counts_ahead = resolved.json || progress::is_drawn(wants_bar);
    let settings = &settings;
    let interrupt = match Interrupt::watch_as(tool) {
        Ok(interrupt) => interrupt,
        Err(error) => {
            say(tool, &format_args!("cannot watch for signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let print = Print { stats: resolved.stats, ..Print::default() };
    let console = Console::new(tool, resolved.json, &print, interrupt.flag());
    // An error is ignored: with the current limit, deep trees may fail and then report it.
    let _ = haul_sys::process::raise_open_file_limit();
    let (tally, begun) = (Tally::default(), Instant::now());
    let into = into_directory(settings);
    let work = || move_all(settings, &console, &tally, interrupt.flag());
    let outcome = progress::watch(wants_bar, || ProgressSnapshot::from(&tally), work);
    if let (true, Some(contradiction)) = (outcome.is_refused, &resolved.contradiction) {
        return refuse(tool, contradiction, contradiction.has_hint());
    }
    console.summary(&tally, outcome.failures, outcome.interrupted);
    if outcome.interrupted {
        tell_interrupted(&console, &outcome, advice(tool, settings, into.as_deref()).as_deref());
        return interrupt.end();
    }
    let failed = outcome.failures > 0;
    let totals = Totals { is_asked: resolved.progress, is_verified: true, is_complete: !failed };
    console.totals(&tally, begun.elapsed(), &totals);
    console.close(failed)
}

/// Reports the incomplete files of an interrupted job and the command that completes it.
fn tell_interrupted(console: &Console<'_>, outcome: &Outcome, advice: Option<&str>) {
    for sink in &outcome.cut_off {
        console.say(&format_args!("interrupted: {} is incomplete", quote(sink)));
    }
    let advice = advice.map(|command| format!("; to move them, run: {command}")).unwrap_or_default();
    console.say(&format_args!("interrupted: sources that were not moved are intact{advice}"));
}

/// Returns the directory that the operands go into, if they do. Call this before the move: after
/// it, a copy may be there.
fn into_directory(settings: &MoveSettings) -> Option<OsString> {
    match &settings.operands {
        MoveOperands::IntoDirectory { directory, .. } => Some(directory.clone()),
        MoveOperands::Among { last, .. } => Path::new(last).is_dir().then(|| last.clone()),
        MoveOperands::Onto { .. } => None,
    }
}

/// Returns the commands that complete an interrupted move, quoted for a shell. A rerun of the move
/// would not continue the partial copy of a directory; a copy does. `None` if the rules may leave
/// something at the source.
fn advice(tool: &str, settings: &MoveSettings, into: Option<&OsStr>) -> Option<String> {
    let rules = &settings.rules;
    let may_stay = rules.update || rules.exchange || rules.no_copy || rules.backup.is_some();
    if may_stay || !matches!(rules.existing, MoveExisting::Replace | MoveExisting::AskIfUnwritable) {
        return None;
    }
    let (sources, sink) = match &settings.operands {
        MoveOperands::IntoDirectory { sources, directory } => (&sources[..], directory),
        MoveOperands::Among { sources, name, .. } => (&sources[..], name),
        MoveOperands::Onto { source, sink } => (std::slice::from_ref(source), sink),
    };
    let left = sources.iter().filter(|source| Path::new(source).symlink_metadata().is_ok());
    let left: Vec<String> = left.map(|source| quote_for_shell(source).to_string()).collect();
    if left.is_empty() {
        return None;
    }
    let left = left.join(" ");
    // Not `--update`: a newer file at the destination, which a move replaces, would stay, and its
    // source would be removed.
    let copy = if is_own_name(tool) { "haul cp -af --verify" } else { "cp -af" };
    Some(match into {
        Some(into) => format!("{copy} -t {} -- {left} && rm -rf -- {left}", quote_for_shell(into)),
        None => format!("{copy} -T -- {left} {} && rm -rf -- {left}", quote_for_shell(sink)),
    })
}
