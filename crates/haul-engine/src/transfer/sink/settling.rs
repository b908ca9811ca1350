//! Brings received data to the level that the job requests: syncs and reads back. Many small files
//! share one sync.

use super::SinkContext;
use super::incoming::IncomingFile;
use super::partial_file::{PartialFile, SYNC_FAILED};
use crate::copy::quote;
use crate::transfer::file_hasher::FileHasher;
use crate::transfer::reason::reason;
use crate::uncached::{self, DropRetries, ReadPath};
use haul_digest::Digest;
use haul_model::{Level, Object, ObjectIndex};
use haul_proto::sink::{Event, Unfinished};
use haul_proto::{Close, FileNumber, Outcome, Reason, Runs, Why};
use haul_sys::cache::{self, Advice};
use haul_sys::{filesystem, open, stat};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Number of small files from which one sync of the whole file system costs less than one of each
/// file. Local copies use the same number.
const SYNCFS_FILES_MIN: usize = 8;

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
    /// Descriptor for reading back.
    source: Option<OwnedFd>,
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
        let synced = self.sync(&files, |file| cache::sync_data(file));
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
                    file_hasher.object(source, object, size).map_err(Some).and_then(|found| {
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
        let synced = self.sync(&files, |file| cache::sync_all(file));
        let unsynced = others.into_iter().map(|one| (one, Ok(())));
        let mut named = Vec::new();
        for ((file, _, partial_file, settle), synced) in durable.into_iter().zip(synced).chain(unsynced) {
            let taken = synced
                .map_err(Unfinished::Failed)
                .and_then(|()| storage.time(|| partial_file.rename_to_final()).map_err(Unfinished::Failed));
            match taken {
                Ok(()) if settle >= Level::Durable => named.push((file, partial_file, settle)),
                taken => self.end_file(file, taken.map(|()| Outcome::Done(settle))),
            }
        }
        let lasting =
            storage.time(|| self.sync_names(named.iter().map(|(_, partial_file, _)| &**partial_file)));
        for ((file, _, settle), lasting) in named.into_iter().zip(lasting) {
            self.end_file(file, lasting.map(|()| Outcome::Done(settle)).map_err(Unfinished::Failed));
        }
    }

    /// Makes the new names of files durable. Returns one result per file. Syncs their directories,
    /// or the whole file system if there are many.
    fn sync_names<'f>(&self, files: impl Iterator<Item = &'f PartialFile>) -> Vec<Result<(), Reason>> {
        let files: Vec<&PartialFile> = files.collect();
        let mut dirs: BTreeMap<*const OwnedFd, (&PartialFile, Option<Reason>)> =
            files.iter().map(|file| (Arc::as_ptr(file.place()), (*file, None))).collect();
        let device = self.device();
        let lies_there =
            |file: &PartialFile| stat::stat_fd(file.place()).ok().map(|place| place.dev) == device;
        let is_synced = dirs.len() >= SYNCFS_FILES_MIN
            && device.is_some()
            && dirs.values().all(|(file, _)| lies_there(file))
            && self.sync_file_system();
        for (file, failed) in dirs.values_mut().filter(|_| !is_synced) {
            *failed = file.sync_name().err().map(|error| reason("cannot sync its directory", &error));
        }
        let failed = |file: &&PartialFile| dirs[&Arc::as_ptr(file.place())].1.clone();
        files.iter().map(|file| failed(file).map_or(Ok(()), Err)).collect()
    }

    /// Returns the device number of the destination directory.
    fn device(&self) -> Option<u64> {
        stat::stat_fd(self.destination.dirs.root().ok()?).ok().map(|root| root.dev)
    }

    /// Syncs the file system of the destination directory. Returns true if that made all files on
    /// it durable.
    fn sync_file_system(&self) -> bool {
        if self.syncs_each.load(Ordering::Relaxed) {
            return false;
        }
        let root = self.destination.dirs.root();
        let is_synced =
            root.is_ok_and(|root| filesystem::syncs_as_a_whole(root) && cache::sync_filesystem(root).is_ok());
        self.syncs_each.store(!is_synced, Ordering::Relaxed);
        is_synced
    }

    fn end_file(&self, file: FileNumber, result: Result<Outcome, Unfinished>) {
        self.finished(file, &result);
        self.handle(Event::Finished { file, result });
    }

    /// Makes files durable. Returns one result per file. Many files of one object share one sync of
    /// their file system, if its kind guarantees that this syncs their data. All other files are
    /// synced by `one`.
    fn sync(
        &self,
        files: &[(&IncomingFile, &PartialFile)],
        one: impl Fn(BorrowedFd<'_>) -> io::Result<()>,
    ) -> Vec<Result<(), Reason>> {
        let begin = Instant::now();
        let device = self.device();
        let shares: Vec<bool> = files
            .iter()
            .map(|(incoming, partial_file)| {
                let lies_there = || stat::stat_fd(partial_file.fd()).ok().map(|file| file.dev) == device;
                incoming.is_one_object() && device.is_some() && lies_there()
            })
            .collect();
        // The root was opened before the first write, so its descriptor reports every write-back
        // error since. After an error each file is synced separately, to find the one that failed.
        let is_synced =
            shares.iter().filter(|shares| **shares).count() >= SYNCFS_FILES_MIN && self.sync_file_system();
        let synced = files.iter().zip(shares).map(|((_, partial_file), shares)| {
            let synced = partial_file.sync(|file| if shares && is_synced { Ok(()) } else { one(file) });
            synced.map_err(|error| reason(SYNC_FAILED, &error))
        });
        let synced = synced.collect();
        self.session.spent.storage.add(begin.elapsed());
        synced
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
        let source = open::reopen_source(self.partial_file.fd(), false).map_err(failed)?;
        let mut retries = DropRetries::Some;
        for PendingSync { object, from_cache, .. } in
            self.objects.iter_mut().filter(|one| one.to == Level::Reread)
        {
            if let ReadPath::Cache(why) = uncached::clear(&source, object.range, retries).map_err(failed)? {
                (*from_cache, retries) = (Some(why), DropRetries::None);
            }
        }
        // Ignore an error: this call only starts the reads sooner. It follows the loop above,
        // because pages that are being read cannot be evicted.
        for PendingSync { object, .. } in self.objects.iter().filter(|one| one.to == Level::Reread) {
            let _ = cache::advise(&source, object.range, Advice::WillNeed);
        }
        self.source = Some(source);
        Ok(())
    }
}
