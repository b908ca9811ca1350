//! Sockets for lanes: the requested options, the values that the kernel granted, and the reasons
//! for differences.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, Protocol, SocketFlags, SocketType, ipproto, sockopt};
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Minimum and maximum size in bytes of a requested socket buffer.
const BUFFER_BYTES_MIN: u64 = 64 << 10;
const BUFFER_BYTES_MAX: u64 = 1 << 30;

/// Longest round trip within one machine or between neighbours, and the send buffer in bytes for
/// such a path.
///
/// Data that TCP accepts early waits at the other end until it has left the CPU caches. The
/// kernel's own choice is 4 MiB for each of four lanes. A job within one machine took 1.2 times as
/// long with it, and 1.15 times the CPU time. The CPU was an AMD EPYC with 1 MiB of second-level
/// cache for each core. Half of this size gained less, and twice the size gained almost nothing.
/// With this size four lanes move 5 GB/s at the longest such round trip.
const SHORT_ROUND_TRIP: Duration = Duration::from_micros(100);
const SHORT_PATH_BYTES: u64 = 128 << 10;

/// Connections that the kernel queues for a listener until they are accepted.
const BACKLOG: i32 = 1024;

/// Requested options for the socket of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketSettings {
    /// TCP congestion control algorithm, such as `bbr` or `cubic`; `None` for the default of the
    /// system.
    pub congestion: Option<String>,
    /// Use several paths concurrently by Multipath TCP (RFC 8684), if both ends support it.
    pub multipath: bool,
    /// Sizes of the socket buffers.
    pub buffers: Buffers,
    /// Probe a silent peer.
    pub keepalive: Option<Keepalive>,
    /// Close a connection whose bytes stay unacknowledged for this time (RFC 5482).
    pub user_timeout: Option<Duration>,
    /// Maximum rate of each lane in bytes per second, enforced by the kernel packet by packet.
    pub pace: Option<u64>,
    /// Number of the protocol to use in place of TCP, usually [`SCTP`]: connections in the
    /// one-to-one style of SCTP (RFC 6458), without the options of TCP. They need TLS, because a
    /// direction of SCTP has no end of its own.
    pub sctp: Option<NonZeroU32>,
}

/// Protocol number of SCTP (RFC 9260).
pub const SCTP: NonZeroU32 = NonZeroU32::new(132).expect("it is not zero");

/// Sizes of the buffers of a socket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Buffers {
    /// Tuned by the kernel during the connection. Correct unless the limits of the kernel are too
    /// low for the path.
    #[default]
    Kernel,
    /// This number of bytes for each buffer.
    Bytes(u64),
    /// Twice the bandwidth-delay product of the path, if the limits of the kernel are lower than
    /// that.
    Path {
        /// Desired rate of one lane.
        bytes_per_second: u64,
        /// Round-trip time.
        round_trip: Duration,
    },
}

/// Settings for probing a silent peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Idle time before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Number of unanswered probes after which the connection is closed.
    pub probes: u32,
}

/// Options that a socket received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SocketFacts {
    /// TCP congestion control algorithm.
    pub congestion: Option<String>,
    /// Size of the send buffer in bytes, including the overhead of the kernel.
    pub send_buffer: usize,
    /// Size of the receive buffer in bytes.
    pub receive_buffer: usize,
    /// True if the connection can use several paths.
    pub multipath: bool,
    /// Requested options that were not granted, with the reasons.
    pub notes: Vec<String>,
}

/// Error when a socket with the requested options cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// This kernel lacks the algorithm, or the user may not select it.
    #[error("cannot use congestion control '{name}': {source}; this kernel offers: {available}")]
    Congestion {
        /// The requested algorithm.
        name: String,
        /// The available algorithms.
        available: String,
        /// Error of the kernel.
        source: io::Error,
    },
    /// This kernel has no SCTP.
    #[error("cannot open an SCTP socket: this kernel does not support SCTP; use --transport=tcp")]
    NoSctp,
    /// A socket cannot listen at an address, which the caller names.
    #[error("{0}")]
    Listen(#[source] io::Error),
    /// A system call failed.
    #[error("{doing}: {source}")]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// Error of the system.
        source: io::Error,
    },
}

