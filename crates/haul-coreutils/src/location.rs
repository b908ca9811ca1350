//! Names as cp and mv use them: of entries, and of operands, as typed.
//!
//! Entries are named by [`Name`]s in a [`Dir`]. An operand can have several components, end in
//! slashes, or be `.`, `..` or the root, and it can be relative to a working directory that this
//! user may not open. Each call passes such an operand to the kernel as a whole, so that it means
//! what it means to GNU's tools.

use crate::paths::split;
use haul_storage::local::{DirDescriptor, OpenedFiles, descriptor_of};
use haul_storage::{
    Create, Dir, FileKind, Follow, Inode, Listing, Missing, Name, Node, Remove, Replace, SinkFile,
    SourceFile, Stat,
};
use haul_sys::dir::open_dir_at;
use haul_sys::filesystem::FileSystem;
use haul_sys::metadata::{Place, set_mode_at};
use haul_sys::open::{self, RenameMode};
use haul_sys::{CWD, stat};
use std::borrow::Cow;
use std::ffi::{CString, OsStr, OsString};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::Arc;

/// A directory that names are relative to.
#[derive(Clone, Debug)]
pub(crate) enum Base {
    /// The working directory of the process.
    WorkingDirectory,
    /// An open directory.
    Dir(Arc<dyn Dir>),
}

/// Descriptor of a [`Base`], which stays open as long as this value exists.
#[derive(Debug)]
pub(crate) enum BaseDescriptor {
    WorkingDirectory,
    Dir(DirDescriptor),
}

/// Name of an entry, or path of an operand.
#[derive(Clone, Debug)]
pub(crate) enum EntryName {
    Name(Name),
    Path(OsString),
}

/// A name, and the directory that it is relative to.
#[derive(Clone, Debug)]
pub(crate) struct Location<'a> {
    /// `None` for the working directory.
    base: Option<&'a dyn Dir>,
    name: LocationName<'a>,
}

/// Name of a [`Location`].
#[derive(Clone, Debug)]
pub(crate) enum LocationName<'a> {
    Name(Cow<'a, Name>),
    Path(&'a OsStr),
}

impl Base {
    /// Returns the location of a name in this directory.
    pub(crate) fn at<'a>(&'a self, name: impl Into<LocationName<'a>>) -> Location<'a> {
        Location { base: self.dir(), name: name.into() }
    }

    /// Returns the directory, or `None` for the working directory.
    pub(crate) fn dir(&self) -> Option<&dyn Dir> {
        match self {
            Base::WorkingDirectory => None,
            Base::Dir(dir) => Some(&**dir),
        }
    }

    /// Returns the directory, for its metadata.
    ///
    /// # Errors
    /// Returns the errors of [`OpenedFiles::named_at`].
    pub(crate) fn inode(&self, storage: &OpenedFiles) -> io::Result<Arc<dyn Inode>> {
        match self {
            Base::WorkingDirectory => storage.named_at(None, OsStr::new(".")),
            Base::Dir(dir) => Ok(Arc::clone(dir) as Arc<dyn Inode>),
        }
    }
}

impl BaseDescriptor {
    fn of(base: Option<&dyn Dir>) -> io::Result<BaseDescriptor> {
        base.map_or(Ok(BaseDescriptor::WorkingDirectory), |dir| descriptor_of(dir).map(BaseDescriptor::Dir))
    }
}

impl AsFd for BaseDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            BaseDescriptor::WorkingDirectory => CWD,
            BaseDescriptor::Dir(dir) => dir.as_fd(),
        }
    }
}

impl From<OsString> for EntryName {
    fn from(name: OsString) -> EntryName {
        Name::try_from(&*name).map_or(EntryName::Path(name), EntryName::Name)
    }
}

impl Deref for EntryName {
    type Target = OsStr;

    fn deref(&self) -> &OsStr {
        match self {
            EntryName::Name(name) => name.as_os_str(),
            EntryName::Path(path) => path,
        }
    }
}

impl<'a> From<&'a EntryName> for LocationName<'a> {
    fn from(name: &'a EntryName) -> LocationName<'a> {
        match name {
            EntryName::Name(name) => LocationName::Name(Cow::Borrowed(name)),
            EntryName::Path(path) => LocationName::Path(path),
        }
    }
}

impl<'a> From<&'a Name> for LocationName<'a> {
    fn from(name: &'a Name) -> LocationName<'a> {
        LocationName::Name(Cow::Borrowed(name))
    }
}

impl<'a> From<&'a OsStr> for LocationName<'a> {
    fn from(name: &'a OsStr) -> LocationName<'a> {
        Name::try_from(name).map_or(LocationName::Path(name), |name| LocationName::Name(Cow::Owned(name)))
    }
}

impl<'a> From<&'a OsString> for LocationName<'a> {
    fn from(name: &'a OsString) -> LocationName<'a> {
        LocationName::from(&**name)
    }
}

