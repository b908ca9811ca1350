//! `haul cp --resume`: identity of the job, and settings of its log.

use super::resolve::UsageError;
use crate::getopt::ParsedArgs;
use crate::jobs::log_args::state_of;
use haul_coreutils::cp::Operands;
use haul_engine::copy::{Earlier, JobLog, LogOrder, Moving, Tally};
use haul_engine::log::{CommandLine, LogError, ResumeCheck, Settings, SyncPolicy, find, identity, prune};
use haul_log::objects::{Encoding, Identity, Mechanism, Style};
use haul_log::record::Status;
use haul_model::{ObjectSize, format_size};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Resume options as typed.
#[derive(Debug, Default)]
pub(super) struct ResumeArgs {
    resume: bool,
    restart: bool,
    /// The first typed option that needs `--resume`.
    alone: Option<&'static str>,
    mechanism: Option<Mechanism>,
    encoding: Option<Encoding>,
    sync: SyncPolicy,
    recheck: Option<ResumeCheck>,
    state: Option<PathBuf>,
    /// Options that are part of the job's identity.
    words: Vec<OsString>,
}

/// A resumable job.
#[derive(Debug)]
pub(super) struct ResumableJob {
    id: Identity,
    settings: Settings,
    recheck: Option<ResumeCheck>,
    state: Option<PathBuf>,
    object: ObjectSize,
}

/// Options that change neither the bytes that arrive nor their destination. The same job resumes
/// with different values. The log itself reports a different object size.
const ASIDE: [&str; 21] = [
    "resume",
    "restart",
    "log-mechanism",
    "log-encoding",
    "sync",
    "verify-resume",
    "state-dir",
    "progress",
    "json",
    "verbose",
    "debug",
    "threads",
    "split-size",
    "buffer-size",
    "print-stats",
    "print-src",
    "direct-read",
    "direct-write",
    "fadvise-read",
    "fadvise-write",
    "double-buffer",
];

impl ResumeArgs {
    /// Collects the options that are part of the job's identity. A target directory counts as an
    /// operand.
    pub(super) fn of(typed: &ParsedArgs) -> ResumeArgs {
        if !typed.options.iter().any(|option| option.name == "resume") {
            return ResumeArgs::default();
        }
        let tells = |name: &str| !ASIDE.contains(&name) && name != "target-directory";
        let telling = typed.options.iter().filter(|option| tells(option.name));
        let words = telling
            .flat_map(|option| [OsString::from(option.name), option.value.clone().unwrap_or_default()]);
        ResumeArgs { words: words.collect(), ..ResumeArgs::default() }
    }

    /// Handles an option, if it is one of these.
    pub(super) fn option(&mut self, name: &str, value: Option<&OsStr>) -> Result<bool, UsageError> {
        let text = value.unwrap_or_default().to_string_lossy();
        let wrong = |option: &'static str, why: String| UsageError::LogOption { option, why };
        let option = match name {
            "resume" => {
                self.resume = true;
                return Ok(true);
            }
            "restart" => {
                self.restart = true;
                "--restart"
            }
            "log-mechanism" => {
                self.mechanism =
                    Some(text.parse().map_err(|error| wrong("--log-mechanism", format!("{error}")))?);
                "--log-mechanism"
            }
            "log-encoding" => {
                self.encoding =
                    Some(text.parse().map_err(|error| wrong("--log-encoding", format!("{error}")))?);
                "--log-encoding"
            }
            "sync" => {
                self.sync = text.parse().map_err(|why| wrong("--sync", why))?;
                "--sync"
            }
            "verify-resume" => {
                let asked = value.map_or(Ok(ResumeCheck::All), |_| text.parse());
                self.recheck = Some(asked.map_err(|why| wrong("--verify-resume", why))?);
                "--verify-resume"
            }
            "state-dir" => {
                self.state = value.map(PathBuf::from);
                "--state-dir"
            }
            _ => return Ok(false),
        };
        self.alone.get_or_insert(option);
        Ok(true)
    }

    /// Returns true if there is a record of the job, finished or not.
    fn is_known(&self, id: Identity) -> bool {
        let job = state_of(self.state.clone()).and_then(|state| find(&state, id));
        job.is_ok_and(|job| job.is_some_and(|job| job.record.is_some()))
    }

    /// Deletes the state of a job.
    fn forget(&self, id: Identity) -> Result<(), UsageError> {
        let state = state_of(self.state.clone());
        let forgotten = state.and_then(|state| match find(&state, id)? {
            Some(job) => job.forget(&state),
            None => Ok(()),
        });
        forgotten.map_err(|error| UsageError::LogOption { option: "--restart", why: error.to_string() })
    }

    /// Returns true if the copy is to be resumable.
    pub(super) fn is_resume(&self) -> bool {
        self.resume
    }

    /// Returns the job of these operands, which are restored to their meaning at the start of the
    /// job. `names_target` is true if the target directory was given explicitly.
    pub(super) fn resolve(
        self,
        operands: &mut Operands,
        first: Option<OsString>,
        moving: &mut Moving,
    ) -> Result<Option<ResumableJob>, UsageError> {
        if !self.resume {
            return self.alone.map_or(Ok(None), |option| Err(UsageError::NeedsResume(option)));
        }
        let style = Style {
            mechanism: self.mechanism.unwrap_or(Style::DEFAULT.mechanism),
            encoding: self.encoding.unwrap_or(Style::DEFAULT.encoding),
        };
        let settings = Settings { style, sync: self.sync, wait: false };
        moving.sync_each = self.sync == SyncPolicy::Object;
        if let Some(begun) = as_begun(operands, first) {
            let id = job(&self.words, &begun)?;
            match self.restart {
                true => self.forget(id)?,
                false if self.is_known(id) => *operands = begun,
                false => {}
            }
        }
        let id = job(&self.words, operands)?;
        if self.restart {
            self.forget(id)?;
        }
        let object = moving.object_size();
        Ok(Some(ResumableJob { id, settings, recheck: self.recheck, state: self.state, object }))
    }
}

