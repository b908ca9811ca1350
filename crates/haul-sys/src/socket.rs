//! What Linux tells and takes about a socket beyond the portable options: the state of a TCP connection, a pace set
//! in the kernel, whether a connection really has several paths.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

/// Room for the fields of `struct tcp_info` that are read here, and more: a kernel writes at most what is asked for.
const TCP_INFO_BYTES: usize = 256;

/// `SOL_MPTCP` and `MPTCP_INFO` of `linux/mptcp.h`.
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;

/// `SO_MAX_PACING_RATE` of `asm-generic/socket.h`, which x86, ARM, RISC-V, POWER and s390 use.
const SO_MAX_PACING_RATE: libc::c_int = 47;

/// Where a TCP connection stands, as `TCP_INFO` tells it. What a kernel does not tell is zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFacts {
    /// The smoothed time of a round trip.
    pub round_trip: Duration,
    /// The shortest round trip seen: the path without its queues.
    pub shortest_round_trip: Duration,
    /// Segments that may be under way.
    pub congestion_window: u32,
    /// Bytes in a segment.
    pub segment_bytes: u32,
    /// Segments sent again since the connection began.
    pub retransmitted: u32,
    /// Bytes a second that lately arrived, as the sender's kernel measured it.
    pub delivery_rate: u64,
    /// How long there was something to send.
    pub busy: Duration,
    /// The part of `busy` in which the other end's window was full: it did not read fast enough.
    pub limited_by_window: Duration,
    /// The part of `busy` in which this end's send buffer was too small.
    pub limited_by_send_buffer: Duration,
}

/// The state of the TCP connection `socket`.
///
/// # Errors
/// What getsockopt(2) reports: `EOPNOTSUPP` or `ENOPROTOOPT` where it is no TCP socket.
pub fn tcp_facts(socket: impl AsFd) -> io::Result<TcpFacts> {
    let mut info = [0; TCP_INFO_BYTES];
    get_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_INFO, &mut info)?;
    Ok(TcpFacts::decode(&info))
}

impl TcpFacts {
    /// Reads `struct tcp_info` of `linux/tcp.h`: its fields never move, new ones come at its end.
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
            // Before the first sample the kernel holds the greatest number here.
            shortest_round_trip: match word(148) {
                u32::MAX => Duration::ZERO,
                micros => Duration::from_micros(micros.into()),
            },
            congestion_window: word(80),
            segment_bytes: word(16),
            retransmitted: word(100),
            delivery_rate: long(160),
            busy: Duration::from_micros(long(168)),
            limited_by_window: Duration::from_micros(long(176)),
            limited_by_send_buffer: Duration::from_micros(long(184)),
        }
    }
}

/// Bytes given to `socket` that the other end's kernel has not acknowledged. A peer that is only slow keeps
/// acknowledging; one that is gone does not.
///
/// # Errors
/// What ioctl(2) reports: `EINVAL` on a listening socket, `ENOTTY` where it is no socket.
pub fn unacknowledged_bytes(socket: impl AsFd) -> io::Result<u32> {
    let mut count: libc::c_int = 0;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: SIOCOUTQ (the same number as TIOCOUTQ) writes one int to the pointer, which lives in this frame; the
    // descriptor is borrowed for the call.
    let done = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &raw mut count) };
    if done == 0 { Ok(count.unsigned_abs()) } else { Err(io::Error::last_os_error()) }
}

/// Asks the kernel to space this socket's packets so that they never pass `bytes_per_second`.
///
/// # Errors
/// What setsockopt(2) reports.
pub fn set_max_pacing_rate(socket: impl AsFd, bytes_per_second: u64) -> io::Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    let value = bytes_per_second.to_ne_bytes();
    // SAFETY: the kernel reads `value.len()` bytes from the pointer, which is to an array of that many in this frame;
    // the descriptor is borrowed for the call.
    let done = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            SO_MAX_PACING_RATE,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// How many paths beside the first one a connection over Multipath TCP (RFC 8684) has. `None`: the connection is
/// ordinary TCP, or fell back to it because the other end does not speak it.
///
/// # Errors
/// What getsockopt(2) reports, other than that.
pub fn additional_paths(socket: impl AsFd) -> io::Result<Option<u8>> {
    // The first byte of `struct mptcp_info` counts the subflows beside the first.
    let mut info = [0; 128];
    match get_option(socket.as_fd(), SOL_MPTCP, MPTCP_INFO, &mut info) {
        Ok(_) => Ok(Some(info[0])),
        Err(error) => match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOPROTOOPT) => Ok(None),
            _ => Err(error),
        },
    }
}

/// Reads an option into `bytes`, and gives how many of them the kernel wrote.
fn get_option(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    bytes: &mut [u8],
) -> io::Result<usize> {
    let mut length = bytes.len() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to the pointer, which is to a slice of that length, and the
    // number written to `length`, which lives in this frame.
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
    fn a_connection_tells_its_state() {
        let (mut near, _far) = pair();
        near.write_all(&[7; 1000]).expect("writes");
        let facts = tcp_facts(&near).expect("TCP");
        assert!(facts.congestion_window > 0 && facts.segment_bytes >= 536, "{facts:?}");
        assert_eq!(facts.retransmitted, 0);
    }

    #[test]
    fn what_is_no_tcp_socket_says_so() {
        let file = std::fs::File::open("/dev/null").expect("opens");
        assert!(tcp_facts(&file).is_err());
        assert!(unacknowledged_bytes(&file).is_err());
        assert!(set_max_pacing_rate(&file, 1).is_err());
    }

    #[test]
    fn bytes_are_unacknowledged_until_the_far_kernel_has_them() {
        let (mut near, far) = pair();
        near.set_nonblocking(true).expect("sets");
        // More than both buffers hold: what the far kernel cannot take stays unacknowledged.
        while near.write(&[7; 65536]).is_ok() {}
        assert!(unacknowledged_bytes(&near).expect("a socket") > 0);
        drop(far);
    }

    #[test]
    fn a_pace_is_taken_and_tcp_has_no_second_path() {
        let (near, _far) = pair();
        set_max_pacing_rate(&near, 12_500_000).expect("Linux takes it");
        assert_eq!(additional_paths(&near).expect("answers"), None);
    }
}
