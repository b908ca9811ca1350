//! Checks of a request before anything is done for it: host, origin and token.

#![allow(clippy::result_large_err, reason = "a refusal is the response itself, once for each request")]

use crate::access::{Access, Session};
use crate::addresses::FileAddress;
use crate::answer::{self, Reply};
use hyper::header::{self, HeaderName};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use std::sync::Arc;
use std::time::Instant;

/// Header with the token of the session. A page of another server cannot send it, and a browser
/// sends it nowhere by itself, unlike a cookie, which all ports of a host get.
const TOKEN: HeaderName = HeaderName::from_static("x-haul-token");

/// Header in which a browser states the relation between the page that requests and the server.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Hosts under which the server is reached.
pub(crate) struct Hosts {
    /// In small letters, with the port if it is not 443.
    names: Vec<String>,
}

impl Hosts {
    /// Returns the hosts `names`, written as in a URL without a port, at `port`.
    pub(crate) fn new(names: &[String], port: u16) -> Hosts {
        let with_port = |name: &String| {
            let name = name.to_ascii_lowercase();
            // Browsers leave out the default port of HTTPS.
            if port == 443 { name } else { format!("{name}:{port}") }
        };
        Hosts { names: names.iter().map(with_port).collect() }
    }

    /// Returns the host that the request names, if it is one of this server. A page of another name
    /// that was made to resolve to this address names itself.
    pub(crate) fn of_request(&self, uri: &Uri, headers: &HeaderMap) -> Result<&str, Reply> {
        let misdirected = || {
            answer::error(
                StatusCode::MISDIRECTED_REQUEST,
                &"this server is not reached under this host name; use the printed link, or start it with --address",
            )
        };
        let mut hosts = headers.get_all(header::HOST).iter();
        let named = [
            uri.authority().map(|authority| authority.as_str().to_ascii_lowercase()),
            hosts.next().map(|host| String::from_utf8_lossy(host.as_bytes()).to_ascii_lowercase()),
        ];
        let mut named = named.into_iter().flatten();
        let first = named.next().ok_or_else(misdirected)?;
        if hosts.next().is_some() || named.any(|other| other != first) {
            return Err(misdirected());
        }
        self.find(&first).ok_or_else(misdirected)
    }

    /// Returns the host of this server with this name and port, in small letters.
    pub(crate) fn find(&self, named: &str) -> Option<&str> {
        self.names.iter().find(|name| **name == named).map(String::as_str)
    }
}

/// Returns true if the method changes nothing.
pub(crate) fn is_safe(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Checks that a page of this server sent the request, which was for `host`.
pub(crate) fn origin(method: &Method, headers: &HeaderMap, host: &str) -> Result<(), Reply> {
    let foreign = || answer::error(StatusCode::FORBIDDEN, &"the request comes from a page of another server");
    if let Some(site) = headers.get(FETCH_SITE)
        && !matches!(site.as_bytes(), b"same-origin" | b"none")
    {
        return Err(foreign());
    }
    let mut origins = headers.get_all(header::ORIGIN).iter();
    match (origins.next(), origins.next()) {
        (None, None) if is_safe(method) => Ok(()),
        (None, None) => Err(answer::error(StatusCode::FORBIDDEN, &"the request has no Origin")),
        (Some(origin), None) if is_own(origin.as_bytes(), host) => Ok(()),
        _ => Err(foreign()),
    }
}

/// Returns true if `origin` is that of the pages of this server at `host`.
pub(crate) fn is_own(origin: &[u8], host: &str) -> bool {
    origin.strip_prefix(b"https://") == Some(host.as_bytes())
}

/// Returns the session whose token the request has.
pub(crate) fn session(headers: &HeaderMap, access: &Access) -> Result<Arc<Session>, Reply> {
    let found = headers.get(TOKEN).and_then(|token| access.session(token.as_bytes(), Instant::now()));
    found.ok_or_else(signed_out)
}

/// Returns the file of the address with this token, and its session.
pub(crate) fn file(token: &[u8], access: &Access) -> Result<(Arc<Session>, Arc<FileAddress>), Reply> {
    access.file(token, Instant::now()).ok_or_else(signed_out)
}

fn signed_out() -> Reply {
    let why = "not signed in, or the session has ended; sign in with a code";
    answer::error(StatusCode::UNAUTHORIZED, &why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(HeaderName, &str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (name.clone(), value.parse().expect("a value"))).collect()
    }

    #[test]
    fn only_hosts_of_the_server_are_accepted() {
        let hosts = Hosts::new(&["localhost".to_owned(), "[::1]".to_owned()], 7443);
        let accepts = |uri: &str, host: Option<&str>| {
            let lines: Vec<_> = host.map(|host| (header::HOST, host)).into_iter().collect();
            hosts.of_request(&uri.parse().expect("a URI"), &headers(&lines)).is_ok()
        };
        for host in ["localhost:7443", "LocalHost:7443", "[::1]:7443"] {
            assert!(accepts("/", Some(host)), "{host}");
        }
        for host in [
            "localhost",
            "localhost:7444",
            "evil.example:7443",
            "localhost.evil.example:7443",
            "",
            "a@localhost:7443",
        ] {
            assert!(!accepts("/", Some(host)), "{host}");
        }
        assert!(!accepts("/", None));
        assert!(accepts("https://localhost:7443/", None));
        assert!(accepts("https://localhost:7443/", Some("localhost:7443")));
        assert!(!accepts("https://localhost:7443/", Some("evil.example:7443")));
        let two = headers(&[(header::HOST, "localhost:7443")]);
        let mut twice = two.clone();
        twice.append(header::HOST, "localhost:7443".parse().expect("a value"));
        assert!(hosts.of_request(&Uri::from_static("/"), &twice).is_err());
        let default = Hosts::new(&["host".to_owned()], 443);
        assert!(default.of_request(&Uri::from_static("/"), &headers(&[(header::HOST, "host")])).is_ok());
    }

    #[test]
    fn requests_of_other_pages_are_refused() {
        let host = "localhost:7443";
        let accepts =
            |method: Method, lines: &[(HeaderName, &str)]| origin(&method, &headers(lines), host).is_ok();
        assert!(accepts(Method::GET, &[]));
        assert!(!accepts(Method::POST, &[]));
        assert!(accepts(Method::POST, &[(header::ORIGIN, "https://localhost:7443")]));
        for foreign in [
            "http://localhost:7443",
            "https://localhost:7444",
            "https://evil.example",
            "null",
            "https://localhost:7443/",
        ] {
            for method in [Method::GET, Method::POST, Method::PUT, Method::DELETE] {
                assert!(!accepts(method, &[(header::ORIGIN, foreign)]), "{foreign}");
            }
        }
        for site in ["cross-site", "same-site", "x"] {
            assert!(!accepts(Method::GET, &[(FETCH_SITE, site)]), "{site}");
        }
        assert!(accepts(Method::GET, &[(FETCH_SITE, "none")]));
        assert!(accepts(Method::GET, &[(FETCH_SITE, "same-origin")]));
    }
}
