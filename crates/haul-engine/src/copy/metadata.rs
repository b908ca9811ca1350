//! What a copy keeps of its source besides bytes: owner, attributes, permissions, and times last of all.
//!
//! The order matters: a change of owner clears set-id bits and capabilities, so attributes and mode follow it;
//! and a sink that carries its source's time is taken for a finished one, so the time comes when all else is set.

use super::descriptors::Opened;
use super::directory::Directory;
use super::entry::{self, DirectoryFacts, DirectorySettle, Entry};
use super::error::CopyError;
use super::file::FileMove;
use super::job::Job;
use super::operands;
use super::settings::CopyRules;
use super::settle;
use haul_sys::metadata::{self as sys, AclError, Place, Times, XattrSide};
use haul_sys::{FileKind, Stat, Timespec, process};
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Set-user-id, set-group-id and sticky: given only with the owner they were meant for.
const SPECIAL_BITS: u32 = 0o7000;

/// Attributes that `--preserve=xattr` leaves alone: permissions, which `--preserve=mode` keeps in its own way,
/// and what a file system or the kernel keeps there for itself. The list of the attr package's `xattr.conf`.
const NOT_COPIED: [&[u8]; 9] = [
    b"system.nfs4_acl",
    b"system.nfs4acl",
    b"system.posix_acl_access",
    b"system.posix_acl_default",
    b"security.evm",
    b"trusted.SGI_ACL_DEFAULT",
    b"trusted.SGI_ACL_FILE",
    b"trusted.SGI_CAP_FILE",
    b"trusted.SGI_MAC_FILE",
];

/// As [`NOT_COPIED`], for all attributes that begin so.
const NOT_COPIED_PREFIXES: [&[u8]; 4] = [b"trusted.SGI_DMI_", b"xfsroot.", b"user.Beagle.", b"afs."];

/// Sets on a file what is to be kept of its source. Failures to keep something other than the times are told
/// here and leave the copy a whole one.
///
/// # Errors
/// Where the times could not be set.
pub(crate) fn settle_file(job: &Job<'_>, file: &FileMove) -> Result<(), CopyError> {
    let rules = &job.settings.rules;
    let settle = &file.settle;
    if settle.more_follows {
        // Between two parts a stop may come, and nobody is to take the file for finished.
        set_part_time(file, settle::unfinished(&file.source_stat));
        return Ok(());
    }
    if settle.ends_parts() && !rules.preserve.timestamps {
        set_part_time(file, now());
    }
    if settle.differing == 0 && !keeps_anything(rules) {
        return Ok(());
    }
    let keeper = Keeper {
        job,
        source: (Place::file(&file.source), &file.source_stat),
        sink: (Place::file(&file.sink), &|| file.sink_path()),
        before: settle.before.as_ref(),
        kind: FileKind::Regular,
    };
    let mode = if rules.skip_chmod || settle.differing == 0 {
        None
    } else {
        Some(file.source_stat.mode & 0o777 & !process::umask())
    };
    keeper.keep(mode)
}

/// Best effort: who may not set the time of a sink leaves it as writing it did.
fn set_part_time(file: &FileMove, times: Times) {
    if file.sink_is_regular {
        let _ = sys::set_times_fd(&file.sink, times);
    }
}

fn now() -> Times {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let sec = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    Times { atime: None, mtime: Some(Timespec { sec, nsec: since.subsec_nanos() }) }
}

/// Sets on a directory what is to be kept, now that all beneath it is through. `opened` is the directory, and `above`
/// the one it is in, as far as they can be reached.
pub(crate) fn settle_directory(
    job: &Job<'_>,
    directory: &Directory,
    opened: Result<Opened, CopyError>,
    above: Option<&Opened>,
) {
    match &directory.settle {
        DirectorySettle::Nothing => {}
        DirectorySettle::Operand(operand) => operands::end(job, opened, operand),
        DirectorySettle::Copied(facts) => {
            let kept = match opened {
                _ if !keeps_of_directory(job, facts) => return,
                Ok(opened) => keep_open_directory(job, &opened, above, facts),
                Err(error) => Err(error),
            };
            if let Err(error) = kept {
                job.fail(&error);
            }
        }
    }
}

