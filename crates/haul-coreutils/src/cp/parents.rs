//! `--parents`: creates the directories above an operand beneath the target. They get their
//! preserved metadata when the operand has finished.

use super::contexts::labelled_above;
use super::directory::{Directory, MadeParent};
use super::job::Job;
use super::rules::CopyRules;
use haul_engine::copy::{CopyError, JobObserver, Refusal};
use haul_storage::attributes::copy_permissions;
use haul_storage::{FileKind, Follow, Inode, Times};
use haul_sys::process;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;

/// The directories created above an operand.
#[derive(Debug, Default)]
pub(crate) struct Made {
    /// The directories, outermost first.
    pub(crate) directories: Vec<MadeParent>,
    /// True if the innermost directory is new, so that nothing can exist in it.
    pub(crate) last_is_new: bool,
}

/// Creates the missing directories above an operand.
///
/// # Errors
/// Returns the error, with the directories created before it.
pub(crate) fn make(
    job: &Job<'_>,
    target: &Directory,
    source: &OsStr,
    sink: &OsStr,
) -> Result<Made, (Made, CopyError)> {
    let mut made = Made::default();
    let (source, sink) = (source.as_bytes(), sink.as_bytes());
    let Some(end) = sink.iter().rposition(|&byte| byte == b'/') else { return Ok(made) };
    let above = OsStr::from_bytes(&sink[..end]);
    match target.sink_at(above).stat(Follow::Yes) {
        Ok(standing) if standing.kind == FileKind::Directory => return Ok(made),
        Ok(_) => {
            let error = Refusal::ParentIsFile(target.sink_path_of(above)).into();
            return Err((made, error));
        }
        Err(_) => {}
    }
    // The path of the source may start with slashes; the path of the sink does not.
    let lead = source.len() - source.iter().skip_while(|&&byte| byte == b'/').count();
    let ends = (0..=end).filter(|&at| sink[at] == b'/' && (at == 0 || sink[at - 1] != b'/'));
    for end in ends {
        let (source, sink) = (OsStr::from_bytes(&source[..lead + end]), OsStr::from_bytes(&sink[..end]));
        if let Err(error) = make_one(job, target, source, sink, &mut made) {
            return Err((made, error));
        }
    }
    Ok(made)
}

fn make_one(
    job: &Job<'_>,
    target: &Directory,
    source: &OsStr,
    sink: &OsStr,
    made: &mut Made,
) -> Result<(), CopyError> {
    let keep = &job.settings.rules.preserve;
    let Ok(standing) = target.sink_at(sink).stat(Follow::Yes) else {
        let mut parent = parent_of(target, source, sink)?;
        made.last_is_new = true;
        let result = labelled_above(job, source, target, sink, true, || {
            make_fillable(&job.settings.rules, &job.context.observer, target, &mut parent)
        });
        // A directory that was not created gets no metadata of its source.
        if result.is_ok() || target.sink_at(sink).stat(Follow::No).is_ok() {
            made.directories.push(parent);
        }
        return result;
    };
    let keeps = keep.ownership || keep.mode || keep.timestamps;
    let noted = if keeps { Some(parent_of(target, source, sink)?) } else { None };
    if standing.kind != FileKind::Directory {
        return Err(Refusal::ParentIsFile(target.sink_path_of(sink)).into());
    }
    labelled_above(job, source, target, sink, false, || Ok(()))?;
    made.directories.extend(noted);
    made.last_is_new = false;
    Ok(())
}

/// Returns a directory above an operand, with the present metadata of its source.
fn parent_of(target: &Directory, source: &OsStr, sink: &OsStr) -> Result<MadeParent, CopyError> {
    let stat = target
        .source_at(source)
        .stat(Follow::Yes)
        .and_then(|stat| if stat.kind == FileKind::Directory { Ok(stat) } else { Err(not_a_directory()) })
        .map_err(|error| failed("failed to get attributes of", source.to_owned(), error))?;
    Ok(MadeParent { source: source.to_owned(), sink: sink.to_owned(), stat, restore: None })
}

/// Creates the directory with all permissions for its owner, and stores its final mode.
fn make_fillable(
    rules: &CopyRules,
    observer: &JobObserver<'_>,
    target: &Directory,
    parent: &mut MadeParent,
) -> Result<(), CopyError> {
    let keep = &rules.preserve;
    let path = || target.sink_path_of(&parent.sink);
    let mode = parent.stat.mode;
    let withheld = if keep.ownership {
        0o077
    } else if keep.mode {
        0o022
    } else {
        0
    };
    let first = (if keep.explicit_no_mode { 0o777 } else { mode }) & !(mode & withheld);
    let sink = target.sink_at(&parent.sink);
    sink.make_directory(first).map_err(|source| CopyError::Cannot {
        action: "make directory",
        path: path(),
        source,
    })?;
    if rules.verbose {
        let mut line = parent.source.clone();
        line.push(" -> ");
        line.push(path());
        observer.report.made(&line);
    }
    let made = sink.stat(Follow::No).map_err(|error| failed("failed to get attributes of", path(), error))?;
    if made.mode & 0o700 != 0o700 {
        sink.set_mode(made.mode | 0o700).map_err(|error| failed("setting permissions for", path(), error))?;
    }
    if !keep.mode {
        let missing = mode & withheld & !process::umask();
        if missing & !made.mode != 0 || made.mode & 0o700 != 0o700 {
            parent.restore = Some(made.mode | missing);
        }
    }
    Ok(())
}

impl Job<'_> {
    /// Sets the preserved metadata on the directories above an operand, innermost first.
    pub(crate) fn protect_parents(&self, operand: &Directory, parents: &[MadeParent]) {
        for parent in parents.iter().rev() {
            if let Err(error) = self.protect(operand, parent) {
                self.fail(&error);
                return;
            }
        }
    }

    fn protect(&self, operand: &Directory, parent: &MadeParent) -> Result<(), CopyError> {
        let (from, to) = (operand.source_at(&parent.source), operand.sink_at(&parent.sink));
        let unreached =
            |source| failed("failed to preserve permissions for", operand.sink_path_of(&parent.sink), source);
        let source = from.named(&self.opened).map_err(unreached)?;
        let sink = to.named(&self.opened).map_err(unreached)?;
        self.protect_named(operand, parent, &*source, &*sink)
    }

    fn protect_named(
        &self,
        operand: &Directory,
        parent: &MadeParent,
        source: &dyn Inode,
        sink: &dyn Inode,
    ) -> Result<(), CopyError> {
        let keep = &self.settings.rules.preserve;
        let path = || operand.sink_path_of(&parent.sink);
        if keep.ownership
            && let Err(error) = sink.set_owner(Some(parent.stat.uid), Some(parent.stat.gid))
            && !self.owner_failed(path(), error)
        {
            let _ = sink.set_owner(None, Some(parent.stat.gid));
        }
        if keep.mode {
            copy_permissions(source, sink, FileKind::Directory, parent.stat.mode)
                .map_err(|error| CopyError::permissions_failed(error, || parent.source.clone(), path))?;
        } else if let Some(mode) = parent.restore {
            sink.set_mode(mode)
                .map_err(|error| failed("failed to preserve permissions for", path(), error))?;
        }
        if keep.timestamps {
            sink.set_times(Times::of(&parent.stat))
                .map_err(|error| failed("failed to preserve times for", path(), error))?;
        }
        Ok(())
    }
}

fn failed(doing: &'static str, path: OsString, source: io::Error) -> CopyError {
    CopyError::Failed { doing, path, source }
}

fn not_a_directory() -> io::Error {
    io::Error::from_raw_os_error(20) // ENOTDIR
}
