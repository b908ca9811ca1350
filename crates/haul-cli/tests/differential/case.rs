//! A command line with its sandbox, environment, user and answers. A case is printed as the Rust
//! source that creates it.

use super::plant::{Content, Gaps, Kind, Plant, USUAL_TIME};
use super::twins;
use std::fmt::{self, Write};

/// Tool of a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tool {
    Cp,
    Mv,
    Install,
}

impl Tool {
    /// Returns the name of the tool.
    pub(super) fn name(self) -> &'static str {
        match self {
            Tool::Cp => "cp",
            Tool::Mv => "mv",
            Tool::Install => "install",
        }
    }
}

/// The usual umask of a case.
pub(super) const USUAL_UMASK: u32 = 0o022;

/// A command line and its environment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Case {
    pub(super) tool: Tool,
    /// Entries of the sandbox, parents before their contents.
    pub(super) plants: Vec<Plant>,
    /// Options and operands, in the order typed.
    pub(super) words: Vec<Vec<u8>>,
    pub(super) environment: Vec<(&'static str, String)>,
    pub(super) umask: u32,
    /// True if an ordinary user runs the tool instead of root.
    pub(super) as_user: bool,
    /// Contents of the standard input.
    pub(super) answers: Vec<u8>,
    /// Working directory, relative to the sandbox.
    pub(super) cwd: Vec<u8>,
    /// True if the sandbox is on a disk and `far` in memory; otherwise the reverse.
    pub(super) on_disk: bool,
}

impl Case {
    pub(super) fn new(tool: Tool) -> Case {
        Case {
            tool,
            plants: Vec::new(),
            words: Vec::new(),
            environment: Vec::new(),
            umask: USUAL_UMASK,
            as_user: false,
            answers: Vec::new(),
            cwd: Vec::new(),
            on_disk: false,
        }
    }

    /// Adds an entry.
    pub(super) fn has(mut self, plant: Plant) -> Case {
        self.plants.push(plant);
        self
    }

    /// Adds a word to the command line.
    pub(super) fn word(mut self, word: impl AsRef<[u8]>) -> Case {
        self.words.push(word.as_ref().to_owned());
        self
    }

    /// Adds words to the command line, separated by spaces.
    pub(super) fn runs(mut self, words: &str) -> Case {
        self.words.extend(words.split_whitespace().map(|word| word.as_bytes().to_owned()));
        self
    }

    pub(super) fn env(mut self, name: &'static str, value: &str) -> Case {
        self.environment.push((name, value.to_owned()));
        self
    }

    pub(super) fn umask(self, umask: u32) -> Case {
        Case { umask, ..self }
    }

    pub(super) fn user(self) -> Case {
        Case { as_user: true, ..self }
    }

    pub(super) fn answers(self, answers: impl AsRef<[u8]>) -> Case {
        Case { answers: answers.as_ref().to_owned(), ..self }
    }

    pub(super) fn cwd(self, cwd: impl AsRef<[u8]>) -> Case {
        Case { cwd: cwd.as_ref().to_owned(), ..self }
    }

    pub(super) fn disk(self) -> Case {
        Case { on_disk: true, ..self }
    }

    /// Runs the case with both tools, and panics if the results differ.
    #[track_caller]
    pub(super) fn ends_alike(self) {
        let Some(mut twins) = twins::Twins::new() else { return };
        if let Some(difference) = twins.difference(&self) {
            panic!("{}\n{difference}", self.line());
        }
    }

    /// Returns true if the letter or the long name of an option is among the words, in any
    /// spelling.
    pub(super) fn has_option(&self, letter: u8, long: &str) -> bool {
        self.words[..self.options_end()].iter().any(|word| match word.strip_prefix(b"--") {
            Some(typed) => {
                let name = typed.split(|&byte| byte == b'=').next().unwrap_or_default();
                !name.is_empty() && long.as_bytes().starts_with(name)
            }
            None => word.len() > 1 && word[0] == b'-' && word.contains(&letter),
        })
    }

    /// Returns the number of words that may be options: those up to the word that ends them, which
    /// may also be the name of a target.
    fn options_end(&self) -> usize {
        let takes_next = |word: &Vec<u8>| match word.strip_prefix(b"--") {
            Some(long) => long.starts_with(b"t") && !long.contains(&b'='),
            None => word.starts_with(b"-") && word.ends_with(b"t"),
        };
        let is_end = |&at: &usize| {
            self.words[at] == b"--"
                && !at.checked_sub(1).is_some_and(|before| takes_next(&self.words[before]))
        };
        (0..self.words.len()).find(is_end).unwrap_or(self.words.len())
    }

