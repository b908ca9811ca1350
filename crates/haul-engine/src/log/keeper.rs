//! The log of a running job.

use super::claim::Claim;
use super::folder::Folder;
use super::pace::Pace;
use super::{Holder, LogError, SyncPolicy};
use haul_log::objects::{FileKey, Flaw, Job, Log, ObjectSet, Style, Subject, replay};
use haul_model::ObjectIndex;
use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

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

/// The log of a job, held by this process. Any worker may tell it facts; one at a time writes them.
#[derive(Debug)]
pub struct Keeper {
    home: PathBuf,
    claim: Claim,
    // Locked before `facts` where both are.
    folder: Mutex<Folder>,
    facts: Mutex<Facts>,
    /// What was there at the beginning.
    before: haul_log::objects::Facts,
}

/// What was learned, and how much of it is not written.
#[derive(Debug)]
struct Facts {
    log: Log,
    pace: Pace,
}

impl Keeper {
    /// Takes hold of a job's log below the state directory and reads what is there. What can't be trusted is told and left out; the rest
    /// is written anew in this style, which also shows whether the log can be written.
    ///
    /// # Errors
    /// [`LogError`]: the job is held by another process, the folder can't be used, or a newer program wrote the log.
    /// Nothing of the job was touched then.
    pub fn open(state: &Path, job: Job, settings: Settings) -> Result<(Keeper, Found), LogError> {
        let home = state.join("jobs").join(job.id.to_hex());
        let claim = Claim::take(&home, settings.wait)?;
        let mut folder = Folder::open(home.join("log"), settings.sync.syncs())?;
        let found = replay(&job, &folder.read()?);
        if let Some(flaw) = found.flaws.iter().find(|flaw| matches!(flaw, Flaw::Newer { .. })) {
            return Err(LogError::Newer { folder: folder.path().to_path_buf(), flaw: flaw.clone() });
        }
        let mut log = Log::resume(job, settings.style, random(), &found);
        folder.perform(&log.commit())?;
        let told = Found {
            left_by: claim.left_by.clone(),
            files: found.facts.len(),
            objects: found.facts.iter().map(|(_, objects)| objects.len()).sum(),
            flaws: found.flaws,
        };
        let before = found.facts;
        let facts = Mutex::new(Facts { log, pace: Pace::new(settings.sync) });
        Ok((Keeper { home, claim, folder: Mutex::new(folder), facts, before }, told))
    }

    /// The folder of the job.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// What the log said when it was opened.
    pub fn before(&self) -> &haul_log::objects::Facts {
        &self.before
    }

    /// A file is under way: its key, and its objects that are durable. What the log says of other versions of it is
    /// revoked by the next commit, which must be asked for before the sink file is written over.
    ///
    /// # Errors
    /// [`LogError::TooManyObjects`].
    pub fn file(&self, subject: &Subject) -> Result<(FileKey, ObjectSet), LogError> {
        let mut facts = lock(&self.facts);
        let key = facts.log.open(subject)?;
        Ok((key, facts.log.known(key).cloned().unwrap_or_default()))
    }

    /// An object, of so many bytes, is durable at the sink. Writes the group if it is due.
    ///
    /// # Errors
    /// As [`Keeper::commit`].
    pub fn durable(&self, file: FileKey, object: ObjectIndex, bytes: u64) -> Result<(), LogError> {
        let is_due = {
            let mut facts = lock(&self.facts);
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
        lock(&self.facts).log.revoke(file);
        self.commit()
    }

    /// Writes what was learned, and makes it durable as the settings say.
    ///
    /// # Errors
    /// [`LogError::Io`]. Nothing is lost by that but time: the next commit writes all anew.
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
            facts.log.commit()
        };
        folder.perform(&orders).inspect_err(|_| lock(&self.facts).log.start_over())
    }

    /// The job stops before its end: all is written and durable, and the next run finds nothing to doubt.
    ///
    /// # Errors
    /// As [`Keeper::commit`]; the job is let go all the same, as one that was cut off.
    pub fn close(self) -> Result<(), LogError> {
        self.commit()?;
        lock(&self.folder).sync()?;
        self.claim.release()
    }

    /// The job is done: its log and its folder are removed.
    ///
    /// # Errors
    /// [`LogError::Io`]: something is left of it.
    pub fn finish(self) -> Result<(), LogError> {
        let Keeper { home, claim, folder, facts, .. } = self;
        let mut folder = folder.into_inner().unwrap_or_else(PoisonError::into_inner);
        folder.perform(&facts.into_inner().unwrap_or_else(PoisonError::into_inner).log.finish())?;
        // Strangers that were left alone stay, and the folder with them.
        remove_empty(folder.path())?;
        claim.remove()?;
        remove_empty(&home)
    }
}

fn remove_empty(path: &Path) -> Result<(), LogError> {
    match fs::remove_dir(path) {
        Err(error) if matches!(error.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::NotFound) => {
            Ok(())
        }
        done => done.map_err(LogError::io("remove the folder", path)),
    }
}

/// A number that no log had before, from the randomness that the standard library seeds its maps with.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// A worker that panicked while it held the lock left facts that are true.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
