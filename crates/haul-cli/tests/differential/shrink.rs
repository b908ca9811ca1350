//! Reduces a failing case: removes each part without which the tools still differ.

use super::case::{Case, USUAL_UMASK};
use super::compare::Difference;
use super::plant::{Content, Gaps, Kind, USUAL_TIME};

/// Maximum number of runs for one case.
const TRIES_MAX: u32 = 600;

/// A change that makes a case simpler, or `None` if there is nothing to change. The number selects
/// a part.
type Step = fn(&Case, usize) -> Option<Case>;

/// Larger changes come first.
const STEPS: [Step; 9] = [
    drop_plant,
    drop_word,
    drop_variable,
    make_usual,
    plain_plant,
    short_plant,
    shorten_word,
    split_letters,
    rename,
];

/// Returns the smallest case found that differs in a similar way, and its difference.
///
/// `differs` runs a case.
pub(super) fn shrink(
    mut differs: impl FnMut(&Case) -> Option<Difference>,
    case: Case,
    difference: Difference,
) -> (Case, Difference) {
    let mut smallest = (case, difference);
    let mut tries = 0;
    let mut is_smaller = true;
    while is_smaller {
        is_smaller = false;
        for step in STEPS {
            let mut at = 0;
            // Parts are removed from the last one on: dependent parts follow the parts that they
            // depend on.
            while tries < TRIES_MAX
                && let Some(candidate) = step(&smallest.0, at)
            {
                if candidate == smallest.0 {
                    at += 1;
                    continue;
                }
                tries += 1;
                match differs(&candidate).filter(|found| found.is_like(&smallest.1)) {
                    Some(found) => {
                        smallest = (candidate, found);
                        is_smaller = true;
                    }
                    None => at += 1,
                }
            }
        }
    }
    smallest
}

/// Returns the index that is `at` steps from the end.
fn from_end(len: usize, at: usize) -> Option<usize> {
    len.checked_sub(at + 1)
}

/// Removes an entry with everything beneath it and its other names.
fn drop_plant(case: &Case, at: usize) -> Option<Case> {
    let mut smaller = case.clone();
    let gone = smaller.plants.remove(from_end(case.plants.len(), at)?);
    let mut beneath = gone.path.clone();
    beneath.push(b'/');
    let goes = |path: &[u8]| path == gone.path || path.starts_with(&beneath);
    smaller.plants.retain(|plant| {
        let is_name = matches!(&plant.kind, Kind::Hard(first) if goes(first));
        !goes(&plant.path) && !is_name
    });
    // The command needs a working directory.
    if goes(&smaller.cwd) { Some(case.clone()) } else { Some(smaller) }
}

fn drop_word(case: &Case, at: usize) -> Option<Case> {
    let mut smaller = case.clone();
    smaller.words.remove(from_end(case.words.len(), at)?);
    Some(smaller)
}

fn drop_variable(case: &Case, at: usize) -> Option<Case> {
    let mut smaller = case.clone();
    smaller.environment.remove(from_end(case.environment.len(), at)?);
    Some(smaller)
}

/// Sets user, umask, answers and places to the usual values.
fn make_usual(case: &Case, at: usize) -> Option<Case> {
    let smaller = case.clone();
    Some(match at {
        0 => Case { as_user: false, ..smaller },
        1 => Case { umask: USUAL_UMASK, ..smaller },
        2 => Case { answers: Vec::new(), ..smaller },
        3 => Case { on_disk: false, ..smaller },
        4 => Case { cwd: Vec::new(), ..smaller },
        _ => return None,
    })
}

/// Number of properties of an entry that [`plain_plant`] can reset.
const PROPERTIES: usize = 5;

/// Resets one property of one entry.
fn plain_plant(case: &Case, at: usize) -> Option<Case> {
    let mut smaller = case.clone();
    let plant = smaller.plants.get_mut(at / PROPERTIES)?;
    match at % PROPERTIES {
        0 => plant.mode = None,
        1 => plant.owner = None,
        2 => plant.time = USUAL_TIME,
        3 => plant.xattrs.clear(),
        _ => {
            if let Kind::File(content) = &mut plant.kind {
                content.gaps = Gaps::None;
            }
        }
    }
    Some(smaller)
}

/// Reduces a file to five bytes, or replaces an entry of another kind by a file.
fn short_plant(case: &Case, at: usize) -> Option<Case> {
    let mut smaller = case.clone();
    let plant = smaller.plants.get_mut(at)?;
    match &mut plant.kind {
        Kind::File(content) => content.len = 5,
        Kind::Dir => {}
        kind => *kind = Kind::File(Content { len: 5, letter: b'k', gaps: Gaps::None }),
    }
    Some(smaller)
}

