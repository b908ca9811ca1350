//! Directories: their state while they are filled, and the opening of both their ends.

use crate::copy::descriptors::{Opened, SourceEnd};
use crate::copy::directory::Directory;
use crate::copy::error::{CopyError, Refusal};
use crate::copy::job::Job;
use crate::copy::links::Identity;
use crate::copy::operands::{MadeParent, OperandWalk};
use crate::copy::{metadata, settle};
use haul_sys::dir::{DirReader, is_same_file, open_dir_at, open_place_at};
use haul_sys::{Follow, Stat};
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// An operand of the command, for messages from deep beneath it.
#[derive(Debug, Default)]
pub(crate) struct OperandNames {
    /// Index in the command, from 0.
    pub(crate) index: usize,
    /// True if no other operand is copied.
    pub(crate) is_only_one: bool,
    /// The source, as typed.
    pub(crate) source: OsString,
    /// The sink.
    pub(crate) sink: OsString,
}

/// Work to do on a directory when everything beneath it has finished.
#[derive(Debug)]
pub(crate) enum DirectorySettle {
    /// Nothing: the directory of all operands.
    Nothing,
    /// The directory of one operand.
    Operand(OperandSettle),
    /// A directory that was copied.
    Copied(Box<DirectoryFacts>),
}

/// Work to do when an operand has finished.
#[derive(Debug)]
pub(crate) struct OperandSettle {
    pub(crate) names: Arc<OperandNames>,
    /// `--parents`: the directories above the operand, outermost first.
    pub(crate) parents: Vec<MadeParent>,
    /// The next operands, if they must wait for this one.
    pub(crate) next: Mutex<Option<OperandWalk>>,
}

/// State of both ends of a directory when it was found.
#[derive(Debug)]
pub(crate) struct DirectoryFacts {
    pub(crate) names: Arc<OperandNames>,
    pub(crate) source: Stat,
    /// `Follow::Yes` if a link may lead to the source.
    pub(crate) follow: Follow,
    /// State of a new sink as created, before its owner got all permissions, or of an existing sink
    /// as found.
    pub(crate) sink: Stat,
    pub(crate) sink_name: OsString,
    pub(crate) is_new: bool,
    /// True if the sink existed and its owner lacked permissions. The owner has all permissions
    /// until the directory is filled.
    pub(crate) was_closed: bool,
    /// Permissions that the sink lacks until its owner is set.
    pub(crate) omitted: u32,
    /// `Follow::Yes` if the sink's name may be a link to the directory
    /// (`--keep-directory-symlink`).
    pub(crate) follows_sink: Follow,
    /// True if the open sink accepts no metadata, because this user may not read the directory.
    pub(crate) set_by_name: bool,
}

/// State of the sink end of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinkEnd {
    /// True if this job created the directory.
    pub(crate) is_new: bool,
    /// Device number of the directory.
    pub(crate) dev: u64,
}

/// A directory that exists at the sink and is not opened yet.
#[derive(Debug)]
pub(crate) struct NewDirectory {
    pub(super) parent: Arc<Directory>,
    pub(super) source_name: OsString,
    /// True if its contents are copied; false for other file systems with `-x`.
    pub(super) is_entered: bool,
    pub(super) facts: DirectoryFacts,
}

impl DirectorySettle {
    /// Returns the operand that this directory is, or is beneath.
    pub(crate) fn names(&self) -> Option<&Arc<OperandNames>> {
        match self {
            DirectorySettle::Nothing => None,
            DirectorySettle::Operand(operand) => Some(&operand.names),
            DirectorySettle::Copied(facts) => Some(&facts.names),
        }
    }

    /// Returns the device number of the source directory.
    pub(super) fn source_dev(&self) -> Option<u64> {
        match self {
            DirectorySettle::Copied(facts) => Some(facts.source.dev),
            _ => None,
        }
    }
}

