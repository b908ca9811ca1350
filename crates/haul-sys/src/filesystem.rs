//! What kind of file system a file lies on, where that decides how it is best copied.

use rustix::fd::AsFd;

/// `f_type` of file systems whose server can copy a file by itself, from statfs(2): NFS, SMB2/3, CIFS, Ceph.
const COPY_ON_SERVER: [u32; 4] = [0x6969, 0xfe53_4d42, 0xff53_4d42, 0x00c3_6400];

/// Whether copy_file_range(2) on this file is done by a server, so that the bytes need not travel here and back.
/// A file system that can't be asked is taken for a local one.
pub fn copies_on_server(fd: impl AsFd) -> bool {
    // The kernel's field is 32 bits wide in meaning; its type differs between architectures.
    rustix::fs::fstatfs(fd).is_ok_and(|found| COPY_ON_SERVER.contains(&(found.f_type as u32)))
}

/// `f_type` of FUSE file systems, from statfs(2).
const FUSE: u32 = 0x6573_5546;

/// Whether a file lies on a FUSE file system. Those may answer a read with fewer bytes than asked for, and io_uring was
/// seen (Linux 6.18) to carry such a read on without moving its offset: it reported all bytes and had repeated the first.
pub fn is_fuse(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type as u32 == FUSE)
}

/// `f_type` of overlayfs, from statfs(2).
const OVERLAY: u32 = 0x794c_7630;

/// Whether a file lies on overlayfs, where a directory is born once more when the first name is made in it.
pub fn is_overlay(fd: impl AsFd) -> bool {
    rustix::fs::fstatfs(fd).is_ok_and(|found| found.f_type as u32 == OVERLAY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_file_is_copied_here() {
        assert!(!copies_on_server(tempfile::tempfile().unwrap()));
    }
}
