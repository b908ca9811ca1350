//! Layer 2, pure: the data that a job records.
//!
//! [`waybill`] is the receipt of a copy: files, digests and verification levels. [`objects`] is the
//! log of a running job, and [`record`] its description and state. [`journal`] is the undo journal
//! of an in-place repair. [`stored`] handles digests stored with a file. All modules only encode
//! and decode; they use no clock, files, sockets or threads.

pub mod journal;
pub mod objects;
pub mod record;
pub mod stored;
pub mod waybill;
