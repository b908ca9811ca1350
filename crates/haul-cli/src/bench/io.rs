//! Measurements with a file: warm and cold, synchronous and pipelined, and reading alone.

use super::args::Settings;
use super::error::BenchError;
use super::figure::{DataLocation, Measurement, Method, Rates, median};
use super::file::TestFile;
use super::pass::Passes;
use haul_digest::Algorithm;
use haul_model::ByteRange;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Steps of one round of a measurement, in order.
const METHODS: [Method; 3] = [Method::Reading, Method::Synchronous, Method::Pipelined];

/// Alignment of ranges in bytes. No piece of the page cache is larger, so that dropping one range
/// does not affect the others.
const RANGE_ALIGN: u64 = haul_sys::cache::FOLIO_BYTES_MAX;

/// Minimum number of bytes per run, if the file is large enough.
const RUN_BYTES_MIN: u64 = 8 << 20;

/// Bytes read to estimate the reading rate.
const TRIAL_BYTES: u64 = 64 << 20;

/// Maximum cached share of a range that counts as dropped.
const CACHED_SHARE_MAX: f64 = 0.01;

/// Runs shorter than this are mostly noise: starting the pipeline's threads takes a tenth of this
/// time.
const RUN_TIME_MIN: Duration = Duration::from_micros(500);

/// Measurements with one file.
pub(super) struct FileBench<'a> {
    settings: &'a Settings,
    file: &'a TestFile,
    passes: Passes<'a>,
    /// Start of the next range.
    cursor: u64,
    /// True if the system's report about the page cache is reliable.
    can_see_cache: bool,
    notes: Vec<String>,
}

/// Rate of reading alone at some place, in GB/s; determines the bytes per run.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadingRate(f64);

