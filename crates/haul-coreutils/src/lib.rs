//! Layer 5: the rules of GNU's tools for files: `cp` and `mv`.

pub mod cp;
mod half_read;
mod location;
pub mod mv;
mod paths;
