//! Options of a job, the same on both sides once CONNECT is answered.

use crate::Flaw;
use crate::fields::{Body, Fields};
use haul_digest::{Algebra, Algorithm};
use haul_model::{Level, ObjectSize};

/// Method of comparing received data with sent data (papers: FIVER, section III and Figure 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verify {
    /// No comparison.
    None,
    /// FIVER: both sides hash the data in transit; the digest follows the bytes.
    #[default]
    Stream,
    /// Same as [`Verify::Stream`], and the sink reads the data back from the device.
    Reread,
    /// FIVER-Hybrid: the sink chooses one of the two for each file, by its size and free memory
    /// (section IV B). A file that the sink reads back gets the level re-read, whatever the level
    /// of the job is.
    Hybrid,
    /// A competing method: a file is sent, then both sides read it again and hash it, then the next
    /// file follows.
    Sequential,
    /// A competing method: same as [`Verify::Sequential`], but the next file is sent while one is
    /// hashed.
    FilePipeline,
    /// A competing method: the same with objects (the blocks of the paper) instead of files.
    BlockPipeline,
}

/// Unit that is compared, and sent again if it differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Each object.
    #[default]
    Object,
    /// The complete file.
    File,
}

/// Selection of the source files to send if the sink has an entry of the same name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Update {
    /// All files.
    #[default]
    Always,
    /// Files whose size or time differs.
    SizeTime,
    /// Files whose bytes differ, by the digest of the complete file.
    Digest,
    /// Objects that differ.
    Object,
    /// Files that are newer.
    Newer,
    /// Files that the sink lacks.
    Missing,
}

/// Compression of payloads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Never.
    #[default]
    Off,
    /// If the link is slower than the CPU.
    Auto,
    /// Always, by zstd at this level.
    Zstd(i8),
}

/// Metadata to preserve, as a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keep(pub u32);

impl Keep {
    /// Permission bits.
    pub const MODE: Keep = Keep(1);
    /// Times, in nanoseconds.
    pub const TIMES: Keep = Keep(1 << 1);
    /// Owner and group.
    pub const OWNER: Keep = Keep(1 << 2);
    /// Owner and group by number, even if the sink knows the names.
    pub const NUMERIC: Keep = Keep(1 << 3);
    /// Extended attributes.
    pub const XATTRS: Keep = Keep(1 << 4);
    /// Access control lists.
    pub const ACLS: Keep = Keep(1 << 5);
    /// Symbolic links as links.
    pub const LINKS: Keep = Keep(1 << 6);
    /// Hard links among the files of the job.
    pub const HARD_LINKS: Keep = Keep(1 << 7);
    /// Named pipes, sockets, devices.
    pub const SPECIALS: Keep = Keep(1 << 8);
    /// Holes.
    pub const HOLES: Keep = Keep(1 << 9);
    /// The setuid and setgid bits, which are dropped otherwise.
    pub const SETUID: Keep = Keep(1 << 10);
    /// Digests stored with files: the directory `.haul`, and attributes. The receiver decides.
    pub const STORED_SUMS: Keep = Keep(1 << 11);

    /// Returns the union of both sets.
    pub const fn with(self, other: Keep) -> Keep {
        Keep(self.0 | other.0)
    }

    /// Returns the set without `other`.
    #[must_use]
    pub const fn without(self, other: Keep) -> Keep {
        Keep(self.0 & !other.0)
    }

