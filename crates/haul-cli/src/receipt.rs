//! Description of the job in a waybill that the job writes.

use haul_engine::waybill::Root;
use haul_log::waybill::Job;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the job of this process, started now, with all its arguments.
pub(crate) fn job(tool: &str, root: &Root) -> Job {
    let args: Vec<OsString> = std::env::args_os().collect();
    let now = SystemTime::now();
    let at = match now.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
    };
    // The tool's name replaces the path that the binary was called by.
    let words = std::iter::once(tool.as_bytes())
        .chain(args.iter().skip(first_argument(tool)).map(|arg| arg.as_bytes()));
    Job {
        run: Job::run_of(words),
        program: concat!("haul ", env!("CARGO_PKG_VERSION")).to_owned(),
        at,
        root: root.as_os_str().as_bytes().to_vec(),
    }
}

/// Returns the index of the first argument after the binary's name, and after the command if the
/// binary was called as `haul`.
fn first_argument(tool: &str) -> usize {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_tool = std::path::Path::new(&called).file_name().is_some_and(|name| name == tool);
    if is_tool { 1 } else { 2 }
}
