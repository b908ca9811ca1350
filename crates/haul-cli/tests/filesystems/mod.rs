//! Each kind of file system as a source and as a sink, compared with the `cp` of GNU coreutils.

mod calls;
pub(crate) mod everything;
mod fat;
mod fixture;
mod holes;
mod matrix;
mod network;
mod reflinks;
mod refused;
