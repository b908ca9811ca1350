//! Packets as the kernel hands them over: with a virtio header, and possibly not segmented yet.

use super::channel::{Damage, Form};
use std::ops::Range;

/// Length of `struct virtio_net_hdr`, which the kernel puts before each packet.
pub(super) const HEADER_BYTES: usize = 10;

/// Ethernet overhead of a packet in bytes: addresses and type, checksum, preamble, and the gap
/// behind.
const FRAMING_BYTES: u64 = 14 + 4 + 8 + 12;

/// Flag of the virtio header: the checksum field has only the sum of the pseudo-header.
const NEEDS_CHECKSUM: u8 = 1;

/// Offsets of fields of the virtio header.
const FLAGS: usize = 0;
const SEGMENTATION: usize = 1;
const SEGMENT_BYTES: usize = 4;

const TCP: u8 = 6;
const UDP: u8 = 17;
/// Extension header of IPv6 fragments.
const FRAGMENT: u8 = 44;

/// Flags of TCP that belong to the last segment (FIN and PSH) and to the first (CWR).
const LAST_ONLY: u8 = 0x01 | 0x08;
const FIRST_ONLY: u8 = 0x80;

/// Offsets in a packet, behind the virtio header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Layout {
    is_v4: bool,
    is_fragment: bool,
    protocol: u8,
    transport: usize,
    payload: usize,
}

/// A packet of one or more segments.
#[derive(Debug)]
pub(super) struct Packet {
    bytes: Vec<u8>,
    layout: Layout,
    /// Bytes of payload in each segment but the last; 0 for a packet of one segment.
    segment_bytes: usize,
}

impl Layout {
    /// Reads the headers. Returns `None` for what is no IP packet.
    fn of(bytes: &[u8]) -> Option<Layout> {
        let ip = bytes.get(HEADER_BYTES..)?;
        let (is_v4, is_fragment, protocol, header) = match ip.first()? >> 4 {
            4 if ip.len() >= 20 => {
                let is_fragment = be16(ip, 6) & 0x3fff != 0;
                (true, is_fragment, ip[9], usize::from(ip[0] & 15) * 4)
            }
            6 if ip.len() >= 48 && ip[6] == FRAGMENT => (false, true, ip[40], 48),
            6 if ip.len() >= 40 => (false, false, ip[6], 40),
            _ => return None,
        };
        let transport = HEADER_BYTES + header;
        let (head, head_min) = match protocol {
            // The later fragments have no transport header.
            _ if is_fragment => (0, 0),
            TCP => (usize::from(*bytes.get(transport + 12)? >> 4) * 4, 20),
            UDP => (8, 8),
            _ => (0, 0),
        };
        let payload = transport + head;
        let is_fit = header >= 20 && head >= head_min && payload <= bytes.len();
        is_fit.then_some(Layout { is_v4, is_fragment, protocol, transport, payload })
    }

    /// Returns the offset of the transport checksum in the packet; `None` without one.
    fn checksum(&self) -> Option<usize> {
        match self.protocol {
            _ if self.is_fragment => None,
            TCP => Some(self.transport + 16),
            UDP => Some(self.transport + 6),
            _ => None,
        }
    }
}

impl Packet {
    /// Reads the headers of a packet from the kernel. Returns `None` for what is no IP packet.
    pub(super) fn parse(bytes: &[u8]) -> Option<Packet> {
        let layout = Layout::of(bytes)?;
        let segment_bytes = usize::from(u16::from_le_bytes([bytes[SEGMENT_BYTES], bytes[SEGMENT_BYTES + 1]]));
        let is_whole = bytes[SEGMENTATION] & 0x7f == 0
            || layout.checksum().is_none()
            || bytes.len() - layout.payload <= segment_bytes;
        let segment_bytes = if is_whole { 0 } else { segment_bytes };
        Some(Packet { bytes: bytes.to_vec(), layout, segment_bytes })
    }

    /// Returns the number of segments, at least 1.
    pub(super) fn segments(&self) -> usize {
        match self.segment_bytes {
            0 => 1,
            bytes => (self.bytes.len() - self.layout.payload).div_ceil(bytes),
        }
    }

