//! Rust lexer for the repository rules: identifiers outside comments, strings and tests.

use std::iter::Peekable;
use std::vec::IntoIter;

/// A word or a punctuation mark of a source file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// An identifier, a keyword, `::`, or one character.
    pub text: String,
    /// Line number, starting at 1.
    pub line: usize,
}

/// Returns the tokens of `source` without comments, literals, and items under `#[cfg(test)]`.
pub fn tokens_outside_tests(source: &str) -> Vec<Token> {
    without_tests(tokens(source)).0
}

/// Returns the modules that `source` declares for tests only, with bodies in other files:
/// `#[cfg(test)] mod name;`.
pub fn test_modules(source: &str) -> Vec<String> {
    // Most attributes are before an item with a body, and need no lexer.
    let may_declare = |at: usize| {
        let item = &source[at..];
        item.find(['{', ';']).is_some_and(|end| item[end..].starts_with(';') && item[..end].contains("mod "))
    };
    if !source.match_indices("#[cfg(").any(|(at, _)| may_declare(at)) {
        return Vec::new();
    }
    without_tests(tokens(source)).1
}

/// Returns all tokens of `source` without comments and literals.
pub fn tokens(source: &str) -> Vec<Token> {
    let mut lexer = Lexer { rest: source, line: 1, tokens: Vec::new() };
    while !lexer.rest.is_empty() {
        lexer.step();
    }
    lexer.tokens
}

/// Returns every path that begins with `std` or `core`, with groups expanded: `std::{fs, io::Read}`
/// gives `std::fs` and `std::io::Read`.
pub fn std_paths(tokens: &[Token]) -> Vec<(String, usize)> {
    let found = paths_from(tokens, &["std", "core"]);
    found.into_iter().map(|path| (path.segments.join("::"), path.line)).collect()
}

/// A path of code, or one member of a use tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodePath {
    /// Segments of the path; the last may be `*` or `self`.
    pub segments: Vec<String>,
    /// Name after `as`.
    pub alias: Option<String>,
    /// Line of the first segment that is not shared with other members, starting at 1.
    pub line: usize,
}

/// Returns every path of two segments or more that begins with one of `roots`, with groups
/// expanded.
pub fn paths_from(tokens: &[Token], roots: &[&str]) -> Vec<CodePath> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let begins = roots.contains(&tokens[at].text.as_str());
        let is_inner = at > 0 && tokens[at - 1].text == "::" && at > 1 && is_word(&tokens[at - 2].text);
        if begins && !is_inner && tokens.get(at + 1).is_some_and(|t| t.text == "::") {
            at = unfold(tokens, at, &[], &mut found);
        } else {
            at += 1;
        }
    }
    found
}

/// Reads one path or use tree from index `at`. Returns the index after it.
pub(super) fn unfold(tokens: &[Token], mut at: usize, before: &[String], found: &mut Vec<CodePath>) -> usize {
    let text = |at: usize| tokens.get(at).map_or("", |token| token.text.as_str());
    let mut segments = before.to_vec();
    let line = tokens.get(at).map_or(0, |t| t.line);
    let mut continues = true;
    while continues && at < tokens.len() {
        if text(at) == "{" {
            at += 1;
            while !matches!(text(at), "}" | "") {
                at = unfold(tokens, at, &segments, found);
                // Skip what is no path, and the comma.
                while !matches!(text(at), "," | "}" | "") {
                    at += 1;
                }
                at += usize::from(text(at) == ",");
            }
            return at + 1;
        }
        if !(is_word(text(at)) || text(at) == "*") {
            break;
        }
        segments.push(text(at).to_owned());
        continues = text(at + 1) == "::";
        at += 1 + usize::from(continues);
    }
    let alias = (text(at) == "as").then(|| text(at + 1).to_owned());
    found.push(CodePath { segments, alias, line });
    at.max(1)
}

pub(super) fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_alphanumeric() || c == '_')
}

struct Lexer<'a> {
    rest: &'a str,
    line: usize,
    tokens: Vec<Token>,
}

impl Lexer<'_> {
    fn step(&mut self) {
        let first = self.rest.chars().next().unwrap_or(' ');
        if self.rest.starts_with("//") {
            self.take(self.rest.find('\n').unwrap_or(self.rest.len()));
        } else if self.rest.starts_with("/*") {
            self.take(block_comment_len(self.rest));
        } else if first.is_whitespace() {
            let end = self.rest.find(|c: char| !c.is_whitespace());
            self.take(end.unwrap_or(self.rest.len()));
        } else if matches!(first, 'r' | 'b' | 'c')
            && let Some(len) = raw_string_len(self.rest)
        {
            self.take(len);
        } else if first == '"' {
            self.take(quoted_len(self.rest, '"'));
        } else if first == '\'' && is_char_literal(self.rest) {
            self.take(quoted_len(self.rest, '\''));
        } else if self.rest.starts_with("::") {
            self.push(2);
        } else if first.is_alphanumeric() || first == '_' {
            let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '_'));
            self.push(end.unwrap_or(self.rest.len()));
        } else {
            self.push(first.len_utf8());
        }
    }

    fn push(&mut self, len: usize) {
        let (text, rest) = self.rest.split_at(len);
        self.tokens.push(Token { text: text.to_owned(), line: self.line });
        self.rest = rest;
    }

    fn take(&mut self, len: usize) {
        let (taken, rest) = self.rest.split_at(len.clamp(1, self.rest.len()));
        self.line += taken.matches('\n').count();
        self.rest = rest;
    }
}

