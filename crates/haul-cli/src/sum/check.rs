//! `-c`: the claims of lists, checked side by side and reported in order.

use super::line::{Claim, Line, LineRules, escape, read_line};
use super::list::{Piece, read_piece};
use super::output::Output;
use super::personality::Personality;
use haul_digest::tree::TreeShape;
use haul_engine::sum::{
    Counters, Form, Order, Orders, Outcome, Recipe, Settings, Source, SumError, Sums, Task, Work, reason, run,
};
use haul_model::{ByteLen, ByteOffset, ByteRange};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Checking lists.
pub(crate) struct CheckJob {
    pub(crate) settings: Settings,
    pub(crate) rules: LineRules,
    pub(crate) manner: Manner,
    pub(crate) lists: Vec<OsString>,
    /// The shape of the trees that `#mutil#` lines are about.
    pub(crate) leaf: ByteLen,
    pub(crate) subtree: ByteLen,
    pub(crate) progress: bool,
}

/// How results are reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    pub(crate) quiet: bool,
    pub(crate) status: bool,
    pub(crate) strict: bool,
    pub(crate) warn: bool,
    pub(crate) ignore_missing: bool,
    pub(crate) json: bool,
}

impl CheckJob {
    /// Checks everything; whether all is well.
    pub(crate) fn run(
        &self,
        tool: Personality,
        counters: &Counters,
        stop: &AtomicBool,
        out: &mut Output<'_>,
    ) -> bool {
        let lists = Lists {
            job: self,
            waiting: self.lists.iter(),
            open: None,
            single_blank: None,
            stdin_taken: false,
        };
        let mut report = Report { job: self, tool, out, tally: Tally::default(), well: true };
        run(&self.settings, lists, counters, stop, |ticket, outcome| report.take(ticket, outcome));
        report.well
    }
}

/// What a result of a check is known by.
enum Ticket {
    /// A claim, to be compared with what was found.
    Claim(Box<Claim>),
    /// A line that is none.
    Malformed { list: OsString, line: u64 },
    /// The end of a list, or why it ended before.
    End { list: OsString, failure: Option<String> },
}

/// The orders of a check: the lines of all lists.
struct Lists<'a> {
    job: &'a CheckJob,
    waiting: std::slice::Iter<'a, OsString>,
    open: Option<OpenList>,
    /// Whether lines were found to have one blank; like the coreutils, for all lists of a run.
    single_blank: Option<bool>,
    stdin_taken: bool,
}

struct OpenList {
    name: OsString,
    reader: BufReader<Box<dyn Read + Send>>,
    line: u64,
}

impl Orders for Lists<'_> {
    type Ticket = Ticket;

    fn next(&mut self) -> Option<Order<Ticket>> {
        loop {
            let Some(list) = &mut self.open else {
                let name = self.waiting.next()?;
                match open_list(name) {
                    Ok(list) => self.open = Some(list),
                    Err(error) => return Some(end(name.clone(), Some(reason(&error)))),
                }
                continue;
            };
            let mut line = Vec::new();
            list.line += 1;
            match read_piece(&mut list.reader, b'\n', &mut line) {
                Ok(Piece::Whole) => {}
                Ok(Piece::TooLong) => return Some(malformed(list)),
                Ok(Piece::End) => {
                    let name = std::mem::take(&mut list.name);
                    self.open = None;
                    return Some(end(name, None));
                }
                Err(_) => {
                    let name = std::mem::take(&mut list.name);
                    self.open = None;
                    return Some(end(name, Some("read error".to_owned())));
                }
            }
            match read_line(&line, &self.job.rules, &mut self.single_blank) {
                Line::Remark => {}
                Line::Malformed => return Some(malformed(list)),
                Line::Claim(claim) => return Some(self.order(claim)),
            }
        }
    }

    fn ready(&self) -> bool {
        self.open.as_ref().is_none_or(|list| list.reader.buffer().contains(&b'\n'))
    }
}

impl Lists<'_> {
    fn order(&mut self, claim: Claim) -> Order<Ticket> {
        let form = match claim.tree {
            true => Form::Tree {
                leaf: self.job.leaf,
                subtree: (claim.digests.len() > 1).then_some(self.job.subtree),
            },
            false => Form::Plain,
        };
        let source = if claim.path == "-" {
            if std::mem::replace(&mut self.stdin_taken, true) { Source::StdinAgain } else { Source::Stdin }
        } else {
            Source::Path(claim.path.clone())
        };
        let task = Task {
            source,
            recipe: Arc::new(Recipe { algorithms: vec![claim.digests[0].algorithm()], form }),
            offset: claim.range.map_or(ByteOffset(0), |range| range.start),
            length: claim.range.map(|range| ByteLen(range.len())),
        };
        Order { ticket: Ticket::Claim(Box::new(claim)), work: Work::Hash(task) }
    }
}

