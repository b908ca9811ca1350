//! What was typed: options in their order, and operands, by the rules of getopt_long(3).
//!
//! A parser of its own, because cp's users and scripts rely on all of those rules: later options override
//! earlier ones of other names, operands may stand between options, long names may be cut short, and the
//! messages are the ones everybody knows.

use super::options::{OPTIONS, Opt, Value};
use haul_engine::copy::quote;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use thiserror::Error;

/// A command line, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Typed {
    /// Options in the order typed.
    pub(super) options: Vec<TypedOption>,
    /// Everything else, in the order typed.
    pub(super) operands: Vec<OsString>,
}

/// One option as typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TypedOption {
    /// Its name in the table.
    pub(super) name: &'static str,
    pub(super) value: Option<OsString>,
}

/// Why a word is no option.
#[derive(Debug, Error, PartialEq, Eq)]
pub(super) enum ArgsError {
    #[error("unrecognized option {}", quote(&dashed(.0)))]
    Unrecognized(OsString),
    #[error("option {} is ambiguous; possibilities:{possibilities}", quote(&dashed(word)))]
    Ambiguous { word: OsString, possibilities: String },
    #[error("option '--{0}' doesn't allow an argument")]
    TakesNoValue(&'static str),
    #[error("option '--{0}' requires an argument")]
    LongNeedsValue(&'static str),
    #[error("option requires an argument -- '{0}'")]
    ShortNeedsValue(char),
    #[error("invalid option -- {}", quote(OsStr::from_bytes(&[*.0])))]
    Invalid(u8),
}

/// A long option as it was typed.
fn dashed(word: &OsStr) -> OsString {
    let mut typed = OsString::from("--");
    typed.push(word);
    typed
}

/// Takes a command line apart. With `options_first` (POSIXLY_CORRECT) the first operand ends the options.
///
/// # Errors
/// [`ArgsError`] about the first word that is no option.
pub(super) fn parse(args: &[OsString], options_first: bool) -> Result<Typed, ArgsError> {
    let mut typed = Typed::default();
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            break;
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            typed.options.push(long_option(long, &mut rest)?);
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            short_options(&bytes[1..], &mut rest, &mut typed.options)?;
        } else {
            typed.operands.push(word.clone());
            if options_first {
                break;
            }
        }
    }
    typed.operands.extend(rest.cloned());
    Ok(typed)
}

type Rest<'a> = std::slice::Iter<'a, OsString>;

/// One `--name`, `--name=value` or `--name value`.
fn long_option(word: &[u8], rest: &mut Rest<'_>) -> Result<TypedOption, ArgsError> {
    let (name, value) = match word.iter().position(|&byte| byte == b'=') {
        Some(at) => (&word[..at], Some(OsString::from_vec(word[at + 1..].to_vec()))),
        None => (word, None),
    };
    let option = find_long(name, word)?;
    let value = match (option.value, value) {
        (Value::No, Some(_)) => return Err(ArgsError::TakesNoValue(option.name)),
        (Value::Required(_), None) => {
            Some(rest.next().ok_or(ArgsError::LongNeedsValue(option.name))?.clone())
        }
        (_, value) => value,
    };
    Ok(TypedOption { name: option.name, value })
}

/// The option with this name or the only one that begins so; cp's own come first.
fn find_long(name: &[u8], word: &[u8]) -> Result<&'static Opt, ArgsError> {
    let long = || OPTIONS.iter().filter(|option| option.long);
    if let Some(exact) = long().find(|option| option.name.as_bytes() == name) {
        return Ok(exact);
    }
    let begin_so = |gnu| -> Vec<&Opt> {
        long().filter(|option| option.gnu == gnu && option.name.as_bytes().starts_with(name)).collect()
    };
    let of_gnu = begin_so(true);
    let found = if of_gnu.is_empty() { begin_so(false) } else { of_gnu };
    let word = || OsStr::from_bytes(word).to_owned();
    match found[..] {
        [] => Err(ArgsError::Unrecognized(word())),
        [only] => Ok(only),
        _ => {
            let possibilities = found.iter().map(|option| format!(" '--{}'", option.name)).collect();
            Err(ArgsError::Ambiguous { word: word(), possibilities })
        }
    }
}

