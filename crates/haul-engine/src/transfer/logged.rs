//! Where the side that answers keeps its logs, and how a job's is opened.

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

/// Where a side that answers keeps the logs of what is sent to it.
#[derive(Clone, Debug, Default)]
pub enum Logs {
    /// Nowhere: what is cut off begins anew.
    #[default]
    None,
    /// In this state directory, of the user whom the other side is, too.
    Own(PathBuf),
    /// Among those of others, who know nothing of each other's jobs.
    Guest {
        /// The room that they have together.
        room: Arc<Room>,
        /// Whom the jobs are of: what proved that it is the same one again, a ticket for example.
        guest: Vec<u8>,
    },
}

/// Where the log of a job is.
#[derive(Clone, Copy)]
pub(super) enum Shelf<'a> {
    /// In a state directory.
    Own(&'a Path),
    /// Among those of others.
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

    /// What the other side hears of a job that somebody is at. A guest hears nothing of this host.
    pub(super) fn busy(&self, error: &TransferError) -> Reason {
        let who = match (self, error) {
            (Logs::Own(_), TransferError::Held(LogError::Held { holder, .. })) => holder.to_string(),
            _ => "another session".to_owned(),
        };
        Reason::new(Why::Busy, &format!("{who} is at this job; wait until it has ended, or end it"))
    }
}

/// Opens the log of a job that is sent here into `root`, if this side keeps logs and the job has a name.
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

/// Where a guest's job goes; one who does not come again leaves what has to be found.
fn target(shelf: Shelf<'_>, offer: &Offer, into: &[u8], object: ObjectSize) -> Option<Target> {
    let Shelf::Guest(_, guest) = shelf else { return None };
    let root = Path::new(&offer.root).canonicalize().ok()?;
    Some(Target { root, into: into.to_vec(), object, guest: Identity::of(guest) })
}

/// Opens the log of a job. Without one it is done all the same, and that is told; only while another process is at the job it is not.
pub(super) fn keeping(
    mut opening: Opening<'_>,
    store: &Store,
    watch: &Watch<'_>,
) -> Result<Option<Keeping>, TransferError> {
    // A receipt tells digests of all that arrived: what stands there is read again for them.
    if watch.receipt.is_some() {
        opening.recheck = Some(Recheck::All);
    }
    match Keeping::open(&opening, store, watch.report) {
        Ok(log) => Ok(Some(log)),
        Err(error @ LogError::Held { .. }) => Err(TransferError::Held(error)),
        Err(error) => {
            watch.report.note(&format!("{error}; this job can't be gone on with if it is cut off"));
            Ok(None)
        }
    }
}
