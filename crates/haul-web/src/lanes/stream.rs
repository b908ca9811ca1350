//! A lane over one stream of WebTransport, whose bytes two loops carry between the stream and the
//! socket of the session code.
//!
//! Each loop writes what it has read before it reads more, so a slow receiver slows the sender.

use super::LaneRefusal;
use crate::access::{NoRandomness, Session, random, sha256};
use crate::certificate::hex;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use parking_lot::Mutex;
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

/// Bytes of a token.
const TOKEN_BYTES: usize = 16;

/// Maximum number of bytes that are read at once. A stream hands over all bytes that have arrived,
/// so that the datagrams of a fast sender, of about 1.2 KB each, cost one write together.
const BLOCK_BYTES: usize = 1 << 20;

/// Bytes of a read that shows a sender of bulk data; a small message is passed on at once.
const BULK_BYTES: usize = 1000;

/// Time for which bulk data is gathered. Without it, each datagram wakes the session code.
const GATHER: Duration = Duration::from_millis(1);

/// A lane that a browser connects to with a token, once.
pub(crate) struct StreamLane {
    socket: UnixStream,
    /// Digest of the token, and its expiry; `None` once it was used.
    token: Mutex<Option<([u8; 32], Instant)>>,
    aborted: watch::Sender<bool>,
}

impl StreamLane {
    /// Returns a lane that carries the bytes of `socket`, and its token.
    pub(super) fn new(socket: UnixStream, expires: Instant) -> Result<(StreamLane, String), NoRandomness> {
        let token = hex(&random::<TOKEN_BYTES>()?);
        let digest = sha256(token.as_bytes());
        let lane = StreamLane {
            socket,
            token: Mutex::new(Some((digest, expires))),
            aborted: watch::Sender::new(false),
        };
        Ok((lane, token))
    }

    /// Uses the token. Returns false if `token` is another one, or was used or expired.
    pub(super) fn connect(&self, token: &str, now: Instant) -> bool {
        let mut expected = self.token.lock();
        let is_valid = expected.is_some_and(|(digest, expires)| {
            verify_slices_are_equal(&digest, &sha256(token.as_bytes())).is_ok() && now < expires
        });
        if is_valid {
            *expected = None;
        }
        is_valid
    }

    /// Returns true if no browser has connected in time.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let token = self.token.lock();
        token.is_some_and(|(_, expires)| now >= expires)
    }

    /// Ends both directions. The session code detects a lost connection.
    pub(super) fn abort(&self) {
        self.aborted.send_replace(true);
        // An error is harmless: the socket has ended already.
        let _ = shutdown(&self.socket, Shutdown::Both);
    }

    /// Waits until the lane is aborted.
    pub(crate) async fn aborted(&self) {
        // Fails only without the sender, which this lane owns.
        let _ = self.aborted.subscribe().wait_for(|aborted| *aborted).await;
    }

    /// Carries bytes until both directions have ended. `taken` resolves once the browser has all
    /// bytes of its direction, or with an error if it takes no more of them. Then the browser has
    /// `linger` after its last byte to end the other direction.
    ///
    /// # Errors
    /// Returns the reason for a loss of the lane: it was aborted, or the stream failed.
    pub(crate) async fn carry(
        &self,
        session: &Session,
        mut to_browser: impl AsyncWrite + Unpin,
        from_browser: impl AsyncRead + Unpin,
        taken: impl Future<Output = io::Result<()>>,
        linger: Duration,
    ) -> io::Result<()> {
        let arrived = Notify::new();
        let mut upload = pin!(self.upload(session, from_browser, &arrived));
        let mut download = pin!(self.download(session, &mut to_browser));
        let mut taken = pin!(taken);
        let carried = async {
            let (mut is_uploaded, mut is_downloaded, mut is_taken) = (false, false, false);
            while !(is_uploaded && is_downloaded && is_taken) {
                tokio::select! {
                    biased;
                    uploaded = &mut upload, if !is_uploaded => {
                        uploaded?;
                        is_uploaded = true;
                    }
                    downloaded = &mut download, if !is_downloaded => {
                        downloaded?;
                        is_downloaded = true;
                    }
                    all = &mut taken, if !is_taken => {
                        all?;
                        is_taken = true;
                    }
                    () = arrived.notified() => {}
                    () = sleep(linger), if is_downloaded && is_taken => return Err(io::ErrorKind::TimedOut.into()),
                }
            }
            Ok(())
        };
        tokio::select! {
            biased;
            () = self.aborted() => Err(io::Error::other(LaneRefusal::Gone)),
            carried = carried => carried,
        }
    }

    /// Carries bytes to the session code until the browser ends its direction, or the session code
    /// reads no more. Each read notifies `arrived`.
    async fn upload(
        &self,
        session: &Session,
        mut from: impl AsyncRead + Unpin,
        arrived: &Notify,
    ) -> io::Result<()> {
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            let mut read = from.read(&mut block).await?;
            if (BULK_BYTES..BLOCK_BYTES / 4).contains(&read) {
                sleep(GATHER).await;
                // Only what has arrived. The next read shows the end or an error again.
                let more = timeout(Duration::ZERO, from.read(&mut block[read..])).await;
                read += more.ok().and_then(Result::ok).unwrap_or(0);
            }
            if read == 0 {
                // An error is harmless: the session code has ended the socket already.
                let _ = shutdown(&self.socket, Shutdown::Write);
                return Ok(());
            }
            session.extend(Instant::now());
            arrived.notify_one();
            let mut rest = &block[..read];
            while !rest.is_empty() {
                self.socket.writable().await?;
                match self.socket.try_write(rest) {
                    Ok(written) => rest = &rest[written..],
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // The session code has ended, and its last bytes may be on their way.
                    Err(_) => return Ok(()),
                }
            }
        }
    }

    /// Carries bytes to the browser until the session code ends its direction.
    async fn download(&self, session: &Session, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let mut block = vec![0; BLOCK_BYTES];
        loop {
            self.socket.readable().await?;
            match self.socket.try_read(&mut block) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // The other end was closed with unread bytes: the session code writes no more.
                Ok(0) | Err(_) => return if *self.aborted.borrow() { Ok(()) } else { to.shutdown().await },
                Ok(read) => {
                    session.extend(Instant::now());
                    to.write_all(&block[..read]).await?;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
