//! `cp`, compared with the `cp` of GNU coreutils 9.1. The same script runs in two identical
//! sandboxes, once with each tool. Trees, output, messages and exit status must be identical.

mod batch;
pub(crate) mod differences;
mod generated;
mod later;
mod own;
mod preserved;
mod prompts;
mod sinks;
mod table;
mod user;
mod words;

use crate::twins::{RunResult, Twins};

/// Runs a script with each `cp`, and panics if the results differ.
#[track_caller]
fn compare(name: &str, script: &str) {
    let twins = Twins::new();
    if let Some(difference) = twins.difference(script) {
        panic!("{name}: {script}\n{difference}");
    }
}

/// Runs a table of scripts, and panics once with each line that differed.
fn compare_all(lines: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (name, script) in lines {
        if let Some(difference) = Twins::new().difference(script) {
            wrong.push(format!("{name}: {script}\n{difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {} differ\n{}", wrong.len(), lines.len(), wrong.join("\n"));
}

/// Runs a script with haul's `cp` only.
fn ours(script: &str) -> RunResult {
    Twins::new().ours(script)
}
