//! Programs that strace sends a signal at a given system call, so that they are killed or stopped
//! at an event and not after a time.

use crate::attempt::wait_until;
use crate::needs::Need;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

/// Requirement of a test that calls [`signalled`].
pub const NEED: Need = Need::Program("strace");

/// Returns `command` under strace (its program, arguments, variables and directory, but not its
/// streams). Its threads get `signal` when they make one of the system calls `calls`.
///
/// `calls` is a comma-separated list of names. `when` is strace's expression: `3` is the third such
/// call, and `3+` is the third and each later one. Calls are counted per thread and per name.
/// SIGKILL prevents the call; another signal is delivered after the call.
///
/// The child is the program itself and not strace: its PID, its signals and its exit status are
/// those of the program.
pub fn signalled(command: &Command, calls: &str, signal: &str, when: &str) -> Command {
    traced(command, calls, &format!("signal={signal}:when={when}"), ["-D", "-o", "/dev/null"])
}

/// Returns `command` under strace, as [`signalled`], with any effect of its injections, for example
/// `error=EIO`. The child is strace, which exits with the status of the program. It writes the
/// calls to `log`, and marks those with the effect by `(INJECTED)`.
pub fn injected(command: &Command, calls: &str, effect: &str, log: &Path) -> Command {
    injected_at(command, &[], calls, effect, log)
}

/// Returns `command` as [`injected`] does, with the effect on the calls that use one of the files
/// or directories `places`, by a descriptor or an absolute path. If there are none, all calls have
/// the effect.
pub fn injected_at(command: &Command, places: &[PathBuf], calls: &str, effect: &str, log: &Path) -> Command {
    let mut options = vec![OsStr::new("-o"), log.as_os_str()];
    options.extend(places.iter().flat_map(|place| [OsStr::new("-P"), place.as_os_str()]));
    traced(command, calls, effect, options)
}

fn traced<O: AsRef<OsStr>>(
    command: &Command,
    calls: &str,
    effect: &str,
    options: impl IntoIterator<Item = O>,
) -> Command {
    let mut traced = Command::new("strace");
    traced.args(["-f", "-qq"]).args(options);
    traced.args(["-e", &format!("trace={calls}"), "-e", &format!("inject={calls}:{effect}")]);
    traced.arg(command.get_program()).args(command.get_args());
    if let Some(dir) = command.get_current_dir() {
        traced.current_dir(dir);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => traced.env(name, value),
            None => traced.env_remove(name),
        };
    }
    traced
}

/// Waits until the child is stopped or has ended. Returns true if the child is stopped.
///
/// # Panics
/// Panics if that takes longer than [`TEST_TIMEOUT`](crate::PATIENCE).
#[track_caller]
pub fn is_stopped(child: &Child) -> bool {
    let how = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let mut found = None;
    wait_until("a stop or the end of the process", || {
        found = waitid(WaitId::Pid(Pid::from_child(child)), how).expect("a child of this process");
        found.is_some()
    });
    found.is_some_and(|status| status.stopped())
}

/// Continues a stopped child and consumes that stop, so that [`is_stopped`] waits for the next one.
pub fn continue_child(child: &Child) {
    let pid = Pid::from_child(child);
    waitid(WaitId::Pid(pid), WaitIdOptions::STOPPED | WaitIdOptions::NOHANG)
        .expect("a child of this process");
    kill_process(pid, Signal::CONT).expect("a child of this process");
}

/// Continues a child at each stop until `holds` returns true at one of the stops. Returns true if
/// it did; otherwise the child has ended.
///
/// # Panics
/// Panics under the same condition as [`is_stopped`].
#[track_caller]
pub fn stops_when(child: &Child, mut holds: impl FnMut() -> bool) -> bool {
    while is_stopped(child) {
        if holds() {
            return true;
        }
        continue_child(child);
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::met_or_skip;
    use std::fs;
    use std::os::unix::process::ExitStatusExt;

    /// Starts `mkdir a b c` in `dir`, with a signal at a mkdir call.
    fn makes_three(dir: &Path, signal: &str, when: &str) -> Child {
        let mut command = Command::new("mkdir");
        command.current_dir(dir).args(["a", "b", "c"]);
        signalled(&command, "mkdir", signal, when).spawn().unwrap()
    }

    fn count(dir: &Path) -> usize {
        fs::read_dir(dir).unwrap().count()
    }

    #[test]
    fn program_is_stopped_after_each_call() {
        if !met_or_skip(&[NEED]) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut child = makes_three(dir.path(), "STOP", "2+");
        let mut seen = Vec::new();
        let is_found = stops_when(&child, || {
            seen.push(count(dir.path()));
            false
        });
        assert_eq!((is_found, &*seen), (false, &[2, 3][..]));
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }

    #[test]
    fn program_stays_stopped_once_the_condition_holds() {
        if !met_or_skip(&[NEED]) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut child = makes_three(dir.path(), "STOP", "1+");
        assert!(stops_when(&child, || count(dir.path()) == 2));
        child.kill().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(count(dir.path()), 2);
    }

    #[test]
    fn kill_happens_before_the_call() {
        if !met_or_skip(&[NEED]) {
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let mut child = makes_three(dir.path(), "KILL", "2");
        assert_eq!(child.wait().unwrap().signal(), Some(9));
        assert_eq!(count(dir.path()), 1);
    }
}
