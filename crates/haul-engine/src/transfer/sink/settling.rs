//! Brings received data to the level that the job requests: syncs and reads back. Many small files
//! share one sync.

use super::SinkContext;
use super::incoming::IncomingFile;
use super::partial_file::{PartialFile, SYNC_FAILED};
use crate::copy::quote;
use crate::settle::FILES_MIN;
use crate::transfer::file_hasher::FileHasher;
use crate::transfer::reason::reason;
use haul_digest::Digest;
use haul_model::{Level, Object, ObjectIndex};
use haul_proto::sink::{Event, Unfinished};
use haul_proto::{Close, FileNumber, Outcome, Reason, Runs, Why};
use haul_storage::{Advice, Dir, DropRetries, ReadBack, SinkFile, SourceFile, SyncWhat};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of directories whose sync failed from which on every other one fails too.
const DIR_FAILURES_MAX: usize = 4096;

/// Work that shares the next syncs.
#[derive(Debug, Default)]
pub(super) struct SyncBatch {
    /// Objects by file and attempt.
    objects: BTreeMap<(FileNumber, u16), Vec<PendingSync>>,
    renames: Vec<PendingRename>,
}

/// An object, the level to reach, and the expected digest of its bytes.
#[derive(Debug)]
pub(super) struct PendingSync {
    pub(super) object: Object,
    pub(super) to: Level,
    pub(super) digest: Option<Digest>,
    /// Reason why a read may return its bytes from the page cache, if it may.
    pub(super) from_cache: Option<&'static str>,
}

/// A file that waits for its rename, with its level.
#[derive(Debug)]
pub(super) struct PendingRename {
    pub(super) file: FileNumber,
    pub(super) close: Option<Close>,
    pub(super) settle: Level,
}

/// A file whose objects are being settled.
struct Synced {
    file: FileNumber,
    attempt: u16,
    incoming: Arc<IncomingFile>,
    objects: Vec<PendingSync>,
    partial_file: Arc<PartialFile>,
    /// Reader for reading back.
    source: Option<Arc<dyn SourceFile>>,
}

impl SyncBatch {
    pub(super) fn object(&mut self, file: (FileNumber, u16), settling: PendingSync) {
        self.objects.entry(file).or_default().push(settling);
    }

    pub(super) fn end(&mut self, ending: PendingRename) {
        self.renames.push(ending);
    }
}

