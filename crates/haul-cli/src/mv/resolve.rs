//! Resolution of a command line of `mv`: from options in their order to [`MoveSettings`].

use super::options::OPTIONS;
use crate::getopt::backup::{BackupArgs, BackupEnvironment};
use crate::getopt::choice::ChoiceError;
use crate::getopt::context::{self, ContextArgs, ContextError};
use crate::getopt::destination::{Destination, OperandError, split_last};
use crate::getopt::sizes::{SizeOptionError, Sizes};
use crate::getopt::update::ReplaceRule;
use crate::getopt::{self, ArgsError, ParsedArgs};
use haul_coreutils::mv::{MoveExisting, MoveOperands, MoveRules, MoveSettings};
use haul_engine::copy::{Moving, Workers};
use haul_sys::selinux::Policy;
use std::ffi::{OsStr, OsString};
use std::io::IsTerminal;
use std::sync::Arc;
use thiserror::Error;

/// A job and its output options.
#[derive(Debug)]
pub(super) struct Resolved {
    pub(super) settings: MoveSettings,
    pub(super) progress: bool,
    pub(super) json: bool,
    pub(super) stats: bool,
    /// Contradictory options, or an unknown kind of backup: reported after the target was
    /// inspected.
    pub(super) contradiction: Option<UsageError>,
}

