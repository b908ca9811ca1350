//! Contents of a log, and the identifiers that it is bound to.

use super::ObjectSet;
use haul_digest::{Algorithm, digest};
use haul_model::{ByteLen, Geometry, Moment, ObjectSize, RelPath};
use std::collections::BTreeMap;

/// Durable objects per version of a file. Complete files are not included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    files: BTreeMap<Subject, ObjectSet>,
}

impl Facts {
    /// Returns the durable objects of exactly this version of a source file in exactly this sink
    /// file.
    pub fn of(&self, subject: &Subject) -> Option<&ObjectSet> {
        self.files.get(subject)
    }

    /// Returns the logged versions of the file at `path`, for messages about why none of them
    /// applies.
    pub fn versions(&self, path: &RelPath) -> impl Iterator<Item = &Subject> {
        self.files.keys().filter(move |subject| subject.path == *path)
    }

    /// Returns all files with their objects, ordered by path.
    pub fn iter(&self) -> impl Iterator<Item = (&Subject, &ObjectSet)> {
        self.files.iter()
    }

    /// Returns the number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Returns true if there are no files.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Adds objects of a file.
    pub(super) fn add(&mut self, subject: Subject, objects: &ObjectSet) {
        if !objects.is_empty() {
            self.files.entry(subject).or_default().extend(objects);
        }
    }
}

/// Identification of a job in its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// Identifier of the job.
    pub id: Identity,
    /// Object size of the job.
    pub object: ObjectSize,
}

/// A file in progress. Its objects count only for this version of the source and this sink file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Path beneath the destination of the job.
    pub path: RelPath,
    /// Version of the source file.
    pub source: SourceVersion,
    /// Identity of the sink file: on a Linux file system, derived from device, inode and birth
    /// time.
    pub sink: Identity,
}

impl Subject {
    /// Returns the division of the file into objects.
    pub fn geometry(&self, job: &Job) -> Geometry {
        Geometry::new(ByteLen(self.source.size), job.object)
    }
}

/// Version of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceVersion {
    /// Length in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Moment,
    /// Further identification: device, inode and ctime, or the equivalent that a peer reports.
    pub identity: Identity,
}

/// A 128-bit identifier.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// Returns the first 16 bytes of the BLAKE3 digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Identity {
        let mut identity = [0; 16];
        let digest = digest(Algorithm::Blake3, bytes);
        identity.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
        Identity(identity)
    }

    /// Returns the identifier as 32 hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Parses the output of [`to_hex`](Identity::to_hex).
    pub fn from_hex(text: &str) -> Option<Identity> {
        let mut identity = [0; 16];
        let is_written_so = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        if text.len() != 32 || !text.bytes().all(is_written_so) {
            return None;
        }
        for (byte, digits) in identity.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
        }
        Some(Identity(identity))
    }
}
