//! The facts a waybill holds.

use haul_digest::{Algorithm, Digest};
use haul_model::{ByteLen, ByteRange, Geometry, LeafSize, Level, Moment, ObjectIndex, ObjectSize, RelPath};

/// What was run, when, and by which version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// The command line, for people; at most [`super::RUN_BYTES_MAX`] bytes.
    pub run: Vec<u8>,
    /// Program and version, such as `haul 0.1.0`.
    pub program: String,
    /// When it began, in seconds since 1970, UTC; written as a date of the years 0000 to 9999.
    pub at: i64,
    /// The directory that paths are relative to, as it was typed. For people: nothing is opened by it.
    pub root: Vec<u8>,
}

/// The head of a section: one job's part of a waybill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Counted from 1.
    pub number: u64,
    /// The digest of the section before, as its closing line states it.
    pub after: Option<Digest>,
    /// The job.
    pub job: Job,
}

/// One name in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Where it stands beneath the root.
    pub path: RelPath,
    /// What it is.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: 0 to 0o7777.
    pub mode: u32,
    /// When its bytes were last changed, as the sink keeps it.
    pub mtime: Moment,
}

/// What sort of thing a name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File(Content),
    /// A further name of a file that stands in the same section under `first`.
    Same {
        /// The name that holds the facts.
        first: RelPath,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// What it holds: any bytes but NUL, not empty. It may lead anywhere; nothing follows it.
        target: Vec<u8>,
    },
    /// A named pipe, a socket or a device.
    Special(Special),
}

/// What has a name and no bytes of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
    /// A character device, with its number as the system counts it.
    CharDevice(u64),
    /// A block device.
    BlockDevice(u64),
}

/// The bytes of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// How many, below 2^63.
    pub size: u64,
    /// The digests of all of them, at most one of each algorithm.
    pub digests: Vec<Digest>,
    /// How the bytes came here; `None` where they were hashed in place.
    pub way: Option<Way>,
    /// The level of proof that all of the bytes reached; `None` where nothing was moved. Ranges that reached more
    /// follow as [`Proven`].
    pub level: Option<Level>,
    /// How the file is cut, where objects have digests of their own.
    pub objects: Option<Objects>,
}

/// How the bytes of a copy reached its sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// They were read and written.
    ReadWrite,
    /// The file system shares the source's blocks: nothing new lies on any medium.
    Reflink,
    /// The server, or the kernel, was asked to copy; they never passed this program.
    ServerCopy,
}

/// The cut of a file, and what is kept of each object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    /// The size of all objects but the last.
    pub size: ObjectSize,
    /// Which digests each object has; at least one.
    pub algorithms: Vec<Algorithm>,
    /// The size of an object's leaves, of which digests by the first of the algorithms are kept.
    pub leaf: Option<LeafSize>,
}

/// The digests of one object, in the order of [`Objects::algorithms`]: of a BLAKE3 object the chaining value of its
/// subtree, of any other the digest of its bytes alone (see [`haul_digest::Part::digest`]). A file of one object has
/// none of these: the file's digests are the object's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDigests {
    /// Which object.
    pub index: ObjectIndex,
    /// One digest for each algorithm.
    pub digests: Vec<Digest>,
}

/// Digests of some leaves of one object, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafRun {
    /// Which object.
    pub object: ObjectIndex,
    /// The first leaf, counted from 0 within the object.
    pub first: u64,
    /// At most [`super::LEAVES_PER_LINE`].
    pub digests: Vec<Digest>,
}

/// A range of a file that reached a higher level than the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proven {
    /// The bytes.
    pub range: ByteRange,
    /// Their level.
    pub level: Level,
}

/// The closing line of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The section's number.
    pub section: u64,
    /// How many entries it has.
    pub entries: u64,
    /// How many of them are regular files.
    pub files: u64,
    /// The sizes of those, added up; at most 2^64 - 1.
    pub bytes: u64,
    /// How many lines stand before this one in the section.
    pub lines: u64,
    /// BLAKE3 of those lines, line ends and all.
    pub digest: Digest,
}

impl Content {
    /// The cut of the file, where it has one.
    pub fn geometry(&self) -> Option<Geometry> {
        self.objects.as_ref().map(|objects| Geometry::new(ByteLen(self.size), objects.size))
    }

    /// How many lines of object digests follow the file's: none where the file is one object.
    pub fn object_lines(&self) -> u64 {
        self.geometry().map_or(0, |geometry| if geometry.count() > 1 { geometry.count() } else { 0 })
    }

    /// The file's digest by this algorithm.
    pub fn digest(&self, algorithm: Algorithm) -> Option<Digest> {
        self.digests.iter().copied().find(|digest| digest.algorithm() == algorithm)
    }
}

impl Way {
    pub(super) const ALL: [Way; 3] = [Way::ReadWrite, Way::Reflink, Way::ServerCopy];

    /// Its word in a waybill.
    pub const fn name(self) -> &'static str {
        match self {
            Way::ReadWrite => "read-write",
            Way::Reflink => "reflink",
            Way::ServerCopy => "server-copy",
        }
    }
}

impl Objects {
    /// How many leaves an object of `len` bytes has; 0 where none are kept.
    pub fn leaves_of(&self, len: u64) -> u64 {
        self.leaf.map_or(0, |leaf| len.div_ceil(leaf.bytes()))
    }

    /// The bytes of leaf `number` of the object that lies at `object`; `None` past its last, or without leaves.
    pub fn leaf_range(&self, object: ByteRange, number: u64) -> Option<ByteRange> {
        let leaf = self.leaf?.bytes();
        let start = number.checked_mul(leaf).and_then(|before| object.start.0.checked_add(before))?;
        let end = start.saturating_add(leaf).min(object.end.0);
        (start < end).then(|| ByteRange::between(start, end))
    }
}
