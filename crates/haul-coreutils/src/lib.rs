//! Layer 5: the rules of GNU's tools for files: `cp` and `mv`.

pub mod cp;
mod location;
pub mod mv;
