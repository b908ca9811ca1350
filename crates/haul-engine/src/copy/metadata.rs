//! Being written.
use super::{directory::Directory, error::CopyError, file::FileMove, job::Job};
pub(crate) fn settle_file(_job: &Job<'_>, _file: &FileMove) -> Result<(), CopyError> { Ok(()) }
pub(crate) fn settle_directory(_job: &Job<'_>, _directory: &Directory) {}
