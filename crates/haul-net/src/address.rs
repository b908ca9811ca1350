//! Where a server can be reached: a host, by number or name, and a port.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Bytes of a host's name at most (RFC 1035 section 2.3.4).
pub const NAME_BYTES_MAX: usize = 253;

/// A host and a port: `10.0.0.7:7433`, `[fe80::1]:7433`, `dtn.example.org:7433`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// Who.
    pub host: Host,
    /// Which of its ports.
    pub port: u16,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// By number.
    Ip(IpAddr),
    /// By a name: letters, digits, dots, hyphens and underscores, at most [`NAME_BYTES_MAX`].
    Name(String),
}

impl Host {
    /// The host of this name or number.
    ///
    /// # Errors
    /// [`BadAddress`] where it is neither.
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
            return Ok(Self::Ip(ip));
        }
        let is_name_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        // A name that began with a hyphen would be an option to whatever it is handed to.
        let is_name = !text.is_empty()
            && text.len() <= NAME_BYTES_MAX
            && !text.starts_with(['-', '.'])
            && text.bytes().all(is_name_byte);
        if is_name { Ok(Self::Name(text.to_owned())) } else { Err(BadAddress(text.escape_debug().collect())) }
    }
}

impl Address {
    /// The addresses that the host has now, in the resolver's order.
    ///
    /// # Errors
    /// What the resolver reports.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match &self.host {
            Host::Ip(ip) => Ok(vec![SocketAddr::new(*ip, self.port)]),
            Host::Name(name) => Ok((name.as_str(), self.port).to_socket_addrs()?.collect()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self { host: Host::Ip(plain(address.ip())), port: address.port() }
    }
}

/// An address of IPv4 that came in the clothes of IPv6, without them.
pub(crate) fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// Who is counted as one peer: an address of IPv4, or a network of 64 bits of IPv6, all of which one host may hold.
pub(crate) fn peer_group(ip: IpAddr) -> IpAddr {
    match plain(ip) {
        IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() >> 64 << 64)),
        four @ IpAddr::V4(_) => four,
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

/// This is no host and port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a host and a port, as host.example:7433 or [::1]:7433")]
pub struct BadAddress(String);

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.escape_debug().collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        // Without brackets an address of IPv6 leaves open where its port begins.
        if host.contains(':') && !host.starts_with('[') {
            return Err(bad());
        }
        Ok(Self { host: Host::parse(host).map_err(|_| bad())?, port: port.parse().map_err(|_| bad())? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn addresses_are_written_as_they_are_read() {
        for text in ["10.0.0.7:7433", "[fe80::1]:1", "dtn-1.example.org:65535", "host:0"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for text in
            ["", ":", "host", "host:", "host:65536", "::1:80", "-oProxyCommand=x:1", "a b:1", "h\u{1b}[2J:1"]
        {
            let error = text.parse::<Address>().expect_err(text).to_string();
            assert!(!error.contains('\u{1b}'), "control characters are escaped: {error:?}");
        }
        assert!(Host::parse(&"a".repeat(254)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_an_address_that_comes_back_or_refused(
            text in prop_oneof!["\\PC{0,40}", "[\\[\\]a-z0-9.:_-]{0,60}", "[a-z0-9.-]{1,20}:[0-9]{1,6}"],
        ) {
            match text.parse::<Address>() {
                Ok(address) => {
                    let written = address.to_string();
                    prop_assert!(!written.starts_with('-') && written.bytes().all(|byte| byte.is_ascii_graphic()));
                    prop_assert_eq!(written.parse::<Address>(), Ok(address));
                }
                Err(error) => prop_assert!(!error.to_string().contains(char::is_control)),
            }
        }
    }

    #[test]
    fn peers_are_counted_by_what_one_host_may_hold() {
        let group = |text: &str| peer_group(text.parse().expect(text)).to_string();
        assert_eq!(group("::ffff:10.0.0.7"), "10.0.0.7");
        assert_eq!(group("10.0.0.7"), "10.0.0.7");
        assert_eq!(group("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
    }
}
