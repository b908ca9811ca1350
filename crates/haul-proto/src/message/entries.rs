//! ENTRIES: names in a directory of the peer, for a CONNECT that needs
//! [`Features::LISTING`](crate::Features::LISTING).

use super::connect::at_most;
use super::options::one_of;
use crate::fields::{Body, Fields};
use crate::limits::ENTRIES_PER_MESSAGE;
use crate::{Flaw, NAME_BYTES_MAX, check_accepted};
use haul_model::Moment;

/// ENTRIES: some of the entries of a directory. The names ascend by their bytes, also from one
/// message to the next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// True if this message ends the listing.
    pub last: bool,
    /// At most [`ENTRIES_PER_MESSAGE`] entries. Only the last message can be empty.
    pub entries: Vec<ListedEntry>,
}

/// One entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedEntry {
    /// Name: one component that [`check_accepted`] accepts.
    pub name: Box<[u8]>,
    /// Kind of the entry.
    pub kind: EntryKind,
    /// Size in bytes.
    pub size: u64,
    /// Modification time.
    pub mtime: Moment,
    /// Permission bits.
    pub mode: u32,
}

/// Kind of an entry. Without [`EntryKind::Unknown`], its metadata could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    /// Regular file.
    File,
    /// Directory.
    Directory,
    /// Symbolic link.
    Symlink,
    /// Named pipe.
    Fifo,
    /// Socket.
    Socket,
    /// Character or block device.
    Device,
    /// The entry was removed meanwhile, or its metadata cannot be read.
    Unknown,
}

const KINDS: [EntryKind; 7] = [
    EntryKind::File,
    EntryKind::Directory,
    EntryKind::Symlink,
    EntryKind::Fifo,
    EntryKind::Socket,
    EntryKind::Device,
    EntryKind::Unknown,
];

impl EntryKind {
    /// Returns the word for the kind, as in the JSON of listings.
    pub fn name(self) -> &'static str {
        match self {
            EntryKind::File => "file",
            EntryKind::Directory => "directory",
            EntryKind::Symlink => "link",
            EntryKind::Fifo => "fifo",
            EntryKind::Socket => "socket",
            EntryKind::Device => "device",
            EntryKind::Unknown => "unknown",
        }
    }
}

impl Entries {
    pub(super) fn check(&self) -> Result<(), Flaw> {
        at_most("entries", self.entries.len(), ENTRIES_PER_MESSAGE)?;
        // Refuse empty messages: a peer could otherwise send them without end.
        if self.entries.is_empty() && !self.last {
            return Err(Flaw::Value("entries"));
        }
        let is_name =
            |entry: &ListedEntry| check_accepted(&entry.name).is_ok() && !entry.name.contains(&b'/');
        if !self.entries.iter().all(is_name) {
            return Err(Flaw::Value("name"));
        }
        let ascends = self.entries.is_sorted_by(|before, after| before.name < after.name);
        if ascends { Ok(()) } else { Err(Flaw::Value("order of names")) }
    }

    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u8(u8::from(self.last));
        body.count(self.entries.len());
        for entry in &self.entries {
            let code = KINDS.iter().position(|kind| *kind == entry.kind).unwrap_or(0);
            body.u8(u8::try_from(code).expect("fewer than 256 kinds"));
            body.u64(entry.size);
            body.moment(entry.mtime);
            body.u32(entry.mode);
            body.bytes(&entry.name);
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Entries, Flaw> {
        let last = one_of(&[false, true], fields.u8("entries")?, "entries")?;
        let count = fields.count(ENTRIES_PER_MESSAGE, "entries")?;
        let entry = |_| {
            Ok(ListedEntry {
                kind: one_of(&KINDS, fields.u8("kind")?, "kind")?,
                size: fields.u64("size")?,
                mtime: fields.moment("mtime")?,
                mode: fields.u32("mode")?,
                name: fields.bytes(NAME_BYTES_MAX, "name")?,
            })
        };
        let entries = Entries { last, entries: (0..count).map(entry).collect::<Result<_, Flaw>>()? };
        entries.check()?;
        Ok(entries)
    }
}
