//! Contents of a line in any format.

use crate::{Algorithm, Digest, DigestError};
use haul_model::ByteRange;
use std::fmt;
use thiserror::Error;

/// Result of reading a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// Checksums of a file.
    Claim(Claim),
    /// Nothing to check: an empty line, a comment, a header.
    Remark,
    /// A checksum that this crate does not compute.
    Foreign(Foreign),
    /// A checksum of an algorithm that was not requested.
    Excluded,
    /// None of these.
    Malformed(Flaw),
}

/// Checksums that one line states for one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Name of the file: any bytes except NUL, never empty.
    pub name: Vec<u8>,
    /// Format of the line.
    pub dialect: Dialect,
    /// The checksums, all of which must match. Never empty.
    pub stated: Vec<StatedChecksum>,
    /// Number of hashed bytes, if the line contains it.
    pub size: Option<u64>,
    /// Range of the file that the checksums cover.
    pub span: Span,
}

/// One checksum of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatedChecksum {
    /// Possible meanings, the likeliest first; one of them must match. Never empty.
    pub meanings: Vec<Interpretation>,
}

/// One interpretation of a checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interpretation {
    /// The digest, or one digest for each part of a tree. Never empty, and all of one algorithm.
    pub digests: Vec<Digest>,
    /// Size of the file as `sum` and `cksum` print it next to the value.
    pub blocks: Option<Blocks>,
}

impl Interpretation {
    /// Returns a meaning with only a digest.
    pub fn of(digest: Digest) -> Interpretation {
        Interpretation { digests: vec![digest], blocks: None }
    }

    /// Returns the algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.digests[0].algorithm()
    }
}

/// A size in blocks; the last block may be short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// Number of blocks.
    pub count: u64,
    /// Size of a block in bytes: 1, 512 or 1024.
    pub unit: u64,
}

impl Blocks {
    /// Returns true if a file of `bytes` bytes has this number of blocks.
    pub fn fit(self, bytes: u64) -> bool {
        bytes.div_ceil(self.unit) == self.count
    }
}

/// Range of a file that a checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// The plain digest of the complete file.
    File,
    /// The root of a hash tree, or of each part of it, over this range (over the complete file if
    /// there is none). For a range it can also be the plain digest of the range.
    Tree(Option<ByteRange>),
}

/// A line whose checksum this crate does not compute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign {
    /// Name of the algorithm in the list.
    pub algorithm: String,
    /// Name of the file.
    pub name: Vec<u8>,
}

/// Reason why a line is not a checksum.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Flaw {
    /// The line contains no checksum.
    #[error("no checksum")]
    NoChecksum,
    /// The line looks like a checksum, but cannot be read.
    #[error("the checksum is damaged")]
    Damaged,
    /// The line contains a checksum, but no file name.
    #[error("no file name")]
    NoName,
    /// The checksum does not match the algorithm in the tag or the column.
    #[error("{0}")]
    Digest(#[from] DigestError),
    /// A backslash is not followed by a backslash, `n` or `r`.
    #[error("unknown escape sequence in the name")]
    Escape,
    /// The line contains a NUL byte, which no file name does.
    #[error("NUL byte in the line")]
    Nul,
    /// The range does not have the form `START-END`.
    #[error("the range is not of the form START-END")]
    Range,
    /// The path leads out of the bag; a manifest lists only files in the bag (RFC 8493, section
    /// 5.3).
    #[error("the path leads out of the bag")]
    OutsideBag,
    /// A list on standard input contains standard input itself.
    #[error("a list on standard input cannot name standard input")]
    OwnSource,
    /// The line is longer than any name and digest.
    #[error("the line is too long")]
    TooLong,
    /// A JSON object is not a record of `haul sum --json`.
    #[error("not a checksum record: {0}")]
    Record(String),
}

impl Flaw {
    /// Returns true if the line looks like an entry of the list: the file that it names is not
    /// checked.
    pub fn is_of_an_entry(&self) -> bool {
        !matches!(self, Flaw::NoChecksum | Flaw::OwnSource)
    }
}

/// Format of a line, which indicates the tool that wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Dialect {
    /// `HEX  NAME` and `HEX *NAME`: md5sum and similar tools, b3sum, xxhsum, rclone, md5deep.
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
    /// Returns the name of the format, for programs.
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
    /// Writes the name of the format, for human readers.
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
