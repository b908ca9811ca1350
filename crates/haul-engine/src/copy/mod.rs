//! Copying trees of files, with the rules of `cp`.
//!
//! The main path has three steps. [`entry`] decides how to copy an entry of the tree. [`pipeline`]
//! and [`deliver`] copy its bytes. [`settle`] brings the result to the requested level and sets its
//! metadata.

mod age;
mod ahead;
mod backup;
mod compare;
mod contexts;
mod counter;
mod deliver;
mod descriptors;
mod digesting;
mod directory;
mod entry;
mod error;
mod explain;
mod file;
mod holes;
mod job;
mod lane;
mod links;
mod metadata;
mod operands;
mod overlap;
mod pipeline;
mod place;
mod quote;
mod receipt;
mod report;
mod reread;
mod resume;
mod settings;
mod settle;
mod steady;

pub(crate) use backup::{
    last_component, rename as rename_to_backup, split, without_slashes, would_take_source,
};
pub use counter::Counter;
pub(crate) use descriptors::files_left;
pub(crate) use age::{has_time, is_as_new, is_not_before};
pub(crate) use entry::{is_one_name, is_writable, mode_letters};
pub(crate) use error::Refusal;
pub use error::{CopyError, cause};
pub(crate) use job::copy_after;
pub use job::{Outcome, Unstored, copy};
pub(crate) use links::LinkTable;
pub(crate) use metadata::{is_copied as is_attribute_copied, is_of_lustre};
pub(crate) use operands::workers_within;
pub use place::{Place, is_here};
pub use quote::{Quoted, quote, quote_for_shell, quote_if_needed, quote_word};
pub use receipt::Receipt;
pub use report::{CopyObserver, FileFigures, HashLine, Question, Tally};
pub use resume::{Earlier, JobLog, LogOrder};
pub use settings::{
    Backup, BackupMethod, Batch, BatchFailure, BatchItem, BatchSource, Contexts, CopyRules, CopySettings,
    Dereference, Existing, HashForm, Make, Moving, Operands, Preserve, Print, Reflink, SparseRule, Verify,
    Workers,
};