impl SinkContext<'_> {
    /// Settles all objects and files of the batch.
    pub(super) fn settle(&self, batch: SyncBatch, file_hasher: &mut FileHasher<'_>) {
        let SyncBatch { objects, renames } = batch;
        if !objects.is_empty() {
            self.settle_objects(objects, file_hasher);
        }
        if !renames.is_empty() {
            self.end_files(renames, file_hasher);
        }
    }

    fn settle_objects(
        &self,
        objects: BTreeMap<(FileNumber, u16), Vec<PendingSync>>,
        file_hasher: &mut FileHasher<'_>,
    ) {
        let mut waiting = Vec::new();
        for ((file, attempt), objects) in objects {
            let Some(incoming) = self.incoming(file) else { continue };
            match incoming.partial_file_for(&self.destination.dirs, attempt, &self.session.over) {
                Ok(partial_file) => {
                    waiting.push(Synced { file, attempt, incoming, objects, partial_file, source: None });
                }
                Err(reason) => self.report_unsettled(file, attempt, indices(&objects), &reason),
            }
        }
        let files: Vec<(&IncomingFile, &PartialFile)> =
            waiting.iter().map(|one| (&*one.incoming, &*one.partial_file)).collect();
        let synced = self.sync(&files, SyncWhat::Data);
        let mut begun = Vec::new();
        // Start the reads of all files before waiting for the first.
        for (mut one, synced) in waiting.into_iter().zip(synced) {
            let storage = &self.session.spent.storage;
            match synced.and_then(|()| storage.time(|| one.prepare_read_back())) {
                Ok(()) => {
                    self.warn_if_cached(&one);
                    begun.push(one);
                }
                Err(reason) => {
                    self.report_unsettled(one.file, one.attempt, indices(&one.objects), &reason);
                }
            }
        }
        begun.into_iter().for_each(|one| self.report_levels(one, file_hasher));
    }

    /// Fails a file of which these objects could not be synced or read back, if `attempt` is its
    /// current attempt.
    pub(super) fn report_unsettled(
        &self,
        file: FileNumber,
        attempt: u16,
        objects: impl IntoIterator<Item = ObjectIndex>,
        reason: &Reason,
    ) {
        if let Some(incoming) = self.incoming(file) {
            incoming.record_failure(reason);
        }
        for object in objects {
            self.handle(Event::SettleFailed { file, attempt, object, reason: Some(reason.clone()) });
        }
    }

    /// Reports once a session that a read-back may come from the page cache and proves nothing
    /// about the device.
    fn warn_if_cached(&self, synced: &Synced) {
        let Some(why) = synced.objects.iter().find_map(|one| one.from_cache) else { return };
        if !self.cache_warning_printed.swap(true, Ordering::Relaxed) {
            let name = quote(OsStr::from_bytes(&synced.incoming.facts.path));
            self.session.report.note(&format!(
                "{name} is synced, but its read-back may come from the page cache ({why}), so it is not reported as re-read; this may apply to other files"
            ));
        }
    }

    /// Reports to the machine the level that each object of a synced file has reached.
    fn report_levels(&self, synced: Synced, file_hasher: &mut FileHasher<'_>) {
        let Synced { file, attempt, incoming, objects, source, .. } = synced;
        let size = incoming.facts.size();
        let mut settled: BTreeMap<Level, Runs> = BTreeMap::new();
        for PendingSync { object, to, digest, from_cache } in objects {
            let object_verified = match (&source, to) {
                (Some(source), Level::Reread) => {
                    file_hasher.object(&**source, object, size).map_err(Some).and_then(|found| {
                        let untold = || {
                            let text = "no digest for an object to be read back";
                            Some(Reason::new(Why::Internal, text))
                        };
                        if found == digest.ok_or_else(untold)? { Ok(()) } else { Err(None) }
                    })
                }
                _ => Ok(()),
            };
            match object_verified {
                Ok(()) => {
                    let level = if from_cache.is_some() { Level::Durable } else { to };
                    settled.entry(level).or_default().insert(object.index.0);
                }
                Err(reason) => {
                    self.handle(Event::SettleFailed { file, attempt, object: object.index, reason });
                }
            }
        }
        for (level, objects) in settled {
            self.handle(Event::Settled { file, attempt, level, objects });
        }
    }

    /// Finishes files: sets their metadata, syncs them and renames them.
    fn end_files(&self, renames: Vec<PendingRename>, file_hasher: &mut FileHasher<'_>) {
        let storage = &self.session.spent.storage;
        let mut ready = Vec::new();
        for PendingRename { file, close, settle } in renames {
            let prepared = match self.incoming(file) {
                Some(incoming) => self
                    .complete(&incoming, close.as_ref(), file_hasher)
                    .map_err(Unfinished::Failed)
                    .and_then(|()| {
                        storage.time(|| {
                            let (dirs, over) = (&self.destination.dirs, &self.session.over);
                            incoming.prepare(dirs, over, &self.metadata_writer, close.as_ref())
                        })
                    })
                    .map(|partial_file| partial_file.map(|partial_file| (incoming, partial_file))),
                None => Err(Unfinished::Failed(Why::Stopped.into())),
            };
            match prepared {
                Ok(Some((incoming, partial_file))) => ready.push((file, incoming, partial_file, settle)),
                Ok(None) => self.end_file(file, Ok(Outcome::Same)),
                Err(unfinished) => self.end_file(file, Err(unfinished)),
            }
        }
        let (durable, others): (Vec<_>, Vec<_>) =
            ready.into_iter().partition(|(.., settle)| *settle >= Level::Durable);
        let files: Vec<(&IncomingFile, &PartialFile)> =
            durable.iter().map(|(_, incoming, partial_file, _)| (&**incoming, &**partial_file)).collect();
        let synced = self.sync(&files, SyncWhat::All);
        let unsynced = others.into_iter().map(|one| (one, Ok(())));
        let mut named = Vec::new();
        for ((file, incoming, partial_file, settle), synced) in
            durable.into_iter().zip(synced).chain(unsynced)
        {
            let taken = synced
                .map_err(Unfinished::Failed)
                .and_then(|()| storage.time(|| partial_file.commit()).map_err(Unfinished::Failed));
            match taken {
                Ok(()) if settle >= Level::Durable => named.push((file, incoming, partial_file, settle)),
                taken => self.end_file(file, taken.map(|()| Outcome::Done(settle))),
            }
        }
        let files: Vec<(&IncomingFile, &PartialFile)> =
            named.iter().map(|(_, incoming, partial_file, _)| (&**incoming, &**partial_file)).collect();
        let lasting = storage.time(|| self.sync_names(&files));
        for ((file, .., settle), lasting) in named.into_iter().zip(lasting) {
            self.end_file(file, lasting.map(|()| Outcome::Done(settle)).map_err(Unfinished::Failed));
        }
    }

    /// Makes the new names of files durable, and those of the directories above them. Returns one
    /// result per file. Syncs the directories that contain the names, or the whole device if there
    /// are many.
    fn sync_names(&self, files: &[(&IncomingFile, &PartialFile)]) -> Vec<Result<(), Reason>> {
        let sink_dirs = &self.destination.dirs;
        let mut dirs: BTreeMap<*const (), (Arc<dyn Dir>, Option<Reason>)> = BTreeMap::new();
        let mut needed = Vec::new();
        for (incoming, partial_file) in files {
            let above = sink_dirs.unsynced_above(incoming.path.as_bytes()).map_err(unsynced);
            needed.push(above.map(|mut own| {
                own.push(Arc::clone(&partial_file.dir));
                let addresses: Vec<*const ()> = own.iter().map(address).collect();
                dirs.extend(own.into_iter().map(|dir| (address(&dir), (dir, None))));
                addresses
            }));
        }
        // The root has been open since before the first write.
        let is_synced = dirs.len() >= FILES_MIN
            && sink_dirs.root().is_ok_and(|root| {
                let is_here = |dir: &dyn Dir| dir.device().id == root.device().id;
                dirs.values().all(|(dir, _)| is_here(&**dir)) && self.device_syncs.sync_device(&**root)
            });
        for (dir, failure) in dirs.values_mut() {
            *failure = self.sync_dir(&**dir, is_synced).err();
        }
        let result = |((incoming, _), needed): (&(&IncomingFile, _), Result<Vec<_>, Reason>)| {
            if let Some(failure) = needed?.iter().find_map(|dir| dirs[dir].1.clone()) {
                return Err(failure);
            }
            sink_dirs.mark_durable(incoming.path.as_bytes());
            Ok(())
        };
        files.iter().zip(needed).map(result).collect()
    }

    /// Syncs a directory, unless `is_synced` is true. The kernel reports a lost name once, so a
    /// directory whose sync failed fails again from then on.
    fn sync_dir(&self, dir: &dyn Dir, is_synced: bool) -> Result<(), Reason> {
        let identity = || dir.stat().map(|now| now.identity()).map_err(unsynced);
        // No lock is held during a call: the device of another directory may stall.
        let has_failures = !self.dir_failures.lock().is_empty();
        if has_failures {
            let directory = identity()?;
            let failures = self.dir_failures.lock();
            let is_full = failures.len() >= DIR_FAILURES_MAX;
            let any = || failures.values().next().filter(|_| is_full);
            if let Some(reason) = failures.get(&directory).or_else(any) {
                return Err(reason.clone());
            }
        }
        if is_synced {
            return Ok(());
        }
        let synced = dir.sync().map_err(unsynced);
        if let Err(reason) = &synced {
            let directory = identity()?;
            self.dir_failures.lock().insert(directory, reason.clone());
        }
        synced
    }

    fn end_file(&self, file: FileNumber, result: Result<Outcome, Unfinished>) {
        self.finished(file, &result);
        self.handle(Event::Finished { file, result });
    }

    /// Makes files durable. Returns one result per file. Files of one object share syncs.
    fn sync(&self, files: &[(&IncomingFile, &PartialFile)], what: SyncWhat) -> Vec<Result<(), Reason>> {
        let shares = files.iter().map(|(incoming, _)| incoming.is_one_object());
        let files: Vec<(&dyn SinkFile, bool)> =
            files.iter().map(|(_, partial_file)| &*partial_file.file).zip(shares).collect();
        let sync = |file: &dyn SinkFile| file.sync(what);
        let synced = self.session.spent.storage.time(|| match self.destination.dirs.root() {
            Ok(root) => self.device_syncs.sync_files(&**root, &files, sync, SinkFile::check),
            Err(_) => files.iter().map(|(file, _)| sync(*file)).collect(),
        });
        synced.into_iter().map(|synced| synced.map_err(|error| reason(SYNC_FAILED, &error))).collect()
    }
}

