//! The sandbox: created, used and examined, first for the system's tool and then, identically in
//! the same place, for haul. Both use the same place, so that absolute names and all messages are
//! equal.

use super::case::{Case, USUAL_UMASK};
use super::compare::{self, Difference};
use super::plant::{self, resolved};
use super::portrait::{self, Facets};
use crate::faults::fixture::copy_haul;
use haul_lab::needs::{Need, met_or_skip};
use haul_sys::wait;
use rustix::fs::{AtFlags, Timespec, Timestamps, utimensat};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The ordinary user, and its group.
const USER: u32 = 65_534;

/// Directories around a sandbox, more than the links in it ascend: no link leads out of the part
/// that is removed after each run.
const PADDING: &str = "1/2/3/4/5/6";

/// Directory of the system's tools.
const SYSTEM_BIN: &str = "/usr/bin";

/// A file system in memory, if there is one.
const MEMORY: &str = "/dev/shm";

/// Polling interval for a tool that has not ended.
const LOOK: Duration = Duration::from_millis(100);

/// Number of polls that must find each thread asleep before a tool is treated as blocked.
const LOOKS: u32 = 3;

/// Maximum duration of a run.
const RUN_MAX: Duration = Duration::from_secs(120);

/// Result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RunResult {
    pub(super) status: Status,
    pub(super) out: Vec<u8>,
    pub(super) err: Vec<u8>,
    /// One line for each entry.
    pub(super) tree: Vec<String>,
}

/// End of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Exit(i32),
    Signal(i32),
    /// The tool was blocked indefinitely, and was killed.
    Waiting,
    /// The tool ran longer than any case can need, and was killed.
    Endless,
}

/// Origin of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ToolOrigin {
    System,
    Ours,
}

/// A place that runs cases, one after the other.
#[derive(Debug)]
pub(super) struct Twins {
    memory: TempDir,
    disk: TempDir,
}

impl Twins {
    /// Returns `None` without root: cases create devices, change owners and run as another user.
    pub(super) fn new() -> Option<Twins> {
        if !met_or_skip(&[Need::Root]) {
            return None;
        }
        let open = |folder: TempDir| {
            fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
            folder
        };
        let disk = open(tempfile::tempdir().unwrap());
        let memory = tempfile::tempdir_in(MEMORY).or_else(|_| tempfile::tempdir()).unwrap();
        Some(Twins { memory: open(memory), disk })
    }

    /// Returns the difference between the two tools in a case, except deliberate ones.
    pub(super) fn difference(&mut self, case: &Case) -> Option<Difference> {
        let [system, ours] = [ToolOrigin::System, ToolOrigin::Ours].map(|maker| self.run(case, maker));
        compare::difference(case, system, ours)
    }

    fn run(&self, case: &Case, maker: ToolOrigin) -> RunResult {
        let (at, beyond) = if case.on_disk { (&self.disk, &self.memory) } else { (&self.memory, &self.disk) };
        let root = at.path().join(PADDING).join("box");
        let far = beyond.path().join(PADDING).join("far");
        let uses_far = case.plants.iter().any(|plant| plant.path.starts_with(b"far/"));
        let mut places: Vec<(&str, &Path)> = vec![("", &root)];
        fs::create_dir_all(&root).unwrap();
        if uses_far {
            fs::create_dir_all(&far).unwrap();
            symlink(&far, root.join("far")).unwrap();
            places.push(("far", &far));
        }
        let owner = if case.as_user { USER } else { 0 };
        plant::grow(&case.plants, &root, (owner, owner)).unwrap();
        for (_, place) in &places {
            chown(place, Some(owner), Some(owner)).unwrap();
            settle(place);
        }
        let known = portrait::know(&places).unwrap();
        let (status, out, err) = self.start(case, maker, &root).unwrap();
        let facets = Facets { room: case.has_option(0, "sparse") };
        let tree = portrait::paint(&places, &known, facets).unwrap();
        drop(known);
        for folder in [&self.memory, &self.disk] {
            let _ = fs::remove_dir_all(folder.path().join("1"));
        }
        RunResult { status, out, err, tree }
    }

