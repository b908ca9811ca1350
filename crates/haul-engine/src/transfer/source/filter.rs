//! Filter of names: patterns in gitignore syntax, of which the last match decides.

use haul_proto::NameRule;
use haul_proto::limits::RULES_MAX;
use haul_storage::FileKind;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use thiserror::Error;

/// Maximum number of wildcards in the rules of a peer. A wildcard takes up to 3 KiB. The names of
/// files of a repair have two in each rule.
const WILDCARDS_MAX: usize = 2 * RULES_MAX;

/// The patterns of one job.
#[derive(Clone, Default)]
pub struct Filter(Option<Gitignore>);

/// One pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rule {
    /// Excludes matching names and everything beneath them.
    Exclude(String),
    /// Includes matching names, even if an earlier pattern excludes them.
    Include(String),
}

/// Error for an invalid pattern.
#[derive(Debug, Error)]
#[error("invalid pattern '{pattern}': {reason}")]
pub struct FilterError {
    /// The pattern as given.
    pub pattern: String,
    /// Reason why it is invalid.
    pub reason: String,
}

impl Rule {
    /// Returns the rule in the form that is sent to the peer.
    pub(in crate::transfer) fn to_wire(&self) -> NameRule {
        let (is_include, pattern) = match self {
            Rule::Exclude(pattern) => (false, pattern),
            Rule::Include(pattern) => (true, pattern),
        };
        NameRule { is_include, pattern: pattern.as_bytes().into() }
    }
}

impl Filter {
    /// Creates the filter that the peer requests. Its memory is bounded: about 16 MiB, and a cache
    /// of 10 MiB.
    ///
    /// # Errors
    /// Returns an error for the first pattern that is not UTF-8 or is invalid, and if there are
    /// more than [`WILDCARDS_MAX`] wildcards.
    pub(in crate::transfer) fn from_wire(rules: &[NameRule]) -> Result<Filter, FilterError> {
        let is_wild = |byte: &&u8| matches!(byte, b'*' | b'?' | b'[' | b'{' | b',');
        let mut wildcards = 0;
        for rule in rules {
            wildcards += rule.pattern.iter().filter(is_wild).count();
            if wildcards > WILDCARDS_MAX {
                return Err(FilterError {
                    pattern: String::from_utf8_lossy(&rule.pattern).into_owned(),
                    reason: format!("the patterns have more than {WILDCARDS_MAX} wildcards"),
                });
            }
        }
        let rule = |rule: &NameRule| {
            let pattern = String::from_utf8(rule.pattern.to_vec()).map_err(|error| FilterError {
                pattern: String::from_utf8_lossy(error.as_bytes()).into_owned(),
                reason: "it is not UTF-8".to_owned(),
            })?;
            Ok(if rule.is_include { Rule::Include(pattern) } else { Rule::Exclude(pattern) })
        };
        Filter::build(&rules.iter().map(rule).collect::<Result<Vec<_>, _>>()?, without_extension)
    }

    /// Creates a filter with these rules, in this order.
    ///
    /// # Errors
    /// Returns an error for the first invalid pattern.
    pub fn new(rules: &[Rule]) -> Result<Filter, FilterError> {
        Filter::build(rules, str::to_owned)
    }

    /// Creates a filter from these rules, whose patterns `change` may write in another form.
    fn build(rules: &[Rule], change: impl Fn(&str) -> String) -> Result<Filter, FilterError> {
        if rules.is_empty() {
            return Ok(Filter(None));
        }
        let mut builder = GitignoreBuilder::new("");
        for rule in rules {
            let (line, pattern) = match rule {
                Rule::Exclude(pattern) => (as_name(&change(pattern)), pattern),
                Rule::Include(pattern) => (format!("!{}", as_name(&change(pattern))), pattern),
            };
            let failed =
                |reason: ignore::Error| FilterError { pattern: pattern.clone(), reason: reason.to_string() };
            builder.add_line(None, &line).map_err(failed)?;
        }
        let failed =
            |reason: ignore::Error| FilterError { pattern: String::new(), reason: reason.to_string() };
        Ok(Filter(Some(builder.build().map_err(failed)?)))
    }

