//! Copies between two directories of the server, for a browser.

use crate::access::Session;
use crate::answer::Reply;
use crate::background;
use crate::files::{self, FileError, RootThreads};
use crate::query::PathText;
use haul_net::{Gateway, StreamLane, Verdict};
use serde::Deserialize;
use std::ffi::CString;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;

/// Request of a copy.
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
    /// Directory for the copies.
    pub(crate) to: PathText,
}

/// A copy that a browser requests.
pub struct ServerCopy {
    /// Directory of the entries. It is a path only (`O_PATH`).
    pub directory: OwnedFd,
    /// Names of the entries in it.
    pub names: Vec<CString>,
    /// Directory for the copies, beneath the root of the session that `connect` reaches.
    pub to: Vec<u8>,
    /// True if the copy may compare files with those that exist there.
    pub may_compare: bool,
    /// Opens a lane of the session that receives the copies.
    pub connect: Box<dyn Fn() -> Result<StreamLane, Verdict> + Send + Sync>,
}

/// Function that copies, like [`Verify`](crate::Verify).
pub type CopyBetween = Arc<dyn Fn(&ServerCopy, &mut (dyn FnMut(Vec<u8>) -> bool + Send)) + Send + Sync>;

/// Opens the directories of a copy. Refuses copies of a directory into itself, and of entries to
/// their own place. Returns the directory of the entries.
pub(crate) async fn check(
    (source, path): (&RootThreads, Vec<u8>),
    names: Vec<CString>,
    (sink, to): (&RootThreads, Vec<u8>),
) -> Result<OwnedFd, FileError> {
    let target = sink.run(move |root| files::ancestors(root, &to)).await?;
    source.run(move |root| files::open_for_copy(root, &path, &names, &target)).await
}

/// Starts a copy, and returns the response with its progress. `permit` is held until it ends.
pub(crate) fn start(
    copy_between: CopyBetween,
    source: &RootThreads,
    copy: ServerCopy,
    session: Arc<Session>,
    permit: OwnedSemaphorePermit,
) -> Reply {
    let work = move |send: &mut (dyn FnMut(Vec<u8>) -> bool + Send)| copy_between(&copy, send);
    background::start(source, "haul-web-copy", session, permit, work)
}

/// Returns a lane opener for a new transfer session at a root.
pub(crate) fn connector(
    gateway: Gateway,
    sink: &RootThreads,
    (session, root): (&Session, usize),
    peer: SocketAddr,
    number: u64,
) -> Box<dyn Fn() -> Result<StreamLane, Verdict> + Send + Sync> {
    let ticket = sink.root().ticket;
    let id = session.transfer(root, format!("copy {number}").as_bytes());
    Box::new(move || gateway.connect(ticket, id, peer))
}
