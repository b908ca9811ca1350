//! UDP socket with segmentation offload.

use haul_sys::socket::allow_fragments;
use haul_udp::Chunk;
use quinn_udp::{BATCH_SIZE, RecvMeta, UdpSockRef, UdpSocketState};
use rustix::io::Errno;
use rustix::net::{MMsgHdr, SendAncillaryBuffer, SendFlags, SocketAddrAny, sendmmsg};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Size in bytes to request for each buffer of the socket. It holds 30 ms at 1 Gbit/s, for which
/// another process can keep the driver from running.
const BUFFER_BYTES: usize = 4 << 20;

/// Calls of recvmmsg(2) take this number of messages at most; each holds up to 64 KiB of datagrams
/// that the kernel merged.
const MESSAGES_MAX: usize = if BATCH_SIZE < 8 { BATCH_SIZE } else { 8 };
const MESSAGE_BYTES: usize = 64 << 10;

/// A UDP socket.
#[derive(Debug)]
pub(crate) struct Socket {
    socket: UdpSocket,
    state: UdpSocketState,
    /// Maximum size of the datagrams that the kernel segments: larger ones exceed the MTU.
    segment_max: AtomicUsize,
    /// Number of calls of [`Socket::send`] whose datagrams pass; the later ones are lost.
    #[cfg(test)]
    pub(super) passes: AtomicUsize,
    /// If above 1, only each such call of [`Socket::send`] passes its datagrams.
    #[cfg(test)]
    pub(super) one_of: AtomicUsize,
}

/// Received datagrams.
pub(super) struct Received {
    bytes: Box<[u8]>,
    meta: [RecvMeta; MESSAGES_MAX],
    messages: usize,
}

impl Socket {
    /// Opens a socket at the address of `local`, on a port of the range if there is one. A fixed
    /// chunk may exceed the MTU, so IP may fragment its datagrams.
    pub(super) fn open(mut local: SocketAddr, ports: Option<(u16, u16)>, chunk: Chunk) -> io::Result<Self> {
        let (first, last) = ports.unwrap_or((0, 0));
        let mut bound = Err(io::ErrorKind::InvalidInput.into());
        for port in first..=last {
            local.set_port(port);
            bound = UdpSocket::bind(local);
            if bound.is_ok() {
                break;
            }
        }
        let socket = bound?;
        let state = UdpSocketState::new((&socket).into())?;
        let reference = || UdpSockRef::from(&socket);
        // The kernel grants at most its limit. A smaller buffer loses more datagrams.
        let _ = state.set_send_buffer_size(reference(), BUFFER_BYTES);
        let _ = state.set_recv_buffer_size(reference(), BUFFER_BYTES);
        if matches!(chunk, Chunk::Fixed(_)) {
            allow_fragments(&socket)?;
        }
        Ok(Self {
            socket,
            state,
            segment_max: AtomicUsize::new(usize::MAX),
            #[cfg(test)]
            passes: AtomicUsize::new(usize::MAX),
            #[cfg(test)]
            one_of: AtomicUsize::new(1),
        })
    }

    pub(super) fn port(&self) -> io::Result<u16> {
        Ok(self.socket.local_addr()?.port())
    }

