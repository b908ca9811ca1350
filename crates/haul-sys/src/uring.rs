//! A copy that keeps several blocks on their way: while one block is written, the next ones are read.
//!
//! ```text
//!          slot = block number modulo depth
//!   idle -> reading -> full -- its turn: on_block sees it --> writing -> idle
//! ```
//! Blocks are read in any order and shown in the order of the file, so that a serial digest can follow
//! along while a block is still in the processor's cache. The kernel writes meanwhile on threads of its own.

use crate::buffer::AlignedBuffer;
use haul_model::limits::BLOCK_BYTES_MAX;
use io_uring::{IoUring, Probe, opcode, types};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::{Errno, retry_on_intr};
use std::fmt;
use std::io;
use thiserror::Error;

/// Most blocks in flight; beyond a few dozen nothing was ever gained.
pub const DEPTH_MAX: usize = 1024;

/// How often the kernel may say "not now" to a submission, with other threads let run in between, before
/// that counts as a failure.
const SUBMIT_TRIES_MAX: usize = 10_000;

const _: () = assert!(BLOCK_BYTES_MAX <= u32::MAX as usize, "a request's length has 32 bits");

/// An io_uring with its buffers, made once per thread and used for many copies.
pub struct CopyRing {
    ring: IoUring,
    /// One per slot. Empty once the ring is lost: then the kernel may still use them, and nobody frees them.
    buffers: Vec<AlignedBuffer>,
    block: usize,
}

/// Why a copy ended early, and at which byte of which side.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The source could not be read. Every byte before `at` was shown and written.
    #[error("reading at byte {at}: {source}")]
    Read {
        /// Offset in the source.
        at: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The destination could not be written.
    #[error("writing at byte {at}: {source}")]
    Write {
        /// Offset in the destination of the first byte that was not taken.
        at: u64,
        /// What the kernel said.
        source: io::Error,
    },
    /// The ring itself failed; neither file is to blame. A ring that fails so is used no more: make the
    /// copy by other means.
    #[error("io_uring: {source}")]
    Ring {
        /// What the kernel said.
        source: io::Error,
    },
}

impl CopyRing {
    /// A ring that keeps `depth` blocks of `block` bytes in flight; takes `depth * block` bytes of memory.
    ///
    /// # Errors
    /// `ENOSYS` or `EPERM` where there is no io_uring or it is forbidden (see [`is_unavailable`]), `ENOMEM`
    /// where memory or the allowance for locked memory ends.
    ///
    /// # Panics
    /// If `depth` is not 1 to [`DEPTH_MAX`], or `block` not 1 to `BLOCK_BYTES_MAX`.
    pub fn new(depth: usize, block: usize) -> io::Result<CopyRing> {
        assert!((1..=DEPTH_MAX).contains(&depth), "depth {depth} is not 1 to {DEPTH_MAX}");
        assert!((1..=BLOCK_BYTES_MAX).contains(&block), "a block of {block} bytes is out of range");
        let ring = make_ring(depth as u32)?;
        let mut probe = Probe::new();
        // Linux 5.1 to 5.5 have rings without plain reads and writes, and before 5.6 no probe either.
        let probed = ring.submitter().register_probe(&mut probe);
        let able = probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE);
        if probed.is_err() || !able {
            return Err(Errno::NOSYS.into());
        }
        let buffers = (0..depth).map(|_| AlignedBuffer::new(block)).collect::<io::Result<_>>()?;
        Ok(CopyRing { ring, buffers, block })
    }

    /// Copies `len` bytes from `src` to `dst`, both of which have offsets (no pipes); returns the bytes
    /// copied: fewer than `len` only where the source ended. `on_block` sees each block, with its offset in
    /// the source, once, in order, after it was read and before it is written. Blocks begin at multiples of
    /// the block size from `src_offset`; only the last may be shorter. A call ends with an empty pipe: many
    /// objects in one call keep it full, one call an object does not.
    ///
    /// For files with direct I/O off: a transfer cut short is carried on at the byte where it stopped.
    ///
    /// # Errors
    /// The failure with the lowest offset; everything that was in flight has ended when this returns.
    pub fn copy(
        &mut self,
        src: BorrowedFd<'_>,
        dst: BorrowedFd<'_>,
        src_offset: u64,
        dst_offset: u64,
        len: u64,
        on_block: &mut dyn FnMut(u64, &[u8]),
    ) -> Result<u64, CopyError> {
        if self.buffers.is_empty() {
            return Err(CopyError::Ring { source: Errno::BADFD.into() });
        }
        // The kernel takes an offset of -1 for "where the file stands", and others below 0 for mistakes.
        let Some(room) = (i64::MAX as u64).checked_sub(src_offset.max(dst_offset)) else {
            return Err(CopyError::Read { at: src_offset, source: Errno::OVERFLOW.into() });
        };
        let slots = vec![Slot::default(); self.buffers.len()];
        let mut pass = Pass {
            ring: self,
            slots,
            source: Side { fd: src, base: src_offset },
            sink: Side { fd: dst, base: dst_offset },
            len: len.min(room),
            next_read: 0,
            turn: 0,
            in_flight: 0,
            reads_over: false,
            stopped: false,
            failure: None,
            end: None,
        };
        pass.run(on_block)
    }

    /// Bytes in a block.
    pub fn block_bytes(&self) -> usize {
        self.block
    }

    /// Blocks in flight at most.
    pub fn depth(&self) -> usize {
        self.buffers.len()
    }
}