fn keep_open_directory(
    job: &Job<'_>,
    opened: &Opened,
    above: Option<&Opened>,
    facts: &DirectoryFacts,
) -> Result<(), CopyError> {
    let (name, reached);
    let sink = match &opened.parent {
        Some(parent) if facts.set_by_name => {
            name = name_of(&facts.sink_name);
            reached = match above {
                Some(above) => above.clone(),
                None => job.descriptors.open(parent)?,
            };
            Place::Name(reached.sink(), &name)
        }
        _ => Place::File(opened.sink()),
    };
    let places = (Place::File(opened.source()), sink);
    keep_directory(job, places, &|| opened.sink_path(), facts)
}

/// As [`settle_directory`], for one that could not be opened or was not to be.
pub(crate) fn settle_unread(job: &Job<'_>, parent: &Opened, source_name: &OsStr, facts: &DirectoryFacts) {
    if !keeps_of_directory(job, facts) {
        return;
    }
    let (from, to) = (name_of(source_name), name_of(&facts.sink_name));
    let sink = match entry::open_sink(parent, facts) {
        Ok(sink) => Some(sink),
        // What can't be opened has its name alone.
        Err(CopyError::Cannot { .. }) => None,
        Err(error) => return job.fail(&error),
    };
    let sink = sink.as_ref().filter(|_| !facts.set_by_name).map(|sink| Place::File(sink.as_fd()));
    let places = (Place::Name(parent.source(), &from), sink.unwrap_or(Place::Name(parent.sink(), &to)));
    if let Err(error) = keep_directory(job, places, &|| parent.sink_path_of(&facts.sink_name), facts) {
        job.fail(&error);
    }
}

/// Sets on a link, a pipe or a device what is to be kept. `before` is what stood there and was written into.
pub(crate) fn settle_name(
    job: &Job<'_>,
    entry: &Entry,
    source: &Stat,
    before: Option<&Stat>,
    sink_is_link: bool,
) {
    if !keeps_anything(&job.settings.rules) {
        return;
    }
    let (from, to) = (name_of(&entry.source_name), name_of(&entry.sink_name));
    let keeper = Keeper {
        job,
        source: (Place::Name(entry.parent.source(), &from), source),
        sink: (Place::Name(entry.parent.sink(), &to), &|| entry.sink_path()),
        before,
        kind: if sink_is_link { FileKind::Symlink } else { source.kind },
    };
    let withheld = if job.settings.rules.preserve.ownership { source.mode & 0o077 } else { 0 };
    let mode = (withheld != 0).then(|| source.mode & 0o777 & !process::umask());
    if let Err(error) = keeper.keep(mode) {
        job.fail(&error);
    }
}

/// Tells of an owner that could not be kept, unless this user may not give files away: then nobody expects it.
pub(crate) fn owner_failed(job: &Job<'_>, path: OsString, source: io::Error) -> bool {
    let expected = matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput);
    if expected && process::effective_user() != 0 {
        return false;
    }
    job.fail(&CopyError::Failed { doing: "failed to preserve ownership for", path, source });
    true
}

fn keep_directory(
    job: &Job<'_>,
    places: (Place<'_>, Place<'_>),
    path: PathOf<'_>,
    facts: &DirectoryFacts,
) -> Result<(), CopyError> {
    let keeper = Keeper {
        job,
        source: (places.0, &facts.source),
        sink: (places.1, path),
        before: Some(&facts.sink).filter(|_| !facts.is_new),
        kind: FileKind::Directory,
    };
    keeper.keep(new_mode_of_directory(facts))
}

/// Whether anything is set on a directory at its end.
fn keeps_of_directory(job: &Job<'_>, facts: &DirectoryFacts) -> bool {
    keeps_anything(&job.settings.rules) || new_mode_of_directory(facts).is_some()
}

