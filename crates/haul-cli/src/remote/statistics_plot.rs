//! Plot of the datagrams of a job over UDP: rate and losses over time, as SVG.

use super::output::Side;
use super::statistics::Row;
use std::fmt::{self, Write};

/// Size of the image in pixels; each of the two curves has half of its height.
const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 560.0;

/// Space of the labels left of a curve and below it, and the margin on the other sides.
const LEFT: f64 = 84.0;
const BELOW: f64 = 52.0;
const MARGIN: f64 = 12.0;

/// Maximum number of intervals between the labels of an axis.
const INTERVALS_MAX: f64 = 6.0;

const RATE: &str = "#1864ab";
const LOST: &str = "#d9480f";

/// Returns the plot as an SVG document; `side` is the role of this host.
pub(super) fn svg(rows: &[Row], side: Side) -> String {
    let rates: Vec<f64> = rows.iter().map(|row| row.data_rate(side)).collect();
    let (unit, name) = unit(rates.iter().copied().fold(0.0, f64::max));
    let rates: Vec<f64> = rates.iter().map(|rate| rate / unit).collect();
    let word = if side == Side::Sink { "received" } else { "sent" };
    let lost: Vec<f64> = rows.iter().map(|row| row.per_second(row.counts.lost)).collect();
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\" text-anchor=\"middle\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    let drawn = curve(&mut text, 0.0, &format!("Rate {word} ({name})"), rows, &rates, RATE)
        .and_then(|()| curve(&mut text, HEIGHT / 2.0, "Sent datagrams lost (1/s)", rows, &lost, LOST));
    debug_assert!(drawn.is_ok(), "a string takes every text");
    text + "</svg>\n"
}

/// Draws one value per row as a horizontal line over the time of the row, in the half of the image
/// below `above`.
fn curve(
    text: &mut String,
    above: f64,
    title: &str,
    rows: &[Row],
    values: &[f64],
    color: &str,
) -> fmt::Result {
    let end = rows.last().map_or(1.0, |row| row.end.as_secs_f64()).max(1e-3);
    let top = values.iter().copied().fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.1 } else { 1.0 };
    let (left, right, high, low) = (LEFT, WIDTH - MARGIN, above + MARGIN, above + HEIGHT / 2.0 - BELOW);
    let x = |time: f64| left + (right - left) * time / end;
    let y = |value: f64| low - (low - high) * value / top;
    writeln!(text, "<path d=\"M{left} {high}V{low}H{right}\" fill=\"none\" stroke=\"black\"/>")?;
    for time in ticks(end) {
        let (at, below) = (x(time), low + 18.0);
        writeln!(text, "<path d=\"M{at:.1} {low}v5\" stroke=\"black\"/>")?;
        writeln!(text, "<text x=\"{at:.1}\" y=\"{below}\">{}</text>", plain(time))?;
    }
    for value in ticks(top) {
        let at = y(value);
        writeln!(text, "<path d=\"M{left} {at:.1}H{right}\" stroke=\"#ced4da\"/>")?;
        writeln!(
            text,
            "<text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left - 8.0,
            at + 4.0,
            plain(value)
        )?;
    }
    let (across, down) = ((left + right) / 2.0, (high + low) / 2.0);
    writeln!(text, "<text x=\"{across}\" y=\"{}\">Time (s)</text>", low + 40.0)?;
    writeln!(text, "<text x=\"16\" y=\"{down}\" transform=\"rotate(-90 16 {down})\">{title}</text>")?;
    write!(text, "<polyline fill=\"none\" stroke=\"{color}\" stroke-width=\"2\" points=\"")?;
    for (row, value) in rows.iter().zip(values) {
        for time in [row.begin, row.end] {
            write!(text, "{:.1},{:.1} ", x(time.as_secs_f64()), y(*value))?;
        }
    }
    writeln!(text, "\"/>")
}

/// Returns the positions of the labels of an axis from 0 to `end`.
fn ticks(end: f64) -> impl Iterator<Item = f64> {
    let step = step(end);
    (0..).map(move |number| step * f64::from(number)).take_while(move |tick| *tick <= end)
}

/// Returns the distance of the labels of an axis from 0 to `end`: 1, 2 or 5 times a power of ten.
fn step(end: f64) -> f64 {
    let mut step = 1e-4;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if end / step <= INTERVALS_MAX {
            break;
        }
        step *= factor;
    }
    step
}

/// Formats the label of an axis without trailing zeros.
fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Returns the unit for rates up to `most` bits per second, and its name.
fn unit(most: f64) -> (f64, &'static str) {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    units.into_iter().find(|(unit, _)| most >= *unit).unwrap_or((1.0, "bit/s"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_engine::transfer::Datagrams;
    use std::time::Duration;

    #[test]
    fn plot_names_axes_and_units_with_and_without_rows() {
        let counts = Datagrams { sent: 9, lost: 2, bytes_sent: 1_000_000, ..Datagrams::default() };
        let row = Row { begin: Duration::ZERO, end: Duration::from_secs(1), counts };
        let drawn = svg(&[row], Side::Source);
        for text in ["Rate sent (Mbit/s)", "Time (s)", "Sent datagrams lost (1/s)", "<polyline"] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        assert!(svg(&[row], Side::Sink).contains("Rate received (bit/s)"));
        assert!(svg(&[], Side::Source).trim_end().ends_with("</svg>"));
    }

    #[test]
    fn axes_have_a_few_round_ticks() {
        for (top, expected) in [(1.0, 0.2), (1.21, 0.5), (5.9, 1.0), (250.0, 50.0), (1e6, 200_000.0)] {
            assert!((step(top) / expected - 1.0).abs() < 1e-9, "{top}: {}", step(top));
        }
        assert_eq!((plain(0.2 * 3.0), plain(50.0), plain(0.0)), ("0.6".into(), "50".into(), "0".into()));
    }
}
