//! Lanes of browsers: streams of bytes over HTTP requests, or over WebTransport.
//!
//! One end of a pair of UNIX sockets is a lane of the session code, as if it were a connection that
//! was admitted. Requests pump the other end: `PUT` writes its body, `GET` takes the bytes that
//! were read. Requests have numbers, so that several can be in flight, and small ones can be
//! repeated after an error of the network. A [`StreamLane`] carries the bytes of a stream instead.

mod download;
mod stream;
mod upload;

pub(crate) use download::Piece;
pub(crate) use stream::StreamLane;

use crate::access::{NoRandomness, random};
use crate::certificate::hex;
use crate::limits::WebLimits;
use download::Download;
use parking_lot::{Mutex, MutexGuard};
use rustix::net::{Shutdown, shutdown};
use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;
use tokio::net::UnixStream;
use tokio::sync::Notify;
use upload::Upload;

/// Reason for refusing a request of a lane.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LaneRefusal {
    /// The lane has ended.
    #[error("the lane has ended; open another one and resume the job")]
    Gone,
    /// The number is too far ahead of the requests that were answered.
    #[error("the number is more than {0} ahead of the next one; wait for earlier requests")]
    TooFarAhead(u64),
    /// The piece is no longer kept.
    #[error("the piece is no longer kept: a later one was requested, so it had arrived")]
    NotKept,
    /// The stream ends before this number.
    #[error("the stream ends before this number")]
    PastTheEnd,
    /// The body differs from the body of an earlier request with the same number.
    #[error("the body is shorter than an earlier one with the same number; the lane was aborted")]
    Differs,
    /// Another request with the same number took the place of this one.
    #[error("another request with the same number has arrived")]
    Superseded,
    /// The body is too large.
    #[error("the body is larger than {0} bytes; send several requests")]
    TooLarge(u64),
    /// The body arrived too slowly.
    #[error("no byte of the body arrived in time; send the request again")]
    Stalled,
    /// The body could not be read.
    #[error("the body is incomplete; send the request again")]
    Incomplete,
    /// Earlier requests did not arrive in time, or the receiver of the bytes is slow.
    #[error("the bytes before this request did not arrive in time; send the request again")]
    Waited,
}

/// Reason for refusing another lane.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenRefusal {
    /// The session has too many lanes.
    #[error("the session has {0} lanes already; end one of them")]
    TooMany(usize),
    /// The system has no resources for a lane.
    #[error("cannot open a lane: {0}")]
    Failed(String),
}

/// Lanes of one session.
pub(crate) struct Lanes {
    limits: WebLimits,
    open: Mutex<HashMap<String, OpenLane>>,
    /// True once the session has ended; set while `open` is locked.
    has_ended: AtomicBool,
}

/// A lane of either kind.
enum OpenLane {
    Http(Arc<Lane>),
    Stream(Arc<StreamLane>),
}

/// A lane that was opened.
pub(crate) struct Opened {
    pub(crate) id: String,
    /// Token for the connection of a lane over WebTransport.
    pub(crate) token: Option<String>,
    /// End of the socket pair for the session code.
    pub(crate) socket: OwnedFd,
}

/// One lane over HTTP requests.
pub(crate) struct Lane {
    limits: WebLimits,
    socket: UnixStream,
    upload: Mutex<Upload>,
    download: Mutex<Download>,
    /// Wakes requests that wait for their turn or for the state of an upload.
    upload_changed: Notify,
    /// Wakes requests that wait for a piece, and the task that reads.
    download_changed: Notify,
    aborted: AtomicBool,
    in_progress: AtomicUsize,
    last: Mutex<Instant>,
}

/// Marks a request of a lane as in progress.
pub(crate) struct Use {
    lane: Arc<Lane>,
}

impl Lanes {
    pub(crate) fn new(limits: WebLimits) -> Lanes {
        Lanes { limits, open: Mutex::default(), has_ended: AtomicBool::new(false) }
    }

    /// Opens a lane over HTTP requests. Must be called within the runtime.
    pub(crate) fn open(&self, now: Instant) -> Result<Opened, OpenRefusal> {
        self.insert(|socket| {
            let lane = Arc::new(Lane {
                limits: self.limits,
                socket,
                upload: Mutex::default(),
                download: Mutex::default(),
                upload_changed: Notify::new(),
                download_changed: Notify::new(),
                aborted: AtomicBool::new(false),
                in_progress: AtomicUsize::new(0),
                last: Mutex::new(now),
            });
            tokio::spawn(Arc::clone(&lane).read_all());
            Ok((OpenLane::Http(lane), None))
        })
    }

    /// Opens a lane over WebTransport. Must be called within the runtime.
    pub(crate) fn open_stream(&self, now: Instant) -> Result<Opened, OpenRefusal> {
        self.insert(|socket| {
            let (lane, token) = StreamLane::new(socket, now + self.limits.lane_token)?;
            Ok((OpenLane::Stream(Arc::new(lane)), Some(token)))
        })
    }