impl<'a> FileBench<'a> {
    /// Prepares the measurements of a file. Reads nothing yet.
    ///
    /// # Errors
    /// Returns [`BenchError::NoMemory`] if there is no memory for the buffers.
    pub(super) fn new(settings: &'a Settings, file: &'a TestFile) -> Result<FileBench<'a>, BenchError> {
        let passes = Passes::new(file, settings.block)?;
        Ok(FileBench { settings, file, passes, cursor: 0, can_see_cache: true, notes: Vec::new() })
    }

    /// Reads the file into the page cache.
    ///
    /// # Errors
    /// Returns [`BenchError`] if the file cannot be read.
    pub(super) fn warm_up(&mut self) -> Result<ReadingRate, BenchError> {
        let whole = ByteRange::between(0, self.file.size());
        self.passes.reading(whole)?;
        match self.file.cached_share(whole)? {
            // The file was just read. On some file systems the query does not cover the cached
            // pages.
            None | Some(0.0) => {
                self.can_see_cache = false;
                self.note("cannot query the page cache on this system: warm and cold reads are not checked");
            }
            Some(share) if share < 1.0 - CACHED_SHARE_MAX => {
                let percent = 100.0 * share;
                self.note(&format!(
                    "only {percent:.0}% of the file stayed in the page cache, so warm reads access the device; \
                     use a smaller --size"
                ));
            }
            Some(_) => {}
        }
        self.trial(DataLocation::Warm)
    }

    /// Drops the file from the page cache. Returns `None` if the file stays there, so that no cold
    /// measurement is possible.
    ///
    /// # Errors
    /// Returns [`BenchError`] if the file cannot be read.
    pub(super) fn cool_down(&mut self) -> Result<Option<ReadingRate>, BenchError> {
        let whole = ByteRange::between(0, self.file.size());
        self.file.drop_from_cache(whole)?;
        let share = self.cached_share(whole)?;
        if let Some(share) = share.filter(|share| *share > CACHED_SHARE_MAX) {
            let percent = 100.0 * share;
            self.note(&format!(
                "cannot drop {percent:.0}% of the file from the page cache (a file system in memory, \
                 or another process that uses the file): no cold measurement"
            ));
            return Ok(None);
        }
        self.trial(DataLocation::Cold).map(Some)
    }

    /// Measures reading alone, synchronous and pipelined, in turn.
    ///
    /// # Errors
    /// Returns [`BenchError`] if the file cannot be read.
    ///
    /// # Panics
    /// Panics if `place` is memory, because a file is warm or cold.
    pub(super) fn measure(
        &mut self,
        algorithm: Algorithm,
        place: DataLocation,
        hashing: f64,
        reading: ReadingRate,
    ) -> Result<Vec<Measurement>, BenchError> {
        assert_ne!(place, DataLocation::Memory, "a file is warm or cold");
        let run_bytes = self.run_bytes(hashing, reading);
        let mut runs = [const { Vec::new() }; METHODS.len()];
        let mut cached: Option<f64> = None;
        for _ in 0..self.settings.runs {
            for (method, runs) in METHODS.into_iter().zip(&mut runs) {
                let range = self.next_range(run_bytes);
                if place == DataLocation::Cold {
                    self.file.drop_from_cache(range)?;
                    if let Some(share) = self.cached_share(range)? {
                        cached = Some(cached.map_or(share, |most| most.max(share)));
                    }
                }
                runs.push((run_bytes, self.timed(method, range, algorithm)?));
            }
        }
        self.judge(algorithm, &runs, cached);
        let alone = runs[0].clone();
        let measured = |(method, runs): (Method, Vec<(u64, Duration)>)| Measurement {
            algorithm,
            place,
            method,
            rates: Rates::of(&runs),
            block: self.settings.block,
            run_bytes: Some(run_bytes),
            times_reading: (method != Method::Reading).then(|| times_as_long(&runs, &alone)),
            cached_share: cached,
        };
        Ok(METHODS.into_iter().zip(runs).map(measured).collect())
    }

    /// Returns the notes about the figures.
    pub(super) fn into_notes(self) -> Vec<String> {
        self.notes
    }

    fn timed(
        &mut self,
        method: Method,
        range: ByteRange,
        algorithm: Algorithm,
    ) -> Result<Duration, BenchError> {
        let begun = Instant::now();
        match method {
            Method::Synchronous => drop(black_box(self.passes.synchronous(range, algorithm)?)),
            Method::Pipelined => drop(black_box(self.passes.pipelined(range, algorithm)?)),
            _ => self.passes.reading(range)?,
        }
        Ok(begun.elapsed())
    }

    /// Reads a part of the file to estimate the rate.
    fn trial(&mut self, place: DataLocation) -> Result<ReadingRate, BenchError> {
        let range = ByteRange::between(0, self.file.size().min(TRIAL_BYTES));
        if place == DataLocation::Cold {
            self.file.drop_from_cache(range)?;
        }
        let begun = Instant::now();
        self.passes.reading(range)?;
        Ok(ReadingRate(Rates::of(&[(range.len(), begun.elapsed())]).median()))
    }

    /// Returns the bytes per run for which reading and hashing in turn takes the set time.
    fn run_bytes(&self, hashing: f64, ReadingRate(reading): ReadingRate) -> u64 {
        let ns_per_byte = 1.0 / hashing + 1.0 / reading;
        let wanted = (self.settings.io_time.as_nanos() as f64 / ns_per_byte) as u64;
        wanted.max(RUN_BYTES_MIN).next_multiple_of(RANGE_ALIGN).min(self.file.size())
    }

    /// Returns the next `len` bytes, from the start again if fewer are left. Each run reads another
    /// range, so that caches below the kernel's do not speed up later runs more than necessary.
    fn next_range(&mut self, len: u64) -> ByteRange {
        if self.cursor + len > self.file.size() {
            self.cursor = 0;
        }
        let start = self.cursor;
        self.cursor = (start + len).next_multiple_of(RANGE_ALIGN);
        ByteRange::between(start, start + len)
    }

    fn cached_share(&self, range: ByteRange) -> Result<Option<f64>, BenchError> {
        if self.can_see_cache { self.file.cached_share(range) } else { Ok(None) }
    }

    /// Adds notes about unreliable figures.
    fn judge(&mut self, algorithm: Algorithm, runs: &[Vec<(u64, Duration)>], cached: Option<f64>) {
        if let Some(share) = cached.filter(|share| *share > CACHED_SHARE_MAX) {
            let percent = 100.0 * share;
            self.note(&format!(
                "{algorithm}: up to {percent:.0}% of a cold range was in the page cache again"
            ));
        }
        if runs.iter().flatten().any(|run| run.1 < RUN_TIME_MIN) {
            self.note("each read of the file is very short, so the results are noisy; use a larger file");
        }
    }

    /// Adds a note, if it is new.
    fn note(&mut self, text: &str) {
        if !self.notes.iter().any(|known| known == text) {
            self.notes.push(text.to_owned());
        }
    }
}

