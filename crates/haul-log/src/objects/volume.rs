//! A log that several files share, and its index.

use super::entry::{Extent, Record};
use super::head::{HEAD_BYTES, Head, Kind};
use super::log::{ActiveFile, FileKey};
use super::region::{Form, Region};
use super::seal::ChecksumContext;
use super::{Encoding, Job};
use std::collections::BTreeSet;

/// Minimum number of dead bytes for a rewrite of a log. The size limit of the default style, 16
/// KiB, is four times as large.
const DEAD_BYTES: u64 = 4096;

/// Suffix of the name of an index.
const INDEX: &str = ".index";

/// A log that several files share.
#[derive(Clone, Debug)]
pub(super) struct Volume {
    pub(super) stem: String,
    log_id: u64,
    /// Files in progress in the log.
    pub(super) live: BTreeSet<FileKey>,
    /// Number of files ever added to the log.
    pub(super) joined: u32,
    /// Numbers of the files that ended since the last commit.
    ended: Vec<u32>,
    serials: u32,
    /// Size of the index in bytes; 0 before it is first written.
    index_at: u64,
    /// Number of bytes of the log that are allocated.
    data_at: u64,
    /// Number of bytes of log and index that belong to files that have ended.
    dead: u64,
}

/// Additions of a commit to a shared log.
#[derive(Debug)]
pub(super) struct Added {
    /// Offset at which the index is extended.
    pub(super) index_at: u64,
    pub(super) index: Vec<u8>,
    /// Writes into the log.
    pub(super) data: Vec<(u64, Vec<u8>)>,
}

/// Returns the name of a shared log.
pub(super) fn data_name(stem: &str, log_id: u64) -> String {
    format!("{stem}-{log_id:016x}.log")
}

/// Returns the name of the log that belongs to an index.
pub(super) fn log_of_index(index: &str, log_id: u64) -> Option<String> {
    index.strip_suffix(INDEX).map(|stem| data_name(stem, log_id))
}

/// Returns true if the index can refer to a log of this name.
pub(super) fn is_log_of(log: &str, index: &str) -> bool {
    let rest = index.strip_suffix(INDEX).and_then(|stem| log.strip_prefix(stem));
    rest.is_some_and(|log_id| log_id.starts_with('-') && log_id.ends_with(".log"))
}

impl Volume {
    pub(super) fn new(stem: String, log_id: u64) -> Volume {
        Volume {
            stem,
            log_id,
            live: BTreeSet::new(),
            joined: 0,
            ended: Vec::new(),
            serials: 0,
            index_at: 0,
            data_at: HEAD_BYTES as u64,
            dead: 0,
        }
    }

    pub(super) fn index_name(&self) -> String {
        format!("{}{INDEX}", self.stem)
    }

    pub(super) fn data_name(&self) -> String {
        data_name(&self.stem, self.log_id)
    }

    /// Returns true if nothing has been written yet.
    pub(super) fn is_new(&self) -> bool {
        self.index_at == 0
    }

    /// Returns true if a commit must write more than new objects: the ends of files.
    pub(super) fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// Returns true if files that have ended take at least as much space as the rest, and enough to
    /// justify two syncs.
    pub(super) fn is_wasteful(&self) -> bool {
        self.dead >= DEAD_BYTES.max((self.index_at + self.data_at).saturating_sub(self.dead))
    }

    /// Stages the end of a complete file.
    pub(super) fn end(&mut self, key: FileKey, file: &ActiveFile) {
        self.live.remove(&key);
        if file.region.is_some() {
            self.ended.push(file.serial);
            self.dead += file.weight + Record::End { serial: 0 }.len() as u64;
        }
    }

    /// Restarts the log under another ID: all of its contents are rewritten.
    pub(super) fn renew(&mut self, log_id: u64) {
        let (live, joined) = (std::mem::take(&mut self.live), self.joined);
        *self = Volume { live, joined, ..Volume::new(std::mem::take(&mut self.stem), log_id) };
    }

    /// Returns the bytes before the objects of files: headers, and the records of files that ended.
    pub(super) fn begin(&mut self, job: &Job, encoding: Encoding) -> Added {
        let mut added = Added { index_at: self.index_at, index: Vec::new(), data: Vec::new() };
        if self.is_new() {
            let head = |kind| Head { kind, encoding, log_id: self.log_id }.encode(job);
            added.index = head(Kind::Index);
            added.data.push((0, head(Kind::Shared)));
        }
        for serial in std::mem::take(&mut self.ended) {
            self.record(&Record::End { serial }, &mut added);
        }
        added
    }

    /// Adds the new objects of a file.
    pub(super) fn add(&mut self, form: Form, file: &mut ActiveFile, added: &mut Added) {
        let staged = std::mem::take(&mut file.staged);
        let mut new = staged.iter().peekable();
        if let Some(region) = &mut file.region {
            added.data.extend(region.put(&file.done, &mut new));
        }
        while new.peek().is_some() {
            let extent = Extent { offset: self.data_at, length: form.region_bytes(file.regions) };
            self.data_at += extent.length;
            let record = if file.region.is_none() {
                self.serials += 1;
                (file.serial, file.weight) = (self.serials, 0);
                let subject = Box::new(file.subject.clone());
                Record::Begin { serial: file.serial, blocks: form.blocks, extent, subject }
            } else {
                Record::More { serial: file.serial, extent }
            };
            file.regions += 1;
            file.weight += record.len() as u64 + extent.length;
            self.record(&record, added);
            let seal = ChecksumContext { log_id: self.log_id, serial: file.serial };
            let region = file.region.insert(Region::new(form, seal, extent));
            added.data.extend(region.put(&file.done, &mut new));
        }
    }

    /// Completes the commit.
    pub(super) fn close(&mut self, added: &Added) {
        self.index_at = added.index_at + added.index.len() as u64;
    }

    fn record(&self, record: &Record, added: &mut Added) {
        record.encode(ChecksumContext { log_id: self.log_id, serial: 0 }, added.index_at, &mut added.index);
    }
}
