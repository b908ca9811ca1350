//! The process and what the machine grants it.

mod memory;
mod thread;

pub use memory::{Memory, memory};
pub use thread::Thread;

use rustix::fs::Mode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::UnshareFlags;
use std::io;
use std::sync::OnceLock;

/// The permission bits that new files are denied: `0` to `0o777`. Asked once, for the umask can only be
/// read by setting it, and another thread could make a file in that moment; where /proc shows it, it is
/// read there.
pub fn umask() -> u32 {
    static UMASK: OnceLock<u32> = OnceLock::new();
    *UMASK.get_or_init(|| {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        umask_in_status(&status).unwrap_or_else(|| {
            // Deny all while it is read: a file made in that moment is closed rather than open to all.
            let mask = rustix::process::umask(Mode::from_raw_mode(0o777));
            rustix::process::umask(mask);
            mask.as_raw_mode() & 0o777
        })
    })
}

/// Sets the permission bits that new files of this process are denied from now on. [`umask`] goes on telling those that
/// the process had before, if it was asked before.
pub fn set_umask(mask: u32) {
    rustix::process::umask(Mode::from_raw_mode(mask & 0o777));
}

fn umask_in_status(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"))?;
    u32::from_str_radix(line.trim(), 8).ok()
}

/// How many threads can run at once: processors this process may use, cut by the quota of its control
/// groups (versions 1 and 2), rounded down; at least 1.
pub fn cpu_count() -> usize {
    // The standard library reads the affinity mask and both kinds of quota on Linux.
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// Raises the limit on open files to what the process may have; returns the limit now in force
/// (`u64::MAX`: none).
///
/// # Errors
/// What setrlimit(2) reports; the old limit then stays.
pub fn raise_open_file_limit() -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    }
    Ok(limit.maximum.unwrap_or(u64::MAX))
}

/// How many files the process may have open now (`u64::MAX`: no limit).
pub fn open_file_limit() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// How many files the process has open now, inherited ones too.
///
/// # Errors
/// There is no /proc.
pub fn open_files() -> io::Result<u64> {
    // One of them is the listing itself.
    Ok(std::fs::read_dir("/proc/thread-self/fd")?.count().saturating_sub(1) as u64)
}

/// Gives the calling thread a table of descriptors of its own, so that opening and closing takes no lock
/// that other threads want.
///
/// The new table starts as a copy: descriptors opened before remain usable in this thread, and each file
/// among them stays open until this thread ends, even if all others close it. **From here on no descriptor
/// may cross the thread's border**: one opened here is a different file, or none, elsewhere, and the other
/// way round. Only for threads that open, use and close their files themselves.
///
/// # Errors
/// What unshare(2) reports; the table then stays shared.
pub fn unshare_fd_table() -> io::Result<()> {
    // SAFETY: CLONE_FILES concerns descriptors alone and touches no memory. Every descriptor that exists
    // now keeps its number and its file in both tables, so all that are held stay right. That later ones
    // stay within their thread is the contract stated above.
    Ok(unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FILES) }?)
}

/// What this machine calls itself.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// What this life of the machine, since it was last started, is told apart by; nothing where the kernel does not say.
pub fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map(|text| text.trim().to_owned())
        .unwrap_or_default()
}

/// The user in whose name files are made and permissions are checked.
pub fn effective_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The group in whose name files are made.
pub fn effective_group() -> u32 {
    rustix::process::getegid().as_raw()
}

/// All groups the process is in: the effective one first, then the supplementary ones.
///
/// # Errors
/// What getgroups(2) reports.
pub fn groups() -> io::Result<Vec<u32>> {
    let mut groups = vec![effective_group()];
    groups.extend(rustix::process::getgroups()?.into_iter().map(|gid| gid.as_raw()));
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_umask_is_found_among_other_lines() {
        assert_eq!(umask_in_status("Name:\thaul\nUmask:\t0027\nState:\tR\n"), Some(0o027));
        assert_eq!(umask_in_status("Name:\tUmask: 7\n"), None);
        assert_eq!(umask_in_status("Umask:\tnone\n"), None);
    }
}
