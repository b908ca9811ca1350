//! Permissions in chmod's syntax: octal, or symbolic clauses (POSIX, chmod), applied to a file
//! without any permissions.

use haul_engine::copy::quote_word;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use thiserror::Error;

/// Set-user-id.
pub(super) const SETUID: u32 = 0o4000;
/// Set-group-id.
pub(super) const SETGID: u32 = 0o2000;
/// Sticky bit: in a directory, only the owner of a file can remove it.
pub(super) const STICKY: u32 = 0o1000;

/// All bits that chmod(2) sets.
pub(super) const ALL: u32 = 0o7777;

/// Error of a word that is not a mode.
#[derive(Debug, Error, PartialEq, Eq)]
#[error("invalid mode {}", quote_word(.0))]
pub(super) struct ModeError(OsString);

/// A parsed mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mode {
    /// Bits for a file.
    pub(super) file: u32,
    /// Bits for a directory, where `X` has an effect.
    pub(super) directory: u32,
    /// Bits that the mode names; a directory keeps the others.
    pub(super) named: u32,
}

impl Default for Mode {
    /// `rwxr-xr-x`.
    fn default() -> Mode {
        Mode { file: 0o755, directory: 0o755, named: ALL }
    }
}

impl Mode {
    /// Parses a mode.
    ///
    /// # Errors
    /// Returns [`ModeError`] with the word if it is not a mode.
    pub(super) fn parse(word: &OsStr) -> Result<Mode, ModeError> {
        let text = word.as_bytes();
        let read = if text.first().is_some_and(u8::is_ascii_digit) { octal(text) } else { symbolic(text) };
        read.ok_or_else(|| ModeError(word.to_owned()))
    }

    /// Applies an operator to the bits of `who`, with these bits for a file and for a directory.
    fn change(&mut self, operator: u8, who: u32, [of_file, of_directory]: [u32; 2]) {
        let set = |old: u32, bits: u32| match operator {
            b'+' => old | bits,
            b'-' => old & !bits,
            _ => old & !who | bits,
        };
        self.file = set(self.file, of_file);
        self.directory = set(self.directory, of_directory);
    }
}

/// Parses the bits of chmod(2) as octal digits.
fn number(text: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(text).ok()?;
    let bits = u32::from_str_radix(digits, 8).ok()?;
    (bits <= ALL).then_some(bits)
}

fn octal(text: &[u8]) -> Option<Mode> {
    let bits = number(text)?;
    // With fewer than five digits, a directory keeps the set-id bits that the digits do not name.
    let named = if text.len() < 5 { bits | STICKY | 0o777 } else { ALL };
    Some(Mode { file: bits, directory: bits, named })
}

fn symbolic(text: &[u8]) -> Option<Mode> {
    let mut mode = Mode { file: 0, directory: 0, named: 0 };
    for clause in text.split(|&byte| byte == b',') {
        let end = clause.iter().position(|byte| !b"ugoa".contains(byte))?;
        let who = clause[..end].iter().fold(0, |who, &letter| who | bits_of_class(letter));
        let who = if who == 0 { ALL } else { who };
        let mut rest = &clause[end..];
        while let Some((&operator, behind)) = rest.split_first() {
            if !b"+-=".contains(&operator) {
                return None;
            }
            if behind.first().is_some_and(u8::is_ascii_digit) {
                // A number applies to all bits: no class may precede the operator, and nothing may
                // follow the number.
                let bits = number(behind).filter(|_| end == 0)?;
                mode.change(operator, ALL, [bits; 2]);
                mode.named |= if operator == b'=' { ALL } else { bits };
                break;
            }
            let end = behind.iter().position(|byte| b"+-=".contains(byte)).unwrap_or(behind.len());
            apply(&mut mode, who, operator, &behind[..end])?;
            rest = &behind[end..];
        }
    }
    Some(mode)
}

/// Returns the bits of `u`, `g`, `o` and `a`.
fn bits_of_class(letter: u8) -> u32 {
    match letter {
        b'u' => 0o700 | SETUID,
        b'g' => 0o070 | SETGID,
        b'o' => 0o007 | STICKY,
        _ => ALL,
    }
}

fn apply(mode: &mut Mode, who: u32, operator: u8, permissions: &[u8]) -> Option<()> {
    let of_file = value(permissions, mode.file, false)? & who;
    let of_directory = value(permissions, mode.directory, true)? & who;
    mode.change(operator, who, [of_file, of_directory]);
    // A directory's set-id bits stay unless they are named.
    let spoken = if operator == b'=' { who & !(SETUID | SETGID) | of_directory } else { of_directory };
    mode.named |= spoken;
    Some(())
}

/// Parses the permissions after an operator, for all classes: letters, or one class whose bits are
/// copied.
fn value(permissions: &[u8], mode: u32, is_directory: bool) -> Option<u32> {
    let of_class = |shift: u32| Some((mode >> shift & 7) * 0o111);
    match permissions {
        b"u" => return of_class(6),
        b"g" => return of_class(3),
        b"o" => return of_class(0),
        _ => {}
    }
    permissions.iter().try_fold(0, |bits, letter| {
        Some(
            bits | match letter {
                b'r' => 0o444,
                b'w' => 0o222,
                b'x' => 0o111,
                b'X' if is_directory || mode & 0o111 != 0 => 0o111,
                b'X' => 0,
                b's' => SETUID | SETGID,
                b't' => STICKY,
                _ => return None,
            },
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(word: &str) -> u32 {
        Mode::parse(OsStr::new(word)).unwrap().file
    }

    #[test]
    fn modes_are_parsed_as_by_chmod() {
        for (word, bits) in [
            ("644", 0o644),
            ("04755", 0o4755),
            ("0", 0),
            ("u=rwx,go=r", 0o744),
            ("+x", 0o111),
            ("=", 0),
            ("a+X", 0),
            ("u+x,a+X", 0o111),
            ("u+s,g-w", 0o4000),
            ("u=rw,g=u,o=g", 0o666),
            ("u=rwxs,g+t,+t", 0o5700),
            ("a=rx,u+w", 0o755),
            ("u+rw-r", 0o200),
            ("g=rwx,u=g-w", 0o570),
            ("=755", 0o755),
            ("+4755,u-w", 0o4555),
            ("a=rwx,-022", 0o755),
        ] {
            assert_eq!(of_file(word), bits, "{word}");
        }
        for word in [
            "", "0x", "8", "10000", "u", "u+z", "u=rg", "rwx", "a+r,", ",a+r", "+ug", "u=7", "ug+0", "+4-2",
            "=8", "+10000", "=75x",
        ] {
            assert!(Mode::parse(OsStr::new(word)).is_err(), "{word}");
        }
    }

    #[test]
    fn mode_bits_not_named_are_kept_on_directories() {
        let named = |word: &str| Mode::parse(OsStr::new(word)).unwrap().named;
        assert_eq!(named("755"), 0o1777);
        assert_eq!(named("2755"), 0o3777);
        assert_eq!(
            ["=", "u=", "o=", "g=s", "go-r", "+t"].map(named),
            [0o1777, 0o700, 0o1007, 0o2070, 0o044, 0o1000]
        );
        assert_eq!(named("00755"), ALL);
        assert_eq!(["=755", "+2000", "-4001"].map(named), [ALL, 0o2000, 0o4001]);
        assert_eq!(Mode::parse(OsStr::new("a+X")).unwrap().directory, 0o111);
    }
}
