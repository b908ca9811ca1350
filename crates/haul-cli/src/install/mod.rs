//! `haul install`, also as `install`: files are copied by the copy engine, one operand after the other, closed to
//! everybody while they are written ([`run`]); then they get their owner and permissions ([`finish`]). Directories are
//! made with all that lie above them ([`directories`]). Where the kernel has SELinux, both are labelled ([`labels`]).

mod directories;
mod finish;
mod labels;
mod mode;
mod options;
mod resolve;
mod run;

pub(crate) use run::run;
