//! Work orders of a check: the lines of all lists, with neighbouring lines on one file joined into
//! one read.

use super::bag::{Bag, BagRoot, Payload};
use super::guess::{DetectedAlgorithms, measure, tree};
use super::list_reader::{List, ListReader, Next};
use super::resolve::Job;
use haul_digest::Algorithm;
use haul_digest::list::{Claim, Flaw, Foreign, Hints, Line, Span};
use haul_engine::sum::{
    Form, Order, Orders, Outcome, Recipe, Source, Task, Work, hash_rest_of_stdin, reason,
};
use haul_model::{ByteLen, ByteOffset};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Tag of a result.
pub(super) enum Ticket {
    /// Lines on one file.
    File(Box<Group>),
    /// A line whose algorithm haul does not compute.
    Foreign { list: Arc<List>, foreign: Foreign },
    /// A line that is not a checksum.
    Malformed { list: Arc<List>, line: u64, flaw: Flaw },
    /// A line of an algorithm that was not requested.
    Excluded { list: Arc<List> },
    /// A fault of a bag.
    Bag { bag: Arc<List>, name: Option<Vec<u8>>, text: String },
    /// The end of a list, or the reason why reading it failed.
    End { list: Arc<List>, failure: Option<String>, remark: String },
}

/// Neighbouring lines on one file.
pub(super) struct Group {
    pub(super) name: Vec<u8>,
    pub(super) span: Span,
    /// Never empty.
    pub(super) claims: Vec<PositionedClaim>,
    pub(super) task: Task,
    /// Result of the file, if it was hashed before its turn.
    pub(super) outcome: Option<Outcome>,
}

/// A claim and its position.
pub(super) struct PositionedClaim {
    pub(super) list: Arc<List>,
    pub(super) line: u64,
    pub(super) claim: Claim,
}

/// Maximum number of joined lines.
const GROUP_MAX: usize = 64;

/// Lines of all lists of a job, in order.
pub(super) struct Feed<'a> {
    job: &'a Job,
    stop: &'a AtomicBool,
    /// Detected leaf size of trees, in bytes.
    leaf: Arc<AtomicU64>,
    waiting: std::slice::Iter<'a, OsString>,
    open: Option<Open>,
    settled: DetectedAlgorithms,
    group: Vec<PositionedClaim>,
    queue: VecDeque<Order<Ticket>>,
    stdin_taken: bool,
    /// True if a list is read from standard input. Standard input as a checked file is then read
    /// before or after that list, never in parallel.
    stdin_is_a_list: bool,
    lists: u64,
}

/// Lists that are read in turn, line by line: one list, or the manifests of a bag.
struct Open {
    list_readers: Vec<ListReader>,
    turn: usize,
    base: Base,
    /// For a bag, the payload to check after the end of its manifests.
    bag: Option<(Arc<List>, Payload)>,
}

/// Directory that names are relative to.
enum Base {
    /// Any directory; empty for the working directory.
    Directory(PathBuf),
    /// The directory of a bag.
    Bag(BagRoot),
}

impl Orders for Feed<'_> {
    type Ticket = Ticket;

    fn next(&mut self) -> Option<Order<Ticket>> {
        loop {
            if let Some(order) = self.queue.pop_front() {
                return Some(order);
            }
            match self.open.take() {
                Some(open) => self.open = self.step(open),
                None => {
                    let path = self.waiting.next()?;
                    self.settled = DetectedAlgorithms::default();
                    self.begin(path);
                }
            }
        }
    }

    fn ready(&self) -> bool {
        let is_ready = |open: &Open| open.list_readers.get(open.turn).is_none_or(ListReader::is_ready);
        !self.queue.is_empty() || !self.group.is_empty() || self.open.as_ref().is_none_or(is_ready)
    }
}

