//! Object log of a sink: syncs received objects in groups and logs them, so that a rerun resumes.

use super::arriving::{Arriving, Tag, spot};
use super::incoming::Incoming;
use super::mark::Mark;
use super::places::{Missing, Places};
use super::{Store, leftovers};
use crate::log::{
    self, Begun, GROUP_TIME, Holder, Keeper, LogError, Pace, Recheck, Settings, SyncPolicy, Target, command,
};
use crate::transfer::logged::Shelf;
use crate::transfer::report::Report;
use crate::transfer::resume;
use crate::transfer::source::moment;
use haul_log::objects::{FileKey, Identity, Job, ObjectSet, SourceVersion, Subject};
use haul_model::{Moment, Object, ObjectIndex, RelPath};
use haul_proto::{FileNumber, JobOptions};
use haul_sys::open::unlink_at;
use haul_sys::{Stat, cache, stat};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time to wait for a lock: a disconnected session needs some seconds to release it.
const HELD_WITHIN: Duration = Duration::from_secs(10);

/// Polling interval for locks and for the age of a group.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Maximum number of incomplete files kept: four times those in progress. Bounds memory for paths.
const FILES_KEPT_MAX: u64 = 16_384;

/// Object log of one running job, shared by all threads of the sink.
pub(in crate::transfer) struct Keeping {
    keeper: Keeper,
    /// Lock file of the session, present until its work is done. `mark_name` is its name.
    mark: Mutex<Option<Mark>>,
    mark_name: CString,
    job: Job,
    begun: Mutex<Begun>,
    /// Start of this run: time of the sink's file system, and the local instant.
    since: (Moment, Instant),
    /// Seconds since the start of the run at the last extension of `begun`.
    heard: AtomicI64,
    /// True if a run of the job preceded this one.
    was_begun: bool,
    /// True if the job resumes within files.
    goes_on_within_files: bool,
    pub(super) recheck: Recheck,
    /// True if files without a log entry may be compared with the source.
    pub(super) compares: bool,
    sync: SyncPolicy,
    group: Mutex<Group>,
    due: Condvar,
    /// Notified when a group was committed.
    written: Condvar,
    is_over: AtomicBool,
    /// Paths in the log of an earlier run that the source has not offered yet.
    unmet: Mutex<BTreeSet<RelPath>>,
    /// Paths in progress whose temporary file is named after the job and the path.
    claimed: Mutex<HashSet<RelPath>>,
    /// Number of incomplete files kept under their temporary names.
    kept: AtomicU64,
    /// Number of files that arrived.
    arrived: AtomicU64,
    troubles: Mutex<BTreeSet<String>>,
}

/// Verified objects that are not logged yet: the open group.
struct Group {
    pace: Pace,
    is_due: bool,
    /// True while the previous group is being committed.
    is_second: bool,
    since: Option<Instant>,
    files: HashMap<(FileNumber, u16), Waiting>,
}

impl Group {
    fn new(sync: SyncPolicy) -> Group {
        Group { pace: Pace::new(sync), is_due: false, is_second: false, since: None, files: HashMap::new() }
    }

    /// Returns true if the group has reached its limits while the previous group is being
    /// committed. More would let the cost of an interruption grow with the memory that a slow
    /// device leaves dirty.
    fn is_full(&self) -> bool {
        self.is_second && self.pace.is_full()
    }

    /// Takes all files of the group and starts a new group.
    fn take(&mut self) -> Vec<Waiting> {
        self.pace.begin();
        (self.is_due, self.since, self.is_second) = (false, None, !self.files.is_empty());
        std::mem::take(&mut self.files).into_values().collect()
    }
}

/// Wakes threads that wait for a group commit, also on panic.
struct Written<'a>(&'a Keeping);

impl Drop for Written<'_> {
    fn drop(&mut self) {
        lock(&self.0.group).is_second = false;
        self.0.written.notify_all();
    }
}

struct Waiting {
    incoming: Arc<Incoming>,
    arriving: Arc<Arriving>,
    objects: Vec<(ObjectIndex, u64)>,
}

/// Parameters for opening a log.
pub(in crate::transfer) struct Opening<'a> {
    /// Location of the log.
    pub(in crate::transfer) shelf: Shelf<'a>,
    /// Job identifier from the side that started the job.
    pub(in crate::transfer) job: [u8; 16],
    /// Destination directory of the job.
    pub(in crate::transfer) root: &'a Path,
    /// Options of the job.
    pub(in crate::transfer) options: &'a JobOptions,
    /// Log settings.
    pub(in crate::transfer) settings: Settings,
    /// Share of the logged objects to compare again.
    pub(in crate::transfer) recheck: Option<Recheck>,
    /// Destination, recorded next to the log.
    pub(in crate::transfer) target: Option<Target>,
    /// Job of the command's record, if that record is in the same state directory.
    pub(in crate::transfer) command: Option<Identity>,
    /// Set to `true` to cancel the wait for a lock.
    pub(in crate::transfer) stop: &'a AtomicBool,
}

