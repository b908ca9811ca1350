//! Storages with a defect each, around a storage without. The conformance suite must find all.

use haul_model::{ByteRange, RelPath};
use haul_storage::{
    Advice, Alignment, Change, Create, Device, Dir, DropRetries, Entry, FileKind, Follow, Inode, Listing,
    Metadata, Missing, Name, Node, Offload, Offloaded, ReadBack, Remove, Replace, Residency, SinkFile,
    SourceFile, Space, Stat, SyncWhat, Tag, Times, Unset, Version,
};
use std::any::Any;
use std::ffi::{CStr, CString};
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

macro_rules! defects {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// A defect of a storage.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Defect {
            $($(#[$doc])* $name,)+
        }

        impl Defect {
            /// All defects.
            pub(crate) const ALL: &[Defect] = &[$(Defect::$name,)+];
        }
    };
}

defects! {
    /// A batch of a list lacks its last entry.
    ListSkipsEntries,
    ListRepeatsEntries,
    ListIgnoresMaximum,
    ListEndsAfterOneBatch,
    ListNeverEnds,
    ListHasWrongKinds,
    ListHasWrongNumbers,
    ListContinuesAfterRemoval,
    StatFollowsLinks,
    StatFollowsNoLinks,
    StatOfMissingNamesIsThatOfTheDirectory,
    SourceFollowsLinks,
    SourceFollowsNoLinks,
    DirFollowsLinks,
    MadeEntryIsAnyEntry,
    PathBeneathFollowsAllLinks,
    PathBeneathIsItsFirstName,
    DirIsNotCreated,
    EveryDirectoryIsTheSame,
    DirReplacesFiles,
    DirIgnoresMode,
    MakeReplacesEntries,
    MakeCreatesFilesForSpecialFiles,
    MakeChangesTargets,
    LinkCopies,
    LinkReplacesEntries,
    LinkFollowsLinks,
    LinkFollowsNoLinks,
    RenameAlwaysReplaces,
    RenameNeverReplaces,
    /// The new name is free for a moment.
    RenameRemovesFirst,
    /// Both names exist for a moment.
    RenameLinksAndRemoves,
    RenameRemovesTheOtherNameOfTheInode,
    ExchangeRenamesThreeTimes,
    RemoveIgnoresKind,
    RemoveRemovesEntries,
    RemoveIgnoresErrors,
    SyncOfNamesDoesNothing,
    SyncOfNamesIgnoresErrors,
    SyncOfDeviceDoesNothing,
    SpaceIsUnknown,
    SpaceIgnoresErrors,
    ReadIsShort,
    ReadIgnoresOffset,
    /// An error looks like the end of the file.
    ReadIgnoresErrors,
    DataExceedsRange,
    DataIsNotFound,
    HolesAreData,
    ChangeIgnoresChangeTime,
    ChangeIgnoresModificationTime,
    ChangeIgnoresInode,
    EvictDoesNothing,
    EvictIgnoresErrors,
    WriteBackIgnoresErrors,
    ReopenSharesFailures,
    WriteLosesLastByte,
    WriteTruncates,
    WriteIgnoresErrors,
    ClearDoesNothing,
    ClearGrows,
    ClearWritesZeros,
    SetLenNeverGrows,
    SetLenNeverShrinks,
    ReserveGrows,
    ReserveIgnoresErrors,
    ReserveOfRangeGrows,
    ReserveOfRangeIgnoresErrors,
    ReserveOfRangeDoesNothing,
    SyncDoesNothing,
    SyncOfDataSyncsARange,
    SyncOfAllSyncsData,
    SyncOfRangeSyncsAll,
    SyncReportsErrorsOnce,
    CheckReportsNothing,
    FailureIsForgotten,
    CommitIgnoresFailedSyncs,
    CommitAlwaysReplaces,
    CommitNeverReplaces,
    CommitTouchesTimes,
    CommitDoesNothing,
    FinishSetsTimesBeforeLength,
    FinishSetsModeBeforeOwner,
    FinishIgnoresLength,
    FinishIgnoresErrors,
    AbandonDoesNothing,
    AbandonRemovesCommittedFiles,
    ResumeCreatesMissingFiles,
    ResumeTruncates,
    TemporaryResumes,
    TemporaryHasFinalName,
    InPlaceTruncates,
    InPlaceFollowsLinks,
    InPlaceFollowsNoLinks,
    InPlaceCreatesMissingFiles,
    NewOpensExistingFiles,
    NewIgnoresMode,
    NamelessFileHasName,
    AllFilesAreNew,
    LockIsShared,
    LockNeverEnds,
    LockOfSourceIsShared,
    LockOfSourceNeverEnds,
    ShareIgnoresOffset,
    ShareCopiesHalf,
    ShareIsRefused,
    UserIsAnother,
    ModeHasUmask,
    OwnerIgnoresGroup,
    OwnerIgnoresErrors,
    TimesAreSeconds,
    TimesAreSwapped,
    TimesAreAlwaysBoth,
    AttributesAreNotListed,
    AttributesIgnoreErrors,
    AttributesAreTruncated,
    RemovedAttributeIsClaimed,
    AttributesOfEntriesFollowLinks,
    NamedEntryIsBehindLinks,
    HeldDeviceIsNotSynced,
    CompleteCreatesFiles,
    CompleteFollowsNoLinks,
    OpenedMetadataIsThatOfNow,
}

