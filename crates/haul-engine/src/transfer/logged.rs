//! Location of the logs of the side that answers, and opening of a job's log.

use super::hello::{Offer, TransferError};
use super::report::Watch;
use super::resume;
use super::sink::{Keeping, Opening, Store};
use crate::log::{LogError, Recheck, Room, Target};
use haul_log::objects::Identity;
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
    /// In this state directory, which belongs to the same user as the peer.
    Own(PathBuf),
    /// In a shared store, whose clients know nothing of each other's jobs.
    Guest {
        /// The shared store.
        room: Arc<Room>,
        /// Identity of the client that owns the jobs: verified data that stays the same, for
        /// example a ticket.
        guest: Vec<u8>,
    },
}

/// Location of the object log of a job.
#[derive(Clone, Copy)]
pub(super) enum Shelf<'a> {
    /// In a state directory.
    Own(&'a Path),
    /// In a shared store, with the identity of the client.
    Guest(&'a Arc<Room>, &'a [u8]),
}

impl Logs {
    fn shelf(&self) -> Option<Shelf<'_>> {
        match self {
            Logs::None => None,
            Logs::Own(state) => Some(Shelf::Own(state)),
            Logs::Guest { room, guest } => Some(Shelf::Guest(room, guest)),
        }
    }

    /// Returns the reason that is sent to the peer if another session runs the job. A client of a
    /// shared store learns nothing about this host.
    pub(super) fn busy(&self, error: &TransferError) -> Reason {
        let who = match (self, error) {
            (Logs::Own(_), TransferError::Held(LogError::Held { holder, .. })) => holder.to_string(),
            _ => "another session".to_owned(),
        };
        Reason::new(Why::Busy, &format!("the job is held by {who}; wait for it to finish, or stop it"))
    }
}

/// Opens the log of a job that is sent into `root`, if this side keeps logs and the job has an
/// identifier.
pub(super) fn answered(
    asked: &Connect,
    offer: &Offer,
    store: &Store,
    (root, into): (&Path, &[u8]),
    watch: &Watch<'_>,
) -> Result<Option<Keeping>, TransferError> {
    let Some(shelf) = offer.logs.shelf() else { return Ok(None) };
    if asked.job == [0; 16] || !resume::is_logged(&asked.options) {
        return Ok(None);
    }
    let (settings, recheck) = resume::wished(&asked.log.unwrap_or_default());
    let opening = Opening {
        shelf,
        job: asked.job,
        root,
        options: &asked.options,
        settings,
        recheck,
        target: target(shelf, offer, into, asked.options.object),
        command: None,
        stop: watch.stop,
    };
    keeping(opening, store, watch)
}

/// Returns the destination of a client's job. With it, the temporary files of a client that does
/// not return can be found.
fn target(shelf: Shelf<'_>, offer: &Offer, into: &[u8], object: ObjectSize) -> Option<Target> {
    let Shelf::Guest(_, guest) = shelf else { return None };
    let root = Path::new(&offer.root).canonicalize().ok()?;
    Some(Target { root, into: into.to_vec(), object, guest: Identity::of(guest) })
}

/// Opens the log of a job. If that fails, reports it and lets the job run without a log, unless
/// another process runs the job.
pub(super) fn keeping(
    mut opening: Opening<'_>,
    store: &Store,
    watch: &Watch<'_>,
) -> Result<Option<Keeping>, TransferError> {
    // A waybill needs the digests of everything that arrived, so existing files are read again.
    if watch.receipt.is_some() {
        opening.recheck = Some(Recheck::All);
    }
    match Keeping::open(&opening, store, watch.report) {
        Ok(log) => Ok(Some(log)),
        Err(error @ LogError::Held { .. }) => Err(TransferError::Held(error)),
        Err(error) => {
            watch.report.note(&format!("{error}; this job cannot be resumed if it is interrupted"));
            Ok(None)
        }
    }
}
