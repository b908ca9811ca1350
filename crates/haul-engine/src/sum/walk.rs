//! Operands, and the files below those that are directories, in the order of their names.

use super::order::{Order, Orders, Source, SumError, Task, Work};
use super::settings::Recipe;
use super::sorted_dir::{Name, SortedDir};
use haul_model::{ByteLen, ByteOffset};
use haul_sys::dir::{CWD, open_dir_at};
use haul_sys::{FileKind, Follow, stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// Where operands come from: the command line or a list being read.
pub trait Operands: Send {
    /// The next operand; `None` once there are no more.
    fn next(&mut self) -> Option<Operand>;

    /// Whether [`Operands::next`] can answer without waiting for someone outside.
    fn ready(&self) -> bool {
        true
    }
}

/// One operand.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// A file, or a part of it; `-` is the standard input.
    File {
        /// As it was given, and as it is shown.
        path: OsString,
        /// The first byte to hash.
        offset: ByteOffset,
        /// Most bytes to hash; `None` for all that follow.
        length: Option<ByteLen>,
    },
    /// A piece of the list that names no file.
    Malformed {
        /// Where and why, for the message.
        complaint: String,
    },
}

/// What a result of a walk is known by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Walked {
    /// The file's path as it is shown.
    File(OsString),
    /// [`Operand::Malformed`].
    Malformed(String),
}

/// The orders of a walk over operands.
pub struct Walk<P> {
    operands: P,
    recipe: Arc<Recipe>,
    recurse: bool,
    /// The directories being read, outermost first.
    levels: Vec<Level>,
    stdin_taken: bool,
}

struct Level {
    dir: SortedDir,
    /// The directory's path, with a slash at its end.
    path: Vec<u8>,
    offset: ByteOffset,
    length: Option<ByteLen>,
}

impl<P: Operands> Walk<P> {
    /// A walk over `operands`, and below them where `recurse` says so. Symbolic links among the operands are
    /// followed, those found in directories are left out, and so is what is no regular file.
    pub fn new(operands: P, recipe: Arc<Recipe>, recurse: bool) -> Walk<P> {
        Walk { operands, recipe, recurse, levels: Vec::new(), stdin_taken: false }
    }

    fn file(&mut self, path: OsString, offset: ByteOffset, length: Option<ByteLen>) -> Option<Order<Walked>> {
        let source = if path == "-" {
            if std::mem::replace(&mut self.stdin_taken, true) { Source::StdinAgain } else { Source::Stdin }
        } else {
            if self.recurse
                && let Ok(fd) = open_dir_at(CWD, path.as_os_str(), Follow::Yes)
            {
                return self.enter(fd, path, offset, length);
            }
            Source::Path(path.clone())
        };
        let task = Task { source, recipe: Arc::clone(&self.recipe), offset, length };
        Some(Order { ticket: Walked::File(path), work: Work::Hash(task) })
    }

    /// Goes down into a directory; an order comes back only if that failed.
    fn enter(
        &mut self,
        fd: std::os::fd::OwnedFd,
        path: OsString,
        offset: ByteOffset,
        length: Option<ByteLen>,
    ) -> Option<Order<Walked>> {
        match SortedDir::read(fd) {
            Ok(dir) => {
                let mut path = path.into_vec();
                if path.last() != Some(&b'/') {
                    path.push(b'/');
                }
                self.levels.push(Level { dir, path, offset, length });
                None
            }
            Err(error) => Some(failed(path, error)),
        }
    }

    /// One step in the innermost directory; an order only where it came upon a file or a failure.
    fn step(&mut self) -> Option<Order<Walked>> {
        let level = self.levels.last_mut()?;
        let entry = match level.dir.next() {
            Ok(Some(entry)) => entry,
            Ok(None) => {
                self.levels.pop();
                return None;
            }
            Err(error) => {
                let path = OsString::from_vec(std::mem::take(&mut level.path));
                self.levels.pop();
                return Some(failed(path, error));
            }
        };
        let (offset, length) = (level.offset, level.length);
        let path = level.child(entry.name.to_bytes());
        match level.kind_of(&entry) {
            Err(error) => Some(failed(path, error)),
            Ok(FileKind::Directory) => {
                let opened = open_dir_at(level.dir.fd(), entry.name.as_c_str(), Follow::No);
                match opened {
                    Ok(fd) => self.enter(fd, path, offset, length),
                    Err(error) => Some(failed(path, error)),
                }
            }
            Ok(FileKind::Regular) => {
                let source = Source::Beneath(Arc::clone(level.dir.fd()), entry.name);
                let task = Task { source, recipe: Arc::clone(&self.recipe), offset, length };
                Some(Order { ticket: Walked::File(path), work: Work::Hash(task) })
            }
            Ok(_) => None,
        }
    }
}

impl Level {
    fn child(&self, name: &[u8]) -> OsString {
        let mut path = Vec::with_capacity(self.path.len() + name.len());
        path.extend_from_slice(&self.path);
        path.extend_from_slice(name);
        OsString::from_vec(path)
    }

    fn kind_of(&self, entry: &Name) -> io::Result<FileKind> {
        match entry.kind_hint {
            Some(kind) => Ok(kind),
            None => Ok(stat::stat_at(self.dir.fd(), entry.name.as_c_str(), Follow::No)?.kind),
        }
    }
}

fn failed(path: OsString, error: io::Error) -> Order<Walked> {
    Order { ticket: Walked::File(path), work: Work::Failed(SumError::List(error)) }
}

impl<P: Operands> Orders for Walk<P> {
    type Ticket = Walked;

    fn next(&mut self) -> Option<Order<Walked>> {
        loop {
            let order = if self.levels.is_empty() {
                match self.operands.next()? {
                    Operand::File { path, offset, length } => self.file(path, offset, length),
                    Operand::Malformed { complaint } => {
                        Some(Order { ticket: Walked::Malformed(complaint), work: Work::Nothing })
                    }
                }
            } else {
                self.step()
            };
            if order.is_some() {
                return order;
            }
        }
    }

    fn ready(&self) -> bool {
        !self.levels.is_empty() || self.operands.ready()
    }
}

/// Operands that are all there.
#[derive(Debug)]
pub struct Listed {
    paths: std::vec::IntoIter<OsString>,
    offset: ByteOffset,
    length: Option<ByteLen>,
}

impl Listed {
    /// These paths, of each the same range of bytes.
    pub fn new(paths: Vec<OsString>, offset: ByteOffset, length: Option<ByteLen>) -> Listed {
        Listed { paths: paths.into_iter(), offset, length }
    }
}

impl Operands for Listed {
    fn next(&mut self) -> Option<Operand> {
        let path = self.paths.next()?;
        Some(Operand::File { path, offset: self.offset, length: self.length })
    }
}

impl Walked {
    /// The path as it is shown; empty for a malformed piece of a list.
    pub fn path(&self) -> &OsStr {
        match self {
            Walked::File(path) => path,
            Walked::Malformed(_) => OsStr::from_bytes(b""),
        }
    }
}
