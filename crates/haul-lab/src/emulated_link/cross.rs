//! Cross traffic: virtual packets of other hosts that take room and time at the bottleneck.

use super::conditions::CrossTraffic;
use crate::random::Random;
use std::time::Duration;

/// Bytes on the wire of a packet of cross traffic: 1,500 and the Ethernet framing.
pub(super) const CROSS_BYTES: u64 = 1538;

/// All sources of a direction.
#[derive(Clone, Debug)]
pub(super) struct Sources {
    sources: Vec<Source>,
}

impl Sources {
    /// Creates sources that send their first packets after `now`.
    pub(super) fn new(traffic: &CrossTraffic, seed: u64, now: Duration) -> Sources {
        let (on, off) = (traffic.on.as_secs_f64(), traffic.off.as_secs_f64());
        let count = traffic.sources.max(1);
        let peak = traffic.rate.max(1) as f64 * (on + off) / on / f64::from(count);
        let gap = CROSS_BYTES as f64 * 8.0 / peak;
        let sources = (0..count).map(|index| {
            let random = Random::for_part(seed, u64::from(index));
            let mut source = Source { random, on, off, gap, next: now.as_secs_f64(), until: 0.0 };
            let is_on = source.random.unit() < on / (on + off);
            source.begin(if is_on { 0.0 } else { off });
            source.settle();
            source
        });
        Sources { sources: sources.collect() }
    }

    /// Returns the time of the next packet.
    pub(super) fn next(&self) -> Duration {
        let next = self.sources.iter().map(|source| source.next).fold(f64::INFINITY, f64::min);
        Duration::try_from_secs_f64(next).unwrap_or(Duration::MAX)
    }

    /// Takes the packet that [`Self::next`] announced.
    pub(super) fn take(&mut self) {
        if let Some(first) = self.sources.iter_mut().min_by(|a, b| a.next.total_cmp(&b.next)) {
            first.advance();
        }
    }
}

/// One source. All times are in seconds since the start of the link.
#[derive(Clone, Debug)]
struct Source {
    random: Random,
    /// Mean times of sending and of pausing.
    on: f64,
    off: f64,
    /// Time between two packets while it sends.
    gap: f64,
    next: f64,
    /// End of the time of sending.
    until: f64,
}

impl Source {
    fn advance(&mut self) {
        self.next += self.gap;
        self.settle();
    }

    /// Pauses if the time of sending ends before the next packet.
    fn settle(&mut self) {
        while self.next >= self.until {
            self.next = self.until;
            self.begin(self.off);
        }
    }

    /// Begins to send after a pause of the given mean from `next`. The first packet has a random
    /// phase, so that the mean number of packets is the quotient of `on` and `gap`.
    fn begin(&mut self, pause: f64) {
        let start = self.next + self.exponential(pause);
        self.until = start + self.exponential(self.on);
        self.next = start + self.gap * self.random.unit();
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.random.unit()).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of packets in each of `slots` periods of 10 ms.
    fn counted(traffic: &CrossTraffic, seed: u64, slots: usize) -> Vec<u64> {
        let mut sources = Sources::new(traffic, seed, Duration::ZERO);
        let mut counts = vec![0; slots];
        let mut last = Duration::ZERO;
        loop {
            let now = sources.next();
            assert!(now >= last, "times never decrease");
            last = now;
            let Some(count) = counts.get_mut((now.as_millis() / 10) as usize) else { return counts };
            *count += 1;
            sources.take();
        }
    }

    #[test]
    fn average_rate_is_the_given_one() {
        for (rate, sources) in [(100_000_000, 8), (10_000_000, 1), (900_000_000, 40)] {
            let traffic = CrossTraffic { sources, ..CrossTraffic::of_rate(rate) };
            let seconds = 100;
            let packets: u64 = counted(&traffic, 3, seconds * 100).iter().sum();
            let found = packets as f64 * CROSS_BYTES as f64 * 8.0 / seconds as f64;
            // A source has 5 cycles a second, each of which varies by about its length.
            let deviation = 1.0 / (5.0 * seconds as f64 * f64::from(sources)).sqrt();
            assert!((found / rate as f64 - 1.0).abs() < 4.0 * deviation, "{rate}: {found}");
        }
    }

    #[test]
    fn sources_send_and_pause_and_repeat_by_seed() {
        let traffic = CrossTraffic { sources: 1, ..CrossTraffic::of_rate(50_000_000) };
        let counts = counted(&traffic, 5, 1000);
        let idle = counts.iter().filter(|count| **count == 0).count();
        assert!((300..700).contains(&idle), "it pauses for half of the time: {idle}");
        // 100 Mbit/s while it sends.
        let busy = counts.iter().filter(|count| (80..=82).contains(*count)).count();
        assert!((250..600).contains(&busy), "{busy}");
        assert_eq!(counts, counted(&traffic, 5, 1000));
        assert_ne!(counts, counted(&traffic, 6, 1000));
    }

    #[test]
    fn a_source_without_pauses_is_constant() {
        let traffic = CrossTraffic { sources: 1, off: Duration::ZERO, ..CrossTraffic::of_rate(12_304_000) };
        let counts = counted(&traffic, 1, 100);
        assert!(counts.iter().all(|count| (7..=13).contains(count)), "{counts:?}");
    }
}
