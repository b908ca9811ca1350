//! Other servers, which this server reaches by their tickets: connections and listings.

use crate::limits::PEER_LISTING_TIMEOUT;
use haul_net::{LaneControl as _, StreamControl, StreamLane};
use haul_proto::ListedEntry;
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread;
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::time::timeout;

/// Functions for copies to and from other servers, and for their listings.
#[derive(Clone)]
pub struct Peers {
    /// Connects to other servers.
    pub connect: ConnectPeer,
    /// Lists their directories.
    pub list: ListPeer,
}

/// Another server.
pub struct PeerConnection {
    /// Opens lanes to it.
    pub lanes: PeerLanes,
    /// True if the ticket permits reading there.
    pub may_read: bool,
    /// True if the ticket is valid for one session.
    pub is_one_time: bool,
}

/// Function that opens the lane of a number. The error is a message.
pub type PeerLanes = Box<dyn Fn(u32) -> Result<StreamLane, String> + Send + Sync>;

/// Function that takes the ticket of another server and returns a connection, which opens lanes
/// from any thread, also from one that is confined. The error is a message.
pub type ConnectPeer = Arc<dyn Fn(&str) -> Result<PeerConnection, String> + Send + Sync>;

/// Function that lists, on a thread of its own, which it may confine. The error is a message.
pub type ListPeer = Arc<dyn Fn(&PeerListing) -> Result<PeerPage, String> + Send + Sync>;

/// Request for a page of a directory of another server.
pub struct PeerListing {
    /// Path of the directory.
    pub path: Vec<u8>,
    /// Name behind which the page starts; may be empty.
    pub after: Vec<u8>,
    /// Maximum number of entries.
    pub max: usize,
    /// Opens the lane.
    pub lanes: PeerLanes,
}

/// A page of a directory of another server.
pub struct PeerPage {
    /// Entries, sorted by the bytes of their names.
    pub entries: Vec<ListedEntry>,
    /// True if more names follow.
    pub has_more: bool,
}

/// The lane of a listing, which the request opens and its end aborts.
enum Lane {
    Unopened,
    Open(StreamControl),
    Aborted,
}

/// Aborts the lane of a listing when its request ends.
struct AbortOnDrop(Arc<Mutex<Lane>>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        let mut lane = self.0.lock();
        if let Lane::Open(control) = std::mem::replace(&mut *lane, Lane::Aborted) {
            control.abort();
        }
    }
}

/// Lists a page of a directory of another server. Holds `permit` until the listing has ended, also
/// if the caller does not wait for it: its lane is aborted then. The error is a message.
pub(crate) async fn list(
    list: ListPeer,
    mut listing: PeerListing,
    permit: OwnedSemaphorePermit,
) -> Result<PeerPage, String> {
    let lane = Arc::new(Mutex::new(Lane::Unopened));
    let _abort = AbortOnDrop(Arc::clone(&lane));
    let connect = listing.lanes;
    listing.lanes = Box::new(move |number| {
        let opened = connect(number)?;
        let mut lane = lane.lock();
        if matches!(*lane, Lane::Aborted) {
            return Err("the client has left".to_owned());
        }
        *lane = Lane::Open(opened.control());
        Ok(opened)
    });
    let (sender, listed) = oneshot::channel();
    let work = move || {
        let _permit = permit;
        // The client may have left.
        let _ = sender.send(list(&listing));
    };
    let started = thread::Builder::new().name("haul-web-list".into()).spawn(work);
    started.map_err(|error| format!("cannot start a thread: {error}"))?;
    match timeout(PEER_LISTING_TIMEOUT, listed).await {
        Ok(Ok(listed)) => listed,
        Ok(Err(_)) => Err("internal error: the listing failed".to_owned()),
        Err(_) => Err("the other server did not list the directory in time".to_owned()),
    }
}
