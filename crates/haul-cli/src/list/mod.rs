//! `haul list`: prints the names in a directory of another host.

use crate::console::{self, say};
use crate::json;
use crate::remote::args::{ConnectionSettings, ResolvedJobArgs};
use crate::remote::ending::EXIT_FAILED;
use crate::remote::host::{Peer, RemoteHost};
use crate::remote::place::Location;
use crate::remote::ssh::LoginArgs;
use crate::remote::ticket;
use crate::remote::transport::TransportArgs;
use crate::remote::typed::{self, StartError};
use crate::remote::way::StoppableDialer;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use clap::Parser;
use haul_engine::copy::quote_if_needed;
use haul_engine::transfer;
use haul_log::waybill::date;
use haul_proto::{EntryKind, ListedEntry};
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

const NAME: &str = "haul list";

/// Print the names in a directory of another host, sorted by their bytes.
///
/// HOST:PATH uses ssh, which starts haul there. With --ticket-file the remote host runs 'haul
/// serve': write :PATH, below the served directory, or : for the directory itself. The ticket must
/// permit fetching. Names that start with .haul-, which are haul's own files, are not listed.
///
/// Exit status: 0 all names were printed, 1 some are missing, 2 nothing was listed.
#[derive(Debug, Parser)]
#[command(
    name = "haul list",
    disable_version_flag = true,
    override_usage = "haul list [OPTION]... [USER@]HOST:PATH\n       haul list [OPTION]... --ticket-file FILE :PATH"
)]
struct Args {
    /// Print the names in this directory.
    #[arg(value_name = "HOST:PATH")]
    directory: OsString,
    /// Print also the kind, the permissions, the size in bytes and the modification time (UTC).
    #[arg(short, long, conflicts_with = "zero")]
    long: bool,
    /// Print the bytes of each name unchanged, with a NUL behind it.
    #[arg(short = '0', long = "null", help_heading = "Output options")]
    zero: bool,
    /// Print one JSON object per line.
    #[arg(long, conflicts_with_all = ["long", "zero"], help_heading = "Output options")]
    json: bool,
    /// Read the ticket of 'haul serve' from FILE, which must be readable only by you; - is standard
    /// input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["ssh", "remote_haul", "ports", "inside_ssh"], help_heading = "Remote host")]
    ticket_file: Option<OsString>,
    #[command(flatten)]
    login: LoginArgs,
    /// Connect by NAME: tcp, udp, quic, auto, or, with a ticket, sctp, as 'haul fetch' does.
    #[arg(long, value_name = "NAME", default_value = "tcp", help_heading = "Network options")]
    transport: String,
    /// Do not encrypt: anyone on the network path can read the names and modify them. The remote
    /// host needs the same option.
    #[arg(long, help_heading = "Network options")]
    plain: bool,
}

/// Runs the command with `args`, which do not include the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    typed::run::<Args>(NAME, args, |args, _| start(args))
}

impl Args {
    /// Returns the host and the path there. The error is a message.
    fn host(&self) -> Result<(RemoteHost, Vec<u8>), String> {
        match (Location::parse(&self.directory).map_err(|error| error.to_string())?, &self.ticket_file) {
            (Location::Ssh { .. }, None) if self.transport == "sctp" => {
                Err("--transport=sctp needs a ticket; use 'haul serve --transport=sctp'".to_owned())
            }
            (Location::Ssh { login, path }, None) => {
                Ok((RemoteHost::Ssh { ssh: self.login.resolve()?, login }, path))
            }
            (Location::Ticket(path), Some(file)) => {
                Ok((RemoteHost::Server(Box::new(ticket::read(file)?)), typed::beneath_root(&path)))
            }
            (place, file) => Err(typed::wrong_target(&self.directory, &place, file.is_some(), "ls")),
        }
    }

    /// Writes the line of an entry.
    fn write(&self, entry: &ListedEntry, out: &mut dyn Write) -> io::Result<()> {
        let ListedEntry { name, kind, size, mtime, mode } = entry;
        if self.zero {
            return out.write_all(&[name, &b"\0"[..]].concat());
        }
        if self.json {
            let (key, text) = match std::str::from_utf8(name) {
                Ok(text) => ("name", text.to_owned()),
                Err(_) => ("name_base64", STANDARD.encode(name)),
            };
            let mut object = json!({
                "kind": kind.name(), "size": size, "mtime": mtime.sec, "mtime_ns": mtime.nsec, "mode": mode,
            });
            object[key] = text.into();
            return writeln!(out, "{}", json::to_string(&object));
        }
        if self.long {
            let letter = match kind {
                EntryKind::File => '-',
                EntryKind::Directory => 'd',
                EntryKind::Symlink => 'l',
                EntryKind::Fifo => 'p',
                EntryKind::Socket => 's',
                EntryKind::Device => 'b',
                EntryKind::Unknown => '?',
            };
            write!(out, "{letter} {mode:04o} {size:>15} {} ", date(mtime.sec))?;
        }
        writeln!(out, "{}", quote_if_needed(OsStr::from_bytes(name)))
    }
}

fn start(args: &Args) -> Result<u8, StartError> {
    let transport = TransportArgs::named(&args.transport);
    let link = ConnectionSettings {
        plain: args.plain,
        sctp: transport.is_sctp(),
        udp: transport.resolve(args.plain, None)?,
        ..ConnectionSettings::default()
    };
    let mut resolved = ResolvedJobArgs::plain(None);
    (resolved.link, resolved.lanes) = (link, Some(1));
    let (host, path) = args.host()?;
    // An interrupt ends the process: a listing leaves nothing behind.
    let stop = AtomicBool::new(false);
    let (peer, path, note) = host.connect(&resolved, &path, &stop)?;
    if let Some(note) = note {
        say(NAME, &note);
    }
    let mut out = BufWriter::new(io::stdout().lock());
    let (mut written, mut names) = (Ok(()), 0_u64);
    let listed =
        transfer::list(&StoppableDialer { way: peer.way(), stop: &stop }, &path, b"", &mut |entry| {
            written = args.write(&entry, &mut out);
            names += 1;
            written.is_ok()
        });
    if let Peer::SshPeer(met) = peer {
        // The exit of the remote haul does not affect the listing.
        met.part();
    }
    if let Err(error) = written.and_then(|()| out.flush()) {
        return Ok(console::unwritten(NAME, &error, EXIT_FAILED));
    }
    match listed {
        Ok(_) => Ok(0),
        Err(error) if names == 0 => Err(error.to_string().into()),
        Err(error) => {
            say(NAME, &format_args!("the list of names is not complete: {error}"));
            Ok(EXIT_FAILED)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/list.md", documented::typed_by::<Args>());
    }
}
