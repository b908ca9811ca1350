//! Resolution of a command line of `install`.

use super::mode::{ALL, Mode, ModeError};
use super::options::OPTIONS;
use crate::getopt::backup::{BackupArgs, BackupEnvironment};
use crate::getopt::choice::ChoiceError;
use crate::getopt::context::{self, ContextArgs, ContextError};
use crate::getopt::destination::{Destination, OperandError, split_last};
use crate::getopt::sizes::{SizeOptionError, Sizes};
use crate::getopt::{self, ArgsError};
use haul_coreutils::cp::{Backup, Contexts, Place};
use haul_engine::copy::{Moving, Verify, Workers, cause, quote, quote_word};
use haul_sys::selinux::Policy;
use haul_sys::users;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use thiserror::Error;

/// Resolved command: files or directories to install, and their properties.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) work: Work,
    pub(super) properties: Properties,
    /// Security contexts of copies at their creation.
    pub(super) contexts: Contexts,
    /// Set without any context option: if the kernel has a policy, files get the policy's context
    /// for their paths at the end.
    pub(super) policy: Option<Arc<dyn Policy>>,
    pub(super) backup: Option<Backup>,
    /// `-C`.
    pub(super) compare: bool,
    /// `-D`.
    pub(super) makes_directories: bool,
    /// `-p`.
    pub(super) keeps_times: bool,
    /// `-s`, with the program that strips.
    pub(super) strip: Option<OsString>,
    pub(super) verbose: bool,
    pub(super) json: bool,
    pub(super) moving: Moving,
}

/// The operands.
#[derive(Debug)]
pub(super) enum Work {
    /// `-d`.
    Directories(Vec<OsString>),
    /// `-t`, or the last operand is a directory.
    Into {
        sources: Vec<OsString>,
        /// As typed.
        directory: OsString,
        /// The open directory; `None` if it is still to be created.
        place: Option<Place>,
    },
    /// One file that gets this name.
    Onto { source: OsString, sink: OsString },
}

/// Properties of installed files.
#[derive(Clone, Copy, Debug)]
pub(super) struct Properties {
    pub(super) owner: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) mode: Mode,
}

/// Request of a command line.
#[derive(Debug)]
pub(super) enum Invocation {
    Install(Box<Resolved>),
    Help,
    Version,
}