    /// Sends datagrams of `segment` bytes, of which the last may be shorter.
    ///
    /// # Errors
    /// Returns the error of sendmsg(2) or sendmmsg(2). Some datagrams may have left.
    pub(super) fn send(&self, to: SocketAddr, bytes: &[u8], segment: usize) -> io::Result<()> {
        #[cfg(test)]
        match self.passes.fetch_sub(1, Ordering::Relaxed) {
            0 => {
                self.passes.store(0, Ordering::Relaxed);
                return Ok(());
            }
            count if count % self.one_of.load(Ordering::Relaxed) != 0 => return Ok(()),
            _ => {}
        }
        let send = |contents, segment_size| {
            let transmit =
                quinn_udp::Transmit { destination: to, ecn: None, contents, segment_size, src_ip: None };
            self.state.try_send((&self.socket).into(), &transmit)
        };
        let segments_max = self.state.max_gso_segments();
        if bytes.len() > segment && segments_max > 1 && segment <= self.segment_max.load(Ordering::Relaxed) {
            match send(bytes, Some(segment)) {
                Err(error) if error.raw_os_error() == Some(Errno::MSGSIZE.raw_os_error()) => {
                    self.segment_max.store(segment - 1, Ordering::Relaxed);
                }
                // The kernel or the driver does not segment at all.
                Err(_) if self.state.max_gso_segments() == 1 => {}
                sent => return sent,
            }
        }
        if bytes.len() <= segment { send(bytes, None) } else { self.send_each(to, bytes, segment) }
    }

    /// Sends datagrams that the kernel does not segment, by sendmmsg(2).
    fn send_each(&self, to: SocketAddr, bytes: &[u8], segment: usize) -> io::Result<()> {
        let to = SocketAddrAny::from(to);
        let slices: Vec<[IoSlice<'_>; 1]> =
            bytes.chunks(segment).map(|datagram| [IoSlice::new(datagram)]).collect();
        let mut controls: Vec<SendAncillaryBuffer<'_, '_, '_>> =
            slices.iter().map(|_| SendAncillaryBuffer::default()).collect();
        let mut messages: Vec<MMsgHdr<'_>> = slices
            .iter()
            .zip(&mut controls)
            .map(|(slices, control)| MMsgHdr::new_with_addr(&to, slices, control))
            .collect();
        let mut rest = &mut messages[..];
        while !rest.is_empty() {
            // Linux has the call since version 3.0. It sends at least one message, or fails.
            let sent = sendmmsg(&self.socket, rest, SendFlags::empty())?;
            rest = &mut rest[sent..];
        }
        Ok(())
    }

    /// Receives the queued datagrams without waiting.
    ///
    /// # Errors
    /// Returns `WouldBlock` if there is none, or the error of recvmmsg(2).
    pub(super) fn receive(&self, into: &mut Received) -> io::Result<()> {
        into.messages = 0;
        let mut buffers = into.bytes.chunks_mut(MESSAGE_BYTES);
        let mut slices: [_; MESSAGES_MAX] =
            std::array::from_fn(|_| IoSliceMut::new(buffers.next().unwrap_or_default()));
        into.messages = self.state.recv((&self.socket).into(), &mut slices, &mut into.meta)?;
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Received {
    pub(super) fn new() -> Self {
        let bytes = vec![0; MESSAGES_MAX * MESSAGE_BYTES].into_boxed_slice();
        Self { bytes, meta: [RecvMeta::default(); MESSAGES_MAX], messages: 0 }
    }

    /// Passes each datagram with its source address to `take`.
    pub(super) fn each(&mut self, mut take: impl FnMut(SocketAddr, &mut [u8])) {
        for (bytes, meta) in self.bytes.chunks_mut(MESSAGE_BYTES).zip(&self.meta[..self.messages]) {
            let bytes = &mut bytes[..meta.len];
            bytes.chunks_mut(meta.stride.max(1)).for_each(|datagram| take(meta.addr, datagram));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn datagrams_arrive_whole_with_and_without_segmentation() {
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let from = Socket::open(local, None, Chunk::Fixed(1000)).unwrap();
        let peer = UdpSocket::bind(local).unwrap();
        peer.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let to = peer.local_addr().unwrap();
        let bytes: Vec<u8> = (0..6700_u32).map(|at| (at % 251) as u8).collect();
        for sends in [Socket::send, Socket::send_each] {
            sends(&from, to, &bytes, 1000).unwrap();
            let mut into = [0; 2000];
            for datagram in bytes.chunks(1000) {
                let len = peer.recv(&mut into).unwrap();
                assert_eq!(&into[..len], datagram);
            }
        }
    }
}