    /// Returns true if the set contains all of `other`.
    pub const fn has(self, other: Keep) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Options of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOptions {
    /// Size of objects.
    pub object: ObjectSize,
    /// Algorithm of the digests that are compared.
    pub algorithm: Algorithm,
    /// Method of comparison.
    pub verify: Verify,
    /// Unit of comparison.
    pub unit: Unit,
    /// Level that a file must reach before the sink sends FILE_DONE.
    pub settle: Level,
    /// True if a file is sent in order, on one lane at a time. A serial digest of the complete file
    /// requires this.
    pub in_order: bool,
    /// Compression of payloads.
    pub compression: Compression,
    /// Metadata to preserve.
    pub keep: Keep,
    /// Selection of the files to send.
    pub update: Update,
    /// True if files are written directly under their final names.
    pub in_place: bool,
    /// True if the sink deletes names that the source lacks, at the end and only after a walk
    /// without errors.
    pub delete: bool,
    /// True to delete also beneath an operand beneath which the source sends nothing.
    pub delete_all: bool,
    /// Maximum number of names that the sink deletes.
    pub max_delete: u64,
    /// True if nothing is written: the sink only reports what it would do.
    pub dry_run: bool,
    /// Size in bytes of the complete job, for a sink that checks its free space first; 0 if
    /// unknown.
    pub budget: u64,
}

impl Default for JobOptions {
    fn default() -> JobOptions {
        JobOptions {
            object: ObjectSize::DEFAULT,
            algorithm: Algorithm::Blake3,
            verify: Verify::Stream,
            unit: Unit::Object,
            settle: Level::Verified,
            in_order: false,
            compression: Compression::Off,
            keep: Keep::default(),
            update: Update::Always,
            in_place: false,
            delete: false,
            delete_all: false,
            max_delete: u64::MAX,
            dry_run: false,
            budget: 0,
        }
    }
}

const VERIFY: [Verify; 7] = [
    Verify::None,
    Verify::Stream,
    Verify::Reread,
    Verify::Hybrid,
    Verify::Sequential,
    Verify::FilePipeline,
    Verify::BlockPipeline,
];
const UNITS: [Unit; 2] = [Unit::Object, Unit::File];
const UPDATES: [Update; 6] =
    [Update::Always, Update::SizeTime, Update::Digest, Update::Object, Update::Newer, Update::Missing];

impl Verify {
    /// Returns true if digests come from a second read, after the bytes were sent.
    pub fn reads_twice(self) -> bool {
        matches!(self, Verify::Sequential | Verify::FilePipeline | Verify::BlockPipeline)
    }
}

impl JobOptions {
    /// Returns a sentence about options that contradict each other or are impossible.
    pub fn contradiction(&self) -> Option<&'static str> {
        let by_file = self.unit == Unit::File;
        let serial = self.algorithm.algebra() == Algebra::Serial;
        match self.verify {
            Verify::Sequential | Verify::FilePipeline if !by_file => {
                Some("sequential and file-pipeline verification compare whole files")
            }
            Verify::BlockPipeline if by_file => Some("block-pipeline verification compares objects"),
            Verify::Reread | Verify::Hybrid if by_file => Some("verification by read-back compares objects"),
            Verify::None if self.settle == Level::Verified || self.settle == Level::Reread => {
                Some("without verification nothing is verified or re-read")
            }
            Verify::Reread if self.settle != Level::Reread => Some("re-reading settles at the level re-read"),
            Verify::Stream if by_file && serial && !self.in_order => {
                Some("a serial digest of whole files needs them in order")
            }
            _ if self.settle == Level::Reread && !matches!(self.verify, Verify::Reread) => {
                Some("only re-reading settles at the level re-read")
            }
            _ => None,
        }
    }

    pub(super) fn encode(&self, body: &mut Body<'_>) {
        let is_limited = self.max_delete != u64::MAX;
        let flags = [self.in_order, self.in_place, self.delete, self.dry_run, self.delete_all, is_limited];
        let place = |found: Option<usize>| u8::try_from(found.unwrap_or(0)).unwrap_or(0);
        body.u64(self.object.bytes());
        body.u64(self.budget);
        body.u32(self.keep.0);
        body.algorithm(self.algorithm);
        body.u8(place(VERIFY.iter().position(|verify| *verify == self.verify)));
        body.u8(place(UNITS.iter().position(|unit| *unit == self.unit)));
        body.level(self.settle);
        body.u8(place(UPDATES.iter().position(|update| *update == self.update)));
        let (how, level) = match self.compression {
            Compression::Off => (0, 0),
            Compression::Auto => (1, 0),
            Compression::Zstd(level) => (2, level.cast_unsigned()),
        };
        body.u8(how);
        body.u8(level);
        body.u8(flags.iter().enumerate().fold(0, |all, (bit, set)| all | u8::from(*set) << bit));
        if is_limited {
            body.u64(self.max_delete);
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<JobOptions, Flaw> {
        let object = ObjectSize::new(fields.u64("object size")?).map_err(|_| Flaw::Value("object size"))?;
        let budget = fields.u64("budget")?;
        let keep = Keep(fields.u32("kept things")?);
        let algorithm = fields.algorithm("digest algorithm")?;
        let verify = one_of(&VERIFY, fields.u8("verification")?, "verification")?;
        let unit = one_of(&UNITS, fields.u8("unit")?, "unit")?;
        let settle = fields.level("level")?;
        let update = one_of(&UPDATES, fields.u8("update rule")?, "update rule")?;
        let compression = match (fields.u8("compression")?, fields.u8("compression level")?) {
            (0, _) => Compression::Off,
            (1, _) => Compression::Auto,
            (2, level) => Compression::Zstd(level.cast_signed()),
            _ => return Err(Flaw::Value("compression")),
        };
        let flags = fields.u8("flags")?;
        let has = |bit: u8| flags & 1 << bit != 0;
        let max_delete = match has(5) {
            true => fields.u64("number of deletions")?,
            false => u64::MAX,
        };
        Ok(JobOptions {
            object,
            algorithm,
            verify,
            unit,
            settle,
            in_order: has(0),
            compression,
            keep,
            update,
            in_place: has(1),
            delete: has(2),
            delete_all: has(4),
            max_delete,
            dry_run: has(3),
            budget,
        })
    }
}

pub(super) fn one_of<T: Copy>(all: &[T], code: u8, what: &'static str) -> Result<T, Flaw> {
    all.get(usize::from(code)).copied().ok_or(Flaw::Value(what))
}
