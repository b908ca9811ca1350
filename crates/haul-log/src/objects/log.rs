//! Encoder of the object log.

use super::region::{Form, Region};
use super::volume::{self, Volume};
use super::{
    Facts, Identity, Job, Mechanism, ObjectSet, Order, Replay, SourceVersion, Style, Subject, TooManyObjects,
    sheet,
};
use haul_model::{Moment, ObjectIndex, RelPath};
use std::collections::{BTreeMap, BTreeSet};

/// Handle of a file in a [`Log`], returned by [`Log::open`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(u64);

/// Object log of a running job.
///
/// [`done`](Log::done), [`complete`](Log::complete) and [`revoke`](Log::revoke) stage changes.
/// [`commit`](Log::commit) turns all staged changes into orders, which form one group commit. The
/// caller must carry out the orders of one commit before it requests the next one; it may stage
/// changes meanwhile. If an order fails, the caller calls [`start_over`](Log::start_over). The next
/// commit then rewrites everything next to the existing files.
///
/// Nothing is written for a file before its first object is done, or if the file is complete by the
/// next commit.
#[derive(Debug)]
pub struct Log {
    job: Job,
    style: Style,
    /// Last log ID that was assigned.
    log_id: u64,
    files: BTreeMap<FileKey, ActiveFile>,
    keys: BTreeMap<Subject, FileKey>,
    next_key: u64,
    /// Files with staged objects.
    touched: BTreeSet<FileKey>,
    volumes: BTreeMap<u64, Volume>,
    /// Number of the transaction to which new files are added.
    transaction: u64,
    /// Names of files that may exist.
    names: BTreeSet<String>,
    /// Names in `names` whose files hold nothing valid any more.
    stale: BTreeSet<String>,
    /// Names that the last commit removed, in case that failed.
    removed: BTreeSet<String>,
    /// True if the removal of the stale files must be durable.
    forgets: bool,
}

/// A file in progress.
#[derive(Debug)]
pub(super) struct ActiveFile {
    pub(super) subject: Subject,
    blocks: u64,
    /// All durable objects of the file.
    pub(super) done: ObjectSet,
    /// Durable objects that no commit has written yet.
    pub(super) staged: ObjectSet,
    /// Number of the shared log.
    volume: Option<u64>,
    /// Region for the next objects; `None` before the first write.
    pub(super) region: Option<Region>,
    pub(super) serial: u32,
    pub(super) regions: u32,
    /// Size of its part of a shared log, in bytes.
    pub(super) weight: u64,
}

impl Log {
    /// Returns an empty log. `log_id` is a log ID that no earlier log of this job had, for example
    /// a random number.
    pub fn new(job: Job, style: Style, log_id: u64) -> Log {
        Log {
            job,
            style,
            log_id,
            files: BTreeMap::new(),
            keys: BTreeMap::new(),
            next_key: 0,
            touched: BTreeSet::new(),
            volumes: BTreeMap::new(),
            transaction: 1,
            names: BTreeSet::new(),
            stale: BTreeSet::new(),
            removed: BTreeSet::new(),
            forgets: false,
        }
    }

    /// Returns a log that continues from the result of [`replay`](super::replay).
    ///
    /// Its first commit rewrites all of that in `style`, whatever the previous style, and removes
    /// the old files after the new ones are durable. Files with more objects than the encoding
    /// supports are left out.
    pub fn resume(job: Job, style: Style, log_id: u64, found: &Replay) -> Log {
        let mut log = Log::new(job, style, log_id);
        let numbers = found.names.iter().filter_map(|name| {
            let number = name.strip_prefix("transaction-")?;
            number.split(['.', '-']).next()?.parse::<u64>().ok().filter(|&number| number < u64::MAX / 2)
        });
        log.transaction = numbers.max().unwrap_or(0) + 1;
        log.names = found.names.iter().cloned().collect();
        for (subject, objects) in found.facts.iter() {
            if let Ok(key) = log.insert(subject)
                && let Some(file) = log.files.get_mut(&key)
            {
                file.done.extend(objects);
            }
        }
        log.start_over();
        log
    }

