//! Tests of the size of a log for the "big" set, 100 files of 64 MiB: the table of
//! docs/formats/log.md.

use super::medium::{Dice, Medium};
use super::{job, mark};
use haul_log::objects::{
    Encoding, FileKey, Identity, Job, Log, Mechanism, Order, SourceVersion, Style, Subject,
};
use haul_model::{Moment, ObjectSize, RelPath};
use std::fmt::Write;

const FILES: usize = 100;
const FILE_BYTES: u64 = 64 << 20;

/// Number of files that eight workers process at once, and number of objects per group commit.
const AT_ONCE: usize = 8;
const GROUP: usize = 16;

fn styles() -> impl Iterator<Item = Style> {
    Mechanism::ALL
        .into_iter()
        .flat_map(|mechanism| Encoding::ALL.map(|encoding| Style { mechanism, encoding }))
}

/// Returns the maximum size in bytes and number of files of the log after any commit, with
/// `at_once` files in progress.
fn most(style: Style, object: u64, at_once: usize) -> (usize, usize) {
    let job = Job { object: ObjectSize::new(object).unwrap(), ..job() };
    let (mut medium, mut log, mut dice) = (Medium::default(), Log::new(job, style, 1), Dice::new(3));
    let mut waiting = (0..FILES).map(|number| {
        let path = RelPath::new(format!("set/{number:03}.bin").as_bytes()).unwrap();
        let source = SourceVersion {
            size: FILE_BYTES,
            mtime: Moment { sec: 1, nsec: 2 },
            identity: Identity([1; 16]),
        };
        Subject { path, source, sink: Identity([2; 16]) }
    });
    let mut open: Vec<(FileKey, Vec<u64>)> = Vec::new();
    let (mut noted, mut most) = (0, (0, 0));
    loop {
        while let Some(subject) = (open.len() < at_once).then(|| waiting.next()).flatten() {
            open.push((log.open(&subject).unwrap(), (0..FILE_BYTES / object).collect()));
        }
        if open.is_empty() {
            return most;
        }
        // Objects end in any order; the last one of a file completes the file.
        let file = dice.below(open.len());
        let (key, left) = &mut open[file];
        let next = dice.below(left.len());
        mark(&mut log, *key, [left.swap_remove(next)]);
        if left.is_empty() {
            log.complete(*key);
            open.swap_remove(file);
        }
        noted += 1;
        if noted % GROUP == 0 {
            medium.perform(&log.commit());
            most = (most.0.max(medium.bytes()), most.1.max(medium.files.len()));
        }
    }
}

fn table() -> String {
    let mut table = String::from(
        "| mechanism | encoding | 4 MiB, 8 | 1 MiB, 8 | 4 MiB, 100 | 1 MiB, 100 | files, 8 |\n|---|---|---:|---:|---:|---:|---:|\n",
    );
    for style in styles() {
        let [a, b, c, d] = [(4, AT_ONCE), (1, AT_ONCE), (4, FILES), (1, FILES)]
            .map(|(mib, at_once)| most(style, mib << 20, at_once));
        let Style { mechanism, encoding } = style;
        writeln!(table, "| {mechanism} | {encoding} | {} | {} | {} | {} | {} |", a.0, b.0, c.0, d.0, a.1)
            .unwrap();
    }
    table
}

#[test]
fn log_sizes_match_the_documented_table() {
    let (table, documented) = (table(), include_str!("../../../../../docs/formats/log.md"));
    assert!(documented.contains(&table), "docs/formats/log.md is to have this table:\n{table}");
}

#[test]
fn default_style_takes_at_most_16_kib() {
    for (mib, at_once) in [(4, AT_ONCE), (1, AT_ONCE), (4, FILES), (1, FILES)] {
        let (bytes, files) = most(Style::DEFAULT, mib << 20, at_once);
        assert!(
            bytes <= 16 << 10 && files == 2,
            "{bytes} bytes, {files} files: {mib} MiB, {at_once} at once"
        );
    }
}

/// Regression: the log of a file was built in memory up to the page of its last object, 1 GiB for a
/// file of 2^32 objects, before anything could refuse it.
#[test]
fn a_commit_holds_only_the_pages_of_its_objects() {
    for style in styles() {
        let job = Job { object: ObjectSize::new(64 << 10).unwrap(), ..job() };
        let blocks = style.encoding.objects_max().min(1 << 40);
        let source = SourceVersion {
            size: blocks * job.object.bytes(),
            mtime: Moment { sec: 1, nsec: 2 },
            identity: Identity([1; 16]),
        };
        let path = RelPath::new(b"large").unwrap();
        let subject = Subject { path, source, sink: Identity([2; 16]) };
        let mut log = Log::new(job, style, 1);
        let key = log.open(&subject).unwrap();
        mark(&mut log, key, [0, blocks / 2, blocks - 1]);
        // Next to existing files of the same names, which are replaced.
        for commit in 0..2 {
            let orders = log.commit();
            let parts = |order: &Order| match order {
                Order::Write { bytes, .. } => bytes.len(),
                Order::Replace { parts, .. } => parts.iter().map(|(_, bytes)| bytes.len()).sum(),
                Order::Remove { .. } | Order::Sync => 0,
            };
            let bytes: usize = orders.iter().map(parts).sum();
            assert!((1..4096).contains(&bytes), "{style:?}, commit {commit}: {bytes} bytes");
            log.start_over();
        }
    }
}
