//! Output of a transfer: lines, or JSON events.

use super::entry;
use super::statistics::{self, Recorder};
use crate::console::{say, this_command};
use crate::jobs::show;
use crate::json;
use base64::Engine;
use haul_engine::copy::quote;
use haul_engine::transfer::{
    Datagrams, Failure, Outcome, Report, TimeBreakdown, Traffic, TransferTimeBreakdown,
};
use haul_model::format_size;
use haul_net::{Fallback, Kind};
use haul_proto::{Outcome as Ended, Reason, Summary, Withheld};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Prints only the notes of this side; the peer prints the failures.
pub(crate) struct LocalNotesReporter<'a> {
    pub(crate) tool: &'a str,
}

impl Report for LocalNotesReporter<'_> {
    fn failed(&self, _: &Failure) {}

    fn note(&self, text: &str) {
        say(self.tool, &text);
    }
}

/// Maximum number of lines that one session writes to the log of a server. A client can cause any
/// number of failures.
const SESSION_LINES_MAX: u64 = 1000;

/// Server log of one session: failures, and jobs that cannot be resumed. After
/// [`SESSION_LINES_MAX`] lines it only counts them.
pub(crate) struct SessionReporter<'a> {
    tool: &'a str,
    session: &'a str,
    quiet: bool,
    lines: AtomicU64,
}

impl<'a> SessionReporter<'a> {
    /// Creates the log of a session. It prints nothing if `quiet` is set.
    pub(crate) fn new(tool: &'a str, session: &'a str, quiet: bool) -> SessionReporter<'a> {
        SessionReporter { tool, session, quiet, lines: AtomicU64::new(0) }
    }

    fn line(&self, text: &dyn std::fmt::Display) {
        if !self.quiet && self.lines.fetch_add(1, Ordering::Relaxed) < SESSION_LINES_MAX {
            say(self.tool, &format_args!("session {}: {text}", self.session));
        }
    }

    /// Reports the number of lines that were left out, if any.
    pub(crate) fn end(&self) {
        let left_out = self.lines.load(Ordering::Relaxed).saturating_sub(SESSION_LINES_MAX);
        if !self.quiet && left_out > 0 {
            say(self.tool, &format_args!("session {}: {left_out} more lines left out", self.session));
        }
    }
}

impl Report for SessionReporter<'_> {
    fn failed(&self, failure: &Failure) {
        self.line(failure);
    }

    fn note(&self, text: &str) {
        self.line(&text);
    }

    fn stop_reason(&self) -> &'static str {
        "the server is stopping"
    }

    fn lane_lost(&self, lane: u32, why: &str) {
        self.line(&format_args!("lost connection {lane}: {why}"));
    }
}

/// Output to standard output and standard error.
pub(crate) struct Output<'a> {
    tool: &'a str,
    json: bool,
    verbose: bool,
    dry_run: bool,
    /// Set to `true` to stop the work when standard output cannot be written.
    stop: &'a AtomicBool,
    /// Set to `true` once a failure is printed on standard error.
    told: AtomicBool,
    broken: Mutex<Option<io::Error>>,
    /// Figures of a job over UDP.
    pub(super) recorder: Option<Recorder>,
}

/// Role of this side, for the name of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Sink,
    /// A server, which can be source or sink.
    Server,
}

