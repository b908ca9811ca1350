//! Fuzz targets for every decoder: see `docs/fuzzing.md`.

#[path = "../crates/haul-lab/src/newer.rs"]
pub mod newer;
pub mod seeds;
pub mod targets;
