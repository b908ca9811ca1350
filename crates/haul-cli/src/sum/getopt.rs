//! Options and operands by the rules of getopt_long(3). Arguments are processed in order, so that
//! the first usage error is reported.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use thiserror::Error;

/// One option of a tool.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row<T: 'static> {
    pub(super) id: T,
    pub(super) short: Option<u8>,
    pub(super) long: Option<&'static str>,
    /// True if the option takes a value.
    pub(super) value: bool,
    /// True if the original tool has the option too. Long names may be abbreviated; names of the
    /// original have priority.
    pub(super) original: bool,
}

/// Next item of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item<T> {
    Option(T, Option<OsString>),
    Operand(OsString),
}

/// Error of an argument that is not a valid option.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub(super) enum UsageError {
    #[error("unrecognized option '--{0}'")]
    Unrecognized(String),
    #[error("option '--{word}' is ambiguous; possibilities:{possibilities}")]
    Ambiguous { word: String, possibilities: String },
    #[error("option '--{0}' doesn't allow an argument")]
    TakesNoValue(String),
    #[error("option '--{0}' requires an argument")]
    LongNeedsValue(String),
    #[error("option requires an argument -- '{0}'")]
    ShortNeedsValue(char),
    #[error("invalid option -- '{0}'")]
    Invalid(String),
}

/// Parser of a command line.
pub(super) struct Getopt<'a, T: 'static> {
    table: Vec<Row<T>>,
    words: std::slice::Iter<'a, OsString>,
    /// Remaining letters of the current argument.
    letters: &'a [u8],
    /// True if only operands follow.
    ended: bool,
    /// True if the first operand ends the options.
    options_first: bool,
}

impl<'a, T: Copy> Getopt<'a, T> {
    /// Parses the arguments after the tool's name. With `options_first` (POSIXLY_CORRECT) the first
    /// operand ends the options.
    pub(super) fn new(table: Vec<Row<T>>, words: &'a [OsString], options_first: bool) -> Getopt<'a, T> {
        Getopt { table, words: words.iter(), letters: &[], ended: false, options_first }
    }

    fn step(&mut self) -> Result<Option<Item<T>>, UsageError> {
        if !self.letters.is_empty() {
            return self.short().map(Some);
        }
        let Some(word) = self.words.next() else { return Ok(None) };
        let bytes = word.as_bytes();
        if self.ended || bytes.len() < 2 || bytes[0] != b'-' {
            self.ended |= self.options_first;
            return Ok(Some(Item::Operand(word.clone())));
        }
        if bytes == b"--" {
            self.ended = true;
            return self.step();
        }
        match bytes.strip_prefix(b"--") {
            Some(long) => self.long(long).map(Some),
            None => {
                self.letters = &bytes[1..];
                self.short().map(Some)
            }
        }
    }

    fn short(&mut self) -> Result<Item<T>, UsageError> {
        let Some((&letter, behind)) = self.letters.split_first() else { unreachable!("a letter is left") };
        let row = self.table.iter().find(|row| row.short == Some(letter));
        let row = *row.ok_or_else(|| UsageError::Invalid(shown(&[letter])))?;
        self.letters = behind;
        if !row.value {
            return Ok(Item::Option(row.id, None));
        }
        self.letters = &[];
        let value = match behind {
            [] => self.words.next().ok_or(UsageError::ShortNeedsValue(char::from(letter)))?.clone(),
            _ => OsStr::from_bytes(behind).to_owned(),
        };
        Ok(Item::Option(row.id, Some(value)))
    }

    fn long(&mut self, word: &[u8]) -> Result<Item<T>, UsageError> {
        let (name, value) = match word.iter().position(|&byte| byte == b'=') {
            Some(at) => (&word[..at], Some(OsString::from_vec(word[at + 1..].to_vec()))),
            None => (word, None),
        };
        let row = self.named(name, word)?;
        let full = || row.long.unwrap_or_default().to_owned();
        let value = match (row.value, value) {
            (false, Some(_)) => return Err(UsageError::TakesNoValue(full())),
            (true, None) => {
                Some(self.words.next().ok_or_else(|| UsageError::LongNeedsValue(full()))?.clone())
            }
            (_, value) => value,
        };
        Ok(Item::Option(row.id, value))
    }

    /// Returns the option with this name, or the only one that starts with it.
    fn named(&self, name: &[u8], word: &[u8]) -> Result<Row<T>, UsageError> {
        let long = || self.table.iter().filter_map(|row| row.long.map(|long| (long, row)));
        if let Some((_, row)) = long().find(|(long, _)| long.as_bytes() == name) {
            return Ok(*row);
        }
        let begin_so = |original: bool| -> Vec<(&str, &Row<T>)> {
            let alike = long().filter(|(long, _)| long.as_bytes().starts_with(name));
            alike.filter(|(_, row)| row.original == original).collect()
        };
        let of_original = begin_so(true);
        let found = if of_original.is_empty() { begin_so(false) } else { of_original };
        match found[..] {
            [] => Err(UsageError::Unrecognized(shown(word))),
            [(_, row)] => Ok(*row),
            _ => {
                let possibilities = found.iter().map(|(long, _)| format!(" '--{long}'")).collect();
                Err(UsageError::Ambiguous { word: shown(word), possibilities })
            }
        }
    }
}

impl<T: Copy> Iterator for Getopt<'_, T> {
    type Item = Result<Item<T>, UsageError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.step().transpose()
    }
}

