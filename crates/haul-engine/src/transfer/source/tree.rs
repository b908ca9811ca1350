//! What is to be sent: the operands and all that lies beneath them, in the order of their names.

use super::filter::Filter;
use crate::descent::{Descent, Step};
use haul_sys::beneath::open_place_beneath;
use haul_sys::dir::{CWD, open_dir_at, open_place_at};
use haul_sys::{FileKind, Follow, Stat, stat};
use std::collections::{HashMap, HashSet};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Operands that stay open to look up names in them; of more than these each look opens them again.
const ROOTS_HELD_MAX: usize = 256;

/// A walk over what is to be sent.
#[derive(Debug)]
pub(crate) struct Tree {
    operands: std::vec::IntoIter<Operand>,
    filter: Filter,
    one_file_system: bool,
    descent: Descent,
    /// The device of the operand being walked.
    device: u64,
    /// What stands at the sink in place of the operand's path, with a slash at its end unless it is empty.
    prefix: Vec<u8>,
    /// How many bytes of the walk's paths the prefix stands for.
    cut: usize,
}

/// Where a walk begins. Nothing of it is open before its turn comes: there may be a million of them.
#[derive(Clone, Debug)]
pub(crate) struct Operand {
    /// As it was typed at this host, or clean beneath the root.
    path: OsString,
    /// What lies in it goes without it.
    contents_only: bool,
    /// What it lies beneath, if another host asked for it; no link leads out of that.
    root: Option<Arc<OwnedFd>>,
}

/// The operands whose names can be looked up again, by what their paths at the sink begin with: one part, or nothing.
#[derive(Debug, Default)]
pub(crate) struct Roots {
    by_prefix: HashMap<Vec<u8>, Vec<Root>>,
}

/// A directory that was an operand.
#[derive(Debug)]
enum Root {
    /// It was open from the beginning.
    Held(OwnedFd),
    /// It is opened again for each look, and looked into only if it is still the same.
    Again(Operand, (u64, u64)),
}

/// One name to send.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    /// Where it lies beneath the sink's root.
    pub(crate) path: Vec<u8>,
    /// As messages name it.
    pub(crate) shown: OsString,
    /// The directory it lies in; of a directory, itself.
    pub(crate) place: Arc<OwnedFd>,
    /// Its name there; `.` of a directory.
    pub(crate) name: CString,
    /// What it was when the walk met it.
    pub(crate) facts: Stat,
}

/// What one step came upon.
#[derive(Debug)]
pub(crate) enum Met {
    /// What is no directory.
    Item(Item),
    /// A directory; what lies in it follows.
    Enter(Item),
    /// All that lies in the directory entered last was met.
    Leave,
    /// A name that can't be looked at, or a directory that can't be read (to its end).
    Failed(OsString, io::Error),
}

impl Tree {
    /// A walk over `operands`. Symbolic links are met as links.
    pub(crate) fn new(operands: Vec<Operand>, filter: Filter, one_file_system: bool) -> Tree {
        Tree {
            operands: operands.into_iter(),
            filter,
            one_file_system,
            descent: Descent::new(),
            device: 0,
            prefix: Vec::new(),
            cut: 0,
        }
    }

    /// What the names of the operands lead to, for later questions.
    pub(crate) fn roots(&self) -> Roots {
        Roots::of(self.operands.as_slice())
    }

    /// Which names are left out.
    pub(crate) fn filter(&self) -> &Filter {
        &self.filter
    }

    /// The next thing met; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<Met> {
        loop {
            let met = if self.descent.is_over() {
                let operand = self.operands.next()?;
                let shown = operand.shown();
                self.begin(&operand).unwrap_or_else(|error| Some(Met::Failed(shown, error)))
            } else {
                self.step()
            };
            if met.is_some() {
                return met;
            }
        }
    }

    fn begin(&mut self, operand: &Operand) -> io::Result<Option<Met>> {
        let (place, name) = (operand.place()?, operand.name()?);
        let (base, shown) = (operand.base().to_vec(), operand.shown());
        let facts = stat::stat_at(&place, name.as_c_str(), Follow::No)?;
        self.device = facts.dev;
        if facts.kind != FileKind::Directory {
            return Ok(Some(Met::Item(Item { path: base, shown, place: Arc::new(place), name, facts })));
        }
        let fd = open_dir_at(&place, name.as_c_str(), Follow::No)?;
        let own = Arc::new(open_dir_at(&fd, c".", Follow::No)?);
        self.descent.begin(fd, &shown)?;
        self.cut = shown.len() + usize::from(!shown.as_bytes().ends_with(b"/"));
        self.prefix.clone_from(&base);
        if base.is_empty() {
            return Ok(None);
        }
        self.prefix.push(b'/');
        Ok(Some(Met::Enter(Item { path: base, shown, place: own, name: c".".to_owned(), facts })))
    }

    fn step(&mut self) -> Option<Met> {
        match self.descent.step() {
            Step::Nothing => None,
            Step::Failed(path, error) => Some(Met::Failed(path, error)),
            Step::Left(path) => {
                // What goes without its own name was never entered.
                (!self.path_of(&path).is_empty()).then_some(Met::Leave)
            }
            Step::Entered(place, shown) => self.entered(place, shown),
            Step::Entry(place, name, shown, kind) => {
                let path = self.path_of(&shown);
                if self.filter.leaves_out(&path, kind) {
                    return None;
                }
                Some(match stat::stat_at(&place, name.as_c_str(), Follow::No) {
                    Ok(facts) => Met::Item(Item { path, shown, place, name, facts }),
                    Err(error) => Met::Failed(shown, error),
                })
            }
        }
    }

    fn entered(&mut self, place: Arc<OwnedFd>, shown: OsString) -> Option<Met> {
        let mut path = self.path_of(&shown);
        path.pop();
        if self.filter.leaves_out(&path, FileKind::Directory) {
            self.descent.skip();
            return None;
        }
        match stat::stat_fd(&place) {
            Ok(facts) => {
                let item = Item { path, shown, place, name: c".".to_owned(), facts };
                if self.one_file_system && item.facts.dev != self.device {
                    self.descent.skip();
                    return Some(Met::Item(item));
                }
                Some(Met::Enter(item))
            }
            Err(error) => {
                self.descent.skip();
                Some(Met::Failed(shown, error))
            }
        }
    }

    fn path_of(&self, shown: &OsStr) -> Vec<u8> {
        let beneath = shown.as_bytes().get(self.cut..).unwrap_or_default();
        [&self.prefix[..], beneath].concat()
    }
}