/// The mode of a new directory whose source's is not kept, where it has another so far.
fn new_mode_of_directory(facts: &DirectoryFacts) -> Option<u32> {
    let made = facts.sink.mode;
    let missing = facts.omitted & !process::umask();
    let differs = facts.is_new && (made & 0o700 != 0o700 || missing & !made != 0);
    differs.then_some(made | missing)
}

fn keeps_anything(rules: &CopyRules) -> bool {
    let keep = &rules.preserve;
    keep.mode || keep.explicit_no_mode || keep.ownership || keep.timestamps || keep.xattr
}

fn name_of(name: &OsStr) -> CString {
    // Names come from the kernel or the command line, which end them at the first NUL.
    CString::new(name.as_bytes()).unwrap_or_default()
}

/// Builds a path for a message.
type PathOf<'a> = &'a dyn Fn() -> OsString;

/// One entry's metadata, from its source to its sink.
struct Keeper<'a, 'j> {
    job: &'a Job<'j>,
    source: (Place<'a>, &'a Stat),
    sink: (Place<'a>, PathOf<'a>),
    /// What stood at the sink and was written into; `None` for a new one.
    before: Option<&'a Stat>,
    kind: FileKind,
}

impl Keeper<'_, '_> {
    /// Sets all that the rules keep. `mode` is what a new sink gets where its source's permissions are not
    /// kept and it has others so far.
    fn keep(&self, mode: Option<u32>) -> Result<(), CopyError> {
        let keep = &self.job.settings.rules.preserve;
        let mut has_owner = true;
        // A link made by `-s` is its maker's: there is no owner to keep.
        let is_own_link = self.kind == FileKind::Symlink && self.source.1.kind != FileKind::Symlink;
        if keep.ownership && !is_own_link && self.owner_differs() {
            match self.set_owner() {
                Ok(kept) => has_owner = kept,
                Err(Told) => return Ok(()),
            }
        }
        if keep.xattr {
            self.copy_attributes();
        }
        if self.kind != FileKind::Symlink {
            self.set_permissions(has_owner, mode);
        }
        if keep.timestamps {
            set_times(self.sink.0, self.source.1).map_err(|source| {
                let path = (self.sink.1)();
                CopyError::Failed { doing: "preserving times for", path, source }
            })?;
        }
        Ok(())
    }

    /// A new sink may have got its owner from its directory: it is set without asking.
    fn owner_differs(&self) -> bool {
        let source = self.source.1;
        self.before.is_none_or(|before| (before.uid, before.gid) != (source.uid, source.gid))
    }

