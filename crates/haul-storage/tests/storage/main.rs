//! Tests of storage: the conformance suite on real file systems and in memory, injected faults and
//! power failures.

mod conformance;
mod defects;
mod durable_file;
mod file_systems;
mod local;
mod memory;
mod twins;
