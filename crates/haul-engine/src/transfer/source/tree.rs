//! The entries to send: the operands and everything beneath them.

use super::filter::Filter;
use crate::descent::{Descent, Step};
use crate::stored::HIDDEN;
use haul_model::{PATH_PARTS_MAX, PathError};
use haul_sys::beneath::open_place_beneath;
use haul_sys::dir::{CWD, open_dir_at, open_place_at};
use haul_sys::{FileKind, Follow, Stat, stat};
use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Maximum number of operands that stay open for looking up names. Additional ones are opened again
/// for each look-up.
const OPEN_ROOTS_MAX: usize = 256;

/// A walk over the entries to send.
#[derive(Debug)]
pub(crate) struct Tree {
    operands: std::vec::IntoIter<Operand>,
    filter: Filter,
    one_file_system: bool,
    /// True if directories with stored digests are sent.
    has_stored_sums: bool,
    descent: Descent,
    /// Device of the current operand.
    device: u64,
    /// Path at the sink that replaces the path of the operand, with a trailing slash unless it is
    /// empty.
    prefix: Vec<u8>,
    /// Number of bytes of the walk's paths that the prefix replaces.
    replaced_len: usize,
}

/// Starting point of a walk. It is opened only when the walk reaches it, because there may be a
/// million of them.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    /// Path as typed at this host, or a clean path beneath the root.
    path: OsString,
    /// True if the contents of the directory are sent without the directory itself.
    contents_only: bool,
    /// Directory that the path must stay beneath, if another host requested it. No link leads out
    /// of it.
    root: Option<Arc<OwnedFd>>,
}

/// Operands whose names can be looked up again, by the first part of their paths at the sink, or by
/// the empty string.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    by_prefix: HashMap<Vec<u8>, Vec<Root>>,
}

/// A directory that was an operand.
#[derive(Debug)]
enum Root {
    /// Open since the start.
    Open(OwnedFd),
    /// Opened again for each look-up, and used only if it is still the same directory.
    Reopen(Operand, (u64, u64)),
}

/// One entry to send.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Path beneath the sink's root.
    pub(crate) path: Vec<u8>,
    /// Path for messages.
    pub(crate) shown: OsString,
    /// The parent directory; for a directory, the directory itself.
    pub(crate) place: Arc<OwnedFd>,
    /// Name in that directory; `.` for a directory.
    pub(crate) name: CString,
    /// Metadata from when the walk found the entry.
    pub(crate) facts: Stat,
}

/// Result of one step of the walk.
#[derive(Debug)]
pub(crate) enum WalkStep {
    /// An entry that is not a directory, or a mount point that is not entered.
    Item(Item),
    /// A directory; its entries follow.
    Enter(Item),
    /// The end of the directory that was entered last.
    Leave,
    /// A directory with stored digests, which is left out.
    StoredSums(OsString),
    /// A name whose metadata cannot be read, or a directory that cannot be read (to its end).
    Failed(OsString, io::Error),
}

impl Tree {
    /// Creates a walk over `operands`. Symbolic links are not followed.
    pub(crate) fn new(operands: Vec<Operand>, filter: Filter, one_file_system: bool) -> Tree {
        Tree {
            operands: operands.into_iter(),
            filter,
            one_file_system,
            has_stored_sums: false,
            descent: Descent::new(),
            device: 0,
            prefix: Vec::new(),
            replaced_len: 0,
        }
    }

    /// Includes the directories with stored digests if `has_stored_sums`.
    pub(crate) fn with_stored_sums(self, has_stored_sums: bool) -> Tree {
        Tree { has_stored_sums, ..self }
    }

    /// Returns the directories of the operands, for later look-ups.
    pub(crate) fn roots(&self) -> Roots {
        Roots::of(self.operands.as_slice())
    }