impl fmt::Debug for CopyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CopyRing")
            .field("depth", &self.depth())
            .field("block", &self.block)
            .finish_non_exhaustive()
    }
}

/// Whether an error of [`CopyRing::new`] says that this kernel, sandbox or user has no io_uring, so that
/// asking again is of no use.
pub fn is_unavailable(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP)
    )
}

fn make_ring(entries: u32) -> io::Result<IoUring> {
    // Completions are looked at only when this thread asks: no interrupts in between (Linux 5.19).
    match IoUring::builder().setup_coop_taskrun().build(entries) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => IoUring::new(entries),
        other => other,
    }
}

/// One copy through a ring. Its end, by whichever way, waits for all that is in flight.
struct Pass<'a> {
    ring: &'a mut CopyRing,
    slots: Vec<Slot>,
    source: Side<'a>,
    sink: Side<'a>,
    len: u64,
    /// The block to be read next, and the one to be shown next.
    next_read: u64,
    turn: u64,
    /// Requests handed to the queue whose completion has not been seen.
    in_flight: usize,
    /// The end or a failure was met: reading further is of no use.
    reads_over: bool,
    /// No block is shown or written any more.
    stopped: bool,
    /// The failure with the lowest offset from the start of the range.
    failure: Option<Failure>,
    /// Where the source ended, counted from the start of the range.
    end: Option<u64>,
}

#[derive(Clone, Copy)]
struct Side<'a> {
    fd: BorrowedFd<'a>,
    base: u64,
}

#[derive(Clone, Default)]
struct Slot {
    state: State,
    /// The block's place, counted from the start of the range, and how long it should be.
    place: u64,
    want: usize,
    /// Bytes of the block that lie in the buffer, and of these, bytes that were written.
    filled: usize,
    written: usize,
    /// What ended the reading of this block, if not its end.
    trouble: Option<Errno>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    /// The kernel fills the buffer.
    Reading,
    /// The buffer waits for its turn.
    Full,
    /// The kernel reads the buffer.
    Writing,
}

struct Failure {
    place: u64,
    error: CopyError,
}

