//! Behaviour of the command under faults: storage that fails, corrupts data and fills up, sources
//! that change while they are read, signals, and memory limits. Each run of the binary has a
//! timeout.

mod as_others;
pub(crate) mod bed;
mod changing;
mod drawn;
mod failing;
mod full;
mod interrupted;
mod limited;
mod memory;
mod permission;
mod progress;
mod reread;
mod threads;
mod told;
mod torn;
mod vanishing;
mod verify;
