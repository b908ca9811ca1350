//! Buffers for direct I/O: aligned, of fixed length, at a fixed address.

use parking_lot::{Condvar, Mutex, MutexGuard};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer, in bytes. No device in use requires more than a page for direct I/O.
pub const BUFFER_ALIGN: usize = 4096;

/// Memory at a fixed, page-aligned address. Moving the value does not move the bytes.
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
}

impl AlignedBuffer {
    /// Returns a buffer of `len` zero bytes. The system allocates no memory for pages that are
    /// never touched.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the system lacks the memory.
    ///
    /// # Panics
    ///
    /// Panics if `len` is 0.
    pub fn new(len: usize) -> io::Result<AlignedBuffer> {
        assert!(len > 0, "a buffer holds at least one byte");
        let layout = layout(len).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the size of the layout is `len`, which the assertion checked to be above 0.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(AlignedBuffer { start, len })
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` comes from a zeroed allocation of `len` bytes that only this value owns.
        // The allocation lives until `drop`, and `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` excludes all other access.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.len) {
            // SAFETY: `new` allocated `start` with the same layout (it depends only on `len`, which
            // never changes), and only this function frees it.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

// SAFETY: the value is the only owner of its memory, like a `Box<[u8]>`; nothing is tied to a
// thread.
unsafe impl Send for AlignedBuffer {}
// SAFETY: `&self` permits only reads of the bytes.
unsafe impl Sync for AlignedBuffer {}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len, BUFFER_ALIGN).ok()
}

/// Bounded pool of equal buffers, shared by threads.
///
/// A buffer is allocated when it is first needed. A thread that finds no free buffer blocks until
/// another thread returns one, so the pool limits the memory in flight.
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
    /// Returns a pool of at most `count` buffers of `bytes` bytes each.
    ///
    /// # Panics
    ///
    /// Panics if `count` or `bytes` is 0.
    pub fn new(count: usize, bytes: usize) -> BufferPool {
        assert!(count > 0 && bytes > 0, "a pool holds at least one byte");
        BufferPool { stock: Mutex::default(), returned: Condvar::new(), count, bytes }
    }

    /// Takes a buffer, and blocks if all buffers are in use. The buffer still holds the bytes of
    /// its last use.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if a new buffer is needed and the system lacks the memory.
    pub fn take(&self) -> io::Result<AlignedBuffer> {
        let mut stock = self.lock();
        loop {
            if let Some(buffer) = self.take_from(&mut stock)? {
                return Ok(buffer);
            }
            self.returned.wait(&mut stock);
        }
    }

    /// Takes a buffer if one is available without waiting.
    ///
    /// # Errors
    ///
    /// Same as [`BufferPool::take`].
    pub fn try_take(&self) -> io::Result<Option<AlignedBuffer>> {
        self.take_from(&mut self.lock())
    }

    /// Returns a buffer to the pool.
    ///
    /// # Panics
    ///
    /// Panics if the buffer has another length than the buffers of this pool, or if more buffers
    /// are returned than were taken.
    pub fn give(&self, buffer: AlignedBuffer) {
        assert_eq!(buffer.len(), self.bytes, "a buffer goes back to the pool it came from");
        let mut stock = self.lock();
        assert!(stock.idle.len() < stock.made, "no buffer comes back twice");
        stock.idle.push(buffer);
        drop(stock);
        self.returned.notify_one();
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

    /// Locks the stock, also after a panic: each operation on the stock is one push or pop, so it
    /// stays consistent.
    fn lock(&self) -> MutexGuard<'_, Stock> {
        self.stock.lock()
    }
}
