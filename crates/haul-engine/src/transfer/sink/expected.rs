//! Names that a fetch requested. A sink rejects all other names. Otherwise a source could create
//! files, or have names deleted, anywhere beneath the destination directory.

use crate::transfer::source::Filter;
use crate::transfer::wanted::relative;
use haul_storage::FileKind;
use std::collections::HashSet;

/// Names that a sink accepts.
#[derive(Debug)]
pub(super) struct Expected {
    /// True to accept any first component: the source started the job, or the fetch requested the
    /// contents of a directory.
    is_open: bool,
    /// First components that the fetch requested by name.
    names: HashSet<Box<[u8]>>,
    /// Filter of the names beneath the requested paths.
    filter: Filter,
}

impl Expected {
    /// Accepts any name: the source started the job.
    pub(super) fn anything() -> Expected {
        Expected { is_open: true, names: HashSet::new(), filter: Filter::default() }
    }

    /// Accepts the names that these requested paths create at the sink, as far as `filter` includes
    /// them.
    pub(super) fn of(paths: &[Vec<u8>], filter: Filter) -> Expected {
        let mut expected = Expected { is_open: false, names: HashSet::new(), filter };
        for path in paths {
            // Invalid paths are refused when the source looks them up.
            let Ok(clean) = relative(path) else { continue };
            let name = clean.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            if name.is_empty() || path.ends_with(b"/") {
                expected.is_open = true;
            } else {
                expected.names.insert(name.into());
            }
        }
        expected
    }

    /// Returns true if an entry of this kind at a path beneath the sink's root was requested.
    pub(super) fn has(&self, path: &[u8], kind: FileKind) -> bool {
        let first = path.split(|&byte| byte == b'/').next().unwrap_or_default();
        let is_named = self.names.contains(first);
        if !is_named && !self.is_open {
            return false;
        }
        // The rules apply beneath a path that was requested by its name.
        let from = if is_named { first.len() + 1 } else { 0 };
        !self.filter.leaves_out_beneath(path, from, &[kind])
    }

    /// Returns true if a name was requested as a file or as a directory.
    pub(super) fn may_have(&self, path: &[u8]) -> bool {
        [FileKind::Regular, FileKind::Directory].iter().all(|kind| self.has(path, *kind))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::source::Rule;

    fn of(paths: &[&str], rules: &[Rule]) -> Expected {
        let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
        Expected::of(&paths, Filter::new(rules).expect("valid rules"))
    }

    fn has(expected: &Expected, path: &str) -> bool {
        expected.has(path.as_bytes(), FileKind::Regular)
    }

    #[test]
    fn requested_names_are_accepted_with_everything_beneath_them() {
        let expected = of(&["a", "deep/./down/b", "c/."], &[]);
        for path in ["a", "a/x/y", "b", "b/deep", "c/x"] {
            assert!(has(&expected, path), "{path}");
        }
        for path in ["", "deep", "down/b", "ab", "x/a", ".", "d"] {
            assert!(!has(&expected, path), "{path}");
        }
    }

    #[test]
    fn any_name_is_accepted_for_the_contents_of_a_directory() {
        for paths in [&["a", "b/"][..], &[""], &["."], &["./"]] {
            assert!(has(&of(paths, &[]), "anything/at/all"), "{paths:?}");
        }
        assert!(!has(&of(&["../a"], &[]), "a"), "an invalid path requests nothing");
    }

    #[test]
    fn filtered_names_are_rejected_but_not_the_requested_path_itself() {
        let rules = [Rule::Exclude("*.key".into()), Rule::Exclude("private/".into())];
        let named = of(&["top.key", "a"], &rules);
        for path in ["top.key", "a", "a/x", "a/privateer"] {
            assert!(has(&named, path), "{path}");
        }
        for path in ["top.key/b.key", "a/b.key", "a/private/x", "a/private/x/y"] {
            assert!(!has(&named, path), "{path}");
        }
        assert!(has(&named, "a/private") && !named.may_have(b"a/private"), "the rule is for directories");
        let contents = of(&["a/"], &rules);
        assert!(has(&contents, "x") && !has(&contents, "top.key") && !has(&contents, "private/x"));
    }
}
