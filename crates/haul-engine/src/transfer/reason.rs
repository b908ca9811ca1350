//! Conversion of I/O errors to the reasons of the wire.

use haul_proto::{Reason, Why};
use std::io;

/// Returns the reason why `doing` failed.
pub(super) fn reason(doing: &str, error: &io::Error) -> Reason {
    Reason::new(why(error), &format!("{doing}: {}", crate::sum::reason(error)))
}

/// Returns the kind of a failure.
fn why(error: &io::Error) -> Why {
    match error.kind() {
        io::ErrorKind::StorageFull => Why::NoSpace,
        io::ErrorKind::QuotaExceeded => Why::Quota,
        io::ErrorKind::ReadOnlyFilesystem => Why::ReadOnly,
        io::ErrorKind::PermissionDenied => Why::Permission,
        io::ErrorKind::NotFound => Why::NotFound,
        io::ErrorKind::IsADirectory
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::DirectoryNotEmpty => Why::InTheWay,
        io::ErrorKind::InvalidFilename => Why::Name,
        io::ErrorKind::FileTooLarge => Why::TooLarge,
        io::ErrorKind::ResourceBusy => Why::Busy,
        io::ErrorKind::Unsupported => Why::Unsupported,
        _ => Why::Io,
    }
}
