//! Requests: which part of the server handles each, and with which rights.

#![allow(clippy::result_large_err, reason = "a refusal is the response itself, once for each request")]

mod listing;
mod work;

use crate::access::{CodeError, Session};
use crate::addresses::FileAddress;
use crate::answer::{self, Reply};
use crate::attachment;
use crate::checks;
use crate::event::WebEvent;
use crate::files::RootThreads;
use crate::files::{self, FileError};
use crate::lanes::{LaneRefusal, OpenRefusal, Opened};
use crate::limits::{JSON_BYTES_MAX, NAME_QUOTA_BYTES, UPLOAD_BYTES_MAX};
use crate::metrics;
use crate::page;
use crate::query::{self, BadRequest, PathText};
use crate::server::{RequestGuard, Shared};
use haul_net::Verdict;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Header of the last piece of a lane in either direction.
const END: HeaderName = HeaderName::from_static("x-haul-end");

/// Handles one request. Failures are responses too.
pub(crate) async fn handle(
    shared: &Arc<Shared>,
    peer: SocketAddr,
    request: Request<Incoming>,
    guard: &RequestGuard,
) -> Reply {
    let is_page = page::file(request.uri().path(), request.headers()).is_some();
    let mut reply = match checked(shared, peer, request, guard).await {
        Ok(reply) | Err(reply) => reply,
    };
    answer::finish(&mut reply, is_page);
    reply
}

/// Checks where the request comes from, and passes it on.
async fn checked(
    shared: &Arc<Shared>,
    peer: SocketAddr,
    request: Request<Incoming>,
    guard: &RequestGuard,
) -> Result<Reply, Reply> {
    let refused = |why| {
        move |reply| {
            shared.events.report_limited(&WebEvent::Refused { peer, why }, Instant::now());
            reply
        }
    };
    let (method, headers) = (request.method().clone(), request.headers());
    let host = shared.hosts.of_request(request.uri(), headers).map_err(refused("another host name"))?;
    let path = request.uri().path().to_owned();
    if checks::is_safe(&method)
        && let Some(reply) = page::file(&path, headers)
    {
        let turn = guard.turn().await;
        return Ok(reply.map(|answer| answer.holding(turn)));
    }
    checks::origin(&method, headers, host).map_err(refused("another or no Origin"))?;
    if (&method, path.as_str()) == (&Method::GET, "/metrics") && shared.metrics.permits(headers) {
        return counters(shared).await;
    }
    if (&method, path.as_str()) == (&Method::POST, "/session") {
        let _turn = guard.turn().await;
        return sign_in(shared, peer, request).await;
    }
    if checks::is_safe(&method) && path == "/file" {
        let query = request.uri().query();
        if let Some(token) = query::value(query, "token").map_err(bad)? {
            let (session, address) = checks::file(&token, &shared.access)?;
            let call = Call::new(shared, session, peer, guard)?;
            return call.file(method, Wanted::At(address), headers).await;
        }
    }
    let session = checks::session(headers, &shared.access)?;
    let call = Call::new(shared, session, peer, guard)?;
    match (method, path.as_str()) {
        (Method::GET, "/session") => Ok(call.session(None)),
        (Method::DELETE, "/session") => Ok(call.sign_out()),
        (Method::GET, "/metrics") => counters(shared).await,
        (Method::GET, "/jobs") => call.jobs().await,
        (Method::POST, "/code") => call.new_code(),
        (Method::GET, "/tree") => call.tree(request.uri().query()).await,
        (Method::POST, "/tree/folder") => call.create_folder(request.into_body()).await,
        (Method::POST, "/tree/move") => call.rename(request.into_body()).await,
        (Method::POST, "/tree/delete") => call.delete(request.into_body()).await,
        (method @ (Method::GET | Method::HEAD), "/file") => {
            let wanted = Wanted::in_query(request.uri().query()).map_err(bad)?;
            call.file(method, wanted, request.headers()).await
        }
        (Method::POST, "/file") => call.file_address(request.into_body()).await,
        (Method::POST, "/verify") => call.verify(request).await,
        (Method::POST, "/peer/tree") => call.peer_tree(request.into_body()).await,
        (Method::POST, "/copy") => call.copy(request.into_body()).await,
        (Method::POST, "/fetch") => call.fetch(request.into_body()).await,
        (Method::POST, "/lane") => call.open_lane(request.into_body()).await,
        (method, path) => match path.strip_prefix("/lane/") {
            Some(rest) => call.lane(&method, rest, request).await,
            None => Err(answer::error(StatusCode::NOT_FOUND, &"there is nothing at this address")),
        },
    }
}