impl<'a> Feed<'a> {
    pub(super) fn new(job: &'a Job, stop: &'a AtomicBool, leaf: Arc<AtomicU64>) -> Feed<'a> {
        Feed {
            job,
            stop,
            leaf,
            waiting: job.lists.iter(),
            open: None,
            settled: DetectedAlgorithms::default(),
            group: Vec::new(),
            queue: VecDeque::new(),
            stdin_taken: false,
            stdin_is_a_list: job.lists.iter().any(|list| list == "-"),
            lists: 0,
        }
    }

    fn list(&mut self, name: &OsStr, is_bag: bool) -> List {
        self.lists += 1;
        List { number: self.lists, name: name.to_owned(), is_bag }
    }

    /// Opens the list of an argument. A failure is reported in its place.
    fn begin(&mut self, name: &OsStr) {
        let path = Path::new(name);
        let opened = match () {
            () if name == "-" => self.open_plain(path),
            () if path.is_dir() => self.open_bag(path),
            () => Bag::around(path).and_then(|found| match found {
                Some(bag) => self.open_manifests(&bag, path.as_os_str(), &[path.to_owned()]),
                None => self.open_plain(path),
            }),
        };
        match opened {
            Ok(open) => self.open = Some(open),
            Err(failure) => {
                let list = Arc::new(self.list(name, false));
                self.push_end(list, Some(failure), String::new());
            }
        }
    }

    fn open_plain(&mut self, path: &Path) -> Result<Open, String> {
        let is_stdin = path.as_os_str() == "-";
        let told = path.file_name().filter(|_| !is_stdin).map(|name| name.to_string_lossy().into_owned());
        let told = Hints::of_name(told.as_deref().unwrap_or_default());
        let hints = Hints { forced: self.job.forced.clone(), zero: self.job.zero, ..told };
        let list = self.list(if is_stdin { OsStr::new("standard input") } else { path.as_os_str() }, false);
        let list_reader = ListReader::open(path, list, &hints).map_err(|error| reason(&error))?;
        let base = Base::Directory(self.job.directory.clone().unwrap_or_default());
        Ok(Open { list_readers: vec![list_reader], turn: 0, base, bag: None })
    }

    fn open_bag(&mut self, dir: &Path) -> Result<Open, String> {
        let bag = Bag::of(dir)?;
        let manifests = bag.manifests()?;
        self.open_manifests(&bag, dir.as_os_str(), &manifests)
    }

    fn open_manifests(&mut self, bag: &Bag, name: &OsStr, manifests: &[PathBuf]) -> Result<Open, String> {
        let mut list_readers = Vec::with_capacity(manifests.len());
        for path in manifests {
            let manifest = path.file_name().unwrap_or_default().to_string_lossy();
            let hints = Hints::of_manifest(&manifest, bag.encodes_percent()).unwrap_or_default();
            let hints = Hints { forced: self.job.forced.clone(), ..hints };
            let list = self.list(path.as_os_str(), false);
            let failed = |error| format!("{manifest}: {}", reason(&error));
            let source = bag.open(path.file_name().unwrap_or_default()).map_err(failed)?;
            list_readers.push(ListReader::new(source, list, &hints));
        }
        let root = match &self.job.directory {
            Some(directory) => BagRoot::open(directory)?,
            None => bag.root().clone(),
        };
        let of_payload = |list_reader: &ListReader| {
            let name = Path::new(&list_reader.list.name).file_name().unwrap_or_default().as_bytes();
            name.starts_with(b"manifest-").then(|| list_reader.list.number)
        };
        let base = Base::Bag(root.clone());
        let payload = Payload::new(root, bag, list_readers.iter().filter_map(of_payload).collect());
        let whole = Arc::new(self.list(name, true));
        Ok(Open { list_readers, turn: 0, base, bag: Some((whole, payload)) })
    }

    /// Reads one line, or takes one step at the end of a bag; returns the lists while there is
    /// more.
    fn step(&mut self, mut open: Open) -> Option<Open> {
        if open.list_readers.is_empty() {
            self.flush(&open.base);
            let (list, payload) = open.bag.as_mut()?;
            return match payload.next(self.stop) {
                Some(fault) => {
                    let (bag, name, text) = (Arc::clone(list), fault.name, fault.text);
                    self.push(Ticket::Bag { bag, name, text });
                    Some(open)
                }
                None => {
                    let remark = payload.remark();
                    self.push_end(Arc::clone(list), None, remark);
                    None
                }
            };
        }
        open.turn %= open.list_readers.len();
        if !open.list_readers[open.turn].is_ready() {
            // The writer of the list may wait for the results of earlier lines.
            self.flush(&open.base);
        }
        let list_reader = &mut open.list_readers[open.turn];
        let (list, next) = (Arc::clone(&list_reader.list), list_reader.next());
        let line = list_reader.line;
        match next {
            Next::Line(read) => {
                if let (Line::Claim(claim), Some((_, payload))) = (&read, &mut open.bag) {
                    payload.add(list.number, &claim.name);
                }
                if let (Line::Foreign(foreign), Some((_, payload))) = (&read, &mut open.bag) {
                    payload.add(list.number, &foreign.name);
                }
                self.take(list, line, read, &open.base);
                open.turn += 1;
            }
            ended @ (Next::End | Next::Failed(_)) => {
                self.flush(&open.base);
                let failure = if let Next::Failed(failure) = ended { Some(failure) } else { None };
                self.push_end(list, failure, String::new());
                open.list_readers.remove(open.turn);
            }
        }
        Some(open)
    }

    /// Adds one line.
    fn take(&mut self, list: Arc<List>, line: u64, read: Line, base: &Base) {
        let claim = match read {
            Line::Remark => return,
            Line::Claim(claim) => claim,
            other => {
                self.flush(base);
                return self.push(match other {
                    Line::Foreign(foreign) => Ticket::Foreign { list, foreign },
                    Line::Malformed(flaw) => Ticket::Malformed { list, line, flaw },
                    _ => Ticket::Excluded { list },
                });
            }
        };
        let joins = self.group.last().is_none_or(|last| {
            last.claim.name == claim.name && last.claim.span == claim.span && self.group.len() < GROUP_MAX
        });
        if !joins {
            self.flush(base);
        }
        self.group.push(PositionedClaim { list, line, claim });
    }

    fn push(&mut self, ticket: Ticket) {
        self.queue.push_back(Order { ticket, work: Work::Nothing });
    }

    fn push_end(&mut self, list: Arc<List>, failure: Option<String>, remark: String) {
        self.push(Ticket::End { list, failure, remark });
    }

    /// Creates an order from the lines joined so far.
    fn flush(&mut self, base: &Base) {
        let claims = std::mem::take(&mut self.group);
        let Some(first) = claims.first() else { return };
        let (name, span) = (first.claim.name.clone(), first.claim.span);
        let source = self.source(&name, base);
        let can_be_read_again = source.can_be_reopened();
        let stated: Vec<_> = claims.iter().flat_map(|placed| &placed.claim.stated).collect();
        let is_question = stated.iter().any(|stated| self.settled.wants_probe(stated));
        let mut algorithms: Vec<Algorithm> = Vec::new();
        for stated in &stated {
            let chosen = match can_be_read_again {
                true => self.settled.choose(stated),
                false => super::guess::algorithms(stated),
            };
            algorithms.extend(
                chosen.into_iter().filter(|algorithm| !algorithms.contains(algorithm)).collect::<Vec<_>>(),
            );
        }
        let many =
            stated.iter().any(|stated| stated.meanings.iter().any(|meaning| meaning.digests.len() > 1));
        let form = match span {
            Span::File => Form::Plain,
            Span::Tree(_) => tree(ByteLen(self.leaf.load(Ordering::Relaxed)), &self.job.trees, many),
        };
        let range = if let Span::Tree(range) = span { range } else { None };
        let task = Task {
            source,
            recipe: Arc::new(Recipe { algorithms, form }),
            offset: range.map_or(ByteOffset(0), |range| range.start),
            length: range.map(|range| ByteLen(range.len())),
        };
        let mut outcome = None;
        if !can_be_read_again && self.stdin_is_a_list {
            outcome = Some(hash_rest_of_stdin(&task));
        }
        if is_question && can_be_read_again && span == Span::File {
            let measured = measure(&self.job.settings, task.clone(), self.stop);
            if let Outcome::Done(sums) = &measured {
                for stated in &stated {
                    self.settled.learn(stated, sums);
                }
            }
            outcome = Some(measured);
        }
        let work = if outcome.is_some() { Work::Nothing } else { Work::Hash(task.clone()) };
        let ticket = Ticket::File(Box::new(Group { name, span, claims, task, outcome }));
        self.queue.push_back(Order { ticket, work });
    }

    fn source(&mut self, name: &[u8], base: &Base) -> Source {
        if name == b"-" {
            let again = std::mem::replace(&mut self.stdin_taken, true);
            return if again { Source::StdinAgain } else { Source::Stdin };
        }
        let directory = match base {
            Base::Directory(path) | Base::Bag(BagRoot { path, .. }) => path,
        };
        let named = OsStr::from_bytes(name);
        // rclone writes control characters as Unicode's pictures of them.
        let name = match from_pictures(name) {
            Some(meant) if !directory.join(named).exists() => OsString::from_vec(meant),
            _ => named.to_owned(),
        };
        match base {
            Base::Directory(directory) => Source::Named(directory.join(name).into_os_string()),
            Base::Bag(root) => Source::Within(Arc::clone(&root.dir), name),
        }
    }
}

