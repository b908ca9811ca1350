//! `install`, compared with that of GNU coreutils 9.1 in identical sandboxes.

mod own;
mod table;
mod user;

use crate::twins::{RunResult, Twins};

/// Runs each script with each `install`, and panics once with each line that differed.
fn compare_in(lines: &[(&str, &str)], twins: impl Fn() -> Option<Twins>) {
    let mut wrong = Vec::new();
    for (name, script) in lines {
        let Some(twins) = twins() else { return };
        if let Some(difference) = twins.difference(script) {
            wrong.push(format!("{name}: {script}\n{difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), lines.len(), wrong.join("\n"));
}

fn compare_all(lines: &[(&str, &str)]) {
    compare_in(lines, || Some(Twins::new()));
}

/// Runs a script with haul's `install` only.
fn ours(script: &str) -> RunResult {
    Twins::new().ours(script)
}
