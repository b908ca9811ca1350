//! Addresses under which clients reach this host.

use super::resolved::AdvertisedHost;
use haul_net::Address;
use haul_net::address::Host;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// Documentation addresses (RFC 5737, RFC 3849). They find the local address of the route to other
/// hosts; nothing is sent to them.
const OUT_THERE: [(&str, &str); 2] = [("0.0.0.0:0", "192.0.2.1:9"), ("[::]:0", "[2001:db8::1]:9")];

/// Maximum number of addresses in a ticket.
const ADDRESSES_MAX: usize = 8;

/// Parses a host with or without a port. The error is a message.
pub(super) fn named(text: &str) -> Result<AdvertisedHost, String> {
    if let Ok(Address { host, port }) = text.parse() {
        return Ok(AdvertisedHost { host, port: Some(port) });
    }
    let host = Host::parse(text).map_err(|error| format!("--address: {error}"))?;
    Ok(AdvertisedHost { host, port: None })
}

/// Returns the addresses for tickets: the given ones, else the addresses that are listened on. For
/// "all addresses" these are the host's name and its local addresses with a route to other hosts.
pub(super) fn of_tickets(typed: &[AdvertisedHost], local: &[SocketAddr]) -> Vec<Address> {
    let port = local.first().map_or(0, SocketAddr::port);
    if !typed.is_empty() {
        let said =
            typed.iter().map(|named| Address { host: named.host.clone(), port: named.port.unwrap_or(port) });
        return said.collect();
    }
    let mut found: Vec<Address> = Vec::new();
    for at in local {
        if at.ip().is_unspecified() {
            for ip in own_addresses() {
                add(&mut found, Host::Ip(ip), at.port());
            }
            let name = rustix::system::uname();
            if let Ok(host) = Host::parse(&name.nodename().to_string_lossy()) {
                add(&mut found, host, at.port());
            }
        } else {
            add(&mut found, Address::from(*at).host, at.port());
        }
    }
    found.truncate(ADDRESSES_MAX);
    found
}

fn add(found: &mut Vec<Address>, host: Host, port: u16) {
    let address = Address { host, port };
    if !found.contains(&address) {
        found.push(address);
    }
}

/// Returns the local addresses that this host would use to reach other hosts.
fn own_addresses() -> Vec<IpAddr> {
    let own = |(from, to): (&str, &str)| {
        let socket = UdpSocket::bind(from).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|address| address.ip())
    };
    OUT_THERE.into_iter().filter_map(own).filter(|ip| !ip.is_unspecified()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_hold_the_given_addresses_with_the_bound_port() {
        let local = ["127.0.0.1:4000".parse().expect("an address")];
        let typed = ["dtn.example.org", "[2001:db8::7]:9", "10.0.0.7"].map(|text| named(text).expect(text));
        let told: Vec<String> = of_tickets(&typed, &local).iter().map(ToString::to_string).collect();
        assert_eq!(told, ["dtn.example.org:4000", "[2001:db8::7]:9", "10.0.0.7:4000"]);
        let told: Vec<String> = of_tickets(&[], &local).iter().map(ToString::to_string).collect();
        assert_eq!(told, ["127.0.0.1:4000"]);
        assert!(named("not a host").is_err());
    }

    #[test]
    fn the_wildcard_address_becomes_interface_addresses() {
        let told = of_tickets(&[], &["0.0.0.0:4000".parse().expect("an address")]);
        assert!(
            told.iter().all(|address| address.port == 4000 && address.to_string() != "0.0.0.0:4000"),
            "{told:?}"
        );
    }
}
