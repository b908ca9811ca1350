//! Directories and files of a storage, as traits.
//!
//! The local file system and [`MemoryStorage`](crate::memory::MemoryStorage) implement them and
//! pass the same conformance suite. No method returns a descriptor or a path.
//!
//! # Errors
//! An error has the `errno` of the system call that a local file system would have used, also in a
//! storage that uses no system calls. All methods can return `EIO`. Where the documentation names
//! an [`io::ErrorKind`], callers match the kind.

use crate::device::Device;
use crate::metadata::{Metadata, Part, Unset};
use crate::name::{Name, Tag};
use crate::version::{Change, Version};
use haul_model::{ByteRange, RelPath};
use haul_sys::cache::{Advice, Residency};
use haul_sys::direct::Alignment;
use haul_sys::filesystem::Space;
use haul_sys::metadata::Times;
use haul_sys::place::Place;
use haul_sys::{FileKind, Follow, Stat};
use std::any::Any;
use std::collections::BinaryHeap;
use std::ffi::{CStr, CString};
use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Attribute with an access control list of NFSv4 (RFC 8881, section 6).
const NFS4_ACL: &CStr = c"system.nfs4_acl";

/// A storage whose directories have paths.
pub trait Storage: Debug + Send + Sync {
    /// Opens a directory, which stays open until it is dropped. A path that is not absolute begins
    /// at the working directory, if the storage has one, and otherwise at the root. One without
    /// read permission, or that the device cannot read, is opened only to resolve names in it.
    ///
    /// # Errors
    /// Returns the errors of [`Dir::dir`].
    fn open(&self, path: &Path, follow: Follow) -> io::Result<Arc<dyn Dir>>;
}

/// Number of names that `names_behind` of a [`Listing`] reads at once.
const LISTED_AT_ONCE: usize = 1024;

/// Unit of [`Stat::blocks`], in bytes.
const STAT_BLOCK_BYTES: u64 = 512;

/// Number of bytes that `read_all` of a [`SourceFile`] reads at once.
const READ_AT_ONCE: usize = 64 << 10;

/// An inode of any kind that is held: it stays the same when its name leads to another inode.
pub trait Inode: Any + Debug + Send + Sync {
    /// Returns the metadata of the inode now.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    fn stat(&self) -> io::Result<Stat>;

    /// Returns the user whose calls these are: new entries belong to it, unless a server maps it to
    /// another one.
    fn user(&self) -> u32;

    /// Returns the device of the inode.
    fn device(&self) -> &Device;

