//! Random command lines: options and operands are drawn from a seed, and run by both tools.

use super::SecondFs;
use crate::differential::Wanted;
use crate::twins::Twins;
use haul_lab::random::Random;

/// Number of lines for each of the two setups.
const LINES: u64 = 60;

/// Options that can be combined in any number. Options that prompt or name places are excluded.
const OPTIONS: [&str; 11] =
    ["-f", "-n", "-u", "-v", "-v", "-b", "-b", "--backup=numbered", "--backup=existing", "-S.o", "-Z"];

const SOURCES: [&str; 25] = [
    "a", "b", "c", "empty", "x", "suid", "ro", "new", "la", "la2", "ha", "dangling", "loop", "ld", "ld/",
    "d", "e", "t", "t/", "t/s", "t/1", "t/h1", "p1/q", "full", "no",
];

const SINKS: [&str; 15] =
    ["z", "z/", "d", "d/", "e", "full", "a", "b", "la", "dangling", "ld", "ha", "new", "no/z", "t/s"];

/// Sinks on the other file system, and one that is not.
const FAR_SINKS: [&str; 8] = ["x-fs/", "x-fs/z", "x-fs/d", "x-fs/f", "x-fs/full", "x-fs/l", "x-fs", "d"];

/// Shell code that creates the existing files on the other file system.
const FAR_SETUP: &str = "mkdir -p x-fs/d x-fs/full/t/k x-fs/full/d/k; printf f > x-fs/f; printf g > x-fs/full/a; \
    ln -s f x-fs/l; ln -s f x-fs/d/b; touch -h -d 2001-02-03 x-fs/d x-fs/full x-fs/f x-fs/l x-fs/full/a; ";

fn draw(random: &mut Random, sinks: &[&str]) -> String {
    let mut words = vec!["mv".to_owned()];
    for _ in 0..random.index(4) {
        words.push(OPTIONS[random.index(OPTIONS.len())].to_owned());
    }
    for _ in 0..1 + if random.chance(40) { random.index(4) } else { 0 } {
        words.push(SOURCES[random.index(SOURCES.len())].to_owned());
    }
    words.push(sinks[random.index(sinks.len())].to_owned());
    words.join(" ")
}

fn run(seed: u64, setup: &str, sinks: &[&str], twins: impl Fn() -> Option<Twins>) {
    let Wanted { seed, cases } = Wanted { seed, cases: LINES }.or_as_the_environment_says();
    let mut random = Random::from_seed(seed);
    let mut wrong = Vec::new();
    for _ in 0..cases {
        let [first, second] = [(); 2].map(|()| draw(&mut random, sinks));
        // The output has any order, and any name of a file with several names may be the first. The
        // second line runs on the results of the first.
        let script = format!(
            "{setup}{{ {first}; echo first $? >&2; {second}; echo second $? >&2; }} \
             | grep -Ev \"^copied 't/(1|h1|s/h1)'\" | sort"
        );
        let Some(twins) = twins() else { return };
        if let Some(difference) = twins.difference(&script) {
            wrong.push(format!("{script}\n{difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {cases} of seed {seed} differ\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn random_command_lines_behave_as_gnu() {
    run(31_001, "", &SINKS, || Some(Twins::new()));
}

#[test]
fn random_command_lines_across_file_systems_behave_as_gnu() {
    run(31_002, FAR_SETUP, &FAR_SINKS, || Twins::across(SecondFs::Memory));
}