impl<'a> Output<'a> {
    pub(crate) fn new(
        tool: &'a str,
        json: bool,
        verbose: bool,
        dry_run: bool,
        stop: &'a AtomicBool,
    ) -> Output<'a> {
        let told = AtomicBool::new(false);
        Output { tool, json, verbose, dry_run, stop, told, broken: Mutex::default(), recorder: None }
    }

    /// Adds the figures of a job over UDP.
    pub(crate) fn with_recorder(self, recorder: Option<Recorder>) -> Output<'a> {
        Output { recorder, ..self }
    }

    /// Reports a note that is not a failure.
    pub(crate) fn note(&self, text: &str) {
        say(self.tool, &text);
        if self.json {
            self.line(json::to_string(&json!({ "event": "warning", "message": text })).into_bytes());
        }
    }

    /// Reports why nothing, or not everything, was done.
    pub(crate) fn failure(&self, message: &dyn std::fmt::Display) {
        say(self.tool, message);
        if self.json {
            self.line(
                json::to_string(&json!({ "event": "error", "message": message.to_string() })).into_bytes(),
            );
        }
    }

    /// Prints the summary if it is `wanted`. Always prints the reason on standard error if the job
    /// is incomplete, except if the reader of standard output stopped the job by closing the pipe.
    pub(crate) fn summary(&self, outcome: &Outcome, side: Side, took: Duration, wanted: bool) {
        let broken = self.broken.lock().as_ref().map(io::Error::kind);
        if broken == Some(io::ErrorKind::BrokenPipe) {
            return;
        }
        if self.json {
            let event = summary_event(outcome, side, took, self.dry_run, self.stop.load(Ordering::Relaxed));
            self.line(json::to_string(&event).into_bytes());
        } else if wanted {
            return say(
                self.tool,
                &format_args!("{}{}", sentence(outcome, side, took, self.dry_run), self.advice(outcome)),
            );
        }
        if let Some(why) = why_not_whole(outcome, self.told.load(Ordering::Relaxed)) {
            say(self.tool, &format_args!("{why}{}", self.advice(outcome)));
        }
    }

    /// Returns the command that resumes a broken session, as the end of its message. After a
    /// shortage, adds the command that frees what is kept for resuming.
    fn advice(&self, outcome: &Outcome) -> String {
        let Some(reason) = &outcome.broken else { return String::new() };
        let mut advice = format!("; to resume: {}", this_command());
        if let Some(kind) = self.tool.strip_prefix("haul ").filter(|kind| ["send", "fetch"].contains(kind))
            && reason.why.is_shortage()
            && reason.to_string().contains(".haul-*")
        {
            let id = entry::job(kind, &entry::words(), &std::env::current_dir().unwrap_or_default());
            let id = show::short_id(id);
            advice.push_str(&format!("; to delete what is kept for that: haul jobs forget {id}"));
        }
        advice
    }

    /// Returns the error of standard output, if it could not be written.
    pub(crate) fn into_failure(self) -> Option<io::Error> {
        self.broken.into_inner()
    }

    /// Prints one line to standard output in one write, so that lines of several workers do not
    /// mix.
    fn line(&self, mut line: Vec<u8>) {
        let mut broken = self.broken.lock();
        if broken.is_some() {
            return;
        }
        line.push(b'\n');
        let mut out = io::stdout().lock();
        if let Err(error) = out.write_all(&line).and_then(|()| out.flush()) {
            self.stop.store(true, Ordering::Relaxed);
            *broken = Some(error);
        }
    }

    /// Prints the result of one name.
    fn entry(&self, result: &str, path: &[u8], more: Option<(&str, String)>) {
        if !self.json {
            let mut line = format!("{}: {result}", quote(OsStr::from_bytes(path)));
            if let Some((_, text)) = more {
                line.push_str(": ");
                line.push_str(&text);
            }
            return self.line(line.into_bytes());
        }
        let mut event = json!({ "event": "entry", "result": result });
        match std::str::from_utf8(path) {
            Ok(path) => event["path"] = path.into(),
            Err(_) => {
                event["path_base64"] = base64::engine::general_purpose::STANDARD.encode(path).into();
            }
        }
        if let Some((name, text)) = more {
            event[name] = text.into();
        }
        self.line(json::to_string(&event).into_bytes());
    }
}

impl Report for Output<'_> {
    fn failed(&self, failure: &Failure) {
        say(self.tool, failure);
        self.told.store(true, Ordering::Relaxed);
        if self.json {
            let side = if failure.here { "this" } else { "other" };
            self.entry(
                "failed",
                &failure.path,
                Some(("reason", format!("{} ({side} side)", failure.reason))),
            );
        }
    }

    fn ended(&self, path: &[u8], outcome: &Ended) {
        match outcome {
            Ended::DryRun => self.entry("would be sent", path, None),
            Ended::Done(level) if self.verbose || self.json => {
                self.entry("sent", path, Some(("proof", level.to_string())));
            }
            Ended::Same if self.verbose || self.json => self.entry("the same", path, None),
            // `failed` reports failures.
            Ended::Done(_) | Ended::Same | Ended::Failed(_) => {}
        }
    }

    fn note(&self, text: &str) {
        Output::note(self, text);
    }

    fn lane_lost(&self, lane: u32, why: &str) {
        Output::note(self, &format!("lost connection {lane}: {why}"));
    }

    fn datagrams(&self, so_far: &Datagrams) {
        if let Some(recorder) = &self.recorder {
            recorder.record(so_far);
        }
    }

    fn deleted(&self, path: &[u8]) {
        if self.dry_run {
            self.entry("would be deleted", path, None);
        } else if self.verbose || self.json {
            self.entry("deleted", path, None);
        }
    }
}