    /// Returns true if the tool descends into directories.
    pub(super) fn walks(&self) -> bool {
        if self.tool != Tool::Cp {
            // A move to another file system copies all contents.
            return self.tool == Tool::Mv && self.plants.iter().any(|plant| plant.path.starts_with(b"far/"));
        }
        let walks = [(b'r', "recursive"), (b'R', "recursive"), (b'a', "archive")];
        walks.iter().any(|&(letter, long)| self.has_option(letter, long))
    }

    /// Returns true if the lines have a defined order: several workers process a tree, or operands,
    /// in any order.
    pub(super) fn has_one_order(&self) -> bool {
        let ends_options = self.environment.iter().any(|(name, _)| *name == "POSIXLY_CORRECT");
        let mut ended = false;
        let is_operand = |word: &&Vec<u8>| {
            let is_option = !ended && word.len() > 1 && word[0] == b'-';
            ended |= *word == b"--" || (ends_options && !is_option);
            !is_option
        };
        !self.walks() && self.words.iter().filter(is_operand).count() <= 2
    }

    /// Returns the command line approximately as a shell shows it.
    pub(super) fn line(&self) -> String {
        let mut line = String::new();
        for (name, value) in &self.environment {
            let _ = write!(line, "{name}={value:?} ");
        }
        line.push_str(self.tool.name());
        for word in &self.words {
            line.push(' ');
            line.push_str(&word.escape_ascii().to_string());
        }
        line
    }
}

/// Formats the case as source: a test without a name.
impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "#[test]\nfn a_name_is_wanted() {{\n    Case::new(Tool::{:?})", self.tool)?;
        for plant in &self.plants {
            writeln!(f, "        .has({})", Source(plant))?;
        }
        for (name, value) in &self.environment {
            writeln!(f, "        .env({name:?}, {value:?})")?;
        }
        if self.umask != USUAL_UMASK {
            writeln!(f, "        .umask({:#05o})", self.umask)?;
        }
        if self.as_user {
            writeln!(f, "        .user()")?;
        }
        if self.on_disk {
            writeln!(f, "        .disk()")?;
        }
        if !self.answers.is_empty() {
            writeln!(f, "        .answers({})", literal(&self.answers))?;
        }
        if !self.cwd.is_empty() {
            writeln!(f, "        .cwd({})", literal(&self.cwd))?;
        }
        let plain = |word: &Vec<u8>| !word.is_empty() && word.iter().all(|byte| byte.is_ascii_graphic());
        if self.words.iter().all(plain) {
            let line = self.words.join(&b' ');
            writeln!(f, "        .runs({})", literal(&line))?;
        } else {
            for word in &self.words {
                writeln!(f, "        .word({})", literal(word))?;
            }
        }
        write!(f, "        .ends_alike();\n}}")
    }
}

/// Returns a string literal, or a byte string literal if the bytes are not UTF-8.
fn literal(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => format!("{text:?}"),
        Err(_) => format!("b\"{}\"", bytes.escape_ascii()),
    }
}

/// An entry as the calls that create it.
struct Source<'a>(&'a Plant);

impl fmt::Display for Source<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plant = self.0;
        let path = literal(&plant.path);
        match &plant.kind {
            Kind::File(content) => write_file(f, &path, *content)?,
            Kind::Dir => write!(f, "dir({path})")?,
            Kind::Link(target) => write!(f, "link({path}, {})", literal(target))?,
            Kind::Hard(first) => write!(f, "hard({path}, {})", literal(first))?,
            Kind::Fifo => write!(f, "fifo({path})")?,
            Kind::Socket => write!(f, "socket({path})")?,
            Kind::Null => write!(f, "null({path})")?,
            Kind::Block => write!(f, "block({path})")?,
        }
        if let Some(mode) = plant.mode {
            write!(f, ".mode({mode:#06o})")?;
        }
        if let Some((user, group)) = plant.owner {
            write!(f, ".owner({user}, {group})")?;
        }
        if plant.time != USUAL_TIME {
            write!(f, ".time({}, {})", plant.time.0, plant.time.1)?;
        }
        for (name, value) in &plant.xattrs {
            write!(f, ".xattr({name:?}, {})", literal(value))?;
        }
        Ok(())
    }
}

fn write_file(f: &mut fmt::Formatter<'_>, path: &str, content: Content) -> fmt::Result {
    write!(f, "file({path}, b'{}')", content.letter.escape_ascii())?;
    if content.len != 5 {
        write!(f, ".bytes({})", content.len)?;
    }
    if content.gaps != Gaps::None {
        write!(f, ".gaps(Gaps::{:?})", content.gaps)?;
    }
    Ok(())
}
