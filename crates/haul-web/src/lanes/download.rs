//! Bytes from the session code to the browser.
//!
//! A task reads the socket ahead of the requests. The next request gets the bytes that were read
//! until then, and those that follow without a pause, as one piece. A small piece is kept until the
//! browser requests a piece that it could not request without this one. A large piece is not kept:
//! if its request fails, the lane is lost, and the job resumes over another one.

use super::{Lane, LaneRefusal, Use};
use crate::limits::{PIECE_BYTES_MAX, PIECE_KEPT_BYTES_MAX, PIECES_AHEAD_MAX, UNREAD_BYTES_MAX};
use bytes::{Bytes, BytesMut};
use parking_lot::MutexGuard;
use std::collections::VecDeque;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

/// Bytes for which the reading task makes space before a read.
const READ_BYTES: usize = 256 << 10;

/// Maximum number of bytes in a block of a piece.
const BLOCK_BYTES: usize = 256 << 10;

/// Blocks of a piece that wait for the client.
const BLOCKS_AHEAD: usize = 2;

/// Pause of the session code that ends a piece. A shorter one costs the browser more requests, a
/// longer one delays what a proxy gathers.
const PAUSE: Duration = Duration::from_millis(5);

/// State of the direction.
#[derive(Default)]
pub(super) struct Download {
    /// Bytes that no piece contains yet.
    unread: BytesMut,
    /// True if the session code writes no more.
    is_ended: bool,
    /// Number of the next piece.
    next: u64,
    /// Latest pieces, in order. The last one has the number `next - 1`.
    pub(super) given: VecDeque<Given>,
    /// True if the last piece takes more bytes.
    is_open: bool,
}

/// A piece that a request got.
pub(super) struct Given {
    /// The bytes; none if there are more than [`PIECE_KEPT_BYTES_MAX`].
    pub(super) blocks: Vec<Bytes>,
    pub(super) len: usize,
    is_last: bool,
}

/// Bytes that a request gets.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    number: u64,
    /// The first bytes.
    pub(crate) blocks: Vec<Bytes>,
    /// True if no more pieces follow.
    pub(crate) is_last: bool,
    /// True if more bytes can follow, by [`Use::blocks`].
    pub(crate) is_open: bool,
}

impl Download {
    /// Returns a piece that was given before, as far as it was. A request for `number` shows that
    /// pieces which could not be in flight together with it have arrived: they are dropped.
    fn again(&mut self, number: u64) -> Option<Result<Piece, LaneRefusal>> {
        let mut first = self.next - self.given.len() as u64;
        while first + PIECES_AHEAD_MAX < number && self.given.pop_front().is_some() {
            first += 1;
        }
        let at = usize::try_from(number.checked_sub(first)?).ok()?;
        let given = self.given.get(at)?;
        if number + 1 == self.next {
            // The connection of the earlier request may be lost unnoticed.
            self.is_open = false;
        }
        if given.len > PIECE_KEPT_BYTES_MAX {
            return Some(Err(LaneRefusal::NotKept));
        }
        Some(Ok(Piece { number, blocks: given.blocks.clone(), is_last: given.is_last, is_open: false }))
    }

    /// Starts the next piece, if there are bytes for it or the stream has ended.
    fn start(&mut self) -> Option<Piece> {
        if self.is_open || (self.unread.is_empty() && !self.is_ended) {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.given.push_back(Given { blocks: Vec::new(), len: 0, is_last: false });
        let blocks = self.cut().into_iter().collect();
        let is_last = self.is_ended && self.unread.is_empty();
        self.is_open = !is_last;
        if let Some(given) = self.given.back_mut() {
            given.is_last = is_last;
        }
        Some(Piece { number, blocks, is_last, is_open: self.is_open })
    }

    /// Takes the next bytes for the last piece, if it has space and there are some.
    fn cut(&mut self) -> Option<Bytes> {
        let given = self.given.back_mut()?;
        let len = self.unread.len().min(BLOCK_BYTES).min(PIECE_BYTES_MAX - given.len);
        if len == 0 {
            return None;
        }
        let block = self.unread.split_to(len).freeze();
        given.len += len;
        if given.len <= PIECE_KEPT_BYTES_MAX {
            given.blocks.push(block.clone());
        } else {
            given.blocks.clear();
        }
        Some(block)
    }

    fn is_over(&self) -> bool {
        self.given.back().is_some_and(|piece| piece.is_last)
    }
}

impl Lane {
    /// Returns the start of piece `number`, or `None` if no byte of it arrives in time.
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
                if let Some(piece) = download.again(number) {
                    drop(download);
                    self.download_changed.notify_waiters();
                    return piece.map(Some);
                }
                if number < download.next {
                    return Err(LaneRefusal::NotKept);
                }
                if download.is_over() {
                    return Err(LaneRefusal::PastTheEnd);
                }
                self.unless_aborted()?;
                if number == download.next
                    && let Some(piece) = download.start()
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

    /// Returns the next bytes of an open piece, or `None` at its end.
    pub(super) async fn more(&self, number: u64) -> Option<Bytes> {
        let deadline = Instant::now() + PAUSE;
        loop {
            let mut changed = pin!(self.download_changed.notified());
            changed.as_mut().enable();
            {
                let mut download = self.download();
                if !download.is_open || download.next != number + 1 || self.unless_aborted().is_err() {
                    return None;
                }
                let block = download.cut();
                let is_full = download.given.back().is_some_and(|given| given.len == PIECE_BYTES_MAX);
                if block.is_some() || is_full || download.is_ended {
                    drop(download);
                    self.download_changed.notify_waiters();
                    return block;
                }
            }
            if timeout_at(deadline, changed).await.is_err() {
                return None;
            }
        }
    }

    /// Ends a piece: the bytes that follow are another one.
    pub(super) fn close(&self, number: u64) {
        let mut download = self.download();
        if download.next == number + 1 {
            download.is_open = false;
        }
        drop(download);
        self.download_changed.notify_waiters();
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

    pub(super) fn download(&self) -> MutexGuard<'_, Download> {
        self.download.lock()
    }
}

impl Use {
    /// Returns the blocks of an open piece for its request, which a task takes as they come.
    pub(crate) fn blocks(self, Piece { number, blocks, .. }: Piece) -> mpsc::Receiver<Bytes> {
        let (sender, receiver) = mpsc::channel(BLOCKS_AHEAD);
        tokio::spawn(async move {
            // A client that takes nothing, or has left, ends the piece.
            let stall = self.limits.lane_idle;
            let send = async |block| matches!(timeout(stall, sender.send(block)).await, Ok(Ok(())));
            let mut is_taken = true;
            for block in blocks {
                is_taken = is_taken && send(block).await;
            }
            while is_taken && let Some(block) = self.more(number).await {
                is_taken = send(block).await;
            }
            self.close(number);
        });
        receiver
    }
}
