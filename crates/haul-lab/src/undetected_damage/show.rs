//! Results in readable form and as JSON.

use super::constructed::{BLOCK_BYTES, FILE_BYTES, Verdicts};
use super::detector::Detector;
use super::{Birthday, MissCount, Study};
use haul_digest::Algorithm;
use haul_model::format_size;
use serde::Serialize;

/// Notes about broken digests. haul constructs no such collisions.
const CONSTRUCTED: [(Algorithm, &str); 2] = [
    (
        Algorithm::Md5,
        "md5: detects only accidental corruption. Files with equal md5 can be constructed (Wang and Yu 2005; with chosen \
         prefixes Stevens, Lenstra and de Weger 2007).",
    ),
    (
        Algorithm::Sha1,
        "sha1: detects only accidental corruption. Files with equal sha1 can be constructed (Stevens and others 2017; with \
         chosen prefixes Leurent and Peyrin 2020).",
    ),
];

/// Width of a column with verdicts, in characters.
const VERDICT_WIDTH: usize = 8;

/// Width of a column with numbers, in characters.
const NUMBER_WIDTH: usize = 16;

/// Formats all tables with their explanations.
pub(super) fn tables(study: &Study) -> String {
    let mut text = format!(
        "Corruptions that each checksum misses, computed with seed {}\n\n\
         Constructed for a weakness, in a file of {} (blocks of {} for xor and tree)\n",
        study.seed,
        format_size(FILE_BYTES as u64),
        format_size(BLOCK_BYTES as u64)
    );
    text += &made(&study.constructed);
    text += "\nRandom corruptions: number missed, and number expected to be missed\n";
    text += &counted(&study.counted);
    text += "\nRandom damage: number of damaged files of which one is missed, and number with even odds of a miss\n";
    text += &odds(&study.birthdays);
    text += "\nNumber of random messages until two have the same value (expected number in parentheses)\n";
    text += &birthdays(&study.birthdays);
    for (algorithm, note) in CONSTRUCTED {
        if study.birthdays.iter().any(|birthday| birthday.detector == Detector::Whole(algorithm)) {
            text += &format!("\n{note}\n");
        }
    }
    text
}

fn made(all: &[Verdicts]) -> String {
    let legend = ('A'..)
        .zip(all)
        .map(|(letter, verdict)| format!("{letter}  {} ({} bytes differ)\n", verdict.what, verdict.changed));
    let mut text: String = legend.collect();
    text.push('\n');
    text += &row("", VERDICT_WIDTH, ('A'..).take(all.len()).map(String::from));
    let detectors = all.first().map_or(&[][..], |verdict| &verdict.seen);
    for (number, (detector, _)) in detectors.iter().enumerate() {
        let words = all.iter().map(|verdict| if verdict.seen[number].1 { "seen" } else { "MISSED" });
        text += &row(&detector.name(), VERDICT_WIDTH, words.map(str::to_owned));
    }
    text
}

fn counted(all: &[MissCount]) -> String {
    let mut text = String::new();
    let mut what = "";
    for one in all {
        if what != one.what {
            what = &one.what;
            text += &format!("{what}, {} times\n", one.trials);
            text += &row("", NUMBER_WIDTH, ["missed", "expected"].map(str::to_owned));
        }
        let expected = one.expected.map_or_else(|| "-".to_owned(), number);
        text += &row(&one.detector.name(), NUMBER_WIDTH, [one.missed.to_string(), expected]);
    }
    text
}

/// Formats the collision probability of each digest by its bits. Adler-32 has fewer values than its
/// bits allow.
fn odds(birthdays: &[Birthday]) -> String {
    let mut text = row("", NUMBER_WIDTH, ["one in", "even odds"].map(str::to_owned));
    for birthday in longest(birthdays) {
        let values = match birthday.detector {
            Detector::Whole(Algorithm::Adler32) => (super::forge::ADLER_PERIOD as f64).powi(2),
            detector => detector.values(),
        };
        let even = values * std::f64::consts::LN_2;
        text += &row(&birthday.detector.name(), NUMBER_WIDTH, [values, even].map(number));
    }
    text
}

