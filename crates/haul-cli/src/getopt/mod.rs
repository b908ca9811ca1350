//! Command-line parser: options in their order, and operands, by the rules of getopt_long(3).
//!
//! haul has its own parser because users and scripts rely on all these rules. Later options
//! override earlier ones of other names, operands may stand between options, long names may be
//! abbreviated, and the messages are the usual ones. Options take effect in their order, up to the
//! first error: `--help` before an error still prints help.
//!
//! A tool defines its options in one [table](Opt) for parsing, abbreviations and help.

pub(crate) mod backup;
pub(crate) mod choice;
pub(crate) mod context;
pub(crate) mod destination;
pub(crate) mod shared;
pub(crate) mod sizes;
mod table;
pub(crate) mod update;

#[cfg(test)]
pub(crate) use table::rules;
pub(crate) use table::{Opt, Value, gnu, help_lines, later, letter, older, own};

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use thiserror::Error;

/// A parsed command line.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ParsedArgs {
    /// Options in the order typed.
    pub(crate) options: Vec<ParsedOption>,
    /// Everything else, in the order typed.
    pub(crate) operands: Vec<OsString>,
    /// The first invalid option. The arguments after it were not read.
    pub(crate) mistake: Option<ArgsError>,
}

/// One option as typed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedOption {
    /// Its name in the table.
    pub(crate) name: &'static str,
    pub(crate) value: Option<OsString>,
}

