//! The binary, run as its users run it.

mod backends;
mod bench;
mod check;
mod contexts;
mod cp;
mod differential;
mod extremes;
mod faults;
mod filesystems;
mod install;
mod interrupted_jobs;
mod matrix;
mod mv;
mod remote;
mod repair;
mod resume;
mod sum;
mod traps;
mod twins;
mod waybill;
