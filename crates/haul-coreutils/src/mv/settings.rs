//! Settings of a move, resolved from the command line.

use super::error::MoveError;
use crate::cp::{Backup, Contexts};
use haul_engine::copy::{CopyObserver, Moving};
use std::ffi::OsString;

/// The moves of one command.
#[derive(Clone, Debug)]
pub struct MoveSettings {
    /// Sources and sinks.
    pub operands: MoveOperands,
    /// Rules of mv.
    pub rules: MoveRules,
    /// Settings for copying bytes if a rename is impossible.
    pub moving: Moving,
}

/// Sources and their sinks.
#[derive(Clone, Debug)]
pub enum MoveOperands {
    /// Two or more names. The last is the target directory of the others, or, for two names, the
    /// new name of the first.
    Among {
        /// All names but the last.
        sources: Vec<OsString>,
        /// The last name, as typed.
        last: OsString,
        /// The last name if it is not a directory, without trailing slashes if those are to be
        /// removed.
        name: OsString,
    },
    /// `-t`: each source goes into this directory under its last component.
    IntoDirectory {
        /// The sources.
        sources: Vec<OsString>,
        /// The directory, as typed.
        directory: OsString,
    },
    /// `-T`: one source gets exactly this name.
    Onto {
        /// The source.
        source: OsString,
        /// The name of the sink.
        sink: OsString,
    },
}

/// Rules of mv: which operands are moved, and the handling of existing sinks.
#[derive(Clone, Debug, Default)]
pub struct MoveRules {
    /// Handling of an existing sink.
    pub existing: MoveExisting,
    /// `-u`: a sink that is as new as its source is left unchanged.
    pub update: bool,
    /// Naming of backups of existing sinks; `None` for no backups.
    pub backup: Option<Backup>,
    /// `-v`: each step is printed.
    pub verbose: bool,
    /// `--exchange`: source and sink are exchanged.
    pub exchange: bool,
    /// True if options contradict each other. As with mv, this is checked only after the target:
    /// for two names, the first attempt to rename one to the other precedes the check.
    pub contradicts: bool,
    /// `--no-copy`: an operand that cannot be renamed is not moved.
    pub no_copy: bool,
    /// Security contexts of the copies and, with `-Z`, of renamed files.
    pub contexts: Contexts,
}

/// Handling of an existing sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MoveExisting {
    /// The sink is replaced, whatever its permissions.
    #[default]
    Replace,
    /// The sink is replaced, but the user is asked if it is not writable.
    AskIfUnwritable,
    /// `-i`: the user is asked.
    Ask,
    /// `-n`: the sink is left unchanged.
    Keep,
    /// `--update=none-fail`: the sink is left unchanged, and the exit status is a failure.
    KeepAndFail,
}

/// Receiver of the events of a move: those of its copies, and its own failures.
pub trait MoveObserver: CopyObserver {
    /// Reports an operand, or an item beneath it, that could not be moved. The job continues with
    /// the rest, and its exit status is a failure.
    fn not_moved(&self, error: &MoveError);
}
