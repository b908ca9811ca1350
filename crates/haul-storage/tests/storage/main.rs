//! Tests of storage on real file systems with injected faults and power failures.

mod durable_file;