/// Returns the name with U+2401 to U+241F and U+2421 replaced by the control characters that they
/// show, if it contains any.
fn from_pictures(name: &[u8]) -> Option<Vec<u8>> {
    let pictured = |character: char| match u32::from(character) {
        code @ 0x2401..=0x241f => Some((code - 0x2400) as u8),
        0x2421 => Some(0x7f),
        _ => None,
    };
    let text = std::str::from_utf8(name).ok()?;
    if !text.contains(|character| pictured(character).is_some()) {
        return None;
    }
    let mut meant = Vec::with_capacity(name.len());
    for character in text.chars() {
        match pictured(character) {
            Some(byte) => meant.push(byte),
            None => meant.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    Some(meant)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the orders of a list with these lines: the number of lines of each, and its
    /// algorithms.
    fn orders(lines: &str) -> Vec<(usize, Vec<Algorithm>)> {
        let dir = tempfile::tempdir().unwrap();
        let list = dir.path().join("list");
        std::fs::write(&list, lines).unwrap();
        let args = super::super::args::Args { lists: vec![list.into()], ..Default::default() };
        let job = super::super::resolve::resolve(args).unwrap();
        let stop = AtomicBool::new(false);
        let mut feed = Feed::new(&job, &stop, Arc::default());
        let files = std::iter::from_fn(|| feed.next()).filter_map(|order| match order.ticket {
            Ticket::File(group) => Some((group.claims.len(), group.task.recipe.algorithms.clone())),
            _ => None,
        });
        files.collect()
    }

    #[test]
    fn consecutive_lines_of_a_file_share_one_read() {
        let hex = |algorithm| haul_digest::digest(algorithm, b"").to_string();
        let (md5, sha1) = (hex(Algorithm::Md5), hex(Algorithm::Sha1));
        let lines = format!(
            "MD5 (a) = {md5}\nSHA1 (a) = {sha1}\n# remark\nMD5 (a) = {md5}\nMD5 (b) = {md5}\nSHA1 (a) = {sha1}\n"
        );
        let expected = [
            (3, vec![Algorithm::Md5, Algorithm::Sha1]),
            (1, vec![Algorithm::Md5]),
            (1, vec![Algorithm::Sha1]),
        ];
        assert_eq!(orders(&lines), expected);
        // The number of joined lines is bounded for any input.
        let many = orders(&format!("MD5 (a) = {md5}\n").repeat(GROUP_MAX + 1));
        assert_eq!(many.iter().map(|(lines, _)| *lines).collect::<Vec<_>>(), [GROUP_MAX, 1]);
    }

    #[test]
    fn control_picture_characters_are_decoded() {
        assert_eq!(from_pictures("new\u{240a}line\u{2421}".as_bytes()), Some(b"new\nline\x7f".to_vec()));
        assert_eq!(from_pictures(b"plain"), None);
        assert_eq!(from_pictures("\u{2400}".as_bytes()), None);
        assert_eq!(from_pictures(b"\xff"), None);
    }
}
