//! Numbers of the packets that arrived: the replay window, and the runs of an ACK frame.

use crate::packet::put_varint;

/// Maximum length of the window in packets. A packet that is older counts as a duplicate.
pub(crate) const WINDOW_MAX: u64 = 1 << 17;
const WINDOW_MIN: u64 = 1 << 10;
/// Number of consecutive acknowledgements that report an arrival.
const REPORTS: usize = 8;

/// A bitmap of the packets below the highest that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Arrivals {
    /// Bit `number % length` for each number of the window.
    words: Vec<u64>,
    /// One more than the highest number.
    next: u64,
    /// Lowest number that arrived since the last acknowledgement.
    low: u64,
    /// The same of the previous acknowledgements.
    lows: [u64; REPORTS - 1],
}

impl Arrivals {
    pub(crate) fn new() -> Self {
        let words = vec![0; usize::try_from(WINDOW_MIN / 64).unwrap_or_default()];
        Self { words, next: 0, low: u64::MAX, lows: [u64::MAX; REPORTS - 1] }
    }

    fn window(&self) -> u64 {
        self.words.len() as u64 * 64
    }

    /// One more than the highest number that arrived.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    fn word(&self, number: u64) -> usize {
        usize::try_from(number / 64).unwrap_or_default() % self.words.len()
    }

    fn has(&self, number: u64) -> bool {
        self.words[self.word(number)] >> (number % 64) & 1 == 1
    }

    /// Lowest number of the window.
    fn floor(&self) -> u64 {
        // A word is cleared as a whole when the window enters it.
        self.next.next_multiple_of(64).saturating_sub(self.window())
    }

    /// True if the packet has not arrived and is not too old.
    pub(crate) fn is_new(&self, number: u64) -> bool {
        number >= self.next || (number >= self.floor() && !self.has(number))
    }

    /// Marks a new packet. `is_reported` is true if the packet requires an acknowledgement.
    /// Returns true if packets below it are missing that were not missing before.
    pub(crate) fn mark(&mut self, number: u64, is_reported: bool) -> bool {
        let mut is_gap = false;
        if number >= self.next {
            is_gap = number > self.next;
            self.grow(number);
            let (from, to) = (self.next.div_ceil(64), number / 64);
            let count = (to + 1).saturating_sub(from).min(self.words.len() as u64);
            for word in to + 1 - count..=to {
                let index = self.word(word * 64);
                self.words[index] = 0;
            }
            self.next = number + 1;
        }
        let index = self.word(number);
        self.words[index] |= 1 << (number % 64);
        if is_reported {
            self.low = self.low.min(number);
        }
        is_gap
    }

    /// Makes the window as long as the numbers used so far, up to the maximum.
    fn grow(&mut self, number: u64) {
        let wanted = (number + 1).next_power_of_two().clamp(WINDOW_MIN, WINDOW_MAX);
        if wanted <= self.window() {
            return;
        }
        let mut wider = vec![0; usize::try_from(wanted / 64).unwrap_or_default()];
        for word in self.floor() / 64..self.next.div_ceil(64) {
            let len = wider.len();
            wider[usize::try_from(word).unwrap_or_default() % len] = self.words[self.word(word * 64)];
        }
        self.words = wider;
    }

    /// Writes the runs of an ACK frame, at most `room` bytes, and counts the report.
    pub(crate) fn report(&mut self, room: usize, runs: &mut Vec<u8>) {
        runs.clear();
        let floor = self.lows.iter().fold(self.low, |low, other| low.min(*other)).max(self.floor());
        self.lows.rotate_right(1);
        self.lows[0] = self.low;
        self.low = u64::MAX;
        let Some(mut high) = self.next.checked_sub(1) else { return };
        loop {
            let below = self.previous(high, floor, false);
            let low = below.map_or(floor.min(high), |below| below + 1);
            put_varint(runs, high - low);
            let Some(next) = below.and_then(|below| self.previous(below, floor, true)) else { return };
            // Two numbers of at most 5 bytes follow.
            if runs.len() + 10 > room {
                return;
            }
            put_varint(runs, low - next - 2);
            high = next;
        }
    }

    /// Returns the highest number from `from` down to `floor` whose bit is `is_set`.
    fn previous(&self, from: u64, floor: u64, is_set: bool) -> Option<u64> {
        let mut at = from;
        while at >= floor {
            let word = self.words[self.word(at)];
            let word = if is_set { word } else { !word };
            let masked = word << (63 - at % 64);
            if masked != 0 {
                let found = at - u64::from(masked.leading_zeros());
                return (found >= floor).then_some(found);
            }
            at = (at - at % 64).checked_sub(1)?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packet::Ack;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn arrivals_match_a_set_of_numbers(
            steps in proptest::collection::vec((0_u64..400, any::<bool>()), 1..300),
            jump in prop_oneof![Just(0_u64), 1000_u64..3000, Just(WINDOW_MAX * 3)],
        ) {
            let (mut arrivals, mut twin) = (Arrivals::new(), BTreeSet::new());
            let mut runs = Vec::new();
            for (at, (number, is_report)) in steps.into_iter().enumerate() {
                let number = number + if at > 150 { jump } else { 0 };
                let floor = arrivals.floor();
                prop_assert_eq!(arrivals.is_new(number), !twin.contains(&number) && number >= floor);
                if arrivals.is_new(number) {
                    arrivals.mark(number, true);
                    twin.insert(number);
                }
                let largest = arrivals.next() - 1;
                prop_assert_eq!(Some(&largest), twin.last());
                if is_report {
                    let floor = arrivals.lows.iter().fold(arrivals.low, |a, b| a.min(*b)).max(arrivals.floor());
                    arrivals.report(60_000, &mut runs);
                    let ack = Ack { largest, delay: 0, credit: 0, runs: &runs };
                    let reported: BTreeSet<u64> = ack.ranges().flatten().collect();
                    let mut expected: BTreeSet<u64> = twin.range(floor.min(largest)..).copied().collect();
                    expected.insert(largest);
                    prop_assert_eq!(reported, expected);
                }
            }
        }
    }
}
