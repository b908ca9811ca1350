//! What a waybill says of the job that wrote it.

use haul_engine::waybill::Root;
use haul_log::waybill::Job;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::{SystemTime, UNIX_EPOCH};

/// The job of this process, begun now, with all its arguments.
pub(crate) fn job(tool: &str, root: &Root) -> Job {
    let args: Vec<OsString> = std::env::args_os().collect();
    let now = SystemTime::now();
    let at = match now.duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_secs()).unwrap_or(i64::MAX),
    };
    // The tool's name stands for whatever path the binary was called by.
    let words = std::iter::once(tool.as_bytes())
        .chain(args.iter().skip(first_argument(tool)).map(|arg| arg.as_bytes()));
    Job {
        run: Job::run_of(words),
        program: concat!("haul ", env!("CARGO_PKG_VERSION")).to_owned(),
        at,
        root: root.as_os_str().as_bytes().to_vec(),
    }
}

/// Behind the binary's name, and behind the command's where `haul` was called by its own.
fn first_argument(tool: &str) -> usize {
    let called = std::env::args_os().next().unwrap_or_default();
    let is_tool = std::path::Path::new(&called).file_name().is_some_and(|name| name == tool);
    if is_tool { 1 } else { 2 }
}