impl Operand {
    /// What a path of this host names. With a slash at its end (or as `.`), what lies in the directory goes without it.
    pub(crate) fn local(path: &OsStr) -> Operand {
        Operand { path: path.to_owned(), contents_only: names_contents(path.as_bytes()), root: None }
    }

    /// What a clean path beneath `root` names (empty: the root itself); no link leads out. `contents_only`: what lies in the
    /// directory goes without it.
    pub(crate) fn beneath(root: &Arc<OwnedFd>, path: &[u8], contents_only: bool) -> Operand {
        let contents_only = contents_only || path.is_empty();
        Operand { path: OsStr::from_bytes(path).to_owned(), contents_only, root: Some(Arc::clone(root)) }
    }

    /// Whether there is a directory that it lies in.
    ///
    /// # Errors
    /// As [`Operand::place`].
    pub(crate) fn check(&self) -> io::Result<()> {
        self.place().map(drop)
    }

    /// The directory that it lies in, open to resolve names; itself, where its contents go without it.
    ///
    /// # Errors
    /// What openat(2) and openat2(2) report: `EXDEV` for a way out of the root.
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

    /// Its name in that directory.
    fn name(&self) -> io::Result<CString> {
        if self.contents_only { Ok(c".".to_owned()) } else { Ok(CString::new(self.base())?) }
    }

    /// Its path at the sink; empty where its contents go without it.
    fn base(&self) -> &[u8] {
        if self.contents_only { b"" } else { last_part(self.path.as_bytes()) }
    }

    /// As messages name it.
    fn shown(&self) -> OsString {
        if self.path.is_empty() { OsString::from(".") } else { self.path.clone() }
    }

    /// The operand as a directory whose names can be looked up again; `None` if it is none.
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
            let root = if held < ROOTS_HELD_MAX {
                held += 1;
                Root::Held(dir)
            } else {
                let Ok(facts) = stat::stat_fd(&dir) else { continue };
                Root::Again(operand.clone(), (facts.dev, facts.ino))
            };
            roots.by_prefix.entry(operand.base().to_vec()).or_default().push(root);
        }
        roots
    }

    /// Whether no operand has a path of the job any more. Only a clear answer of at least one of them is one, and none may
    /// have it.
    pub(crate) fn lack(&self, path: &[u8]) -> bool {
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
    /// Whether this directory has a path beneath it; `None` where that can't be told.
    fn has(&self, path: &[u8]) -> Option<bool> {
        if path.is_empty() {
            return Some(true);
        }
        match self {
            Root::Held(dir) => has(dir, path),
            Root::Again(operand, identity) => {
                let dir = operand.directory()?;
                let facts = stat::stat_fd(&dir).ok()?;
                if (facts.dev, facts.ino) == *identity { has(&dir, path) } else { None }
            }
        }
    }
}

/// Returns whether `dir` has `path` beneath it, or `None` if the answer is not certain: no directory of `path` may be a symbolic link,
/// because the entry at the link's target is another one.
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

/// The directory that the paths of these sources are relative to, as it was typed; where they lie in several, all of them.
pub(crate) fn directories(sources: &[OsString]) -> OsString {
    let (mut found, mut seen): (Vec<&[u8]>, HashSet<&[u8]>) = Default::default();
    for source in sources {
        let path = source.as_bytes();
        let dir = if names_contents(path) { path } else { &path[..path.len() - last_part(path).len()] };
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

/// Whether an operand stands for what lies in it: `dir/`, `.`, `dir/.`, `/`, and `..`, which has no name to go by.
fn names_contents(operand: &[u8]) -> bool {
    operand.ends_with(b"/") || matches!(last_part(operand), b"." | b"..")
}

fn last_part(operand: &[u8]) -> &[u8] {
    operand.rsplit(|&byte| byte == b'/').next().unwrap_or_default()
}
