//! Place of a directory in its tree, by which it is opened again if the cache closed it.

use super::device::{Devices, LocalDevice};
use super::dir_cache::{DirCache, DirSlot, OpenDir};
use super::dir_fd::DirFd;
use super::name_folding::{NameAt, NameFolding, check_trailing_dots};
use crate::storage::{Remove, Replace};
use haul_sys::dir::is_same_file;
use haul_sys::open::{RenameMode, rename_at, rmdir_at, unlink_at};
use haul_sys::{CWD, Follow, Stat};
use parking_lot::Mutex;
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};

/// Cache and file systems of the directories beneath one root.
#[derive(Debug)]
pub(super) struct LocalTree {
    cache: &'static DirCache,
    /// File systems, the one of the root first.
    pub(super) devices: Devices,
    spelling: Spelling,
}

/// Treatment of a new name that the file system would change or take for another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spelling {
    /// It fails.
    Checked,
    /// The file system decides, as for other programs.
    AsGiven,
}

impl LocalTree {
    /// Creates a tree without directories.
    pub(super) fn new(cache: &'static DirCache, spelling: Spelling) -> LocalTree {
        LocalTree { cache, devices: Devices::default(), spelling }
    }
}

/// Place of a directory in its tree.
#[derive(Debug)]
pub(super) struct DirPlace {
    tree: Arc<LocalTree>,
    /// `None` for a root.
    parent: Option<Arc<DirPlace>>,
    /// Path from the parent.
    path: CString,
    links: PathLinks,
    /// Metadata from when the directory was opened first.
    opened: Stat,
    device: Arc<LocalDevice>,
    slot: Arc<DirSlot>,
    /// The directory beneath that was opened last.
    below: Mutex<Weak<DirPlace>>,
}

/// Links that are followed on the path of a directory from its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PathLinks {
    /// The path is one name, which may be a link to any place if it is followed.
    Name(Follow),
    /// The path consists of several names. Links in it that are followed stay beneath the parent.
    Beneath(Follow),
    /// The path is any path. Links in it are followed, except in the last name if this says so.
    Anywhere(Follow),
}

