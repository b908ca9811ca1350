//! A file that arrives.

use super::runs;
use crate::event::milliseconds;
use haul_digest::{Blake3File, Blake3Object, Digest};
use haul_model::{Level, Object, ObjectIndex, ObjectSize};
use haul_proto::{BlockDigest, FileNumber, NewFile, Runs};
use std::collections::BTreeMap;
use std::sync::Arc;

/// State of a file that the page has from an earlier run.
#[derive(Clone, Debug, Default)]
pub struct KeptFile {
    /// Size in bytes.
    pub size: u64,
    /// Modification time at the server, in milliseconds since 1970, as in [`crate::Event::Open`].
    pub mtime: f64,
    /// Version, as in [`crate::Event::Open`].
    pub version: [u8; 16],
    /// True if the file was finished.
    pub is_complete: bool,
    /// Objects, each with its digest, as in [`crate::Event::Verified`].
    pub objects: Vec<(u64, [u8; 32])>,
}

impl KeptFile {
    /// Returns true if the announced file is this version of the file.
    pub(super) fn is_version_of(&self, facts: &NewFile) -> bool {
        let same_facts = (self.size, self.mtime) == (facts.size(), milliseconds(facts.mtime));
        same_facts && self.version == facts.version.unwrap_or_default()
    }
}

/// The object that the lane is receiving.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) file: FileNumber,
    attempt: u16,
    pub(super) object: Object,
    pub(super) hasher: Blake3Object,
}

impl Current {
    pub(super) fn new(file: FileNumber, attempt: u16, object: Object, size: u64) -> Current {
        Current { file, attempt, object, hasher: Blake3Object::new(object, size) }
    }

    pub(super) fn is_of(&self, file: FileNumber, attempt: u16, object: Object) -> bool {
        (self.file, self.attempt, self.object) == (file, attempt, object)
    }

    pub(super) fn is_ended_by(&self, end: &BlockDigest) -> bool {
        (self.file, self.attempt, self.object.index) == (end.number, end.attempt, end.object)
    }
}

/// State of a file in progress.
#[derive(Debug)]
pub(super) struct Incoming {
    facts: Arc<NewFile>,
    attempt: u16,
    have: Runs,
    digest: Blake3File,
    /// Digests of verified objects that were not reported.
    digests: BTreeMap<u64, Digest>,
    /// Number of writes in progress, by object.
    writing: BTreeMap<u64, usize>,
    /// Objects to settle.
    settling: Runs,
    /// Objects of the sync in progress.
    syncing: Option<(u16, Runs)>,
    settle: Level,
    end: Ending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// Bytes arrive.
    Open,
    /// Everything arrived; writes may be in progress.
    Waiting,
    /// The page finishes the file.
    Requested,
}

impl Incoming {
    pub(super) fn new(
        facts: Arc<NewFile>,
        object: ObjectSize,
        settle: Level,
        kept: Option<&KeptFile>,
    ) -> Incoming {
        let mut digest = Blake3File::new(facts.size(), object);
        for (index, value) in kept.into_iter().flat_map(|kept| &kept.objects) {
            digest.add_bytes(ObjectIndex(*index), *value);
        }
        let objects = kept.into_iter().flat_map(|kept| kept.objects.iter().map(|object| object.0));
        Incoming {
            have: runs(objects, digest.objects()),
            facts,
            attempt: 0,
            digest,
            digests: BTreeMap::new(),
            writing: BTreeMap::new(),
            settling: Runs::default(),
            syncing: None,
            settle,
            end: Ending::Open,
        }
    }

    pub(super) fn facts(&self) -> &NewFile {
        &self.facts
    }

    /// Returns the objects of an earlier run.
    pub(super) fn have(&self) -> &Runs {
        &self.have
    }

    pub(super) fn settle(&self) -> Level {
        self.settle
    }

    /// Returns the digest of the file, if all objects are known.
    pub(super) fn digest(&self) -> Option<Digest> {
        self.digest.finish().ok()
    }

    /// Returns the number of objects that the page has not settled.
    pub(super) fn unsettled(&self) -> usize {
        self.digests.len()
    }

    pub(super) fn begin_write(&mut self, object: u64) {
        *self.writing.entry(object).or_insert(0) += 1;
    }

    pub(super) fn end_write(&mut self, object: u64) {
        if let Some(count) = self.writing.get_mut(&object) {
            *count -= 1;
            if *count == 0 {
                self.writing.remove(&object);
            }
        }
    }

    /// Records an object that has the stated digest.
    pub(super) fn verified(&mut self, index: ObjectIndex, digest: Digest) {
        if self.digest.objects() > 1 {
            self.digests.insert(index.0, digest);
        }
        self.digest.add(index, &digest);
    }

    pub(super) fn take_digest(&mut self, index: ObjectIndex) -> Option<Digest> {
        self.digests.remove(&index.0)
    }

    pub(super) fn settle_object(&mut self, attempt: u16, index: ObjectIndex) {
        if attempt == self.attempt {
            self.settling.insert(index.0);
        }
    }

    /// Starts a sync of all objects whose writes are done. Returns false if there is none, or if
    /// another sync is in progress.
    pub(super) fn begin_sync(&mut self) -> bool {
        if self.syncing.is_some() {
            return false;
        }
        let mut objects = self.settling.clone();
        for index in self.writing.keys() {
            objects.remove(*index);
        }
        if objects.is_empty() {
            return false;
        }
        self.settling.subtract(&objects);
        self.syncing = Some((self.attempt, objects));
        true
    }

    /// Ends a sync. Returns the attempt and the objects that it covered.
    pub(super) fn end_sync(&mut self) -> Option<(u16, Runs)> {
        self.syncing.take()
    }

    /// Discards everything: the file is sent again from its first byte.
    pub(super) fn restart(&mut self, attempt: u16, object: ObjectSize) {
        self.attempt = attempt;
        self.have = Runs::default();
        self.digest = Blake3File::new(self.facts.size(), object);
        self.digests.clear();
        self.settling = Runs::default();
        self.end = Ending::Open;
    }

    /// Records that everything arrived.
    pub(super) fn finish(&mut self, settle: Level) {
        self.settle = settle;
        self.end = Ending::Waiting;
    }

    /// Returns the facts and the digest once, when everything is written.
    pub(super) fn begin_finish(&mut self) -> Option<(Arc<NewFile>, Option<Digest>)> {
        if self.end != Ending::Waiting || !self.writing.is_empty() {
            return None;
        }
        self.end = Ending::Requested;
        Some((self.facts.clone(), self.digest()))
    }
}