impl Keeping {
    /// Locks and opens the object log of the job. Reports every part of the log that it rejects.
    ///
    /// # Errors
    /// Returns [`LogError::Held`] if another process or session runs the job. Any other error means
    /// that the log cannot be used.
    pub(in crate::transfer) fn open(
        opening: &Opening<'_>,
        store: &Store,
        report: &dyn Report,
    ) -> Result<Keeping, LogError> {
        let root = opening.root.canonicalize().unwrap_or_else(|_| opening.root.to_path_buf());
        let name = [&opening.job[..], root.as_os_str().as_encoded_bytes()].concat();
        let id = match opening.shelf {
            Shelf::Own(_) => Identity::of(&name),
            // Mix in the client identity, so that clients cannot reach each other's jobs.
            Shelf::Guest(_, guest) => Identity::of(&[&Identity::of(guest).0[..], &name].concat()),
        };
        let job = Job { id, object: opening.options.object };
        let (keeper, found) = take(opening, job)?;
        found
            .flaws
            .iter()
            .for_each(|flaw| report.note(&format!("{flaw}; its objects will be compared again")));
        let mut begun = Begun::read(keeper.home(), found.files > 0)?;
        if begun.is_lost() {
            let home = keeper.home().display();
            report.note(&format!(
                "{home}: run history missing or damaged; all logged objects will be compared again"
            ));
        }
        let was_begun = begun.is_some();
        let recheck = opening.recheck.unwrap_or(found.unasked());
        let recheck = if begun.may_have_lost() { Recheck::All } else { recheck };
        let (mark, now) = match mark(opening, &store.places, id) {
            Err(error @ LogError::Held { .. }) => {
                keeper.put_back();
                return Err(error);
            }
            set => set?,
        };
        let written = begun.run(keeper.home(), now, opening.settings.sync);
        let written = written.and_then(|()| match &opening.target {
            Some(target) => target.write(keeper.home()),
            None => Ok(()),
        });
        if let Err(error) = written {
            mark.remove();
            return Err(error);
        }
        // Ignore an error: `haul jobs` then lists the log as a separate job.
        opening.command.iter().for_each(|&job| _ = command::write(keeper.home(), job));
        let unmet = keeper.before().iter().map(|(subject, _)| subject.path.clone()).collect();
        let sync = opening.settings.sync;
        let group = Group::new(sync);
        Ok(Keeping {
            keeper,
            mark_name: mark.name().to_owned(),
            mark: Mutex::new(Some(mark)),
            job,
            begun: Mutex::new(begun),
            since: (now, Instant::now()),
            heard: AtomicI64::new(0),
            was_begun,
            goes_on_within_files: resume::goes_on_within_files(opening.options),
            recheck,
            compares: opening.recheck != Some(Recheck::None),
            sync,
            group: Mutex::new(group),
            due: Condvar::new(),
            written: Condvar::new(),
            is_over: AtomicBool::new(false),
            unmet: Mutex::new(unmet),
            claimed: Mutex::default(),
            kept: AtomicU64::new(0),
            arrived: AtomicU64::new(0),
            troubles: Mutex::default(),
        })
    }

    /// Returns true if an earlier run did not finish: it may have left temporary files.
    pub(super) fn was_begun(&self) -> bool {
        self.was_begun
    }

    /// Returns true if the job resumes within files. Otherwise no objects are logged.
    pub(super) fn goes_on_within_files(&self) -> bool {
        self.goes_on_within_files
    }

    /// Returns true if this run resumes an earlier one.
    pub(in crate::transfer) fn resumes(&self) -> bool {
        self.was_begun && self.goes_on_within_files
    }

    /// Claims the path of a file in progress. Returns false if another file has claimed it: a
    /// source may send two files to one path.
    pub(super) fn claim(&self, path: &RelPath) -> bool {
        lock(&self.claimed).insert(path.clone())
    }

    /// Releases a claimed path. No temporary file of the path is left, except one that is kept.
    pub(super) fn release(&self, path: &RelPath) {
        lock(&self.claimed).remove(path);
    }

