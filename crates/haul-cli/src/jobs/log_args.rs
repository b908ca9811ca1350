//! Log options of every resumable job: the format and the location of its object log.

use clap::Args;
use haul_engine::log::{LogError, ResumeCheck, Settings, SyncPolicy, state_dir};
use haul_log::objects::{Encoding, Mechanism, Style};
use std::path::PathBuf;

/// Format and location of a job's object log, for commands that clap parses.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogArgs {
    /// Set which files share an object log: each file has its own (file), FILES files share one
    /// (transaction[:FILES]), all files share one (universal).
    #[arg(long, value_name = "MECHANISM", default_value_t = Style::DEFAULT.mechanism, help_heading = "Resume options")]
    log_mechanism: Mechanism,
    /// Set the encoding of object numbers: char, int, enc, binary, bit8, bit64.
    #[arg(long, value_name = "ENCODING", default_value_t = Style::DEFAULT.encoding, help_heading = "Resume options")]
    log_encoding: Encoding,
    /// Sync objects before they are logged: after each object, after each group (every second or
    /// 256 MiB), or never (none). With 'none', a job survives a killed process but not a power
    /// failure.
    #[arg(long, value_name = "object|group|none", default_value_t = SyncPolicy::Group, help_heading = "Resume options")]
    sync: SyncPolicy,
    /// Compare logged objects again when the job resumes: none, sample or all. Without HOW: all
    /// [default: sample after an unclean exit, else none].
    #[arg(long, value_name = "HOW", num_args = 0..=1, require_equals = true, default_missing_value = "all",
          help_heading = "Resume options")]
    verify_resume: Option<ResumeCheck>,
    #[command(flatten)]
    place: StateArgs,
}

/// Location of the job directories.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct StateArgs {
    /// Keep jobs in DIR [default: $XDG_STATE_HOME/haul, else ~/.local/state/haul].
    #[arg(long, value_name = "DIR", global = true, help_heading = "Resume options")]
    state_dir: Option<PathBuf>,
}

/// Resolved log options.
#[derive(Clone, Debug)]
pub(crate) struct LogOptions {
    pub(crate) settings: Settings,
    /// `None` without the option: the end of the previous run then selects the level.
    pub(crate) recheck: Option<ResumeCheck>,
    /// The state directory.
    pub(crate) state: PathBuf,
}

impl LogArgs {
    /// Resolves the options.
    ///
    /// # Errors
    /// Returns [`LogError::Homeless`] if no state directory is given and the environment names
    /// none.
    pub(crate) fn resolve(&self) -> Result<LogOptions, LogError> {
        let style = Style { mechanism: self.log_mechanism, encoding: self.log_encoding };
        let settings = Settings { style, sync: self.sync, wait: false };
        Ok(LogOptions { settings, recheck: self.verify_resume, state: self.place.resolve()? })
    }
}

impl StateArgs {
    /// Returns the state directory.
    ///
    /// # Errors
    /// Returns [`LogError::Homeless`] if no state directory is given and the environment names
    /// none.
    pub(crate) fn resolve(&self) -> Result<PathBuf, LogError> {
        state_of(self.state_dir.clone())
    }
}

/// Returns the requested state directory, else the user's.
///
/// # Errors
/// Returns [`LogError::Homeless`] if no state directory is given and the environment names none.
pub(crate) fn state_of(asked: Option<PathBuf>) -> Result<PathBuf, LogError> {
    let variable = std::env::var_os;
    let found =
        state_dir(asked.as_deref(), variable("XDG_STATE_HOME").as_deref(), variable("HOME").as_deref())?;
    // A job can be started in one working directory and looked up from another.
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

    fn resolved(line: &str) -> LogOptions {
        let words = std::iter::once("any").chain(line.split_whitespace());
        Any::try_parse_from(words).unwrap().log.resolve().unwrap()
    }

    #[test]
    fn log_options_are_parsed() {
        let plain = resolved("--state-dir /s");
        assert_eq!((plain.settings.style, plain.settings.sync), (Style::DEFAULT, SyncPolicy::Group));
        assert_eq!((plain.recheck, plain.state), (None, PathBuf::from("/s")));
        let all = resolved(
            "--state-dir=/s --log-mechanism=transaction:7 --log-encoding=char --sync=none --verify-resume",
        );
        assert_eq!(all.settings.style.mechanism.to_string(), "transaction:7");
        assert_eq!((all.settings.style.encoding, all.settings.sync), (Encoding::Char, SyncPolicy::None));
        assert_eq!(all.recheck, Some(ResumeCheck::All));
        assert_eq!(resolved("--state-dir=/s --verify-resume=sample").recheck, Some(ResumeCheck::Sample));
        assert!(resolved("--state-dir=s").state.is_absolute());
        for wrong in ["--sync=all", "--log-encoding=bit16", "--log-mechanism=one", "--verify-resume=some"] {
            assert!(Any::try_parse_from(["any", wrong]).is_err(), "{wrong}");
        }
    }
}
