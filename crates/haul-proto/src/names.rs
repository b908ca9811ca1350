//! Names that a peer asks for.

use haul_model::{PathFault, RelPath};
use thiserror::Error;

/// What a sink takes as a name. The rules of [`RelPath`] (no way out of the root, no NUL, bounded) always hold; these
/// are what a user or a file system asks for beyond them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamePolicy {
    /// Most bytes in one part of a path; 255 on Linux.
    pub part_bytes_max: usize,
    /// Whether names may hold control characters (they are never printed raw).
    pub controls: bool,
    /// Whether names need not be UTF-8.
    pub any_bytes: bool,
    /// Whether names are refused that Windows and its file systems give a meaning: `CON`, `a:b`, a dot at the end.
    pub portable: bool,
}

impl Default for NamePolicy {
    /// What Linux takes.
    fn default() -> NamePolicy {
        NamePolicy { part_bytes_max: 255, controls: true, any_bytes: true, portable: false }
    }
}

/// Why a name is refused.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub enum NameFault {
    /// It is no path beneath a root.
    #[error(transparent)]
    Path(#[from] PathFault),
    /// A part is longer than [`NamePolicy::part_bytes_max`].
    #[error("a part of it is longer than {0} bytes")]
    PartTooLong(usize),
    /// A control character.
    #[error("it holds a control character")]
    Control,
    /// No UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// A name with a meaning on some system.
    #[error("a part of it means something else on some systems: a device, a drive, a stream")]
    NotPortable,
}

impl NamePolicy {
    /// The path that these bytes are, if the policy takes it.
    ///
    /// # Errors
    /// [`NameFault`].
    pub fn judge(&self, bytes: &[u8]) -> Result<RelPath, NameFault> {
        let path = RelPath::new(bytes)?;
        if path.parts().any(|part| part.len() > self.part_bytes_max) {
            return Err(NameFault::PartTooLong(self.part_bytes_max));
        }
        let text = std::str::from_utf8(bytes);
        if !self.any_bytes && text.is_err() {
            return Err(NameFault::NotUtf8);
        }
        let steers = |bytes: &[u8]| bytes.iter().any(u8::is_ascii_control);
        if !self.controls && text.map_or_else(|_| steers(bytes), |text| text.contains(char::is_control)) {
            return Err(NameFault::Control);
        }
        if self.portable && !path.parts().all(is_portable) {
            return Err(NameFault::NotPortable);
        }
        Ok(path)
    }

    /// What two parts have in common if a file system that does not tell upper from lower case takes them for one
    /// name.
    pub fn folded(part: &[u8]) -> Vec<u8> {
        match std::str::from_utf8(part) {
            // Upper first: it unites letters that have one capital and two small forms.
            Ok(text) => text.to_uppercase().to_lowercase().into_bytes(),
            Err(_) => part.to_ascii_lowercase(),
        }
    }
}

/// Names of devices on Windows, with or without an extension.
const DEVICES: [&str; 4] = ["con", "prn", "aux", "nul"];

fn is_portable(part: &[u8]) -> bool {
    let has_meaning = |byte: &u8| matches!(byte, b'<' | b'>' | b':' | b'"' | b'\\' | b'|' | b'?' | b'*');
    if part.iter().any(has_meaning) || matches!(part.last(), Some(b'.' | b' ')) {
        return false;
    }
    let stem = part.split(|byte| *byte == b'.').next().unwrap_or(part).to_ascii_lowercase();
    let stem = stem.trim_ascii_end();
    let numbered = |device: &[u8]| {
        stem.strip_prefix(device).is_some_and(|rest| matches!(rest, [b'0'..=b'9']) || is_raised_digit(rest))
    };
    !DEVICES.iter().any(|device| stem == device.as_bytes()) && !numbered(b"com") && !numbered(b"lpt")
}

/// Windows takes the raised digits of Latin-1 for digits here.
fn is_raised_digit(bytes: &[u8]) -> bool {
    matches!(std::str::from_utf8(bytes), Ok("\u{b9}" | "\u{b2}" | "\u{b3}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STRICT: NamePolicy =
        NamePolicy { part_bytes_max: 10, controls: false, any_bytes: false, portable: true };

    #[test]
    fn each_rule_refuses_what_it_names() {
        for (bytes, fault) in [
            (&b"../x"[..], NameFault::Path(PathFault::Climbs)),
            (b"/x", NameFault::Path(PathFault::Absolute)),
            (b"a\0b", NameFault::Path(PathFault::Nul)),
            (b"a/elevenbytes", NameFault::PartTooLong(10)),
            (b"a\x1b[2J", NameFault::Control),
            ("a\u{9b}2J".as_bytes(), NameFault::Control),
            (b"\xff", NameFault::NotUtf8),
            (b"a/NUL.txt", NameFault::NotPortable),
            (b"com7", NameFault::NotPortable),
            ("LPT\u{b2}.x".as_bytes(), NameFault::NotPortable),
            (b"file:ads", NameFault::NotPortable),
            (b"a/b.", NameFault::NotPortable),
        ] {
            assert_eq!(STRICT.judge(bytes), Err(fault), "{bytes:?}");
        }
        for good in ["a/b.txt", "com", "com10", "console", "nulls", ".hidden", "données"] {
            assert!(STRICT.judge(good.as_bytes()).is_ok(), "{good}");
        }
        assert!(NamePolicy::default().judge(b"a\x1b/\xff/NUL").is_ok());
    }

    #[test]
    fn cases_fold() {
        assert_eq!(NamePolicy::folded("README".as_bytes()), b"readme");
        assert_eq!(NamePolicy::folded("Σς".as_bytes()), NamePolicy::folded("σσ".as_bytes()));
        assert_ne!(NamePolicy::folded(b"a"), NamePolicy::folded(b"b"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            for policy in [STRICT, NamePolicy::default()] {
                if let Ok(path) = policy.judge(&bytes) {
                    prop_assert_eq!(path.as_bytes(), &bytes[..]);
                    prop_assert!(path.parts().all(|part| part != b".." && part.len() <= policy.part_bytes_max));
                }
            }
        }
    }
}