impl Buffers {
    /// Returns the size in bytes to request for each buffer. `None` leaves it to the kernel, which
    /// tunes it up to `kernel_max`.
    fn bytes(self, kernel_max: u64) -> Option<u64> {
        let wanted = match self {
            Self::Kernel => return None,
            Self::Bytes(bytes) => bytes,
            Self::Path { bytes_per_second, round_trip } => {
                let held = u128::from(bytes_per_second) * round_trip.as_micros() / 1_000_000;
                let wanted = u64::try_from(2 * held).unwrap_or(u64::MAX);
                // The kernel uses half of its limit for its own overhead.
                if wanted <= kernel_max / 2 {
                    return None;
                }
                wanted
            }
        };
        Some(wanted.clamp(BUFFER_BYTES_MIN, BUFFER_BYTES_MAX))
    }

    /// Returns true if it is better to request `bytes`, of which the system grants at most
    /// `allowed`. The kernel no longer tunes a buffer that was set. A buffer for a path is
    /// therefore not set if the kernel would reach more, up to `kernel_max`.
    fn is_better(self, bytes: u64, allowed: u64, kernel_max: u64) -> bool {
        !matches!(self, Self::Path { .. }) || bytes.min(allowed) > kernel_max / 2
    }
}

/// A connection attempt in progress.
#[derive(Debug)]
pub(crate) struct Connecting {
    socket: OwnedFd,
    notes: Vec<String>,
    waits: bool,
}

/// Starts to connect to `address`. The socket is non-blocking.
pub(crate) fn connect(address: SocketAddr, settings: &SocketSettings) -> Result<Connecting, SocketError> {
    let (socket, notes) = open(address, settings)?;
    let waits = match net::connect(&socket, &address) {
        Ok(()) => false,
        Err(Errno::INPROGRESS | Errno::INTR) => true,
        Err(errno) => return Err(not_connected(errno.into())),
    };
    Ok(Connecting { socket, notes, waits })
}

impl Connecting {
    /// Returns the socket, so that shutdown(2) can end the wait.
    pub(crate) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Waits until the connection is established, at most until `deadline`.
    pub(crate) fn wait(
        mut self,
        settings: &SocketSettings,
        deadline: Instant,
    ) -> Result<(OwnedFd, SocketFacts), SocketError> {
        if self.waits {
            wait_connected(self.socket.as_fd(), deadline).map_err(not_connected)?;
        }
        let facts = facts(self.socket.as_fd(), settings, &mut self.notes);
        Ok((self.socket, facts))
    }
}

fn not_connected(source: io::Error) -> SocketError {
    SocketError::Io { doing: "cannot connect", source }
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

/// Listens at `address`. The accepted connections inherit the options in `settings`. The listener
/// is non-blocking.
pub(crate) fn listen(
    address: SocketAddr,
    settings: &SocketSettings,
) -> Result<(TcpListener, Vec<String>), SocketError> {
    let (socket, notes) = open(address, settings)?;
    let failed = |errno: Errno| SocketError::Listen(errno.into());
    sockopt::set_socket_reuseaddr(&socket, true).map_err(failed)?;
    if address.is_ipv6() {
        // One socket accepts both IPv4 and IPv6 if the address is unspecified.
        sockopt::set_ipv6_v6only(&socket, !address.ip().is_unspecified()).map_err(failed)?;
    }
    net::bind(&socket, &address).map_err(failed)?;
    net::listen(&socket, BACKLOG).map_err(failed)?;
    Ok((socket.into(), notes))
}

/// Returns the options that an accepted connection received from those requested for its listener.
pub(crate) fn accepted_facts(socket: BorrowedFd<'_>, settings: &SocketSettings) -> SocketFacts {
    let mut notes = Vec::new();
    if settings.sctp.is_some() {
        return facts(socket, settings, &mut notes);
    }
    // Linux inherits these options from the listener, except for some kernels with MPTCP.
    note(&mut notes, "immediate sending of small messages", sockopt::set_tcp_nodelay(socket, true));
    facts(socket, settings, &mut notes)
}

/// Creates a socket and sets all options that must be set before it is connected.
fn open(address: SocketAddr, settings: &SocketSettings) -> Result<(OwnedFd, Vec<String>), SocketError> {
    let mut notes = Vec::new();
    let socket = bare(address, settings, &mut notes)?;
    set_buffers(socket.as_fd(), settings.buffers, &mut notes);
    if settings.sctp.is_some() {
        return Ok((socket, notes));
    }
    note(&mut notes, "immediate sending of small messages", sockopt::set_tcp_nodelay(&socket, true));
    if let Some(name) = &settings.congestion {
        sockopt::set_tcp_congestion(&socket, name).map_err(|errno| SocketError::Congestion {
            name: name.escape_debug().collect(),
            available: available_congestion(),
            source: errno.into(),
        })?;
    }
    if let Some(keepalive) = settings.keepalive {
        note(&mut notes, "keepalive", set_keepalive(socket.as_fd(), keepalive));
    }
    if let Some(timeout) = settings.user_timeout {
        let millis = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX);
        note(&mut notes, "TCP user timeout", sockopt::set_tcp_user_timeout(&socket, millis));
    }
    Ok((socket, notes))
}

