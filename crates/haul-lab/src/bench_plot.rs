//! Plot of the figures of `haul bench --json`: bars in GB/s, one group per algorithm, on a
//! logarithmic scale.

use plotters::coord::Shift;
use plotters::coord::combinators::{IntoLogRange, LogCoord};
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde::Deserialize;
use std::error::Error;

/// Figure of one line, without the fields that the plot does not show.
#[derive(Debug, Deserialize)]
struct Figure {
    algorithm: String,
    place: Place,
    way: Way,
    /// Median of the runs.
    gb_per_s: f64,
}

/// Location of the data.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Place {
    Memory,
    Warm,
    Cold,
}

/// Layout of the work.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Way {
    Stream,
    Lanes,
    Workers,
    Reading,
    Synchronous,
    Pipelined,
}

/// One kind of bar.
struct Series {
    name: &'static str,
    place: Place,
    way: Way,
    color: RGBColor,
}

/// Bars of a group from top to bottom. Warm colours are warm runs, cold colours are cold runs; the
/// darker one is the pipeline. All five also differ in lightness, for readers who cannot
/// distinguish the hues.
const SERIES: [Series; 5] = [
    series("in memory", Place::Memory, Way::Stream, RGBColor(0x49, 0x50, 0x57)),
    series("warm, synchronous", Place::Warm, Way::Synchronous, RGBColor(0xf7, 0xb2, 0x67)),
    series("warm, pipelined", Place::Warm, Way::Pipelined, RGBColor(0xd9, 0x48, 0x0f)),
    series("cold, synchronous", Place::Cold, Way::Synchronous, RGBColor(0x8e, 0xc5, 0xf4)),
    series("cold, pipelined", Place::Cold, Way::Pipelined, RGBColor(0x18, 0x64, 0xab)),
];

const fn series(name: &'static str, place: Place, way: Way, color: RGBColor) -> Series {
    Series { name, place, way, color }
}

/// Width of the image, and the heights of its parts, in pixels.
const WIDTH: u32 = 960;
const BAR: u32 = 11;
const GAP: u32 = 12;
const HEAD: u32 = 92;
const FOOT: u32 = 48;
/// Width left of the bars, for the names of algorithms.
const NAMES: u32 = 96;
/// Width right of the bars, for the number of the longest one.
const MARGIN: u32 = 40;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, SVGBackend<'b>, Cartesian2d<LogCoord<f64>, RangedCoordf64>>;

/// Returns the plot of figures, one JSON object per line, as an SVG document. `subtitle` describes
/// the machine and the settings.
///
/// # Errors
/// Returns the error of the first line that is not a figure.
pub(crate) fn svg(lines: &str, subtitle: &str) -> Result<String, Box<dyn Error>> {
    let figures = lines.lines().map(serde_json::from_str).collect::<Result<Vec<Figure>, _>>()?;
    let mut text = String::new();
    draw(&mut text, &figures, subtitle)?;
    Ok(text)
}

type Drawn = Result<(), Box<dyn Error>>;

fn draw(text: &mut String, figures: &[Figure], subtitle: &str) -> Drawn {
    let mut algorithms: Vec<&str> = Vec::new();
    for figure in figures {
        if !algorithms.contains(&figure.algorithm.as_str()) {
            algorithms.push(&figure.algorithm);
        }
    }
    let shown: Vec<&Series> = SERIES.iter().filter(|series| is_measured(series, figures)).collect();
    let group = shown.len() as u32 * BAR + GAP;
    let height = HEAD + algorithms.len() as u32 * group + FOOT;
    let root = SVGBackend::with_string(text, (WIDTH, height)).into_drawing_area();
    root.fill(&WHITE)?;
    head(&root, subtitle, &shown)?;
    let (low, high) = limits(figures);
    let count = algorithms.len() as f64;
    let mut chart = ChartBuilder::on(&root)
        .margin_top(HEAD)
        .margin_right(MARGIN)
        .margin_bottom(4)
        .x_label_area_size(FOOT - 4)
        .y_label_area_size(NAMES)
        .build_cartesian_2d((low..high).log_scale(), count..0.0)?;
    chart
        .configure_mesh()
        .disable_y_mesh()
        .disable_y_axis()
        .y_labels(0)
        .x_desc("GB/s (1 GB = 10^9 bytes), logarithmic")
        .x_label_formatter(&|rate| plain(*rate))
        .light_line_style(RGBColor(0xf1, 0xf3, 0xf5))
        .bold_line_style(RGBColor(0xce, 0xd4, 0xda))
        .draw()?;
    for (place, color) in [(Place::Warm, SERIES[2].color), (Place::Cold, SERIES[4].color)] {
        reading_line(&mut chart, &root, figures, place, color, count)?;
    }
    for (number, algorithm) in algorithms.into_iter().enumerate() {
        bars(&mut chart, &root, figures, algorithm, number as f64, &shown, low)?;
    }
    root.present()?;
    Ok(())
}

