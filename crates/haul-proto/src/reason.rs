//! Reason for a refusal or a failure, as one peer reports it to the other.

use crate::Flaw;
use crate::fields::{Body, Fields};
use crate::limits::TEXT_BYTES_MAX;
use haul_model::Percent;
use std::fmt;

/// Machine-readable cause of a failure. [`Reason::text`] is the human-readable part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// A read or a write failed.
    Io,
    /// The file system of the sink is full.
    NoSpace,
    /// The quota of the ticket or of the file system is exceeded.
    Quota,
    /// The file system of the sink is read-only.
    ReadOnly,
    /// The operating system denied the operation.
    Permission,
    /// The file no longer exists.
    NotFound,
    /// An entry of another kind exists under the name.
    InTheWay,
    /// The name is not allowed.
    Name,
    /// A length exceeds a limit of the wire or of the file system.
    TooLarge,
    /// This side cannot create such an entry.
    Unsupported,
    /// The source file changed while it was read.
    Changed,
    /// The received data differed from the sent data in every permitted attempt.
    Differs,
    /// The first name of this hard link did not arrive.
    FirstNameFailed,
    /// The user or the program stopped the job.
    Stopped,
    /// The peer sent nothing until the timeout.
    Silent,
    /// The connection lost the lanes that the session needs.
    LanesLost,
    /// The peer violated the protocol.
    Protocol,
    /// The two sides have no common version of the wire protocol.
    Version,
    /// One side needs a feature that the other side lacks.
    Feature,
    /// Too many sessions are open, or another process holds the job.
    Busy,
    /// The peer is not allowed to do this: its ticket is read-only, or the path is outside its
    /// root.
    Denied,
    /// The program has a defect.
    Internal,
    /// A code that a later version defines.
    Other(u16),
}

const CODES: [(Why, u16, &str); 22] = [
    (Why::Io, 1, "input/output error"),
    (Why::NoSpace, 2, "no space left"),
    (Why::Quota, 3, "quota exceeded"),
    (Why::ReadOnly, 4, "read-only file system"),
    (Why::Permission, 5, "permission denied"),
    (Why::NotFound, 6, "does not exist"),
    (Why::InTheWay, 7, "a different file exists at the destination"),
    (Why::Name, 8, "invalid name"),
    (Why::TooLarge, 9, "too large"),
    (Why::Unsupported, 10, "not supported"),
    (Why::Changed, 11, "changed while it was read"),
    (Why::Differs, 12, "checksum mismatch after all retries"),
    (Why::FirstNameFailed, 13, "the first name of the hard link failed"),
    (Why::Stopped, 14, "stopped"),
    (Why::Silent, 15, "no message received until the timeout"),
    (Why::LanesLost, 16, "connection lost"),
    (Why::Protocol, 17, "protocol violation"),
    (Why::Version, 18, "no common protocol version"),
    (Why::Feature, 19, "a required feature is missing"),
    (Why::Busy, 20, "busy"),
    (Why::Denied, 21, "not allowed"),
    (Why::Internal, 22, "internal error"),
];

impl Why {
    /// Returns true if the sink has no space for a file. The source then offers no more files,
    /// because they would fail too.
    pub fn is_shortage(self) -> bool {
        matches!(self, Why::NoSpace | Why::Quota)
    }

    /// Returns the code of this cause on the wire.
    pub fn code(self) -> u16 {
        match self {
            Why::Other(code) => code,
            known => CODES.iter().find(|row| row.0 == known).map_or(0, |row| row.1),
        }
    }

    /// Returns the cause for a code of the wire.
    pub fn of_code(code: u16) -> Why {
        CODES.iter().find(|row| row.1 == code).map_or(Why::Other(code), |row| row.0)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match CODES.iter().find(|row| row.0 == *self) {
            Some(row) => f.write_str(row.2),
            None => write!(f, "reason {}", self.code()),
        }
    }
}

/// A text from a peer, of any bytes. It is printed without sequences that control a terminal.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PeerText(Box<[u8]>);

