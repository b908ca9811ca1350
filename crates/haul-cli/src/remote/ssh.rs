//! Client side of a session over ssh: ssh starts haul on the remote host. The lanes use connections
//! of their own, or the pipe of ssh if no port is reachable.

use super::args::ResolvedJobArgs;
use super::place::SshDestination;
use super::policy::PolicyArgs;
use super::way::{Connector, STALL_TIMEOUT, dialer, first_lane};
use super::words::{self, DONE, INSIDE, LoginOutput, OUTSIDE, Reply, Request};
use clap::Args;
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_net::address::Host;
use haul_net::{Address, DialError, Pacer, StreamLane, Ticket};
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use thiserror::Error;

/// Timeout for the exit of the remote haul after the session.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time after the first output of a login that is not haul's answer, until the user sees it.
const OUTPUT_PATIENCE: Duration = Duration::from_secs(10);

/// Characters of such output that are shown.
const OUTPUT_SHOWN: usize = 200;

/// Exit status of the remote shell for an unknown command.
const NOT_FOUND: i32 = 127;

/// Exit status of ssh for its own failures; ssh prints the reason.
const SSH_FAILED: i32 = 255;

/// Options of ssh for a job.
#[derive(Args, Clone, Debug)]
pub(crate) struct SshArgs {
    #[command(flatten)]
    login: LoginArgs,
    /// Write a waybill also to FILE on the remote host; a FILE without a leading slash is
    /// relative to the home directory.
    #[arg(long, value_name = "FILE", help_heading = "Remote host")]
    waybill_there: Option<OsString>,
}

/// Options of the login to a remote host.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoginArgs {
    /// Log in with COMMAND and its options, such as 'ssh -p 2222 -i KEY'.
    #[arg(
        short = 'e',
        long = "ssh",
        value_name = "COMMAND",
        default_value = "ssh",
        help_heading = "Remote host"
    )]
    ssh: String,
    /// Run haul on the remote host as COMMAND, for example if it is not in the PATH there.
    #[arg(long, value_name = "COMMAND", default_value = "haul", help_heading = "Remote host")]
    remote_haul: String,
    /// Use only these ports of the remote host, for example 50000-50100 [default: any].
    #[arg(long, value_name = "FIRST-LAST", help_heading = "Remote host")]
    ports: Option<String>,
    /// Transfer all data through ssh, over one connection.
    #[arg(long, conflicts_with = "ports", help_heading = "Remote host")]
    inside_ssh: bool,
}

/// Resolved ssh options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ssh {
    words: Vec<String>,
    remote_haul: String,
    pub(crate) ports: Option<(u16, u16)>,
    inside: bool,
    pub(crate) waybill_there: Option<OsString>,
    /// Options of the receiver at the remote host.
    pub(crate) accept: PolicyArgs,
}

/// The remote haul, which ssh started.
pub(crate) struct SshPeer {
    child: Child,
    /// Open pipe to the remote haul while lanes have their own connections. Closing the pipe ends
    /// the remote haul.
    line: Option<ChildStdin>,
    pub(crate) way: Connector,
    /// Paths of the operands below the root that the remote haul opens.
    pub(crate) paths: Vec<Vec<u8>>,
    /// Reason why the lanes have no connections of their own, if these were tried.
    pub(crate) note: Option<String>,
}

/// Error that prevents the connection over ssh.
#[derive(Debug, Error)]
pub(crate) enum MeetError {
    /// The command could not be started.
    #[error("cannot start {command}: {}; specify another ssh command with --ssh", reason(source))]
    Start {
        /// First word of the command.
        command: String,
        /// Cause.
        source: io::Error,
    },
    /// The remote shell finds no haul.
    #[error("cannot start '{command}' on {host}: command not found; specify its path with --remote-haul")]
    NotFound {
        /// The remote host.
        host: String,
        /// The command that was called.
        command: String,
    },
    /// The login failed; ssh prints the reason.
    #[error("cannot log in to {host} with ssh")]
    SshDestination {
        /// The remote host.
        host: String,
    },
    /// The command ended without an answer.
    #[error("no answer from haul on {host} ({status}); install the same version on both hosts")]
    NoAnswer {
        /// The remote host.
        host: String,
        /// Exit status of the command.
        status: String,
    },
    /// The received data is not an answer of haul.
    #[error(
        "unexpected answer from {host}: not haul, or an incompatible version; check that the login shell prints nothing"
    )]
    NotHaul {
        /// The remote host.
        host: String,
    },
    /// The remote haul refuses, with a reason.
    #[error("{host}: {why}")]
    Refused {
        /// The remote host.
        host: String,
        /// Its message.
        why: String,
    },
    /// The pipe between both sides failed.
    #[error("lost the ssh connection to {host}: {}", reason(source))]
    Pipe {
        /// The remote host.
        host: String,
        /// Cause.
        source: io::Error,
    },
    /// A lane failed, and the pipe of ssh does not help.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The user interrupted the command.
    #[error("interrupted before the remote host answered")]
    Interrupted,
}