    fn start(&self, case: &Case, maker: ToolOrigin, root: &Path) -> io::Result<(Status, Vec<u8>, Vec<u8>)> {
        let spool = |name: &str| self.memory.path().join(name);
        fs::write(spool("in"), &case.answers)?;
        let mut command = command(case, maker, root);
        command.stdin(File::open(spool("in"))?);
        command.stdout(File::create(spool("out"))?).stderr(File::create(spool("err"))?);
        let status = until_end(command.spawn()?)?;
        Ok((status, fs::read(spool("out"))?, fs::read(spool("err"))?))
    }
}

/// Sets the time of the sandbox itself, which the creation of its contents changed.
fn settle(place: &Path) {
    let time = Timespec { tv_sec: plant::USUAL_TIME.0, tv_nsec: plant::USUAL_TIME.1 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(haul_sys::CWD, place, &times, AtFlags::empty()).unwrap();
}

fn command(case: &Case, maker: ToolOrigin, root: &Path) -> Command {
    let bin = match maker {
        ToolOrigin::System => Path::new(SYSTEM_BIN),
        ToolOrigin::Ours => our_bin(),
    };
    let name = case.tool.name();
    let mut command = if case.umask == own_umask() {
        let mut command = Command::new(bin.join(name));
        command.arg0(name);
        command
    } else {
        // Only a process itself can set its umask.
        let mut command = Command::new("/bin/sh");
        let script = format!("umask {:o}; PATH={}; exec {name} \"$@\"", case.umask, bin.display());
        command.args(["-c", &script, "sh"]);
        command
    };
    command.args(case.words.iter().map(|word| OsStr::from_bytes(&resolved(word, root)).to_owned()));
    command.env_clear().env("PATH", SYSTEM_BIN).env("LC_ALL", "C.UTF-8");
    command.envs(case.environment.iter().map(|(name, value)| (name, value)));
    command.current_dir(plant::place(root, &case.cwd));
    if case.as_user {
        command.uid(USER).gid(USER);
    }
    command
}

/// Returns the umask that children inherit.
fn own_umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        line.and_then(|octal| u32::from_str_radix(octal.trim(), 8).ok()).unwrap_or(!USUAL_UMASK)
    })
}

/// Returns a directory in which each tool is haul. The build directory may be inaccessible to the
/// user of some cases.
fn our_bin() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
            copy_haul(&folder.path().join("haul"));
            for name in ["cp", "mv", "install"] {
                symlink("haul", folder.path().join(name)).unwrap();
            }
            folder
        })
        .path()
}

/// Waits for a tool to end, or to be blocked.
fn until_end(mut child: Child) -> io::Result<Status> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw).expect("a child has a number");
    let pidfd = pidfd_open(id, PidfdFlags::empty())?;
    let began = Instant::now();
    let mut looks = 0;
    let mut spent = 0;
    while !wait::readable(&pidfd, LOOK)? {
        let now = processor_time(child.id());
        looks = if now == Some(spent) { looks + 1 } else { 0 };
        spent = now.unwrap_or(spent);
        let is_endless = began.elapsed() > RUN_MAX;
        if looks >= LOOKS || is_endless {
            child.kill()?;
            child.wait()?;
            return Ok(if is_endless { Status::Endless } else { Status::Waiting });
        }
    }
    Ok(status_of(child.wait()?))
}

fn status_of(status: ExitStatus) -> Status {
    match (status.code(), status.signal()) {
        (Some(code), _) => Status::Exit(code),
        (None, signal) => Status::Signal(signal.unwrap_or(0)),
    }
}

/// Returns the clock ticks of CPU time of a process's threads, plus one. Returns `None` while a
/// thread runs or waits for a disk.
fn processor_time(id: u32) -> Option<u64> {
    let tasks = PathBuf::from(format!("/proc/{id}/task"));
    let mut ticks = 1;
    for task in fs::read_dir(tasks).ok()? {
        let stat = fs::read_to_string(task.ok()?.path().join("stat")).ok()?;
        // The name is in parentheses and may contain any bytes; state (3) and times (14, 15) follow
        // it.
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        if fields.next()? != "S" {
            return None;
        }
        ticks += fields.skip(10).take(2).filter_map(|field| field.parse::<u64>().ok()).sum::<u64>();
    }
    Some(ticks)
}
