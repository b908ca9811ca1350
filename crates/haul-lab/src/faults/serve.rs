//! FUSE request handlers. Requests are served one at a time; only a paused read waits apart.
//!
//! Files are opened with direct I/O, so that the rules see each read and write of a program.

use super::faultfs::{Recorded, hold};
use super::nodes::{errno_of, generation};
use super::pass::{Change, Open, Pass};
use super::rules::{Action, Op};
use fuser::consts::FOPEN_DIRECT_IO;
use fuser::{
    FileAttr, Filesystem, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request, TimeOrNow,
};
use rustix::fs as sys;
use rustix::fs::{AtFlags, CWD, FallocateFlags, Mode, OFlags, XattrFlags};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, SystemTime};

/// Cache lifetime of attributes and names in the kernel: zero, so that the kernel always asks for
/// current ones.
const KEEP: Duration = Duration::ZERO;

/// Converts an offset or length, which arrives signed and is never negative.
fn unsigned(value: i64) -> u64 {
    u64::try_from(value).unwrap_or(0)
}

/// Evaluates to the value, or replies with the error and returns.
macro_rules! ok_or_answer {
    ($result:expr, $reply:expr) => {
        match $result {
            Ok(value) => value,
            Err(errno) => return $reply.error(errno.raw_os_error()),
        }
    };
}

fn answer(result: Result<(), Errno>, reply: ReplyEmpty) {
    ok_or_answer!(result, reply);
    reply.ok();
}

fn answer_entry(result: Result<FileAttr, Errno>, reply: ReplyEntry) {
    let attr = ok_or_answer!(result, reply);
    reply.entry(&KEEP, &attr, generation(&attr));
}

/// Replies with an extended attribute. The kernel asks for the length first, with a size of 0.
/// Access control list of NFSv4, which no local file system stores, and the attribute that stores
/// it.
const NFS4_ACL: &str = "system.nfs4_acl";
const STORED_NFS4_ACL: &str = "user.haul-lab.nfs4_acl";

/// Returns the name under which the underlying file system stores an attribute.
fn stored_name(name: &OsStr) -> &OsStr {
    if name == NFS4_ACL { OsStr::new(STORED_NFS4_ACL) } else { name }
}

fn answer_xattr(result: Result<Vec<u8>, Errno>, size: u32, reply: ReplyXattr) {
    let value = ok_or_answer!(result, reply);
    let len = u32::try_from(value.len()).unwrap_or(u32::MAX);
    match size {
        0 => reply.size(len),
        size if size < len => reply.error(Errno::RANGE.raw_os_error()),
        _ => reply.data(&value),
    }
}

impl Filesystem for Pass {
    fn lookup(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let found = self.child(parent, name).and_then(|path| self.look_up(&path));
        answer_entry(found, reply);
    }

    fn getattr(&mut self, _: &Request<'_>, ino: u64, _: Option<u64>, reply: ReplyAttr) {
        let attr = ok_or_answer!(self.look(ino), reply);
        reply.attr(&KEEP, &FileAttr { ino: self.number(ino), ..attr });
    }

    fn setattr(
        &mut self,
        request: &Request<'_>,
        ino: u64,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _: Option<SystemTime>,
        handle: Option<u64>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<u32>,
        reply: ReplyAttr,
    ) {
        let path = ok_or_answer!(self.nodes.path(ino), reply).to_owned();
        if let Some(size) = size {
            ok_or_answer!(self.truncate(&path, handle, size), reply);
        }
        let change = Change { mode, uid, gid, atime, mtime };
        ok_or_answer!(self.set_properties(&path, &change), reply);
        self.lagging.remove(&ino);
        self.getattr(request, ino, handle, reply);
    }

    fn readlink(&mut self, _: &Request<'_>, ino: u64, reply: ReplyData) {
        let path = ok_or_answer!(self.nodes.path(ino), reply);
        let target = ok_or_answer!(fs::read_link(self.nodes.real(path)).map_err(|e| errno_of(&e)), reply);
        reply.data(target.as_os_str().as_bytes());
    }

