//! Records of an index. The log of one file has only one record, [`Record::Begin`], after its head.
//!
//! ```text
//!  0   1   2     4        8        16       24       32     40      52       68     84       84+p  88+p
//!  +---+---+-----+--------+--------+--------+--------+------+-------+--------+------+--------+-----+
//!  | 1 | 0 | len | serial | blocks | offset | length | size | mtime | source | sink |  path  | CRC |  a file begins
//!  +---+---+-----+--------+--------+--------+--------+------+-------+--------+------+--------+-----+
//!
//!  0   1   2     4        8        16       24   28
//!  +---+---+-----+--------+--------+--------+-----+
//!  | 2 | 0 | len | serial | offset | length | CRC |  it goes on in one more region
//!  +---+---+-----+--------+--------+--------+-----+
//!
//!  0   1   2     4        8    12
//!  +---+---+-----+--------+-----+
//!  | 3 | 0 | len | serial | CRC |  it has ended
//!  +---+---+-----+--------+-----+
//! ```

use super::seal::{ChecksumContext, number};
use super::{Identity, SourceVersion, Subject};
use haul_model::{Moment, RelPath};

/// Size of a `Begin` record without its path, in bytes.
pub(super) const BEGIN_BYTES: usize = 88;

/// Size of a `More` record in bytes.
const MORE_BYTES: usize = 28;

/// Size of an `End` record in bytes.
const END_BYTES: usize = 12;

/// Offset of the path in a `Begin` record.
const BEFORE_PATH: usize = 84;

/// Range of a log that belongs to one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl Extent {
    pub(super) const fn end(self) -> u64 {
        self.offset.saturating_add(self.length)
    }
}

/// Record of an index.
///
/// A line of an index in the paper holds the name of the log, the name of the file, its blocks,
/// offset and length. Here the name of the index gives the name of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The first object of a file is durable.
    Begin { serial: u32, blocks: u64, extent: Extent, subject: Box<Subject> },
    /// The objects of the file continue in one more region.
    More { serial: u32, extent: Extent },
    /// The file is complete.
    End { serial: u32 },
}

/// Result of decoding at one position of an index.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A record and its length in bytes.
    Record(Record, usize),
    /// Nothing was written here.
    End,
    /// Not a record, or an incomplete one.
    Broken,
    /// A record that no writer creates.
    Absurd(&'static str),
}

impl Record {
    pub(super) fn serial(&self) -> u32 {
        let (Record::Begin { serial, .. } | Record::More { serial, .. } | Record::End { serial }) = self;
        *serial
    }

    /// Appends the record to `out`, whose first byte is at offset `at` of the file.
    pub(super) fn encode(&self, seal: ChecksumContext, at: u64, out: &mut Vec<u8>) {
        let mut bytes = Vec::with_capacity(self.len());
        let tag = match self {
            Record::Begin { .. } => 1_u8,
            Record::More { .. } => 2,
            Record::End { .. } => 3,
        };
        bytes.extend([tag, 0]);
        bytes.extend((self.len() as u16).to_le_bytes());
        bytes.extend(self.serial().to_le_bytes());
        match self {
            Record::Begin { blocks, extent, subject, .. } => {
                let Subject { path, source, sink } = &**subject;
                [*blocks, extent.offset, extent.length, source.size]
                    .iter()
                    .for_each(|n| bytes.extend(n.to_le_bytes()));
                bytes.extend(source.mtime.sec.to_le_bytes());
                bytes.extend(source.mtime.nsec.to_le_bytes());
                bytes.extend(source.identity.0);
                bytes.extend(sink.0);
                bytes.extend(path.as_bytes());
            }
            Record::More { extent, .. } => {
                [extent.offset, extent.length].iter().for_each(|n| bytes.extend(n.to_le_bytes()));
            }
            Record::End { .. } => {}
        }
        seal.close(at + out.len() as u64, &mut bytes);
        out.extend(bytes);
    }

    /// Returns the length of the record in bytes.
    pub(super) fn len(&self) -> usize {
        match self {
            Record::Begin { subject, .. } => BEGIN_BYTES + subject.path.as_bytes().len(),
            Record::More { .. } => MORE_BYTES,
            Record::End { .. } => END_BYTES,
        }
    }

    /// Decodes the record at offset `at` of the bytes of a file.
    pub(super) fn decode(seal: ChecksumContext, at: u64, bytes: &[u8]) -> Step {
        let Some(rest) = usize::try_from(at).ok().and_then(|at| bytes.get(at..)) else { return Step::End };
        if rest.iter().all(|&byte| byte == 0) {
            return Step::End;
        }
        let Some(len) = rest.get(2..4).map(|len| number(len) as usize) else { return Step::Broken };
        let Some(body) = rest.get(..len).and_then(|record| seal.open(at, record)) else {
            return Step::Broken;
        };
        match Record::of(body, len) {
            Ok(record) => Step::Record(record, len),
            Err(what) => Step::Absurd(what),
        }
    }

    /// Decodes a record without its checksum.
    fn of(body: &[u8], len: usize) -> Result<Record, &'static str> {
        const UNKNOWN: &str = "unknown record";
        let long = |at: usize| number(&body[at..at + 8]);
        let extent = |at: usize| Extent { offset: long(at), length: long(at + 8) };
        let serial = body.get(4..8).map(|serial| number(serial) as u32).ok_or(UNKNOWN)?;
        match (body[0], len) {
            (1, BEGIN_BYTES..) => {
                let subject = Box::new(subject(body)?);
                Ok(Record::Begin { serial, blocks: long(8), extent: extent(16), subject })
            }
            (2, MORE_BYTES) => Ok(Record::More { serial, extent: extent(8) }),
            (3, END_BYTES) => Ok(Record::End { serial }),
            _ => Err(UNKNOWN),
        }
    }
}

fn subject(body: &[u8]) -> Result<Subject, &'static str> {
    let identity = |at: usize| {
        let mut identity = [0; 16];
        identity.copy_from_slice(&body[at..at + 16]);
        Identity(identity)
    };
    let mtime = Moment { sec: number(&body[40..48]) as i64, nsec: number(&body[48..52]) as u32 };
    if mtime.nsec >= 1_000_000_000 {
        return Err("nanoseconds out of range");
    }
    let path = RelPath::new(&body[BEFORE_PATH..]).map_err(|_| "a path leads out of the job's destination")?;
    let source = SourceVersion { size: number(&body[32..40]), mtime, identity: identity(52) };
    Ok(Subject { path, source, sink: identity(68) })
}

const _: () = assert!(haul_model::PATH_BYTES_MAX + BEGIN_BYTES <= u16::MAX as usize);
