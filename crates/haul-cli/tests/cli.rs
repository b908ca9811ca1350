//! The binary, run as its users run it.

mod bench;
mod cp;
mod faults;
mod sum;