/// Returns the figures of the longest messages: one for each judge.
fn longest(birthdays: &[Birthday]) -> impl Iterator<Item = &Birthday> {
    let most = birthdays.iter().map(|birthday| birthday.bytes).max().unwrap_or(0);
    birthdays.iter().filter(move |birthday| birthday.bytes == most)
}

fn birthdays(all: &[Birthday]) -> String {
    let mut lengths: Vec<usize> = all.iter().map(|birthday| birthday.bytes).collect();
    lengths.dedup();
    let header = lengths.iter().flat_map(|bytes| [format!("{bytes} bytes"), String::new()]);
    let mut text = row("", NUMBER_WIDTH, header);
    for of_judge in longest(all) {
        let of_it = all.iter().filter(|one| one.detector == of_judge.detector);
        let cells = of_it.flat_map(|one| {
            let drawn = one.mean.map_or_else(|| format!("none of {}", one.drawn), number);
            [drawn, format!("({})", one.expected.map_or_else(|| "-".to_owned(), number))]
        });
        text += &row(&of_judge.detector.name(), NUMBER_WIDTH, cells);
    }
    text
}

/// Formats a row: a name and columns of this width, which end at its right edge.
fn row(name: &str, width: usize, cells: impl IntoIterator<Item = String>) -> String {
    let line = cells.into_iter().fold(format!("{name:<15}"), |line, cell| format!("{line}{cell:>width$}"));
    line.trim_end().to_owned() + "\n"
}

/// Formats a number that need not be an integer: two decimals for small numbers, powers of ten for
/// large ones.
fn number(value: f64) -> String {
    match value {
        0.01..10.0 => format!("{value:.2}"),
        10.0..1e9 => format!("{value:.0}"),
        _ => format!("{value:.1e}"),
    }
}

/// One object per line, identified by `kind`.
#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Line<'a> {
    /// A constructed corruption, and `seen` if one judge detected it.
    Made { corruption: &'a str, digest: String, file_bytes: usize, changed_bytes: usize, seen: bool },
    /// Number of random corruptions that one judge missed.
    Drawn { corruption: &'a str, digest: String, trials: u64, missed: u64, expected_missed: Option<f64> },
    /// Number of messages until two had the same value: null if there were none among `drawn_most`.
    Birthday {
        digest: String,
        message_bytes: usize,
        drawn_mean: Option<f64>,
        expected: Option<f64>,
        trials: u32,
        drawn_most: u64,
    },
}

pub(super) fn json(study: &Study) -> String {
    let made = study.constructed.iter().flat_map(|verdict| {
        verdict.seen.iter().map(|&(detector, seen)| Line::Made {
            corruption: &verdict.what,
            digest: detector.name(),
            file_bytes: FILE_BYTES,
            changed_bytes: verdict.changed,
            seen,
        })
    });
    let drawn = study.counted.iter().map(|one| Line::Drawn {
        corruption: &one.what,
        digest: one.detector.name(),
        trials: one.trials,
        missed: one.missed,
        expected_missed: one.expected,
    });
    let birthdays = study.birthdays.iter().map(|one| Line::Birthday {
        digest: one.detector.name(),
        message_bytes: one.bytes,
        drawn_mean: one.mean,
        expected: one.expected,
        trials: one.trials,
        drawn_most: one.drawn,
    });
    let text = |line: Line| {
        serde_json::to_string(&line).unwrap_or_else(|error| unreachable!("plain fields make JSON: {error}"))
    };
    made.chain(drawn).chain(birthdays).map(|line| text(line) + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_abbreviated() {
        let cases =
            [(0.0, "0.0e0"), (0.25, "0.25"), (7.0, "7.00"), (82137.2, "82137"), (4294967296.0, "4.3e9")];
        for (value, text) in cases {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn count_tables_follow_their_titles() {
        let one = |what: &str, missed, expected| MissCount {
            what: what.to_owned(),
            detector: Detector::Whole(Algorithm::Crc16),
            trials: 100,
            missed,
            expected,
        };
        let text = counted(&[one("a kind with a long name", 1, Some(2.0)), one("b", 30, None)]);
        let expected = "\
a kind with a long name, 100 times
                         missed        expected
crc16                         1            2.00
b, 100 times
                         missed        expected
crc16                        30               -
";
        assert_eq!(text, expected);
    }
}