use Defect as D;

/// Returns a directory with a defect.
pub(crate) fn defective(inner: Arc<dyn Dir>, defect: Defect) -> Arc<dyn Dir> {
    Arc::new(BadDir { inner, defect })
}

#[derive(Debug)]
struct BadDir {
    inner: Arc<dyn Dir>,
    defect: Defect,
}

#[derive(Debug)]
struct BadInode {
    inner: Arc<dyn Inode>,
    defect: Defect,
}

#[derive(Debug)]
struct BadSource {
    inner: Arc<dyn SourceFile>,
    defect: Defect,
}

#[derive(Debug)]
struct BadSink {
    inner: Arc<dyn SinkFile>,
    defect: Defect,
    dir: Arc<dyn Dir>,
    name: Name,
    /// Temporary name, if there is one.
    tag: Option<Tag>,
    has_failed: AtomicBool,
}

#[derive(Debug)]
struct BadListing {
    inner: Box<dyn Listing>,
    defect: Defect,
    dir: Arc<dyn Dir>,
}

macro_rules! bad_inode {
    ($type:ty) => {
        impl Inode for $type {
            fn stat(&self) -> io::Result<Stat> {
                self.inner.stat()
            }

            fn user(&self) -> u32 {
                self.inner.user() + u32::from(self.defect == D::UserIsAnother)
            }

            fn device(&self) -> &Device {
                self.inner.device()
            }

            fn sync_device(&self) -> io::Result<()> {
                if self.defect == D::SyncOfDeviceDoesNothing {
                    return Ok(());
                }
                self.inner.sync_device()
            }

            fn read_link(&self) -> io::Result<Vec<u8>> {
                self.inner.read_link()
            }

            fn attributes(&self) -> io::Result<Vec<CString>> {
                let names = self.inner.attributes()?;
                Ok(if self.defect == D::AttributesAreNotListed { Vec::new() } else { names })
            }

            fn attribute(&self, name: &CStr) -> io::Result<Option<Vec<u8>>> {
                let value = self.inner.attribute(name);
                if self.defect == D::AttributesIgnoreErrors { Ok(value.unwrap_or_default()) } else { value }
            }

            fn set_attribute(&self, name: &CStr, value: &[u8]) -> io::Result<()> {
                let value = if self.defect == D::AttributesAreTruncated {
                    value.split(|&byte| byte == 0).next().unwrap_or_default()
                } else {
                    value
                };
                let set = self.inner.set_attribute(name, value);
                if self.defect == D::AttributesIgnoreErrors { Ok(()) } else { set }
            }

            fn remove_attribute(&self, name: &CStr) -> io::Result<bool> {
                let had_it = self.inner.remove_attribute(name)?;
                Ok(had_it || self.defect == D::RemovedAttributeIsClaimed)
            }

            fn set_owner(&self, user: Option<u32>, group: Option<u32>) -> io::Result<()> {
                let group = if self.defect == D::OwnerIgnoresGroup { None } else { group };
                let set = self.inner.set_owner(user, group);
                if self.defect == D::OwnerIgnoresErrors { Ok(()) } else { set }
            }

            fn set_mode(&self, mode: u32) -> io::Result<()> {
                let umask = if self.defect == D::ModeHasUmask { 0o022 } else { 0 };
                self.inner.set_mode(mode & !umask)
            }

            fn set_times(&self, times: Times) -> io::Result<()> {
                let Times { mut atime, mut mtime } = times;
                match self.defect {
                    D::TimesAreSeconds => {
                        for time in [&mut atime, &mut mtime].into_iter().flatten() {
                            time.nsec = 0;
                        }
                    }
                    D::TimesAreSwapped => std::mem::swap(&mut atime, &mut mtime),
                    D::TimesAreAlwaysBoth => (atime, mtime) = (atime.or(mtime), mtime.or(atime)),
                    _ => {}
                }
                self.inner.set_times(Times { atime, mtime })
            }
        }
    };
}

