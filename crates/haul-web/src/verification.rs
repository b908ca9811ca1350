//! Verification of a directory by a waybill, for a browser.

use crate::access::Session;
use crate::answer::{self, Reply};
use crate::files::RootThreads;
use crate::limits::{VERIFY_LINES_AHEAD, WAYBILL_BYTES_MAX, WebLimits};
use crate::query::{self, BadRequest};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::Body;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

/// Type of the responses: one JSON value a line.
const LINES: &str = "application/x-ndjson";

/// Time for which a client may take no line.
const STALL: Duration = Duration::from_secs(60);

/// A verification that a browser requests.
#[derive(Debug)]
pub struct Verification {
    /// The waybill, a regular file.
    pub waybill: OwnedFd,
    /// Directory that its names are relative to. It is a path only (`O_PATH`).
    pub directory: OwnedFd,
}

/// Function that verifies and passes on lines of JSON, several at a time and at least four times a
/// second. It runs on a thread of its own, and stops when its second argument returns false.
pub type Verify = Arc<dyn Fn(&Verification, &mut (dyn FnMut(Vec<u8>) -> bool + Send)) + Send + Sync>;

/// Stores the waybill that a browser sends.
pub(crate) async fn receive<B: Body<Data = Bytes>>(
    body: B,
    limits: &WebLimits,
) -> Result<OwnedFd, BadRequest> {
    let failed = |error: io::Error| BadRequest::Store(error.to_string());
    let opened = memfd_create("waybill", MemfdFlags::CLOEXEC).map_err(io::Error::from);
    let mut file = File::from(opened.map_err(failed)?);
    let take = |block: &[u8]| file.write_all(block).map_err(failed);
    query::collect(body, WAYBILL_BYTES_MAX, limits.waybill, take).await?;
    Ok(file.into())
}

/// Starts a verification, and returns the response with its lines. `permit` is held until it ends.
pub(crate) fn start(
    verify: Verify,
    served: &RootThreads,
    verification: Verification,
    session: Arc<Session>,
    permit: OwnedSemaphorePermit,
) -> Reply {
    let (sender, lines) = mpsc::channel(VERIFY_LINES_AHEAD);
    let confine = Arc::clone(&served.root().confine);
    let run = move || {
        let _permit = permit;
        let mut send = |lines: Vec<u8>| sender.blocking_send(Bytes::from(lines)).is_ok();
        match confine() {
            Ok(()) => verify(&verification, &mut send),
            Err(message) => {
                let error = serde_json::json!({ "event": "error", "message": message });
                send(format!("{error}\n").into_bytes());
            }
        }
    };
    match thread::Builder::new().name("haul-web-verify".into()).spawn(run) {
        Ok(_) => answer::stream(LINES, pass_on(lines, session)),
        Err(error) => {
            let why = format!("cannot start a thread: {error}");
            answer::error(StatusCode::SERVICE_UNAVAILABLE, &why)
        }
    }
}

/// Passes lines on until the session ends, or the client takes nothing or has left. The next line
/// then finds no receiver.
fn pass_on(mut lines: mpsc::Receiver<Bytes>, session: Arc<Session>) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        while let Some(block) = lines.recv().await {
            let is_sent = matches!(timeout(STALL, sender.send(block)).await, Ok(Ok(())));
            if !is_sent || session.lanes.has_ended() {
                return;
            }
        }
    });
    receiver
}
