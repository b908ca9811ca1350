//! The English of comments, messages and documents: phrases that a reader from the field does not
//! know, each with its replacement.
//!
//! [`LIMITS`] holds the number of findings that each part of the repository still has. A part with
//! more findings than its limit fails, and so does a part that has become much better than its
//! limit: then the limit is lowered.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

/// Maximum number of columns of a comment line.
pub const COLUMNS_MAX: usize = 100;

/// A part may have this many findings less than its limit.
const SLACK: usize = 10;

/// Phrases and their replacements, longest first. Case does not count.
const PHRASES: [(&str, &str); 78] = [
    ("time between two looks", "poll interval"),
    ("life of the machine", "boot"),
    ("for the time being", "temporarily"),
    ("comes to its end", "finishes"),
    ("came to its end", "finished"),
    ("no worse for it", "unaffected"),
    ("the other side", "the peer, the remote host"),
    ("without a word", "without a value, without a message"),
    ("goes on with", "resumes"),
    ("gone on with", "resumed"),
    ("held against", "compared with"),
    ("written down", "logged, recorded"),
    ("and no more", "only"),
    ("at its word", "without verification"),
    ("what became", "the result of"),
    ("what stands", "the existing file, the contents"),
    ("as it goes", "as is"),
    ("at the job", "holds the job lock"),
    ("becomes of", "the result of"),
    ("is through", "has finished"),
    ("on its way", "in flight"),
    ("the ear of", "the observer of"),
    ("told apart", "distinguished"),
    ("what comes", "the received data"),
    ("asked for", "requested"),
    ("gives way", "is evicted"),
    ("looked at", "checked, examined"),
    ("once more", "again"),
    ("sits down", "waits"),
    ("stands in", "is in"),
    ("taken for", "treated as"),
    ("those who", "threads that, users that"),
    ("what came", "the received data"),
    ("who waits", "a waiting thread"),
    ("are told", "receive"),
    ("believed", "trusted"),
    ("for ever", "indefinitely"),
    ("for good", "permanently"),
    ("going on", "resuming"),
    ("in peace", "cleanly"),
    ("somebody", "another process, another user"),
    ("came to", "resulted in"),
    ("cut off", "interrupted, truncated, disconnected"),
    ("errands", "tasks"),
    ("goes on", "continues, resumes"),
    ("gone on", "resumed"),
    ("in vain", "without effect"),
    ("is told", "receives"),
    ("meeting", "monitor"),
    ("of whom", "name the actor"),
    ("so many", "the number"),
    ("so much", "the number of bytes"),
    ("unasked", "by default"),
    ("whoever", "the caller, the process that"),
    ("ear of", "observer of"),
    ("errand", "task"),
    ("floors", "layers"),
    ("is met", "is satisfied"),
    ("lately", "recently"),
    ("let go", "released"),
    ("mended", "repaired"),
    ("nobody", "no process, no thread, no user"),
    ("stands", "is, exists"),
    ("begun", "started"),
    ("can't", "cannot"),
    ("clerk", "builder, reader"),
    ("go on", "continue, resume"),
    ("guest", "client"),
    ("hears", "receives"),
    ("house", "repository"),
    ("rooms", "modules"),
    ("seats", "waiters"),
    ("stood", "was, existed"),
    ("stray", "extraneous file"),
    ("anew", "again"),
    ("seat", "waiter"),
    ("told", "reported, printed, logged"),
    ("whom", "name the actor"),
];

/// Words that a doc comment does not start with: a verb or a noun phrase says more.
const STARTS: [&str; 9] = ["What", "Whether", "How", "Why", "Where", "Who", "Whoever", "Whom", "Whose"];