bad_inode!(BadDir);
bad_inode!(BadInode);
bad_inode!(BadSource);
bad_inode!(BadSink);

/// Returns the directory without the defect.
fn good(dir: &dyn Dir) -> &dyn Dir {
    (dir as &dyn Any).downcast_ref::<BadDir>().map_or(dir, |bad| &*bad.inner)
}

impl BadDir {
    fn sink_of(&self, inner: Arc<dyn SinkFile>, name: &Name, create: Create) -> Arc<dyn SinkFile> {
        let tag = match create {
            Create::Temporary(tag) | Create::Resume(tag) => Some(tag),
            Create::New { .. } | Create::InPlace { .. } | Create::Complete { .. } => None,
        };
        Arc::new(BadSink {
            inner,
            defect: self.defect,
            dir: Arc::clone(&self.inner),
            name: name.clone(),
            tag,
            has_failed: AtomicBool::new(false),
        })
    }

    fn has(&self, name: &Name) -> bool {
        self.inner.stat_at(name, Follow::No).is_ok()
    }
}

/// Copies the bytes of a file to a new one.
fn copy(from: &dyn SourceFile, to: &dyn SinkFile, range: ByteRange, at: u64) -> io::Result<()> {
    let mut bytes = vec![0; range.len() as usize];
    from.read_at(range.start.0, &mut bytes)?;
    to.write_at(at, &bytes)
}

/// Removes all entries of a directory.
fn remove_entries(dir: &dyn Dir) -> io::Result<()> {
    let mut entries = Vec::new();
    while dir.list()?.next(100, &mut entries)? {}
    for entry in entries {
        dir.remove(&entry.name, Remove::File)?;
    }
    Ok(())
}

impl Dir for BadDir {
    fn list(&self) -> io::Result<Box<dyn Listing>> {
        let inner = self.inner.list()?;
        Ok(Box::new(BadListing { inner, defect: self.defect, dir: Arc::clone(&self.inner) }))
    }

    fn stat_at(&self, name: &Name, follow: Follow) -> io::Result<Stat> {
        let follow = match self.defect {
            D::StatFollowsLinks => Follow::Yes,
            D::StatFollowsNoLinks => Follow::No,
            _ => follow,
        };
        match self.inner.stat_at(name, follow) {
            Err(error)
                if error.kind() == ErrorKind::NotFound
                    && self.defect == D::StatOfMissingNamesIsThatOfTheDirectory =>
            {
                self.inner.stat()
            }
            found => found,
        }
    }

    fn is_same(&self, then: &Stat) -> io::Result<bool> {
        Ok(self.defect == D::EveryDirectoryIsTheSame || self.inner.is_same(then)?)
    }

    fn hold(&self, name: &Name) -> io::Result<Arc<dyn Inode>> {
        Ok(Arc::new(BadInode { inner: self.inner.hold(name)?, defect: self.defect }))
    }

    fn named(&self, name: &Name) -> io::Result<Arc<dyn Inode>> {
        match self.defect {
            D::NamedEntryIsBehindLinks => match self.inner.source(name, Follow::Yes) {
                Ok(file) => Ok(file),
                Err(_) => self.hold(name),
            },
            _ => self.hold(name),
        }
    }

    fn hold_device(&self) -> io::Result<Arc<dyn Inode>> {
        let defect = match self.defect {
            D::HeldDeviceIsNotSynced => D::SyncOfDeviceDoesNothing,
            defect => defect,
        };
        Ok(Arc::new(BadInode { inner: self.inner.hold_device()?, defect }))
    }

    fn attributes_at(&self, name: &Name) -> io::Result<Vec<CString>> {
        match self.defect {
            D::AttributesOfEntriesFollowLinks => self.inner.source(name, Follow::Yes)?.attributes(),
            _ => self.hold(name)?.attributes(),
        }
    }

