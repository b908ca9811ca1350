//! Tests of the web server through its socket, beside a real listener and real sessions.

mod copies;
mod files;
mod http2;
mod lanes;
mod memory;
mod peers;
mod rules;
mod verification;
mod webtransport;
mod world;

/// Counts live bytes, for the test of hostile requests.
#[global_allocator]
static MEMORY: peak_alloc::PeakAlloc = peak_alloc::PeakAlloc;
