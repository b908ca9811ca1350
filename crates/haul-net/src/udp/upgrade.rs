//! Agreement on UDP for one lane, over its authenticated TCP connection.
//!
//! ```text
//! request of a client, behind its hello:      answer of a server, behind its welcome:
//!  at  bytes                                   at  bytes
//!   0      1   1 datagrams of haul, 3 QUIC      0      1   0, or the reason of a refusal
//!   1      1   packet check; QUIC: congestion   1      1   packet check; QUIC: 0; bit 7: may
//!              control, 0 BBR, 1 CUBIC,                     fall back
//!              2 haul's own
//!   2      1   zero                             2      2   UDP port
//!   3      1   bit 0: may fall back
//!   4      4   ID in datagrams to the client    4      4   ID in datagrams to the server
//!   8      8   receive buffer, bytes            8      8   receive buffer, bytes
//! ```
//!
//! Numbers are little-endian. After a refusal the lane is still one over TCP; a client
//! without use for it drops it.

use super::{Congestion, PacketCheck};

/// Transport of a request: datagrams of `haul-udp` in version 1, or QUIC. The number 2 was QUIC
/// with one stream.
const DATAGRAMS: u8 = 1;
const QUIC: u8 = 3;

/// Flag of a lane that may fall back: bit 0 of byte 3 of a request, and bit 7 of byte 1 of an
/// answer.
const FALLS_BACK: u16 = 1 << 8;
const CHECK_FALLS_BACK: u8 = 1 << 7;

/// Size in bytes of a request and of an answer.
pub(crate) const UPGRADE_BYTES: usize = 16;

/// Minimum receive buffer of an end, in bytes.
pub const BUFFER_MIN: u64 = 1 << 20;
/// Maximum receive buffer of an end, in bytes. Each end limits its buffers to a setting of its own,
/// which a peer cannot raise.
pub const BUFFER_MAX: u64 = 1 << 30;

/// Request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Congestion control of QUIC; `None` for datagrams of `haul-udp`.
    pub(crate) quic: Option<Congestion>,
    /// Packet check of the datagrams; [`PacketCheck::Aead`] with QUIC.
    pub(crate) check: PacketCheck,
    /// True if the lane continues over TCP where datagrams do not pass.
    pub(crate) falls_back: bool,
    pub(crate) id: u32,
    pub(crate) buffer: u64,
}

/// Acceptance of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) check: PacketCheck,
    /// Repeats that of the request.
    pub(crate) falls_back: bool,
    pub(crate) port: u16,
    pub(crate) id: u32,
    pub(crate) buffer: u64,
}

/// Reason why a server refuses UDP for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UdpRefusal {
    /// The server was started with TCP only.
    #[error("the server does not use UDP; start it without --transport=tcp")]
    NotOffered,
    /// The server did not consent to a packet check without authentication.
    #[error("the server does not allow this packet check; use --packet-check on both hosts")]
    Check,
    /// The connection is not encrypted, so there are no keys for the datagrams.
    #[error(
        "the packet check 'aead' needs an encrypted connection; omit --plain, or use --packet-check=crc32c on both hosts"
    )]
    NoKeys,
    /// The server cannot open a socket, or all ports of its range are in use.
    #[error("the server cannot open a UDP socket")]
    NoSocket,
    /// The request is of another version.
    #[error("incompatible versions of haul; install the same version on both hosts")]
    Version,
}

const REFUSALS: [UdpRefusal; 5] = [
    UdpRefusal::NotOffered,
    UdpRefusal::Check,
    UdpRefusal::NoKeys,
    UdpRefusal::NoSocket,
    UdpRefusal::Version,
];

/// An answer that is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid answer to the request for UDP; update haul on both hosts")]
pub struct BadUpgrade;

impl Request {
    pub(crate) fn encode(&self) -> [u8; UPGRADE_BYTES] {
        let flags = if self.falls_back { FALLS_BACK } else { 0 };
        let (transport, second) = match self.quic {
            Some(congestion) => (QUIC, congestion as u8),
            None => (DATAGRAMS, self.check as u8),
        };
        encode(transport, second, flags, self.id, self.buffer)
    }

    pub(crate) fn decode(bytes: &[u8; UPGRADE_BYTES]) -> Result<Self, UdpRefusal> {
        let (transport, second, flags, id, buffer) = decode(bytes);
        let quic = Congestion::ALL.get(usize::from(second)).copied();
        let (quic, check) = match (transport, quic, packet_check(second)) {
            (DATAGRAMS, _, Some(check)) => (None, check),
            (QUIC, Some(quic), _) => (Some(quic), PacketCheck::Aead),
            _ => return Err(UdpRefusal::Version),
        };
        if matches!(flags, 0 | FALLS_BACK) && (BUFFER_MIN..=BUFFER_MAX).contains(&buffer) {
            Ok(Self { quic, check, falls_back: flags == FALLS_BACK, id, buffer })
        } else {
            Err(UdpRefusal::Version)
        }
    }
}

impl Accepted {
    pub(crate) fn encode(&self) -> [u8; UPGRADE_BYTES] {
        let check = self.check as u8 | if self.falls_back { CHECK_FALLS_BACK } else { 0 };
        encode(0, check, self.port, self.id, self.buffer)
    }
}