    fn dir(&self, name: &Name, follow: Follow, missing: Missing) -> io::Result<Arc<dyn Dir>> {
        let follow = if self.defect == D::DirFollowsLinks { Follow::Yes } else { follow };
        let missing = match (self.defect, missing) {
            (D::DirIsNotCreated, _) => Missing::Fail,
            (D::DirIgnoresMode, Missing::Create { .. }) => Missing::Create { mode: 0o777 },
            _ => missing,
        };
        let inner = match self.inner.dir(name, follow, missing) {
            Err(error)
                if error.kind() == ErrorKind::NotADirectory
                    && self.defect == D::DirReplacesFiles
                    && missing != Missing::Fail =>
            {
                self.inner.remove(name, Remove::File)?;
                self.inner.dir(name, follow, missing)?
            }
            opened => opened?,
        };
        Ok(defective(inner, self.defect))
    }

    fn hold_made(&self, name: &Name, node: &Node<'_>) -> io::Result<Arc<dyn Inode>> {
        match self.defect {
            D::MadeEntryIsAnyEntry => self.hold(name),
            _ => self.inner.hold_made(name, node),
        }
    }

    fn beneath(&self, path: &RelPath, links: Follow) -> io::Result<Arc<dyn Dir>> {
        let follow = match self.defect {
            D::PathBeneathFollowsAllLinks => Follow::Yes,
            _ => return Ok(defective(self.inner.beneath(path, links)?, self.defect)),
        };
        let mut dir = Arc::clone(&self.inner);
        for part in path.parts() {
            dir = dir.dir(&Name::new(part).expect("a name"), follow, Missing::Fail)?;
        }
        Ok(defective(dir, self.defect))
    }

    fn source_beneath(&self, path: &RelPath) -> io::Result<Arc<dyn SourceFile>> {
        let path = match (self.defect, path.parts().next()) {
            (D::PathBeneathIsItsFirstName, Some(first)) => &RelPath::new(first).expect("a path"),
            _ => path,
        };
        Ok(Arc::new(BadSource { inner: self.inner.source_beneath(path)?, defect: self.defect }))
    }

    fn source(&self, name: &Name, follow: Follow) -> io::Result<Arc<dyn SourceFile>> {
        let follow = match self.defect {
            D::SourceFollowsLinks => Follow::Yes,
            D::SourceFollowsNoLinks => Follow::No,
            _ => follow,
        };
        Ok(Arc::new(BadSource { inner: self.inner.source(name, follow)?, defect: self.defect }))
    }

