//! Requests and reports of a session to the page.

use haul_digest::Digest;
use haul_model::{Level, Moment};
use haul_proto::{Outcome, PeerText, Summary};

/// Request or report of a session. The page takes all of them after each call.
///
/// Files have the numbers of the session; sizes and offsets are in bytes and below 2^53.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// The server accepted the job.
    Started {
        /// True if an earlier run of the job left data at the server.
        resumes: bool,
    },
    /// The session is over. Some output may remain to be sent.
    Ended {
        /// Cause of a session that ended before its work was done.
        broken: Option<String>,
        /// Totals of the session.
        summary: Summary,
    },
    /// Upload: read this range into the buffer of the request and report `read_done` or
    /// `read_failed`.
    Read {
        /// Number of the request.
        request: u32,
        /// File.
        file: u64,
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        len: usize,
    },
    /// Upload: report size and time of the file as they are now by `checked`.
    Check {
        /// Number of the request.
        request: u32,
        /// File.
        file: u64,
    },
    /// Upload: objects reached a level at the server.
    Synced {
        /// File.
        file: u64,
        /// Level.
        level: Level,
        /// Number of objects.
        objects: u64,
    },
    /// Upload: the server has these objects of an earlier run.
    Present {
        /// File.
        file: u64,
        /// Number of objects.
        objects: u64,
    },
    /// Upload: an object of a file of several objects has this digest. The server has or accepts no
    /// other bytes.
    Hashed {
        /// File.
        file: u64,
        /// Index of the object.
        object: u64,
        /// Chaining value of its BLAKE3 subtree.
        digest: Digest,
    },
    /// Upload: result of a file.
    FileDone {
        /// File.
        file: u64,
        /// Result.
        outcome: Outcome,
        /// True if the file failed in the browser and not at the server.
        here: bool,
        /// BLAKE3 of the file, if every object was hashed in this session.
        digest: Option<Digest>,
    },
    /// Download: create a directory and report `finished`.
    Directory {
        /// Number of the entry.
        file: u64,
        /// Path beneath the folder that the user chose.
        path: String,
    },
    /// Download: a file starts. Its writes follow, and then [`Event::Finish`] or
    /// [`Event::Abandon`].
    Open {
        /// File.
        file: u64,
        /// Path beneath the folder that the user chose.
        path: String,
        /// Size.
        size: u64,
        /// Modification time at the server.
        mtime: Moment,
        /// Identifier of this version of a file of several objects; zeros if it has none.
        version: [u8; 16],
        /// Number of objects that the page has. If it is 0, older data of the file must go.
        have: u64,
    },
    /// Download: the page has this file already.
    Same {
        /// File.
        file: u64,
        /// Path.
        path: String,
    },
    /// Download: write bytes of the last input and report `written`. The bytes are valid until the
    /// next input.
    Write {
        /// Number of the request.
        request: u32,
        /// File.
        file: u64,
        /// Offset in the file.
        offset: u64,
        /// Position of the bytes in the last input.
        at: usize,
        /// Number of bytes.
        len: usize,
    },
    /// Download: write zeros and report `written`.
    Zeros {
        /// Number of the request.
        request: u32,
        /// File.
        file: u64,
        /// Offset in the file.
        offset: u64,
        /// Number of bytes.
        len: u64,
    },
    /// Download: make all written bytes of the file durable and report `synced`.
    Sync {
        /// File.
        file: u64,
    },
    /// Download: an object of a file of several objects has the digest that the server stated, and
    /// [`Event::Sync`] covered it. A later run of the job need not transfer it.
    Verified {
        /// File.
        file: u64,
        /// Index of the object.
        object: u64,
        /// Chaining value of its BLAKE3 subtree.
        digest: Digest,
    },
    /// The file starts again from its first byte. Nothing logged about it counts.
    Restart {
        /// File.
        file: u64,
    },
    /// Download: every byte is verified and written. Give the file its size and its final name, and
    /// report `finished`.
    Finish {
        /// File.
        file: u64,
        /// Size.
        size: u64,
        /// Modification time at the server.
        mtime: Moment,
        /// BLAKE3 of the file, if the digests of all its objects are known.
        digest: Option<Digest>,
    },
    /// A file or an entry failed; the session continues.
    Failed {
        /// File, if it has a number in this session.
        file: Option<u64>,
        /// Message for the user.
        text: String,
    },
    /// Download: the file ended without being finished. Close it and keep what is logged.
    Abandon {
        /// File.
        file: u64,
    },
}

/// Number of numbers in a [`Record`].
pub const RECORD_NUMBERS: usize = 8;

/// An event as JavaScript reads it: a kind, numbers, and a text. The numbers have the order of the
/// fields of the event.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    /// Kind of the event; 0 for none. `js/core.js` has the same list.
    pub kind: u32,
    /// Numbers of the event.
    pub numbers: [f64; RECORD_NUMBERS],
    /// Text of the event. For [`Event::Open`] it is the version in 32 hexadecimal digits, and then
    /// the path. A digest has 64 hexadecimal digits.
    pub text: String,
}

