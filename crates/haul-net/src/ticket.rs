//! Tickets: one line that admits its holder.
//!
//! ```text
//! haul1abc...        "haul1", then base32 (RFC 4648, small letters, no padding) of:
//!
//! at  bytes 0      1   flags: bit 0 one-time, 1 may read, 2 may write, 3 without encryption, 4
//! ends at a date 1      8   the ticket's public name 9     16   the secret 25     32   SHA-256 of
//! the server's certificate; only with encryption 8   seconds since 1970 when it ends,
//! little-endian; only if it ends 1   how many addresses: 1 to 8 each: 4 and 4 bytes (IPv4) | 6 and
//! 16 bytes (IPv6) | 'n', a length and that many bytes (a name); then the port, 2 bytes,
//! little-endian 4   CRC-32 of all before, little-endian: tells a slip of the pen from a wrong
//! secret
//! ```
//!
//! Base32 has no punctuation and one case. A double click therefore selects all of it, and a mail
//! program at worst inserts a line end, which is ignored. Another layout uses another prefix.

mod bytes;

use crate::Encryption;
use crate::address::Address;
use crate::secret::{NoRandomness, Secret, TicketId};
use crate::tls::Fingerprint;
use bytes::{ADDRESSES_MAX, base32_decode, base32_encode};
use std::fmt;
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// Prefix of a ticket; the digit is the version of the rest.
pub const PREFIX: &str = "haul1";

/// Maximum number of characters of a ticket: eight addresses with names of maximum length.
pub const TEXT_MAX: usize = 4096;

/// Permission to open sessions with one server.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) id: TicketId,
    pub(crate) secret: Secret,
    pub(crate) grant: Grant,
    /// Certificate that the server must present; `None` if the server does not encrypt.
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) addresses: Vec<Address>,
}

/// Permissions of a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Permitted direction of transfer.
    pub role: Role,
    /// Number of sessions that it opens.
    pub uses: Uses,
    /// Time from which on it opens no sessions.
    pub expires: Option<SystemTime>,
}

/// Permitted direction of transfer, from the view of the ticket holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// From the server only.
    Read,
    /// To the server only.
    Write,
    /// Both directions.
    Both,
}

/// Number of sessions that a ticket opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// One session, with as many lanes as the server allows.
    Once,
    /// Any number of sessions until the ticket expires or is removed.
    Lasting,
}

impl Role {
    /// Returns true if the holder may read the files of the server.
    pub fn may_read(self) -> bool {
        self != Self::Write
    }

    /// Returns true if the holder may write to the server.
    pub fn may_write(self) -> bool {
        self != Self::Read
    }
}

impl Ticket {
    /// Creates a ticket with a secret of its own, for a server at `addresses`. The server presents
    /// the certificate of `fingerprint`, or does not encrypt if that is `None`.
    ///
    /// # Errors
    /// Returns [`IssueError::Addresses`] for no address or more than eight, and
    /// [`IssueError::NoRandomness`] if there are no random numbers.
    pub fn issue(
        grant: Grant,
        addresses: Vec<Address>,
        fingerprint: Option<Fingerprint>,
    ) -> Result<Self, IssueError> {
        if !(1..=ADDRESSES_MAX).contains(&addresses.len()) {
            return Err(IssueError::Addresses(addresses.len()));
        }
        let (id, secret) = (TicketId::generate()?, Secret::generate()?);
        let grant = Grant { expires: grant.expires.map(whole_seconds), ..grant };
        Ok(Self { id, secret, grant, fingerprint, addresses })
    }

    /// Parses a ticket. White space in the text is ignored, and so is its case.
    ///
    /// # Errors
    /// Returns a [`TicketError`] if the text is not a ticket. The error never contains the text.
    pub fn parse(text: &str) -> Result<Self, TicketError> {
        if text.len() > 2 * TEXT_MAX {
            return Err(TicketError::TooLong);
        }
        // Normalize the text first: white space and case are ignored.
        let mut bare = Zeroizing::new(String::with_capacity(text.len()));
        bare.extend(text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_ascii_lowercase()));
        let Some(body) = bare.strip_prefix(PREFIX) else {
            let is_newer =
                bare.strip_prefix("haul").is_some_and(|rest| rest.starts_with(|c| ('2'..='9').contains(&c)));
            return Err(if is_newer { TicketError::Newer } else { TicketError::NoTicket });
        };
        let bytes = base32_decode(body, PREFIX.len() + 1)?;
        bytes::decode(&bytes)
    }

    /// Returns the line for the holder. Anyone who reads it can open a session.
    pub fn to_line(&self) -> Zeroizing<String> {
        let encoded = base32_encode(&bytes::encode(self));
        let mut line = String::with_capacity(PREFIX.len() + encoded.len());
        line.push_str(PREFIX);
        line.push_str(&encoded);
        Zeroizing::new(line)
    }

    /// Returns the public ID of the ticket.
    pub fn id(&self) -> TicketId {
        self.id
    }

    /// Returns the permissions of the ticket.
    pub fn grant(&self) -> Grant {
        self.grant
    }

    /// Returns the addresses of the server.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// Returns the same ticket with other addresses of the server, such as those behind a gateway.
    ///
    /// # Errors
    /// Returns [`IssueError::Addresses`] for no address or more than eight.
    pub fn with_addresses(mut self, addresses: Vec<Address>) -> Result<Self, IssueError> {
        if !(1..=ADDRESSES_MAX).contains(&addresses.len()) {
            return Err(IssueError::Addresses(addresses.len()));
        }
        self.addresses = addresses;
        Ok(self)
    }

    /// Returns the fingerprint of the certificate that the server must present; `None` if it does
    /// not encrypt.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// Returns the encryption that the server of the ticket uses.
    pub fn encryption(&self) -> Encryption {
        if self.fingerprint.is_some() { Encryption::Tls } else { Encryption::Plain }
    }
}

/// Truncates a time to whole seconds, the resolution of a ticket.
fn whole_seconds(time: SystemTime) -> SystemTime {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs())
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket")
            .field("id", &self.id)
            .field("secret", &self.secret)
            .field("grant", &self.grant)
            .field("fingerprint", &self.fingerprint)
            .field("addresses", &self.addresses)
            .finish()
    }
}

impl std::str::FromStr for Ticket {
    type Err = TicketError;

    fn from_str(text: &str) -> Result<Self, TicketError> {
        Self::parse(text)
    }
}

/// Error when a ticket cannot be issued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// No address, or too many.
    #[error("a ticket holds 1 to {ADDRESSES_MAX} addresses, not {0}")]
    Addresses(usize),
    /// The random number generator failed.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// Error for a text that is not a ticket. It never contains the text, which can be a mistyped
/// secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// The text lacks the prefix.
    #[error("not a ticket: a ticket starts with {PREFIX}")]
    NoTicket,
    /// The text has the prefix of a later version.
    #[error("the ticket was created by a newer version of haul; update haul on this host")]
    Newer,
    /// The text is longer than any ticket.
    #[error("not a ticket: it is too long")]
    TooLong,
    /// A character is not one of base32.
    #[error("character {at} of the ticket is not in a-z or 2-7; copy the complete ticket again")]
    Character {
        /// Position, counted from 1, without white space.
        at: usize,
    },
    /// The checksum at the end differs, or the ticket is truncated.
    #[error("the ticket is damaged or truncated; copy the complete ticket again")]
    Damaged,
    /// The ticket is intact but has unknown contents.
    #[error("the ticket holds data that this version does not know ({0}); update haul on this host")]
    Unknown(&'static str),
}

#[cfg(test)]
mod tests;
