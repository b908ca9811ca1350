//! Load of the storage of the served directories, for the counters.

use haul_sys::beneath::open_root;
use haul_sys::filesystem;
use haul_sys::stat::stat_fd;
use haul_web::{Metric, MetricKind};
use rustix::fs::{major, minor};
use std::ffi::OsString;
use std::fs;

/// Size in bytes of a sector in the statistics of a block device, whatever the device has.
const SECTOR: u64 = 512;

/// A served directory.
pub(super) struct StorageTarget {
    /// Name for the label of its values.
    pub(super) name: String,
    pub(super) path: OsString,
}

/// Statistics of a block device since the start of the host (the kernel's
/// Documentation/block/stat.rst).
struct DeviceStat {
    read: u64,
    written: u64,
    /// Time in milliseconds in which the device had requests.
    busy: u64,
}

/// Returns the load of each target. Without a block device, as on a network file system, a target
/// has only its free space.
pub(super) fn metrics(targets: &[StorageTarget]) -> Vec<Metric> {
    let [mut free, mut read, mut written, mut busy] = [const { Vec::new() }; 4];
    for target in targets {
        let label = || Some(("root", target.name.clone().into()));
        let Ok(root) = open_root(&target.path) else { continue };
        if let Some(bytes) = filesystem::space(&root).ok().and_then(|space| space.free) {
            free.push((label(), bytes));
        }
        if let Some(stat) = stat_fd(&root).ok().and_then(|facts| DeviceStat::of(facts.dev)) {
            read.push((label(), stat.read));
            written.push((label(), stat.written));
            busy.push((label(), stat.busy));
        }
    }
    let family = |kind, name, help, unit, samples| Metric { name, help, kind, unit: Some(unit), samples };
    let about_device = |name, help, unit, samples| family(MetricKind::Counter, name, help, unit, samples);
    vec![
        family(MetricKind::Gauge, "haul_storage_free_bytes", "Free space of a directory.", "bytes", free),
        about_device("haul_storage_read_bytes", "Bytes that a device has read.", "bytes", read),
        about_device("haul_storage_written_bytes", "Bytes that a device has written.", "bytes", written),
        about_device(
            "haul_storage_busy_milliseconds",
            "Time in which a device had requests.",
            "milliseconds",
            busy,
        ),
    ]
}

impl DeviceStat {
    /// Returns the statistics of a device, or `None` if it is no block device.
    fn of(device: u64) -> Option<DeviceStat> {
        let path = format!("/sys/dev/block/{}:{}/stat", major(device), minor(device));
        DeviceStat::parse(&fs::read_to_string(path).ok()?)
    }

    fn parse(text: &str) -> Option<DeviceStat> {
        let values: Vec<u64> = text.split_whitespace().map(|value| value.parse().unwrap_or(0)).collect();
        let [_, _, read, _, _, _, written, _, _, busy, ..] = values[..] else { return None };
        let bytes = |sectors: u64| sectors.saturating_mul(SECTOR);
        Some(DeviceStat { read: bytes(read), written: bytes(written), busy })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_of_a_device_are_read() {
        let stat = DeviceStat::parse("  12 3 80 4 5 6 160 7 0 88 99 1 2\n").expect("all fields");
        assert_eq!((stat.read, stat.written, stat.busy), (80 * 512, 160 * 512, 88));
        assert!(DeviceStat::parse("1 2 3").is_none());
    }

    #[test]
    fn each_target_has_its_free_space() {
        let home = tempfile::tempdir().unwrap();
        let target =
            |name: &str, path: &std::path::Path| StorageTarget { name: name.into(), path: path.into() };
        let found = metrics(&[target("data", home.path()), target("gone", &home.path().join("gone"))]);
        assert_eq!(found[0].samples.len(), 1);
        let (label, free) = &found[0].samples[0];
        assert_eq!(label.as_ref().map(|(name, value)| (*name, value.as_ref())), Some(("root", "data")));
        assert!(*free > 0);
    }
}