    /// Returns whether the sink has its owner now.
    fn set_owner(&self) -> Result<bool, Told> {
        let source = self.source.1;
        if let Some(before) = self.before
            && self.job.settings.rules.preserve.mode
            && self.kind != FileKind::Symlink
        {
            self.close_to_others(before)?;
        }
        let error = match set_owner(self.sink.0, Some(source.uid), Some(source.gid)) {
            Ok(()) => return Ok(true),
            Err(error) => error,
        };
        if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput) {
            // The group alone may be this user's to give.
            let _ = set_owner(self.sink.0, None, Some(source.gid));
        }
        if owner_failed(self.job, (self.sink.1)(), error) { Err(Told) } else { Ok(false) }
    }

    /// The new owner must not find permissions that were meant for the old one's file.
    fn close_to_others(&self, before: &Stat) -> Result<(), Told> {
        let Err(source) = set_mode(self.sink.0, before.mode & self.source.1.mode & 0o700) else {
            return Ok(());
        };
        let expected = matches!(source.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::InvalidInput);
        if !expected || process::effective_user() == 0 {
            let path = (self.sink.1)();
            self.job.fail(&CopyError::Failed { doing: "clearing permissions for", path, source });
        }
        Err(Told)
    }

    fn set_permissions(&self, has_owner: bool, mode: Option<u32>) {
        let rules = &self.job.settings.rules;
        let keep = &rules.preserve;
        if rules.skip_chmod && self.kind == FileKind::Regular {
            return;
        }
        if keep.mode {
            let kept = if has_owner { self.source.1.mode } else { self.source.1.mode & !SPECIAL_BITS };
            if let Err(error) = sys::copy_acl(self.source.0, self.sink.0, self.kind, kept) {
                self.tell_acl(error);
            }
            return;
        }
        let (mode, doing) = if keep.explicit_no_mode && self.before.is_none() {
            let all = if matches!(self.kind, FileKind::Directory | FileKind::Socket) { 0o777 } else { 0o666 };
            (Some(all & !process::umask()), "setting permissions for")
        } else {
            (mode, "preserving permissions for")
        };
        if let Some(Err(source)) = mode.map(|mode| set_mode(self.sink.0, mode)) {
            self.job.fail(&CopyError::Failed { doing, path: (self.sink.1)(), source });
        }
    }

    fn tell_acl(&self, error: AclError) {
        let path = (self.sink.1)();
        let source = match error {
            AclError::Read(source) | AclError::Write(source) | AclError::Mode(source) => source,
        };
        self.job.fail(&CopyError::Failed { doing: "preserving permissions for", path, source });
    }

    /// Only `--preserve=xattr` makes a failure of one; `-a` does what it can in silence.
    fn copy_attributes(&self) {
        let keep = &self.job.settings.rules.preserve;
        let attributes_only = self.job.settings.rules.attributes_only;
        let tells_all = keep.require_xattr || attributes_only;
        if !tells_all && keep.reduce_diagnostics {
            let _ = sys::copy_xattrs(self.source.0, self.sink.0, is_copied);
            return;
        }
        let failures = match sys::copy_xattrs(self.source.0, self.sink.0, is_copied) {
            Ok(failures) => failures,
            Err(source) => {
                let path = (self.sink.1)();
                self.tell(
                    &CopyError::Failed { doing: "listing attributes of", path, source },
                    keep.require_xattr,
                );
                return;
            }
        };
        for failure in failures {
            let unsupported = matches!(failure.source.kind(), io::ErrorKind::Unsupported);
            if unsupported && !tells_all {
                continue;
            }
            let (path, source) = ((self.sink.1)(), failure.source);
            let name = OsStr::from_bytes(failure.name.as_bytes()).to_owned();
            let error = match failure.side {
                XattrSide::Destination if unsupported => {
                    CopyError::Failed { doing: "setting attributes for", path, source }
                }
                XattrSide::Destination => CopyError::XattrFailed { name, path, source },
                XattrSide::Source => CopyError::XattrUnread { name, path, source },
            };
            self.tell(&error, keep.require_xattr);
        }
    }

    fn tell(&self, error: &CopyError, is_failure: bool) {
        if is_failure {
            self.job.fail(error);
        } else {
            self.job.report.warned(error);
        }
    }
}

/// A failure that was told, after which the rest is left as it is.
struct Told;

fn is_copied(name: &CStr) -> bool {
    let name = name.to_bytes();
    !NOT_COPIED.contains(&name) && !NOT_COPIED_PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

/// Gives what `place` stands for an owner and a group.
pub(crate) fn set_owner(place: Place<'_>, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    match place {
        Place::File(fd) => sys::set_owner_fd(fd, uid, gid),
        Place::Name(dir, name) => sys::set_owner_at(dir, name, uid, gid),
    }
}

/// Gives what `place` stands for a mode.
pub(crate) fn set_mode(place: Place<'_>, mode: u32) -> io::Result<()> {
    match place {
        Place::File(fd) => sys::set_mode_fd(fd, mode),
        Place::Name(dir, name) => sys::set_mode_at(dir, name, mode),
    }
}

/// Gives what `place` stands for the times of its source.
pub(crate) fn set_times(place: Place<'_>, source: &Stat) -> io::Result<()> {
    match place {
        Place::File(fd) => sys::set_times_fd(fd, Times::of(source)),
        Place::Name(dir, name) => sys::set_times_at(dir, name, Times::of(source)),
    }
}
