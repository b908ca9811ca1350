//! The binary `haul`. Called as `haul`, it takes a command (`haul cp`, `haul sum`, `haul check`,
//! `haul bench`). Called as `cp`, `mcp`, `md5sum`, `msum`, ..., it acts as that tool and signs its
//! messages with that name.

#![cfg_attr(not(test), no_main)]

mod bench;
mod check;
mod console;
mod cp;
#[cfg(test)]
mod documented;
mod fetch;
mod getopt;
mod install;
mod interrupt;
mod jobs;
mod json;
mod list;
mod meet;
mod mv;
mod progress;
mod receipt;
mod remote;
mod repair;
mod send;
mod serve;
mod sum;
mod tool;
mod verify;
mod waybill;

use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use tool::Tool;

#[cfg(not(test))]
haul_sys::program!(run);

#[cfg_attr(test, allow(dead_code, reason = "the tests have a start of their own"))]
fn run() -> ExitCode {
    let mut args = std::env::args_os();
    let called = args.next().unwrap_or_else(|| OsString::from("haul"));
    let args: Vec<OsString> = args.collect();
    if let Err(message) = limit_backends() {
        eprintln!("haul: {}", tool::without_controls(&message));
        return ExitCode::FAILURE;
    }
    match tool::called_as(&called) {
        Some(tool) => start(&tool, &args),
        None => command(&args),
    }
}

/// Environment variable that limits the instructions of digests, for tests of other processors.
const BACKENDS: &str = "HAUL_DIGEST_BACKENDS";

/// Limits the lanes of digests to the backends that [`BACKENDS`] names, if it is set.
fn limit_backends() -> Result<(), String> {
    match std::env::var_os(BACKENDS) {
        Some(list) if !list.is_empty() => haul_digest::lanes::limit_backends(&list.to_string_lossy())
            .map_err(|error| format!("cannot limit the instructions of digests by {BACKENDS}: {error}")),
        _ => Ok(()),
    }
}

/// Runs `haul COMMAND ...`.
fn command(args: &[OsString]) -> ExitCode {
    let Some((command, rest)) = args.split_first() else {
        eprint!("{}", tool::HELP);
        return ExitCode::FAILURE;
    };
    match tool::command(command) {
        Some(tool) => start(&tool, rest),
        None => answer(command),
    }
}

fn start(tool: &Tool, args: &[OsString]) -> ExitCode {
    match tool {
        Tool::Copy(name) => apart(|| cp::run(name, args)),
        Tool::Install(name) => apart(|| install::run(name, args)),
        Tool::Move(name) => apart(|| mv::run(name, args)),
        Tool::Sum(name) => apart(|| sum::run(name, args)),
        Tool::Bench => apart(|| bench::run(args)),
        Tool::Check => apart(|| check::run(args)),
        Tool::Verify => apart(|| verify::run(args)),
        Tool::Repair => apart(|| repair::run(args)),
        Tool::Waybill => apart(|| waybill::run(args)),
        Tool::Send => apart(|| send::run(args)),
        Tool::Fetch => apart(|| fetch::run(args)),
        Tool::List => apart(|| list::run(args)),
        Tool::Serve => apart(|| serve::run(args)),
        Tool::Gui => apart(|| serve::run_gui(args)),
        Tool::Jobs => apart(|| jobs::run(args)),
        Tool::Meet => apart(|| meet::run(args)),
    }
}

/// Runs a tool in its own stack frame. With one frame for all tools, each call would touch all
/// stack pages that the largest tool needs, before it does any work.
#[inline(never)]
fn apart(run: impl FnOnce() -> ExitCode) -> ExitCode {
    run()
}

/// Answers a first argument that is not a command: a question about haul itself, or a usage error.
fn answer(word: &OsStr) -> ExitCode {
    let text = match word.to_str() {
        Some("-h" | "--help" | "help") => tool::HELP.to_owned(),
        Some("-V" | "--version" | "version") => format!("haul (Surehaul) {}\n", env!("CARGO_PKG_VERSION")),
        _ => {
            eprintln!("haul: {} is not a command{}", haul_engine::copy::quote(word), tool::suggestion(word));
            eprintln!("Try 'haul --help' for the list of commands.");
            return ExitCode::FAILURE;
        }
    };
    console::answer("haul", &text)
}