fn block_comment_len(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    text.len()
}

/// Returns the length of a raw string with its prefix (`r"`, `br#"`, `cr"`) if one begins here. A
/// byte or C string without `r` is lexed as a word and a quoted string, which is harmless.
fn raw_string_len(text: &str) -> Option<usize> {
    let body = ["r", "br", "cr"]
        .iter()
        .find_map(|prefix| text.strip_prefix(prefix).filter(|rest| rest.starts_with(['"', '#'])))?;
    let hashes = body.len() - body.trim_start_matches('#').len();
    let inner = body[hashes..].strip_prefix('"')?;
    let close = format!("\"{}", "#".repeat(hashes));
    let end = inner.find(&close).map_or(inner.len(), |at| at + close.len());
    Some(text.len() - inner.len() + end)
}

fn quoted_len(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        if c == quote && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

/// Returns true for a character literal (`'a'` or `'\...`), and false for a lifetime.
fn is_char_literal(text: &str) -> bool {
    let mut chars = text.chars().skip(1);
    match chars.next() {
        Some('\\') => true,
        Some(_) => chars.next() == Some('\''),
        None => false,
    }
}

/// Drops items under a `cfg` attribute that contains `test`, and lists the modules among them
/// without a body here.
fn without_tests(tokens: Vec<Token>) -> (Vec<Token>, Vec<String>) {
    let mut kept = Vec::new();
    let mut modules = Vec::new();
    let mut rest = tokens.into_iter().peekable();
    while let Some(token) = rest.next() {
        if token.text != "#" || rest.peek().is_none_or(|t| t.text != "[") {
            kept.push(token);
            continue;
        }
        let attribute = bracketed(&mut rest);
        let has = |word: &str| attribute.iter().any(|t| t.text == word);
        if has("cfg") && has("test") && !has("not") {
            modules.extend(skip_item(&mut rest));
        } else {
            kept.push(token);
            kept.extend(attribute);
        }
    }
    (kept, modules)
}

/// Returns the tokens from `[` to its `]`.
fn bracketed(rest: &mut Peekable<IntoIter<Token>>) -> Vec<Token> {
    let mut taken = Vec::new();
    let mut depth = 0_i32;
    for token in rest.by_ref() {
        depth += i32::from(token.text == "[") - i32::from(token.text == "]");
        taken.push(token);
        if depth == 0 {
            break;
        }
    }
    taken
}

/// Skips to the `;` or the closing brace of the item. Returns its name if the item is a module
/// without a body.
fn skip_item(rest: &mut Peekable<IntoIter<Token>>) -> Option<String> {
    let mut depth = 0_i32;
    let mut words: Vec<String> = Vec::new();
    for token in rest.by_ref() {
        let opens = matches!(token.text.as_str(), "{" | "(" | "[");
        let closes = matches!(token.text.as_str(), "}" | ")" | "]");
        depth += i32::from(opens) - i32::from(closes);
        if depth == 0 && token.text == "}" {
            return None;
        }
        if depth == 0 && token.text == ";" {
            let at = words.iter().position(|word| word == "mod")?;
            return words.get(at + 1).cloned();
        }
        words.push(token.text);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(tokens: &[Token]) -> Vec<&str> {
        tokens.iter().map(|t| t.text.as_str()).collect()
    }

    fn paths(source: &str) -> Vec<String> {
        std_paths(&tokens_outside_tests(source)).into_iter().map(|(path, _)| path).collect()
    }

    #[test]
    fn comments_and_literals_yield_no_code_tokens() {
        let source =
            "a // std::fs\n/* b /* c */ d */ \"x \\\" std::fs\" r#\"e \" f\"# 'g' '\\'' b\"h\" 'life i";
        assert_eq!(texts(&tokens(source)), ["a", "b", "'", "life", "i"]);
    }

    #[test]
    fn lines_are_counted_in_comments_and_strings() {
        let found = tokens("/* \n */ \"\n\" // \nend");
        assert_eq!(found, [Token { text: "end".into(), line: 4 }]);
    }

    #[test]
    fn grouped_use_paths_are_expanded() {
        let source = "use std::{fs::{self, File as F}, io, time::*}; let x = ::core::mem::swap::<u8>(a, b);";
        let expected = ["std::fs::self", "std::fs::File", "std::io", "std::time::*", "core::mem::swap"];
        assert_eq!(paths(source), expected);
    }

    #[test]
    fn std_inside_a_path_is_not_the_std_crate() {
        assert_eq!(paths("crate::std::fs"), Vec::<String>::new());
    }

    #[test]
    fn test_code_is_skipped_and_test_modules_are_listed() {
        let source = "use std::io;\n#[cfg(test)]\nmod tests { use std::fs; fn f() {} }\n#[cfg(all(test, unix))] mod \
                      far;\n#[cfg(test)] use std::net;\n#[cfg(not(test))] use std::env;";
        assert_eq!(paths(source), ["std::io", "std::env"]);
        assert_eq!(test_modules(source), ["far"]);
    }
}
