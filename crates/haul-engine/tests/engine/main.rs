//! The copying engine, tried on real file systems through its public face: what arrives is compared with what
//! was there by readers that share no code with it.

mod bed;
mod clones;
mod fuzzed;
mod inside;
mod log;
mod parts;
mod sizes;
mod sparse;
mod streams;
mod transfer;
mod trees;
mod variants;