    /// Returns the tag of the temporary name of a file of this job.
    pub(super) fn tag(&self, path: &RelPath) -> Tag {
        leftovers::tag(self.job.id, path.as_bytes())
    }

    /// Checks if an earlier run of the job received the existing file `found`. Returns `None` if
    /// its times rule that out. `Some(true)` means that its bytes are present, and `Some(false)`
    /// that the caller must compare them.
    pub(super) fn is_of_job(&self, found: &Stat, in_place: bool, is_durable: bool) -> Option<bool> {
        // A new file is created under its temporary name, so its birth time counts. A file written
        // in place changes, so its change time counts.
        let at = moment(found.btime.filter(|_| !in_place).unwrap_or(found.ctime));
        let begun = lock(&self.begun);
        if !self.resumes() || !begun.covers(at) {
            return None;
        }
        let is_there = (is_durable || begun.covers_in_this_life(at)) && !begun.is_to_come(at);
        Some(is_there && self.recheck != Recheck::All)
    }

    /// Returns the log entry of a file whose temporary file has the metadata `sink`.
    pub(super) fn said_of(&self, incoming: &Incoming, sink: &Stat) -> Said {
        let subject = subject(incoming, sink);
        let before = self.keeper.before();
        if before.of(&subject).is_some()
            && let Ok((key, objects)) = self.keeper.file(&subject)
        {
            return Said::Logged(key, objects);
        }
        match before.versions(&subject.path).any(|other| other.source != subject.source) {
            true => Said::OtherVersion,
            false => Said::Nothing,
        }
    }

    /// Revokes the log entries of a file. They are durably revoked on return.
    pub(super) fn revoke(&self, key: FileKey) -> Result<(), LogError> {
        self.keeper.revoke(key)
    }

    /// Revokes all log entries of a path whose file is gone: none may count for a new file.
    pub(super) fn begin_anew(&self, path: &RelPath) -> Result<(), LogError> {
        for subject in self.keeper.before().versions(path) {
            let (key, _) = self.keeper.file(subject)?;
            self.keeper.revoke(key)?;
            self.keeper.complete(key);
        }
        Ok(())
    }

    /// Records that the source has offered the path.
    pub(super) fn meet(&self, path: &RelPath) {
        lock(&self.unmet).remove(path);
    }

    /// Adds a received and verified object to the group.
    pub(super) fn proved(
        &self,
        number: FileNumber,
        attempt: u16,
        object: Object,
        (incoming, arriving): (Arc<Incoming>, Arc<Arriving>),
    ) {
        incoming.keep_for_later();
        let mut group = lock(&self.group);
        group.is_due |= group.pace.add(object.range.len());
        group.since.get_or_insert_with(Instant::now);
        let waiting = group.files.entry((number, attempt)).or_insert_with(|| Waiting {
            incoming,
            arriving,
            objects: Vec::new(),
        });
        waiting.objects.push((object.index, object.range.len()));
        if group.is_due {
            self.due.notify_all();
        }
    }

    /// Returns true if a thread that adds objects has to wait.
    pub(super) fn is_full(&self) -> bool {
        lock(&self.group).is_full()
    }

    /// Waits at most `within` until the group accepts more objects. Returns true if it does.
    pub(super) fn makes_room(&self, within: Duration) -> bool {
        let waited = self.written.wait_timeout_while(lock(&self.group), within, |group| group.is_full());
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_full()
    }

