//! One TLS connection whose two directions are used by two threads.
//!
//! A lock guards the state, which both directions share. **No thread waits for the network while it
//! holds the lock**; this rule prevents a deadlock between two full directions. The reader takes
//! encrypted bytes from the socket without the lock and holds it only to decrypt them. The writer
//! encrypts at most [`PIECE_BYTES`] under the lock and passes them to the kernel without blocking.
//! It waits for buffer space without the lock.

use super::{binding, cipher_name};
use crate::lane::{LaneError, Meter, Operation, Part, Slices, WaitTimeout, Wire};
use crate::secret::Binding;
use parking_lot::{Mutex, MutexGuard};
use rustls::Connection;
use std::io::{self, IoSlice, Read, Write};
use std::time::Instant;

/// Plaintext bytes encrypted at once: four records of TLS. Larger pieces leave the second-level
/// cache: pieces of 1 MiB reached 7.9 Gbit/s, and this size reached 12.8 Gbit/s.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

/// Encrypted bytes taken from the socket at once, after the peer is authenticated.
const INLET_BYTES: usize = 256 << 10;

/// The same before that: an unauthenticated peer gets little memory.
const INLET_BYTES_AT_FIRST: usize = 8 << 10;

/// State of a connection after its handshake.
pub(crate) struct Channel {
    connection: Mutex<Connection>,
    cipher: &'static str,
}

/// Buffer of encrypted bytes from the socket, owned by the reader.
pub(crate) struct Inlet {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Length of the buffer from the next refill on.
    wanted: usize,
}

/// Result of a decryption.
enum Step {
    Plain(usize),
    Ended,
    NeedsInput,
}

/// Performs the handshake until the deadline of `timeout`.
pub(crate) fn handshake(
    mut connection: Connection,
    wire: &dyn Wire,
    timeout: WaitTimeout,
) -> Result<(Channel, Inlet), LaneError> {
    let mut inlet =
        Inlet { bytes: vec![0; INLET_BYTES_AT_FIRST], start: 0, end: 0, wanted: INLET_BYTES_AT_FIRST };
    loop {
        while connection.wants_write() {
            match connection.write_tls(&mut Outlet(wire)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    wire.until_ready(Operation::Writing, timeout)?;
                }
                Err(error) => return Err(wire.failed(Operation::Writing, error)),
            }
        }
        if !connection.is_handshaking() {
            break;
        }
        if inlet.is_empty() && inlet.refill(wire, timeout)? == 0 {
            return Err(LaneError::Truncated);
        }
        inlet.feed(&mut connection, wire)?;
    }
    let cipher = cipher_name(&connection);
    Ok((Channel { connection: Mutex::new(connection), cipher }, inlet))
}

