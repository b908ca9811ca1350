//! Protection of packets against damage and forgery.

use crc_fast::{CrcAlgorithm, Digest};
use std::fmt;

/// Number of packets of each key epoch. A [`Seal`] with keys derives the key of a packet from
/// `number / PACKETS_PER_EPOCH`. AES-GCM may protect 2^24.5 packets of full size under a key with a
/// margin of 2^-57 (RFC 8446, section 5.5).
pub const PACKETS_PER_EPOCH: u64 = 1 << 22;

/// Maximum number of bytes that a [`Seal`] adds to a packet.
pub const OVERHEAD_MAX: usize = 32;

/// Protection of the packets of one direction of one association.
///
/// The association seals each packet number once. It opens a number again only if an earlier packet
/// with this number was not authentic, and it opens no number that is more than one epoch above the
/// highest authentic number. Therefore an implementation may drop the keys of an epoch after it has
/// opened packets two epochs above it, and it derives at most one epoch in advance.
pub trait Seal: Send + fmt::Debug {
    /// Number of bytes that protection adds to a packet, at most [`OVERHEAD_MAX`].
    fn overhead(&self) -> usize;

    /// True if only a holder of the key can make a packet that opens. Violations of the protocol in
    /// such packets end the association. In other packets they count as damage.
    fn is_authentic(&self) -> bool;

    /// Protects a packet in place. The last [`Seal::overhead`] bytes of `body` are free for the
    /// tag.
    fn seal(&mut self, number: u64, header: &[u8], body: &mut [u8]);

    /// Checks and opens a packet in place. Returns the length of the plain body, which begins at
    /// the start of `body`, or `None` if the packet is damaged or forged. `body` is at least
    /// [`Seal::overhead`] bytes long.
    fn open(&mut self, number: u64, header: &[u8], body: &mut [u8]) -> Option<usize>;
}

/// A CRC behind the body, over header and body.
fn crc(algorithm: CrcAlgorithm, header: &[u8], body: &[u8]) -> u64 {
    let mut digest = Digest::new(algorithm);
    digest.update(header);
    digest.update(body);
    digest.finalize()
}

/// CRC-32C (Castagnoli, RFC 3385) of header and body, 4 bytes, little-endian. Detects damage and
/// does not detect forgery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc32c;

/// CRC-16 of ISO 3309 (CRC-16/X-25, the `qChecksum` of Qt) of header and body, 2 bytes,
/// little-endian. One damaged packet in 65,536 passes. Does not detect forgery.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc16;

/// No protection except the checksum of UDP. Detects neither forgery nor most damage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Unchecked;

impl Seal for Crc32c {
    fn overhead(&self) -> usize {
        4
    }

    fn is_authentic(&self) -> bool {
        false
    }

    fn seal(&mut self, _number: u64, header: &[u8], body: &mut [u8]) {
        let (plain, tag) = body.split_at_mut(body.len() - 4);
        tag.copy_from_slice(&crc(CrcAlgorithm::Crc32Iscsi, header, plain).to_le_bytes()[..4]);
    }

    fn open(&mut self, _number: u64, header: &[u8], body: &mut [u8]) -> Option<usize> {
        let (plain, tag) = body.split_last_chunk::<4>()?;
        (crc(CrcAlgorithm::Crc32Iscsi, header, plain).to_le_bytes()[..4] == *tag).then_some(plain.len())
    }
}

impl Seal for Crc16 {
    fn overhead(&self) -> usize {
        2
    }

    fn is_authentic(&self) -> bool {
        false
    }

    fn seal(&mut self, _number: u64, header: &[u8], body: &mut [u8]) {
        let (plain, tag) = body.split_at_mut(body.len() - 2);
        tag.copy_from_slice(&crc(CrcAlgorithm::Crc16IbmSdlc, header, plain).to_le_bytes()[..2]);
    }

    fn open(&mut self, _number: u64, header: &[u8], body: &mut [u8]) -> Option<usize> {
        let (plain, tag) = body.split_last_chunk::<2>()?;
        (crc(CrcAlgorithm::Crc16IbmSdlc, header, plain).to_le_bytes()[..2] == *tag).then_some(plain.len())
    }
}

impl Seal for Unchecked {
    fn overhead(&self) -> usize {
        0
    }

    fn is_authentic(&self) -> bool {
        false
    }

    fn seal(&mut self, _number: u64, _header: &[u8], _body: &mut [u8]) {}

    fn open(&mut self, _number: u64, _header: &[u8], body: &mut [u8]) -> Option<usize> {
        Some(body.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crcs_have_the_check_values_of_their_standards() {
        assert_eq!(crc(CrcAlgorithm::Crc16IbmSdlc, b"1234", b"56789"), 0x906e);
        assert_eq!(crc(CrcAlgorithm::Crc32Iscsi, b"1234", b"56789"), 0xe306_9283);
    }

    #[test]
    fn crcs_detect_each_damaged_byte() {
        for seal in [&mut Crc16 as &mut dyn Seal, &mut Crc32c] {
            let mut packet = *b"headerbody....";
            let len = 10 + seal.overhead();
            let (header, body) = packet[..len].split_at_mut(6);
            seal.seal(7, header, body);
            assert_eq!(seal.open(7, header, body), Some(4));
            for at in 0..len {
                let mut damaged = packet;
                damaged[at] ^= 0x10;
                let (header, body) = damaged[..len].split_at_mut(6);
                assert_eq!(seal.open(7, header, body), None, "byte {at}");
            }
        }
    }
}
