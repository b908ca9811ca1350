//! Contents of a waybill.

use haul_digest::{Algorithm, Digest};
use haul_model::{ByteLen, ByteRange, Geometry, LeafSize, Level, Moment, ObjectIndex, ObjectSize, RelPath};

/// Command, time and program version of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Command line, for human readers; at most [`super::RUN_BYTES_MAX`] bytes.
    pub run: Vec<u8>,
    /// Program and version, such as `haul 0.1.0`.
    pub program: String,
    /// Start time in seconds since 1970, UTC; written as a date of the years 0000 to 9999.
    pub at: i64,
    /// Directory that paths are relative to, as the user typed it. For human readers: no file is
    /// opened by it.
    pub root: Vec<u8>,
}

/// Head of a section: the part of a waybill that one job writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// Number of the section, counted from 1.
    pub number: u64,
    /// Digest of the previous section, as in its closing line.
    pub after: Option<Digest>,
    /// Job of the section.
    pub job: Job,
}

/// One name in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Path beneath the root.
    pub path: RelPath,
    /// Kind of the entry.
    pub kind: Kind,
    /// Permission bits with setuid, setgid and sticky: 0 to 0o7777.
    pub mode: u32,
    /// Modification time, as stored at the sink.
    pub mtime: Moment,
}

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File(Content),
    /// Another name of a file that the same section lists under `first`.
    Same {
        /// Name that has the metadata of the file.
        first: RelPath,
    },
    /// A directory.
    Directory,
    /// A symbolic link.
    Link {
        /// Target: any bytes except NUL, not empty. It may lead anywhere; haul does not follow it.
        target: Vec<u8>,
    },
    /// A named pipe, a socket or a device.
    Special(Special),
}

/// An entry without contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Special {
    /// A named pipe.
    Fifo,
    /// The name of a socket.
    Socket,
    /// A character device with its device number.
    CharDevice(u64),
    /// A block device with its device number.
    BlockDevice(u64),
}

/// Contents of a regular file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    /// Size in bytes, below 2^63.
    pub size: u64,
    /// Digests of the complete contents, at most one per algorithm.
    pub digests: Vec<Digest>,
    /// Copy method; `None` if the file was hashed in place.
    pub way: Option<CopyMethod>,
    /// Verification level that all bytes reached; `None` if nothing was copied. Ranges with a
    /// higher level follow as [`Proven`].
    pub level: Option<Level>,
    /// Division of the file, if its objects have digests of their own.
    pub objects: Option<Objects>,
}

/// Method by which the bytes of a copy reached its sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CopyMethod {
    /// Read and written by haul.
    ReadWrite,
    /// The file system shares the blocks of the source: no medium holds new data.
    Reflink,
    /// Copied by the server or the kernel on request; the bytes did not pass through haul.
    ServerCopy,
}

/// Division of a file, and the data stored for each object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objects {
    /// Size of every object except the last.
    pub size: ObjectSize,
    /// Algorithms of the digests of each object; at least one.
    pub algorithms: Vec<Algorithm>,
    /// Size of the leaves of an object. The waybill stores their digests by the first algorithm.
    pub leaf: Option<LeafSize>,
}

/// Digests of one object, in the order of [`Objects::algorithms`].
///
/// For BLAKE3 this is the chaining value of the object's subtree, for any other algorithm the
/// digest of its bytes alone (see [`haul_digest::Part::digest`]). A file with only one object has
/// no object digests: the digests of the file are those of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectDigests {
    /// Number of the object.
    pub index: ObjectIndex,
    /// One digest for each algorithm.
    pub digests: Vec<Digest>,
}

/// Digests of consecutive leaves of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafRun {
    /// Number of the object.
    pub object: ObjectIndex,
    /// First leaf, counted from 0 within the object.
    pub first: u64,
    /// Digests, at most [`super::LEAVES_PER_LINE`].
    pub digests: Vec<Digest>,
}

/// A range of a file that reached a higher level than the complete file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Proven {
    /// Range of bytes.
    pub range: ByteRange,
    /// Verification level of the range.
    pub level: Level,
}

/// Closing line of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Number of the section.
    pub section: u64,
    /// Number of entries of the section.
    pub entries: u64,
    /// Number of regular files of the section.
    pub files: u64,
    /// Total size of the regular files; at most 2^64 - 1.
    pub bytes: u64,
    /// Number of lines of the section before the closing line.
    pub lines: u64,
    /// BLAKE3 of those lines, including line ends.
    pub digest: Digest,
}

impl Content {
    /// Returns the division of the file into objects, if it has one.
    pub fn geometry(&self) -> Option<Geometry> {
        self.objects.as_ref().map(|objects| Geometry::new(ByteLen(self.size), objects.size))
    }

    /// Returns the number of object digest lines after the file's line: 0 if the file is a single
    /// object.
    pub fn object_lines(&self) -> u64 {
        self.geometry().map_or(0, |geometry| if geometry.count() > 1 { geometry.count() } else { 0 })
    }

    /// Returns the digest of the file by this algorithm.
    pub fn digest(&self, algorithm: Algorithm) -> Option<Digest> {
        self.digests.iter().copied().find(|digest| digest.algorithm() == algorithm)
    }
}

impl CopyMethod {
    pub(super) const ALL: [CopyMethod; 3] =
        [CopyMethod::ReadWrite, CopyMethod::Reflink, CopyMethod::ServerCopy];

    /// Returns the name of the method in a waybill.
    pub const fn name(self) -> &'static str {
        match self {
            CopyMethod::ReadWrite => "read-write",
            CopyMethod::Reflink => "reflink",
            CopyMethod::ServerCopy => "server-copy",
        }
    }
}

impl Objects {
    /// Returns the number of leaves of an object of `len` bytes; 0 if no leaves are stored.
    pub fn leaves_of(&self, len: u64) -> u64 {
        self.leaf.map_or(0, |leaf| len.div_ceil(leaf.bytes()))
    }

    /// Returns the range of leaf `number` of the object with the range `object`. Returns `None`
    /// after the last leaf, or if no leaves are stored.
    pub fn leaf_range(&self, object: ByteRange, number: u64) -> Option<ByteRange> {
        let leaf = self.leaf?.bytes();
        let start = number.checked_mul(leaf).and_then(|before| object.start.0.checked_add(before))?;
        let end = start.saturating_add(leaf).min(object.end.0);
        (start < end).then(|| ByteRange::between(start, end))
    }
}