fn summary_event(outcome: &Outcome, side: Side, took: Duration, dry_run: bool, interrupted: bool) -> Value {
    let Summary { done, same, would, failed, unread, deleted, undeleted, over_limit, bytes, again } =
        outcome.summary;
    let Traffic { sent: wire_out, received: wire_in, plain, packed } = outcome.traffic;
    json!({
        "event": "summary", "sent": done, "same": same, "would": would, "failed": failed, "deleted": deleted,
        "undeleted": undeleted, "over_max_delete": over_limit, "bytes": bytes, "bytes_of_earlier_runs": outcome.reused_bytes, "objects_sent_again": again, "unread": unread,
        "delete_withheld": outcome.withheld.is_some(), "whole": outcome.is_whole(), "dry_run": dry_run,
        "interrupted": interrupted, "seconds": took.as_secs_f64(),
        "spent": seconds_of(&outcome.spent),
        "split": outcome.split.map(|TransferTimeBreakdown { source, sink, network }| json!({
            "source": seconds_of(&source), "network": network.as_secs_f64(), "sink": seconds_of(&sink),
        })),
        "held_back": held_back(outcome, side).map(|(what, share)| json!({ "by": what, "percent": share })),
        "transport": outcome.transport.map(|(kind, fallback)| carrier(kind, fallback)),
        "fallback": fallback(outcome).map(|why| why.to_string()),
        "datagrams": outcome.datagrams.as_ref().map(statistics::event),
        "wire": { "out": wire_out, "in": wire_in, "compressed": { "from": plain, "to": packed } },
    })
}

/// Returns the time of one side by activity, in seconds.
fn seconds_of(spent: &TimeBreakdown) -> Value {
    let TimeBreakdown { storage, hashing, packing, crypto, processor, sending, receiving } = *spent;
    json!({
        "storage": storage.as_secs_f64(), "hashing": hashing.as_secs_f64(), "compression": packing.as_secs_f64(),
        "crypto": crypto.as_secs_f64(), "processor": processor.as_secs_f64(),
        "sending": sending.as_secs_f64(), "receiving": receiving.as_secs_f64(),
    })
}

