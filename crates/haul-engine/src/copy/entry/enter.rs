//! Directories: what is known of them while they are filled, and how they are opened.

use crate::copy::descriptors::{Opened, SourceEnd};
use crate::copy::directory::Directory;
use crate::copy::error::{CopyError, Refusal};
use crate::copy::job::Job;
use crate::copy::links::Identity;
use crate::copy::operands::{MadeParent, OperandWalk};
use crate::copy::{metadata, settle};
use haul_sys::dir::{DirReader, is_still, open_dir_at, open_place_at};
use haul_sys::{Follow, Stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// An operand of the command, for messages that speak of it from deep within.
#[derive(Debug, Default)]
pub(crate) struct OperandNames {
    /// Its place in the command, from 0.
    pub(crate) index: usize,
    /// No other operand is copied.
    pub(crate) is_only_one: bool,
    /// As typed.
    pub(crate) source: OsString,
    /// Where it goes.
    pub(crate) sink: OsString,
}

/// What is set on a directory when all beneath it is through.
#[derive(Debug)]
pub(crate) enum DirectorySettle {
    /// Nothing: the place of all operands.
    Nothing,
    /// The place of one operand.
    Operand(OperandSettle),
    /// A directory that was copied.
    Copied(Box<DirectoryFacts>),
}

/// What follows when an operand is through.
#[derive(Debug)]
pub(crate) struct OperandSettle {
    pub(crate) names: Arc<OperandNames>,
    /// `--parents`: the directories above it, outermost first.
    pub(crate) parents: Vec<MadeParent>,
    /// The operands after it, where they must wait for it.
    pub(crate) next: Mutex<Option<OperandWalk>>,
}

/// Both ends of a directory as they were when it was met.
#[derive(Debug)]
pub(crate) struct DirectoryFacts {
    pub(crate) names: Arc<OperandNames>,
    pub(crate) source: Stat,
    /// Whether a link may lead to the source.
    pub(crate) follow: Follow,
    /// A new one as it was made, before its owner got all rights; an old one as it was found.
    pub(crate) sink: Stat,
    pub(crate) sink_name: OsString,
    pub(crate) is_new: bool,
    /// It existed and was closed to its owner, who has all rights to it until it is filled.
    pub(crate) was_closed: bool,
    /// Permissions it lacks until it has its owner.
    pub(crate) omitted: u32,
    /// Whether the sink's name may be a link to it (`--keep-directory-symlink`).
    pub(crate) follows_sink: Follow,
    /// The open sink takes no metadata: this user may not read the directory.
    pub(crate) set_by_name: bool,
}

/// What is known of the sink end of a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SinkEnd {
    /// This job made it.
    pub(crate) is_new: bool,
    /// Its device number.
    pub(crate) dev: u64,
}

/// A directory that stands at the sink, not yet opened.
#[derive(Debug)]
pub(crate) struct NewDirectory {
    pub(super) parent: Arc<Directory>,
    pub(super) source_name: OsString,
    /// What it holds is copied; not so for other file systems with `-x`.
    pub(super) is_entered: bool,
    pub(super) facts: DirectoryFacts,
}

impl DirectorySettle {
    /// The operand it is or lies beneath.
    pub(crate) fn names(&self) -> Option<&Arc<OperandNames>> {
        match self {
            DirectorySettle::Nothing => None,
            DirectorySettle::Operand(operand) => Some(&operand.names),
            DirectorySettle::Copied(facts) => Some(&facts.names),
        }
    }

    /// The device of the source directory.
    pub(super) fn source_dev(&self) -> Option<u64> {
        match self {
            DirectorySettle::Copied(facts) => Some(facts.source.dev),
            _ => None,
        }
    }
}

/// Whether the source directory `identity` is `place` or one above it. Only followed links lead to such a one.
pub(super) fn is_within(identity: Identity, place: &Directory) -> bool {
    place.upward().any(|directory| match &directory.settle {
        DirectorySettle::Copied(facts) => facts.source.identity() == identity,
        _ => false,
    })
}

/// A directory and what reads its source.
pub(crate) type Reading = (Opened, DirReader<SourceEnd>);

/// Opens a directory at both ends. Where that fails, or where it is not to be entered, it is settled at once.
pub(crate) fn enter(job: &Job<'_>, new: NewDirectory) -> Option<Reading> {
    let parent = match job.descriptors.open(&new.parent) {
        Ok(parent) => parent,
        Err(error) => {
            job.fail(&error);
            super::met(job);
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
                // Whatever stands there is not this job's to change.
                super::met(job);
                settle::leave(job, &parent);
                return None;
            }
            settle_unread(job, &parent, &NewDirectory { facts, ..new })
        }
    }
}

/// Opens a directory's source, if it is still the one that was met.
///
/// # Errors
/// It can't be opened, or is another one now.
pub(crate) fn open_source(
    above: &Opened,
    name: &OsStr,
    facts: &DirectoryFacts,
) -> Result<OwnedFd, CopyError> {
    let path = || above.source_path_of(name);
    let opened = open_dir_at(above.source(), name, facts.follow);
    still_the_one(opened, &facts.source).map_err(|error| refused(error, path()))
}

/// Opens a directory's sink, if it is still the one that was made or found.
///
/// # Errors
/// It can't be opened, or is another one now: nothing is to be written there.
pub(crate) fn open_sink(above: &Opened, facts: &DirectoryFacts) -> Result<OwnedFd, CopyError> {
    let open = if facts.set_by_name { open_place_at } else { open_dir_at };
    let opened = open(above.sink(), facts.sink_name.as_os_str(), facts.follows_sink);
    still_the_one(opened, &facts.sink).map_err(|error| refused(error, above.sink_path_of(&facts.sink_name)))
}

/// As [`open_sink`], for the first time: notes where this user may make names in it and not read it.
fn open_new_sink(above: &Opened, facts: &mut DirectoryFacts) -> Result<OwnedFd, CopyError> {
    match open_sink(above, facts) {
        Err(CopyError::Cannot { source, .. }) if source.kind() == io::ErrorKind::PermissionDenied => {
            facts.set_by_name = true;
            open_sink(above, facts)
        }
        opened => opened,
    }
}

/// `None`: it is another one.
fn still_the_one(opened: io::Result<OwnedFd>, then: &Stat) -> Result<OwnedFd, Option<io::Error>> {
    let fd = opened?;
    if is_still(&fd, then)? { Ok(fd) } else { Err(None) }
}

fn refused(error: Option<io::Error>, path: OsString) -> CopyError {
    match error {
        Some(source) => CopyError::Cannot { action: "access", path, source },
        None => Refusal::Replaced(path).into(),
    }
}

fn settle_unread(job: &Job<'_>, parent: &Opened, new: &NewDirectory) -> Option<Reading> {
    super::met(job);
    metadata::settle_unread(job, parent, &new.source_name, &new.facts);
    settle::leave(job, parent);
    None
}