    fn sink(&self, name: &Name, create: Create) -> io::Result<Arc<dyn SinkFile>> {
        let dir = &self.inner;
        let in_place = Create::InPlace { missing: Missing::Fail, follow: Follow::No };
        let sink = match (self.defect, create) {
            (D::ResumeCreatesMissingFiles, Create::Resume(tag)) => {
                dir.sink(name, create).or_else(|_| dir.sink(name, Create::Temporary(tag)))
            }
            (D::ResumeTruncates, Create::Resume(_)) | (D::InPlaceTruncates, Create::InPlace { .. }) => {
                dir.sink(name, create).and_then(|sink| sink.set_len(0).map(|()| sink))
            }
            (D::TemporaryResumes, Create::Temporary(tag)) => {
                dir.sink(name, Create::Resume(tag)).or_else(|_| dir.sink(name, create))
            }
            (D::TemporaryHasFinalName, Create::Temporary(_)) => dir
                .sink(name, Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow: Follow::No }),
            (
                D::InPlaceCreatesMissingFiles,
                Create::InPlace { missing: Missing::Fail, follow: Follow::No },
            ) => dir
                .sink(name, Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow: Follow::No }),
            (D::CompleteCreatesFiles, Create::Complete { follow }) => {
                dir.sink(name, Create::InPlace { missing: Missing::Create { mode: 0o600 }, follow })
            }
            (D::CompleteFollowsNoLinks, Create::Complete { .. }) => {
                dir.sink(name, Create::Complete { follow: Follow::No })
            }
            (D::InPlaceFollowsLinks, Create::InPlace { missing, .. }) => {
                dir.sink(name, Create::InPlace { missing, follow: Follow::Yes })
            }
            (D::InPlaceFollowsNoLinks, Create::InPlace { missing, .. }) => {
                dir.sink(name, Create::InPlace { missing, follow: Follow::No })
            }
            (D::NewOpensExistingFiles, Create::New { .. }) => {
                dir.sink(name, create).or_else(|_| dir.sink(name, in_place))
            }
            (D::NewIgnoresMode, Create::New { .. }) => dir.sink(name, Create::New { mode: 0o666 }),
            _ => dir.sink(name, create),
        };
        Ok(self.sink_of(sink?, name, create))
    }

    fn nameless(&self) -> io::Result<Arc<dyn SinkFile>> {
        match self.defect {
            D::NamelessFileHasName => {
                let name = Name::new("nameless").expect("a name");
                self.inner.sink(&name, Create::New { mode: 0o600 })
            }
            _ => self.inner.nameless(),
        }
    }

    fn make(&self, name: &Name, node: &Node<'_>) -> io::Result<()> {
        match (self.defect, node) {
            (D::MakeReplacesEntries, _) if self.has(name) => {
                self.inner.remove(name, Remove::File)?;
                self.inner.make(name, node)
            }
            (D::MakeCreatesFilesForSpecialFiles, Node::Special { mode, .. }) => {
                self.inner.sink(name, Create::New { mode: *mode }).map(drop)
            }
            (D::MakeChangesTargets, Node::Link { target: [b'/', target @ ..] }) => {
                self.inner.make(name, &Node::Link { target })
            }
            (D::DirIgnoresMode, Node::Directory { .. }) => {
                self.inner.make(name, &Node::Directory { mode: 0o777 })
            }
            _ => self.inner.make(name, node),
        }
    }

    fn link(&self, from: &Name, follow: Follow, to_dir: &dyn Dir, to: &Name) -> io::Result<()> {
        let to_dir = good(to_dir);
        match self.defect {
            D::LinkCopies => {
                let source = self.inner.source(from, Follow::No)?;
                let sink = to_dir.sink(to, Create::New { mode: 0o600 })?;
                copy(&*source, &*sink, ByteRange::between(0, source.opened().size), 0)
            }
            D::LinkReplacesEntries => {
                let _ = to_dir.remove(to, Remove::File);
                self.inner.link(from, follow, to_dir, to)
            }
            D::LinkFollowsLinks => self.inner.link(from, Follow::Yes, to_dir, to),
            D::LinkFollowsNoLinks => self.inner.link(from, Follow::No, to_dir, to),
            _ => self.inner.link(from, follow, to_dir, to),
        }
    }

    fn rename(&self, from: &Name, to_dir: &dyn Dir, to: &Name, replace: Replace) -> io::Result<()> {
        let to_dir = good(to_dir);
        let replace = match self.defect {
            D::RenameAlwaysReplaces => Replace::Yes,
            D::RenameNeverReplaces => Replace::No,
            _ => replace,
        };
        let is_file = self.inner.stat_at(from, Follow::No).is_ok_and(|now| now.kind == FileKind::Regular);
        let is_replaced = to_dir.stat_at(to, Follow::No).is_ok();
        match self.defect {
            D::RenameRemovesFirst if is_file && replace == Replace::Yes && from != to => {
                let _ = to_dir.remove(to, Remove::File);
                self.inner.rename(from, to_dir, to, Replace::Yes)
            }
            D::RenameLinksAndRemoves if is_file && !is_replaced => {
                self.inner.link(from, Follow::No, to_dir, to)?;
                self.inner.remove(from, Remove::File)
            }
            D::RenameRemovesTheOtherNameOfTheInode if is_file && is_replaced && from != to => {
                self.inner.rename(from, to_dir, to, replace)?;
                let _ = self.inner.remove(from, Remove::File);
                Ok(())
            }
            _ => self.inner.rename(from, to_dir, to, replace),
        }
    }

    fn exchange(&self, name: &Name, other_dir: &dyn Dir, other: &Name) -> io::Result<()> {
        let other_dir = good(other_dir);
        if self.defect != D::ExchangeRenamesThreeTimes {
            return self.inner.exchange(name, other_dir, other);
        }
        other_dir.stat_at(other, Follow::No)?;
        let aside = Name::new("aside").expect("a name");
        self.inner.rename(name, &*self.inner, &aside, Replace::No)?;
        other_dir.rename(other, &*self.inner, name, Replace::No)?;
        self.inner.rename(&aside, other_dir, other, Replace::No)
    }

    fn remove(&self, name: &Name, what: Remove) -> io::Result<()> {
        let other = if what == Remove::File { Remove::Directory } else { Remove::File };
        match (self.defect, self.inner.remove(name, what)) {
            (D::RemoveIgnoresKind, Err(_)) => self.inner.remove(name, other),
            (D::RemoveRemovesEntries, Err(error)) if error.kind() == ErrorKind::DirectoryNotEmpty => {
                remove_entries(&*self.inner.dir(name, Follow::No, Missing::Fail)?)?;
                self.inner.remove(name, what)
            }
            (D::RemoveIgnoresErrors, Err(_)) => Ok(()),
            (_, removed) => removed,
        }
    }

    fn sync(&self) -> io::Result<()> {
        match self.defect {
            D::SyncOfNamesDoesNothing => Ok(()),
            D::SyncOfNamesIgnoresErrors => self.inner.sync().or(Ok(())),
            _ => self.inner.sync(),
        }
    }

    fn space(&self) -> io::Result<Space> {
        let space = self.inner.space();
        match self.defect {
            D::SpaceIsUnknown => Ok(Space { free: None, ..space? }),
            D::SpaceIgnoresErrors => space.or(Ok(Space { free: Some(u64::MAX), reserves: false })),
            _ => space,
        }
    }
}

