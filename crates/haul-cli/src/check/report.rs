//! Output of a check: a verdict for each line, and the detected format of each list.

use super::bag::LEADS_OUT;
use super::feed::{Group, PositionedClaim, Ticket};
use super::guess::{AlgorithmRetry, agrees, algorithms};
use super::list_reader::List;
use super::resolve::{Job, OutputOptions};
use super::tally::Tally;
use crate::sum::base64;
use crate::sum::output::Output;
use haul_digest::list::{Claim, Foreign, Interpretation, StatedChecksum, escape};
use haul_engine::copy::quote;
use haul_engine::sum::{Outcome, SumError, Sums};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// Receives results in the order of the lines.
pub(super) struct Report<'a, 'o> {
    job: &'a Job,
    output_options: OutputOptions,
    out: &'a mut Output<'o>,
    look: AlgorithmRetry<'a>,
    /// Tallies of the lists in progress, by their numbers.
    tallies: BTreeMap<u64, Tally>,
    well: bool,
    /// True if lines go to a terminal, which must not interpret control characters in names.
    watched: bool,
}

/// Result of one line.
struct Verdict<'t> {
    /// Readable form: `OK`, `FAILED`, `FAILED open or read`.
    text: &'t str,
    /// Form for programs.
    word: &'static str,
    /// Details, if any.
    detail: String,
}

impl<'a, 'o> Report<'a, 'o> {
    pub(super) fn new(job: &'a Job, stop: &'a AtomicBool, out: &'a mut Output<'o>) -> Report<'a, 'o> {
        let leaf = Arc::new(AtomicU64::new(job.trees.leaves[0].0));
        let look = AlgorithmRetry { settings: &job.settings, trees: &job.trees, leaf, stop };
        let watched = io::stdout().is_terminal();
        Report {
            job,
            output_options: job.output_options,
            out,
            look,
            tallies: BTreeMap::new(),
            well: true,
            watched,
        }
    }

