//! File stamps: identify the files that did not change since an earlier run read them.
//! ```text
//!  | 16 bytes | 16 bytes | ...     the stamp of each entry, by its number; zeros where there is none
//! ```
//!
//! A stamp is a digest of the file's path, inode, size, modification time and change time. Every
//! write and every rename of a file updates its change time, which no user can set. A file with an
//! unchanged stamp therefore has unchanged bytes, except for decay of the medium. The device number
//! is left out, because some file systems get another one at each mount.
//!
//! Change times advance in ticks of the kernel's clock (up to 10 ms), or in seconds on some file
//! systems. A file that was changed right before it was read could be changed again within the same
//! tick. Such a file gets no stamp.

use super::folder;
use haul_digest::{Algorithm, Hasher};
use haul_storage::{Stat, Timespec};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Size of a stamp, in bytes.
const BYTES: usize = 16;

/// Minimum time between a change and the start of a run, in nanoseconds. A change before that is in
/// an earlier tick than everything that the run reads.
const TICK_NANOSECONDS: i128 = 100_000_000;

/// The same limit for file systems that seem to count times in seconds; FAT has ticks of two
/// seconds.
const COARSE_TICK_NANOSECONDS: i128 = 2_100_000_000;

/// Maximum number of stamps that wait to be written: 24 MiB. The next run reads the files without a
/// stamp again.
const WAITING_MAX: usize = 1 << 20;

/// Stamp of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp([u8; BYTES]);

impl Stamp {
    /// Computes the stamp of a regular file with this path.
    pub(crate) fn of(path: &[u8], facts: &Stat) -> Stamp {
        let mut hasher = Hasher::new(Algorithm::Blake3);
        let time = |at: Timespec| [at.sec as u64, u64::from(at.nsec)];
        let [[msec, mnsec], [csec, cnsec]] = [time(facts.mtime), time(facts.ctime)];
        for number in [path.len() as u64, facts.ino, facts.size, msec, mnsec, csec, cnsec] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(path);
        let mut stamp = Stamp::default();
        stamp.0.copy_from_slice(&hasher.finish().as_bytes()[..BYTES]);
        stamp
    }

    /// Returns true unless the stamp is empty.
    pub(crate) fn is_set(self) -> bool {
        self != Stamp::default()
    }
}

/// Start time of a run, which decides which files get a stamp.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped {
    begun: i128,
}

impl Stamped {
    /// Creates a value for a run that starts now, before it examines any file.
    pub(crate) fn now() -> Stamped {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamped { begun: i128::try_from(since.as_nanos()).unwrap_or(0) }
    }

    /// Returns the stamp of a file with this metadata, which was read before the contents. Returns
    /// an empty stamp if the file was changed too recently.
    pub(crate) fn stamp(self, path: &[u8], facts: &Stat) -> Stamp {
        let changed = i128::from(facts.ctime.sec) * 1_000_000_000 + i128::from(facts.ctime.nsec);
        let tick = if facts.ctime.nsec == 0 { COARSE_TICK_NANOSECONDS } else { TICK_NANOSECONDS };
        if changed + tick > self.begun { Stamp::default() } else { Stamp::of(path, facts) }
    }
}

/// Stamps by entry number, on disk. New stamps wait in memory.
#[derive(Debug, Default)]
pub(crate) struct StampFile {
    waiting: Vec<(u64, Stamp)>,
}

impl StampFile {
    /// Sets a stamp. Returns false if too many stamps wait already.
    pub(crate) fn set(&mut self, number: u64, stamp: Stamp) -> bool {
        let has_room = self.waiting.len() < WAITING_MAX;
        if has_room {
            self.waiting.push((number, stamp));
        }
        has_room
    }

    /// Writes the waiting stamps to the file at `path`; syncs the file if `syncs` is true.
    pub(crate) fn write(&mut self, path: &Path, syncs: bool) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let file = folder::options().write(true).create(true).truncate(false).open(path)?;
        let mut run: Vec<u8> = Vec::new();
        let mut next = 0;
        for &(number, stamp) in &self.waiting {
            if number != next && !run.is_empty() {
                write_run(&file, next, &run)?;
                run.clear();
            }
            run.extend(stamp.0);
            next = number + 1;
        }
        write_run(&file, next, &run)?;
        self.waiting.clear();
        if syncs { file.sync_data() } else { Ok(()) }
    }
}

/// Writes consecutive stamps; `end` is the number after the last one.
fn write_run(file: &File, end: u64, run: &[u8]) -> io::Result<()> {
    file.write_all_at(run, end * BYTES as u64 - run.len() as u64)
}

/// Stamps of an earlier run.
#[derive(Debug)]
pub(crate) struct EarlierStamps {
    file: Option<File>,
}

impl EarlierStamps {
    /// Returns a value without stamps.
    pub(crate) fn none() -> EarlierStamps {
        EarlierStamps { file: None }
    }

