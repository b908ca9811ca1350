//! `haul cp`, also as `cp` and `mcp`: what can be typed ([`options`]), what it means ([`resolve`]), and the job with
//! its messages ([`run`]).

mod batch;
mod options;
mod resolve;
mod resume;
mod run;
mod waybill;

pub(crate) use run::run;
