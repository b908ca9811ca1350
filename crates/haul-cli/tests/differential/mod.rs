//! The tools held against the system's, on command lines, trees and surroundings drawn from a seed.
//!
//! A case runs in two sandboxes made alike, once with each tool, and both must end alike: what stands there, with
//! owners, modes, times, attributes and names of one file; both outputs; the exit status. A case that fails is made
//! small and printed as a test for `regressions.rs`.
//!
//! `HAUL_DIFFERENTIAL_CASES` says how many cases are run, `HAUL_DIFFERENTIAL_SEED` which; so they do for the other tests that draw.

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

/// The seed of a run that names none: the same cases on every machine.
const SEED: u64 = 20_261_121;

/// Failures that are made small and printed; more only count.
const SHOWN_MAX: usize = 12;

#[test]
fn cp_ends_as_the_systems() {
    hold_against_the_system(Tool::Cp, 800);
}

#[test]
fn mv_ends_as_the_systems() {
    hold_against_the_system(Tool::Mv, 400);
}

#[test]
fn install_ends_as_the_systems() {
    hold_against_the_system(Tool::Install, 400);
}

/// A case that failed, made small.
struct Failure {
    number: u64,
    line: String,
    smallest: Case,
    difference: Difference,
}

/// Runs so many cases, unless the environment names another number.
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

/// Makes a failure small and keeps it, unless one like it is kept already.
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

/// What is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) seed: u64,
    /// How many cases are run.
    pub(crate) cases: u64,
}

impl Wanted {
    /// Returns the seed and the number of cases of the environment where it sets them. A soak run draws its seed.
    pub(crate) fn or_as_the_environment_says(self) -> Wanted {
        Wanted {
            seed: number_from("HAUL_DIFFERENTIAL_SEED")
                .or_else(haul_lab::random::soak_seed)
                .unwrap_or(self.seed),
            cases: number_from("HAUL_DIFFERENTIAL_CASES").unwrap_or(self.cases),
        }
    }
}

/// # Panics
/// Where a variable holds something else: a typing error must not pass for the usual run.
fn number_from(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is {value:?}, which is no number")))
}