impl Listing for BadListing {
    fn next(&mut self, max: usize, out: &mut Vec<Entry>) -> io::Result<bool> {
        let start = out.len();
        let max = match self.defect {
            D::ListIgnoresMaximum => max + 1,
            D::ListRepeatsEntries => (max - 1).max(1),
            _ => max,
        };
        let mut more = self.inner.next(max, out)?;
        match self.defect {
            D::ListSkipsEntries if out.len() > start + 1 => drop(out.pop()),
            D::ListRepeatsEntries if out.len() > start => out.push(out[start].clone()),
            D::ListEndsAfterOneBatch => more = false,
            D::ListNeverEnds if out.len() == start => {
                // Otherwise no case would end.
                more = self.dir.stat().is_ok_and(|now| now.nlink == 0);
            }
            D::ListContinuesAfterRemoval if !more => {
                more = self.dir.stat().is_ok_and(|now| now.nlink == 0);
            }
            _ => {}
        }
        for entry in &mut out[start..] {
            match self.defect {
                D::ListHasWrongKinds => entry.kind = Some(FileKind::Regular),
                D::ListHasWrongNumbers => entry.ino += 1,
                _ => {}
            }
        }
        Ok(more)
    }
}

impl SourceFile for BadSource {
    fn opened(&self) -> &Stat {
        self.inner.opened()
    }

    fn read_at(&self, at: u64, into: &mut [u8]) -> io::Result<usize> {
        match self.defect {
            D::ReadIsShort => {
                let len = into.len().min(500);
                self.inner.read_at(at, &mut into[..len])
            }
            D::ReadIgnoresOffset if at < self.inner.stat()?.size => self.inner.read_at(0, into),
            D::ReadIgnoresErrors => self.inner.read_at(at, into).or(Ok(0)),
            _ => self.inner.read_at(at, into),
        }
    }

    fn next_data(&self, range: ByteRange) -> io::Result<Option<ByteRange>> {
        let found = self.inner.next_data(range)?;
        Ok(match self.defect {
            D::DataExceedsRange => found.map(|data| ByteRange::between(data.start.0, data.end.0 + 4096)),
            D::DataIsNotFound => None,
            D::HolesAreData => (!range.is_empty()).then_some(range),
            _ => found,
        })
    }

    fn changed_since(&self, version: &Version) -> io::Result<Option<Change>> {
        let now = self.inner.stat()?;
        let mut then = *version;
        match self.defect {
            D::ChangeIgnoresChangeTime => then.ctime = now.ctime,
            D::ChangeIgnoresModificationTime => then.mtime = now.mtime,
            D::ChangeIgnoresInode => then.inode = now.identity(),
            _ => return self.inner.changed_since(version),
        }
        Ok(then.change(&now))
    }

    fn lock(&self) -> io::Result<bool> {
        let locked = self.inner.lock();
        match self.defect {
            D::LockOfSourceIsShared => Ok(true),
            D::LockOfSourceNeverEnds => {
                std::mem::forget(Arc::clone(&self.inner));
                locked
            }
            _ => locked,
        }
    }

