//! Messages about one file: NEW_FILE, FILE_ID, FILE_CLOSE, FILE_DONE.

use super::FileNumber;
use super::connect::at_most;
use crate::fields::{Body, Fields};
use crate::limits::{
    OWNER_BYTES_MAX, PRINCIPALS_MAX, RUNS_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX, XATTRS_BYTES_MAX,
    XATTRS_MAX,
};
use crate::{Flaw, Reason};
use haul_digest::Digest;
use haul_model::{Level, Moment, PATH_BYTES_MAX, Runs};

/// NEW_FILE: one name of the tree and its metadata. Paths are as the peer sent them, not yet
/// validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Number of the file.
    pub number: FileNumber,
    /// True if everything follows on this lane immediately, without an answer: the objects and
    /// FILE_CLOSE. Set for small files and for entries without bytes.
    pub whole: bool,
    /// True if the file was announced before, on a lane that was lost.
    pub again: bool,
    /// True if other names of this file may follow as [`FileKind::HardLink`]. A sink links only to
    /// files with this flag.
    pub is_linked: bool,
    /// Path beneath the root of the job.
    pub path: Box<[u8]>,
    /// Kind of the entry.
    pub kind: FileKind,
    /// Permission bits with setuid, setgid and sticky.
    pub mode: u32,
    /// Modification time.
    pub mtime: Moment,
    /// Access time.
    pub atime: Moment,
    /// Number of the owner.
    pub uid: u32,
    /// Number of the group.
    pub gid: u32,
    /// Name of the owner; empty if the owner has no name or names are not requested.
    pub user: Box<[u8]>,
    /// Name of the group.
    pub group: Box<[u8]>,
    /// Extended attributes, including access control lists.
    pub xattrs: Vec<Xattr>,
    /// Identifies this version of a regular file among versions of the same size and time, if the
    /// job may be resumed. Contains device, inode and ctime, or substitutes for them.
    pub version: Option<[u8; 16]>,
    /// Names at the source of the users and groups that the access control lists name by number.
    /// Empty if names are not requested.
    pub principals: Vec<Principal>,
}

/// A user or a group that an access control list names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Principal {
    /// True if it is a group.
    pub is_group: bool,
    /// Number at the source, which is in the list.
    pub number: u32,
    /// Name at the source.
    pub name: Box<[u8]>,
}

/// Optional field of NEW_FILE: [`NewFile::version`].
const VERSION_OF_FILE: u16 = 1;

/// Optional field of NEW_FILE: [`NewFile::principals`].
const PRINCIPALS: u16 = 2;

/// Kind of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File {
        /// Size in bytes.
        size: u64,
        /// Objects that consist only of holes and are not sent.
        holes: Runs,
    },
    /// A directory. It is announced after all of its entries; until then the sink creates it when
    /// needed.
    Directory,
    /// A symbolic link.
    Symlink {
        /// Target of the link.
        target: Box<[u8]>,
    },
    /// An additional name of a file that has arrived.
    HardLink {
        /// First name of the file in the job.
        first: Box<[u8]>,
    },
    /// A named pipe.
    Fifo,
    /// The name of a socket.
    Socket,
    /// A character device.
    CharDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
}

/// An extended attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Xattr {
    /// Name with its namespace, such as `user.colour`.
    pub name: Box<[u8]>,
    /// Value.
    pub value: Box<[u8]>,
}

/// FILE_ID: answer of the sink to a file that it wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileId {
    /// Number of the file.
    pub number: FileNumber,
    /// Attempt to send the file: 0 until the complete file is sent again. Blocks carry this number,
    /// and the sink drops blocks of an earlier attempt.
    pub attempt: u16,
    /// Parts that the source must send.
    pub answer: Answer,
}

/// Parts of a file that the sink wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// All objects except those that the sink has.
    Take {
        /// Objects that an earlier run, or an earlier lane, left at the sink.
        have: Runs,
    },
    /// The objects that differ from those of the sink. The source states digests of its objects in
    /// OBJECT_DIGESTS, and the sink answers by COMPARED.
    Differing {
        /// Objects that the sink has and that need no comparison.
        have: Runs,
        /// Index from which on the sink has nothing to compare: the source sends these objects.
        end: u64,
    },
    /// Everything, unless the complete file is the same. The source states its digest in
    /// OBJECT_DIGESTS. The sink answers by FILE_DONE, or by another FILE_ID.
    UnlessDigest,
}

