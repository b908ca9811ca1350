//! The binary, run as its users run it.

mod faults;
mod sum;
