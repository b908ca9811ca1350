//! Listings of directories: of this server, and of another one.

use super::work::permit;
use super::{Call, Right, bad, failed};
use crate::answer::{self, Reply};
use crate::files::{self, Listing, kind_name};
use crate::limits::{NAMES_PER_PAGE_MAX, PATH_BYTES_MAX};
use crate::peers::{self, PeerConnection, PeerListing, PeerPage};
use crate::query::{self, BadRequest, PathText};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use haul_proto::ListedEntry;
use haul_storage::{Name, Stat};
use hyper::StatusCode;
use hyper::body::Incoming;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Deserialize)]
struct PeerTreeRequest {
    ticket: String,
    path: PathText,
    after: Option<PathText>,
}

#[derive(Serialize)]
struct Page {
    entries: Vec<Entry>,
    /// Value of `after` for the next page, in percent-encoding.
    next: Option<String>,
}

#[derive(Serialize)]
struct Entry {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Name that is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name64: Option<String>,
    kind: &'static str,
    size: u64,
    /// Seconds since 1970, and nanoseconds.
    mtime: i64,
    mtime_ns: u32,
    mode: u32,
}

impl Entry {
    /// Returns an entry without metadata.
    fn named(name: Vec<u8>) -> Entry {
        let (name, name64) = match String::from_utf8(name) {
            Ok(text) => (Some(text), None),
            Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
        };
        Entry { name, name64, kind: "unknown", size: 0, mtime: 0, mtime_ns: 0, mode: 0 }
    }

    fn of_this_server(name: Name, facts: Option<Stat>) -> Entry {
        let named = Entry::named(name.as_bytes().to_vec());
        let Some(Stat { kind, size, mtime, mode, .. }) = facts else { return named };
        Entry { kind: kind_name(kind), size, mtime: mtime.sec, mtime_ns: mtime.nsec, mode, ..named }
    }

    fn of_a_peer(entry: ListedEntry) -> Entry {
        let ListedEntry { name, kind, size, mtime, mode } = entry;
        let named = Entry::named(name.into());
        Entry { kind: kind.name(), size, mtime: mtime.sec, mtime_ns: mtime.nsec, mode, ..named }
    }
}

impl Call<'_> {
    /// Lists a page of a directory.
    pub(super) async fn tree(&self, query: Option<&str>) -> Result<Reply, Reply> {
        let served = self.root(query::root(query).map_err(bad)?, Right::Read)?;
        let path = query::value(query, "path").map_err(bad)?.unwrap_or_default();
        let after = query::value(query, "after").map_err(bad)?.unwrap_or_default();
        let max = match query::value(query, "max").map_err(bad)? {
            None => NAMES_PER_PAGE_MAX,
            Some(text) => std::str::from_utf8(&text)
                .ok()
                .and_then(|text| text.parse().ok())
                .filter(|max| (1..=NAMES_PER_PAGE_MAX).contains(max))
                .ok_or_else(|| {
                    bad(BadRequest::Query(format!("'max' is not from 1 to {NAMES_PER_PAGE_MAX}")))
                })?,
        };
        let listed = served.run(move |root| files::list(&root.dir, &path, &after, max)).await;
        let Listing { entries, has_more } = listed.map_err(failed)?;
        let next = entries.last().filter(|_| has_more).map(|(name, _)| query::encode(name.as_bytes()));
        let entries = entries.into_iter().map(|(name, facts)| Entry::of_this_server(name, facts)).collect();
        self.limited(answer::json(StatusCode::OK, &Page { entries, next }))
    }

    /// Lists a page of a directory of another server. The ticket is a secret and therefore in the
    /// body.
    pub(super) async fn peer_tree(&self, body: Incoming) -> Result<Reply, Reply> {
        let PeerTreeRequest { ticket, path, after } = self.json(body).await?;
        let after = after.map_or(Ok(Vec::new()), PathText::into_bytes).map_err(bad)?;
        let path = path.into_bytes().map_err(bad)?;
        if path.len().max(after.len()) > PATH_BYTES_MAX {
            let why = format!("the path is longer than {PATH_BYTES_MAX} bytes");
            return Err(answer::error(StatusCode::BAD_REQUEST, &why));
        }
        let (functions, PeerConnection { lanes, is_one_time, .. }) = self.peer(&ticket)?;
        if is_one_time {
            let why = "the ticket is valid once, and a listing would use it up; copy without one";
            return Err(answer::error(StatusCode::CONFLICT, &why));
        }
        let permit = permit(&self.shared.peer_listings, "listings of other servers")?;
        let listing = PeerListing { path, after, max: NAMES_PER_PAGE_MAX, lanes };
        let listed = peers::list(Arc::clone(&functions.list), listing, permit).await;
        let PeerPage { entries, has_more } =
            listed.map_err(|why| answer::error(StatusCode::BAD_GATEWAY, &why))?;
        let next = entries.last().filter(|_| has_more).map(|entry| query::encode(&entry.name));
        let entries = entries.into_iter().map(Entry::of_a_peer).collect();
        self.limited(answer::json(StatusCode::OK, &Page { entries, next }))
    }
}