/// Request of a command line.
#[derive(Debug)]
pub(super) enum Invocation {
    Move(Box<Resolved>),
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
    Operands(#[from] OperandError),
    #[error(transparent)]
    Context(#[from] ContextError),
    #[error("options --backup and --no-clobber are mutually exclusive")]
    BackupAndKeep,
    #[error("cannot combine --backup with --exchange, -n, or --update=none-fail")]
    BackupAndNone,
}

impl UsageError {
    /// Returns true if a hint at `--help` follows the message.
    pub(super) fn has_hint(&self) -> bool {
        match self {
            UsageError::Operands(error) => error.has_hint(),
            UsageError::Context(_) => false,
            _ => true,
        }
    }
}

/// Options read so far.
#[derive(Debug, Default)]
struct ParsedOptions {
    rules: MoveRules,
    clobber: Option<MoveExisting>,
    which: Option<ReplaceRule>,
    backup: BackupArgs,
    context: ContextArgs,
    destination: Destination,
    sizes: Sizes,
    stats: bool,
    progress: bool,
    json: bool,
}

/// Resolves the command line; `policy` is set if the kernel labels files. Warnings go to `warn`.
///
/// # Errors
/// Returns [`UsageError`]: the first error, in the order in which mv finds them.
pub(super) fn resolve(
    args: &[OsString],
    options_first: bool,
    environment: &BackupEnvironment,
    policy: Option<Arc<dyn Policy>>,
    warn: &mut dyn FnMut(&str),
) -> Result<Invocation, UsageError> {
    let typed: ParsedArgs = getopt::parse(OPTIONS, args, options_first);
    let mut reading = ParsedOptions { context: ContextArgs::with(policy), ..ParsedOptions::default() };
    reading.context.keep_by_default();
    for option in &typed.options {
        match option.name {
            "help" => return Ok(Invocation::Help),
            "version" => return Ok(Invocation::Version),
            "context" => reading.context.option(None, context::IGNORED, warn),
            name => reading.option(name, option.value.as_deref())?,
        }
    }
    if let Some(mistake) = typed.mistake {
        return Err(mistake.into());
    }
    reading.finish(typed.operands, environment).map(|resolved| Invocation::Move(Box::new(resolved)))
}

impl ParsedOptions {
    fn option(&mut self, name: &str, value: Option<&OsStr>) -> Result<(), UsageError> {
        if self.backup.option(name, value) || self.destination.option(name, value)? {
            return Ok(());
        }
        match name {
            "debug" | "verbose" => self.rules.verbose = true,
            "exchange" => self.rules.exchange = true,
            "force" => self.clobber = Some(MoveExisting::Replace),
            "interactive" => self.clobber = Some(MoveExisting::Ask),
            "no-clobber" => self.clobber = Some(MoveExisting::Keep),
            "no-copy" => self.rules.no_copy = true,
            "update" => self.which = Some(ReplaceRule::typed(value)?),
            "print-stats" => self.stats = true,
            "progress" => self.progress = true,
            "json" => self.json = true,
            _ => self.sizes.set(name, value.unwrap_or_default())?,
        }
        Ok(())
    }

    fn finish(
        mut self,
        operands: Vec<OsString>,
        environment: &BackupEnvironment,
    ) -> Result<Resolved, UsageError> {
        let is_stripped =
            operands.first().is_some_and(|first| self.destination.stripped(first.clone()) != *first);
        let mut operands = self.operands(operands)?;
        let mut contradiction = self.existing();
        match self.backup.rule(environment) {
            Ok(rule) => self.rules.backup = rule,
            Err(error) => {
                contradiction.get_or_insert(error.into());
            }
        }
        self.rules.contradicts = contradiction.is_some();
        // The slashes that are stripped later would make the first rename attempt fail. Skip the
        // attempt.
        if let MoveOperands::Among { sources, name, .. } = &operands
            && let ([source], true) = (&sources[..], is_stripped && self.rules.contradicts)
        {
            operands = MoveOperands::Onto { source: source.clone(), sink: name.clone() };
        }
        self.rules.contexts = self.context.rule()?;
        let mut moving = Moving::with(Workers::granted());
        self.sizes.apply(&mut moving);
        Ok(Resolved {
            settings: MoveSettings { operands, rules: self.rules, moving },
            progress: self.progress,
            json: self.json,
            stats: self.stats,
            contradiction,
        })
    }

    /// Combines `-f`, `-i`, `-n` and `--update`. Without these options, mv asks a user at a
    /// terminal about files that are not writable. Returns the contradiction, if there is one.
    fn existing(&mut self) -> Option<UsageError> {
        let unset = || {
            if std::io::stdin().is_terminal() { MoveExisting::AskIfUnwritable } else { MoveExisting::Replace }
        };
        let otherwise = self.clobber.unwrap_or_else(unset);
        self.rules.update = self.which == Some(ReplaceRule::Older);
        self.rules.existing = match self.which {
            Some(ReplaceRule::None) if otherwise != MoveExisting::Keep => MoveExisting::Keep,
            Some(ReplaceRule::NoneFail) if otherwise != MoveExisting::Keep => MoveExisting::KeepAndFail,
            _ => otherwise,
        };
        match (self.backup.is_asked_for(), self.clobber, self.rules.existing) {
            (true, Some(MoveExisting::Keep), _) => Some(UsageError::BackupAndKeep),
            (true, _, MoveExisting::Keep | MoveExisting::KeepAndFail) => Some(UsageError::BackupAndNone),
            (true, ..) if self.rules.exchange => Some(UsageError::BackupAndNone),
            _ => None,
        }
    }

    /// Determines the target operand as far as the arguments allow.
    fn operands(&self, operands: Vec<OsString>) -> Result<MoveOperands, UsageError> {
        let to = &self.destination;
        to.check(&operands, true)?;
        let last = operands.last().cloned().unwrap_or_default();
        let sources: Vec<OsString> = operands.into_iter().map(|name| to.stripped(name)).collect();
        if let Some(directory) = to.directory() {
            return Ok(MoveOperands::IntoDirectory { sources, directory: directory.to_owned() });
        }
        let (sources, name) = split_last(sources)?;
        if !to.is_file() {
            return Ok(MoveOperands::Among { sources, last, name });
        }
        let (_, source) = split_last(sources)?;
        Ok(MoveOperands::Onto { source, sink: name })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolved(line: &str) -> Result<MoveSettings, String> {
        let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        match resolve(&words, false, &BackupEnvironment::default(), None, &mut |_| ()) {
            Ok(Invocation::Move(resolved)) => match resolved.contradiction {
                Some(contradiction) => Err(contradiction.to_string()),
                None => Ok(resolved.settings),
            },
            Ok(other) => panic!("{other:?}"),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn the_last_option_about_existing_files_wins() {
        let existing = |line: &str| {
            let rules = resolved(&format!("{line} a b")).unwrap().rules;
            (rules.existing, rules.update)
        };
        assert_eq!(existing("-n -i -f"), (MoveExisting::Replace, false));
        assert_eq!(existing("-f -n"), (MoveExisting::Keep, false));
        assert_eq!(existing("-u -i"), (MoveExisting::Ask, true));
        assert_eq!(existing("-f --update=none-fail"), (MoveExisting::KeepAndFail, false));
        assert_eq!(existing("-f -u --update=all"), (MoveExisting::Replace, false));
        assert_eq!(existing("-n --update=none-fail"), (MoveExisting::Keep, false));
    }

    #[test]
    fn conflicting_and_invalid_arguments_are_refused() {
        assert!(resolved("-b -n a b").unwrap_err().contains("mutually exclusive"));
        assert!(resolved("-b --exchange a b").unwrap_err().starts_with("cannot combine --backup"));
        assert_eq!(resolved("-T a b c").unwrap_err(), "extra operand 'c'");
        assert!(resolved("--update=x a b").unwrap_err().starts_with("invalid argument"));
        assert!(resolved("--no a b").unwrap_err().contains("'--no-clobber' '--no-target-directory'"));
    }

    #[test]
    fn slashes_are_stripped_from_every_operand() {
        let settings = resolved("--strip-trailing-slashes -t d a// / b").unwrap();
        let MoveOperands::IntoDirectory { sources, directory } = settings.operands else { panic!() };
        assert_eq!((sources, directory), (vec!["a".into(), "/".into(), "b".into()], OsString::from("d")));
    }
}
