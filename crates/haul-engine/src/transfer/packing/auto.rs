//! Decision whether compression helps: a link that is slower than the CPU makes the worker of a
//! lane wait, and compressed bytes wait less.
//!
//! ```text
//!            a plain byte waits longer than packing one takes, twice in a row
//!   Plain ------------------------------------------------------------------> Tried
//!     ^  ^                                                                      |
//!     |  +---- no faster than it was: the sink or the processor is the wall ----+
//!     |                                                                         | faster
//!     +------- from time to time, to look at the link as it is now --------- Packed
//! ```
//!
//! Waiting alone does not distinguish a slow link from a slow sink, and decompression would only
//! burden a slow sink. The result of compression is therefore compared with the state before, and
//! each decision that is revoked delays the next one.

use std::time::Duration;

/// Number of plain bytes in a span, which is evaluated as a unit.
const SPAN_BYTES: u64 = 1 << 20;

/// A span ends earlier if the lane has blocked its worker for this time.
const SPAN_TIME: Duration = Duration::from_millis(100);

/// Compression is tried if a plain byte waits longer than its compression takes, by at least this
/// factor.
const MARGIN: f64 = 1.1;

/// Number of consecutive spans that must agree before compression is tried. A single span can be an
/// outlier.
const AGREEING_SPANS: u32 = 2;

/// Maximum compressed fraction of a byte for which compression is worthwhile.
const COMPRESSED_FRACTION_MAX: f64 = 0.9;

/// Compression is kept if a byte takes at most this fraction of a plain byte's time.
const KEEP_FRACTION_MAX: f64 = 0.95;

/// Number of bytes on the wire after which the buffers between the two sides hold no earlier data.
/// TCP buffers hold a few MiB.
const TURNED_OVER_BYTES: u64 = 8 << 20;

/// Number of spans that are evaluated after that.
const EVALUATED_SPANS: u32 = 8;

/// Number of plain spans between two samples of compression time and ratio.
const SAMPLE_EVERY: u32 = 8;

/// A sample is due only if the lane has blocked its worker for this multiple of the last sample's
/// time. If no worker waits, samples are useless.
const SAMPLE_WORTH: u32 = 20;

/// Number of plain spans after a trial without gain: the initial and the maximum value. It doubles
/// each time.
const REST: (u32, u32) = (64, 4096);

/// Number of compressed spans until the link is measured again: the initial and the maximum value.
/// A span counts more, by the factor below, if the lane accepted everything immediately, because it
/// then says nothing about the speed of the link.
const REMEASURE_AFTER: (u32, u32) = (256, 2048);
const UNHINDERED_COUNTS: u32 = 16;

/// Measurements of one block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measurement {
    /// Size of the block in bytes.
    pub(super) plain: u64,
    /// Number of bytes sent for it.
    pub(super) sent_bytes: u64,
    /// Time for compressing it; zero if that was not tried.
    pub(super) packing: Duration,
    /// Time for reading and hashing it.
    pub(super) own: Duration,
    /// Time that the lane blocked the worker.
    pub(super) lane: Duration,
}

impl Measurement {
    fn add(&mut self, other: &Measurement) {
        self.plain += other.plain;
        self.sent_bytes += other.sent_bytes;
        self.packing += other.packing;
        self.own += other.own;
        self.lane += other.lane;
    }

    /// Returns `time` in seconds per plain byte.
    fn each(&self, time: Duration) -> f64 {
        time.as_secs_f64() / self.plain.max(1) as f64
    }

    fn left(&self) -> f64 {
        self.sent_bytes as f64 / self.plain.max(1) as f64
    }

    fn all(&self) -> Duration {
        self.packing + self.own + self.lane
    }
}

/// State of the decision for one lane.
#[derive(Debug)]
pub(super) struct Auto {
    mode: Mode,
    span: Measurement,
    /// The last block that was compressed, even without gain.
    sample: Measurement,
    /// Number of plain spans since then, and the time that the lane blocked the worker in them.
    sampled: u32,
    waited: Duration,
    /// Length of the next rest, and number of spans until the next measurement of the link.
    rest: u32,
    remeasure_after: u32,
}

