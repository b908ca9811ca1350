//! What a worker beside the lanes does: making objects durable, reading back, hashing what stands there already, deleting.

use super::Side;
use super::incoming::Incoming;
use super::places::Missing;
use super::settling::{Ending, Settling, Unsettled};
use crate::transfer::meeting::{Asked, Seat};
use crate::transfer::reason::reason;
use crate::transfer::rereader::Rereader;
use haul_digest::Digest;
use haul_model::{ByteLen, Geometry, Level, Object, ObjectIndex, RelPath};
use haul_proto::sink::{Event, Verdict};
use haul_proto::{Close, FileNumber, Reason, Runs, limits};
use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::open::{rmdir_at, unlink_at};
use haul_sys::{FileKind, Follow, open, stat};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

/// Names of a directory that are looked at together.
const NAMES_AT_ONCE: usize = 256;

/// One thing to do.
#[derive(Debug)]
pub(super) enum Errand {
    /// Bring an object to a level.
    Settle { file: FileNumber, attempt: u16, object: Object, to: Level, digest: Option<Digest> },
    /// Read an object, or all of a file, and hash it.
    Rehash { file: FileNumber, attempt: u16, object: Option<Object> },
    /// Bring a file to its end of which not everything was hashed on its way.
    Finish { file: FileNumber, close: Close, settle: Level },
    /// Hash what stands under the name of a file.
    HashStanding { file: FileNumber },
    /// Hash it by objects.
    HashObjects { file: FileNumber },
    /// List all directories.
    Sweep,
    /// Delete names.
    Remove { batch: u32, directory: Box<[u8]>, names: Vec<Box<[u8]>> },
}

