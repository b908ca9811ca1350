//! Work that outlives the head of its response: its results are lines of JSON in the body.

use crate::access::Session;
use crate::answer::{self, Reply};
use crate::files::RootThreads;
use crate::limits::LINES_AHEAD;
use bytes::Bytes;
use hyper::StatusCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

/// Type of the responses: one JSON value a line.
const LINES: &str = "application/x-ndjson";

/// Time for which a client may take no line.
const STALL: Duration = Duration::from_secs(60);

/// Takes lines of JSON, several at a time. Returns false if the client takes no more.
pub type SendLines<'a> = &'a mut (dyn FnMut(Vec<u8>) -> bool + Send);

/// Runs `work` on a thread that is confined to a root, and returns the response with its lines.
/// `permit` is held until the work ends.
pub(crate) fn start(
    served: &RootThreads,
    name: &str,
    session: Arc<Session>,
    permit: OwnedSemaphorePermit,
    work: impl FnOnce(SendLines<'_>) + Send + 'static,
) -> Reply {
    let (sender, lines) = mpsc::channel(LINES_AHEAD);
    let confine = Arc::clone(&served.root().confine);
    let run = move || {
        let _permit = permit;
        let mut send = |lines: Vec<u8>| sender.blocking_send(Bytes::from(lines)).is_ok();
        match confine() {
            Ok(()) => work(&mut send),
            Err(message) => {
                let error = serde_json::json!({ "event": "error", "message": message });
                send(format!("{error}\n").into_bytes());
            }
        }
    };
    match thread::Builder::new().name(name.into()).spawn(run) {
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
            // The browser takes the lines, so it is not idle.
            session.extend(Instant::now());
        }
    });
    receiver
}