    /// Makes everything written to the device durable, files and names. A file whose bytes got lost
    /// before or during this call reports that by [`SinkFile::check`] alone, and only where
    /// [`Capabilities::syncs_as_a_whole`](crate::Capabilities::syncs_as_a_whole) is true.
    ///
    /// # Errors
    /// Returns the errors of syncfs(2): `EBADF` for an inode that [`Dir::hold`] returned.
    fn sync_device(&self) -> io::Result<()>;

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::InvalidInput`] for an inode of another kind.
    fn read_link(&self) -> io::Result<Vec<u8>>;

    /// Returns the names of the extended attributes that this user can see, access control lists
    /// included, in any order. A storage without attributes returns none.
    ///
    /// # Errors
    /// Returns the errors of listxattr(2), except `EOPNOTSUPP`.
    fn attributes(&self) -> io::Result<Vec<CString>>;

    /// Returns the value of an extended attribute, or `None` if the inode lacks it or the storage
    /// has no attributes.
    ///
    /// # Errors
    /// Returns the errors of getxattr(2), except `ENODATA` and `EOPNOTSUPP`.
    fn attribute(&self, name: &CStr) -> io::Result<Option<Vec<u8>>>;

    /// Sets an extended attribute, or an access control list by its attribute.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::Unsupported`] if the storage has no such attributes,
    /// [`io::ErrorKind::PermissionDenied`] if this user may not set it, and `ENOSPC`, `E2BIG` or
    /// `ERANGE` if the value does not fit.
    fn set_attribute(&self, name: &CStr, value: &[u8]) -> io::Result<()>;

    /// Removes an extended attribute. Returns false if the inode lacks it, or the storage has no
    /// such attributes.
    ///
    /// # Errors
    /// Returns the errors of removexattr(2), except `ENODATA` and `EOPNOTSUPP`.
    fn remove_attribute(&self, name: &CStr) -> io::Result<bool>;

    /// Sets user and group; `None` leaves one unchanged. The storage may clear setuid and setgid,
    /// so set the mode afterwards.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::PermissionDenied`] if this user may not set the owner.
    fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> io::Result<()>;

    /// Sets all bits of `0o7777` of the mode, regardless of the umask.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::Unsupported`] for a symbolic link, which has no mode of its own,
    /// and [`io::ErrorKind::PermissionDenied`] if this user does not own the inode.
    fn set_mode(&self, mode: u32) -> io::Result<()>;

    /// Sets the times. Every other change of the inode changes the modification time or the change
    /// time, so set the times last; for a file that is written, use [`SinkFile::finish`].
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::PermissionDenied`] if this user does not own the inode.
    fn set_times(&self, times: Times) -> io::Result<()>;

    /// Sets what `metadata` contains, in this order: owner, attributes, mode, access control list
    /// of NFSv4, times. Every change of the mode would change such a list.
    ///
    /// # Errors
    /// Returns the first part that could not be set. The parts after it are unchanged.
    fn set_metadata(&self, metadata: &Metadata<'_>) -> Result<(), Unset> {
        if metadata.user.is_some() || metadata.group.is_some() {
            self.set_owner(metadata.user, metadata.group).map_err(Unset::of(Part::Owner))?;
        }
        let set = |(name, value): &(CString, Vec<u8>)| {
            let failed = |error| Unset { part: Part::Attribute(name.clone()), error };
            self.set_attribute(name, value).map_err(failed)
        };
        let is_last = |attribute: &&(CString, Vec<u8>)| attribute.0.as_c_str() == NFS4_ACL;
        metadata.attributes.iter().filter(|attribute| !is_last(attribute)).try_for_each(set)?;
        if let Some(mode) = metadata.mode {
            self.set_mode(mode).map_err(Unset::of(Part::Mode))?;
        }
        metadata.attributes.iter().filter(is_last).try_for_each(set)?;
        if metadata.times == Times::default() {
            return Ok(());
        }
        self.set_times(metadata.times).map_err(Unset::of(Part::Times))
    }
}

/// An open directory, to which names are relative. It stays the same when its path leads elsewhere.
///
/// Methods that create an entry or open one for writing fail with
/// [`io::ErrorKind::AlreadyExists`] if the entry exists in another spelling (`a` and `A` on vfat),
/// and with [`io::ErrorKind::InvalidFilename`] if the storage would change the name or cannot store
/// it, except in directories of [`OpenedFiles`](crate::local::OpenedFiles). Methods that take
/// another directory fail with [`io::ErrorKind::CrossesDevices`] if it is on another device, and
/// with [`io::ErrorKind::InvalidInput`] if it belongs to another kind of storage.
pub trait Dir: Inode {
    /// Returns the metadata from when the directory was opened, if the storage kept it, and
    /// otherwise that of now.
    ///
    /// # Errors
    /// Returns the errors of [`Inode::stat`].
    fn opened(&self) -> io::Result<Stat> {
        self.stat()
    }

    /// Opens the directory again if the storage has closed it. It stays open as long as the result
    /// exists, for a caller that has several calls to make: no call can then fail for that reason.
    /// Succeeds in a storage that closes no directories.
    ///
    /// # Errors
    /// Returns an error without `errno` of the kind [`io::ErrorKind::NotFound`] if another
    /// directory has its place now, and otherwise the errors of [`Dir::dir`]. Directories of
    /// [`OpenedFiles`](crate::local::OpenedFiles) have errors of their own
    /// ([`cause_of_loss`](crate::local::cause_of_loss)), which all methods return.
    fn reach(&self) -> io::Result<Reached> {
        Ok(Reached::default())
    }

    /// Returns true if this is the directory that `then` describes, by device, inode number and
    /// time of birth.
    ///
    /// # Errors
    /// Returns the errors of [`Inode::stat`].
    fn is_same(&self, then: &Stat) -> io::Result<bool> {
        Ok(self.opened()?.is_same_file(then))
    }

    /// Starts to list the entries, from the first one.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::PermissionDenied`] if this user may not read the directory.
    fn list(&self) -> io::Result<Box<dyn Listing>>;

    /// Returns the metadata of an entry. With [`Follow::Yes`], follows a symbolic link, also one
    /// that leads out of this directory.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotFound`] if there is no such entry, and `ELOOP` if links lead in
    /// a circle.
    fn stat_at(&self, name: &Name, follow: Follow) -> io::Result<Stat>;

    /// Returns the target of a symbolic link.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotFound`] if there is no such entry, and
    /// [`io::ErrorKind::InvalidInput`] for an entry of another kind.
    fn read_link_at(&self, name: &Name) -> io::Result<Vec<u8>> {
        self.hold(name)?.read_link()
    }

    /// Holds an entry of any kind to read and set its metadata. Follows no link, and opens neither
    /// a device nor a pipe.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotFound`] if there is no such entry.
    fn hold(&self, name: &Name) -> io::Result<Arc<dyn Inode>>;

    /// Returns an entry of any kind to read and set its metadata. A local file system reaches it by
    /// its name at each call, which saves the calls that hold it: after a replacement, the calls
    /// reach the new entry. Follows no link.
    ///
    /// # Errors
    /// Same as [`Dir::hold`], from this call or from the later ones.
    fn named(&self, name: &Name) -> io::Result<Arc<dyn Inode>> {
        self.hold(name)
    }

    /// Holds the device for [`Inode::sync_device`], which then reports each write-back that failed
    /// since this call.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::PermissionDenied`] if this user may not read the directory.
    fn hold_device(&self) -> io::Result<Arc<dyn Inode>>;

    /// Returns the names of the extended attributes of an entry, as [`Inode::attributes`] does. A
    /// symbolic link is not followed.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotFound`] if there is no such entry, and otherwise the errors of
    /// [`Inode::attributes`].
    fn attributes_at(&self, name: &Name) -> io::Result<Vec<CString>> {
        self.hold(name)?.attributes()
    }

    /// Returns the value of an extended attribute of an entry, as [`Inode::attribute`] does. A
    /// symbolic link is not followed.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotFound`] if there is no such entry, and otherwise the errors of
    /// [`Inode::attribute`].
    fn attribute_at(&self, name: &Name, attribute: &CStr) -> io::Result<Option<Vec<u8>>> {
        self.hold(name)?.attribute(attribute)
    }

    /// Opens a directory, to resolve names in it and, where this user may, to list it. With
    /// [`Missing::Create`], creates it if there is no such entry.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotFound`] if there is no such entry, and
    /// [`io::ErrorKind::NotADirectory`] if the entry is of another kind; for a symbolic link that
    /// is not followed, `ELOOP` or [`io::ErrorKind::NotADirectory`]. If another process replaces
    /// the new directory by one of another user, returns [`io::ErrorKind::Other`].
    fn dir(&self, name: &Name, follow: Follow, missing: Missing) -> io::Result<Arc<dyn Dir>>;

    /// Holds an entry that [`Dir::make`] has just created, to set its metadata. Another process
    /// with write access to this directory can have replaced the entry meanwhile.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::Other`] if the entry is not the created one, and otherwise the
    /// errors of [`Dir::hold`].
    fn hold_made(&self, name: &Name, node: &Node<'_>) -> io::Result<Arc<dyn Inode>> {
        let held = self.hold(name)?;
        let is_made = check_made(&*held, node)?.is_some();
        if is_made { Ok(held) } else { Err(io::Error::other("another process replaced it at once")) }
    }

    /// Opens the directory at a path beneath this one, to resolve names in it. With
    /// [`Follow::Yes`], symbolic links in the path are followed if they stay beneath this
    /// directory; a storage that cannot check that follows none.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::CrossesDevices`] if a link leads out of this directory, and
    /// otherwise the errors of [`Dir::dir`].
    fn beneath(&self, path: &RelPath, links: Follow) -> io::Result<Arc<dyn Dir>> {
        let _ = links;
        let mut parts = path.as_bytes().split(|&byte| byte == b'/').map(name_of);
        let first = parts.next().ok_or(io::ErrorKind::InvalidFilename)??;
        let mut dir = self.dir(&first, Follow::No, Missing::Fail)?;
        for name in parts {
            dir = dir.dir(&name?, Follow::No, Missing::Fail)?;
        }
        Ok(dir)
    }

    /// Opens the regular file at a path beneath this directory for reading. Symbolic links are
    /// followed as [`Dir::beneath`] follows them, also in the last name.
    ///
    /// # Errors
    /// Same as [`Dir::beneath`] and [`Dir::source`].
    fn source_beneath(&self, path: &RelPath) -> io::Result<Arc<dyn SourceFile>> {
        let path = path.as_bytes();
        match path.iter().rposition(|&byte| byte == b'/') {
            None => self.source(&name_of(path)?, Follow::No),
            Some(slash) => {
                let above = RelPath::new(&path[..slash]).map_err(io::Error::other)?;
                self.beneath(&above, Follow::Yes)?.source(&name_of(&path[slash + 1..])?, Follow::No)
            }
        }
    }

    /// Opens a regular file for reading. Never waits for the other end of a pipe.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotFound`] if there is no such entry, `ELOOP` for a symbolic link
    /// that is not followed, and [`io::ErrorKind::InvalidInput`] for an entry of any other kind.
    fn source(&self, name: &Name, follow: Follow) -> io::Result<Arc<dyn SourceFile>>;

    /// Opens or creates a regular file for writing. Follows a link only for
    /// [`Create::InPlace`].
    ///
    /// # Errors
    /// Returns the errors that [`Create`] names, and the errors of openat(2).
    fn sink(&self, name: &Name, create: Create) -> io::Result<Arc<dyn SinkFile>>;

    /// Creates an entry that is not a regular file.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::AlreadyExists`] if the name exists, `ENOSPC` if it does not fit,
    /// and [`io::ErrorKind::PermissionDenied`] if this user or the storage may not create such a
    /// node.
    fn make(&self, name: &Name, node: &Node<'_>) -> io::Result<()>;

    /// Gives the inode at `from` another name, `to` in `to_dir`. With [`Follow::Yes`], a symbolic
    /// link at `from` is followed.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::AlreadyExists`] if the new name exists,
    /// [`io::ErrorKind::NotFound`] if `from` does not, [`io::ErrorKind::TooManyLinks`] if the
    /// storage stores no further name, and [`io::ErrorKind::PermissionDenied`] for a directory or
    /// if the storage has no hard links.
    fn link(&self, from: &Name, follow: Follow, to_dir: &dyn Dir, to: &Name) -> io::Result<()>;

    /// Creates a regular file that never has a name, for data that only this process needs. Its
    /// space is freed with its last handle. A storage that cannot do that removes the name at once,
    /// and a kill in between leaves a file `.haul-PID-NUMBER`.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    fn nameless(&self) -> io::Result<Arc<dyn SinkFile>>;

    /// Renames an entry to `to` in `to_dir`. Any process sees the old name or the new one; with
    /// [`Replace::Yes`], an existing entry is replaced at once. Two names of one inode stay as they
    /// are.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotFound`] if `from` does not exist. With [`Replace::No`], returns
    /// [`io::ErrorKind::AlreadyExists`] if the new name exists, and
    /// [`io::ErrorKind::InvalidInput`] if the storage cannot guarantee that. With
    /// [`Replace::Yes`], returns [`io::ErrorKind::IsADirectory`] if a directory would be replaced
    /// by something else, [`io::ErrorKind::NotADirectory`] for the opposite, and
    /// [`io::ErrorKind::DirectoryNotEmpty`] if a directory with entries would be replaced. Returns
    /// [`io::ErrorKind::InvalidInput`] if a directory would get a name beneath itself.
    fn rename(&self, from: &Name, to_dir: &dyn Dir, to: &Name, replace: Replace) -> io::Result<()>;

    /// Exchanges two entries at once: `name` here and `other` in `other_dir`.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotFound`] if one does not exist, and
    /// [`io::ErrorKind::InvalidInput`] if the storage cannot do it, or if a directory would get a
    /// name beneath itself.
    fn exchange(&self, name: &Name, other_dir: &dyn Dir, other: &Name) -> io::Result<()>;

    /// Removes an entry. A symbolic link is not followed.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::NotFound`] if there is no such entry. With [`Remove::File`],
    /// returns [`io::ErrorKind::IsADirectory`] for a directory. With [`Remove::Directory`], returns
    /// [`io::ErrorKind::NotADirectory`] for anything else, and
    /// [`io::ErrorKind::DirectoryNotEmpty`] for a directory with entries.
    fn remove(&self, name: &Name, what: Remove) -> io::Result<()>;

    /// Checks that an existing entry is found by its own spelling. A storage that compares names as
    /// they are has no other.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::AlreadyExists`] if the entry has another spelling, and
    /// [`io::ErrorKind::InvalidFilename`] if it lacks the dots at the end of `name`.
    fn check_spelling(&self, name: &Name) -> io::Result<()> {
        let _ = name;
        Ok(())
    }

    /// Makes all names in this directory durable. Succeeds on network storage that cannot sync
    /// directories, because a server makes names durable before it replies.
    ///
    /// # Errors
    /// Returns the errors of fsync(2).
    fn sync(&self) -> io::Result<()>;

    /// Returns the free space of the device.
    ///
    /// # Errors
    /// Returns the errors of fstatfs(2).
    fn space(&self) -> io::Result<Space>;
}

