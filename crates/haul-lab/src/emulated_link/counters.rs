//! Counters of one direction of a link.

use std::time::Duration;

/// Packets of one direction since the start of the link, by their fate. A large packet that the
/// kernel left to be segmented counts as its segments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that arrived at the entrance.
    pub packets: u64,
    /// Their bytes, with IP headers and without framing.
    pub bytes: u64,
    /// Packets handed to the far end, duplicates included.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// UDP packets dropped because UDP is blocked.
    pub dropped_udp: u64,
    /// Dropped fragments.
    pub dropped_fragments: u64,
    /// Packets dropped because they exceed the MTU.
    pub dropped_by_mtu: u64,
    /// Packets dropped because the queue was full.
    pub dropped_by_queue: u64,
    /// Packets dropped by CoDel.
    pub dropped_by_codel: u64,
    /// Packets dropped while the path was down.
    pub dropped_while_down: u64,
    /// Packets lost one by one.
    pub lost: u64,
    /// Packets lost in bursts.
    pub lost_in_bursts: u64,
    /// Packets with a flipped bit and a wrong checksum.
    pub corrupted: u64,
    /// Packets with a flipped bit and a valid checksum.
    pub corrupted_silently: u64,
    /// Packets that were late so that others overtook them.
    pub reordered: u64,
    /// Packets that arrived twice.
    pub duplicated: u64,
    /// Packets of cross traffic that passed the bottleneck.
    pub cross_passed: u64,
    /// Packets of cross traffic that the queue dropped.
    pub cross_dropped: u64,
    /// Greatest number of bytes in the queue.
    pub queue_bytes_max: u64,
    /// Packets that the far end's kernel did not take.
    pub undelivered: u64,
    /// Longest time by which a packet was handed over after its due time: how far this machine was
    /// behind.
    pub late_max: Duration,
}

impl Counters {
    /// Returns the counters with their names; `late_max_us` is in microseconds.
    pub fn named(&self) -> Vec<(&'static str, u64)> {
        vec![
            ("packets", self.packets),
            ("bytes", self.bytes),
            ("delivered", self.delivered),
            ("delivered_bytes", self.delivered_bytes),
            ("dropped_udp", self.dropped_udp),
            ("dropped_fragments", self.dropped_fragments),
            ("dropped_by_mtu", self.dropped_by_mtu),
            ("dropped_by_queue", self.dropped_by_queue),
            ("dropped_by_codel", self.dropped_by_codel),
            ("dropped_while_down", self.dropped_while_down),
            ("lost", self.lost),
            ("lost_in_bursts", self.lost_in_bursts),
            ("corrupted", self.corrupted),
            ("corrupted_silently", self.corrupted_silently),
            ("reordered", self.reordered),
            ("duplicated", self.duplicated),
            ("cross_passed", self.cross_passed),
            ("cross_dropped", self.cross_dropped),
            ("queue_bytes_max", self.queue_bytes_max),
            ("undelivered", self.undelivered),
            ("late_max_us", u64::try_from(self.late_max.as_micros()).unwrap_or(u64::MAX)),
        ]
    }

    /// Returns the number of packets that were dropped or lost on purpose.
    pub fn gone(&self) -> u64 {
        self.dropped_udp
            + self.dropped_fragments
            + self.dropped_by_mtu
            + self.dropped_by_queue
            + self.dropped_by_codel
            + self.dropped_while_down
            + self.lost
            + self.lost_in_bursts
    }
}
