//! Location of the logs of the side that answers, and opening of a job's log.

use super::error::TransferError;
use super::hello::Offer;
use super::report::RunContext;
use super::resume;
use super::sink::{Destination, SinkLog, SinkLogConfig};
use crate::log::{LogError, LogStore, ResumeCheck, Settings, Target};
use haul_log::objects::{Identity, Style};
use haul_model::ObjectSize;
use haul_proto::{Connect, Reason, Why};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Location of the logs of jobs that are sent to the answering side.
#[derive(Clone, Debug, Default)]
pub enum Logs {
    /// No logs: interrupted jobs start from the beginning.
    #[default]
    None,
    /// In a state directory, which belongs to the same user as the peer.
    Own {
        /// The state directory.
        state: PathBuf,
        /// Layout of the logs. The receiver alone chooses it, because it decides how much space and
        /// memory a log needs.
        style: Style,
    },
    /// In a shared store, whose clients know nothing of each other's jobs.
    Guest {
        /// The shared store.
        log_store: Arc<LogStore>,
        /// Identity of the client that owns the jobs: verified data that stays the same, for
        /// example a ticket.
        client: Vec<u8>,
        /// Layout of the logs.
        style: Style,
    },
}

/// Location of the object log of a job.
#[derive(Clone, Copy)]
pub(super) enum LogLocation<'a> {
    /// In a state directory.
    Own(&'a Path),
    /// In a shared store, with the identity of the client.
    Guest(&'a Arc<LogStore>, &'a [u8]),
}

impl Logs {
    fn location(&self) -> Option<(LogLocation<'_>, Style)> {
        match self {
            Logs::None => None,
            Logs::Own { state, style } => Some((LogLocation::Own(state), *style)),
            Logs::Guest { log_store, client, style } => Some((LogLocation::Guest(log_store, client), *style)),
        }
    }

    /// Returns the reason that is sent to the peer if another session runs the job. A client of a
    /// shared store learns nothing about this host.
    pub(super) fn busy(&self, error: &TransferError) -> Reason {
        let who = match (self, error) {
            (Logs::Own { .. }, TransferError::Held(LogError::Held { holder, .. })) => holder.to_string(),
            _ => "another session".to_owned(),
        };
        Reason::new(Why::Busy, &format!("the job is held by {who}; wait for it to finish, or stop it"))
    }
}

/// Opens the log of a job that is sent into `root`, if this side keeps logs and the job has an
/// identifier.
pub(super) fn open_log_of_upload(
    request: &Connect,
    offer: &Offer,
    destination: &Destination,
    (root, into): (&Path, &[u8]),
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
