//! Queries and JSON bodies of requests. Paths are bytes, which need not be UTF-8.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http_body_util::BodyExt as _;
use hyper::body::Body;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::pin::pin;
use std::time::Duration;
use tokio::time::timeout;

/// Reason for refusing the contents of a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadRequest {
    /// The query is not understood.
    #[error("the query is invalid: {0}")]
    Query(String),
    /// The body is larger than the limit.
    #[error("the body is larger than {0} bytes")]
    TooLarge(usize),
    /// The body did not arrive in time.
    #[error("the body did not arrive in time")]
    Slow,
    /// The body ended early.
    #[error("the body is incomplete")]
    Incomplete,
    /// The body is not the JSON that the request needs.
    #[error("the body is invalid: {0}")]
    Json(String),
    /// The body cannot be stored.
    #[error("cannot store the body: {0}")]
    Store(String),
}

/// Returns the value of `key` in a query, decoded; `None` if the query does not have it.
pub(crate) fn value(query: Option<&str>, key: &str) -> Result<Option<Vec<u8>>, BadRequest> {
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    let mut values = pairs.filter(|(name, _)| *name == key).map(|(_, value)| value);
    let first = values.next();
    if values.next().is_some() {
        return Err(BadRequest::Query(format!("'{key}' occurs twice")));
    }
    first.map(decode).transpose()
}

/// Decodes percent-encoding; a plus sign is a blank, as in forms.
fn decode(text: &str) -> Result<Vec<u8>, BadRequest> {
    let bad = || BadRequest::Query("'%' is not followed by two hexadecimal digits".to_owned());
    let mut decoded = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, more)) = rest.split_first() {
        rest = more;
        match byte {
            b'+' => decoded.push(b' '),
            b'%' => {
                let digits = rest.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
                let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
                let digits = digits.ok_or_else(bad)?;
                decoded.push(u8::from_str_radix(digits, 16).map_err(|_| bad())?);
                rest = &rest[2..];
            }
            _ => decoded.push(*byte),
        }
    }
    Ok(decoded)
}

/// Encodes bytes for the value of a query or of a header: letters, digits and `-._~` stay.
pub(crate) fn encode(bytes: &[u8]) -> String {
    let mut encoded = String::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                encoded.push(char::from(*byte));
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// Returns the number of the root in a query; 0 without one.
pub(crate) fn root(query: Option<&str>) -> Result<usize, BadRequest> {
    let Some(text) = value(query, "root")? else { return Ok(0) };
    let number = std::str::from_utf8(&text).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| BadRequest::Query("'root' is not a number".to_owned()))
}

/// Passes the blocks of a body with at most `most` bytes to `take`.
pub(crate) async fn collect<B: Body<Data = Bytes>>(
    body: B,
    most: usize,
    within: Duration,
    mut take: impl FnMut(&[u8]) -> Result<(), BadRequest>,
) -> Result<(), BadRequest> {
    let read = async {
        let (mut body, mut len) = (pin!(body), 0);
        while let Some(frame) = body.frame().await {
            let Ok(bytes) = frame.map_err(|_| BadRequest::Incomplete)?.into_data() else { continue };
            len += bytes.len();
            if len > most {
                return Err(BadRequest::TooLarge(most));
            }
            take(&bytes)?;
        }
        Ok(())
    };
    timeout(within, read).await.map_err(|_| BadRequest::Slow)?
}

/// Reads a JSON body of at most `most` bytes. An empty body is the value without fields, if it has
/// only optional ones.
pub(crate) async fn json<T: DeserializeOwned, B: Body<Data = Bytes>>(
    body: B,
    most: usize,
    within: Duration,
) -> Result<T, BadRequest> {
    let mut text = Vec::new();
    let take = |block: &[u8]| {
        text.extend_from_slice(block);
        Ok(())
    };
    collect(body, most, within, take).await?;
    let text = if text.is_empty() { b"{}" } else { text.as_slice() };
    serde_json::from_slice(text).map_err(|error| BadRequest::Json(error.to_string()))
}

/// A path in a JSON body: as text, or in base64 if it is not UTF-8.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(crate) enum PathText {
    /// UTF-8.
    Text(String),
    /// Any bytes.
    Encoded {
        /// The bytes in base64.
        base64: String,
    },
}

impl PathText {
    /// Returns the bytes of the path.
    pub(crate) fn into_bytes(self) -> Result<Vec<u8>, BadRequest> {
        match self {
            PathText::Text(text) => Ok(text.into_bytes()),
            PathText::Encoded { base64 } => STANDARD
                .decode(base64)
                .map_err(|error| BadRequest::Json(format!("a path is not base64: {error}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_any_bytes_are_decoded() {
        let path = |query| value(Some(query), "path");
        assert_eq!(path("root=1&path=a%2Fb+c%ff"), Ok(Some(b"a/b c\xff".to_vec())));
        assert_eq!(path("root=1"), Ok(None));
        assert_eq!(path("path="), Ok(Some(Vec::new())));
        for bad in ["path=%", "path=%f", "path=%zz", "path=%+1", "path=a&path=b"] {
            assert!(matches!(path(bad), Err(BadRequest::Query(_))), "{bad}");
        }
        assert_eq!((root(None), root(Some("root=7"))), (Ok(0), Ok(7)));
        assert!(root(Some("root=-1")).is_err());
    }

    #[test]
    fn encoded_bytes_decode_to_themselves() {
        haul_lab::random::fuzz(500, |random| {
            let mut bytes = vec![0; random.below(40) as usize];
            random.fill(&mut bytes);
            assert_eq!(decode(&encode(&bytes)), Ok(bytes));
        });
    }
}
