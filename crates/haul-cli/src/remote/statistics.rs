//! Figures of the datagrams of a job over UDP, second by second: a CSV file, a plot, the progress
//! bar, and a note about a rate that was not reached.

use super::output::Side;
use super::statistics_plot;
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_engine::transfer::Datagrams;
use haul_model::format_size;
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Columns of the CSV file.
const HEADER: &str = "seconds,sent_bits_per_second,received_bits_per_second,sent,received,lost,retransmitted,\
                      damaged,duplicate,success_percent,round_trip_ms,queue_ms\n";

/// Duration of a row, except the last one.
const ROW: Duration = Duration::from_secs(1);

/// Minimum duration of a job for a note about its rate.
const NOTE_MIN: Duration = Duration::from_secs(2);

/// Share of the fixed rate below which a note is printed.
const REACHED: f64 = 0.95;

/// Datagrams of one period.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    /// Begin and end, since the begin of the job.
    pub(super) begin: Duration,
    pub(super) end: Duration,
    /// Counts of this period only. The times are those at its end.
    pub(super) counts: Datagrams,
}

impl Row {
    /// Returns the row from `begin`, with the counts `before`, to `end`.
    fn between(begin: Duration, before: &Datagrams, end: Duration, now: &Datagrams) -> Row {
        let counts = Datagrams {
            sent: now.sent.saturating_sub(before.sent),
            received: now.received.saturating_sub(before.received),
            lost: now.lost.saturating_sub(before.lost),
            retransmitted: now.retransmitted.saturating_sub(before.retransmitted),
            damaged: now.damaged.saturating_sub(before.damaged),
            duplicate: now.duplicate.saturating_sub(before.duplicate),
            bytes_sent: now.bytes_sent.saturating_sub(before.bytes_sent),
            bytes_received: now.bytes_received.saturating_sub(before.bytes_received),
            ..*now
        };
        Row { begin, end, counts }
    }

    /// Returns `count` per second of this row.
    pub(super) fn per_second(&self, count: u64) -> f64 {
        let seconds = self.end.saturating_sub(self.begin).as_secs_f64();
        if seconds > 0.0 { count as f64 / seconds } else { 0.0 }
    }

    /// Returns the rate of the data in bits per second; `side` is the role of this host.
    pub(super) fn data_rate(&self, side: Side) -> f64 {
        8.0 * self.per_second(match side {
            Side::Sink => self.counts.bytes_received,
            Side::Source | Side::Server => self.counts.bytes_sent,
        })
    }

    fn csv(&self) -> String {
        let Datagrams { sent, received, lost, retransmitted, damaged, duplicate, .. } = self.counts;
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        format!(
            "{:.3},{:.0},{:.0},{sent},{received},{lost},{retransmitted},{damaged},{duplicate},{:.3},{:.3},{:.3}\n",
            self.end.as_secs_f64(),
            8.0 * self.per_second(self.counts.bytes_sent),
            8.0 * self.per_second(self.counts.bytes_received),
            self.counts.success_percent(),
            millis(self.counts.round_trip),
            millis(self.counts.queue),
        )
    }
}

/// A file that the job writes besides the data.
#[derive(Debug)]
struct Target {
    name: OsString,
    file: File,
}

impl Target {
    fn create(name: &OsStr) -> Result<Target, String> {
        let file = File::create(name)
            .map_err(|error| format!("cannot create {}: {}", quote(name), reason(&error)))?;
        Ok(Target { name: name.to_owned(), file })
    }

    fn write(&mut self, text: &str) -> Result<(), String> {
        // A file of the standard library has no buffer of its own: each row is visible at once.
        self.file
            .write_all(text.as_bytes())
            .map_err(|error: io::Error| format!("cannot write {}: {}", quote(&self.name), reason(&error)))
    }
}

/// Records the datagrams of a job.
#[derive(Debug)]
pub(crate) struct Recorder {
    side: Side,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    begun: Instant,
    csv: Option<Target>,
    plot: Option<Target>,
    rows: Vec<Row>,
    /// Time and counts at the end of the last row.
    last: (Duration, Datagrams),
    /// Time and counts of the last report.
    seen: (Duration, Datagrams),
    /// Period between the last two reports.
    recent: Option<Row>,
    /// First error of a file.
    error: Option<String>,
}

