//! Location of the logs of the side that answers.

use super::error::TransferError;
use crate::log::{LogError, LogStore};
use haul_log::objects::Style;
use haul_proto::{Reason, Why};
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
    pub(super) fn location(&self) -> Option<(LogLocation<'_>, Style)> {
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