    /// Returns the properties of a segment.
    pub(super) fn form(&self, segment: usize) -> Form {
        let payload = self.payload(&(segment..segment + 1)).len();
        let ip_bytes = (self.layout.payload - HEADER_BYTES + payload) as u64;
        Form {
            ip_bytes,
            wire_bytes: ip_bytes + FRAMING_BYTES,
            is_udp: self.layout.protocol == UDP,
            is_fragment: self.layout.is_fragment,
            has_payload: self.layout.checksum().is_some() && payload > 0,
        }
    }

    fn payload(&self, segments: &Range<usize>) -> Range<usize> {
        let (start, end) = (self.layout.payload, self.bytes.len());
        match self.segment_bytes {
            0 => start..end,
            bytes => start + segments.start * bytes..(start + segments.end * bytes).min(end),
        }
    }

    /// Returns a packet with only these segments, in `made` if they are not all.
    pub(super) fn part<'a>(&'a self, segments: Range<usize>, made: &'a mut Vec<u8>) -> &'a mut [u8] {
        let Layout { is_v4, protocol, transport, payload, .. } = self.layout;
        let count = self.segments();
        made.clear();
        made.extend_from_slice(&self.bytes[..payload]);
        made.extend_from_slice(&self.bytes[self.payload(&segments)]);
        if segments == (0..count) {
            return made;
        }
        if segments.len() == 1 {
            made[SEGMENTATION] = 0;
            made[SEGMENT_BYTES..SEGMENT_BYTES + 2].fill(0);
        }
        let total = made.len() - HEADER_BYTES;
        let ip = &mut made[HEADER_BYTES..transport];
        if is_v4 {
            put16(ip, 2, total);
            let identification = usize::from(be16(ip, 4)) + segments.start;
            put16(ip, 4, identification);
            put16(ip, 10, 0);
            let sum = !fold(sum(ip));
            put16(ip, 10, usize::from(sum));
        } else {
            put16(ip, 4, total - 40);
        }
        let length = made.len() - transport;
        if protocol == TCP {
            let skipped = (segments.start * self.segment_bytes) as u32;
            let number: [u8; 4] = std::array::from_fn(|at| made[transport + 4 + at]);
            let number = u32::from_be_bytes(number).wrapping_add(skipped);
            made[transport + 4..transport + 8].copy_from_slice(&number.to_be_bytes());
            let flags = &mut made[transport + 13];
            *flags &= if segments.end < count { !LAST_ONLY } else { !0 };
            *flags &= if segments.start > 0 { !FIRST_ONLY } else { !0 };
        } else {
            put16(made, transport + 4, length);
        }
        // A packet that is to be segmented always needs its checksum.
        if let Some(at) = self.layout.checksum() {
            let sum = fold(pseudo_header(made, &self.layout));
            put16(made, at, usize::from(sum));
        }
        made
    }

    /// Returns all bytes of the packet, virtio header included.
    pub(super) fn whole(&self) -> &[u8] {
        &self.bytes
    }
}

/// Flips a bit of a packet of one segment: in its payload, otherwise in its header. The checksum
/// becomes wrong, or valid if the damage is silent.
pub(super) fn damage(bytes: &mut [u8], damage: Damage) {
    let Some(layout) = Layout::of(bytes) else { return };
    if !damage.is_silent {
        fill_checksum(bytes, &layout);
    }
    let places = if layout.payload < bytes.len() {
        layout.payload..bytes.len()
    } else if let Some(at) = layout.checksum() {
        at..at + 2
    } else {
        return;
    };
    let bit = damage.draw % (places.len() as u64 * 8);
    bytes[places.start + (bit / 8) as usize] ^= 1 << (bit % 8);
    if damage.is_silent {
        fill_checksum(bytes, &layout);
    }
}

/// Computes the transport checksum, so that the kernel at the far end verifies it.
fn fill_checksum(bytes: &mut [u8], layout: &Layout) {
    let Some(at) = layout.checksum() else { return };
    bytes[FLAGS] &= !NEEDS_CHECKSUM;
    put16(bytes, at, 0);
    let sum = !fold(pseudo_header(bytes, layout) + sum(&bytes[layout.transport..]));
    // UDP has no checksum if the field is 0.
    put16(bytes, at, usize::from(if sum == 0 { 0xffff } else { sum }));
}

