//! Readable tables of the figures.

use super::figure::{DataLocation, Measurement, Method, Rates, backend_name};
use haul_digest::Algorithm;
use std::fmt::Write;

/// A cell with its alignment.
#[derive(Clone, Debug)]
enum Cell {
    Left(String),
    Right(String),
}

/// Formats all figures in up to three tables.
pub(super) fn tables(figures: &[Measurement], algorithms: &[Algorithm]) -> String {
    let mut text = memory_table(figures, algorithms);
    for (place, title) in [
        (
            DataLocation::Warm,
            "Warm: file in the page cache. Seconds per 1 GB, and the ratio to reading alone",
        ),
        (DataLocation::Cold, "Cold: file on the device. Seconds per 1 GB, and the ratio to reading alone"),
    ] {
        if figures.iter().any(|figure| figure.place == place) {
            text.push('\n');
            text.push_str(&file_table(figures, algorithms, place, title));
        }
    }
    text
}

/// Returns the figure of an algorithm at a place whose way fits.
pub(super) fn find(
    figures: &[Measurement],
    algorithm: Algorithm,
    place: DataLocation,
    fits: impl Fn(Method) -> bool,
) -> Option<&Measurement> {
    figures
        .iter()
        .find(|figure| figure.algorithm == algorithm && figure.place == place && fits(figure.method))
}

fn memory_table(figures: &[Measurement], algorithms: &[Algorithm]) -> String {
    let threads = figures.iter().find_map(|figure| match figure.method {
        Method::Workers { threads } => Some(threads),
        _ => None,
    });
    let has_lanes = figures.iter().any(|figure| matches!(figure.method, Method::Lanes { .. }));
    let mut header = vec![left("algorithm"), right("one stream"), left("")];
    if has_lanes {
        header.extend([right("many streams"), left(""), left("in lanes of")]);
    }
    if let Some(threads) = threads {
        header.extend([
            right(&format!("{threads} {}", if threads == 1 { "worker" } else { "workers" })),
            left(""),
        ]);
    }
    let mut rows = vec![header];
    for &algorithm in algorithms {
        let found = |fits: fn(Method) -> bool| find(figures, algorithm, DataLocation::Memory, fits);
        let mut row = vec![left(algorithm.name())];
        row.extend(rate_cells(found(|method| method == Method::Stream)));
        if has_lanes {
            let lanes = found(|method| matches!(method, Method::Lanes { .. }));
            row.extend(rate_cells(lanes));
            row.push(left(&lanes.map(|figure| lanes_named(figure.method)).unwrap_or_default()));
        }
        if threads.is_some() {
            row.extend(rate_cells(found(|method| matches!(method, Method::Workers { .. }))));
        }
        rows.push(row);
    }
    format!("In memory. GB/s\n{}", aligned(&rows))
}

fn file_table(figures: &[Measurement], algorithms: &[Algorithm], place: DataLocation, title: &str) -> String {
    let mut rows = vec![vec![
        left("algorithm"),
        right("reading"),
        left(""),
        right("synchronous"),
        left(""),
        left(""),
        right("pipelined"),
        left(""),
        left(""),
    ]];
    for &algorithm in algorithms {
        let mut row = vec![left(algorithm.name())];
        row.extend(time_cells(find(figures, algorithm, place, |method| method == Method::Reading)));
        for wanted in [Method::Synchronous, Method::Pipelined] {
            let figure = find(figures, algorithm, place, |method| method == wanted);
            row.extend(time_cells(figure));
            let times = figure.and_then(|figure| figure.times_reading);
            row.push(right(&times.map(|times| format!("{} x", digits(times))).unwrap_or_default()));
        }
        rows.push(row);
    }
    format!("{title}\n{}", aligned(&rows))
}

/// Returns the median, followed by the smallest and the largest rate, in GB/s.
fn rate_cells(figure: Option<&Measurement>) -> [Cell; 2] {
    figure.map_or_else(nothing, |figure| cells(figure.rates.median(), figure.rates.min(), figure.rates.max()))
}

