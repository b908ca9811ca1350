//! Responses with a file, or with a range of its bytes (RFC 9110 section 14).

use crate::answer::{self, Answer, Reply, insert};
use crate::files::OpenedFile;
use crate::query;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use std::ops::Range;
use tokio::sync::OwnedSemaphorePermit;

/// Returns the response with a file or the requested range of it. `on_end` gets the number of bytes
/// in the response, and of those that the connection did not take.
pub(crate) fn reply(
    opened: OpenedFile,
    name: &[u8],
    headers: &HeaderMap,
    permit: OwnedSemaphorePermit,
    on_end: impl Fn(u64, u64) + Send + Sync + 'static,
) -> Reply {
    let (size, tag) = (opened.size(), opened.tag());
    let is_current = headers.get(header::IF_RANGE).is_none_or(|wanted| wanted.as_bytes() == tag.as_bytes());
    let range = headers.get(header::RANGE).filter(|_| is_current);
    let (status, range) = match range.and_then(|range| parse_range(range, size)) {
        None => (StatusCode::OK, 0..size),
        Some(Some(range)) => (StatusCode::PARTIAL_CONTENT, range),
        Some(None) => {
            let mut reply =
                answer::error(StatusCode::RANGE_NOT_SATISFIABLE, &"the file ends before this range");
            insert(&mut reply, header::CONTENT_RANGE, &format!("bytes */{size}"));
            return reply;
        }
    };
    let len = range.end - range.start;
    let on_end = Box::new(move |left| on_end(len, left));
    let mut reply = Reply::new(Answer::of_file(opened, range.clone(), permit, on_end));
    *reply.status_mut() = status;
    if status == StatusCode::PARTIAL_CONTENT {
        let said = format!("bytes {}-{}/{}", range.start, range.end - 1, size);
        insert(&mut reply, header::CONTENT_RANGE, &said);
    }
    insert(&mut reply, header::ETAG, &tag);
    insert(&mut reply, header::ACCEPT_RANGES, "bytes");
    insert(&mut reply, header::CONTENT_TYPE, "application/octet-stream");
    // The name in percent-encoding (RFC 8187) has no character of a header's syntax.
    let name = query::encode(String::from_utf8_lossy(name).as_bytes());
    insert(&mut reply, header::CONTENT_DISPOSITION, &format!("attachment; filename*=UTF-8''{name}"));
    reply
}

/// Returns a single range of bytes within a file of `size` bytes (RFC 9110 section 14), or
/// `Some(None)` if the file has no byte of it. Other ranges are ignored, as the standard permits.
fn parse_range(value: &HeaderValue, size: u64) -> Option<Option<Range<u64>>> {
    let (first, last) = value.to_str().ok()?.strip_prefix("bytes=")?.trim().split_once('-')?;
    let number =
        |text: &str| text.bytes().all(|digit| digit.is_ascii_digit()).then(|| text.parse::<u64>().ok())?;
    let range = match (first, last) {
        ("", last) => size.saturating_sub(number(last)?)..size,
        (first, "") => number(first)?..size,
        (first, last) => {
            let (first, last) = (number(first)?, number(last)?);
            if last < first {
                return None;
            }
            first..size.min(last.saturating_add(1))
        }
    };
    Some((!range.is_empty()).then_some(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_ranges_are_cut_to_the_file() {
        let parse = |text: &str, size| parse_range(&text.parse().expect("a value"), size);
        assert_eq!(parse("bytes=0-99", 1000), Some(Some(0..100)));
        assert_eq!(parse("bytes=990-5000", 1000), Some(Some(990..1000)));
        assert_eq!(parse("bytes=990-", 1000), Some(Some(990..1000)));
        assert_eq!(parse("bytes=-10", 1000), Some(Some(990..1000)));
        assert_eq!(parse("bytes=-5000", 1000), Some(Some(0..1000)));
        assert_eq!(parse("bytes=0-18446744073709551615", 1000), Some(Some(0..1000)));
        for outside in ["bytes=1000-", "bytes=1000-1001", "bytes=-0"] {
            assert_eq!(parse(outside, 1000), Some(None), "{outside}");
        }
        for ignored in [
            "bytes=5-4",
            "bytes=0-1,3-4",
            "bytes=a-b",
            "items=0-1",
            "bytes=-",
            "bytes=+1-2",
            "bytes=99999999999999999999-",
        ] {
            assert_eq!(parse(ignored, 1000), None, "{ignored}");
        }
        assert_eq!(parse("bytes=0-0", 0), Some(None));
    }
}
