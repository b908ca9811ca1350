//! The log of a running job.

use super::folder::Folder;
use super::hold::remove_empty;
use super::pace::Pace;
use super::room::{Place, Room};
use super::{Hold, Holder, LogError, Recheck, SyncPolicy};
use haul_log::objects::{FileKey, Flaw, Job, Log, ObjectSet, Order, Style, Subject, replay};
use haul_model::ObjectIndex;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How it is laid out.
    pub style: Style,
    /// What is synced when.
    pub sync: SyncPolicy,
    /// Wait while another process has the job, instead of saying so.
    pub wait: bool,
}

/// What was there.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// What of the log was not taken, and why; to be told to the user.
    pub flaws: Vec<Flaw>,
    /// Who had the job last and did not let it go: it was killed, or its machine ended.
    pub left_by: Option<Holder>,
    /// Files of which some objects are durable.
    pub files: usize,
    /// Those objects, all together.
    pub objects: u64,
}

impl Found {
    /// What is looked at again unless something else is asked for: after a clean end nothing, after another one a sample. A log that lost something
    /// is no better than one that nobody let go, whatever its other parts say.
    pub fn unasked(&self) -> Recheck {
        if self.left_by.is_none() && self.flaws.is_empty() { Recheck::None } else { Recheck::Sample }
    }
}

/// The log of a job, held by this process. Any worker may tell it facts; one at a time writes them.
#[derive(Debug)]
pub struct Keeper {
    hold: Hold,
    // Locked before `facts` where both are.
    folder: Mutex<Folder>,
    facts: Mutex<Facts>,
    /// What was there at the beginning.
    before: haul_log::objects::Facts,
    /// Its place among the logs of others, where there is only so much room for all.
    place: Option<Place>,
}

/// What was learned, and how much of it is not written.
#[derive(Debug)]
struct Facts {
    log: Log,
    pace: Pace,
    /// There was no room for what was learned last: the log stays as it stands, which is true, and learns nothing more.
    is_full: bool,
}

impl Keeper {
    /// Takes hold of a job's log below the state directory and reads what is there. What can't be trusted is told and left out; the rest
    /// is written anew in this style, which also shows whether the log can be written.
    ///
    /// # Errors
    /// [`LogError`]: the job is held by another process, the folder can't be used, or a newer program wrote the log.
    /// Nothing of the job was touched then.
    pub fn open(state: &Path, job: Job, settings: Settings) -> Result<(Keeper, Found), LogError> {
        Keeper::on(Hold::take(state, job.id, settings.wait)?, job, settings)
    }

    /// As [`Keeper::open`], of a guest's job in the room that it shares with others.
    ///
    /// # Errors
    /// As [`Keeper::open`], and [`LogError::Full`].
    pub fn within(
        room: &Arc<Room>,
        guest: &[u8],
        job: Job,
        settings: Settings,
    ) -> Result<(Keeper, Found), LogError> {
        // Before anything is made.
        let place = room.enter(job.id, guest)?;
        let hold = Hold::take(room.state(), job.id, settings.wait)?;
        Keeper::placed(hold, job, settings, Some(place))
    }

    /// As [`Keeper::open`], of a job that this process has already.
    ///
    /// # Errors
    /// As [`Keeper::open`]. The job is let go: as it was found where a newer program wrote its log, else as one that was cut off.
    pub fn on(hold: Hold, job: Job, settings: Settings) -> Result<(Keeper, Found), LogError> {
        Keeper::placed(hold, job, settings, None)
    }

    fn placed(
        hold: Hold,
        job: Job,
        settings: Settings,
        place: Option<Place>,
    ) -> Result<(Keeper, Found), LogError> {
        let mut folder = Folder::open(hold.folder().join("log"), settings.sync.syncs())?;
        let found = replay(&job, &folder.read()?);
        if let Some(flaw) = found.flaws.iter().find(|flaw| matches!(flaw, Flaw::Newer { .. })) {
            // Best effort: that it is refused is what is told.
            let _ = hold.put_back();
            return Err(LogError::Newer { folder: folder.path().to_path_buf(), flaw: flaw.clone() });
        }
        let mut log = Log::resume(job, settings.style, random(), &found);
        let orders = log.commit();
        find_room(place.as_ref(), &folder, &orders)?;
        folder.perform(&orders)?;
        let told = Found {
            left_by: hold.left_by().cloned(),
            files: found.facts.len(),
            objects: found.facts.iter().map(|(_, objects)| objects.len()).sum(),
            flaws: found.flaws,
        };
        let before = found.facts;
        let facts = Mutex::new(Facts { log, pace: Pace::new(settings.sync), is_full: false });
        Ok((Keeper { hold, folder: Mutex::new(folder), facts, before, place }, told))
    }

    /// The folder of the job.
    pub fn home(&self) -> &Path {
        self.hold.folder()
    }

    /// What the log said when it was opened.
    pub fn before(&self) -> &haul_log::objects::Facts {
        &self.before
    }