/// FILE_CLOSE: the source has finished a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileClose {
    /// Number of the file.
    pub number: FileNumber,
    /// Attempt to send the file.
    pub attempt: u16,
    /// Result at the source.
    pub close: Close,
}

/// Result of a file at the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Close {
    /// The source read the complete file, and the file did not change meanwhile.
    Read {
        /// Size that was read.
        size: u64,
        /// Modification time, the same before and after.
        mtime: Moment,
        /// Digest of the complete file, if the source knows it.
        root: Option<Digest>,
    },
    /// The source cannot provide the file: it is unreadable, has vanished, or changed during the
    /// read.
    Failed(Reason),
}

/// FILE_DONE: the result of a file at the sink.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDone {
    /// Number of the file.
    pub number: FileNumber,
    /// Result of the file.
    pub outcome: Outcome,
}

/// Result of a file. The sink states it from its own knowledge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The file has its final name and its metadata, and every byte reached this level.
    Done(Level),
    /// The existing file is the same by the rule of the job, and was left unchanged.
    Same,
    /// The file would be sent; nothing was done ([`super::JobOptions::dry_run`]).
    DryRun,
    /// The file failed. The existing file is unchanged, unless the job writes in place.
    Failed(Reason),
}

impl NewFile {
    /// Creates an entry without further metadata: no permissions, times of 1970, owner and group 0.
    pub fn new(path: impl Into<Box<[u8]>>, kind: FileKind) -> NewFile {
        NewFile {
            number: FileNumber::default(),
            whole: false,
            again: false,
            is_linked: false,
            path: path.into(),
            kind,
            mode: 0,
            mtime: Moment::default(),
            atime: Moment::default(),
            uid: 0,
            gid: 0,
            user: Box::default(),
            group: Box::default(),
            xattrs: Vec::new(),
            version: None,
            principals: Vec::new(),
        }
    }

    /// Returns the size in bytes of the metadata while the file is open: paths, names, attributes,
    /// runs.
    pub fn facts_len(&self) -> u64 {
        let link = match &self.kind {
            FileKind::Symlink { target } => target.len(),
            FileKind::HardLink { first } => first.len(),
            FileKind::File { holes, .. } => holes.pieces() * 16,
            _ => 0,
        };
        let principals: usize = self.principals.iter().map(|principal| principal.name.len() + 32).sum();
        let xattrs = xattr_bytes(&self.xattrs) + self.xattrs.len() * 32;
        let names = self.path.len() + self.user.len() + self.group.len() + link + principals;
        (names + xattrs + 64) as u64
    }

    /// Returns the size of a regular file, and 0 for all other kinds.
    pub fn size(&self) -> u64 {
        if let FileKind::File { size, .. } = self.kind { size } else { 0 }
    }

    /// Returns true if it is a regular file.
    pub fn is_regular(&self) -> bool {
        matches!(self.kind, FileKind::File { .. })
    }

