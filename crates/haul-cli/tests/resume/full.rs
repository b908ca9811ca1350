//! Copies whose log, or whose complete state directory, fills up during the run: after a number of
//! writes each further write fails. And a state directory that cannot hold a lock.

use super::Fixture;
use crate::faults::fixture::Running;
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_log::record::Status;
use std::fs;

const STYLES: [(&[&str], u32); 4] = [
    (&["--sync=object", "--threads=1", "--log-mechanism=file", "--log-encoding=int"], 3),
    (&["--sync=object", "--threads=1", "--log-mechanism=transaction:2", "--log-encoding=char"], 5),
    // Objects that workers finish together share a write.
    (&["--sync=object", "--threads=2", "--log-mechanism=universal", "--log-encoding=bit8"], 8),
    (&["--sync=object", "--threads=2", "--log-mechanism=file", "--log-encoding=enc"], 12),
];

/// Mounts a file system with these fault rules as the state directory of a test.
fn state_on(fixture: &Fixture, rules: &str) -> FaultFs {
    for name in ["store", "state"] {
        fs::create_dir(fixture.path(name)).unwrap();
    }
    FaultFs::mount(&fixture.path("store"), &fixture.path("state"), rules.parse().unwrap()).unwrap()
}

/// Returns a rule by which each write to a log fails after `writes` writes.
fn full_after(writes: u32) -> String {
    format!("*/log/* write .. errno ENOSPC after {writes}")
}

/// Regression test: the loop that locks a job never ended, and ignored SIGTERM.
#[test]
fn a_state_directory_with_unstable_inode_numbers_is_refused() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let fixture = Fixture::new(66);
    let faults = state_on(&fixture, "*lock stat .. renumber");
    let ended = Running::new(&mut fixture.cp(&[])).end();
    ended.failed_with(&["cannot lock job ", "another inode number", "use --state-dir"]);
    assert!(!fixture.path("sink").exists(), "nothing was copied");
    faults.close();
}

#[test]
fn a_log_that_runs_out_of_space_is_reported_once_and_the_copy_completes() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for (seed, (style, writes)) in (60..).zip(STYLES) {
        let fixture = Fixture::new(seed);
        let faults = state_on(&fixture, &full_after(writes));
        let ended = fixture.ends(style);
        ended.is_fine(&format!("{style:?}"));
        assert_eq!(ended.stderr.matches("the copy continues").count(), 1, "{style:?}: {ended:?}");
        assert!(ended.stderr.contains("No space left"), "{style:?}: {ended:?}");
        fixture.is_whole(&format!("{style:?}"));
        assert_eq!(fixture.record().status, Status::Finished, "{style:?}");
        assert!(!fixture.job().join("log").exists(), "{style:?}: the log goes with the job");
        faults.close();
    }
}

/// The failing write is one to the lock, to the record, to the log, or at the end of the job.
#[test]
fn a_state_directory_full_after_n_writes_refuses_or_completes_the_copy() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let (mut refused, mut went_on) = (0, 0);
    for writes in [0, 1, 2, 3, 4, 5, 6, 8, 11, 15, 20, 30] {
        let what = format!("full after {writes} writes");
        let fixture = Fixture::new(64);
        let faults = state_on(&fixture, &format!("* write .. errno ENOSPC after {writes}"));
        let ended = fixture.ends(STYLES[0].0);
        assert!(ended.stderr.contains("No space left"), "{what}: {ended:?}");
        if fixture.path("sink").exists() {
            fixture.is_whole(&what);
            assert!(ended.stderr.contains("the copy continues"), "{what}: {ended:?}");
            went_on += 1;
        } else {
            refused += 1;
        }
        // The end of the job could not be recorded either.
        assert_eq!(ended.code, Some(1), "{what}: {ended:?}");
        faults.set_rules("".parse().unwrap());
        fixture.ends(STYLES[0].0).is_fine(&what);
        fixture.is_whole(&what);
        assert_eq!(fixture.record().status, Status::Finished, "{what}");
        faults.close();
    }
    assert!(refused > 1 && went_on > 1, "{refused} refused, {went_on} went on");
}