/// Compares an inode with the entry that was to be created. Returns its metadata if it can be that
/// entry, by kind, device, target and number of names.
pub(crate) fn check_made(held: &dyn Inode, node: &Node<'_>) -> io::Result<Option<Stat>> {
    let found = held.stat()?;
    let is_made = match *node {
        Node::Directory { .. } => found.kind == FileKind::Directory,
        Node::Link { target } => {
            found.kind == FileKind::Symlink && found.nlink == 1 && held.read_link()? == target
        }
        Node::Special { kind, rdev, .. } => {
            let is_device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
            found.kind == kind && found.nlink == 1 && (!is_device || found.rdev == rdev)
        }
    };
    Ok(is_made.then_some(found))
}

/// Returns one component of a path.
fn name_of(part: &[u8]) -> io::Result<Name> {
    Name::new(part).ok_or_else(|| io::ErrorKind::InvalidFilename.into())
}

/// A directory that stays open as long as this value exists ([`Dir::reach`]).
#[derive(Debug, Default)]
pub struct Reached {
    _open: Option<Arc<dyn Any + Send + Sync>>,
}

impl Reached {
    /// Keeps `open`, which keeps the directory open.
    pub(crate) fn by(open: Arc<dyn Any + Send + Sync>) -> Reached {
        Reached { _open: Some(open) }
    }
}