    pub(super) fn check(&self) -> Result<(), Flaw> {
        at_most("path", self.path.len(), PATH_BYTES_MAX)?;
        at_most("owner's name", self.user.len().max(self.group.len()), OWNER_BYTES_MAX)?;
        at_most("principals", self.principals.len(), PRINCIPALS_MAX)?;
        for principal in &self.principals {
            at_most("principal's name", principal.name.len(), OWNER_BYTES_MAX)?;
        }
        at_most("extended attributes", self.xattrs.len(), XATTRS_MAX)?;
        at_most("extended attributes' bytes", xattr_bytes(&self.xattrs), XATTRS_BYTES_MAX)?;
        for xattr in &self.xattrs {
            at_most("extended attribute's name", xattr.name.len(), XATTR_NAME_BYTES_MAX)?;
            at_most("extended attribute's value", xattr.value.len(), XATTR_VALUE_BYTES_MAX)?;
        }
        match &self.kind {
            FileKind::File { holes, .. } => at_most("holes", holes.pieces(), RUNS_MAX),
            FileKind::Symlink { target } => at_most("link's target", target.len(), PATH_BYTES_MAX),
            FileKind::HardLink { first } => at_most("first name", first.len(), PATH_BYTES_MAX),
            _ => Ok(()),
        }
    }

    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u64(self.number.0);
        body.u8(u8::from(self.whole) | u8::from(self.again) << 1 | u8::from(self.is_linked) << 2);
        body.u8(self.kind.code());
        body.u32(self.mode);
        body.moment(self.mtime);
        body.moment(self.atime);
        body.u32(self.uid);
        body.u32(self.gid);
        self.kind.encode(body);
        body.bytes(&self.path);
        body.bytes(&self.user);
        body.bytes(&self.group);
        body.count(self.xattrs.len());
        for xattr in &self.xattrs {
            body.bytes(&xattr.name);
            body.bytes(&xattr.value);
        }
        if let Some(version) = &self.version {
            body.optional(VERSION_OF_FILE, |body| body.id(version));
        }
        if !self.principals.is_empty() {
            body.optional(PRINCIPALS, |body| {
                body.count(self.principals.len());
                self.principals.iter().for_each(|principal| principal.encode(body));
            });
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<NewFile, Flaw> {
        let number = FileNumber(fields.u64("file number")?);
        let flags = fields.u8("flags")?;
        let code = fields.u8("kind of file")?;
        let mode = fields.u32("mode")?;
        let (mtime, atime) = (fields.moment("mtime")?, fields.moment("atime")?);
        let (uid, gid) = (fields.u32("owner")?, fields.u32("group")?);
        let kind = FileKind::decode(code, fields)?;
        let path = fields.bytes(PATH_BYTES_MAX, "path")?;
        let user = fields.bytes(OWNER_BYTES_MAX, "owner's name")?;
        let group = fields.bytes(OWNER_BYTES_MAX, "group's name")?;
        let count = fields.count(XATTRS_MAX, "extended attributes")?;
        let mut xattrs = Vec::new();
        for _ in 0..count {
            let name = fields.bytes(XATTR_NAME_BYTES_MAX, "extended attribute's name")?;
            xattrs.push(Xattr {
                name,
                value: fields.bytes(XATTR_VALUE_BYTES_MAX, "extended attribute's value")?,
            });
        }
        at_most("extended attributes' bytes", xattr_bytes(&xattrs), XATTRS_BYTES_MAX)?;
        let (whole, again, is_linked) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let (mut version, mut principals) = (None, Vec::new());
        fields.tail(|tag, field| {
            match tag {
                VERSION_OF_FILE => version = Some(field.id("version of a file")?),
                PRINCIPALS => principals = Principal::decode_all(field)?,
                _ => return Ok(false),
            }
            Ok(true)
        })?;
        Ok(NewFile {
            number,
            whole,
            again,
            is_linked,
            path,
            kind,
            mode,
            mtime,
            atime,
            uid,
            gid,
            user,
            group,
            xattrs,
            version,
            principals,
        })
    }
}

impl Principal {
    fn encode(&self, body: &mut Body<'_>) {
        body.u8(u8::from(self.is_group));
        body.u32(self.number);
        body.bytes(&self.name);
    }

    fn decode_all(field: &mut Fields<'_>) -> Result<Vec<Principal>, Flaw> {
        let count = field.count(PRINCIPALS_MAX, "principals")?;
        let mut all = Vec::new();
        for _ in 0..count {
            let is_group = match field.u8("principal's kind")? {
                0 => false,
                1 => true,
                _ => return Err(Flaw::Value("principal's kind")),
            };
            let number = field.u32("principal's number")?;
            all.push(Principal { is_group, number, name: field.bytes(OWNER_BYTES_MAX, "principal's name")? });
        }
        Ok(all)
    }
}

fn xattr_bytes(xattrs: &[Xattr]) -> usize {
    xattrs.iter().map(|xattr| xattr.name.len() + xattr.value.len()).sum()
}

impl FileKind {
    fn code(&self) -> u8 {
        match self {
            FileKind::File { .. } => 0,
            FileKind::Directory => 1,
            FileKind::Symlink { .. } => 2,
            FileKind::HardLink { .. } => 3,
            FileKind::Fifo => 4,
            FileKind::Socket => 5,
            FileKind::CharDevice { .. } => 6,
            FileKind::BlockDevice { .. } => 7,
        }
    }

