//! Results in xxhsum's wording: the counts on standard output, and the end of the run at a file
//! that cannot be read.

use super::super::output::Output;
use super::super::xxhsum::shown;
use super::{CheckJob, ListFailure, PositionedClaim, Ticket};
use haul_engine::sum::{Outcome, SumError, reason};
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Counts of one list.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    claims: u64,
    matched: u64,
    mismatched: u64,
    unreadable: u64,
    malformed: u64,
}

pub(super) struct Report<'a, 'o> {
    job: &'a CheckJob,
    out: &'a mut Output<'o>,
    well: &'a mut bool,
    tally: Tally,
    /// True if no more results are printed.
    over: bool,
}

impl super::Report for Report<'_, '_> {
    fn take(&mut self, ticket: Ticket, outcome: Outcome) {
        if self.over {
            return;
        }
        match ticket {
            Ticket::Malformed { list, line, why, .. } => {
                self.tally.malformed += 1;
                if self.job.output_options.warn {
                    self.out.say_error_of(b"", shown(&list), &format!(":{line}: {why}"));
                }
            }
            Ticket::End { list, failure } => self.end(&list, failure),
            Ticket::Claim(listed) => {
                self.tally.claims += 1;
                self.claim(&listed, &outcome);
            }
        }
    }
}

impl<'a, 'o> Report<'a, 'o> {
    pub(super) fn new(job: &'a CheckJob, out: &'a mut Output<'o>, well: &'a mut bool) -> Report<'a, 'o> {
        Report { job, out, well, tally: Tally::default(), over: false }
    }

    fn claim(&mut self, listed: &PositionedClaim, outcome: &Outcome) {
        let name = listed.claim.path.as_bytes();
        let verdict = match outcome {
            Outcome::Done(sums) if sums.digests == listed.claim.digests => {
                self.tally.matched += 1;
                if self.job.output_options.quiet {
                    return;
                }
                "OK"
            }
            Outcome::Failed(SumError::Open(error))
                if self.job.output_options.ignore_missing && error.kind() == io::ErrorKind::NotFound =>
            {
                return;
            }
            Outcome::Failed(SumError::Open(error)) => {
                self.tally.unreadable += 1;
                let place =
                    [shown(&listed.list).as_bytes(), format!(":{}: ", listed.line).as_bytes()].concat();
                let why = format!("': {}.\n", reason(error));
                let line = [&place, b"Could not open or read '".as_slice(), name, why.as_bytes()].concat();
                return self.say(&line);
            }
            Outcome::Failed(_) => {
                (*self.well, self.over) = (false, true);
                self.out.say_error("Error: a failure occurred reading the input file.");
                return self.out.give_up();
            }
            _ => {
                self.tally.mismatched += 1;
                "FAILED"
            }
        };
        self.say(&[name, b": ", verdict.as_bytes(), b"\n"].concat());
    }

    fn end(&mut self, list: &OsStr, failure: Option<ListFailure>) {
        let tally = std::mem::take(&mut self.tally);
        if let Some(ListFailure::Open(error)) = failure {
            *self.well = false;
            let why = format!("': {}", reason(&error));
            return self.out.say_error_of(b"Error: Could not open '", shown(list), &why);
        }
        if let Some(ListFailure::TooLong(line)) = failure {
            *self.well = false;
            self.out.say_error_of(b"", shown(list), &format!(":{line}: Error: Line too long."));
        }
        if tally.claims == 0 {
            *self.well = false;
            let why = ": no properly formatted xxHash checksum lines found";
            return self.out.say_error_of(b"", shown(list), why);
        }
        self.count(tally.malformed, "line is improperly formatted", "lines are improperly formatted");
        self.count(tally.unreadable, "listed file could not be read", "listed files could not be read");
        self.count(tally.mismatched, "computed checksum did NOT match", "computed checksums did NOT match");
        let unverified = self.job.output_options.ignore_missing && tally.matched == 0;
        if unverified {
            self.say(&[shown(list).as_bytes(), b": no file was verified\n"].concat());
        }
        let lax = tally.malformed == 0 || !self.job.output_options.strict;
        *self.well &= tally.mismatched == 0 && tally.unreadable == 0 && lax && !unverified;
    }

    fn count(&mut self, count: u64, one: &str, many: &str) {
        if count > 0 {
            self.say(format!("{count} {}\n", if count == 1 { one } else { many }).as_bytes());
        }
    }

    fn say(&mut self, line: &[u8]) {
        if !self.job.output_options.status {
            self.out.line(line);
        }
    }
}
