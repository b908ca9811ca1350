//! Data path of a copy: the bytes of one file after the other, from a source to a sink.
//!
//! The caller finds the files and opens both ends ([`FileJob`]). A [`Worker`] reads, digests and
//! delivers the objects of a file ([`worker`], [`deliver`]), and brings them to the requested
//! level. The caller decides what happens at the end of a file ([`Finish`]).

mod age;
mod ahead;
mod blocks;
mod context;
mod counter;
mod deliver;
mod details;
mod digesting;
mod error;
mod file;
mod holes;
mod object;
mod open_copy;
mod overlap;
mod quote;
mod receipt;
mod report;
mod reread;
mod resume;
mod settings;
mod shared_file;
mod steady;
mod worker;

pub use age::{has_time, is_as_new, is_not_before, is_same_time, unfinished};
pub use context::CopyContext;
pub use counter::Counter;
pub use details::{ChosenMethod, CopyDetails, Holes};
pub use digesting::FileHash;
pub use error::{CopyError, Refusal, cause};
pub use file::{CopySink, CopySource, FileEnds, FileJob, Finish, Moved, Part, SinkState};
pub use quote::{Quoted, quote, quote_for_shell, quote_if_needed, quote_word};
pub use receipt::{Receipt, ReceiptSums};
pub use report::{CopyObserver, FileFigures, HashLine, JobObserver, Question, Tally};
pub use reread::{HeldFiles, Proof};
pub use resume::{Earlier, JobLog, LogOrder, Logged};
pub use settings::{HashForm, Moving, Reflink, SparseRule, Verify, Workers};
pub use shared_file::SharedFile;
pub use steady::check as check_source;
pub use worker::{Helpers, Worker};
