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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_file_is_copied_here() {
        assert!(!copies_on_server(tempfile::tempfile().unwrap()));
    }
}
