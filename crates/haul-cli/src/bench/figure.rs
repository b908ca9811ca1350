//! A measurement: its subject, and the rates of its runs.

use haul_digest::Algorithm;
use haul_digest::lanes::Backend;
use serde::Serialize;
use std::time::Duration;

/// One figure, measured several times.
#[derive(Clone, Debug)]
pub(super) struct Measurement {
    pub(super) algorithm: Algorithm,
    pub(super) place: DataLocation,
    pub(super) method: Method,
    pub(super) rates: Rates,
    /// Block size of hashing or reading, in bytes.
    pub(super) block: usize,
    /// Bytes of each run; `None` if the time bounds the runs.
    pub(super) run_bytes: Option<u64>,
    /// Time relative to reading alone: the median of the runs' ratios.
    pub(super) times_reading: Option<f64>,
    /// The largest cached share of a cold run's range at its start; `None` if the system does not
    /// report it.
    pub(super) cached_share: Option<f64>,
}

/// Location of the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DataLocation {
    /// Buffers that stay in the CPU caches.
    Memory,
    /// A file in the page cache.
    Warm,
    /// A file that was dropped from the page cache.
    Cold,
}

/// Layout of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    /// One stream on one core.
    Stream,
    /// Several streams in the lanes of one core's registers.
    Lanes { streams: usize, backend: Option<Backend> },
    /// Objects of one stream that workers share, with their values combined.
    Workers { threads: usize },
    /// One thread that only reads.
    Reading,
    /// One thread that reads and hashes each block in turn.
    Synchronous,
    /// A thread that reads and a thread that hashes, with a bounded queue between them.
    Pipelined,
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Method::Stream => "stream",
            Method::Lanes { .. } => "lanes",
            Method::Workers { .. } => "workers",
            Method::Reading => "reading",
            Method::Synchronous => "synchronous",
            Method::Pipelined => "pipelined",
        }
    }

    fn threads(self) -> usize {
        match self {
            Method::Workers { threads } => threads,
            Method::Pipelined => 2,
            _ => 1,
        }
    }
}

/// Returns the usual name of a backend.
pub(super) fn backend_name(backend: Backend) -> &'static str {
    match backend {
        Backend::Avx512 => "AVX-512",
        Backend::Avx2 => "AVX2",
        Backend::ShaNi => "SHA-NI",
        Backend::Sse2 => "SSE2",
        Backend::Portable => "portable",
    }
}

/// Rates of several runs, in GB/s (10^9 bytes per second); never empty, in ascending order.
#[derive(Clone, Debug)]
pub(super) struct Rates(Vec<f64>);

impl Rates {
    /// Computes the rates of runs from their bytes and times.
    ///
    /// # Panics
    /// Panics if there is no run, or a run without bytes. Every caller makes at least one run and
    /// processes data in each.
    pub(super) fn of(runs: &[(u64, Duration)]) -> Rates {
        assert!(
            !runs.is_empty() && runs.iter().all(|run| run.0 > 0),
            "each figure has runs, each run has bytes"
        );
        // A clock may tick slower than a tiny run: a time of zero counts as one nanosecond.
        let rate = |&(bytes, took): &(u64, Duration)| bytes as f64 / took.as_nanos().max(1) as f64;
        let mut rates: Vec<f64> = runs.iter().map(rate).collect();
        rates.sort_by(f64::total_cmp);
        Rates(rates)
    }

    pub(super) fn median(&self) -> f64 {
        median_of_sorted(&self.0)
    }

    pub(super) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or_default()
    }

    pub(super) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }

    pub(super) fn runs(&self) -> usize {
        self.0.len()
    }
}

/// Returns the median of at least one number; for an even count, the mean of the two in the middle.
pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    median_of_sorted(&values)
}

fn median_of_sorted(values: &[f64]) -> f64 {
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}

/// A measurement as a JSON object.
#[derive(Serialize)]
struct Line {
    algorithm: &'static str,
    place: DataLocation,
    #[serde(rename = "way")]
    method: &'static str,
    threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    streams: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backend: Option<&'static str>,
    block_bytes: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_bytes: Option<u64>,
    runs: usize,
    gb_per_s: f64,
    gb_per_s_min: f64,
    gb_per_s_max: f64,
    s_per_gb: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    times_reading: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_share: Option<f64>,
}

impl Measurement {
    /// Returns one line of JSON, without its end.
    pub(super) fn to_json(&self) -> String {
        let (streams, backend) = match self.method {
            Method::Lanes { streams, backend } => (Some(streams), backend.map(backend_name)),
            _ => (None, None),
        };
        let line = Line {
            algorithm: self.algorithm.name(),
            place: self.place,
            method: self.method.name(),
            threads: self.method.threads(),
            streams,
            backend,
            block_bytes: self.block,
            run_bytes: self.run_bytes,
            runs: self.rates.runs(),
            gb_per_s: self.rates.median(),
            gb_per_s_min: self.rates.min(),
            gb_per_s_max: self.rates.max(),
            s_per_gb: 1.0 / self.rates.median(),
            times_reading: self.times_reading,
            cached_share: self.cached_share,
        };
        serde_json::to_string(&line).unwrap_or_else(|error| unreachable!("plain fields make JSON: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs(seconds: &[u64]) -> Rates {
        let runs: Vec<_> = seconds.iter().map(|&s| (60_000_000_000, Duration::from_secs(s))).collect();
        Rates::of(&runs)
    }

    #[test]
    fn median_of_rates_is_the_middle_value() {
        let odd = runs(&[60, 10, 20]);
        assert_eq!((odd.min(), odd.median(), odd.max()), (1.0, 3.0, 6.0));
        assert_eq!(runs(&[60, 20, 10, 30]).median(), 2.5);
    }

    #[test]
    fn a_run_of_zero_duration_has_a_finite_rate() {
        assert_eq!(Rates::of(&[(5, Duration::ZERO)]).median(), 5.0);
    }
}
