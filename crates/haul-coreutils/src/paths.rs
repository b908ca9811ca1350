//! Parts of the paths that a user types.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

/// Returns the last component of a path, without trailing slashes.
pub(crate) fn last_component(path: &OsStr) -> &OsStr {
    OsStr::from_bytes(split(path.as_bytes()).1)
}

/// Splits a path into the part before the last component and that component. The first part is `.`
/// if nothing precedes the component, and `/` at the root.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    let path = without_slashes(OsStr::from_bytes(path)).as_bytes();
    match path.iter().rposition(|&byte| byte == b'/') {
        None => (b".", path),
        Some(_) if path == b"/" => (b"/", b"/"),
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
    }
}

/// Removes trailing slashes from a path. The root stays unchanged.
pub(crate) fn without_slashes(path: &OsStr) -> &OsStr {
    let bytes = path.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(bytes.len().min(1), |at| at + 1);
    OsStr::from_bytes(&bytes[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_split_before_their_last_component() {
        for (path, place, last) in [
            ("a", ".", "a"),
            ("a/b//", "a", "b"),
            ("/a", "/", "a"),
            ("/", "/", "/"),
            ("a/b/c", "a/b", "c"),
            ("", ".", ""),
        ] {
            assert_eq!(split(path.as_bytes()), (place.as_bytes(), last.as_bytes()), "{path}");
        }
    }
}