    fn mknod(
        &mut self,
        r: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        _: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        // Only programs that call mknod for a regular file create one by this request.
        if !sys::FileType::from_raw_mode(mode).is_file() {
            let met = self.child(parent, name).and_then(|path| self.meet(Op::Node, &path));
            ok_or_answer!(met, reply);
        }
        let made = self.make(r, parent, name, |real| {
            let bits = Mode::from_raw_mode(mode & 0o7777);
            sys::mknodat(CWD, real, sys::FileType::from_raw_mode(mode), bits, u64::from(rdev))?;
            sys::chmodat(CWD, real, bits, AtFlags::empty())
        });
        answer_entry(made, reply);
    }

    fn mkdir(&mut self, r: &Request<'_>, parent: u64, name: &OsStr, mode: u32, _: u32, reply: ReplyEntry) {
        let made = self.make(r, parent, name, |real| {
            let bits = Mode::from_raw_mode(mode & 0o7777);
            sys::mkdirat(CWD, real, bits)?;
            sys::chmodat(CWD, real, bits, AtFlags::empty())
        });
        answer_entry(made, reply);
    }

    fn symlink(&mut self, r: &Request<'_>, parent: u64, name: &OsStr, target: &Path, reply: ReplyEntry) {
        let met = self.child(parent, name).and_then(|path| self.meet(Op::Symlink, &path));
        ok_or_answer!(met, reply);
        let made = self.make(r, parent, name, |real| sys::symlinkat(target, CWD, real));
        answer_entry(made, reply);
    }

    fn link(&mut self, _: &Request<'_>, ino: u64, parent: u64, name: &OsStr, reply: ReplyEntry) {
        let first = self.nodes.real(ok_or_answer!(self.nodes.path(ino), reply));
        let path = ok_or_answer!(self.child(parent, name), reply);
        let linked = self.meet(Op::Link, &path).and_then(|_| self.meet(Op::Create, &path)).and_then(|_| {
            sys::linkat(CWD, &first, CWD, self.nodes.real(&path), AtFlags::empty())?;
            self.lagging.remove(&ino);
            self.look_up(&path)
        });
        answer_entry(linked, reply);
    }

    fn unlink(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        answer(self.remove(parent, name, AtFlags::empty()), reply);
    }

    fn rmdir(&mut self, _: &Request<'_>, parent: u64, name: &OsStr, reply: ReplyEmpty) {
        answer(self.remove(parent, name, AtFlags::REMOVEDIR), reply);
    }

    fn rename(
        &mut self,
        _: &Request<'_>,
        parent: u64,
        name: &OsStr,
        new_parent: u64,
        new_name: &OsStr,
        flags: u32,
        reply: ReplyEmpty,
    ) {
        let from = ok_or_answer!(self.child(parent, name), reply);
        let to = ok_or_answer!(self.child(new_parent, new_name), reply);
        ok_or_answer!(self.meet(Op::Rename, &from), reply);
        let (a, b) = (self.nodes.real(&from), self.nodes.real(&to));
        let renamed = sys::renameat_with(CWD, a, CWD, b, sys::RenameFlags::from_bits_retain(flags));
        ok_or_answer!(renamed, reply);
        self.nodes.renamed(&from, &to);
        reply.ok();
    }

    fn open(&mut self, _: &Request<'_>, ino: u64, flags: i32, reply: ReplyOpen) {
        let path = ok_or_answer!(self.nodes.path(ino), reply).to_owned();
        let opened = self
            .meet(Op::Open, &path)
            .and_then(|_| self.open_file(path, flags, OFlags::NOFOLLOW, Mode::empty()));
        let handle = ok_or_answer!(opened, reply);
        self.lagging.remove(&ino);
        reply.opened(handle, FOPEN_DIRECT_IO);
    }

