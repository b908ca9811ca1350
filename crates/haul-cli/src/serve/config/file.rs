//! Contents of the configuration file. This module uses nothing else of the program, so that a
//! fuzzer can include it alone.

use serde::Deserialize;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Settings of the file. An unknown key is an error, because an ignored limit would be worse.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct Config {
    /// File of the certificate and its key. Without it, tickets become invalid when the process
    /// ends.
    pub(crate) identity: Option<PathBuf>,
    #[serde(default)]
    pub(crate) listen: Vec<SocketAddr>,
    #[serde(default)]
    pub(crate) address: Vec<String>,
    #[serde(default)]
    pub(crate) plain: bool,
    pub(crate) rate: Option<String>,
    pub(crate) cc: Option<String>,
    #[serde(default)]
    pub(crate) mptcp: bool,
    pub(crate) transport: Option<String>,
    pub(crate) packet_check: Option<String>,
    pub(crate) udp_ports: Option<String>,
    pub(crate) udp_buffers: Option<String>,
    pub(crate) sessions: Option<usize>,
    pub(crate) sessions_per_peer: Option<usize>,
    pub(crate) streams: Option<u16>,
    pub(crate) buffers: Option<String>,
    /// User that sessions run as.
    pub(crate) user: Option<String>,
    /// When sessions are confined to their directories.
    pub(crate) sandbox: Option<SandboxWhen>,
    /// Directory for the waybill of each session.
    pub(crate) waybills: Option<PathBuf>,
    /// Address of the page for browsers.
    pub(crate) web: Option<SocketAddr>,
    /// Files of its certificate and of the key.
    pub(crate) web_cert: Option<PathBuf>,
    pub(crate) web_key: Option<PathBuf>,
    /// File for its link.
    pub(crate) web_link: Option<PathBuf>,
    /// File for the token of its counters.
    pub(crate) web_metrics: Option<PathBuf>,
    #[serde(default)]
    pub(crate) web_peers: bool,
    /// State directory for the logs of interrupted jobs.
    pub(crate) state_dir: Option<PathBuf>,
    pub(crate) log_quota: Option<String>,
    pub(crate) log_jobs: Option<usize>,
    pub(crate) log_age: Option<String>,
    pub(crate) log_mechanism: Option<String>,
    pub(crate) log_encoding: Option<String>,
    #[serde(default)]
    pub(crate) share: Vec<ShareConfig>,
}

/// One `[[share]]`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) struct ShareConfig {
    pub(crate) root: PathBuf,
    /// File of the ticket, created if it is missing.
    pub(crate) ticket: PathBuf,
    #[serde(default)]
    pub(crate) access: Access,
    /// Expiry of a new ticket.
    pub(crate) expires: Option<String>,
    pub(crate) quota: Option<String>,
    #[serde(default)]
    pub(crate) keep_owner: bool,
    #[serde(default)]
    pub(crate) keep_setuid: bool,
    #[serde(default)]
    pub(crate) specials: bool,
    #[serde(default)]
    pub(crate) outside_links: bool,
    #[serde(default)]
    pub(crate) system_xattrs: bool,
    #[serde(default)]
    pub(crate) stored_sums: bool,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum SandboxWhen {
    Auto,
    Require,
    Off,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Access {
    Read,
    Write,
    #[default]
    Both,
}

impl Config {
    /// Parses a text. The error is a message.
    pub(crate) fn parse(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())
    }
}

/// Asserts that any bytes are a configuration or an error with a message.
#[cfg_attr(not(test), allow(dead_code, reason = "for the tests here and the fuzzer beside the workspace"))]
pub(crate) fn any(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes)
        && let Err(why) = Config::parse(text)
    {
        assert!(!why.is_empty());
    }
}
