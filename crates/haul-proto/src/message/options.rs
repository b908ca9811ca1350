//! What a job asks for, the same on both sides once CONNECT is answered.

use crate::Flaw;
use crate::fields::{Body, Fields};
use haul_digest::{Algebra, Algorithm};
use haul_model::{Level, ObjectSize};

/// How what arrived is compared with what was sent (papers: FIVER, section III and Figure 2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Verify {
    /// Not at all.
    None,
    /// FIVER: both sides hash what passes; the digest travels behind the bytes.
    #[default]
    Stream,
    /// As [`Verify::Stream`], and the sink reads back from the device.
    Reread,
    /// FIVER-Hybrid: the sink chooses between the two for each file, by its size and free memory (section IV B). A file
    /// that it reads back ends at the level re-read, whatever the job's level is.
    Hybrid,
    /// A rival: a file is sent, then both sides read it again and hash, then the next file.
    Sequential,
    /// A rival: as [`Verify::Sequential`], but the next file is sent while one is hashed.
    FilePipeline,
    /// A rival: the same with objects (the paper's blocks) instead of files.
    BlockPipeline,
}

/// What is compared, and sent again if it differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Unit {
    /// Each object.
    #[default]
    Object,
    /// The file as a whole.
    File,
}

/// Which files of the source are sent where the sink has something of that name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Update {
    /// All.
    #[default]
    Always,
    /// Those whose size or time differs.
    SizeTime,
    /// Those whose bytes differ, by the digest of the whole.
    Digest,
    /// The objects that differ.
    Object,
    /// Those that are newer.
    Newer,
    /// Those that the sink doesn't have.
    Missing,
}

/// Whether payloads are compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Compression {
    /// Never.
    #[default]
    Off,
    /// Where the link is slower than the processor.
    Auto,
    /// Always, by zstd at this level.
    Zstd(i8),
}

/// What of a file is kept beside its bytes: a set of bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Keep(pub u32);

impl Keep {
    /// Permission bits.
    pub const MODE: Keep = Keep(1);
    /// Times, in nanoseconds.
    pub const TIMES: Keep = Keep(1 << 1);
    /// Owner and group.
    pub const OWNER: Keep = Keep(1 << 2);
    /// Owner and group by number even where the sink knows the names.
    pub const NUMERIC: Keep = Keep(1 << 3);
    /// Extended attributes.
    pub const XATTRS: Keep = Keep(1 << 4);
    /// Access control lists.
    pub const ACLS: Keep = Keep(1 << 5);
    /// Symbolic links as links.
    pub const LINKS: Keep = Keep(1 << 6);
    /// Hard links among the files of the job.
    pub const HARD_LINKS: Keep = Keep(1 << 7);
    /// Pipes, sockets, devices.
    pub const SPECIALS: Keep = Keep(1 << 8);
    /// Holes.
    pub const HOLES: Keep = Keep(1 << 9);
    /// The setuid and setgid bits, which are dropped otherwise.
    pub const SETUID: Keep = Keep(1 << 10);

    /// Both sets.
    pub const fn with(self, other: Keep) -> Keep {
        Keep(self.0 | other.0)
    }

    /// Whether all of `other` is in it.
    pub const fn has(self, other: Keep) -> bool {
        self.0 & other.0 == other.0
    }
}

/// The options of one job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobOptions {
    /// The size of objects.
    pub object: ObjectSize,
    /// The digest they are compared by.
    pub algorithm: Algorithm,
    /// How they are compared.
    pub verify: Verify,
    /// What is compared.
    pub unit: Unit,
    /// What a file must have reached before the sink says FILE_DONE.
    pub settle: Level,
    /// Whether a file goes in order, by one lane at a time: a serial digest of the whole is asked for.
    pub in_order: bool,
    /// Compression of payloads.
    pub compression: Compression,
    /// What is kept.
    pub keep: Keep,
    /// Which files are sent.
    pub update: Update,
    /// Whether files are written under their own names at once.
    pub in_place: bool,
    /// Whether what the source doesn't have is deleted at the sink, in the end and only after a walk without errors.
    pub delete: bool,
    /// Whether nothing is written: the sink only tells what it would do.
    pub dry_run: bool,
    /// Bytes of the whole job, for a sink that looks at its free room first; 0 where nobody knows.
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
    /// Whether digests come from a second read, after the bytes were sent.
    pub fn reads_twice(self) -> bool {
        matches!(self, Verify::Sequential | Verify::FilePipeline | Verify::BlockPipeline)
    }
}

impl JobOptions {
    /// What contradicts itself or can't be done, in a sentence.
    pub fn contradiction(&self) -> Option<&'static str> {
        let by_file = self.unit == Unit::File;
        let serial = self.algorithm.algebra() == Algebra::Serial;
        match self.verify {
            Verify::Sequential | Verify::FilePipeline if !by_file => {
                Some("sequential and file-pipeline verification compare whole files")
            }
            Verify::BlockPipeline if by_file => Some("block-pipeline verification compares objects"),
            Verify::Reread | Verify::Hybrid if by_file => Some("what is read back is compared by objects"),
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
        let flags = [self.in_order, self.in_place, self.delete, self.dry_run];
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
            dry_run: has(3),
            budget,
        })
    }
}

pub(super) fn one_of<T: Copy>(all: &[T], code: u8, what: &'static str) -> Result<T, Flaw> {
    all.get(usize::from(code)).copied().ok_or(Flaw::Value(what))
}
