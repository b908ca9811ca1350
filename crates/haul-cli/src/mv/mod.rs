//! `haul mv`, also as `mv`: what was typed, what it means ([`resolve`]), and the job with its messages ([`run`]).

mod options;
mod resolve;
mod run;

pub(crate) use run::run;
