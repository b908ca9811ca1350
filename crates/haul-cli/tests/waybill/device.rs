//! Damage on the device beneath a page cache with the right bytes: only a read that bypasses the
//! cache finds it.

use super::{good, pattern, run};
use haul_lab::mounts::SmallFs;
use haul_lab::needs::{Need, met_or_skip};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Returns the image file of the file system mounted at `place`.
fn image_of(place: &Path) -> PathBuf {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let place = place.to_str().unwrap();
    let line = table.lines().find(|line| line.split(' ').nth(4) == Some(place)).unwrap();
    let device = line.split(" - ").nth(1).unwrap().split(' ').nth(1).unwrap();
    let name = device.strip_prefix("/dev/").unwrap();
    let image = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file")).unwrap();
    PathBuf::from(image.trim_end())
}

#[test]
fn damage_on_the_device_is_detected_despite_the_page_cache() {
    if !met_or_skip(&[Need::Loop, Need::Program("mkfs.ext4")]) {
        return;
    }
    let (small, dir) = (SmallFs::new(48).unwrap(), tempfile::tempdir().unwrap());
    let bytes = pattern(300_000, 9);
    let path = small.path().join("data");
    fs::write(&path, &bytes).unwrap();
    File::open(&path).unwrap().sync_all().unwrap();
    let root = small.path();
    let root = root.to_str().unwrap();
    good(dir.path(), &["sum", "--object-size", "64K", "--waybill", "w", &format!("{root}/data")]);

    let image = image_of(&small.path());
    let blocks = fs::read(&image).unwrap();
    let needle = &bytes[70_000..70_064];
    let at =
        blocks.windows(needle.len()).position(|window| window == needle).expect("the file lies in the image");
    let hurt = [blocks[at] ^ 0x10];
    File::options().write(true).open(&image).unwrap().write_all_at(&hurt, at as u64).unwrap();

    good(dir.path(), &["verify", "-q", "--cached", "w", root]);
    let ran = run(dir.path(), &["verify", "w", root]);
    assert_eq!(
        (ran.status, ran.out.as_str()),
        (Some(1), "'data': rotted: bytes 65536-131072\n"),
        "{}",
        ran.err
    );
    assert_eq!(fs::read(&path).unwrap(), bytes, "the page cache still knew better");
    small.close().unwrap();
}
