//! The waybill: the receipt of a job, and what its data is verified against years later.
//!
//! A text of one record a line. `docs/formats/waybill.md` draws it for who reads one without this program.
//!
//! ```text
//!  surehaul-waybill version=1 section=1 at=... program=... run=... root=...  CRC   a section: one job
//!    file path=... size=... mode=... mtime=... object=... of=... blake3=...  CRC     a file
//!      0 BASE64                                                              CRC       its objects, in order
//!      0.0 BASE64 ...                                                        CRC         an object's leaves, if kept
//!      range START-END LEVEL                                                 CRC       ranges proven further
//!    dir path=... mode=... mtime=...                                         CRC     other entries
//!  end section=1 entries=... files=... bytes=... lines=... blake3=...        CRC   all of it once more
//! ```
//!
//! (The indents are the drawing's.) The CRC of a line goes on from the line before, so that a damaged, lost, added or
//! moved line is found and named; the closing line holds totals and a digest of all that stands before it; and where
//! the algebra of a digest allows, a file's digest must follow from its objects'. A further job appends a section,
//! bound to the one before by that one's digest.
//!
//! [`Writer`] and [`Reader`] keep one line and a few sums in memory, whatever the number of files and objects.

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
    Content, End, Entry, Job, Kind, LeafRun, ObjectDigests, Objects, Proven, Section, Special, Way,
};
pub use flaw::{Flaw, FlawKind, ReadError, Refusal};
pub use haul_model::{Moment, PART_BYTES_MAX, PATH_BYTES_MAX, PathFault, Percent, RelPath};
pub use line::{LEAVES_PER_LINE, LINE_BYTES_MAX, RUN_BYTES_MAX, VERSION};
pub use read::{Mark, Reader, Record};
pub use tail::{TAIL_BYTES, Tail, TailError, may_append};
pub use time::{date, parse_date};
pub use write::{WriteError, Writer};
