//! The owner's side of a file system with faults: mounting it, its rules, what happened so far.

use super::pass::Pass;
use super::rules::{Action, Op, RuleError, Rules};
use fuser::{BackgroundSession, MountOption};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// A mounted file system with faults. Close it; dropping it unmounts too, but can't say what went wrong.
#[derive(Debug)]
pub struct FaultFs {
    /// Until it is closed or waited for.
    session: Option<BackgroundSession>,
    mountpoint: PathBuf,
    control: Arc<Mutex<Control>>,
}

/// A fault that happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The operation.
    pub op: Op,
    /// The path from the root, by which the file was opened.
    pub path: PathBuf,
    /// Offset of its first byte, 0 for operations without bytes.
    pub from: u64,
    /// What was done to it.
    pub action: Action,
}

/// Something that reached the storage while that was recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Bytes of a file.
    Write {
        /// The file, from the root.
        path: PathBuf,
        /// Offset of the first byte.
        at: u64,
        /// All of them.
        bytes: Vec<u8>,
    },
    /// A range was made zeros.
    Zero {
        /// The file, from the root.
        path: PathBuf,
        /// Offset of the first byte.
        at: u64,
        /// How many.
        len: u64,
    },
    /// The file was synced: all before this is durable.
    Sync {
        /// The file, from the root.
        path: PathBuf,
    },
}

