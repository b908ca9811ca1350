//! Directories: what is known of them while they are filled, and how they are opened.

use crate::copy::directory::{Directory, SinkEnd};
use crate::copy::error::{CopyError, Refusal};
use crate::copy::job::Job;
use crate::copy::links::Identity;
use crate::copy::operands::{MadeParent, OperandWalk};
use crate::copy::{metadata, settle};
use haul_sys::dir::{DirReader, open_dir_at, open_place_at};
use haul_sys::{Follow, Stat, stat};
use std::ffi::OsString;
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
    /// A new one as it was made, before its owner got all rights; an old one as it was found.
    pub(crate) sink: Stat,
    pub(crate) sink_name: OsString,
    pub(crate) is_new: bool,
    /// Permissions it lacks until it has its owner.
    pub(crate) omitted: u32,
    /// The open sink takes no metadata: this user may not read the directory.
    pub(crate) set_by_name: bool,
}

/// A directory that stands at the sink, not yet opened.
#[derive(Debug)]
pub(crate) struct NewDirectory {
    pub(super) parent: Arc<Directory>,
    pub(super) source_name: OsString,
    pub(super) follow: Follow,
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

/// Opens a directory at both ends. Where that fails, or where it is not to be entered, it is settled at once.
pub(crate) fn enter(job: &Job<'_>, mut new: NewDirectory) -> Option<(Arc<Directory>, DirReader)> {
    if !new.is_entered {
        return settle_unread(job, &new);
    }
    match open_ends(&mut new) {
        Ok((source, sink, reader)) => {
            let sink_end = SinkEnd { is_new: new.facts.is_new, dev: new.facts.sink.dev };
            let settle = DirectorySettle::Copied(Box::new(new.facts));
            let directory = Directory::open(new.parent, (source, sink), new.source_name, sink_end, settle);
            Some((directory, DirReader::new(reader)))
        }
        Err(error) => {
            job.fail(&error);
            settle_unread(job, &new)
        }
    }
}

fn open_ends(new: &mut NewDirectory) -> Result<(OwnedFd, OwnedFd, OwnedFd), CopyError> {
    let source_path = || new.parent.source_path_of(&new.source_name);
    let unreadable = |source| CopyError::Cannot { action: "access", path: source_path(), source };
    let source = open_dir_at(new.parent.source(), &*new.source_name, new.follow).map_err(unreadable)?;
    let found = stat::stat_fd(&source).map_err(unreadable)?;
    if found.identity() != new.facts.source.identity() {
        return Err(Refusal::Replaced(source_path()).into());
    }
    let reader = source.try_clone().map_err(unreadable)?;
    let (dir, name) = (new.parent.sink(), &*new.facts.sink_name);
    let sink = match open_dir_at(dir, name, Follow::No) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            new.facts.set_by_name = true;
            open_place_at(dir, name, Follow::No)
        }
        opened => opened,
    };
    let sink = sink.map_err(|source| {
        let path = new.parent.sink_path_of(name);
        CopyError::Cannot { action: "access", path, source }
    })?;
    Ok((source, sink, reader))
}

fn settle_unread(job: &Job<'_>, new: &NewDirectory) -> Option<(Arc<Directory>, DirReader)> {
    super::met(job);
    metadata::settle_unread(job, &new.parent, &new.source_name, &new.facts);
    settle::leave(job, &new.parent);
    None
}
