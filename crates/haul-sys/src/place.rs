//! Location of a file on its device.

use haul_model::ByteOffset;
use rustix::fd::AsFd;
use rustix::io::{Errno, retry_on_intr};
use rustix::ioctl::{Updater, ioctl, opcode};
use std::io;

/// Location of the first data of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Byte offset on the device, or in the address space that the file system uses instead (btrfs
    /// has one for all its devices).
    At(ByteOffset),
    /// The file has no data in blocks of its own: it is empty, a hole, stored in its inode, or not
    /// allocated yet.
    Nowhere,
    /// The file system provides no extent map.
    Untold,
}

/// Request of `FS_IOC_FIEMAP` with space for one extent, as in `linux/fiemap.h`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Map {
    head: Head,
    extent: Extent,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Head {
    start: u64,
    length: u64,
    flags: u32,
    mapped_extents: u32,
    extent_count: u32,
    reserved: u32,
}

#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Extent {
    logical: u64,
    physical: u64,
    length: u64,
    reserved64: [u64; 2],
    flags: u32,
    reserved: [u32; 3],
}

const _: () = assert!(size_of::<Head>() == 32 && size_of::<Extent>() == 56 && size_of::<Map>() == 88);

/// The request number encodes only the size of the head.
const FS_IOC_FIEMAP: u32 = opcode::read_write::<Head>(b'f', 11);

/// Flags of an extent without a usable location: unknown (`FIEMAP_EXTENT_UNKNOWN`), not allocated
/// yet (`_DELALLOC`), or in the metadata (`_DATA_INLINE`).
const NO_PLACE: u32 = 0x2 | 0x4 | 0x200;

/// Returns the location of the first data of an open regular file. Does not start write-back.
///
/// # Errors
///
/// Returns the errors of ioctl(2). For a file system without this request the result is
/// [`Place::Untold`].
pub fn place_of(fd: impl AsFd) -> io::Result<Place> {
    let mut map =
        Map { head: Head { length: u64::MAX, extent_count: 1, ..Head::default() }, ..Map::default() };
    let asked = retry_on_intr(|| {
        // SAFETY: FS_IOC_FIEMAP reads the head and writes at most `extent_count` extents behind it.
        // That is one, for which the struct has space. All fields are plain integers, for which
        // every bit pattern is valid.
        unsafe { ioctl(&fd, Updater::<{ FS_IOC_FIEMAP }, Map>::new(&mut map)) }
    });
    match asked {
        Ok(()) if map.head.mapped_extents == 0 || map.extent.flags & NO_PLACE != 0 => Ok(Place::Nowhere),
        Ok(()) => Ok(Place::At(ByteOffset(map.extent.physical))),
        Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::NOSYS | Errno::INVAL) => Ok(Place::Untold),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    #[test]
    fn files_have_distinct_disk_positions_and_holes_have_none() {
        let dir = tempfile::tempdir().unwrap();
        let made = |name: &str, len: usize| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.write_all_at(&vec![7; len], 0).unwrap();
            file.sync_all().unwrap();
            file
        };
        let (one, other) = (made("one", 100_000), made("other", 100_000));
        let hole = made("hole", 0);
        hole.set_len(1 << 20).unwrap();
        match (place_of(&one).unwrap(), place_of(&other).unwrap()) {
            (Place::At(one), Place::At(other)) => {
                assert_ne!(one, other);
                assert_eq!(place_of(&hole).unwrap(), Place::Nowhere);
            }
            told => assert_eq!(told, (Place::Untold, Place::Untold), "a map has both or neither"),
        }
    }

    #[test]
    fn file_without_an_extent_map_has_an_unknown_position() {
        assert_eq!(place_of(File::open("/proc/self/status").unwrap()).unwrap(), Place::Untold);
    }
}
