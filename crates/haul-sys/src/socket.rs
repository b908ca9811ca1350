//! Linux socket information and options beyond the portable ones: state of a TCP connection, pacing
//! in the kernel, and number of paths of a connection.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Size of the buffer for `struct tcp_info`, in bytes. It exceeds the fields that are read here;
/// the kernel writes at most the requested length.
const TCP_INFO_BYTES: usize = 256;

/// `SOL_MPTCP` and `MPTCP_INFO` of `linux/mptcp.h`.
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;

/// `SO_MAX_PACING_RATE` of `asm-generic/socket.h`, which x86, ARM, RISC-V, POWER and s390 use.
const SO_MAX_PACING_RATE: libc::c_int = 47;

/// State of a TCP connection, from `TCP_INFO`. Fields that the kernel does not report are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFacts {
    /// Smoothed round-trip time.
    pub round_trip: Duration,
    /// Minimum round-trip time observed: the path without its queues.
    pub shortest_round_trip: Duration,
    /// Congestion window: maximum number of segments in flight.
    pub congestion_window: u32,
    /// Size of a segment in bytes.
    pub segment_bytes: u32,
    /// Segments retransmitted since the connection was opened.
    pub retransmitted: u32,
    /// Limit of [`set_max_pacing_rate`] in bytes per second, if there is one.
    pub pacing_limit: Option<u64>,
    /// Recent delivery rate in bytes per second, as measured by the kernel of the sender.
    pub delivery_rate: u64,
    /// Time in which there was data to send.
    pub busy: Duration,
    /// Part of `busy` in which the peer's receive window was full: the peer did not read fast
    /// enough.
    pub limited_by_window: Duration,
    /// Part of `busy` in which the local send buffer was too small.
    pub limited_by_send_buffer: Duration,
}

/// Returns the state of the TCP connection `socket`.
///
/// # Errors
///
/// Returns the errors of getsockopt(2): `EOPNOTSUPP` or `ENOPROTOOPT` if it is not a TCP socket.
pub fn tcp_facts(socket: impl AsFd) -> io::Result<TcpFacts> {
    let mut info = [0; TCP_INFO_BYTES];
    get_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    Ok(TcpFacts::decode(&info))
}

impl TcpFacts {
    /// Decodes `struct tcp_info` of `linux/tcp.h`. Its fields never move, and new ones are
    /// appended.
    fn decode(info: &[u8; TCP_INFO_BYTES]) -> Self {
        let word = |at: usize| {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&info[at..at + 4]);
            u32::from_ne_bytes(bytes)
        };
        let long = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&info[at..at + 8]);
            u64::from_ne_bytes(bytes)
        };
        Self {
            round_trip: Duration::from_micros(word(68).into()),
            // Before the first sample the kernel stores the maximum value here.
            shortest_round_trip: match word(148) {
                u32::MAX => Duration::ZERO,
                micros => Duration::from_micros(micros.into()),
            },
            congestion_window: word(80),
            segment_bytes: word(16),
            retransmitted: word(100),
            pacing_limit: Some(long(112)).filter(|rate| *rate != u64::MAX),
            delivery_rate: long(160),
            busy: Duration::from_micros(long(168)),
            limited_by_window: Duration::from_micros(long(176)),
            limited_by_send_buffer: Duration::from_micros(long(184)),
        }
    }
}

/// Returns the number of bytes written to `socket` that the peer's kernel has not acknowledged. A
/// slow peer keeps acknowledging, and a peer that is gone does not.
///
/// # Errors
///
/// Returns the errors of ioctl(2): `EINVAL` for a listening socket, `ENOTTY` if it is not a socket.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<u32> {
    let mut count: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ) writes one int through the pointer to a local
    // variable; the descriptor is borrowed for the call.
    let done = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut count) };
    if done == 0 { Ok(count.unsigned_abs()) } else { Err(io::Error::last_os_error()) }
}

/// Permits IP to fragment the datagrams of a UDP socket that exceed the MTU.
///
/// # Errors
///
/// Returns the errors of setsockopt(2).
pub fn allow_fragments(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    let family = rustix::net::sockopt::socket_domain(socket)?;
    set_number(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DONT)?;
    if family == rustix::net::AddressFamily::INET6 {
        set_number(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DONT)?;
        set_number(socket, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 0)?;
    }
    Ok(())
}

/// Requests that the kernel paces the packets of this socket to at most `bytes_per_second`.
///
/// # Errors
///
/// Returns the errors of setsockopt(2).
pub fn set_max_pacing_rate(socket: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    set_option(socket.as_fd(), libc::SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second.to_ne_bytes())
}

fn set_number(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    set_option(socket, level, name, &value.to_ne_bytes())
}

fn set_option(socket: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the kernel reads `value.len()` bytes from the pointer to a slice of that length; the
    // descriptor is borrowed for the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the number of additional paths of a Multipath TCP connection (RFC 8684), besides the
/// first.
///
/// Returns `None` if the connection is ordinary TCP, or fell back to it because the peer does not
/// support Multipath TCP.
///
/// # Errors
///
/// Returns the other errors of getsockopt(2).
pub fn additional_paths(socket: impl AsFd) -> io::Result<Option<u8>> {
    // The first byte of `struct mptcp_info` is the number of subflows besides the first.
    let mut info = [0; 128];
    match get_option(socket.as_fd(), SOL_MPTCP, MPTCP_INFO, &mut info) {
        Ok(_) => Ok(Some(info[0])),
        Err(error) => match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Reads an option into `bytes` and returns the number of bytes that the kernel wrote.
fn get_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes through the pointer to a slice of that
    // length, and the number of bytes written to the local variable `length`.
    let done = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, bytes.as_mut_ptr().cast(), &raw mut length)
    };
    if done == 0 { Ok(length as usize) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
        (near, listener.accept().expect("accepts").0)
    }

    #[test]
    fn connection_reports_tcp_facts() {
        let (mut near, _far) = pair();
        near.write_all(&[7; 1000]).expect("writes");
        let facts = tcp_facts(&near).expect("TCP");
        assert!(facts.congestion_window > 0 && facts.segment_bytes >= 536, "{facts:?}");
        assert_eq!(facts.retransmitted, 0);
    }

    #[test]
    fn descriptor_that_is_not_a_tcp_socket_returns_an_error() {
        let file = std::fs::File::open("/dev/null").expect("opens");
        assert!(tcp_facts(&file).is_err());
        assert!(unacknowledged_bytes(&file).is_err());
        assert!(set_max_pacing_rate(&file, 1).is_err());
    }

    #[test]
    fn bytes_beyond_the_peer_buffers_are_unacknowledged() {
        let (mut near, far) = pair();
        near.set_nonblocking(true).expect("sets");
        // Exceeds both buffers: bytes that the peer's kernel cannot accept stay unacknowledged.
        while near.write(&[7; 65536]).is_ok() {}
        assert!(unacknowledged_bytes(&near).expect("a socket") > 0);
        drop(far);
    }

    #[test]
    fn pacing_rate_is_accepted_and_tcp_has_no_additional_paths() {
        let (near, _far) = pair();
        assert_eq!(tcp_facts(&near).expect("TCP").pacing_limit, None);
        set_max_pacing_rate(&near, 12_500_000).expect("Linux takes it");
        assert_eq!(tcp_facts(&near).expect("TCP").pacing_limit, Some(12_500_000));
        assert_eq!(additional_paths(&near).expect("answers"), None);
    }
}
