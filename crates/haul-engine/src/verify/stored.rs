//! Verification of files against the digests that are stored with them.

use super::judge::{Change, Expected, Verdict, VerdictKind, judge};
use super::orders::recipe;
use super::{VerifyError, VerifyObserver, VerifyTotals};
use crate::stored::{Finder, HIDDEN};
use crate::sum::{self, Counters, Listed, Order, Orders, Settings, Source, SumError, Walk, WalkTag, Work};
use crate::waybill::Root;
use haul_digest::{Algorithm, ObjectTable};
use haul_log::stored::Stored;
use haul_log::waybill::{Content, Entry, Kind, Mark, Moment, Objects, RelPath};
use haul_model::{ByteOffset, ObjectIndex};
use haul_storage::Follow;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Settings of a verification against stored digests.
#[derive(Clone, Debug)]
pub struct StoredSettings {
    /// Root directory. All files below it are read except those in its [`HIDDEN`] directory.
    pub root: OsString,
    /// Settings for reading the data.
    pub reading: Settings,
    /// Share of the objects that is read, from 0 to 1, and the seed of their random selection;
    /// `None` for all objects.
    pub sample: Option<(f64, u64)>,
}

/// Verifies all files below a directory against the digests stored with them. These are in
/// attributes of this project, in its hidden directory, or in attributes of XRootD or EOS. A file
/// that has an entry in the hidden directory and does not exist is reported as missing.
///
/// # Errors
/// Returns a [`VerifyError`] if nothing could be verified, or if the verification is incomplete.
pub fn verify_stored(
    settings: &StoredSettings,
    report: &mut dyn VerifyObserver,
    counters: &Counters,
    stop: &AtomicBool,
) -> Result<VerifyTotals, VerifyError> {
    let refused = |source| VerifyError::Root(settings.root.clone(), source);
    let root = Root::new(settings.root.clone());
    let finder = Finder::new(root.as_os_str()).map_err(refused)?;
    let has_tree = finder.has_tree();
    let files = StoredFiles {
        walk: walk(root.as_os_str().to_owned()),
        hidden: Path::new(root.as_os_str()).join(HIDDEN).into_os_string(),
        root,
        finder,
        sample: settings.sample,
    };
    let mut totals = VerifyTotals::default();
    let root = files.root.clone();
    sum::run(&settings.reading, files, counters, stop, |ticket, outcome| {
        if let Some(verdict) = judge(ticket, outcome) {
            totals.count(&verdict);
            report.judged(&verdict);
        }
    });
    if has_tree && !stop.load(Ordering::Relaxed) {
        missing(&root, stop, &mut |verdict| {
            totals.count(&verdict);
            report.judged(&verdict);
        });
    }
    totals.bytes = counters.bytes_done();
    Ok(totals)
}

/// Walks the files below a directory, sorted by name.
fn walk(root: OsString) -> Walk<Listed> {
    // The algorithm is chosen for each file later.
    let nothing = sum::Recipe { algorithms: vec![Algorithm::Blake3], form: sum::Form::Plain };
    Walk::new(Listed::new(vec![root], ByteOffset(0), None), Arc::new(nothing), true)
}

/// Files on the disk as orders to read those that have stored digests.
struct StoredFiles {
    walk: Walk<Listed>,
    root: Root,
    hidden: OsString,
    finder: Finder,
    sample: Option<(f64, u64)>,
}

impl StoredFiles {
    fn is_hidden(&self, path: &OsStr) -> bool {
        Path::new(path).starts_with(&self.hidden)
    }

    fn order(&self, found: &OsStr, work: Work) -> Order<Expected> {
        let named = self.root.path_of(found);
        let (path, fault) = match named {
            Ok(path) => (path, None),
            // The path is too long for any record: report its last component.
            Err(fault) => (last_name(found), Some(format!("invalid path: {fault}"))),
        };
        let mut expected = Expected {
            number: 0,
            mark: Mark::default(),
            entry: nothing_known(path),
            objects: None,
            sampled: false,
            early: None,
            inode: None,
        };
        let done = match (fault, work) {
            (Some(fault), _) => Err(VerdictKind::Unreadable(fault)),
            (None, Work::Hash(task)) => self
                .expect(&mut expected, &task.source)
                .map(|recipe| Work::Hash(sum::Task { recipe: Arc::new(recipe), ..task })),
            (None, work) => Ok(work),
        };
        match done {
            Ok(work) => Order { ticket: expected, work },
            Err(early) => {
                expected.early = Some(early);
                Order { ticket: expected, work: Work::Nothing }
            }
        }
    }

