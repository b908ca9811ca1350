//! A worker's memory for bytes that were read.

use haul_sys::buffer::BUFFER_ALIGN;
use std::io;
use std::ops::{Deref, DerefMut};

/// Bytes that begin on a page, as reads past the page cache ask. Pages that are never touched are never taken from
/// the system, so that a worker which meets only small files pays for no more than these fill.
#[derive(Debug)]
pub(super) struct PageBuffer {
    /// Never grows, so that its bytes stay where they are.
    memory: Box<[u8]>,
    start: usize,
    len: usize,
}

/// Up to this many bytes no question is asked whether the system has them.
const SURELY_THERE_BYTES: usize = 32 << 20;

impl PageBuffer {
    /// A buffer of `len` zero bytes.
    ///
    /// # Errors
    /// `OutOfMemory` where there can't be so many.
    pub(super) fn new(len: usize) -> io::Result<PageBuffer> {
        let room = len.checked_add(BUFFER_ALIGN).ok_or(io::ErrorKind::OutOfMemory)?;
        if len > SURELY_THERE_BYTES {
            // Zeroed memory that isn't there would end the process; asking for room first tells.
            Vec::<u8>::new().try_reserve_exact(room).map_err(|_| io::ErrorKind::OutOfMemory)?;
        }
        // Zeroed memory of no particular alignment comes from the kernel as it is; aligned memory would be cleared
        // byte by byte, which touches all of it.
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
    fn bytes_begin_on_a_page_and_are_zero() {
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
    fn more_bytes_than_addresses_are_an_error() {
        assert!(PageBuffer::new(usize::MAX).is_err() && PageBuffer::new(isize::MAX as usize).is_err());
    }
}
