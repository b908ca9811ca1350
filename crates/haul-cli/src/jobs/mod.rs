//! `haul jobs`: lists jobs and their progress, resumes them and deletes their records.

pub(crate) mod log_args;
pub(crate) mod own;
pub(crate) mod show;

use crate::console::{self, say};
use clap::{Parser, Subcommand};
use haul_engine::log::{Listed, LogError, job_folder, jobs};
use haul_log::record::{JobRecord, Status};
use log_args::StateArgs;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ExitCode};
use thiserror::Error;

const NAME: &str = "haul jobs";

/// Minimum number of digits of an abbreviated ID.
const ID_DIGITS_MIN: usize = 4;

/// List running, stopped, finished and failed jobs and their progress.
///
/// Lists each run of cp --resume, send and fetch, and each run of verify, repair and sum --waybill
/// that took longer than one second. Records of the last 100 finished jobs are kept for 30 days.
/// Records of stopped and failed jobs are kept for 90 days after their last run; beyond the newest
/// 1,000, for 7 days.
///
/// ID is an ID from the list, or its first digits: at least 4, and enough to identify the job.
/// Exit status: 0 success, 1 failure or no such job.
#[derive(Debug, Parser)]
#[command(name = "haul jobs", disable_version_flag = true, args_conflicts_with_subcommands = false)]
struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    /// Print one JSON object per job, one per line.
    #[arg(long, global = true)]
    json: bool,
    #[command(flatten)]
    place: StateArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print all details of a job.
    Show {
        /// ID of the job.
        id: String,
    },
    /// Run the job's command again in its original directory. The job resumes from its durable
    /// objects.
    Resume {
        /// ID of the job.
        id: String,
    },
    /// Delete the records of jobs and the incomplete files that they keep for resuming, also on the
    /// remote host, so that the same command starts from the beginning. Complete files stay.
    Forget {
        /// Delete only what is on this host.
        #[arg(long)]
        local: bool,
        /// IDs of the jobs.
        #[arg(required = true)]
        id: Vec<String>,
    },
}

/// Error that prevents showing, resuming or deleting a job.
#[derive(Debug, Error)]
enum JobsError {
    #[error("no such job: {0:?}; run 'haul jobs' for a list")]
    Unknown(String),
    #[error("ambiguous job ID: {0:?}; use more digits")]
    Ambiguous(String),
    #[error("invalid job ID: {0:?}; use at least {ID_DIGITS_MIN} of the digits that 'haul jobs' prints")]
    NoId(String),
    #[error("cannot lock job {id}: held by {holder}; wait for it to finish, or stop it")]
    Runs { id: String, holder: String },
    #[error("cannot resume job {id}: already finished")]
    Finished { id: String },
    #[error(
        "cannot resume job {id}: unusable record: {why}; run the command itself again, or delete the job with 'haul jobs forget'"
    )]
    NoRecord { id: String, why: String },
    #[error("cannot resume job {id}: cannot run {command:?} in {cwd:?}: {source}")]
    NotRun { id: String, command: String, cwd: String, source: io::Error },
    #[error(
        "cannot delete the incomplete files of job {id} on the remote host; the job is kept; to delete only what is on this host: haul jobs forget --local {id}"
    )]
    NotFreed { id: String },
    #[error(transparent)]
    Log(#[from] LogError),
    #[error("write error: {0}")]
    Unwritten(io::Error),
}

/// Runs the command with `args`, which do not include the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let args = match console::typed::<Args>(NAME, args, 2) {
        Ok(args) => args,
        Err(status) => return status,
    };
    match execute(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(JobsError::Unwritten(error)) => ExitCode::from(console::unwritten(NAME, &error, 1)),
        Err(error) => {
            say(NAME, &error);
            ExitCode::FAILURE
        }
    }
}

fn execute(args: &Args) -> Result<(), JobsError> {
    let state = args.place.resolve()?;
    let all = jobs(&state)?;
    match &args.command {
        None => {
            let text = if args.json { all.iter().map(show::json).collect() } else { show::table(&all) };
            io::stdout().write_all(text.as_bytes()).map_err(JobsError::Unwritten)
        }
        Some(Command::Show { id }) => {
            let job = find(&all, id)?;
            let text = if args.json { show::json(job) } else { show::all(job, &job_folder(&state, job.id)) };
            io::stdout().write_all(text.as_bytes()).map_err(JobsError::Unwritten)
        }
        Some(Command::Resume { id }) => Err(resume(find(&all, id)?)),
        Some(Command::Forget { local, id }) => {
            let asked = id.iter().map(|id| find(&all, id)).collect::<Result<Vec<_>, _>>()?;
            asked.into_iter().try_for_each(|job| forget(job, *local, &state))
        }
    }
}

