//! Pacing by a nanosecond clock over a history of one second (R. Tornai et al., "CRC Check in a
//! High-Speed Connectionless File Transfer System", 2021, chapter 4).
//!
//! The pacer keeps the moment at which the next byte is due. A sender that was late sends what the
//! history of one second lacks, at no more than twice the rate.

use crate::time::{SECOND, Time, time_of};

#[derive(Clone, Debug)]
pub(crate) struct Pacer {
    /// Moment at which all bytes sent so far are paid for.
    due: Time,
    /// No packet leaves before this moment, also if the sender is late.
    earliest: Time,
    /// Time by which a sender may be late and still catch up.
    history: u64,
}

impl Pacer {
    /// Creates a pacer. If `is_held` is true, a late sender catches up to one second, else `burst`
    /// nanoseconds.
    pub(crate) fn new(now: Time, is_held: bool, burst: u64) -> Self {
        Self { due: now, earliest: now, history: if is_held { SECOND } else { burst } }
    }

    /// Returns the moment from which packets may leave.
    pub(crate) fn next(&self) -> Time {
        self.due.max(self.earliest)
    }

    /// Counts bytes that leave now.
    pub(crate) fn spend(&mut self, now: Time, bytes: u64, rate: u64) {
        let time = time_of(bytes, rate);
        self.due = self.due.max(now.saturating_sub(self.history)) + time;
        self.earliest = now + time / 2;
    }

    /// Adapts what is not yet paid for to a new rate.
    pub(crate) fn change_rate(&mut self, now: Time, old: u64, new: u64) {
        let scale = |at: Time| {
            let left = u128::from(at.saturating_sub(now)) * u128::from(old) / u128::from(new.max(1));
            at.min(now) + u64::try_from(left).unwrap_or(u64::MAX >> 1)
        };
        self.due = scale(self.due);
        self.earliest = scale(self.earliest);
    }

    /// Records that there was nothing to send, so that no debt remains.
    pub(crate) fn idle(&mut self, now: Time) {
        self.due = self.due.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::MILLI;

    #[test]
    fn a_late_sender_catches_up_within_a_second_at_twice_the_rate() {
        let rate = 1_000_000;
        let mut pacer = Pacer::new(0, true, MILLI);
        let (mut now, mut sent) = (0, 0);
        while now < SECOND {
            if (100 * MILLI..300 * MILLI).contains(&now) {
                // The process does not run.
                now = 300 * MILLI;
            }
            pacer.spend(now, 1000, rate);
            sent += 1000;
            assert!(sent <= 1000 + 2 * rate * now / SECOND, "{sent} bytes after {now} ns");
            now = pacer.next().max(now);
        }
        assert!((990_000..=1_002_000).contains(&sent), "{sent} bytes in the first second");
    }

    #[test]
    fn an_idle_sender_gathers_no_debt() {
        let mut pacer = Pacer::new(0, true, MILLI);
        pacer.spend(0, 1000, 1_000_000);
        pacer.idle(SECOND);
        pacer.spend(SECOND, 1000, 1_000_000);
        assert_eq!(pacer.next(), SECOND + MILLI);
    }
}
