//! Copies between two directories of the server, for a browser.

use crate::access::Session;
use crate::background::SendLines;
use crate::files::{self, FileError, RootThreads};
use crate::peers::PeerLanes;
use crate::query::PathText;
use haul_net::Gateway;
use haul_storage::Name;
use serde::Deserialize;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Request of a copy to another directory of the server, or to another server.
#[derive(Deserialize)]
pub(crate) struct CopyRequest {
    #[serde(default)]
    pub(crate) root: usize,
    /// Directory of the entries.
    pub(crate) path: PathText,
    /// Names of the entries.
    pub(crate) names: Vec<PathText>,
    #[serde(default)]
    pub(crate) to_root: usize,
    /// Directory for the copies, at the other server if there is a ticket.
    pub(crate) to: PathText,
    /// Ticket of another server.
    pub(crate) ticket: Option<String>,
}

/// Request of a copy from another server.
#[derive(Deserialize)]
pub(crate) struct FetchRequest {
    pub(crate) ticket: String,
    /// Paths at the other server.
    pub(crate) paths: Vec<PathText>,
    #[serde(default)]
    pub(crate) to_root: usize,
    pub(crate) to: PathText,
}

/// A copy that a browser requests.
pub struct ServerCopy {
    /// Directory of this server, only as a path (`O_PATH`). It is a descriptor because the job
    /// takes a path: `/proc/self/fd/N` leads to this directory whatever is renamed.
    pub directory: OwnedFd,
    /// Direction and entries.
    pub work: CopyWork,
    /// True if the copy may compare files with those that exist at the target.
    pub may_compare: bool,
    /// Opens lanes of the session at the peer: the server itself, or another one.
    pub connect: PeerLanes,
}

/// Direction of a copy, as seen from the directory.
pub enum CopyWork {
    /// From the directory.
    Send {
        /// Names in the directory.
        names: Vec<Name>,
        /// Directory of the peer.
        to: Vec<u8>,
    },
    /// Into the directory.
    Fetch {
        /// Paths of the peer.
        paths: Vec<Vec<u8>>,
    },
}

/// Function that copies, like [`Verify`](crate::Verify).
pub type CopyBetween = Arc<dyn Fn(&ServerCopy, SendLines<'_>) + Send + Sync>;

/// Opens the directories of a copy. Refuses copies of a directory into itself, and of entries to
/// their own place. Returns the directory of the entries.
pub(crate) async fn check(
    source: &RootThreads,
    path: Vec<u8>,
    names: Vec<Name>,
    sink: &RootThreads,
    to: Vec<u8>,
) -> Result<OwnedFd, FileError> {
    let target = sink.run(move |root| files::ancestors(root, &to)).await?;
    source.run(move |root| files::open_for_copy(root, &path, &names, &target)).await
}

/// Returns lanes of a new transfer session at a root.
pub(crate) fn lanes_to_root(
    gateway: Gateway,
    sink: &RootThreads,
    session: &Session,
    root: usize,
    peer: SocketAddr,
    number: u64,
) -> PeerLanes {
    let ticket = sink.root().ticket;
    let id = session.transfer(root, format!("copy {number}").as_bytes());
    Box::new(move |_| gateway.connect(ticket, id, peer).map_err(|verdict| verdict.to_string()))
}
