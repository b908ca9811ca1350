//! Sockets as lanes want them: what is asked of the kernel, what it gave, and why not where it did not.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, Protocol, SocketFlags, SocketType, ipproto, sockopt};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Bytes that a socket's buffer is asked to hold at least and at most.
const BUFFER_BYTES_MIN: u64 = 64 << 10;
const BUFFER_BYTES_MAX: u64 = 1 << 30;

/// Connections that the kernel holds for a listener until they are accepted.
const BACKLOG: i32 = 1024;

/// What is asked of a lane's socket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketSettings {
    /// The algorithm that governs how fast TCP sends, as `bbr` or `cubic`; the system's own choice without one.
    pub congestion: Option<String>,
    /// Use several paths at once by Multipath TCP (RFC 8684), where both ends have it.
    pub multipath: bool,
    /// How much a socket holds.
    pub buffers: Buffers,
    /// Ask a silent peer whether it is still there.
    pub keepalive: Option<Keepalive>,
    /// End a connection whose bytes stay unacknowledged for so long (RFC 5482).
    pub user_timeout: Option<Duration>,
    /// Bytes a second that no lane may pass, held by the kernel, packet by packet.
    pub pace: Option<u64>,
}

/// How much the buffers of a socket hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffers {
    /// As the kernel tunes them while the connection goes: right unless its limits are too low for the path.
    #[default]
    Kernel,
    /// So many bytes each.
    Bytes(u64),
    /// Twice what the path holds, where the kernel's own limits are lower than that.
    Path {
        /// What one lane is to reach.
        bytes_per_second: u64,
        /// Time of a round trip.
        round_trip: Duration,
    },
}

/// How a silent peer is asked whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first question.
    pub idle: Duration,
    /// Time between questions.
    pub interval: Duration,
    /// Questions without an answer that end the connection.
    pub probes: u32,
}

/// What a socket was given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketFacts {
    /// The algorithm that governs how fast TCP sends.
    pub congestion: Option<String>,
    /// Bytes the send buffer may hold, the kernel's own overhead included.
    pub send_buffer: usize,
    /// Bytes the receive buffer may hold.
    pub receive_buffer: usize,
    /// Whether the connection may use several paths.
    pub multipath: bool,
    /// What was asked for and not given, with the reason.
    pub notes: Vec<String>,
}

/// Why a socket cannot be had as asked.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// This kernel has no such algorithm, or this user may not choose it.
    #[error("congestion control '{name}' cannot be used here: {source}; this kernel offers: {available}")]
    Congestion {
        /// What was asked for.
        name: String,
        /// What there is.
        available: String,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The system's answer.
    #[error("{doing}: {source}")]
    Io {
        /// What failed.
        doing: &'static str,
        /// Why.
        source: io::Error,
    },
}

impl Buffers {
    /// Bytes to ask for each buffer; `None` leaves it to the kernel, which then tunes it up to `kernel_max`.
    fn bytes(self, kernel_max: u64) -> Option<u64> {
        let wanted = match self {
            Self::Kernel => return None,
            Self::Bytes(bytes) => bytes,
            Self::Path { bytes_per_second, round_trip } => {
                let held = u128::from(bytes_per_second) * round_trip.as_micros() / 1_000_000;
                let wanted = u64::try_from(2 * held).unwrap_or(u64::MAX);
                // Half of what the kernel's limit says goes to its own overhead.
                if wanted <= kernel_max / 2 {
                    return None;
                }
                wanted
            }
        };
        Some(wanted.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX))
    }
}

/// Connects to `address` before `deadline`. The socket never waits by itself.
pub(crate) fn connect(
    address: SocketAddr,
    settings: &SocketSettings,
    deadline: Instant,
) -> Result<(OwnedFd, SocketFacts), SocketError> {
    let (socket, mut notes) = open(address, settings)?;
    let failed = |source: io::Error| SocketError::Io { doing: "cannot connect", source };
    match net::connect(&socket, &address) {
        Ok(()) => {}
        Err(Errno::INPROGRESS | Errno::INTR) => {
            wait_connected(socket.as_fd(), deadline).map_err(failed)?;
        }
        Err(errno) => return Err(failed(errno.into())),
    }
    let facts = facts(socket.as_fd(), settings, &mut notes);
    Ok((socket, facts))
}

