//! One move from the command line to its exit status.

use super::options;
use super::resolve::{Resolved, Wish, resolve};
use crate::console::{Console, answer, refuse, say};
use crate::getopt::backup::BackupEnvironment;
use crate::interrupt::Interrupt;
use crate::progress::{self, Standing};
use haul_engine::copy::{Print, Tally, quote};
use haul_engine::moving::{MoveExisting, Outcome, move_all};
use haul_sys::selinux;
use std::ffi::OsString;
use std::process::ExitCode;

/// Moves what `args` say. `tool` is the name that messages begin with: `mv` or `haul mv`.
pub(crate) fn run(tool: &str, args: &[OsString]) -> ExitCode {
    let options_first = std::env::var_os("POSIXLY_CORRECT").is_some();
    let environment = (&BackupEnvironment::of_process(), selinux::policy());
    match resolve(args, options_first, environment, &mut |warning| say(tool, &warning)) {
        Ok(Wish::Move(resolved)) => carry_out(tool, &resolved),
        Ok(Wish::Help) => answer(tool, &options::help(tool)),
        Ok(Wish::Version) => answer(tool, &format!("{tool} (Surehaul) {}\n", env!("CARGO_PKG_VERSION"))),
        Err(error) => refuse(tool, &error, error.has_hint()),
    }
}

fn carry_out(tool: &str, resolved: &Resolved) -> ExitCode {
    let settings = &resolved.settings;
    let interrupt = match Interrupt::watch_as(tool) {
        Ok(interrupt) => interrupt,
        Err(error) => {
            say(tool, &format_args!("cannot watch for signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let print = Print { stats: resolved.stats, ..Print::default() };
    let console = Console::new(tool, resolved.json, &print, interrupt.flag());
    // With the limit as it is, deep trees may fail, and then say so.
    let _ = haul_sys::process::raise_open_file_limit();
    let tally = Tally::default();
    let work = || move_all(settings, &console, &tally, interrupt.flag());
    let asks = settings.rules.existing == MoveExisting::Ask;
    let unasked = progress::is_drawn_unasked(tool, resolved.json || settings.rules.verbose);
    let outcome = progress::watch((resolved.progress || unasked) && !asks, || Standing::from(&tally), work);
    if let (true, Some(contradiction)) = (outcome.is_refused, &resolved.contradiction) {
        return refuse(tool, contradiction, contradiction.has_hint());
    }
    console.summary(&tally, outcome.failures, outcome.interrupted);
    if outcome.interrupted {
        tell_interrupted(&console, &outcome);
        return interrupt.end();
    }
    console.close(outcome.failures > 0)
}

/// An interrupted job says what it left and how to go on.
fn tell_interrupted(console: &Console<'_>, outcome: &Outcome) {
    for sink in &outcome.cut_off {
        console.say(&format_args!("interrupted: {} is not complete", quote(sink)));
    }
    console
        .say(&"interrupted: what was not moved stands whole where it was; remove its copy and move it again");
}