impl SshArgs {
    /// Returns true if haul on the remote host writes a waybill.
    pub(crate) fn has_waybill_there(&self) -> bool {
        self.waybill_there.is_some()
    }

    /// Resolves the options. The error is a message.
    pub(crate) fn resolve(&self) -> Result<Ssh, String> {
        if self.waybill_there.as_ref().is_some_and(|file| file.is_empty()) {
            return Err("--waybill-there: empty file name; specify a file".to_owned());
        }
        Ok(Ssh { waybill_there: self.waybill_there.clone(), ..self.login.resolve()? })
    }
}

impl LoginArgs {
    /// Resolves the options. The error is a message.
    pub(crate) fn resolve(&self) -> Result<Ssh, String> {
        let words = shlex::split(&self.ssh).filter(|words| !words.is_empty());
        let words =
            words.ok_or_else(|| format!("--ssh: {} is not a command", quote(OsStr::new(&self.ssh))))?;
        if self.remote_haul.trim().is_empty() || self.remote_haul.contains(['\n', '\0']) {
            return Err(
                "--remote-haul: not a command; specify the path of haul on the remote host".to_owned()
            );
        }
        let ports = self.ports.as_deref().map(|text| super::values::ports("--ports", text)).transpose()?;
        Ok(Ssh {
            words,
            remote_haul: self.remote_haul.clone(),
            ports,
            inside: self.inside_ssh,
            waybill_there: None,
            accept: PolicyArgs::default(),
        })
    }
}

impl Ssh {
    /// Logs in to `login`, sends `request` and opens the first lane. Gives up once `stop` is true.
    ///
    /// # Errors
    /// Returns [`MeetError`]; ssh has then ended.
    pub(crate) fn meet(
        &self,
        login: &SshDestination,
        request: &(Request, Vec<u8>),
        resolved: &ResolvedJobArgs,
        stop: &AtomicBool,
    ) -> Result<SshPeer, MeetError> {
        // The reply contains a ticket. Without this protection the job still works.
        let _ = haul_sys::process::hide_memory();
        // Only the sender keeps the rate.
        let rate = resolved.rate.filter(|_| request.0.way == words::Direction::Send);
        let mut child = self.start(login)?;
        let opened = self.negotiate(&mut child, login, request, resolved, rate, stop);
        match opened {
            Ok((way, line, paths, note)) => Ok(SshPeer { child, line, way, paths, note }),
            Err(error) => {
                let ended = end(&mut child);
                Err(why(error, ended, login, &self.remote_haul, stop))
            }
        }
    }

    fn start(&self, login: &SshDestination) -> Result<Child, MeetError> {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(login.argument()).arg(self.remote_command());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.spawn().map_err(|source| {
            let command = quote(OsStr::new(&self.words[0])).to_string();
            MeetError::Start { command, source }
        })
    }

    /// Returns the command line for the remote shell. It contains no secret and no path of the job.
    fn remote_command(&self) -> OsString {
        let accept = self.accept.words().into_iter().map(|word| format!(" {word}")).collect::<String>();
        OsString::from(format!("{} meet{accept}", self.remote_haul))
    }

