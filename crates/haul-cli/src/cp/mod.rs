//! `haul cp`, also as `cp` and `mcp`: the options ([`options`]), their resolution ([`resolve`]),
//! and the job with its messages ([`run`]).

mod batch;
mod options;
mod resolve;
mod resume;
mod run;
mod waybill;

pub(crate) use run::run;