fn is_measured(series: &Series, figures: &[Figure]) -> bool {
    figures.iter().any(|figure| figure.place == series.place && figure.way == series.way)
}

/// Draws title, subtitle and the legend.
fn head(root: &Area<'_>, subtitle: &str, shown: &[&Series]) -> Drawn {
    root.draw_text("How fast checksums are", &font(20, BLACK, HPos::Left), (12, 18))?;
    let grey = RGBColor(0x49, 0x50, 0x57);
    root.draw_text(subtitle, &font(12, grey, HPos::Left), (12, 40))?;
    let mut x = 12;
    for series in shown {
        root.draw(&Rectangle::new([(x, 56), (x + 12, 68)], series.color.filled()))?;
        root.draw_text(series.name, &font(12, BLACK, HPos::Left), (x + 17, 62))?;
        x += 17 + 7 * series.name.len() as i32 + 22;
    }
    if shown.iter().any(|series| series.place != Place::Memory) {
        root.draw_text("dashed: reading alone", &font(12, grey, HPos::Left), (x, 62))?;
    }
    Ok(())
}

/// Draws the bars of one algorithm, with its name before them and each rate after its bar.
fn bars(
    chart: &mut Chart<'_, '_>,
    root: &Area<'_>,
    figures: &[Figure],
    algorithm: &str,
    row: f64,
    shown: &[&Series],
    low: f64,
) -> Drawn {
    let group = f64::from(shown.len() as u32 * BAR + GAP);
    let step = f64::from(BAR) / group;
    let first = row + f64::from(GAP) / 2.0 / group;
    let middle = chart.backend_coord(&(low, row + 0.5));
    let name_at = (middle.0 - 8, middle.1);
    root.draw_text(algorithm, &font(13, BLACK, HPos::Right), name_at)?;
    for (number, series) in shown.iter().enumerate() {
        let is_shown = |figure: &&Figure| {
            figure.algorithm == algorithm && figure.place == series.place && figure.way == series.way
        };
        let Some(rate) = figures.iter().find(is_shown).map(|figure| figure.gb_per_s) else { continue };
        let top = first + step * number as f64;
        let corners = [(low, top), (rate, top + step * 0.9)];
        chart.draw_series([Rectangle::new(corners, series.color.filled())])?;
        let end = chart.backend_coord(&(rate, top + step * 0.45));
        root.draw_text(
            &plain((rate * 100.0).round() / 100.0),
            &font(9, BLACK, HPos::Left),
            (end.0 + 3, end.1),
        )?;
    }
    Ok(())
}

/// Draws a line over all groups at the rate of reading alone: the median of its figures.
fn reading_line(
    chart: &mut Chart<'_, '_>,
    root: &Area<'_>,
    figures: &[Figure],
    place: Place,
    color: RGBColor,
    count: f64,
) -> Drawn {
    let alone = figures.iter().filter(|figure| figure.place == place && figure.way == Way::Reading);
    let mut rates: Vec<f64> = alone.map(|figure| figure.gb_per_s).collect();
    rates.sort_by(f64::total_cmp);
    let Some(&rate) = rates.get(rates.len() / 2) else { return Ok(()) };
    let top = chart.backend_coord(&(rate, 0.0));
    let bottom = chart.backend_coord(&(rate, count));
    let mut y = top.1;
    while y < bottom.1 {
        let dash = vec![(top.0, y), (top.0, (y + 5).min(bottom.1))];
        root.draw(&PathElement::new(dash, color.stroke_width(1)))?;
        y += 9;
    }
    let name = if place == Place::Warm { "warm" } else { "cold" };
    root.draw_text(name, &font(10, color, HPos::Center), (top.0, top.1 - 5))?;
    Ok(())
}

