//! What files looked like when they were read, so that a later run knows those that nobody touched since.
//!
//! ```text
//!  | 16 bytes | 16 bytes | ...     the stamp of each entry, by its number; zeros where there is none
//! ```
//!
//! A stamp is a digest of the file's path, inode, size, modification time and change time. Every write and every new name of a file moves its
//! change time, which nobody can set; so a file with the stamp that it had holds the bytes that it had, but for what decays. The device's number is
//! left out: some file systems have another one after each mount.
//!
//! Change times move in ticks of the kernel's clock (up to 10 ms), or of a second on some file systems. A file that was changed right before it was read could be
//! changed again within the same tick; such a file gets no stamp.

use haul_digest::{Algorithm, Hasher};
use haul_sys::Stat;
use haul_sys::stat::Timespec;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

/// Bytes of a stamp.
const BYTES: usize = 16;

/// A change this long before a run began lies in an earlier tick than all that the run reads.
const TICK_NANOSECONDS: i128 = 100_000_000;

/// The same where times seem to be counted in seconds: FAT counts two at a time.
const COARSE_TICK_NANOSECONDS: i128 = 2_100_000_000;

/// Stamps that wait to be written at most: 24 MiB. What comes behind them is read again by the next run.
const WAITING_MAX: usize = 1 << 20;

/// What a file looked like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stamp([u8; BYTES]);

impl Stamp {
    /// Of a regular file under this path.
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

    /// Whether it says anything.
    pub(crate) fn is_there(self) -> bool {
        self != Stamp::default()
    }
}

/// Who gives stamps to files: knows when the run began.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamped {
    begun: i128,
}

impl Stamped {
    /// For a run that begins now, before it looks at any file.
    pub(crate) fn now() -> Stamped {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Stamped { begun: i128::try_from(since.as_nanos()).unwrap_or(0) }
    }

    /// The stamp of a file with these facts, taken before it was read; none where it was changed too lately.
    pub(crate) fn stamp(self, path: &[u8], facts: &Stat) -> Stamp {
        let changed = i128::from(facts.ctime.sec) * 1_000_000_000 + i128::from(facts.ctime.nsec);
        let tick = if facts.ctime.nsec == 0 { COARSE_TICK_NANOSECONDS } else { TICK_NANOSECONDS };
        if changed + tick > self.begun { Stamp::default() } else { Stamp::of(path, facts) }
    }
}

/// Stamps by number, on disk; those that were set lately wait in memory.
#[derive(Debug, Default)]
pub(crate) struct StampFile {
    waiting: Vec<(u64, Stamp)>,
}

impl StampFile {
    /// Sets one; false where too many wait.
    pub(crate) fn set(&mut self, number: u64, stamp: Stamp) -> bool {
        let has_room = self.waiting.len() < WAITING_MAX;
        if has_room {
            self.waiting.push((number, stamp));
        }
        has_room
    }

    /// Writes those that wait, in the file's place among others of the job; `syncs` makes them durable.
    pub(crate) fn write(&mut self, path: &Path, syncs: bool) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let mut options = File::options();
        options.write(true).create(true).truncate(false).mode(0o600).custom_flags(haul_sys::open::NO_FOLLOW);
        let file = options.open(path)?;
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

/// Writes stamps up to number `end`.
fn write_run(file: &File, end: u64, run: &[u8]) -> io::Result<()> {
    file.write_all_at(run, end * BYTES as u64 - run.len() as u64)
}

/// Stamps of an earlier run.
#[derive(Debug)]
pub(crate) struct EarlierStamps {
    file: Option<File>,
}

impl EarlierStamps {
    /// None.
    pub(crate) fn none() -> EarlierStamps {
        EarlierStamps { file: None }
    }

    /// Those in a file; without it there are none.
    ///
    /// # Errors
    /// It is there and can't be opened.
    pub(crate) fn open(path: &Path) -> io::Result<EarlierStamps> {
        let mut options = File::options();
        options.read(true).custom_flags(haul_sys::open::NO_FOLLOW);
        match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(EarlierStamps::none()),
            opened => Ok(EarlierStamps { file: Some(opened?) }),
        }
    }

    /// The stamp of an entry. One that can't be read is none: its file is read again.
    pub(crate) fn get(&self, number: u64) -> Stamp {
        let mut stamp = Stamp::default();
        let read =
            |file: &File| file.read_exact_at(&mut stamp.0, number.saturating_mul(BYTES as u64)).is_ok();
        if self.file.as_ref().is_some_and(read) { stamp } else { Stamp::default() }
    }

    /// Whether a file with these facts has the stamp it had.
    pub(crate) fn knows(&self, number: u64, path: &[u8], facts: &Stat) -> bool {
        let stamp = self.get(number);
        stamp.is_there() && stamp == Stamp::of(path, facts)
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
    fn whatever_tells_of_another_file_makes_another_stamp() {
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
            assert!(stamp.is_there() && !stamps[..at].contains(stamp), "{at}");
        }
        assert_eq!(Stamp::of(b"a", &Stat { dev: facts.dev + 1, mode: 0, ..facts }), stamps[0]);
    }

    #[test]
    fn a_file_that_was_changed_lately_gets_none() {
        let facts = Stat { ctime: Timespec { sec: 1000, nsec: 500_000_000 }, ..facts() };
        let after = |nanoseconds: i128| Stamped { begun: 1_000_500_000_000 + nanoseconds };
        assert!(!after(-1).stamp(b"a", &facts).is_there());
        assert!(!after(TICK_NANOSECONDS - 1).stamp(b"a", &facts).is_there());
        assert_eq!(after(TICK_NANOSECONDS).stamp(b"a", &facts), Stamp::of(b"a", &facts));
        let coarse = Stat { ctime: Timespec { sec: 1000, nsec: 0 }, ..facts };
        assert!(!after(TICK_NANOSECONDS).stamp(b"a", &coarse).is_there());
        assert!(after(COARSE_TICK_NANOSECONDS).stamp(b"a", &coarse).is_there());
    }

    proptest! {
        #[test]
        fn stamps_are_found_by_their_numbers(rounds in prop::collection::vec(
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
    fn a_file_is_known_until_somebody_touches_it() {
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
        // Until the clock that change times are taken from has moved on.
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
