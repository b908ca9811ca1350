//! State machine that turns two byte streams into datagrams.

use haul_udp::{Association, Read, State, Stats, Time, Transmit};
use std::fmt;
use std::net::SocketAddr;

/// One end of two byte streams over datagrams, without I/O: an association of `haul-udp` or a QUIC
/// connection. [`Link`](super::link::Link) carries its datagrams. The methods do what those of
/// [`Association`] do.
pub(crate) trait Carrier: fmt::Debug + Send + 'static {
    /// Copies bytes of the incoming stream.
    fn read(&mut self, target: &mut [u8]) -> Read;
    /// Copies bytes to the end of the outgoing stream and returns their number.
    fn write(&mut self, bytes: &[u8]) -> usize;
    /// Ends the outgoing stream after the bytes written so far.
    fn finish(&mut self);
    /// Returns true if [`read`](Self::read) returns bytes or the end.
    fn is_readable(&self) -> bool;
    /// Returns true if it is worth waking a thread that waits to write.
    fn is_writable(&self) -> bool;
    /// Returns true if nothing is left to do for an end without users, because the peer has all
    /// bytes.
    fn is_flushed(&mut self) -> bool;
    /// Ends the connection with a code above 2.
    fn close(&mut self, now: Time, code: u32);
    /// Returns the state.
    fn state(&self) -> State;
    /// Returns true if an authentic datagram of the peer has arrived.
    fn has_heard(&self) -> bool;
    /// Returns the time of the next datagram or timeout, or `None` if there is none any more.
    fn next_time(&mut self) -> Option<Time>;
    /// Puts the datagrams that are due now into `buffer`.
    fn transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Transmit<SocketAddr>>;
    /// Takes a received datagram.
    fn receive(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]);
    /// Returns the figures so far.
    fn stats(&self) -> Stats;
    /// Returns the association, whose streams a lane can continue over another connection.
    fn association(&self) -> Option<&Association<SocketAddr>> {
        None
    }
    /// Same as [`association`](Self::association).
    fn association_mut(&mut self) -> Option<&mut Association<SocketAddr>> {
        None
    }
}

/// Free bytes of the send buffer from which on a waiting writer is woken.
const WRITABLE_MIN: usize = 128 << 10;

impl Carrier for Association<SocketAddr> {
    fn read(&mut self, target: &mut [u8]) -> Read {
        Association::read(self, target)
    }

    fn write(&mut self, bytes: &[u8]) -> usize {
        Association::write(self, bytes)
    }

    fn finish(&mut self) {
        Association::finish(self);
    }

    fn is_readable(&self) -> bool {
        self.readable() > 0 || self.is_at_end()
    }

    fn is_writable(&self) -> bool {
        self.writable() >= WRITABLE_MIN
    }

    fn is_flushed(&mut self) -> bool {
        !self.is_flushing()
    }

    fn close(&mut self, now: Time, code: u32) {
        Association::close(self, now, code);
    }

    fn state(&self) -> State {
        Association::state(self)
    }

    fn has_heard(&self) -> bool {
        Association::has_heard(self)
    }

    fn next_time(&mut self) -> Option<Time> {
        Association::next_time(self)
    }

    fn transmit(&mut self, now: Time, buffer: &mut Vec<u8>) -> Option<Transmit<SocketAddr>> {
        Association::transmit(self, now, buffer)
    }

    fn receive(&mut self, now: Time, from: SocketAddr, datagram: &mut [u8]) {
        Association::receive(self, now, from, datagram);
    }

    fn stats(&self) -> Stats {
        Association::stats(self)
    }

    fn association(&self) -> Option<&Association<SocketAddr>> {
        Some(self)
    }

    fn association_mut(&mut self) -> Option<&mut Association<SocketAddr>> {
        Some(self)
    }
}
