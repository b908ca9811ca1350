//! `haul install`, also as `install`: the copy engine copies files one operand after the other. A
//! file is inaccessible to others while it is written ([`run`]); then owner and permissions are set
//! ([`finish`]). Directories are created with all missing parents ([`directories`]). If the kernel
//! has SELinux, files and directories are labelled ([`labels`]).

mod directories;
mod finish;
mod labels;
mod mode;
mod options;
mod resolve;
mod run;

pub(crate) use run::run;