fn font(size: u32, color: RGBColor, side: HPos) -> TextStyle<'static> {
    ("sans-serif", size).into_font().color(&color).pos(Pos::new(side, VPos::Center))
}

/// Returns the limits of the scale: 1, 2 or 5 times a power of ten, below the slowest and above the
/// fastest rate.
fn limits(figures: &[Figure]) -> (f64, f64) {
    let rates = || figures.iter().map(|figure| figure.gb_per_s);
    let slowest = rates().fold(f64::INFINITY, f64::min);
    let fastest = rates().fold(0.0, f64::max);
    (round_down(slowest * 0.8), round_up(fastest * 1.05))
}

fn round_down(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factor = [5.0, 2.0, 1.0].into_iter().find(|factor| factor * power <= value);
    factor.unwrap_or(1.0) * power
}

fn round_up(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= value);
    factor.unwrap_or(10.0) * power
}

/// Formats a number of the axis without trailing zeros.
fn plain(value: f64) -> String {
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the line of a figure, with a field that the plot does not use.
    fn figure(algorithm: &str, place: &str, way: &str, rate: f64) -> String {
        serde_json::json!({
            "algorithm": algorithm, "place": place, "way": way, "threads": 1, "gb_per_s": rate,
        })
        .to_string()
    }

    #[test]
    fn scale_limits_are_round_numbers() {
        for (value, down, up) in [(0.3, 0.2, 0.5), (1.0, 1.0, 1.0), (7.0, 5.0, 10.0), (45.0, 20.0, 50.0)] {
            assert!((round_down(value) / down - 1.0).abs() < 1e-9, "{value}");
            assert!((round_up(value) / up - 1.0).abs() < 1e-9, "{value}");
        }
        assert_eq!((plain(0.2), plain(10.0), plain(100.0)), ("0.2".into(), "10".into(), "100".into()));
    }

    #[test]
    fn legend_omits_unmeasured_methods() {
        let lines = [
            figure("md5", "memory", "stream", 1.0),
            figure("crc32", "memory", "workers", 9.0),
            figure("md5", "warm", "reading", 10.0),
            figure("md5", "warm", "pipelined", 0.9),
        ];
        let all = svg(&lines.join("\n"), "a < b & c").unwrap();
        let texts = texts_of_xml(&all);
        for wanted in
            ["in memory", "warm, pipelined", "dashed: reading alone", "md5", "crc32", "a &lt; b &amp; c"]
        {
            assert!(texts.iter().any(|text| text == wanted), "{wanted} in {texts:?}");
        }
        assert!(!all.contains("cold, pipelined") && !all.contains("warm, synchronous"));
        let alone = svg(&lines[0], "").unwrap();
        assert!(!alone.contains("dashed") && alone.len() < all.len());
        assert!(svg("{}", "").is_err());
    }

    /// Parses a document as XML: each opened element is closed in order, attributes are quoted, and
    /// there is one root. Returns the texts of all elements.
    ///
    /// # Panics
    /// If the document is anything else.
    fn texts_of_xml(document: &str) -> Vec<String> {
        let (mut open, mut texts, mut roots) = (Vec::new(), Vec::new(), 0);
        let mut rest = document.trim();
        while let Some(at) = rest.find('<') {
            let text = rest[..at].trim();
            assert!(text.is_empty() || !open.is_empty(), "text outside the root: {text}");
            assert!(!text.replace("&lt;", "").replace("&amp;", "").contains("& "), "a bare & in {text}");
            if !text.is_empty() {
                texts.push(text.to_owned());
            }
            let end = at + rest[at..].find('>').expect("a tag ends");
            let tag = &rest[at + 1..end];
            rest = &rest[end + 1..];
            if tag.starts_with('?') || tag.starts_with('!') {
                continue;
            }
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name.trim()), "the element that is closed");
                continue;
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "quotes in {tag}");
            roots += usize::from(open.is_empty());
            if !tag.ends_with('/') {
                open.push(tag.split_whitespace().next().expect("a tag has a name"));
            }
        }
        assert!(open.is_empty() && roots == 1 && rest.trim().is_empty(), "{open:?} left open, {roots} roots");
        texts
    }
}