    /// Opens a file. If the log knows this version of the file, [`known`](Log::known) returns its
    /// durable objects. Entries of other versions under the same path are revoked.
    ///
    /// # Errors
    ///
    /// Returns [`TooManyObjects`] if the encoding does not support the number of objects; the file
    /// is not logged then.
    pub fn open(&mut self, subject: &Subject) -> Result<FileKey, TooManyObjects> {
        let others: Vec<FileKey> =
            self.versions(&subject.path).filter(|(other, _)| *other != subject).map(|(_, key)| key).collect();
        for other in others {
            self.revoke(other);
            self.complete(other);
        }
        self.keys.get(subject).copied().map_or_else(|| self.insert(subject), Ok)
    }

    /// Returns the durable objects of a file.
    pub fn known(&self, key: FileKey) -> Option<&ObjectSet> {
        self.files.get(&key).map(|file| &file.done)
    }

    /// Stages an object that is durable at the sink. Has no effect for a file that is complete.
    ///
    /// # Panics
    ///
    /// Panics if the file has no such object.
    pub fn done(&mut self, key: FileKey, object: ObjectIndex) {
        let Some(file) = self.files.get_mut(&key) else { return };
        assert!(object.0 < file.blocks, "a file has no object past its end");
        if file.done.insert(object) {
            file.staged.insert(object);
            self.touched.insert(key);
        }
    }

    /// Stages the removal of the records of a complete file. The removal need not be durable,
    /// because the records stay true.
    pub fn complete(&mut self, key: FileKey) {
        let Some(file) = self.files.remove(&key) else { return };
        self.keys.remove(&file.subject);
        self.touched.remove(&key);
        match file.volume.and_then(|number| self.volumes.get_mut(&number)) {
            Some(volume) => volume.end(key, &file),
            None if file.region.is_some() => {
                self.stale.insert(sheet::name(&file.subject));
            }
            None => {}
        }
    }

    /// Revokes the entries of a file: after the next commit no replay returns them, even after a
    /// crash.
    ///
    /// Until that commit is carried out, the caller must not overwrite any byte of the sink file.
    /// The file stays open, without objects.
    pub fn revoke(&mut self, key: FileKey) {
        let Some(file) = self.files.get_mut(&key) else { return };
        self.touched.remove(&key);
        (file.done, file.staged) = Default::default();
        // The removal of entries from an earlier open of the same file may not be durable either.
        self.forgets = true;
        let Some(_) = file.region.take() else { return };
        match file.volume {
            None => {
                self.stale.insert(sheet::name(&file.subject));
            }
            Some(number) => self.renew(number),
        }
    }

    /// Returns true if the log has objects of another version of the file, which
    /// [`open`](Log::open) revokes.
    pub fn knows_another(&self, subject: &Subject) -> bool {
        self.versions(&subject.path).any(|(other, _)| other != subject)
    }

    /// Discards the known state of the log files after a failed order. The next commit rewrites
    /// everything.
    pub fn start_over(&mut self) {
        self.names.append(&mut self.removed);
        self.stale.extend(self.names.iter().cloned());
        self.forgets = true;
        self.volumes.clear();
        for (&key, file) in &mut self.files {
            file.volume = None;
            if file.restage() {
                self.touched.insert(key);
            }
        }
    }

    /// Removes the names of files for which `may_be_there` returns false, after a failed order. No
    /// orders are created for them.
    ///
    /// Otherwise the log would remember the names of all files of failed commits.
    pub fn keep_names(&mut self, may_be_there: impl Fn(&str) -> bool) {
        for names in [&mut self.names, &mut self.stale, &mut self.removed] {
            names.retain(|name| may_be_there(name));
        }
    }

    /// Returns the orders that make all staged changes durable, or an empty list if nothing is
    /// staged.
    pub fn commit(&mut self) -> Vec<Order> {
        let mut steps = CommitOrders::default();
        self.removed.clear();
        match self.style.mechanism {
            Mechanism::File => self.commit_sheets(&mut steps),
            Mechanism::Transaction(_) | Mechanism::Universal => self.commit_volumes(&mut steps),
        }
        self.touched.clear();
        for name in std::mem::take(&mut self.stale) {
            self.names.remove(&name);
            self.removed.insert(name.clone());
            steps.removals.push(Order::Remove { name });
        }
        steps.in_order(std::mem::take(&mut self.forgets))
    }

    /// Returns the orders that remove the log of a finished job.
    pub fn finish(mut self) -> Vec<Order> {
        self.names.append(&mut self.stale);
        self.names.append(&mut self.removed);
        self.names.into_iter().map(|name| Order::Remove { name }).collect()
    }

