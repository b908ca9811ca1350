//! Continuation of the two streams over another connection.
//!
//! Each end stops the association ([`Association::leave`]) and tells the peer over the other
//! connection how many bytes it has. Then it sends the bytes that the peer does not have
//! ([`Association::resume_from`], [`Association::take_unacknowledged`]), and what is written later.

use super::Association;
use crate::config::{Failure, State};

impl<A: Copy + Eq> Association<A> {
    /// Stops the association: from now on no datagram changes or leaves it. Bytes that arrived in
    /// order can still be read. Returns the number of bytes that arrived in order, from the start
    /// of the stream on.
    pub fn leave(&mut self) -> u64 {
        if self.state != State::Finished {
            self.state = State::Failed(Failure::Left);
        }
        self.closing = None;
        self.received.forget_later();
        self.received.in_order()
    }

    /// Records after [`Association::leave`] that the peer has the bytes of the outgoing stream
    /// before `position`, and none behind it. Returns false if this is impossible: the peer
    /// acknowledged more, or fewer bytes were sent.
    pub fn resume_from(&mut self, position: u64) -> bool {
        self.stream.resume_from(position)
    }

    /// Moves at most `len` bytes of the outgoing stream that the peer does not have to the end of
    /// `target`, and returns their number: 0 if there are no more.
    pub fn take_unacknowledged(&mut self, len: usize, target: &mut Vec<u8>) -> usize {
        self.stream.take(len, target)
    }

    /// True if [`Association::finish`] was called.
    pub fn is_finishing(&self) -> bool {
        self.stream.is_finished()
    }
}
