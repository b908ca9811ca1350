//! What a sink wants of the other side: told in CONNECT, or in OPERANDS behind ACCEPT where that has no room for it.

use super::frames::{Frames, Outbox};
use super::hello::{Offer, TransferError, read};
use super::source::Operand;
use haul_model::{PathFault, RelPath};
use haul_net::LaneError;
use haul_proto::{Bye, Message, OperandList, Operands, Reason, Summary, Why, check_list};
use haul_sys::Follow;
use haul_sys::dir::{CWD, open_place_at};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// What a job names at the other side.
pub(super) struct Wanted {
    paths: Vec<Box<[u8]>>,
    /// Whether they come behind ACCEPT.
    is_long: bool,
}

impl Wanted {
    /// These paths.
    ///
    /// # Errors
    /// [`TransferError::Denied`]: more than a job may name, or one among many that no other side would take.
    pub(super) fn new(paths: &[Vec<u8>]) -> Result<Wanted, TransferError> {
        let paths: Vec<Box<[u8]>> = paths.iter().map(|path| path.as_slice().into()).collect();
        let is_long = !Operands::fit_connect(&paths);
        if is_long {
            let bytes = paths.iter().map(|path| path.len()).sum();
            check_list(paths.len(), bytes).map_err(TransferError::Denied)?;
            // What can't be refused any more when it is heard.
            paths.iter().try_for_each(|path| relative(path).map(drop)).map_err(TransferError::Denied)?;
        }
        Ok(Wanted { paths, is_long })
    }

    /// What a CONNECT names of it.
    pub(super) fn in_connect(&self) -> Vec<Box<[u8]>> {
        if self.is_long { Vec::new() } else { self.paths.clone() }
    }

    /// Whether the rest is told behind ACCEPT.
    pub(super) fn is_long(&self) -> bool {
        self.is_long
    }

    /// How many paths there are.
    pub(super) fn count(&self) -> usize {
        self.paths.len()
    }

    /// Tells what CONNECT had no room for.
    ///
    /// # Errors
    /// The lane's.
    pub(super) fn tell(&self, outbox: &mut Outbox) -> Result<(), LaneError> {
        if !self.is_long {
            return Ok(());
        }
        for operands in Operands::split(&self.paths) {
            outbox.push(&Message::Operands(Box::new(operands)))?;
        }
        outbox.flush()
    }
}

/// The root that the paths of a peer lie beneath.
///
/// # Errors
/// A reason for the peer.
pub(super) fn root(offer: &Offer) -> Result<Arc<OwnedFd>, Reason> {
    open_place_at(CWD, offer.root.as_os_str(), Follow::Yes).map(Arc::new).map_err(cannot_open)
}

/// What a CONNECT names. A path that leads to no directory ends the session before it begins.
///
/// # Errors
/// A reason for the peer.
pub(super) fn named(root: &Arc<OwnedFd>, paths: &[Box<[u8]>]) -> Result<Vec<Operand>, Reason> {
    if paths.is_empty() {
        return Err(Reason::new(Why::Name, "no path was asked for"));
    }
    let operands = paths.iter().map(|path| operand(root, path)).collect::<Result<Vec<_>, _>>()?;
    operands.iter().try_for_each(|operand| operand.check().map_err(cannot_open))?;
    Ok(operands)
}

/// Hears what CONNECT had no room for. What is not there fails by its name, and the others come.
///
/// # Errors
/// What came is no such list: the peer was told why.
pub(super) fn heard(
    root: &Arc<OwnedFd>,
    frames: &mut Frames,
    outbox: &mut Outbox,
) -> Result<Vec<Operand>, TransferError> {
    let mut list = OperandList::default();
    let refused = loop {
        let operands = match read(frames)? {
            Message::Operands(operands) => *operands,
            other => return Err(TransferError::NotUnderstood(format!("{} among OPERANDS", other.name()))),
        };
        match list.take(operands) {
            Ok(false) => {}
            Ok(true) => match named_or_not(root, list) {
                Ok(operands) => return Ok(operands),
                Err(reason) => break reason,
            },
            Err(reason) => break reason,
        }
    };
    let bye = Bye { reason: Some(refused.clone()), summary: Summary::default(), times: None };
    // Whether it hears that or not, it is refused.
    let _ = outbox.push(&Message::Bye(Box::new(bye))).and_then(|()| outbox.flush());
    Err(TransferError::Denied(refused))
}

fn named_or_not(root: &Arc<OwnedFd>, list: OperandList) -> Result<Vec<Operand>, Reason> {
    let paths = list.into_paths();
    if paths.is_empty() {
        return Err(Reason::new(Why::Name, "no path was asked for"));
    }
    // Each makes room for the next: a list may be long.
    paths.into_iter().map(|path| operand(root, &path)).collect()
}

fn operand(root: &Arc<OwnedFd>, path: &[u8]) -> Result<Operand, Reason> {
    relative(path).map(|clean| Operand::beneath(root, &clean, path.ends_with(b"/")))
}

/// A peer's path without what means nothing in it; empty for the root.
///
/// # Errors
/// A reason for the peer.
pub(super) fn relative(path: &[u8]) -> Result<Vec<u8>, Reason> {
    match RelPath::clean(path) {
        Ok(path) => Ok(path.as_bytes().to_vec()),
        Err(PathFault::Empty) => Ok(Vec::new()),
        Err(fault) => Err(Reason::new(Why::Name, &fault.to_string())),
    }
}

fn cannot_open(error: io::Error) -> Reason {
    super::reason::reason("cannot open", &error)
}
