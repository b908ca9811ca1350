//! What was typed, and what it means.

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

/// Let the holders of tickets send and fetch beneath a directory.
///
/// One line on standard output is the ticket: it carries where to connect, the certificate to expect and a secret. Give it
/// to whom you mean, by a way that only the two of you read; 'haul send --ticket-file' and 'haul fetch --ticket-file' take
/// it. It is good until this process ends, --expires comes, or, with --once, its first session is over.
///
/// With --config several directories with a ticket each are served, and identity and tickets are kept in files.
///
/// Exit status: 0 it was ended, or with --once all arrived; 1 with --once, not all arrived; 2 it could not serve.
#[derive(Debug, Parser)]
#[command(name = "haul serve", disable_version_flag = true)]
pub(super) struct Args {
    /// The directory that is opened: nothing outside it is read or written.
    #[arg(long, value_name = "DIR", required_unless_present = "config")]
    root: Option<OsString>,
    /// Serve what FILE (TOML) says; docs/options/transfer.md describes it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["root", "once", "read_only", "write_only", "expires", "quota",
          "listen", "address", "plain", "identity", "ticket_file", "sessions", "sessions_per_peer", "streams", "rate", "cc",
          "mptcp", "buffers", "keep_owner", "keep_setuid", "waybills", "state_dir", "log_quota", "log_jobs", "log_age"])]
    config: Option<PathBuf>,

    /// The ticket opens one session, and this process ends with it.
    #[arg(long, help_heading = "The ticket")]
    once: bool,
    /// Its holder may fetch, and not send.
    #[arg(long, conflicts_with = "write_only", help_heading = "The ticket")]
    read_only: bool,
    /// Its holder may send, and not fetch.
    #[arg(long, help_heading = "The ticket")]
    write_only: bool,
    /// It opens no session after a time, as 2h or 7d, or from a date on, as 2026-12-31 (UTC).
    #[arg(long, value_name = "TIME|DATE", help_heading = "The ticket")]
    expires: Option<String>,
    /// How much one session may send at most: 10G, ...
    #[arg(long, value_name = "SIZE", help_heading = "The ticket")]
    quota: Option<String>,
    /// Write the ticket to FILE, which only you may read, and not to standard output.
    #[arg(long, value_name = "FILE", help_heading = "The ticket")]
    ticket_file: Option<PathBuf>,

    /// Where to listen, as 0.0.0.0:7433 or [::1]:7433; port 0 takes a free one. Port 7433 of all addresses without this.
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "The way")]
    listen: Vec<SocketAddr>,
    /// Where clients find this host, as the ticket is to say: a name or a number, with a port if another one leads here.
    #[arg(long, value_name = "NAME[:PORT]", help_heading = "The way")]
    address: Vec<String>,
    /// Keep the certificate and its key in FILE, so that clients know this server again; made if it is missing.
    #[arg(long, value_name = "FILE", conflicts_with = "plain", help_heading = "The way")]
    identity: Option<PathBuf>,
    /// Don't encrypt: anyone on the way can read and change the data. Clients must ask for the same.
    #[arg(long, help_heading = "The way")]
    plain: bool,
    /// At most so many bytes a second to all clients together: 50M, 1GB, ...
    #[arg(long, value_name = "RATE", help_heading = "The way")]
    rate: Option<String>,
    /// Congestion control of the connections: bbr, cubic, ... as the kernel offers them.
    #[arg(long, value_name = "NAME", help_heading = "The way")]
    cc: Option<String>,
    /// Let clients use several paths at once by Multipath TCP.
    #[arg(long, help_heading = "The way")]
    mptcp: bool,

    /// Sessions at once.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    sessions: Option<usize>,
    /// Sessions at once from one address.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    sessions_per_peer: Option<usize>,
    /// Connections of one session.
    #[arg(long, value_name = "N", help_heading = "Limits")]
    streams: Option<u16>,
    /// Memory for bytes under way, of each session.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    buffers: Option<String>,
    /// Let clients keep owners and groups of what they send.
    #[arg(long, help_heading = "Limits")]
    keep_owner: bool,
    /// Let clients keep setuid and setgid bits of what they send.
    #[arg(long, help_heading = "Limits")]
    keep_setuid: bool,

    /// Keep in DIR what of jobs is there that were cut off (default: haul in $XDG_STATE_HOME or in ~/.local/state); DIR may not lie in
    /// the directory that is opened.
    #[arg(long, value_name = "DIR", help_heading = "Going on")]
    state_dir: Option<PathBuf>,
    /// The logs of all jobs that were cut off take so much at most (default: 64M). Then tickets that have more than an equal share of it give way,
    /// the one with the most first, its oldest job first; what finds no room begins anew.
    #[arg(long, value_name = "SIZE", help_heading = "Going on")]
    log_quota: Option<String>,
    /// So many jobs that were cut off are kept at most (default: 1000), shared as the quota is; 0 keeps none.
    #[arg(long, value_name = "N", help_heading = "Going on")]
    log_jobs: Option<usize>,
    /// Forget a job, and what came of it, when nobody has gone on with it for so long (default: 14d).
    #[arg(long, value_name = "TIME", help_heading = "Going on")]
    log_age: Option<String>,

    /// Write a receipt of each session to DIR, named by its time and its number in the log; DIR may not lie in the directory
    /// that is opened.
    #[arg(long, value_name = "DIR")]
    waybills: Option<PathBuf>,
    /// Don't say who came, and what each session came to.
    #[arg(short, long)]
    pub(super) quiet: bool,
}

impl Args {
    /// What is to be served. The error is a message.
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
