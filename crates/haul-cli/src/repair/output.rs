//! Output of a repair: lines, or JSON events.

use crate::console::{say, this_command};
use crate::json;
use crate::tool::without_controls;
use crate::verify::resume_message;
use base64::Engine;
use haul_engine::copy::quote;
use haul_engine::repair::{
    Done, JournalWarning, LeftReason, Outcome, Recovered, RepairObserver, RepairTally,
};
use haul_engine::sum::reason;
use haul_engine::verify::Resumption;
use haul_log::waybill::{ReadError, RelPath};
use haul_model::format_size;
use serde_json::json;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Output to standard output.
pub(super) struct Output<'a> {
    pub(super) name: &'static str,
    pub(super) json: bool,
    pub(super) dry_run: bool,
    pub(super) quiet: bool,
    /// Replicas as typed.
    pub(super) replicas: &'a [OsString],
    pub(super) broken: Option<io::Error>,
    /// Set to `true` to stop the work when standard output cannot be written.
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

    /// Returns true if the reader of standard output closed the pipe.
    fn has_closed_pipe(&self) -> bool {
        self.broken.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    }

    /// Prints the totals of the repair.
    pub(super) fn summary(&mut self, tally: &RepairTally, interrupted: bool) {
        let RepairTally { intact, before, repaired, made, left, bytes, received, unreached, bytes_read } =
            *tally;
        if self.json {
            let event = json!({
                "event": "summary", "intact": intact, "before": before, "repaired": repaired, "made": made, "left": left,
                "bytes": bytes, "received": received, "unreached": unreached, "bytes_read": bytes_read, "dry_run": self.dry_run, "interrupted": interrupted,
            });
            self.line(&json::to_string(&event));
        } else if !self.quiet && !self.has_closed_pipe() {
            let would = if self.dry_run { "would be " } else { "" };
            let end = match interrupted {
                true => {
                    format!(
                        "; interrupted: the remaining files were not repaired; to resume: {}",
                        this_command()
                    )
                }
                false => String::new(),
            };
            let mut size = format_size(bytes);
            if received > 0 {
                size = format!("{size} ({} over the network)", format_size(received));
            }
            eprintln!(
                "{}: {intact} intact, {repaired} {would}repaired, {made} {would}made, {left} not repaired; \
                 {size} from replicas{end}",
                self.name
            );
        }
    }

    /// Reports a message about a replica on another host.
    fn of_replica(&mut self, event: &str, replica: usize, message: &str) {
        let from = &self.replicas[replica];
        // Text of another host is printed without control characters.
        let message = without_controls(message).replace('\n', " ");
        say(self.name, &format_args!("{}: {message}", quote(from)));
        if self.json {
            let event = json!({ "event": event, "from": from.to_string_lossy(), "message": message });
            self.line(&json::to_string(&event));
        }
    }

    fn event(&mut self, outcome: &Outcome, word: &str) {
        let mended = outcome.mended.iter().map(|mended| {
            json!({
                "range": [mended.range.start.0, mended.range.end.0],
                "from": self.replicas[mended.replica].to_string_lossy(),
            })
        });
        let mut event = json!({ "event": "entry", "result": word, "mended": mended.collect::<Vec<_>>() });
        name_in(&mut event, &outcome.path);
        if matches!(outcome.done, Done::RepairedInPlace) {
            event["in_place"] = true.into();
        }
        if let Done::Left(why) = &outcome.done {
            event["reason"] = why.to_string().into();
        }
        if let Done::Left(LeftReason::NoSource { lost, .. } | LeftReason::NotAsked(lost)) = &outcome.done {
            event["lost"] = lost.iter().map(|range| json!([range.start.0, range.end.0])).collect();
        }
        self.line(&json::to_string(&event));
    }
}

