//! Progress bar on a terminal for work longer than a second: files, bytes, rate and time left.

use crate::tool;
use haul_engine::sum::Counters;
use haul_engine::{copy, transfer};
use haul_log::record::Progress;
use haul_model::format_size;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::{Condvar, Mutex};
use std::io::IsTerminal;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Delay before the progress bar appears.
const SHOW_AFTER: Duration = Duration::from_secs(1);

/// Polling interval for the counters.
const REFRESH: Duration = Duration::from_millis(100);

/// Progress snapshot of a job: files and bytes found and done. All fields but `walked` only grow.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ProgressSnapshot {
    pub(crate) files_found: u64,
    pub(crate) files_done: u64,
    pub(crate) bytes_found: u64,
    pub(crate) bytes_done: u64,
    /// True if the walk has finished, so that the share done is exact.
    pub(crate) walked: bool,
    /// Present rate of a job over UDP in bits per second, and the lost share in percent, if known.
    pub(crate) link: Option<(f64, Option<f64>)>,
}

impl From<&copy::Tally> for ProgressSnapshot {
    /// Reads the counters of a copy or a move.
    fn from(tally: &copy::Tally) -> ProgressSnapshot {
        let get = copy::Tally::get;
        ProgressSnapshot {
            files_found: get(&tally.files_found),
            files_done: get(&tally.files_done),
            bytes_found: get(&tally.bytes_found),
            bytes_done: tally.bytes_through(),
            walked: tally.is_walked(),
            link: None,
        }
    }
}

impl From<&transfer::Tally> for ProgressSnapshot {
    /// Reads the counters of a transfer.
    fn from(tally: &transfer::Tally) -> ProgressSnapshot {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ProgressSnapshot {
            files_found: get(&tally.files_found),
            files_done: get(&tally.files_done),
            bytes_found: get(&tally.bytes_found),
            bytes_done: get(&tally.bytes_done),
            walked: tally.walked.load(Ordering::Relaxed),
            link: None,
        }
    }
}

impl From<&Counters> for ProgressSnapshot {
    /// Reads the counters of a job that reads files and compares them.
    fn from(counters: &Counters) -> ProgressSnapshot {
        ProgressSnapshot {
            files_found: counters.files_found(),
            files_done: counters.files_done(),
            bytes_found: counters.bytes_found(),
            bytes_done: counters.bytes_done(),
            walked: counters.walked(),
            link: None,
        }
    }
}

impl From<ProgressSnapshot> for Progress {
    fn from(snapshot: ProgressSnapshot) -> Progress {
        let ProgressSnapshot { files_found, files_done, bytes_found, bytes_done, walked, link: _ } = snapshot;
        Progress { files_done, files_found, bytes_done, bytes_found, is_counting: !walked }
    }
}

/// Returns true if a bar is drawn by default: under haul's own names, whose users expect a bar. The
/// exception is a command that prints lines to the same terminal, because they would break the bar.
pub(crate) fn is_shown_by_default(tool: &str, prints_lines: bool) -> bool {
    tool::is_own_name(tool) && !(prints_lines && std::io::stdout().is_terminal())
}

/// Returns true if a bar that is `wanted` is drawn: standard error is a terminal.
pub(crate) fn is_drawn(wanted: bool) -> bool {
    wanted && std::io::stderr().is_terminal()
}

/// Runs `work` and draws its progress meanwhile, if `wanted` and standard error is a terminal.
pub(crate) fn watch<T>(
    wanted: bool,
    snapshot: impl Fn() -> ProgressSnapshot + Sync,
    work: impl FnOnce() -> T,
) -> T {
    if !is_drawn(wanted) {
        return work();
    }
    let end_signal = EndSignal::default();
    std::thread::scope(|scope| {
        // If no thread can be created, the work runs without a bar.
        let _drawing = std::thread::Builder::new().spawn_scoped(scope, || draw(&end_signal, &snapshot));
        let _end = EndDrawingGuard(&end_signal);
        work()
    })
}

/// Signals the end of the work to the drawing thread without waiting for a tick.
#[derive(Default)]
struct EndSignal {
    flag: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl EndSignal {
    /// Waits for at most `time`; returns true if the work has finished.
    fn within(&self, time: Duration) -> bool {
        let mut lock = self.lock.lock();
        let is_running = |_: &mut ()| !self.flag.load(Ordering::Acquire);
        self.wake.wait_while_for(&mut lock, is_running, time);
        drop(lock);
        self.flag.load(Ordering::Acquire)
    }
}

/// Ends the drawing even if the work panics; otherwise the scope would wait for the drawing thread
/// indefinitely.
struct EndDrawingGuard<'a>(&'a EndSignal);