/// A list of the entries of a directory that is read in batches, so that millions of names never
/// occupy memory at the same time.
pub trait Listing: Debug + Send {
    /// Appends up to `max` entries to `out`, never `.` and `..`. Returns false if there are no more
    /// entries. If the directory is removed meanwhile, the list ends.
    ///
    /// An entry that exists from the start of the list to its end is returned once. An entry that
    /// is created or removed meanwhile is returned at most once.
    ///
    /// # Errors
    /// Returns the errors of getdents64(2). Entries that were appended before the error stay in
    /// `out`.
    fn next(&mut self, max: usize, out: &mut Vec<Entry>) -> io::Result<bool>;
}

impl dyn Listing {
    /// Reads the list to its end. Returns the first `max` of the names behind `after` that
    /// `is_wanted` accepts, sorted by their bytes, and true if more of them follow. Calls
    /// `is_wanted` for each name.
    ///
    /// Memory does not grow with the directory.
    ///
    /// # Errors
    /// Same as [`Listing::next`], and the first error of `is_wanted`.
    pub fn names_behind<E: From<io::Error>>(
        &mut self,
        after: &[u8],
        max: usize,
        mut is_wanted: impl FnMut(&[u8]) -> Result<bool, E>,
    ) -> Result<(Vec<Name>, bool), E> {
        // The smallest names so far; the largest of them is on top.
        let mut first: BinaryHeap<Name> = BinaryHeap::new();
        let (mut has_more, mut more) = (false, true);
        let mut batch = Vec::new();
        while more {
            more = self.next(LISTED_AT_ONCE, &mut batch)?;
            for Entry { name, .. } in batch.drain(..) {
                if !is_wanted(name.as_bytes())? || name.as_bytes() <= after {
                    continue;
                }
                if first.len() < max {
                    first.push(name);
                } else {
                    has_more = true;
                    if first.peek().is_some_and(|largest| name < *largest) {
                        first.pop();
                        first.push(name);
                    }
                }
            }
        }
        Ok((first.into_sorted_vec(), has_more))
    }
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Name of the entry.
    pub name: Name,
    /// Kind of the entry; `None` if the directory does not store it.
    pub kind: Option<FileKind>,
    /// Inode number. At a mount point it is that of the directory below the mount.
    pub ino: u64,
}