impl Side<'_> {
    /// Does what comes until nothing more can.
    pub(super) fn run_errands(&self, errands: &crossbeam_channel::Receiver<Errand>) {
        let mut rereader = Rereader::new(self.recipe, &self.session.spent, &self.session.over);
        while let Some(first) = self.next_errand(errands) {
            // Syncs are grouped: what came while the last ones ran shares the next.
            let mut unsettled = Unsettled::default();
            for errand in std::iter::once(first).chain(errands.try_iter()).collect::<Vec<_>>() {
                match errand {
                    Errand::Settle { file, attempt, object, to, digest } => {
                        unsettled.object((file, attempt), Settling { object, to, digest, from_cache: None });
                    }
                    Errand::Finish { file, close, settle } => unsettled.end(Ending { file, close, settle }),
                    Errand::Rehash { file, attempt, object } => {
                        self.rehash(file, attempt, object, &mut rereader);
                    }
                    Errand::HashStanding { file } => self.hash_standing(file, &mut rereader),
                    Errand::HashObjects { file } => self.hash_objects(file, &mut rereader),
                    Errand::Sweep => self.sweep(),
                    Errand::Remove { batch, directory, names } => self.remove(batch, &directory, &names),
                }
            }
            self.settle(unsettled, &mut rereader);
        }
    }

    fn next_errand(&self, errands: &crossbeam_channel::Receiver<Errand>) -> Option<Errand> {
        loop {
            match errands.recv_timeout(Duration::from_millis(100)) {
                Ok(errand) => return Some(errand),
                Err(crossbeam_channel::RecvTimeoutError::Disconnected) => return None,
                Err(crossbeam_channel::RecvTimeoutError::Timeout) if self.session.is_ended() => return None,
                Err(crossbeam_channel::RecvTimeoutError::Timeout) => {}
            }
        }
    }

    fn rehash(&self, file: FileNumber, attempt: u16, object: Option<Object>, rereader: &mut Rereader<'_>) {
        let Some(incoming) = self.incoming(file) else { return };
        let digest = incoming.arriving_of(&self.store.places, attempt).and_then(|arriving| {
            // Objects that are holes never come.
            arriving
                .grow_to(incoming.facts.size())
                .map_err(|error| reason("cannot set the length", &error))?;
            let source = open::reopen_source(arriving.fd(), false)
                .map_err(|error| reason("cannot read back", &error))?;
            match object {
                Some(object) => {
                    rereader.object(&source, object, incoming.facts.size()).map(|(digest, _)| digest)
                }
                None => rereader.whole(&source, incoming.facts.size()),
            }
        });
        self.handle(Event::Rehashed { file, attempt, object: object.map(|object| object.index), digest });
    }

    /// Hashes what did not come of a file, and its digests are made of all the same: objects that are holes, or were there.
    pub(super) fn complete(
        &self,
        incoming: &Incoming,
        close: &Close,
        rereader: &mut Rereader<'_>,
    ) -> Result<(), Reason> {
        if !incoming.is_incomplete(close) {
            return Ok(());
        }
        let size = incoming.facts.size();
        let arriving = incoming.arriving(&self.store.places)?;
        arriving.grow_to(size).map_err(|error| reason("cannot set the length", &error))?;
        let source =
            open::reopen_source(arriving.fd(), false).map_err(|error| reason("cannot read back", &error))?;
        let mut next = 0;
        while let Some(object) = incoming.missing(next) {
            incoming.add_late(object, rereader.late(&source, object, size)?);
            next = object.index.0 + 1;
        }
        Ok(())
    }

    fn hash_standing(&self, file: FileNumber, rereader: &mut Rereader<'_>) {
        let Some(incoming) = self.incoming(file) else { return };
        let found =
            standing(self, &incoming).and_then(|(standing, size)| rereader.whole(&standing, size).ok());
        *incoming.standing_digest.lock().unwrap_or_else(PoisonError::into_inner) = found;
        // What can't be read is sent anew.
        let verdict = found.map_or(Verdict::Take { have: Runs::default() }, Verdict::Unless);
        self.handle(self.opened(file, verdict, incoming.facts.size()));
    }

    fn hash_objects(&self, file: FileNumber, rereader: &mut Rereader<'_>) {
        let Some(incoming) = self.incoming(file) else { return };
        let (have, samples) = incoming.compared_by();
        let (standing, sampled) = (incoming.compared(&self.store.places), incoming.sampled());
        if standing.is_none() && sampled.is_none() {
            let take = Verdict::Take { have };
            return self.handle(self.opened(file, take, incoming.facts.size()));
        }
        let total = incoming.facts.size();
        let differing = Verdict::Differing { have: have.clone(), samples: samples.clone() };
        self.handle(self.opened(file, differing, total));
        let geometry = Geometry::new(ByteLen(total), self.options.object);
        let mut next = 0;
        while next < geometry.count() {
            let wanted = self.session.meeting.ask(|machine, now| match machine.digests_wanted(file) {
                _ if machine.is_over() => Asked::Answer(0),
                0 if !machine.is_open(file) => Asked::Answer(0),
                0 => Asked::Wait(Seat::Digests(file), now + Duration::from_secs(1)),
                wanted => Asked::Answer(wanted),
            });
            if wanted == 0 {
                return;
            }
            let count = wanted.min(geometry.count() - next).min(limits::DIGESTS_PER_MESSAGE as u64).min(64);
            let digests = (next..next + count).map(|index| {
                let object = geometry.object(ObjectIndex(index))?;
                let sampled = sampled.as_ref().filter(|_| samples.contains(index));
                let (found, size) = sampled.or(standing.as_ref())?;
                let is_there = object.range.end.0 <= *size && !have.contains(index);
                is_there
                    .then(|| rereader.object(found, object, total).ok().map(|(digest, _)| digest))
                    .flatten()
            });
            let digests = digests.collect();
            self.handle(Event::OwnDigests { file, digests });
            next += count;
        }
    }

    /// Lists every directory from the root down; of the root what was asked for, and nothing else of it is for the source to know or to judge.
    fn sweep(&self) {
        let mut waiting: Vec<Vec<u8>> = vec![Vec::new()];
        while let Some(directory) = waiting.pop() {
            let Ok(place) = self.store.places.open(&directory, Missing::Fails) else { continue };
            // A descriptor of its own: reading moves it.
            let Ok(own) = open_dir_at(&place, c".", Follow::No) else { continue };
            let mut reader = DirReader::new(own);
            loop {
                let mut entries = Vec::new();
                let more = reader
                    .read_batch(NAMES_AT_ONCE.min(limits::NAMES_PER_LIST), &mut entries)
                    .unwrap_or(false);
                let mut names: Vec<Box<[u8]>> = Vec::new();
                for entry in entries {
                    let kind = entry.kind_hint.or_else(|| {
                        stat::stat_at(&place, entry.name.as_c_str(), Follow::No).ok().map(|facts| facts.kind)
                    });
                    let name = entry.name.as_bytes();
                    let is_mark = |name: &CStr| self.log.as_ref().is_some_and(|log| log.is_mark(name));
                    if directory.is_empty() && (!self.store.expected.has(name) || is_mark(&entry.name)) {
                        continue;
                    }
                    if kind == Some(FileKind::Directory) {
                        waiting.push(if directory.is_empty() {
                            name.to_vec()
                        } else {
                            [&directory, &b"/"[..], name].concat()
                        });
                    }
                    names.push(name.into());
                }
                if !names.is_empty() && !self.list(&directory, names) {
                    return;
                }
                if !more {
                    break;
                }
            }
        }
        self.handle(Event::Swept);
    }

    /// Tells of names when the machine takes them; false where the session is over.
    fn list(&self, directory: &[u8], names: Vec<Box<[u8]>>) -> bool {
        let may = self.session.meeting.ask(|machine, now| match machine.may_list() {
            _ if machine.is_over() => Asked::Answer(false),
            true => Asked::Answer(true),
            false => Asked::Wait(Seat::Lists, now + Duration::from_secs(1)),
        });
        if may {
            self.handle(Event::Listed { directory: directory.into(), names });
        }
        may
    }

    fn remove(&self, batch: u32, directory: &[u8], names: &[Box<[u8]>]) {
        let (mut deleted, mut failed) = (0, 0);
        for name in names {
            let path = if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() };
            let removed = RelPath::new(&path).map_err(io::Error::other).and_then(|_| {
                let place = self.store.places.open(directory, Missing::Fails)?;
                self.store.places.forget(&path);
                if self.options.dry_run { Ok(()) } else { remove_all(&place, &CString::new(&**name)?) }
            });
            match removed {
                Ok(()) => {
                    deleted += 1;
                    self.session.report.deleted(&path);
                }
                // What lay in a directory that went before is gone with it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    failed += 1;
                    let reason = reason("cannot delete", &error);
                    self.session.report.failed(&crate::transfer::report::Failure {
                        path,
                        here: true,
                        reason,
                    });
                }
            }
        }
        self.handle(Event::Removed { batch, deleted, failed });
    }
}