/// Returns true if the source directory `identity` is `place` or above it. Only a followed link can
/// lead to such a directory.
pub(super) fn is_within(identity: Identity, place: &Directory) -> bool {
    place.upward().any(|directory| match &directory.settle {
        DirectorySettle::Copied(facts) => facts.source.identity() == identity,
        _ => false,
    })
}

/// A directory and the reader of its source.
pub(crate) type Reading = (Opened, DirReader<SourceEnd>);

/// Opens a directory at both ends. If that fails, or if the directory is not to be entered, settles
/// it immediately.
pub(crate) fn enter(job: &Job<'_>, new: NewDirectory) -> Option<Reading> {
    let parent = match job.descriptors.open(&new.parent) {
        Ok(parent) => parent,
        Err(error) => {
            job.fail(&error);
            super::handled(job);
            settle::leave(job, &new.parent);
            return None;
        }
    };
    if !new.is_entered {
        return settle_unread(job, &parent, &new);
    }
    let mut facts = new.facts;
    let ends = open_source(&parent, &new.source_name, &facts)
        .and_then(|source| Ok((source, open_new_sink(&parent, &mut facts)?)));
    match ends {
        Ok(ends) => {
            let directory = job.descriptors.enter(new.parent, ends, new.source_name, facts);
            let reader = DirReader::new(directory.source_end());
            Some((directory, reader))
        }
        Err(error) => {
            job.fail(&error);
            if matches!(error, CopyError::Refused(_)) {
                // An object at the sink that was refused is not changed by this job.
                super::handled(job);
                settle::leave(job, &parent);
                return None;
            }
            settle_unread(job, &parent, &NewDirectory { facts, ..new })
        }
    }
}

/// Opens the source of a directory, if it is still the directory that was found.
///
/// # Errors
/// Returns an error if the source cannot be opened or was replaced.
pub(crate) fn open_source(
    above: &Opened,
    name: &OsStr,
    facts: &DirectoryFacts,
) -> Result<OwnedFd, CopyError> {
    let path = || above.source_path_of(name);
    let opened = open_dir_at(above.source(), name, facts.follow);
    is_same_directory(opened, &facts.source).map_err(|error| refused(error, path()))
}

/// Opens the sink of a directory, if it is still the directory that was created or found.
///
/// # Errors
/// Returns an error if the sink cannot be opened or was replaced. The caller must not write there.
pub(crate) fn open_sink(above: &Opened, facts: &DirectoryFacts) -> Result<OwnedFd, CopyError> {
    let open = if facts.set_by_name { open_place_at } else { open_dir_at };
    let opened = open(above.sink(), facts.sink_name.as_os_str(), facts.follows_sink);
    is_same_directory(opened, &facts.sink)
        .map_err(|error| refused(error, above.sink_path_of(&facts.sink_name)))
}

/// Like [`open_sink`], for the first time. Sets `set_by_name` if this user may create names in the
/// sink but not read it.
fn open_new_sink(above: &Opened, facts: &mut DirectoryFacts) -> Result<OwnedFd, CopyError> {
    match open_sink(above, facts) {
        Err(CopyError::Cannot { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            facts.set_by_name = true;
            open_sink(above, facts)
        }
        opened => opened,
    }
}

/// Returns `Err(None)` if the opened directory is another one.
fn is_same_directory(opened: io::Result<OwnedFd>, then: &Stat) -> Result<OwnedFd, Option<io::Error>> {
    let fd = opened?;
    if is_same_file(&fd, then)? { Ok(fd) } else { Err(None) }
}

fn refused(error: Option<io::Error>, path: OsString) -> CopyError {
    match error {
        Some(source) => CopyError::Cannot { action: "access", path, source },
        None => Refusal::Replaced(path).into(),
    }
}

fn settle_unread(job: &Job<'_>, parent: &Opened, new: &NewDirectory) -> Option<Reading> {
    super::handled(job);
    metadata::settle_unread(job, parent, &new.source_name, &new.facts);
    settle::leave(job, parent);
    None
}
