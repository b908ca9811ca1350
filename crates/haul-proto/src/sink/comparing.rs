//! Comparison of the sink's own files with digests of the source.
//!
//! The source states its digests and the sink compares. A digest of the sink's bytes never leaves
//! it: the source, which can choose what is compared, would learn the bytes from it.

use super::file::{File, Stage};
use super::{Command, Sink, Verdict, Violation};
use crate::limits::DIGESTS_PER_MESSAGE;
use crate::{Compared, FileNumber, LaneId, Message, ObjectDigests, Reason, Runs, Why};
use haul_digest::{Digest, KeyedDigest};
use haul_model::{Object, ObjectIndex};
use std::collections::VecDeque;

/// Comparison of a complete file.
#[derive(Debug, Default)]
pub(super) struct WholePair {
    /// True while the source may state its digest.
    pub(super) is_asked: bool,
    stated: Option<KeyedDigest>,
    /// Digest of the sink's own file, once it is known; `Some(None)` if the file cannot be read.
    own: Option<Option<KeyedDigest>>,
}

impl WholePair {
    /// Returns true if the source has stated its digest.
    pub(super) fn is_stated(&self) -> bool {
        self.stated.is_some()
    }

    /// Returns true if the sink's own file cannot be read.
    pub(super) fn cannot_be_same(&self) -> bool {
        self.own == Some(None)
    }

    /// Returns true if the files are the same, and `None` if that is not known yet.
    fn agree(&self) -> Option<bool> {
        match (self.stated, self.own?) {
            (_, None) => Some(false),
            (Some(stated), Some(own)) => Some(stated == own),
            (None, Some(_)) => None,
        }
    }
}

/// Comparison of the objects of a file, in ascending order.
#[derive(Debug)]
pub(super) struct Comparison {
    /// Objects that are not compared.
    skipped: Runs,
    /// Index from which on objects are not compared.
    end: u64,
    /// One past the last object whose digest the source has stated.
    told: u64,
    /// Stated digests that were not taken yet.
    stated: VecDeque<(ObjectIndex, KeyedDigest)>,
    /// One past the last object that was compared.
    compared: u64,
    /// Number of digests that COMPARED has not answered yet, at most [`DIGESTS_PER_MESSAGE`].
    ahead: usize,
    /// Objects compared since the last report, of which `wanted` differ.
    unreported: usize,
    wanted: Runs,
}

impl Comparison {
    /// Creates the comparison of all objects below `end` that are not `skipped`.
    pub(super) fn new(skipped: Runs, end: u64) -> Comparison {
        Comparison {
            skipped,
            end,
            told: 0,
            stated: VecDeque::new(),
            compared: 0,
            ahead: 0,
            unreported: 0,
            wanted: Runs::default(),
        }
    }

    fn tell(&mut self, first: ObjectIndex, digests: Vec<KeyedDigest>) -> Result<(), Violation> {
        if first.0 != self.skipped.first_gap(self.told) {
            return Err("digests out of order");
        }
        self.ahead += digests.len();
        if self.ahead > DIGESTS_PER_MESSAGE {
            return Err("more digests than are waited for");
        }
        for digest in digests {
            let index = self.skipped.first_gap(self.told);
            if index >= self.end {
                return Err("a digest of an object that is not compared");
            }
            self.stated.push_back((ObjectIndex(index), digest));
            self.told = index + 1;
        }
        Ok(())
    }

    fn is_pending(&self, index: u64) -> bool {
        (self.compared..self.end).contains(&index) && !self.skipped.contains(index)
    }

    fn is_over(&self) -> bool {
        self.skipped.first_gap(self.compared) >= self.end
    }

    fn compared(&mut self, object: ObjectIndex, is_same: bool) {
        self.compared = object.0 + 1;
        self.unreported += 1;
        if !is_same {
            self.wanted.insert(object.0);
        }
    }

    /// Returns the number of entries in its sets.
    pub(super) fn entries(&self) -> usize {
        self.stated.len() + self.wanted.pieces()
    }

    /// Returns true if COMPARED has something to report.
    pub(super) fn has_report(&self) -> bool {
        self.unreported > 0
    }

    /// Returns the contents of the next COMPARED: one past the last compared object, and the
    /// objects to request.
    fn report(&mut self) -> Option<(u64, Runs)> {
        let answered = std::mem::take(&mut self.unreported);
        self.ahead -= answered;
        (answered > 0).then(|| (self.compared, std::mem::take(&mut self.wanted)))
    }
}

