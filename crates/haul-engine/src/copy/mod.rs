//! Copying trees of files, with the rules of `cp`.
//!
//! The main path has three steps. [`entry`] decides how to copy an entry of the tree. [`pipeline`]
//! and [`deliver`] copy its bytes. [`settle`] brings the result to the requested level and sets its
//! metadata.

mod age;
mod ahead;
mod backup;
mod blocks;
mod compare;
mod context;
mod contexts;
mod copied_file;
mod counter;
mod deliver;
mod descriptors;
mod details;
mod digesting;
mod directory;
mod entry;
mod error;
mod file;
mod holes;
mod job;
mod links;
mod metadata;
mod object;
mod operand_walk;
mod operands;
mod overlap;
mod parents;
mod pipeline;
mod place;
mod quote;
mod ranges;
mod receipt;
mod receipt_entries;
mod report;
mod reread;
mod resume;
mod rules;
mod run;
mod settings;
mod settle;
mod shared_file;
mod sinks_under_way;
mod steady;
mod tree_entry;
mod tree_worker;
mod walk;

pub(crate) use age::{has_time, is_as_new, is_not_before};
pub(crate) use backup::{
    last_component, rename as rename_to_backup, split, without_slashes, would_take_source,
};
pub use counter::Counter;
pub(crate) use descriptors::files_left;
pub(crate) use entry::{is_one_name, is_writable, mode_letters};
pub(crate) use error::Refusal;
pub use error::{CopyError, cause};
pub use job::{Outcome, Unstored};
pub(crate) use links::LinkTable;
pub(crate) use metadata::{is_copied as is_attribute_copied, is_of_lustre};
pub(crate) use operands::workers_within;
pub use place::{Place, is_here};
pub use quote::{Quoted, quote, quote_for_shell, quote_if_needed, quote_word};
pub use receipt::Receipt;
pub use report::{CopyObserver, FileFigures, HashLine, Question, Tally};
pub use resume::{Earlier, JobLog, LogOrder};
pub use rules::{
    Backup, BackupMethod, Batch, BatchFailure, BatchItem, BatchSource, Contexts, CopyRules, CopySettings,
    Dereference, Existing, Make, Operands, Preserve, Print,
};
pub use settings::{HashForm, Moving, Reflink, SparseRule, Verify, Workers};
pub use walk::copy;
pub(crate) use walk::copy_after;
