//! Tests of the order of syncs and renames in the folder of a log.

use super::{files, open, settings, subject};
use haul_engine::log::SyncPolicy;
use haul_lab::faults::{Action, FaultFs, Rules};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::{TEST_TIMEOUT, wait_until};
use haul_model::ObjectIndex;
use std::fs;
use std::thread;

/// Regression: a file system that makes names durable before the bytes of a new file left an empty
/// index after a power loss.
#[test]
fn replacement_is_synced_before_its_rename() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let [store, view] = ["store", "view"].map(|name| dir.path().join(name));
    [&store, &view].into_iter().for_each(|place| fs::create_dir(place).unwrap());
    let faults = FaultFs::mount(&store, &view, Rules::default()).unwrap();
    let (log_writer, _) = open(&view, settings(SyncPolicy::Group));
    let (key, _) = log_writer.file(&subject(1, 9)).unwrap();
    log_writer.durable_together(key, [ObjectIndex(1)]);
    log_writer.commit().unwrap();
    let rule = format!("*.new fsync .. delay {} times 1", 2 * TEST_TIMEOUT.as_millis());
    faults.set_rules(rule.parse().unwrap());
    let is_held = || faults.fired().iter().any(|fired| matches!(fired.action, Action::Delay(_)));
    thread::scope(|scope| {
        let revoking = scope.spawn(|| log_writer.revoke(key));
        wait_until("a sync of the draft", || is_held() || revoking.is_finished());
        assert!(is_held(), "the draft was not synced");
        let drafts =
            files(&store).into_iter().filter(|path| path.extension().is_some_and(|end| end == "new"));
        let drafts = drafts.count();
        faults.release();
        revoking.join().unwrap().unwrap();
        assert_eq!(drafts, 1, "it had its name before the sync");
    });
    assert!(log_writer.file(&subject(1, 9)).unwrap().1.is_empty());
    drop(log_writer);
    faults.close();
}
