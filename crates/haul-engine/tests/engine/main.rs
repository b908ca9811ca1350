//! Tests of the engine through its public API on real file systems.

mod copied;
mod fuzzed;
mod log;
mod transfer;

/// Counts live bytes, for tests of hostile input.
#[global_allocator]
static MEMORY: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;