    /// Returns true if the filter has no rules.
    pub(in crate::transfer) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns true if a path is excluded, as one of `kinds` or by a directory above it. No rule
    /// applies to the directory that the first `from` bytes of the path name, nor above it.
    ///
    /// Everything beneath an excluded directory is excluded, whatever other rules include: a walk
    /// does not enter the directory.
    pub(in crate::transfer) fn leaves_out_beneath(
        &self,
        path: &[u8],
        from: usize,
        kinds: &[FileKind],
    ) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut slashes = (from..path.len()).filter(|&at| path[at] == b'/');
        slashes.any(|at| self.leaves_out(&path[..at], FileKind::Directory))
            || (from <= path.len() && kinds.iter().any(|kind| self.leaves_out(path, *kind)))
    }

    /// Returns true if a name beneath the root of the job is excluded.
    pub(in crate::transfer) fn leaves_out(&self, path: &[u8], kind: FileKind) -> bool {
        let Some(rules) = &self.0 else { return false };
        rules.matched(Path::new(OsStr::from_bytes(path)), kind == FileKind::Directory).is_ignore()
    }
}

/// Writes each dot as a class. A pattern that ends in an extension otherwise becomes a regular
/// expression of its own, with a cache of 10 MiB of its own; all others share one.
fn without_extension(pattern: &str) -> String {
    let mut changed = String::with_capacity(pattern.len() + 8);
    let mut chars = pattern.chars();
    // Position in a class: its first character, or its negation, may be a bracket.
    let mut class = None;
    while let Some(c) = chars.next() {
        match (c, class) {
            ('.', None) => changed.push_str("[.]"),
            ('\\', None) => match chars.next() {
                Some('.') => changed.push_str("[.]"),
                escaped => {
                    changed.push(c);
                    changed.extend(escaped);
                }
            },
            ('[', None) => {
                class = Some(0);
                changed.push(c);
            }
            ('!' | '^', Some(0)) => {
                class = Some(1);
                changed.push(c);
            }
            (']', Some(2)) => {
                class = None;
                changed.push(c);
            }
            (_, at) => {
                class = at.map(|_| 2);
                changed.push(c);
            }
        }
    }
    changed
}

/// Escapes a leading `#` or `!`. In a file of patterns `#` starts a comment and `!` negates a
/// pattern; a single rule has neither.
fn as_name(pattern: &str) -> String {
    if pattern.starts_with(['#', '!']) { format!("\\{pattern}") } else { pattern.to_owned() }
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Filter(..)")
    }
}