fn bare(
    address: SocketAddr,
    settings: &SocketSettings,
    notes: &mut Vec<String>,
) -> Result<OwnedFd, SocketError> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = |protocol: Protocol| {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        net::socket_with(family, SocketType::STREAM, flags, Some(protocol))
    };
    let failed = |errno: Errno| SocketError::Io { doing: "cannot create a socket", source: errno.into() };
    if let Some(number) = settings.sctp {
        return socket(Protocol::from_raw(number)).map_err(|errno| match errno {
            Errno::PROTONOSUPPORT | Errno::SOCKTNOSUPPORT => SocketError::NoSctp,
            other => failed(other),
        });
    }
    if settings.multipath {
        match socket(ipproto::MPTCP) {
            Ok(made) => return Ok(made),
            Err(Errno::PROTONOSUPPORT) => notes.push("no MPTCP: this kernel is built without it".into()),
            Err(Errno::NOPROTOOPT) => {
                notes.push("no MPTCP: it is disabled on this host; set sysctl net.mptcp.enabled=1".into());
            }
            Err(errno) => notes.push(format!("no MPTCP: {errno}")),
        }
    }
    socket(ipproto::TCP).map_err(failed)
}

fn set_keepalive(socket: BorrowedFd<'_>, keepalive: Keepalive) -> Result<(), Errno> {
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, keepalive.idle)?;
    sockopt::set_tcp_keepintvl(socket, keepalive.interval)?;
    sockopt::set_tcp_keepcnt(socket, keepalive.probes)
}

/// One of the two buffers of a socket.
#[derive(Clone, Copy)]
enum Buffer {
    Send,
    Receive,
}

impl Buffer {
    fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Receive => "receive",
        }
    }

    /// Returns the letter of the buffer in the settings of the kernel.
    fn letter(self) -> char {
        match self {
            Self::Send => 'w',
            Self::Receive => 'r',
        }
    }

    fn set(self, socket: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
        match self {
            Self::Send => sockopt::set_socket_send_buffer_size(socket, bytes),
            Self::Receive => sockopt::set_socket_recv_buffer_size(socket, bytes),
        }
    }

    /// Sets the size beyond the limit of the system, if the process is allowed to.
    fn force(self, socket: BorrowedFd<'_>, bytes: usize) -> Result<(), Errno> {
        match self {
            Self::Send => sockopt::set_socket_send_buffer_size_force(socket, bytes),
            Self::Receive => sockopt::set_socket_recv_buffer_size_force(socket, bytes),
        }
    }

    fn actual_bytes(self, socket: BorrowedFd<'_>) -> usize {
        match self {
            Self::Send => sockopt::socket_send_buffer_size(socket).unwrap_or(0),
            Self::Receive => sockopt::socket_recv_buffer_size(socket).unwrap_or(0),
        }
    }
}

/// Requests the sizes of the buffers.
fn set_buffers(socket: BorrowedFd<'_>, buffers: Buffers, notes: &mut Vec<String>) {
    for buffer in [Buffer::Send, Buffer::Receive] {
        let (name, letter) = (buffer.name(), buffer.letter());
        let tuned_max = last_number(&format!("/proc/sys/net/ipv4/tcp_{letter}mem"));
        let Some(bytes) = buffers.bytes(tuned_max) else { continue };
        let wanted = usize::try_from(bytes).unwrap_or(usize::MAX);
        if buffer.force(socket, wanted).is_err() {
            let allowed = last_number(&format!("/proc/sys/net/core/{letter}mem_max"));
            if !buffers.is_better(bytes, allowed, tuned_max) {
                notes.push(format!(
                    "the kernel sets the {name} buffer, which may be less than the {bytes} bytes that the path needs; raise sysctl \
                     net.core.{letter}mem_max"
                ));
                continue;
            }
            note(notes, &format!("{name} buffer"), buffer.set(socket, wanted));
        }
        note_smaller(notes, name, wanted, buffer.actual_bytes(socket), &format!("net.core.{letter}mem_max"));
    }
}

