//! The waybill: the receipt of a job, against which its data can be verified years later.
//!
//! A waybill is a text with one record per line. `docs/formats/waybill.md` specifies it for readers
//! without this program.
//!
//! ```text
//!  surehaul-waybill version=1 section=1 at=... program=... run=... root=...  CRC   a section: one job
//!    file path=... size=... mode=... mtime=... object=... of=... blake3=...  CRC     a file
//!      0 BASE64                                                              CRC       its objects, in order
//!      0.0 BASE64 ...                                                        CRC         an object's leaves, if kept
//!      range START-END LEVEL                                                 CRC       ranges proven further
//!    dir path=... mode=... mtime=...                                         CRC     other entries
//!  end section=1 entries=... files=... bytes=... lines=... blake3=...        CRC   all of it
//! ```
//!
//! (The waybill itself has no indentation.) The CRC of a line continues that of the previous line.
//! A reader therefore detects and reports a damaged, lost, added or moved line. The closing line
//! holds totals and a digest of everything before it. If digests of the algorithm can be combined,
//! the digest of a file must match those of its objects. Each additional job appends a section,
//! which contains the digest of the previous one.
//!
//! [`Writer`] and [`Reader`] keep one line and a few checksums in memory, regardless of the number
//! of files and objects.

mod decode;
mod facts;
mod fields;
mod flaw;
mod follow;
mod line;
mod read;
mod tail;
mod time;
mod write;

pub use facts::{
    Content, CopyMethod, End, Entry, Job, Kind, LeafRun, ObjectDigests, Objects, Proven, Section, Special,
};
pub use flaw::{Flaw, FlawKind, ReadError, Refusal};
pub use haul_model::{Moment, PART_BYTES_MAX, PATH_BYTES_MAX, PathError, Percent, RelPath};
pub use line::{LEAVES_PER_LINE, LINE_BYTES_MAX, RUN_BYTES_MAX, VERSION};
pub use read::{MARK_BYTES, Mark, Reader, Record};
pub use tail::{TAIL_BYTES, Tail, TailError, may_append};
pub use time::{date, parse_date};
pub use write::{Checkpoint, WriteError, Writer};
