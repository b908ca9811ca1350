//! Resolved settings of the server, from arguments or a configuration file.

use super::sandboxing::Sandboxing;
use super::user::SessionUser;
use super::web::Web;
use crate::remote::transport::{Transport, packet_check, udp_buffers};
use crate::remote::values;
use haul_engine::copy::quote;
use haul_engine::log::LogStoreLimits;
use haul_engine::sum::reason;
use haul_engine::transfer::SinkPolicy;
use haul_log::objects::Style;
use haul_net::address::Host;
use haul_net::{Limits, PacketCheck, Rate, Role, UdpSettings, Uses};
use haul_proto::Keep;
use std::ffi::{OsStr, OsString};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Resolved settings of the server.
#[derive(Clone, Debug)]
pub(super) struct ResolvedArgs {
    pub(super) shares: Vec<Share>,
    /// Addresses to listen on; if empty, the default port of all addresses.
    pub(super) listen: Vec<SocketAddr>,
    /// Addresses in tickets; if empty, found automatically.
    pub(super) addresses: Vec<AdvertisedHost>,
    /// File of the certificate and its key.
    pub(super) identity: Option<PathBuf>,
    pub(super) plain: bool,
    pub(super) rate: Option<u64>,
    pub(super) congestion: Option<String>,
    pub(super) multipath: bool,
    /// Listen by SCTP in place of TCP.
    pub(super) sctp: bool,
    /// Settings for clients that request UDP; `None` to refuse it.
    pub(super) udp: Option<UdpSettings>,
    pub(super) limits: Limits,
    pub(super) buffers: u64,
    /// Log settings of interrupted jobs.
    pub(super) logs: Logs,
    /// Directory of the sessions' waybills.
    pub(super) waybills: Option<PathBuf>,
    /// Page for browsers.
    pub(super) web: Option<Web>,
    /// When sessions are confined to their directories.
    pub(super) sandbox: Sandboxing,
    /// User that sessions run as; `None` for the user that starts the server.
    pub(super) user: Option<SessionUser>,
    /// True if the process ends with the first session.
    pub(super) once: bool,
}

/// Log settings of received jobs.
#[derive(Clone, Debug)]
pub(super) struct Logs {
    /// State directory, if given.
    pub(super) state: Option<PathBuf>,
    pub(super) limits: LogStoreLimits,
    pub(super) style: Style,
}

/// Host name in tickets; without a port, the port that is listened on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdvertisedHost {
    pub(super) host: Host,
    pub(super) port: Option<u16>,
}

/// Directory that is open to the holders of one ticket.
#[derive(Clone, Debug)]
pub(super) struct Share {
    /// Name for messages.
    pub(super) name: String,
    pub(super) root: OsString,
    pub(super) role: Role,
    /// Limit of the bytes that one session may write.
    pub(super) quota: Option<u64>,
    pub(super) keep: Keep,
    /// Entries and metadata that clients may send.
    pub(super) policy: SinkPolicy,
    /// Expiry of a new ticket.
    pub(super) expires: Option<SystemTime>,
    pub(super) uses: Uses,
    pub(super) issue: Issue,
}

/// Origin and destination of a ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Issue {
    /// A new ticket, printed.
    Print,
    /// A new ticket, written to this file.
    New(PathBuf),
    /// The ticket in this file, which is created if it is missing.
    Kept(PathBuf),
    /// A new ticket that the server gives to no user: only browsers open sessions.
    Withheld,
}

/// Returns the metadata that a client may keep: all harmless metadata, and owners, setuid bits and
/// stored digests if allowed.
pub(super) fn keep(owner: bool, setuid: bool, stored_sums: bool) -> Keep {
    let parts =
        [(owner, Keep::OWNER.with(Keep::NUMERIC)), (setuid, Keep::SETUID), (stored_sums, Keep::STORED_SUMS)];
    parts.iter().filter(|(kept, _)| !kept).fold(Keep(u32::MAX), |all, (_, part)| all.without(*part))
}

/// Returns the default limits with the given changes. The error is a message.
pub(super) fn limits(
    sessions: Option<usize>,
    per_peer: Option<usize>,
    lanes: Option<u16>,
    usual: Limits,
) -> Result<Limits, String> {
    if sessions == Some(0) || per_peer == Some(0) || lanes == Some(0) {
        return Err("the limits of sessions and streams must be at least 1".to_owned());
    }
    let sessions = sessions.unwrap_or(usual.sessions);
    let lanes = lanes.unwrap_or(usual.lanes);
    Ok(Limits {
        sessions,
        sessions_per_peer: per_peer.unwrap_or(usual.sessions_per_peer).min(sessions),
        lanes,
        // All lanes of a session may connect concurrently.
        unauthenticated_per_peer: usual.unauthenticated_per_peer.max(usize::from(lanes)),
        unauthenticated: usual.unauthenticated.max(usize::from(lanes)),
        ..usual
    })
}

