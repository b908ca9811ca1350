//! Lookup of users and groups by name and by ID, in all name services of the system.
//!
//! The services open files and sockets of their own, so lookups of confined threads run outside
//! their sandbox.

use crate::sandbox;
use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Initial size, in bytes, of the buffer for the strings of one result; a group with many members
/// needs more.
const FIRST_BYTES: usize = 4096;

/// Maximum size, in bytes, of the buffer for one result.
const MOST_BYTES: usize = 16 << 20;

/// Returns the ID of the user with this name, or `None` if there is no such user.
///
/// # Errors
///
/// Returns the errors of getpwnam_r(3).
pub fn user(name: &OsStr) -> io::Result<Option<u32>> {
    Ok(account(name)?.map(|account| account.user))
}

/// A user, as the name services of the system describe it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// ID of the user.
    pub user: u32,
    /// ID of the user's primary group.
    pub group: u32,
    /// Home directory; empty if there is none.
    pub home: OsString,
}

/// Returns the user with this name, or `None` if there is no such user.
///
/// # Errors
///
/// Returns the errors of getpwnam_r(3).
pub fn account(name: &OsStr) -> io::Result<Option<Account>> {
    let name = name.to_owned();
    sandbox::outside(move || account_here(&name))?
}

fn account_here(name: &OsStr) -> io::Result<Option<Account>> {
    let mut home = OsString::new();
    // SAFETY: all fields of `struct passwd` are integers and pointers, for which zeros are valid.
    let mut found: libc::passwd = unsafe { std::mem::zeroed() };
    let is_found = ask(name, |name, buffer| {
        let mut result = std::ptr::null_mut();
        // SAFETY: `name` is NUL-terminated. The call writes one `struct passwd`, one pointer, and
        // no more than the bytes of `buffer`; all of them outlive the call.
        let status = unsafe {
            libc::getpwnam_r(name, &raw mut found, buffer.as_mut_ptr().cast(), buffer.len(), &raw mut result)
        };
        if status == 0 && !result.is_null() {
            home = text_of(found.pw_dir);
        }
        (status, !result.is_null())
    })?;
    Ok(is_found.then_some(Account { user: found.pw_uid, group: found.pw_gid, home }))
}

/// Returns the ID of the group with this name, or `None` if there is no such group.
///
/// # Errors
///
/// Returns the errors of getgrnam_r(3).
pub fn group(name: &OsStr) -> io::Result<Option<u32>> {
    let name = name.to_owned();
    sandbox::outside(move || group_here(&name))?
}

fn group_here(name: &OsStr) -> io::Result<Option<u32>> {
    // SAFETY: all fields of `struct group` are integers and pointers, for which zeros are valid.
    let mut found: libc::group = unsafe { std::mem::zeroed() };
    let is_found = ask(name, |name, buffer| {
        let mut result = std::ptr::null_mut();
        // SAFETY: as in `account_here`, with a `struct group`.
        let status = unsafe {
            libc::getgrnam_r(name, &raw mut found, buffer.as_mut_ptr().cast(), buffer.len(), &raw mut result)
        };
        (status, !result.is_null())
    })?;
    Ok(is_found.then_some(found.gr_gid))
}

/// Returns the name of the user with this ID, or `None` if there is no such user.
///
/// # Errors
///
/// Returns the errors of getpwuid_r(3).
pub fn user_name(user: u32) -> io::Result<Option<OsString>> {
    sandbox::outside(move || user_name_here(user))?
}

fn user_name_here(user: u32) -> io::Result<Option<OsString>> {
    // SAFETY: all fields of `struct passwd` are integers and pointers, for which zeros are valid.
    let mut found: libc::passwd = unsafe { std::mem::zeroed() };
    let mut name = OsString::new();
    let is_found = grow(|buffer| {
        let mut result = std::ptr::null_mut();
        // SAFETY: the call writes one `struct passwd`, one pointer, and at most the bytes of
        // `buffer`; all of them outlive the call.
        let status = unsafe {
            libc::getpwuid_r(user, &raw mut found, buffer.as_mut_ptr().cast(), buffer.len(), &raw mut result)
        };
        if status == 0 && !result.is_null() {
            name = text_of(found.pw_name);
        }
        (status, !result.is_null())
    })?;
    Ok(is_found.then_some(name))
}

/// Returns the name of the group with this ID, or `None` if there is no such group.
///
/// # Errors
///
/// Returns the errors of getgrgid_r(3).
pub fn group_name(group: u32) -> io::Result<Option<OsString>> {
    sandbox::outside(move || group_name_here(group))?
}

fn group_name_here(group: u32) -> io::Result<Option<OsString>> {
    // SAFETY: all fields of `struct group` are integers and pointers, for which zeros are valid.
    let mut found: libc::group = unsafe { std::mem::zeroed() };
    let mut name = OsString::new();
    let is_found = grow(|buffer| {
        let mut result = std::ptr::null_mut();
        // SAFETY: as in `user_name`, with a `struct group`.
        let status = unsafe {
            libc::getgrgid_r(group, &raw mut found, buffer.as_mut_ptr().cast(), buffer.len(), &raw mut result)
        };
        if status == 0 && !result.is_null() {
            name = text_of(found.gr_name);
        }
        (status, !result.is_null())
    })?;
    Ok(is_found.then_some(name))
}

/// Copies a string out of a result. The buffer that holds the string must still exist.
fn text_of(name: *const c_char) -> OsString {
    if name.is_null() {
        return OsString::new();
    }
    // SAFETY: the string in a successful result is a NUL-terminated string in the buffer that was
    // passed to the call, and the caller still holds the buffer.
    let text = unsafe { CStr::from_ptr(name) };
    OsString::from_vec(text.to_bytes().to_vec())
}

/// Same as [`grow`], for a lookup by name.
fn ask(name: &OsStr, mut call: impl FnMut(*const c_char, &mut [u8]) -> (c_int, bool)) -> io::Result<bool> {
    // No user and no group has a name that contains a NUL.
    let Ok(name) = CString::new(name.as_bytes()) else { return Ok(false) };
    grow(|buffer| call(name.as_ptr(), buffer))
}

/// Calls `call` with larger and larger buffers until the result fits. Returns true if there is a
/// result.
fn grow(mut call: impl FnMut(&mut [u8]) -> (c_int, bool)) -> io::Result<bool> {
    let mut buffer = vec![0_u8; FIRST_BYTES];
    loop {
        match call(&mut buffer) {
            (0, is_found) => return Ok(is_found),
            (libc::ERANGE, _) if buffer.len() < MOST_BYTES => buffer.resize(buffer.len() * 4, 0),
            (libc::EINTR, _) => {}
            // Name services differ in how they report that there is no such name.
            (libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM, _) => return Ok(false),
            (status, _) => return Err(io::Error::from_raw_os_error(status)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_has_id_0_and_unknown_names_return_none() {
        assert_eq!(user(OsStr::new("root")).unwrap(), Some(0));
        assert_eq!(group(OsStr::new("root")).unwrap(), Some(0));
        for name in ["", "no such name", "a\0b"] {
            assert_eq!(user(OsStr::new(name)).unwrap(), None);
            assert_eq!(group(OsStr::new(name)).unwrap(), None);
        }
        assert_eq!(user_name(0).unwrap(), Some("root".into()));
        assert_eq!(group_name(0).unwrap(), Some("root".into()));
        // The last ID but one: the kernel reserves all ones for "no ID".
        assert_eq!(user_name(u32::MAX - 1).unwrap(), None);
        assert_eq!(group_name(u32::MAX - 1).unwrap(), None);
    }
}
