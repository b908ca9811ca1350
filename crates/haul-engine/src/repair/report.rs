//! Events and totals of a repair.

use super::why::{JournalWarning, LeftReason};
use crate::verify::Resumption;
use haul_log::waybill::{ReadError, RelPath};
use haul_model::ByteRange;
use std::io;

/// Bytes that came from a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairedRange {
    /// Range of the bytes.
    pub range: ByteRange,
    /// Number of the replica, counted from 0 in the order of the settings.
    pub replica: usize,
}

/// Result for one name that did not match the waybill.
#[derive(Debug)]
pub struct Outcome {
    /// Path below the root.
    pub path: RelPath,
    /// Action of the repair; in a dry run, the action that it would take.
    pub done: Done,
    /// Replaced ranges with their replicas; empty for an entry without contents.
    pub mended: Vec<RepairedRange>,
}

/// Action of a repair on a name.
#[derive(Debug)]
pub enum Done {
    /// Damaged bytes were replaced; the name now refers to another file.
    Repaired,
    /// Damaged bytes were replaced in the file.
    RepairedInPlace,
    /// An interrupted in-place repair was finished.
    Finished,
    /// The name was missing and was created.
    Made,
    /// A second check found every byte intact.
    Right,
    /// The name was not repaired, for this reason. It is unchanged, except after
    /// [`LeftReason::HalfDone`].
    Left(LeftReason),
}

/// Result of the recovery of an interrupted repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recovered {
    /// All new bytes were written; they are now durable and verified.
    Finished,
    /// The file has its contents from before the repair.
    Undone,
}

/// Receiver of the events of a repair.
pub trait RepairObserver: Send {
    /// Receives the result for a name that was not intact.
    fn settled(&mut self, outcome: &Outcome);
    /// Receives a flaw of the waybill.
    fn flawed(&mut self, flaw: &ReadError);
    /// Receives a message about resuming an earlier run.
    fn resumption(&mut self, _told: &Resumption) {}
    /// Receives the result of recovering an interrupted in-place repair. If the name is not intact,
    /// [`RepairObserver::settled`] follows.
    fn recovered(&mut self, _path: &RelPath, _became: Recovered) {}
    /// Receives a warning about the journal of a file, or about all journals.
    fn journal_warning(&mut self, _path: Option<&RelPath>, _warning: JournalWarning) {}
    /// Receives the size of a request to a replica on another host, as the number of files and
    /// bytes.
    fn asks(&mut self, _replica: usize, _files: usize, _bytes: u64) {}
    /// Receives a note about requested data that a replica on another host did not send.
    fn replica_note(&mut self, _replica: usize, _note: &str) {}
    /// Receives the reason why a replica on another host could not be reached, or failed before its
    /// end. The other replicas are still used.
    fn unreached(&mut self, _replica: usize, _why: &str) {}
    /// Receives the error if a directory with repaired names did not get its modification time
    /// back.
    fn time_not_kept(&mut self, _path: &RelPath, _why: &io::Error) {}
    /// Receives the error if data from other hosts could not be removed after its use.
    fn cleanup_failed(&mut self, _why: &io::Error) {}
}

/// Totals of a repair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairTally {
    /// Entries that matched the waybill.
    pub intact: u64,
    /// Intact entries that an earlier run verified and that did not change since.
    pub before: u64,
    /// Files with replaced bytes.
    pub repaired: u64,
    /// Missing names that were created.
    pub made: u64,
    /// Names that were not repaired: they do not match the waybill, or cannot be checked.
    pub left: u64,
    /// Bytes taken from replicas.
    pub bytes: u64,
    /// Bytes received over the network for the repair.
    pub received: u64,
    /// Replicas on other hosts that could not be reached, or that failed before their end.
    pub unreached: u64,
    /// Bytes that this run read in the search for damage.
    pub bytes_read: u64,
}
