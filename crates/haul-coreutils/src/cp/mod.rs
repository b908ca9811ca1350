//! Copying trees of files, with the rules of `cp`.
//!
//! [`walk`] finds the entries. [`entry`] decides how to copy an entry. The data path of the engine
//! copies its bytes. [`copied_file`] and [`settle`] set the metadata of files and directories.

mod backup;
mod contexts;
mod copied_file;
mod descriptors;
mod directory;
mod entry;
mod explain;
mod job;
mod links;
mod metadata;
mod operand_walk;
mod operands;
mod parents;
mod place;
mod ranges;
mod receipt_entries;
mod rules;
mod settle;
mod sinks_under_way;
mod tree_entry;
mod tree_worker;
mod walk;

pub(crate) use backup::{rename as rename_to_backup, would_take_source};
pub(crate) use entry::{is_one_name, is_writable, mode_letters};
pub use job::{Outcome, Unstored};
pub(crate) use links::LinkTable;
pub use place::{Place, is_here};
pub use rules::{
    Backup, BackupMethod, Batch, BatchFailure, BatchItem, BatchSource, Contexts, CopyRules, CopySettings,
    Dereference, Existing, Make, Operands, Preserve, Print,
};
pub use walk::copy;
pub(crate) use walk::copy_after;
