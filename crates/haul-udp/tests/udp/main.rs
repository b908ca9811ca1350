//! Tests of associations over a simulated network in virtual time.

mod controller;
mod cubic;
mod dice;
mod document;
mod figures;
mod hostile;
mod link;
mod seeds;
mod world;
