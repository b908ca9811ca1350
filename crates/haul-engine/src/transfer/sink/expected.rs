//! Names that a fetch requested. A sink rejects all other names. Otherwise a source could create
//! files, or have names deleted, anywhere beneath the destination directory.

use crate::transfer::wanted::relative;
use std::collections::HashSet;

/// Set of first path components that a sink accepts.
#[derive(Debug, Default)]
pub(super) enum Expected {
    /// Any name: the source started the job, or the fetch requested the contents of a directory.
    #[default]
    Anything,
    /// Only these names.
    Names(HashSet<Box<[u8]>>),
}

impl Expected {
    /// Returns the names that these requested paths create at the sink.
    pub(super) fn of(paths: &[Vec<u8>]) -> Expected {
        let mut names = HashSet::new();
        for path in paths {
            // Invalid paths are refused when the source looks them up.
            let Ok(clean) = relative(path) else { continue };
            let name = clean.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            if name.is_empty() || path.ends_with(b"/") {
                return Expected::Anything;
            }
            names.insert(name.into());
        }
        Expected::Names(names)
    }

    /// Returns true if a path beneath the sink's root was requested.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        match self {
            Expected::Anything => true,
            Expected::Names(names) => {
                path.split(|&byte| byte == b'/').next().is_some_and(|first| names.contains(first))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(paths: &[&str]) -> Expected {
        Expected::of(&paths.iter().map(|path| path.as_bytes().to_vec()).collect::<Vec<_>>())
    }

    #[test]
    fn requested_names_include_their_descendants() {
        let expected = of(&["a", "deep/./down/b", "c/."]);
        for path in ["a", "a/x/y", "b", "b/deep", "c/x"] {
            assert!(expected.has(path.as_bytes()), "{path}");
        }
        for path in ["", "deep", "down/b", "ab", "x/a", ".", "d"] {
            assert!(!expected.has(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn directory_contents_operand_accepts_any_name() {
        for paths in [&["a", "b/"][..], &[""], &["."], &["./"]] {
            assert!(of(paths).has(b"anything/at/all"), "{paths:?}");
        }
        assert!(!of(&["../a"]).has(b"a"), "it is refused before anything comes of it");
    }
}
