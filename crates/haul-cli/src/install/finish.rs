//! Steps after the copy of a file: strip symbols, set owner and permissions.

use super::resolve::Properties;
use super::run::Sink;
use haul_engine::copy::{cause, quote};
use haul_sys::metadata::{Times, set_mode_fd, set_owner_fd, set_times_fd};
use haul_sys::open::{hold_at, unlink_at};
use haul_sys::stat::stat_fd;
use haul_sys::{FileKind, Stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;
use thiserror::Error;

/// Error of a property that could not be set.
#[derive(Debug, Error)]
pub(super) enum FinishError {
    #[error("cannot change ownership of {}: {}", quote(path), cause(source))]
    Owner { path: OsString, source: io::Error },
    #[error("cannot change permissions of {}: {}", quote(path), cause(source))]
    Mode { path: OsString, source: io::Error },
    #[error("cannot set timestamps for {}: {}", quote(path), cause(source))]
    Times { path: OsString, source: io::Error },
    #[error("cannot run {}: {}", quote(program), cause(source))]
    Strip { program: OsString, source: io::Error },
    #[error("strip process terminated abnormally")]
    StripFailed,
    #[error("cannot open {} after it was stripped: {}", quote(path), cause(source))]
    Reopen { path: OsString, source: io::Error },
    #[error(
        "cannot set the owner and mode of {}: another file has this name since it was stripped",
        quote(path)
    )]
    Replaced { path: OsString },
    #[error("cannot unlink {}: {}", quote(path), cause(source))]
    Unlink { path: OsString, source: io::Error },
}

/// Sets the owner, which clears set-id bits, and then the permissions, both of the open file: in a
/// directory of another user, the name may lead to any file by now.
///
/// # Errors
/// Returns the property that could not be set. After a failure to set the owner, the file stays
/// inaccessible to others.
pub(super) fn set_properties(
    sink: &Sink<'_>,
    file: &OwnedFd,
    properties: &Properties,
    mode: u32,
) -> Result<(), FinishError> {
    if properties.owner.is_some() || properties.group.is_some() {
        set_owner_fd(file, properties.owner, properties.group)
            .map_err(|source| FinishError::Owner { path: sink.path(), source })?;
    }
    set_mode_fd(file, mode).map_err(|source| FinishError::Mode { path: sink.path(), source })
}

/// Sets a file's times to those of its source.
///
/// # Errors
/// Returns the error of utimensat(2).
pub(super) fn set_times(sink: &Sink<'_>, file: &OwnedFd, source: &Stat) -> Result<(), FinishError> {
    set_times_fd(file, Times::of(source)).map_err(|source| FinishError::Times { path: sink.path(), source })
}

/// Runs the program that strips symbols, which gets the file by path. A file that cannot be
/// stripped is removed.
///
/// # Errors
/// Returns all errors in their order.
pub(super) fn strip(program: &OsStr, sink: &Sink<'_>) -> Result<(), Vec<FinishError>> {
    let path = sink.path();
    // Prevents that a name is parsed as an option.
    let mut operand = OsString::from(if path.as_bytes().starts_with(b"-") { "./" } else { "" });
    operand.push(&path);
    let mut failures = match Command::new(program).arg(&operand).status() {
        Ok(status) if status.success() => return Ok(()),
        Ok(_) => Vec::new(),
        Err(source) => vec![FinishError::Strip { program: program.to_owned(), source }],
    };
    failures.push(FinishError::StripFailed);
    if let Err(source) = unlink_at(sink.dir(), sink.name) {
        failures.push(FinishError::Unlink { path, source });
    }
    Err(failures)
}

/// Opens the file that the strip program left under the name of `before`.
///
/// # Errors
/// Returns [`FinishError::Replaced`] if the file has another owner or other names: then another
/// user may have put it there.
pub(super) fn stripped(sink: &Sink<'_>, before: &OwnedFd) -> Result<OwnedFd, FinishError> {
    let failed = |source| FinishError::Reopen { path: sink.path(), source };
    let file = hold_at(sink.dir(), sink.name).map_err(failed)?;
    let (before, now) = (stat_fd(before).map_err(failed)?, stat_fd(&file).map_err(failed)?);
    let is_ours = now.kind == FileKind::Regular && now.nlink == 1 && now.uid == before.uid;
    if is_ours { Ok(file) } else { Err(FinishError::Replaced { path: sink.path() }) }
}