    /// Looks up the digests stored with a file. Returns the recipe, or the verdict if it is known
    /// without reading.
    fn expect(&self, expected: &mut Expected, source: &Source) -> Result<sum::Recipe, VerdictKind> {
        let Source::Beneath(dir, name) = source else { return Err(VerdictKind::NoDigest) };
        let file = match dir.source(name, Follow::No) {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(VerdictKind::NoDigest),
            opened => opened.map_err(|error| super::judge::unopened(&error))?,
        };
        let facts = file.opened();
        let found = self.finder.find(&*file, facts, &expected.entry.path);
        let found = found.map_err(|error| VerdictKind::Unreadable(error.to_string()))?;
        let stored = found.ok_or(VerdictKind::NoDigest)?;
        if stored.size != facts.size {
            return Err(VerdictKind::Modified(Change::Size { was: stored.size, is: facts.size }));
        }
        expected.take(stored);
        recipe(expected, self.sample)
    }
}

impl Expected {
    fn take(&mut self, stored: Stored) {
        let Stored { size, mtime, digests, objects } = stored;
        let cut = objects.as_ref().map(|objects| Objects {
            size: objects.size,
            algorithms: vec![Algorithm::Blake3],
            leaf: None,
        });
        self.objects = objects.map(|objects| {
            let mut sums = ObjectTable::new(objects.size);
            for (index, digest) in (0..).zip(objects.digests) {
                sums.set(ObjectIndex(index), digest);
            }
            sums
        });
        self.entry.mtime = mtime;
        self.entry.kind = Kind::File(Content { size, digests, way: None, level: None, objects: cut });
    }
}

impl Orders for StoredFiles {
    type Ticket = Expected;

    fn next(&mut self) -> Option<Order<Expected>> {
        loop {
            let Order { ticket, work } = self.walk.next()?;
            let WalkTag::File(path) = ticket else { continue };
            if !self.is_hidden(&path) {
                return Some(self.order(&path, work));
            }
        }
    }
}

fn nothing_known(path: RelPath) -> Entry {
    let content = Content { size: 0, digests: Vec::new(), way: None, level: None, objects: None };
    Entry { path, kind: Kind::File(content), mode: 0, mtime: Moment::default() }
}

/// Returns the last component of a path that no record can hold.
pub(super) fn last_name(path: &OsStr) -> RelPath {
    let last = path.as_bytes().rsplit(|&byte| byte == b'/').find(|part| !part.is_empty()).unwrap_or(b"?");
    let unnamed = || unreachable!("a name of a file system is a part of a path");
    RelPath::new(last).or_else(|_| RelPath::new(b"?")).unwrap_or_else(|_| unnamed())
}

/// Reports missing files that have an entry in the hidden directory. Also reports directories in it
/// that cannot be listed, because their entries are unknown.
fn missing(root: &Root, stop: &AtomicBool, tell: &mut dyn FnMut(Verdict)) {
    let mut told = |path, kind| tell(Verdict::new(path, kind));
    let sums = Path::new(root.as_os_str()).join(HIDDEN).join("sums").into_os_string();
    let kept = Root::new(sums.clone());
    let mut walk = walk(sums);
    while let Some(Order { ticket, work }) = walk.next() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let WalkTag::File(found) = ticket else { continue };
        if let Work::Failed(SumError::List(error)) = work {
            let path = root.path_of(&found).unwrap_or_else(|_| last_name(&found));
            told(path, VerdictKind::Unreadable(crate::sum::reason(&error)));
            continue;
        }
        let Ok(path) = kept.path_of(&found) else { continue };
        let data = Path::new(root.as_os_str()).join(OsStr::from_bytes(path.as_bytes()));
        match std::fs::symlink_metadata(&data) {
            Ok(facts) if facts.is_file() => {}
            Ok(_) => told(path, VerdictKind::Modified(Change::Kind)),
            Err(error) => told(path, super::judge::unopened(&error)),
        }
    }
}
