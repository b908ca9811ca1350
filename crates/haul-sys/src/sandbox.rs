//! Confinement of the threads of a session with Landlock and capabilities.
//!
//! A confined thread, and each thread that it starts, opens, creates, renames and removes files
//! only beneath the paths of its [`Sandbox`]. Files that are already open stay usable. This is a
//! second barrier: it also holds if a check of a path in this program is wrong. Landlock does not
//! restrict calls that change the metadata of a file by name.
//!
//! Confinement cannot be undone. [`outside`] does work that a confined thread may not do.

use crate::stat::{FileKind, Follow, stat_at};
use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::fs::CWD;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread;

/// Newest version of Landlock whose rights are used. On an older kernel the missing rights are not
/// restricted.
const NEWEST: ABI = ABI::V9;

/// Oldest usable version: version 1 permits no rename and no link from one directory to another.
const OLDEST: u32 = 2;

/// List of the CPUs. The allocator of the C library reads it once, to choose its number of arenas.
const CPUS: &str = "/sys/devices/system/cpu/online";

/// Capabilities that reading and writing files with their metadata can need.
const OF_FILES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::IPC_LOCK)
    .union(CapabilitySet::SYS_RESOURCE);

/// Capabilities that create device nodes.
const OF_SPECIALS: CapabilitySet = CapabilitySet::MKNOD;

/// Capabilities that read and set extended attributes of the system.
const OF_SYSTEM_XATTRS: CapabilitySet = CapabilitySet::SETFCAP
    .union(CapabilitySet::SYS_ADMIN)
    .union(CapabilitySet::MAC_ADMIN)
    .union(CapabilitySet::MAC_OVERRIDE);

/// Paths and rights that a confined thread keeps.
#[derive(Clone, Debug, Default)]
pub struct Sandbox {
    readable: Vec<PathBuf>,
    writable: Vec<PathBuf>,
    /// True if everything may be read.
    reads_all: bool,
    /// True to permit the creation of pipes, sockets and devices.
    specials: bool,
    /// True to keep the capabilities for extended attributes of the system.
    system_xattrs: bool,
}

impl Sandbox {
    /// Returns a sandbox without any path: nothing can be opened.
    pub fn new() -> Sandbox {
        Sandbox::default()
    }

    /// Adds a file that may be read, or a directory and everything beneath it.
    #[must_use]
    pub fn readable(mut self, path: impl Into<PathBuf>) -> Sandbox {
        self.readable.push(path.into());
        self
    }

    /// Adds a file that may be read and written, or a directory and everything beneath it.
    #[must_use]
    pub fn writable(mut self, path: impl Into<PathBuf>) -> Sandbox {
        self.writable.push(path.into());
        self
    }

    /// Permits reading everything, network connections and all capabilities: only writing is
    /// restricted.
    #[must_use]
    pub fn reads_all(mut self) -> Sandbox {
        self.reads_all = true;
        self
    }

    /// Permits the creation of pipes, sockets and devices in writable directories.
    #[must_use]
    pub fn specials(mut self, permitted: bool) -> Sandbox {
        self.specials = permitted;
        self
    }

    /// Keeps the capabilities for reading and setting extended attributes outside `user.*`.
    #[must_use]
    pub fn system_xattrs(mut self, permitted: bool) -> Sandbox {
        self.system_xattrs = permitted;
        self
    }

    /// Confines the calling thread and all threads that it starts from now on. Returns false if the
    /// kernel has no usable Landlock ([`version`]); then nothing is restricted.
    ///
    /// # Errors
    /// Returns an error if a path cannot be opened, or the kernel refuses the rules. The thread is
    /// then possibly not confined.
    pub fn enter(&self) -> io::Result<bool> {
        if version().is_none() {
            return Ok(false);
        }
        start_outside()?;
        if !self.reads_all {
            self.drop_capabilities()?;
        }
        let ruleset = if self.reads_all {
            Ruleset::default().handle_access(changes(true))
        } else {
            Ruleset::default()
                .handle_access(AccessFs::from_all(NEWEST))
                .and_then(|ruleset| ruleset.handle_access(AccessNet::from_all(NEWEST)))
                .and_then(|ruleset| ruleset.scope(Scope::from_all(NEWEST)))
        };
        let mut created = ruleset.and_then(Ruleset::create).map_err(io::Error::other)?;
        let reads = AccessFs::ReadFile | AccessFs::ReadDir;
        let all = reads | changes(self.specials);
        let cpus = Path::new(CPUS);
        let readable = self.readable.iter().map(PathBuf::as_path).chain(cpus.exists().then_some(cpus));
        let readable = readable.filter(|_| !self.reads_all).map(|path| (path, reads));
        for (path, access) in readable.chain(self.writable.iter().map(|path| (path.as_path(), all))) {
            let access = if self.reads_all { access & changes(true) } else { access };
            created = created.add_rule(rule(path, access)?).map_err(io::Error::other)?;
        }
        let restricted = created.restrict_self().map_err(io::Error::other)?;
        Ok(restricted.ruleset != RulesetStatus::NotEnforced)
    }