/// Returns the operands of a job whose target was missing when it began: the target was to become
/// the copy, and exists by now. `first` is the source as it was typed, because slashes are stripped
/// only for a copy into a directory.
fn as_begun(operands: &Operands, first: Option<OsString>) -> Option<Operands> {
    let Operands::IntoDirectory { sources, directory, parents: false } = operands else { return None };
    let source = first.filter(|_| sources.len() == 1)?;
    Some(Operands::Onto { source, sink: directory.clone() })
}

/// Returns the identity of the job: its options, and the absolute paths of its operands.
fn job(words: &[OsString], operands: &Operands) -> Result<Identity, UsageError> {
    let (sources, sink, form): (&[OsString], _, &[u8]) = match operands {
        Operands::IntoDirectory { sources, directory, .. } => (sources, directory, b"into"),
        Operands::Onto { source, sink } => (std::slice::from_ref(source), sink, b"onto"),
        Operands::Batch(_) => return Err(UsageError::NotWithResume("--read-stdin")),
    };
    let absolute = |path: &OsString| std::path::absolute(path).unwrap_or_else(|_| path.into());
    let paths: Vec<PathBuf> = sources.iter().chain([sink]).map(absolute).collect();
    let words = words.iter().map(|word| word.as_bytes());
    let paths = paths.iter().map(|path| path.as_os_str().as_bytes());
    Ok(identity("cp", Path::new(""), words.chain([form]).chain(paths)))
}

/// Returns the words of a command that resumes the job: those that were typed, without `--restart`
/// or an abbreviation.
pub(super) fn without_restart(args: &[OsString]) -> impl Iterator<Item = &OsString> {
    let options = args.iter().position(|word| word == "--").unwrap_or(args.len());
    let is_restart = |word: &OsString| {
        let word = word.as_bytes();
        word.starts_with(b"--rest") && b"--restart".starts_with(word)
    };
    let kept = args.iter().enumerate().filter(move |(at, word)| *at >= options || !is_restart(word));
    kept.map(|(_, word)| word)
}

/// The log of a running job.
#[derive(Debug)]
pub(super) struct OpenJobLog {
    pub(super) log: JobLog,
    pub(super) state: PathBuf,
}

impl ResumableJob {
    /// Locks the job. Reports the state of an earlier run to `say`.
    pub(super) fn begin(&self, args: &[OsString], say: &mut dyn FnMut(&str)) -> Result<OpenJobLog, LogError> {
        let state = state_of(self.state.clone())?;
        let words = std::iter::once(OsString::from("cp")).chain(without_restart(args).cloned()).collect();
        let cwd = std::env::current_dir().unwrap_or_default();
        let order = LogOrder {
            state: state.clone(),
            id: self.id,
            settings: self.settings,
            recheck: self.recheck,
            object: self.object,
            command_line: CommandLine { kind: "cp", words, cwd },
        };
        let (log, earlier) = JobLog::begin(order)?;
        tell(&earlier, say);
        Ok(OpenJobLog { log, state })
    }
}

/// Reports the state of an earlier run.
fn tell(earlier: &Earlier, say: &mut dyn FnMut(&str)) {
    for flaw in &earlier.found.flaws {
        say(&flaw.to_string());
    }
    if earlier.is_void {
        say(
            "an earlier run synced nothing (--sync=none), and the host was or may have been rebooted since; comparing all logged objects",
        );
    } else if earlier.record.is_some()
        && let Some(holder) = &earlier.found.unclean_holder
        && earlier.recheck == ResumeCheck::Sample
    {
        say(&format!(
            "the previous run ({holder}) did not exit cleanly; comparing a sample of the objects it logged"
        ));
    } else if !earlier.found.flaws.is_empty() && earlier.recheck == ResumeCheck::Sample {
        say("the log is damaged; comparing a sample of the other objects it records");
    }
}

/// Ends the job. Deletes the records of jobs that were idle for long.
pub(super) fn close(
    log: JobLog,
    state: &Path,
    status: Status,
    exit: u8,
    tally: &Tally,
) -> Result<(), LogError> {
    log.close(status, exit, tally)?;
    prune(state)
}

/// Returns the data that a resumed job found at the sink, or `None` if there was none.
pub(super) fn found_there(tally: &Tally, status: Status) -> Option<String> {
    let files = Tally::get(&tally.files_kept) + Tally::get(&tally.files_same);
    let bytes = Tally::get(&tally.bytes_kept);
    let is_all = files == Tally::get(&tally.files_done) && bytes == Tally::get(&tally.bytes_done);
    if status == Status::Finished && is_all && files > 0 {
        return Some(format!("already complete: {files} files, {}", format_size(bytes)));
    }
    (bytes > 0 || files > 0)
        .then(|| format!("resumed: {files} files already complete, {} already copied", format_size(bytes)))
}
