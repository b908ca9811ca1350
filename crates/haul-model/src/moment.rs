//! Timestamps as stored by file systems.

/// A timestamp: seconds since 1970 (negative before it) and nanoseconds within the second (0 to
/// 999,999,999).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    /// Seconds since the epoch.
    pub sec: i64,
    /// Nanoseconds after that second, also if it is negative.
    pub nsec: u32,
}

impl Moment {
    /// Returns decimal seconds since 1970, as accepted by `touch -d @SECONDS`:
    /// `1763721805.000000001`. Half a second before 1970 is `-0.500000000`.
    pub fn to_decimal(self) -> String {
        if self.sec < 0 && self.nsec > 0 {
            // Round the seconds up to the next whole second. It can be 0, so the sign is written
            // separately.
            format!("-{}.{:09}", (self.sec + 1).unsigned_abs(), 1_000_000_000 - self.nsec)
        } else {
            format!("{}.{:09}", self.sec, self.nsec)
        }
    }
}