    fn advise(&self, range: ByteRange, advice: Advice) {
        self.inner.advise(range, advice);
    }

    fn residency(&self, range: ByteRange) -> Option<Residency> {
        self.inner.residency(range)
    }

    fn write_back(&self, range: ByteRange) -> io::Result<()> {
        let written = self.inner.write_back(range);
        if self.defect == D::WriteBackIgnoresErrors { Ok(()) } else { written }
    }

    fn evict(&self, range: ByteRange, retries: DropRetries) -> io::Result<ReadBack> {
        match self.defect {
            D::EvictDoesNothing => Ok(ReadBack::FromDevice),
            D::EvictIgnoresErrors => self.inner.evict(range, retries).or(Ok(ReadBack::FromDevice)),
            _ => self.inner.evict(range, retries),
        }
    }

    fn set_direct(&self, is_on: bool) -> io::Result<Option<Alignment>> {
        self.inner.set_direct(is_on)
    }
}

impl SinkFile for BadSink {
    fn opened(&self) -> io::Result<Stat> {
        if self.defect == D::OpenedMetadataIsThatOfNow { self.inner.stat() } else { self.inner.opened() }
    }

    fn is_new(&self) -> bool {
        self.inner.is_new() || self.defect == D::AllFilesAreNew
    }

    fn lock(&self) -> io::Result<bool> {
        let locked = self.inner.lock();
        match self.defect {
            D::LockIsShared => Ok(true),
            D::LockNeverEnds => {
                std::mem::forget(Arc::clone(&self.inner));
                locked
            }
            _ => locked,
        }
    }

    fn reserve(&self, len: u64) -> io::Result<()> {
        let reserved = self.inner.reserve(len);
        match self.defect {
            D::ReserveGrows if self.inner.stat()?.size < len => self.inner.set_len(len),
            D::ReserveIgnoresErrors => Ok(()),
            _ => reserved,
        }
    }

    fn reserve_range(&self, range: ByteRange) -> io::Result<()> {
        if self.defect == D::ReserveOfRangeDoesNothing {
            return Ok(());
        }
        let reserved = self.inner.reserve_range(range);
        match self.defect {
            D::ReserveOfRangeGrows if self.inner.stat()?.size < range.end.0 => {
                self.inner.set_len(range.end.0)
            }
            D::ReserveOfRangeIgnoresErrors => Ok(()),
            _ => reserved,
        }
    }

    fn write_at(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        match self.defect {
            D::WriteLosesLastByte if bytes.len() > 4096 => self.inner.write_at(at, &bytes[..bytes.len() - 1]),
            D::WriteTruncates => {
                self.inner.write_at(at, bytes)?;
                self.inner.set_len(at + bytes.len() as u64)
            }
            D::WriteIgnoresErrors => self.inner.write_at(at, bytes).or(Ok(())),
            _ => self.inner.write_at(at, bytes),
        }
    }

    fn clear(&self, range: ByteRange, stop: &AtomicBool) -> io::Result<()> {
        let size = self.inner.stat()?.size;
        match self.defect {
            D::ClearDoesNothing => Ok(()),
            D::ClearGrows => {
                self.inner.set_len(size.max(range.end.0))?;
                self.inner.clear(range, stop)
            }
            D::ClearWritesZeros => {
                let cleared = range.intersect(ByteRange::between(0, size)).unwrap_or_default();
                self.inner.write_at(cleared.start.0, &vec![0; cleared.len() as usize])
            }
            _ => self.inner.clear(range, stop),
        }
    }

    fn leave_out(&self, range: ByteRange) {
        self.inner.leave_out(range);
    }

    fn start_writeback(&self, range: ByteRange) {
        self.inner.start_writeback(range);
    }

    fn drop_pages(&self, range: ByteRange) {
        self.inner.drop_pages(range);
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let size = self.inner.stat()?.size;
        match self.defect {
            D::SetLenNeverGrows => self.inner.set_len(len.min(size)),
            D::SetLenNeverShrinks => self.inner.set_len(len.max(size)),
            _ => self.inner.set_len(len),
        }
    }

