//! Output of jobs as a table, as lines, and as JSON.

use crate::json;
use haul_engine::copy::quote_for_shell;
use haul_engine::log::Listed;
use haul_log::objects::Identity;
use haul_log::record::{JobRecord, Progress, Status};
use haul_log::waybill::date;
use haul_model::format_size;
use serde::Serialize;
use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Digits of an ID in the table.
const SHORT: usize = 10;

/// Returns the abbreviated ID.
pub(super) fn short(job: &Listed) -> String {
    short_id(job.id)
}

/// Returns an abbreviated ID.
pub(crate) fn short_id(id: Identity) -> String {
    id.to_hex()[..SHORT].to_owned()
}

/// Returns all jobs as a table, one per line.
pub(super) fn table(jobs: &[Listed]) -> String {
    let mut text = String::new();
    if jobs.is_empty() {
        return text;
    }
    let head = ("ID", "STATUS", "DONE", "FILES", "BYTES", "STARTED");
    let _ = writeln!(
        text,
        "{:SHORT$}  {:8}  {:>5}  {:>17}  {:>21}  {:20}  COMMAND",
        head.0, head.1, head.2, head.3, head.4, head.5
    );
    for job in jobs {
        let (id, status) = (short(job), job.status());
        let Some(record) = job.whole() else {
            let why = why(job);
            let _ = writeln!(text, "{id}  {status:8}  {why}");
            continue;
        };
        let (share, files, bytes) = progress(record.progress, status);
        let (begun, command) = (date(record.begun.sec), command(record));
        let _ = writeln!(text, "{id}  {status:8}  {share:>5}  {files:>17}  {bytes:>21}  {begun}  {command}");
    }
    text
}

/// Returns the share done (by bytes, or by files if there are no bytes), and the files and bytes.
/// There is no share while the total is unknown.
fn progress(progress: Progress, status: Status) -> (String, String, String) {
    let Progress { files_done, files_found, bytes_done, bytes_found, is_counting } = progress;
    // The receiver of a transfer learns only at the end that it has everything.
    let is_counting = is_counting && status != Status::Finished;
    let more = if is_counting { "+" } else { "" };
    let share = |done: u64, found: u64| format!("{}%", u128::from(done.min(found)) * 100 / u128::from(found));
    let share = match () {
        () if status == Status::Finished => "100%".to_owned(),
        () if is_counting => "-".to_owned(),
        () if bytes_found > 0 => share(bytes_done, bytes_found),
        () if files_found > 0 => share(files_done, files_found),
        () => "-".to_owned(),
    };
    let bytes = format!("{}/{}{more}", format_size(bytes_done), format_size(bytes_found));
    (share, format!("{files_done}/{files_found}{more}"), bytes)
}

/// Returns the reason why nothing is known about a job.
fn why(job: &Listed) -> String {
    match (&job.trouble, &job.record) {
        (Some(error), _) => format!("unusable: {error}"),
        (None, Some(Err(flaw))) => format!("unusable record: {flaw}"),
        _ => "no record: files received by a transfer".to_owned(),
    }
}

/// Returns the command line of a job, quoted for a shell.
pub(super) fn command(record: &JobRecord) -> String {
    let words = record.words.iter().map(|word| quote_for_shell(OsStr::from_bytes(word)).to_string());
    std::iter::once("haul".to_owned()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Returns everything that is known about a job.
pub(super) fn all(job: &Listed, folder: &Path) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        let _ = writeln!(text, "{:10} {value}", format!("{name}:"));
    };
    line("job", &job.id.to_hex());
    line("status", job.status().name());
    if let Some(holder) = &job.holder {
        line("held by", &holder.to_string());
    }
    let Some(record) = job.whole() else {
        line("record", &why(job));
        line("folder", &quote_for_shell(folder.as_os_str()).to_string());
        return text;
    };
    line("command", &command(record));
    line("directory", &quote_for_shell(OsStr::from_bytes(&record.cwd)).to_string());
    line("started", &date(record.begun.sec));
    line("runs", &record.runs.to_string());
    if let Some(ended) = record.ended {
        line("ended", &date(ended.sec));
    }
    if let Some(exit) = record.exit {
        line("exit", &exit.to_string());
    }
    let (share, files, bytes) = progress(record.progress, job.status());
    line("done", &format!("{share}, {files} files, {bytes}"));
    line("log", &format!("{} bytes", job.log_bytes));
    line("folder", &quote_for_shell(folder.as_os_str()).to_string());
    text
}

/// Returns one job as a line of JSON.
pub(super) fn json(job: &Listed) -> String {
    let record = job.whole();
    let lossy = |bytes: &Vec<u8>| String::from_utf8_lossy(bytes).into_owned();
    let told = JobJson {
        id: job.id.to_hex(),
        status: job.status().name(),
        held_by: job.holder.as_ref().map(ToString::to_string),
        trouble: record.is_none().then(|| why(job)),
        kind: record.map(|record| record.kind.as_str()),
        words: record.map(|record| record.words.iter().map(lossy).collect()),
        directory: record.map(|record| lossy(&record.cwd)),
        begun: record.map(|record| date(record.begun.sec)),
        ended: record.and_then(|record| record.ended).map(|ended| date(ended.sec)),
        exit: record.and_then(|record| record.exit),
        runs: record.map(|record| record.runs),
        files_done: record.map(|record| record.progress.files_done),
        files_found: record.map(|record| record.progress.files_found),
        bytes_done: record.map(|record| record.progress.bytes_done),
        bytes_found: record.map(|record| record.progress.bytes_found),
        counting: record.map(|record| record.progress.is_counting && job.status() != Status::Finished),
        log_bytes: job.log_bytes,
    };
    json::to_string(&told) + "\n"
}

#[derive(Serialize)]
struct JobJson<'j> {
    id: String,
    status: &'static str,
    held_by: Option<String>,
    trouble: Option<String>,
    kind: Option<&'j str>,
    words: Option<Vec<String>>,
    directory: Option<String>,
    begun: Option<String>,
    ended: Option<String>,
    exit: Option<u8>,
    runs: Option<u32>,
    files_done: Option<u64>,
    files_found: Option<u64>,
    bytes_done: Option<u64>,
    bytes_found: Option<u64>,
    counting: Option<bool>,
    log_bytes: u64,
}
