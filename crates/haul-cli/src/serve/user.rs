//! Change from root to the user of `--user`, after the server has its port and its secrets.

use super::resolved::Share;
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_sys::process;
use haul_sys::users::{self, Account};
use rustix::fs::{Access, AtFlags, CWD, accessat};
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// User that the sessions run as.
#[derive(Clone, Debug)]
pub(super) struct SessionUser {
    name: OsString,
    account: Account,
}

impl SessionUser {
    /// Looks up the user `name`. The error is a message.
    pub(super) fn named(name: &OsStr) -> Result<SessionUser, String> {
        let found = users::account(name)
            .map_err(|error| format!("cannot look up user {}: {}", quote(name), reason(&error)))?;
        let account = found.ok_or_else(|| {
            format!("cannot run as user {}: there is no such user; create it, or change --user", quote(name))
        })?;
        if process::effective_user() != 0 && process::effective_user() != account.user {
            return Err(format!(
                "cannot change to user {}: only root may; start the server as root, or leave out --user",
                quote(name)
            ));
        }
        Ok(SessionUser { name: name.to_owned(), account })
    }

    /// Returns the home directory.
    pub(super) fn home(&self) -> &OsStr {
        &self.account.home
    }

    /// Changes to this user. The error is a message.
    pub(super) fn enter(&self) -> Result<(), String> {
        if process::effective_user() != 0 {
            return Ok(());
        }
        process::become_user(&self.name, &self.account)
            .map_err(|error| format!("cannot change to user {}: {}", quote(&self.name), reason(&error)))
    }

    /// Checks that this user can use the shared directories, and the directory for waybills. The
    /// error is a message.
    pub(super) fn check(&self, shares: &[Share], waybills: Option<&Path>) -> Result<(), String> {
        let roots = shares.iter().map(|share| (Path::new(&share.root), share.role.may_write(), "serve"));
        let waybills = waybills.into_iter().map(|dir| (dir, true, "write waybills to"));
        for (dir, writes, doing) in roots.chain(waybills) {
            let rights =
                if writes { Access::WRITE_OK | Access::EXEC_OK } else { Access::READ_OK | Access::EXEC_OK };
            accessat(CWD, dir, rights, AtFlags::EACCESS).map_err(|errno| {
                format!(
                    "cannot {doing} {} as user {}: {}; let this user access it, or change --user",
                    quote(dir.as_os_str()),
                    quote(&self.name),
                    reason(&errno.into())
                )
            })?;
        }
        Ok(())
    }
}