    /// A file is under way: its key, and its objects that are durable. What the log says of other versions of it is gone for good
    /// when this returns, so that the sink file may be written over.
    ///
    /// # Errors
    /// [`LogError::TooManyObjects`], and those of [`Keeper::commit`]; [`LogError::Full`] where the log can learn no more.
    pub fn file(&self, subject: &Subject) -> Result<(FileKey, ObjectSet), LogError> {
        let (key, known, revokes) = {
            let mut facts = lock(&self.facts);
            let revokes = facts.log.knows_another(subject);
            if facts.is_full && (revokes || self.before.of(subject).is_none()) {
                return Err(self.full());
            }
            let key = facts.log.open(subject)?;
            (key, facts.log.known(key).cloned().unwrap_or_default(), revokes)
        };
        if revokes {
            self.commit_for_good()?;
        }
        Ok((key, known))
    }

    /// Objects of a file are durable at the sink, made so by a sync of the caller's. Nothing is written before
    /// [`Keeper::commit`].
    pub fn durable_together(&self, file: FileKey, objects: impl IntoIterator<Item = ObjectIndex>) {
        let mut facts = lock(&self.facts);
        objects.into_iter().for_each(|object| facts.log.done(file, object));
    }

    /// An object, of so many bytes, is durable at the sink. Writes the group if it is due.
    ///
    /// # Errors
    /// As [`Keeper::commit`].
    pub fn durable(&self, file: FileKey, object: ObjectIndex, bytes: u64) -> Result<(), LogError> {
        let is_due = {
            let mut facts = lock(&self.facts);
            if facts.is_full {
                return Err(self.full());
            }
            facts.log.done(file, object);
            facts.pace.add(bytes)
        };
        if is_due { self.commit() } else { Ok(()) }
    }

    /// A file is complete: its content is durable and it has its name.
    pub fn complete(&self, file: FileKey) {
        lock(&self.facts).log.complete(file);
    }

    /// What the log says of a file does not hold. It is gone for good when this returns; only then may the sink file be
    /// written over.
    ///
    /// # Errors
    /// As [`Keeper::commit`].
    pub fn revoke(&self, file: FileKey) -> Result<(), LogError> {
        {
            let mut facts = lock(&self.facts);
            if facts.is_full {
                return Err(self.full());
            }
            facts.log.revoke(file);
        }
        self.commit_for_good()
    }

    /// A commit that has to take place: whoever else committed meanwhile may have found no room for it.
    fn commit_for_good(&self) -> Result<(), LogError> {
        self.commit()?;
        if lock(&self.facts).is_full { Err(self.full()) } else { Ok(()) }
    }

    /// Writes what was learned, and makes it durable as the settings say.
    ///
    /// # Errors
    /// [`LogError::Io`]. Nothing is lost by that but time: the next commit writes all anew. [`LogError::Full`], once: the log stays as it
    /// stands from then on.
    pub fn commit(&self) -> Result<(), LogError> {
        let mut folder = self.folder.lock().unwrap_or_else(|poisoned| {
            // Whoever panicked with the folder in hand may have left orders undone.
            self.folder.clear_poison();
            lock(&self.facts).log.start_over();
            poisoned.into_inner()
        });
        let orders = {
            let mut facts = lock(&self.facts);
            facts.pace.begin();
            if facts.is_full {
                return Ok(());
            }
            let orders = facts.log.commit();
            find_room(self.place.as_ref(), &folder, &orders).inspect_err(|_| facts.is_full = true)?;
            orders
        };
        folder.perform(&orders).inspect_err(|_| {
            let mut facts = lock(&self.facts);
            facts.log.start_over();
            facts.log.keep_names(|name| folder.may_have(name));
        })
    }

    fn full(&self) -> LogError {
        let Some(place) = &self.place else {
            unreachable!("only what has its place among others can be full")
        };
        place.full()
    }

    /// The job stops before its end: all is written and durable, and the next run finds nothing to doubt.
    ///
    /// # Errors
    /// As [`Keeper::commit`]; the job is let go all the same, as one that was cut off.
    pub fn close(self) -> Result<(), LogError> {
        self.commit()?;
        lock(&self.folder).sync()?;
        self.hold.release()
    }

    /// The job is not begun: the next run finds what this one found.
    pub fn put_back(self) {
        // Best effort: else it is taken for one that was cut off.
        let _ = self.hold.put_back();
    }

    /// The job is done: its log is removed, and its folder where no record is in it.
    ///
    /// # Errors
    /// [`LogError::Io`]: something is left of it.
    pub fn finish(self) -> Result<(), LogError> {
        let Keeper { hold, folder, facts, place, .. } = self;
        let mut folder = folder.into_inner().unwrap_or_else(PoisonError::into_inner);
        folder.perform(&facts.into_inner().unwrap_or_else(PoisonError::into_inner).log.finish())?;
        // Strangers that were left alone stay, and the folder with them.
        remove_empty(folder.path())?;
        if let Some(place) = &place {
            place.over();
        }
        hold.finish()
    }
}

/// Whether what is ordered has room, where there is only so much.
fn find_room(place: Option<&Place>, folder: &Folder, orders: &[Order]) -> Result<(), LogError> {
    place.map_or(Ok(()), |place| place.takes(folder.lengths_after(orders)))
}

/// A number that no log had before, from the randomness that the standard library seeds its maps with.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A worker that panicked while it held the lock left facts that are true.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