/// Returns the default limits of logs with the given changes. The error is a message.
pub(super) fn logs(
    state: Option<PathBuf>,
    quota: Option<&str>,
    jobs: Option<usize>,
    age: Option<&str>,
    style: Style,
) -> Result<Logs, String> {
    let usual = LogStoreLimits::default();
    let limits = LogStoreLimits {
        bytes: quota.map_or(Ok(usual.bytes), |text| values::bytes("--log-quota", text))?,
        jobs: jobs.unwrap_or(usual.jobs),
        age: age.map_or(Ok(usual.age), |text| values::time("--log-age", text))?,
    };
    Ok(Logs { state, limits, style })
}

/// Checks that the root exists, before anything is printed. The error is a message.
pub(super) fn check_root(root: &OsStr) -> Result<(), String> {
    match std::fs::metadata(root) {
        Ok(facts) if facts.is_dir() => Ok(()),
        Ok(_) => Err(format!("cannot serve {}: it is not a directory", quote(root))),
        Err(error) => Err(format!("cannot serve {}: {}", quote(root), reason(&error))),
    }
}

/// Returns the directory for waybills: an existing one, in which no client can write or delete. The
/// error is a message.
pub(super) fn waybills(dir: Option<&Path>, shares: &[Share]) -> Result<Option<PathBuf>, String> {
    let Some(dir) = dir else { return Ok(None) };
    let shown = quote(dir.as_os_str());
    let whole = dir
        .canonicalize()
        .map_err(|error| format!("cannot write waybills to {shown}: {}", haul_engine::sum::reason(&error)))?;
    if !whole.is_dir() {
        return Err(format!("cannot write waybills to {shown}: it is not a directory"));
    }
    let is_in =
        |share: &&Share| Path::new(&share.root).canonicalize().is_ok_and(|root| whole.starts_with(root));
    match shares.iter().find(is_in) {
        Some(share) => Err(format!(
            "cannot write waybills to {shown}: it is inside {}, which is open to clients; name a directory outside",
            share.name
        )),
        None => Ok(Some(whole)),
    }
}

/// Returns the settings for clients that request UDP, or `None` to refuse it. The error is a
/// message.
pub(super) fn udp(
    transport: Option<&str>,
    check: Option<&str>,
    ports: Option<&str>,
    buffers: Option<&str>,
    rate: Option<u64>,
) -> Result<Option<UdpSettings>, String> {
    if let Some(name) = transport
        && Transport::parse(name, false)? != Transport::Udp
    {
        return match check.or(ports).or(buffers) {
            Some(_) => Err(format!(
                "--packet-check, --udp-ports and --udp-buffers apply to UDP; omit --transport={name}"
            )),
            None => Ok(None),
        };
    }
    Ok(Some(UdpSettings {
        check: check.map_or(Ok(PacketCheck::Aead), packet_check)?,
        buffer_max: udp_buffers(buffers)?,
        rate: Rate::Found { max: rate, start: None },
        ports: ports.map(|text| values::ports("--udp-ports", text)).transpose()?,
        ..UdpSettings::default()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_setuid_bits_and_stored_digests_are_kept_only_on_request() {
        let parts = [Keep::OWNER, Keep::SETUID, Keep::STORED_SUMS];
        for kept in [[false, false, false], [true, false, false], [false, true, false], [false, false, true]]
        {
            let [owner, setuid, stored_sums] = kept;
            let keep = keep(owner, setuid, stored_sums);
            assert_eq!(parts.map(|part| keep.has(part)), kept);
            assert!(keep.has(Keep::XATTRS));
        }
    }

    #[test]
    fn derived_limits_are_consistent() {
        let limits = limits(Some(3), None, Some(200), Limits::default()).expect("fine");
        assert_eq!((limits.sessions, limits.sessions_per_peer, limits.lanes), (3, 3, 200));
        assert!(limits.unauthenticated_per_peer >= 200);
        assert!(super::limits(Some(0), None, None, Limits::default()).is_err());
    }
}
