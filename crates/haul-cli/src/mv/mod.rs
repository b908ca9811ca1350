//! `haul mv`, also as `mv`: the options, their resolution ([`resolve`]), and the job with its
//! messages ([`run`]).

mod options;
mod resolve;
mod run;

pub(crate) use run::run;