/// Usage error.
#[derive(Debug, Error)]
pub(super) enum UsageError {
    #[error(transparent)]
    Args(#[from] ArgsError),
    #[error(transparent)]
    Choice(#[from] ChoiceError),
    #[error(transparent)]
    Size(#[from] SizeOptionError),
    #[error(transparent)]
    Mode(#[from] ModeError),
    #[error(transparent)]
    Operands(#[from] OperandError),
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error("options --compare (-C) and --preserve-timestamps are mutually exclusive")]
    CompareAndTimes,
    #[error("options --compare (-C) and --strip are mutually exclusive")]
    CompareAndStrip,
    #[error("the strip option may not be used when installing a directory")]
    StripDirectory,
    #[error("target directory not allowed when installing a directory")]
    TargetOfDirectories,
    #[error("{what} {}: {}", quote(path), cause(source))]
    Target { what: &'static str, path: OsString, source: io::Error },
    #[error("invalid user {}", quote_word(.0))]
    User(OsString),
    #[error("invalid group {}", quote_word(.0))]
    Group(OsString),
}

impl UsageError {
    /// Returns true if a hint at `--help` follows the message.
    pub(super) fn has_hint(&self) -> bool {
        match self {
            UsageError::Operands(error) => error.has_hint(),
            UsageError::Args(_)
            | UsageError::Choice(_)
            | UsageError::CompareAndStrip
            | UsageError::CompareAndTimes => true,
            _ => false,
        }
    }
}

/// Receiver of warnings.
type Warn<'a> = &'a mut dyn FnMut(&str);

/// Options read so far.
#[derive(Debug, Default)]
struct ParsedOptions {
    backup: BackupArgs,
    context: ContextArgs,
    compare: bool,
    directories: bool,
    makes_directories: bool,
    owner: Option<OsString>,
    group: Option<OsString>,
    mode: Option<OsString>,
    keeps_times: bool,
    strips: bool,
    strip_program: Option<OsString>,
    destination: Destination,
    verbose: bool,
    json: bool,
    verify: bool,
    sizes: Sizes,
}

/// Resolves the command line; `policy` is set if the kernel labels files. The last operand is
/// inspected: an existing directory receives the others. `warn` gets warnings immediately, even if
/// a usage error follows.
///
/// # Errors
/// Returns [`UsageError`]: the first error, in the order in which install finds them.
pub(super) fn resolve(
    args: &[OsString],
    options_first: bool,
    environment: &BackupEnvironment,
    policy: Option<Arc<dyn Policy>>,
    warn: Warn<'_>,
) -> Result<Invocation, UsageError> {
    let typed = getopt::parse(OPTIONS, args, options_first);
    let mut reading = ParsedOptions { context: ContextArgs::with(policy), ..ParsedOptions::default() };
    for option in &typed.options {
        match option.name {
            "help" => return Ok(Invocation::Help),
            "version" => return Ok(Invocation::Version),
            name => reading.option(name, option.value.as_deref(), warn)?,
        }
    }
    if let Some(mistake) = typed.mistake {
        return Err(mistake.into());
    }
    reading.finish(typed.operands, environment, warn).map(|resolved| Invocation::Install(Box::new(resolved)))
}

impl ParsedOptions {
    fn option(&mut self, name: &str, value: Option<&OsStr>, warn: Warn<'_>) -> Result<(), UsageError> {
        if self.backup.option(name, value) || self.destination.option(name, value)? {
            return Ok(());
        }
        let owned = || value.map(OsStr::to_owned);
        match name {
            "c" => {}
            "context" | "Z" => self.context.option(value, context::NO_LIST, warn),
            "compare" => self.compare = true,
            "directory" => self.directories = true,
            "D" => self.makes_directories = true,
            "debug" | "verbose" => self.verbose = true,
            "group" => self.group = owned(),
            "mode" => self.mode = owned(),
            "owner" => self.owner = owned(),
            "preserve-timestamps" => self.keeps_times = true,
            "preserve-context" if self.context.keep_if_enabled() => {}
            "preserve-context" => {
                warn("WARNING: ignoring --preserve-context; this kernel is not SELinux-enabled");
            }
            "strip" => self.strips = true,
            "strip-program" => self.strip_program = owned(),
            "json" => self.json = true,
            "verify" => self.verify = true,
            _ => self.sizes.set(name, value.unwrap_or_default())?,
        }
        Ok(())
    }

    fn finish(
        self,
        operands: Vec<OsString>,
        environment: &BackupEnvironment,
        warn: Warn<'_>,
    ) -> Result<Resolved, UsageError> {
        if self.directories && self.strips {
            return Err(UsageError::StripDirectory);
        }
        if self.directories && self.destination.directory().is_some() {
            return Err(UsageError::TargetOfDirectories);
        }
        let backup = self.backup.rule(environment)?;
        let work = self.work(operands)?;
        let mode = self.mode.as_deref().map_or(Ok(Mode::default()), Mode::parse)?;
        if self.strip_program.is_some() && !self.strips {
            warn("WARNING: ignoring --strip-program option as -s option was not specified");
        }
        if self.compare && self.keeps_times {
            return Err(UsageError::CompareAndTimes);
        }
        if self.compare && self.strips {
            return Err(UsageError::CompareAndStrip);
        }
        if self.compare && mode.file & ALL & !0o777 != 0 {
            warn("the --compare (-C) option is ignored when you specify a mode with non-permission bits");
        }
        let owner =
            self.owner.as_deref().map(|name| id(name, users::user).ok_or(UsageError::User(name.to_owned())));
        let group = self
            .group
            .as_deref()
            .map(|name| id(name, users::group).ok_or(UsageError::Group(name.to_owned())));
        // For chown(2) the largest number means that the owner is unchanged.
        let is_one = |id: &u32| *id != u32::MAX;
        let (owner, group) = (owner.transpose()?.filter(is_one), group.transpose()?.filter(is_one));
        let policy = self.context.unasked().cloned();
        let contexts = self.context.rule()?;
        let mut moving = Moving::with(Workers::granted());
        self.sizes.apply(&mut moving);
        moving.verify = if self.verify { Verify::ReadBack } else { Verify::No };
        let program = self.strip_program.unwrap_or_else(|| OsString::from("strip"));
        Ok(Resolved {
            work,
            properties: Properties { owner, group, mode },
            contexts,
            policy,
            backup,
            compare: self.compare,
            makes_directories: self.makes_directories,
            keeps_times: self.keeps_times,
            strip: self.strips.then_some(program),
            verbose: self.verbose,
            json: self.json,
            moving,
        })
    }

    fn work(&self, operands: Vec<OsString>) -> Result<Work, UsageError> {
        let to = &self.destination;
        to.check(&operands, !self.directories)?;
        if self.directories {
            return Ok(Work::Directories(operands));
        }
        if let Some(directory) = to.directory() {
            return self.given_target(operands, directory.to_owned());
        }
        let (sources, sink) = split_last(operands)?;
        if !to.is_file() {
            match Place::open(&sink) {
                Ok(place) => return Ok(Work::Into { sources, directory: sink, place: Some(place) }),
                Err(source) if sources.len() > 1 => {
                    return Err(UsageError::Target { what: "target", path: sink, source });
                }
                Err(_) => {}
            }
        }
        let (_, source) = split_last(sources)?;
        Ok(Work::Onto { source, sink })
    }

    /// Resolves `-t`: an existing directory, or with `-D` one that is to be created.
    fn given_target(&self, sources: Vec<OsString>, directory: OsString) -> Result<Work, UsageError> {
        match Place::open(&directory) {
            Ok(place) => Ok(Work::Into { sources, directory, place: Some(place) }),
            Err(error) if self.makes_directories && error.kind() == io::ErrorKind::NotFound => {
                Ok(Work::Into { sources, directory, place: None })
            }
            Err(source) => Err(UsageError::Target { what: "failed to access", path: directory, source }),
        }
    }
}

/// Resolves a name, or a number as strtoumax(3) reads it: decimal, octal after 0, hexadecimal after
/// 0x, with blanks and a plus before it.
fn id(name: &OsStr, look_up: fn(&OsStr) -> io::Result<Option<u32>>) -> Option<u32> {
    if let Ok(Some(id)) = look_up(name) {
        return Some(id);
    }
    let text = std::str::from_utf8(name.as_bytes()).ok()?;
    let text = text.trim_start_matches(|letter: char| matches!(letter, ' ' | '\t'..='\r'));
    let text = text.strip_prefix('+').unwrap_or(text);
    let (digits, base) = match text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None if text.len() > 1 && text.starts_with('0') => (&text[1..], 8),
        None => (text, 10),
    };
    let is_number = digits.chars().all(|digit| digit.is_digit(base));
    u32::from_str_radix(digits, base).ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_are_names_or_c_style_numbers() {
        let id_of = |name: &str| id(OsStr::new(name), users::user);
        assert_eq!(id_of("root"), Some(0));
        for (name, expected) in
            [("17", 17), ("0x11", 17), ("021", 17), ("0", 0), ("+17", 17), ("\t \u{b}+0x11", 17)]
        {
            assert_eq!(id_of(name), Some(expected), "{name}");
        }
        for name in ["", "-1", "++1", "+ 1", "+", " ", "1 ", "4294967296", "1x", "0x", "09", "no such"] {
            assert_eq!(id_of(name), None, "{name}");
        }
    }
}
