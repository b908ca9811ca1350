//! Agreement on UDP for one lane, over its authenticated TCP connection.
//!
//! ```text
//! request of a client, behind its hello:      answer of a server, behind its welcome:
//!  at  bytes                                   at  bytes
//!   0      1   1 datagrams of haul, 2 QUIC      0      1   0, or the reason of a refusal
//!   1      1   packet check; QUIC: congestion   1      1   packet check; QUIC: 0
//!              control, 0 BBR, 1 CUBIC
//!   2      2   zero                             2      2   UDP port
//!   4      4   ID in datagrams to the client    4      4   ID in datagrams to the server
//!   8      8   receive buffer, bytes            8      8   receive buffer, bytes
//! ```
//!
//! Numbers are little-endian. After a refusal the lane is still one over TCP; a client
//! without use for it drops it.

use super::{Congestion, PacketCheck};

/// Transport of a request: datagrams of `haul-udp` in version 1, or QUIC.
const DATAGRAMS: u8 = 1;
const QUIC: u8 = 2;

/// Size in bytes of a request and of an answer.
pub(crate) const UPGRADE_BYTES: usize = 16;

/// Minimum and maximum receive buffer of an end, in bytes. The maximum bounds what a peer can make
/// this end keep: 64 MiB carry 1 Gbit/s over a round trip of half a second.
pub(crate) const BUFFER_MIN: u64 = 1 << 20;
pub(crate) const BUFFER_MAX: u64 = 64 << 20;

/// Request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Congestion control of QUIC; `None` for datagrams of `haul-udp`.
    pub(crate) quic: Option<Congestion>,
    /// Packet check of the datagrams; [`PacketCheck::Aead`] with QUIC.
    pub(crate) check: PacketCheck,
    pub(crate) id: u32,
    pub(crate) buffer: u64,
}

/// Acceptance of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) check: PacketCheck,
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
        match self.quic {
            Some(congestion) => encode(QUIC, congestion as u8, 0, self.id, self.buffer),
            None => encode(DATAGRAMS, self.check as u8, 0, self.id, self.buffer),
        }
    }

    pub(crate) fn decode(bytes: &[u8; UPGRADE_BYTES]) -> Result<Self, UdpRefusal> {
        let (transport, second, zero, id, buffer) = decode(bytes);
        let check = PacketCheck::ALL.get(usize::from(second)).copied();
        let quic = Congestion::ALL.get(usize::from(second)).copied();
        let (quic, check) = match (transport, quic, check) {
            (DATAGRAMS, _, Some(check)) => (None, check),
            (QUIC, Some(quic), _) => (Some(quic), PacketCheck::Aead),
            _ => return Err(UdpRefusal::Version),
        };
        if zero == 0 && (BUFFER_MIN..=BUFFER_MAX).contains(&buffer) {
            Ok(Self { quic, check, id, buffer })
        } else {
            Err(UdpRefusal::Version)
        }
    }
}

impl Accepted {
    pub(crate) fn encode(&self) -> [u8; UPGRADE_BYTES] {
        encode(0, self.check as u8, self.port, self.id, self.buffer)
    }
}

impl UdpRefusal {
    pub(crate) fn encode(self) -> [u8; UPGRADE_BYTES] {
        let at = REFUSALS.iter().position(|known| *known == self).unwrap_or_default();
        encode(at as u8 + 1, 0, 0, 0, 0)
    }
}

/// Decodes the answer to a request for `check`.
pub(crate) fn decode_answer(
    bytes: &[u8; UPGRADE_BYTES],
    wanted: PacketCheck,
) -> Result<Result<Accepted, UdpRefusal>, BadUpgrade> {
    let (verdict, check, port, id, buffer) = decode(bytes);
    let check = PacketCheck::ALL.get(usize::from(check)).copied();
    if verdict != 0 {
        return REFUSALS.get(usize::from(verdict) - 1).map(|refusal| Err(*refusal)).ok_or(BadUpgrade);
    }
    match check {
        Some(check) if check == wanted && port != 0 && (BUFFER_MIN..=BUFFER_MAX).contains(&buffer) => {
            Ok(Ok(Accepted { check, port, id, buffer }))
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
        let Request { quic, check, id, buffer } = request;
        match quic {
            Some(congestion) => format!("request {id} for QUIC with {}, buffer {buffer}", congestion.name()),
            None => format!("request for datagrams with {} to {id}, buffer {buffer}", check.name()),
        }
    });
    let answers = PacketCheck::ALL.into_iter().filter_map(|check| decode_answer(bytes, check).ok());
    let answer = answers.into_iter().next().map(|answer| match answer {
        Ok(Accepted { check, port, id, buffer }) => {
            format!("datagrams with {} to {id} at port {port}, buffer {buffer}", check.name())
        }
        Err(refusal) => format!("refused: {refusal}"),
    });
    request.ok().or(answer).ok_or_else(|| BadUpgrade.to_string())
}

fn encode(first: u8, second: u8, port: u16, id: u32, buffer: u64) -> [u8; UPGRADE_BYTES] {
    let mut bytes = [0; UPGRADE_BYTES];
    bytes[0] = first;
    bytes[1] = second;
    bytes[2..4].copy_from_slice(&port.to_le_bytes());
    bytes[4..8].copy_from_slice(&id.to_le_bytes());
    bytes[8..].copy_from_slice(&buffer.to_le_bytes());
    bytes
}

fn decode(bytes: &[u8; UPGRADE_BYTES]) -> (u8, u8, u16, u32, u64) {
    let [first, second, p0, p1, i0, i1, i2, i3, buffer @ ..] = *bytes;
    (
        first,
        second,
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
        fn requests_and_answers_round_trip(check in 0..4_usize, quic in 0..2_usize, port in 1..=u16::MAX, id: u32, buffer in BUFFER_MIN..=BUFFER_MAX) {
            let check = PacketCheck::ALL[check];
            let request = Request { quic: None, check, id, buffer };
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
            let request = Request { quic: Some(Congestion::ALL[quic]), check: PacketCheck::Aead, id, buffer };
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
            let accepted = Accepted { check, port, id, buffer };
            prop_assert_eq!(decode_answer(&accepted.encode(), check), Ok(Ok(accepted)));
            let other = PacketCheck::ALL[(check as usize + 1) % 4];
            prop_assert_eq!(decode_answer(&accepted.encode(), other), Err(BadUpgrade));
        }

        #[test]
        fn decoded_bytes_are_within_limits(bytes: [u8; UPGRADE_BYTES]) {
            if let Ok(request) = Request::decode(&bytes) {
                prop_assert!(request.buffer <= BUFFER_MAX);
            }
            if let Ok(Ok(accepted)) = decode_answer(&bytes, PacketCheck::Crc16) {
                prop_assert_eq!(accepted.check, PacketCheck::Crc16);
                prop_assert!(accepted.buffer <= BUFFER_MAX);
            }
        }
    }

    #[test]
    fn refusals_round_trip() {
        for refusal in REFUSALS {
            assert_eq!(decode_answer(&refusal.encode(), PacketCheck::Aead), Ok(Err(refusal)));
        }
    }
}
