//! Requests whose work outlives the head of their response: verifications and server copies.

use super::{Call, Right, bad, failed};
use crate::answer::{self, Reply};
use crate::background::{self, SendLines};
use crate::copying::{self, CopyRequest, CopyWork, FetchRequest, ServerCopy};
use crate::files::{self, RootThreads};
use crate::limits::COPY_BYTES_MAX;
use crate::peers::{PeerConnection, Peers};
use crate::query::{self, PathText};
use crate::verification::{self, Verification};
use hyper::body::Incoming;
use hyper::{Request, StatusCode};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

impl Call<'_> {
    /// Verifies a directory by the waybill in the body, or by the one in a file beneath the root.
    pub(super) async fn verify(&self, request: Request<Incoming>) -> Result<Reply, Reply> {
        let query = request.uri().query();
        let served = self.root(query::root(query).map_err(bad)?, Right::Read)?;
        let path = query::value(query, "path").map_err(bad)?.unwrap_or_default();
        let file = query::value(query, "waybill").map_err(bad)?;
        let permit = permit(&self.shared.verifications, "verifications")?;
        let directory = served.run(move |root| files::open_directory(root, &path)).await.map_err(failed)?;
        let waybill = match file {
            Some(file) => {
                let opened = served.run(move |root| files::open_waybill(root, &file)).await;
                opened.map_err(failed)?
            }
            None => verification::receive(request.into_body(), &self.shared.limits).await.map_err(bad)?,
        };
        self.changed(served, "started a verification");
        let (verify, verification) = (Arc::clone(&self.shared.verify), Verification { waybill, directory });
        let work = move |send: SendLines<'_>| verify(&verification, send);
        Ok(background::start(served, "haul-web-verify", Arc::clone(&self.session), permit, work))
    }

    /// Copies entries of a directory to another one, or to another server.
    pub(super) async fn copy(&self, body: Incoming) -> Result<Reply, Reply> {
        let request: CopyRequest = self.json_of(COPY_BYTES_MAX, body).await?;
        let (to_root, source) = (request.to_root, self.root(request.root, Right::Read)?);
        let permit = permit(&self.shared.copies, "copies")?;
        let (path, to) = (request.path.into_bytes().map_err(bad)?, request.to.into_bytes().map_err(bad)?);
        let name = |name: PathText| files::name(&name.into_bytes().map_err(bad)?).map_err(failed);
        let names = request.names.into_iter().map(name).collect::<Result<Vec<_>, _>>()?;
        let (directory, connect, may_compare) = match request.ticket {
            Some(ticket) => {
                let (_, PeerConnection { lanes, may_read, .. }) = self.peer(&ticket)?;
                let names = names.clone();
                let opened = source.run(move |root| files::open_for_copy(root, &path, &names, &[])).await;
                (opened.map_err(failed)?, lanes, may_read)
            }
            None => {
                let sink = self.root(to_root, Right::Write)?;
                let checked = copying::check(source, path, names.clone(), sink, to.clone()).await;
                let number = self.shared.copies_started.fetch_add(1, Ordering::Relaxed);
                let gateway = self.shared.gateway.clone();
                let connect =
                    copying::lanes_to_root(gateway, sink, &self.session, to_root, self.peer, number);
                (checked.map_err(failed)?, connect, sink.root().role.may_read())
            }
        };
        self.changed(source, "started a copy from a directory");
        let copy = ServerCopy { directory, work: CopyWork::Send { names, to }, may_compare, connect };
        Ok(self.run_copy(source, copy, permit))
    }

    /// Copies paths of another server to a directory.
    pub(super) async fn fetch(&self, body: Incoming) -> Result<Reply, Reply> {
        let FetchRequest { ticket, paths, to_root, to } = self.json_of(COPY_BYTES_MAX, body).await?;
        let sink = self.root(to_root, Right::Write)?;
        if sink.root().quota.is_some() {
            let why =
                "this directory has a quota, which holds for what others send; send from the other server";
            return Err(answer::error(StatusCode::FORBIDDEN, &why));
        }
        let permit = permit(&self.shared.copies, "copies")?;
        let paths = paths.into_iter().map(PathText::into_bytes).collect::<Result<_, _>>().map_err(bad)?;
        let (to, (_, peer)) = (to.into_bytes().map_err(bad)?, self.peer(&ticket)?);
        let directory = sink.run(move |root| files::open_directory(root, &to)).await.map_err(failed)?;
        self.changed(sink, "started a copy to a directory");
        let may_compare = sink.root().role.may_read();
        let work = CopyWork::Fetch { paths };
        let copy = ServerCopy { directory, work, may_compare, connect: peer.lanes };
        Ok(self.run_copy(sink, copy, permit))
    }

    /// Copies on a thread that is confined to `served`.
    fn run_copy(&self, served: &RootThreads, copy: ServerCopy, permit: OwnedSemaphorePermit) -> Reply {
        let copy_between = Arc::clone(&self.shared.copy);
        let work = move |send: SendLines<'_>| copy_between(&copy, send);
        background::start(served, "haul-web-copy", Arc::clone(&self.session), permit, work)
    }

    /// Returns the functions for other servers, and a connection to one of them.
    pub(super) fn peer(&self, ticket: &str) -> Result<(&Peers, PeerConnection), Reply> {
        let Some(peers) = &self.shared.peers else {
            let why = "this server does not connect to other servers; start it with --web-peers";
            return Err(answer::error(StatusCode::FORBIDDEN, &why));
        };
        let connected = (peers.connect)(ticket);
        Ok((peers, connected.map_err(|why| answer::error(StatusCode::BAD_REQUEST, &why))?))
    }
}

/// Takes a permit for work in the background, before what uses memory. `what` names the limit.
pub(super) fn permit(limit: &Arc<Semaphore>, what: &str) -> Result<OwnedSemaphorePermit, Reply> {
    Arc::clone(limit).try_acquire_owned().map_err(|_| {
        let why = format!("the server has reached its limit of {what}; try again later");
        answer::error(StatusCode::SERVICE_UNAVAILABLE, &why)
    })
}