    /// Returns the detected leaf size of trees, shared with the feed.
    pub(super) fn leaf(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.look.leaf)
    }

    /// Returns true if there was no failure so far.
    pub(super) fn is_well(&self) -> bool {
        self.well
    }

    /// Receives the next result.
    pub(super) fn take(&mut self, ticket: Ticket, outcome: Outcome) {
        match ticket {
            Ticket::File(mut group) => {
                let outcome = group.outcome.take().unwrap_or(outcome);
                self.file(&group, outcome);
            }
            Ticket::Malformed { list, line, flaw } => {
                let is_damaged = flaw.is_of_an_entry();
                let tally = self.tally(&list);
                tally.malformed += 1;
                tally.damaged += u64::from(is_damaged);
                if self.output_options.warn || is_damaged && !self.output_options.status {
                    let text = format!("{line}: improperly formatted checksum line: {flaw}");
                    self.out.complain_of(&list.name, &text);
                }
            }
            Ticket::Foreign { list, foreign } => self.foreign(&list, &foreign),
            Ticket::Excluded { list } => self.tally(&list).excluded += 1,
            Ticket::Bag { bag, name, text } => self.fault(&bag, name.as_deref(), &text),
            Ticket::End { list, failure, remark } => self.end(&list, failure.as_deref(), &remark),
        }
    }

    fn tally(&mut self, list: &List) -> &mut Tally {
        self.tallies.entry(list.number).or_default()
    }

    fn file(&mut self, group: &Group, outcome: Outcome) {
        for placed in &group.claims {
            self.tally(&placed.list).claims += 1;
        }
        match outcome {
            Outcome::Done(sums) => group.claims.iter().for_each(|placed| self.compare(group, placed, &sums)),
            // The end by a signal is reported once, at the end.
            Outcome::Failed(SumError::Stopped) | Outcome::Nothing => self.well = false,
            Outcome::Failed(error) => self.unreadable(group, &error),
        }
    }

    fn unreadable(&mut self, group: &Group, error: &SumError) {
        let missing = matches!(error, SumError::Open(error) if error.kind() == io::ErrorKind::NotFound);
        let told = !(missing && self.output_options.ignore_missing);
        let why = if matches!(error, SumError::LeadsOut) { LEADS_OUT.to_owned() } else { error.to_string() };
        if told {
            self.out.complain_of(OsStr::from_bytes(&group.name), &why);
        }
        for placed in &group.claims {
            let tally = self.tally(&placed.list);
            if missing {
                tally.missing += 1;
                tally.first_missing.get_or_insert_with(|| group.name.clone());
            }
            let label = may_be(&placed.claim);
            *tally.taken.entry((placed.claim.dialect, label)).or_default() += 1;
            if told {
                tally.unreadable += 1;
                let detail = why.clone();
                let verdict = Verdict { text: "FAILED open or read", word: "unreadable", detail };
                self.verdict(&group.name, Some(placed), None, &verdict);
            }
        }
    }

    fn compare(&mut self, group: &Group, placed: &PositionedClaim, sums: &Sums) {
        let claim = &placed.claim;
        let mut found = Vec::with_capacity(claim.stated.len());
        let mut wrong = Vec::new();
        for stated in &claim.stated {
            match self.holds(group, stated, sums) {
                Some(algorithm) => found.push(algorithm.name()),
                None => wrong
                    .push(names(&algorithms(stated).iter().map(|a| a.name()).collect::<Vec<_>>(), " or ")),
            }
        }
        let size = claim.size.filter(|size| *size != sums.range.len());
        let label = if wrong.is_empty() { names(&found, ", ") } else { may_be(claim) };
        let is_well = wrong.is_empty() && size.is_none();
        let tally = self.tally(&placed.list);
        *tally.taken.entry((claim.dialect, label.clone())).or_default() += 1;
        if is_well {
            tally.matched += 1;
            if !self.output_options.quiet {
                let verdict = Verdict { text: "OK", word: "ok", detail: String::new() };
                self.verdict(&group.name, Some(placed), Some(&label), &verdict);
            }
            return;
        }
        tally.mismatched += 1;
        let detail = match size {
            Some(size) => format!("the list says {size} bytes, the file has {}", sums.range.len()),
            None if claim.stated.len() > 1 => {
                format!("differs in {}", names(&wrong.iter().map(String::as_str).collect::<Vec<_>>(), ", "))
            }
            None => String::new(),
        };
        self.verdict(
            &group.name,
            Some(placed),
            Some(&label),
            &Verdict { text: "FAILED", word: "failed", detail },
        );
    }

    /// Returns the algorithm by which the file matches the digest.
    fn holds(&self, group: &Group, stated: &StatedChecksum, sums: &Sums) -> Option<haul_digest::Algorithm> {
        let at_once =
            stated.meanings.iter().find(|meaning| agrees(meaning, sums)).map(Interpretation::algorithm);
        let can_be_read_again = group.name != b"-";
        at_once.or_else(|| {
            if can_be_read_again { self.look.other_meaning(&group.task, group.span, stated) } else { None }
        })
    }

    fn foreign(&mut self, list: &List, foreign: &Foreign) {
        self.tally(list).add_foreign(&foreign.algorithm);
        let detail = format!("{} is not supported", foreign.algorithm);
        let text = format!("NOT CHECKED, {detail}");
        self.verdict(
            &foreign.name,
            None,
            None,
            &Verdict { text: &text, word: "not_computed", detail: String::new() },
        );
    }

    fn fault(&mut self, bag: &List, name: Option<&[u8]>, text: &str) {
        self.tally(bag).faults += 1;
        match name {
            Some(name) => {
                let shown = text.to_uppercase();
                self.verdict(name, None, None, &Verdict { text: &shown, word: "bag", detail: String::new() });
            }
            None if !self.output_options.status => self.out.complain_of(&bag.name, text),
            None => {}
        }
    }

    /// Prints one line to standard output.
    fn verdict(
        &mut self,
        name: &[u8],
        placed: Option<&PositionedClaim>,
        algorithm: Option<&str>,
        verdict: &Verdict<'_>,
    ) {
        if self.output_options.status {
            return;
        }
        let mut line = Vec::with_capacity(name.len() + verdict.text.len() + verdict.detail.len() + 8);
        if self.output_options.json {
            let mut record = serde_json::json!({ "status": verdict.word });
            match std::str::from_utf8(name) {
                Ok(text) => record["path"] = text.into(),
                Err(_) => record["path_base64"] = base64::encode(name).into(),
            }
            if let Some(placed) = placed {
                record["list"] = placed.list.name.to_string_lossy().into();
                record["line"] = placed.line.into();
                record["format"] = placed.claim.dialect.name().into();
                record["algorithm"] = algorithm.map_or_else(|| may_be(&placed.claim), str::to_owned).into();
            }
            if !verdict.detail.is_empty() || placed.is_none() {
                let detail = if verdict.detail.is_empty() { verdict.text } else { &verdict.detail };
                record["detail"] = detail.into();
            }
            line.extend_from_slice(record.to_string().as_bytes());
            line.push(b'\n');
            return self.out.line(&line);
        }
        let steers = self.watched && name.iter().any(|byte| byte.is_ascii_control());
        // Like the coreutils, escape a name only if it would break the line.
        let escaped = if name.contains(&b'\n') { escape(name) } else { None };
        if steers {
            line.extend_from_slice(quote(OsStr::from_bytes(name)).to_string().as_bytes());
        } else {
            line.extend(escaped.is_some().then_some(b'\\'));
            line.extend_from_slice(escaped.as_deref().unwrap_or(name));
        }
        line.extend_from_slice(b": ");
        line.extend_from_slice(verdict.text.as_bytes());
        if !verdict.detail.is_empty() && verdict.word == "failed" {
            line.extend_from_slice(format!(" ({})", verdict.detail).as_bytes());
        }
        line.push(b'\n');
        self.out.line(&line);
    }

    /// Ends a list: reports its detected format and the warnings.
    fn end(&mut self, list: &List, failure: Option<&str>, remark: &str) {
        let tally = self.tallies.remove(&list.number).unwrap_or_default();
        let well = match list.is_bag {
            true => tally.faults == 0,
            false => failure.is_none() && tally.is_well(self.output_options),
        };
        self.well &= well;
        if let Some(failure) = failure {
            self.out.complain_of(&list.name, failure);
        } else if !list.is_bag && tally.claims + tally.foreign_lines() == 0 {
            let none = match tally.excluded {
                0 => "no properly formatted checksum lines found",
                _ => "no checksum lines of the requested algorithms found",
            };
            self.out.complain_of(&list.name, none);
        }
        if self.output_options.json {
            let record = tally.json(list, failure, remark);
            return self.out.line(format!("{record}\n").as_bytes());
        }
        if self.output_options.status {
            return;
        }
        let taken = if list.is_bag { remark.to_owned() } else { tally.detected_format() };
        let is_silent = self.output_options.quiet && well;
        if !(taken.is_empty() || is_silent) {
            self.out.complain_of(&list.name, &format!("detected as {taken}"));
        }
        for warning in tally.warnings(self.output_options) {
            self.out.complain(&warning);
        }
        self.advise(list, &tally);
    }

    /// If all files are missing but exist next to the list, prints advice.
    fn advise(&mut self, list: &List, tally: &Tally) {
        let Some(first) = &tally.first_missing else { return };
        let Some(dir) = Path::new(&list.name).parent().filter(|dir| !dir.as_os_str().is_empty()) else {
            return;
        };
        let would_be_found = dir.join(OsStr::from_bytes(first)).exists();
        if tally.missing == tally.claims && would_be_found && self.job.directory.is_none() {
            let text = format!("the files are next to the list; add -C {}", quote(dir.as_os_str()));
            self.out.complain_of(&list.name, &text);
        }
    }
}

fn names(all: &[&str], between: &str) -> String {
    all.join(between)
}

/// Returns the candidate algorithms of a line: `md5, sha256`, or `adler32 or crc32`.
fn may_be(claim: &Claim) -> String {
    let one = |stated: &StatedChecksum| {
        names(&algorithms(stated).iter().map(|a| a.name()).collect::<Vec<_>>(), " or ")
    };
    claim.stated.iter().map(one).collect::<Vec<_>>().join(", ")
}