    fn negotiate(
        &self,
        child: &mut Child,
        login: &SshDestination,
        (request, behind): &(Request, Vec<u8>),
        resolved: &ResolvedJobArgs,
        rate: Option<u64>,
        stop: &AtomicBool,
    ) -> Result<OpenedConnection, MeetError> {
        let host = login.host.clone();
        let needs_udp = resolved.link.udp.as_ref().is_some_and(|udp| !udp.falls_back);
        if needs_udp && self.inside {
            let why = "there is no UDP inside ssh; omit --inside".to_owned();
            return Err(MeetError::Refused { host, why });
        }
        let failed = |source: io::Error| MeetError::Pipe { host: host.clone(), source };
        let missing = || failed(io::ErrorKind::BrokenPipe.into());
        let mut line = child.stdin.take().ok_or_else(missing)?;
        let from = child.stdout.take().ok_or_else(missing)?;
        let mut asked = serde_json::to_vec(request).map_err(|error| failed(error.into()))?;
        asked.push(b'\n');
        asked.extend_from_slice(behind);
        // If the login ended already, the missing answer reports it better than the broken pipe.
        let _ = line.write_all(&asked);
        let report = |noise: &[u8]| {
            let start = String::from_utf8_lossy(noise);
            eprintln!(
                "haul: {host} printed '{}' and has not started haul; waiting for it",
                shown_start(&start)
            );
        };
        let output = LoginOutput { patience: OUTPUT_PATIENCE, report: &report };
        let reply = words::read_reply(&from, || stop.load(Ordering::Relaxed), &output);
        let reply = reply.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => MeetError::NotHaul { host: host.clone() },
            io::ErrorKind::Interrupted => MeetError::Interrupted,
            _ => failed(error),
        })?;
        let (ticket, closed, address, paths, listed) = match reply {
            None => return Err(MeetError::NoAnswer { host, status: String::new() }),
            Some(Reply::Failure(why)) => return Err(MeetError::Refused { host, why: shown(&why) }),
            Some(Reply::Ready { ticket, closed, address, paths, listed }) => {
                (ticket, closed, address, paths, listed)
            }
        };
        let told = words::receive_paths(&paths, listed, &from, || stop.load(Ordering::Relaxed));
        let told = told.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => MeetError::NotHaul { host: host.clone() },
            io::ErrorKind::Interrupted => MeetError::Interrupted,
            _ => failed(error),
        })?;
        let asked_for = request.listed.map_or(request.paths.len(), |listed| listed.paths);
        let paths = told.filter(|paths| paths.len() == asked_for);
        let paths = paths.ok_or_else(|| MeetError::NotHaul { host: host.clone() })?;
        let mut note = closed.map(|why| shown(&why));
        if let (Some(text), false) = (ticket, self.inside) {
            let ticket = Ticket::parse(&text).map_err(|_| MeetError::NotHaul { host: host.clone() })?;
            match beside(ticket, login, address.as_deref(), resolved, rate, stop) {
                Ok(way) => {
                    say(&mut line, OUTSIDE).map_err(failed)?;
                    return Ok((way, Some(line), paths, None));
                }
                Err(error @ (DialError::Socket(_) | DialError::GivenUp)) => return Err(error.into()),
                // There is no UDP inside ssh.
                Err(error) if needs_udp => return Err(error.into()),
                Err(error) => note = Some(error.to_string()),
            }
        }
        if needs_udp {
            let why = note.unwrap_or_else(|| "there is no UDP inside ssh".to_owned());
            return Err(MeetError::Refused { host, why });
        }
        if resolved.link.plain && !self.inside {
            note = note.map(|note| format!("{note}; ssh encrypts the data"));
        }
        say(&mut line, INSIDE).map_err(failed)?;
        let mut lane = StreamLane::over_pipes(OwnedFd::from(from), OwnedFd::from(line), Some(STALL_TIMEOUT))
            .map_err(failed)?;
        lane.set_pacer(rate.map(|rate| Arc::new(Pacer::new(rate))));
        Ok((Connector::inside(lane), None, paths, note.filter(|_| !self.inside)))
    }
}

type OpenedConnection = (Connector, Option<ChildStdin>, Vec<Vec<u8>>, Option<String>);

