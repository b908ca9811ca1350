//! Buffers that direct I/O and io_uring can use: aligned, of fixed length, at a fixed address.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Alignment of every buffer, in bytes: no device in use asks direct I/O for more than a page.
pub const BUFFER_ALIGN: usize = 4096;

/// Memory at a fixed address that begins on a page. Moving the value moves no byte.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
}

impl AlignedBuffer {
    /// A buffer of `len` zero bytes. Memory that is never touched is never taken from the system.
    ///
    /// # Errors
    /// `ENOMEM` where the system has no such memory.
    ///
    /// # Panics
    /// If `len` is 0: an empty buffer moves nothing.
    pub fn new(len: usize) -> io::Result<AlignedBuffer> {
        assert!(len > 0, "a buffer holds at least one byte");
        let layout = layout(len).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the layout's size is `len`, which the assertion found to be above 0.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(AlignedBuffer { start, len })
    }

    /// Where the bytes lie, for a kernel that fills or drains them on its own. Whoever hands this on sees
    /// to it that nobody looks at the bytes until the kernel is done.
    pub(crate) fn as_raw(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` came from an allocation of `len` bytes that began as zeros and that this value
        // alone owns; it lives until `drop`, and `&self` keeps writers out meanwhile.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` keeps everyone else out.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.len) {
            // SAFETY: `start` was allocated by `new` with this very layout (it depends on `len` alone,
            // which never changes), and is freed here only.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

// SAFETY: the value owns its memory alone, as a `Box<[u8]>` does; nothing is bound to a thread.
unsafe impl Send for AlignedBuffer {}
// SAFETY: through `&self` the bytes can only be read.
unsafe impl Sync for AlignedBuffer {}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len, BUFFER_ALIGN).ok()
}

/// A bounded stock of equal buffers shared by threads. A buffer is made when it is first needed; who finds
/// none left waits until one is given back, so the stock is the limit on memory in flight.
#[derive(Debug)]
pub struct BufferPool {
    stock: Mutex<Stock>,
    returned: Condvar,
    count: usize,
    bytes: usize,
}

#[derive(Debug, Default)]
struct Stock {
    idle: Vec<AlignedBuffer>,
    made: usize,
}

impl BufferPool {
    /// A stock of at most `count` buffers of `bytes` bytes each.
    ///
    /// # Panics
    /// If either is 0: nobody could ever take a byte.
    pub fn new(count: usize, bytes: usize) -> BufferPool {
        assert!(count > 0 && bytes > 0, "a pool holds at least one byte");
        BufferPool { stock: Mutex::default(), returned: Condvar::new(), count, bytes }
    }

    /// Takes a buffer, waiting for one if all are out. Its bytes are whatever was in it last.
    ///
    /// # Errors
    /// `ENOMEM` where a buffer had to be made and the system has no memory.
    pub fn take(&self) -> io::Result<AlignedBuffer> {
        let mut stock = self.lock();
        loop {
            if let Some(buffer) = self.take_from(&mut stock)? {
                return Ok(buffer);
            }
            stock = self.returned.wait(stock).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes a buffer if one can be had at once.
    ///
    /// # Errors
    /// As [`BufferPool::take`].
    pub fn try_take(&self) -> io::Result<Option<AlignedBuffer>> {
        self.take_from(&mut self.lock())
    }

    /// Gives a buffer back.
    ///
    /// # Panics
    /// If the buffer is of another length, and so not from this pool.
    pub fn give(&self, buffer: AlignedBuffer) {
        assert_eq!(buffer.len(), self.bytes, "a buffer goes back to the pool it came from");
        let mut stock = self.lock();
        assert!(stock.idle.len() < stock.made, "no buffer comes back twice");
        stock.idle.push(buffer);
        drop(stock);
        self.returned.notify_one();
    }

    /// Bytes in each buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.bytes
    }

    fn take_from(&self, stock: &mut Stock) -> io::Result<Option<AlignedBuffer>> {
        if let Some(buffer) = stock.idle.pop() {
            return Ok(Some(buffer));
        }
        if stock.made == self.count {
            return Ok(None);
        }
        let buffer = AlignedBuffer::new(self.bytes)?;
        stock.made += 1;
        Ok(Some(buffer))
    }

    /// A thread that panicked while it held the lock left the stock whole: each step on it is one push or pop.
    fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
