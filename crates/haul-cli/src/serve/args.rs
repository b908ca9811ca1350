//! Options of `haul serve`, as typed and resolved.

use super::config::Config;
use super::resolved::{Issue, ResolvedArgs, Share};
use super::sandboxing::Sandboxing;
use super::user::SessionUser;
use super::web::{self, LinkTarget, Web};
use super::{addresses, resolved};
use crate::jobs::log_args::StyleArgs;
use crate::remote::args::buffers;
use crate::remote::values;
use clap::Parser;
use haul_engine::copy::quote;
use haul_engine::transfer::SinkPolicy;
use haul_net::{Limits, Role, Uses};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::SystemTime;

/// Allow the holders of tickets to send and fetch files below a directory.
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
          "mptcp", "transport", "packet_check", "udp_ports", "udp_buffers", "buffers", "keep_owner", "keep_setuid", "specials", "outside_links", "system_xattrs", "stored_sums", "waybills", "web", "web_cert", "web_key", "web_link", "web_metrics", "web_peers", "state_dir", "log_quota", "log_jobs", "log_age", "log_mechanism", "log_encoding", "user", "sandbox"])]
    config: Option<PathBuf>,

    /// Accept one session with the ticket, and exit after that session.
    #[arg(long, help_heading = "Ticket options")]
    once: bool,
    /// Allow the holder only to fetch.
    #[arg(long, conflicts_with = "write_only", help_heading = "Ticket options")]
    read_only: bool,
    /// Allow the holder only to send.
    #[arg(long, help_heading = "Ticket options")]
    write_only: bool,
    /// Open no session after TIME, such as 2h or 7d, or on and after DATE, such as 2026-12-31
    /// (UTC).
    #[arg(long, value_name = "TIME|DATE", help_heading = "Ticket options")]
    expires: Option<String>,
    /// Limit the data that one session may send to SIZE, for example 10G.
    #[arg(long, value_name = "SIZE", help_heading = "Ticket options")]
    quota: Option<String>,
    /// Write the ticket to FILE, readable only by you, instead of standard output.
    #[arg(long, value_name = "FILE", help_heading = "Ticket options")]
    ticket_file: Option<PathBuf>,

    /// Listen on ADDRESS:PORT, such as 0.0.0.0:7433 or [::1]:7433; port 0 selects a free port
    /// [default: port 7433 of all addresses].
    #[arg(long, value_name = "ADDRESS:PORT", help_heading = "Network options")]
    listen: Vec<SocketAddr>,
    /// Put NAME into the ticket as this host's address: a name or an IP address, with a port if
    /// clients need another one.
    #[arg(long, value_name = "NAME[:PORT]", help_heading = "Network options")]
    address: Vec<String>,
    /// Keep the certificate and its key in FILE, so that clients recognize this server again;
    /// created if it is missing.
    #[arg(long, value_name = "FILE", conflicts_with = "plain", help_heading = "Network options")]
    identity: Option<PathBuf>,
    /// Do not encrypt the data: anyone on the network path can read and modify it. Clients need the
    /// same option.
    #[arg(long, help_heading = "Network options")]
    plain: bool,
    /// Limit the total rate to all clients to RATE bytes per second, for example 50M or 1GB.
    #[arg(long, value_name = "RATE", help_heading = "Network options")]
    rate: Option<String>,
    /// Set the congestion control of the connections, for example bbr or cubic, if the kernel has
    /// it.
    #[arg(long, value_name = "NAME", help_heading = "Network options")]
    cc: Option<String>,
    /// Offer NAME to clients: tcp; udp, which means TCP, UDP and QUIC; or sctp [default: udp].
    #[arg(long, value_name = "NAME", help_heading = "Network options")]
    transport: Option<String>,
    /// Let clients protect UDP datagrams by CHECK too: crc32c, crc16 or none. Anyone on the network
    /// path can read and modify such data.
    #[arg(long, value_name = "CHECK", help_heading = "Network options")]
    packet_check: Option<String>,
    /// Receive UDP datagrams at a port of the range FIRST-LAST, one for each connection [default:
    /// any port].
    #[arg(long, value_name = "FIRST-LAST", help_heading = "Network options")]
    udp_ports: Option<String>,
    /// Keep at most SIZE bytes for each UDP connection and direction, 1M to 1G, and four times as
    /// much for a session [default: 64M].
    #[arg(long, value_name = "SIZE", help_heading = "Network options")]
    udp_buffers: Option<String>,
    /// Allow clients to use several paths concurrently with Multipath TCP.
    #[arg(long, help_heading = "Network options")]
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
    /// Set the memory of each session for data in flight.
    #[arg(long, value_name = "SIZE", help_heading = "Limits")]
    buffers: Option<String>,
    /// Allow clients to keep owners and groups of the files that they send.
    #[arg(long, help_heading = "Limits")]
    keep_owner: bool,
    /// Allow clients to keep setuid and setgid bits of the files that they send.
    #[arg(long, help_heading = "Limits")]
    keep_setuid: bool,
    /// Let clients send pipes, sockets and devices; they are refused otherwise.
    #[arg(long, help_heading = "Limits")]
    specials: bool,
    /// Let clients send symbolic links to targets outside the served directory; they are refused
    /// otherwise.
    #[arg(long, help_heading = "Limits")]
    outside_links: bool,
    /// Let clients set extended attributes other than user.* and access control lists; they are
    /// left out otherwise.
    #[arg(long, help_heading = "Limits")]
    system_xattrs: bool,
    /// Let clients send digests stored with files: the directory .haul and the attributes of
    /// 'haul sum --store'. They are refused and left out otherwise, because 'haul verify' trusts
    /// them.
    #[arg(long, help_heading = "Limits")]
    stored_sums: bool,

    /// Keep the logs of interrupted jobs in DIR (default: haul in $XDG_STATE_HOME or in
    /// ~/.local/state); DIR must be outside the served directory.
    #[arg(long, value_name = "DIR", help_heading = "Resume options")]
    state_dir: Option<PathBuf>,
    /// Limit the logs of interrupted jobs to SIZE (default: 64M). Above SIZE, evict the least
    /// recently used jobs, of whatever ticket. A job without its log restarts from the beginning.
    #[arg(long, value_name = "SIZE", help_heading = "Resume options")]
    log_quota: Option<String>,
    /// Keep at most N interrupted jobs (default: 1000), evicted like for --log-quota; 0 keeps none.
    #[arg(long, value_name = "N", help_heading = "Resume options")]
    log_jobs: Option<usize>,
    /// Delete a job and its received data after TIME without activity (default: 14d).
    #[arg(long, value_name = "TIME", help_heading = "Resume options")]
    log_age: Option<String>,
    #[command(flatten)]
    log_style: StyleArgs,

    /// Change to user NAME, with that user's groups, after reading certificate and tickets and
    /// binding the port; needs root.
    #[arg(long, value_name = "NAME", help_heading = "Limits")]
    user: Option<OsString>,
    /// Let the kernel confine each session to the served directory (Landlock): auto if it can,
    /// require to refuse to start otherwise, or off.
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Sandboxing::Auto, hide_possible_values = true, help_heading = "Limits")]
    sandbox: Sandboxing,

    /// Serve a page for browsers as well, over HTTPS at ADDRESS:PORT [default: 127.0.0.1:7443];
    /// port 0 selects a free port. A second line on standard output is the link: the code in it
    /// signs in one browser, within 15 minutes.
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = true, default_missing_value = web::ADDRESS,
          conflicts_with = "once", help_heading = "Web options")]
    web: Option<SocketAddr>,
    /// Use the certificate in FILE (PEM, with its chain) for the page [default: a self-signed one
    /// of 13 days].
    #[arg(long, value_name = "FILE", requires = "web", requires = "web_key", help_heading = "Web options")]
    web_cert: Option<PathBuf>,
    /// Use the private key in FILE (PEM) for --web-cert.
    #[arg(long, value_name = "FILE", requires = "web_cert", help_heading = "Web options")]
    web_key: Option<PathBuf>,
    /// Write the link to FILE, readable only by you, instead of standard output.
    #[arg(long, value_name = "FILE", requires = "web", help_heading = "Web options")]
    web_link: Option<PathBuf>,
    /// Write a token to FILE, readable only by you: with it, a program can read the counters of the
    /// server at /metrics of the page, in the format of OpenMetrics.
    #[arg(long, value_name = "FILE", requires = "web", help_heading = "Web options")]
    web_metrics: Option<PathBuf>,
    /// Let browsers copy to and from other servers, by tickets that they enter. They can then make
    /// this host connect to any address.
    #[arg(long, requires = "web", help_heading = "Web options")]
    web_peers: bool,

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
    pub(super) fn resolve(&self) -> Result<ResolvedArgs, String> {
        if let Some(file) = &self.config {
            return Config::read(file)?.resolve();
        }
        let root = self.root.clone().ok_or("missing --root; specify the directory to serve")?;
        resolved::check_root(&root)?;
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
            keep: resolved::keep(self.keep_owner, self.keep_setuid, self.stored_sums),
            policy: SinkPolicy {
                specials: self.specials,
                outside_links: self.outside_links,
                system_xattrs: self.system_xattrs,
            },
            expires,
            uses: if self.once { Uses::Once } else { Uses::Lasting },
            issue: self.ticket_file.clone().map_or(Issue::Print, Issue::New),
        };
        let shares = vec![share];
        let rate = self.rate.as_deref().map(|text| values::rate("--rate", text)).transpose()?;
        let [transport, check, ports, kept] =
            [&self.transport, &self.packet_check, &self.udp_ports, &self.udp_buffers]
                .map(|option| option.as_deref());
        let udp = resolved::udp(transport, check, ports, kept, rate)?;
        Ok(ResolvedArgs {
            buffers: buffers(self.buffers.as_deref(), udp.as_ref())?,
            udp,
            user: self.user.as_deref().map(SessionUser::named).transpose()?,
            sandbox: self.sandbox,
            waybills: resolved::waybills(self.waybills.as_deref(), &shares)?,
            web: self.web.map(|address| Web {
                address,
                certificate: self.web_cert.clone().zip(self.web_key.clone()),
                link: self.web_link.clone().map_or(LinkTarget::Print, LinkTarget::File),
                metrics: self.web_metrics.clone(),
                shows_jobs: false,
                has_peers: self.web_peers,
            }),
            shares,
            listen: self.listen.clone(),
            addresses: self.address.iter().map(|text| addresses::named(text)).collect::<Result<_, _>>()?,
            identity: self.identity.clone(),
            plain: self.plain,
            rate,
            congestion: self.cc.clone(),
            multipath: self.mptcp,
            sctp: self.transport.as_deref() == Some("sctp"),
            limits: resolved::limits(self.sessions, self.sessions_per_peer, self.streams, Limits::default())?,
            logs: resolved::logs(
                self.state_dir.clone(),
                self.log_quota.as_deref(),
                self.log_jobs,
                self.log_age.as_deref(),
                self.log_style.style(),
            )?,
            once: self.once,
        })
    }
}