impl Pass<'_> {
    fn run(&mut self, on_block: &mut dyn FnMut(u64, &[u8])) -> Result<u64, CopyError> {
        loop {
            self.start_reads()?;
            if self.in_flight == 0 {
                break;
            }
            self.enter(1)?;
            self.reap()?;
            self.pass_on(on_block)?;
        }
        match self.failure.take() {
            Some(failure) => Err(failure.error),
            None => Ok(self.end.unwrap_or(self.len)),
        }
    }

    /// Gives every idle slot whose turn it is the next block to read.
    fn start_reads(&mut self) -> Result<(), CopyError> {
        let block = self.ring.block as u64;
        while !self.reads_over && self.next_read < self.len.div_ceil(block) {
            let index = self.slot_of(self.next_read);
            if self.slots[index].state != State::Idle {
                break;
            }
            let place = self.next_read * block;
            let want = block.min(self.len - place) as usize;
            self.slots[index] = Slot { state: State::Reading, place, want, ..Slot::default() };
            self.next_read += 1;
            self.submit_slot(index)?;
        }
        Ok(())
    }

    /// Takes what the kernel has completed. A transfer that was cut short is carried on.
    fn reap(&mut self) -> Result<(), CopyError> {
        loop {
            // Bound to a name first: the queue must be let go before the slot is carried on.
            let next = self.ring.ring.completion().next();
            let Some(done) = next else { return Ok(()) };
            self.in_flight -= 1;
            let index = done.user_data() as usize;
            let outcome = match done.result() {
                n if n >= 0 => Ok(n as usize),
                negative => Err(Errno::from_raw_os_error(-negative)),
            };
            let outcome = match outcome {
                // "Not now" from a file that is never not ready: ask in the plain way, which may wait.
                Err(Errno::AGAIN) => self.transfer_in_place(index),
                other => other,
            };
            let unfinished = match (self.slots[index].state, outcome) {
                (_, Err(Errno::INTR)) => true,
                (State::Reading, outcome) => self.after_read(index, outcome),
                (_, outcome) => self.after_write(index, outcome),
            };
            if unfinished {
                self.submit_slot(index)?;
            }
        }
    }

    fn after_read(&mut self, index: usize, outcome: rustix::io::Result<usize>) -> bool {
        let slot = &mut self.slots[index];
        match outcome {
            Ok(0) => {}
            Ok(n) => {
                slot.filled += n;
                if slot.filled < slot.want {
                    return true;
                }
            }
            Err(errno) => slot.trouble = Some(errno),
        }
        slot.state = State::Full;
        self.reads_over |= slot.filled < slot.want;
        false
    }

    fn after_write(&mut self, index: usize, outcome: rustix::io::Result<usize>) -> bool {
        let slot = &mut self.slots[index];
        let source = match outcome {
            Ok(0) => io::ErrorKind::WriteZero.into(),
            Ok(n) => {
                slot.written += n;
                if slot.written < slot.filled {
                    return true;
                }
                slot.state = State::Idle;
                return false;
            }
            Err(errno) => errno.into(),
        };
        slot.state = State::Idle;
        let place = slot.place + slot.written as u64;
        self.fail(place, CopyError::Write { at: self.sink.base + place, source });
        false
    }

    /// Shows the blocks whose turn has come, and hands each to the writer at once: the kernel writes it
    /// while the next one is looked at.
    fn pass_on(&mut self, on_block: &mut dyn FnMut(u64, &[u8])) -> Result<(), CopyError> {
        while self.turn < self.next_read {
            let index = self.slot_of(self.turn);
            let slot = &mut self.slots[index];
            if slot.state != State::Full {
                break;
            }
            self.turn += 1;
            let (place, filled) = (slot.place, slot.filled);
            if self.stopped || filled == 0 {
                slot.state = State::Idle;
            } else {
                slot.state = State::Writing;
                on_block(self.source.base + place, &self.ring.buffers[index][..filled]);
            }
            if !self.stopped && filled < self.slots[index].want {
                self.stop_reading_at(place + filled as u64, self.slots[index].trouble);
            }
            if self.slots[index].state == State::Writing {
                self.submit_slot(index)?;
                self.enter(0)?;
            }
        }
        Ok(())
    }

    fn stop_reading_at(&mut self, place: u64, trouble: Option<Errno>) {
        match trouble {
            Some(errno) => {
                let at = self.source.base + place;
                self.fail(place, CopyError::Read { at, source: errno.into() });
            }
            None => {
                self.end = Some(place);
                self.reads_over = true;
                self.stopped = true;
            }
        }
    }

    fn fail(&mut self, place: u64, error: CopyError) {
        self.reads_over = true;
        self.stopped = true;
        if self.failure.as_ref().is_none_or(|first| place < first.place) {
            self.failure = Some(Failure { place, error });
        }
    }

    /// Queues the rest of what a slot is about: reading its block or writing it.
    fn submit_slot(&mut self, index: usize) -> Result<(), CopyError> {
        let slot = &self.slots[index];
        let start = self.ring.buffers[index].as_raw();
        let entry = if slot.state == State::Reading {
            let fd = types::Fd(self.source.fd.as_raw_fd());
            let at = self.source.base + slot.place + slot.filled as u64;
            opcode::Read::new(fd, start.wrapping_add(slot.filled), (slot.want - slot.filled) as u32)
                .offset(at)
                .build()
        } else {
            let fd = types::Fd(self.sink.fd.as_raw_fd());
            let at = self.sink.base + slot.place + slot.written as u64;
            let rest = (slot.filled - slot.written) as u32;
            opcode::Write::new(fd, start.wrapping_add(slot.written), rest).offset(at).build()
        };
        let entry = entry.user_data(index as u64);
        // SAFETY: what the entry points to stays valid until the kernel is done with it.
        // - Memory: the entry covers bytes of `buffers[index]` within its length, since filled <= want <=
        //   block and written <= filled. The buffer is freed or looked at by nobody in between: its slot is
        //   `Reading` or `Writing` until the completion is reaped, bytes are looked at only while it is
        //   neither, and `drop` of this pass waits for all completions or, where the ring is lost, leaks
        //   the buffers.
        // - Descriptors: both are borrowed for the life of this pass, every entry is submitted within it or
        //   never (a lost ring submits nothing more), and from then on the kernel holds the files itself.
        while unsafe { self.ring.ring.submission().push(&entry) }.is_err() {
            // The queue has room for one entry a slot; were it ever full, submitting empties it.
            self.enter(0)?;
        }
        self.in_flight += 1;
        Ok(())
    }

    /// Hands the queue to the kernel and waits until `want` requests are complete.
    fn enter(&mut self, want: usize) -> Result<(), CopyError> {
        for _ in 0..SUBMIT_TRIES_MAX {
            let Err(source) = self.ring.ring.submit_and_wait(want) else { return Ok(()) };
            match Errno::from_io_error(&source) {
                Some(Errno::INTR) => {}
                // Short of memory for requests, or completions to be taken first.
                Some(Errno::AGAIN | Errno::BUSY) if want == 0 || self.ring.ring.completion().is_empty() => {
                    std::thread::yield_now();
                }
                Some(Errno::AGAIN | Errno::BUSY) => return Ok(()),
                _ => return Err(CopyError::Ring { source }),
            }
        }
        Err(CopyError::Ring { source: Errno::BUSY.into() })
    }

    /// One transfer of a slot by a plain call, for files that refuse it in a ring.
    fn transfer_in_place(&mut self, index: usize) -> rustix::io::Result<usize> {
        let slot = &self.slots[index];
        let buffer = &mut self.ring.buffers[index];
        if slot.state == State::Reading {
            let at = self.source.base + slot.place + slot.filled as u64;
            retry_on_intr(|| rustix::io::pread(self.source.fd, &mut buffer[slot.filled..slot.want], at))
        } else {
            let at = self.sink.base + slot.place + slot.written as u64;
            retry_on_intr(|| rustix::io::pwrite(self.sink.fd, &buffer[slot.written..slot.filled], at))
        }
    }

    fn slot_of(&self, block: u64) -> usize {
        (block % self.slots.len() as u64) as usize
    }
}

impl Drop for Pass<'_> {
    /// Waits for what is in flight. That can be something only after a failure of the ring or a panic in
    /// `on_block`: a pass that ran to its end has nothing left to wait for.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.enter(1).is_err() {
                // The kernel may write to these buffers at any time from now on.
                std::mem::forget(std::mem::take(&mut self.ring.buffers));
                return;
            }
            self.in_flight -= self.ring.ring.completion().count();
        }
    }
}