/// Returns the counters. Those of the storage can block, as on a network file system without its
/// server.
async fn counters(shared: &Arc<Shared>) -> Result<Reply, Reply> {
    let shared = Arc::clone(shared);
    let text = tokio::task::spawn_blocking(move || shared.metrics.text(&shared)).await;
    let text = text.map_err(|_| internal(&"cannot read the counters"))?;
    Ok(answer::bytes(metrics::CONTENT_TYPE, text))
}

async fn sign_in(shared: &Arc<Shared>, peer: SocketAddr, request: Request<Incoming>) -> Result<Reply, Reply> {
    #[derive(Deserialize)]
    struct Code {
        code: String,
    }
    let Code { code } =
        query::json(request.into_body(), JSON_BYTES_MAX, shared.limits.request).await.map_err(bad)?;
    let signed_in =
        shared.access.sign_in(&code, peer.ip(), Instant::now()).map_err(|error| internal(&error))?;
    match signed_in {
        Ok((session, token)) => {
            shared.events.report(&WebEvent::SignedIn { session: session.number, peer });
            Ok(Call { shared, session, peer }.session(Some(&token)))
        }
        Err(CodeError::Wrong) => {
            shared.events.report_limited(&WebEvent::WrongCode { peer }, Instant::now());
            tokio::time::sleep(shared.limits.wrong_delay).await;
            let why = "the code is wrong, used or expired; use the newest link";
            Err(answer::error(StatusCode::FORBIDDEN, &why))
        }
        Err(CodeError::TooManyWrong) => {
            shared.events.report_limited(&WebEvent::WrongCode { peer }, Instant::now());
            let why = "too many wrong codes from this address; try again in a minute";
            Err(answer::error(StatusCode::TOO_MANY_REQUESTS, &why))
        }
        Err(CodeError::Full) => {
            let why =
                "the server has reached its limit of web sessions; sign out elsewhere, or try again later";
            Err(answer::error(StatusCode::SERVICE_UNAVAILABLE, &why))
        }
    }
}

/// A request of a signed-in browser.
struct Call<'a> {
    shared: &'a Arc<Shared>,
    session: Arc<Session>,
    peer: SocketAddr,
}

/// Right that a request needs at a root.
#[derive(Clone, Copy)]
enum Right {
    Read,
    Write,
    /// Renaming and deleting need both, because they tell which names exist.
    Both,
}

/// File of a download.
enum Wanted {
    /// File that a request with the token of the session names.
    Named(usize, Vec<u8>),
    /// File of an address.
    At(Arc<FileAddress>),
}

impl Wanted {
    fn in_query(query: Option<&str>) -> Result<Wanted, BadRequest> {
        Ok(Wanted::Named(query::root(query)?, query::value(query, "path")?.unwrap_or_default()))
    }
}

/// A directory to create, or a file for an address.
#[derive(Deserialize)]
struct PathRequest {
    #[serde(default)]
    root: usize,
    path: PathText,
}

#[derive(Deserialize)]
struct MoveRequest {
    #[serde(default)]
    root: usize,
    from: PathText,
    to: PathText,
    #[serde(default)]
    replace: bool,
}

#[derive(Deserialize)]
struct DeleteRequest {
    #[serde(default)]
    root: usize,
    path: PathText,
    #[serde(default)]
    recursive: bool,
}

