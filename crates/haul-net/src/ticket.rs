//! Tickets: one line that lets its holder in.
//!
//! ```text
//! haul1abc...        "haul1", then base32 (RFC 4648, small letters, no padding) of:
//!
//!  at  bytes
//!   0      1   flags: bit 0 one-time, 1 may read, 2 may write, 3 without encryption, 4 ends at a date
//!   1      8   the ticket's public name
//!   9     16   the secret
//!  25     32   SHA-256 of the server's certificate; only with encryption
//!          8   seconds since 1970 when it ends, little-endian; only if it ends
//!          1   how many addresses: 1 to 8
//!              each: 4 and 4 bytes (IPv4) | 6 and 16 bytes (IPv6) | 'n', a length and that many bytes (a name);
//!              then the port, 2 bytes, little-endian
//!          4   CRC-32 of all before, little-endian: tells a slip of the pen from a wrong secret
//! ```
//!
//! Base32 has no punctuation and one case, so that a double click takes all of it and a mail program breaks it at
//! worst by a line end, which is ignored. Another layout takes another prefix.

mod bytes;

use crate::Encryption;
use crate::address::Address;
use crate::secret::{NoRandomness, Secret, TicketId};
use crate::tls::Fingerprint;
use bytes::{ADDRESSES_MAX, base32_decode, base32_encode};
use std::fmt;
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// What a ticket begins with; the digit is the version of what follows.
pub const PREFIX: &str = "haul1";

/// Characters of a ticket at most: eight addresses by names of full length.
pub const TEXT_MAX: usize = 4096;

/// The right to open sessions with one server.
#[derive(Clone, PartialEq, Eq)]
pub struct Ticket {
    pub(crate) id: TicketId,
    pub(crate) secret: Secret,
    pub(crate) grant: Grant,
    /// The certificate the server must show; `None` where the server does not encrypt.
    pub(crate) fingerprint: Option<Fingerprint>,
    pub(crate) addresses: Vec<Address>,
}

/// What a ticket allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Which way files may go.
    pub role: Role,
    /// How many sessions it opens.
    pub uses: Uses,
    /// From when on it opens none.
    pub expires: Option<SystemTime>,
}

/// Which way files may go, seen from who holds the ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// From the server only.
    Read,
    /// To the server only.
    Write,
    /// Both ways.
    Both,
}

/// How many sessions a ticket opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uses {
    /// One, with as many lanes as the server lets it have.
    Once,
    /// Any number until it expires or is withdrawn.
    Lasting,
}

impl Role {
    /// Whether the holder may read the server's files.
    pub fn may_read(self) -> bool {
        self != Self::Write
    }

    /// Whether the holder may write to the server.
    pub fn may_write(self) -> bool {
        self != Self::Read
    }
}

impl Ticket {
    /// A new ticket with a secret of its own, for a server at `addresses` that shows the certificate of `fingerprint`, or
    /// does not encrypt where that is `None`.
    ///
    /// # Errors
    /// [`IssueError`]: no address, more than eight, or no random numbers.
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

    /// The ticket that this text is. White space anywhere in it is ignored, and so is its case.
    ///
    /// # Errors
    /// [`TicketError`], which never repeats the text.
    pub fn parse(text: &str) -> Result<Self, TicketError> {
        if text.len() > 2 * TEXT_MAX {
            return Err(TicketError::TooLong);
        }
        // Cut by bytes: the prefix may be followed by anything.
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

    /// The line for who is to come in. Whoever reads it can come in.
    pub fn to_line(&self) -> Zeroizing<String> {
        let encoded = base32_encode(&bytes::encode(self));
        let mut line = String::with_capacity(PREFIX.len() + encoded.len());
        line.push_str(PREFIX);
        line.push_str(&encoded);
        Zeroizing::new(line)
    }

    /// Its public name.
    pub fn id(&self) -> TicketId {
        self.id
    }

    /// What it allows.
    pub fn grant(&self) -> Grant {
        self.grant
    }

    /// Where the server is.
    pub fn addresses(&self) -> &[Address] {
        &self.addresses
    }

    /// The same ticket for a server seen at other addresses, as from behind a gateway.
    ///
    /// # Errors
    /// [`IssueError::Addresses`] for none or more than eight.
    pub fn with_addresses(mut self, addresses: Vec<Address>) -> Result<Self, IssueError> {
        if !(1..=ADDRESSES_MAX).contains(&addresses.len()) {
            return Err(IssueError::Addresses(addresses.len()));
        }
        self.addresses = addresses;
        Ok(self)
    }

    /// The certificate that the server must show; `None` where it does not encrypt.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        self.fingerprint
    }

    /// Whether its server encrypts.
    pub fn encryption(&self) -> Encryption {
        if self.fingerprint.is_some() { Encryption::Tls } else { Encryption::Plain }
    }
}

/// The second a time is in: what a ticket can say.
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

/// Why no ticket can be issued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IssueError {
    /// None, or too many.
    #[error("a ticket carries 1 to {ADDRESSES_MAX} addresses, not {0}")]
    Addresses(usize),
    /// The generator failed.
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
}

/// Why a text is no ticket. The text itself is never repeated: it may be a secret with a slip in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TicketError {
    /// It begins otherwise.
    #[error("this is no ticket: one begins with {PREFIX}")]
    NoTicket,
    /// It begins as a later version's.
    #[error("this ticket was made by a newer version of haul; bring this end up to date")]
    Newer,
    /// More than a ticket can have.
    #[error("this is no ticket: it is longer than any can be")]
    TooLong,
    /// Not one of base32.
    #[error("character {at} of the ticket is none of a-z and 2-7; copy it again, whole")]
    Character {
        /// Counted from 1, without white space.
        at: usize,
    },
    /// The sum at its end says otherwise.
    #[error("the ticket is damaged or cut short; copy it again, whole")]
    Damaged,
    /// Whole, and not to be understood.
    #[error("the ticket holds something that this version does not know ({0}); bring this end up to date")]
    Unknown(&'static str),
}

#[cfg(test)]
mod tests;
