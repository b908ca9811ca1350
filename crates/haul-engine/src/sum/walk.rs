//! Operands, and the files below those that are directories, in the order of their names.

use super::order::{Order, Orders, Source, SumError, Task, Work};
use super::settings::Recipe;
use crate::descent::{Descent, Step};
use haul_model::{ByteLen, ByteOffset};
use haul_sys::dir::{CWD, open_dir_at};
use haul_sys::{FileKind, Follow};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
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
    /// The directories being read.
    descent: Descent,
    /// What of each file beneath them is wanted.
    range: (ByteOffset, Option<ByteLen>),
    stdin_taken: bool,
}

impl<P: Operands> Walk<P> {
    /// A walk over `operands`, and below them where `recurse` says so. Symbolic links among the operands are
    /// followed, those found in directories are left out, and so is what is no regular file.
    pub fn new(operands: P, recipe: Arc<Recipe>, recurse: bool) -> Walk<P> {
        let range = (ByteOffset(0), None);
        Walk { operands, recipe, recurse, descent: Descent::new(), range, stdin_taken: false }
    }

    fn file(&mut self, path: OsString, offset: ByteOffset, length: Option<ByteLen>) -> Option<Order<Walked>> {
        self.range = (offset, length);
        let source = if path == "-" {
            if std::mem::replace(&mut self.stdin_taken, true) { Source::StdinAgain } else { Source::Stdin }
        } else {
            if self.recurse
                && let Ok(fd) = open_dir_at(CWD, path.as_os_str(), Follow::Yes)
            {
                return self.descent.begin(fd, &path).err().map(|error| failed(path, error));
            }
            Source::Path(path.clone())
        };
        Some(self.order(source, path))
    }

    /// One step in the innermost directory; an order only where it came upon a file or a failure.
    fn step(&mut self) -> Option<Order<Walked>> {
        match self.descent.step() {
            Step::Entry(directory, name, path, FileKind::Regular) => {
                Some(self.order(Source::Beneath(directory, name), path))
            }
            Step::Failed(path, error) => Some(failed(path, error)),
            Step::Entry(..) | Step::Entered(..) | Step::Left(_) | Step::Nothing => None,
        }
    }

    fn order(&self, source: Source, path: OsString) -> Order<Walked> {
        let (offset, length) = self.range;
        let task = Task { source, recipe: Arc::clone(&self.recipe), offset, length };
        Order { ticket: Walked::File(path), work: Work::Hash(task) }
    }
}

fn failed(path: OsString, error: io::Error) -> Order<Walked> {
    Order { ticket: Walked::File(path), work: Work::Failed(SumError::List(error)) }
}

impl<P: Operands> Orders for Walk<P> {
    type Ticket = Walked;

    fn next(&mut self) -> Option<Order<Walked>> {
        loop {
            let order = if self.descent.is_over() {
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
        !self.descent.is_over() || self.operands.ready()
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
