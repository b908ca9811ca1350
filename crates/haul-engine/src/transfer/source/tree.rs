//! What is to be sent: the operands and all that lies beneath them, in the order of their names.

use super::filter::Filter;
use crate::descent::{Descent, Step};
use haul_sys::beneath::open_place_beneath;
use haul_sys::dir::{CWD, open_dir_at, open_place_at};
use haul_sys::{FileKind, Follow, Stat, stat};
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

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

/// Where a walk begins.
#[derive(Debug)]
pub(crate) struct Operand {
    /// The directory that it lies in, open to resolve names.
    place: OwnedFd,
    /// Its name there.
    name: CString,
    /// Its path at the sink; empty where its contents go without it.
    base: Vec<u8>,
    /// As messages name it.
    shown: OsString,
}

/// An operand whose names can be looked up again.
#[derive(Debug)]
pub(crate) struct Root {
    prefix: Vec<u8>,
    dir: OwnedFd,
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
    pub(crate) fn roots(&self) -> Vec<Root> {
        self.operands.as_slice().iter().filter_map(Operand::root).collect()
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
                let shown = operand.shown.clone();
                self.begin(operand).unwrap_or_else(|error| Some(Met::Failed(shown, error)))
            } else {
                self.step()
            };
            if met.is_some() {
                return met;
            }
        }
    }

    fn begin(&mut self, operand: Operand) -> io::Result<Option<Met>> {
        let Operand { place, name, base, shown } = operand;
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
    ///
    /// # Errors
    /// The directory that it lies in can't be opened.
    pub(crate) fn local(path: &OsStr) -> io::Result<Operand> {
        let shown = path.to_owned();
        if names_contents(path.as_bytes()) {
            let place = open_place_at(CWD, path, Follow::Yes)?;
            return Ok(Operand { place, name: c".".to_owned(), base: Vec::new(), shown });
        }
        let base = last_part(path.as_bytes());
        let dir = &path.as_bytes()[..path.len() - base.len()];
        let dir = if dir.is_empty() { OsStr::new(".") } else { OsStr::from_bytes(dir) };
        let place = open_place_at(CWD, dir, Follow::Yes)?;
        Ok(Operand { place, name: CString::new(base)?, base: base.to_vec(), shown })
    }

    /// What a clean path beneath `root` names (empty: the root itself); no link leads out. `contents_only`: what lies in the
    /// directory goes without it.
    ///
    /// # Errors
    /// What openat2(2) reports: `EXDEV` for a way out.
    pub(crate) fn beneath(root: &OwnedFd, path: &[u8], contents_only: bool) -> io::Result<Operand> {
        let shown = if path.is_empty() { OsString::from(".") } else { OsString::from_vec(path.to_vec()) };
        if contents_only || path.is_empty() {
            let place = open_place_beneath(root, OsStr::from_bytes(path))?;
            return Ok(Operand { place, name: c".".to_owned(), base: Vec::new(), shown });
        }
        let base = last_part(path);
        let dir = path[..path.len() - base.len()].strip_suffix(b"/").unwrap_or_default();
        let place = open_place_beneath(root, OsStr::from_bytes(dir))?;
        Ok(Operand { place, name: CString::new(base)?, base: base.to_vec(), shown })
    }

    /// The operand as a directory whose names can be looked up again; `None` if it is none.
    pub(crate) fn root(&self) -> Option<Root> {
        let dir = open_place_at(&self.place, self.name.as_c_str(), Follow::No).ok()?;
        Some(Root { prefix: self.base.clone(), dir })
    }
}

impl Root {
    /// Whether the source has a path of the job; `None` where it is not beneath this root, or that can't be told.
    pub(crate) fn has(&self, path: &[u8]) -> Option<bool> {
        let rest = if self.prefix.is_empty() {
            path
        } else {
            match path.strip_prefix(self.prefix.as_slice())? {
                b"" => return Some(true),
                rest => rest.strip_prefix(b"/")?,
            }
        };
        let name = last_part(rest);
        let above = rest[..rest.len() - name.len()].strip_suffix(b"/").unwrap_or_default();
        let found = open_place_beneath(&self.dir, OsStr::from_bytes(above))
            .and_then(|place| stat::stat_at(&place, OsStr::from_bytes(name), Follow::No));
        match found {
            Ok(_) => Some(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(false),
            Err(_) => None,
        }
    }
}

/// The directory that the paths of these sources are relative to, as it was typed; where they lie in several, all of them.
pub(crate) fn directories(sources: &[OsString]) -> OsString {
    let mut found: Vec<&[u8]> = Vec::new();
    for source in sources {
        let path = source.as_bytes();
        let dir = if names_contents(path) { path } else { &path[..path.len() - last_part(path).len()] };
        let dir = match dir {
            b"" => &b"."[..],
            b"/" => dir,
            _ => dir.strip_suffix(b"/").unwrap_or(dir),
        };
        if !found.contains(&dir) {
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