impl DirPlace {
    /// Opens the root of a tree, which stays open.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(super) fn root(path: CString, follow: Follow, cache: &'static DirCache) -> io::Result<Arc<DirPlace>> {
        let dir = DirFd::open(CWD, &path, follow)?;
        Ok(DirPlace::root_of(Arc::new(LocalTree::new(cache, Spelling::Checked)), dir, path, follow))
    }

    /// Returns a directory that is open already and stays open.
    pub(super) fn root_of(tree: Arc<LocalTree>, dir: DirFd, path: CString, follow: Follow) -> Arc<DirPlace> {
        let device = tree.devices.of(dir.opened.dev, &dir.fd);
        Arc::new(DirPlace {
            tree,
            parent: None,
            path,
            links: PathLinks::Name(follow),
            opened: dir.opened,
            device,
            slot: DirSlot::root(dir),
            below: Mutex::default(),
        })
    }

    /// Opens the directory at a path that is absolute or begins at the working directory. The cache
    /// may close it meanwhile.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    pub(super) fn here(tree: Arc<LocalTree>, path: CString, follow: Follow) -> io::Result<Arc<DirPlace>> {
        let dir = DirFd::open(CWD, &path, follow)?;
        let slot = DirSlot::closed();
        let place = Arc::new(DirPlace {
            parent: None,
            path,
            links: PathLinks::Anywhere(follow),
            opened: dir.opened,
            device: tree.devices.of(dir.opened.dev, &dir.fd),
            slot: Arc::clone(&slot),
            below: Mutex::default(),
            tree,
        });
        place.tree.cache.admit(&slot, dir);
        Ok(place)
    }

    /// Returns the place of a directory beneath this one that was just opened.
    pub(super) fn enter(self: &Arc<Self>, path: CString, links: PathLinks, dir: DirFd) -> Arc<DirPlace> {
        let slot = DirSlot::closed();
        let place = Arc::new(DirPlace {
            tree: Arc::clone(&self.tree),
            parent: Some(Arc::clone(self)),
            path,
            links,
            opened: dir.opened,
            device: self.device_of(dir.opened.dev, &dir.fd),
            slot: Arc::clone(&slot),
            below: Mutex::default(),
        });
        if let PathLinks::Name(_) = links {
            *self.below.lock() = Arc::downgrade(&place);
        }
        self.tree.cache.admit(&slot, dir);
        place
    }

    /// Opens the directory at `path` beneath this one.
    ///
    /// # Errors
    /// Returns the errors of openat(2) and openat2(2).
    pub(super) fn open_beneath(&self, path: &CStr, links: PathLinks) -> io::Result<DirFd> {
        open_at(&*self.open()?, path, links)
    }

    /// Returns the open directory, which stays open as long as the result exists.
    ///
    /// A closed directory is opened by `..` from the directory beneath that was opened last, or by
    /// its path from the nearest open directory above.
    ///
    /// # Errors
    /// Returns the errors of openat(2) for a directory that has to be opened again, and `NotFound`
    /// if another directory has its place now. Where names are taken as given, both are
    /// `StaleNetworkFileHandle` if the directory is gone ([`cause_of_loss`](super::cause_of_loss)).
    pub(super) fn open(&self) -> io::Result<Arc<OpenDir>> {
        self.open_unmarked().inspect(|open| {
            open.mark_used();
        })
    }

    /// Same as [`DirPlace::open`], but does not record the use of the descriptor.
    pub(super) fn open_unmarked(&self) -> io::Result<Arc<OpenDir>> {
        if let Some(open) = self.held().or_else(|| self.reopen_from_below()) {
            return Ok(open);
        }
        let mut closed = vec![self];
        let mut above = None;
        while let (None, Some(parent)) = (&above, closed.last().and_then(|last| last.parent.as_deref())) {
            above = parent.held();
            if above.is_none() {
                closed.push(parent);
            }
        }
        let mut above = match above {
            Some(above) => above,
            // Other roots are never closed.
            None => closed.pop().ok_or(io::ErrorKind::NotFound)?.reopen_from(CWD)?,
        };
        for place in closed.into_iter().rev() {
            above = match place.held() {
                Some(open) => open,
                None => place.reopen_from(&*above)?,
            };
        }
        Ok(above)
    }

    fn held(&self) -> Option<Arc<OpenDir>> {
        self.tree.cache.held(&self.slot)
    }

    /// Opens a closed directory by its path from its parent, or from the working directory.
    fn reopen_from(&self, above: impl AsFd) -> io::Result<Arc<OpenDir>> {
        let dir = open_at(above, &self.path, self.links).map_err(|error| self.gone(error))?;
        if self.is(&dir)? {
            return Ok(self.tree.cache.admit(&self.slot, dir));
        }
        let text = "another directory has its place now";
        match self.tree.spelling {
            Spelling::Checked => Err(io::Error::new(io::ErrorKind::NotFound, text)),
            Spelling::AsGiven => Err(io::Error::new(io::ErrorKind::StaleNetworkFileHandle, text)),
        }
    }

    /// Returns the error of a directory that has no place anymore. Where names are taken as given,
    /// callers must not take it for the absence of an entry in the directory.
    fn gone(&self, error: io::Error) -> io::Error {
        let is_gone = matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        match self.tree.spelling {
            Spelling::AsGiven if is_gone => io::Error::new(io::ErrorKind::StaleNetworkFileHandle, error),
            _ => error,
        }
    }

    /// Returns true if an open directory is the one that was opened first.
    fn is(&self, dir: &DirFd) -> io::Result<bool> {
        Ok(dir.opened.is_same_file(&self.opened) || is_same_file(&dir.fd, &self.opened)?)
    }

    /// Opens a closed directory by `..`, in one step. Returns `None` if that leads to another
    /// directory.
    fn reopen_from_below(&self) -> Option<Arc<OpenDir>> {
        let below = self.below.lock().upgrade()?.held()?;
        let dir = DirFd::open(&*below, c"..", Follow::No).ok()?;
        self.is(&dir).ok()?.then(|| self.tree.cache.admit(&self.slot, dir))
    }

    /// Opens the directory if the cache closed it. The directory above is then opened from here.
    ///
    /// # Errors
    /// Same as [`DirPlace::open`].
    pub(super) fn reach(self: &Arc<Self>) -> io::Result<Arc<OpenDir>> {
        let open = self.open_unmarked()?;
        if let (Some(parent), PathLinks::Name(_)) = (&self.parent, self.links) {
            *parent.below.lock() = Arc::downgrade(self);
        }
        Ok(open)
    }

    /// Creates the entry `name` by `make`, which fails if the name exists. Unless names are taken
    /// as given, removes the entry and fails if the file system does not keep the name.
    ///
    /// # Errors
    /// Returns the error of `make`, and `InvalidFilename` if the name is not kept.
    pub(super) fn create_name<T>(
        &self,
        (place, name): NameAt<'_>,
        what: Remove,
        make: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        self.create_beside_others(name, || {
            let made = make()?;
            self.keep_name((place, name), what)?;
            Ok(made)
        })
    }

    /// Creates the entry `name` by `make`, as [`NameFolding::create_name`] does.
    pub(super) fn create_beside_others<T>(&self, name: &CStr, make: impl FnOnce() -> T) -> T {
        match self.tree.spelling {
            Spelling::Checked => self.name_folding().create_name(name, make),
            Spelling::AsGiven => make(),
        }
    }

    /// Checks that the file system keeps the name of an entry that was just made. Removes the entry
    /// otherwise.
    ///
    /// # Errors
    /// Same as [`check_trailing_dots`].
    pub(super) fn keep_name(&self, (place, name): NameAt<'_>, what: Remove) -> io::Result<()> {
        if self.tree.spelling == Spelling::AsGiven {
            return Ok(());
        }
        check_trailing_dots(place, name).inspect_err(|_| {
            // Ignore an error: the caller reports that the name is not kept.
            let _ = match what {
                Remove::File => unlink_at(place, name),
                Remove::Directory => rmdir_at(place, name),
            };
        })
    }

    /// Renames the entry `from` of another directory to `to` in this one.
    ///
    /// # Errors
    /// Same as [`NameFolding::rename`].
    pub(super) fn rename_here(&self, from: NameAt<'_>, to: NameAt<'_>, replace: Replace) -> io::Result<()> {
        let mode = match replace {
            Replace::Yes => RenameMode::Replace,
            Replace::No => RenameMode::NoReplace,
        };
        match self.tree.spelling {
            Spelling::Checked => self.name_folding().rename(from, to, replace),
            Spelling::AsGiven => rename_at(from.0, from.1, to.0, to.1, mode),
        }
    }

    /// Checks that no entry has another spelling of `name`, unless names are taken as given.
    ///
    /// # Errors
    /// Same as [`NameFolding::check_no_clash`].
    pub(super) fn check_no_clash(&self, (place, name): NameAt<'_>) -> io::Result<()> {
        match self.tree.spelling {
            Spelling::Checked => self.name_folding().check_no_clash(place, name),
            Spelling::AsGiven => Ok(()),
        }
    }

    fn name_folding(&self) -> &NameFolding {
        &self.device.name_folding
    }

    /// Returns the metadata from when the directory was opened first.
    pub(super) fn opened(&self) -> &Stat {
        &self.opened
    }

    /// Returns the file system of this directory.
    pub(super) fn device(&self) -> &Arc<LocalDevice> {
        &self.device
    }

    /// Returns the file system with the number `id`, which the open file `fd` is on.
    pub(super) fn device_of(&self, id: u64, fd: &OwnedFd) -> Arc<LocalDevice> {
        if self.device.device.id == id {
            return Arc::clone(&self.device);
        }
        self.tree.devices.of(id, fd)
    }

    /// Returns the directory above, if it is on the same file system.
    pub(super) fn above(&self) -> Option<&DirPlace> {
        self.parent.as_deref().filter(|above| above.device.device.id == self.device.device.id)
    }
}

impl Drop for DirPlace {
    /// Drops the directories above one by one: in a deep tree, recursion would use up the stack.
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(place) = above {
            above = Arc::into_inner(place).and_then(|mut place| place.parent.take());
        }
    }
}

fn open_at(above: impl AsFd, path: &CStr, links: PathLinks) -> io::Result<DirFd> {
    match links {
        PathLinks::Name(follow) | PathLinks::Anywhere(follow) => DirFd::open(above, path, follow),
        PathLinks::Beneath(follow) => DirFd::open_beneath(above, path, follow),
    }
}
