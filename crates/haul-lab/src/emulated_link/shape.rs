//! Delay and rate of one direction of a link.

use super::LinkProfile;
use std::time::Duration;

/// Ethernet overhead of a packet in bytes: addresses and type, checksum, preamble, and the gap
/// behind.
const FRAMING_BYTES: u64 = 14 + 4 + 8 + 12;

/// Length of `struct virtio_net_hdr`, which the kernel puts before each packet.
pub(super) const HEADER_BYTES: usize = 10;

/// One direction of a link: a queue that drains at the link's rate, and then the delay.
#[derive(Debug)]
pub(super) struct Shape {
    profile: LinkProfile,
    /// Time when the last queued byte leaves the queue.
    free: Duration,
}

impl Shape {
    pub(super) fn new(profile: LinkProfile) -> Shape {
        Shape { profile, free: Duration::ZERO }
    }

    /// Returns the time at which a packet of `wire_bytes` bytes that arrives at `now` leaves the
    /// link; `None` if the queue is full and the packet is lost. These times never decrease, so no
    /// packet overtakes another.
    pub(super) fn due(&mut self, now: Duration, wire_bytes: u64) -> Option<Duration> {
        let Some(rate) = self.profile.rate else { return Some(now + self.profile.delay) };
        let waits = self.free.saturating_sub(now);
        let queued = waits.as_nanos() * u128::from(rate) / 8_000_000_000;
        if queued > u128::from(self.profile.queue) {
            return None;
        }
        let nanos = u128::from(wire_bytes) * 8_000_000_000 / u128::from(rate.max(1));
        self.free = self.free.max(now) + Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        Some(self.free + self.profile.delay)
    }
}

/// Returns the number of bytes that a packet from the kernel takes on a wire after TCP
/// segmentation. Each segment repeats the headers and has a frame of its own.
pub(super) fn wire_bytes(packet: &[u8]) -> u64 {
    let field = |at: usize| {
        packet.get(at..at + 2).map_or(0, |bytes| u64::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    };
    let bytes = packet.len().saturating_sub(HEADER_BYTES) as u64;
    let (headers, segment) = (field(2), field(4));
    let is_cut = packet.get(1).is_some_and(|kind| kind & 0x7f != 0) && segment > 0 && bytes > headers;
    let segments = if is_cut { (bytes - headers).div_ceil(segment) } else { 1 };
    bytes + (segments - 1) * headers + segments * FRAMING_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(count: u64) -> Duration {
        Duration::from_millis(count)
    }

    #[test]
    fn without_a_rate_only_the_delay_applies() {
        let mut shape = Shape::new(LinkProfile { delay: millis(15), rate: None, queue: 0 });
        assert_eq!(shape.due(millis(1), 1 << 30), Some(millis(16)));
        assert_eq!(shape.due(millis(2), 1), Some(millis(17)));
    }

    #[test]
    fn packets_are_paced_and_a_full_queue_drops_them() {
        // 1,000 bytes take 1 ms.
        let mut shape = Shape::new(LinkProfile { delay: millis(10), rate: Some(8_000_000), queue: 2000 });
        assert_eq!(shape.due(millis(0), 1000), Some(millis(11)));
        assert_eq!(shape.due(millis(0), 1000), Some(millis(12)));
        assert_eq!(shape.due(millis(0), 1000), Some(millis(13)));
        assert_eq!(shape.due(millis(0), 1000), None, "3,000 bytes wait");
        assert_eq!(shape.due(millis(1), 1000), Some(millis(14)));
        assert_eq!(shape.due(millis(100), 1000), Some(millis(111)), "the link was idle");
    }

    #[test]
    fn segmented_packet_counts_as_its_segments() {
        let mut packet = vec![0; HEADER_BYTES + 40 + 3000];
        assert_eq!(wire_bytes(&packet), 3040 + 38);
        packet[1] = 1;
        packet[2..4].copy_from_slice(&40_u16.to_le_bytes());
        packet[4..6].copy_from_slice(&1448_u16.to_le_bytes());
        assert_eq!(wire_bytes(&packet), 3000 + 3 * (40 + 38));
        assert_eq!(wire_bytes(&[0; 4]), 38);
    }
}