/// The findings that each part has at most: flagged phrases and starts together, and comment lines
/// above [`COLUMNS_MAX`]. Parts that are not listed have none.
pub const LIMITS: [(&str, usize, usize); 15] = [
    ("crates", 1, 0),
    ("crates/haul-cli/src", 11, 0),
    ("crates/haul-cli/tests", 54, 0),
    ("crates/haul-digest/src", 0, 1),
    ("crates/haul-engine/src", 5, 3),
    ("crates/haul-engine/tests", 7, 0),
    ("crates/haul-lab/src", 1, 0),
    ("crates/haul-log/src", 7, 18),
    ("crates/haul-log/tests", 1, 0),
    ("crates/haul-net/examples", 1, 0),
    ("crates/haul-net/src", 0, 2),
    ("crates/haul-proto/src", 1, 2),
    ("crates/haul-proto/tests", 3, 0),
    ("docs", 5, 0),
    ("fuzz", 1, 0),
];

/// Files that hold the phrases as data.
const EXEMPT: [&str; 1] = ["crates/haul-lab/src/repo_rules/prose.rs"];

/// A flagged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Line number, from 1.
    pub line: usize,
    /// The kind of the finding.
    pub kind: Kind,
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A phrase, with its replacement.
    Phrase(&'static str, &'static str),
    /// The first word of a doc comment.
    Start(&'static str),
    /// A comment line with this many columns.
    Long(usize),
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            Kind::Phrase(phrase, instead) => write!(f, "{}: '{phrase}' -> {instead}", self.line),
            Kind::Start(word) => {
                write!(f, "{}: starts with '{word}' -> start with a verb or a noun phrase", self.line)
            }
            Kind::Long(columns) => write!(f, "{}: {columns} columns, {COLUMNS_MAX} are the most", self.line),
        }
    }
}

/// Returns the findings in a text. Of Rust source, comments and strings count; of Markdown,
/// everything; of other files, nothing.
pub fn findings(path: &Path, text: &str) -> Vec<Finding> {
    let is_rust = path.extension().is_some_and(|end| end == "rs");
    let is_markdown = path.extension().is_some_and(|end| end == "md");
    if !is_rust && !is_markdown || EXEMPT.iter().any(|exempt| path == Path::new(exempt)) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let mut push = |kind| found.push(Finding { line: index + 1, kind });
        let comment = line.trim_start().starts_with("//").then_some(line);
        if let Some(comment) = comment.filter(|_| is_rust) {
            start(comment).into_iter().for_each(|word| push(Kind::Start(word)));
            let columns = comment.chars().count();
            if columns > COLUMNS_MAX {
                push(Kind::Long(columns));
            }
        }
        let prose = if is_rust { prose_of(line) } else { line.to_owned() };
        phrases(&prose).into_iter().for_each(|(phrase, instead)| push(Kind::Phrase(phrase, instead)));
    }
    found
}

/// Returns the part of a repository that a file belongs to: a folder of a crate, a folder at the
/// root, or `.`.
pub fn part_of(path: &Path) -> String {
    let all: Vec<_> = path.iter().map(|name| name.to_string_lossy()).collect();
    match &all[..] {
        [first, name, inner, _, ..] if first == "crates" => format!("{first}/{name}/{inner}"),
        [first, _, ..] => first.to_string(),
        _ => ".".to_owned(),
    }
}

/// Compares the findings of `texts` with `limits`. Returns a line for each part that has more, or
/// far less.
pub fn breaches<'a>(
    texts: impl IntoIterator<Item = (&'a Path, &'a str)>,
    limits: &[(&str, usize, usize)],
) -> Vec<String> {
    let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for (path, text) in texts {
        let (phrases, long) = counts.entry(part_of(path)).or_default();
        for finding in findings(path, text) {
            *if matches!(finding.kind, Kind::Long(_)) { &mut *long } else { &mut *phrases } += 1;
        }
    }
    for (part, ..) in limits {
        counts.entry((*part).to_owned()).or_default();
    }
    let mut found = Vec::new();
    for (part, (phrases, long)) in counts {
        let limit = limits.iter().find(|(name, ..)| *name == part).map_or((0, 0), |limit| (limit.1, limit.2));
        for (what, now, most) in
            [("flagged phrases", phrases, limit.0), ("long comment lines", long, limit.1)]
        {
            if now > most {
                found.push(format!(
                    "{part}: {now} {what}, {most} are the most; 'haul-lab prose {part}' lists them"
                ));
            } else if now + SLACK < most {
                found.push(format!("{part}: {now} {what} only; lower its limit of {most}"));
            }
        }
    }
    found
}

