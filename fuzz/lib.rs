//! Any bytes for every decoder: see `docs/fuzzing.md`.

pub mod seeds;
pub mod targets;
