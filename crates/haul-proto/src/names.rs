//! Validation of the names that a peer requests.

use haul_model::{PathError, RelPath};
use thiserror::Error;

/// Maximum size in bytes of one component of a path, as on Linux.
pub const NAME_BYTES_MAX: usize = 255;

/// Reason to refuse a name.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NameFault {
    /// The name is not a path beneath a root.
    #[error(transparent)]
    Path(#[from] PathError),
    /// A component is longer than [`NAME_BYTES_MAX`].
    #[error("a part of it is longer than {NAME_BYTES_MAX} bytes")]
    PartTooLong,
    /// A component starts with `.haul-`.
    #[error("names that start with .haul- are reserved for haul's own files")]
    Reserved,
    /// A component is the directory of stored digests.
    #[error("stored digests ({STORED_SUMS}) are accepted only with --stored-sums at the receiver")]
    StoredSums,
}

/// Name of the directory with the digests that are stored for the files of a tree. `verify` trusts
/// them, so no peer may write there unless the receiver permits it.
pub const STORED_SUMS: &str = ".haul";

/// Prefix of the names that haul gives to its own files in a tree: temporary files, locks, journals
/// and trees of digests. haul trusts these files later, so no peer may create them.
const RESERVED: &[u8] = b".haul-";

/// Converts the bytes of a peer into a path that stays beneath a root and has only components that
/// Linux accepts.
///
/// Everything else that Linux accepts is accepted, because such names must be transferable. This
/// includes control characters (which haul never prints raw), bytes that are not UTF-8, and names
/// of a device or a stream on another system. Only the file system of the sink knows how it treats
/// a name, so the sink asks the file system.
///
/// # Errors
/// Returns [`NameFault::Path`] if the bytes are not a path beneath a root, and
/// [`NameFault::PartTooLong`] if a component is too long.
pub fn check_name(bytes: &[u8]) -> Result<RelPath, NameFault> {
    let path = RelPath::new(bytes)?;
    let is_short = path.parts().all(|part| part.len() <= NAME_BYTES_MAX);
    if is_short { Ok(path) } else { Err(NameFault::PartTooLong) }
}

/// Same as [`check_name`], for the name of a received entry.
///
/// # Errors
/// Same as [`check_name`]; also [`NameFault::Reserved`] for a name that haul reserves, and
/// [`NameFault::StoredSums`]. The comparison ignores the case of ASCII letters, because some file
/// systems ignore it too.
pub fn check_received(bytes: &[u8]) -> Result<RelPath, NameFault> {
    let path = check_accepted(bytes)?;
    let is_stored_sums = |part: &[u8]| part.eq_ignore_ascii_case(STORED_SUMS.as_bytes());
    if path.parts().any(is_stored_sums) { Err(NameFault::StoredSums) } else { Ok(path) }
}

/// Same as [`check_received`], where the receiver accepts stored digests.
///
/// # Errors
/// Same as [`check_received`], without [`NameFault::StoredSums`].
pub fn check_accepted(bytes: &[u8]) -> Result<RelPath, NameFault> {
    let path = check_name(bytes)?;
    let is_reserved =
        |part: &[u8]| part.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED));
    if path.parts().any(is_reserved) { Err(NameFault::Reserved) } else { Ok(path) }
}

/// Returns true if a component of a path belongs to haul: it starts with `.haul-`, or it is the
/// directory `.haul` of stored digests. The comparison ignores the case of ASCII letters.
pub fn is_own_name(name: &[u8]) -> bool {
    name.get(..RESERVED.len()).is_some_and(|start| start.eq_ignore_ascii_case(RESERVED))
        || name.eq_ignore_ascii_case(STORED_SUMS.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_own_files_are_never_received() {
        for name in [".haul-0-1", "a/.haul-begun", ".Haul-x/y", ".haul-"] {
            assert_eq!(check_received(name.as_bytes()), Err(NameFault::Reserved), "{name}");
            check_name(name.as_bytes()).expect("such a name may be requested");
        }
        for name in ["haul", "haul-x", "a.haul-x", ".haulier", "a/.haul.x"] {
            check_received(name.as_bytes()).expect(name);
        }
        for (name, is_own) in
            [(".HAUL", true), (".haul-x", true), (".Haul-", true), (".haulier", false), ("", false)]
        {
            assert_eq!(is_own_name(name.as_bytes()), is_own, "{name}");
        }
    }

    /// Regression: a client replaced a file and its stored digest, and `verify` found it intact.
    #[test]
    fn stored_digests_are_received_only_where_they_are_accepted() {
        for name in [".haul", ".haul/sums/a", "a/.haul/sums/a", ".HAUL/sums", "a/.Haul"] {
            assert_eq!(check_received(name.as_bytes()), Err(NameFault::StoredSums), "{name}");
            check_accepted(name.as_bytes()).expect(name);
        }
        assert_eq!(check_accepted(b".haul/.haul-x"), Err(NameFault::Reserved));
    }

    #[test]
    fn only_invalid_or_overlong_names_are_refused() {
        let long = [b'x'; NAME_BYTES_MAX + 1];
        let deep = [b"a/", &long[..]].concat();
        for (bytes, fault) in [
            (&b"../x"[..], NameFault::Path(PathError::Climbs)),
            (b"/x", NameFault::Path(PathError::Absolute)),
            (b"a\0b", NameFault::Path(PathError::Nul)),
            (&long, NameFault::PartTooLong),
            (&deep, NameFault::PartTooLong),
        ] {
            assert_eq!(check_name(bytes), Err(fault), "{bytes:?}");
        }
        for good in [&long[1..], b"a\x1b[2J", b"\xff", b"NUL.txt", b"com7", b"file:ads", b"a/b."] {
            assert_eq!(check_name(good).map(|path| path.as_bytes().to_vec()), Ok(good.to_vec()));
        }
    }

    proptest! {
        #[test]
        fn accepted_names_keep_their_bytes_and_stay_inside(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(path) = check_name(&bytes) {
                prop_assert_eq!(path.as_bytes(), &bytes[..]);
                prop_assert!(path.parts().all(|part| part != b".." && part.len() <= NAME_BYTES_MAX));
            }
        }
    }
}
