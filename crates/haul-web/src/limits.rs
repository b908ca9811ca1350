//! Limits of the web server.

use std::time::Duration;

/// Maximum number of connections over TCP of browsers that have signed in: a browser opens one by
/// HTTP/2, and six by HTTP/1.1. Other connections count against the limits of `haul_net`.
pub const CONNECTIONS_MAX: usize = 128;

/// Maximum number of such connections of one peer, so that others can still connect.
pub const CONNECTIONS_PER_PEER_MAX: usize = 64;

/// Maximum number of requests that the server handles at a time on a connection without a session.
/// Further requests wait. A page has some 50 files, of which a browser requests most at once.
pub const STRANGER_REQUESTS_MAX: usize = 8;

/// Maximum number of concurrent requests of a connection by HTTP/2: eight lanes with eight uploads
/// and four downloads each, and requests beside them.
pub const STREAMS_MAX: u32 = 128;

/// Bytes of one request that a connection buffers by HTTP/2. Most bytes of a lane are in one
/// request at a time: at a round trip of 30 ms this window carries 1.1 Gbit/s.
pub const STREAM_WINDOW_BYTES: u32 = 4 << 20;

/// The same for all requests of a connection: 16 windows. A lane of the page has at most two
/// requests that wait for an earlier one, so eight busy lanes leave bytes for the requests that are
/// read. With more, bodies stall, and are sent again after `body_stall`.
///
/// For responses the windows are those of the browser. In Chromium 156, four bodies that are not
/// read stop all other responses of a connection, and three do not. A tab runs two jobs, each with
/// one body at a time, so that two jobs at a standstill leave bytes for listings.
pub const CONNECTION_WINDOW_BYTES: u32 = 64 << 20;

/// Maximum size of the header of a request. A path has at most 4,096 bytes, and thus 12,288 in
/// percent-encoding; the rest is for the browser.
pub const HEADER_BYTES_MAX: usize = 32 << 10;

/// Maximum size of a JSON body: two paths, each of 4,096 bytes in any encoding.
pub const JSON_BYTES_MAX: usize = 64 << 10;

/// Maximum size of a path in bytes.
pub const PATH_BYTES_MAX: usize = 4096;

/// Maximum size of a request that carries bytes of a lane. A lane buffers none of them.
pub const UPLOAD_BYTES_MAX: u64 = 64 << 20;

/// Maximum number of a lane's uploads that wait for earlier ones.
pub const UPLOADS_AHEAD_MAX: u64 = 8;

/// Maximum size of a piece that a lane sends. After it the browser sends the next request, so that
/// this size costs 2 % of the rate at a round trip of 50 ms and 1 Gbit/s.
pub const PIECE_BYTES_MAX: usize = 256 << 20;

/// Maximum size of a piece that is kept for another request. It bounds the memory of a lane: five
/// kept pieces and the unread bytes.
pub const PIECE_KEPT_BYTES_MAX: usize = 1 << 20;

/// Maximum number of a lane's requests for later pieces than the next one.
pub const PIECES_AHEAD_MAX: u64 = 4;

/// Maximum number of unread bytes that a lane holds for its next pieces.
pub const UNREAD_BYTES_MAX: usize = 4 << 20;

/// Maximum number of a session's pieces and listings that wait for their client, of at most 2 MiB
/// each.
pub const ANSWERS_MAX: usize = 64;

/// Maximum number of addresses of files that a session has, with a path of at most 4,096 bytes
/// each.
pub const FILE_ADDRESSES_MAX: usize = 256;

/// Maximum number of concurrent downloads of files, each with a descriptor.
pub const DOWNLOADS_MAX: usize = 64;

/// Maximum size of a waybill that a browser sends, which is in memory while it is used. A larger
/// one can be a file beneath the root. A waybill has about 15 MiB for 1 TiB in objects of 4 MiB.
pub const WAYBILL_BYTES_MAX: usize = 64 << 20;

/// Maximum number of concurrent verifications: each one reads files with a thread for each CPU.
pub const VERIFICATIONS_MAX: usize = 2;

/// Maximum number of concurrent copies between directories of the server.
pub const COPIES_MAX: usize = 4;

/// Maximum number of concurrent listings of other servers, each with a thread.
pub const PEER_LISTINGS_MAX: usize = 4;

