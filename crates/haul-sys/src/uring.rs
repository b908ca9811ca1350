//! A copy that keeps several blocks in flight: while one block is written, the next ones are read.
//!
//! ```text
//!          slot = block number modulo depth
//!   idle -> reading -> full -- its turn: on_block sees it --> writing -> idle
//! ```
//! Blocks are read in any order and passed to the callback in file order. A serial digest can
//! therefore process each block while it is still in the CPU cache. Meanwhile the kernel writes on
//! its own threads.

use crate::buffer::AlignedBuffer;
use haul_model::limits::BLOCK_BYTES_MAX;
use io_uring::{IoUring, Probe, opcode, types};
use rustix::fd::{AsRawFd, BorrowedFd};
use rustix::io::{Errno, retry_on_intr};
use std::fmt;
use std::io;
use thiserror::Error;

/// Maximum number of blocks in flight; more than a few dozen never improved the speed.
pub const DEPTH_MAX: usize = 1024;

/// Maximum number of attempts to submit while the kernel returns `EAGAIN` or `EBUSY`. Between two
/// attempts the thread yields.
const SUBMIT_TRIES_MAX: usize = 10_000;

const _: () = assert!(BLOCK_BYTES_MAX <= u32::MAX as usize, "a request's length has 32 bits");

/// An io_uring with its buffers, created once per thread and used for many copies.
pub struct CopyRing {
    ring: IoUring,
    /// One buffer per slot. Empty after the ring has failed: the kernel may still use the buffers
    /// then, so they are leaked.
    buffers: Vec<AlignedBuffer>,
    block: usize,
}

/// Error that ended a copy early, with the offset and the side.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The source could not be read. Every byte before `at` was passed to the callback and written.
    #[error("cannot read at byte {at}: {source}")]
    Read {
        /// Offset in the source.
        at: u64,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The destination could not be written.
    #[error("cannot write at byte {at}: {source}")]
    Write {
        /// Offset in the destination of the first byte that was not written.
        at: u64,
        /// Error of the kernel.
        source: io::Error,
    },
    /// The ring itself failed; neither file is the cause. Do not use the ring again; copy by other
    /// means.
    #[error("io_uring: {source}")]
    Ring {
        /// Error of the kernel.
        source: io::Error,
    },
}

impl CopyRing {
    /// Returns a ring that keeps `depth` blocks of `block` bytes in flight. It allocates `depth *
    /// block` bytes of memory.
    ///
    /// # Errors
    ///
    /// Returns `ENOSYS` or `EPERM` if io_uring is missing or forbidden (see [`is_unavailable`]),
    /// and `ENOMEM` if memory or the limit on locked memory is exhausted.
    ///
    /// # Panics
    ///
    /// Panics if `depth` is not 1 to [`DEPTH_MAX`], or `block` is not 1 to `BLOCK_BYTES_MAX`.
    pub fn new(depth: usize, block: usize) -> io::Result<CopyRing> {
        assert!((1..=DEPTH_MAX).contains(&depth), "depth {depth} is not 1 to {DEPTH_MAX}");
        assert!((1..=BLOCK_BYTES_MAX).contains(&block), "a block of {block} bytes is out of range");
        let ring = make_ring(depth as u32)?;
        let mut probe = Probe::new();
        // Linux 5.1 to 5.5 have rings without plain reads and writes, and before 5.6 there is no
        // probe either.
        let probed = ring.submitter().register_probe(&mut probe);
        let able = probe.is_supported(opcode::Read::CODE) && probe.is_supported(opcode::Write::CODE);
        if probed.is_err() || !able {
            return Err(Errno::NOSYS.into());
        }
        let buffers = (0..depth).map(|_| AlignedBuffer::new(block)).collect::<io::Result<_>>()?;
        Ok(CopyRing { ring, buffers, block })
    }

    /// Copies `len` bytes from `src` to `dst`, which must both be seekable (no pipes). Returns the
    /// number of bytes copied: fewer than `len` only if the source ended.
    ///
    /// `on_block` receives each block with its offset in the source, once, in order, after the read
    /// and before the write. Blocks start at multiples of the block size from `src_offset`; only
    /// the last may be shorter.
    ///
    /// At the end of a call no block is in flight. A call for many objects keeps the pipeline full,
    /// and one call per object does not.
    ///
    /// Direct I/O must be off for both files, because a short transfer is continued at the byte
    /// where it stopped.
    ///
    /// # Errors
    ///
    /// Returns the error with the lowest offset. When this returns, nothing is in flight.
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
        // The kernel interprets an offset of -1 as the current position, and rejects other negative
        // offsets.
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

    /// Returns the block size in bytes.
    pub fn block_bytes(&self) -> usize {
        self.block
    }