impl UdpRefusal {
    pub(crate) fn encode(self) -> [u8; UPGRADE_BYTES] {
        let at = REFUSALS.iter().position(|known| *known == self).unwrap_or_default();
        encode(at as u8 + 1, 0, 0, 0, 0)
    }
}

/// Decodes the answer to a request for `check` of a lane that may fall back or not.
pub(crate) fn decode_answer(
    bytes: &[u8; UPGRADE_BYTES],
    wanted: (PacketCheck, bool),
) -> Result<Result<Accepted, UdpRefusal>, BadUpgrade> {
    let (verdict, check, port, id, buffer) = decode(bytes);
    if verdict != 0 {
        return REFUSALS.get(usize::from(verdict) - 1).map(|refusal| Err(*refusal)).ok_or(BadUpgrade);
    }
    let falls_back = check & CHECK_FALLS_BACK != 0;
    match packet_check(check & !CHECK_FALLS_BACK) {
        Some(check)
            if (check, falls_back) == wanted && port != 0 && (BUFFER_MIN..=BUFFER_MAX).contains(&buffer) =>
        {
            Ok(Ok(Accepted { check, falls_back, port, id, buffer }))
        }
        _ => Err(BadUpgrade),
    }
}

/// Describes a recorded request for UDP, and a recorded answer, in readable form.
///
/// # Errors
/// Returns the reason if the bytes are neither.
pub fn describe_upgrade(bytes: &[u8]) -> Result<String, String> {
    let bytes: &[u8; UPGRADE_BYTES] = bytes
        .try_into()
        .map_err(|_| format!("a request for UDP has {UPGRADE_BYTES} bytes, and these are {}", bytes.len()))?;
    let request = Request::decode(bytes).map(|request| {
        let Request { quic, check, falls_back, id, buffer } = request;
        let or_tcp = if falls_back { " or TCP" } else { "" };
        match quic {
            Some(congestion) => {
                format!("request {id} for QUIC{or_tcp} with {}, buffer {buffer}", congestion.name())
            }
            None => format!("request for datagrams{or_tcp} with {} to {id}, buffer {buffer}", check.name()),
        }
    });
    let wanted = PacketCheck::ALL.into_iter().flat_map(|check| [(check, false), (check, true)]);
    let answers = wanted.filter_map(|wanted| decode_answer(bytes, wanted).ok());
    let answer = answers.into_iter().next().map(|answer| match answer {
        Ok(Accepted { check, falls_back, port, id, buffer }) => {
            let or_tcp = if falls_back { " or TCP" } else { "" };
            format!("datagrams{or_tcp} with {} to {id} at port {port}, buffer {buffer}", check.name())
        }
        Err(refusal) => format!("refused: {refusal}"),
    });
    request.ok().or(answer).ok_or_else(|| BadUpgrade.to_string())
}

fn packet_check(number: u8) -> Option<PacketCheck> {
    PacketCheck::ALL.get(usize::from(number)).copied()
}

fn encode(first: u8, check: u8, port: u16, id: u32, buffer: u64) -> [u8; UPGRADE_BYTES] {
    let mut bytes = [0; UPGRADE_BYTES];
    bytes[0] = first;
    bytes[1] = check;
    bytes[2..4].copy_from_slice(&port.to_le_bytes());
    bytes[4..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..].copy_from_slice(&buffer.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; UPGRADE_BYTES]) -> (u8, u8, u16, u32, u64) {
    let [first, check, p0, p1, i0, i1, i2, i3, buffer @ ..] = *bytes;
    (
        first,
        check,
        u16::from_le_bytes([p0, p1]),
        u32::from_le_bytes([i0, i1, i2, i3]),
        u64::from_le_bytes(buffer),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_and_answers_round_trip(check in 0..4_usize, quic in 0..Congestion::ALL.len(), falls_back: bool, port in 1..=u16::MAX, id: u32, buffer in BUFFER_MIN..=BUFFER_MAX) {
            let check = PacketCheck::ALL[check];
            let request = Request { quic: None, check, falls_back, id, buffer };
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
            let (quic, check_of_quic) = (Some(Congestion::ALL[quic]), PacketCheck::Aead);
            let request = Request { quic, check: check_of_quic, falls_back, id, buffer };
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
            let accepted = Accepted { check, falls_back, port, id, buffer };
            prop_assert_eq!(decode_answer(&accepted.encode(), (check, falls_back)), Ok(Ok(accepted)));
            let other = PacketCheck::ALL[(check as usize + 1) % 4];
            for wanted in [(other, falls_back), (check, !falls_back)] {
                prop_assert_eq!(decode_answer(&accepted.encode(), wanted), Err(BadUpgrade));
            }
        }

        #[test]
        fn decoded_bytes_are_within_limits(bytes: [u8; UPGRADE_BYTES]) {
            if let Ok(request) = Request::decode(&bytes) {
                prop_assert!(request.buffer <= BUFFER_MAX);
            }
            if let Ok(Ok(accepted)) = decode_answer(&bytes, (PacketCheck::Crc16, false)) {
                prop_assert_eq!(accepted.check, PacketCheck::Crc16);
                prop_assert!(accepted.buffer <= BUFFER_MAX);
            }
        }
    }

    #[test]
    fn refusals_round_trip() {
        for refusal in REFUSALS {
            assert_eq!(decode_answer(&refusal.encode(), (PacketCheck::Aead, true)), Ok(Err(refusal)));
        }
    }
}
