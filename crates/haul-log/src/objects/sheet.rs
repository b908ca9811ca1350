//! Log of one file: a header, one record that identifies the file, and its objects.

use super::entry::{BEGIN_BYTES, Record};
use super::head::{HEAD_BYTES, Head, Kind};
use super::region::{Form, Region};
use super::seal::ChecksumContext;
use super::{Identity, Job, ObjectSet, Subject};

/// Number of the only file of the log.
pub(super) const SERIAL: u32 = 1;

/// Prefix of the names of these logs.
pub(super) const PREFIX: &str = "file-";

/// Returns the name of the log of a file.
pub(super) fn name(subject: &Subject) -> String {
    let Subject { path, source, sink } = subject;
    let mut bytes = Vec::from(path.as_bytes());
    bytes.push(0);
    bytes.extend(source.size.to_le_bytes());
    bytes.extend(source.mtime.sec.to_le_bytes());
    bytes.extend(source.mtime.nsec.to_le_bytes());
    bytes.extend(source.identity.0);
    bytes.extend(sink.0);
    format!("{PREFIX}{}.log", Identity::of(&bytes).to_hex())
}

/// Returns the offset of the objects in the log of a file.
pub(super) fn region_at(subject: &Subject) -> u64 {
    (HEAD_BYTES + BEGIN_BYTES + subject.path.as_bytes().len()) as u64
}

/// Returns the parts of a new log, each with its offset, and the region for additional objects. A
/// bit vector is as long as its file has objects; its parts are only the pages of `done`.
pub(super) fn begin(
    job: &Job,
    form: Form,
    log_id: u64,
    subject: &Subject,
    done: &ObjectSet,
) -> (Vec<(u64, Vec<u8>)>, Region) {
    let head = Head { kind: Kind::File, encoding: form.encoding, log_id };
    let mut bytes = head.encode(job);
    let extent = form.open_extent(region_at(subject));
    let record =
        Record::Begin { serial: SERIAL, blocks: form.blocks, extent, subject: Box::new(subject.clone()) };
    record.encode(head.seal(), 0, &mut bytes);
    let mut region = Region::new(form, ChecksumContext { log_id, serial: SERIAL }, extent);
    let mut parts = vec![(0, bytes)];
    parts.extend(region.put(done, &mut done.iter().peekable()));
    (parts, region)
}
