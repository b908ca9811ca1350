//! The first bytes of every file of a log.
//!
//! ```text
//!  0        8     10     11       12      13  16     24    40    44
//!  +--------+-----+------+--------+-------+---+------+-----+-----+
//!  |hauldone| ver | kind | coding | shift | 0 | life | job | CRC |
//!  +--------+-----+------+--------+-------+---+------+-----+-----+
//!      8       2     1       1        1     3    8     16     4
//! ```

use super::seal::{Seal, number};
use super::{Encoding, Flaw, Job, VERSION};
use haul_model::ObjectSize;

/// What every file of a log begins with.
const MAGIC: [u8; 8] = *b"hauldone";

/// Bytes of a head: of the beginning of each file of a log.
pub const HEAD_BYTES: usize = 44;

/// What a file of a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The log of one file.
    File,
    /// The index of a log of several files.
    Index,
    /// The log of several files.
    Shared,
}

/// The first bytes of a file of a log. Every later version keeps magic, version and checksum where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) kind: Kind,
    pub(super) encoding: Encoding,
    pub(super) life: u64,
}

impl Head {
    pub(super) fn encode(self, job: &Job) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([self.kind as u8 + 1, self.encoding.code(), shift(job.object), 0, 0, 0]);
        bytes.extend(self.life.to_le_bytes());
        bytes.extend(job.id.0);
        self.seal().close(0, &mut bytes);
        bytes
    }

    /// The head at the beginning of a file, if it is one of this job.
    pub(super) fn decode(name: &str, bytes: &[u8], job: &Job) -> Result<Head, Flaw> {
        let (bytes, life) = Head::sound(name, bytes)?;
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
            (Some(kind), Some(encoding)) => Ok(Head { kind, encoding, life }),
            _ => Err(Flaw::Contradictory { name: name(), at: 10, what: "there is no such kind of log" }),
        }
    }

    /// The bytes of the head at the beginning of a file, of whatever job, and its life; if its version is one that is read.
    pub(super) fn sound<'b>(name: &str, bytes: &'b [u8]) -> Result<(&'b [u8], u64), Flaw> {
        let name = || name.to_owned();
        let Some(bytes) = bytes.get(..HEAD_BYTES) else {
            return Err(Flaw::Torn { name: name(), at: 0 });
        };
        if bytes.iter().all(|&byte| byte == 0) {
            return Err(Flaw::Torn { name: name(), at: 0 });
        }
        let version = number(&bytes[8..10]) as u16;
        let life = number(&bytes[16..24]);
        let is_sound = Seal { life, serial: 0 }.open(0, bytes).is_some();
        if bytes[..8] != MAGIC || !is_sound {
            return Err(Flaw::Damaged { name: name(), at: 0 });
        }
        if version > VERSION {
            return Err(Flaw::Newer { name: name(), version });
        }
        Ok((bytes, life))
    }

    /// What binds checksums that belong to no file.
    pub(super) fn seal(self) -> Seal {
        Seal { life: self.life, serial: 0 }
    }
}

/// The exponent of a size of objects.
fn shift(size: ObjectSize) -> u8 {
    size.bytes().trailing_zeros() as u8
}