/// The file system could not be mounted.
#[derive(Debug, Error)]
pub enum FaultFsError {
    /// The rules can't be read.
    #[error("cannot read the fault rules in {}: {source}", path.display())]
    Read {
        /// Where they stand.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The rules can't be understood.
    #[error(transparent)]
    Rules(#[from] RuleError),
    /// The mount failed.
    #[error("cannot mount {} on {}: {source}", from.display(), on.display())]
    Mount {
        /// The source directory.
        from: PathBuf,
        /// The mount point.
        on: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl FaultFs {
    /// Shows the directory `source` at `mountpoint`, an empty directory, with the faults of `rules`. Needs
    /// `/dev/fuse`, and root or the program `fusermount3`.
    ///
    /// # Errors
    /// [`FaultFsError::Mount`].
    pub fn mount(source: &Path, mountpoint: &Path, rules: Rules) -> Result<Self, FaultFsError> {
        Self::start(source, mountpoint, Control { rules, ..Control::default() })
    }

    /// The same with rules that stand in a file, which is read again whenever it has changed; a file that
    /// can't be understood leaves the rules as they were. Faults are told on standard error.
    ///
    /// # Errors
    /// [`FaultFsError`], also for rules that are wrong from the start.
    pub fn mount_with_file(source: &Path, mountpoint: &Path, rules: &Path) -> Result<Self, FaultFsError> {
        let mut file = RulesFile { path: rules.to_owned(), version: None };
        let rules = file.changed()?.unwrap_or_default();
        let file = Some(file);
        Self::start(source, mountpoint, Control { rules, file, log: true, ..Control::default() })
    }

    fn start(source: &Path, mountpoint: &Path, control: Control) -> Result<Self, FaultFsError> {
        let fail = |e| FaultFsError::Mount { from: source.to_owned(), on: mountpoint.to_owned(), source: e };
        let root = fs::canonicalize(source).map_err(fail)?;
        let control = Arc::new(Mutex::new(control));
        let shared = Arc::clone(&control);
        let mut options = vec![MountOption::FSName("haul-faultfs".into()), MountOption::DefaultPermissions];
        let is_root = rustix::process::geteuid().is_root();
        if is_root {
            options.extend([MountOption::AllowOther, MountOption::Dev, MountOption::Suid]);
        }
        let pass = Pass::new(root, shared, is_root);
        let session = fuser::spawn_mount2(pass, mountpoint, &options).map_err(fail)?;
        Ok(Self { session: Some(session), mountpoint: mountpoint.to_owned(), control })
    }

    /// Other rules from now on.
    pub fn set_rules(&self, rules: Rules) {
        lock(&self.control).rules = rules;
    }

    /// The faults so far, in their order.
    pub fn fired(&self) -> Vec<Fired> {
        lock(&self.control).fired.clone()
    }

    /// Ends the delay that is under way, if there is one: what it held goes on at once.
    pub fn let_go(&self) {
        let mut control = lock(&self.control);
        control.holds = false;
        control.let_go.notify_all();
    }

    /// Bytes that were read so far, of all files together.
    pub fn bytes_read(&self) -> u64 {
        lock(&self.control).bytes_read
    }

    /// From now on all that reaches the storage is noted, in its order.
    pub fn begin_record(&self) {
        lock(&self.control).recorded = Some(Vec::new());
    }

    /// How many syncs were recorded so far.
    pub fn syncs_recorded(&self) -> usize {
        let control = lock(&self.control);
        let recorded = control.recorded.iter().flatten();
        recorded.filter(|event| matches!(event, Recorded::Sync { .. })).count()
    }

    /// What reached the storage since recording began; it ends.
    pub fn end_record(&self) -> Vec<Recorded> {
        lock(&self.control).recorded.take().unwrap_or_default()
    }

    /// Waits until someone else unmounts it.
    pub fn wait(mut self) -> io::Result<()> {
        self.session.take().map_or(Ok(()), |session| ended(session.guard))
    }

    /// Unmounts it and waits for its thread, which ends with the last use of the file system. That may be a loop device over one of its files, which
    /// another process keeps as long as its own copy of all mounts (`unshare`, `ip netns exec`) lives: an unmount that is refused for it would not be tried again.
    pub fn close(mut self) {
        self.detach();
        if let Some(session) = self.session.take() {
            ended(unmounted(session)).expect("the file system's thread ends with its mount");
        }
    }

    /// Takes it away from its place even while something is open: another test's child may have that until it begins with its own program.
    fn detach(&self) {
        // Who may not do this is helped by `fusermount3` when the session ends.
        let _ = rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH);
    }
}

/// Unmounts what a session still mounts, and returns its thread.
fn unmounted(session: BackgroundSession) -> JoinHandle<io::Result<()>> {
    session.guard
}

/// Waits for the thread of a session, which ends with its mount. The kernel says so by ENODEV, or by ECONNABORTED where the thread was about
/// to take a request; fuser takes only the first for an end.
fn ended(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    match thread.join() {
        Ok(Err(error)) if error.raw_os_error() == Some(Errno::CONNABORTED.raw_os_error()) => Ok(()),
        Ok(result) => result,
        Err(_) => Err(io::Error::other("the file system's thread panicked")),
    }
}

impl Drop for FaultFs {
    fn drop(&mut self) {
        if self.session.is_some() {
            self.detach();
        }
    }
}

/// What the file system and its owner share.
#[derive(Debug, Default)]
pub(super) struct Control {
    rules: Rules,
    file: Option<RulesFile>,
    fired: Vec<Fired>,
    /// What reached the storage since recording began.
    pub(super) recorded: Option<Vec<Recorded>>,
    pub(super) bytes_read: u64,
    log: bool,
    /// Nobody has ended the delay that was met last.
    holds: bool,
    let_go: Arc<Condvar>,
}

pub(super) fn lock(control: &Mutex<Control>) -> MutexGuard<'_, Control> {
    control.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Holds an operation whose delay was met for so many milliseconds, or until it is let go.
pub(super) fn hold(control: &Mutex<Control>, ms: u64) {
    let control = lock(control);
    let let_go = Arc::clone(&control.let_go);
    let time = Duration::from_millis(ms);
    drop(let_go.wait_timeout_while(control, time, |control| control.holds));
}

impl Control {
    /// The actions for an operation on these bytes, noted as fired.
    pub(super) fn meet(&mut self, op: Op, path: &Path, from: u64, to: u64) -> Vec<Action> {
        match self.file.as_mut().map(RulesFile::changed) {
            Some(Ok(Some(rules))) => self.rules = rules,
            Some(Err(error)) => eprintln!("faultfs: {error}; the rules stay as they were"),
            Some(Ok(None)) | None => {}
        }
        let actions = self.rules.meet(op, path.as_os_str().as_bytes(), from, to);
        for &action in actions.iter().filter(|action| !action.is_property()) {
            let fired = Fired { op, path: path.to_owned(), from, action };
            if self.log {
                eprintln!("faultfs: {fired:?}");
            }
            self.fired.push(fired);
            // Who sees that it was met may let it go before it begins.
            self.holds |= matches!(action, Action::Delay(_));
        }
        actions
    }
}

/// Rules that stand in a file, and which version of it was read.
#[derive(Debug)]
struct RulesFile {
    path: PathBuf,
    version: Option<(u64, u64, i64, i64)>,
}

impl RulesFile {
    /// The rules, if they are not those that were read before.
    fn changed(&mut self) -> Result<Option<Rules>, FaultFsError> {
        let fail = |source| FaultFsError::Read { path: self.path.clone(), source };
        let meta = fs::metadata(&self.path).map_err(fail)?;
        let version = Some((meta.ino(), meta.size(), meta.mtime(), meta.mtime_nsec()));
        if version == self.version {
            return Ok(None);
        }
        let text = fs::read_to_string(&self.path).map_err(fail)?;
        self.version = version;
        Ok(Some(text.parse()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_session_whose_connection_was_aborted_has_ended() {
        for (errno, is_end) in [(Errno::CONNABORTED, true), (Errno::IO, false)] {
            let thread = thread::spawn(move || Err(io::Error::from_raw_os_error(errno.raw_os_error())));
            assert_eq!(
                ended(thread).map_err(|error| error.raw_os_error()),
                if is_end { Ok(()) } else { Err(Some(5)) }
            );
        }
        assert!(ended(thread::spawn(|| Ok(()))).is_ok());
        assert!(ended(thread::spawn(|| panic!("a fault of the file system"))).is_err());
    }
}
