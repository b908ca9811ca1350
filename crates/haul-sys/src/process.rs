//! The process and its limits.

mod memory;
mod privileges;
mod thread;

pub use memory::{Memory, memory};
pub use privileges::{become_user, hide_memory};
pub use thread::{SchedTimes, Thread};

use crate::sandbox;
use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::UnshareFlags;
use std::io;
use std::sync::OnceLock;

/// Returns the permission bits that new files do not get: `0` to `0o777`.
///
/// The value is read once and cached. The umask can otherwise only be read by setting it, and
/// another thread could create a file at that moment. If /proc shows the umask, it is read there.
pub fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = sandbox::outside(|| std::fs::read_to_string("/proc/thread-self/status"));
        let status = status.and_then(|read| read).unwrap_or_default();
        umask_in_status(&status).unwrap_or_else(|| {
            // Deny all bits during the read: a file created at that moment gets no permissions
            // rather than all.
            let mask = rustix::process::umask(Mode::from_raw_mode(0o777));
            rustix::process::umask(mask);
            mask.as_raw_mode() & 0o777
        })
    })
}

/// Sets the permission bits that new files of this process do not get. If [`umask`] was called
/// before, it keeps returning the earlier value.
pub fn set_umask(mask: u32) {
    rustix::process::umask(Mode::from_raw_mode(mask & 0o777));
}

fn umask_in_status(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// Returns the number of threads that can run at the same time, at least 1.
///
/// This is the number of CPUs available to this process, limited by the quota of its control groups
/// (versions 1 and 2), rounded down.
pub fn cpu_count() -> usize {
    // On Linux the standard library reads the affinity mask and both kinds of quota.
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Raises the limit on open files to the hard limit. Returns the limit now in force (`u64::MAX`:
/// none).
///
/// # Errors
///
/// Returns the errors of setrlimit(2); the old limit then stays.
pub fn raise_open_file_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// Returns the current limit on open files of the process (`u64::MAX`: no limit).
pub fn open_file_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// Returns the number of files that the process has open, including inherited ones.
///
/// # Errors
///
/// Returns an error if /proc cannot be read.
pub fn open_files() -> io::Result<u64> {
    // One of them is the descriptor of the listing itself.
    Ok(crate::dir::read_dir("/proc/thread-self/fd")?.count().saturating_sub(1) as u64)
}

/// Gives the calling thread its own descriptor table, so that opening and closing takes no lock
/// that other threads contend for.
///
/// The new table starts as a copy. Descriptors opened before remain usable in this thread, and
/// their files stay open until this thread ends, even if all other threads close them.
///
/// **From here on no descriptor may be passed between this thread and others.** A descriptor opened
/// here is a different file, or none, elsewhere, and vice versa. Only for threads that open, use
/// and close their files themselves.
///
/// # Errors
///
/// Returns the errors of unshare(2); the table then stays shared.
pub fn unshare_fd_table() -> io::Result<()> {
    // SAFETY: CLONE_FILES affects only descriptors and touches no memory. Every existing descriptor
    // keeps its number and its file in both tables, so all owned descriptors stay valid. The
    // contract above requires that later descriptors stay within their thread.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }?)
}

/// Returns the host name of this machine.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the ID of the current boot, or an empty string if the kernel does not provide it.
pub fn boot_id() -> String {
    sandbox::outside(|| std::fs::read_to_string("/proc/sys/kernel/random/boot_id"))
        .and_then(|read| read)
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// Returns the effective user ID, which owns new files and for which permissions are checked.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// Returns the effective group ID, which new files get.
pub fn effective_group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// Returns all groups of the process: the effective group first, then the supplementary groups.
///
/// # Errors
///
/// Returns the errors of getgroups(2).
pub fn groups() -> io::Result<Vec<u32>> {
    let mut groups = vec![effective_group()];
    groups.extend(rustix::process::getgroups()?.into_iter().map(|gid| gid.as_raw()));
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn umask_is_parsed_from_the_status_file() {
        assert_eq!(umask_in_status("Name:\thaul\nUmask:\t0027\nState:\tR\n"), Some(0o027));
        assert_eq!(umask_in_status("Name:\tUmask: 7\n"), None);
        assert_eq!(umask_in_status("Umask:\tnone\n"), None);
    }
}