/// Returns the summary in one line.
pub(crate) fn sentence(outcome: &Outcome, side: Side, took: Duration, dry_run: bool) -> String {
    let Summary { done, same, would, failed, unread, deleted, undeleted, over_limit, bytes, again } =
        outcome.summary;
    let arrived = if dry_run { (would, "would be sent") } else { (done, "transferred") };
    let (gone, left) = if dry_run {
        ("would be deleted", "could not be deleted")
    } else {
        ("deleted", "could not be deleted")
    };
    let counts = [
        arrived,
        (same, "unchanged"),
        (failed, "failed"),
        (unread, "could not be read"),
        (deleted, gone),
        (undeleted, left),
        (over_limit, OVER_LIMIT),
        (again, "objects resent"),
    ];
    let told = counts.iter().enumerate().filter(|(at, (count, _))| *at == 0 || *count > 0);
    let mut line: Vec<String> = told.map(|(_, (count, word))| format!("{count} {word}")).collect();
    if !dry_run {
        let seconds = took.as_secs_f64();
        let Traffic { sent: wire_out, received: wire_in, plain, packed } = outcome.traffic;
        // Neither holes nor data of an earlier run took any time.
        let carried =
            wire_out.saturating_add(wire_in).saturating_add(plain.saturating_sub(packed)).min(bytes);
        let rate = if seconds > 0.0 { carried as f64 / seconds } else { 0.0 };
        let mut moved = format!("{} in {seconds:.1} s ({}/s)", format_size(bytes), format_size(rate as u64));
        if plain > 0 {
            let (wire, from, to) = (wire_out + wire_in, format_size(plain), format_size(packed));
            moved.push_str(&format!(", {} over the network ({from} compressed to {to})", format_size(wire)));
        }
        line.push(moved);
        if let Some(datagrams) = &outcome.datagrams {
            line.push(statistics::sentence(datagrams));
        }
        if let Some(why) = fallback(outcome) {
            line.push(format!("over TCP instead of UDP ({why})"));
        }
        if outcome.reused_bytes > 0 {
            line.push(format!("{} already transferred by an earlier run", format_size(outcome.reused_bytes)));
        }
    }
    let mut line = line.join(", ");
    if let Some(reason) = outcome.withheld {
        line.push_str(&format!("; {}", withheld(reason)));
    }
    if let Some(reason) = &outcome.broken {
        line.push_str(&format!("; {}", unfinished(reason)));
    } else if let Some((what, share)) = held_back(outcome, side).filter(|_| !dry_run && bytes > 0) {
        line.push_str(&format!("; limited by {} ({share}% of the time)", in_words(what)));
    }
    line
}

/// Returns the reason why a job that requested UDP used TCP.
fn fallback(outcome: &Outcome) -> Option<Fallback> {
    outcome.transport.and_then(|(_, fallback)| fallback)
}

/// Returns the name of the transport that carried the data last.
fn carrier(kind: Kind, fallback: Option<Fallback>) -> &'static str {
    match kind {
        Kind::Udp if fallback.is_none() => "udp",
        Kind::Quic => "quic",
        Kind::Https => "https",
        Kind::Udp | Kind::Tls | Kind::Plain => "tcp",
        Kind::Pipes => "ssh",
        Kind::Local => "local",
    }
}

/// Returns the message for deletions that were not made.
fn withheld(reason: Withheld) -> &'static str {
    match reason {
        Withheld::SourceErrors => "deletions skipped: some source entries could not be read",
        Withheld::NothingSent => {
            "deletions skipped in a directory in which nothing is sent; use --delete-all to empty it"
        }
    }
}

/// Description of the names that `--max-delete` protects.
const OVER_LIMIT: &str = "not deleted because of --max-delete";

/// Returns the message for a session that broke.
fn unfinished(reason: &Reason) -> String {
    format!("incomplete: {reason}")
}