    /// Returns the contents of the log, as a replay after the next commit returns them.
    pub fn facts(&self) -> Facts {
        let mut facts = Facts::default();
        self.files.values().for_each(|file| facts.add(file.subject.clone(), &file.done));
        facts
    }

    fn versions(&self, path: &RelPath) -> impl Iterator<Item = (&Subject, FileKey)> {
        let time = Moment { sec: i64::MIN, nsec: 0 };
        let source = SourceVersion { size: 0, mtime: time, identity: Identity([0; 16]) };
        let least = Subject { path: path.clone(), source, sink: Identity([0; 16]) };
        let behind = self.keys.range(least..).map(|(subject, &key)| (subject, key));
        behind.take_while({
            let path = path.clone();
            move |(subject, _)| subject.path == path
        })
    }

    fn insert(&mut self, subject: &Subject) -> Result<FileKey, TooManyObjects> {
        let (objects, encoding) = (subject.geometry(&self.job).count(), self.style.encoding);
        if objects > encoding.objects_max() {
            return Err(TooManyObjects { path: subject.path.clone(), objects, encoding });
        }
        let key = FileKey(self.next_key);
        self.next_key += 1;
        self.keys.insert(subject.clone(), key);
        self.files.insert(key, ActiveFile::new(subject.clone(), objects));
        Ok(key)
    }

    fn commit_sheets(&mut self, steps: &mut CommitOrders) {
        steps.durable = !self.touched.is_empty();
        for key in &self.touched {
            let Some(file) = self.files.get_mut(key) else { continue };
            let name = sheet::name(&file.subject);
            let staged = std::mem::take(&mut file.staged);
            if let Some(region) = &mut file.region {
                steps.write(&name, region.put(&file.done, &mut staged.iter().peekable()));
                continue;
            }
            self.log_id = self.log_id.wrapping_add(1);
            let form = Form { encoding: self.style.encoding, blocks: file.blocks };
            let (parts, region) = sheet::begin(&self.job, form, self.log_id, &file.subject, &file.done);
            file.region = Some(region);
            self.stale.remove(&name);
            if self.names.insert(name.clone()) {
                steps.write(&name, parts);
            } else {
                steps.replacements.push(Order::Replace { name, parts: joined(parts) });
            }
        }
    }

    fn commit_volumes(&mut self, steps: &mut CommitOrders) {
        let homeless: Vec<FileKey> = self.touched.iter().copied().collect();
        homeless.into_iter().for_each(|key| self.join(key));
        let numbers: Vec<u64> = self.volumes.keys().copied().collect();
        for number in numbers {
            let Some(volume) = self.volumes.get(&number) else { continue };
            let is_full =
                matches!(self.style.mechanism, Mechanism::Transaction(files) if volume.joined >= files.get());
            if volume.live.is_empty() && (is_full || volume.is_wasteful() || volume.is_new()) {
                self.retire(number);
                continue;
            }
            if volume.is_wasteful() {
                self.renew(number);
            }
            self.write_volume(number, steps);
        }
    }

    /// Assigns a file to a shared log.
    fn join(&mut self, key: FileKey) {
        let Some(file) = self.files.get_mut(&key).filter(|file| file.volume.is_none()) else { return };
        let number = match self.style.mechanism {
            Mechanism::Transaction(files) => {
                let is_full = |volume: &Volume| volume.joined >= files.get();
                if self.volumes.get(&self.transaction).is_some_and(is_full) {
                    self.transaction += 1;
                }
                self.transaction
            }
            Mechanism::File | Mechanism::Universal => 0,
        };
        file.volume = Some(number);
        if !self.volumes.contains_key(&number) {
            let stem = if number == 0 { "universal".to_owned() } else { format!("transaction-{number:08}") };
            let log_id = self.unused_log_id(&stem);
            self.volumes.insert(number, Volume::new(stem, log_id));
        }
        if let Some(volume) = self.volumes.get_mut(&number) {
            volume.live.insert(key);
            volume.joined = volume.joined.saturating_add(1);
        }
    }

    /// Returns a log ID for which no log file exists yet.
    fn unused_log_id(&mut self, stem: &str) -> u64 {
        loop {
            self.log_id = self.log_id.wrapping_add(1);
            let name = volume::data_name(stem, self.log_id);
            if !self.names.contains(&name) && !self.stale.contains(&name) {
                return self.log_id;
            }
        }
    }