#[derive(Debug)]
enum Mode {
    /// Only samples are compressed. After `rest` spans compression may be tried.
    Plain { rest: u32, alike: u32 },
    /// Everything is compressed. The time must be below `plain`, in seconds per byte.
    Tried { plain: f64, turned_over: u64, judged: Measurement, spans: u32 },
    /// Everything is compressed. After `left` spans the link is measured again.
    Packed { left: u32 },
}

impl Default for Auto {
    fn default() -> Auto {
        Auto {
            mode: Mode::Plain { rest: 0, alike: 0 },
            span: Measurement::default(),
            sample: Measurement::default(),
            sampled: SAMPLE_EVERY,
            waited: Duration::ZERO,
            rest: REST.0,
            remeasure_after: REMEASURE_AFTER.0,
        }
    }
}

impl Auto {
    /// Returns true if the next block is to be compressed.
    pub(super) fn packs_next(&self) -> bool {
        let is_worth_it = self.waited >= self.sample.packing * SAMPLE_WORTH;
        !matches!(self.mode, Mode::Plain { .. }) || (self.sampled >= SAMPLE_EVERY && is_worth_it)
    }

    /// Records the measurements of a block.
    pub(super) fn sent(&mut self, measurement: &Measurement) {
        let is_tried = !measurement.packing.is_zero();
        if is_tried {
            self.sample = *measurement;
            self.sampled = 0;
            self.waited = Duration::ZERO;
            if let Mode::Plain { alike, .. } = &mut self.mode {
                // The lane made progress during the compression. The next span therefore waits less
                // than usual and must not be the reference.
                *alike = 0;
            }
        }
        if is_tried == matches!(self.mode, Mode::Plain { .. }) {
            // Samples do not count in a plain span, and blocks too short for compression do not
            // count in a compressed one.
            return;
        }
        self.span.add(measurement);
        if self.span.plain >= SPAN_BYTES || self.span.lane >= SPAN_TIME {
            let span = std::mem::take(&mut self.span);
            self.decide(&span);
        }
    }

