//! The object log of a sink: what has arrived is made durable in groups and written down, so that the job goes on with it
//! when it is begun again.

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

/// How long a job that another process has is waited for: one that was cut off may need a moment to see it.
const HELD_WITHIN: Duration = Duration::from_secs(10);

/// Time between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Files that stay under their temporary names at most: four times as many as are under way at once. Each one's path is remembered meanwhile.
const FILES_KEPT_MAX: u64 = 16_384;

/// The log of a job at its sink.
pub(in crate::transfer) struct Keeping {
    keeper: Keeper,
    /// That this session is at the job, until its work is done; and what it is called.
    mark: Mutex<Option<Mark>>,
    mark_name: CString,
    job: Job,
    begun: Mutex<Begun>,
    /// The time that the sink's file system had when this run began, and this machine's moment.
    since: (Moment, Instant),
    /// The second of the run in which `begun` was last told that it goes on.
    heard: AtomicI64,
    /// Whether there was a run of the job before this one.
    was_begun: bool,
    /// Set if the job resumes within files.
    goes_on_within_files: bool,
    pub(super) recheck: Recheck,
    /// Whether what the log says nothing of may be compared with the source.
    pub(super) compares: bool,
    sync: SyncPolicy,
    group: Mutex<Group>,
    due: Condvar,
    /// A group was written down.
    written: Condvar,
    is_over: AtomicBool,
    /// Files of which objects are logged, and that the job has not met.
    unmet: Mutex<BTreeSet<RelPath>>,
    /// Paths of files under way that are called by the job and their path: a second file of the same path is not.
    claimed: Mutex<HashSet<RelPath>>,
    /// Files that ended before their time and stay under their temporary names.
    kept: AtomicU64,
    /// Files that arrived.
    arrived: AtomicU64,
    troubles: Mutex<BTreeSet<String>>,
}

/// Objects that arrived and are not logged.
struct Group {
    pace: Pace,
    is_due: bool,
    /// The group before it is being written down.
    is_second: bool,
    since: Option<Instant>,
    files: HashMap<(FileNumber, u16), Waiting>,
}

impl Group {
    fn new(sync: SyncPolicy) -> Group {
        Group { pace: Pace::new(sync), is_due: false, is_second: false, since: None, files: HashMap::new() }
    }

    /// Whether it has all that it should have while the one before it is not written down: more would make what a cut costs grow with the memory
    /// that a slow device leaves full.
    fn is_full(&self) -> bool {
        self.is_second && self.pace.is_full()
    }

    /// All of it; a new group begins.
    fn take(&mut self) -> Vec<Waiting> {
        self.pace.begin();
        (self.is_due, self.since, self.is_second) = (false, None, !self.files.is_empty());
        std::mem::take(&mut self.files).into_values().collect()
    }
}

/// Lets those go on who wait for a group to be written down, even where that panics.
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

/// What a log is opened with.
pub(in crate::transfer) struct Opening<'a> {
    /// Where the log is.
    pub(in crate::transfer) shelf: Shelf<'a>,
    /// What the side that began it calls the job.
    pub(in crate::transfer) job: [u8; 16],
    /// The directory that all goes to.
    pub(in crate::transfer) root: &'a Path,
    /// Its options.
    pub(in crate::transfer) options: &'a JobOptions,
    /// How the log is kept.
    pub(in crate::transfer) settings: Settings,
    /// What is compared again.
    pub(in crate::transfer) recheck: Option<Recheck>,
    /// Where it goes, to be written down beside the log.
    pub(in crate::transfer) target: Option<Target>,
    /// The job that the command's record is kept under, if that is in the same state directory.
    pub(in crate::transfer) command: Option<Identity>,
    /// Turns true when nothing is waited for any more.
    pub(in crate::transfer) stop: &'a AtomicBool,
}