impl File {
    /// Returns the next COMPARED of this file, if there is something to report.
    pub(super) fn next_compared(&mut self, number: FileNumber) -> Option<Message> {
        let (end, wanted) = self.comparison.as_mut()?.report()?;
        Some(Message::Compared(Box::new(Compared { number, attempt: self.attempt, end, wanted })))
    }

    /// Returns true if it is not known yet whether the source must send this object.
    pub(super) fn is_undecided(&self, index: u64) -> bool {
        let is_pending = |comparison: &Comparison| comparison.is_pending(index);
        self.verdict == Some(Verdict::UnlessDigest) || self.comparison.as_ref().is_some_and(is_pending)
    }
}

impl Sink {
    /// Returns true if objects of this file are still to be compared.
    pub fn compares(&self, number: FileNumber) -> bool {
        let comparison = self.files.get(&number).and_then(|file| file.comparison.as_ref());
        comparison.is_some_and(|comparison| !comparison.is_over())
    }

    /// Returns true if [`Sink::next_stated`] has an object of this file.
    pub fn has_stated(&self, number: FileNumber) -> bool {
        let comparison = self.files.get(&number).and_then(|file| file.comparison.as_ref());
        comparison.is_some_and(|comparison| !comparison.stated.is_empty())
    }

    /// Takes the next object of this file to compare, with the attempt and the digest of the
    /// source. The engine answers by [`super::Event::Compared`]. Until then no lane writes the
    /// object.
    pub fn next_stated(&mut self, number: FileNumber) -> Option<(u16, Object, KeyedDigest)> {
        let file = self.files.get_mut(&number)?;
        let (index, digest) = file.comparison.as_mut()?.stated.pop_front()?;
        file.writing.insert(index.0, super::file::Writing { again: false });
        Some((file.attempt, file.object(index)?, digest))
    }

    /// Handles OBJECT_DIGESTS.
    pub(super) fn object_digests(
        &mut self,
        lane: LaneId,
        told: ObjectDigests,
        out: &mut Vec<Command>,
    ) -> Result<(), Violation> {
        let ObjectDigests { number, attempt, first, digests } = told;
        if number.0 >= self.announced {
            return Err("a digest of a file that was never announced");
        }
        // On another lane they arrive late: the source has announced the file again.
        let file = self.files.get_mut(&number).filter(|file| file.attempt == attempt && file.home == lane);
        let Some(file) = file else { return Ok(()) };
        if let Some(first) = first {
            let comparison = file.comparison.as_mut().ok_or("digests without a request")?;
            return comparison.tell(first, digests);
        }
        if !std::mem::take(&mut file.whole_compared.is_asked) {
            return Err("a digest without a request");
        }
        file.whole_compared.stated = digests.first().copied();
        self.compare_whole(number, out);
        Ok(())
    }

    pub(super) fn own_digest(
        &mut self,
        number: FileNumber,
        digest: Option<KeyedDigest>,
        out: &mut Vec<Command>,
    ) {
        if let Some(file) = self.files.get_mut(&number) {
            file.whole_compared.own = Some(digest);
            self.compare_whole(number, out);
        }
    }

    /// Decides about a file of which both digests are known.
    fn compare_whole(&mut self, number: FileNumber, out: &mut Vec<Command>) {
        let Some(file) = self.files.get_mut(&number) else { return };
        let Some(is_same) = file.whole_compared.agree() else { return };
        if file.stage != Stage::Open || file.verdict != Some(Verdict::UnlessDigest) {
            return;
        }
        file.verdict = None;
        if is_same {
            file.stage = Stage::Finishing;
            out.push(Command::Finish { file: number, close: None, settle: file.settle });
        } else {
            self.send_file_id(number);
        }
    }

    pub(super) fn compared(
        &mut self,
        number: FileNumber,
        attempt: u16,
        object: ObjectIndex,
        same: Option<Option<Digest>>,
        out: &mut Vec<Command>,
    ) {
        let Some(file) = self.files.get_mut(&number).filter(|file| file.attempt == attempt) else { return };
        let Some(writing) = file.writing.remove(&object.0) else { return };
        let Some(comparison) = &mut file.comparison else {
            // The home lane was lost, and the source sends the object. If it came already, it was
            // ignored.
            if writing.again {
                self.reject(number, object, Why::LanesLost.into(), out);
            }
            return;
        };
        comparison.compared(object, same.is_some());
        self.syncs.insert((file.home, number));
        match same {
            Some(digest) => self.object_verified(number, object, digest, out),
            None if file.samples.contains(object.0) => {
                self.restart(number, Reason::new(Why::Differs, "what an earlier run left"), out);
            }
            None => {}
        }
    }
}
