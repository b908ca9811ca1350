//! What a move is to do, resolved from what was typed.

use super::error::MoveError;
use crate::copy::{Backup, Contexts, Moving, Report};
use std::ffi::OsString;

/// One command's moves.
#[derive(Clone, Debug)]
pub struct MoveSettings {
    /// What is moved where.
    pub operands: MoveOperands,
    /// Which of mv's rules hold.
    pub rules: MoveRules,
    /// How bytes are moved where a rename can't be.
    pub moving: Moving,
}

/// Sources and where they go.
#[derive(Clone, Debug)]
pub enum MoveOperands {
    /// Two or more names: the last is the directory that takes the others, or, of two, the name that the first gets.
    Among {
        /// All but the last.
        sources: Vec<OsString>,
        /// The last, as typed.
        last: OsString,
        /// The last where it is no directory: without the slashes behind it, if those are to be left out.
        name: OsString,
    },
    /// `-t`: each source goes into this directory under its own last component.
    IntoDirectory {
        /// What is moved.
        sources: Vec<OsString>,
        /// The directory, as typed.
        directory: OsString,
    },
    /// `-T`: one source becomes exactly this name.
    Onto {
        /// What is moved.
        source: OsString,
        /// The name it gets.
        sink: OsString,
    },
}

/// mv's rules: which operands are moved, and what happens to what stands in their way.
#[derive(Clone, Debug, Default)]
pub struct MoveRules {
    /// What happens to a sink that exists.
    pub existing: MoveExisting,
    /// `-u`: a sink as new as its source is left alone.
    pub update: bool,
    /// Whether and how an existing sink is kept under another name.
    pub backup: Option<Backup>,
    /// `-v`: each step is told.
    pub verbose: bool,
    /// `--exchange`: source and sink change places.
    pub exchange: bool,
    /// Options that can't be meant together were typed. That is found, as with mv, when the target has been looked at:
    /// of two names, a first try to rename one to the other has been made by then.
    pub contradicts: bool,
    /// `--no-copy`: what can't be renamed is not moved.
    pub no_copy: bool,
    /// Which security contexts copies get; and, with `-Z`, what is renamed.
    pub contexts: Contexts,
}

/// What happens to a sink that exists.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoveExisting {
    /// It is replaced, whatever its permissions.
    #[default]
    Replace,
    /// It is replaced, but the user is asked about one that may not be written.
    AskIfUnwritable,
    /// `-i`: the user is asked.
    Ask,
    /// `-n`: it is left alone.
    Keep,
    /// `--update=none-fail`: it is left alone, and that is a failure.
    KeepAndFail,
}

/// The ear of a move: that of the copies it makes, and of its own failures.
pub trait MoveReport: Report {
    /// An operand, or something beneath it, could not be moved; the rest goes on, and the exit status is a failure.
    fn not_moved(&self, error: &MoveError);
}
