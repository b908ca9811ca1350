//! Round-trip time (RFC 9002, section 5).

use crate::time::{MILLI, Time};

/// Time for which the minimum is kept, in nanoseconds.
const MIN_WINDOW: u64 = 10_000 * MILLI;
/// Round-trip time before the first sample, if nothing is known.
const INITIAL: u64 = 100 * MILLI;

#[derive(Clone, Debug)]
pub(crate) struct Rtt {
    pub(crate) latest: u64,
    /// Minimum of the window, if there is a sample.
    pub(crate) min: Option<u64>,
    /// Time of the sample that set the minimum.
    pub(crate) min_at: Time,
    smoothed: Option<u64>,
    variation: u64,
    initial: u64,
}

impl Rtt {
    /// Starts with an estimate in nanoseconds.
    pub(crate) fn new(now: Time, initial: Option<u64>) -> Self {
        let initial = initial.unwrap_or(INITIAL);
        Self { latest: 0, min: None, min_at: now, smoothed: None, variation: initial / 2, initial }
    }

    /// Takes a sample and the time by which the peer delayed the acknowledgement. Returns the
    /// sample without this delay.
    pub(crate) fn take(&mut self, now: Time, sample: u64, delay: u64) -> u64 {
        // The minimum ignores the delay of the peer, so that a wrong delay does not distort it
        // much.
        let raw = sample;
        let sample = if delay < raw { raw - delay } else { raw };
        self.latest = sample;
        let is_old = now.saturating_sub(self.min_at) > MIN_WINDOW;
        if is_old || self.min.is_none_or(|min| sample <= min) {
            self.min = Some(sample);
            self.min_at = now;
        } else if self.min.is_some_and(|min| sample <= min + min / 32) {
            self.min_at = now;
        }
        match &mut self.smoothed {
            Some(smoothed) => {
                self.variation = (3 * self.variation + smoothed.abs_diff(sample)) / 4;
                *smoothed = (7 * *smoothed + sample) / 8;
            }
            None => {
                self.smoothed = Some(sample);
                self.variation = sample / 2;
            }
        }
        sample
    }

    pub(crate) fn smoothed(&self) -> u64 {
        self.smoothed.unwrap_or(self.initial)
    }

    pub(crate) fn min(&self) -> u64 {
        self.min.unwrap_or(self.initial)
    }

    pub(crate) fn has_sample(&self) -> bool {
        self.smoothed.is_some()
    }

    /// Time after the last packet at which a probe is sent if no acknowledgement arrived.
    pub(crate) fn probe_timeout(&self) -> u64 {
        let smoothed = self.smoothed();
        smoothed + (4 * self.variation).max(2 * MILLI) + ack_delay(smoothed)
    }
}

/// Delay of acknowledgements in nanoseconds for a round-trip time.
pub(crate) fn ack_delay(rtt: u64) -> u64 {
    (rtt / 8).clamp(MILLI / 5, 25 * MILLI)
}