/// Returns the reason why the job is incomplete, or `None`. Counts of failed names are left out if
/// these names `are_told`.
fn why_not_whole(outcome: &Outcome, are_told: bool) -> Option<String> {
    let Summary { failed, unread, undeleted, over_limit, .. } = outcome.summary;
    let mut reasons: Vec<String> = outcome.broken.iter().map(unfinished).collect();
    reasons.extend(outcome.withheld.map(|reason| withheld(reason).to_owned()));
    let counts = [
        (over_limit, OVER_LIMIT),
        (undeleted, "could not be deleted"),
        (failed, "failed"),
        (unread, "could not be read"),
    ];
    let told = if are_told { &counts[..2] } else { &counts };
    reasons
        .extend(told.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Returns the bottleneck: the activity that took most of the job's time, and its share in percent.
fn held_back(outcome: &Outcome, side: Side) -> Option<(&'static str, u64)> {
    let parts = match &outcome.split {
        Some(split) => parts_of_both(split).to_vec(),
        None => parts_of_one(&outcome.spent, side).to_vec(),
    };
    let all: Duration = parts.iter().map(|(time, _)| *time).sum();
    let (most, what) = parts.into_iter().max_by_key(|(time, _)| *time)?;
    if most.is_zero() {
        return None;
    }
    Some((what, (most.as_secs_f64() / all.as_secs_f64() * 100.0).round() as u64))
}

/// Returns the words of the summary for a bottleneck, which JSON names by its key.
fn in_words(what: &'static str) -> &'static str {
    match what {
        "the storage of the source" => "the sender's storage",
        "hashing at the source" => "hashing at the sender",
        "compression at the source" => "compression at the sender",
        "encryption at the source" => "encryption at the sender",
        "the processors of the source" => "the sender's CPU",
        "the processors of the sink" => "the receiver's CPU",
        "encryption at the sink" => "encryption at the receiver",
        "compression at the sink" => "compression at the receiver",
        "hashing at the sink" => "hashing at the receiver",
        "the storage of the sink" => "the receiver's storage",
        "the storage of this side" => "local storage",
        "hashing on this side" => "local hashing",
        "compression on this side" => "local compression",
        "encryption on this side" => "local encryption",
        "the processors of this side" => "the local CPU",
        "the network or the other side" => "the network or the remote host",
        other => other,
    }
}

/// Returns the times along the path of the data. The time that one side waits for the other is left
/// out, because the side that causes the wait already counts it by activity.
fn parts_of_both(
    TransferTimeBreakdown { source, sink, network }: &TransferTimeBreakdown,
) -> [(Duration, &'static str); 11] {
    [
        (source.storage, "the storage of the source"),
        (source.hashing, "hashing at the source"),
        (source.packing, "compression at the source"),
        (source.crypto, "encryption at the source"),
        (source.processor, "the processors of the source"),
        (*network, "the network"),
        (sink.processor, "the processors of the sink"),
        (sink.crypto, "encryption at the sink"),
        (sink.packing, "compression at the sink"),
        (sink.hashing, "hashing at the sink"),
        (sink.storage, "the storage of the sink"),
    ]
}

/// Returns the times of a job whose peer reported none. Waiting for the other direction is not
/// counted, because answers that a source waits for do not slow it down.
fn parts_of_one(spent: &TimeBreakdown, side: Side) -> [(Duration, &'static str); 6] {
    let network = match side {
        Side::Source => spent.sending,
        Side::Sink => spent.receiving,
        // A source waits much longer for answers than a sink waits for its answers to be accepted.
        Side::Server if spent.sending.is_zero() => spent.receiving,
        Side::Server => spent.sending.max(spent.receiving),
    };
    [
        (spent.storage, "the storage of this side"),
        (spent.hashing, "hashing on this side"),
        (spent.packing, "compression on this side"),
        (spent.crypto, "encryption on this side"),
        (spent.processor, "the processors of this side"),
        (network, "the network or the other side"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_proto::Why;

    fn outcome(summary: Summary) -> Outcome {
        let spent = TimeBreakdown {
            storage: Duration::from_secs(3),
            hashing: Duration::from_secs(1),
            ..TimeBreakdown::default()
        };
        let traffic = Traffic { sent: summary.bytes, ..Traffic::default() };
        Outcome { summary, spent, traffic, ..Outcome::default() }
    }

    #[test]
    fn summary_line_has_nonzero_counts_and_the_bottleneck() {
        let summary = Summary { done: 3, failed: 1, bytes: 4 << 20, ..Summary::default() };
        let line = sentence(&outcome(summary), Side::Source, Duration::from_secs(2), false);
        let expected = "3 transferred, 1 failed, 4.0 MiB in 2.0 s (2.0 MiB/s); limited by local storage (75% of the time)";
        assert_eq!(line, expected);
    }

    #[test]
    fn summary_reports_compressed_and_network_bytes() {
        let summary = Summary { done: 1, bytes: 4 << 20, ..Summary::default() };
        let mut outcome = outcome(summary);
        outcome.traffic =
            Traffic { sent: (2 << 20) + 500_000, received: 24_288, plain: 3 << 20, packed: 1 << 20 };
        let line = sentence(&outcome, Side::Source, Duration::from_secs(2), false);
        let expected =
            "4.0 MiB in 2.0 s (2.0 MiB/s), 2.5 MiB over the network (3.0 MiB compressed to 1.0 MiB);";
        assert!(line.contains(expected), "{line}");
        let event = summary_event(&outcome, Side::Source, Duration::from_secs(2), false, false);
        assert_eq!(event["wire"]["out"], (2 << 20) + 500_000);
        assert_eq!(event["wire"]["compressed"]["to"], 1 << 20);
    }

    #[test]
    fn waiting_for_answers_is_not_a_bottleneck_of_the_source() {
        let mut outcome = outcome(Summary::default());
        outcome.spent = TimeBreakdown {
            receiving: Duration::from_secs(9),
            sending: Duration::from_secs(1),
            ..TimeBreakdown::default()
        };
        assert_eq!(held_back(&outcome, Side::Source), Some(("the network or the other side", 100)));
        outcome.spent = TimeBreakdown { receiving: Duration::from_secs(9), ..TimeBreakdown::default() };
        assert_eq!(held_back(&outcome, Side::Source), None);
        assert_eq!(held_back(&outcome, Side::Sink), Some(("the network or the other side", 100)));
    }

    #[test]
    fn bottleneck_is_the_slowest_part_of_both_sides() {
        let mut outcome = outcome(Summary::default());
        let seconds = Duration::from_secs;
        let source = TimeBreakdown { storage: seconds(2), sending: seconds(30), ..TimeBreakdown::default() };
        let sink = TimeBreakdown { storage: seconds(6), receiving: seconds(90), ..TimeBreakdown::default() };
        for (network, expected) in [(2, ("the storage of the sink", 60)), (8, ("the network", 50))] {
            outcome.split = Some(TransferTimeBreakdown { source, sink, network: seconds(network) });
            for side in [Side::Source, Side::Sink, Side::Server] {
                assert_eq!(held_back(&outcome, side), Some(expected));
            }
        }
        let source = TimeBreakdown { processor: seconds(9), ..source };
        outcome.split = Some(TransferTimeBreakdown { source, sink, network: seconds(3) });
        assert_eq!(held_back(&outcome, Side::Sink), Some(("the processors of the source", 45)));
        outcome.split = Some(TransferTimeBreakdown { source, sink, network: seconds(8) });
        let event = summary_event(&outcome, Side::Sink, seconds(9), false, false);
        assert_eq!(event["split"]["source"]["processor"], 9.0);
        assert_eq!(event["held_back"]["by"], "the processors of the source");
        outcome.split =
            Some(TransferTimeBreakdown { source: TimeBreakdown::default(), sink, network: seconds(8) });
        let event = summary_event(&outcome, Side::Sink, seconds(9), false, false);
        assert_eq!(event["split"]["network"], 8.0);
        assert_eq!(event["split"]["sink"]["storage"], 6.0);
        assert_eq!(event["held_back"]["by"], "the network");
    }

    /// Regression: with -q or --json no line gave the reason of a non-zero exit status.
    #[test]
    fn incomplete_transfers_have_a_reason_without_a_summary() {
        let none = || outcome(Summary::default());
        assert_eq!(why_not_whole(&none(), false), None);
        let broken = Outcome { broken: Some(Reason::new(Why::NoSpace, "sda")), ..none() };
        assert!(why_not_whole(&broken, true).unwrap().starts_with("incomplete: no space left"));
        let stopped = Outcome { withheld: Some(Withheld::SourceErrors), ..none() };
        assert_eq!(why_not_whole(&stopped, true).as_deref(), Some(withheld(Withheld::SourceErrors)));
        let counted = outcome(Summary { failed: 2, unread: 3, undeleted: 4, ..Summary::default() });
        assert_eq!(why_not_whole(&counted, true).as_deref(), Some("4 could not be deleted"));
        let all = why_not_whole(&counted, false).unwrap();
        assert_eq!(all, "4 could not be deleted; 2 failed; 3 could not be read");
    }

    #[test]
    fn summary_of_an_unfinished_transfer_gives_the_reason() {
        let mut outcome = outcome(Summary::default());
        outcome.broken = Some(Reason::new(Why::NoSpace, "sda\u{1b}"));
        outcome.withheld = Some(Withheld::SourceErrors);
        let line = sentence(&outcome, Side::Sink, Duration::from_secs(1), false);
        assert!(line.contains("; deletions skipped") && line.contains("incomplete: no space left"), "{line}");
        assert!(!line.contains('\u{1b}'));
        let dry = sentence(&outcome, Side::Sink, Duration::from_secs(1), true);
        assert!(dry.starts_with("0 would be sent;"), "{dry}");
    }
}
