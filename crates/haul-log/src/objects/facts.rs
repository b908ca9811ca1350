//! What a log says, and what it is bound to.

use super::ObjectSet;
use haul_digest::{Algorithm, digest};
use haul_model::{ByteLen, Geometry, Moment, ObjectSize, RelPath};
use std::collections::BTreeMap;

/// Which objects are durable, of which version of which file. A file that is complete is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    files: BTreeMap<Subject, ObjectSet>,
}

impl Facts {
    /// The objects that are durable of exactly this version of a file, in exactly this sink file.
    pub fn of(&self, subject: &Subject) -> Option<&ObjectSet> {
        self.files.get(subject)
    }

    /// What is said about any version of the file at a path: for telling why nothing of it counts.
    pub fn versions(&self, path: &RelPath) -> impl Iterator<Item = &Subject> {
        self.files.keys().filter(move |subject| subject.path == *path)
    }

    /// All of them, by path.
    pub fn iter(&self) -> impl Iterator<Item = (&Subject, &ObjectSet)> {
        self.files.iter()
    }

    /// How many files there are.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Takes in objects of a file.
    pub(super) fn add(&mut self, subject: Subject, objects: &ObjectSet) {
        if !objects.is_empty() {
            self.files.entry(subject).or_default().extend(objects);
        }
    }
}

/// A job as its log knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Job {
    /// What it is told apart from other jobs by.
    pub id: Identity,
    /// The size of its objects.
    pub object: ObjectSize,
}

/// A file under way: objects count for this version of it, in this sink file, and for no other.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subject {
    /// Where it goes, beneath the job's destination.
    pub path: RelPath,
    /// What is copied.
    pub source: SourceVersion,
    /// The file that is written into: on a Linux file system made of device, inode and birth.
    pub sink: Identity,
}

impl Subject {
    /// How it is cut into objects.
    pub fn geometry(&self, job: &Job) -> Geometry {
        Geometry::new(ByteLen(self.source.size), job.object)
    }
}

/// A version of a source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceVersion {
    /// Its length in bytes.
    pub size: u64,
    /// Its modification time.
    pub mtime: Moment,
    /// What else it is told apart by: device, inode and ctime, or what a peer says in their place.
    pub identity: Identity,
}

/// 128 bits that stand for what something is told apart by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity(pub [u8; 16]);

impl Identity {
    /// The first 16 bytes of the BLAKE3 of some bytes.
    pub fn of(bytes: &[u8]) -> Identity {
        let mut identity = [0; 16];
        let digest = digest(Algorithm::Blake3, bytes);
        identity.iter_mut().zip(digest.as_bytes()).for_each(|(to, from)| *to = *from);
        Identity(identity)
    }

    /// In 32 hexadecimal digits.
    pub fn to_hex(self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// What [`to_hex`](Identity::to_hex) wrote.
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
