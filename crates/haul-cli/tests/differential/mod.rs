//! haul's tools compared with those of the system, on random command lines, trees and environments.
//!
//! A case runs in two identical sandboxes, once with each tool. Both results must be equal: the
//! entries with owners, modes, times, attributes and hard links, both outputs, and the exit status.
//! A failing case is reduced and printed as a test for `regressions.rs`.
//!
//! `HAUL_DIFFERENTIAL_CASES` sets the number of cases and `HAUL_DIFFERENTIAL_SEED` their seed, also
//! for the other random tests.

mod case;
mod compare;
mod deliberate;
mod grammar;
mod grow;
mod plant;
mod portrait;
mod regressions;
mod shrink;
mod twins;

use case::{Case, Tool};
use compare::Difference;
use haul_lab::random::Random;
use std::fmt::Write;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use twins::Twins;

/// Seed of a run without a given one: the same cases on every machine.
const SEED: u64 = 20_261_121;

/// Maximum number of failures that are reduced and printed; others are only counted.
const SHOWN_MAX: usize = 12;

#[test]
fn random_cp_command_lines_match_the_system() {
    hold_against_the_system(Tool::Cp, 800);
}

#[test]
fn random_mv_command_lines_match_the_system() {
    hold_against_the_system(Tool::Mv, 400);
}

#[test]
fn random_install_command_lines_match_the_system() {
    hold_against_the_system(Tool::Install, 400);
}

/// A reduced failing case.
struct Failure {
    number: u64,
    line: String,
    smallest: Case,
    difference: Difference,
}

/// Runs `cases` cases, unless the environment sets another number.
fn hold_against_the_system(tool: Tool, cases: u64) {
    let Wanted { seed, cases } = Wanted { seed: SEED, cases }.or_as_the_environment_says();
    let next = AtomicU64::new(0);
    let failed = AtomicU64::new(0);
    let shown: Mutex<Vec<Failure>> = Mutex::new(Vec::new());
    let workers = std::thread::available_parallelism().map_or(1, NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                let Some(mut twins) = Twins::new() else { return };
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= cases {
                        return;
                    }
                    let case = grammar::draw(tool, &mut Random::for_part(seed, number));
                    let Some(difference) = twins.difference(&case) else { continue };
                    failed.fetch_add(1, Ordering::Relaxed);
                    if shown.lock().unwrap().len() < SHOWN_MAX {
                        show(&mut twins, &shown, number, case, difference);
                    }
                }
            });
        }
    });
    let shown = shown.into_inner().unwrap();
    let failed = failed.into_inner();
    assert!(failed == 0, "{failed} of {cases} cases of seed {seed} differ\n{}", report(&shown));
}

/// Reduces a failure and stores it, unless an equal one is stored.
fn show(twins: &mut Twins, shown: &Mutex<Vec<Failure>>, number: u64, case: Case, difference: Difference) {
    let line = case.line();
    let (smallest, difference) = shrink::shrink(|case| twins.difference(case), case, difference);
    let mut shown = shown.lock().unwrap();
    if !shown.iter().any(|other| other.smallest == smallest) {
        shown.push(Failure { number, line, smallest, difference });
    }
}

fn report(failures: &[Failure]) -> String {
    let mut text = String::new();
    for Failure { number, line, smallest, difference } in failures {
        let _ = writeln!(text, "\ncase {number}: {line}\n{smallest}\n{difference}");
    }
    text
}

/// Parameters of a random run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) seed: u64,
    /// Number of cases.
    pub(crate) cases: u64,
}

impl Wanted {
    /// Returns the seed and the number of cases of the environment if it sets them. A soak run
    /// draws its seed.
    pub(crate) fn or_as_the_environment_says(self) -> Wanted {
        Wanted {
            seed: number_from("HAUL_DIFFERENTIAL_SEED")
                .or_else(haul_lab::random::soak_seed)
                .unwrap_or(self.seed),
            cases: number_from("HAUL_DIFFERENTIAL_CASES").unwrap_or(self.cases),
        }
    }
}

/// Returns the number in an environment variable, or `None` if it is not set.
///
/// # Panics
/// If the variable holds no number: a typing error must not pass for the usual run.
fn number_from(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}, which is no number")))
}