    /// Removes a shared log that has no files in progress and will get no more.
    fn retire(&mut self, number: u64) {
        let Some(volume) = self.volumes.remove(&number) else { return };
        if !volume.is_new() || self.names.contains(&volume.index_name()) {
            self.stale.extend([volume.index_name(), volume.data_name()]);
        }
        if number == self.transaction {
            self.transaction += 1;
        }
    }

    /// Schedules a rewrite of a shared log by the next commit.
    fn renew(&mut self, number: u64) {
        let Some(mut volume) = self.volumes.remove(&number) else { return };
        if !volume.is_new() {
            self.stale.insert(volume.data_name());
        }
        let log_id = self.unused_log_id(&volume.stem);
        volume.renew(log_id);
        for key in &volume.live {
            if let Some(file) = self.files.get_mut(key)
                && file.restage()
            {
                self.touched.insert(*key);
            }
        }
        self.volumes.insert(number, volume);
    }

    fn write_volume(&mut self, number: u64, steps: &mut CommitOrders) {
        let Some(volume) = self.volumes.get_mut(&number) else { return };
        let members: Vec<FileKey> =
            volume.live.iter().filter(|key| self.touched.contains(key)).copied().collect();
        if members.is_empty() && !volume.has_ended() && !volume.is_new() {
            return;
        }
        steps.durable |= !members.is_empty() || volume.is_new();
        let mut added = volume.begin(&self.job, self.style.encoding);
        for key in members {
            if let Some(file) = self.files.get_mut(&key) {
                let form = Form { encoding: self.style.encoding, blocks: file.blocks };
                volume.add(form, file, &mut added);
            }
        }
        volume.close(&added);
        let (name, data_name) = (volume.index_name(), volume.data_name());
        steps.write(&data_name, added.data);
        self.names.insert(data_name);
        self.stale.remove(&name);
        let is_there = !self.names.insert(name.clone());
        if added.index_at == 0 && is_there {
            steps.replacements.push(Order::Replace { name, parts: vec![(0, added.index)] });
        } else if !added.index.is_empty() {
            steps.write(&name, vec![(added.index_at, added.index)]);
        }
    }
}

impl ActiveFile {
    fn new(subject: Subject, blocks: u64) -> ActiveFile {
        let (done, staged) = Default::default();
        ActiveFile {
            subject,
            blocks,
            done,
            staged,
            volume: None,
            region: None,
            serial: 0,
            regions: 0,
            weight: 0,
        }
    }

    /// Discards the position of the file in the log. Returns true if objects must be written.
    fn restage(&mut self) -> bool {
        (self.region, self.regions, self.weight) = (None, 0, 0);
        self.staged = self.done.clone();
        !self.staged.is_empty()
    }
}

/// Sorts parts of a file by their offsets, and merges adjacent ones.
fn joined(mut parts: Vec<(u64, Vec<u8>)>) -> Vec<(u64, Vec<u8>)> {
    parts.sort_by_key(|(at, _)| *at);
    let mut joined: Vec<(u64, Vec<u8>)> = Vec::new();
    for (at, bytes) in parts {
        match joined.last_mut() {
            Some((start, before)) if *start + before.len() as u64 == at => before.extend(bytes),
            _ => joined.push((at, bytes)),
        }
    }
    joined
}

/// Orders of one commit, grouped by the order in which they must be carried out.
#[derive(Debug, Default)]
struct CommitOrders {
    writes: Vec<Order>,
    replacements: Vec<Order>,
    removals: Vec<Order>,
    /// True if the writes contain more than the ends of files.
    durable: bool,
}

impl CommitOrders {
    /// Adds writes into one file; adjacent ones are merged.
    fn write(&mut self, name: &str, parts: Vec<(u64, Vec<u8>)>) {
        self.writes.extend(joined(parts).into_iter().map(|(at, bytes)| Order::Write {
            name: name.to_owned(),
            at,
            bytes,
        }));
    }

    /// Returns the orders: new logs before the indexes that name them, and everything new before
    /// the removal of old files.
    fn in_order(self, forgets: bool) -> Vec<Order> {
        let CommitOrders { mut writes, mut replacements, mut removals, durable } = self;
        if !writes.is_empty() && (durable || !replacements.is_empty()) {
            writes.push(Order::Sync);
        }
        if !replacements.is_empty() {
            replacements.push(Order::Sync);
        }
        if forgets {
            removals.push(Order::Sync);
        }
        [writes, replacements, removals].concat()
    }
}