impl Drop for EndDrawingGuard<'_> {
    fn drop(&mut self) {
        let _lock = self.0.lock.lock();
        self.0.flag.store(true, Ordering::Release);
        self.0.wake.notify_all();
    }
}

fn draw(end_signal: &EndSignal, snapshot: &impl Fn() -> ProgressSnapshot) {
    let begun = Instant::now();
    if end_signal.within(SHOW_AFTER) {
        return;
    }
    let bar = ProgressBar::with_draw_target(Some(100), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("[{bar:24}] {msg}") {
        bar.set_style(style.progress_chars("=> "));
    }
    while !end_signal.within(REFRESH) {
        let now = snapshot();
        bar.set_position(percent(&now));
        bar.set_message(line(&now, begun.elapsed()));
    }
    bar.finish_and_clear();
}

/// Returns the percentage done, 0 to 100. Bytes and files count equally, so that a million empty
/// files move the bar as much as one large file.
fn percent(now: &ProgressSnapshot) -> u64 {
    let share = |done: u64, found: u64| if found == 0 { 1.0 } else { done as f64 / found as f64 };
    let both = (share(now.bytes_done, now.bytes_found) + share(now.files_done, now.files_found)) / 2.0;
    (both.clamp(0.0, 1.0) * 100.0) as u64
}

fn line(now: &ProgressSnapshot, took: Duration) -> String {
    let rate = now.bytes_done as f64 / took.as_secs_f64();
    let least = if now.walked { "" } else { "at least " };
    let (done, found) = (format_size(now.bytes_done), format_size(now.bytes_found));
    let left = if now.walked { time_left(now, took) } else { "counting".to_owned() };
    let files = format!("{}/{least}{} files", now.files_done, now.files_found);
    let link = now.link.map(|(rate, lost)| link(rate, lost)).unwrap_or_default();
    format!("{files}  {done}/{least}{found}  {}/s  {left}{link}", format_size(rate as u64))
}

/// Returns the present rate of the datagrams and their loss.
fn link(rate: f64, lost: Option<f64>) -> String {
    let lost = lost.map(|lost| format!(", {lost:.1}% lost")).unwrap_or_default();
    format!("  (UDP now: {:.1} Mbit/s{lost})", rate / 1e6)
}

/// Returns the estimated time left at the average rate of files and of bytes: the larger of both
/// estimates.
fn time_left(now: &ProgressSnapshot, took: Duration) -> String {
    let left = |done: u64, found: u64| {
        if done == 0 { 0.0 } else { took.as_secs_f64() * (found.saturating_sub(done)) as f64 / done as f64 }
    };
    let seconds =
        left(now.bytes_done, now.bytes_found).max(left(now.files_done, now.files_found)).ceil() as u64;
    match seconds {
        0..60 => format!("{seconds} s left"),
        60..3600 => format!("{}:{:02} min left", seconds / 60, seconds % 60),
        _ => format!("{}:{:02} h left", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_files_advance_the_progress_bar() {
        let now = ProgressSnapshot {
            files_found: 1_000_000,
            files_done: 500_000,
            walked: true,
            ..ProgressSnapshot::default()
        };
        assert_eq!(percent(&now), 75);
        assert!(line(&now, Duration::from_secs(10)).contains("10 s left"));
    }

    #[test]
    fn progress_line_shows_counting_until_the_walk_ends() {
        let now = ProgressSnapshot {
            files_found: 10,
            files_done: 5,
            bytes_found: 100,
            bytes_done: 50,
            walked: false,
            link: None,
        };
        let shown = line(&now, Duration::from_secs(10));
        assert!(
            shown.starts_with("5/at least 10 files  50 B/at least 100 B  ") && shown.ends_with("counting")
        );
        let over_udp = ProgressSnapshot { link: Some((8_000_000.0, Some(1.25))), ..now };
        assert!(line(&over_udp, Duration::from_secs(10)).ends_with("(UDP now: 8.0 Mbit/s, 1.2% lost)"));
    }

    #[test]
    fn watch_returns_the_result_with_and_without_a_progress_bar() {
        assert_eq!(watch(true, ProgressSnapshot::default, || 7), 7);
        assert_eq!(watch(false, ProgressSnapshot::default, || 7), 7);
    }
}