/// What stands under a file's name, and its length.
fn standing(side: &Side<'_>, incoming: &Incoming) -> Option<(Arc<OwnedFd>, u64)> {
    incoming.standing(&side.store.places).ok().flatten().map(|(file, facts)| (file, facts.size))
}

/// Removes a name and all beneath it, through no link and past no mount.
fn remove_all(place: &OwnedFd, name: &CString) -> io::Result<()> {
    match unlink_at(place, name.as_c_str()) {
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {}
        other => return other,
    }
    // Level by level with one open directory each: what was entered last is emptied first.
    let mut levels: Vec<(OwnedFd, CString)> =
        vec![(open_dir_at(place, name.as_c_str(), Follow::No)?, name.clone())];
    while let Some((directory, _)) = levels.last() {
        let mut entries = Vec::new();
        let own = open_dir_at(directory, c".", Follow::No)?;
        DirReader::new(own).read_batch(NAMES_AT_ONCE, &mut entries)?;
        let mut deeper = None;
        for entry in &entries {
            match unlink_at(directory, entry.name.as_c_str()) {
                Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
                    deeper = Some((
                        open_dir_at(directory, entry.name.as_c_str(), Follow::No)?,
                        entry.name.clone(),
                    ));
                    break;
                }
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if let Some(deeper) = deeper {
            levels.push(deeper);
        } else if entries.is_empty() {
            let (_, name) = levels.pop().expect("the loop holds the last one");
            let above = levels.last().map_or(place, |(above, _)| above);
            rmdir_at(above, name.as_c_str())?;
        }
    }
    Ok(())
}
