//! Responses: bodies, status codes and the headers that every response has.

use crate::files::OpenedFile;
use crate::lanes::{Piece, Use};
use crate::server::RequestGuard;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::timeout;

/// Bytes of a file that are read at once.
const READ_BYTES: usize = 256 << 10;

/// Blocks of a file that wait for the client.
const BLOCKS_AHEAD: usize = 2;

/// Time for which a client may take no block of a file.
const DOWNLOAD_STALL: Duration = Duration::from_secs(60);

/// Content security policy of pages: scripts, styles, connections and frames of this server only,
/// and no script within a page. No response of this server is shown in a frame: the page needs them
/// for addresses that its service worker answers with a download.
const PAGE_POLICY: &str = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self'; img-src 'self' blob:; \
     connect-src 'self'; frame-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// The same for everything else: a browser that shows it as a page loads and runs nothing.
const DATA_POLICY: &str =
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; sandbox";

/// Headers of every response.
const ALWAYS: [(HeaderName, &str); 6] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("cross-origin-embedder-policy"), "require-corp"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Body of a response. Its request counts as in progress until the body is dropped.
pub(crate) struct Answer {
    content: Content,
    _guard: Option<RequestGuard>,
    /// Part of a limit, until the body is dropped.
    _permit: Option<OwnedSemaphorePermit>,
}

enum Content {
    Whole(Bytes),
    File(FileBody),
    Stream(mpsc::Receiver<Bytes>),
}

/// Bytes of a file, which a task reads.
struct FileBody {
    blocks: mpsc::Receiver<io::Result<Bytes>>,
    /// Number of bytes that the connection has not taken yet.
    left: u64,
    on_end: OnEnd,
}

/// Gets the number of bytes that are left at the end of a download.
pub(crate) type OnEnd = Box<dyn Fn(u64) + Send + Sync>;

impl Drop for FileBody {
    fn drop(&mut self) {
        (self.on_end)(self.left);
    }
}

impl Answer {
    fn whole(bytes: impl Into<Bytes>) -> Answer {
        Answer { content: Content::Whole(bytes.into()), _guard: None, _permit: None }
    }

    /// Counts the request as in progress until this body is dropped.
    pub(crate) fn guarded(mut self, guard: RequestGuard) -> Answer {
        self._guard = Some(guard);
        self
    }

    /// Holds a permit, if there is one, until this body is dropped.
    pub(crate) fn holding(mut self, permit: Option<OwnedSemaphorePermit>) -> Answer {
        self._permit = permit;
        self
    }

    /// Returns the body with the bytes of `range`. A task reads them ahead of the client. If the
    /// file changes meanwhile, the body ends with an error before its last byte, so that the client
    /// does not take parts of two versions for a file. `permit` is held while the file is open.
    /// `on_end` gets the number of bytes that the connection did not take.
    pub(crate) fn of_file(
        opened: OpenedFile,
        range: Range<u64>,
        permit: OwnedSemaphorePermit,
        on_end: OnEnd,
    ) -> Answer {
        let (sender, blocks) = mpsc::channel(BLOCKS_AHEAD);
        let left = range.end - range.start;
        tokio::spawn(async move {
            let _permit = permit;
            let (opened, mut range) = (Arc::new(opened), range);
            while !range.is_empty() {
                let (opened, at) = (Arc::clone(&opened), range.start);
                let len = usize::try_from(range.end - at).unwrap_or(READ_BYTES).min(READ_BYTES);
                let is_last = at + len as u64 == range.end;
                let read = move || {
                    let mut block = vec![0; len];
                    opened.read_exact_at(at, &mut block)?;
                    if is_last {
                        opened.check()?;
                    }
                    Ok(Bytes::from(block))
                };
                let block = tokio::task::spawn_blocking(read)
                    .await
                    .unwrap_or_else(|error| Err(io::Error::other(error)));
                let has_failed = block.is_err();
                range.start += len as u64;
                // A client that takes nothing, or has left, ends the download.
                let sent = timeout(DOWNLOAD_STALL, sender.send(block)).await;
                if !matches!(sent, Ok(Ok(()))) || has_failed {
                    return;
                }
            }
        });
        Answer { content: Content::File(FileBody { blocks, left, on_end }), _guard: None, _permit: None }
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.content {
            Content::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Content::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Content::Stream(blocks) => blocks.poll_recv(context).map(|block| block.map(Frame::data).map(Ok)),
            Content::File(FileBody { left: 0, .. }) => Poll::Ready(None),
            Content::File(FileBody { blocks, left, .. }) => {
                let block = std::task::ready!(blocks.poll_recv(context));
                let block = block.unwrap_or_else(|| Err(io::Error::other("the download was given up")));
                if let Ok(bytes) = &block {
                    *left -= bytes.len() as u64;
                }
                Poll::Ready(Some(block.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.is_empty(),
            Content::File(file) => file.left == 0,
            Content::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Content::File(file) => SizeHint::with_exact(file.left),
            Content::Stream(_) => SizeHint::default(),
        }
    }
}

/// A response that is not finished: [`finish`] adds the headers of every response.
pub(crate) type Reply = Response<Answer>;

/// Returns a response without a body.
pub(crate) fn empty(status: StatusCode) -> Reply {
    let mut reply = Response::new(Answer::whole(Bytes::new()));
    *reply.status_mut() = status;
    reply
}

/// Returns a response with these bytes.
pub(crate) fn bytes(kind: &'static str, bytes: impl Into<Bytes>) -> Reply {
    let mut reply = Response::new(Answer::whole(bytes));
    reply.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    reply
}

/// Returns a response with the blocks that arrive from a channel.
pub(crate) fn stream(kind: &'static str, blocks: mpsc::Receiver<Bytes>) -> Reply {
    let mut reply = bytes(kind, Bytes::new());
    reply.body_mut().content = Content::Stream(blocks);
    reply
}

/// Returns a response with a piece of a lane.
pub(crate) fn piece(lane: Use, piece: Piece) -> Reply {
    const KIND: &str = "application/octet-stream";
    if piece.is_open { stream(KIND, lane.blocks(piece)) } else { bytes(KIND, piece.blocks.concat()) }
}

/// Returns a response with a JSON text.
pub(crate) fn json(status: StatusCode, value: &impl Serialize) -> Reply {
    // Values of this crate have text keys only, so they have a JSON text.
    let text = serde_json::to_vec(value).unwrap_or_default();
    let mut reply = bytes("application/json", text);
    *reply.status_mut() = status;
    reply
}

/// Returns a response with the reason for an error.
pub(crate) fn error(status: StatusCode, why: &dyn std::fmt::Display) -> Reply {
    #[derive(Serialize)]
    struct Error {
        error: String,
    }
    json(status, &Error { error: why.to_string() })
}

/// Sets a header.
pub(crate) fn insert(reply: &mut Reply, name: HeaderName, value: &str) {
    // All values here are ASCII.
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
}

/// Adds the headers of every response.
pub(crate) fn finish(reply: &mut Reply, is_page: bool) {
    let headers = reply.headers_mut();
    for (name, value) in ALWAYS {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let policy = if is_page { PAGE_POLICY } else { DATA_POLICY };
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(policy));
    if !headers.contains_key(header::CACHE_CONTROL) {
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    }
}
