//! `mv`, compared with the `mv` of GNU coreutils 9.1 in identical sandboxes, within a file system
//! and across two. In addition haul removes no source before its copy is complete, compared and
//! durable.

mod across;
mod deep;
mod faults;
mod generated;
mod killed;
mod own;
mod table;
mod user;

use crate::twins::{RunResult, SecondFs, Twins};

/// Runs each script with each `mv`, and panics once with each line that differed.
fn compare_all(lines: &[(&str, &str)]) {
    compare_in(lines, || Some(Twins::new()));
}

/// Does the same as [`compare_all`], with another file system behind the link `x-fs`.
fn compare_across(beside: SecondFs, lines: &[(&str, &str)]) {
    compare_in(lines, || Twins::across(beside));
}

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

/// Runs a script with haul's `mv` only.
fn ours(script: &str) -> RunResult {
    Twins::new().ours(script)
}