    /// Opens the stamps in a file; a missing file has no stamps.
    ///
    /// # Errors
    /// Returns an error if the file exists and cannot be opened.
    pub(crate) fn open(path: &Path) -> io::Result<EarlierStamps> {
        match folder::options().open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(EarlierStamps::none()),
            opened => Ok(EarlierStamps { file: Some(opened?) }),
        }
    }

    /// Returns the stamp of an entry. If it cannot be read, returns an empty stamp, so that the
    /// file is read again.
    pub(crate) fn get(&self, number: u64) -> Stamp {
        let mut stamp = Stamp::default();
        let read =
            |file: &File| file.read_exact_at(&mut stamp.0, number.saturating_mul(BYTES as u64)).is_ok();
        if self.file.as_ref().is_some_and(read) { stamp } else { Stamp::default() }
    }

    /// Returns true if a file with this metadata still has its earlier stamp.
    pub(crate) fn knows(&self, number: u64, path: &[u8], facts: &Stat) -> bool {
        let stamp = self.get(number);
        stamp.is_set() && stamp == Stamp::of(path, facts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_sys::stat::stat_fd;
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use std::fs;

    fn facts() -> Stat {
        stat_fd(tempfile::tempfile().unwrap()).unwrap()
    }

    #[test]
    fn stamp_depends_on_name_inode_size_and_times() {
        let facts = facts();
        let moved = |at: Timespec| Timespec { nsec: at.nsec ^ 1, ..at };
        let stamps = [
            Stamp::of(b"a", &facts),
            Stamp::of(b"b", &facts),
            Stamp::of(b"a", &Stat { ino: facts.ino + 1, ..facts }),
            Stamp::of(b"a", &Stat { size: facts.size + 1, ..facts }),
            Stamp::of(b"a", &Stat { mtime: moved(facts.mtime), ..facts }),
            Stamp::of(b"a", &Stat { ctime: moved(facts.ctime), ..facts }),
        ];
        for (at, stamp) in stamps.iter().enumerate() {
            assert!(stamp.is_set() && !stamps[..at].contains(stamp), "{at}");
        }
        assert_eq!(Stamp::of(b"a", &Stat { dev: facts.dev + 1, mode: 0, ..facts }), stamps[0]);
    }

    #[test]
    fn recently_changed_file_gets_no_stamp() {
        let facts = Stat { ctime: Timespec { sec: 1000, nsec: 500_000_000 }, ..facts() };
        let after = |nanoseconds: i128| Stamped { begun: 1_000_500_000_000 + nanoseconds };
        assert!(!after(-1).stamp(b"a", &facts).is_set());
        assert!(!after(TICK_NANOSECONDS - 1).stamp(b"a", &facts).is_set());
        assert_eq!(after(TICK_NANOSECONDS).stamp(b"a", &facts), Stamp::of(b"a", &facts));
        let coarse = Stat { ctime: Timespec { sec: 1000, nsec: 0 }, ..facts };
        assert!(!after(TICK_NANOSECONDS).stamp(b"a", &coarse).is_set());
        assert!(after(COARSE_TICK_NANOSECONDS).stamp(b"a", &coarse).is_set());
    }

    proptest! {
        #[test]
        fn stamps_are_found_by_number(rounds in prop::collection::vec(
            prop::collection::vec((0..40_u64, 1..=255_u8), 0..12), 1..4,
        )) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("stamps");
            let mut twin = BTreeMap::new();
            let mut stamps = StampFile::default();
            for round in rounds {
                for (number, byte) in round {
                    assert!(stamps.set(number, Stamp([byte; BYTES])));
                    twin.insert(number, Stamp([byte; BYTES]));
                }
                stamps.write(&path, false).unwrap();
                let found = EarlierStamps::open(&path).unwrap();
                for number in 0..41 {
                    prop_assert_eq!(found.get(number), twin.get(&number).copied().unwrap_or_default());
                }
            }
        }
    }

    #[test]
    fn file_is_known_until_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        let (path, file) = (dir.path().join("stamps"), dir.path().join("f"));
        fs::write(&file, "bytes").unwrap();
        let look = || stat_fd(File::open(&file).unwrap()).unwrap();
        let mut stamps = StampFile::default();
        stamps.set(3, Stamp::of(b"f", &look()));
        stamps.write(&path, true).unwrap();
        let earlier = EarlierStamps::open(&path).unwrap();
        assert!(earlier.knows(3, b"f", &look()) && !earlier.knows(2, b"f", &look()));
        let times = fs::metadata(&file).unwrap().modified().unwrap();
        let before = look().ctime;
        // Repeat until the clock of the change times has advanced.
        while look().ctime == before {
            fs::write(&file, "other").unwrap();
            File::options().write(true).open(&file).unwrap().set_modified(times).unwrap();
        }
        assert_eq!(look().mtime, before_mtime(times));
        assert!(!earlier.knows(3, b"f", &look()));
    }

    fn before_mtime(time: SystemTime) -> Timespec {
        let since = time.duration_since(UNIX_EPOCH).unwrap();
        Timespec { sec: since.as_secs() as i64, nsec: since.subsec_nanos() }
    }
}
