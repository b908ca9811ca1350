//! What was found, held against what was written down.

use super::locate::Located;
use crate::sum::{Outcome, SumError, Sums};
use crate::waybill::{ObjectSums, moment};
use haul_log::waybill::{Content, Entry, Kind, Mark, RelPath};
use haul_model::{ByteRange, ObjectIndex};
use std::fmt;
use std::io;

/// What became of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The name, beneath the root.
    pub path: RelPath,
    /// What it is.
    pub kind: VerdictKind,
    /// The bytes that differ, as far as the digests tell, neighbours joined: whole objects, or leaves of them.
    pub damage: Vec<ByteRange>,
    /// How far the damage was narrowed down, where that was asked for and there is any.
    pub located: Option<Located>,
}

/// What a verdict says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictKind {
    /// The bytes are those that were written down.
    Intact {
        /// The modification time moved all the same.
        touched: bool,
    },
    /// Something was changed, and does not hide it.
    Modified(Change),
    /// Other bytes under the same size and time: nobody meant to change them.
    Rotted,
    /// The name is gone.
    Missing,
    /// The waybill does not speak of it.
    Extra,
    /// It could not be read, and why.
    Unreadable(String),
    /// The waybill has no digest that this program can compute.
    NoDigest,
    /// The sample left it out.
    Passed,
    /// An earlier run found it intact, and nobody touched it since. The reports are not told of these.
    Before,
}

/// How a name was modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file has another size.
    Size {
        /// By the waybill.
        was: u64,
        /// By the file system.
        is: u64,
    },
    /// Other bytes, and another modification time.
    Bytes,
    /// It changed while it was read.
    WhileRead,
    /// It is another kind of thing now.
    Kind,
    /// A symbolic link with another target.
    Target,
    /// No longer a second name of the same file.
    NotSame,
    /// A directory on the way to it is a symbolic link out of the root.
    LeadsOut,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Size { was, is } => write!(f, "{was} bytes before, {is} now"),
            Change::Bytes => f.write_str("other bytes and another modification time"),
            Change::WhileRead => f.write_str("it changed while it was read"),
            Change::Kind => f.write_str("it is another kind of file now"),
            Change::Target => f.write_str("the link leads elsewhere"),
            Change::NotSame => f.write_str("it is no longer a link to the same file"),
            Change::LeadsOut => {
                f.write_str("a link on the way leads out of the directory; it was not followed")
            }
        }
    }
}

/// What is expected of a name, while it is under way.
#[derive(Debug)]
pub(super) struct Expected {
    /// Of the entry, counted over the whole waybill from 0.
    pub(super) number: u64,
    /// Where the entry stands in the waybill.
    pub(super) mark: Mark,
    pub(super) entry: Entry,
    /// The digests of the objects that are to be compared; `None` where the file's own is.
    pub(super) objects: Option<ObjectSums>,
    /// Only some objects are read.
    pub(super) sampled: bool,
    /// What was found out without reading.
    pub(super) early: Option<VerdictKind>,
    /// Device and inode of what stands under the name.
    pub(super) inode: Option<(u64, u64)>,
}

/// The verdict over a name; `None` where a stop came first.
pub(super) fn judge(expected: Expected, outcome: Outcome) -> Option<Verdict> {
    let (kind, damage) = match (expected.early.as_ref(), outcome) {
        (Some(kind), _) => (kind.clone(), Vec::new()),
        (None, Outcome::Done(sums)) => compare(&expected, &sums),
        (None, Outcome::Failed(SumError::Stopped) | Outcome::Nothing) => return None,
        (None, Outcome::Failed(SumError::Changed)) => (VerdictKind::Modified(Change::WhileRead), Vec::new()),
        (None, Outcome::Failed(SumError::Open(error))) => (unopened(&error), Vec::new()),
        (None, Outcome::Failed(error)) => {
            let at = if let SumError::Read { at, .. } = &error {
                format!(" at byte {}", at.0)
            } else {
                String::new()
            };
            (VerdictKind::Unreadable(format!("{error}{at}")), Vec::new())
        }
    };
    Some(Verdict { path: expected.entry.path, kind, damage, located: None })
}

/// What it means that a name can't be opened.
pub(super) fn unopened(error: &io::Error) -> VerdictKind {
    const ENOENT: i32 = 2;
    const EXDEV: i32 = 18;
    const ENOTDIR: i32 = 20;
    const ELOOP: i32 = 40;
    match error.raw_os_error() {
        Some(ENOENT | ENOTDIR) => VerdictKind::Missing,
        Some(EXDEV | ELOOP) => VerdictKind::Modified(Change::LeadsOut),
        _ => VerdictKind::Unreadable(crate::sum::reason(error)),
    }
}

fn compare(expected: &Expected, sums: &Sums) -> (VerdictKind, Vec<ByteRange>) {
    let Kind::File(content) = &expected.entry.kind else { return (VerdictKind::NoDigest, Vec::new()) };
    let is = sums.range.len();
    if is != content.size {
        return (VerdictKind::Modified(Change::Size { was: content.size, is }), Vec::new());
    }
    let mut damage = Vec::new();
    if let (Some(objects), Some(geometry)) = (&expected.objects, content.geometry()) {
        let none = ObjectSums::new(objects.size());
        let found = sums.objects.as_ref().unwrap_or(&none);
        let differs = |index: ObjectIndex, digest| match found.get(index) {
            Some(ours) => ours != digest,
            None => !expected.sampled,
        };
        for (index, digest) in objects.iter() {
            if let Some(object) = geometry.object(index).filter(|_| differs(index, digest)) {
                join(&mut damage, object.range);
            }
        }
    }
    if damage.is_empty() && whole_differs(content, sums) {
        damage.push(ByteRange::between(0, content.size));
    }
    let picked_none = expected.sampled && sums.objects.as_ref().is_none_or(ObjectSums::is_empty);
    if picked_none {
        return (VerdictKind::Passed, Vec::new());
    }
    let touched = sums.facts.as_ref().is_none_or(|facts| moment(facts) != expected.entry.mtime);
    let kind = match (damage.is_empty(), touched) {
        (true, touched) => VerdictKind::Intact { touched },
        (false, true) => VerdictKind::Modified(Change::Bytes),
        (false, false) => VerdictKind::Rotted,
    };
    (kind, damage)
}

fn whole_differs(content: &Content, sums: &Sums) -> bool {
    sums.digests.iter().any(|ours| content.digest(ours.algorithm()).is_some_and(|digest| digest != *ours))
}

/// Adds a range behind those before it, joined with the last if they touch.
pub(super) fn join(ranges: &mut Vec<ByteRange>, range: ByteRange) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
