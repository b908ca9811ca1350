//! Time.

/// A moment in nanoseconds since an arbitrary start, the same for all calls of one association.
pub type Time = u64;

pub(crate) const MICRO: u64 = 1_000;
pub(crate) const MILLI: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;

/// Returns the time in nanoseconds that `bytes` take at `rate` bytes per second.
pub(crate) fn time_of(bytes: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(bytes) * u128::from(SECOND) / u128::from(rate.max(1))).unwrap_or(u64::MAX)
}

/// Returns the bytes that `rate` bytes per second give in `nanos` nanoseconds.
pub(crate) fn bytes_in(nanos: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(nanos) * u128::from(rate) / u128::from(SECOND)).unwrap_or(u64::MAX)
}