/// A regular file that is open for reading.
pub trait SourceFile: Inode {
    /// Returns the metadata from when the file was opened.
    fn opened(&self) -> &Stat;

    /// Fills `into` with the bytes from offset `at`. Returns less than its length only at the end
    /// of the file. A hole reads as zeros.
    ///
    /// # Errors
    /// Returns the errors of pread(2). The contents of `into` are then unspecified.
    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize>;

    /// Returns the first range of data within `range`, or `None` if only a hole or the end of the
    /// file remains. The bytes before the returned range are a hole and read as zeros. Storage that
    /// cannot report holes returns `range` as it is, which may then exceed the file.
    ///
    /// # Errors
    /// Returns the errors of lseek(2).
    fn next_data(&self, range: ByteRange) -> io::Result<Option<ByteRange>>;

    /// Returns the location of the first data of the file on its device, by which files are read in
    /// the order of the disk. A storage that does not know it returns [`Place::Untold`].
    ///
    /// # Errors
    /// Returns the errors of ioctl(2).
    fn place(&self) -> io::Result<Place> {
        Ok(Place::Untold)
    }

    /// Compares the file with an earlier version. Returns `None` if it is unchanged.
    ///
    /// # Errors
    /// Returns the errors of statx(2).
    fn changed_since(&self, version: &Version) -> io::Result<Option<Change>> {
        Ok(version.change(&self.stat()?))
    }

