//! Read buffers of a worker.

use haul_sys::buffer::BUFFER_ALIGN;
use std::io;
use std::ops::{Deref, DerefMut};

/// Page-aligned bytes, as reads past the page cache require. Untouched pages are never allocated,
/// so that a worker with only small files uses only the memory that these fill.
#[derive(Debug)]
pub(super) struct PageBuffer {
    /// Never grows, so that its bytes keep their address.
    memory: Box<[u8]>,
    start: usize,
    len: usize,
}

/// Size up to which an allocation is assumed to succeed, in bytes.
const SURELY_THERE_BYTES: usize = 32 << 20;

impl PageBuffer {
    /// Creates a buffer of `len` zero bytes.
    ///
    /// # Errors
    /// Returns `OutOfMemory` if the bytes cannot be allocated.
    pub(super) fn new(len: usize) -> io::Result<PageBuffer> {
        let room = len.checked_add(BUFFER_ALIGN).ok_or(io::ErrorKind::OutOfMemory)?;
        if len > SURELY_THERE_BYTES {
            // A failed allocation of zeroed memory would abort the process; a trial reservation
            // returns an error.
            Vec::<u8>::new().try_reserve_exact(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        // Zeroed memory without alignment comes from the kernel unchanged. Aligned memory would be
        // cleared byte by byte, which touches all of it.
        let memory = vec![0; room].into_boxed_slice();
        let start = memory.as_ptr().addr().next_multiple_of(BUFFER_ALIGN) - memory.as_ptr().addr();
        Ok(PageBuffer { memory, start, len })
    }
}

impl Deref for PageBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.memory[self.start..][..self.len]
    }
}

impl DerefMut for PageBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_buffers_are_aligned_and_zeroed() {
        for len in [1, 4095, 4096, 4097, 1 << 20, (4 << 20) + 64] {
            let mut buffer = PageBuffer::new(len).unwrap();
            assert_eq!(buffer.len(), len);
            assert!(
                buffer.as_ptr().addr().is_multiple_of(BUFFER_ALIGN) && buffer.iter().all(|&byte| byte == 0)
            );
            buffer[len - 1] = 7;
            assert_eq!(buffer.last(), Some(&7));
        }
    }

    #[test]
    fn oversized_page_buffer_is_an_error() {
        assert!(PageBuffer::new(usize::MAX).is_err() && PageBuffer::new(isize::MAX as usize).is_err());
    }
}
