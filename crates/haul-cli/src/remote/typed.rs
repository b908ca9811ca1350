//! Steps of `haul send` and `haul fetch` before the job starts: from the command line to an exit
//! status.

use super::args::ResolvedJobArgs;
use super::output::Output;
use super::place::Location;
use super::ssh::{MeetError, Ssh, SshPeer};
use super::transport::held;
use super::words::{Direction, EncodedPaths, MEET, MEET_LISTED, Request, UdpRequest, to_words};
use crate::console;
use crate::interrupt::Interrupt;
use crate::tool::without_controls;
use clap::{ArgMatches, CommandFactory, FromArgMatches};
use haul_engine::copy::quote;
use haul_engine::transfer::DEFAULT_LANES_MAX;
use haul_net::{Chunk, Rate, UdpSettings};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;

/// Exit status if nothing was started.
pub(crate) const EXIT_ERROR: u8 = 2;

/// Error before a job starts.
pub(crate) enum StartError {
    /// Message for the user.
    Message(String),
    /// The message is printed already; the value is the exit status.
    Reported(u8),
}

impl From<String> for StartError {
    fn from(message: String) -> StartError {
        StartError::Message(message)
    }
}

/// Parses `args` and calls `start`.
pub(crate) fn run<A: CommandFactory + FromArgMatches>(
    name: &str,
    args: &[OsString],
    start: impl FnOnce(&A, &ArgMatches) -> Result<u8, StartError>,
) -> ExitCode {
    let words = std::iter::once(OsString::from(name)).chain(args.iter().cloned());
    let parsed = A::command().try_get_matches_from(words);
    let parsed = parsed.and_then(|matches| Ok((A::from_arg_matches(&matches)?, matches)));
    let (args, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(error) if error.use_stderr() => {
            eprint!("{}", without_controls(&error.to_string()));
            return ExitCode::from(EXIT_ERROR);
        }
        Err(answer) => {
            return console::answer(name, &answer.to_string());
        }
    };
    match start(&args, &matches) {
        Ok(status) | Err(StartError::Reported(status)) => ExitCode::from(status),
        Err(StartError::Message(message)) => {
            eprintln!("{name}: {}", without_controls(&message));
            ExitCode::from(EXIT_ERROR)
        }
    }
}

/// Returns a path of a server, relative to the root.
pub(crate) fn beneath_root(path: &[u8]) -> Vec<u8> {
    let start = path.iter().position(|&byte| byte != b'/').unwrap_or(path.len());
    path[start..].to_vec()
}

/// Returns the reason why `operand` cannot be the remote path.
pub(crate) fn wrong_target(operand: &OsStr, place: &Location, has_ticket: bool, local_tool: &str) -> String {
    let shown = quote(operand);
    match place {
        _ if looks_like_ticket(operand) => secret_in_argv(),
        Location::Local(_) if has_ticket => {
            format!("{shown} is a local path; with a ticket, write the remote path as :PATH")
        }
        Location::Local(_) => {
            format!(
                "{shown} is a local path; write the remote path as HOST:PATH, or use '{local_tool}' within one host"
            )
        }
        Location::Ssh { .. } => format!("{shown}: the ticket already names the host; write :PATH"),
        Location::Ticket(_) => format!("{shown} names no host; write HOST:PATH, or use --ticket-file FILE"),
    }
}

/// Returns the reason why `operand` cannot be a local path.
pub(crate) fn not_local(operand: &OsStr) -> String {
    if looks_like_ticket(operand) {
        return secret_in_argv();
    }
    format!(
        "{} is a remote path, but a local path is required; for a local file of this name, put ./ in front of it",
        quote(operand)
    )
}

/// Returns true if the argument looks like a ticket. It is then not repeated in messages.
pub(crate) fn looks_like_ticket(operand: &OsStr) -> bool {
    let text = operand.to_string_lossy();
    text.len() > 40 && text.trim_start_matches(':').to_ascii_lowercase().starts_with(haul_net::ticket::PREFIX)
}

fn secret_in_argv() -> String {
    "refusing a ticket on the command line: all users of this host can see it there; have this ticket withdrawn, write \
     the new one to a file of mode 600, and use --ticket-file FILE"
        .to_owned()
}

/// Returns the request to the remote haul, and the data that follows its line.
pub(crate) fn request(
    resolved: &ResolvedJobArgs,
    ssh: &Ssh,
    way: Direction,
    paths: &[Vec<u8>],
) -> (Request, Vec<u8>) {
    let told = EncodedPaths::of(paths);
    let request = Request {
        meet: if told.listed.is_some() { MEET_LISTED } else { MEET },
        way,
        paths: told.in_line,
        listed: told.listed,
        ports: ssh.ports,
        lanes: resolved.lanes.unwrap_or(DEFAULT_LANES_MAX),
        buffers: resolved.buffers,
        // Only the sender keeps the rate.
        rate: resolved.rate.filter(|_| way == Direction::Fetch),
        congestion: resolved.link.congestion.clone(),
        multipath: resolved.link.multipath,
        plain: resolved.link.plain,
        udp: resolved.link.udp.as_ref().map(|udp| UdpRequest {
            check: udp.check.name().to_owned(),
            buffers: Some(udp.buffer_max).filter(|bytes| *bytes != UdpSettings::default().buffer_max),
            chunk: match udp.chunk {
                Chunk::Fixed(bytes) => Some(bytes),
                Chunk::Found { .. } => None,
            },
            rate: match held(resolved.rate, resolved.lanes.unwrap_or(1)) {
                Rate::Fixed(rate) if way == Direction::Fetch => Some(rate),
                _ => None,
            },
        }),
        dry_run: resolved.options.dry_run,
        waybill: ssh.waybill_there.as_ref().map(|file| to_words(&[file.as_encoded_bytes()]).concat()),
    };
    (request, told.behind)
}

/// Reports that the two sides did not connect.
pub(crate) fn not_met(output: &Output<'_>, error: &MeetError, interrupt: &Interrupt) -> StartError {
    output.failure(error);
    let is_interrupted = matches!(error, MeetError::Interrupted);
    StartError::Reported(if is_interrupted { interrupt.status() } else { EXIT_ERROR })
}

/// Reports why the data goes inside ssh.
pub(crate) fn report_connection(output: &Output<'_>, met: &SshPeer, quiet: bool) {
    if let Some(why) = met.note.as_ref().filter(|_| !quiet) {
        output
            .note(&format!("no direct connection, so the data goes through ssh over one connection: {why}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_in_the_arguments_is_not_printed() {
        let ticket = format!("haul1{}", "a".repeat(90));
        assert!(looks_like_ticket(OsStr::new(&ticket)));
        assert!(!looks_like_ticket(OsStr::new("haul1.tar")));
        let message = not_local(OsStr::new(&ticket));
        assert!(!message.contains("aaaa") && message.contains("--ticket-file"), "{message}");
        let message =
            wrong_target(OsStr::new(&ticket), &Location::Local(ticket.clone().into()), true, "haul cp");
        assert!(!message.contains("aaaa"), "{message}");
    }

    #[test]
    fn server_paths_are_relative_to_its_root() {
        assert_eq!(beneath_root(b"/in/box"), b"in/box");
        assert_eq!(beneath_root(b"//"), b"");
        assert_eq!(beneath_root(b"a/"), b"a/");
    }
}
