//! Results in b3sum's wording: a line for each claim and one count for all lists. A list that
//! cannot be read ends the run without a count.

use super::super::output::Output;
use super::{CheckJob, ListFailure, ListedClaim, Ticket};
use haul_engine::sum::{Outcome, SumError};

pub(super) struct Report<'a, 'o> {
    job: &'a CheckJob,
    out: &'a mut Output<'o>,
    well: &'a mut bool,
    /// Number of lines that are no claims or whose files do not match.
    failed: u64,
    /// True if no more results are printed.
    over: bool,
}

impl super::Report for Report<'_, '_> {
    fn take(&mut self, ticket: Ticket, outcome: Outcome) {
        if self.over {
            return;
        }
        match ticket {
            Ticket::Malformed { why, .. } => {
                *self.well = false;
                self.failed += 1;
                self.out.complain(&why);
            }
            Ticket::End { failure: Some(failure), .. } => self.end(&failure),
            Ticket::End { failure: None, .. } => {}
            Ticket::Claim(listed) => self.claim(&listed, &outcome),
        }
    }

    fn close(&mut self) {
        if self.failed > 0 && !self.over {
            let end = if self.failed == 1 { "" } else { "s" };
            self.out.complain(&format!("WARNING: {} computed checksum{end} did NOT match", self.failed));
        }
    }
}

impl<'a, 'o> Report<'a, 'o> {
    pub(super) fn new(job: &'a CheckJob, out: &'a mut Output<'o>, well: &'a mut bool) -> Report<'a, 'o> {
        Report { job, out, well, failed: 0, over: false }
    }

    fn claim(&mut self, listed: &ListedClaim, outcome: &Outcome) {
        let verdict = match outcome {
            Outcome::Done(sums) if sums.digests == listed.claim.digests => {
                if self.job.output_options.quiet {
                    return;
                }
                "OK".to_owned()
            }
            Outcome::Failed(error) => format!("FAILED ({})", in_rust(error)),
            _ => "FAILED".to_owned(),
        };
        *self.well &= verdict == "OK";
        self.failed += u64::from(verdict != "OK");
        let mut line = listed.shown.clone().unwrap_or_default();
        line.extend_from_slice(format!(": {verdict}\n").as_bytes());
        self.out.line(&line);
    }

    /// Reports a list that could not be read: b3sum stops at the first one.
    fn end(&mut self, failure: &ListFailure) {
        let why = match failure {
            ListFailure::Open(error) | ListFailure::Read(error) => error.to_string(),
            ListFailure::NoText => "stream did not contain valid UTF-8".to_owned(),
        };
        (*self.well, self.over) = (false, true);
        self.out.say_error(&format!("Error: {why}"));
        self.out.give_up();
    }
}

/// Returns the error text of Rust's library, which b3sum prints, with the kernel's error number.
pub(crate) fn in_rust(error: &SumError) -> String {
    match error {
        SumError::Open(source) | SumError::List(source) | SumError::Read { source, .. } => source.to_string(),
        SumError::Directory => {
            format!("Is a directory (os error {})", rustix::io::Errno::ISDIR.raw_os_error())
        }
        other => other.to_string(),
    }
}
