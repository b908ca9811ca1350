//! Backup rule from `--backup`, `-b`, `-S` and the environment.

use super::choice::{self, Choice, ChoiceError};
use haul_coreutils::cp::{Backup, BackupMethod};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Backup options as typed.
#[derive(Debug, Default)]
pub(crate) struct BackupArgs {
    is_asked_for: bool,
    control: Option<OsString>,
    suffix: Option<OsString>,
}

/// Backup settings of the user's environment.
#[derive(Debug, Default)]
pub(crate) struct BackupEnvironment {
    /// `VERSION_CONTROL`.
    pub(crate) version_control: Option<OsString>,
    /// `SIMPLE_BACKUP_SUFFIX`.
    pub(crate) suffix: Option<OsString>,
}

impl BackupEnvironment {
    /// Returns the variables of this process.
    pub(crate) fn of_process() -> BackupEnvironment {
        BackupEnvironment {
            version_control: std::env::var_os("VERSION_CONTROL"),
            suffix: std::env::var_os("SIMPLE_BACKUP_SUFFIX"),
        }
    }
}

impl BackupArgs {
    /// Handles a backup option; returns false for any other.
    pub(crate) fn option(&mut self, name: &str, value: Option<&OsStr>) -> bool {
        match name {
            "b" => self.ask(None),
            "backup" => self.ask(value),
            "suffix" => self.suffix(value.unwrap_or_default()),
            _ => return false,
        }
        true
    }

    /// Handles `-b` and `--backup[=CONTROL]`.
    fn ask(&mut self, control: Option<&OsStr>) {
        self.is_asked_for = true;
        self.control = control.map(OsStr::to_owned).or(self.control.take());
    }

    /// Handles `-S`, which also enables backups.
    fn suffix(&mut self, suffix: &OsStr) {
        self.is_asked_for = true;
        self.suffix = Some(suffix.to_owned());
    }

    pub(crate) fn is_asked_for(&self) -> bool {
        self.is_asked_for
    }

    /// Returns the backup rule; options override the environment.
    ///
    /// # Errors
    /// Returns [`ChoiceError`] for an unknown method.
    pub(crate) fn rule(&self, environment: &BackupEnvironment) -> Result<Option<Backup>, ChoiceError> {
        if !self.is_asked_for {
            return Ok(None);
        }
        let is_given = |word: &&OsString| !word.is_empty();
        let method = if let Some(word) = self.control.as_ref().filter(is_given) {
            choice::choose("backup type", word, &BACKUPS)?
        } else if let Some(word) = environment.version_control.as_ref().filter(is_given) {
            choice::choose("$VERSION_CONTROL", word, &BACKUPS)?
        } else {
            Some(BackupMethod::Existing)
        };
        let is_usable = |suffix: &&OsString| !suffix.is_empty() && !suffix.as_bytes().contains(&b'/');
        let suffix = self.suffix.as_ref().or(environment.suffix.as_ref()).filter(is_usable);
        let suffix = suffix.cloned().unwrap_or_else(|| OsString::from("~"));
        Ok(method.map(|method| Backup { method, suffix }))
    }
}

const BACKUPS: [Choice<Option<BackupMethod>>; 4] = [
    (&["none", "off"], None),
    (&["simple", "never"], Some(BackupMethod::Simple)),
    (&["existing", "nil"], Some(BackupMethod::Existing)),
    (&["numbered", "t"], Some(BackupMethod::Numbered)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backup_options_override_the_environment() {
        let environment =
            BackupEnvironment { version_control: Some("numbered".into()), suffix: Some(".old".into()) };
        let mut typed = BackupArgs::default();
        assert_eq!(typed.rule(&environment).unwrap(), None);
        typed.ask(None);
        let numbered = Backup { method: BackupMethod::Numbered, suffix: ".old".into() };
        assert_eq!(typed.rule(&environment).unwrap(), Some(numbered));
        typed.ask(Some(OsStr::new("si")));
        typed.suffix(OsStr::new("-s"));
        let simple = Backup { method: BackupMethod::Simple, suffix: "-s".into() };
        assert_eq!(typed.rule(&environment).unwrap(), Some(simple));
        typed.ask(Some(OsStr::new("off")));
        assert_eq!(typed.rule(&environment).unwrap(), None);
        typed.ask(Some(OsStr::new("n")));
        assert!(typed.rule(&environment).is_err(), "none, numbered, never, nil");
    }
}