impl Event {
    /// Returns the event in the form that JavaScript reads.
    pub fn record(&self) -> Record {
        match self {
            Event::Started { resumes } => of(1, &[flag(*resumes)], ""),
            Event::Ended { broken, summary } => {
                let Summary { done, same, failed, unread, bytes, again, .. } = *summary;
                let counts = [done, same, failed, unread, bytes, again].map(number);
                let [done, same, failed, unread, bytes, again] = counts;
                let numbers = [flag(broken.is_none()), done, same, failed, unread, bytes, again];
                of(2, &numbers, broken.as_deref().unwrap_or_default())
            }
            Event::Read { request, file, offset, len } => {
                of(3, &[f64::from(*request), number(*file), number(*offset), *len as f64], "")
            }
            Event::Check { request, file } => of(4, &[f64::from(*request), number(*file)], ""),
            Event::Synced { file, level, objects } => {
                of(5, &[number(*file), f64::from(level_code(*level)), number(*objects)], "")
            }
            Event::FileDone { file, outcome, here, digest } => {
                let (code, level, text) = match outcome {
                    Outcome::Done(level) => (1.0, level_code(*level), hex_of(digest.as_ref())),
                    Outcome::Same => (2.0, 0, String::new()),
                    Outcome::DryRun => (3.0, 0, String::new()),
                    Outcome::Failed(reason) => (4.0, 0, reason.to_string()),
                };
                of(6, &[number(*file), code, f64::from(level), flag(*here)], &text)
            }
            Event::Directory { file, path } => of(7, &[number(*file)], path),
            Event::Open { file, path, size, mtime, version, have } => {
                let numbers = [number(*file), number(*size), milliseconds(*mtime), number(*have)];
                of(8, &numbers, &(hex(version) + path))
            }
            Event::Write { request, file, offset, at, len } => {
                let numbers = [f64::from(*request), number(*file), number(*offset), *at as f64, *len as f64];
                of(9, &numbers, "")
            }
            Event::Zeros { request, file, offset, len } => {
                of(10, &[f64::from(*request), number(*file), number(*offset), number(*len)], "")
            }
            Event::Sync { file } => of(11, &[number(*file)], ""),
            Event::Verified { file, object, digest } => {
                of(12, &[number(*file), number(*object)], &hex_of(Some(digest)))
            }
            Event::Restart { file } => of(13, &[number(*file)], ""),
            Event::Finish { file, size, mtime, digest } => {
                let numbers = [number(*file), number(*size), milliseconds(*mtime)];
                of(14, &numbers, &hex_of(digest.as_ref()))
            }
            Event::Failed { file, text } => of(15, &[file.map_or(-1.0, number)], text),
            Event::Abandon { file } => of(16, &[number(*file)], ""),
            Event::Same { file, path } => of(17, &[number(*file)], path),
            Event::Present { file, objects } => of(18, &[number(*file), number(*objects)], ""),
            Event::Hashed { file, object, digest } => {
                of(19, &[number(*file), number(*object)], &hex_of(Some(digest)))
            }
        }
    }
}

fn of(kind: u32, numbers: &[f64], text: &str) -> Record {
    let mut record = Record { kind, numbers: [0.0; RECORD_NUMBERS], text: text.to_owned() };
    record.numbers[..numbers.len()].copy_from_slice(numbers);
    record
}

/// Largest number up to which all integers are exact in JavaScript.
pub const NUMBER_MAX: u64 = (1 << 53) - 1;

/// Converts a count. The session refuses files whose sizes JavaScript cannot represent; a larger
/// total loses its last digits.
fn number(value: u64) -> f64 {
    value as f64
}

fn flag(value: bool) -> f64 {
    f64::from(u8::from(value))
}

/// Returns the code of a level on the wire and in JavaScript.
pub(crate) fn level_code(level: Level) -> u8 {
    match level {
        Level::Received => 1,
        Level::Verified => 2,
        Level::Durable => 3,
        Level::Reread => 4,
    }
}

/// Returns the level of a code. Unknown codes are the lowest level.
pub(crate) fn level_of(code: u32) -> Level {
    match code {
        2 => Level::Verified,
        3 => Level::Durable,
        4 => Level::Reread,
        _ => Level::Received,
    }
}

/// Converts a moment to milliseconds since 1970, as JavaScript counts.
pub fn milliseconds(moment: Moment) -> f64 {
    moment.sec as f64 * 1e3 + f64::from(moment.nsec) / 1e6
}

/// Converts milliseconds since 1970 to a moment. A number that is no time becomes 1970.
pub fn moment(milliseconds: f64) -> Moment {
    // 8.64e15 ms is the last time of JavaScript.
    if !(-8.64e15..=8.64e15).contains(&milliseconds) {
        return Moment::default();
    }
    let sec = (milliseconds / 1e3).floor();
    let nsec = ((milliseconds - sec * 1e3) * 1e6).clamp(0.0, 999_999_999.0);
    Moment { sec: sec as i64, nsec: nsec as u32 }
}

/// Returns the bytes in hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect()
}

fn hex_of(digest: Option<&Digest>) -> String {
    digest.map_or(String::new(), |digest| hex(digest.as_bytes()))
}

/// Returns a path of a peer in the form in which messages show it: without control characters.
pub(crate) fn shown(path: &[u8]) -> String {
    match std::str::from_utf8(path) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => PeerText::new(&String::from_utf8_lossy(path)).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_whole_milliseconds_round_trip() {
        for ms in [0.0, 1.0, -1.0, 1_763_721_805_123.0, -62_135_596_800_000.0] {
            assert_eq!(milliseconds(moment(ms)), ms);
        }
        assert_eq!(moment(f64::NAN), Moment::default());
        assert_eq!(moment(-500.0), Moment { sec: -1, nsec: 500_000_000 });
    }

    #[test]
    fn shown_paths_have_no_control_characters() {
        assert_eq!(shown("<b>ä</b> x".as_bytes()), "<b>ä</b> x");
        assert!(!shown(b"a\x1b[2J\n").chars().any(char::is_control));
        assert!(!shown(b"a\xff\n").chars().any(char::is_control));
    }
}
