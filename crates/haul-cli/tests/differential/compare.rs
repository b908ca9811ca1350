//! Comparison of two results.

use super::case::Case;
use super::deliberate;
use super::twins::{RunResult, Status};
use std::fmt;

/// Differences between two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Difference {
    status: Option<(Status, Status)>,
    /// Lines only in the output of the system's tool, and lines only in that of haul.
    out: Lines,
    err: Lines,
    tree: Lines,
}

/// Lines of one side only. If both are empty, the lines have another order if `moved` is true.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Lines {
    system: Vec<String>,
    ours: Vec<String>,
    moved: bool,
}

impl Lines {
    fn is_none(&self) -> bool {
        self.system.is_empty() && self.ours.is_empty() && !self.moved
    }
}

/// Returns the difference that remains after the deliberate ones.
pub(super) fn difference(case: &Case, mut system: RunResult, mut ours: RunResult) -> Option<Difference> {
    if deliberate::settles(case, &mut system, &mut ours) {
        return None;
    }
    let ordered = case.has_one_order();
    let difference = Difference {
        status: (system.status != ours.status).then_some((system.status, ours.status)),
        out: compare(&lines(&system.out), &lines(&ours.out), ordered),
        err: compare(&lines(&system.err), &lines(&ours.err), ordered),
        tree: compare(&system.tree, &ours.tree, true),
    };
    (!difference.is_none()).then_some(difference)
}

impl Difference {
    fn is_none(&self) -> bool {
        self.status.is_none() && self.out.is_none() && self.err.is_none() && self.tree.is_none()
    }

    /// Returns true if a part differs in both differences: a smaller case must fail for a similar
    /// reason.
    pub(super) fn is_like(&self, other: &Difference) -> bool {
        let parts =
            |of: &Difference| [of.status.is_some(), !of.out.is_none(), !of.err.is_none(), !of.tree.is_none()];
        parts(self).into_iter().zip(parts(other)).any(|(a, b)| a && b)
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((system, ours)) = self.status {
            writeln!(f, "  status: system {system:?}, ours {ours:?}")?;
        }
        for (what, lines) in [("stdout", &self.out), ("stderr", &self.err), ("tree", &self.tree)] {
            if lines.is_none() {
                continue;
            }
            writeln!(f, "  {what}:{}", if lines.moved { " in another order" } else { "" })?;
            for line in &lines.system {
                writeln!(f, "    system {line}")?;
            }
            for line in &lines.ours {
                writeln!(f, "    ours   {line}")?;
            }
        }
        Ok(())
    }
}

/// Returns lines and prompts; a prompt has no line end.
fn lines(bytes: &[u8]) -> Vec<String> {
    let shown = bytes.split_inclusive(|&byte| byte == b'\n').map(shown);
    let parts = |line: String| line.split_inclusive("? ").map(str::to_owned).collect::<Vec<_>>();
    shown.flat_map(parts).collect()
}

/// Returns a printable line: non-printable bytes are escaped, including the line end.
fn shown(line: &[u8]) -> String {
    line.escape_ascii().to_string().replace("\\'", "'").replace("\\\"", "\"")
}

fn compare(system: &[String], ours: &[String], ordered: bool) -> Lines {
    let (only_system, only_ours) = (without(system, ours), without(ours, system));
    let moved = ordered && only_system.is_empty() && only_ours.is_empty() && system != ours;
    Lines { system: only_system, ours: only_ours, moved }
}

/// Returns the lines of `these` that are missing in `those`, as often as they are missing.
fn without(these: &[String], those: &[String]) -> Vec<String> {
    let mut rest: Vec<&String> = those.iter().collect();
    let mut missing = Vec::new();
    for line in these {
        match rest.iter().position(|other| *other == line) {
            Some(at) => {
                rest.swap_remove(at);
            }
            None => missing.push(line.clone()),
        }
    }
    missing
}

pub(super) fn contains(text: &[u8], part: &[u8]) -> bool {
    find(text, part).is_some()
}

pub(super) fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

#[cfg(test)]
mod tests {
    use super::super::case::Tool;
    use super::*;

    fn ending(status: i32, out: &str, err: &str, tree: &[&str]) -> RunResult {
        let tree = tree.iter().map(|line| (*line).to_owned()).collect();
        RunResult { status: Status::Exit(status), out: out.into(), err: err.into(), tree }
    }

    fn said(words: &str, system: RunResult, ours: RunResult) -> String {
        let case = Case::new(Tool::Cp).runs(words);
        difference(&case, system, ours).map(|difference| difference.to_string()).unwrap_or_default()
    }

    #[test]
    fn each_part_of_an_outcome_is_compared() {
        let plain = || ending(0, "o\n", "e\n", &["a: file"]);
        assert_eq!(said("a b", plain(), plain()), "");
        assert!(said("a b", plain(), ending(1, "o\n", "e\n", &["a: file"])).contains("ours Exit(1)"));
        assert!(said("a b", plain(), ending(0, "", "e\n", &["a: file"])).contains("stdout"));
        assert!(said("a b", plain(), ending(0, "o\n", "f\n", &["a: file"])).contains("ours   f"));
        assert!(said("a b", plain(), ending(0, "o\n", "e\n", &["a: link"])).contains("system a: file"));
        assert!(said("a b", plain(), ending(0, "o", "e\n", &["a: file"])).contains("stdout"), "a line's end");
    }

    #[test]
    fn output_order_is_compared_only_if_defined() {
        let (one, other) = (|| ending(0, "a\nb\n", "", &[]), || ending(0, "b\na\n", "", &[]));
        assert!(said("a b", one(), other()).contains("in another order"));
        assert_eq!(said("-r a b", one(), other()), "");
        assert!(said("-r a b", one(), ending(0, "b\nb\na\n", "", &[])).contains("ours   b"));
    }

    #[test]
    fn prompts_are_split_into_lines() {
        let asked = lines(b"cp: overwrite 'a'? cp: overwrite 'b'? cp: no\n");
        assert_eq!(asked, ["cp: overwrite 'a'? ", "cp: overwrite 'b'? ", "cp: no\\n"]);
    }
}
