//! What a repair tells: lines, or JSON events.

use base64::Engine;
use haul_engine::copy::quote;
use haul_engine::repair::{Done, Outcome, RepairReport, RepairTally, Why};
use haul_log::waybill::ReadError;
use haul_model::format_size;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// The standard output.
pub(super) struct Output<'a> {
    pub(super) name: &'static str,
    pub(super) json: bool,
    pub(super) dry_run: bool,
    pub(super) replicas: &'a [OsString],
    pub(super) broken: Option<io::Error>,
    /// Ends the work when nobody takes its results any more.
    pub(super) stop: &'a AtomicBool,
}

impl Output<'_> {
    fn line(&mut self, line: &str) {
        if self.broken.is_none()
            && let Err(error) = writeln!(io::stdout().lock(), "{line}")
        {
            self.stop.store(true, Ordering::Relaxed);
            self.broken = Some(error);
        }
    }

    /// What all of it came to.
    pub(super) fn summary(&mut self, tally: &RepairTally, wanted: bool, interrupted: bool) {
        let RepairTally { intact, repaired, made, left, bytes } = *tally;
        if self.json {
            let event = json!({
                "event": "summary", "intact": intact, "repaired": repaired, "made": made, "left": left,
                "bytes": bytes, "dry_run": self.dry_run, "interrupted": interrupted,
            });
            self.line(&event.to_string());
        } else if wanted {
            let would = if self.dry_run { "would be " } else { "" };
            let end = if interrupted { "; interrupted: the rest stayed as it was" } else { "" };
            let size = format_size(bytes);
            eprintln!(
                "{}: {intact} intact, {repaired} {would}repaired, {made} {would}made, {left} left as it was; \
                 {size} from replicas{end}",
                self.name
            );
        }
    }

    fn event(&mut self, outcome: &Outcome, word: &str) {
        let name = outcome.path.as_bytes();
        let mended = outcome.mended.iter().map(|mended| {
            json!({
                "range": [mended.range.start.0, mended.range.end.0],
                "from": self.replicas[mended.replica].to_string_lossy(),
            })
        });
        let mut event = json!({ "event": "entry", "result": word, "mended": mended.collect::<Vec<_>>() });
        match std::str::from_utf8(name) {
            Ok(path) => event["path"] = path.into(),
            Err(_) => {
                event["path_base64"] = base64::engine::general_purpose::STANDARD.encode(name).into();
            }
        }
        if let Done::Left(why) = &outcome.done {
            event["reason"] = why.to_string().into();
        }
        if let Done::Left(Why::NoSource(lost)) = &outcome.done {
            event["lost"] = lost.iter().map(|range| json!([range.start.0, range.end.0])).collect();
        }
        self.line(&event.to_string());
    }
}

impl RepairReport for Output<'_> {
    fn settled(&mut self, outcome: &Outcome) {
        let word = match outcome.done {
            Done::Repaired => "repaired",
            Done::Made => "made",
            Done::Right => "intact",
            Done::Left(_) => "left",
        };
        if self.json {
            return self.event(outcome, word);
        }
        let name = quote(OsStr::from_bytes(outcome.path.as_bytes()));
        let would = if self.dry_run { "would be " } else { "" };
        let mut line = match &outcome.done {
            Done::Right => return,
            Done::Left(why) => format!("{name}: left as it was: {why}"),
            Done::Repaired | Done::Made => format!("{name}: {would}{word}"),
        };
        for (number, mended) in outcome.mended.iter().enumerate() {
            let lead = if number == 0 { ": bytes" } else { "," };
            let replica = quote(&self.replicas[mended.replica]);
            line.push_str(&format!("{lead} {} from {replica}", mended.range));
        }
        self.line(&line);
    }

    fn flawed(&mut self, flaw: &ReadError) {
        if self.json {
            self.line(&json!({ "event": "flaw", "message": flaw.to_string() }).to_string());
        } else {
            eprintln!("{}: the waybill: {flaw}", self.name);
        }
    }
}