    /// Returns the filter of the walk.
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// Returns the next result; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<WalkStep> {
        loop {
            let step = if self.descent.is_over() {
                let operand = self.operands.next()?;
                let shown = operand.shown();
                self.begin(&operand).unwrap_or_else(|error| Some(WalkStep::Failed(shown, error)))
            } else {
                self.step()
            };
            if step.is_some() {
                return step;
            }
        }
    }

    fn begin(&mut self, operand: &Operand) -> io::Result<Option<WalkStep>> {
        let (place, name) = (operand.place()?, operand.name()?);
        let (base, shown) = (operand.base().to_vec(), operand.shown());
        let facts = stat::stat_at(&place, name.as_c_str(), Follow::No)?;
        self.device = facts.dev;
        if facts.kind != FileKind::Directory {
            return Ok(Some(WalkStep::Item(Item { path: base, shown, place: Arc::new(place), name, facts })));
        }
        let fd = open_dir_at(&place, name.as_c_str(), Follow::No)?;
        let own = Arc::new(open_dir_at(&fd, c".", Follow::No)?);
        self.descent.begin(fd, &shown)?;
        self.replaced_len = shown.len() + usize::from(!shown.as_bytes().ends_with(b"/"));
        self.prefix.clone_from(&base);
        if base.is_empty() {
            return Ok(None);
        }
        self.prefix.push(b'/');
        Ok(Some(WalkStep::Enter(Item { path: base, shown, place: own, name: c".".to_owned(), facts })))
    }

    fn step(&mut self) -> Option<WalkStep> {
        match self.descent.step() {
            Step::Nothing => None,
            Step::Failed(path, error) => Some(WalkStep::Failed(path, error)),
            Step::Left(path) => {
                // A directory whose contents are sent without it was never entered.
                (!self.path_of(&path).is_empty()).then_some(WalkStep::Leave)
            }
            Step::Entered(place, shown) => self.entered(place, shown),
            Step::Entry(place, name, shown, kind) => {
                let path = self.path_of(&shown);
                if self.filter.leaves_out(&path, kind) {
                    return None;
                }
                Some(match stat::stat_at(&place, name.as_c_str(), Follow::No) {
                    Ok(facts) => WalkStep::Item(Item { path, shown, place, name, facts }),
                    Err(error) => WalkStep::Failed(shown, error),
                })
            }
        }
    }

    fn entered(&mut self, place: Arc<OwnedFd>, shown: OsString) -> Option<WalkStep> {
        let mut path = self.path_of(&shown);
        path.pop();
        if self.filter.leaves_out(&path, FileKind::Directory) {
            self.descent.skip();
            return None;
        }
        if !self.has_stored_sums && last_part(&path) == HIDDEN.as_bytes() {
            self.descent.skip();
            return Some(WalkStep::StoredSums(shown));
        }
        // What is in the directory would have one component more.
        if !path.is_empty() && path.split(|&byte| byte == b'/').count() >= PATH_PARTS_MAX {
            self.descent.skip();
            return Some(WalkStep::Failed(
                shown,
                io::Error::new(io::ErrorKind::InvalidFilename, PathError::TooDeep),
            ));
        }
        match stat::stat_fd(&place) {
            Ok(facts) => {
                let item = Item { path, shown, place, name: c".".to_owned(), facts };
                if self.one_file_system && item.facts.dev != self.device {
                    self.descent.skip();
                    return Some(WalkStep::Item(item));
                }
                Some(WalkStep::Enter(item))
            }
            Err(error) => {
                self.descent.skip();
                Some(WalkStep::Failed(shown, error))
            }
        }
    }

    fn path_of(&self, shown: &OsStr) -> Vec<u8> {
        let beneath = shown.as_bytes().get(self.replaced_len..).unwrap_or_default();
        [&self.prefix[..], beneath].concat()
    }
}

impl Operand {
    /// Creates the operand for a path of this host. With a trailing slash (or for `.`), the
    /// contents of the directory are sent without the directory.
    pub(crate) fn local(path: &OsStr) -> Operand {
        Operand { path: path.to_owned(), contents_only: means_contents(path.as_bytes()), root: None }
    }

    /// Creates the operand for a clean path beneath `root` (empty: the root itself). No link leads
    /// out of the root. With `contents_only`, the contents of the directory are sent without the
    /// directory.
    pub(crate) fn beneath(root: &Arc<OwnedFd>, path: &[u8], contents_only: bool) -> Operand {
        let contents_only = contents_only || path.is_empty();
        Operand { path: OsStr::from_bytes(path).to_owned(), contents_only, root: Some(Arc::clone(root)) }
    }

    /// Checks that the directory of the operand exists.
    ///
    /// # Errors
    /// Same as [`Operand::place`].
    pub(crate) fn check(&self) -> io::Result<()> {
        self.place().map(drop)
    }

    /// Opens the parent directory to resolve names in it. Opens the directory itself if only its
    /// contents are sent.
    ///
    /// # Errors
    /// Returns the errors of openat(2) and openat2(2): `EXDEV` if the path leads out of the root.
    fn place(&self) -> io::Result<OwnedFd> {
        let path = self.path.as_bytes();
        let dir = if self.contents_only { path } else { &path[..path.len() - last_part(path).len()] };
        match &self.root {
            None if dir.is_empty() => open_place_at(CWD, ".", Follow::Yes),
            None => open_place_at(CWD, OsStr::from_bytes(dir), Follow::Yes),
            Some(root) => {
                let dir = dir.strip_suffix(b"/").unwrap_or(dir);
                open_place_beneath(root, OsStr::from_bytes(dir), Follow::Yes)
            }
        }
    }

