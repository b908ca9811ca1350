//! Behaviour of the command under faults: storage that fails, corrupts data and fills up, sources
//! that change while they are read, signals, and memory limits. Each run of the binary has a
//! timeout.

mod changing;
mod enumerated;
mod failing;
pub(crate) mod fixture;
mod full;
mod generated;
mod gnu_names;
mod interrupted;
mod limited;
mod memory;
mod odd;
mod output;
mod permission;
mod progress;
mod reread;
mod threads;
mod torn;
mod vanishing;
mod verify;