/// Returns the sum of the pseudo-header: addresses, protocol and length.
fn pseudo_header(bytes: &[u8], layout: &Layout) -> u64 {
    let ip = &bytes[HEADER_BYTES..];
    let addresses = if layout.is_v4 { &ip[12..20] } else { &ip[8..40] };
    sum(addresses) + u64::from(layout.protocol) + (bytes.len() - layout.transport) as u64
}

/// Returns the sum of the 16-bit words (RFC 1071), not folded.
fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(2);
    let whole: u64 = (&mut words).map(|word| u64::from(be16(word, 0))).sum();
    whole + words.remainder().first().map_or(0, |byte| u64::from(*byte) << 8)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Writes the low 16 bits of a number.
fn put16(bytes: &mut [u8], at: usize, value: usize) {
    bytes[at..at + 2].copy_from_slice(&(value as u16).to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a packet of the kernel: virtio header, IP header, transport header and `payload`
    /// bytes, to be cut into segments of `segment` bytes if that is not 0.
    fn made(is_v4: bool, protocol: u8, payload: usize, segment: u16) -> Vec<u8> {
        let head = if protocol == TCP { 32 } else { 8 };
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[FLAGS] = NEEDS_CHECKSUM;
        bytes[SEGMENTATION] = if segment == 0 { 0 } else { 1 };
        bytes[SEGMENT_BYTES..SEGMENT_BYTES + 2].copy_from_slice(&segment.to_le_bytes());
        let length = head + payload;
        if is_v4 {
            let mut ip = [0x45, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, protocol, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2];
            put16(&mut ip, 2, 20 + length);
            let check = !fold(sum(&ip));
            put16(&mut ip, 10, usize::from(check));
            bytes.extend(ip);
        } else {
            let mut ip = [0x11; 40];
            ip[0] = 0x60;
            ip[6] = protocol;
            put16(&mut ip, 4, length);
            bytes.extend(ip);
        }
        let transport = bytes.len();
        bytes.extend((0..head).map(|at| at as u8));
        bytes.extend((0..payload).map(|at| (at * 7 % 251) as u8));
        if protocol == TCP {
            bytes[transport + 12] = 0x80;
            bytes[transport + 13] = 0x99;
        } else {
            put16(&mut bytes, transport + 4, length);
        }
        let layout = Layout::of(&bytes).expect("a packet");
        let check = fold(pseudo_header(&bytes, &layout));
        put16(&mut bytes, layout.checksum().expect("of its kind"), usize::from(check));
        bytes
    }

    /// Returns true if the header and transport checksums of a packet of one segment are valid, as
    /// the kernel checks them.
    fn is_valid(bytes: &[u8]) -> bool {
        let layout = Layout::of(bytes).expect("a packet");
        let is_header_valid = !layout.is_v4 || fold(sum(&bytes[HEADER_BYTES..layout.transport])) == 0xffff;
        let all = fold(pseudo_header(bytes, &layout) + sum(&bytes[layout.transport..]));
        is_header_valid && all == 0xffff
    }

    #[test]
    fn segments_have_headers_and_valid_checksums_of_their_own() {
        for (is_v4, protocol) in [(true, TCP), (true, UDP), (false, TCP), (false, UDP)] {
            let whole = made(is_v4, protocol, 3001, 1000);
            let packet = Packet::parse(&whole).expect("a packet");
            assert_eq!(packet.segments(), 4);
            let headers = whole.len() - 3001 - HEADER_BYTES;
            assert_eq!(packet.form(0).ip_bytes, headers as u64 + 1000);
            assert_eq!(packet.form(3).wire_bytes, headers as u64 + 1 + 38);
            assert_eq!((packet.form(0).is_udp, packet.form(0).has_payload), (protocol == UDP, true));
            let mut room = Vec::new();
            assert_eq!(packet.part(0..4, &mut room), whole);
            let mut payload = Vec::new();
            for segment in 0..4 {
                let mut bytes = packet.part(segment..segment + 1, &mut room).to_vec();
                let layout = Layout::of(&bytes).expect("a packet");
                fill_checksum(&mut bytes, &layout);
                assert!(is_valid(&bytes), "{is_v4} {protocol} {segment}");
                assert_eq!(bytes[..2], [0, 0], "neither a checksum nor segments are left to do");
                payload.extend_from_slice(&bytes[layout.payload..]);
                let ip = &bytes[HEADER_BYTES..];
                if is_v4 {
                    assert_eq!(usize::from(be16(ip, 2)), ip.len());
                    assert_eq!(usize::from(be16(ip, 4)), (0xfffe + segment) & 0xffff);
                } else {
                    assert_eq!(usize::from(be16(ip, 4)), ip.len() - 40);
                }
                let transport = &bytes[layout.transport..];
                if protocol == TCP {
                    assert_eq!(transport[4..8], (0x0405_0607 + 1000 * segment as u32).to_be_bytes());
                    assert_eq!(transport[13], [0x90, 0x10, 0x10, 0x19][segment]);
                } else {
                    assert_eq!(usize::from(be16(transport, 4)), transport.len());
                }
            }
            assert_eq!(payload, whole[headers + HEADER_BYTES..]);
            let run = packet.part(1..3, &mut room);
            assert_eq!(Packet::parse(run).expect("a packet").segments(), 2, "a run stays one packet");
        }
    }

    #[test]
    fn damage_flips_one_bit_and_only_silent_damage_is_valid() {
        for (is_v4, protocol) in [(true, TCP), (true, UDP), (false, TCP), (false, UDP)] {
            let whole = made(is_v4, protocol, 100, 0);
            let start = whole.len() - 100;
            for draw in 0..1000 {
                for is_silent in [false, true] {
                    let mut bytes = whole.clone();
                    damage(&mut bytes, Damage { is_silent, draw });
                    assert_eq!(is_valid(&bytes), is_silent);
                    assert_eq!(bytes[FLAGS], 0, "the kernel verifies the checksum");
                    let flipped: u32 =
                        whole[start..].iter().zip(&bytes[start..]).map(|(a, b)| (a ^ b).count_ones()).sum();
                    assert_eq!(flipped, 1);
                }
            }
            let mut empty = made(is_v4, protocol, 0, 0);
            assert!(!Packet::parse(&empty).expect("a packet").form(0).has_payload);
            damage(&mut empty, Damage { is_silent: false, draw: 5 });
            assert!(!is_valid(&empty));
        }
    }

    #[test]
    fn fragments_and_other_packets_are_whole() {
        let mut first = made(true, UDP, 500, 100);
        first[HEADER_BYTES + 6] = 0x20;
        let packet = Packet::parse(&first).expect("a packet");
        assert_eq!((packet.segments(), packet.form(0).is_fragment, packet.form(0).is_udp), (1, true, true));
        assert!(!packet.form(0).has_payload, "its checksum is of all fragments");
        let mut sixth = vec![0; HEADER_BYTES + 100];
        sixth[HEADER_BYTES] = 0x60;
        sixth[HEADER_BYTES + 6] = FRAGMENT;
        sixth[HEADER_BYTES + 40] = UDP;
        let form = Packet::parse(&sixth).expect("a packet").form(0);
        assert_eq!((form.is_fragment, form.is_udp, form.ip_bytes), (true, true, 100));
        // ICMP has no checksum that could be repaired here.
        let mut echo = made(true, UDP, 56, 0);
        echo[HEADER_BYTES + 9] = 1;
        let before = echo.clone();
        damage(&mut echo, Damage { is_silent: false, draw: 17 });
        assert_ne!(echo, before);
    }

    #[test]
    fn no_bytes_from_the_kernel_panic() {
        crate::random::fuzz(3000, |random| {
            let is_v4 = random.chance(50);
            let protocol = [TCP, UDP][random.index(2)];
            let whole = made(is_v4, protocol, random.index(300), random.below(100) as u16);
            let mut bytes = random.mutate(&whole);
            if let Some(packet) = Packet::parse(&bytes) {
                let (count, mut room) = (packet.segments(), Vec::new());
                let (start, end) = (random.index(count), 1 + random.index(count));
                packet.form(start);
                packet.part(start..end.max(start + 1), &mut room);
            }
            damage(&mut bytes, Damage { is_silent: random.chance(50), draw: random.next_u64() });
        });
    }
}
