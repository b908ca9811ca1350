//! An ext4 whose device writes and flushes are recorded, and the possible states after a power loss
//! at any of them.
//!
//! The device is a loop device over a file in a fault file system ([`FaultFs`]), which sees each
//! write and each flush. Flushed writes are durable. After the last flush, any write may be missing
//! or partial. Sectors of 512 bytes are atomic. So is the first block, on which ext4 relies: a
//! superblock of which half is new needs fsck.

use super::{MountError, Mounted, run};
use crate::faults::{FaultFs, Recorded};
use crate::needs::Need;
use crate::random::Random;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Number of bytes that a device writes atomically.
const SECTOR_BYTES: u64 = 512;

/// Length of the first block. It contains the superblock, 1024 bytes under one checksum, which is
/// read before the journal.
const FIRST_BLOCK_BYTES: u64 = 4096;

/// An ext4 with a recorded device. Needs the right to mount.
#[derive(Debug)]
pub struct RecordedDisk {
    // Fields drop in this order: the mount before the file system that holds its image.
    mounted: Mounted,
    faults: FaultFs,
    home: TempDir,
}

/// Recorded writes and flushes in order, and the contents before them.
#[derive(Debug)]
pub struct Recording {
    home: TempDir,
    events: Vec<Recorded>,
}

impl RecordedDisk {
    /// Requirements of a test that uses a recorded disk.
    pub const NEEDS: [Need; 4] =
        [Need::Fuse, Need::Loop, Need::Program("mkfs.ext4"), Need::FileSystem("ext4")];

    /// Creates an empty ext4 of `mib` MiB.
    ///
    /// # Errors
    /// Returns [`MountError`] if the file system cannot be created or mounted.
    pub fn new(mib: u64) -> Result<RecordedDisk, MountError> {
        let temp = std::env::temp_dir();
        let made = |path: &Path| {
            let path = path.to_owned();
            move |source| MountError::Make { path, source }
        };
        let home = tempfile::tempdir().map_err(made(&temp))?;
        let [store, view] = ["store", "view"].map(|name| home.path().join(name));
        for path in [&store, &view] {
            fs::create_dir(path).map_err(made(path))?;
        }
        let (base, image) = (home.path().join("base"), store.join("image"));
        File::create_new(&base).and_then(|file| file.set_len(mib << 20)).map_err(made(&base))?;
        // mkfs writes the whole image now, so that no lazy initialization writes to the image
        // later.
        let eager = "lazy_itable_init=0,lazy_journal_init=0";
        run(
            "mkfs.ext4",
            &["-q", "-F", "-m", "0", "-E", eager]
                .map(Path::new)
                .into_iter()
                .chain([&*base])
                .collect::<Vec<_>>(),
        )?;
        fs::copy(&base, &image).map_err(made(&image))?;
        let failed = |error: crate::faults::FaultFsError| MountError::Make {
            path: view.clone(),
            source: io::Error::other(error),
        };
        let faults = FaultFs::mount(&store, &view, crate::faults::Rules::default()).map_err(failed)?;
        faults.begin_record();
        let mounted = Mounted::new(|_, dir| {
            run("mount", &["-o".as_ref(), "loop,noinit_itable".as_ref(), &view.join("image"), dir])
        })?;
        Ok(RecordedDisk { mounted, faults, home })
    }

    /// Returns the mount point.
    pub fn path(&self) -> PathBuf {
        self.mounted.path()
    }

    /// Returns the number of device flushes so far.
    pub fn flushes(&self) -> usize {
        self.faults.syncs_recorded()
    }

    /// Unmounts the file system and returns the recording.
    ///
    /// # Errors
    /// Returns [`MountError`] if the unmount fails, for instance while a file is open.
    pub fn close(self) -> Result<Recording, MountError> {
        let (recording, faults) = self.unmounted()?;
        faults.close();
        Ok(recording)
    }

    /// Unmounts the file system and returns the recording with its fault file system. The recording
    /// contains all written data, even if another process keeps its own copy of the mount
    /// (`unshare`, `ip netns exec`). In that case the file system stays active there, and this
    /// unmount writes nothing.
    fn unmounted(self) -> Result<(Recording, FaultFs), MountError> {
        let RecordedDisk { mounted, faults, home } = self;
        run("sync", &["-f".as_ref(), &mounted.path()])?;
        mounted.close()?;
        let events = faults.end_record();
        Ok((Recording { home, events }, faults))
    }
}

impl Recording {
    /// Returns the number of device flushes.
    pub fn flushes(&self) -> usize {
        self.events.iter().filter(|event| matches!(event, Recorded::Sync { .. })).count()
    }

