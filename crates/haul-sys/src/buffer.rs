//! Buffers for direct I/O: aligned, of fixed length, at a fixed address.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// Alignment of every buffer, in bytes. No device in use requires more than a page for direct I/O.
pub const BUFFER_ALIGN: usize = 4096;

/// Memory at a fixed, page-aligned address. Moving the value does not move the bytes.
pub struct AlignedBuffer {
    /// Start of the allocation, which has [`BUFFER_ALIGN`] bytes more than the buffer.
    memory: NonNull<u8>,
    /// Offset of the first byte in the allocation.
    skip: usize,
    len: usize,
}

impl AlignedBuffer {
    /// Returns a buffer of `len` zero bytes. The system allocates no memory for pages that are
    /// never touched.
    ///
    /// # Errors
    ///
    /// Returns `ENOMEM` if the system lacks the memory.
    pub fn new(len: usize) -> io::Result<AlignedBuffer> {
        let layout = layout(len).ok_or(io::ErrorKind::OutOfMemory)?;
        // SAFETY: the size of the layout is at least `BUFFER_ALIGN`, which is above 0.
        let memory = unsafe { alloc_zeroed(layout) };
        let memory = NonNull::new(memory).ok_or(io::ErrorKind::OutOfMemory)?;
        let skip = memory.addr().get().next_multiple_of(BUFFER_ALIGN) - memory.addr().get();
        Ok(AlignedBuffer { memory, skip, len })
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `memory` comes from a zeroed allocation of `len + BUFFER_ALIGN` bytes that only
        // this value owns, and `skip` is less than `BUFFER_ALIGN`. The allocation lives until
        // `drop`, and `&self` excludes writers.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(self.skip), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` excludes all other access.
        unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr().add(self.skip), self.len) }
    }
}

impl Drop for AlignedBuffer {
    fn drop(&mut self) {
        if let Some(layout) = layout(self.len) {
            // SAFETY: `new` allocated `memory` with the same layout (it depends only on `len`,
            // which never changes), and only this function frees it.
            unsafe { dealloc(self.memory.as_ptr(), layout) }
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

/// Returns the layout of the allocation for `len` bytes. It has no alignment, because only memory
/// without alignment comes zeroed from the system. Aligned memory would be cleared byte by byte,
/// which touches all of it.
fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len.checked_add(BUFFER_ALIGN)?, 1).ok()
}
