//! Verification of a directory by a waybill, for a browser.

use crate::background::SendLines;
use crate::limits::{WAYBILL_BYTES_MAX, WebLimits};
use crate::query::{self, BadRequest};
use bytes::Bytes;
use hyper::body::Body;
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// A verification that a browser requests.
///
/// Both are descriptors because the job takes paths: `/proc/self/fd/N` leads to the same inode
/// whatever is renamed.
#[derive(Debug)]
pub struct Verification {
    /// The waybill, a regular file.
    pub waybill: OwnedFd,
    /// Directory that its names are relative to. It is a path only (`O_PATH`).
    pub directory: OwnedFd,
}

/// Function that verifies. It passes lines of JSON to its second argument, several at a time and at
/// least once a second, and stops when that returns false. It runs on a thread of its own.
pub type Verify = Arc<dyn Fn(&Verification, SendLines<'_>) + Send + Sync>;

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
