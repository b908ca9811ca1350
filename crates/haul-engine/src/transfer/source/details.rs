//! Details of the entries to send: what the storage has to be asked beyond their metadata.

use crate::stored;
use crate::transfer::acl;
use crate::transfer::hashing::HashPlan;
use haul_model::{ByteRange, ObjectSize};
use haul_proto::{FileKind as Kind, JobOptions, Keep, Runs, Xattr};
use haul_storage::{Dir, FileKind, Follow, Name, SourceFile, Stat};
use std::io;
use std::sync::Arc;

/// Place and metadata of an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryPlace<'a> {
    /// The parent directory; for a directory, the directory itself.
    pub(super) dir: &'a Arc<dyn Dir>,
    /// Name in that directory; `None` for a directory.
    pub(super) name: Option<&'a Name>,
    pub(super) facts: &'a Stat,
}

impl EntryPlace<'_> {
    /// Opens the entry, a regular file.
    ///
    /// # Errors
    /// Returns the errors of [`Dir::source`].
    pub(super) fn source(self) -> io::Result<Arc<dyn SourceFile>> {
        let name = self.name.ok_or(io::ErrorKind::InvalidInput)?;
        self.dir.source(name, Follow::No)
    }
}

/// Selection of the details that a job needs of each entry.
#[derive(Debug)]
pub(super) struct WantedDetails {
    pub(super) options: JobOptions,
    pub(super) hash_plan: HashPlan,
}

impl WantedDetails {
    /// Reads the details of an entry, unless they may not be needed or change before: those of a
    /// file with several names are needed for one name, and a file of uncertain length is read
    /// first.
    pub(super) fn read(&self, entry: EntryPlace<'_>) -> Option<io::Result<Details>> {
        let (keep, facts) = (self.options.keep, entry.facts);
        let is_needed = sends(keep, facts.kind) && !(has_several_names(facts) && keep.has(Keep::HARD_LINKS));
        let has_certain_length =
            facts.kind != FileKind::Regular || entry.dir.device().capabilities.lengths.is_certain(facts.size);
        (is_needed && has_certain_length).then(|| Details::of(entry, &self.options, &self.hash_plan))
    }
}

/// Returns true if a job with these options sends entries of this kind.
pub(super) fn sends(keep: Keep, kind: FileKind) -> bool {
    match kind {
        FileKind::Symlink => keep.has(Keep::LINKS),
        FileKind::Fifo | FileKind::Socket | FileKind::CharDevice | FileKind::BlockDevice => {
            keep.has(Keep::SPECIALS)
        }
        _ => true,
    }
}

/// Returns true if the walk may find additional names of an entry.
pub(super) fn has_several_names(facts: &Stat) -> bool {
    facts.nlink > 1 && facts.kind != FileKind::Directory
}

/// Facts about an entry that its metadata does not contain.
#[derive(Debug)]
pub(crate) struct Details {
    pub(super) kind: Kind,
    pub(super) xattrs: Vec<Xattr>,
}

impl Details {
    /// Reads the details of an entry.
    ///
    /// # Errors
    /// Returns an error if the attributes or the link target cannot be read.
    pub(super) fn of(
        entry: EntryPlace<'_>,
        options: &JobOptions,
        hash_plan: &HashPlan,
    ) -> io::Result<Details> {
        Ok(Details { kind: kind_of(entry, options, hash_plan)?, xattrs: xattrs(entry, options.keep)? })
    }

    /// Returns the details of an additional name of the file with this path.
    pub(super) fn link_to(first: &[u8]) -> Details {
        Details { kind: Kind::HardLink { first: first.into() }, xattrs: Vec::new() }
    }

    /// Returns about how many bytes the details take.
    pub(super) fn bytes(&self) -> usize {
        let xattrs = self.xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum::<usize>();
        let holes = if let Kind::File { holes, .. } = &self.kind { holes.pieces() } else { 0 };
        xattrs + holes * size_of::<(u64, u64)>()
    }
}