    /// Excludes other jobs from this file until it is dropped, as [`SinkFile::lock`] does. Returns
    /// false if the storage has no locks.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::ResourceBusy`] if another open file has the lock, and
    /// [`io::ErrorKind::InvalidInput`] for a file of [`SinkFile::reader`]: its writer takes the
    /// lock.
    fn lock(&self) -> io::Result<bool>;

    /// Announces how a range will be read. Has no effect on the bytes, and reports no error.
    fn advise(&self, range: ByteRange, advice: Advice);

    /// Returns the state of a range in the page cache, or `None` if the storage does not report it.
    fn residency(&self, range: ByteRange) -> Option<Residency>;

    /// Waits until the device has a range that was written. It is not durable then, because the
    /// cache of the device is not flushed. For the reader of a file that is written, an error
    /// counts as a failed sync of that file.
    ///
    /// # Errors
    /// Returns an error if the device could not store the range.
    fn write_back(&self, range: ByteRange) -> io::Result<()>;

    /// Writes a range back to the device and drops it from the page cache. Returns the source of
    /// the bytes of a read that follows at once. For the reader of a file that is written, an error
    /// counts as a failed sync of that file.
    ///
    /// # Errors
    /// Returns an error if the device could not store the range.
    fn evict(&self, range: ByteRange, retries: DropRetries) -> io::Result<ReadBack>;

    /// Switches reads past the page cache on or off. Returns the alignment that offsets, lengths
    /// and memory of reads then need, or `None` if the storage has no such reads: they then use the
    /// cache.
    ///
    /// # Errors
    /// Returns the errors of fcntl(2).
    fn set_direct(&self, is_on: bool) -> io::Result<Option<Alignment>>;
}

impl dyn SourceFile {
    /// Reads the file to its end, whatever length it reports.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::FileTooLarge`] if the file has more than `bytes_max` bytes, and the
    /// errors of [`SourceFile::read_at`].
    pub fn read_all(&self, bytes_max: usize) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        loop {
            let filled = bytes.len();
            bytes.resize(filled + READ_AT_ONCE, 0);
            let read = self.read_at(filled as u64, &mut bytes[filled..])?;
            bytes.truncate(filled + read);
            if bytes.len() > bytes_max {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            if read < READ_AT_ONCE {
                return Ok(bytes);
            }
        }
    }

    /// Returns true if the data that the storage reports is at least as long as the allocated space
    /// of the file, whose metadata is `found`. Mounts of virtiofs have reported files with data as
    /// holes from end to end.
    pub fn reports_its_data(&self, found: &Stat) -> bool {
        let mut missing = found.blocks.saturating_mul(STAT_BLOCK_BYTES);
        let mut ranges = self.data_ranges(ByteRange::between(0, found.size));
        while missing > 0 {
            let Some(Ok(data)) = ranges.next() else { return false };
            missing = missing.saturating_sub(data.len());
        }
        true
    }

    /// Returns the ranges of data within `range`, in order. Ends after the first error.
    pub fn data_ranges(&self, range: ByteRange) -> impl Iterator<Item = io::Result<ByteRange>> {
        let mut rest = range;
        std::iter::from_fn(move || {
            let found = self.next_data(rest);
            rest.start = if let Ok(Some(data)) = found { data.end } else { rest.end };
            found.transpose()
        })
    }
}

/// A regular file that is open for writing, by any number of threads.
///
/// Its states are: written; finished ([`SinkFile::finish`]); committed ([`SinkFile::commit`]). If
/// it is dropped before it is committed, it stays as it is, as after a kill. The first error of a
/// sync is remembered: from then on every sync, check and commit of this open file fails with the
/// same `errno`.
pub trait SinkFile: Inode {
    /// Returns the metadata from when an existing file was opened, or that of now.
    ///
    /// # Errors
    /// Same as [`Inode::stat`].
    fn opened(&self) -> io::Result<Stat> {
        self.stat()
    }

    /// Returns true if this open file created its inode.
    fn is_new(&self) -> bool;

    /// Excludes other jobs from this file until it is dropped. Returns false if the storage has no
    /// locks.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::ResourceBusy`] if another open file has the lock.
    fn lock(&self) -> io::Result<bool>;

    /// Detects a full device before bytes arrive: compares `len`, less what the file has already,
    /// with the free space, and reserves space for the first `len` bytes if the storage can do that
    /// at the cost of one call. Changes neither the length nor the bytes of the file.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::StorageFull`] or [`io::ErrorKind::QuotaExceeded`]. The file is then
    /// unchanged.
    fn reserve(&self, len: u64) -> io::Result<()>;

