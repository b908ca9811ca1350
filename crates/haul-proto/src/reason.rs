//! Why something was refused or failed, as one peer tells the other.

use crate::Flaw;
use crate::fields::{Body, Fields};
use crate::limits::TEXT_BYTES_MAX;
use haul_model::Percent;
use std::fmt;

/// What went wrong, for the program of the other side; [`Reason::text`] says it for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Why {
    /// A read or a write failed.
    Io,
    /// The sink's file system is full.
    NoSpace,
    /// The ticket's or the file system's quota is used up.
    Quota,
    /// The sink's file system is read-only.
    ReadOnly,
    /// The system did not permit it.
    Permission,
    /// The file is no longer there.
    NotFound,
    /// Something of another kind stands in the way.
    InTheWay,
    /// The name may not be one.
    Name,
    /// A length is above the limits of the wire or of the file system.
    TooLarge,
    /// This side can't make such a thing.
    Unsupported,
    /// The source file changed while it was read.
    Changed,
    /// What arrived differed from what was sent, more often than is tried.
    Differs,
    /// The name that this one is a hard link to did not arrive.
    FirstNameFailed,
    /// The user or the program stopped the job.
    Stopped,
    /// The other side was silent for too long.
    Silent,
    /// The lanes that the session can't do without were lost.
    LanesLost,
    /// The other side broke the rules of the wire.
    Protocol,
    /// The two sides have no version of the wire in common.
    Version,
    /// A feature that one side needs is missing at the other.
    Feature,
    /// Too many sessions, or the job is held by another process.
    Busy,
    /// Not allowed to this peer: a read-only ticket, a path outside its root.
    Denied,
    /// A defect of the program.
    Internal,
    /// A code that a later version gave a meaning.
    Other(u16),
}

const CODES: [(Why, u16, &str); 22] = [
    (Why::Io, 1, "input/output error"),
    (Why::NoSpace, 2, "no space left"),
    (Why::Quota, 3, "quota exceeded"),
    (Why::ReadOnly, 4, "read-only file system"),
    (Why::Permission, 5, "permission denied"),
    (Why::NotFound, 6, "no longer there"),
    (Why::InTheWay, 7, "something else stands in its place"),
    (Why::Name, 8, "the name is refused"),
    (Why::TooLarge, 9, "too large"),
    (Why::Unsupported, 10, "not supported there"),
    (Why::Changed, 11, "changed while it was read"),
    (Why::Differs, 12, "arrived damaged again and again"),
    (Why::FirstNameFailed, 13, "its first name did not arrive"),
    (Why::Stopped, 14, "stopped"),
    (Why::Silent, 15, "the other side was silent for too long"),
    (Why::LanesLost, 16, "the connection was lost"),
    (Why::Protocol, 17, "the other side broke the protocol"),
    (Why::Version, 18, "no common version of the protocol"),
    (Why::Feature, 19, "a needed feature is missing"),
    (Why::Busy, 20, "busy"),
    (Why::Denied, 21, "not allowed"),
    (Why::Internal, 22, "a defect of the program"),
];

impl Why {
    /// Its code on the wire.
    pub fn code(self) -> u16 {
        match self {
            Why::Other(code) => code,
            known => CODES.iter().find(|row| row.0 == known).map_or(0, |row| row.1),
        }
    }

    /// What a code means.
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

/// A text that a peer wrote, of any bytes. It prints without anything that steers a terminal.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct PeerText(Box<[u8]>);

impl PeerText {
    /// The text, cut to [`TEXT_BYTES_MAX`].
    pub fn new(text: &str) -> PeerText {
        let cut = (0..=text.len().min(TEXT_BYTES_MAX)).rev().find(|at| text.is_char_boundary(*at));
        let end = cut.unwrap_or(0);
        PeerText(text.as_bytes()[..end].into())
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

/// Why something was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// For the program.
    pub why: Why,
    /// For people: which call, which place; may be empty.
    pub text: PeerText,
}

impl Reason {
    /// A reason with a text.
    pub fn new(why: Why, text: &str) -> Reason {
        Reason { why, text: PeerText::new(text) }
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
    fn codes_come_back() {
        for code in 0..=u16::MAX {
            assert_eq!(Why::of_code(code).code(), code);
        }
    }

    #[test]
    fn no_text_steers_a_terminal() {
        let text = PeerText(Box::from(&b"disk \x1b[2J full\n"[..]));
        assert_eq!(text.to_string(), "disk %1B[2J full%0A");
        assert_eq!(Reason::new(Why::NoSpace, "sda 1").to_string(), "no space left: sda 1");
        assert_eq!(PeerText::new(&"é".repeat(600)).0.len(), TEXT_BYTES_MAX);
    }
}