fn shown(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn row(id: char, long: &'static str, value: bool, original: bool) -> Row<char> {
        Row { id, short: Some(id as u8), long: Some(long), value, original }
    }

    fn read(line: &str, options_first: bool) -> Result<Vec<Item<char>>, String> {
        let table = vec![
            row('c', "check", false, true),
            row('s', "status", false, true),
            row('S', "strict", false, true),
            row('l', "length", true, true),
            row('b', "base64", false, false),
            row('x', "checked", false, false),
        ];
        let words: Vec<OsString> =
            line.split(' ').filter(|word| !word.is_empty()).map(OsString::from).collect();
        Getopt::new(table, &words, options_first)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|mistake| mistake.to_string())
    }

    fn option(id: char) -> Item<char> {
        Item::Option(id, None)
    }

    fn valued(id: char, value: &str) -> Item<char> {
        Item::Option(id, Some(value.into()))
    }

    fn operand(text: &str) -> Item<char> {
        Item::Operand(text.into())
    }

    #[test]
    fn options_are_accepted_anywhere_before_a_double_dash() {
        let all = vec![operand("f"), option('c'), option('s'), operand("-"), valued('l', "8"), operand("-c")];
        for line in ["f -cs - -l8 -- -c", "f --check --stat - --len 8 -- -c", "f -c -s - -l 8 -- -c"] {
            assert_eq!(read(line, false), Ok(all.clone()), "{line}");
        }
        assert_eq!(read("-l -c --length=--", false), Ok(vec![valued('l', "-c"), valued('l', "--")]));
        let first = vec![option('c'), operand("f"), operand("-c"), operand("--"), operand("x")];
        assert_eq!(read("-c f -c -- x", true), Ok(first));
    }

    #[test]
    fn abbreviations_prefer_the_options_of_the_original() {
        assert_eq!(read("--ch --b", false), Ok(vec![option('c'), option('b')]));
        assert_eq!(read("--checke", false), Ok(vec![option('x')]));
    }

    #[test]
    fn usage_errors_have_the_messages_of_getopt() {
        for (line, message) in [
            ("--foo=3", "unrecognized option '--foo=3'"),
            ("--s", "option '--s' is ambiguous; possibilities: '--status' '--strict'"),
            ("--check=1", "option '--check' doesn't allow an argument"),
            ("--len", "option '--length' requires an argument"),
            ("-cl", "option requires an argument -- 'l'"),
            ("-cq", "invalid option -- 'q'"),
        ] {
            assert_eq!(read(line, false), Err(message.to_owned()), "{line}");
        }
    }
}