impl Channel {
    /// Returns the cipher in use.
    pub(crate) fn cipher(&self) -> &'static str {
        self.cipher
    }

    /// Returns the value that binds proofs to this connection.
    pub(crate) fn binding(&self) -> Result<Binding, LaneError> {
        binding(&self.lock()).map_err(LaneError::Tls)
    }

    /// Returns a secret that both ends derive from `label` and `context` (RFC 8446 section 7.5).
    pub(crate) fn export<const N: usize>(&self, label: &[u8], context: &[u8]) -> Result<[u8; N], LaneError> {
        self.lock().export_keying_material([0; N], label, Some(context)).map_err(LaneError::Tls)
    }

    /// Returns true if the peer negotiated the protocol of haul.
    pub(crate) fn is_haul(&self) -> bool {
        super::is_haul(&self.lock())
    }

    /// Reads the available bytes, and waits for the first one. Returns 0 if the peer closed the
    /// connection cleanly.
    pub(crate) fn read(
        &self,
        inlet: &mut Inlet,
        wire: &dyn Wire,
        buffer: &mut [u8],
        timeout: WaitTimeout,
        meter: &Meter,
    ) -> Result<usize, LaneError> {
        loop {
            match meter.time(Part::Crypto, || self.decrypt(inlet, wire, buffer))? {
                Step::Plain(bytes) => return Ok(bytes),
                Step::Ended => return Ok(0),
                Step::NeedsInput => {}
            }
            if meter.time(Part::WaitingIn, || inlet.refill(wire, timeout))? == 0 {
                return Err(LaneError::Truncated);
            }
        }
    }

    /// Decrypts into `buffer` until it is full or nothing is left to decrypt.
    fn decrypt(&self, inlet: &mut Inlet, wire: &dyn Wire, buffer: &mut [u8]) -> Result<Step, LaneError> {
        let mut connection = self.lock();
        let mut done = 0;
        loop {
            match connection.reader().read(&mut buffer[done..]) {
                Ok(0) if done == 0 => return Ok(Step::Ended),
                Ok(bytes) => {
                    done += bytes;
                    if bytes == 0 || done == buffer.len() {
                        return Ok(Step::Plain(done));
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(Operation::Reading.failed(error)),
            }
            if inlet.is_empty() {
                return Ok(if done > 0 { Step::Plain(done) } else { Step::NeedsInput });
            }
            inlet.feed(&mut connection, wire)?;
        }
    }

    /// Encrypts and writes at most `limit` bytes of `slices`. Returns their number.
    pub(crate) fn write(
        &self,
        wire: &dyn Wire,
        slices: &mut Slices<'_>,
        limit: usize,
        timeout: WaitTimeout,
        meter: &Meter,
    ) -> Result<usize, LaneError> {
        let mut connection = self.lock();
        let begin = Instant::now();
        let taken = slices.advance(limit.min(PIECE_BYTES), |next| {
            connection.writer().write_vectored(next).map_err(|error| Operation::Writing.failed(error))
        })?;
        meter.add_time(Part::Crypto, begin.elapsed());
        // A connection that accepts nothing, although it has nothing left to send, has ended.
        if taken == 0 && !connection.wants_write() {
            return Err(LaneError::Aborted);
        }
        meter.time(Part::WaitingOut, || self.flush(connection, wire, timeout))?;
        Ok(taken)
    }

    /// Signals to the peer, under encryption, that no more bytes follow.
    pub(crate) fn finish(&self, wire: &dyn Wire, timeout: WaitTimeout) -> Result<(), LaneError> {
        let mut connection = self.lock();
        connection.send_close_notify();
        self.flush(connection, wire, timeout)
    }

    /// Writes all encrypted bytes.
    fn flush<'a>(
        &'a self,
        mut connection: MutexGuard<'a, Connection>,
        wire: &dyn Wire,
        timeout: WaitTimeout,
    ) -> Result<(), LaneError> {
        loop {
            if write_ready(&mut connection, wire)? {
                return Ok(());
            }
            drop(connection);
            wire.until_ready(Operation::Writing, timeout)?;
            connection = self.lock();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock()
    }
}

/// Writes what the kernel accepts without blocking. Returns true if that is everything.
fn write_ready(connection: &mut Connection, wire: &dyn Wire) -> Result<bool, LaneError> {
    while connection.wants_write() {
        match connection.write_tls(&mut Outlet(wire)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(wire.failed(Operation::Writing, error)),
        }
    }
    Ok(true)
}

impl Inlet {
    /// Enlarges the buffer for later refills, once the peer is authenticated.
    pub(crate) fn widen(&mut self) {
        self.wanted = INLET_BYTES;
    }

    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Takes encrypted bytes from the socket once all earlier ones are used. Returns 0 at the end
    /// of the connection.
    fn refill(&mut self, wire: &dyn Wire, timeout: WaitTimeout) -> Result<usize, LaneError> {
        assert!(self.is_empty(), "bytes that are not decrypted yet are not overwritten");
        if self.bytes.len() != self.wanted {
            self.bytes = vec![0; self.wanted];
        }
        (self.start, self.end) = (0, 0);
        self.end = wire.read(&mut self.bytes, timeout)?;
        Ok(self.end)
    }

    /// Passes a record, or the available part of one, to `connection` and processes it.
    fn feed(&mut self, connection: &mut Connection, wire: &dyn Wire) -> Result<(), LaneError> {
        let mut rest = &self.bytes[self.start..self.end];
        let taken = connection.read_tls(&mut rest).map_err(|error| Operation::Reading.failed(error))?;
        self.start += taken;
        let owed = connection.wants_write();
        let processed = connection.process_new_packets();
        // Send an answer that TLS owes (an alert, new keys) as far as possible without blocking;
        // the next write sends the rest. The writer sends output that was pending before.
        let answers = !owed && connection.wants_write();
        let answered = if answers { write_ready(connection, wire).err() } else { None };
        processed.map_err(LaneError::Tls)?;
        answered.map_or(Ok(()), Err)
    }
}

/// Target of rustls for encrypted bytes: the wire, without blocking.
struct Outlet<'a>(&'a dyn Wire);

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.try_write(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.try_write(slices)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
