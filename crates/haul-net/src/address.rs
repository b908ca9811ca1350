//! Address of a server: a host, by IP address or name, and a port.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Maximum size in bytes of a host name (RFC 1035 section 2.3.4).
pub const NAME_BYTES_MAX: usize = 253;

/// A host and a port: `10.0.0.7:7433`, `[fe80::1]:7433`, `dtn.example.org:7433`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The host.
    pub host: Host,
    /// The port.
    pub port: u16,
}

/// A host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// IP address.
    Ip(IpAddr),
    /// Host name: letters, digits, dots, hyphens and underscores, at most [`NAME_BYTES_MAX`] bytes.
    Name(String),
}

impl Host {
    /// Parses a host name or an IP address.
    ///
    /// # Errors
    /// Returns [`BadAddress`] if the text is neither.
    pub fn parse(text: &str) -> Result<Self, BadAddress> {
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        if let Ok(ip) = bare.unwrap_or(text).parse::<IpAddr>() {
            return Ok(Self::Ip(ip));
        }
        let is_name_byte = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_');
        // Programs that receive a name with a leading hyphen would treat it as an option.
        let is_name = !text.is_empty()
            && text.len() <= NAME_BYTES_MAX
            && !text.starts_with(['-', '.'])
            && text.bytes().all(is_name_byte);
        if is_name { Ok(Self::Name(text.to_owned())) } else { Err(BadAddress(text.escape_debug().collect())) }
    }
}

impl Address {
    /// Returns the current addresses of the host, in the order of the resolver.
    ///
    /// # Errors
    /// Returns the error of the resolver.
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

/// Converts an IPv4-mapped IPv6 address to IPv4.
pub(crate) fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(six) => six.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// Returns the address that identifies a peer: an IPv4 address, or a 64-bit IPv6 network, all of
/// which can belong to one host.
pub fn peer_group(ip: IpAddr) -> IpAddr {
    match plain(ip) {
        IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() >> 64 << 64)),
        four @ IpAddr::V4(_) => four,
    }
}

/// Returns the network that identifies a site: a 24-bit IPv4 network or a 48-bit IPv6 network, the
/// usual allocation of one customer.
pub(crate) fn peer_network(ip: IpAddr) -> IpAddr {
    match plain(ip) {
        IpAddr::V6(six) => IpAddr::V6(Ipv6Addr::from_bits(six.to_bits() >> 80 << 80)),
        IpAddr::V4(four) => IpAddr::V4(Ipv4Addr::from_bits(four.to_bits() >> 8 << 8)),
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

/// Error for a text that is not a host and a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a host and a port, such as host.example:7433 or [::1]:7433")]
pub struct BadAddress(String);

impl FromStr for Address {
    type Err = BadAddress;

    fn from_str(text: &str) -> Result<Self, BadAddress> {
        let bad = || BadAddress(text.escape_debug().collect());
        let (host, port) = text.rsplit_once(':').ok_or_else(bad)?;
        // Without brackets, the start of the port is ambiguous after an IPv6 address.
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
    fn addresses_round_trip() {
        for text in ["10.0.0.7:7433", "[fe80::1]:1", "dtn-1.example.org:65535", "host:0"] {
            assert_eq!(text.parse::<Address>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn malformed_addresses_are_refused() {
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
        fn any_text_round_trips_as_an_address_or_is_refused(
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
    fn peers_are_grouped_by_ipv4_host_or_ipv6_prefix() {
        let group = |text: &str| peer_group(text.parse().expect(text)).to_string();
        assert_eq!(group("::ffff:10.0.0.7"), "10.0.0.7");
        assert_eq!(group("10.0.0.7"), "10.0.0.7");
        assert_eq!(group("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        let network = |text: &str| peer_network(text.parse().expect(text)).to_string();
        assert_eq!(network("::ffff:10.0.0.7"), "10.0.0.0");
        assert_eq!(network("10.1.2.3"), "10.1.2.0");
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1::");
    }
}