impl Keeping {
    /// Takes hold of the job's log, and says what of it is not trusted.
    ///
    /// # Errors
    /// [`LogError::Held`]: another process is at the job. Any other: there can be no log.
    pub(in crate::transfer) fn open(
        opening: &Opening<'_>,
        store: &Store,
        report: &dyn Report,
    ) -> Result<Keeping, LogError> {
        let root = opening.root.canonicalize().unwrap_or_else(|_| opening.root.to_path_buf());
        let name = [&opening.job[..], root.as_os_str().as_encoded_bytes()].concat();
        let id = match opening.shelf {
            Shelf::Own(_) => Identity::of(&name),
            // Whatever a guest calls its job, it is another than all that are not its own.
            Shelf::Guest(_, guest) => Identity::of(&[&Identity::of(guest).0[..], &name].concat()),
        };
        let job = Job { id, object: opening.options.object };
        let (keeper, found) = take(opening, job)?;
        found.flaws.iter().for_each(|flaw| report.note(&format!("{flaw}; what it said is compared again")));
        let mut begun = Begun::read(keeper.home(), found.files > 0)?;
        if begun.is_lost() {
            let home = keeper.home().display();
            report.note(&format!(
                "{home}: when the job ran is damaged or lost; what its log says is compared again"
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
        // Best effort: without it the log is listed as a job of its own.
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

    /// Takes a path for a file that is under way; false where another file has it, which a source may send to the same place.
    pub(super) fn claim(&self, path: &RelPath) -> bool {
        lock(&self.claimed).insert(path.clone())
    }

    /// The file of a path is under way no more, and nothing is left of it under its temporary name that is not to stay.
    pub(super) fn release(&self, path: &RelPath) {
        lock(&self.claimed).remove(path);
    }

    /// What a file of this job is called until it is whole.
    pub(super) fn tag(&self, path: &RelPath) -> Tag {
        leftovers::tag(self.job.id, path.as_bytes())
    }

    /// Whether a file with these facts, which stands under its name, came by an earlier run of the job and is there whatever happened since;
    /// `None` if it did not come by it as far as its times tell, `Some(false)` if its bytes must be looked at.
    pub(super) fn is_of_job(&self, found: &Stat, in_place: bool, is_durable: bool) -> Option<bool> {
        // A new file is born under its temporary name; one that is written in place changes.
        let at = moment(found.btime.filter(|_| !in_place).unwrap_or(found.ctime));
        let begun = lock(&self.begun);
        if !self.resumes() || !begun.covers(at) {
            return None;
        }
        let is_there = (is_durable || begun.covers_in_this_life(at)) && !begun.is_to_come(at);
        Some(is_there && self.recheck != Recheck::All)
    }

    /// What the log says of a file whose bytes are in a temporary file with these facts.
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

    /// What is logged of a file no longer counts; gone for good when this returns.
    pub(super) fn revoke(&self, key: FileKey) -> Result<(), LogError> {
        self.keeper.revoke(key)
    }

    /// What an earlier run left of a file is gone: nothing that the log says of it may count for what comes in its place.
    pub(super) fn begin_anew(&self, path: &RelPath) -> Result<(), LogError> {
        for subject in self.keeper.before().versions(path) {
            let (key, _) = self.keeper.file(subject)?;
            self.keeper.revoke(key)?;
            self.keeper.complete(key);
        }
        Ok(())
    }

    /// The job has met a file.
    pub(super) fn meet(&self, path: &RelPath) {
        lock(&self.unmet).remove(path);
    }

    /// An object arrived and is right: it joins the group.
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

    /// Whether whoever brings more has to wait.
    pub(super) fn is_full(&self) -> bool {
        lock(&self.group).is_full()
    }

    /// Waits until more may be brought, for so long at most; whether it may.
    pub(super) fn makes_room(&self, within: Duration) -> bool {
        let waited = self.written.wait_timeout_while(lock(&self.group), within, |group| group.is_full());
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_full()
    }

    /// A file stands whole under its name.
    pub(super) fn complete(&self, arriving: Option<&Arriving>) {
        self.arrived.fetch_add(1, Ordering::Relaxed);
        self.goes_on();
        self.forget(arriving);
    }

    /// The run goes on: how far the times of what it brings may come is written down before they do. Looked at once a second, and not in a
    /// run of less than one, which would wait for the sync.
    fn goes_on(&self) {
        let (at, since) = self.since;
        let passed = i64::try_from(since.elapsed().as_secs()).unwrap_or(i64::MAX);
        if self.heard.load(Ordering::Relaxed) == passed {
            return;
        }
        self.heard.store(passed, Ordering::Relaxed);
        let there = Moment { sec: at.sec.saturating_add(passed), ..at };
        // Best effort: it is tried again in a second.
        let _ = lock(&self.begun).goes_on(self.keeper.home(), there.max(log::now()));
    }

    /// A file that did not arrive, and of which nothing stays.
    pub(super) fn forget(&self, arriving: Option<&Arriving>) {
        if let Some(key) = arriving.and_then(|arriving| arriving.logged.get()) {
            self.keeper.complete(*key);
        }
    }

    /// A file that ended before its time is to stay for the next run; whether it may.
    pub(super) fn keeps_one(&self) -> bool {
        let one_more = |kept: u64| (kept < FILES_KEPT_MAX).then(|| kept + 1);
        self.kept.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    /// Writes groups down as they come due, until the session is over.
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

    /// The session is over: what is left is written down.
    pub(super) fn over(&self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(lock(&self.group));
        self.due.notify_all();
    }

    /// The next group that is due, perhaps none yet; and whether the session is over, so that it is the last.
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

    /// Makes the objects of a group durable, and then writes them down.
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
                // It got its name meanwhile.
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

    /// Tells of a trouble once.
    pub(super) fn trouble(&self, report: &dyn Report, error: &LogError) {
        let text = error.to_string();
        if lock(&self.troubles).insert(text.clone()) {
            report.note(&format!("{text}; what can't be logged is sent again if the job is cut off"));
        }
    }

    /// The end of the session. Where its work is done, nothing of the log stays, but what files need that can be gone on with.
    pub(in crate::transfer) fn end(self, store: &Store, is_finished: bool) -> Result<(), LogError> {
        let kept = self.kept.load(Ordering::Relaxed);
        // A job that does not resume within files keeps its log only for the leftovers of an earlier run.
        let has_arrived = self.arrived.load(Ordering::Relaxed) > 0 && self.goes_on_within_files;
        let has_done = has_arrived || self.was_begun;
        if is_finished {
            let unmet = std::mem::take(&mut *lock(&self.unmet));
            unmet.iter().for_each(|path| self.remove(&store.places, path));
            if self.was_begun {
                // Best effort, as above.
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

    /// Nothing is under way any more: what told others so goes before anybody hears of the end.
    pub(super) fn leave(&self) {
        if let Some(mark) = lock(&self.mark).take() {
            mark.remove();
        }
    }

    /// Whether this name, in the directory that all goes to, is that of the job's mark.
    pub(super) fn is_mark(&self, name: &CStr) -> bool {
        *self.mark_name == *name
    }

    /// Removes what earlier runs left in a directory of files that the source has no more, and that were cut off before an object was logged. All
    /// that the source has in it has been met.
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

    /// Removes what an earlier run left of a file that the source has no more.
    fn remove(&self, places: &Places, path: &RelPath) {
        // Best effort: it has a name of its own, and is in nobody's way.
        let _ = spot(places, path.as_bytes(), Missing::Fails)
            .and_then(|(place, _)| unlink_at(&place, self.tag(path).name().as_c_str()));
    }
}

/// What a log says of a file.
pub(super) enum Said {
    /// These objects are durable, of this version in this file.
    Logged(FileKey, ObjectSet),
    /// What is there is of another version.
    OtherVersion,
    /// Nothing that could be held against it.
    Nothing,
}

/// Takes the job's log; whoever has it is given some time.
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

/// Sets the job's mark; a session that has it is given some time.
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

/// A file under way, as the log knows it.
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

    /// On a slow device a group was all that had come while the one before it was synced, and all of that was sent again after a kill.
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
