//! Binary form of a ticket, and its base32 encoding.

use super::{Grant, Role, Ticket, TicketError, Uses};
use crate::address::{Address, Host};
use crate::secret::{SECRET_BYTES, Secret, TicketId};
use crate::tls::{FINGERPRINT_BYTES, Fingerprint};
use std::net::IpAddr;
use std::time::{Duration, SystemTime};
use zeroize::Zeroizing;

/// Maximum number of addresses of one ticket.
pub(super) const ADDRESSES_MAX: usize = 8;

const ONCE: u8 = 1;
const READ: u8 = 2;
const WRITE: u8 = 4;
const PLAIN: u8 = 8;
const ENDS: u8 = 16;

/// The letters of base32 (RFC 4648 section 6), in lower case.
const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";

/// Encodes a ticket, with its checksum.
pub(super) fn encode(ticket: &Ticket) -> Zeroizing<Vec<u8>> {
    // Allocate for the largest ticket, so that growing never copies the secret to a second place.
    let mut out = Zeroizing::new(Vec::with_capacity(super::TEXT_MAX));
    let Grant { role, uses, expires } = ticket.grant;
    let flag = |set: bool, bit: u8| if set { bit } else { 0 };
    out.push(
        flag(uses == Uses::Once, ONCE)
            | flag(role.may_read(), READ)
            | flag(role.may_write(), WRITE)
            | flag(ticket.fingerprint.is_none(), PLAIN)
            | flag(expires.is_some(), ENDS),
    );
    out.extend_from_slice(&ticket.id.0);
    out.extend_from_slice(ticket.secret.expose());
    if let Some(fingerprint) = &ticket.fingerprint {
        out.extend_from_slice(&fingerprint.0);
    }
    if let Some(expires) = expires {
        let seconds = expires.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        out.extend_from_slice(&seconds.to_le_bytes());
    }
    out.push(ticket.addresses.len() as u8);
    for address in &ticket.addresses {
        match &address.host {
            Host::Ip(IpAddr::V4(ip)) => {
                out.push(4);
                out.extend_from_slice(&ip.octets());
            }
            Host::Ip(IpAddr::V6(ip)) => {
                out.push(6);
                out.extend_from_slice(&ip.octets());
            }
            Host::Name(name) => {
                out.extend_from_slice(&[b'n', name.len() as u8]);
                out.extend_from_slice(name.as_bytes());
            }
        }
        out.extend_from_slice(&address.port.to_le_bytes());
    }
    let sum = crc32fast::hash(&out);
    out.extend_from_slice(&sum.to_le_bytes());
    out
}

/// Decodes a ticket.
pub(super) fn decode(bytes: &[u8]) -> Result<Ticket, TicketError> {
    let (body, sum) = bytes.split_last_chunk::<4>().ok_or(TicketError::Damaged)?;
    if crc32fast::hash(body) != u32::from_le_bytes(*sum) {
        return Err(TicketError::Damaged);
    }
    let mut rest = Rest(body);
    let flags = rest.take::<1>()?[0];
    if flags & !(ONCE | READ | WRITE | PLAIN | ENDS) != 0 {
        return Err(TicketError::Unknown("a flag"));
    }
    let id = TicketId(rest.take()?);
    let secret = Secret::from_bytes(rest.take::<SECRET_BYTES>()?);
    let fingerprint = match flags & PLAIN {
        0 => Some(Fingerprint(rest.take::<FINGERPRINT_BYTES>()?)),
        _ => None,
    };
    let expires = match flags & ENDS {
        0 => None,
        _ => {
            let seconds = Duration::from_secs(u64::from_le_bytes(rest.take()?));
            let end = SystemTime::UNIX_EPOCH.checked_add(seconds);
            Some(end.ok_or(TicketError::Unknown("an expiry date out of range"))?)
        }
    };
    let role = match (flags & READ != 0, flags & WRITE != 0) {
        (true, true) => Role::Both,
        (true, false) => Role::Read,
        (false, true) => Role::Write,
        (false, false) => return Err(TicketError::Unknown("a ticket without rights")),
    };
    let uses = if flags & ONCE != 0 { Uses::Once } else { Uses::Lasting };
    let count = usize::from(rest.take::<1>()?[0]);
    if !(1..=ADDRESSES_MAX).contains(&count) {
        return Err(TicketError::Unknown("its number of addresses"));
    }
    let addresses = (0..count).map(|_| rest.address()).collect::<Result<_, _>>()?;
    if !rest.0.is_empty() {
        return Err(TicketError::Unknown("bytes after its end"));
    }
    Ok(Ticket { id, secret, grant: Grant { role, uses, expires }, fingerprint, addresses })
}

/// Bytes that are not decoded yet.
struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], TicketError> {
        let (taken, rest) = self.0.split_first_chunk::<N>().ok_or(TicketError::Damaged)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn address(&mut self) -> Result<Address, TicketError> {
        let host = match self.take::<1>()?[0] {
            4 => Host::Ip(IpAddr::from(self.take::<4>()?)),
            6 => Host::Ip(IpAddr::from(self.take::<16>()?)),
            b'n' => {
                let length = usize::from(self.take::<1>()?[0]);
                let (name, rest) = self.0.split_at_checked(length).ok_or(TicketError::Damaged)?;
                self.0 = rest;
                let name = str::from_utf8(name).map_err(|_| TicketError::Unknown("a host's name"))?;
                match Host::parse(name) {
                    Ok(host @ Host::Name(_)) => host,
                    _ => return Err(TicketError::Unknown("a host's name")),
                }
            }
            _ => return Err(TicketError::Unknown("a kind of address")),
        };
        Ok(Address { host, port: u16::from_le_bytes(self.take()?) })
    }
}

/// Encodes bytes as base32 without padding.
pub(super) fn base32_encode(bytes: &[u8]) -> Zeroizing<String> {
    let mut text = Zeroizing::new(String::with_capacity(bytes.len().div_ceil(5) * 8));
    let (mut held, mut bits) = (0_u32, 0);
    for byte in bytes {
        held = held << 8 | u32::from(*byte);
        bits += 8;
        while bits >= 5 {
            bits -= 5;
            text.push(letter(held >> bits));
        }
    }
    if bits > 0 {
        text.push(letter(held << (5 - bits)));
    }
    text
}

fn letter(value: u32) -> char {
    char::from(ALPHABET[(value & 31) as usize])
}

/// Decodes a base32 text whose first character has number `first` in the user's input. The bits
/// left at the end must be zero, so that no two texts represent the same ticket.
pub(super) fn base32_decode(text: &str, first: usize) -> Result<Zeroizing<Vec<u8>>, TicketError> {
    let mut bytes = Zeroizing::new(Vec::with_capacity(text.len() * 5 / 8 + 1));
    let (mut held, mut bits) = (0_u32, 0);
    for (at, c) in text.chars().enumerate() {
        let value = match c {
            'a'..='z' => c as u32 - 'a' as u32,
            '2'..='7' => c as u32 - '2' as u32 + 26,
            _ => return Err(TicketError::Character { at: first + at }),
        };
        held = (held << 5 | value) & 0xfff;
        bits += 5;
        if bits >= 8 {
            bits -= 8;
            bytes.push((held >> bits) as u8);
        }
    }
    if bits >= 5 || held & ((1 << bits) - 1) != 0 {
        return Err(TicketError::Damaged);
    }
    Ok(bytes)
}