impl Recorder {
    /// Creates the files. The host has the role `side`. The error is a message.
    pub(crate) fn create(csv: Option<&OsStr>, plot: Option<&OsStr>, side: Side) -> Result<Recorder, String> {
        let mut csv = csv.map(Target::create).transpose()?;
        let plot = plot.map(Target::create).transpose()?;
        if let Some(csv) = &mut csv {
            csv.write(HEADER)?;
        }
        let state = State {
            begun: Instant::now(),
            csv,
            plot,
            rows: Vec::new(),
            last: Default::default(),
            seen: Default::default(),
            recent: None,
            error: None,
        };
        Ok(Recorder { side, state: Mutex::new(state) })
    }

    /// Starts the time of the job.
    pub(crate) fn begin(&self) {
        self.lock().begun = Instant::now();
    }

    /// Takes the counts so far.
    pub(crate) fn record(&self, now: &Datagrams) {
        let mut state = self.lock();
        let at = state.begun.elapsed();
        state.record(at, now);
    }

    /// Returns the present rate of the data in bits per second, and the lost share in percent at a
    /// sender.
    pub(crate) fn recent(&self) -> Option<(f64, Option<f64>)> {
        let recent = self.lock().recent?;
        let lost = (self.side == Side::Source).then(|| 100.0 - recent.counts.success_percent());
        Some((recent.data_rate(self.side), lost))
    }

    /// Writes the last row and the plot. `total` are the counts at the end, if they are known.
    /// Returns the first error of a file, as a message.
    pub(crate) fn finish(&self, total: Option<&Datagrams>) -> Option<String> {
        let mut state = self.lock();
        let at = state.begun.elapsed();
        let total = total.copied().unwrap_or(state.seen.1);
        if total != Datagrams::default() {
            state.seen = (at, total);
            state.add_row(at, &total);
        }
        if let Some(mut plot) = state.plot.take() {
            let written = plot.write(&statistics_plot::svg(&state.rows, self.side));
            state.note_error(written);
        }
        state.error.take()
    }