fn kind_of(entry: EntryPlace<'_>, options: &JobOptions, hash_plan: &HashPlan) -> io::Result<Kind> {
    let EntryPlace { facts, .. } = entry;
    Ok(match facts.kind {
        FileKind::Regular => {
            let is_sparse = options.keep.has(Keep::HOLES) && facts.is_sparse();
            let holes = if is_sparse { holes(entry, options.object, hash_plan) } else { Runs::default() };
            Kind::File { size: facts.size, holes }
        }
        FileKind::Directory => Kind::Directory,
        FileKind::Symlink => {
            let name = entry.name.ok_or(io::ErrorKind::InvalidInput)?;
            Kind::Symlink { target: entry.dir.hold(name)?.read_link()?.into_boxed_slice() }
        }
        FileKind::Fifo => Kind::Fifo,
        FileKind::Socket => Kind::Socket,
        FileKind::CharDevice => {
            let (major, minor) = facts.device_numbers();
            Kind::CharDevice { major, minor }
        }
        FileKind::BlockDevice => {
            let (major, minor) = facts.device_numbers();
            Kind::BlockDevice { major, minor }
        }
        FileKind::Unknown => return Err(io::Error::other("this kind of file cannot be sent")),
    })
}

/// Returns the objects without any data. Returns none if the file system cannot report holes, or if
/// its report is not relied on.
fn holes(entry: EntryPlace<'_>, object: ObjectSize, hash_plan: &HashPlan) -> Runs {
    let mut holes = Runs::default();
    let Ok(file) = entry.source() else { return holes };
    if !hash_plan.may_skip_holes(&*file, entry.facts) {
        return holes;
    }
    let size = entry.facts.size;
    let mut from = 0;
    let mut add = |from: u64, to: u64, is_end: bool| {
        let first = from.div_ceil(object.bytes());
        let end = if is_end { to.div_ceil(object.bytes()) } else { to / object.bytes() };
        if first < end && holes.pieces() < haul_proto::limits::RUNS_MAX {
            holes.unite(&Runs::of(first, end));
        }
    };
    for data in file.data_ranges(ByteRange::between(0, size)) {
        let Ok(data) = data else { return Runs::default() };
        add(from, data.start.0, false);
        from = data.end.0;
    }
    add(from, size, true);
    holes
}

fn xattrs(entry: EntryPlace<'_>, keep: Keep) -> io::Result<Vec<Xattr>> {
    if !keep.has(Keep::XATTRS) && !keep.has(Keep::ACLS) {
        return Ok(Vec::new());
    }
    let EntryPlace { dir, name: entry, .. } = entry;
    let names = match entry {
        Some(entry) => dir.attributes_at(entry)?,
        None => dir.attributes()?,
    };
    let mut found = Vec::new();
    for name in names {
        let bytes = name.to_bytes();
        let wanted = if acl::is_acl(bytes) || acl::is_nfs4_acl(bytes) {
            keep.has(Keep::ACLS)
        } else {
            let is_carried = keep.has(Keep::STORED_SUMS) || !stored::is_attribute(bytes);
            let on_lustre = || dir.device().capabilities.is_lustre;
            keep.has(Keep::XATTRS)
                && is_carried
                && crate::copied_attributes::is_attribute_copied(&name, on_lustre)
        };
        if !wanted {
            continue;
        }
        let value = match entry {
            Some(entry) => dir.attribute_at(entry, &name),
            None => dir.attribute(&name),
        };
        let value = match value {
            // Skip an attribute that is inaccessible to this user, as `cp -a` does.
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => None,
            // It may have been removed meanwhile.
            value => value?,
        };
        if let Some(value) = value {
            found.push(Xattr { name: bytes.into(), value: value.into_boxed_slice() });
        }
    }
    Ok(found)
}
