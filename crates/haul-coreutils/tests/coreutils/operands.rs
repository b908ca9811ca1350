//! Operands that wait for the end of another one.

use super::bed::{Place, archive, files_of, onto, run};
use super::variants::plain;
use haul_coreutils::cp::{Backup, BackupMethod, Batch, BatchItem, CopySettings, Operands};
use haul_engine::copy::{Moving, Verify, Workers};
use haul_lab::snapshot::Snapshot;
use std::ffi::OsString;
use std::fs;

/// Regression: operands that wait for the end of another one were not copied, with status 0, if a
/// thread verified the files of that one after the last turn of a worker.
#[test]
fn operands_that_wait_are_copied_with_each_verification() {
    type Change = fn(&mut CopySettings, &dyn Fn(&str) -> OsString);
    let cases: [(&str, Change); 6] =
        [
            ("side by side", |_, _| {}),
            ("--parents", |settings, _| {
                if let Operands::IntoDirectory { parents, .. } = &mut settings.operands {
                    *parents = true;
                }
            }),
            ("--backup", |settings, _| {
                settings.rules.backup = Some(Backup { method: BackupMethod::Numbered, suffix: "~".into() });
            }),
            ("one name twice", |settings, path| {
                if let Operands::IntoDirectory { sources, .. } = &mut settings.operands {
                    sources[1] = path("x/a");
                }
            }),
            ("--update, one operand twice", |settings, path| {
                settings.rules.update = true;
                if let Operands::IntoDirectory { sources, .. } = &mut settings.operands {
                    sources.insert(1, path("a"));
                }
            }),
            ("a batch with one sink twice", |settings, path| {
                let lines = [("a", "dst/q"), ("b", "dst/q"), ("c", "dst/r")].map(|(source, sink)| {
                    BatchItem { source: path(source), sink: path(sink), ranges: Vec::new(), backup: None }
                });
                settings.operands = Operands::Batch(Batch::new(Vec::from(lines).into_iter()));
            }),
        ];
    for ((name, change), workers) in cases.iter().flat_map(|case| [1, 2, 4].map(|workers| (case, workers))) {
        for verify in [Verify::Stream, Verify::ReadBack, Verify::Reread, Verify::Hybrid] {
            let place = Place::new();
            let path = |name: &str| place.path(name).into_os_string();
            for (dir, files) in [("a", "a"), ("b", "b"), ("x/a", "b"), ("c", "c"), ("dst", "")] {
                fs::create_dir_all(place.path(dir)).unwrap();
                for number in 0..if files.is_empty() { 0 } else { 3 } {
                    fs::write(place.path(dir).join(format!("{files}{number}")), dir).unwrap();
                }
            }
            let moving = Moving { verify, workers: Workers::exactly(workers), ..plain() };
            let sources = ["a", "b", "c"].map(path).to_vec();
            let operands = Operands::IntoDirectory { sources, directory: path("dst"), parents: false };
            let onto = onto("".as_ref(), "".as_ref(), archive(), &moving);
            let mut settings = CopySettings { operands, ..onto };
            change(&mut settings, &path);
            let result = run(&settings);
            let what = format!("{name}, {workers} workers, {verify:?}: {result:?}");
            assert_eq!((result.outcome.failures, result.outcome.interrupted), (0, false), "{what}");
            let snapshot = Snapshot::take(&place.path("dst")).unwrap();
            let mut found: Vec<_> = files_of(&snapshot)
                .into_iter()
                .map(|(path, _)| path.file_name().unwrap().to_str().unwrap().to_owned())
                .collect();
            found.sort();
            assert_eq!(found, ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2"], "{what}");
        }
    }
}
