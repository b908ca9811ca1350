//! Plot of the datagrams of a job over UDP: rate and losses over time, as SVG.

use super::output::Side;
use super::statistics::Row;
use plotters::coord::Shift;
use plotters::prelude::*;

/// Size of the image in pixels.
const SIZE: (u32, u32) = (960, 560);

const RATE: RGBColor = RGBColor(0x18, 0x64, 0xab);
const LOST: RGBColor = RGBColor(0xd9, 0x48, 0x0f);

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Returns the plot as an SVG document; `side` is the role of this host. The error is a message for
/// a bug in this program.
pub(super) fn svg(rows: &[Row], side: Side) -> Result<String, String> {
    let mut text = String::new();
    draw(&mut text, rows, side).map_err(|error| format!("cannot draw the plot: {error}; omit --plot"))?;
    Ok(text)
}

fn draw(text: &mut String, rows: &[Row], side: Side) -> Drawn {
    let root = SVGBackend::with_string(text, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (upper, lower) = root.split_vertically(SIZE.1 / 2);
    let rates: Vec<f64> = rows.iter().map(|row| row.data_rate(side)).collect();
    let (unit, name) = unit(rates.iter().copied().fold(0.0, f64::max));
    let rates: Vec<f64> = rates.iter().map(|rate| rate / unit).collect();
    let word = if side == Side::Sink { "received" } else { "sent" };
    curve(&upper, &format!("Rate {word} ({name})"), rows, &rates, RATE)?;
    let lost: Vec<f64> = rows.iter().map(|row| row.per_second(row.counts.lost)).collect();
    curve(&lower, "Sent datagrams lost (1/s)", rows, &lost, LOST)?;
    drop((upper, lower));
    root.present()?;
    Ok(())
}

/// Draws one value per row as a horizontal line over the time of the row.
fn curve(area: &Area<'_>, title: &str, rows: &[Row], values: &[f64], color: RGBColor) -> Drawn {
    let end = rows.last().map_or(1.0, |row| row.end.as_secs_f64()).max(1e-3);
    let top = values.iter().copied().fold(0.0, f64::max);
    let top = if top > 0.0 { top * 1.1 } else { 1.0 };
    let mut chart = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..end, 0.0..top)?;
    chart.configure_mesh().x_desc("Time (s)").y_desc(title).light_line_style(TRANSPARENT).draw()?;
    let points = rows
        .iter()
        .zip(values)
        .flat_map(|(row, value)| [row.begin, row.end].map(|time| (time.as_secs_f64(), *value)));
    chart.draw_series(LineSeries::new(points, color.stroke_width(2)))?;
    Ok(())
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
        let drawn = svg(&[row], Side::Source).unwrap();
        for text in ["Rate sent (Mbit/s)", "Time (s)", "Sent datagrams lost (1/s)", "<polyline"] {
            assert!(drawn.contains(text), "{text}: {drawn}");
        }
        assert!(svg(&[row], Side::Sink).unwrap().contains("Rate received (bit/s)"));
        assert!(svg(&[], Side::Source).unwrap().trim_end().ends_with("</svg>"));
    }
}
