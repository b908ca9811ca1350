//! Shared parts of `haul send`, `haul fetch` and `haul serve`: operands that name a remote host,
//! the options of a job, the connections to the peer, and the output.

pub(crate) mod args;
pub(crate) mod ending;
pub(crate) mod entry;
pub(crate) mod host;
pub(crate) mod output;
pub(crate) mod pick;
pub(crate) mod place;
pub(crate) mod policy;
pub(crate) mod ssh;
pub(crate) mod statistics;
mod statistics_plot;
pub(crate) mod ticket;
pub(crate) mod transport;
pub(crate) mod typed;
pub(crate) mod values;
pub(crate) mod way;
pub(crate) mod words;
