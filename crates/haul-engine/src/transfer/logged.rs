//! Opening of the log of a job.

use super::error::TransferError;
use super::jobs::Offer;
use super::logs::LogLocation;
use super::report::RunContext;
use super::resume;
use super::sink::{Destination, SinkLog, SinkLogConfig};
use crate::log::{LogError, ResumeCheck, Settings, Target};
use haul_log::objects::Identity;
use haul_model::ObjectSize;
use haul_proto::Connect;
use std::path::Path;

/// Opens the log of a job that is sent into `root`, if this side keeps logs and the job has an
/// identifier.
pub(super) fn open_log_of_upload(
    request: &Connect,
    offer: &Offer,
    destination: &Destination,
    root: &Path,
    into: &[u8],
    run_context: &RunContext<'_>,
) -> Result<Option<SinkLog>, TransferError> {
    let Some((location, style)) = offer.logs.location() else { return Ok(None) };
    if request.job == [0; 16] || !resume::is_logged(&request.options) {
        return Ok(None);
    }
    let (sync, recheck) = resume::from_request(&request.log.unwrap_or_default());
    let settings = Settings { style, sync, wait: false };
    let config = SinkLogConfig {
        location,
        job: request.job,
        root,
        options: &request.options,
        settings,
        recheck,
        target: target(location, Path::new(&offer.root), into, request.options.object),
        command: None,
        stop: run_context.stop,
    };
    open_log(config, destination, run_context)
}

/// Returns the destination of a job. With it, the temporary files of a job that is forgotten can be
/// found.
pub(super) fn target(
    location: LogLocation<'_>,
    root: &Path,
    into: &[u8],
    object: ObjectSize,
) -> Option<Target> {
    let client = match location {
        LogLocation::Own(_) => Identity::default(),
        LogLocation::Guest(_, client) => Identity::of(client),
    };
    Some(Target { root: root.canonicalize().ok()?, into: into.to_vec(), object, client })
}

/// Opens the log of a job. If that fails, reports it and lets the job run without a log, unless
/// another process runs the job.
pub(super) fn open_log(
    mut config: SinkLogConfig<'_>,
    destination: &Destination,
    run_context: &RunContext<'_>,
) -> Result<Option<SinkLog>, TransferError> {
    // A waybill needs the digests of everything that arrived, so existing files are read again.
    if run_context.receipt.is_some() {
        config.recheck = Some(ResumeCheck::All);
    }
    match SinkLog::open(&config, destination, run_context.report) {
        Ok(log) => Ok(Some(log)),
        Err(error @ LogError::Held { .. }) => Err(TransferError::Held(error)),
        Err(error) => {
            run_context.report.note(&format!("{error}; this job cannot be resumed if it is interrupted"));
            Ok(None)
        }
    }
}