    fn encode(&self, body: &mut Body<'_>) {
        match self {
            FileKind::File { size, holes } => {
                body.u64(*size);
                body.runs(holes);
            }
            FileKind::Symlink { target: path } | FileKind::HardLink { first: path } => body.bytes(path),
            FileKind::CharDevice { major, minor } | FileKind::BlockDevice { major, minor } => {
                body.u32(*major);
                body.u32(*minor);
            }
            FileKind::Directory | FileKind::Fifo | FileKind::Socket => {}
        }
    }

    fn decode(code: u8, fields: &mut Fields<'_>) -> Result<FileKind, Flaw> {
        Ok(match code {
            0 => {
                let size = fields.u64("size")?;
                if size >= 1 << 63 {
                    return Err(Flaw::TooLong { what: "size", len: size, most: (1 << 63) - 1 });
                }
                FileKind::File { size, holes: fields.runs("holes")? }
            }
            1 => FileKind::Directory,
            2 => FileKind::Symlink { target: fields.bytes(PATH_BYTES_MAX, "link's target")? },
            3 => FileKind::HardLink { first: fields.bytes(PATH_BYTES_MAX, "first name")? },
            4 => FileKind::Fifo,
            5 => FileKind::Socket,
            6 => FileKind::CharDevice { major: fields.u32("device")?, minor: fields.u32("device")? },
            7 => FileKind::BlockDevice { major: fields.u32("device")?, minor: fields.u32("device")? },
            _ => return Err(Flaw::Value("kind of file")),
        })
    }
}

impl FileId {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u64(self.number.0);
        body.u16(self.attempt);
        match &self.answer {
            Answer::Take { have } => {
                body.u8(0);
                body.runs(have);
            }
            Answer::Differing { have, end } => {
                body.u8(1);
                body.runs(have);
                body.u64(*end);
            }
            Answer::UnlessDigest => body.u8(2),
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<FileId, Flaw> {
        let number = FileNumber(fields.u64("file number")?);
        let attempt = fields.u16("attempt")?;
        let answer = match fields.u8("answer")? {
            0 => Answer::Take { have: fields.runs("objects")? },
            1 => Answer::Differing { have: fields.runs("objects")?, end: fields.u64("object")? },
            2 => Answer::UnlessDigest,
            _ => return Err(Flaw::Value("answer")),
        };
        Ok(FileId { number, attempt, answer })
    }
}

impl FileClose {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u64(self.number.0);
        body.u16(self.attempt);
        match &self.close {
            Close::Read { size, mtime, root } => {
                body.u8(0);
                body.u64(*size);
                body.moment(*mtime);
                body.digest_if_any(root.as_ref());
            }
            Close::Failed(reason) => {
                body.u8(2);
                reason.encode(body);
            }
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<FileClose, Flaw> {
        let number = FileNumber(fields.u64("file number")?);
        let attempt = fields.u16("attempt")?;
        let close = match fields.u8("outcome")? {
            0 => Close::Read {
                size: fields.u64("size")?,
                mtime: fields.moment("mtime")?,
                root: fields.digest_if_any("root digest")?,
            },
            2 => Close::Failed(Reason::decode(fields)?),
            _ => return Err(Flaw::Value("outcome")),
        };
        Ok(FileClose { number, attempt, close })
    }
}

impl FileDone {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u64(self.number.0);
        match &self.outcome {
            Outcome::Done(level) => {
                body.u8(0);
                body.level(*level);
            }
            Outcome::Same => body.u8(1),
            Outcome::DryRun => body.u8(2),
            Outcome::Failed(reason) => {
                body.u8(3);
                reason.encode(body);
            }
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<FileDone, Flaw> {
        let number = FileNumber(fields.u64("file number")?);
        let outcome = match fields.u8("outcome")? {
            0 => Outcome::Done(fields.level("level")?),
            1 => Outcome::Same,
            2 => Outcome::DryRun,
            3 => Outcome::Failed(Reason::decode(fields)?),
            _ => return Err(Flaw::Value("outcome")),
        };
        Ok(FileDone { number, outcome })
    }
}
