//! Tests of jobs that are refused because a newer version of haul has used them.

use super::{job, note, settings, subject, take};
use haul_engine::log::{CommandLine, LogWriter, RecordWriter, SyncPolicy};
use haul_lab::newer;
use haul_log::record::{Progress, Status};
use std::fs;
use std::path::PathBuf;

/// Regression: when a newer version returned to its job, the record said that the job was running,
/// and the lock said that it had been interrupted.
#[test]
fn refused_job_stays_unchanged() {
    let dir = tempfile::tempdir().unwrap();
    let call = || CommandLine { kind: "cp", words: vec!["cp".into()], cwd: dir.path().to_path_buf() };
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
        let (record_writer, _) = RecordWriter::begin(&hold, call()).unwrap();
        let (log_writer, _) = LogWriter::on(hold, job(), settings(SyncPolicy::Group)).unwrap();
        let (key, _) = log_writer.file(&subject(1, 100)).unwrap();
        note(&log_writer, key, [1]);
        log_writer.commit().unwrap();
        record_writer.end(Status::Stopped, 130, Progress::default()).unwrap();
        log_writer.close().unwrap();
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
            let error = RecordWriter::begin(&hold, call()).unwrap_err();
            assert!(error.to_string().contains("version"), "{name}: {error}");
            drop(hold);
            assert_eq!(all(), before, "{name}, clean: {is_clean}");
            if name != "record" {
                LogWriter::on(take(dir.path()).unwrap(), job(), settings(SyncPolicy::Group)).unwrap_err();
                assert_eq!(all(), before, "{name}, clean: {is_clean}");
            }
            whole.iter().for_each(|(path, bytes)| fs::write(path, bytes).unwrap());
        }
        assert_eq!(take(dir.path()).unwrap().unclean_holder().is_none(), is_clean);
    }
}
