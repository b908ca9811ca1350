//! Layer 5: the web server of `haul serve --web`.
//!
//! A browser signs in with a one-time code ([`WebServer::link`]). It then lists and changes files
//! beneath the served directories, and opens lanes: streams of bytes over HTTPS requests, which
//! [`Gateway`](haul_net::Gateway) adds to the sessions of the server as if they were connections of
//! a ticket. `docs/formats/web.md` describes the requests.
//!
//! The asynchronous runtime stays in this crate, on threads that [`WebServer`] owns. The code of
//! sessions blocks on its end of each lane, as on any other.

mod access;
mod addresses;
mod answer;
mod attachment;
mod background;
mod certificate;
mod checks;
mod copying;
mod event;
mod files;
mod lanes;
pub mod limits;
mod metrics;
mod page;
mod peers;
mod places;
mod query;
mod routes;
mod server;
mod verification;
mod webtransport;

pub use background::SendLines;
pub use certificate::{CertificateError, CertificateSource, GivenCertificate};
pub use copying::{CopyBetween, CopyWork, ServerCopy};
pub use event::WebEvent;
pub use files::{Confine, WebRoot};
pub use limits::WebLimits;
pub use metrics::{Label, Metric, MetricKind};
pub use peers::{ConnectPeer, ListPeer, PeerConnection, PeerLanes, PeerListing, PeerPage, Peers};
pub use server::{ListJobs, WebError, WebListener, WebServer, WebSettings};
pub use verification::{Verification, Verify};
