//! Results in the coreutils' wording; haul's own and msum's add positions.

use super::super::line::Claim;
use super::super::output::Output;
use super::{CheckJob, ListFailure, ListTool, Ticket};
use crate::check::{agrees, measure};
use haul_digest::Algorithm;
use haul_digest::list::escape;
use haul_digest::tree::TreeShape;
use haul_engine::sum::{Form, Outcome, Recipe, Source, SumError, Sums, Task, reason};
use haul_model::{ByteLen, ByteOffset, ByteRange};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Counts of one list.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    claims: u64,
    matched: u64,
    mismatched: u64,
    unreadable: u64,
    malformed: u64,
}

pub(super) struct Common<'a, 'o> {
    job: &'a CheckJob,
    stop: &'a AtomicBool,
    out: &'a mut Output<'o>,
    well: &'a mut bool,
    tally: Tally,
    /// Algorithm of digests without a tag, if the first guess was wrong.
    detected: Option<Algorithm>,
}

impl super::Report for Common<'_, '_> {
    fn take(&mut self, ticket: Ticket, outcome: Outcome) {
        match ticket {
            Ticket::Malformed { list, line, why, fails } => {
                self.tally.malformed += 1;
                *self.well &= !fails;
                if fails || self.job.output_options.warn {
                    self.out.complain_of(&list, &format!("{line}: {why}"));
                }
            }
            Ticket::End { list, failure } => self.end(&list, failure),
            Ticket::Claim(listed) => {
                self.tally.claims += 1;
                match outcome {
                    Outcome::Done(sums) => self.compare(&listed.claim, &listed.list, &sums),
                    Outcome::Failed(error) => self.unreadable(&listed.claim, &error),
                    Outcome::Nothing => {}
                }
            }
        }
    }
}

impl<'a, 'o> Common<'a, 'o> {
    pub(super) fn new(
        job: &'a CheckJob,
        stop: &'a AtomicBool,
        out: &'a mut Output<'o>,
        well: &'a mut bool,
    ) -> Common<'a, 'o> {
        Common { job, stop, out, well, tally: Tally::default(), detected: None }
    }

    /// Returns the algorithm by which the file matches a digest without a tag, after the first
    /// guess was wrong.
    fn other_algorithm(&self, claim: &Claim) -> Option<Algorithm> {
        let ListTool::Field(rules) = &self.job.reading else { return None };
        let [digest] = claim.digests[..] else { return None };
        if !claim.guessed || claim.tree || claim.path == "-" {
            return None;
        }
        let is_other = |other: &&Algorithm| {
            **other != digest.algorithm() && other.digest_len() == digest.algorithm().digest_len()
        };
        let algorithms: Vec<Algorithm> = rules.untagged.iter().filter(is_other).copied().collect();
        if algorithms.is_empty() {
            return None;
        }
        let recipe = Arc::new(Recipe { algorithms, form: Form::Plain });
        let source = Source::Named(claim.path.clone());
        let task = Task { source, recipe, offset: ByteOffset(0), length: None };
        let Outcome::Done(sums) = measure(&self.job.settings, task, self.stop) else { return None };
        let found = sums.digests.iter().find(|found| found.as_bytes() == digest.as_bytes());
        found.map(|found| found.algorithm())
    }

    fn unreadable(&mut self, claim: &Claim, error: &SumError) {
        let missing = matches!(error, SumError::Open(error) if error.kind() == io::ErrorKind::NotFound);
        if missing && self.job.output_options.ignore_missing {
            return;
        }
        self.tally.unreadable += 1;
        self.out.complain_of(&claim.path, &error.to_string());
        if !self.job.output_options.status {
            self.verdict(claim, "FAILED open or read", "unreadable");
        }
    }

