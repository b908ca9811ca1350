//! Files of the page, which the build embeds.

use crate::answer::{self, Reply};
use bytes::Bytes;
use flate2::read::GzDecoder;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use std::io::Read as _;
use std::sync::{LazyLock, OnceLock};

/// An embedded file.
struct PageFile {
    path: &'static str,
    kind: &'static str,
    /// Tag of its contents, in quotes.
    tag: &'static str,
    /// Size in bytes.
    len: usize,
    /// Its contents, compressed with gzip. All browsers accept that, and the binary stays small.
    packed: &'static [u8],
    /// Its contents, once a client that does not accept gzip has requested them.
    plain: OnceLock<Bytes>,
}

impl PageFile {
    /// Returns the contents, which all requests share: anyone can request them.
    fn plain(&self) -> Bytes {
        let unpack = || {
            let mut plain = Vec::with_capacity(self.len);
            // The build compressed it, and reading from memory cannot fail.
            let _ = GzDecoder::new(self.packed).read_to_end(&mut plain);
            plain.into()
        };
        self.plain.get_or_init(unpack).clone()
    }
}

static FILES: LazyLock<Box<[PageFile]>> =
    LazyLock::new(|| Box::new(include!(concat!(env!("OUT_DIR"), "/page.in"))));

/// Returns the file at `path`, or `None` if there is none.
pub(crate) fn file(path: &str, headers: &HeaderMap) -> Option<Reply> {
    let path = if path == "/" { "/index.html" } else { path };
    let file = FILES.iter().find(|file| file.path == path)?;
    let has = |name, wanted: &str| {
        let lines = headers.get_all(name).iter().filter_map(|line| line.to_str().ok());
        lines
            .flat_map(|line| line.split(','))
            .any(|word| word.split(';').next().is_some_and(|word| word.trim() == wanted))
    };
    let mut reply = if has(header::IF_NONE_MATCH, file.tag) {
        answer::empty(StatusCode::NOT_MODIFIED)
    } else if has(header::ACCEPT_ENCODING, "gzip") {
        let mut reply = answer::bytes(file.kind, file.packed);
        reply.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        reply
    } else {
        answer::bytes(file.kind, file.plain())
    };
    let headers = reply.headers_mut();
    headers.insert(header::ETAG, HeaderValue::from_static(file.tag));
    headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    // A browser asks each time, because a new version of the program can be at the same address.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_have_no_inline_script_or_style() {
        let pages: Vec<_> = FILES.iter().filter(|file| file.path.ends_with(".html")).collect();
        assert!(pages.iter().any(|file| file.path == "/index.html"));
        for page in pages {
            let text = String::from_utf8(page.plain().into()).expect("UTF-8");
            for inline in ["<style", " style=", " onclick=", " onload=", "javascript:"] {
                assert!(!text.contains(inline), "{}: {inline}", page.path);
            }
            let scripts = text.split("<script").skip(1);
            assert!(scripts.into_iter().all(|script| script.contains("></script>")), "{}", page.path);
        }
        for file in FILES.iter().filter(|file| file.path.ends_with(".js")) {
            let text = String::from_utf8(file.plain().into()).expect("UTF-8");
            for risky in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
                assert!(!text.contains(risky), "{}: {risky}", file.path);
            }
        }
    }

    #[test]
    fn the_client_of_haul_browser_is_embedded() {
        for path in ["/client/worker.js", "/client/haul.wasm", "/client/haul-simd.wasm"] {
            assert!(file(path, &HeaderMap::new()).is_some(), "{path}");
        }
        let module = file("/client/haul.wasm", &HeaderMap::new()).expect("the module");
        assert_eq!(module.headers()[header::CONTENT_TYPE], "application/wasm");
        assert!(file("/client/MANIFEST", &HeaderMap::new()).is_none());
        let plain = FILES.iter().find(|file| file.path == "/client/haul.wasm").expect("the module").plain();
        assert_eq!(plain, &include_bytes!("../../haul-browser/wasm/haul.wasm")[..]);
    }

    /// Regression: a stranger without gzip made the server unpack 462 KB for each request, of which
    /// 42 KB of requests took 946 MiB.
    #[test]
    fn requests_share_the_contents_of_a_file() {
        for file in &*FILES {
            assert_eq!(file.plain().as_ptr(), file.plain().as_ptr(), "{}", file.path);
            assert_eq!(file.plain().len(), file.len, "{}", file.path);
        }
    }

    #[test]
    fn the_page_has_less_than_500_kib() {
        // A browser loads one of both modules.
        let loaded = FILES.iter().filter(|file| file.path != "/client/haul.wasm");
        let bytes: usize = loaded.map(|file| file.packed.len()).sum();
        assert!(bytes < 500 << 10, "{bytes} bytes");
    }

    #[test]
    fn a_known_tag_needs_no_body() {
        let whole = file("/", &HeaderMap::new()).expect("the page");
        let tag = whole.headers()[header::ETAG].clone();
        let mut headers = HeaderMap::new();
        headers.insert(header::IF_NONE_MATCH, tag);
        assert_eq!(file("/index.html", &headers).expect("the page").status(), StatusCode::NOT_MODIFIED);
        headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("\"0\""));
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("br, gzip;q=0.9"));
        let packed = file("/", &headers).expect("the page");
        assert_eq!(packed.headers()[header::CONTENT_ENCODING], "gzip");
        assert!(file("/../Cargo.toml", &headers).is_none());
    }
}