fn indices(objects: &[PendingSync]) -> impl Iterator<Item = ObjectIndex> {
    objects.iter().map(|one| one.object.index)
}

impl Synced {
    /// Evicts the ranges to be read back from the page cache, records which ones stay cached, and
    /// starts reading them from the device.
    fn prepare_read_back(&mut self) -> Result<(), Reason> {
        let failed = |error: io::Error| reason("cannot read back", &error);
        if self.objects.iter().all(|one| one.to != Level::Reread) {
            return Ok(());
        }
        let source = self.partial_file.file.reader().map_err(failed)?;
        let mut retries = DropRetries::Some;
        for PendingSync { object, from_cache, .. } in
            self.objects.iter_mut().filter(|one| one.to == Level::Reread)
        {
            if let ReadBack::FromCache(why) = source.evict(object.range, retries).map_err(failed)? {
                (*from_cache, retries) = (Some(why), DropRetries::None);
            }
        }
        // This call only starts the reads sooner. It follows the loop above, because pages that are
        // being read cannot be evicted.
        for PendingSync { object, .. } in self.objects.iter().filter(|one| one.to == Level::Reread) {
            source.advise(object.range, Advice::WillNeed);
        }
        self.source = Some(source);
        Ok(())
    }
}

/// Returns the reason of a file for whose name a directory cannot be synced.
fn unsynced(error: io::Error) -> Reason {
    reason("cannot sync its directory, or one above it", &error)
}

/// Returns a number that identifies an open directory.
fn address(dir: &Arc<dyn Dir>) -> *const () {
    Arc::as_ptr(dir).cast()
}
