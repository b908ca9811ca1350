//! Copying trees of files, with the rules of `cp`.
//!
//! The main path: an entry of the tree is met ([`entry`]), its fate decided, its bytes moved ([`pipeline`],
//! [`deliver`]) and the result brought to its asked level and given its metadata ([`settle`]).

mod backup;
mod counter;
mod deliver;
mod descriptors;
mod digesting;
mod directory;
mod entry;
mod error;
mod explain;
mod file;
mod job;
mod links;
mod metadata;
mod operands;
mod overlap;
mod pipeline;
mod quote;
mod receipt;
mod report;
mod settings;
mod settle;

pub use counter::Counter;
pub use error::CopyError;
pub use job::{Outcome, copy};
pub use quote::{Quoted, quote, quote_word};
pub use receipt::Receipt;
pub use report::{FileFigures, HashLine, Question, Report, Tally};
pub use settings::{
    Backup, BackupMethod, Batch, BatchFailure, BatchItem, BatchSource, CopyRules, CopySettings, Dereference,
    Existing, HashForm, Make, Moving, Operands, Preserve, Print, Reflink, SparseRule, Verify,
};
