//! The binary, run as its users run it.

mod bench;
mod cp;
mod extremes;
mod faults;
mod sum;
mod traps;