    /// Records that a file is complete under its final name.
    pub(super) fn complete(&self, arriving: Option<&Arriving>) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        self.goes_on();
        self.forget(arriving);
    }

    /// Extends the recorded time bound of the run before files with later times exist. Does so once
    /// a second at most. Skips the first second, because a short run would wait for the sync.
    fn goes_on(&self) {
        let (at, since) = self.since;
        let passed = i64::try_from(since.elapsed().as_secs()).unwrap_or(i64::MAX);
        if self.heard.load(Ordering::Relaxed) == passed {
            return;
        }
        self.heard.store(passed, Ordering::Relaxed);
        let there = Moment { sec: at.sec.saturating_add(passed), ..at };
        // Ignore an error: the next call, a second later, tries again.
        let _ = lock(&self.begun).goes_on(self.keeper.home(), there.max(log::now()));
    }

    /// Deletes the log entries of a file that did not arrive and of which nothing is kept.
    pub(super) fn forget(&self, arriving: Option<&Arriving>) {
        if let Some(key) = arriving.and_then(|arriving| arriving.logged.get()) {
            self.keeper.complete(*key);
        }
    }

    /// Reserves a slot for an incomplete file; false if [`FILES_KEPT_MAX`] are kept already.
    pub(super) fn keeps_one(&self) -> bool {
        let one_more = |kept: u64| (kept < FILES_KEPT_MAX).then(|| kept + 1);
        self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Commits groups as they become due, until the session is over.
    pub(super) fn run(&self, report: &dyn Report) {
        loop {
            let (group, is_over) = self.next_group();
            let _written = Written(self);
            self.goes_on();
            if group.is_empty() && is_over {
                return;
            }
            if !group.is_empty()
                && let Err(error) = self.write(group)
            {
                self.trouble(report, &error);
            }
        }
    }

    /// Ends [`Keeping::run`], which first commits the remaining objects.
    pub(super) fn over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(lock(&self.group));
        self.due.notify_all();
    }

    /// Returns the next due group, which can be empty, and true if no group follows.
    fn next_group(&self) -> (Vec<Waiting>, bool) {
        let mut group = lock(&self.group);
        // Read under the lock: `over` takes the lock before it wakes this thread.
        let is_over = || self.is_over.load(Ordering::Relaxed);
        let is_due = |group: &Group| {
            let is_late = group.since.is_some_and(|since| since.elapsed() >= GROUP_TIME);
            is_over() || group.is_due || is_late
        };
        if !is_due(&group) {
            group = self.due.wait_timeout(group, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner).0;
        }
        if !is_due(&group) {
            return (Vec::new(), false);
        }
        (group.take(), is_over())
    }

    /// Syncs the objects of a group, and then logs them.
    fn write(&self, group: Vec<Waiting>) -> Result<(), LogError> {
        let mut failed = Ok(());
        for Waiting { incoming, arriving, objects } in group {
            if arriving.has_name() {
                continue;
            }
            let synced = if self.sync == SyncPolicy::None { Ok(()) } else { cache::sync_data(arriving.fd()) };
            let logged = synced
                .map_err(LogError::sink)
                .and_then(|()| self.key(&incoming, &arriving))
                .and_then(|key| {
                    let mut each = objects.iter();
                    each.try_for_each(|(object, len)| self.keeper.durable(key, *object, *len)).map(|()| key)
                });
            match logged {
                // The file was renamed to its final name meanwhile.
                Ok(key) if arriving.has_name() => self.keeper.complete(key),
                Ok(_) => {}
                Err(error) => failed = Err(error),
            }
        }
        self.keeper.commit().and(failed)
    }

    fn key(&self, incoming: &Incoming, arriving: &Arriving) -> Result<FileKey, LogError> {
        if let Some(key) = arriving.logged.get() {
            return Ok(*key);
        }
        let stat = stat::stat_fd(arriving.fd()).map_err(LogError::sink)?;
        let (key, _) = self.keeper.file(&subject(incoming, &stat))?;
        Ok(*arriving.logged.get_or_init(|| key))
    }

    /// Reports each error once.
    pub(super) fn trouble(&self, report: &dyn Report, error: &LogError) {
        let text = error.to_string();
        if lock(&self.troubles).insert(text.clone()) {
            report.note(&format!(
                "{text}; objects that are not logged will be sent again if the job is interrupted"
            ));
        }
    }

    /// Ends the session. Keeps the log if incomplete files are kept, or if an unfinished session
    /// has something to resume. Otherwise deletes the log.
    pub(in crate::transfer) fn end(self, store: &Store, is_finished: bool) -> Result<(), LogError> {
        let kept = self.kept.load(Ordering::Relaxed);
        // A job that does not resume within files keeps its log only for leftovers.
        let has_arrived = self.arrived.load(Ordering::Relaxed) > 0 && self.goes_on_within_files;
        let has_done = has_arrived || self.was_begun;
        if is_finished {
            let unmet = std::mem::take(&mut *lock(&self.unmet));
            unmet.iter().for_each(|path| self.remove(&store.places, path));
            if self.was_begun {
                // Ignore an error, as in `remove`.
                let _ = store.places.open(b"", Missing::Fails).and_then(|root| self.sweep(&root, b""));
            }
        }
        self.leave();
        let keeper = self.keeper;
        if kept > 0 || (!is_finished && has_done) {
            return keeper.close();
        }
        Begun::remove(keeper.home())?;
        Target::remove(keeper.home())?;
        command::remove(keeper.home())?;
        keeper.finish()
    }

    /// Removes the session's lock file. Call this when no file is in progress, before the end is
    /// reported.
    pub(super) fn leave(&self) {
        if let Some(mark) = lock(&self.mark).take() {
            mark.remove();
        }
    }

    /// Returns true if `name`, in the destination directory, is the job's lock file.
    pub(super) fn is_mark(&self, name: &CStr) -> bool {
        *self.mark_name == *name
    }

    /// Removes what earlier runs left in a directory of files that the source no longer has and of
    /// which no object is logged. Requires that the source has offered all entries of the
    /// directory.
    pub(super) fn sweep(&self, place: &OwnedFd, directory: &[u8]) -> io::Result<()> {
        let is_in = |path: &RelPath| {
            let path = path.as_bytes();
            let end = path.iter().rposition(|&byte| byte == b'/').unwrap_or(0);
            path[..end] == *directory
        };
        let mut stay: HashSet<CString> =
            lock(&self.claimed).iter().filter(|path| is_in(path)).map(|path| self.tag(path).name()).collect();
        stay.insert(self.mark_name.clone());
        leftovers::sweep(place, self.job.id, &stay)
    }

    /// Removes the temporary file of a file that the source no longer has.
    fn remove(&self, places: &Places, path: &RelPath) {
        // Ignore an error: the temporary name is unique, so it conflicts with no other file.
        let _ = spot(places, path.as_bytes(), Missing::Fails)
            .and_then(|(place, _)| unlink_at(&place, self.tag(path).name().as_c_str()));
    }
}