    /// Reserves space for a range that is overwritten, so that no write of it fails for lack of
    /// space. Storage that cannot do that reserves nothing. Changes neither the length nor the
    /// bytes of the file.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::StorageFull`] or [`io::ErrorKind::QuotaExceeded`]. A part of the
    /// range may then be reserved.
    fn reserve_range(&self, range: ByteRange) -> io::Result<()>;

    /// Writes all bytes at offset `at`. Extends the file if it is shorter; a gap reads as zeros.
    ///
    /// # Errors
    /// Returns the errors of pwrite(2): [`io::ErrorKind::StorageFull`],
    /// [`io::ErrorKind::QuotaExceeded`], [`io::ErrorKind::FileTooLarge`]. A part of the bytes may
    /// be written.
    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes a range read as zeros, if possible by a hole. Bytes beyond the end of the file stay
    /// there: the file does not grow.
    ///
    /// # Errors
    /// Returns the errors of pwrite(2), and [`io::ErrorKind::Interrupted`] once `stop` is true.
    fn clear(&self, range: ByteRange, stop: &AtomicBool) -> io::Result<()>;

    /// Announces that a range of a file without old contents is not written. Storage that
    /// preallocates space for a writer gives it back. Reports no error, because no byte depends on
    /// it.
    fn leave_out(&self, range: ByteRange);

    /// Sets the length. A file that grows gets a hole at its end.
    ///
    /// # Errors
    /// Returns the errors of ftruncate(2): [`io::ErrorKind::FileTooLarge`].
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Lets the storage move `range` of another file to offset `to` of this one, without the bytes
    /// in memory. The range may end at the end of `from` at the latest.
    ///
    /// # Errors
    /// Returns the errors of ioctl_ficlonerange(2) and copy_file_range(2), except for those that
    /// are an [`Offloaded`].
    fn offload(
        &self,
        from: &dyn SourceFile,
        range: ByteRange,
        to: u64,
        how: Offload,
    ) -> io::Result<Offloaded>;

    /// Starts to write a range to the device, and does not wait. Reports no error, which a later
    /// sync does.
    fn start_writeback(&self, range: ByteRange);

    /// Drops the pages of a range that are on the device from the page cache.
    fn drop_pages(&self, range: ByteRange);

    /// Syncs the file, after any other sync of it.
    ///
    /// # Errors
    /// Returns the first error of all syncs: `EIO`, [`io::ErrorKind::StorageFull`],
    /// [`io::ErrorKind::QuotaExceeded`]. Bytes that were not durable before may be lost, although
    /// reads may still return them.
    fn sync(&self, what: SyncWhat) -> io::Result<()>;

    /// Returns the error of a write-back of this file that no sync has reported. Syncs nothing: the
    /// caller has called [`Dir::sync_device`].
    ///
    /// # Errors
    /// Same as [`SinkFile::sync`].
    fn check(&self) -> io::Result<()>;

    /// Returns the error of the first failed sync, if one failed.
    fn failure(&self) -> Option<io::Error>;

    /// Returns true while another thread syncs the file.
    fn is_syncing(&self) -> bool;

    /// Opens the file for reading, apart from this open file: it does not keep the file open for
    /// writing, and it gets reports of lost bytes of its own.
    ///
    /// # Errors
    /// Returns the errors of openat(2), for example if the mode of the file forbids it.
    fn reopen(&self) -> io::Result<Arc<dyn SourceFile>>;

    /// Opens the file to read it back. This works whatever the mode of the file is.
    ///
    /// # Errors
    /// Returns the errors of openat(2).
    fn reader(&self) -> io::Result<Arc<dyn SourceFile>>;

    /// Switches writes past the page cache on or off. Returns the alignment that offsets and memory
    /// of writes then need, or `None` if the storage has no such writes: they then use the cache.
    ///
    /// # Errors
    /// Returns the errors of fcntl(2).
    fn set_direct(&self, is_on: bool) -> io::Result<Option<Alignment>>;

    /// Lets storage that reports lost bytes only when a file is closed report them now. This must
    /// happen before the times are set, because a late write-back would change them.
    ///
    /// # Errors
    /// Same as [`SinkFile::sync`].
    fn flush(&self) -> io::Result<()>;

