//! Files that no section of the waybill speaks of.

use super::index::Index;
use super::{Verdict, VerdictKind};
use haul_log::waybill::RelPath;
use haul_sys::beneath::open_place_beneath;
use haul_sys::dir::{DirReader, open_dir_at};
use haul_sys::{FileKind, Follow, stat};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::sync::atomic::{AtomicBool, Ordering};

/// Names asked of a directory at a time.
const BATCH: usize = 1024;

/// Walks everything beneath the root, through no link, and tells the regular files that are strays. The error names the
/// directory that can't be listed.
pub(super) fn find(
    root: &OwnedFd,
    index: &Index,
    stop: &AtomicBool,
    tell: &mut dyn FnMut(Verdict),
) -> Result<(), (OsString, io::Error)> {
    let mut open = vec![Vec::new()];
    let mut names = Vec::with_capacity(BATCH);
    while let Some(dir) = open.pop() {
        let failed = |source| (OsString::from_vec(dir.clone()), source);
        let place = open_place_beneath(root, OsStr::from_bytes(&dir)).map_err(failed)?;
        let mut reader = DirReader::new(open_dir_at(&place, c".", Follow::No).map_err(failed)?);
        let mut more = true;
        while more && !stop.load(Ordering::Relaxed) {
            more = reader.read_batch(BATCH, &mut names).map_err(failed)?;
            for name in names.drain(..) {
                let kind = match name.kind_hint {
                    Some(kind) => kind,
                    None => match stat::stat_at(&place, name.name.as_c_str(), Follow::No) {
                        Ok(facts) => facts.kind,
                        // It is gone again.
                        Err(_) => continue,
                    },
                };
                let mut path = dir.clone();
                if !path.is_empty() {
                    path.push(b'/');
                }
                path.extend_from_slice(name.name.to_bytes());
                match kind {
                    FileKind::Directory => open.push(path),
                    FileKind::Regular if index.is_stray(&path) => {
                        if let Ok(path) = RelPath::new(&path) {
                            tell(Verdict {
                                path,
                                kind: VerdictKind::Extra,
                                damage: Vec::new(),
                                located: None,
                            });
                        }
                    }
                    _ => {}
                }
            }
        }
    }
    Ok(())
}
