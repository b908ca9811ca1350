//! `-c`: checks the claims of lists in parallel and reports them in order.

mod b3sum;
mod report;

pub(super) use b3sum::in_rust;

use super::line::any::{AnyLine, AnyReader};
use super::line::b3sum::Refusal;
use super::line::gnu::{GnuRules, GnuState};
use super::line::{Claim, Line, LineRules, has_digest, read_line};
use super::list::{Piece, read_piece};
use super::output::Output;
use super::personality::Personality;
use haul_digest::list::{Flaw, Interpretation, is_start_of_an_entry};
use haul_engine::sum::{
    Counters, Form, Order, Orders, Outcome, Recipe, Settings, Source, Task, Work, hash_rest,
    hash_rest_of_stdin, run,
};
use haul_model::{ByteLen, ByteOffset};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Read size for a list, in bytes.
const LIST_BYTES: usize = 64 << 10;

/// Read size of b3sum. If a line of a list on standard input names standard input, its file lacks
/// the bytes already read for the list.
const B3SUM_BYTES: usize = 8 << 10;

/// A check of lists.
pub(crate) struct CheckJob {
    pub(crate) settings: Settings,
    pub(crate) reading: ListTool,
    pub(crate) output_options: OutputOptions,
    pub(crate) lists: Vec<OsString>,
    /// Leaf size of the trees in `#mutil#` lines.
    pub(crate) leaf: ByteLen,
    pub(crate) subtree: ByteLen,
    pub(crate) progress: bool,
}

/// Tool that reads the lines, and whose wording the results have.
#[derive(Clone, Debug)]
pub(crate) enum ListTool {
    /// `haul sum` and `msum`: every known format.
    Field(LineRules),
    /// A tool of the coreutils.
    Gnu(GnuRules),
    /// b3sum.
    B3sum,
}

/// Output options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct OutputOptions {
    pub(crate) quiet: bool,
    pub(crate) status: bool,
    pub(crate) strict: bool,
    pub(crate) warn: bool,
    pub(crate) ignore_missing: bool,
    pub(crate) json: bool,
}

/// Receives the results in order and reports them.
trait Report: Send {
    fn take(&mut self, ticket: Ticket, outcome: Outcome);

    /// Reports what holds for all lists together.
    fn close(&mut self) {}
}

impl CheckJob {
    /// Runs all checks; returns true if there was no failure.
    pub(crate) fn run(
        &self,
        tool: Personality,
        counters: &Counters,
        stop: &AtomicBool,
        out: &mut Output<'_>,
    ) -> bool {
        let mut well = true;
        let mut report: Box<dyn Report + '_> = match &self.reading {
            ListTool::Field(_) | ListTool::Gnu(_) => {
                Box::new(report::Common::new(self, stop, out, &mut well))
            }
            ListTool::B3sum => Box::new(b3sum::Report::new(self, out, &mut well)),
        };
        let lists = Lists::new(self, tool);
        run(&self.settings, lists, counters, stop, |mut ticket, outcome| {
            let found = if let Ticket::Claim(listed) = &mut ticket { listed.found.take() } else { None };
            report.take(ticket, found.unwrap_or(outcome));
        });
        report.close();
        drop(report);
        well
    }
}

/// Tag of a result.
enum Ticket {
    /// A claim, to be compared with the computed digest.
    Claim(Box<ListedClaim>),
    /// A line that is not a claim, with the tool's message for it.
    Malformed { list: Arc<OsStr>, line: u64, why: String, fails: bool },
    /// The end of a list, or the reason why reading it failed.
    End { list: Arc<OsStr>, failure: Option<ListFailure> },
}

/// A claim and its list.
struct ListedClaim {
    claim: Claim,
    list: Arc<OsStr>,
    /// The name as the line writes it, if the tool prints it so.
    shown: Option<Vec<u8>>,
    /// Result, if the file was hashed before its turn.
    found: Option<Outcome>,
}

/// Error that ends a list early.
enum ListFailure {
    Open(io::Error),
    Read(io::Error),
    /// A line that is not text, if the tool reads only text.
    NoText,
}

