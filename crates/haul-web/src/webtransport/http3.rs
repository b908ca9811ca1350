//! The part of HTTP/3 (RFC 9114) and of WebTransport over it (draft-ietf-webtrans-http3-02) that
//! one session with one stream needs.

use super::request::{BadHeader, Request};
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// Protocol of the connection in ALPN.
pub(super) const PROTOCOL: &[u8] = b"h3";

/// Error code of a connection that ends in order, and of one whose peer breaks the protocol.
pub(super) const NO_ERROR: u32 = 0x100;
pub(super) const GENERAL_PROTOCOL_ERROR: u32 = 0x101;

/// Types of frames.
const DATA: u64 = 0x00;
const HEADERS: u64 = 0x01;
const SETTINGS: u64 = 0x04;

/// Start of a bidirectional stream of a session of WebTransport, before the ID of the session.
const SESSION_STREAM: u64 = 0x41;

/// Start of the server's control stream: its type (0) and a SETTINGS frame.
///
/// The settings are: no dynamic table of QPACK (1) and no blocked streams (7); extended CONNECT
/// (8); datagrams (0x33), which browsers require and this server does not use; WebTransport
/// (0x2b603742); one session on a connection (0xc671706a).
#[rustfmt::skip]
pub(super) const CONTROL: &[u8] = &[
    0x00, SETTINGS as u8, 22,
    0x01, 0,
    0x07, 0,
    0x08, 1,
    0x33, 1,
    0xab, 0x60, 0x37, 0x42, 1,
    0xc0, 0, 0, 0, 0xc6, 0x71, 0x70, 0x6a, 1,
];

/// Maximum size of all frames up to the request, in bytes.
const REQUEST_BYTES_MAX: u64 = 16 << 10;

/// Answer to a request: a status that the static table of QPACK has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    Forbidden,
    NotFound,
    Misdirected,
}

impl Status {
    /// Returns a HEADERS frame with the status.
    pub(super) fn frame(self) -> &'static [u8] {
        match self {
            Self::Ok => &[HEADERS as u8, 3, 0, 0, 0xc0 | 25],
            Self::NotFound => &[HEADERS as u8, 3, 0, 0, 0xc0 | 27],
            // Indexes from 63 continue in another byte.
            Self::Forbidden => &[HEADERS as u8, 4, 0, 0, 0xff, 68 - 63],
            Self::Misdirected => &[HEADERS as u8, 4, 0, 0, 0xff, 69 - 63],
        }
    }
}

/// Error of a peer that does not speak the protocol, or whose connection has ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum ProtocolError {
    #[error("the connection ended: {0}")]
    Io(#[from] io::Error),
    #[error(transparent)]
    Header(#[from] BadHeader),
    #[error("unexpected frame of type {0}")]
    Frame(u64),
    #[error("the request is too large")]
    TooLarge,
    #[error("a stream belongs to no session")]
    NoSession,
}

/// Reads a stream up to the end of the request.
pub(super) async fn read_request(stream: &mut (impl AsyncRead + Unpin)) -> Result<Request, ProtocolError> {
    let mut left = REQUEST_BYTES_MAX;
    loop {
        let (kind, len) = (read_number(stream).await?, read_number(stream).await?);
        left = left.checked_sub(len).ok_or(ProtocolError::TooLarge)?;
        let mut payload = vec![0; usize::try_from(len).map_err(|_| ProtocolError::TooLarge)?];
        stream.read_exact(&mut payload).await?;
        match kind {
            HEADERS => return Ok(Request::decode(&payload)?),
            // The types that RFC 9114 defines or reserves. Others are extensions, to be ignored.
            DATA..=0x0d => return Err(ProtocolError::Frame(kind)),
            _ => left = left.checked_sub(2).ok_or(ProtocolError::TooLarge)?,
        }
    }
}

/// Reads the start of a stream that belongs to the session with this ID.
pub(super) async fn read_stream_start(
    stream: &mut (impl AsyncRead + Unpin),
    session: u64,
) -> Result<(), ProtocolError> {
    match (read_number(stream).await?, read_number(stream).await?) {
        (SESSION_STREAM, id) if id == session => Ok(()),
        (SESSION_STREAM, _) => Err(ProtocolError::NoSession),
        (kind, _) => Err(ProtocolError::Frame(kind)),
    }
}

/// Reads an integer of variable length (RFC 9000 section 16).
async fn read_number(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<u64> {
    let first = stream.read_u8().await?;
    let mut number = u64::from(first & 0x3f);
    for _ in 1..1 << (first >> 6) {
        number = number << 8 | u64::from(stream.read_u8().await?);
    }
    Ok(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    fn run<T>(future: impl Future<Output = T>) -> T {
        Builder::new_current_thread().build().expect("a runtime").block_on(future)
    }

    #[test]
    fn integers_have_one_to_eight_bytes() {
        // Examples of RFC 9000 appendix A.1.
        for (bytes, number) in [
            (&[0x25][..], 37),
            (&[0x40, 0x25], 37),
            (&[0x7b, 0xbd], 15_293),
            (&[0x9d, 0x7f, 0x3e, 0x7d], 494_878_333),
            (&[0xc2, 0x19, 0x7c, 0x5e, 0xff, 0x14, 0xe8, 0x8c], 151_288_809_941_952_652),
        ] {
            assert_eq!(run(read_number(&mut &bytes[..])).expect("read"), number);
            assert!(run(read_number(&mut &bytes[..bytes.len() - 1])).is_err());
        }
    }

    #[test]
    fn the_settings_frame_has_its_length() {
        assert_eq!(CONTROL.len(), 3 + usize::from(CONTROL[2]));
    }

    #[test]
    fn unknown_frames_before_the_request_are_skipped_up_to_a_limit() {
        let request = [0x01, 4, 0, 0, 0xc0 | 15, 0xc0 | 23];
        let read = |before: &[u8]| run(read_request(&mut &[before, &request].concat()[..]));
        assert!(read(&[]).is_ok());
        // 0x21 is reserved for this purpose.
        assert!(read(&[0x21, 3, 1, 2, 3]).is_ok());
        assert!(read(&[0x21, 0].repeat(1000)).is_ok());
        for (before, too_large) in
            [(&[0x21, 0x80, 1, 0, 0][..], true), (&[0x00, 0], false), (&[0x04, 0], false)]
        {
            let error = read(before).expect_err("refused");
            assert_eq!(matches!(error, ProtocolError::TooLarge), too_large, "{error}");
        }
        assert!(matches!(read(&[0x21, 0].repeat(10_000)), Err(ProtocolError::TooLarge)));
        assert!(matches!(run(read_request(&mut &request[..5])), Err(ProtocolError::Io(_))));
    }

    #[test]
    fn streams_of_other_sessions_are_refused() {
        let start = |bytes: &[u8]| run(read_stream_start(&mut &bytes[..], 0));
        assert!(start(&[0x40, 0x41, 0]).is_ok());
        assert!(matches!(start(&[0x40, 0x41, 4]), Err(ProtocolError::NoSession)));
        assert!(matches!(start(&[0x01, 0]), Err(ProtocolError::Frame(1))));
    }
}
