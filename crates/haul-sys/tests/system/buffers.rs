//! Tests of buffers.

use haul_sys::buffer::{AlignedBuffer, BUFFER_ALIGN};

#[test]
fn buffers_are_aligned_zeroed_and_keep_their_address() {
    for len in [1, 511, 4095, 4096, 4097, 1 << 20, (4 << 20) + 64] {
        let mut buffer = AlignedBuffer::new(len).expect("memory");
        assert_eq!(buffer.len(), len);
        assert!(buffer.iter().all(|&byte| byte == 0));
        assert_eq!(buffer.as_ptr().addr() % BUFFER_ALIGN, 0);
        buffer[len - 1] = 9;
        let place = buffer.as_ptr().addr();
        let moved = Box::new(buffer);
        assert_eq!((moved.as_ptr().addr(), moved[len - 1]), (place, 9));
    }
}

#[test]
fn buffer_without_bytes_is_empty() {
    assert!(AlignedBuffer::new(0).expect("memory").is_empty());
}

#[test]
fn oversized_allocation_returns_out_of_memory() {
    for len in [usize::MAX, usize::MAX - 10_000, isize::MAX as usize, 1 << 62] {
        let error = AlignedBuffer::new(len).expect_err("too much");
        assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
    }
}
