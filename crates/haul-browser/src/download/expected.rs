//! Names that the page requested. All other names are refused: a server could otherwise create
//! files anywhere beneath the folder that the user chose.

use haul_model::RelPath;
use std::collections::BTreeSet;

#[derive(Debug)]
pub(super) struct Expected {
    /// True to accept any first component: the contents of a directory were requested.
    is_open: bool,
    /// First components that were requested by name.
    names: BTreeSet<Box<[u8]>>,
}

impl Expected {
    /// Accepts the names that these requested paths create.
    pub(super) fn of(paths: &[Box<[u8]>]) -> Expected {
        let mut expected = Expected { is_open: false, names: BTreeSet::new() };
        for path in paths {
            match RelPath::clean(path) {
                Ok(clean) if !path.ends_with(b"/") => {
                    let name = clean.as_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
                    expected.names.insert(name.into());
                }
                Ok(_) | Err(haul_model::PathError::Empty) => expected.is_open = true,
                // The server refuses the path.
                Err(_) => {}
            }
        }
        expected
    }

    /// Returns true if an entry at this path was requested.
    pub(super) fn has(&self, path: &[u8]) -> bool {
        let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
        self.is_open || self.names.contains(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requested_names_are_accepted() {
        let of = |paths: &[&str]| {
            Expected::of(&paths.iter().map(|path| path.as_bytes().into()).collect::<Vec<Box<[u8]>>>())
        };
        let expected = of(&["a/b", "c", "/etc"]);
        for (path, is_expected) in
            [("b", true), ("b/x", true), ("c", true), ("a/b", false), ("bb", false), ("etc", false)]
        {
            assert_eq!(expected.has(path.as_bytes()), is_expected, "{path}");
        }
        for open in [&["a/"][..], &[""], &["x", "."]] {
            assert!(of(open).has(b"anything/y"), "{open:?}");
        }
    }
}