/// Removes slashes and dots at the start or the end of a word.
fn shorten_word(case: &Case, at: usize) -> Option<Case> {
    let mut smaller = case.clone();
    let word = smaller.words.get_mut(at)?;
    for end in [&b"/."[..], b"/"] {
        if word.len() > end.len() && word.ends_with(end) {
            word.truncate(word.len() - end.len());
            return Some(smaller);
        }
    }
    for start in [&b"./"[..], b"{box}/"] {
        if word.starts_with(start) {
            word.drain(..start.len());
            return Some(smaller);
        }
    }
    Some(smaller)
}

/// Removes the first letter from a word of several letters: `-rv`.
fn split_letters(case: &Case, at: usize) -> Option<Case> {
    let mut smaller = case.clone();
    let word = smaller.words.get_mut(at)?;
    if word.len() > 2 && word[0] == b'-' && word[1] != b'-' {
        word.remove(1);
    }
    Some(smaller)
}

/// Replaces an unusual name by a plain one in the complete case.
fn rename(case: &Case, at: usize) -> Option<Case> {
    let mut names: Vec<Vec<u8>> = case
        .plants
        .iter()
        .flat_map(|plant| plant.path.split(|&byte| byte == b'/'))
        .map(<[u8]>::to_owned)
        .collect();
    names.sort_unstable();
    names.dedup();
    let is_odd =
        |name: &Vec<u8>| name.len() > 1 && name != b"far" && !name.iter().all(u8::is_ascii_lowercase);
    let odd = names.get(at)?;
    let plain = (b'a'..=b'z').map(|letter| vec![letter]).find(|plain| !names.contains(plain));
    let Some(plain) = plain.filter(|_| is_odd(odd)) else { return Some(case.clone()) };
    let mut smaller = case.clone();
    let renamed = |path: &mut Vec<u8>| {
        let parts = path.split(|&byte| byte == b'/');
        *path = parts.map(|part| if part == odd { &plain[..] } else { part }).collect::<Vec<_>>().join(&b'/');
    };
    for plant in &mut smaller.plants {
        renamed(&mut plant.path);
        match &mut plant.kind {
            Kind::Link(target) => renamed(target),
            Kind::Hard(first) => renamed(first),
            _ => {}
        }
    }
    smaller.words.iter_mut().for_each(renamed);
    renamed(&mut smaller.cwd);
    Some(smaller)
}

#[cfg(test)]
mod tests {
    use super::super::case::Tool;
    use super::super::compare;
    use super::super::plant::{dir, file, hard, link};
    use super::super::twins::{RunResult, Status};
    use super::*;

    /// Returns a difference in status.
    fn fails() -> Option<Difference> {
        let ending =
            |status| RunResult { status: Status::Exit(status), out: vec![], err: vec![], tree: vec![] };
        compare::difference(&Case::new(Tool::Cp), ending(0), ending(1))
    }

    #[test]
    fn shrinking_removes_parts_unrelated_to_the_failure() {
        let case = Case::new(Tool::Cp)
            .has(dir("d").mode(0o700))
            .has(file("d/a", b'a').mode(0o600).bytes(4096))
            .has(hard("d/b", "d/a"))
            .has(link("two words", "d/a"))
            .has(file("z", b'z'))
            .env("LC_ALL", "C")
            .umask(0)
            .user()
            .answers("y\n")
            .cwd("d")
            .runs("-rv --parents ./z/. new");
        let is_at_fault = |case: &Case| {
            let has_file = case.plants.iter().any(|plant| plant.path == b"d/a" && plant.mode == Some(0o600));
            let has_letter = case.has_option(b'v', "verbose");
            (has_file && has_letter && case.words.iter().any(|word| word.contains(&b'z')))
                .then(fails)
                .flatten()
        };
        let difference = fails().unwrap();
        let (smallest, _) = shrink(is_at_fault, case, difference);
        let expected = Case::new(Tool::Cp).has(dir("d")).has(file("d/a", b'a').mode(0o600)).runs("-v z");
        assert_eq!(smallest, expected);
    }

    #[test]
    fn shrinking_keeps_the_kind_of_failure() {
        let other = |case: &Case| {
            let ending =
                |out: &str| RunResult { status: Status::Exit(0), out: out.into(), err: vec![], tree: vec![] };
            compare::difference(case, ending("a"), ending("b"))
        };
        let case = Case::new(Tool::Cp).runs("-v a b");
        assert_eq!(shrink(other, case.clone(), fails().unwrap()).0, case);
    }
}
