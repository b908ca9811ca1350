//! The traps that tools of this kind fell into and that no other folder holds a test of. `docs/traps.md` lists all.

mod identity;
mod list;
mod options;
mod order;
mod reading;
mod told;