/// Work orders of a check: the lines of all lists.
struct Lists<'a> {
    job: &'a CheckJob,
    tool: Personality,
    waiting: std::slice::Iter<'a, OsString>,
    open: Option<OpenList>,
    /// Reader of the lines in every other format, if the tool reads them.
    any: Option<AnyReader>,
    /// Further claims of the line that was read last.
    pending: VecDeque<Claim>,
    /// True if lines have one blank before the name. Like in the coreutils, this holds for all
    /// lists of a run.
    single_blank: Option<bool>,
    gnu: GnuState,
    stdin_taken: bool,
    /// True if a list is read from standard input. Standard input as a checked file is then read in
    /// turn with that list.
    stdin_is_a_list: bool,
}

struct OpenList {
    name: Arc<OsStr>,
    reader: BufReader<Box<dyn Read + Send>>,
    line: u64,
    is_stdin: bool,
}

/// Meaning of a line to the tool that reads it.
enum LineMeaning {
    Remark,
    Claim(Claim, Option<Vec<u8>>),
    /// Not a claim, with the tool's message; `fails` is true if it looks like one, and the tool
    /// fails for it.
    Malformed {
        why: String,
        fails: bool,
    },
    NoText,
}

impl Orders for Lists<'_> {
    type Ticket = Ticket;

    fn next(&mut self) -> Option<Order<Ticket>> {
        loop {
            if let Some(claim) = self.pending.pop_front() {
                return self.order(claim, None);
            }
            let end_of_line = self.end_of_line();
            let Some(list) = &mut self.open else {
                let name = self.waiting.next()?;
                match self.open_list(name) {
                    Ok(list) => {
                        self.any = self.any_reader(name);
                        self.open = Some(list);
                    }
                    Err(error) => return Some(end(name.as_os_str().into(), Some(ListFailure::Open(error)))),
                }
                continue;
            };
            let mut text = Vec::new();
            list.line += 1;
            let read = match read_piece(&mut list.reader, end_of_line, &mut text) {
                Ok(Piece::Whole) => self.read(&text),
                Ok(Piece::Unended) => self.read_unended(&text),
                Ok(Piece::TooLong) => {
                    LineMeaning::Malformed { why: self.malformed(), fails: self.any.is_some() }
                }
                Ok(Piece::End) => return Some(self.close(None)),
                Err(error) => return Some(self.close(Some(ListFailure::Read(error)))),
            };
            match read {
                LineMeaning::Remark => {}
                LineMeaning::Claim(claim, shown) => return self.order(claim, shown),
                LineMeaning::NoText => return Some(self.close(Some(ListFailure::NoText))),
                LineMeaning::Malformed { why, fails } => {
                    let (list, line) = self.place()?;
                    let ticket = Ticket::Malformed { list, line, why, fails };
                    return Some(Order { ticket, work: Work::Nothing });
                }
            }
        }
    }

    fn ready(&self) -> bool {
        let end = self.end_of_line();
        !self.pending.is_empty() || self.open.as_ref().is_none_or(|list| list.reader.buffer().contains(&end))
    }
}