    /// Keeps only the capabilities of this thread that its files can need.
    fn drop_capabilities(&self) -> io::Result<()> {
        let mut kept = OF_FILES;
        kept.set(OF_SPECIALS, self.specials);
        kept.set(OF_SYSTEM_XATTRS, self.system_xattrs);
        let now = capabilities(None)?;
        let less = CapabilitySets {
            effective: now.effective & kept,
            permitted: now.permitted & kept,
            inheritable: CapabilitySet::empty(),
        };
        if less != now {
            set_capabilities(None, less)?;
        }
        Ok(())
    }
}

/// Rights that change files and directories.
fn changes(specials: bool) -> BitFlags<AccessFs> {
    let ordinary = AccessFs::WriteFile
        | AccessFs::Truncate
        | AccessFs::RemoveDir
        | AccessFs::RemoveFile
        | AccessFs::MakeDir
        | AccessFs::MakeReg
        | AccessFs::MakeSym
        | AccessFs::Refer;
    let special = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::MakeFifo | AccessFs::MakeSock;
    if specials { ordinary | special } else { ordinary }
}

/// Returns the rule for `path`. A file has fewer rights than a directory.
fn rule(path: &Path, access: BitFlags<AccessFs>) -> io::Result<PathBeneath<PathFd>> {
    let is_directory = stat_at(CWD, path, Follow::Yes)?.kind == FileKind::Directory;
    let access = if is_directory { access } else { access & AccessFs::from_file(NEWEST) };
    Ok(PathBeneath::new(PathFd::new(path).map_err(io::Error::other)?, access))
}

/// Returns the version of the kernel's Landlock, or `None` if the kernel has none, or one that does
/// not permit renames between directories (before Linux 5.19).
pub fn version() -> Option<u32> {
    /// Flag of landlock_create_ruleset(2) that asks for the version.
    const LANDLOCK_CREATE_RULESET_VERSION: libc::c_uint = 1;
    static VERSION: OnceLock<Option<u32>> = OnceLock::new();
    *VERSION.get_or_init(|| {
        let (none, size) = (std::ptr::null::<libc::c_void>(), 0_usize);
        // SAFETY: with this flag, a null pointer and the size 0, the call reads and writes no
        // memory.
        let answer = unsafe {
            libc::syscall(libc::SYS_landlock_create_ruleset, none, size, LANDLOCK_CREATE_RULESET_VERSION)
        };
        u32::try_from(answer).ok().filter(|version| *version >= OLDEST)
    })
}

type Work = Box<dyn FnOnce() + Send>;

/// Sender to the thread that starts threads for [`outside`]; empty if no thread is confined.
static OUTSIDE: OnceLock<SyncSender<Work>> = OnceLock::new();

/// Starts the thread that [`outside`] uses. The calling thread must not be confined yet.
fn start_outside() -> io::Result<()> {
    if OUTSIDE.get().is_some() {
        return Ok(());
    }
    let (sender, requests) = sync_channel::<Work>(0);
    let serve = move || {
        for work in requests {
            // If no thread can be started, `work` is dropped, and its caller gets an error.
            let _ = thread::Builder::new().name("haul-outside".into()).spawn(work);
        }
    };
    thread::Builder::new().name("haul-outside".into()).spawn(serve)?;
    // Another session may have been faster: then the new thread ends with its sender.
    let _ = OUTSIDE.set(sender);
    Ok(())
}