    /// Ends the writing: sets the length to `len` bytes, flushes the file ([`SinkFile::flush`]),
    /// and sets the metadata, times last. Nothing is written afterwards.
    ///
    /// # Errors
    /// Returns the first part that could not be set; the parts after it are unchanged.
    fn finish(&self, len: u64, metadata: &Metadata<'_>) -> Result<(), Unset>;

    /// Gives a temporary file its final name, after any sync of it. For any other file only checks
    /// that no sync failed.
    ///
    /// # Errors
    /// Returns the error of a failed sync, and the errors of [`Dir::rename`]. The file then keeps
    /// its temporary name.
    fn commit(&self, replace: Replace) -> io::Result<()>;

    /// Returns true once the file was committed.
    fn is_committed(&self) -> bool;

    /// Removes the temporary name of a file that was not committed. A file that has no temporary
    /// name stays.
    ///
    /// # Errors
    /// Returns the errors of unlinkat(2), except `ENOENT`.
    fn abandon(&self) -> io::Result<()>;
}

/// Action for an entry that does not exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// Return [`io::ErrorKind::NotFound`].
    Fail,
    /// Create the entry with this mode, less the umask.
    Create {
        /// Permission bits: `0` to `0o7777`.
        mode: u32,
    },
}

/// Way in which a file gets open for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Create {
    /// Creates the file under its final name. Fails with [`io::ErrorKind::AlreadyExists`] if the
    /// name exists.
    New {
        /// Permission bits, less the umask.
        mode: u32,
    },
    /// Opens the file under its final name, with its contents. Fails with
    /// [`io::ErrorKind::AlreadyExists`] if the entry is not a regular file. The file can have
    /// several names.
    InPlace {
        /// Action if there is no such entry.
        missing: Missing,
        /// [`Follow::Yes`] opens what a link leads to, and creates it if `missing` says so; and the
        /// entry can have another spelling. So do programs that write to the path of a user.
        follow: Follow,
    },
    /// Opens the file under its final name for reading only: its contents are complete, and only
    /// its metadata is set. Fails like [`Create::InPlace`].
    Complete {
        /// As in [`Create::InPlace`].
        follow: Follow,
    },
    /// Creates a file under a temporary name, with mode `0o600`. The name itself is not checked
    /// before the commit. A file that a killed run left under the temporary name is removed; fails
    /// with [`io::ErrorKind::IsADirectory`] if a directory has it.
    Temporary(Tag),
    /// Opens the file that an earlier run left under its temporary name, with its contents and its
    /// metadata. Fails with [`io::ErrorKind::NotFound`] if there is none. An entry that is not a
    /// regular file or has several names is removed first; fails with
    /// [`io::ErrorKind::IsADirectory`] for a directory.
    Resume(Tag),
}

/// An entry to create that is not a regular file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node<'a> {
    /// A directory with this mode, less the umask.
    Directory {
        /// Permission bits.
        mode: u32,
    },
    /// A symbolic link.
    Link {
        /// Target as stored in the link: 1 to 4,095 bytes without NUL.
        target: &'a [u8],
    },
    /// A pipe, a socket or a device.
    Special {
        /// One of these kinds; [`io::ErrorKind::InvalidInput`] for any other.
        kind: FileKind,
        /// Permission bits, less the umask.
        mode: u32,
        /// Device that a node refers to; 0 for a pipe and a socket.
        rdev: u64,
    },
}

/// Treatment of an existing entry with the new name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// It is replaced.
    Yes,
    /// The operation fails.
    No,
}

/// Kind of an entry to remove.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remove {
    /// Anything but a directory.
    File,
    /// An empty directory.
    Directory,
}

/// Part of a file to sync.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncWhat {
    /// The bytes of a range: the device has them, but they are not durable, because its own cache
    /// is not flushed.
    Range(ByteRange),
    /// All bytes, and the metadata needed to find them: durable.
    Data,
    /// All bytes and all metadata: durable. On the usual file systems also the name of a new file.
    All,
}

/// Way of moving bytes without memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offload {
    /// Both files share their blocks (reflink).
    Share,
    /// The storage copies, and may share blocks (copy_file_range(2)).
    Copy,
}

/// Result of moving bytes without memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloaded {
    /// The file has this many bytes of the range, at least one unless the range is empty or begins
    /// at the end of the source; all of them with [`Offload::Share`].
    Done(u64),
    /// The storage cannot do it for these ranges, with the `errno` of the refusal. The file is
    /// unchanged.
    Unsupported(i32),
    /// The storage can never do it between these two devices, with the `errno` of the refusal. The
    /// file is unchanged.
    NeverBetween(i32),
}

/// Source of the bytes of a read, as reported for the page cache before the read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadBack {
    /// No page of the range was in memory.
    FromDevice,
    /// Some pages may have been in memory, for this reason.
    FromCache(&'static str),
}

/// Persistence in dropping pages from the page cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropRetries {
    /// Retries for as long as other workers may write nearby.
    Some,
    /// A few attempts only, because waiting did not help for this file before.
    None,
}