    fn decide(&mut self, span: &Measurement) {
        let sample = self.sample;
        match &mut self.mode {
            Mode::Plain { rest, alike } => {
                self.sampled = self.sampled.saturating_add(1);
                self.waited += span.lane;
                *rest = rest.saturating_sub(1);
                let waits = span.each(span.lane) > sample.each(sample.packing) * MARGIN;
                let helps =
                    waits && sample.plain > 0 && sample.left() <= COMPRESSED_FRACTION_MAX && *rest == 0;
                *alike = if helps { *alike + 1 } else { 0 };
                if *alike >= AGREEING_SPANS {
                    let plain = span.each(span.all());
                    self.mode =
                        Mode::Tried { plain, turned_over: 0, judged: Measurement::default(), spans: 0 };
                } else if *alike == 0 && *rest == 0 && !waits {
                    // The link is known to be faster now.
                    self.remeasure_after = REMEASURE_AFTER.0;
                }
            }
            _ if span.left() > COMPRESSED_FRACTION_MAX => self.mode = Mode::Plain { rest: 0, alike: 0 },
            Mode::Tried { turned_over, .. } if *turned_over < TURNED_OVER_BYTES => {
                *turned_over += span.sent_bytes;
            }
            Mode::Tried { plain, judged, spans, .. } => {
                judged.add(span);
                *spans += 1;
                if *spans < EVALUATED_SPANS {
                    return;
                }
                if judged.each(judged.all()) < *plain * KEEP_FRACTION_MAX {
                    self.rest = REST.0;
                    self.mode = Mode::Packed { left: self.remeasure_after };
                } else {
                    self.mode = Mode::Plain { rest: self.rest, alike: 0 };
                    self.rest = (2 * self.rest).min(REST.1);
                }
            }
            Mode::Packed { left } => {
                let is_unhindered = span.lane < span.packing / 4;
                *left = left.saturating_sub(if is_unhindered { UNHINDERED_COUNTS } else { 1 });
                if *left == 0 {
                    self.remeasure_after = (2 * self.remeasure_after).min(REMEASURE_AFTER.1);
                    self.mode = Mode::Plain { rest: 0, alike: 0 };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    /// Size of a block in bytes.
    const BLOCK: u64 = 256 << 10;

    /// A lane and its two ends. Times are in seconds per MiB.
    #[derive(Clone, Copy, Debug)]
    struct World {
        /// Time of a byte on the wire.
        link: f64,
        /// Times of a byte of the file: reading and hashing at the source, compression there,
        /// everything at the sink.
        own: f64,
        packing: f64,
        sink: f64,
        /// Compressed fraction.
        left: f64,
        /// Number of bytes that fit into the buffers of the link.
        buffer: u64,
    }

    /// A lane in virtual time.
    #[derive(Default)]
    struct Lane {
        now: f64,
        /// For each block in flight, the time at which the sink has taken it, and its bytes on the
        /// wire.
        queue: VecDeque<(f64, u64)>,
        last: f64,
        packed: u64,
        all: u64,
    }

    impl Lane {
        /// Sends a block. Returns its measurements.
        fn send(&mut self, world: &World, packs: bool) -> Measurement {
            let mib = BLOCK as f64 / f64::from(1 << 20);
            let packed = (BLOCK as f64 * world.left) as u64;
            let saves = packed < BLOCK - BLOCK / 32;
            let sent_bytes = if packs && saves { packed } else { BLOCK };
            let packing = if packs { world.packing * mib } else { 0.0 };
            self.now += world.own * mib + packing;
            let before = self.now;
            while self.queue.iter().map(|(_, bytes)| bytes).sum::<u64>() + sent_bytes
                > world.buffer.max(sent_bytes)
            {
                let (taken, _) = self.queue.pop_front().expect("an empty queue holds nothing");
                self.now = self.now.max(taken);
            }
            let crossing = world.link * sent_bytes as f64 / f64::from(1 << 20);
            self.last = self.last.max(self.now) + crossing.max(world.sink * mib);
            self.queue.push_back((self.last, sent_bytes));
            while self.queue.front().is_some_and(|(taken, _)| *taken <= self.now) {
                self.queue.pop_front();
            }
            self.all += 1;
            self.packed += u64::from(packs);
            let time = Duration::from_secs_f64;
            Measurement {
                plain: BLOCK,
                sent_bytes,
                packing: time(packing),
                own: time(world.own * mib),
                lane: time(self.now - before),
            }
        }

        /// Sends `mib` MiB as `auto` decides. Returns the fraction of blocks that were compressed.
        fn run(&mut self, auto: &mut Auto, world: &World, mib: u64) -> f64 {
            let (packed, all) = (self.packed, self.all);
            for _ in 0..mib * 4 {
                let measurement = self.send(world, auto.packs_next());
                auto.sent(&measurement);
            }
            (self.packed - packed) as f64 / (self.all - all) as f64
        }
    }

    /// Returns the time for `mib` MiB if everything is compressed, or nothing.
    fn fixed(world: &World, packs: bool, mib: u64) -> f64 {
        let mut lane = Lane::default();
        for _ in 0..mib * 4 {
            lane.send(world, packs);
        }
        lane.last
    }

    /// A text on a host that compresses 200 MiB/s, and a link of `link` seconds per MiB.
    fn text(link: f64) -> World {
        World { link, own: 0.001, packing: 0.005, sink: 0.001, left: 0.3, buffer: 4 << 20 }
    }

    #[test]
    fn slow_link_gets_compressed_blocks() {
        let (world, mut lane) = (text(0.1), Lane::default());
        let packed = lane.run(&mut Auto::default(), &world, 400);
        assert!(packed > 0.95, "{packed}");
        assert!(lane.last < 0.37 * fixed(&world, false, 400), "{}", lane.last);
    }

    #[test]
    fn fast_link_gets_plain_blocks() {
        let (world, mut lane) = (text(0.000_5), Lane::default());
        let packed = lane.run(&mut Auto::default(), &world, 1000);
        assert!(packed < 0.04, "only samples, not {packed}");
    }

    /// Compression that takes 200 times as long as sending, tried once in 32 blocks, once made the
    /// transfer six times slower.
    #[test]
    fn slow_compression_on_a_fast_link_is_sampled_once() {
        let world = World { link: 0.000_1, own: 0.000_2, packing: 0.035, sink: 0.000_2, ..text(0.0) };
        let mut lane = Lane::default();
        lane.run(&mut Auto::default(), &world, 4000);
        assert_eq!(lane.packed, 1);
    }

    /// The plain blocks after a sample once seemed to save the time of the sample, and compression
    /// was abandoned.
    #[test]
    fn sample_time_is_not_counted_for_plain_blocks() {
        let buffer = 3_372_974;
        let world = World { link: 0.047, own: 0.008, packing: 0.024, sink: 0.000_2, left: 0.81, buffer };
        let mut lane = Lane::default();
        let packed = lane.run(&mut Auto::default(), &world, 4000);
        assert!(packed > 0.9, "{packed}");
    }

    #[test]
    fn very_slow_link_compresses_after_few_blocks() {
        let (world, mut lane) = (World { buffer: 64 << 10, ..text(2.0) }, Lane::default());
        let packed = lane.run(&mut Auto::default(), &world, 4);
        assert!(packed > 0.75, "{packed}");
    }

    #[test]
    fn slow_sink_is_not_treated_as_a_slow_link() {
        let world = World { sink: 0.02, ..text(0.000_5) };
        let mut lane = Lane::default();
        let packed = lane.run(&mut Auto::default(), &world, 4000);
        assert!(packed < 0.2, "{packed}");
    }

    #[test]
    fn blocks_too_short_to_compress_do_not_change_the_choice() {
        let (mut auto, mut lane) = (Auto::default(), Lane::default());
        lane.run(&mut auto, &text(0.1), 40);
        assert!(auto.packs_next());
        let short =
            Measurement { plain: 100, sent_bytes: 100, lane: 2 * SPAN_TIME, ..Measurement::default() };
        (0..100).for_each(|_| auto.sent(&short));
        assert!(auto.packs_next());
    }

    #[test]
    fn incompressible_data_is_sent_plain() {
        let world = World { left: 1.0, ..text(0.1) };
        let packed = Lane::default().run(&mut Auto::default(), &world, 1000);
        assert!(packed < 0.05, "only samples, not {packed}");
    }

    #[test]
    fn choice_follows_changes_of_the_link() {
        let (mut auto, mut lane) = (Auto::default(), Lane::default());
        assert!(lane.run(&mut auto, &text(0.000_5), 200) < 0.1);
        assert!(lane.run(&mut auto, &text(0.1), 400) > 0.9);
        lane.run(&mut auto, &text(0.000_5), 1200);
        assert!(lane.run(&mut auto, &text(0.000_5), 200) < 0.1, "by then it has been seen to be fast");
        assert!(lane.run(&mut auto, &text(0.1), 400) > 0.9);
    }

    #[test]
    fn choice_follows_changes_of_the_data() {
        let (mut auto, mut lane) = (Auto::default(), Lane::default());
        assert!(lane.run(&mut auto, &World { left: 0.99, ..text(0.1) }, 200) < 0.1);
        assert!(lane.run(&mut auto, &text(0.1), 400) > 0.9);
        assert!(lane.run(&mut auto, &World { left: 0.99, ..text(0.1) }, 200) < 0.1);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

        /// For any parameters, the automatic choice takes less than 1.2 times as long as the better
        /// fixed one.
        #[test]
        fn automatic_choice_is_within_20_percent_of_the_best(
            link in 0.000_1f64..0.2,
            own in 0.000_2f64..0.01,
            packing in 0.001f64..0.05,
            sink in 0.000_2f64..0.02,
            left in 0.05f64..1.0,
            buffer in (64u64 << 10)..(8 << 20),
        ) {
            let world = World { link, own, packing, sink, left, buffer };
            let mut lane = Lane::default();
            lane.run(&mut Auto::default(), &world, 4000);
            let best = fixed(&world, true, 4000).min(fixed(&world, false, 4000));
            prop_assert!(lane.last < best * 1.2, "{} s instead of {best} s", lane.last);
        }
    }
}