    fn create(
        &mut self,
        request: &Request<'_>,
        parent: u64,
        name: &OsStr,
        mode: u32,
        _: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let path = ok_or_answer!(self.child(parent, name), reply);
        let bits = Mode::from_raw_mode(mode & 0o7777);
        let create = OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let made = self.meet(Op::Create, &path).and_then(|_| {
            let handle = self.open_file(path.clone(), flags, create, bits)?;
            let real = self.nodes.real(&path);
            self.own(request, &real)?;
            sys::chmodat(CWD, &real, bits, AtFlags::empty())?;
            Ok((handle, self.look_up(&path)?))
        });
        let (handle, attr) = ok_or_answer!(made, reply);
        reply.created(&KEEP, &attr, generation(&attr), handle, FOPEN_DIRECT_IO);
    }

    fn read(
        &mut self,
        _: &Request<'_>,
        _: u64,
        handle: u64,
        offset: i64,
        size: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyData,
    ) {
        let (bytes, pause) = ok_or_answer!(self.read_at(handle, unsigned(offset), size), reply);
        let Some(ms) = pause else { return reply.data(&bytes) };
        let control = Arc::clone(&self.control);
        thread::spawn(move || {
            hold(&control, ms);
            reply.data(&bytes);
        });
    }

    fn write(
        &mut self,
        _: &Request<'_>,
        _: u64,
        handle: u64,
        offset: i64,
        data: &[u8],
        _: u32,
        _: i32,
        _: Option<u64>,
        reply: ReplyWrite,
    ) {
        let count = ok_or_answer!(self.write_at(handle, unsigned(offset), data), reply);
        reply.written(u32::try_from(count).unwrap_or(u32::MAX));
    }

    fn flush(&mut self, _: &Request<'_>, _: u64, handle: u64, _: u64, reply: ReplyEmpty) {
        let done = self.file(handle).and_then(|(_, path)| self.meet(Op::Flush, path).map(drop));
        answer(done, reply);
    }

    fn release(
        &mut self,
        _: &Request<'_>,
        _: u64,
        handle: u64,
        _: i32,
        _: Option<u64>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.release_handle(handle);
        reply.ok();
    }

    fn copy_file_range(
        &mut self,
        _: &Request<'_>,
        _: u64,
        from: u64,
        offset: i64,
        _: u64,
        to: u64,
        to_offset: i64,
        len: u64,
        _: u32,
        reply: ReplyWrite,
    ) {
        let copied = self.copy((from, unsigned(offset)), (to, unsigned(to_offset)), len);
        let count = ok_or_answer!(copied, reply);
        reply.written(u32::try_from(count).unwrap_or(u32::MAX));
    }

    fn fsync(&mut self, _: &Request<'_>, _: u64, handle: u64, data_only: bool, reply: ReplyEmpty) {
        let done = self.file(handle).and_then(|(file, path)| {
            if self.meet(Op::Fsync, path)? {
                return Ok(());
            }
            if data_only { sys::fdatasync(file) } else { sys::fsync(file) }?;
            self.record(|| Recorded::Sync { path: path.to_owned() });
            Ok(())
        });
        answer(done, reply);
    }

    fn fsyncdir(&mut self, _: &Request<'_>, ino: u64, _: u64, _: bool, reply: ReplyEmpty) {
        let done = self.nodes.path(ino).and_then(|path| {
            if self.meet(Op::Fsync, path)? {
                return Ok(());
            }
            let dir = File::open(self.nodes.real(path)).map_err(|e| errno_of(&e))?;
            sys::fsync(dir)
        });
        answer(done, reply);
    }

    fn opendir(&mut self, _: &Request<'_>, ino: u64, _: i32, reply: ReplyOpen) {
        let list = ok_or_answer!(self.list(ino), reply);
        self.lagging.remove(&ino);
        reply.opened(self.keep(Open::List(list)), 0);
    }