fn wait_connected(socket: BorrowedFd<'_>, deadline: Instant) -> io::Result<()> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&timeout)) {
            Ok(0) => return Err(Errno::TIMEDOUT.into()),
            Ok(_) => return Ok(sockopt::socket_error(socket)??),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// Listens at `address`; its connections inherit what `settings` asks for. The listener never waits by itself.
pub(crate) fn listen(
    address: SocketAddr,
    settings: &SocketSettings,
) -> Result<(TcpListener, Vec<String>), SocketError> {
    let (socket, notes) = open(address, settings)?;
    let failed = |errno: Errno| SocketError::Io { doing: "cannot listen", source: errno.into() };
    sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    if address.is_ipv6() {
        // One socket for both kinds where the address stands for all.
        sockopt::set_ipv6_v6only(&socket, !address.ip().is_unspecified()).map_err(failed)?;
    }
    net::bind(&socket, &address).map_err(failed)?;
    net::listen(&socket, BACKLOG).map_err(failed)?;
    Ok((socket.into(), notes))
}

/// What an accepted connection was given of what its listener was asked for.
pub(crate) fn accepted_facts(socket: BorrowedFd<'_>, settings: &SocketSettings) -> SocketFacts {
    let mut notes = Vec::new();
    // Inherited from the listener on Linux, but for kernels' moods with MPTCP.
    note(&mut notes, "sending small messages at once", sockopt::set_tcp_nodelay(socket, true));
    if let Some(rate) = settings.pace {
        note(&mut notes, "the kernel's pacing", haul_sys::socket::set_max_pacing_rate(socket, rate));
    }
    facts(socket, settings, &mut notes)
}

/// A new socket with all that must be set before it is connected.
fn open(address: SocketAddr, settings: &SocketSettings) -> Result<(OwnedFd, Vec<String>), SocketError> {
    let mut notes = Vec::new();
    let socket = bare(address, settings.multipath, &mut notes)?;
    note(&mut notes, "sending small messages at once", sockopt::set_tcp_nodelay(&socket, true));
    if let Some(name) = &settings.congestion {
        sockopt::set_tcp_congestion(&socket, name).map_err(|errno| SocketError::Congestion {
            name: name.escape_debug().collect(),
            available: available_congestion(),
            source: errno.into(),
        })?;
    }
    set_buffers(socket.as_fd(), settings.buffers, &mut notes);
    if let Some(keepalive) = settings.keepalive {
        note(&mut notes, "keepalive", set_keepalive(socket.as_fd(), keepalive));
    }
    if let Some(timeout) = settings.user_timeout {
        let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        note(&mut notes, "TCP's user timeout", sockopt::set_tcp_user_timeout(&socket, millis));
    }
    if let Some(rate) = settings.pace {
        note(&mut notes, "the kernel's pacing", haul_sys::socket::set_max_pacing_rate(&socket, rate));
    }
    Ok((socket, notes))
}

fn bare(address: SocketAddr, multipath: bool, notes: &mut Vec<String>) -> Result<OwnedFd, SocketError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = |protocol: Protocol| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        net::socket_with(family, SocketType::STREAM, flags, Some(protocol))
    };
    if multipath {
        match socket(ipproto::MPTCP) {
            Ok(made) => return Ok(made),
            Err(Errno::PROTONOSUPPORT) => notes.push("no MPTCP: this kernel is built without it".into()),
            Err(Errno::NOPROTOOPT) => {
                notes.push("no MPTCP: it is off here (sysctl net.mptcp.enabled)".into());
            }
            Err(errno) => notes.push(format!("no MPTCP: {errno}")),
        }
    }
    socket(ipproto::TCP)
        .map_err(|errno| SocketError::Io { doing: "cannot make a socket", source: errno.into() })
}

fn set_keepalive(socket: BorrowedFd<'_>, keepalive: Keepalive) -> Result<(), Errno> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, keepalive.idle)?;
    sockopt::set_tcp_keepintvl(socket, keepalive.interval)?;
    sockopt::set_tcp_keepcnt(socket, keepalive.probes)
}

/// Asks for the buffers, past the system's limit where this process may.
fn set_buffers(socket: BorrowedFd<'_>, buffers: Buffers, notes: &mut Vec<String>) {
    let limit = |path: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().next_back().and_then(|max| max.parse().ok()).unwrap_or(0)
    };
    if let Some(bytes) = buffers.bytes(limit("/proc/sys/net/ipv4/tcp_wmem")) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let set = sockopt::set_socket_send_buffer_size_force(socket, bytes)
            .or_else(|_| sockopt::set_socket_send_buffer_size(socket, bytes));
        note(notes, "the send buffer", set);
        let given = sockopt::socket_send_buffer_size(socket).unwrap_or(0);
        note_smaller(notes, "send", bytes, given, "net.core.wmem_max");
    }
    if let Some(bytes) = buffers.bytes(limit("/proc/sys/net/ipv4/tcp_rmem")) {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let set = sockopt::set_socket_recv_buffer_size_force(socket, bytes)
            .or_else(|_| sockopt::set_socket_recv_buffer_size(socket, bytes));
        note(notes, "the receive buffer", set);
        let given = sockopt::socket_recv_buffer_size(socket).unwrap_or(0);
        note_smaller(notes, "receive", bytes, given, "net.core.rmem_max");
    }
}

/// The kernel gives twice what is asked for, for its own overhead, and cuts in silence.
fn note_smaller(notes: &mut Vec<String>, which: &str, asked: usize, given: usize, sysctl: &str) {
    if given / 2 < asked {
        notes.push(format!(
            "the {which} buffer holds {} bytes, not {asked}: raise sysctl {sysctl}",
            given / 2
        ));
    }
}

