//! Rights of the process, and protection of its memory.

use crate::users::Account;
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use std::ffi::{CString, OsStr};
use std::io;
use std::os::unix::ffi::OsStrExt;

/// Excludes the memory of the process from core dumps, and from access by other processes of this
/// user: it holds secrets. A program that the process starts is not affected.
///
/// # Errors
/// Returns the errors of prctl(2).
pub fn hide_memory() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Changes all threads of the process to the user `name`, with the user's groups and without any
/// capability. This cannot be undone.
///
/// # Errors
/// Returns the errors of initgroups(3), setresgid(2) and setresuid(2): `EPERM` if this user is not
/// root. The process can then have changed partly, and should exit.
pub fn become_user(name: &OsStr, account: &Account) -> io::Result<()> {
    let name = CString::new(name.as_bytes())?;
    let done = |status: libc::c_int| if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) };
    let (user, group) = (account.user, account.group);
    // The functions of the C library change all threads; the system calls change only one.
    // SAFETY: `name` is NUL-terminated and outlives the call.
    done(unsafe { libc::initgroups(name.as_ptr(), group) })?;
    // SAFETY: the call takes numbers and touches no memory of this program.
    done(unsafe { libc::setresgid(group, group, group) })?;
    // SAFETY: as above.
    done(unsafe { libc::setresuid(user, user, user) })?;
    // The change of the user can have reset this.
    hide_memory()
}
