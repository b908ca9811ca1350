//! Requirements of a test on its machine, and skipping of tests whose requirements are not met.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Variable that turns every skip into a failure if set to 1. A run that must prove everything sets
/// it.
pub const REQUIRE_ALL: &str = "HAUL_REQUIRE_ALL";

/// A requirement that not every machine meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Root's rights, to change owners and to create devices.
    Root,
    /// The right to mount. Root in a container may lack it.
    Mount,
    /// The right to create device nodes. Root in a container may lack it.
    DeviceNodes,
    /// A FUSE device that can be opened, and a way to mount it.
    Fuse,
    /// Loop devices and the right to mount them.
    Loop,
    /// Network namespaces and TUN devices: the right to create them, and the program `ip`.
    Links,
    /// A program on the path.
    Program(&'static str),
    /// A file, directory or device in /proc, /sys or /dev that most machines have.
    Path(&'static str),
    /// A file system that the kernel supports, built in or as a module, by its name for mount(8).
    FileSystem(&'static str),
}

impl Need {
    /// Returns true if this machine meets the requirement. For a test that checks less without it.
    pub fn is_met(self) -> bool {
        self.missing().is_none()
    }

    /// Returns the description of a missing requirement, as printed.
    fn missing(self) -> Option<String> {
        let met = match self {
            Self::Root => rustix::process::geteuid().is_root(),
            Self::Mount => may_mount(),
            Self::DeviceNodes => has_capability(27),
            Self::Fuse => {
                let device = File::options().read(true).write(true).open("/dev/fuse");
                device.is_ok() && (may_mount() || has_program("fusermount3"))
            }
            Self::Loop => may_mount() && Path::new("/dev/loop-control").exists(),
            Self::Links => {
                let device = File::options().read(true).write(true).open("/dev/net/tun");
                // CAP_NET_ADMIN, and mounts for `ip netns`.
                device.is_ok() && has_capability(12) && may_mount() && has_program("ip")
            }
            Self::Program(name) => has_program(name),
            Self::Path(path) => Path::new(path).exists(),
            Self::FileSystem(name) => has_file_system(name),
        };
        (!met).then(|| match self {
            Self::Root => "root".into(),
            Self::Mount => "permission to mount".into(),
            Self::DeviceNodes => "permission to create device nodes".into(),
            Self::Fuse => "fuse".into(),
            Self::Loop => "loop devices".into(),
            Self::Links => "network namespaces and /dev/net/tun".into(),
            Self::Program(name) => format!("the program {name}"),
            Self::Path(path) => path.into(),
            Self::FileSystem(name) => format!("a kernel with {name}"),
        })
    }
}

/// Returns true if this process has CAP_SYS_ADMIN, which mount(2) requires.
fn may_mount() -> bool {
    has_capability(21)
}

/// Returns true if this process has the effective capability of this number.
fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|bits| bits >> number & 1 == 1)
}

fn has_program(name: &str) -> bool {
    let dirs = env::var_os("PATH").unwrap_or_default();
    // mkfs and mount are in sbin, which a user's PATH may not contain.
    let all = env::split_paths(&dirs).chain(["/usr/sbin".into(), "/sbin".into()]);
    all.into_iter().any(|dir| dir.join(name).is_file())
}

/// Returns true if the kernel can mount this file system type: loaded, or loadable as a module.
fn has_file_system(name: &str) -> bool {
    let loaded = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    if loaded.lines().any(|line| line.split_whitespace().next_back() == Some(name)) {
        return true;
    }
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let modules = Path::new("/lib/modules").join(release.trim()).join("modules.dep");
    let module = format!("/{name}.ko");
    fs::read_to_string(modules).is_ok_and(|list| list.contains(&module))
}

/// Returns true if all `needs` are met. Otherwise prints `skipped: needs ...` to standard error,
/// past the capture of the test harness, and returns false. The test then returns at once.
///
/// # Panics
/// Panics if a need is not met and `HAUL_REQUIRE_ALL` is 1.
#[track_caller]
pub fn met_or_skip(needs: &[Need]) -> bool {
    go_on(needs.iter().filter_map(|need| need.missing()))
}

/// Does the same as [`met_or_skip`] for a requirement that only a trial can check: `shown` is the
/// result of the trial, `what` describes the requirement.
///
/// # Panics
/// Panics under the same condition as [`met_or_skip`].
#[track_caller]
pub fn shown_or_skip(shown: bool, what: &str) -> bool {
    go_on((!shown).then(|| what.to_owned()).into_iter())
}

#[track_caller]
fn go_on(missing: impl Iterator<Item = String>) -> bool {
    let strict = env::var_os(REQUIRE_ALL).is_some_and(|value| value == "1");
    let Some(line) = verdict(missing, strict) else { return true };
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // A write error is ignored: only the line is lost.
    let _ = writeln!(io::stderr(), "test {name} ... {line}");
    false
}

/// Returns the line to print if anything is missing.
#[track_caller]
fn verdict(missing: impl Iterator<Item = String>, strict: bool) -> Option<String> {
    let missing: Vec<String> = missing.collect();
    if missing.is_empty() {
        return None;
    }
    let line = format!("skipped: needs {}", missing.join(", "));
    assert!(!strict, "{line}, and {REQUIRE_ALL}=1 forbids skipping");
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn available_needs_are_not_missing() {
        assert_eq!(Need::Program("sh").missing(), None);
        assert_eq!(verdict([].into_iter(), true), None);
    }

    #[test]
    fn paths_and_file_systems_are_checked() {
        assert_eq!(Need::Path("/proc/self").missing(), None);
        assert_eq!(Need::Path("/no/such/path").missing().as_deref(), Some("/no/such/path"));
        assert_eq!(Need::FileSystem("proc").missing(), None);
        assert_eq!(Need::FileSystem("nodev").missing().as_deref(), Some("a kernel with nodev"));
        assert!(shown_or_skip(true, "the sun"));
    }

    #[test]
    fn missing_needs_are_named() {
        let missing = Need::Program("no-such-program-anywhere").missing();
        assert_eq!(missing.as_deref(), Some("the program no-such-program-anywhere"));
        let line = verdict(["root".to_owned(), "fuse".to_owned()].into_iter(), false);
        assert_eq!(line.as_deref(), Some("skipped: needs root, fuse"));
    }

    #[test]
    #[should_panic(expected = "skipped: needs root, and HAUL_REQUIRE_ALL=1 forbids skipping")]
    fn strict_run_fails_on_missing_needs() {
        verdict(["root".to_owned()].into_iter(), true);
    }
}
