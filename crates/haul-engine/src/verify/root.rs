//! ROOT of a waybill: the directory that its names are relative to.

use super::orders::open_parent;
use super::read;
use haul_log::waybill::{ReadError, Record, RelPath};
use haul_storage::{Dir, Follow, local};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// Reason why the waybill does not determine ROOT.
#[derive(Debug, Error)]
pub enum RootError {
    /// The waybill cannot be read.
    #[error("cannot read the root that the waybill records: {0}; specify ROOT")]
    Unread(#[from] ReadError),
    /// The waybill has no section.
    #[error("the waybill records no root; specify ROOT")]
    None,
    /// The sections have different roots.
    #[error("the sections of the waybill record different roots; specify ROOT")]
    Several,
}

/// Returns the root that the sections of a waybill recorded. A relative root is relative to the
/// working directory of the program that wrote the waybill.
///
/// # Errors
/// Returns a [`RootError`] if the waybill cannot be read, has no section, or records several roots.
pub fn recorded_root(waybill: &OsStr) -> Result<OsString, RootError> {
    let mut root = None;
    for record in read(waybill)? {
        let Ok(Record::Section(section)) = record else { continue };
        match &root {
            Some(known) if *known != section.job.root => return Err(RootError::Several),
            _ => root = Some(section.job.root),
        }
    }
    root.map(OsString::from_vec).ok_or(RootError::None)
}

/// Returns the directory that `typed` refers to. Two conditions select the parent of `typed`: all
/// names of the waybill start with the last component of `typed`, and none exists below `typed`
/// itself. Otherwise it is `typed`.
///
/// An unreadable waybill has no effect here: the job that uses the waybill reports the error.
pub fn resolve_root(waybill: &OsStr, typed: &OsStr) -> OsString {
    refers_to_parent(waybill, typed).unwrap_or_else(|| typed.to_owned())
}

fn refers_to_parent(waybill: &OsStr, typed: &OsStr) -> Option<OsString> {
    let whole = std::fs::canonicalize(typed).ok()?;
    let (parent, component) = (whole.parent()?, whole.file_name()?);
    let root = local::open(Path::new(typed), Follow::Yes).ok()?;
    if component_of(waybill, Some(&root))? != component.as_bytes() {
        return None;
    }
    Some(relative_parent(typed).unwrap_or_else(|| parent.as_os_str().to_owned()))
}

/// Returns the first component of all names of a waybill, for which a directory can stand. Returns
/// `None` if the names have different ones, if the waybill is damaged and does not show all names,
/// or if one of them exists beneath `root`.
pub(crate) fn component_of(waybill: &OsStr, root: Option<&Arc<dyn Dir>>) -> Option<Vec<u8>> {
    let mut component = None;
    for record in read(waybill).ok()? {
        let Record::Entry(entry) = record.ok()? else { continue };
        let first = entry.path.as_bytes().split(|&byte| byte == b'/').next()?;
        let component: &Vec<u8> = component.get_or_insert_with(|| first.to_vec());
        if component != first || root.is_some_and(|root| exists(root, &entry.path)) {
            return None;
        }
    }
    component
}

/// Returns the parent as a part of the path that the user typed, if that is possible without
/// resolving links.
fn relative_parent(typed: &OsStr) -> Option<OsString> {
    let path = Path::new(typed);
    let is_link = std::fs::symlink_metadata(path).is_ok_and(|facts| facts.is_symlink());
    path.file_name().filter(|_| !is_link)?;
    let parent = path.parent()?.as_os_str();
    Some(if parent.is_empty() { ".".into() } else { parent.to_owned() })
}

fn exists(root: &Arc<dyn Dir>, path: &RelPath) -> bool {
    open_parent(root, path).is_ok_and(|(dir, name)| dir.stat_at(&name, Follow::No).is_ok())
}
