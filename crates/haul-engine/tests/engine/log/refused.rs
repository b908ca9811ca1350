//! Tests of jobs that are refused because a newer version of haul has used them.

use super::{job, note, settings, subject, take};
use haul_engine::log::{Call, Keeper, Ledger, SyncPolicy};
use haul_lab::newer;
use haul_log::record::{Progress, Status};
use std::fs;
use std::path::PathBuf;

/// Regression: when a newer version returned to its job, the record said that the job was running,
/// and the lock said that it had been interrupted.
#[test]
fn what_is_refused_stays_as_it_was_found() {
    let dir = tempfile::tempdir().unwrap();
    let call = || Call { kind: "cp", words: vec!["cp".into()], cwd: dir.path().to_path_buf() };
    let home = dir.path().join("jobs").join(job().id.to_hex());
    let all = || {
        let found = [home.clone(), home.join("log")].map(|folder| fs::read_dir(folder).unwrap().flatten());
        let files = found.into_iter().flatten().map(|entry| entry.path()).filter(|path| path.is_file());
        let mut files: Vec<(PathBuf, Vec<u8>)> =
            files.map(|path| (path.clone(), fs::read(&path).unwrap())).collect();
        files.sort();
        files
    };
    for is_clean in [true, false] {
        let hold = take(dir.path()).unwrap();
        let (ledger, _) = Ledger::begin(&hold, call()).unwrap();
        let (keeper, _) = Keeper::on(hold, job(), settings(SyncPolicy::Group)).unwrap();
        let (key, _) = keeper.file(&subject(1, 100)).unwrap();
        note(&keeper, key, [1]);
        keeper.commit().unwrap();
        ledger.end(Status::Stopped, 130, Progress::default()).unwrap();
        keeper.close().unwrap();
        if !is_clean {
            fs::write(home.join("lock"), "77 elsewhere\n").unwrap();
        }
        let whole = all();
        for name in ["log/universal.index", "record"] {
            let path = home.join(name);
            let mut bytes = fs::read(&path).unwrap();
            match name {
                "record" => bytes = newer::record(),
                _ => newer::log(&mut bytes, 9),
            }
            fs::write(&path, bytes).unwrap();
            let before = all();
            let hold = take(dir.path()).unwrap();
            let error = Ledger::begin(&hold, call()).unwrap_err();
            assert!(error.to_string().contains("version"), "{name}: {error}");
            drop(hold);
            assert_eq!(all(), before, "{name}, clean: {is_clean}");
            if name != "record" {
                Keeper::on(take(dir.path()).unwrap(), job(), settings(SyncPolicy::Group)).unwrap_err();
                assert_eq!(all(), before, "{name}, clean: {is_clean}");
            }
            whole.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        }
        assert_eq!(take(dir.path()).unwrap().left_by().is_none(), is_clean);
    }
}
