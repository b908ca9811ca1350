//! Jobs that can be gone on with when they were cut off.

pub(crate) mod keeping;