/// Opens the first lane outside ssh. The host is reached by its name or by the address that it
/// reports.
fn beside(
    ticket: Ticket,
    login: &SshDestination,
    address: Option<&str>,
    resolved: &ResolvedJobArgs,
    rate: Option<u64>,
    stop: &AtomicBool,
) -> Result<Connector, DialError> {
    let port = ticket.addresses().first().map_or(0, |address| address.port);
    let hosts = [Some(login.host.as_str()), address].into_iter().flatten();
    let mut addresses: Vec<Address> = Vec::new();
    for host in hosts.filter_map(|host| Host::parse(host).ok()) {
        let address = Address { host, port };
        if !addresses.contains(&address) {
            addresses.push(address);
        }
    }
    let own = ticket.clone();
    let ticket = ticket.with_addresses(addresses).unwrap_or(own);
    let dialer = dialer(ticket, &resolved.link, rate, resolved.lanes, true)?;
    let first = first_lane(&dialer, stop)?;
    Ok(Connector::outside(dialer, Some(first)))
}

impl SshPeer {
    /// Sends the end of the session and waits for the remote haul to exit. Returns true if it
    /// succeeded.
    pub(crate) fn part(mut self) -> bool {
        if let Some(mut line) = self.line.take() {
            // If ssh has ended, the remote haul knows already.
            let _ = say(&mut line, DONE);
        }
        drop(self.way);
        end(&mut self.child).is_some_and(|status| status.success())
    }
}

fn say(line: &mut ChildStdin, word: &str) -> io::Result<()> {
    line.write_all(format!("{word}\n").as_bytes())
}

/// Waits for ssh, whose input is closed. Kills ssh after the timeout.
fn end(child: &mut Child) -> Option<ExitStatus> {
    drop(child.stdin.take());
    let begun = Instant::now();
    while begun.elapsed() < EXIT_TIMEOUT {
        match child.try_wait() {
            Ok(Some(status)) => return Some(status),
            Ok(None) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => break,
        }
    }
    // An error is ignored: ssh may have ended meanwhile.
    let _ = child.kill();
    child.wait().ok()
}

/// Derives the cause of the failure from the exit status of ssh.
fn why(
    error: MeetError,
    ended: Option<ExitStatus>,
    login: &SshDestination,
    command: &str,
    stop: &AtomicBool,
) -> MeetError {
    if stop.load(Ordering::Relaxed) {
        return MeetError::Interrupted;
    }
    let MeetError::NoAnswer { host, .. } = error else { return error };
    let status = match ended {
        Some(status) => match (status.code(), status.signal()) {
            (Some(NOT_FOUND), _) => {
                return MeetError::NotFound { host, command: command.escape_debug().to_string() };
            }
            (Some(SSH_FAILED), _) => return MeetError::SshDestination { host: login.host.clone() },
            (Some(code), _) => format!("status {code}"),
            (None, Some(signal)) => format!("signal {signal}"),
            (None, None) => "no status".to_owned(),
        },
        None => "no status".to_owned(),
    };
    MeetError::NoAnswer { host, status }
}

/// Returns text of the remote host without control characters, limited to 1,000 characters.
fn shown(text: &str) -> String {
    let short: String = text.chars().take(1000).collect();
    crate::tool::without_controls(&short).replace('\n', " ")
}

/// Returns the start of output of the remote host on one line, with an escape for each control
/// character.
fn shown_start(output: &str) -> String {
    let short: String = output.trim_end().chars().take(OUTPUT_SHOWN).collect();
    let is_cut = short.len() < output.trim_end().len();
    let escaped = crate::tool::without_controls(&short).replace('\n', "\\n");
    if is_cut { format!("{escaped}...") } else { escaped }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(ssh: &str) -> LoginArgs {
        LoginArgs { ssh: ssh.into(), remote_haul: "haul".into(), ports: None, inside_ssh: false }
    }

    #[test]
    fn ssh_command_is_split_into_words() {
        let ssh = args("ssh -i 'my key' -p 2222").resolve().expect("words");
        assert_eq!(ssh.words, ["ssh", "-i", "my key", "-p", "2222"]);
        assert!(args("ssh 'open").resolve().is_err());
        assert!(args("  ").resolve().is_err());
        assert_eq!(ssh.remote_command(), "haul meet");
    }

    #[test]
    fn peer_messages_are_escaped_and_truncated() {
        assert_eq!(shown("a\u{1b}[2J\nb"), "a\\x1b[2J b");
        assert_eq!(shown(&"x".repeat(5000)).len(), 1000);
    }
}
