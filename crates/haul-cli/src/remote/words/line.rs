//! What may stand in a line, by its names; nothing here knows more of this program, so that a fuzzer can read it alone.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haul_proto::limits::{OPERANDS_ALL_BYTES_MAX, OPERANDS_ALL_MAX};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// The version of this conversation.
pub(crate) const MEET: u32 = 2;

/// The same with paths behind the line. Only who has very many says so: others are understood by older sides.
pub(crate) const MEET_LISTED: u32 = 3;

/// Paths that stand in a line at most.
pub(super) const IN_LINE_MAX: usize = 256;

/// Bytes that those have at most: with base64 they fit a line.
const IN_LINE_BYTES_MAX: usize = 512 << 10;

/// What the answer begins with.
pub(crate) const MARK: &str = "haul-meet ";

/// What this side asks of the other.
#[derive(Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Request {
    pub(crate) meet: u32,
    pub(crate) way: Way,
    /// Where to send to, or what to fetch, as it was typed; base64.
    pub(crate) paths: Vec<String>,
    /// Paths behind this line, in place of those.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) listed: Option<Listed>,
    /// Ports to listen at; any without.
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) lanes: u32,
    pub(crate) buffers: u64,
    /// Bytes a second that the other side may send.
    pub(crate) rate: Option<u64>,
    pub(crate) congestion: Option<String>,
    pub(crate) multipath: bool,
    pub(crate) plain: bool,
    /// Where the other side is to write a waybill of its own; base64.
    pub(crate) waybill: Option<String>,
}

impl Request {
    /// What a line asks for; `None` where it is no request, or of a version that is not known here.
    pub(crate) fn understood(line: &[u8]) -> Option<Request> {
        let request: Request = serde_json::from_slice(line).ok()?;
        matches!(request.meet, MEET | MEET_LISTED).then_some(request)
    }
}

/// Which way the files go, seen from the side that asks.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Way {
    Send,
    Fetch,
}

/// What the other side answers.
#[derive(Deserialize, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Reply {
    /// It is ready.
    Ready {
        /// The way in beside ssh, for this session only. It is as secret as what else goes through ssh.
        ticket: Option<Zeroizing<String>>,
        /// Why there is no such way.
        closed: Option<String>,
        /// The address it was reached at, as it sees itself.
        address: Option<String>,
        /// What the paths are beneath the root that it opens; base64.
        paths: Vec<String>,
        /// The same behind this line, in place of those.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        listed: Option<Listed>,
    },
    /// It can't do what it was asked for.
    Failure(String),
}

impl Reply {
    /// What a line answers; `None` where it is none of haul's.
    pub(crate) fn understood(line: &[u8]) -> Option<Result<Reply, serde_json::Error>> {
        line.strip_prefix(MARK.as_bytes()).map(serde_json::from_slice)
    }
}

/// Paths that stand behind a line.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Listed {
    /// How many there are.
    pub(crate) paths: usize,
    /// Bytes of them all, with the NUL that ends each.
    pub(crate) bytes: usize,
}

impl Listed {
    /// Whether a job may name so many.
    pub(crate) fn may_come(self) -> bool {
        self.paths <= OPERANDS_ALL_MAX && self.bytes <= OPERANDS_ALL_BYTES_MAX + OPERANDS_ALL_MAX
    }

    /// The paths of what came behind the line; `None` where they are not as many, or the last has no end.
    pub(crate) fn paths_in(self, behind: &[u8]) -> Option<Vec<Vec<u8>>> {
        let ended = behind.strip_suffix(&[0])?;
        let found: Vec<Vec<u8>> = ended.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect();
        (found.len() == self.paths).then_some(found)
    }
}

/// How paths go: in the line, or behind it.
pub(crate) struct Told {
    /// In base64.
    pub(crate) in_line: Vec<String>,
    pub(crate) listed: Option<Listed>,
    /// What follows the line's end.
    pub(crate) behind: Vec<u8>,
}

impl Told {
    /// Paths without a NUL in them, which no path has.
    pub(crate) fn of<P: AsRef<[u8]>>(paths: &[P]) -> Told {
        let bytes: usize = paths.iter().map(|path| path.as_ref().len()).sum();
        if paths.len() <= IN_LINE_MAX && bytes <= IN_LINE_BYTES_MAX {
            return Told { in_line: to_words(paths), listed: None, behind: Vec::new() };
        }
        let mut behind = Vec::with_capacity(bytes + paths.len());
        for path in paths {
            behind.extend_from_slice(path.as_ref());
            behind.push(0);
        }
        let listed = Listed { paths: paths.len(), bytes: behind.len() };
        Told { in_line: Vec::new(), listed: Some(listed), behind }
    }
}

/// Paths as they go over the line.
pub(crate) fn to_words<P: AsRef<[u8]>>(paths: &[P]) -> Vec<String> {
    paths.iter().map(|path| STANDARD.encode(path)).collect()
}

/// Paths as they came; `None` where one is no base64.
pub(crate) fn from_words(words: &[String]) -> Option<Vec<Vec<u8>>> {
    words.iter().map(|word| STANDARD.decode(word).ok()).collect()
}

/// Whatever the bytes are, each of their lines is a request, an answer or refused; what is understood is understood again as it is written,
/// and no more paths come of it than there are bytes. What follows the first line is taken for what it announces, too.
#[cfg_attr(not(test), allow(dead_code, reason = "for the tests here and the fuzzer beside the workspace"))]
pub(crate) fn any(bytes: &[u8]) {
    let end = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len());
    let (line, behind) = (&bytes[..end], bytes.get(end + 1..).unwrap_or_default());
    let mut told = None;
    if let Some(request) = Request::understood(line) {
        let again = serde_json::to_vec(&request).expect("it is written");
        assert!(Request::understood(&again).as_ref() == Some(&request));
        told = Some((request.paths, request.listed));
    }
    for body in [line, line.strip_prefix(MARK.as_bytes()).unwrap_or_default()] {
        let marked = [MARK.as_bytes(), body].concat();
        let Some(Ok(reply)) = Reply::understood(&marked) else { continue };
        let again = [MARK.as_bytes(), &serde_json::to_vec(&reply).expect("it is written")].concat();
        assert!(matches!(Reply::understood(&again), Some(Ok(same)) if same == reply));
        if let Reply::Ready { paths, listed, .. } = reply {
            told = Some((paths, listed));
        }
    }
    if let Some((in_line, listed)) = told {
        let in_line = from_words(&in_line).unwrap_or_default();
        let after = listed.filter(|listed| listed.may_come()).and_then(|listed| listed.paths_in(behind));
        let after = after.unwrap_or_default();
        assert!(in_line.iter().map(Vec::len).sum::<usize>() <= line.len());
        assert!(after.len() <= behind.len());
    }
}
