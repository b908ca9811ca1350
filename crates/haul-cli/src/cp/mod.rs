//! `haul cp`, also as `cp` and `mcp`: what was typed ([`args`]), what it means ([`resolve`]), and the job with
//! its messages ([`run`]).

mod args;
mod batch;
mod options;
mod resolve;
mod run;
mod waybill;

pub(crate) use run::run;