/// Maximum time of a listing of another server.
pub const PEER_LISTING_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum size of the JSON body of a copy, which has the names of its entries.
pub const COPY_BYTES_MAX: usize = 4 << 20;

/// Blocks with lines of a verification or a copy that wait for the client.
pub const LINES_AHEAD: usize = 4;

/// Maximum number of names in one page of a listing.
pub const NAMES_PER_PAGE_MAX: usize = 5000;

/// Maximum depth of a directory that is deleted: each level holds one descriptor.
pub const DELETE_DEPTH_MAX: usize = 256;

/// Bytes that a new name counts against a quota, as in a transfer.
pub const NAME_QUOTA_BYTES: u64 = 512;

/// Number of connections over UDP without a lane, whose handshake is in progress or whose request
/// was not accepted yet, from which a client proves its source address first (RFC 9000 section
/// 8.1.2). Others can then not use up the limits of `haul_net` with false addresses.
pub const HANDSHAKES_UNPROVEN_MAX: usize = 8;

/// Bytes that a connection over UDP without a lane buffers. A request has a few hundred.
pub const HANDSHAKE_WINDOW_BYTES: u32 = 64 << 10;

/// Bytes of a lane over WebTransport that are buffered in each direction: at a round trip of 100 ms
/// they carry 1.3 Gbit/s.
pub const LANE_WINDOW_BYTES: u32 = 16 << 20;

/// Settings that tests change.
#[derive(Clone, Copy, Debug)]
pub struct WebLimits {
    /// Maximum number of sessions.
    pub sessions: usize,
    /// Maximum number of lanes of a session.
    pub lanes: usize,
    /// Maximum number of unused codes.
    pub codes: usize,
    /// Time after which an unused code expires.
    pub code_age: Duration,
    /// Time without a request, and without bytes of a lane over WebTransport, after which a session
    /// ends.
    pub session_idle: Duration,
    /// Time without a download after which an address of a file expires.
    pub address_idle: Duration,
    /// Time without a request, or without a datagram of its connection, after which a lane is
    /// aborted.
    pub lane_idle: Duration,
    /// Time in which a browser connects to a lane over WebTransport.
    pub lane_token: Duration,
    /// Time for which a request for the next piece of a lane waits.
    pub poll: Duration,
    /// Maximum time without a byte of a request's body, and the time for which an upload waits for
    /// earlier ones.
    pub body_stall: Duration,
    /// Maximum time for a JSON body, for TLS and the header of a request, and for the stream of a
    /// lane over WebTransport.
    pub request: Duration,
    /// Maximum time for a waybill.
    pub waybill: Duration,
    /// Time without a request after which a connection is closed. A client that receives the last
    /// bytes of its requests more slowly than this loses them.
    pub connection_idle: Duration,
    /// The same for a connection on which no request had the token of a session.
    pub stranger_idle: Duration,
    /// Maximum duration of such a connection, whatever it requests: it must not keep others out.
    pub stranger_max: Duration,
    /// Delay of the answer to a wrong code.
    pub wrong_delay: Duration,
    /// Number of wrong codes of one peer within `failure_window` after which further wrong codes
    /// are refused as too many, and not delayed.
    pub failures: usize,
    /// Time for which a wrong code counts.
    pub failure_window: Duration,
    /// Time between two checks of the certificate: the files of the user, or the expiry.
    pub certificate_check: Duration,
}

impl Default for WebLimits {
    fn default() -> Self {
        Self {
            sessions: 16,
            lanes: 16,
            codes: 16,
            code_age: Duration::from_secs(15 * 60),
            session_idle: Duration::from_secs(2 * 3600),
            address_idle: Duration::from_secs(10 * 60),
            lane_idle: Duration::from_secs(60),
            lane_token: Duration::from_secs(30),
            poll: Duration::from_secs(20),
            body_stall: Duration::from_secs(30),
            request: Duration::from_secs(10),
            waybill: Duration::from_secs(300),
            connection_idle: Duration::from_secs(300),
            stranger_idle: Duration::from_secs(30),
            stranger_max: Duration::from_secs(60),
            wrong_delay: Duration::from_secs(1),
            failures: 5,
            failure_window: Duration::from_secs(60),
            certificate_check: Duration::from_secs(5),
        }
    }
}
