//! Comparison of the files with the recorded digests.

use super::locate::Located;
use crate::sum::{Outcome, SumError, Sums};
use crate::waybill::moment;
use haul_digest::ObjectTable;
use haul_log::waybill::{Content, Entry, Kind, Mark, RelPath};
use haul_model::{ByteRange, ObjectIndex};
use std::fmt;
use std::io;

/// Result for one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Path below the root.
    pub path: RelPath,
    /// Kind of the verdict.
    pub kind: VerdictKind,
    /// Damaged byte ranges, as far as the digests show: whole objects or leaves. Adjacent ranges
    /// are joined.
    pub damage: Vec<ByteRange>,
    /// Precision of the damage ranges; `None` if there is no damage or if it was not requested.
    pub located: Option<Located>,
    /// Contents that the waybill records, if it records a regular file.
    pub recorded: Option<Content>,
}

impl Verdict {
    /// Creates a verdict without damage on a name of which no contents are recorded.
    pub(crate) fn new(path: RelPath, kind: VerdictKind) -> Verdict {
        Verdict { path, kind, damage: Vec::new(), located: None, recorded: None }
    }
}

/// Kind of a verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VerdictKind {
    /// The contents match the recorded digests.
    Intact {
        /// True if the modification time differs anyway.
        touched: bool,
    },
    /// The entry was changed, and its metadata shows this.
    Modified(Change),
    /// Different contents with the same size and time: an unintended change.
    Rotted,
    /// The name no longer exists.
    Missing,
    /// The waybill does not list the name.
    Extra,
    /// The file could not be read; holds the reason.
    Unreadable(String),
    /// The waybill has no digest that this program can compute.
    NoDigest,
    /// The sample left out the entry.
    Passed,
    /// An earlier run found the entry intact, and it did not change since. The reports do not
    /// receive this verdict.
    Before,
}

/// Kind of a modification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file has another size.
    Size {
        /// Size in the waybill, in bytes.
        was: u64,
        /// Size in the file system, in bytes.
        is: u64,
    },
    /// The contents and the modification time differ.
    Bytes,
    /// The file changed while it was read.
    WhileRead,
    /// The file has another type.
    Kind,
    /// The target of the symbolic link differs.
    Target,
    /// The name is no longer a hard link to the same file.
    NotSame,
    /// A directory in the path is a symbolic link that leads out of the root.
    LeadsOut,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Size { was, is } => write!(f, "{was} bytes before, {is} now"),
            Change::Bytes => f.write_str("different bytes and modification time"),
            Change::WhileRead => f.write_str("the file changed while it was read"),
            Change::Kind => f.write_str("different file type"),
            Change::Target => f.write_str("different link target"),
            Change::NotSame => f.write_str("no longer a hard link to the same file"),
            Change::LeadsOut => {
                f.write_str("a link in the path leads out of the directory and was not followed")
            }
        }
    }
}

/// Expected state of a name that is being verified.
#[derive(Debug)]
pub(super) struct Expected {
    /// Number of the entry, counted over the whole waybill from 0.
    pub(super) number: u64,
    /// Position of the entry in the waybill.
    pub(super) mark: Mark,
    pub(super) entry: Entry,
    /// Object digests to compare; `None` if only the digest of the whole file is compared.
    pub(super) objects: Option<ObjectTable>,
    /// True if only some objects are read.
    pub(super) sampled: bool,
    /// Verdict that was reached without reading.
    pub(super) early: Option<VerdictKind>,
    /// Device and inode of the existing file.
    pub(super) inode: Option<(u64, u64)>,
}

/// Returns the verdict on a name; `None` if the verification was stopped before.
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
    let Entry { path, kind: entry_kind, .. } = expected.entry;
    let recorded = if let Kind::File(content) = entry_kind { Some(content) } else { None };
    Some(Verdict { path, kind, damage, located: None, recorded })
}

/// Returns the verdict on a name that cannot be opened.
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
        let none = ObjectTable::new(objects.size());
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
    let picked_none = expected.sampled && sums.objects.as_ref().is_none_or(ObjectTable::is_empty);
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

/// Appends a range after the previous ones; joins it with the last range if they are adjacent.
pub(super) fn join(ranges: &mut Vec<ByteRange>, range: ByteRange) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