    fn offload(
        &self,
        from: &dyn SourceFile,
        range: ByteRange,
        to: u64,
        how: Offload,
    ) -> io::Result<Offloaded> {
        let from = (from as &dyn Any).downcast_ref::<BadSource>().map_or(from, |bad| &*bad.inner);
        match self.defect {
            D::ShareIgnoresOffset => self.inner.offload(from, range, 0, how),
            D::ShareCopiesHalf if how == Offload::Share => {
                let half = ByteRange::between(range.start.0, range.start.0 + range.len() / 2);
                copy(from, &*self.inner, half, to)?;
                Ok(Offloaded::Done(range.len()))
            }
            D::ShareIsRefused if how == Offload::Share => Ok(Offloaded::NeverBetween(18)),
            _ => self.inner.offload(from, range, to, how),
        }
    }

    fn sync(&self, what: SyncWhat) -> io::Result<()> {
        let all = ByteRange::between(0, u64::MAX);
        let what = match (self.defect, what) {
            (D::SyncOfDataSyncsARange, SyncWhat::Data) => SyncWhat::Range(all),
            (D::SyncOfAllSyncsData, SyncWhat::All) => SyncWhat::Data,
            (D::SyncOfRangeSyncsAll, SyncWhat::Range(_)) => SyncWhat::All,
            _ => what,
        };
        match self.defect {
            D::SyncDoesNothing => Ok(()),
            D::SyncReportsErrorsOnce if self.has_failed.load(Ordering::Relaxed) => Ok(()),
            _ => self.inner.sync(what).inspect_err(|_| self.has_failed.store(true, Ordering::Relaxed)),
        }
    }

    fn check(&self) -> io::Result<()> {
        if self.defect == D::CheckReportsNothing { Ok(()) } else { self.inner.check() }
    }

    fn failure(&self) -> Option<io::Error> {
        if self.defect == D::FailureIsForgotten { None } else { self.inner.failure() }
    }

    fn is_syncing(&self) -> bool {
        self.inner.is_syncing()
    }

    fn reopen(&self) -> io::Result<Arc<dyn SourceFile>> {
        match self.defect {
            D::ReopenSharesFailures => self.reader(),
            _ => Ok(Arc::new(BadSource { inner: self.inner.reopen()?, defect: self.defect })),
        }
    }

    fn reader(&self) -> io::Result<Arc<dyn SourceFile>> {
        Ok(Arc::new(BadSource { inner: self.inner.reader()?, defect: self.defect }))
    }

    fn set_direct(&self, is_on: bool) -> io::Result<Option<Alignment>> {
        self.inner.set_direct(is_on)
    }

    fn flush(&self) -> io::Result<()> {
        self.inner.flush()
    }

    fn finish(&self, len: u64, metadata: &Metadata<'_>) -> Result<(), Unset> {
        match self.defect {
            D::FinishSetsTimesBeforeLength => {
                self.set_metadata(metadata)?;
                self.inner.finish(len, &Metadata::default())
            }
            D::FinishSetsModeBeforeOwner => {
                let later = Metadata { mode: None, ..metadata.clone() };
                self.set_metadata(&Metadata { mode: metadata.mode, ..Metadata::default() })?;
                self.inner.finish(len, &later)
            }
            D::FinishIgnoresLength => self.set_metadata(metadata),
            D::FinishIgnoresErrors => self.inner.finish(len, metadata).or(Ok(())),
            _ => self.inner.finish(len, metadata),
        }
    }

    fn commit(&self, replace: Replace) -> io::Result<()> {
        let replace = match self.defect {
            D::CommitAlwaysReplaces => Replace::Yes,
            D::CommitNeverReplaces => Replace::No,
            D::CommitDoesNothing => return Ok(()),
            _ => replace,
        };
        if self.defect == D::CommitIgnoresFailedSyncs
            && self.inner.failure().is_some()
            && let Some(tag) = self.tag
        {
            return self.dir.rename(&tag.name(), &*self.dir, &self.name, replace);
        }
        self.inner.commit(replace)?;
        if self.defect == D::CommitTouchesTimes {
            let now = self.inner.stat()?.ctime;
            self.inner.set_times(Times { atime: Some(now), mtime: Some(now) })?;
        }
        Ok(())
    }

    fn is_committed(&self) -> bool {
        self.inner.is_committed()
    }

    fn abandon(&self) -> io::Result<()> {
        match self.defect {
            D::AbandonDoesNothing => Ok(()),
            D::AbandonRemovesCommittedFiles if self.inner.is_committed() => {
                self.dir.remove(&self.name, Remove::File)
            }
            _ => self.inner.abandon(),
        }
    }
}
