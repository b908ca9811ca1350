//! Paths that a sink requests from the source: in CONNECT, or in OPERANDS after ACCEPT if CONNECT
//! has no space for them.

use super::error::TransferError;
use super::jobs::{Offer, read};
use super::source::Operand;
use haul_model::{PathError, RelPath};
use haul_net::{FrameReader, FrameWriter, LaneError};
use haul_proto::{Bye, Message, OperandList, Operands, Reason, Summary, Why, check_list};
use haul_storage::{Dir, Follow};
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Paths of a job at the peer.
pub(super) struct RequestedPaths {
    paths: Vec<Box<[u8]>>,
    /// True if they are sent after ACCEPT.
    is_long: bool,
}

impl RequestedPaths {
    /// Creates the list of these paths.
    ///
    /// # Errors
    /// Returns [`TransferError::Denied`] if there are more paths than a job may name, or if a path
    /// in a long list is invalid for any peer.
    pub(super) fn new(paths: &[Vec<u8>]) -> Result<RequestedPaths, TransferError> {
        let paths: Vec<Box<[u8]>> = paths.iter().map(|path| path.as_slice().into()).collect();
        let is_long = !Operands::fit_connect(&paths);
        if is_long {
            let bytes = paths.iter().map(|path| path.len()).sum();
            check_list(paths.len(), bytes).map_err(TransferError::Denied)?;
            // Check the paths now: the peer receives a long list only after it has accepted the
            // job.
            paths.iter().try_for_each(|path| relative(path).map(drop)).map_err(TransferError::Denied)?;
        }
        Ok(RequestedPaths { paths, is_long })
    }

    /// Returns the paths for CONNECT.
    pub(super) fn in_connect(&self) -> Vec<Box<[u8]>> {
        if self.is_long { Vec::new() } else { self.paths.clone() }
    }

    /// Returns true if the paths are sent after ACCEPT.
    pub(super) fn is_long(&self) -> bool {
        self.is_long
    }

    /// Returns the number of paths.
    pub(super) fn count(&self) -> usize {
        self.paths.len()
    }

    /// Sends the paths for which CONNECT has no space.
    ///
    /// # Errors
    /// Returns the error of the lane.
    pub(super) fn send(&self, outbox: &mut dyn FrameWriter) -> Result<(), LaneError> {
        if !self.is_long {
            return Ok(());
        }
        for operands in Operands::split(&self.paths) {
            outbox.push(&Message::Operands(Box::new(operands)))?;
        }
        outbox.flush()
    }
}

/// Opens the root for the paths of a peer.
///
/// # Errors
/// Returns a reason for the peer.
pub(super) fn root(offer: &Offer) -> Result<Arc<dyn Dir>, Reason> {
    offer.storage.open(Path::new(&offer.root), Follow::Yes).map_err(cannot_open)
}

/// Returns the operands that a CONNECT names. A path whose directory does not exist ends the
/// session before it starts.
///
/// # Errors
/// Returns a reason for the peer.
pub(super) fn named(root: &Arc<dyn Dir>, paths: &[Box<[u8]>]) -> Result<Vec<Operand>, Reason> {
    if paths.is_empty() {
        return Err(Reason::new(Why::Name, "no path requested"));
    }
    let operands = paths.iter().map(|path| operand(root, path)).collect::<Result<Vec<_>, _>>()?;
    operands.iter().try_for_each(|operand| operand.check().map_err(cannot_open))?;
    Ok(operands)
}

/// Receives the paths for which CONNECT has no space. A path that does not exist fails separately,
/// and the others are sent.
///
/// # Errors
/// Returns an error if the received list is invalid. The reason was sent to the peer.
pub(super) fn receive_operands(
    root: &Arc<dyn Dir>,
    frames: &mut dyn FrameReader,
    outbox: &mut dyn FrameWriter,
) -> Result<Vec<Operand>, TransferError> {
    let mut list = OperandList::default();
    let refused = loop {
        let operands = match read(frames)? {
            Message::Operands(operands) => *operands,
            other => return Err(TransferError::NotUnderstood(format!("{} among OPERANDS", other.name()))),
        };
        match list.take(operands) {
            Ok(false) => {}
            Ok(true) => match resolve_or_reject(root, list) {
                Ok(operands) => return Ok(operands),
                Err(reason) => break reason,
            },
            Err(reason) => break reason,
        }
    };
    let bye = Bye { reason: Some(refused.clone()), summary: Summary::default(), times: None };
    // Ignore an error: the job is refused in any case.
    let _ = outbox.push(&Message::Bye(Box::new(bye))).and_then(|()| outbox.flush());
    Err(TransferError::Denied(refused))
}

fn resolve_or_reject(root: &Arc<dyn Dir>, list: OperandList) -> Result<Vec<Operand>, Reason> {
    let paths = list.into_paths();
    if paths.is_empty() {
        return Err(Reason::new(Why::Name, "no path requested"));
    }
    // Free each path before the next one is converted, because a list may be long.
    paths.into_iter().map(|path| operand(root, &path)).collect()
}

fn operand(root: &Arc<dyn Dir>, path: &[u8]) -> Result<Operand, Reason> {
    relative(path).map(|clean| Operand::beneath(root, &clean, path.ends_with(b"/")))
}

/// Normalizes a path of a peer; empty for the root.
///
/// # Errors
/// Returns a reason for the peer.
pub(super) fn relative(path: &[u8]) -> Result<Vec<u8>, Reason> {
    match RelPath::clean(path) {
        Ok(path) => Ok(path.as_bytes().to_vec()),
        Err(PathError::Empty) => Ok(Vec::new()),
        Err(fault) => Err(Reason::new(Why::Name, &fault.to_string())),
    }
}

fn cannot_open(error: io::Error) -> Reason {
    super::reason::reason("cannot open", &error)
}
