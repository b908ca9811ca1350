//! Bytes from the session code to the browser.
//!
//! A task reads the socket ahead of the requests. The next request gets the bytes that were read
//! until then as one piece, which is kept until the browser requests a piece that it could not
//! request without this one.

use super::{Lane, LaneRefusal};
use crate::limits::{PIECE_BYTES_MAX, PIECES_AHEAD_MAX, UNREAD_BYTES_MAX};
use bytes::{Bytes, BytesMut};
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::{Arc, MutexGuard, PoisonError};
use tokio::time::{Instant, timeout_at};

/// Bytes for which the reading task makes space before a read.
const READ_BYTES: usize = 256 << 10;

/// State of the direction.
#[derive(Default)]
pub(super) struct Download {
    /// Bytes that no piece contains yet.
    unread: BytesMut,
    /// True if the session code writes no more.
    is_ended: bool,
    /// Number of the next piece.
    next: u64,
    /// Pieces that can be requested again, in order. The last one has the number `next - 1`.
    kept: VecDeque<Piece>,
}

/// Bytes that a request gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) bytes: Bytes,
    /// True if no more pieces follow.
    pub(crate) is_last: bool,
}

impl Download {
    /// Returns a kept piece. A request for `number` shows that pieces which could not be in flight
    /// together with it have arrived: they are dropped.
    fn kept(&mut self, number: u64) -> Option<Piece> {
        let mut first = self.next - self.kept.len() as u64;
        while first + PIECES_AHEAD_MAX < number && self.kept.pop_front().is_some() {
            first += 1;
        }
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        self.kept.get(at).cloned()
    }

    /// Makes the next piece, if there are bytes for it or the stream has ended.
    fn cut(&mut self) -> Option<Piece> {
        if self.unread.is_empty() && !self.is_ended {
            return None;
        }
        let bytes = self.unread.split_to(self.unread.len().min(PIECE_BYTES_MAX)).freeze();
        let piece = Piece { bytes, is_last: self.is_ended && self.unread.is_empty() };
        self.next += 1;
        self.kept.push_back(piece.clone());
        Some(piece)
    }

    fn is_over(&self) -> bool {
        self.kept.back().is_some_and(|piece| piece.is_last)
    }
}

impl Lane {
    /// Returns piece `number`, or `None` if no byte of it arrives in time.
    pub(crate) async fn get(&self, number: u64) -> Result<Option<Piece>, LaneRefusal> {
        let deadline = Instant::now() + self.limits.poll;
        loop {
            let mut changed = pin!(self.download_changed.notified());
            changed.as_mut().enable();
            {
                let mut download = self.download();
                // Such a request shows nothing about earlier pieces.
                if number.saturating_sub(download.next) > PIECES_AHEAD_MAX {
                    return Err(LaneRefusal::TooFarAhead(PIECES_AHEAD_MAX));
                }
                if let Some(piece) = download.kept(number) {
                    return Ok(Some(piece));
                }
                if number < download.next {
                    return Err(LaneRefusal::NotKept);
                }
                if download.is_over() {
                    return Err(LaneRefusal::PastTheEnd);
                }
                self.unless_aborted()?;
                if number == download.next
                    && let Some(piece) = download.cut()
                {
                    // The next request may have its piece, and the reader has space.
                    drop(download);
                    self.download_changed.notify_waiters();
                    return Ok(Some(piece));
                }
            }
            if timeout_at(deadline, changed).await.is_err() {
                return Ok(None);
            }
        }
    }

    /// Reads the socket until its end, while there is space.
    pub(super) async fn read_all(self: Arc<Self>) {
        loop {
            let mut changed = pin!(self.download_changed.notified());
            changed.as_mut().enable();
            if self.unless_aborted().is_err() {
                return;
            }
            let is_full = self.download().unread.len() >= UNREAD_BYTES_MAX;
            if is_full {
                changed.await;
                continue;
            }
            // An error shows in the next read.
            let _ = self.socket.readable().await;
            let mut download = self.download();
            download.unread.reserve(READ_BYTES);
            match self.socket.try_read_buf(&mut download.unread) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Ok(0) | Err(_) => download.is_ended = true,
                Ok(_) => {}
            }
            let is_ended = download.is_ended;
            drop(download);
            self.download_changed.notify_waiters();
            if is_ended {
                return;
            }
        }
    }

    fn download(&self) -> MutexGuard<'_, Download> {
        self.download.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
