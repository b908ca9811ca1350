//! Walk over operands and over the files below directories, in the order of their names.

use super::order::{Order, Orders, Source, SumError, Task, Work};
use super::settings::Recipe;
use crate::descent::{Descent, Step, WalkEntry};
use haul_model::{ByteLen, ByteOffset};
use haul_storage::local::LocalStorage;
use haul_storage::{FileKind, Follow, Storage};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Source of operands: the command line, or a list that is being read.
pub trait Operands: Send {
    /// Returns the next operand; `None` at the end.
    fn next(&mut self) -> Option<Operand>;

    /// Returns true if [`Operands::next`] can return without waiting for an external process.
    fn ready(&self) -> bool {
        true
    }
}

/// Operand of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operand {
    /// File, or a part of it; `-` is the standard input.
    File {
        /// Path as it was given and as it is displayed.
        path: OsString,
        /// Offset of the first byte to hash.
        offset: ByteOffset,
        /// Maximum number of bytes to hash; `None` for the rest of the file.
        length: Option<ByteLen>,
    },
    /// Part of the list that names no file.
    Malformed {
        /// Position and reason, for the message.
        complaint: String,
    },
}

/// Identification of a result of a walk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WalkTag {
    /// Path of the file as it is displayed.
    File(OsString),
    /// Same as [`Operand::Malformed`].
    Malformed(String),
}

/// Orders of a walk over operands.
pub struct Walk<P> {
    operands: P,
    recipe: Arc<Recipe>,
    recurse: bool,
    /// Storage of the directories among the operands.
    storage: Box<dyn Storage>,
    /// Directories that are being read.
    descent: Descent,
    /// Range to hash of each file below them.
    range: (ByteOffset, Option<ByteLen>),
    stdin_taken: bool,
}

impl<P: Operands> Walk<P> {
    /// Creates a walk over `operands`, and below directories if `recurse` is true. Follows symbolic
    /// links among the operands, and skips links in directories. Files in directories that are not
    /// regular are skipped, too.
    pub fn new(operands: P, recipe: Arc<Recipe>, recurse: bool) -> Walk<P> {
        let range = (ByteOffset(0), None);
        let (storage, descent) = (Box::new(LocalStorage), Descent::default());
        Walk { operands, recipe, recurse, storage, descent, range, stdin_taken: false }
    }

    /// Sets the storage of the directories among the operands.
    pub fn on(self, storage: impl Storage + 'static) -> Walk<P> {
        Walk { storage: Box::new(storage), ..self }
    }

    fn file(
        &mut self,
        path: OsString,
        offset: ByteOffset,
        length: Option<ByteLen>,
    ) -> Option<Order<WalkTag>> {
        self.range = (offset, length);
        let source = if path == "-" {
            if std::mem::replace(&mut self.stdin_taken, true) { Source::StdinAgain } else { Source::Stdin }
        } else {
            if self.recurse
                && let Ok(dir) = self.storage.open(Path::new(&path), Follow::Yes)
            {
                return self.descent.begin(dir, &path).err().map(|error| failed(path, error));
            }
            Source::Path(path.clone())
        };
        Some(self.order(source, path))
    }

    /// Makes one step in the innermost directory; returns an order only for a file or a failure.
    fn step(&mut self) -> Option<Order<WalkTag>> {
        match self.descent.step() {
            Step::Entry(WalkEntry { dir, name, path, kind: FileKind::Regular, .. }) => {
                Some(self.order(Source::Beneath(dir, name), path))
            }
            Step::Failed(path, error) => Some(failed(path, error)),
            Step::Entry(..) | Step::Entered(..) | Step::Left(_) | Step::Nothing => None,
        }
    }

    fn order(&self, source: Source, path: OsString) -> Order<WalkTag> {
        let (offset, length) = self.range;
        let task = Task { source, recipe: Arc::clone(&self.recipe), offset, length };
        Order { ticket: WalkTag::File(path), work: Work::Hash(task) }
    }
}

fn failed(path: OsString, error: io::Error) -> Order<WalkTag> {
    Order { ticket: WalkTag::File(path), work: Work::Failed(SumError::List(error)) }
}

impl<P: Operands> Orders for Walk<P> {
    type Ticket = WalkTag;

    fn next(&mut self) -> Option<Order<WalkTag>> {
        loop {
            let order = if self.descent.is_over() {
                match self.operands.next()? {
                    Operand::File { path, offset, length } => self.file(path, offset, length),
                    Operand::Malformed { complaint } => {
                        Some(Order { ticket: WalkTag::Malformed(complaint), work: Work::Nothing })
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

/// Operands that are known from the start.
#[derive(Debug)]
pub struct Listed {
    paths: std::vec::IntoIter<OsString>,
    offset: ByteOffset,
    length: Option<ByteLen>,
}

impl Listed {
    /// Creates operands from paths, each with the same range of bytes.
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

impl WalkTag {
    /// Returns the path as it is displayed; empty for a malformed part of a list.
    pub fn path(&self) -> &OsStr {
        match self {
            WalkTag::File(path) => path,
            WalkTag::Malformed(_) => OsStr::from_bytes(b""),
        }
    }
}
