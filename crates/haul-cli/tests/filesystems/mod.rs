//! Every kind of file system as a source and as a sink, held against the `cp` of GNU coreutils.

mod bed;
mod calls;
pub(crate) mod everything;
mod fat;
mod holes;
mod matrix;
mod network;
mod reflinks;
mod refused;
