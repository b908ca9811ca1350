//! Moments as file systems keep them.

/// A moment: seconds since 1970 (negative before it) and nanoseconds within the second (0 to 999,999,999).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment {
    /// Seconds since the epoch.
    pub sec: i64,
    /// Nanoseconds after that second, whatever its sign.
    pub nsec: u32,
}

impl Moment {
    /// Decimal seconds since 1970, as `touch -d @SECONDS` takes them: `1763721805.000000001`, and half a second before
    /// 1970 is `-0.500000000`.
    pub fn to_decimal(self) -> String {
        if self.sec < 0 && self.nsec > 0 {
            // The seconds are counted up to the next whole one, which may be 0: its sign is written apart.
            format!("-{}.{:09}", (self.sec + 1).unsigned_abs(), 1_000_000_000 - self.nsec)
        } else {
            format!("{}.{:09}", self.sec, self.nsec)
        }
    }
}
