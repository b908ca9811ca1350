//! Random command lines: options and operands are drawn from a seed, and run by both tools.

use crate::differential::Wanted;
use crate::twins::Twins;
use haul_lab::random::Random;

const SEED: u64 = 20_091;

/// Number of lines. Each takes about 60 milliseconds, mostly for shells.
const LINES: u64 = 100;

/// Options that can be combined in any number. Options that prompt, read pipes or name places are
/// excluded.
const OPTIONS: [&str; 34] = [
    "-r",
    "-r",
    "-R",
    "-a",
    "-p",
    "-d",
    "-L",
    "-P",
    "-H",
    "-f",
    "-n",
    "-u",
    "-v",
    "-x",
    "-l",
    "-s",
    "-b",
    "-T",
    "--preserve=mode",
    "--preserve=timestamps",
    "--preserve=links",
    "--preserve=all",
    "--no-preserve=mode",
    "--no-preserve=links",
    "--parents",
    "--sparse=always",
    "--sparse=never",
    "--reflink=never",
    "--backup=numbered",
    "--backup=existing",
    "-S.o",
    "--remove-destination",
    "--attributes-only",
    "--strip-trailing-slashes",
];

const SOURCES: [&str; 26] = [
    "a", "b", "c", "empty", "x", "suid", "ro", "new", "la", "la2", "ha", "dangling", "loop", "ld", "ld/",
    "d", "e", "t", "t/", "t/s", "t/1", "t/l", "p1", "p1/q", "full", "no",
];

const SINKS: [&str; 14] =
    ["z", "z/", "d", "d/", "e", "full", "a", "b", "la", "dangling", "ld", "ha", "new", "no/z"];

#[test]
fn random_command_lines_behave_as_gnu() {
    let Wanted { seed, cases } = Wanted { seed: SEED, cases: LINES }.or_as_the_environment_says();
    let mut random = Random::from_seed(seed);
    let mut wrong = Vec::new();
    for _ in 0..cases {
        let script = draw(&mut random);
        if let Some(difference) = Twins::new().difference(&script) {
            wrong.push(format!("{script}\n{difference}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {cases} of seed {seed} differ\n{}", wrong.len(), wrong.join("\n"));
}

/// Returns two command lines: the second one runs on the results of the first.
fn draw(random: &mut Random) -> String {
    let mut words = vec!["rm -f t/p; cp".to_owned()];
    for _ in 0..random.index(5) {
        words.push(OPTIONS[random.index(OPTIONS.len())].to_owned());
    }
    let sources = 1 + if random.chance(40) { random.index(4) } else { 0 };
    for _ in 0..sources {
        words.push(SOURCES[random.index(SOURCES.len())].to_owned());
    }
    words.push(SINKS[random.index(SINKS.len())].to_owned());
    let line = words.join(" ");
    // The output has any order, but parents precede their contents.
    let again = line.replacen("rm -f t/p; ", "", 1);
    format!("{{ {line}; echo first $? >&2; {again}; echo second $? >&2; }} | sort")
}