/// Returns the first word of a doc comment if it should not start so.
fn start(comment: &str) -> Option<&'static str> {
    let text = comment.trim_start();
    let text = text.strip_prefix("///").or_else(|| text.strip_prefix("//!"))?;
    let word = text.split_whitespace().next()?;
    STARTS.into_iter().find(|start| *start == word)
}

/// Returns the comment and the strings of a line of Rust source.
fn prose_of(line: &str) -> String {
    let (mut prose, mut rest) = (String::new(), line);
    while let Some(at) = rest.find(['"', '/']) {
        let found = &rest[at..];
        if found.starts_with("//") {
            prose.push(' ');
            prose.push_str(found);
            break;
        }
        if !found.starts_with('"') {
            rest = &found[1..];
            continue;
        }
        let mut escaped = false;
        let is_end = |c: char| {
            let ends = c == '"' && !escaped;
            escaped = c == '\\' && !escaped;
            ends
        };
        let len = found[1..].find(is_end).unwrap_or(found.len() - 1);
        prose.push(' ');
        prose.push_str(&found[1..1 + len]);
        rest = found.get(len + 2..).unwrap_or_default();
    }
    prose
}

/// Returns the flagged phrases of a text, each with its replacement.
fn phrases(text: &str) -> Vec<(&'static str, &'static str)> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut left = words.join(" ").to_lowercase();
    let mut found = Vec::new();
    for (phrase, instead) in PHRASES {
        let mut from = 0;
        while let Some(at) = left[from..].find(phrase).map(|at| from + at) {
            let end = at + phrase.len();
            let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '-');
            from = end;
            if !is_word(left[..at].chars().next_back()) && !is_word(left[end..].chars().next()) {
                found.push((phrase, instead));
                // A shorter phrase within this one does not count again.
                left.replace_range(at..end, &" ".repeat(phrase.len()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kinds(name: &str, text: &str) -> Vec<Kind> {
        findings(Path::new(name), text).into_iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn comments_and_strings_count_and_code_does_not() {
        let text = "let seat = 1; // a seat\nlet x = \"a \\\" seat\"; seat();\n/// Whether it is.\n";
        let seat = Kind::Phrase("seat", "waiter");
        assert_eq!(kinds("a.rs", text), [seat, seat, Kind::Start("Whether")]);
        assert_eq!(kinds("a.md", "The seat.\n"), [seat]);
        assert_eq!(kinds("a.py", "# a seat\n"), []);
    }

    #[test]
    fn phrase_matches_complete_words_in_any_case_once() {
        let named = |text| phrases(text).into_iter().map(|(phrase, _)| phrase).collect::<Vec<_>>();
        assert_eq!(named("It GOES  ON with; seats, re-seat seated"), ["goes on with", "seats"]);
    }

    #[test]
    fn long_comments_count_and_long_code_does_not() {
        let long = "x".repeat(COLUMNS_MAX);
        assert_eq!(kinds("a.rs", &format!("// {long}\n{long}{long}\n")), [Kind::Long(103)]);
    }

    #[test]
    fn counts_above_or_far_below_the_limit_are_reported() {
        let [path, other] = ["crates/a/src/b/c.rs", "docs/d.md"].map(Path::new);
        let seats = "// seat\n".repeat(20);
        let check = |limit| breaches([(path, &*seats), (other, "fine")], &[("crates/a/src", limit, 0)]);
        assert_eq!(check(20), [""; 0]);
        assert_eq!(check(25), [""; 0]);
        assert!(check(19)[0].starts_with("crates/a/src: 20 flagged phrases, 19 are the most"));
        assert_eq!(check(40), ["crates/a/src: 20 flagged phrases only; lower its limit of 40"]);
        assert_eq!(breaches([(other, "a seat")], &[]).len(), 1);
        assert_eq!(breaches([], &[("gone", 30, 0)]).len(), 1);
    }
}