/// Checks for any bytes that they are rules of a peer, or refused with the pattern, and that the
/// same rules as local ones decide the same. The bytes are a path and patterns, separated by NUL;
/// the first byte of a pattern selects the kind of its rule.
pub(crate) fn any_rules(bytes: &[u8]) {
    let mut parts = bytes.split(|&byte| byte == 0);
    let path = parts.next().unwrap_or_default();
    let told = parts.filter_map(<[u8]>::split_first);
    let told: Vec<NameRule> = told
        .map(|(kind, pattern)| NameRule { is_include: kind & 1 != 0, pattern: pattern.into() })
        .take(RULES_MAX)
        .collect();
    let filter = match Filter::from_wire(&told) {
        Ok(filter) => filter,
        Err(error) => return assert!(!error.reason.is_empty()),
    };
    assert_eq!(filter.is_empty(), told.is_empty());
    let Ok(path) = haul_proto::check_received(path) else { return };
    let text = |rule: &NameRule| String::from_utf8_lossy(&rule.pattern).into_owned();
    let rule =
        |rule: &NameRule| if rule.is_include { Rule::Include(text(rule)) } else { Rule::Exclude(text(rule)) };
    let own: Vec<Rule> = told.iter().map(rule).collect();
    assert!(own.iter().map(Rule::to_wire).eq(told));
    let own = Filter::new(&own).expect("the same patterns");
    for kind in [FileKind::Regular, FileKind::Directory] {
        let leaves_out = filter.leaves_out(path.as_bytes(), kind);
        assert_eq!(own.leaves_out(path.as_bytes(), kind), leaves_out);
        assert!(!leaves_out || filter.leaves_out_beneath(path.as_bytes(), 0, &[kind]));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(rules: &[Rule], path: &str, kind: FileKind) -> bool {
        Filter::new(rules).expect("understood").leaves_out(path.as_bytes(), kind)
    }

    #[test]
    fn last_matching_pattern_decides() {
        let rules =
            [Rule::Exclude("*.o".into()), Rule::Include("keep.o".into()), Rule::Exclude("/build/".into())];
        for (path, kind, expected) in [
            ("a.o", FileKind::Regular, true),
            ("src/deep/a.o", FileKind::Regular, true),
            ("src/keep.o", FileKind::Regular, false),
            ("a.c", FileKind::Regular, false),
            ("build", FileKind::Directory, true),
            ("build", FileKind::Regular, false),
            ("src/build", FileKind::Directory, false),
        ] {
            assert_eq!(left_out(&rules, path, kind), expected, "{path}");
        }
        assert!(!left_out(&[], "anything", FileKind::Regular));
    }

    /// Regression: a name that a later rule includes counted as included beneath an excluded
    /// directory, and was deleted at the sink.
    #[test]
    fn included_names_beneath_excluded_directories_are_excluded() {
        let rules = [Rule::Exclude("sub/".into()), Rule::Include("x*".into())];
        let filter = Filter::new(&rules).expect("understood");
        for (path, from, expected) in [
            ("sub/x", 0, true),
            ("d/sub/deep/x", 2, true),
            ("sub/x", 4, false),
            ("xsub/y", 0, false),
            ("sub", 4, false),
        ] {
            let found = filter.leaves_out_beneath(path.as_bytes(), from, &[FileKind::Regular]);
            assert_eq!(found, expected, "{path} from {from}");
        }
    }

    #[test]
    fn pattern_file_markers_are_literal_in_patterns() {
        for name in ["#draft#", "!important"] {
            let pattern = if name.starts_with('#') { "#*#" } else { "!*" };
            assert!(left_out(&[Rule::Exclude(pattern.into())], name, FileKind::Regular), "{name}");
            let rules = [Rule::Exclude("*".into()), Rule::Include(pattern.into())];
            assert!(!left_out(&rules, name, FileKind::Regular), "{name}");
        }
    }

    #[test]
    fn wire_rules_match_like_local_rules() {
        let rules = [Rule::Exclude("*.o".into()), Rule::Include("keep.o".into())];
        let filter = Filter::from_wire(&rules.each_ref().map(Rule::to_wire)).expect("understood");
        for (path, expected) in [("a.o", true), ("keep.o", false), ("a.c", false)] {
            assert_eq!(filter.leaves_out(path.as_bytes(), FileKind::Regular), expected, "{path}");
        }
        let no_text = NameRule { is_include: true, pattern: b"\xff"[..].into() };
        assert!(Filter::from_wire(&[no_text]).expect_err("refused").to_string().contains("UTF-8"));
    }

    #[test]
    fn dots_of_wire_rules_mean_the_same() {
        for (pattern, written) in [
            ("*.o", "*[.]o"),
            ("/a.b/c\\.d", "/a[.]b/c[.]d"),
            ("[].]x.[!].]y.", "[].]x[.][!].]y[.]"),
            ("\\[a.b]", "\\[a[.]b]"),
            ("{a.b,c}", "{a[.]b,c}"),
        ] {
            assert_eq!(without_extension(pattern), written);
            let own = Filter::new(&[Rule::Exclude(pattern.into())]).expect(pattern);
            let wire = Filter::from_wire(&[Rule::Exclude(pattern.into()).to_wire()]).expect(pattern);
            for name in
                ["a.o", ".o", "axo", "a.b/c.d", "axb/cxd", ".x.ay.", "]x..y.", "[a.b]", "[axb]", "a.b", "axb"]
            {
                let decides = |filter: &Filter| filter.leaves_out(name.as_bytes(), FileKind::Regular);
                assert_eq!(decides(&own), decides(&wire), "{pattern}: {name}");
            }
        }
    }

    #[test]
    fn wildcards_of_a_peer_are_limited() {
        let rule = |pattern: String| Rule::Exclude(pattern).to_wire();
        let paths: Vec<NameRule> = (0..RULES_MAX).map(|number| rule(format!("/{number}/**"))).collect();
        assert!(Filter::from_wire(&paths).is_ok(), "as a repair asks for its files");
        let many = [rule("a".into()), rule("?*".repeat(WILDCARDS_MAX / 2) + "[ab]")];
        let error = Filter::from_wire(&many).expect_err("refused").to_string();
        assert!(error.contains("more than 2048 wildcards"), "{error}");
    }

    #[test]
    fn malformed_pattern_is_reported_by_name() {
        let error = Filter::new(&[Rule::Exclude("{a".into())]).expect_err("not closed");
        assert!(error.to_string().contains("'{a'"), "{error}");
    }
}