impl<'a> Lists<'a> {
    fn new(job: &'a CheckJob, tool: Personality) -> Lists<'a> {
        Lists {
            job,
            tool,
            waiting: job.lists.iter(),
            open: None,
            any: None,
            pending: VecDeque::new(),
            single_blank: None,
            gnu: GnuState::default(),
            stdin_taken: false,
            stdin_is_a_list: job.lists.iter().any(|list| list == "-"),
        }
    }

    /// Duplicates standard input, because the library reads a closed one as empty.
    fn stdin() -> io::Result<File> {
        io::stdin().as_fd().try_clone_to_owned().map(File::from)
    }

    fn open_list(&self, name: &OsStr) -> io::Result<OpenList> {
        let is_stdin = name == "-";
        let source: Box<dyn Read + Send> =
            if is_stdin { Box::new(Lists::stdin()?) } else { Box::new(File::open(name)?) };
        let name = if is_stdin { OsStr::new("standard input").into() } else { name.into() };
        let room = if matches!(self.job.reading, ListTool::B3sum) { B3SUM_BYTES } else { LIST_BYTES };
        Ok(OpenList { name, reader: BufReader::with_capacity(room, source), line: 0, is_stdin })
    }

    /// Returns the current list and line; `None` between lists.
    fn place(&self) -> Option<(Arc<OsStr>, u64)> {
        self.open.as_ref().map(|list| (Arc::clone(&list.name), list.line))
    }

    fn close(&mut self, failure: Option<ListFailure>) -> Order<Ticket> {
        let name = self.open.take().map_or_else(|| OsStr::new("").into(), |list| list.name);
        end(name, failure)
    }

    fn read(&mut self, line: &[u8]) -> LineMeaning {
        match &self.job.reading {
            ListTool::Field(_) if self.any.as_ref().is_some_and(|any| any.is_only_reader_of(line)) => {
                self.read_any(line)
            }
            ListTool::Field(rules) => match read_line(line, rules, &mut self.single_blank) {
                Line::Remark if line.is_empty() || self.any.is_none() => LineMeaning::Remark,
                Line::Claim(claim) if !self.is_about_itself(&claim) => LineMeaning::Claim(claim, None),
                Line::Remark | Line::Malformed if self.any.is_some() => self.read_any(line),
                _ => self.skipped(),
            },
            ListTool::Gnu(rules) => {
                let line = line.strip_suffix(b"\r").unwrap_or(line);
                if line.is_empty() || line[0] == b'#' {
                    return LineMeaning::Remark;
                }
                let claim = rules.read(line, &mut self.gnu);
                match claim.filter(|claim| !self.is_about_itself(claim)) {
                    Some(claim) => LineMeaning::Claim(claim, None),
                    None => self.skipped(),
                }
            }
            ListTool::B3sum => match std::str::from_utf8(line).map(super::line::b3sum::read) {
                Ok(Ok((claim, shown))) => LineMeaning::Claim(claim, Some(shown)),
                Ok(Err(refusal)) => LineMeaning::Malformed { why: refusal.to_string(), fails: true },
                Err(_) => LineMeaning::NoText,
            },
        }
    }

    /// Reads the last line of a list that has no line end.
    fn read_unended(&mut self, line: &[u8]) -> LineMeaning {
        let read = self.read(line);
        let is_skipped = match &read {
            LineMeaning::Malformed { fails, .. } => !fails,
            LineMeaning::Remark => line.starts_with(b"#"),
            _ => false,
        };
        if !(is_skipped && self.any.is_some() && is_start_of_an_entry(line)) {
            return read;
        }
        LineMeaning::Malformed { why: format!("{}: {}", self.malformed(), Flaw::Damaged), fails: true }
    }

    /// Reads a line in any other format of `haul check`.
    fn read_any(&mut self, line: &[u8]) -> LineMeaning {
        let Some(any) = &mut self.any else { return self.skipped() };
        match any.read(line) {
            AnyLine::Claims(claims) => {
                if claims.iter().any(|claim| self.is_about_itself(claim)) {
                    return self.skipped();
                }
                self.pending.extend(claims);
                self.pending.pop_front().map_or(LineMeaning::Remark, |claim| LineMeaning::Claim(claim, None))
            }
            AnyLine::Remark { is_excluded: false } => LineMeaning::Remark,
            AnyLine::Remark { is_excluded: true } => self.skipped(),
            AnyLine::Malformed(flaw) if !flaw.is_of_an_entry() => self.skipped(),
            AnyLine::Malformed(flaw) if !(self.guesses() && has_digest(line)) => {
                LineMeaning::Malformed { why: format!("{}: {flaw}", self.malformed()), fails: true }
            }
            AnyLine::Foreign(name) => {
                LineMeaning::Malformed { why: format!("unsupported checksum: {name}"), fails: true }
            }
            AnyLine::Unknown | AnyLine::Malformed(_) => {
                let hint =
                    "cannot detect the algorithm of this checksum; name it with -a, or use 'haul check'";
                LineMeaning::Malformed { why: hint.to_owned(), fails: true }
            }
        }
    }

    /// Returns a line that is not a checksum, and is skipped.
    fn skipped(&self) -> LineMeaning {
        LineMeaning::Malformed { why: self.malformed(), fails: false }
    }

    /// Returns true if the command line does not name the algorithm of digests without a tag.
    fn guesses(&self) -> bool {
        matches!(&self.job.reading, ListTool::Field(rules) if rules.guess)
    }

    /// Returns the byte that ends each line.
    fn end_of_line(&self) -> u8 {
        if matches!(&self.job.reading, ListTool::Field(rules) if rules.zero) { 0 } else { b'\n' }
    }

    /// Returns a reader of every other format, if the tool reads them.
    fn any_reader(&self, list: &OsStr) -> Option<AnyReader> {
        match &self.job.reading {
            ListTool::Field(rules) if rules.any => Some(AnyReader::new(rules, list)),
            _ => None,
        }
    }

    /// Returns true if a list from standard input names standard input, which is an error.
    fn is_about_itself(&self, claim: &Claim) -> bool {
        claim.path == "-" && self.open.as_ref().is_some_and(|list| list.is_stdin)
    }

    /// Returns the tool's message for a line that is not a checksum.
    fn malformed(&self) -> String {
        match &self.job.reading {
            ListTool::Field(_) => format!("improperly formatted {}checksum line", self.tool.line_kind()),
            ListTool::Gnu(rules) => format!("improperly formatted {} checksum line", rules.kind(&self.gnu)),
            ListTool::B3sum => Refusal::Form.to_string(),
        }
    }

    fn order(&mut self, claim: Claim, shown: Option<Vec<u8>>) -> Option<Order<Ticket>> {
        let (list, _) = self.place()?;
        let many = claim.meanings.iter().map(|meaning| &meaning.digests).chain([&claim.digests]);
        let has_parts = many.into_iter().any(|digests| digests.len() > 1);
        let form = match claim.tree {
            true => Form::Tree { leaf: self.job.leaf, subtree: has_parts.then_some(self.job.subtree) },
            false => Form::Plain,
        };
        let mut algorithms = vec![claim.digests[0].algorithm()];
        for algorithm in claim.meanings.iter().map(Interpretation::algorithm) {
            if !algorithms.contains(&algorithm) {
                algorithms.push(algorithm);
            }
        }
        let is_stdin = claim.path == "-";
        let source = match is_stdin {
            true if std::mem::replace(&mut self.stdin_taken, true) => Source::StdinAgain,
            true => Source::Stdin,
            // The tools of these formats wait for the writer of a named pipe.
            false if !matches!(self.job.reading, ListTool::Field(_)) => Source::Path(claim.path.clone()),
            false => Source::Named(claim.path.clone()),
        };
        let task = Task {
            source,
            recipe: Arc::new(Recipe { algorithms, form }),
            offset: claim.range.map_or(ByteOffset(0), |range| range.start),
            length: claim.range.map(|range| ByteLen(range.len())),
        };
        let found = (is_stdin && self.stdin_is_a_list).then(|| self.hash_stdin(&task));
        let work = if found.is_some() { Work::Nothing } else { Work::Hash(task) };
        let ticket = Ticket::Claim(Box::new(ListedClaim { claim, list, shown, found }));
        Some(Order { ticket, work })
    }

    /// Hashes the rest of standard input before the next line is read. If the list comes from
    /// standard input, which only b3sum allows, its hash lacks the bytes already read for the list.
    fn hash_stdin(&mut self, task: &Task) -> Outcome {
        match &mut self.open {
            Some(list) if list.is_stdin => hash_rest(list.reader.get_mut(), task),
            _ => hash_rest_of_stdin(task),
        }
    }
}

fn end(list: Arc<OsStr>, failure: Option<ListFailure>) -> Order<Ticket> {
    Order { ticket: Ticket::End { list, failure }, work: Work::Nothing }
}
