//! Tests of associations over a simulated network in virtual time.

mod cubic;
mod dice;
mod figures;
mod link;
mod seeds;
mod world;