/// Returns the median ratio between the time of each run and that of its partner.
fn times_as_long(runs: &[(u64, Duration)], alone: &[(u64, Duration)]) -> f64 {
    let nanos = |took: Duration| took.as_nanos().max(1) as f64;
    median(runs.iter().zip(alone).map(|(run, alone)| nanos(run.1) / nanos(alone.1)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::args::{Args, FileChoice};
    use clap::Parser;

    fn settings() -> Settings {
        Args::parse_from(["haul bench", "--quick", "--runs", "2"]).resolve()
    }

    fn file(folder: &tempfile::TempDir, size: u64) -> TestFile {
        TestFile::prepare(&FileChoice::Temporary { dir: folder.path().to_owned(), size }).unwrap()
    }

    #[test]
    fn ranges_stay_within_the_file_and_wrap_around() {
        let folder = tempfile::tempdir().unwrap();
        let (settings, file) = (settings(), file(&folder, (5 << 20) + 3));
        let mut bench = FileBench::new(&settings, &file).unwrap();
        let starts: Vec<u64> = (0..4).map(|_| bench.next_range(2 << 20).start.0).collect();
        assert_eq!(starts, [0, 2 << 20, 0, 2 << 20]);
        assert_eq!(bench.next_range(file.size()), ByteRange::between(0, file.size()));
    }

    #[test]
    fn run_length_is_derived_from_the_slower_rate() {
        let folder = tempfile::tempdir().unwrap();
        let (settings, file) = (settings(), file(&folder, 64 << 20));
        let bench = FileBench::new(&settings, &file).unwrap();
        assert_eq!(bench.run_bytes(0.001, ReadingRate(10.0)), RUN_BYTES_MIN);
        assert_eq!(bench.run_bytes(1000.0, ReadingRate(1000.0)), file.size());
        // 15 ms at 1 ns + 1 ns per byte are 7.5 MB; at a quarter of that, 30 MB.
        assert_eq!(bench.run_bytes(4.0, ReadingRate(4.0)), 30 << 20);
    }

    #[test]
    fn each_cache_state_yields_three_results_over_all_runs() {
        let folder = tempfile::tempdir().unwrap();
        let (settings, file) = (settings(), file(&folder, 3 << 20));
        let mut bench = FileBench::new(&settings, &file).unwrap();
        let warm = bench.warm_up().unwrap();
        let found = bench.measure(Algorithm::Crc32, DataLocation::Warm, 1.0, warm).unwrap();
        assert_eq!(found.iter().map(|figure| figure.method).collect::<Vec<_>>(), METHODS);
        for figure in found {
            assert_eq!((figure.rates.runs(), figure.run_bytes), (2, Some(3 << 20)));
            assert_eq!(figure.times_reading.is_some(), figure.method != Method::Reading);
        }
    }

    #[test]
    fn time_ratio_is_the_median_of_per_run_ratios() {
        let ms =
            |millis: &[u64]| -> Vec<_> { millis.iter().map(|&ms| (1, Duration::from_millis(ms))).collect() };
        assert_eq!(times_as_long(&ms(&[20, 400, 60]), &ms(&[10, 200, 20])), 2.0);
    }
}
