//! Bytes from the browser to the session code.
//!
//! A body goes into the socket as it arrives. A body whose turn has not come is not read: its bytes
//! wait in the window of its connection. The lane therefore buffers nothing, and a slow receiver
//! slows the browser. If a request ends early, its repetition continues behind the bytes that were
//! taken.

use super::{Lane, LaneRefusal};
use crate::limits::{UPLOAD_BYTES_MAX, UPLOADS_AHEAD_MAX};
use bytes::{Buf as _, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use parking_lot::MutexGuard;
use rustix::net::{Shutdown, shutdown};
use std::io;
use std::pin::pin;
use tokio::time::timeout;

/// State of the direction.
#[derive(Default)]
pub(super) struct Upload {
    /// Number of the next request.
    next: u64,
    /// Bytes of the next request that were taken already.
    taken: u64,
    /// Number of the latest claim to the turn. A request holds the turn while its claim is the
    /// latest.
    claim: u64,
    /// True if no more bytes follow.
    is_finished: bool,
}

impl Lane {
    /// Takes the body of request `number`, of `length` bytes if that is known. With `ends`, this
    /// direction ends behind it.
    pub(crate) async fn put<B>(
        &self,
        number: u64,
        length: Option<u64>,
        ends: bool,
        body: B,
    ) -> Result<(), LaneRefusal>
    where
        B: Body<Data = Bytes>,
    {
        let Some((claim, mut skipped)) = self.claim_turn(number).await? else { return Ok(()) };
        let (mut body, mut arrived) = (pin!(body), 0);
        loop {
            let frame = timeout(self.limits.body_stall, body.frame()).await;
            let frame = match frame.map_err(|_| LaneRefusal::Stalled)? {
                Some(frame) => frame.map_err(|_| LaneRefusal::Incomplete)?,
                None => break,
            };
            let Ok(mut bytes) = frame.into_data() else { continue };
            arrived += bytes.len() as u64;
            if arrived > UPLOAD_BYTES_MAX {
                self.abort();
                return Err(LaneRefusal::TooLarge(UPLOAD_BYTES_MAX));
            }
            let again = bytes.len().min(usize::try_from(skipped).unwrap_or(usize::MAX));
            bytes.advance(again);
            skipped -= again as u64;
            self.write(claim, bytes).await?;
        }
        // A reset stream can look like the end of its body.
        if length.is_some_and(|length| length != arrived) {
            return Err(LaneRefusal::Incomplete);
        }
        let mut upload = self.upload();
        if upload.claim != claim {
            return Err(LaneRefusal::Superseded);
        }
        if skipped > 0 {
            drop(upload);
            self.abort();
            return Err(LaneRefusal::Differs);
        }
        upload.next += 1;
        upload.taken = 0;
        if ends {
            upload.is_finished = true;
            // An error is harmless: the session code has ended the socket already.
            let _ = shutdown(&self.socket, Shutdown::Write);
        }
        drop(upload);
        self.upload_changed.notify_waiters();
        Ok(())
    }

    /// Waits for the turn of request `number`. Returns the claim and the number of bytes that were
    /// taken already, or `None` if the whole request was taken.
    async fn claim_turn(&self, number: u64) -> Result<Option<(u64, u64)>, LaneRefusal> {
        let mut seen = (0, 0);
        loop {
            let mut changed = pin!(self.upload_changed.notified());
            changed.as_mut().enable();
            self.unless_aborted()?;
            {
                let mut upload = self.upload();
                if number < upload.next {
                    return Ok(None);
                }
                if upload.is_finished {
                    return Err(LaneRefusal::PastTheEnd);
                }
                if number == upload.next {
                    // The connection of an earlier request with this number may be lost unnoticed,
                    // so the latest request gets the turn.
                    upload.claim += 1;
                    self.upload_changed.notify_waiters();
                    return Ok(Some((upload.claim, upload.taken)));
                }
                if number - upload.next > UPLOADS_AHEAD_MAX {
                    return Err(LaneRefusal::TooFarAhead(UPLOADS_AHEAD_MAX));
                }
            }
            if timeout(self.limits.body_stall, changed).await.is_err() {
                let upload = self.upload();
                let now = (upload.next, upload.taken);
                // Earlier requests on a slow path may take long, but their bytes arrive.
                if now == seen {
                    return Err(LaneRefusal::Waited);
                }
                seen = now;
            }
        }
    }

    /// Writes bytes while `claim` holds the turn. The lane counts the bytes as it writes them.
    async fn write(&self, claim: u64, mut bytes: Bytes) -> Result<(), LaneRefusal> {
        while !bytes.is_empty() {
            let mut changed = pin!(self.upload_changed.notified());
            changed.as_mut().enable();
            self.unless_aborted()?;
            {
                let mut upload = self.upload();
                if upload.claim != claim {
                    return Err(LaneRefusal::Superseded);
                }
                match self.socket.try_write(&bytes) {
                    Ok(written) => {
                        upload.taken += written as u64;
                        bytes.advance(written);
                        continue;
                    }
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return Err(LaneRefusal::Gone),
                }
            }
            let ready = async {
                tokio::select! {
                    // An error shows in the next write.
                    _ = self.socket.writable() => {}
                    () = changed => {}
                }
            };
            // While the receiver takes nothing, the browser learns that the lane is still there.
            timeout(self.limits.body_stall, ready).await.map_err(|_| LaneRefusal::Waited)?;
        }
        Ok(())
    }

    fn upload(&self) -> MutexGuard<'_, Upload> {
        self.upload.lock()
    }
}