    /// Mounts the state after a power loss that follows `flushes` flushes. All writes before the
    /// last of these flushes are present. The writes between it and the next flush are present as
    /// drawn from the seed.
    ///
    /// # Errors
    /// Returns [`MountError`] if the file system cannot be created or mounted.
    pub fn lost_power(&self, flushes: usize, seed: u64) -> Result<Mounted, MountError> {
        let mut random = Random::from_seed(seed);
        Mounted::new(|home, dir| {
            let image = home.join("image");
            run("cp", &["--sparse=always".as_ref(), &self.home.path().join("base"), &image])?;
            let failed = |source| MountError::Make { path: image.clone(), source };
            let file = File::options().write(true).open(&image).map_err(failed)?;
            self.replay(&file, flushes, &mut random).map_err(failed)?;
            drop(file);
            run("mount", &["-o".as_ref(), "loop".as_ref(), &image, dir])
        })
    }

    fn replay(&self, image: &File, flushes: usize, random: &mut Random) -> io::Result<()> {
        let mut left = flushes;
        for event in &self.events {
            let is_safe = left > 0;
            match event {
                Recorded::Sync { .. } if !is_safe => return Ok(()),
                Recorded::Sync { .. } => left -= 1,
                Recorded::Write { at, bytes, .. } => write(image, *at, bytes, is_safe, random)?,
                Recorded::Zero { at, len, .. } => {
                    let zeros = vec![0; usize::try_from(*len).unwrap_or(0)];
                    write(image, *at, &zeros, is_safe, random)?;
                }
            }
        }
        Ok(())
    }
}

/// Applies a write to the image: all of it if it was flushed; otherwise all, none or some of its
/// sectors.
fn write(image: &File, at: u64, bytes: &[u8], is_safe: bool, random: &mut Random) -> io::Result<()> {
    match random.below(3) {
        _ if is_safe => image.write_all_at(bytes, at),
        0 => Ok(()),
        1 => image.write_all_at(bytes, at),
        _ => {
            let mut place = at;
            let has_first_block = random.chance(50);
            for sector in bytes.chunks(SECTOR_BYTES as usize) {
                let is_first = place < FIRST_BLOCK_BYTES;
                if (is_first && has_first_block) || (!is_first && random.chance(50)) {
                    image.write_all_at(sector, place)?;
                }
                place += sector.len() as u64;
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::met_or_skip;
    use std::io::{Read, Write};
    use std::process::{Command, Stdio};

    #[test]
    fn synced_data_survives_power_failure_and_other_writes_may_not() {
        if !met_or_skip(&RecordedDisk::NEEDS) {
            return;
        }
        let disk = RecordedDisk::new(16).unwrap();
        let path = disk.path().join("file");
        let mut file = File::create(&path).unwrap();
        file.write_all(&[1; 100_000]).unwrap();
        file.sync_all().unwrap();
        fs::write(disk.path().join("later"), vec![2; 300_000]).unwrap();
        drop(file);
        let before = disk.flushes();
        let recording = disk.close().unwrap();
        let flushes = recording.flushes();
        assert!(before >= 1 && flushes > before, "{before} flushes, then {flushes}");
        let (mut without, mut with) = (0, 0);
        for after in 0..=flushes {
            let found = recording.lost_power(after, after as u64).unwrap();
            let is_there = fs::read(found.path().join("file")).is_ok_and(|bytes| bytes == [1; 100_000]);
            *if is_there { &mut with } else { &mut without } += 1;
            found.close().unwrap();
        }
        assert!(without > 0 && with > 0, "{without} without the file, {with} with it");
        let found = recording.lost_power(flushes, 0).unwrap();
        assert_eq!(fs::read(found.path().join("later")).unwrap(), vec![2; 300_000]);
        found.close().unwrap();
    }

    /// Regression: data that was written and not yet synced was missing after the last flush.
    #[test]
    fn recording_is_complete_if_another_process_holds_the_mount() {
        let needs = [&RecordedDisk::NEEDS[..], &[Need::Program("unshare")]].concat();
        if !met_or_skip(&needs) {
            return;
        }
        let disk = RecordedDisk::new(16).unwrap();
        fs::write(disk.path().join("file"), vec![3; 300_000]).unwrap();
        let mut other = Command::new("unshare")
            .args(["-m", "sh", "-c", "echo there; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut told = [0; 5];
        other.stdout.as_mut().unwrap().read_exact(&mut told).unwrap();
        let (recording, faults) = disk.unmounted().unwrap();
        // The file system under the loop device ends with its last use.
        drop(other.stdin.take());
        assert!(other.wait().unwrap().success());
        faults.close();
        let found = recording.lost_power(recording.flushes(), 0).unwrap();
        assert!(fs::read(found.path().join("file")).unwrap() == vec![3; 300_000]);
        found.close().unwrap();
    }
}
