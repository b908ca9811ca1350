//! Operands that name a place on a remote host.

use haul_engine::copy::quote;
use haul_net::address::Host;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use thiserror::Error;

/// Location that an operand names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Location {
    /// A path on this host.
    Local(OsString),
    /// `[user@]host:path`: a path on a host that ssh reaches.
    Ssh {
        /// User and host, as ssh takes them.
        login: SshDestination,
        /// The part after the colon, as typed.
        path: Vec<u8>,
    },
    /// `:path`: a path below the root that a ticket opens.
    Ticket(Vec<u8>),
}

/// Destination of ssh.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SshDestination {
    /// User name on the host; `None` leaves the choice to ssh.
    pub(crate) user: Option<String>,
    /// Host name, possibly an alias of ssh's configuration, or an address without brackets.
    pub(crate) host: String,
}

/// Error of an operand that names no place.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub(crate) enum LocationError {
    /// The part before the colon is not a host name.
    #[error("{0}: invalid host name before the colon; for a local file, put ./ in front of the name")]
    Host(String),
    /// An opening bracket without the closing bracket and a colon.
    #[error("{0}: invalid address in brackets; write [ADDRESS]:PATH")]
    Bracket(String),
    /// The part before the @ is not a valid user name.
    #[error("{0}: invalid user name before the @")]
    User(String),
}

impl Location {
    /// Parses an operand. A colon before the first slash makes it a remote path, as in scp and
    /// rsync. Colons in a bracketed address do not count.
    ///
    /// # Errors
    /// Returns [`LocationError`] if the operand is neither a local nor a valid remote path.
    pub(crate) fn parse(operand: &OsStr) -> Result<Location, LocationError> {
        let bytes = operand.as_bytes();
        let shown = || quote(operand).to_string();
        let head = &bytes[..bytes.iter().position(|&byte| byte == b'/').unwrap_or(bytes.len())];
        let colon = match bracket(head) {
            None => head.iter().position(|&byte| byte == b':'),
            Some(open) => match head[open..].windows(2).position(|two| two == b"]:") {
                Some(at) => Some(open + at + 1),
                // Brackets are legal in file names; only with a colon is the operand a host.
                None if head.contains(&b':') => return Err(LocationError::Bracket(shown())),
                None => None,
            },
        };
        let Some(colon) = colon else { return Ok(Location::Local(operand.to_owned())) };
        let path = bytes[colon + 1..].to_vec();
        if colon == 0 {
            return Ok(Location::Ticket(path));
        }
        let login = std::str::from_utf8(&bytes[..colon]).map_err(|_| LocationError::Host(shown()))?;
        let (user, host) = match login.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, login),
        };
        if let Some(user) = user
            && !is_user(user)
        {
            return Err(LocationError::User(shown()));
        }
        let host = match Host::parse(host).map_err(|_| LocationError::Host(shown()))? {
            Host::Ip(ip) => ip.to_string(),
            Host::Name(name) => name,
        };
        Ok(Location::Ssh { login: SshDestination { user: user.map(str::to_owned), host }, path })
    }
}

impl SshDestination {
    /// Returns the login as one argument of ssh. It never starts with a hyphen.
    pub(crate) fn argument(&self) -> OsString {
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        OsString::from_vec(format!("{user}{}", self.host).into_bytes())
    }
}

/// Returns the index of a bracketed address: at the start, or after the user name.
fn bracket(head: &[u8]) -> Option<usize> {
    let open = head.iter().position(|&byte| byte == b'[')?;
    (open == 0 || head[open - 1] == b'@').then_some(open)
}

/// Returns true if the text has only the characters of host names, and `@` between them for a user
/// of a domain. A program that ssh's configuration starts may pass the name to a shell.
fn is_user(user: &str) -> bool {
    user.split('@').all(|part| matches!(Host::parse(part), Ok(Host::Name(_))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(operand: &str) -> Result<Location, LocationError> {
        Location::parse(OsStr::new(operand))
    }

    fn ssh(user: Option<&str>, host: &str, path: &str) -> Result<Location, LocationError> {
        let login = SshDestination { user: user.map(str::to_owned), host: host.to_owned() };
        Ok(Location::Ssh { login, path: path.into() })
    }

    #[test]
    fn a_colon_before_the_first_slash_names_a_host() {
        assert_eq!(place("dtn:/data"), ssh(None, "dtn", "/data"));
        assert_eq!(place("me@dtn.example.org:data/x:y"), ssh(Some("me"), "dtn.example.org", "data/x:y"));
        assert_eq!(place("dtn:"), ssh(None, "dtn", ""));
        assert_eq!(place("10.0.0.7:a"), ssh(None, "10.0.0.7", "a"));
        assert_eq!(place("a@b@dtn:x"), ssh(Some("a@b"), "dtn", "x"));
        assert_eq!(place("first.last-2_x@dtn:x"), ssh(Some("first.last-2_x"), "dtn", "x"));
        assert_eq!(place(":in/box"), Ok(Location::Ticket(b"in/box".to_vec())));
        assert_eq!(place(":"), Ok(Location::Ticket(Vec::new())));
    }

    #[test]
    fn ipv6_addresses_need_brackets() {
        assert_eq!(place("[::1]:/data"), ssh(None, "::1", "/data"));
        assert_eq!(place("me@[fe80::7]:d"), ssh(Some("me"), "fe80::7", "d"));
        assert!(matches!(place("[::1"), Err(LocationError::Bracket(_))));
        assert!(matches!(place("::1/x"), Ok(Location::Ticket(_))));
    }

    #[test]
    fn all_other_operands_are_local_paths() {
        for local in ["data", "/a:b", "./host:x", "dir/x:y", "-", "", "[1]", "a[1].txt"] {
            assert_eq!(place(local), Ok(Location::Local(local.into())), "{local}");
        }
    }

    #[test]
    fn hosts_with_ssh_options_or_control_characters_are_refused() {
        for bad in [
            "-oProxyCommand=x:/",
            "a b:/x",
            "\u{1b}[2J:/x",
            "-l@host:x",
            "@host:x",
            "a@@host:x",
            "u\"@host:x",
            "$(id)@host:x",
            "`id`@host:x",
            "a;b@host:x",
            "a|b@host:x",
            "a&b@host:x",
            "a\\b@host:x",
            "é@host:x",
        ] {
            let error = place(bad).expect_err(bad).to_string();
            assert!(!error.contains('\u{1b}'), "{error:?}");
        }
        let login = SshDestination { user: Some("me".into()), host: "::1".into() };
        assert_eq!(login.argument(), "me@::1");
    }
}