impl<'a> Location<'a> {
    /// Returns the location of a name in a directory.
    pub(crate) fn within(dir: &'a dyn Dir, name: impl Into<LocationName<'a>>) -> Location<'a> {
        Location { base: Some(dir), name: name.into() }
    }

    /// Returns the location of a path that is relative to the working directory.
    pub(crate) fn here(path: &'a OsStr) -> Location<'a> {
        Location { base: None, name: LocationName::Path(path) }
    }

    /// Returns the location of another name that is relative to the same directory.
    pub(crate) fn beside<'b>(&self, name: &'b OsStr) -> Location<'b>
    where
        'a: 'b,
    {
        Location { base: self.base, name: name.into() }
    }

    /// Returns the name.
    pub(crate) fn name(&self) -> &OsStr {
        match &self.name {
            LocationName::Name(name) => name.as_os_str(),
            LocationName::Path(path) => path,
        }
    }

    /// Returns the descriptor of the directory.
    ///
    /// # Errors
    /// Returns the errors of opening the directory again.
    pub(crate) fn base(&self) -> io::Result<BaseDescriptor> {
        BaseDescriptor::of(self.base)
    }

    /// Returns the directory and the name of an entry, or `None` for an operand that only the
    /// kernel can resolve.
    fn entry(&self) -> Option<(&dyn Dir, &Name)> {
        match (self.base, &self.name) {
            (Some(dir), LocationName::Name(name)) => Some((dir, name)),
            _ => None,
        }
    }

    /// Returns true if the file system keeps owners and modes as they are given to it.
    pub(crate) fn keeps_as_given(&self) -> bool {
        self.base.map_or_else(
            || FileSystem::of(CWD).keeps_as_given(),
            |dir| dir.device().capabilities.keeps_as_given,
        )
    }

    /// Returns the metadata of the entry.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    pub(crate) fn stat(&self, follow: Follow) -> io::Result<Stat> {
        match self.entry() {
            Some((dir, name)) => dir.stat_at(name, follow),
            None => stat::stat_at(self.base()?, self.name(), follow),
        }
    }

    /// Returns true if the entry is a symbolic link.
    pub(crate) fn is_link(&self) -> bool {
        self.stat(Follow::No).is_ok_and(|found| found.kind == FileKind::Symlink)
    }

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Returns the errors of readlinkat(2).
    pub(crate) fn read_link(&self) -> io::Result<OsString> {
        match self.entry() {
            Some((dir, name)) => dir.read_link_at(name).map(OsString::from_vec),
            None => open::read_link_at(self.base()?, self.name()),
        }
    }

    /// Removes an entry that is not a directory.
    ///
    /// # Errors
    /// Returns the errors of unlinkat(2).
    pub(crate) fn unlink(&self) -> io::Result<()> {
        match self.entry() {
            Some((dir, name)) => dir.remove(name, Remove::File),
            None => open::unlink_at(self.base()?, self.name()),
        }
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Returns the errors of unlinkat(2).
    pub(crate) fn remove_directory(&self) -> io::Result<()> {
        match self.entry() {
            Some((dir, name)) => dir.remove(name, Remove::Directory),
            None => open::rmdir_at(self.base()?, self.name()),
        }
    }

    /// Renames the entry.
    ///
    /// # Errors
    /// Returns the errors of renameat2(2).
    pub(crate) fn rename(&self, to: &Location<'_>, replace: Replace) -> io::Result<()> {
        if let (Some((dir, name)), Some((to_dir, to_name))) = (self.entry(), to.entry()) {
            return dir.rename(name, to_dir, to_name, replace);
        }
        let mode = match replace {
            Replace::Yes => RenameMode::Replace,
            Replace::No => RenameMode::NoReplace,
        };
        self.rename_as(to, mode)
    }

    fn rename_as(&self, to: &Location<'_>, mode: RenameMode) -> io::Result<()> {
        let (from_base, to_base) = (self.base()?, to.base()?);
        open::rename_at(from_base, self.name(), to_base, to.name(), mode)
    }

    /// Exchanges two entries.
    ///
    /// # Errors
    /// Returns the errors of renameat2(2).
    pub(crate) fn exchange(&self, other: &Location<'_>) -> io::Result<()> {
        match (self.entry(), other.entry()) {
            (Some((dir, name)), Some((other_dir, other_name))) => dir.exchange(name, other_dir, other_name),
            _ => self.rename_as(other, RenameMode::Exchange),
        }
    }

    /// Gives the file another name. With [`Follow::Yes`], a symbolic link is followed.
    ///
    /// # Errors
    /// Returns the errors of linkat(2).
    pub(crate) fn link(&self, follow: Follow, to: &Location<'_>) -> io::Result<()> {
        if let (Some((dir, name)), Some((to_dir, to_name))) = (self.entry(), to.entry()) {
            return dir.link(name, follow, to_dir, to_name);
        }
        let (from_base, to_base) = (self.base()?, to.base()?);
        open::link_at(from_base, self.name(), to_base, to.name(), follow)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// Returns the errors of symlinkat(2).
    pub(crate) fn make_link(&self, target: &OsStr) -> io::Result<()> {
        match self.entry() {
            Some((dir, name)) => dir.make(name, &Node::Link { target: target.as_bytes() }),
            None => open::symlink_at(target, self.base()?, self.name()),
        }
    }

    /// Creates a pipe, a socket or a device.
    ///
    /// # Errors
    /// Returns the errors of mknodat(2).
    pub(crate) fn make_special(&self, kind: FileKind, mode: u32, rdev: u64) -> io::Result<()> {
        match self.entry() {
            Some((dir, name)) => dir.make(name, &Node::Special { kind, mode, rdev }),
            None => open::mknod_at(self.base()?, self.name(), kind, mode, rdev),
        }
    }

    /// Creates a directory. The umask applies to `mode`.
    ///
    /// # Errors
    /// Returns the errors of mkdirat(2).
    pub(crate) fn make_directory(&self, mode: u32) -> io::Result<()> {
        match self.entry() {
            Some((dir, name)) => dir.make(name, &Node::Directory { mode }),
            None => open::mkdir_at(self.base()?, self.name(), mode),
        }
    }

    /// Sets the mode of an entry that is not a symbolic link.
    ///
    /// # Errors
    /// Returns the errors of fchmodat2(2).
    pub(crate) fn set_mode(&self, mode: u32) -> io::Result<()> {
        match self.entry() {
            Some((dir, name)) => dir.named(name)?.set_mode(mode),
            None => set_mode_at(self.base()?, self.name(), mode),
        }
    }

    /// Opens a regular file for reading. Never waits for the other end of a pipe.
    ///
    /// # Errors
    /// Same as [`Dir::source`].
    pub(crate) fn source(&self, follow: Follow, storage: &OpenedFiles) -> io::Result<Arc<dyn SourceFile>> {
        match self.entry() {
            Some((dir, name)) => dir.source(name, follow),
            None => storage.source_at(self.base, self.name(), follow),
        }
    }

    /// Opens or creates a regular file for writing, under its final name.
    ///
    /// # Errors
    /// Same as [`Dir::sink`].
    pub(crate) fn sink(&self, create: Create, storage: &OpenedFiles) -> io::Result<Arc<dyn SinkFile>> {
        match self.entry() {
            Some((dir, name)) => dir.sink(name, create),
            None => storage.sink_at(self.base, self.name(), create),
        }
    }

    /// Returns the entry, whose metadata is read and set by its name. A link is not followed.
    ///
    /// # Errors
    /// Same as [`Dir::named`].
    pub(crate) fn named(&self, storage: &OpenedFiles) -> io::Result<Arc<dyn Inode>> {
        match self.entry() {
            Some((dir, name)) => dir.named(name),
            None => storage.named_at(self.base, self.name()),
        }
    }

    /// Holds the device of the directory for its syncs.
    ///
    /// # Errors
    /// Same as [`Dir::hold_device`].
    pub(crate) fn hold_device(&self, storage: &OpenedFiles) -> io::Result<Arc<dyn Inode>> {
        self.base.map_or_else(|| storage.hold_device_here(), Dir::hold_device)
    }

    /// Starts to list the entries of the directory that contains the last component.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(crate) fn list_around(&self) -> io::Result<Box<dyn Listing>> {
        if let Some((dir, _)) = self.entry() {
            return dir.list();
        }
        let (place, _) = split(self.name().as_bytes());
        let place = open_dir_at(self.base()?, OsStr::from_bytes(place), Follow::Yes)?;
        OpenedFiles::default().dir(place, true)?.list()
    }

    /// Opens the directory of this name. A directory that `storage` closes meanwhile is opened
    /// again by this name.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(crate) fn dir(&self, follow: Follow, storage: &OpenedFiles) -> io::Result<Arc<dyn Dir>> {
        match (self.entry(), self.base) {
            (Some((dir, name)), _) => dir.dir(name, follow, Missing::Fail),
            (None, Some(dir)) => storage.dir_at(dir, self.name(), follow),
            (None, None) => storage.dir_here(self.name(), follow),
        }
    }

    /// Calls `act` with the entry, for its security context. A symbolic link is not followed.
    ///
    /// # Errors
    /// Returns the errors of opening the directory again, and those of `act`.
    pub(crate) fn with_place<T, E>(
        &self,
        failed: impl FnOnce(io::Error) -> E,
        act: impl FnOnce(Place<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let base = self.base().map_err(failed)?;
        // Names come from the kernel or the command line, which end them at the first NUL.
        let name = CString::new(self.name().as_bytes()).unwrap_or_default();
        act(Place::Name(base.as_fd(), &name))
    }
}