    /// Returns the maximum number of blocks in flight.
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

/// Returns true if an error of [`CopyRing::new`] means that this kernel, sandbox or user has no
/// io_uring, so that another attempt is useless.
pub fn is_unavailable(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::OPNOTSUPP)
    )
}

fn make_ring(entries: u32) -> io::Result<IoUring> {
    // Completions are processed only when this thread asks for them, without interrupts (Linux
    // 5.19).
    match IoUring::builder().setup_coop_taskrun().build(entries) {
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => IoUring::new(entries),
        other => other,
    }
}

/// One copy through a ring. Dropping it waits for everything in flight.
struct Pass<'a> {
    ring: &'a mut CopyRing,
    slots: Vec<Slot>,
    source: Side<'a>,
    sink: Side<'a>,
    len: u64,
    /// Next block to read, and next block to pass to the callback.
    next_read: u64,
    turn: u64,
    /// Submitted requests whose completion has not been processed.
    in_flight: usize,
    /// True after the end of the source or an error: no more reads start.
    reads_over: bool,
    /// True if no more blocks are passed to the callback or written.
    stopped: bool,
    /// The error with the lowest offset from the start of the range.
    failure: Option<Failure>,
    /// End of the source, relative to the start of the range.
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
    /// Offset of the block, relative to the start of the range, and its expected length.
    place: u64,
    want: usize,
    /// Bytes of the block that are in the buffer, and how many of these were written.
    filled: usize,
    written: usize,
    /// Error that ended the read of this block.
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

    /// Starts the read of the next block in every slot that is idle, in order.
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

    /// Processes completions. A short transfer is continued.
    fn reap(&mut self) -> Result<(), CopyError> {
        loop {
            // Bind the completion first: the borrow of the queue must end before the slot is
            // submitted again.
            let next = self.ring.ring.completion().next();
            let Some(done) = next else { return Ok(()) };
            self.in_flight -= 1;
            let index = done.user_data() as usize;
            let outcome = match done.result() {
                n if n >= 0 => Ok(n as usize),
                negative => Err(Errno::from_raw_os_error(-negative)),
            };
            let outcome = match outcome {
                // EAGAIN for a file that is always ready: use a plain call, which may block.
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

    /// Passes the blocks whose turn has come to the callback, and submits each write immediately.
    /// The kernel writes a block while the callback processes the next one.
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

    /// Submits the rest of the work of a slot: the read or the write of its block.
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
        // SAFETY: everything that the entry points to stays valid until the kernel has finished
        // with it.
        // - Memory: the entry covers bytes of `buffers[index]` within its length, since filled <=
        //   want <= block and written <= filled. In between the buffer is neither freed nor
        //   accessed. Its slot is `Reading` or `Writing` until the completion is reaped, and bytes
        //   are accessed only in other states. `drop` of this pass waits for all completions or, if
        //   the ring has failed, leaks the buffers.
        // - Descriptors: both are borrowed for the lifetime of this pass. Every entry is submitted
        //   within it or never (a failed ring submits nothing more), and after submission the
        //   kernel holds the files itself.
        while unsafe { self.ring.ring.submission().push(&entry) }.is_err() {
            // The queue has space for one entry per slot. If it were ever full, submitting would
            // empty it.
            self.enter(0)?;
        }
        self.in_flight += 1;
        Ok(())
    }

    /// Submits the queue to the kernel and waits until `want` requests are complete.
    fn enter(&mut self, want: usize) -> Result<(), CopyError> {
        for _ in 0..SUBMIT_TRIES_MAX {
            let Err(source) = self.ring.ring.submit_and_wait(want) else { return Ok(()) };
            match Errno::from_io_error(&source) {
                Some(Errno::INTR) => {}
                // The kernel lacks memory for requests, or completions must be processed first.
                Some(Errno::AGAIN | Errno::BUSY) if want == 0 || self.ring.ring.completion().is_empty() => {
                    std::thread::yield_now();
                }
                Some(Errno::AGAIN | Errno::BUSY) => return Ok(()),
                _ => return Err(CopyError::Ring { source }),
            }
        }
        Err(CopyError::Ring { source: Errno::BUSY.into() })
    }

    /// Performs one transfer of a slot by a plain call, for files that reject it in a ring.
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
    /// Waits for everything in flight. Something is in flight only after a failure of the ring or a
    /// panic in `on_block`: a completed pass has nothing left.
    fn drop(&mut self) {
        while self.in_flight > 0 {
            if self.enter(1).is_err() {
                // From now on the kernel may write to these buffers at any time.
                std::mem::forget(std::mem::take(&mut self.ring.buffers));
                return;
            }
            self.in_flight -= self.ring.ring.completion().count();
        }
    }
}