    /// Returns a note if the job was to hold `rate` bytes per second and did not.
    pub(crate) fn shortfall(&self, rate: u64) -> Option<String> {
        let (took, total) = self.lock().seen;
        (self.side == Side::Source).then(|| shortfall(rate, took, &total)).flatten()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn record(&mut self, at: Duration, now: &Datagrams) {
        let (begin, before) = self.seen;
        self.recent = Some(Row::between(begin, &before, at, now));
        self.seen = (at, *now);
        // Rows end at the first report after each full second, so that delays do not add up.
        if at.as_secs() > self.last.0.as_secs() && at >= ROW {
            self.add_row(at, now);
        }
    }

    fn add_row(&mut self, at: Duration, now: &Datagrams) {
        let (begin, before) = self.last;
        let row = Row::between(begin, &before, at, now);
        // A late datagram makes the count of lost ones smaller. Later losses first make up for it.
        self.last = (at, Datagrams { lost: now.lost.max(before.lost), ..*now });
        let written = self.csv.as_mut().map_or(Ok(()), |csv| csv.write(&row.csv()));
        if written.is_err() {
            self.csv = None;
        }
        self.note_error(written);
        self.rows.push(row);
    }

    fn note_error(&mut self, written: Result<(), String>) {
        if let Err(error) = written {
            self.error.get_or_insert(error);
        }
    }
}

/// Returns a note if a job of `took` that was to hold `rate` bytes per second did not.
fn shortfall(rate: u64, took: Duration, total: &Datagrams) -> Option<String> {
    let per_second = |share: f64| share * total.bytes_sent as f64 / took.as_secs_f64();
    let (sent, arrived) = (per_second(1.0), per_second(total.success_percent() / 100.0));
    let wanted = REACHED * rate as f64;
    if took < NOTE_MIN || arrived >= wanted {
        return None;
    }
    let size = |rate: f64| format_size(rate as u64);
    let mut note = format!("--rate={} not reached: {}/s arrived", size(rate as f64), size(arrived));
    if sent < wanted {
        note.push_str(&format!("; this host sent only {}/s", size(sent)));
    }
    if total.lost > 0 {
        note.push_str(&format!(
            "; {} of {} datagrams were lost after this host sent them",
            total.lost, total.sent
        ));
    }
    Some(note)
}

/// Returns the counts of the datagrams of this side that matter to its user.
pub(super) fn sentence(datagrams: &Datagrams) -> String {
    let Datagrams { sent, received, lost, retransmitted, damaged, size, .. } = *datagrams;
    let mut text = format!(
        "{sent} UDP datagrams sent ({:.2}% arrived), {received} received",
        datagrams.success_percent()
    );
    for (count, word) in [(lost, "lost"), (retransmitted, "retransmitted"), (damaged, "damaged")] {
        if count > 0 {
            text.push_str(&format!(", {count} {word}"));
        }
    }
    text.push_str(&format!(", {size} bytes each"));
    text
}

/// Returns the totals for the summary in JSON.
pub(super) fn event(datagrams: &Datagrams) -> Value {
    let Datagrams {
        sent,
        received,
        lost,
        retransmitted,
        damaged,
        duplicate,
        bytes_sent,
        bytes_received,
        round_trip,
        queue: _,
        size,
    } = *datagrams;
    json!({
        "sent": sent, "received": received, "lost": lost, "retransmitted": retransmitted, "damaged": damaged,
        "duplicate": duplicate, "bytes_sent": bytes_sent, "bytes_received": bytes_received, "size": size,
        "round_trip": round_trip.as_secs_f64(), "success_percent": datagrams.success_percent(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn counts(sent: u64, lost: u64) -> Datagrams {
        Datagrams { sent, lost, bytes_sent: sent * 1000, ..Datagrams::default() }
    }

    fn recorder(side: Side) -> Recorder {
        Recorder::create(None, None, side).unwrap()
    }

    #[test]
    fn a_row_has_the_counts_and_rates_of_its_period() {
        let now = Datagrams { round_trip: Duration::from_micros(1500), ..counts(500, 20) };
        let row = Row::between(SECOND, &counts(100, 10), SECOND * 3, &now);
        assert_eq!(row.csv(), "3.000,1600000,0,400,0,10,0,0,0,97.500,1.500,0.000\n");
        assert_eq!(HEADER.matches(',').count(), row.csv().matches(',').count());
        let none = Row::between(SECOND, &now, SECOND, &now);
        assert!(none.csv().starts_with("1.000,0,0,0,0,0,0,0,0,100.000,"), "{none:?}");
    }

    #[test]
    fn rows_end_after_full_seconds_and_the_last_one_at_the_end() {
        let recorder = recorder(Side::Source);
        let mut state = recorder.lock();
        for quarter in 1..=9_u64 {
            state.record(Duration::from_millis(quarter * 260), &counts(quarter * 100, 0));
        }
        let ends: Vec<u128> = state.rows.iter().map(|row| row.end.as_millis()).collect();
        assert_eq!(ends, [1040, 2080]);
        drop(state);
        assert_eq!(recorder.finish(Some(&counts(950, 0))), None);
        let sum: u64 = recorder.lock().rows.iter().map(|row| row.counts.sent).sum();
        assert_eq!((recorder.lock().rows.len(), sum), (3, 950));
    }

    #[test]
    fn a_late_datagram_is_not_lost_twice() {
        let recorder = recorder(Side::Source);
        for (second, lost) in [(1, 10), (2, 8), (3, 11)] {
            recorder.lock().record(SECOND * second, &counts(100, lost));
        }
        let lost: Vec<u64> = recorder.lock().rows.iter().map(|row| row.counts.lost).collect();
        assert_eq!(lost, [10, 0, 1]);
    }

    #[test]
    fn the_note_about_the_rate_says_what_was_measured() {
        let note = |rate, seconds, sent, lost| shortfall(rate, SECOND * seconds, &counts(sent, lost));
        assert_eq!(note(1_000_000, 4, 4000, 0), None);
        assert_eq!(note(1_000_000, 1, 10, 5), None, "too short");
        let path = note(1_024_000, 4, 4096, 2048).unwrap();
        assert!(path.contains("2048 of 4096 datagrams were lost"), "{path}");
        assert!(!path.contains("sent only"), "{path}");
        let source = note(1_024_000, 4, 2048, 0).unwrap();
        assert!(source.contains("sent only") && !source.contains("lost"), "{source}");
        let receiver = recorder(Side::Sink);
        receiver.lock().seen = (SECOND * 4, counts(1, 0));
        assert_eq!(receiver.shortfall(1_000_000), None, "the rate is that of the sender");
    }

    #[test]
    fn the_recent_rate_is_that_of_the_last_report() {
        for (side, expected) in [(Side::Source, (1_600_000.0, Some(5.0))), (Side::Sink, (0.0, None))] {
            let recorder = recorder(side);
            assert_eq!(recorder.recent(), None);
            recorder.lock().record(SECOND, &counts(100, 0));
            recorder.lock().record(SECOND + SECOND / 2, &counts(200, 5));
            let (rate, lost) = recorder.recent().unwrap();
            assert_eq!((rate, lost.map(f64::round)), expected);
        }
    }
}
