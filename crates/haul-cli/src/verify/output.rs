//! Output of a verification: lines, or JSON events.

use super::events::Event;
use super::signer;
use crate::console::this_command;
use crate::json;
use haul_engine::copy::quote;
use haul_engine::repair::InterruptedRepairs;
use haul_engine::signature::Proof;
use haul_engine::verify::{Located, Resumption, Verdict, VerdictKind, VerifyObserver, VerifyTotals};
use haul_log::waybill::ReadError;
use haul_model::format_size;
use std::ffi::OsStr;
use std::io::{self, BufWriter, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Maximum number of flaws of a waybill that are printed. In a file that is not a waybill, every
/// line is a flaw.
const FLAWS_TOLD: u64 = 20;

/// Output to standard output.
pub(crate) struct Output<'a> {
    name: &'static str,
    json: bool,
    verbose: bool,
    out: BufWriter<io::Stdout>,
    /// True if standard output is a terminal: each line is flushed.
    watched: bool,
    flaws: u64,
    /// Search for interrupted repairs below the directory that the names are relative to.
    interrupted: Option<InterruptedRepairs>,
    broken: Option<io::Error>,
    /// Set to `true` to stop the work when standard output cannot be written.
    stop: &'a AtomicBool,
}

impl<'a> Output<'a> {
    pub(crate) fn new(name: &'static str, json: bool, verbose: bool, stop: &'a AtomicBool) -> Output<'a> {
        let watched = io::stdout().is_terminal();
        let out = BufWriter::with_capacity(64 << 10, io::stdout());
        Output { name, json, verbose, out, watched, flaws: 0, interrupted: None, broken: None, stop }
    }

    /// Sets the directory that the names are relative to, for details on damaged files.
    pub(super) fn set_root(&mut self, root: &OsStr) {
        self.interrupted = Some(InterruptedRepairs::below(root));
    }

    /// Writes one line.
    pub(crate) fn line(&mut self, line: &[u8]) {
        if self.broken.is_some() {
            return;
        }
        let mut written = self.out.write_all(line).and_then(|()| self.out.write_all(b"\n"));
        if self.watched {
            written = written.and_then(|()| self.out.flush());
        }
        self.note(written);
    }

    fn event(&mut self, event: &Event<'_>) {
        match json::to_vec(event) {
            Ok(line) => self.line(&line),
            Err(error) => self.note(Err(error.into())),
        }
    }

    fn note(&mut self, result: io::Result<()>) {
        if let Err(error) = result {
            self.stop.store(true, Ordering::Relaxed);
            self.broken.get_or_insert(error);
        }
    }

    /// Returns true if a write failed.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Reports a valid signature, on standard error if `wanted`, or as an event.
    pub(super) fn signed(&mut self, proof: &Proof, wanted: bool) {
        if self.json {
            self.event(&Event::Signature { signer: proof.signer.as_deref(), key: &proof.key });
        } else if wanted {
            eprintln!("{}: the waybill is {}", self.name, signer::told(proof));
        }
    }

    /// Reports the totals, on standard error if `wanted`, or as an event.
    pub(super) fn summary(&mut self, totals: &VerifyTotals, wanted: bool, interrupted: bool) {
        if self.json {
            return self.event(&Event::summary(totals, interrupted));
        }
        let flushed = self.out.flush();
        self.note(flushed);
        if self.broken.as_ref().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
            return;
        }
        if self.flaws > FLAWS_TOLD {
            eprintln!("{}: the waybill has {} more flaws", self.name, self.flaws - FLAWS_TOLD);
        }
        if wanted {
            let more = if interrupted { format!("; to resume: {}", this_command()) } else { String::new() };
            eprintln!("{}: {}{more}", self.name, sentence(totals, interrupted));
        }
    }

    /// Flushes the output; returns the first error of all writes.
    pub(crate) fn close(mut self) -> Option<io::Error> {
        let flushed = self.out.flush();
        self.note(flushed);
        self.broken
    }
}

