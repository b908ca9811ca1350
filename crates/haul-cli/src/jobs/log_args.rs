//! Log options of every resumable job: the format and the location of its object log.

use clap::Args;
use haul_engine::log::{LogError, ResumeCheck, Settings, SyncPolicy, state_dir};
use haul_log::objects::{Encoding, Mechanism, Style};
use std::ffi::OsString;
use std::path::PathBuf;

/// Layout of object logs, for commands that receive files.
#[derive(Args, Clone, Debug)]
pub(crate) struct StyleArgs {
    /// Set which files share an object log: each file has its own (file), FILES files share one
    /// (transaction[:FILES]), all files share one (universal).
    #[arg(long, value_name = "MECHANISM", default_value_t = Style::DEFAULT.mechanism, help_heading = "Resume options")]
    log_mechanism: Mechanism,
    /// Set the encoding of object numbers: char, int, enc, binary, bit8, bit64.
    #[arg(long, value_name = "ENCODING", default_value_t = Style::DEFAULT.encoding, help_heading = "Resume options")]
    log_encoding: Encoding,
}

/// Syncs and location of a job's object log, for commands that clap parses.
#[derive(Args, Clone, Debug)]
pub(crate) struct LogArgs {
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

impl StyleArgs {
    /// Returns the layout.
    pub(crate) fn style(&self) -> Style {
        Style { mechanism: self.log_mechanism, encoding: self.log_encoding }
    }
}

/// Takes the options for the layout of object logs out of the words of a command that clap does not
/// parse. Returns the layout and the other words; `None` if a value is invalid.
pub(crate) fn style_of_words(words: &[OsString]) -> Option<(Style, Vec<OsString>)> {
    let (mut style, mut others) = (Style::DEFAULT, Vec::new());
    for word in words {
        match word.to_str().and_then(|word| word.split_once('=')) {
            Some(("--log-mechanism", value)) => style.mechanism = value.parse().ok()?,
            Some(("--log-encoding", value)) => style.encoding = value.parse().ok()?,
            _ => others.push(word.clone()),
        }
    }
    Some((style, others))
}

impl LogArgs {
    /// Resolves the options for a log in the default layout.
    ///
    /// # Errors
    /// Returns [`LogError::Homeless`] if no state directory is given and the environment names
    /// none.
    pub(crate) fn resolve(&self) -> Result<LogOptions, LogError> {
        let settings = Settings { style: Style::DEFAULT, sync: self.sync, wait: false };
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
        #[command(flatten)]
        style: StyleArgs,
    }

    fn style(line: &str) -> Style {
        Any::try_parse_from(std::iter::once("any").chain(line.split_whitespace())).unwrap().style.style()
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
        let all = resolved("--state-dir=/s --sync=none --verify-resume");
        assert_eq!((all.settings.sync, all.recheck), (SyncPolicy::None, Some(ResumeCheck::All)));
        assert_eq!(resolved("--state-dir=/s --verify-resume=sample").recheck, Some(ResumeCheck::Sample));
        assert!(resolved("--state-dir=s").state.is_absolute());
        for wrong in ["--sync=all", "--log-encoding=bit16", "--log-mechanism=one", "--verify-resume=some"] {
            assert!(Any::try_parse_from(["any", wrong]).is_err(), "{wrong}");
        }
    }

    #[test]
    fn log_layouts_are_parsed_with_and_without_clap() {
        let words = |words: &[&str]| -> Vec<OsString> { words.iter().map(OsString::from).collect() };
        assert_eq!(style(""), Style::DEFAULT);
        let typed = ["--log-mechanism=transaction:7", "--log-encoding=char"];
        let meant = style(&typed.join(" "));
        assert_eq!((meant.mechanism.to_string().as_str(), meant.encoding), ("transaction:7", Encoding::Char));
        let more = [&typed[..1], &["--setuid"], &typed[1..]].concat();
        assert_eq!(style_of_words(&words(&more)), Some((meant, words(&["--setuid"]))));
        assert_eq!(style_of_words(&words(&["--log-encoding=bit16"])), None);
    }
}
