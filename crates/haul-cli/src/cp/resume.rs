//! `haul cp --resume`: which job a command is, and how its log is kept.

use super::resolve::UsageError;
use crate::getopt::Typed;
use crate::jobs::keeping::state_of;
use haul_engine::copy::{Earlier, JobLog, LogOrder, Moving, Operands, Tally};
use haul_engine::log::{Call, LogError, Recheck, Settings, SyncPolicy, find, identity, prune};
use haul_log::objects::{Encoding, Identity, Mechanism, Style};
use haul_log::record::Status;
use haul_model::{ObjectSize, format_size};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What was typed about going on.
#[derive(Debug, Default)]
pub(super) struct Asked {
    resume: bool,
    restart: bool,
    /// The first of the other options that was typed.
    alone: Option<&'static str>,
    mechanism: Option<Mechanism>,
    encoding: Option<Encoding>,
    sync: SyncPolicy,
    recheck: Option<Recheck>,
    state: Option<PathBuf>,
    /// The options that tell this job from others.
    words: Vec<OsString>,
}

/// A job that can be gone on with.
#[derive(Debug)]
pub(super) struct ResumeOrder {
    id: Identity,
    settings: Settings,
    recheck: Option<Recheck>,
    state: Option<PathBuf>,
    object: ObjectSize,
}

/// Options that change neither which bytes arrive nor where: the same job goes on with others of them. Of the size of objects the log itself
/// says when it is another one.
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

impl Asked {
    /// Begins with the options that tell the job from others; a target directory is one of the operands.
    pub(super) fn of(typed: &Typed) -> Asked {
        if !typed.options.iter().any(|option| option.name == "resume") {
            return Asked::default();
        }
        let tells = |name: &str| !ASIDE.contains(&name) && name != "target-directory";
        let telling = typed.options.iter().filter(|option| tells(option.name));
        let words = telling
            .flat_map(|option| [OsString::from(option.name), option.value.clone().unwrap_or_default()]);
        Asked { words: words.collect(), ..Asked::default() }
    }

    /// Takes an option, if it is one of these.
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
                let asked = value.map_or(Ok(Recheck::All), |_| text.parse());
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

    /// Removes what is kept of a job.
    fn forget(&self, id: Identity) -> Result<(), UsageError> {
        let state = state_of(self.state.clone());
        let forgotten = state.and_then(|state| match find(&state, id)? {
            Some(job) => job.forget(&state),
            None => Ok(()),
        });
        forgotten.map_err(|error| UsageError::LogOption { option: "--restart", why: error.to_string() })
    }

    /// Whether the copy is to be one that can be gone on with.
    pub(super) fn is_resume(&self) -> bool {
        self.resume
    }

    /// The job of these operands, which become what they were when it began. `names_target`: the target directory was given as that.
    pub(super) fn resolve(
        self,
        operands: &mut Operands,
        first: Option<OsString>,
        moving: &mut Moving,
    ) -> Result<Option<ResumeOrder>, UsageError> {
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
        let object = moving.receipt_object();
        Ok(Some(ResumeOrder { id, settings, recheck: self.recheck, state: self.state, object }))
    }
}

/// Returns the operands of a job whose target was missing when it began: the target was to become the copy, and exists by now. `first` is the source
/// as it was typed, because slashes are stripped only for a copy into a directory.
fn as_begun(operands: &Operands, first: Option<OsString>) -> Option<Operands> {
    let Operands::IntoDirectory { sources, directory, parents: false } = operands else { return None };
    let source = first.filter(|_| sources.len() == 1)?;
    Some(Operands::Onto { source, sink: directory.clone() })
}

/// What the job is told apart by: its options, and where its operands lead from here.
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

/// Returns the words of a command that resumes the job: those that were typed, without `--restart` or what it was cut to.
pub(super) fn without_restart(args: &[OsString]) -> impl Iterator<Item = &OsString> {
    let options = args.iter().position(|word| word == "--").unwrap_or(args.len());
    let is_restart = |word: &OsString| {
        let word = word.as_bytes();
        word.starts_with(b"--rest") && b"--restart".starts_with(word)
    };
    let kept = args.iter().enumerate().filter(move |(at, word)| *at >= options || !is_restart(word));
    kept.map(|(_, word)| word)
}

/// The log of a job that runs.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) log: JobLog,
    pub(super) state: PathBuf,
}

impl ResumeOrder {
    /// Takes hold of the job. What there is to know of an earlier run goes to `say`.
    pub(super) fn begin(&self, args: &[OsString], say: &mut dyn FnMut(&str)) -> Result<Begun, LogError> {
        let state = state_of(self.state.clone())?;
        let words = std::iter::once(OsString::from("cp")).chain(without_restart(args).cloned()).collect();
        let cwd = std::env::current_dir().unwrap_or_default();
        let order = LogOrder {
            state: state.clone(),
            id: self.id,
            settings: self.settings,
            recheck: self.recheck,
            object: self.object,
            call: Call { kind: "cp", words, cwd },
        };
        let (log, earlier) = JobLog::begin(order)?;
        tell(&earlier, say);
        Ok(Begun { log, state })
    }
}

/// What is to be known of an earlier run.
fn tell(earlier: &Earlier, say: &mut dyn FnMut(&str)) {
    for flaw in &earlier.found.flaws {
        say(&flaw.to_string());
    }
    if earlier.is_void {
        say(
            "an earlier run made nothing durable (--sync=none) and the machine was started again since, or nothing tells whether that is so: all is compared",
        );
    } else if earlier.record.is_some()
        && let Some(holder) = &earlier.found.left_by
        && earlier.recheck == Recheck::Sample
    {
        say(&format!(
            "the earlier run ended without a word ({holder}): a sample of what it logged is compared again"
        ));
    } else if !earlier.found.flaws.is_empty() && earlier.recheck == Recheck::Sample {
        say("the log is damaged: a sample of what else it says is compared again");
    }
}

/// The job is over. Records of jobs that nobody was at for long go.
pub(super) fn close(
    log: JobLog,
    state: &Path,
    (status, exit): (Status, u8),
    tally: &Tally,
) -> Result<(), LogError> {
    log.close(status, exit, tally)?;
    prune(state)
}

/// Returns what a job that went on found there, or `None` if that is nothing.
pub(super) fn found_there(tally: &Tally, status: Status) -> Option<String> {
    let files = Tally::get(&tally.files_kept) + Tally::get(&tally.files_same);
    let bytes = Tally::get(&tally.bytes_kept);
    let is_all = files == Tally::get(&tally.files_done) && bytes == Tally::get(&tally.bytes_done);
    if status == Status::Finished && is_all && files > 0 {
        return Some(format!("already complete: {files} files, {}", format_size(bytes)));
    }
    (bytes > 0 || files > 0)
        .then(|| format!("went on: {files} files were finished, {} were there already", format_size(bytes)))
}