#[derive(Deserialize)]
struct LaneRequest {
    #[serde(default)]
    root: usize,
    /// Lanes with the same name are lanes of one transfer.
    transfer: Option<String>,
    #[serde(default)]
    kind: LaneKind,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum LaneKind {
    #[default]
    Http,
    WebTransport,
}

impl<'a> Call<'a> {
    fn new(
        shared: &'a Arc<Shared>,
        session: Arc<Session>,
        peer: SocketAddr,
        guard: &RequestGuard,
    ) -> Result<Call<'a>, Reply> {
        if !guard.signed_in(shared) {
            let why = "too many connections of browsers are open; close other windows, then try again";
            return Err(answer::error(StatusCode::SERVICE_UNAVAILABLE, &why));
        }
        session.moved_to(peer.ip());
        Ok(Call { shared, session, peer })
    }
}

impl Call<'_> {
    /// Returns the facts of the session, with its token only for the request that opened it.
    fn session(&self, token: Option<&str>) -> Reply {
        #[derive(Serialize)]
        struct Root<'a> {
            id: usize,
            name: &'a str,
            read: bool,
            write: bool,
            quota: Option<u64>,
        }
        #[derive(Serialize)]
        struct Facts<'a> {
            #[serde(skip_serializing_if = "Option::is_none")]
            token: Option<&'a str>,
            /// SHA-256 of the certificate.
            certificate: String,
            /// Its expiry, in seconds since the epoch.
            certificate_expires: u64,
            version: &'static str,
            /// True if lanes over WebTransport can be opened, at the port of HTTPS.
            webtransport: bool,
            /// True if `GET /jobs` has the jobs of the user who runs the server.
            jobs: bool,
            /// True if copies to and from other servers are permitted.
            peers: bool,
            roots: Vec<Root<'a>>,
        }
        let roots =
            self.shared.roots.iter().enumerate().map(|(id, served)| (id, served.root())).map(|(id, root)| {
                Root {
                    id,
                    name: &root.name,
                    read: root.role.may_read(),
                    write: root.role.may_write(),
                    quota: root.quota,
                }
            });
        let facts = Facts {
            token,
            certificate: self.shared.certificate.sha256(),
            certificate_expires: self.shared.certificate.expires(),
            version: env!("CARGO_PKG_VERSION"),
            webtransport: self.shared.has_web_transport,
            jobs: self.shared.jobs.is_some(),
            peers: self.shared.peers.is_some(),
            roots: roots.collect(),
        };
        answer::json(StatusCode::OK, &facts)
    }

    async fn jobs(&self) -> Result<Reply, Reply> {
        let Some(list) = self.shared.jobs.clone() else {
            return Err(answer::error(StatusCode::NOT_FOUND, &"this server does not show jobs"));
        };
        let listed = tokio::task::spawn_blocking(move || list()).await;
        match listed {
            Ok(Ok(jobs)) => Ok(answer::bytes("application/json", format!("{{\"jobs\":{jobs}}}"))),
            Ok(Err(why)) => Err(answer::error(StatusCode::INTERNAL_SERVER_ERROR, &why)),
            Err(_) => Err(answer::error(StatusCode::INTERNAL_SERVER_ERROR, &"cannot list the jobs")),
        }
    }

    fn sign_out(&self) -> Reply {
        self.shared.access.sign_out(&self.session);
        self.shared.events.report(&WebEvent::SignedOut { session: self.session.number });
        answer::empty(StatusCode::NO_CONTENT)
    }

    /// Returns a code for another browser, with the same rights.
    fn new_code(&self) -> Result<Reply, Reply> {
        #[derive(Serialize)]
        struct Code {
            code: String,
        }
        let code = self.shared.access.issue_code(Instant::now()).map_err(|error| internal(&error))?;
        Ok(answer::json(StatusCode::CREATED, &Code { code }))
    }

    /// Returns a root for a request that needs `right`.
    fn root(&self, number: usize, right: Right) -> Result<&RootThreads, Reply> {
        let served = self.shared.roots.get(number);
        let served = served.ok_or_else(|| answer::error(StatusCode::NOT_FOUND, &"there is no such root"))?;
        let role = served.root().role;
        let (may, why) = match right {
            Right::Read => (role.may_read(), "this directory may not be read: clients may only send"),
            Right::Write => (role.may_write(), "this directory may not be changed: clients may only fetch"),
            Right::Both => (
                role.may_read() && role.may_write(),
                "names in this directory may not be changed: clients may only fetch, or only send",
            ),
        };
        if served.root().is_expired() {
            return Err(answer::error(StatusCode::FORBIDDEN, &"the ticket of this directory has expired"));
        }
        if may { Ok(served) } else { Err(answer::error(StatusCode::FORBIDDEN, &why)) }
    }

    async fn create_folder(&self, body: Incoming) -> Result<Reply, Reply> {
        let PathRequest { root, path } = self.json(body).await?;
        let (served, path) = (self.root(root, Right::Write)?, path.into_bytes().map_err(bad)?);
        if !self.session.spend(root, NAME_QUOTA_BYTES, served.root().quota) {
            return Err(answer::error(
                StatusCode::INSUFFICIENT_STORAGE,
                &"the quota of this directory is used up",
            ));
        }
        served.run(move |root| files::create_folder(&root.dir, &path)).await.map_err(failed)?;
        self.changed(served, "created a directory");
        Ok(answer::empty(StatusCode::CREATED))
    }

    async fn rename(&self, body: Incoming) -> Result<Reply, Reply> {
        let MoveRequest { root, from, to, replace } = self.json(body).await?;
        let served = self.root(root, Right::Both)?;
        let (from, to) = (from.into_bytes().map_err(bad)?, to.into_bytes().map_err(bad)?);
        served.run(move |root| files::rename(&root.dir, &from, &to, replace)).await.map_err(failed)?;
        self.changed(served, "renamed an entry");
        Ok(answer::empty(StatusCode::NO_CONTENT))
    }

    async fn delete(&self, body: Incoming) -> Result<Reply, Reply> {
        let DeleteRequest { root, path, recursive } = self.json(body).await?;
        let (served, path) = (self.root(root, Right::Both)?, path.into_bytes().map_err(bad)?);
        served.run(move |root| files::delete(&root.dir, &path, recursive)).await.map_err(failed)?;
        self.changed(served, "deleted an entry");
        Ok(answer::empty(StatusCode::NO_CONTENT))
    }

    /// Returns an address of a file for downloads by the browser itself.
    async fn file_address(&self, body: Incoming) -> Result<Reply, Reply> {
        #[derive(Serialize)]
        struct Address {
            address: String,
        }
        let PathRequest { root, path } = self.json(body).await?;
        self.root(root, Right::Read)?;
        let (path, idle) = (path.into_bytes().map_err(bad)?, self.shared.limits.address_idle);
        files::check_length(&path).map_err(failed)?;
        let token = self.session.addresses.issue(root, path, Instant::now(), idle);
        let token = token.map_err(|error| internal(&error))?;
        Ok(answer::json(StatusCode::CREATED, &Address { address: format!("/file?token={token}") }))
    }

    async fn file(&self, method: Method, wanted: Wanted, headers: &HeaderMap) -> Result<Reply, Reply> {
        let (root, path, address) = match wanted {
            Wanted::Named(root, path) => (root, path, None),
            Wanted::At(address) => (address.root, address.path.clone(), Some(address)),
        };
        let served = self.root(root, Right::Read)?;
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default().to_vec();
        let permit = Arc::clone(&self.shared.downloads).try_acquire_owned().map_err(|_| busy())?;
        let opened = served.run(move |root| files::open_file(&root.dir, &path)).await.map_err(failed)?;
        self.changed(served, "opened a file");
        let (shared, session) = (Arc::clone(self.shared), self.session.number);
        let root = served.root().log_name();
        let on_end = move |length, left| {
            if let Some(address) = &address {
                address.extend(Instant::now());
            }
            if method == Method::GET {
                let root = root.clone();
                shared.events.report(&WebEvent::Downloaded { session, root, length, left });
            }
        };
        Ok(attachment::reply(opened, &name, headers, permit, on_end))
    }

    async fn open_lane(&self, body: Incoming) -> Result<Reply, Reply> {
        #[derive(Serialize)]
        struct Lane {
            lane: String,
            /// Path of the connection of a lane over WebTransport.
            #[serde(skip_serializing_if = "Option::is_none")]
            path: Option<String>,
            /// SHA-256 of the certificate, if no authority vouches for it.
            #[serde(skip_serializing_if = "Option::is_none")]
            certificate: Option<String>,
        }
        let LaneRequest { root, transfer, kind } = self.json(body).await?;
        let served = self.root(root, Right::Read).or_else(|_| self.root(root, Right::Write))?;
        let session = &self.session;
        let opened = match kind {
            LaneKind::Http => session.lanes.open(Instant::now()),
            LaneKind::WebTransport if self.shared.has_web_transport => {
                session.lanes.open_stream(Instant::now())
            }
            LaneKind::WebTransport => {
                let why = "this server has no WebTransport; open a lane over HTTP";
                return Err(answer::error(StatusCode::NOT_FOUND, &why));
            }
        };
        let Opened { id: lane, token, socket } = opened.map_err(|error| {
            let status = match error {
                OpenRefusal::TooMany(_) => StatusCode::TOO_MANY_REQUESTS,
                OpenRefusal::Failed(_) => StatusCode::SERVICE_UNAVAILABLE,
            };
            answer::error(status, &error)
        })?;
        // Without a name the lane is the only one of its transfer.
        let name = transfer.as_deref().unwrap_or(&lane);
        let id = session.transfer(root, name.as_bytes());
        if let Err(verdict) = self.shared.gateway.admit(socket, served.root().ticket, id, self.peer) {
            session.lanes.abort(&lane);
            let status = match verdict {
                Verdict::TooManyLanes => StatusCode::TOO_MANY_REQUESTS,
                Verdict::Full | Verdict::Closing => StatusCode::SERVICE_UNAVAILABLE,
                _ => StatusCode::FORBIDDEN,
            };
            return Err(answer::error(status, &verdict));
        }
        let certificate = token.as_ref().and_then(|_| self.shared.certificate.pin());
        let path = token.map(|token| format!("/lane/{lane}?token={token}"));
        Ok(answer::json(StatusCode::CREATED, &Lane { lane, path, certificate }))
    }

    /// Handles a request of a lane; `rest` is its ID, and a number for the bytes.
    async fn lane(&self, method: &Method, rest: &str, request: Request<Incoming>) -> Result<Reply, Reply> {
        let (id, number) = rest.split_once('/').map_or((rest, None), |(id, number)| (id, Some(number)));
        let gone = || answer::error(StatusCode::NOT_FOUND, &LaneRefusal::Gone);
        let lanes = &self.session.lanes;
        if number.is_none() && method == Method::DELETE {
            return if lanes.abort(id) { Ok(answer::empty(StatusCode::NO_CONTENT)) } else { Err(gone()) };
        }
        let number = number.and_then(|number| number.parse().ok());
        let number: u64 = number.ok_or_else(|| {
            answer::error(StatusCode::BAD_REQUEST, &"the address needs the number of the request")
        })?;
        let lane = lanes.lane(id).ok_or_else(gone)?;
        match *method {
            Method::PUT => {
                let length = request.headers().get(header::CONTENT_LENGTH);
                let length = length.and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
                if length.is_some_and(|length| length > UPLOAD_BYTES_MAX) {
                    return Err(refused(LaneRefusal::TooLarge(UPLOAD_BYTES_MAX)));
                }
                let ends = request.headers().contains_key(END);
                lane.put(number, length, ends, request.into_body()).await.map_err(refused)?;
                Ok(answer::empty(StatusCode::NO_CONTENT))
            }
            Method::GET => {
                let Some(piece) = lane.get(number).await.map_err(refused)? else {
                    return Ok(answer::empty(StatusCode::NO_CONTENT));
                };
                let is_last = piece.is_last;
                let mut reply = answer::piece(lane, piece);
                if is_last {
                    reply.headers_mut().insert(END, HeaderValue::from_static("1"));
                }
                self.limited(reply)
            }
            _ => Err(answer::error(StatusCode::METHOD_NOT_ALLOWED, &"a lane has GET, PUT and DELETE")),
        }
    }

    async fn json<T: serde::de::DeserializeOwned>(&self, body: Incoming) -> Result<T, Reply> {
        self.json_of(JSON_BYTES_MAX, body).await
    }

    async fn json_of<T: serde::de::DeserializeOwned>(&self, most: usize, body: Incoming) -> Result<T, Reply> {
        let value = query::json(body, most, self.shared.limits.request).await.map_err(bad)?;
        if self.session.lanes.has_ended() {
            return Err(answer::error(StatusCode::UNAUTHORIZED, &"the session has ended; sign in again"));
        }
        Ok(value)
    }

    /// Counts a reply until its client has taken it. A piece that is refused is kept, and the
    /// client asks for it again.
    fn limited(&self, reply: Reply) -> Result<Reply, Reply> {
        let permit = Arc::clone(&self.session.answers).try_acquire_owned().map_err(|_| busy())?;
        Ok(reply.map(|answer| answer.holding(Some(permit))))
    }

    fn changed(&self, served: &RootThreads, what: &'static str) {
        let (session, root) = (self.session.number, served.root().log_name());
        self.shared.events.report(&WebEvent::Changed { session, root, what });
    }
}

