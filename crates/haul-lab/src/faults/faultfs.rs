//! Control of a fault file system: mounting, rules, and the record of injected faults.

use super::pass::Pass;
use super::rules::{Action, Op, RuleError, Rules};
use fuser::{BackgroundSession, MountOption};
use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use thiserror::Error;

/// A mounted file system with faults.
///
/// Close it with [`FaultFs::close`]. Dropping it also unmounts, but cannot report an error.
#[derive(Debug)]
pub struct FaultFs {
    /// `None` after the file system was closed or waited for.
    session: Option<BackgroundSession>,
    mountpoint: PathBuf,
    control: Arc<Mutex<Control>>,
}

/// An injected fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fired {
    /// The operation.
    pub op: Op,
    /// Path by which the file was opened, relative to the root.
    pub path: PathBuf,
    /// Offset of the first byte of the operation; 0 for operations without bytes.
    pub from: u64,
    /// The injected action.
    pub action: Action,
}

/// An event that reached the storage during a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// A write to a file.
    Write {
        /// Path of the file, relative to the root.
        path: PathBuf,
        /// Offset of the first byte.
        at: u64,
        /// The written bytes.
        bytes: Vec<u8>,
    },
    /// A range that was set to zeros.
    Zero {
        /// Path of the file, relative to the root.
        path: PathBuf,
        /// Offset of the first byte.
        at: u64,
        /// Length of the range in bytes.
        len: u64,
    },
    /// A sync of the file: all earlier events of the file are durable.
    Sync {
        /// Path of the file, relative to the root.
        path: PathBuf,
    },
}

