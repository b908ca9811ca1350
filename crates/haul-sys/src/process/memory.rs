//! Available memory: that of the machine, limited by the control groups of the process.

use crate::sandbox;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Snapshot of the memory, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Total memory of the machine.
    pub total: u64,
    /// Memory that can be allocated now without swapping: the kernel's own estimate, reduced to
    /// what each limit leaves.
    pub available: u64,
    /// Lowest limit of a control group, if there is one.
    pub limit: Option<u64>,
}

/// Reads the memory figures from the kernel.
///
/// # Errors
///
/// Returns an error if /proc/meminfo cannot be read or lacks the figures. A control group that
/// cannot be read counts as no limit.
pub fn memory() -> io::Result<Memory> {
    sandbox::outside(|| memory_beneath(Path::new("/")))?
}

/// Same as [`memory`], with every path relative to `root`.
fn memory_beneath(root: &Path) -> io::Result<Memory> {
    let meminfo = fs::read_to_string(root.join("proc/meminfo"))?;
    let total = meminfo_bytes(&meminfo, "MemTotal:");
    // Kernels before 3.14 provide no estimate; the free memory is a conservative substitute.
    let available = meminfo_bytes(&meminfo, "MemAvailable:").or_else(|| meminfo_bytes(&meminfo, "MemFree:"));
    let (Some(total), Some(mut available)) = (total, available) else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "/proc/meminfo names no memory"));
    };
    let mut limit = None;
    for group in group_folders(root) {
        let Some((max, used)) = group.limit_and_use() else { continue };
        // Version 1 writes "no limit" as a number near 2^63. Ignore every limit of at least the
        // total memory.
        if max >= total {
            continue;
        }
        limit = Some(limit.map_or(max, |l: u64| l.min(max)));
        available = available.min(max.saturating_sub(used));
    }
    Ok(Memory { total, available, limit })
}

/// Directory of a control group that may set a limit.
struct Cgroup {
    folder: PathBuf,
    version: Version,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Cgroup {
    /// Returns the limit, and the usage that counts against it and cannot be reclaimed.
    fn limit_and_use(&self) -> Option<(u64, u64)> {
        let (max, current) = match self.version {
            Version::One => ("memory.limit_in_bytes", "memory.usage_in_bytes"),
            Version::Two => ("memory.max", "memory.current"),
        };
        let number = |name: &str| fs::read_to_string(self.folder.join(name)).ok()?.trim().parse::<u64>().ok();
        // "max" is not a number: no limit.
        let max = number(max)?;
        let used = number(current).unwrap_or(0);
        // Inactive file pages can be reclaimed without loss.
        let droppable = fs::read_to_string(self.folder.join("memory.stat"))
            .ok()
            .and_then(|stat| {
                let lines = stat.lines();
                // In version 1 the plain counter excludes the groups below; the total includes
                // them.
                let key =
                    if self.version == Version::One { "total_inactive_file " } else { "inactive_file " };
                lines.filter_map(|line| line.strip_prefix(key)).find_map(|n| n.trim().parse::<u64>().ok())
            })
            .unwrap_or(0);
        Some((max, used.saturating_sub(droppable)))
    }
}

/// Returns the directories of the memory groups of this process and of all groups above them,
/// because every limit applies.
fn group_folders(root: &Path) -> Vec<Cgroup> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    let mounts = fs::read_to_string(root.join("proc/self/mountinfo")).unwrap_or_default();
    let mut folders = Vec::new();
    for line in groups.lines() {
        // hierarchy:controllers:path
        let mut fields = line.splitn(3, ':');
        let (Some(hierarchy), Some(controllers), Some(path)) = (fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        let version = if controllers.split(',').any(|c| c == "memory") {
            Version::One
        } else if hierarchy == "0" && controllers.is_empty() {
            Version::Two
        } else {
            continue;
        };
        for mount in mounts.lines().filter_map(Mount::parse).filter(|mount| mount.carries(version)) {
            // In a container the process's own group may be the root of the mount.
            let below = path.strip_prefix(mount.root.trim_end_matches('/')).unwrap_or(path);
            let top = root.join(mount.point.trim_start_matches('/'));
            let mut folder = top.join(below.trim_start_matches('/'));
            while folder.starts_with(&top) {
                folders.push(Cgroup { folder: folder.clone(), version });
                if !folder.pop() {
                    break;
                }
            }
        }
    }
    folders
}

/// Line of /proc/self/mountinfo, reduced to the fields used here (proc_pid_mountinfo(5)).
struct Mount<'a> {
    root: &'a str,
    point: &'a str,
    kind: &'a str,
    options: &'a str,
}

