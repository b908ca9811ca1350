//! Every kind of file system as a source and as a sink, held against the `cp` of GNU coreutils.

mod bed;
pub(crate) mod everything;
mod holes;
mod matrix;
mod network;
mod reflinks;
mod refused;
