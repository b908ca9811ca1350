//! What a line says, whoever wrote it.

use crate::{Algorithm, Digest, DigestError};
use haul_model::ByteRange;
use std::fmt;
use thiserror::Error;

/// What a line turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Checksums of a file.
    Claim(Claim),
    /// Nothing to check: empty, a remark, a header.
    Remark,
    /// A checksum that is not computed here.
    Foreign(Foreign),
    /// A checksum of another kind than the ones asked for.
    Excluded,
    /// None of these.
    Malformed(Flaw),
}

/// What one line claims of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The file's name: any bytes but NUL, never empty.
    pub name: Vec<u8>,
    /// The form of the line.
    pub dialect: Dialect,
    /// The checksums, all of which must hold. Never empty.
    pub stated: Vec<Stated>,
    /// How many bytes were hashed, where the line tells it.
    pub size: Option<u64>,
    /// What of the file the checksums are about.
    pub span: Span,
}

/// One checksum of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stated {
    /// What it may mean, the likeliest first; one that holds is enough. Never empty.
    pub meanings: Vec<Meaning>,
}

/// One way to understand a checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The digest; of a tree's parts one each. Never empty, and all of one algorithm.
    pub digests: Vec<Digest>,
    /// The file's size as `sum` and `cksum` tell it beside the value.
    pub blocks: Option<Blocks>,
}

impl Meaning {
    /// A digest and nothing else.
    pub fn of(digest: Digest) -> Meaning {
        Meaning { digests: vec![digest], blocks: None }
    }

    /// The algorithm it is about.
    pub fn algorithm(&self) -> Algorithm {
        self.digests[0].algorithm()
    }
}

/// A size counted in blocks, the last of which may be cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// How many there are.
    pub count: u64,
    /// Bytes in each: 1, 512 or 1024.
    pub unit: u64,
}

impl Blocks {
    /// Whether a file of so many bytes has that many blocks.
    pub fn fit(self, bytes: u64) -> bool {
        bytes.div_ceil(self.unit) == self.count
    }
}

/// What of a file a checksum is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The plain digest of all of it.
    File,
    /// The root of a hash tree, or of each part of it, over this range (over all where there is none); or, for a
    /// range, its plain digest.
    Tree(Option<ByteRange>),
}

/// A line whose checksum is not computed here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// What the list calls it.
    pub algorithm: String,
    /// The file.
    pub name: Vec<u8>,
}

/// Why a line is no checksum.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Flaw {
    /// Nothing in it reads as one.
    #[error("no checksum in it")]
    NoChecksum,
    /// There is one, and no file's name.
    #[error("no file name in it")]
    NoName,
    /// The tag or the column says what it is, and it is not of that kind.
    #[error("{0}")]
    Digest(#[from] DigestError),
    /// A backslash with something else than a backslash, `n` or `r` behind it.
    #[error("a backslash in the name escapes nothing known")]
    Escape,
    /// No file's name holds this byte.
    #[error("a NUL byte in it")]
    Nul,
    /// Not of the form `START-END`.
    #[error("the range is not of the form START-END")]
    Range,
    /// A bag's manifest speaks of files in the bag only (RFC 8493, section 5.3).
    #[error("the path leads out of the bag")]
    OutsideBag,
    /// A list on the standard input speaks of the standard input.
    #[error("a list that is read from the standard input can't be about it")]
    OwnSource,
    /// Longer than any name and digest can be.
    #[error("the line is too long")]
    TooLong,
    /// A JSON object without what `haul sum --json` writes.
    #[error("no record of a checksum: {0}")]
    Record(String),
}

/// The form of a line, which tells whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// `HEX  NAME` and `HEX *NAME`: md5sum and its relatives, b3sum, xxhsum, rclone, md5deep.
    Plain,
    /// The same in base64: `rclone hashsum --base64`, `cksum --base64 --untagged`.
    Base64,
    /// `HEX NAME`: xrdadler32, xrdcrc32c, BSD's `md5 -r`.
    OneBlank,
    /// `TAG (NAME) = HEX`: BSD, `--tag`, openssl.
    Tagged,
    /// `XXH3_HEX  NAME` and `XXH64_LE (NAME) = HEX`, which only xxhsum writes.
    Xxhsum,
    /// `VALUE SIZE NAME` in decimal: cksum.
    Cksum,
    /// `VALUE BLOCKS NAME` in decimal: sum.
    Sum,
    /// `path=NAME size=N time=T TYPE=HEX`: eos-checksum.
    Eos,
    /// `TYPE: HEX NAME SIZE`: xrdcp --cksum TYPE:print.
    Xrdcp,
    /// Columns of hashdeep.
    Hashdeep,
    /// `SIZE  HEX  NAME`: md5deep -z.
    Md5deep,
    /// `#mutil#RANGE#HEX...  NAME`: msum.
    Mutil,
    /// `NAME CRC32`: simple file verification.
    Sfv,
    /// A manifest of BagIt.
    BagIt,
    /// A record of `haul sum --json`.
    Json,
}

impl Dialect {
    /// A word for it, for programs.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Plain => "plain",
            Dialect::Base64 => "base64",
            Dialect::OneBlank => "one-blank",
            Dialect::Tagged => "tagged",
            Dialect::Xxhsum => "xxhsum",
            Dialect::Cksum => "cksum",
            Dialect::Sum => "sum",
            Dialect::Eos => "eos",
            Dialect::Xrdcp => "xrdcp",
            Dialect::Hashdeep => "hashdeep",
            Dialect::Md5deep => "md5deep",
            Dialect::Mutil => "mutil",
            Dialect::Sfv => "sfv",
            Dialect::BagIt => "bagit",
            Dialect::Json => "json",
        }
    }
}

impl fmt::Display for Dialect {
    /// What a reader of messages knows it by.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Dialect::Plain => "plain lines as md5sum, b3sum and rclone write them",
            Dialect::Base64 => "base64 lines as rclone and cksum write them",
            Dialect::OneBlank => "one-blank lines as XRootD writes them",
            Dialect::Tagged => "BSD tags",
            Dialect::Xxhsum => "xxhsum's own lines",
            Dialect::Cksum => "cksum's lines",
            Dialect::Sum => "sum's lines",
            Dialect::Eos => "eos-checksum's lines",
            Dialect::Xrdcp => "xrdcp's lines",
            Dialect::Hashdeep => "hashdeep columns",
            Dialect::Md5deep => "md5deep's lines with sizes",
            Dialect::Mutil => "mutil's lines",
            Dialect::Sfv => "SFV",
            Dialect::BagIt => "a BagIt manifest",
            Dialect::Json => "haul's JSON",
        })
    }
}
