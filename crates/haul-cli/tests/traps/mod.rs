//! Traps of similar tools that no other directory tests. `docs/traps.md` lists all traps.

mod identity;
mod list;
mod options;
mod order;
mod reading;
mod reported;
