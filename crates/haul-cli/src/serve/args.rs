//! Options of `haul serve`, as typed and resolved.

use super::config::Config;
use super::meant::{Issue, Meant, Share};
use super::{addresses, meant};
use crate::remote::args::buffers;
use crate::remote::values;
use clap::Parser;
use haul_engine::copy::quote;
use haul_net::{Limits, Role, Uses};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

/// Let the holders of tickets send and fetch below a directory.
///
/// One line on standard output is the ticket: it holds the addresses, the expected certificate and
/// a secret. Pass it to its holder by a private channel; 'haul send --ticket-file' and 'haul fetch
/// --ticket-file' read it. It is valid until this process ends, --expires is reached or, with
/// --once, its first session ends.
///
/// With --config, several directories with one ticket each are served, and identity and tickets are
/// kept in files.
///
/// Exit status: 0 stopped, or with --once all files arrived; 1 with --once, some files did not
/// arrive; 2 the server could not start.
#[derive(Debug, Parser)]
#[command(name = "haul serve", disable_version_flag = true)]
pub(super) struct Args {
    /// Serve DIR: nothing outside it is read or written.
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    root: Option<OsString>,
    /// Serve the shares of FILE (TOML); docs/options/transfer.md describes the format.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "once", "read_only", "write_only", "expires", "quota",
          "listen", "address", "plain", "identity", "ticket_file", "sessions", "sessions_per_peer", "streams", "rate", "cc",
          "mptcp", "buffers", "keep_owner", "keep_setuid", "waybills", "state_dir", "log_quota", "log_jobs", "log_age"])]
    config: Option<PathBuf>,

    /// Let the ticket open one session, and end with that session.
    #[arg(long, help_heading = "The ticket")]
    once: bool,
    /// Let the holder only fetch.
    #[arg(long, conflicts_with = "write_only", help_heading = "The ticket")]
    read_only: bool,
    /// Let the holder only send.
    #[arg(long, help_heading = "The ticket")]
    write_only: bool,
    /// Open no session after TIME, such as 2h or 7d, or from DATE on, such as 2026-12-31 (UTC).
    #[arg(long, value_name = "TIME|DATE", help_heading = "The ticket")]
    expires: Option<String>,
    /// Limit the data that one session may send to SIZE: 10G, ...
    #[arg(long, value_name = "SIZE", help_heading = "The ticket")]
    quota: Option<String>,
    /// Write the ticket to FILE, which only you may read, and not to standard output.
    #[arg(long, value_name = "FILE", help_heading = "The ticket")]
    ticket_file: Option<PathBuf>,

    /// Listen on ADDRESS:PORT, such as 0.0.0.0:7433 or [::1]:7433; port 0 takes a free one
    /// [default: port 7433 of all addresses].
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "The way")]
    listen: Vec<SocketAddr>,
    /// Put NAME into the ticket as this host's address: a name or an IP address, with a port if
    /// clients need another one.
    #[arg(long, value_name = "NAME[:PORT]", help_heading = "The way")]
    address: Vec<String>,
    /// Keep the certificate and its key in FILE, so that clients recognize this server again;
    /// created if it is missing.
    #[arg(long, value_name = "FILE", conflicts_with = "plain", help_heading = "The way")]
    identity: Option<PathBuf>,
    /// Do not encrypt the data: anyone on the network path can read and change it. Clients need the
    /// same option.
    #[arg(long, help_heading = "The way")]
    plain: bool,
    /// Limit the rate to all clients together to RATE bytes per second: 50M, 1GB, ...
    #[arg(long, value_name = "RATE", help_heading = "The way")]
    rate: Option<String>,
    /// Set the congestion control of the connections: bbr, cubic, ... as the kernel offers them.
    #[arg(long, value_name = "NAME", help_heading = "The way")]
    cc: Option<String>,
    /// Let clients use several paths concurrently by Multipath TCP.
    #[arg(long, help_heading = "The way")]
    mptcp: bool,

    /// Limit the number of concurrent sessions.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    sessions: Option<usize>,
    /// Limit the number of concurrent sessions from one address.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    sessions_per_peer: Option<usize>,
    /// Limit the number of connections of one session.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    streams: Option<u16>,
    /// Set the memory for bytes in flight of each session.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    buffers: Option<String>,
    /// Let clients keep owners and groups of files that they send.
    #[arg(long, help_heading = "Limits")]
    keep_owner: bool,
    /// Let clients keep setuid and setgid bits of files that they send.
    #[arg(long, help_heading = "Limits")]
    keep_setuid: bool,

    /// Keep the logs of interrupted jobs in DIR (default: haul in $XDG_STATE_HOME or in
    /// ~/.local/state); DIR must be outside the served directory.
    #[arg(long, value_name = "DIR", help_heading = "Going on")]
    state_dir: Option<PathBuf>,
    /// Limit the logs of interrupted jobs to SIZE (default: 64M). Above it, jobs of tickets that
    /// use more than an equal share are evicted, from the ticket that uses most, its oldest job
    /// first. A job without space for its log starts from the beginning.
    #[arg(long, value_name = "SIZE", help_heading = "Going on")]
    log_quota: Option<String>,
    /// Keep at most N interrupted jobs (default: 1000), shared like --log-quota; 0 keeps none.
    #[arg(long, value_name = "N", help_heading = "Going on")]
    log_jobs: Option<usize>,
    /// Delete a job and its received data after it was idle for TIME (default: 14d).
    #[arg(long, value_name = "TIME", help_heading = "Going on")]
    log_age: Option<String>,

    /// Write a waybill of each session to DIR, named by its time and its number in the log; DIR
    /// must be outside the served directory.
    #[arg(long, value_name = "DIR")]
    waybills: Option<PathBuf>,
    /// Do not print the clients and the results of sessions.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl Args {
    /// Resolves the options. The error is a message.
    pub(super) fn resolve(&self) -> Result<Meant, String> {
        if let Some(file) = &self.config {
            return Config::read(file)?.resolve();
        }
        let root = self.root.clone().ok_or("--root: say which directory")?;
        meant::check_root(&root)?;
        let expires = self.expires.as_deref().map(|text| values::end(text, SystemTime::now())).transpose()?;
        let share = Share {
            name: quote(&root).to_string(),
            root,
            role: match (self.read_only, self.write_only) {
                (true, _) => Role::Read,
                (_, true) => Role::Write,
                _ => Role::Both,
            },
            quota: self.quota.as_deref().map(|text| values::bytes("--quota", text)).transpose()?,
            keep: meant::keep(self.keep_owner, self.keep_setuid),
            expires,
            uses: if self.once { Uses::Once } else { Uses::Lasting },
            issue: self.ticket_file.clone().map_or(Issue::Print, Issue::New),
        };
        let shares = vec![share];
        Ok(Meant {
            waybills: meant::waybills(self.waybills.as_deref(), &shares)?,
            shares,
            listen: self.listen.clone(),
            addresses: self.address.iter().map(|text| addresses::named(text)).collect::<Result<_, _>>()?,
            identity: self.identity.clone(),
            plain: self.plain,
            rate: self.rate.as_deref().map(|text| values::rate("--rate", text)).transpose()?,
            congestion: self.cc.clone(),
            multipath: self.mptcp,
            limits: meant::limits(self.sessions, self.sessions_per_peer, self.streams, Limits::default())?,
            buffers: buffers(self.buffers.as_deref())?,
            logs: meant::logs(
                self.state_dir.clone(),
                self.log_quota.as_deref(),
                self.log_jobs,
                self.log_age.as_deref(),
            )?,
            once: self.once,
        })
    }
}