/// Returns the jobs of this user as a JSON array. The error is a message.
pub(crate) fn all_as_json() -> Result<String, String> {
    let all = log_args::state_of(None).and_then(|state| jobs(&state)).map_err(|error| error.to_string())?;
    let lines: Vec<String> = all.iter().map(|job| show::json(job).trim_end().to_owned()).collect();
    Ok(format!("[{}]", lines.join(",")))
}

/// Finds the job whose ID starts with `digits`.
fn find<'j>(all: &'j [Listed], digits: &str) -> Result<&'j Listed, JobsError> {
    if digits.len() < ID_DIGITS_MIN || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(JobsError::NoId(digits.to_owned()));
    }
    let digits = digits.to_ascii_lowercase();
    let mut found = all.iter().filter(|job| job.id.to_hex().starts_with(&digits));
    match (found.next(), found.next()) {
        (Some(job), None) => Ok(job),
        (Some(_), Some(_)) => Err(JobsError::Ambiguous(digits)),
        (None, _) => Err(JobsError::Unknown(digits)),
    }
}

/// Replaces this process by the job's command. Returns only on failure.
fn resume(job: &Listed) -> JobsError {
    let id = show::short(job);
    if let Some(holder) = &job.holder {
        return JobsError::Runs { id, holder: holder.to_string() };
    }
    if let Some(error) = &job.trouble {
        return JobsError::NoRecord { id, why: error.to_string() };
    }
    let record = match &job.record {
        Some(Ok(record)) => record,
        Some(Err(flaw)) => return JobsError::NoRecord { id, why: flaw.to_string() },
        None => return JobsError::NoRecord { id, why: "never written".to_owned() },
    };
    if job.status() == Status::Finished {
        return JobsError::Finished { id };
    }
    let source = again(record, &[]).exec();
    let cwd = String::from_utf8_lossy(&record.cwd).into_owned();
    JobsError::NotRun { id, command: show::command(record), cwd, source }
}

/// Returns the recorded command with more options after its first word.
fn again(record: &JobRecord, options: &[&str]) -> process::Command {
    let program = std::env::current_exe().unwrap_or_else(|_| "haul".into());
    let words = record.words.iter().map(|word| OsStr::from_bytes(word));
    let (name, rest) = (words.clone().take(1), words.skip(1));
    let mut command = process::Command::new(program);
    command.args(name).args(options).args(rest).current_dir(OsStr::from_bytes(&record.cwd));
    command
}

/// Deletes a job, with the incomplete files that it keeps here and, unless `local` is set, at the
/// host that it sends to.
fn forget(job: &Listed, local: bool, state: &Path) -> Result<(), JobsError> {
    let id = show::short(job);
    let runs = |holder: String| JobsError::Runs { id: id.clone(), holder };
    if let Some(holder) = &job.holder {
        return Err(runs(holder.to_string()));
    }
    if let Some(record) = job.whole().filter(|record| !local && record.kind == "send")
        && job.status() != Status::Finished
    {
        let ended = again(record, &["--forget"]).stdin(process::Stdio::inherit()).output();
        if !ended.as_ref().is_ok_and(|ended| ended.status.success()) {
            let why = ended.map_or_else(|error| error.to_string().into_bytes(), |ended| ended.stderr);
            io::stderr().write_all(&why).map_err(JobsError::Unwritten)?;
            return Err(JobsError::NotFreed { id });
        }
    }
    for log in job.logs.iter().chain([&job.id]) {
        // A log that a process holds is reported below.
        haul_engine::transfer::forget(state, *log)?;
    }
    match job.forget(state) {
        Ok(()) => Ok(()),
        Err(LogError::Held { holder, .. }) => Err(runs(holder.to_string())),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;
    use haul_log::objects::Identity;

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/jobs.md", documented::typed_by::<Args>());
    }

    #[test]
    fn jobs_are_found_by_an_id_prefix() {
        let job = |first: u8, last: u8| {
            let mut id = [first; 16];
            id[15] = last;
            Listed {
                id: Identity(id),
                holder: None,
                record: None,
                trouble: None,
                log_bytes: 0,
                logs: Vec::new(),
                touched: 0,
            }
        };
        let all = [job(0xab, 1), job(0xab, 2), job(0xcd, 1)];
        assert_eq!(find(&all, "CDCD").unwrap().id, all[2].id);
        assert_eq!(find(&all, &all[1].id.to_hex()).unwrap().id, all[1].id);
        assert!(matches!(find(&all, "abab"), Err(JobsError::Ambiguous(_))));
        assert!(matches!(find(&all, "eeee"), Err(JobsError::Unknown(_))));
        for wrong in ["", "abc", "../a", "wxyz"] {
            assert!(matches!(find(&all, wrong), Err(JobsError::NoId(_))), "{wrong}");
        }
    }
}
