//! The options of every job that can be gone on with: how its object log is kept, and where.

use clap::Args;
use haul_engine::log::{LogError, Recheck, Settings, SyncPolicy, state_dir};
use haul_log::objects::{Encoding, Mechanism, Style};
use std::path::PathBuf;

/// How a job's log is kept, and where: for commands that clap parses.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogArgs {
    /// How many files share an object log: file, transaction[:FILES], universal.
    #[arg(long, value_name = "MECHANISM", default_value_t = Style::DEFAULT.mechanism, help_heading = "Going on")]
    log_mechanism: Mechanism,
    /// How the numbers of objects are written: char, int, enc, binary, bit8, bit64.
    #[arg(long, value_name = "ENCODING", default_value_t = Style::DEFAULT.encoding, help_heading = "Going on")]
    log_encoding: Encoding,
    /// What is made durable before it is logged: each object by itself, groups of a second or 256 MiB, or nothing (none),
    /// which survives a killed process and no loss of power.
    #[arg(long, value_name = "object|group|none", default_value_t = SyncPolicy::Group, help_heading = "Going on")]
    sync: SyncPolicy,
    /// How much of what is logged is compared again when the job goes on: none, sample, all (without a word). Unasked: a sample after an
    /// end that was not clean, else none.
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "all",
          help_heading = "Going on")]
    verify_resume: Option<Recheck>,
    #[command(flatten)]
    place: StateArgs,
}

/// Where jobs are kept.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StateArgs {
    /// Keep jobs in DIR (default: haul in $XDG_STATE_HOME or in ~/.local/state).
    #[arg(long, value_name = "DIR", global = true, help_heading = "Going on")]
    state_dir: Option<PathBuf>,
}

/// What the options mean.
#[derive(Clone, Debug)]
pub(crate) struct LogMeant {
    pub(crate) settings: Settings,
    /// Unasked where `None`: what the last end was decides.
    pub(crate) recheck: Option<Recheck>,
    /// The state directory.
    pub(crate) state: PathBuf,
}

impl LogArgs {
    /// What was meant.
    ///
    /// # Errors
    /// [`LogError::Homeless`].
    pub(crate) fn resolve(&self) -> Result<LogMeant, LogError> {
        let style = Style { mechanism: self.log_mechanism, encoding: self.log_encoding };
        let settings = Settings { style, sync: self.sync, wait: false };
        Ok(LogMeant { settings, recheck: self.verify_resume, state: self.place.resolve()? })
    }
}

impl StateArgs {
    /// The state directory.
    ///
    /// # Errors
    /// [`LogError::Homeless`].
    pub(crate) fn resolve(&self) -> Result<PathBuf, LogError> {
        state_of(self.state_dir.clone())
    }
}

/// The state directory: the one that was asked for, else the user's.
///
/// # Errors
/// [`LogError::Homeless`].
pub(crate) fn state_of(asked: Option<PathBuf>) -> Result<PathBuf, LogError> {
    let variable = std::env::var_os;
    let found =
        state_dir(asked.as_deref(), variable("XDG_STATE_HOME").as_deref(), variable("HOME").as_deref())?;
    // A job may be begun in one directory and looked for from another.
    Ok(std::path::absolute(&found).unwrap_or(found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Any {
        #[command(flatten)]
        log: LogArgs,
    }

    fn meant(line: &str) -> LogMeant {
        let words = std::iter::once("any").chain(line.split_whitespace());
        Any::try_parse_from(words).unwrap().log.resolve().unwrap()
    }

    #[test]
    fn options_of_the_log_mean_what_they_say() {
        let plain = meant("--state-dir /s");
        assert_eq!((plain.settings.style, plain.settings.sync), (Style::DEFAULT, SyncPolicy::Group));
        assert_eq!((plain.recheck, plain.state), (None, PathBuf::from("/s")));
        let all = meant(
            "--state-dir=/s --log-mechanism=transaction:7 --log-encoding=char --sync=none --verify-resume",
        );
        assert_eq!(all.settings.style.mechanism.to_string(), "transaction:7");
        assert_eq!((all.settings.style.encoding, all.settings.sync), (Encoding::Char, SyncPolicy::None));
        assert_eq!(all.recheck, Some(Recheck::All));
        assert_eq!(meant("--state-dir=/s --verify-resume=sample").recheck, Some(Recheck::Sample));
        assert!(meant("--state-dir=s").state.is_absolute());
        for wrong in ["--sync=all", "--log-encoding=bit16", "--log-mechanism=one", "--verify-resume=some"] {
            assert!(Any::try_parse_from(["any", wrong]).is_err(), "{wrong}");
        }
    }
}
