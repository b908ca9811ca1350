//! Tests of buffers and their pool.

use haul_sys::buffer::{AlignedBuffer, BUFFER_ALIGN, BufferPool};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

#[test]
fn buffers_are_aligned_zeroed_and_keep_their_address() {
    for len in [1, 511, 4096, 4097, 1 << 20] {
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
fn oversized_allocation_returns_out_of_memory() {
    let error = AlignedBuffer::new(usize::MAX - 10_000).expect_err("too much");
    assert_eq!(error.kind(), std::io::ErrorKind::OutOfMemory);
}

#[test]
fn pool_never_lends_more_buffers_than_its_limit() {
    const BOUND: usize = 3;
    let pool = Arc::new(BufferPool::new(BOUND, 64));
    let out = Arc::new(AtomicUsize::new(0));
    let workers: Vec<_> = (0..8_u8)
        .map(|worker| {
            let (pool, out) = (Arc::clone(&pool), Arc::clone(&out));
            thread::spawn(move || {
                for _ in 0..200 {
                    let mut buffer = pool.take().expect("memory");
                    assert!(out.fetch_add(1, Ordering::SeqCst) < BOUND);
                    buffer.fill(worker);
                    thread::yield_now();
                    assert!(buffer.iter().all(|&byte| byte == worker), "no other worker holds this buffer");
                    out.fetch_sub(1, Ordering::SeqCst);
                    pool.give(buffer);
                }
            })
        })
        .collect();
    for worker in workers {
        worker.join().expect("a worker ends well");
    }
    let all: Vec<_> = (0..BOUND).map(|_| pool.try_take().expect("memory").expect("one is left")).collect();
    assert!(pool.try_take().expect("no failure").is_none());
    all.into_iter().for_each(|buffer| pool.give(buffer));
    assert!(pool.try_take().expect("no failure").is_some());
}

#[test]
#[should_panic(expected = "goes back to the pool it came from")]
fn returning_a_foreign_buffer_panics() {
    BufferPool::new(1, 64).give(AlignedBuffer::new(65).expect("memory"));
}

#[test]
#[should_panic(expected = "no buffer comes back twice")]
fn returning_a_buffer_that_was_not_taken_panics() {
    BufferPool::new(1, 64).give(AlignedBuffer::new(64).expect("memory"));
}