fn busy() -> Reply {
    let why = "too many answers and downloads are in progress; send the request again later";
    answer::error(StatusCode::SERVICE_UNAVAILABLE, &why)
}

fn bad(error: BadRequest) -> Reply {
    let status = match error {
        BadRequest::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        BadRequest::Slow => StatusCode::REQUEST_TIMEOUT,
        BadRequest::Store(_) => StatusCode::INSUFFICIENT_STORAGE,
        _ => StatusCode::BAD_REQUEST,
    };
    answer::error(status, &error)
}

fn internal(error: &dyn std::fmt::Display) -> Reply {
    answer::error(StatusCode::INTERNAL_SERVER_ERROR, error)
}

fn refused(refusal: LaneRefusal) -> Reply {
    let status = match refusal {
        LaneRefusal::Gone => StatusCode::NOT_FOUND,
        LaneRefusal::NotKept => StatusCode::GONE,
        LaneRefusal::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
        // The browser repeats the request.
        LaneRefusal::Stalled | LaneRefusal::Incomplete | LaneRefusal::Waited => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        LaneRefusal::TooFarAhead(_)
        | LaneRefusal::PastTheEnd
        | LaneRefusal::Differs
        | LaneRefusal::Superseded => StatusCode::CONFLICT,
    };
    answer::error(status, &refusal)
}

fn failed(error: FileError) -> Reply {
    let status = match &error {
        FileError::Name(_) => StatusCode::BAD_REQUEST,
        FileError::Kind(_) => StatusCode::CONFLICT,
        FileError::Busy => StatusCode::SERVICE_UNAVAILABLE,
        FileError::Unavailable(_) => StatusCode::INTERNAL_SERVER_ERROR,
        FileError::Io { source, .. } if files::is_of_link(source) => StatusCode::FORBIDDEN,
        FileError::Io { source, .. } => match source.kind() {
            ErrorKind::NotFound => StatusCode::NOT_FOUND,
            ErrorKind::AlreadyExists
            | ErrorKind::DirectoryNotEmpty
            | ErrorKind::IsADirectory
            | ErrorKind::NotADirectory
            | ErrorKind::ResourceBusy => StatusCode::CONFLICT,
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => StatusCode::FORBIDDEN,
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => StatusCode::INSUFFICIENT_STORAGE,
            ErrorKind::InvalidFilename | ErrorKind::InvalidInput => StatusCode::BAD_REQUEST,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        },
    };
    answer::error(status, &error)
}