impl PeerText {
    /// Creates a text, truncated to [`TEXT_BYTES_MAX`].
    pub fn new(text: &str) -> PeerText {
        PeerText::of_bytes(text.as_bytes())
    }

    fn of_bytes(text: &[u8]) -> PeerText {
        let continues = |at: &usize| text.get(*at).is_some_and(|byte| byte & 0xc0 == 0x80);
        let most = text.len().min(TEXT_BYTES_MAX);
        // A character of UTF-8 has at most 4 bytes.
        let end = (most.saturating_sub(3)..=most).rev().find(|at| !continues(at)).unwrap_or(most);
        PeerText(text[..end].into())
    }

    pub(crate) fn encode(&self, body: &mut Body<'_>) {
        body.bytes(&self.0);
    }

    pub(crate) fn decode(fields: &mut Fields<'_>, what: &'static str) -> Result<PeerText, Flaw> {
        fields.bytes(TEXT_BYTES_MAX, what).map(PeerText)
    }
}

impl fmt::Display for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, word) in self.0.split(|byte| *byte == b' ').enumerate() {
            f.write_str(if number == 0 { "" } else { " " })?;
            Percent(word).fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Debug for PeerText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerText({self})")
    }
}

/// Reason for a refusal or a failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// Machine-readable cause.
    pub why: Why,
    /// Human-readable details, such as the call and the path; may be empty.
    pub text: PeerText,
}

impl Reason {
    /// Creates a reason with a text.
    pub fn new(why: Why, text: &str) -> Reason {
        Reason { why, text: PeerText::new(text) }
    }

    /// Appends a sentence to the text. An end of the text that does not fit is cut.
    pub fn append(&mut self, more: &str) {
        let link: &[u8] = if self.text.0.is_empty() { b"" } else { b"; " };
        self.text = PeerText::of_bytes(&[&self.text.0, link, more.as_bytes()].concat());
    }

    /// Puts the path of a file before the text.
    #[must_use]
    pub fn of_file(self, path: &[u8]) -> Reason {
        let link: &[u8] = if self.text.0.is_empty() { b"" } else { b": " };
        Reason { why: self.why, text: PeerText::of_bytes(&[path, link, &self.text.0].concat()) }
    }

    pub(crate) fn encode(&self, body: &mut Body<'_>) {
        body.u16(self.why.code());
        self.text.encode(body);
    }

    pub(crate) fn decode(fields: &mut Fields<'_>) -> Result<Reason, Flaw> {
        let why = Why::of_code(fields.u16("reason")?);
        Ok(Reason { why, text: PeerText::decode(fields, "reason's text")? })
    }
}

impl From<Why> for Reason {
    fn from(why: Why) -> Reason {
        Reason { why, text: PeerText::default() }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.why.fmt(f)?;
        if self.text.0.is_empty() { Ok(()) } else { write!(f, ": {}", self.text) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_codes_round_trip() {
        for code in 0..=u16::MAX {
            assert_eq!(Why::of_code(code).code(), code);
        }
    }

    #[test]
    fn peer_text_is_escaped_and_truncated() {
        let text = PeerText(Box::from(&b"disk \x1b[2J full\n"[..]));
        assert_eq!(text.to_string(), "disk %1B[2J full%0A");
        assert_eq!(Reason::new(Why::NoSpace, "sda 1").to_string(), "no space left: sda 1");
        assert_eq!(PeerText::new(&"é".repeat(600)).0.len(), TEXT_BYTES_MAX);
        assert_eq!(PeerText::new(&format!("x{}", "é".repeat(600))).0.len(), TEXT_BYTES_MAX - 1);
    }

    /// Regression: a name with a tab was shown as `%252509` after two sentences were added.
    #[test]
    fn names_in_a_reason_are_escaped_once() {
        let mut reason = Reason::new(Why::NoSpace, "cannot create").of_file(b"a\tb\xff");
        reason.append("2 files failed");
        reason.append("again");
        assert_eq!(reason.text.to_string(), "a%09b%FF: cannot create; 2 files failed; again");
        assert_eq!(Reason::from(Why::Quota).of_file(b"f").text.to_string(), "f");
    }
}
