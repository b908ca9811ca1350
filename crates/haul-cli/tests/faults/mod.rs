//! The command where things go wrong: storage that fails, lies and fills up, sources that move while they are
//! read, signals, and the bounds of memory. Every run of the binary is bounded in time.

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