    /// Returns the name in that directory.
    fn name(&self) -> io::Result<CString> {
        if self.contents_only { Ok(c".".to_owned()) } else { Ok(CString::new(self.base())?) }
    }

    /// Returns the path at the sink; empty if only the contents are sent.
    fn base(&self) -> &[u8] {
        if self.contents_only { b"" } else { last_part(self.path.as_bytes()) }
    }

    /// Returns the path for messages.
    fn shown(&self) -> OsString {
        if self.path.is_empty() { OsString::from(".") } else { self.path.clone() }
    }

    /// Opens the operand as a directory in which names can be looked up again. Returns `None` if it
    /// is not a directory.
    fn directory(&self) -> Option<OwnedFd> {
        open_place_at(self.place().ok()?, self.name().ok()?.as_c_str(), Follow::No).ok()
    }
}

impl Roots {
    fn of(operands: &[Operand]) -> Roots {
        let mut roots = Roots::default();
        let mut held = 0;
        for operand in operands {
            let Some(dir) = operand.directory() else { continue };
            let root = if held < OPEN_ROOTS_MAX {
                held += 1;
                Root::Open(dir)
            } else {
                let Ok(facts) = stat::stat_fd(&dir) else { continue };
                Root::Reopen(operand.clone(), (facts.dev, facts.ino))
            };
            roots.by_prefix.entry(operand.base().to_vec()).or_default().push(root);
        }
        roots
    }

    /// Returns true if no operand has a path of the job any more. At least one of them must give a
    /// certain answer, and none may have the path.
    pub(crate) fn are_without(&self, path: &[u8]) -> bool {
        let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        let beneath = path.get(first.len() + 1..).unwrap_or_default();
        let of = |prefix: &[u8]| self.by_prefix.get(prefix).into_iter().flatten();
        let looks = of(b"").map(|root| (root, path)).chain(of(first).map(|root| (root, beneath)));
        let mut is_clear = false;
        for has in looks.filter_map(|(root, path)| root.has(path)) {
            if has {
                return false;
            }
            is_clear = true;
        }
        is_clear
    }
}

impl Root {
    /// Returns true if this directory has a path beneath it; `None` if that is uncertain.
    fn has(&self, path: &[u8]) -> Option<bool> {
        if path.is_empty() {
            return Some(true);
        }
        match self {
            Root::Open(dir) => has(dir, path),
            Root::Reopen(operand, identity) => {
                let dir = operand.directory()?;
                let facts = stat::stat_fd(&dir).ok()?;
                if (facts.dev, facts.ino) == *identity { has(&dir, path) } else { None }
            }
        }
    }
}

/// Returns true if `dir` has `path` beneath it, or `None` if the answer is uncertain. No directory
/// of `path` may be a symbolic link, because the entry at the link's target is another one.
fn has(dir: &OwnedFd, path: &[u8]) -> Option<bool> {
    let name = last_part(path);
    let above = path[..path.len() - name.len()].strip_suffix(b"/").unwrap_or_default();
    let found = open_place_beneath(dir, OsStr::from_bytes(above), Follow::No)
        .and_then(|place| stat::stat_at(&place, OsStr::from_bytes(name), Follow::No));
    match found {
        Ok(_) => Some(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
        Err(_) => None,
    }
}

/// Returns the directory that the paths of these sources are relative to, as typed. If there are
/// several, returns all of them.
pub(crate) fn directories(sources: &[OsString]) -> OsString {
    let (mut found, mut seen): (Vec<&[u8]>, HashSet<&[u8]>) = Default::default();
    for source in sources {
        let path = source.as_bytes();
        let dir = if means_contents(path) { path } else { &path[..path.len() - last_part(path).len()] };
        let dir = match dir {
            b"" => &b"."[..],
            b"/" => dir,
            _ => dir.strip_suffix(b"/").unwrap_or(dir),
        };
        if seen.insert(dir) {
            found.push(dir);
        }
    }
    OsString::from_vec(found.join(&b", "[..]))
}

/// Returns true if an operand means the contents of a directory: `dir/`, `.`, `dir/.`, `/`,
/// and `..`, which provides no name.
fn means_contents(operand: &[u8]) -> bool {
    operand.ends_with(b"/") || matches!(last_part(operand), b"." | b"..")
}

fn last_part(operand: &[u8]) -> &[u8] {
    operand.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}