/// Requests a send buffer for a short path, now that the path is known, unless a size was
/// requested. Lets the kernel pace the data; the handshake is not data.
pub(crate) fn tune_for_path(socket: BorrowedFd<'_>, settings: &SocketSettings, round_trip: Duration) {
    if let Some(rate) = settings.pace {
        // The pacer of the lanes limits the rate anyway.
        let _ = haul_sys::socket::set_max_pacing_rate(socket, rate);
    }
    // A path that is not known yet has a round trip of zero.
    let is_short = !round_trip.is_zero() && round_trip <= SHORT_ROUND_TRIP;
    if is_short && settings.buffers == Buffers::Kernel {
        // The kernel's own choice works too, but is slower.
        let _ = Buffer::Send.set(socket, SHORT_PATH_BYTES as usize);
    }
}

/// Returns the last number of a file in /proc/sys, or 0 if there is none.
fn last_number(path: &str) -> u64 {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().next_back().and_then(|max| max.parse().ok()).unwrap_or(0)
}

/// Adds a note if the buffer is smaller than requested. The kernel grants twice the requested size,
/// for its own overhead, and reduces it silently.
fn note_smaller(notes: &mut Vec<String>, which: &str, asked: usize, actual_bytes: usize, sysctl: &str) {
    if actual_bytes / 2 < asked {
        notes.push(format!(
            "the {which} buffer has {} bytes instead of {asked}; raise sysctl {sysctl}",
            actual_bytes / 2
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
                    notes.push("no MPTCP: the remote host or the network path does not support it".into());
                }
                false
            }
            Err(error) => {
                notes.push(format!("cannot determine if MPTCP is in use: {error}"));
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

/// Returns the congestion control algorithms of this kernel, as the kernel lists them.
pub fn available_congestion() -> String {
    let list = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    let list = list.trim();
    if list.is_empty() { "(unknown)".into() } else { list.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn loopback() -> SocketAddr {
        "127.0.0.1:0".parse().expect("an address")
    }

    fn connected(
        address: SocketAddr,
        settings: &SocketSettings,
    ) -> Result<(OwnedFd, SocketFacts), SocketError> {
        connect(address, settings)?.wait(settings, Instant::now() + Duration::from_secs(120))
    }

    #[test]
    fn buffer_size_follows_rate_and_round_trip_time() {
        let path = |rate, millis| Buffers::Path {
            bytes_per_second: rate,
            round_trip: Duration::from_millis(millis),
        };
        assert_eq!(Buffers::Kernel.bytes(0), None);
        assert_eq!(Buffers::Bytes(1).bytes(0), Some(BUFFER_BYTES_MIN));
        assert_eq!(path(125_000_000, 100).bytes(6 << 20), Some(25_000_000));
        assert_eq!(path(125_000_000, 1).bytes(6 << 20), None, "the kernel's own limit is enough");
        assert_eq!(path(u64::MAX, 1000).bytes(6 << 20), Some(BUFFER_BYTES_MAX));
        // On most systems a user can request 208 KiB, and the kernel tunes up to 4 MiB.
        assert!(!path(125_000_000, 100).is_better(25_000_000, 212_992, 4 << 20));
        assert!(path(125_000_000, 100).is_better(25_000_000, 16 << 20, 4 << 20));
        assert!(
            Buffers::Bytes(1 << 20).is_better(1 << 20, 212_992, 4 << 20),
            "who names a size gets what there is"
        );
    }

    #[test]
    fn long_path_gets_full_buffers_or_a_note() {
        let path = Buffers::Path { bytes_per_second: 125_000_000, round_trip: Duration::from_millis(100) };
        let (listener, _) = listen(loopback(), &SocketSettings::default()).expect("listens");
        let address = listener.local_addr().expect("an address");
        let settings = SocketSettings { buffers: path, ..Default::default() };
        let (_near, facts) = connected(address, &settings).expect("connects");
        let holds = |bytes: usize| bytes / 2 >= 25_000_000;
        assert!(
            holds(facts.send_buffer) || facts.notes.iter().any(|note| note.contains("wmem_max")),
            "{facts:?}"
        );
        assert!(
            holds(facts.receive_buffer) || facts.notes.iter().any(|note| note.contains("rmem_max")),
            "{facts:?}"
        );
    }

    #[test]
    fn requested_options_are_set_or_noted() {
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
        let (near, facts) = connected(address, &settings).expect("connects");
        assert_eq!(facts.notes, Vec::<String>::new());
        assert_eq!(facts.congestion.as_deref(), Some("reno"));
        assert!(facts.send_buffer >= 128 << 10 && facts.receive_buffer >= 128 << 10, "{facts:?}");
        assert_eq!(sockopt::tcp_user_timeout(&near).expect("answers"), 30_000);
        assert!(sockopt::tcp_nodelay(&near).expect("answers"));
        // The handshake is not paced.
        let limit = || haul_sys::socket::tcp_facts(&near).expect("TCP").pacing_limit;
        assert_eq!(limit(), None);
        tune_for_path(near.as_fd(), &settings, Duration::ZERO);
        assert_eq!(limit(), Some(1 << 30));
        let far = listener.accept().expect("accepts").0;
        let facts = accepted_facts(far.as_fd(), &settings);
        assert_eq!((facts.congestion.as_deref(), facts.notes.len()), (Some("reno"), 0));
        assert_eq!(sockopt::tcp_keepidle(&far).expect("answers"), Duration::from_secs(20));
    }

    #[test]
    fn short_path_gets_a_small_send_buffer_unless_requested() {
        let (listener, _) = listen(loopback(), &SocketSettings::default()).expect("listens");
        let address = listener.local_addr().expect("an address");
        let asked = SocketSettings { buffers: Buffers::Bytes(1 << 20), ..Default::default() };
        let short = 2 * SHORT_PATH_BYTES as usize;
        for (settings, micros, is_small) in [
            (&SocketSettings::default(), 20, true),
            (&SocketSettings::default(), 100, true),
            (&SocketSettings::default(), 101, false),
            (&SocketSettings::default(), 0, false),
            (&asked, 20, false),
        ] {
            let (near, facts) = connected(address, settings).expect("connects");
            assert_ne!(facts.send_buffer, short);
            tune_for_path(near.as_fd(), settings, Duration::from_micros(micros));
            assert_eq!(
                Buffer::Send.actual_bytes(near.as_fd()) == short,
                is_small,
                "{settings:?}, {micros} us"
            );
        }
    }

    #[test]
    fn multipath_is_used_or_noted() {
        let settings = SocketSettings { multipath: true, ..Default::default() };
        let (listener, listened) = listen(loopback(), &settings).expect("listens all the same");
        let address = listener.local_addr().expect("an address");
        let (_near, facts) = connected(address, &settings).expect("connects all the same");
        assert_eq!(facts.multipath, facts.notes.is_empty(), "{facts:?} {listened:?}");
        // Only one end requests MPTCP: the connection falls back to TCP and adds a note.
        let (plain, _) = listen(loopback(), &SocketSettings::default()).expect("listens");
        let (_near, facts) = connected(plain.local_addr().expect("one"), &settings).expect("connects");
        assert!(!facts.multipath && facts.notes.len() == 1, "{facts:?}");
    }

    #[test]
    fn unknown_congestion_control_error_lists_the_available_ones() {
        let settings = SocketSettings { congestion: Some("no\u{1b}such".into()), ..Default::default() };
        let error = connected(loopback(), &settings).expect_err("no such").to_string();
        assert!(error.contains("reno") && !error.contains('\u{1b}'), "{error:?}");
    }

    /// A protocol number that no kernel has replaces that of SCTP here.
    #[test]
    fn protocol_that_the_kernel_lacks_is_named() {
        let settings = SocketSettings { sctp: NonZeroU32::new(254), ..Default::default() };
        let error = connected(loopback(), &settings).expect_err("no such protocol").to_string();
        assert_eq!(
            error,
            "cannot open an SCTP socket: this kernel does not support SCTP; use --transport=tcp"
        );
    }

    #[test]
    fn closed_port_fails_with_connection_refused() {
        // The port stays reserved while its socket exists, and no process listens at it.
        let (socket, _) = open(loopback(), &SocketSettings::default()).expect("a socket");
        net::bind(&socket, &loopback()).expect("a port");
        let address = net::getsockname(&socket).expect("answers").try_into().expect("an address");
        let error = connected(address, &SocketSettings::default()).expect_err("closed");
        assert!(
            matches!(&error, SocketError::Io { source, .. } if source.kind() == io::ErrorKind::ConnectionRefused),
            "{error}"
        );
    }
}
