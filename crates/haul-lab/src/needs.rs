//! What a test needs of the machine it runs on, and what happens where that is missing.

use std::env;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Set to 1, this variable turns every skip into a failure: a run that must prove everything sets it.
pub const REQUIRE_ALL: &str = "HAUL_REQUIRE_ALL";

/// Something that not every machine gives a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Root's rights: to change owners, to make devices.
    Root,
    /// The right to mount; root in a container may lack it.
    Mount,
    /// The right to make device nodes; root in a container may lack it.
    DeviceNodes,
    /// A FUSE device that can be opened, and a way to mount it.
    Fuse,
    /// Loop devices and the right to mount them.
    Loop,
    /// Network namespaces and TUN devices: the right to make them, and `ip`.
    Links,
    /// A program on the path.
    Program(&'static str),
    /// A file, directory or device that most machines have: of /proc, /sys or /dev.
    Path(&'static str),
    /// A file system that the kernel has, built in or as a module, by the name mount(8) takes.
    FileSystem(&'static str),
}

impl Need {
    /// What is missing, as it is printed.
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
            Self::Mount => "the right to mount".into(),
            Self::DeviceNodes => "the right to make device nodes".into(),
            Self::Fuse => "fuse".into(),
            Self::Loop => "loop devices".into(),
            Self::Links => "network namespaces and /dev/net/tun".into(),
            Self::Program(name) => format!("the program {name}"),
            Self::Path(path) => path.into(),
            Self::FileSystem(name) => format!("a kernel with {name}"),
        })
    }
}

/// Whether this process holds CAP_SYS_ADMIN, which mount(2) asks for.
fn may_mount() -> bool {
    has_capability(21)
}

/// Whether this process has the effective capability of this number.
fn has_capability(number: u32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok()).is_some_and(|bits| bits >> number & 1 == 1)
}

fn has_program(name: &str) -> bool {
    let dirs = env::var_os("PATH").unwrap_or_default();
    // mkfs and mount live in sbin, which a user's path need not hold.
    let all = env::split_paths(&dirs).chain(["/usr/sbin".into(), "/sbin".into()]);
    all.into_iter().any(|dir| dir.join(name).is_file())
}

/// Whether the kernel mounts this kind: one it has loaded, or one that mounting would load.
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

/// True if all `needs` are met. Otherwise says `skipped: needs ...` on standard error, past the capture of
/// the test harness, and gives false: the test returns at once.
///
/// # Panics
/// Instead of giving false, where `HAUL_REQUIRE_ALL` is 1.
#[track_caller]
pub fn met_or_skip(needs: &[Need]) -> bool {
    go_on(needs.iter().filter_map(|need| need.missing()))
}

/// As [`met_or_skip`], for what only trying can tell: `shown` says whether the machine showed `what`.
///
/// # Panics
/// As [`met_or_skip`].
#[track_caller]
pub fn shown_or_skip(shown: bool, what: &str) -> bool {
    go_on((!shown).then(|| what.to_owned()).into_iter())
}

#[track_caller]
fn go_on(missing: impl Iterator<Item = String>) -> bool {
    let strict = env::var_os(REQUIRE_ALL).is_some_and(|value| value == "1");
    let Some(line) = verdict(missing, strict) else { return true };
    let name = std::thread::current().name().unwrap_or("a test").to_owned();
    // A lost line loses nothing but the line.
    let _ = writeln!(io::stderr(), "test {name} ... {line}");
    false
}

/// The line that is printed for what is missing, if anything is.
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
    fn what_is_there_is_not_missed() {
        assert_eq!(Need::Program("sh").missing(), None);
        assert_eq!(verdict([].into_iter(), true), None);
    }

    #[test]
    fn paths_and_file_systems_are_looked_for() {
        assert_eq!(Need::Path("/proc/self").missing(), None);
        assert_eq!(Need::Path("/no/such/path").missing().as_deref(), Some("/no/such/path"));
        assert_eq!(Need::FileSystem("proc").missing(), None);
        assert_eq!(Need::FileSystem("nodev").missing().as_deref(), Some("a kernel with nodev"));
        assert!(shown_or_skip(true, "the sun"));
    }

    #[test]
    fn what_is_missing_is_named() {
        let missing = Need::Program("no-such-program-anywhere").missing();
        assert_eq!(missing.as_deref(), Some("the program no-such-program-anywhere"));
        let line = verdict(["root".to_owned(), "fuse".to_owned()].into_iter(), false);
        assert_eq!(line.as_deref(), Some("skipped: needs root, fuse"));
    }

    #[test]
    #[should_panic(expected = "skipped: needs root, and HAUL_REQUIRE_ALL=1 forbids skipping")]
    fn a_strict_run_fails_instead() {
        verdict(["root".to_owned()].into_iter(), true);
    }
}