impl<'a> Mount<'a> {
    fn parse(line: &'a str) -> Option<Mount<'a>> {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let mut right = right.split(' ');
        let (root, point) = (left.next()?, left.next()?);
        let (kind, _source, options) = (right.next()?, right.next()?, right.next()?);
        Some(Mount { root, point, kind, options })
    }

    fn carries(&self, version: Version) -> bool {
        match version {
            Version::One => self.kind == "cgroup" && self.options.split(',').any(|o| o == "memory"),
            Version::Two => self.kind == "cgroup2",
        }
    }
}

fn meminfo_bytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    let kibibytes = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str =
        "MemTotal:       1000000 kB\nMemFree:         100000 kB\nMemAvailable:    800000 kB\n";

    /// Creates a directory with the given files, which simulates the root of a machine.
    fn machine(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("beneath the root")).expect("made");
            fs::write(path, text).expect("written");
        }
        root
    }

    #[test]
    fn without_cgroups_machine_memory_is_used() {
        let root = machine(&[("proc/meminfo", MEMINFO)]);
        let found = memory_beneath(root.path()).expect("found");
        assert_eq!(found, Memory { total: 1_024_000_000, available: 819_200_000, limit: None });
    }

    #[test]
    fn old_kernels_use_free_memory_as_available() {
        let root = machine(&[("proc/meminfo", "MemTotal: 1000 kB\nMemFree: 100 kB\n")]);
        assert_eq!(memory_beneath(root.path()).expect("found").available, 102_400);
        let root = machine(&[("proc/meminfo", "nothing of use\n")]);
        assert_eq!(memory_beneath(root.path()).expect_err("no figure").kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn cgroup_v2_limits_of_parent_groups_apply() {
        let mount = "31 22 0:28 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw\n";
        let root = machine(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "0::/slice/job\n"),
            ("proc/self/mountinfo", mount),
            ("sys/fs/cgroup/slice/memory.max", "500000000\n"),
            ("sys/fs/cgroup/slice/memory.current", "300000000\n"),
            ("sys/fs/cgroup/slice/memory.stat", "anon 1\ninactive_file 100000000\n"),
            ("sys/fs/cgroup/slice/job/memory.max", "max\n"),
        ]);
        let found = memory_beneath(root.path()).expect("found");
        assert_eq!(found.limit, Some(500_000_000));
        assert_eq!(found.available, 300_000_000, "file pages that can be dropped count as room");
    }

    #[test]
    fn cgroup_v1_uses_the_memory_controller() {
        let mounts = "34 31 0:31 / /cg/cpu rw - cgroup cgroup rw,cpu\n35 31 0:32 /box /cg/memory rw - cgroup cgroup rw,memory\n";
        let root = machine(&[
            ("proc/meminfo", MEMINFO),
            ("proc/self/cgroup", "4:memory:/box/job\n1:cpu:/\n0::/\n"),
            ("proc/self/mountinfo", mounts),
            ("cg/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cg/memory/job/memory.limit_in_bytes", "200000000\n"),
            ("cg/memory/job/memory.usage_in_bytes", "250000000\n"),
            ("cg/cpu/memory.limit_in_bytes", "7\n"),
        ]);
        let found = memory_beneath(root.path()).expect("found");
        assert_eq!((found.limit, found.available), (Some(200_000_000), 0));
    }
}
