//! Wire within this process: a bounded queue of bytes for each direction.

use super::{WaitTimeout, Wire};
use crate::lane::error::{LaneError, Operation};
use parking_lot::{Condvar, Mutex, MutexGuard};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Maximum number of unread bytes of one direction.
const QUEUE_BYTES_MAX: usize = 256 << 10;

/// One end of a connection within this process.
#[derive(Debug)]
pub(crate) struct MemoryWire {
    input: Arc<Queue>,
    output: Arc<Queue>,
    aborted: AtomicBool,
}

/// One direction.
#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    bytes: VecDeque<u8>,
    /// True if no more bytes will be written.
    is_finished: bool,
    /// True if no more bytes will be read.
    is_abandoned: bool,
}

impl MemoryWire {
    /// Returns two connected ends.
    pub(crate) fn pair() -> (Self, Self) {
        let [there, back] = [(); 2].map(|()| Arc::<Queue>::default());
        let end = |input, output| Self { input, output, aborted: AtomicBool::new(false) };
        (end(back.clone(), there.clone()), end(there, back))
    }

    /// Waits until `is_ready` holds for `queue`, and returns its state.
    fn wait<'q>(
        &self,
        queue: &'q Queue,
        doing: Operation,
        timeout: WaitTimeout,
        is_ready: fn(&QueueState) -> bool,
    ) -> Result<MutexGuard<'q, QueueState>, LaneError> {
        let begin = Instant::now();
        let end = timeout.remaining().map(|remaining| begin + remaining);
        let mut state = queue.lock();
        loop {
            self.unless_aborted()?;
            if is_ready(&state) {
                return Ok(state);
            }
            match end.map(|end| end.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => {
                    return Err(doing.stalled(begin));
                }
                Some(left) => drop(queue.changed.wait_for(&mut state, left)),
                None => queue.changed.wait(&mut state),
            }
        }
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock()
    }

    /// Changes the state and wakes the threads that wait for it.
    fn change(&self, change: impl FnOnce(&mut QueueState)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }
}

impl QueueState {
    fn is_readable(&self) -> bool {
        !self.bytes.is_empty() || self.is_finished
    }

    fn is_writable(&self) -> bool {
        self.bytes.len() < QUEUE_BYTES_MAX || self.is_abandoned || self.is_finished
    }
}

impl Wire for MemoryWire {
    fn read(&self, buffer: &mut [u8], timeout: WaitTimeout) -> Result<usize, LaneError> {
        let mut state = self.wait(&self.input, Operation::Reading, timeout, QueueState::is_readable)?;
        let read = state.bytes.read(buffer).map_err(|error| Operation::Reading.failed(error))?;
        drop(state);
        self.input.changed.notify_all();
        Ok(read)
    }

    fn try_write(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.output.lock();
        if state.is_abandoned || state.is_finished {
            return Err(Errno::PIPE.into());
        }
        let mut written = 0;
        for slice in slices {
            let taken = slice.len().min(QUEUE_BYTES_MAX - state.bytes.len());
            state.bytes.extend(&slice[..taken]);
            written += taken;
        }
        drop(state);
        self.output.changed.notify_all();
        let is_full = written == 0 && slices.iter().any(|slice| !slice.is_empty());
        if is_full { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(written) }
    }

    fn until_ready(&self, doing: Operation, timeout: WaitTimeout) -> Result<(), LaneError> {
        match doing {
            Operation::Reading => self.wait(&self.input, doing, timeout, QueueState::is_readable).map(drop),
            Operation::Writing => self.wait(&self.output, doing, timeout, QueueState::is_writable).map(drop),
        }
    }

    fn finish(&self) -> Result<(), LaneError> {
        self.output.change(|state| state.is_finished = true);
        Ok(())
    }

    fn abort(&self) {
        self.aborted.store(true, Ordering::SeqCst);
        self.output.change(|state| state.is_finished = true);
        self.input.change(|state| state.is_abandoned = true);
    }

    fn is_aborted(&self) -> bool {
        self.aborted.load(Ordering::SeqCst)
    }
}