/// Error of an argument that is not a valid option.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum ArgsError {
    #[error("unrecognized option '--{}'", shown(.0))]
    Unrecognized(OsString),
    #[error("option '--{}' is ambiguous; possibilities:{possibilities}", shown(word))]
    Ambiguous { word: OsString, possibilities: String },
    #[error("option '--{0}' doesn't allow an argument")]
    TakesNoValue(&'static str),
    #[error("option '--{0}' requires an argument")]
    LongNeedsValue(&'static str),
    #[error("option requires an argument -- '{0}'")]
    ShortNeedsValue(char),
    #[error("invalid option -- '{}'", shown(OsStr::from_bytes(&[*.0])))]
    Invalid(u8),
}

/// Returns a word as typed, with control characters and invalid bytes as `\ooo`.
fn shown(word: &OsStr) -> String {
    let mut text = String::new();
    for chunk in word.as_bytes().utf8_chunks() {
        for character in chunk.valid().chars() {
            if character.is_control() {
                let mut bytes = [0; 4];
                text.extend(character.encode_utf8(&mut bytes).bytes().map(|byte| format!("\\{byte:03o}")));
            } else {
                text.push(character);
            }
        }
        text.extend(chunk.invalid().iter().map(|byte| format!("\\{byte:03o}")));
    }
    text
}

/// Parses a command line. With `options_first` (POSIXLY_CORRECT) the first operand ends the
/// options.
pub(crate) fn parse(table: &'static [Opt], args: &[OsString], options_first: bool) -> ParsedArgs {
    let mut typed = ParsedArgs::default();
    typed.mistake = read(table, args, options_first, &mut typed).err();
    typed
}

fn read(
    table: &'static [Opt],
    args: &[OsString],
    options_first: bool,
    typed: &mut ParsedArgs,
) -> Result<(), ArgsError> {
    let mut rest = args.iter();
    while let Some(word) = rest.next() {
        let bytes = word.as_bytes();
        if bytes == b"--" {
            break;
        } else if let Some(long) = bytes.strip_prefix(b"--") {
            typed.options.push(long_option(table, long, &mut rest)?);
        } else if bytes.len() > 1 && bytes[0] == b'-' {
            short_options(table, &bytes[1..], &mut rest, &mut typed.options)?;
        } else {
            typed.operands.push(word.clone());
            if options_first {
                break;
            }
        }
    }
    typed.operands.extend(rest.cloned());
    Ok(())
}

type Rest<'a> = std::slice::Iter<'a, OsString>;

/// Parses `--name`, `--name=value` or `--name value`.
fn long_option(table: &'static [Opt], word: &[u8], rest: &mut Rest<'_>) -> Result<ParsedOption, ArgsError> {
    let (name, value) = match word.iter().position(|&byte| byte == b'=') {
        Some(at) => (&word[..at], Some(OsString::from_vec(word[at + 1..].to_vec()))),
        None => (word, None),
    };
    let option = find_long(table, name, word)?;
    let value = match (option.value, value) {
        (Value::No, Some(_)) => return Err(ArgsError::TakesNoValue(option.name)),
        (Value::Required(_), None) => {
            Some(rest.next().ok_or(ArgsError::LongNeedsValue(option.name))?.clone())
        }
        (_, value) => value,
    };
    Ok(ParsedOption { name: option.means, value })
}

/// Returns the option with this name, or the only one that starts with it; GNU's own have priority.
/// Two names of one option count as one.
fn find_long(table: &'static [Opt], name: &[u8], word: &[u8]) -> Result<&'static Opt, ArgsError> {
    let long = || table.iter().filter(|option| option.long);
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
        [first, ref others @ ..] if others.iter().all(|other| other.means == first.means) => Ok(first),
        _ => {
            // Same list as getopt's: the first option, and those with another meaning.
            let differs = |option: &&&Opt| option.name == found[0].name || option.means != found[0].means;
            let listed = found.iter().filter(differs);
            let possibilities = listed.map(|option| format!(" '--{}'", option.name)).collect();
            Err(ArgsError::Ambiguous { word: word(), possibilities })
        }
    }
}

/// Parses `-abc`; the last letter may take a value from the rest of the argument or from the next
/// one.
fn short_options(
    table: &'static [Opt],
    letters: &[u8],
    rest: &mut Rest<'_>,
    out: &mut Vec<ParsedOption>,
) -> Result<(), ArgsError> {
    for (at, &letter) in letters.iter().enumerate() {
        let find = |option: &&Opt| option.shorts.as_bytes().contains(&letter);
        let option = table.iter().find(find).ok_or(ArgsError::Invalid(letter))?;
        if !matches!(option.value, Value::Required(_)) {
            out.push(ParsedOption { name: option.name, value: None });
            continue;
        }
        let behind = &letters[at + 1..];
        let value = if behind.is_empty() {
            rest.next().ok_or(ArgsError::ShortNeedsValue(char::from(letter)))?.clone()
        } else {
            OsStr::from_bytes(behind).to_owned()
        };
        out.push(ParsedOption { name: option.name, value: Some(value) });
        break;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Opt] = &[
        gnu("all", "a", Value::No, ""),
        letter("b", ""),
        gnu("backup", "", Value::Optional("CONTROL"), ""),
        gnu("recursive", "Rr", Value::No, ""),
        gnu("reflink", "", Value::Optional("WHEN"), ""),
        gnu("suffix", "S", Value::Required("SUFFIX"), ""),
        gnu("target-directory", "t", Value::Required("DIRECTORY"), ""),
        gnu("link", "l", Value::No, ""),
        own("length", Value::Required("LEN"), ""),
        own("threads", Value::Required("N"), ""),
    ];

    fn typed(line: &str) -> ParsedArgs {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(TABLE, &words, false)
    }

    fn names(line: &str) -> Vec<(&'static str, Option<String>)> {
        let value = |value: OsString| value.into_string().unwrap();
        let typed = typed(line);
        assert_eq!(typed.mistake, None);
        typed.options.into_iter().map(|option| (option.name, option.value.map(value))).collect()
    }

    #[test]
    fn options_keep_their_order_and_may_follow_operands() {
        let all = typed("a -rb c --suf=x -- -c");
        assert_eq!(all.operands, ["a", "c", "-c"]);
        let expected = [("recursive", None), ("b", None), ("suffix", Some("x".into()))];
        assert_eq!(names("a -rb c --suf=x -- -c"), expected);
    }

    #[test]
    fn option_values_are_attached_or_the_next_argument() {
        for line in ["-td", "-t d", "--target-directory=d", "--target-directory d", "--tar d"] {
            assert_eq!(names(line), [("target-directory", Some("d".into()))], "{line}");
        }
        assert_eq!(names("-S -x"), [("suffix", Some("-x".into()))]);
        assert_eq!(names("-t=d"), [("target-directory", Some("=d".into()))]);
        assert_eq!(names("--backup x"), [("backup", None)], "an optional value is never the next word");
    }

    #[test]
    fn abbreviations_prefer_gnu_options_to_own_options() {
        assert_eq!(names("--l"), [("link", None)]);
        assert_eq!(names("--le 3"), [("length", Some("3".into()))]);
        assert_eq!(names("--th 3"), [("threads", Some("3".into()))]);
    }

    #[test]
    fn arguments_before_a_usage_error_are_parsed() {
        let all = typed("-a --recu a -y b -r");
        assert_eq!(all.mistake, Some(ArgsError::Invalid(b'y')));
        assert_eq!((all.options.len(), all.operands.len()), (2, 1));
    }

    #[test]
    fn usage_errors_have_the_messages_of_getopt() {
        let message = |line: &str| typed(line).mistake.unwrap().to_string();
        assert_eq!(message("--x=3"), "unrecognized option '--x=3'");
        assert_eq!(message("--re"), "option '--re' is ambiguous; possibilities: '--recursive' '--reflink'");
        assert_eq!(message("-ay"), "invalid option -- 'y'");
        assert_eq!(message("--\u{1b}[2J"), r"unrecognized option '--\033[2J'");
        assert_eq!(message("-t"), "option requires an argument -- 't'");
        assert_eq!(message("--suf"), "option '--suffix' requires an argument");
        assert_eq!(message("--recursive=3"), "option '--recursive' doesn't allow an argument");
    }

    #[test]
    fn options_first_treats_options_after_operands_as_operands() {
        let words = ["a", "-r"].map(OsString::from);
        assert_eq!(parse(TABLE, &words, true).operands, ["a", "-r"]);
    }
}