fn open_list(name: &OsStr) -> io::Result<OpenList> {
    let source: Box<dyn Read + Send> =
        if name == "-" { Box::new(io::stdin()) } else { Box::new(File::open(name)?) };
    let name = if name == "-" { "standard input".into() } else { name.to_owned() };
    Ok(OpenList { name, reader: BufReader::with_capacity(64 << 10, source), line: 0 })
}

fn malformed(list: &OpenList) -> Order<Ticket> {
    let ticket = Ticket::Malformed { list: list.name.clone(), line: list.line };
    Order { ticket, work: Work::Nothing }
}

fn end(list: OsString, failure: Option<String>) -> Order<Ticket> {
    Order { ticket: Ticket::End { list, failure }, work: Work::Nothing }
}

/// What was found in one list.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    claims: u64,
    matched: u64,
    mismatched: u64,
    unreadable: u64,
    malformed: u64,
}

struct Report<'a, 'o> {
    job: &'a CheckJob,
    tool: Personality,
    out: &'a mut Output<'o>,
    tally: Tally,
    well: bool,
}

impl Report<'_, '_> {
    fn take(&mut self, ticket: Ticket, outcome: Outcome) {
        match ticket {
            Ticket::Malformed { list, line } => {
                self.tally.malformed += 1;
                if self.job.manner.warn {
                    let kind = self.tool.line_kind();
                    self.out.complain_of(&list, &format!("{line}: improperly formatted {kind}checksum line"));
                }
            }
            Ticket::End { list, failure } => self.end(&list, failure),
            Ticket::Claim(claim) => {
                self.tally.claims += 1;
                match outcome {
                    Outcome::Done(sums) => self.compare(&claim, &sums),
                    Outcome::Failed(error) => self.unreadable(&claim, &error),
                    Outcome::Nothing => {}
                }
            }
        }
    }

    fn unreadable(&mut self, claim: &Claim, error: &SumError) {
        let missing = matches!(error, SumError::Open(error) if error.kind() == io::ErrorKind::NotFound);
        if missing && self.job.manner.ignore_missing {
            return;
        }
        self.tally.unreadable += 1;
        self.out.complain_of(&claim.path, &error.to_string());
        if !self.job.manner.status {
            self.verdict(claim, "FAILED open or read", "unreadable");
        }
    }

    fn compare(&mut self, claim: &Claim, sums: &Sums) {
        let found = sums.subtrees.first().map_or(&sums.digests, |roots| roots);
        let same = *found == claim.digests && claim.size.is_none_or(|size| size == sums.range.len());
        let place = claim.range.map(|range| format!(",{range}")).unwrap_or_default();
        if same {
            self.tally.matched += 1;
            if !self.job.manner.quiet && !self.job.manner.status {
                self.verdict(claim, &format!("OK{place}"), "ok");
            }
            return;
        }
        self.tally.mismatched += 1;
        if !self.job.manner.status {
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
        if self.job.manner.json {
            let path = claim.path.to_string_lossy();
            let algorithm = claim.digests[0].algorithm().name();
            let record =
                serde_json::json!({"path": path, "algorithm": algorithm, "status": word, "detail": text});
            return self.out.line(format!("{record}\n").as_bytes());
        }
        let name = claim.path.as_bytes();
        // Like the coreutils: a name is escaped here only if it would break the line.
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

    /// The warnings at a list's end.
    fn end(&mut self, list: &OsStr, failure: Option<String>) {
        let tally = std::mem::take(&mut self.tally);
        let manner = self.job.manner;
        if let Some(failure) = failure {
            self.out.complain_of(list, &failure);
            self.well = false;
            return;
        }
        if tally.claims == 0 {
            self.out.complain_of(list, "no properly formatted checksum lines found");
            self.well = false;
            return;
        }
        if !manner.status {
            self.warn(tally.malformed, "line is improperly formatted", "lines are improperly formatted");
            self.warn(tally.unreadable, "listed file could not be read", "listed files could not be read");
            self.warn(
                tally.mismatched,
                "computed checksum did NOT match",
                "computed checksums did NOT match",
            );
            if manner.ignore_missing && tally.matched + tally.mismatched == 0 {
                self.out.complain_of(list, "no file was verified");
            }
        }
        let unverified = manner.ignore_missing && tally.matched == 0;
        let lax = tally.malformed == 0 || !manner.strict;
        self.well &= tally.mismatched == 0 && tally.unreadable == 0 && lax && !unverified;
    }

    fn warn(&mut self, count: u64, one: &str, many: &str) {
        if count > 0 {
            self.out.complain(&format!("WARNING: {count} {}", if count == 1 { one } else { many }));
        }
    }
}