/// Runs `work` on a thread that is not confined, and waits for it. Runs it on this thread if the
/// process has no confined thread.
///
/// Only for work whose paths no peer can influence, such as lookups of users.
///
/// # Errors
/// Returns an error if no thread can be started, or if `work` panicked.
pub fn outside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    let Some(requests) = OUTSIDE.get() else { return Ok(work()) };
    let (answer, answered) = sync_channel(1);
    let lost = || io::Error::other("the thread outside the sandbox failed");
    // A receiver that is gone does not matter: it waits below.
    requests.send(Box::new(move || drop(answer.send(work())))).map_err(|_| lost())?;
    answered.recv().map_err(|_| lost())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    /// Runs `work` on a thread in this sandbox; `None` if the kernel has no Landlock.
    fn within<T: Send>(sandbox: &Sandbox, work: impl FnOnce() -> T + Send) -> Option<T> {
        thread::scope(|scope| {
            let confined = scope.spawn(|| sandbox.enter().expect("it is confined").then(work));
            confined.join().expect("no panic")
        })
    }

    fn is_denied<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
    }

    #[test]
    fn a_confined_thread_writes_only_beneath_its_directories() {
        let home = tempfile::tempdir().expect("a folder");
        let at = |name: &str| home.path().join(name);
        for name in ["in/sub", "out", "seen"] {
            fs::create_dir_all(at(name)).expect("made");
        }
        for name in ["in/old", "out/old", "seen/old"] {
            fs::write(at(name), "old").expect("written");
        }
        symlink(at("out"), at("in/link")).expect("made");
        let sandbox = Sandbox::new().writable(at("in")).readable(at("seen")).readable(at("out/old"));
        let done = within(&sandbox, || {
            fs::write(at("in/new"), "new").expect("its own directory is writable");
            fs::rename(at("in/new"), at("in/sub/new")).expect("between its own directories");
            fs::hard_link(at("in/old"), at("in/sub/old")).expect("between its own directories");
            assert_eq!(fs::read(at("seen/old")).expect("readable"), b"old");
            assert_eq!(fs::read(at("out/old")).expect("a single file is readable"), b"old");
            assert!(is_denied(fs::write(at("in/link/new"), "new")));
            assert!(is_denied(fs::write(at("seen/new"), "new")));
            assert!(is_denied(fs::write(at("seen/old"), "new")));
            assert!(is_denied(fs::remove_file(at("out/old"))));
            assert!(is_denied(fs::read_dir(at("out"))));
            assert!(is_denied(fs::File::open("/etc/passwd")));
            // Threads that it starts are confined as well.
            let started = thread::spawn({
                let path = at("out/new");
                move || fs::write(path, "new")
            });
            assert!(is_denied(started.join().expect("no panic")));
        });
        if done.is_some() {
            assert_eq!(fs::read_dir(at("out")).expect("there").count(), 1);
            fs::write(at("out/new"), "new").expect("other threads are not confined");
        }
    }

    #[test]
    fn a_single_file_can_be_the_writable_path() {
        let home = tempfile::tempdir().expect("a folder");
        let (own, other) = (home.path().join("own"), home.path().join("other"));
        fs::write(&own, "old").expect("written");
        within(&Sandbox::new().writable(&own), || {
            fs::write(&own, "new").expect("writable");
            assert!(is_denied(fs::write(&other, "new")));
        });
    }

    #[test]
    fn a_thread_that_reads_all_writes_only_its_directories() {
        let home = tempfile::tempdir().expect("a folder");
        let (own, other) = (home.path().join("own"), home.path().join("other"));
        fs::create_dir(&own).expect("made");
        within(&Sandbox::new().reads_all().writable(&own), || {
            fs::write(own.join("file"), "new").expect("writable");
            fs::read("/proc/self/status").expect("readable");
            assert!(is_denied(fs::write(&other, "new")));
        });
    }

    #[test]
    fn work_outside_is_not_confined_and_its_panic_is_an_error() {
        let found = within(&Sandbox::new(), || {
            assert!(is_denied(fs::read("/etc/passwd")));
            let panicked = outside(|| panic!("on purpose"));
            assert!(panicked.is_err());
            outside(|| fs::read("/etc/passwd").is_ok()).expect("an answer")
        });
        assert_ne!(found, Some(false));
        assert_eq!(outside(|| 7).expect("an answer"), 7);
    }

    #[test]
    fn special_files_and_foreign_capabilities_are_permitted_only_on_request() {
        use crate::open::mknod_at;
        let home = tempfile::tempdir().expect("a folder");
        let fifo = |name: &str| mknod_at(CWD, home.path().join(name), FileKind::Fifo, 0o600, 0);
        let own = Sandbox::new().writable(home.path());
        within(&own, || {
            assert!(is_denied(fifo("no")));
            let sets = capabilities(None).expect("readable");
            assert!(OF_FILES.contains(sets.permitted) && OF_FILES.contains(sets.effective));
        });
        within(&own.specials(true), || fifo("yes").expect("permitted"));
    }
}
