//! Contents of a line. This module uses nothing else of the program, so that a fuzzer can include
//! it alone.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haul_proto::limits::{OPERANDS_ALL_BYTES_MAX, OPERANDS_ALL_MAX};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Version of the dialogue.
pub(crate) const MEET: u32 = 2;

/// Version of the dialogue with paths after the line. Only requests with very many paths use it, so
/// that older versions understand all others.
pub(crate) const MEET_LISTED: u32 = 3;

/// Maximum number of paths in a line.
pub(super) const IN_LINE_MAX: usize = 256;

/// Maximum number of bytes of these paths: in base64 they fit into a line.
const IN_LINE_BYTES_MAX: usize = 512 << 10;

/// Start of the answer.
pub(crate) const MARK: &str = "haul-meet ";

/// Request of this side.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Request {
    pub(crate) meet: u32,
    pub(crate) way: Direction,
    /// Destination, or paths to fetch, as typed; base64.
    pub(crate) paths: Vec<String>,
    /// Paths after this line, in place of `paths`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listed: Option<PathListHeader>,
    /// Ports to listen on; `None` for any.
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) lanes: u32,
    pub(crate) buffers: u64,
    /// Rate limit of the remote haul as sender, in bytes per second.
    pub(crate) rate: Option<u64>,
    pub(crate) congestion: Option<String>,
    pub(crate) multipath: bool,
    pub(crate) plain: bool,
    /// Request for UDP; `None` for TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) udp: Option<UdpRequest>,
    /// File for the remote haul's own waybill; base64.
    pub(crate) waybill: Option<String>,
    /// True if nothing is to be created.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) dry_run: bool,
}

impl Request {
    /// Parses a line. Returns `None` if it is not a request, or has an unknown version.
    pub(crate) fn parse_line(line: &[u8]) -> Option<Request> {
        let request: Request = serde_json::from_slice(line).ok()?;
        matches!(request.meet, MEET | MEET_LISTED).then_some(request)
    }
}

/// Settings of the remote haul for UDP.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct UdpRequest {
    /// Name of the packet check that both sides use.
    pub(crate) check: String,
    /// Bytes of data in each datagram; `None` to find it.
    pub(crate) chunk: Option<usize>,
    /// Rate of each lane in bytes per second; `None` to find it.
    pub(crate) rate: Option<u64>,
    /// Maximum number of bytes of a buffer; `None` for the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) buffers: Option<u64>,
}

/// Direction of the transfer, as the requesting side sees it.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Direction {
    Send,
    Fetch,
}

/// Answer of the remote haul.
#[derive(Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// The remote haul is ready.
    Ready {
        /// Ticket for connections outside ssh, for this session only. It is as secret as all other
        /// data inside ssh.
        ticket: Option<Zeroizing<String>>,
        /// Reason why there are no such connections.
        closed: Option<String>,
        /// Address that the host was reached at, as the host sees it.
        address: Option<String>,
        /// Paths below the root that the remote haul opens; base64.
        paths: Vec<String>,
        /// Paths after this line, in place of `paths`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        listed: Option<PathListHeader>,
    },
    /// The remote haul cannot do what was requested.
    Failure(String),
}

impl Reply {
    /// Parses a line. Returns `None` if the line is not haul's.
    pub(crate) fn parse_line(line: &[u8]) -> Option<Result<Reply, serde_json::Error>> {
        line.strip_prefix(MARK.as_bytes()).map(serde_json::from_slice)
    }
}

/// List of paths that follows a line.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct PathListHeader {
    /// Number of paths.
    pub(crate) paths: usize,
    /// Bytes of all paths, with the NUL at the end of each.
    pub(crate) bytes: usize,
}

impl PathListHeader {
    /// Returns true if a job may name this many paths.
    pub(crate) fn is_within_limits(self) -> bool {
        self.paths <= OPERANDS_ALL_MAX && self.bytes <= OPERANDS_ALL_BYTES_MAX + OPERANDS_ALL_MAX
    }

    /// Returns the paths in `behind`. Returns `None` if their number is wrong or the last one has
    /// no NUL.
    pub(crate) fn paths_in(self, behind: &[u8]) -> Option<Vec<Vec<u8>>> {
        let ended = behind.strip_suffix(&[0])?;
        let found: Vec<Vec<u8>> = ended.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
        (found.len() == self.paths).then_some(found)
    }
}

/// Paths in their wire form: in the line, or after it.
pub(crate) struct EncodedPaths {
    /// Paths in base64.
    pub(crate) in_line: Vec<String>,
    pub(crate) listed: Option<PathListHeader>,
    /// Data after the end of the line.
    pub(crate) behind: Vec<u8>,
}

impl EncodedPaths {
    /// Encodes paths, which contain no NUL.
    pub(crate) fn of<P: AsRef<[u8]>>(paths: &[P]) -> EncodedPaths {
        let bytes: usize = paths.iter().map(|path| path.as_ref().len()).sum();
        if paths.len() <= IN_LINE_MAX && bytes <= IN_LINE_BYTES_MAX {
            return EncodedPaths { in_line: to_words(paths), listed: None, behind: Vec::new() };
        }
        let mut behind = Vec::with_capacity(bytes + paths.len());
        for path in paths {
            behind.extend_from_slice(path.as_ref());
            behind.push(0);
        }
        let listed = PathListHeader { paths: paths.len(), bytes: behind.len() };
        EncodedPaths { in_line: Vec::new(), listed: Some(listed), behind }
    }
}

/// Encodes paths in base64.
pub(crate) fn to_words<P: AsRef<[u8]>>(paths: &[P]) -> Vec<String> {
    paths.iter().map(|path| STANDARD.encode(path)).collect()
}

/// Decodes paths; `None` if one is not base64.
pub(crate) fn from_words(words: &[String]) -> Option<Vec<Vec<u8>>> {
    words.iter().map(|word| STANDARD.decode(word).ok()).collect()
}

/// Asserts for any bytes that each line is a request, an answer, or refused. Accepted lines are
/// accepted again in their written form, and no line yields more paths than it has bytes. The data
/// after the first line is decoded as the list that the line announces.
#[cfg_attr(not(test), allow(dead_code, reason = "for the tests here and the fuzzer beside the workspace"))]
pub(crate) fn any(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let (line, behind) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let mut told = None;
    if let Some(request) = Request::parse_line(line) {
        let again = serde_json::to_vec(&request).expect("it is written");
        assert!(Request::parse_line(&again).as_ref() == Some(&request));
        told = Some((request.paths, request.listed));
    }
    for body in [line, line.strip_prefix(MARK.as_bytes()).unwrap_or_default()] {
        let marked = [MARK.as_bytes(), body].concat();
        let Some(Ok(reply)) = Reply::parse_line(&marked) else { continue };
        let again = [MARK.as_bytes(), &serde_json::to_vec(&reply).expect("it is written")].concat();
        assert!(matches!(Reply::parse_line(&again), Some(Ok(same)) if same == reply));
        if let Reply::Ready { paths, listed, .. } = reply {
            told = Some((paths, listed));
        }
    }
    if let Some((in_line, listed)) = told {
        let in_line = from_words(&in_line).unwrap_or_default();
        let after =
            listed.filter(|listed| listed.is_within_limits()).and_then(|listed| listed.paths_in(behind));
        let after = after.unwrap_or_default();
        assert!(in_line.iter().map(Vec::len).sum::<usize>() <= line.len());
        assert!(after.len() <= behind.len());
    }
}
