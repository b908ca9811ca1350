//! Facts to bytes.

use super::region::{Form, Region};
use super::volume::{self, Volume};
use super::{
    Facts, Identity, Job, Mechanism, ObjectSet, Order, Replay, SourceVersion, Style, Subject, TooManyObjects,
    sheet,
};
use haul_model::{Moment, ObjectIndex, RelPath};
use std::collections::{BTreeMap, BTreeSet};

/// A file of a [`Log`], from [`Log::open`] on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileKey(u64);

/// The object log of a running job.
///
/// Facts are staged by [`done`](Log::done), [`complete`](Log::complete) and [`revoke`](Log::revoke); [`commit`](Log::commit)
/// turns all that was staged into orders, which are one group commit. Orders of one commit are carried out before the next
/// commit is asked for; facts may be staged meanwhile. If an order fails, [`start_over`](Log::start_over) is called and the
/// next commit writes everything anew, beside what stands there.
///
/// Nothing is written for a file before its first object is done, and nothing for one that is complete by the next commit.
#[derive(Debug)]
pub struct Log {
    job: Job,
    style: Style,
    /// The last life that was given to a log.
    life: u64,
    files: BTreeMap<FileKey, Live>,
    keys: BTreeMap<Subject, FileKey>,
    next_key: u64,
    /// Files with staged objects.
    touched: BTreeSet<FileKey>,
    volumes: BTreeMap<u64, Volume>,
    /// The number of the transaction that files come into.
    transaction: u64,
    /// Names that may be there.
    names: BTreeSet<String>,
    /// Those of them that hold nothing any more.
    stale: BTreeSet<String>,
    /// What the last commit removed, in case that failed.
    removed: BTreeSet<String>,
    /// The removal of what is stale must last.
    forgets: bool,
}

/// A file under way.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) subject: Subject,
    blocks: u64,
    /// All its objects that are durable.
    pub(super) done: ObjectSet,
    /// Those of them that no commit has written.
    pub(super) staged: ObjectSet,
    /// The log it shares.
    volume: Option<u64>,
    /// Where its next objects go, once something is written.
    pub(super) region: Option<Region>,
    pub(super) serial: u32,
    pub(super) regions: u32,
    /// Bytes it takes in a log that it shares.
    pub(super) weight: u64,
}