/// Returns the same in seconds for 10^9 bytes.
fn time_cells(figure: Option<&Measurement>) -> [Cell; 2] {
    let seconds = |rates: &Rates| cells(1.0 / rates.median(), 1.0 / rates.max(), 1.0 / rates.min());
    figure.map_or_else(nothing, |figure| seconds(&figure.rates))
}

fn cells(median: f64, min: f64, max: f64) -> [Cell; 2] {
    [right(&digits(median)), left(&format!("({}-{})", digits(min), digits(max)))]
}

fn nothing() -> [Cell; 2] {
    [right("-"), left("")]
}

/// Formats three significant digits, with at most three decimals.
fn digits(value: f64) -> String {
    match value {
        100.0.. => format!("{value:.0}"),
        10.0..100.0 => format!("{value:.1}"),
        1.0..10.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

fn lanes_named(method: Method) -> String {
    match method {
        Method::Lanes { streams, backend } => {
            let backend = backend.map_or("several", backend_name);
            format!("{streams} x {backend}")
        }
        _ => String::new(),
    }
}

fn left(text: &str) -> Cell {
    Cell::Left(text.to_owned())
}

fn right(text: &str) -> Cell {
    Cell::Right(text.to_owned())
}

/// Formats rows in aligned columns with two spaces between them and no trailing spaces.
fn aligned(rows: &[Vec<Cell>]) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let text = |row: &Vec<Cell>| match row.get(column) {
            Some(Cell::Left(text) | Cell::Right(text)) => text.chars().count(),
            None => 0,
        };
        rows.iter().map(text).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut all = String::new();
    for row in rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let written = match cell {
                Cell::Left(text) => write!(line, "{text:<width$}  "),
                Cell::Right(text) => write!(line, "{text:>width$}  "),
            };
            debug_assert!(written.is_ok(), "a string takes every text");
        }
        all.push_str(line.trim_end());
        all.push('\n');
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn figure(algorithm: Algorithm, place: DataLocation, method: Method, seconds: u64) -> Measurement {
        let run = |ms: u64| (1_000_000_000, Duration::from_millis(ms));
        let rates = Rates::of(&[run(900 * seconds), run(1000 * seconds), run(2000 * seconds)]);
        let times_reading = matches!(method, Method::Synchronous | Method::Pipelined).then_some(2.5);
        let (block, run_bytes, cached_share) = (4096, None, None);
        Measurement { algorithm, place, method, rates, block, run_bytes, times_reading, cached_share }
    }

    #[test]
    fn tables_are_aligned_and_omit_unmeasured_columns() {
        let figures = [
            figure(Algorithm::Md5, DataLocation::Memory, Method::Stream, 1),
            figure(Algorithm::Crc32, DataLocation::Memory, Method::Stream, 1),
            figure(Algorithm::Crc32, DataLocation::Memory, Method::Workers { threads: 2 }, 1),
        ];
        let text = tables(&figures, &[Algorithm::Md5, Algorithm::Crc32]);
        let expected = "\
In memory. GB/s
algorithm  one stream                2 workers
md5              1.00  (0.500-1.11)          -
crc32            1.00  (0.500-1.11)       1.00  (0.500-1.11)
";
        assert_eq!(text, expected);
    }

    #[test]
    fn hashing_rates_show_their_ratio_to_reading_alone() {
        let figures = [
            figure(Algorithm::Md5, DataLocation::Memory, Method::Stream, 1),
            figure(Algorithm::Md5, DataLocation::Cold, Method::Reading, 1),
            figure(Algorithm::Md5, DataLocation::Cold, Method::Synchronous, 40),
            figure(Algorithm::Md5, DataLocation::Cold, Method::Pipelined, 100),
        ];
        let text = tables(&figures, &[Algorithm::Md5]);
        let last = text.lines().last().unwrap();
        assert_eq!(
            last,
            "md5           1.00  (0.900-2.00)         40.0  (36.0-80.0)  2.50 x        100  (90.0-200)  2.50 x"
        );
        assert!(text.contains("Cold: ") && !text.contains("Warm: "));
    }

    #[test]
    fn numbers_have_three_significant_digits() {
        let cases = [(1234.4, "1234"), (99.96, "100.0"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123")];
        for (value, text) in cases {
            assert_eq!(digits(value), text);
        }
    }
}
