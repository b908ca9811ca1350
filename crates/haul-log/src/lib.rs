//! Floor 2, pure: what a job writes down.
//!
//! [`waybill`] is the receipt of a copy: which files, with what digests, proven how far; [`objects`] the log of a job under
//! way, and [`record`] what the job is and how it stands; [`journal`] what a repair writes down before it writes over a file; [`stored`] what is kept with a file of its digests. Everything here turns facts into
//! bytes and bytes into facts; nothing touches a clock, a file, a socket or a thread.

pub mod journal;
pub mod objects;
pub mod record;
pub mod stored;
pub mod waybill;