impl Log {
    /// An empty log. `life` is a number that no log of this job had before: a random one will do.
    pub fn new(job: Job, style: Style, life: u64) -> Log {
        Log {
            job,
            style,
            life,
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

    /// A log that goes on from what [`replay`](super::replay) found. Its first commit writes all of that anew, in this style whatever
    /// the old one was, and removes the old files when the new ones are durable. Files that the style's encoding can't hold
    /// are left out.
    pub fn resume(job: Job, style: Style, life: u64, found: &Replay) -> Log {
        let mut log = Log::new(job, style, life);
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

    /// A file is under way. If the log knows this version of it, [`known`](Log::known) tells what is durable; what it says about other versions
    /// under the same path is revoked.
    ///
    /// # Errors
    /// [`TooManyObjects`]: this file can't be logged.
    pub fn open(&mut self, subject: &Subject) -> Result<FileKey, TooManyObjects> {
        let others: Vec<FileKey> =
            self.versions(&subject.path).filter(|(other, _)| *other != subject).map(|(_, key)| key).collect();
        for other in others {
            self.revoke(other);
            self.complete(other);
        }
        self.keys.get(subject).copied().map_or_else(|| self.insert(subject), Ok)
    }

    /// The objects of a file that are durable.
    pub fn known(&self, key: FileKey) -> Option<&ObjectSet> {
        self.files.get(&key).map(|file| &file.done)
    }

    /// An object is durable at the sink. Of a file that is complete nothing is noted.
    ///
    /// # Panics
    /// If the file has no such object: that is a mistake of the caller.
    pub fn done(&mut self, key: FileKey, object: ObjectIndex) {
        let Some(file) = self.files.get_mut(&key) else { return };
        assert!(object.0 < file.blocks, "a file has no object past its end");
        if file.done.insert(object) {
            file.staged.insert(object);
            self.touched.insert(key);
        }
    }

    /// A file is complete: its records go. That they go need not be durable, for what they say stays true.
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

    /// What was said about a file does not hold: after the next commit no replay says it, whatever happens to the medium.
    /// No byte of the sink file may be written over before that. The file stays open, without an object.
    pub fn revoke(&mut self, key: FileKey) {
        let Some(file) = self.files.get_mut(&key) else { return };
        self.touched.remove(&key);
        (file.done, file.staged) = Default::default();
        // What an earlier opening of the same file left may not have gone for good either.
        self.forgets = true;
        let Some(_) = file.region.take() else { return };
        match file.volume {
            None => {
                self.stale.insert(sheet::name(&file.subject));
            }
            Some(number) => self.renew(number),
        }
    }

    /// Whether something is logged of another version of a file, which [`open`](Log::open) revokes.
    pub fn knows_another(&self, subject: &Subject) -> bool {
        self.versions(&subject.path).any(|(other, _)| other != subject)
    }

    /// An order failed: nothing is known about what stands in the files. The next commit writes all anew.
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

    /// After an order failed: files of which `may_be_there` says no are there no more, so that nothing is ordered of them. The names of all that
    /// commits began in vain would be remembered else.
    pub fn keep_names(&mut self, may_be_there: impl Fn(&str) -> bool) {
        for names in [&mut self.names, &mut self.stale, &mut self.removed] {
            names.retain(|name| may_be_there(name));
        }
    }

    /// The orders that make all that was staged durable; empty if nothing was.
    pub fn commit(&mut self) -> Vec<Order> {
        let mut steps = Steps::default();
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

    /// The job is done: the orders that remove the log.
    pub fn finish(mut self) -> Vec<Order> {
        self.names.append(&mut self.stale);
        self.names.append(&mut self.removed);
        self.names.into_iter().map(|name| Order::Remove { name }).collect()
    }

    /// All that the log says, as a replay after the next commit will.
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
        self.files.insert(key, Live::new(subject.clone(), objects));
        Ok(key)
    }

    fn commit_sheets(&mut self, steps: &mut Steps) {
        steps.durable = !self.touched.is_empty();
        for key in &self.touched {
            let Some(file) = self.files.get_mut(key) else { continue };
            let name = sheet::name(&file.subject);
            let staged = std::mem::take(&mut file.staged);
            if let Some(region) = &mut file.region {
                steps.write(&name, region.put(&file.done, &mut staged.iter().peekable()));
                continue;
            }
            self.life = self.life.wrapping_add(1);
            let form = Form { encoding: self.style.encoding, blocks: file.blocks };
            let (bytes, region) = sheet::begin(&self.job, form, self.life, &file.subject, &file.done);
            file.region = Some(region);
            self.stale.remove(&name);
            if self.names.insert(name.clone()) {
                steps.write(&name, vec![(0, bytes)]);
            } else {
                steps.replacements.push(Order::Replace { name, bytes });
            }
        }
    }

    fn commit_volumes(&mut self, steps: &mut Steps) {
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

    /// Finds a file the log it shares.
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
            let life = self.free_life(&stem);
            self.volumes.insert(number, Volume::new(stem, life));
        }
        if let Some(volume) = self.volumes.get_mut(&number) {
            volume.live.insert(key);
            volume.joined = volume.joined.saturating_add(1);
        }
    }

    /// A life whose log is not there yet.
    fn free_life(&mut self, stem: &str) -> u64 {
        loop {
            self.life = self.life.wrapping_add(1);
            let name = volume::data_name(stem, self.life);
            if !self.names.contains(&name) && !self.stale.contains(&name) {
                return self.life;
            }
        }
    }

    /// Nothing is under way in a log and nothing will be.
    fn retire(&mut self, number: u64) {
        let Some(volume) = self.volumes.remove(&number) else { return };
        if !volume.is_new() || self.names.contains(&volume.index_name()) {
            self.stale.extend([volume.index_name(), volume.data_name()]);
        }
        if number == self.transaction {
            self.transaction += 1;
        }
    }

    /// A log is written anew by the next commit.
    fn renew(&mut self, number: u64) {
        let Some(mut volume) = self.volumes.remove(&number) else { return };
        if !volume.is_new() {
            self.stale.insert(volume.data_name());
        }
        let life = self.free_life(&volume.stem);
        volume.renew(life);
        for key in &volume.live {
            if let Some(file) = self.files.get_mut(key)
                && file.restage()
            {
                self.touched.insert(*key);
            }
        }
        self.volumes.insert(number, volume);
    }

    fn write_volume(&mut self, number: u64, steps: &mut Steps) {
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
            steps.replacements.push(Order::Replace { name, bytes: added.index });
        } else if !added.index.is_empty() {
            steps.write(&name, vec![(added.index_at, added.index)]);
        }
    }
}

impl Live {
    fn new(subject: Subject, blocks: u64) -> Live {
        let (done, staged) = Default::default();
        Live { subject, blocks, done, staged, volume: None, region: None, serial: 0, regions: 0, weight: 0 }
    }

    /// Forgets where it was written; whether there is something to write.
    fn restage(&mut self) -> bool {
        (self.region, self.regions, self.weight) = (None, 0, 0);
        self.staged = self.done.clone();
        !self.staged.is_empty()
    }
}

/// The orders of one commit, by what must come before what.
#[derive(Debug, Default)]
struct Steps {
    writes: Vec<Order>,
    replacements: Vec<Order>,
    removals: Vec<Order>,
    /// The writes say more than that files ended.
    durable: bool,
}

impl Steps {
    /// Writes into one file; those that touch become one.
    fn write(&mut self, name: &str, mut parts: Vec<(u64, Vec<u8>)>) {
        parts.sort_by_key(|(at, _)| *at);
        let mut joined: Vec<(u64, Vec<u8>)> = Vec::new();
        for (at, bytes) in parts {
            match joined.last_mut() {
                Some((start, before)) if *start + before.len() as u64 == at => before.extend(bytes),
                _ => joined.push((at, bytes)),
            }
        }
        self.writes.extend(joined.into_iter().map(|(at, bytes)| Order::Write {
            name: name.to_owned(),
            at,
            bytes,
        }));
    }

    /// New logs before the indexes that name them, all that is new before the removal of what is old.
    fn in_order(self, forgets: bool) -> Vec<Order> {
        let Steps { mut writes, mut replacements, mut removals, durable } = self;
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
