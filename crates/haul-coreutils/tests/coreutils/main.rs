//! Tests of copies through the public API on real file systems. Readers that share no code with the
//! engine compare the copies with the originals.

mod bed;
mod clones;
mod memory;
mod offload;
mod operands;
mod parts;
mod sizes;
mod sparse;
mod streams;
mod trees;
mod variants;