impl RepairObserver for Output<'_> {
    fn settled(&mut self, outcome: &Outcome) {
        let word = match outcome.done {
            Done::Repaired | Done::RepairedInPlace => "repaired",
            Done::Finished => "finished",
            Done::Made => "made",
            Done::Right => "intact",
            Done::Left(_) => "left",
        };
        if self.json {
            return self.event(outcome, word);
        }
        let name = quoted(&outcome.path);
        let would = if self.dry_run { "would be " } else { "" };
        let mut line = match &outcome.done {
            // A finished repair was reported when it finished.
            Done::Right | Done::Finished => return,
            Done::Left(why @ (LeftReason::HalfDone(..) | LeftReason::Foreign | LeftReason::Journal(_))) => {
                format!("{name}: partly repaired: {why}")
            }
            Done::Left(why) => format!("{name}: not repaired: {why}"),
            Done::Repaired | Done::Made => format!("{name}: {would}{word}"),
            Done::RepairedInPlace => format!("{name}: {would}{word} in place"),
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
            self.line(&json::to_string(&json!({ "event": "flaw", "message": flaw.to_string() })));
        } else {
            eprintln!("{}: the waybill: {flaw}", self.name);
        }
    }

    fn resumption(&mut self, told: &Resumption) {
        let message = resume_message(told);
        if self.json {
            self.line(&json::to_string(&json!({ "event": "resume", "message": message })));
        } else {
            eprintln!("{}: {message}", self.name);
        }
    }

    fn asks(&mut self, replica: usize, files: usize, bytes: u64) {
        let from = &self.replicas[replica];
        if self.json {
            let event =
                json!({ "event": "asks", "from": from.to_string_lossy(), "files": files, "bytes": bytes });
            self.line(&json::to_string(&event));
        } else if !self.quiet {
            let (size, files) =
                (format_size(bytes), if files == 1 { "1 file".to_owned() } else { format!("{files} files") });
            say(self.name, &format_args!("requesting {size} of {files} from {}", quote(from)));
        }
    }

    fn replica_note(&mut self, replica: usize, note: &str) {
        self.of_replica("warning", replica, note);
    }

    fn unreached(&mut self, replica: usize, why: &str) {
        self.of_replica("error", replica, why);
    }

    fn time_not_kept(&mut self, path: &RelPath, why: &io::Error) {
        let message = format!("cannot restore the modification time of {}: {}", quoted(path), reason(why));
        say(self.name, &message);
        if self.json {
            self.line(&json::to_string(&json!({ "event": "warning", "message": message })));
        }
    }

    fn cleanup_failed(&mut self, why: &io::Error) {
        let message = format!(
            "cannot remove data received from other hosts: {}; the next repair removes it",
            reason(why)
        );
        say(self.name, &message);
        if self.json {
            self.line(&json::to_string(&json!({ "event": "warning", "message": message })));
        }
    }

    fn journal_warning(&mut self, path: Option<&RelPath>, warning: JournalWarning) {
        let message = match path {
            Some(path) => format!("{}: {warning}", quoted(path)),
            None => warning.to_string(),
        };
        say(self.name, &message);
        if self.json {
            self.line(&json::to_string(&json!({ "event": "warning", "message": message })));
        }
    }

    fn recovered(&mut self, path: &RelPath, became: Recovered) {
        let word = match became {
            Recovered::Finished => "finished",
            Recovered::Undone => "undone",
        };
        if self.json {
            let mut event = json!({ "event": "recovered", "result": word });
            name_in(&mut event, path);
            self.line(&json::to_string(&event));
        } else {
            self.line(&format!("{}: interrupted repair {word}", quoted(path)));
        }
    }
}

fn quoted(path: &RelPath) -> String {
    quote(OsStr::from_bytes(path.as_bytes())).to_string()
}

/// Puts a path into an event, in base64 if it is not UTF-8.
fn name_in(event: &mut serde_json::Value, path: &RelPath) {
    match std::str::from_utf8(path.as_bytes()) {
        Ok(path) => event["path"] = path.into(),
        Err(_) => {
            let encoded = base64::engine::general_purpose::STANDARD.encode(path.as_bytes());
            event["path_base64"] = encoded.into();
        }
    }
}