    fn readdir(&mut self, _: &Request<'_>, _: u64, handle: u64, offset: i64, mut reply: ReplyDirectory) {
        let Some(Open::List(list)) = self.open.get(&handle) else {
            return reply.error(Errno::BADF.raw_os_error());
        };
        let from = usize::try_from(offset).unwrap_or(0);
        for (next, (ino, kind, name)) in (offset + 1..).zip(list.iter().skip(from)) {
            if reply.add(*ino, next, *kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn releasedir(&mut self, _: &Request<'_>, _: u64, handle: u64, _: i32, reply: ReplyEmpty) {
        self.open.remove(&handle);
        reply.ok();
    }

    fn statfs(&mut self, _: &Request<'_>, _: u64, reply: ReplyStatfs) {
        let s = ok_or_answer!(sys::statvfs(self.nodes.real(Path::new(""))), reply);
        let narrow = |value: u64| u32::try_from(value).unwrap_or(u32::MAX);
        let (size, fragment, name) = (narrow(s.f_bsize), narrow(s.f_frsize), narrow(s.f_namemax));
        reply.statfs(s.f_blocks, s.f_bfree, s.f_bavail, s.f_files, s.f_ffree, size, name, fragment);
    }

    fn setxattr(
        &mut self,
        _: &Request<'_>,
        ino: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let flags = XattrFlags::from_bits_retain(flags.cast_unsigned());
        let met =
            self.nodes.path(ino).and_then(|path| self.actions(Op::SetXattr, path, 0, value.len() as u64));
        ok_or_answer!(met, reply);
        answer(self.xattr(ino, |real| sys::lsetxattr(real, stored_name(name), value, flags)), reply);
    }

    fn getxattr(&mut self, _: &Request<'_>, ino: u64, name: &OsStr, size: u32, reply: ReplyXattr) {
        let value = self.xattr(ino, |real| {
            let mut value = vec![0; 64 * 1024];
            let len = sys::lgetxattr(real, stored_name(name), &mut value[..])?;
            value.truncate(len);
            Ok(value)
        });
        answer_xattr(value, size, reply);
    }

    fn listxattr(&mut self, _: &Request<'_>, ino: u64, size: u32, reply: ReplyXattr) {
        let names = self.xattr(ino, |real| {
            let mut names = vec![0; 64 * 1024];
            let len = sys::llistxattr(real, &mut names[..])?;
            names.truncate(len);
            let shown = |name: &[u8]| match name == STORED_NFS4_ACL.as_bytes() {
                true => [NFS4_ACL.as_bytes(), b"\0"].concat(),
                false => [name, b"\0"].concat(),
            };
            Ok(names.split(|byte| *byte == 0).filter(|name| !name.is_empty()).flat_map(shown).collect())
        });
        answer_xattr(names, size, reply);
    }

    fn removexattr(&mut self, _: &Request<'_>, ino: u64, name: &OsStr, reply: ReplyEmpty) {
        answer(self.xattr(ino, |real| sys::lremovexattr(real, stored_name(name))), reply);
    }

    fn fallocate(
        &mut self,
        _: &Request<'_>,
        _: u64,
        handle: u64,
        from: i64,
        len: i64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let done = self.file(handle).and_then(|(file, path)| {
            self.meet(Op::Allocate, path)?;
            sys::fallocate(file, flags, unsigned(from), unsigned(len))?;
            if flags.intersects(FallocateFlags::PUNCH_HOLE | FallocateFlags::ZERO_RANGE) {
                let (at, len) = (unsigned(from), unsigned(len));
                self.record(|| Recorded::Zero { path: path.to_owned(), at, len });
            }
            Ok(())
        });
        answer(done, reply);
    }

    fn lseek(&mut self, _: &Request<'_>, _: u64, handle: u64, offset: i64, whence: i32, reply: ReplyLseek) {
        // The kernel asks for SEEK_DATA (3) and SEEK_HOLE (4) only.
        let to = match whence {
            3 => sys::SeekFrom::Data(unsigned(offset)),
            4 => sys::SeekFrom::Hole(unsigned(offset)),
            _ => return reply.error(Errno::INVAL.raw_os_error()),
        };
        let found = self.file(handle).and_then(|(file, path)| {
            if !self.actions(Op::Seek, path, 0, 0)?.contains(&Action::Hole) {
                return sys::seek(file, to);
            }
            let len = file.metadata().map_err(|e| errno_of(&e))?.len();
            match to {
                sys::SeekFrom::Hole(at) if at < len => Ok(at),
                _ => Err(Errno::NXIO),
            }
        });
        let found = ok_or_answer!(found, reply);
        reply.offset(i64::try_from(found).unwrap_or(i64::MAX));
    }
}