impl VerifyObserver for Output<'_> {
    fn judged(&mut self, verdict: &Verdict) {
        let is_quiet = matches!(verdict.kind, VerdictKind::Intact { .. } | VerdictKind::Passed);
        if is_quiet && !self.verbose {
            return;
        }
        let may_be_half = matches!(verdict.kind, VerdictKind::Modified(_) | VerdictKind::Rotted);
        let interrupted = self.interrupted.as_ref().filter(|_| may_be_half);
        let half_repaired = interrupted.is_some_and(|repairs| repairs.include(&verdict.path));
        if self.json {
            return self.event(&Event::entry(verdict, half_repaired));
        }
        let (word, detail) = words(&verdict.kind);
        let name = verdict.path.as_bytes();
        let mut line = format!("{}: {word}", quote(OsStr::from_bytes(name)));
        if let Some(detail) = detail {
            line.push_str(": ");
            line.push_str(&detail);
        }
        if !verdict.damage.is_empty() {
            let ranges: Vec<String> = verdict.damage.iter().map(ToString::to_string).collect();
            line.push_str(": bytes ");
            line.push_str(&ranges.join(", "));
        }
        if let Some(Located { leaf, whole: Some(why) }) = &verdict.located {
            let which = if leaf.is_some() { "some whole objects" } else { "whole objects" };
            line.push_str(&format!(" ({which}: {why})"));
        }
        if half_repaired {
            line.push_str("; an in-place repair was interrupted; run haul repair to finish or undo it");
        }
        self.line(line.as_bytes());
    }

    fn flawed(&mut self, flaw: &ReadError) {
        self.flaws += 1;
        if self.json {
            self.event(&Event::flaw(flaw));
        } else if self.flaws <= FLAWS_TOLD {
            eprintln!("{}: the waybill: {flaw}", self.name);
        }
    }

    fn resumption(&mut self, told: &Resumption) {
        if self.json {
            self.event(&Event::resumption(told));
        } else {
            eprintln!("{}: {}", self.name, resume_message(told));
        }
    }

    fn keep(&mut self) {
        let flushed = self.out.flush();
        self.note(flushed);
    }
}

/// Returns the message about resuming.
pub(crate) fn resume_message(told: &Resumption) -> String {
    match told {
        Resumption::GoesOn(done) => format!("resumed: {done} entries already verified"),
        Resumption::Anew(why) => format!("ignoring the state of an earlier run: {why}"),
        Resumption::Unsaved(error) => {
            format!("this run cannot be resumed if it is interrupted: {}", haul_engine::sum::reason(error))
        }
    }
}

pub(super) fn words(kind: &VerdictKind) -> (&'static str, Option<String>) {
    match kind {
        VerdictKind::Intact { touched: false } => ("intact", None),
        VerdictKind::Intact { touched: true } => ("intact", Some("modification time differs".to_owned())),
        VerdictKind::Modified(change) => ("modified", Some(change.to_string())),
        VerdictKind::Rotted => ("rotted", None),
        VerdictKind::Missing => ("missing", None),
        VerdictKind::Extra => ("extra", None),
        VerdictKind::Unreadable(reason) => ("unreadable", Some(reason.clone())),
        VerdictKind::NoDigest => ("unproven", Some("no recorded digest".to_owned())),
        VerdictKind::Passed => ("passed", Some("not in the sample".to_owned())),
        VerdictKind::Before => ("intact", Some("verified before".to_owned())),
    }
}

fn sentence(totals: &VerifyTotals, interrupted: bool) -> String {
    let counts = [
        (totals.intact, "intact"),
        (totals.modified, "modified"),
        (totals.rotted, "rotted"),
        (totals.missing, "missing"),
        (totals.extra, "extra"),
        (totals.unproven, "unproven"),
        (totals.passed, "not in the sample"),
    ];
    let told = counts.iter().enumerate().filter(|(at, (count, _))| *at == 0 || *count > 0);
    let told: Vec<String> = told.map(|(_, (count, word))| format!("{count} {word}")).collect();
    let end = if interrupted { "; interrupted: the remaining entries were not verified" } else { "" };
    format!("{}; {} read{end}", told.join(", "), format_size(totals.bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_lists_nonzero_counts() {
        let totals = VerifyTotals { intact: 3, rotted: 1, bytes: 3 << 20, ..VerifyTotals::default() };
        assert_eq!(sentence(&totals, false), "3 intact, 1 rotted; 3.0 MiB read");
        let end = "0 intact; 0 B read; interrupted: the remaining entries were not verified";
        assert_eq!(sentence(&VerifyTotals::default(), true), end);
    }
}