    fn compare(&mut self, claim: &Claim, list: &OsStr, sums: &Sums) {
        let found = sums.subtrees.first().map_or(&sums.digests, |roots| roots);
        let meant = claim.meanings.iter().find(|meaning| agrees(meaning, sums));
        let holds = if claim.meanings.is_empty() { *found == claim.digests } else { meant.is_some() };
        let same = holds && claim.size.is_none_or(|size| size == sums.range.len());
        let other = if same { None } else { self.other_algorithm(claim) };
        if let Some(other) = other.filter(|&other| self.detected != Some(other)) {
            self.detected = Some(other);
            if !self.job.output_options.status {
                self.out.complain_of(
                    list,
                    &format!("detected as {other}; with -a {other} each file is read once"),
                );
            }
        }
        let same = same || other.is_some();
        let place = claim.range.map(|range| format!(",{range}")).unwrap_or_default();
        if same {
            self.tally.matched += 1;
            if !self.job.output_options.quiet && !self.job.output_options.status {
                self.verdict(claim, &format!("OK{place}"), "ok");
            }
            return;
        }
        self.tally.mismatched += 1;
        if !self.job.output_options.status {
            let shape = TreeShape::new(ByteLen(sums.range.len()), self.job.subtree);
            let corrupt =
                if claim.digests.len() > 1 { shape.mismatches(found, &claim.digests) } else { vec![] };
            let start = sums.range.start.0;
            let shown = |range: &ByteRange| {
                format!(",{}", ByteRange::between(start + range.start.0, start + range.end.0))
            };
            let places = if corrupt.is_empty() { place } else { corrupt.iter().map(shown).collect() };
            self.verdict(claim, &format!("FAILED{places}"), "failed");
        }
    }

    fn verdict(&mut self, claim: &Claim, text: &str, word: &str) {
        if self.job.output_options.json {
            let path = claim.path.to_string_lossy();
            let algorithm = claim.digests[0].algorithm().name();
            let record =
                serde_json::json!({"path": path, "algorithm": algorithm, "status": word, "detail": text});
            return self.out.line(format!("{record}\n").as_bytes());
        }
        let name = claim.path.as_bytes();
        // Like the coreutils, escape a name only if it would break the line.
        let escaped = if name.contains(&b'\n') { escape(name) } else { None };
        let mut line = Vec::with_capacity(name.len() + text.len() + 4);
        if escaped.is_some() {
            line.push(b'\\');
        }
        line.extend_from_slice(escaped.as_deref().unwrap_or(name));
        line.extend_from_slice(b": ");
        line.extend_from_slice(text.as_bytes());
        line.push(b'\n');
        self.out.line(&line);
    }

    /// Prints the warnings at a list's end.
    fn end(&mut self, list: &OsStr, failure: Option<ListFailure>) {
        let tally = std::mem::take(&mut self.tally);
        let output_options = self.job.output_options;
        if let Some(failure) = failure {
            let why = match failure {
                ListFailure::Open(error) => reason(&error),
                ListFailure::Read(_) | ListFailure::NoText => "read error".to_owned(),
            };
            self.out.complain_of(list, &why);
            *self.well = false;
            return;
        }
        if tally.claims == 0 {
            self.out.complain_of(list, "no properly formatted checksum lines found");
            *self.well = false;
            return;
        }
        let unverified = output_options.ignore_missing && tally.matched == 0;
        if !output_options.status {
            self.warn(tally.malformed, "line is improperly formatted", "lines are improperly formatted");
            self.warn(tally.unreadable, "listed file could not be read", "listed files could not be read");
            self.warn(
                tally.mismatched,
                "computed checksum did NOT match",
                "computed checksums did NOT match",
            );
            if unverified {
                self.out.complain_of(list, "no file was verified");
            }
        }
        let lax = tally.malformed == 0 || !output_options.strict;
        *self.well &= tally.mismatched == 0 && tally.unreadable == 0 && lax && !unverified;
    }

    fn warn(&mut self, count: u64, one: &str, many: &str) {
        if count > 0 {
            self.out.complain(&format!("WARNING: {count} {}", if count == 1 { one } else { many }));
        }
    }
}
