//! Header of every log file.
//!
//! ```text
//!  0        8     10     11       12      13  16     24    40    44
//!  +--------+-----+------+--------+-------+---+------+-----+-----+
//!  |hauldone| ver | kind | coding | shift | 0 | life | job | CRC |
//!  +--------+-----+------+--------+-------+---+------+-----+-----+
//!      8       2     1       1        1     3    8     16     4
//! ```

use super::seal::{ChecksumContext, number};
use super::{Encoding, Flaw, Job, VERSION};
use haul_model::ObjectSize;

/// First bytes of every log file.
const MAGIC: [u8; 8] = *b"hauldone";

/// Size of the header of a log file, in bytes.
pub const HEAD_BYTES: usize = 44;

/// Kind of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Log of one file.
    File,
    /// Index of a log of several files.
    Index,
    /// Log of several files.
    Shared,
}

/// Header of a log file. Magic, version and checksum keep their positions in every later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) encoding: Encoding,
    pub(super) log_id: u64,
}

impl Head {
    pub(super) fn encode(self, job: &Job) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([self.kind as u8 + 1, self.encoding.code(), shift(job.object), 0, 0, 0]);
        bytes.extend(self.log_id.to_le_bytes());
        bytes.extend(job.id.0);
        self.seal().close(0, &mut bytes);
        bytes
    }

    /// Decodes the header of a file and checks that it belongs to this job.
    pub(super) fn decode(name: &str, bytes: &[u8], job: &Job) -> Result<Head, Flaw> {
        let (bytes, log_id) = Head::sound(name, bytes)?;
        let name = || name.to_owned();
        if bytes[24..40] != job.id.0 {
            return Err(Flaw::OtherJob { name: name() });
        }
        if bytes[12] != shift(job.object) {
            return Err(Flaw::OtherObjectSize { name: name(), found: bytes[12], asked: shift(job.object) });
        }
        let kind =
            [Kind::File, Kind::Index, Kind::Shared].into_iter().find(|&kind| kind as u8 + 1 == bytes[10]);
        match (kind, Encoding::from_code(bytes[11])) {
            (Some(kind), Some(encoding)) => Ok(Head { kind, encoding, log_id }),
            _ => Err(Flaw::Contradictory { name: name(), at: 10, what: "unknown kind of log" }),
        }
    }

    /// Returns the bytes of the header, of any job, and its log ID. Checks the checksum and that
    /// the version is supported.
    pub(super) fn sound<'b>(name: &str, bytes: &'b [u8]) -> Result<(&'b [u8], u64), Flaw> {
        let name = || name.to_owned();
        let Some(bytes) = bytes.get(..HEAD_BYTES) else {
            return Err(Flaw::Torn { name: name(), at: 0 });
        };
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(Flaw::Torn { name: name(), at: 0 });
        }
        let version = number(&bytes[8..10]) as u16;
        let log_id = number(&bytes[16..24]);
        let is_sound = ChecksumContext { log_id, serial: 0 }.open(0, bytes).is_some();
        if bytes[..8] != MAGIC || !is_sound {
            return Err(Flaw::Damaged { name: name(), at: 0 });
        }
        if version > VERSION {
            return Err(Flaw::Newer { name: name(), version });
        }
        Ok((bytes, log_id))
    }

    /// Returns the seal of checksums that belong to no file.
    pub(super) fn seal(self) -> ChecksumContext {
        ChecksumContext { log_id: self.log_id, serial: 0 }
    }
}

/// Returns the exponent of an object size.
fn shift(size: ObjectSize) -> u8 {
    size.bytes().trailing_zeros() as u8
}