fn note<E: std::fmt::Display>(notes: &mut Vec<String>, what: &str, result: Result<(), E>) {
    if let Err(error) = result {
        notes.push(format!("no {what}: {error}"));
    }
}

fn facts(socket: BorrowedFd<'_>, settings: &SocketSettings, notes: &mut Vec<String>) -> SocketFacts {
    let multipath = settings.multipath
        && match haul_sys::socket::additional_paths(socket) {
            Ok(Some(_)) => true,
            Ok(None) => {
                if notes.is_empty() {
                    notes.push("no MPTCP: the other end, or something on the way, does not speak it".into());
                }
                false
            }
            Err(error) => {
                notes.push(format!("whether MPTCP is used is not known: {error}"));
                false
            }
        };
    SocketFacts {
        congestion: sockopt::tcp_congestion(socket).ok(),
        send_buffer: sockopt::socket_send_buffer_size(socket).unwrap_or(0),
        receive_buffer: sockopt::socket_recv_buffer_size(socket).unwrap_or(0),
        multipath,
        notes: std::mem::take(notes),
    }
}

/// The algorithms of this kernel, as it lists them.
pub fn available_congestion() -> String {
    let list = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let list = list.trim();
    if list.is_empty() { "(it does not tell)".into() } else { list.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        "127.0.0.1:0".parse().expect("an address")
    }

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(10)
    }

    #[test]
    fn buffers_follow_the_path() {
        let path = |rate, millis| Buffers::Path {
            bytes_per_second: rate,
            round_trip: Duration::from_millis(millis),
        };
        assert_eq!(Buffers::Kernel.bytes(0), None);
        assert_eq!(Buffers::Bytes(1).bytes(0), Some(BUFFER_BYTES_MIN));
        assert_eq!(path(125_000_000, 100).bytes(6 << 20), Some(25_000_000));
        assert_eq!(path(125_000_000, 1).bytes(6 << 20), None, "the kernel's own limit is enough");
        assert_eq!(path(u64::MAX, 1000).bytes(6 << 20), Some(BUFFER_BYTES_MAX));
    }

    #[test]
    fn what_was_asked_is_given_or_noted() {
        let settings = SocketSettings {
            congestion: Some("reno".into()),
            buffers: Buffers::Bytes(128 << 10),
            keepalive: Some(Keepalive {
                idle: Duration::from_secs(20),
                interval: Duration::from_secs(5),
                probes: 3,
            }),
            user_timeout: Some(Duration::from_secs(30)),
            pace: Some(1 << 30),
            ..Default::default()
        };
        let (listener, notes) = listen(loopback(), &settings).expect("listens");
        assert_eq!(notes, Vec::<String>::new());
        let address = listener.local_addr().expect("an address");
        let (near, facts) = connect(address, &settings, soon()).expect("connects");
        assert_eq!(facts.notes, Vec::<String>::new());
        assert_eq!(facts.congestion.as_deref(), Some("reno"));
        assert!(facts.send_buffer >= 128 << 10 && facts.receive_buffer >= 128 << 10, "{facts:?}");
        assert_eq!(sockopt::tcp_user_timeout(&near).expect("answers"), 30_000);
        assert!(sockopt::tcp_nodelay(&near).expect("answers"));
        let far = listener.accept().expect("accepts").0;
        let facts = accepted_facts(far.as_fd(), &settings);
        assert_eq!((facts.congestion.as_deref(), facts.notes.len()), (Some("reno"), 0));
        assert_eq!(sockopt::tcp_keepidle(&far).expect("answers"), Duration::from_secs(20));
    }

    #[test]
    fn multipath_is_used_or_the_reason_is_said() {
        let settings = SocketSettings { multipath: true, ..Default::default() };
        let (listener, listened) = listen(loopback(), &settings).expect("listens all the same");
        let address = listener.local_addr().expect("an address");
        let (_near, facts) = connect(address, &settings, soon()).expect("connects all the same");
        assert_eq!(facts.multipath, facts.notes.is_empty(), "{facts:?} {listened:?}");
        // Only one end asks: it falls back and says so.
        let (plain, _) = listen(loopback(), &SocketSettings::default()).expect("listens");
        let (_near, facts) = connect(plain.local_addr().expect("one"), &settings, soon()).expect("connects");
        assert!(!facts.multipath && facts.notes.len() == 1, "{facts:?}");
    }

    #[test]
    fn an_unknown_algorithm_names_those_there_are() {
        let settings = SocketSettings { congestion: Some("no\u{1b}such".into()), ..Default::default() };
        let error = connect(loopback(), &settings, soon()).expect_err("no such").to_string();
        assert!(error.contains("reno") && !error.contains('\u{1b}'), "{error:?}");
    }

    #[test]
    fn a_closed_port_is_told_at_once() {
        let (listener, _) = listen(loopback(), &SocketSettings::default()).expect("listens");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let error = connect(address, &SocketSettings::default(), soon()).expect_err("closed");
        assert!(
            matches!(&error, SocketError::Io { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused),
            "{error}"
        );
    }
}
