//! Tests of the copy engine through its public API on real file systems. Readers that share no code
//! with the engine compare the copies with the originals.

mod bed;
mod clones;
mod fuzzed;
mod log;
mod offload;
mod parts;
mod sizes;
mod sparse;
mod streams;
mod transfer;
mod trees;
mod variants;

/// Counts live bytes, for tests of hostile input.
#[global_allocator]
static MEMORY: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;