/// Error of mounting the file system.
#[derive(Debug, Error)]
pub enum FaultFsError {
    /// The file of rules cannot be read.
    #[error("cannot read the fault rules in {}: {source}", path.display())]
    Read {
        /// Path of the file of rules.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The rules are invalid.
    #[error(transparent)]
    Rules(#[from] RuleError),
    /// The mount failed.
    #[error("cannot mount {} on {}: {source}", from.display(), on.display())]
    Mount {
        /// The source directory.
        from: PathBuf,
        /// The mount point.
        on: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
}

impl FaultFs {
    /// Mounts a view of the directory `source`, with the faults of `rules`, at the empty directory
    /// `mountpoint`. Needs `/dev/fuse`, and root or the program `fusermount3`.
    ///
    /// # Errors
    /// Returns [`FaultFsError::Mount`] if the mount fails.
    pub fn mount(source: &Path, mountpoint: &Path, rules: Rules) -> Result<Self, FaultFsError> {
        Self::start(source, mountpoint, Control { rules, ..Control::default() })
    }

    /// Mounts as [`FaultFs::mount`] does, with rules from the file `rules`. The file is read again
    /// whenever it has changed. If the new text is invalid, the previous rules stay in force.
    /// Injected faults are printed to standard error.
    ///
    /// # Errors
    /// Returns [`FaultFsError`] if the mount fails, and also if the first rules cannot be read or
    /// are invalid.
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

    /// Replaces the rules.
    pub fn set_rules(&self, rules: Rules) {
        self.control.lock().rules = rules;
    }

    /// Returns the injected faults so far, in order.
    pub fn fired(&self) -> Vec<Fired> {
        self.control.lock().fired.clone()
    }

    /// Ends the current delay, if there is one. The delayed operation continues at once.
    pub fn release(&self) {
        let mut control = self.control.lock();
        control.holds = false;
        control.release.notify_all();
    }

    /// Returns the total number of bytes read so far from all files.
    pub fn bytes_read(&self) -> u64 {
        self.control.lock().bytes_read
    }

    /// Starts recording, in order, the events that reach the storage.
    pub fn begin_record(&self) {
        self.control.lock().recorded = Some(Vec::new());
    }

    /// Returns the number of syncs recorded so far.
    pub fn syncs_recorded(&self) -> usize {
        let control = self.control.lock();
        let recorded = control.recorded.iter().flatten();
        recorded.filter(|event| matches!(event, Recorded::Sync { .. })).count()
    }

    /// Ends the recording and returns its events.
    pub fn end_record(&self) -> Vec<Recorded> {
        self.control.lock().recorded.take().unwrap_or_default()
    }

    /// Waits until another process unmounts the file system.
    pub fn wait(mut self) -> io::Result<()> {
        self.session.take().map_or(Ok(()), |session| ended(session.guard))
    }

    /// Unmounts the file system and waits for its thread, which ends with the last use of the file
    /// system.
    ///
    /// That last use may be a loop device over one of the files. Another process keeps the loop
    /// device as long as its own copy of all mounts exists (`unshare`, `ip netns exec`). An unmount
    /// that is refused for this reason would not be retried.
    pub fn close(mut self) {
        self.detach();
        if let Some(session) = self.session.take() {
            ended(unmounted(session)).expect("the file system's thread ends with its mount");
        }
    }

    /// Detaches the mount even if a file is open. A child of another test may hold such a file
    /// between fork and exec.
    fn detach(&self) {
        // An unprivileged process fails here; `fusermount3` unmounts when the session ends.
        let _ = rustix::mount::unmount(&self.mountpoint, UnmountFlags::DETACH);
    }
}

/// Unmounts what a session still mounts, and returns its thread.
fn unmounted(session: BackgroundSession) -> JoinHandle<io::Result<()>> {
    session.guard
}

/// Waits for the thread of a session, which ends with its mount. The kernel reports the end by
/// ENODEV, or by ECONNABORTED if the thread was about to take a request. `fuser` treats only ENODEV
/// as the end.
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

/// State shared by the file system and its [`FaultFs`].
#[derive(Debug, Default)]
pub(super) struct Control {
    rules: Rules,
    file: Option<RulesFile>,
    fired: Vec<Fired>,
    /// Events that reached the storage since the recording began.
    pub(super) recorded: Option<Vec<Recorded>>,
    pub(super) bytes_read: u64,
    log: bool,
    /// True if the last delay was not ended by [`FaultFs::release`].
    holds: bool,
    release: Arc<Condvar>,
}

/// Delays an operation by `ms` milliseconds, or until [`FaultFs::release`] ends the delay.
pub(super) fn hold(control: &Mutex<Control>, ms: u64) {
    let mut control = control.lock();
    let release = Arc::clone(&control.release);
    release.wait_while_for(&mut control, |control| control.holds, Duration::from_millis(ms));
}

impl Control {
    /// Returns the actions for an operation on these bytes and records them as fired.
    pub(super) fn meet(&mut self, op: Op, path: &Path, from: u64, to: u64) -> Vec<Action> {
        match self.file.as_mut().map(RulesFile::changed) {
            Some(Ok(Some(rules))) => self.rules = rules,
            Some(Err(error)) => eprintln!("faultfs: {error}; keeping the previous rules"),
            Some(Ok(None)) | None => {}
        }
        let actions = self.rules.meet(op, path.as_os_str().as_bytes(), from, to);
        for &action in actions.iter().filter(|action| !action.is_property()) {
            let fired = Fired { op, path: path.to_owned(), from, action };
            if self.log {
                eprintln!("faultfs: {fired:?}");
            }
            self.fired.push(fired);
            // A caller that sees the delay as fired may end the delay before it begins.
            self.holds |= matches!(action, Action::Delay(_) | Action::Pause(_));
        }
        actions
    }
}

/// A file of rules, and the version of the file that was read last.
#[derive(Debug)]
struct RulesFile {
    path: PathBuf,
    version: Option<(u64, u64, i64, i64)>,
}

impl RulesFile {
    /// Returns the rules if the file has changed since the last call.
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
    fn aborted_connection_counts_as_ended() {
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