    fn insert(
        &self,
        make: impl FnOnce(UnixStream) -> Result<(OpenLane, Option<String>), NoRandomness>,
    ) -> Result<Opened, OpenRefusal> {
        let failed = |error: &dyn std::fmt::Display| OpenRefusal::Failed(error.to_string());
        let mut open = self.lock();
        if self.has_ended() {
            return Err(OpenRefusal::Failed("the session has ended".to_owned()));
        }
        if open.len() >= self.limits.lanes {
            return Err(OpenRefusal::TooMany(self.limits.lanes));
        }
        let id = hex(&random::<16>().map_err(|error| failed(&error))?);
        let (ours, theirs) = StdUnixStream::pair().map_err(|error| failed(&error))?;
        ours.set_nonblocking(true).map_err(|error| failed(&error))?;
        let socket = UnixStream::from_std(ours).map_err(|error| failed(&error))?;
        let (lane, token) = make(socket).map_err(|error| failed(&error))?;
        open.insert(id.clone(), lane);
        Ok(Opened { id, token, socket: theirs.into() })
    }

    /// Returns the lane over WebTransport with this ID and token; the token is used then. The
    /// first result is `None` if there is no such lane, the second if the token is wrong.
    pub(crate) fn connect(&self, id: &str, token: &str, now: Instant) -> Option<Option<Arc<StreamLane>>> {
        match self.lock().get(id) {
            Some(OpenLane::Stream(lane)) => Some(lane.connect(token, now).then(|| Arc::clone(lane))),
            _ => None,
        }
    }

    /// Returns a lane over HTTP for a request.
    pub(crate) fn lane(&self, id: &str) -> Option<Use> {
        let open = self.lock();
        let Some(OpenLane::Http(lane)) = open.get(id) else { return None };
        lane.in_progress.fetch_add(1, Ordering::AcqRel);
        Some(Use { lane: Arc::clone(lane) })
    }

    /// Returns the number of lanes over HTTP and over WebTransport.
    pub(crate) fn counts(&self) -> [usize; 2] {
        let open = self.lock();
        let http = open.values().filter(|lane| matches!(lane, OpenLane::Http(_))).count();
        [http, open.len() - http]
    }

    /// Aborts a lane. Returns false if it is unknown.
    pub(crate) fn abort(&self, id: &str) -> bool {
        let lane = self.lock().remove(id);
        lane.inspect(|lane| lane.abort()).is_some()
    }

    /// Aborts a lane over WebTransport whose connection ends.
    pub(crate) fn end(&self, lane: &Arc<StreamLane>) {
        self.lock().retain(|_, open| !matches!(open, OpenLane::Stream(open) if Arc::ptr_eq(open, lane)));
        lane.abort();
    }

    /// Aborts all lanes of a session that ends. No more are opened.
    pub(crate) fn abort_all(&self) {
        let mut open = self.lock();
        self.has_ended.store(true, Ordering::Release);
        let lanes: Vec<_> = open.drain().map(|(_, lane)| lane).collect();
        drop(open);
        lanes.iter().for_each(|lane| lane.abort());
    }

    /// Returns true if the session has ended, whose requests may still be in progress.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Aborts the lanes without a request for too long, and those to which no browser has connected
    /// in time.
    pub(crate) fn abort_idle(&self, now: Instant) {
        let idle: Vec<_> =
            self.lock().extract_if(|_, lane| lane.is_idle(now)).map(|(_, lane)| lane).collect();
        idle.iter().for_each(|lane| lane.abort());
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, OpenLane>> {
        self.open.lock()
    }
}

impl OpenLane {
    fn is_idle(&self, now: Instant) -> bool {
        match self {
            Self::Http(lane) => lane.is_idle(now),
            Self::Stream(lane) => lane.is_idle(now),
        }
    }

    fn abort(&self) {
        match self {
            Self::Http(lane) => lane.abort(),
            Self::Stream(lane) => lane.abort(),
        }
    }
}

impl Lane {
    fn is_idle(&self, now: Instant) -> bool {
        let last = *self.last.lock();
        self.in_progress.load(Ordering::Acquire) == 0
            && now.saturating_duration_since(last) >= self.limits.lane_idle
    }

    /// Ends both directions. The session code detects a lost connection, unless it has ended its
    /// direction and this one was finished.
    fn abort(&self) {
        self.aborted.store(true, Ordering::Release);
        // An error is harmless: the socket has ended already.
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.upload_changed.notify_waiters();
        self.download_changed.notify_waiters();
    }

    fn unless_aborted(&self) -> Result<(), LaneRefusal> {
        if self.aborted.load(Ordering::Acquire) { Err(LaneRefusal::Gone) } else { Ok(()) }
    }
}

impl std::ops::Deref for Use {
    type Target = Lane;

    fn deref(&self) -> &Lane {
        &self.lane
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        *self.lane.last.lock() = Instant::now();
        self.lane.in_progress.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests;