/// Log entry of a file.
pub(super) enum Said {
    /// These objects of this version are durable in this file.
    Logged(FileKey, ObjectSet),
    /// The log has entries of another version of the file only.
    OtherVersion,
    /// The log has no usable entry.
    Nothing,
}

/// Locks the job and opens its log. Waits up to [`HELD_WITHIN`] for another holder.
fn take(opening: &Opening<'_>, job: Job) -> Result<(Keeper, crate::log::Found), LogError> {
    let begun = Instant::now();
    loop {
        let opened = match opening.shelf {
            Shelf::Own(state) => Keeper::open(state, job, opening.settings),
            Shelf::Guest(room, guest) => Keeper::within(room, guest, job, opening.settings),
        };
        match opened {
            Err(LogError::Held { .. })
                if begun.elapsed() < HELD_WITHIN && !opening.stop.load(Ordering::Relaxed) =>
            {
                std::thread::sleep(LOOK_EVERY);
            }
            taken => return taken,
        }
    }
}

/// Creates the job's lock file at the sink. Waits up to [`HELD_WITHIN`] for another session.
fn mark(opening: &Opening<'_>, places: &Places, job: Identity) -> Result<(Mark, Moment), LogError> {
    let begun = Instant::now();
    loop {
        match Mark::set(places, job) {
            Err(error) if error.kind() != io::ErrorKind::ResourceBusy => return Err(LogError::sink(error)),
            Err(_) if begun.elapsed() < HELD_WITHIN && !opening.stop.load(Ordering::Relaxed) => {
                std::thread::sleep(LOOK_EVERY);
            }
            Err(_) => {
                return Err(LogError::Held { path: opening.root.to_path_buf(), holder: Holder::default() });
            }
            Ok(set) => return Ok(set),
        }
    }
}

/// Returns the log's subject for a file in progress.
fn subject(incoming: &Incoming, sink: &Stat) -> Subject {
    let facts = &incoming.facts;
    let identity = facts.version.map(Identity).unwrap_or_default();
    let source = SourceVersion { size: facts.size(), mtime: facts.mtime, identity };
    let birth = sink.btime.unwrap_or_default();
    let mut bytes = Vec::new();
    for part in [sink.dev, sink.ino, birth.sec.cast_unsigned(), u64::from(birth.nsec)] {
        bytes.extend_from_slice(&part.to_le_bytes());
    }
    Subject { path: incoming.path.clone(), source, sink: Identity::of(&bytes) }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::log::GROUP_BYTES;

    /// A group once held all objects received during a slow sync, and a kill sent all of them
    /// again.
    #[test]
    fn a_full_group_takes_no_more_while_another_is_written_down() {
        let mut group = Group::new(SyncPolicy::Group);
        group.pace.add(3 * GROUP_BYTES);
        assert!(!group.is_full(), "it is taken at once");
        group.is_second = true;
        assert!(group.is_full());
        assert!(group.take().is_empty() && !group.is_full(), "there was nothing to write down");
        group.is_second = true;
        group.pace.add(GROUP_BYTES - 1);
        assert!(!group.is_full());
        group.pace.add(1);
        assert!(group.is_full());
        group.is_second = false;
        assert!(!group.is_full());
    }
}