/// One `-abc`, where the last letter may take a value from behind it or from the next word.
fn short_options(letters: &[u8], rest: &mut Rest<'_>, out: &mut Vec<TypedOption>) -> Result<(), ArgsError> {
    for (at, &letter) in letters.iter().enumerate() {
        let find = |option: &&Opt| option.shorts.as_bytes().contains(&letter);
        let option = OPTIONS.iter().find(find).ok_or(ArgsError::Invalid(letter))?;
        if !matches!(option.value, Value::Required(_)) {
            out.push(TypedOption { name: option.name, value: None });
            continue;
        }
        let behind = &letters[at + 1..];
        let value = if behind.is_empty() {
            rest.next().ok_or(ArgsError::ShortNeedsValue(char::from(letter)))?.clone()
        } else {
            OsStr::from_bytes(behind).to_owned()
        };
        out.push(TypedOption { name: option.name, value: Some(value) });
        break;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(line: &str) -> Result<Typed, ArgsError> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(&words, false)
    }

    fn names(line: &str) -> Vec<(&'static str, Option<String>)> {
        let value = |value: OsString| value.into_string().unwrap();
        typed(line)
            .unwrap()
            .options
            .into_iter()
            .map(|option| (option.name, option.value.map(value)))
            .collect()
    }

    #[test]
    fn options_keep_their_order_and_operands_may_stand_between() {
        let all = typed("a -rv b --pres=mode -- -c").unwrap();
        assert_eq!(all.operands, ["a", "b", "-c"]);
        assert_eq!(
            names("a -rv b --pres=mode -- -c"),
            [("recursive", None), ("verbose", None), ("preserve", Some("mode".into()))]
        );
    }

    #[test]
    fn values_stand_behind_or_next() {
        for line in ["-td", "-t d", "--target-directory=d", "--target-directory d", "--tar d"] {
            assert_eq!(names(line), [("target-directory", Some("d".into()))], "{line}");
        }
        assert_eq!(names("-S -x"), [("suffix", Some("-x".into()))]);
        assert_eq!(names("-t=d"), [("target-directory", Some("=d".into()))]);
        assert_eq!(names("--backup x"), [("backup", None)], "an optional value never stands next");
    }

    #[test]
    fn abbreviations_of_cp_keep_their_meaning_beside_options_it_lacks() {
        assert_eq!(names("--l"), [("link", None)]);
        assert_eq!(names("--pr"), [("preserve", None)]);
        assert_eq!(names("--dou"), [("double-buffer", None)]);
    }

    #[test]
    fn mistakes_are_named() {
        let message = |line: &str| typed(line).unwrap_err().to_string();
        assert_eq!(message("--x=3"), "unrecognized option '--x=3'");
        assert_eq!(
            message("--re"),
            "option '--re' is ambiguous; possibilities: '--recursive' '--remove-destination' '--reflink'"
        );
        assert_eq!(message("-ay"), "invalid option -- 'y'");
        assert_eq!(message("--\u{1b}[2J"), r"unrecognized option '--'$'\033''[2J'");
        assert_eq!(message("-\u{1b}"), r"invalid option -- ''$'\033'");
        assert_eq!(message("-t"), "option requires an argument -- 't'");
        assert_eq!(message("--suf"), "option '--suffix' requires an argument");
        assert_eq!(message("--recursive=3"), "option '--recursive' doesn't allow an argument");
    }

    #[test]
    fn options_may_have_to_come_first() {
        let words = ["a", "-r"].map(OsString::from);
        assert_eq!(parse(&words, true).unwrap().operands, ["a", "-r"]);
    }
}
