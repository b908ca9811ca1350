//! Reads a waybill for a verification in the browser.

use crate::event::milliseconds;
use haul_digest::{Algorithm, Digest};
use haul_log::waybill::{Content, Entry, Kind, ReadError, Reader, Record};
use haul_model::ObjectIndex;
use std::io::Cursor;

/// A regular file of a waybill.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedFile {
    /// Path beneath the root.
    pub path: Vec<u8>,
    /// Size in bytes.
    pub size: u64,
    /// Modification time in milliseconds since 1970.
    pub mtime: f64,
    /// Size in bytes of the objects, if they have digests.
    pub object_bytes: Option<u64>,
    /// BLAKE3 of the file.
    pub digest: Option<Digest>,
    objects: Vec<(ObjectIndex, Digest)>,
}

impl RecordedFile {
    /// Returns BLAKE3 of an object, if the waybill has it.
    pub fn object(&self, index: ObjectIndex) -> Option<&Digest> {
        let at = self.objects.binary_search_by_key(&index, |(index, _)| *index).ok()?;
        Some(&self.objects[at].1)
    }
}

/// Item of a waybill.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// A file.
    File(RecordedFile),
    /// A section starts. It replaces files of earlier sections.
    Section,
    /// Part of the waybill that is damaged; the text describes it.
    Flaw(String),
}

/// Reader of a waybill in memory: an iterator over its files. Other entries are left out.
#[derive(Debug)]
pub struct WaybillReader {
    reader: Reader<Cursor<Vec<u8>>>,
    /// Record that was read after a file and belongs to the next item.
    ahead: Option<Result<Record, ReadError>>,
}

impl WaybillReader {
    /// Creates a reader of `waybill`.
    pub fn new(waybill: Vec<u8>) -> WaybillReader {
        WaybillReader { reader: Reader::new(Cursor::new(waybill)), ahead: None }
    }

    fn record(&mut self) -> Option<Result<Record, ReadError>> {
        self.ahead.take().or_else(|| self.reader.next())
    }

    /// Reads the digests of the objects of a file, which follow its line.
    fn file(&mut self, Entry { path, mtime, .. }: &Entry, content: &Content) -> RecordedFile {
        let mut objects = Vec::new();
        while let Some(record) = self.record() {
            match record {
                Ok(Record::Object(object)) => {
                    // The reader refuses indices that do not ascend.
                    let digest = object.digests.iter().find(|digest| digest.algorithm() == Algorithm::Blake3);
                    objects.extend(digest.map(|digest| (object.index, *digest)));
                }
                Ok(Record::Leaves(_) | Record::Proven(_)) => {}
                other => {
                    self.ahead = Some(other);
                    break;
                }
            }
        }
        RecordedFile {
            path: path.as_bytes().to_vec(),
            size: content.size,
            mtime: milliseconds(*mtime),
            object_bytes: content.objects.as_ref().map(|objects| objects.size.bytes()),
            digest: content.digest(Algorithm::Blake3),
            objects,
        }
    }
}

impl Iterator for WaybillReader {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        loop {
            match self.record()? {
                Ok(Record::Section(_)) => return Some(Item::Section),
                Ok(Record::Entry(entry)) => {
                    if let Kind::File(content) = &entry.kind {
                        return Some(Item::File(self.file(&entry, content)));
                    }
                }
                Ok(_) => {}
                Err(error) => return Some(Item::Flaw(error.to_string())),
            }
        }
    }
}
