//! Destination of the operands of cp, mv and install, as far as the arguments alone determine it:
//! `-t`, `-T`, and the number of names.

use haul_engine::copy::quote;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use thiserror::Error;

/// Destination options as typed.
#[derive(Debug, Default)]
pub(crate) struct Destination {
    /// `-t`.
    directory: Option<OsString>,
    /// `-T`.
    is_file: bool,
    /// `--strip-trailing-slashes`.
    strips: bool,
}

/// Error of invalid operands.
#[derive(Debug, Error)]
pub(crate) enum OperandError {
    #[error("missing file operand")]
    NoOperand,
    #[error("missing destination file operand after {}", quote(.0))]
    NoDestination(OsString),
    #[error("extra operand {}", quote(.0))]
    ExtraOperand(OsString),
    #[error("cannot combine --target-directory (-t) and --no-target-directory (-T)")]
    TargetAndNone,
    #[error("multiple target directories specified")]
    SeveralTargets,
}

impl OperandError {
    /// Returns true if a hint at `--help` follows the message.
    pub(crate) fn has_hint(&self) -> bool {
        !matches!(self, OperandError::TargetAndNone | OperandError::SeveralTargets)
    }
}

impl Destination {
    /// Handles a destination option; returns false for any other.
    ///
    /// # Errors
    /// [`OperandError::SeveralTargets`] for a second `-t`.
    pub(crate) fn option(&mut self, name: &str, value: Option<&OsStr>) -> Result<bool, OperandError> {
        match name {
            "no-target-directory" => self.is_file = true,
            "strip-trailing-slashes" => self.strips = true,
            "target-directory" if self.directory.is_some() => return Err(OperandError::SeveralTargets),
            "target-directory" => self.directory = value.map(OsStr::to_owned),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// `-T`: the last operand is a file name, even if a directory exists there.
    pub(crate) fn is_file(&self) -> bool {
        self.is_file
    }

    /// `-t`: the directory that receives all operands.
    pub(crate) fn directory(&self) -> Option<&OsStr> {
        self.directory.as_deref()
    }

    /// Checks the number of operands. With `needs_target`, the last operand is the target unless
    /// `-t` is given.
    ///
    /// # Errors
    /// Returns [`OperandError`]: the first error, in the order in which the tools find them.
    pub(crate) fn check(&self, operands: &[OsString], needs_target: bool) -> Result<(), OperandError> {
        let least = if needs_target && self.directory.is_none() { 2 } else { 1 };
        match operands {
            [] => return Err(OperandError::NoOperand),
            [only] if least > 1 => return Err(OperandError::NoDestination(only.clone())),
            _ => {}
        }
        match operands {
            _ if self.is_file && self.directory.is_some() => Err(OperandError::TargetAndNone),
            [_, _, extra, ..] if self.is_file => Err(OperandError::ExtraOperand(extra.clone())),
            _ => Ok(()),
        }
    }

    /// Returns a name without its trailing slashes, if the option is given.
    pub(crate) fn stripped(&self, name: OsString) -> OsString {
        if !self.strips {
            return name;
        }
        let mut bytes = name.into_vec();
        let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(bytes.len().min(1), |at| at + 1);
        bytes.truncate(end);
        OsString::from_vec(bytes)
    }
}

/// Returns the operands before the last one, and the last one.
///
/// # Errors
/// Returns [`OperandError::NoOperand`] if there is no operand.
pub(crate) fn split_last(mut operands: Vec<OsString>) -> Result<(Vec<OsString>, OsString), OperandError> {
    let last = operands.pop().ok_or(OperandError::NoOperand)?;
    Ok((operands, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(options: &[(&str, Option<&str>)]) -> Destination {
        let mut destination = Destination::default();
        for (name, value) in options {
            assert!(destination.option(name, value.map(OsStr::new)).unwrap(), "{name}");
        }
        destination
    }

    fn mistake(destination: &Destination, operands: &str, needs_target: bool) -> String {
        let operands: Vec<OsString> = operands.split_whitespace().map(OsString::from).collect();
        destination.check(&operands, needs_target).err().map(|error| error.to_string()).unwrap_or_default()
    }

    #[test]
    fn operand_counts_are_validated() {
        let (plain, into) = (typed(&[]), typed(&[("target-directory", Some("d"))]));
        let onto = typed(&[("no-target-directory", None)]);
        assert_eq!(mistake(&plain, "", true), "missing file operand");
        assert_eq!(mistake(&plain, "a", true), "missing destination file operand after 'a'");
        for (destination, operands, needs_target) in [
            (&plain, "a b", true),
            (&plain, "a b c", true),
            (&plain, "a", false),
            (&into, "a", true),
            (&onto, "a b", true),
        ] {
            assert_eq!(mistake(destination, operands, needs_target), "", "{operands}");
        }
        assert_eq!(mistake(&onto, "a b c d", true), "extra operand 'c'");
        let both = typed(&[("no-target-directory", None), ("target-directory", Some("d"))]);
        assert!(mistake(&both, "a b c", true).starts_with("cannot combine"));
        assert!(typed(&[("target-directory", Some("d"))]).option("target-directory", None).is_err());
        assert!(!typed(&[]).option("verbose", None).unwrap());
    }

    #[test]
    fn trailing_slashes_are_stripped_only_on_request() {
        let strips = typed(&[("strip-trailing-slashes", None)]);
        for (name, expected) in [("a//", "a"), ("/", "/"), ("//", "/"), ("", ""), ("a/b", "a/b")] {
            assert_eq!(strips.stripped(name.into()), expected);
            assert_eq!(typed(&[]).stripped(name.into()), name);
        }
    }
}
