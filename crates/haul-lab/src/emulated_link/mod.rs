//! Emulated link between two hosts on this machine: two network namespaces, connected with a given
//! delay and rate.
//!
//! Without a delay, the kernel does all the work: a pair of veth interfaces, and a token bucket if
//! there is a rate. Few kernels are built with netem, which adds delays. With a delay, this program
//! therefore forwards the packets ([`carry`]). Each namespace has a TUN interface. One thread per
//! direction reads packets from one interface and writes them to the other at their due time. The
//! threads need a higher priority than the programs under test: start the process with `chrt -f
//! 20`.

mod carry;
mod shape;

use crate::tool::{ToolError, run};
use carry::Carrier;
use haul_sys::tunnel::Tunnel;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// Interface of the link in both namespaces.
const INTERFACE: &str = "wan0";

/// Maximum transmission unit in bytes, as on Ethernet.
const MTU: &str = "1500";

/// Properties of each direction of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkProfile {
    /// One-way delay: half of the round-trip time.
    pub delay: Duration,
    /// Rate in bits per second; `None` for no limit.
    pub rate: Option<u64>,
    /// Maximum number of queued bytes; packets beyond it are lost.
    pub queue: u64,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first end.
    Near,
    /// The second end.
    Far,
}

/// Error of creating, running or removing a link.
#[derive(Debug, Error)]
pub enum LinkError {
    /// A program that creates or removes the link failed.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The TUN interface could not be created.
    #[error("cannot create a TUN interface in {namespace}: {source}")]
    Tunnel {
        /// Namespace of the interface.
        namespace: String,
        /// Error of the system.
        source: io::Error,
    },
    /// Forwarding of packets failed.
    #[error("cannot forward packets: {0}")]
    Carry(io::Error),
}

/// An active link. Close it; dropping it removes the link as a last resort and can only print an
/// error.
#[derive(Debug)]
pub struct EmulatedLink {
    name: String,
    carrier: Option<Carrier>,
    stands: bool,
}

impl End {
    /// Returns the address of the end.
    pub fn address(self) -> &'static str {
        match self {
            End::Near => "10.77.0.1",
            End::Far => "10.77.0.2",
        }
    }

    fn letter(self) -> char {
        match self {
            End::Near => 'a',
            End::Far => 'b',
        }
    }
}

impl EmulatedLink {
    /// Creates the namespaces `NAME-a` and `NAME-b` and the link between them. A name can be in use
    /// only once at a time.
    ///
    /// # Errors
    /// Returns [`LinkError`] if a step fails; no part of the link remains then.
    pub fn make(name: &str, profile: LinkProfile) -> Result<EmulatedLink, LinkError> {
        let mut link = EmulatedLink { name: name.to_owned(), carrier: None, stands: false };
        // If the namespace exists already, another process owns it, and this link must not remove
        // it.
        run("ip", &["netns", "add", &link.namespace(End::Near)])?;
        link.stands = true;
        run("ip", &["netns", "add", &link.namespace(End::Far)])?;
        for end in [End::Near, End::Far] {
            run("ip", &["-n", &link.namespace(end), "link", "set", "lo", "up"])?;
        }
        if profile.delay.is_zero() {
            link.join_in_kernel(profile)?;
        } else {
            let ends = [link.tunnel(End::Near)?, link.tunnel(End::Far)?];
            link.raise(End::Near)?;
            link.raise(End::Far)?;
            link.carrier = Some(Carrier::start(ends, profile));
        }
        Ok(link)
    }

    /// Returns the name of an end's namespace for `ip netns`.
    pub fn namespace(&self, end: End) -> String {
        format!("{}-{}", self.name, end.letter())
    }

    /// Removes the link. Processes that still run at its ends have no network afterwards.
    ///
    /// # Errors
    /// Returns [`LinkError::Carry`] if forwarding failed before, and [`LinkError::Tool`] if a part
    /// of the link cannot be removed.
    pub fn close(mut self) -> Result<(), LinkError> {
        self.remove()
    }

    fn remove(&mut self) -> Result<(), LinkError> {
        if !std::mem::replace(&mut self.stands, false) {
            return Ok(());
        }
        let carried = self.carrier.take().map_or(Ok(()), Carrier::stop).map_err(LinkError::Carry);
        let removed =
            [End::Near, End::Far].map(|end| Ok(run("ip", &["netns", "delete", &self.namespace(end)])?));
        removed.into_iter().fold(carried, Result::and)
    }

    fn file(&self, end: End) -> PathBuf {
        PathBuf::from("/run/netns").join(self.namespace(end))
    }

    fn tunnel(&self, end: End) -> Result<Tunnel, LinkError> {
        Tunnel::open(Some(&self.file(end)), INTERFACE)
            .map_err(|source| LinkError::Tunnel { namespace: self.namespace(end), source })
    }

    /// Sets the address of an end and brings its interface up.
    fn raise(&self, end: End) -> Result<(), LinkError> {
        let other = if end == End::Near { End::Far } else { End::Near };
        let namespace = self.namespace(end);
        let addresses = ["addr", "add", end.address(), "peer", other.address(), "dev", INTERFACE];
        run("ip", &[&["-n", &namespace][..], &addresses].concat())?;
        let up = ["-n", &namespace, "link", "set", INTERFACE, "mtu", MTU, "txqueuelen", "10000", "up"];
        Ok(run("ip", &up)?)
    }

    fn join_in_kernel(&self, profile: LinkProfile) -> Result<(), LinkError> {
        let [near, far] = [End::Near, End::Far].map(|end| self.namespace(end));
        let pair = ["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", &far];
        run("ip", &[&["-n", &near][..], &pair].concat())?;
        for end in [End::Near, End::Far] {
            self.raise(end)?;
            if let Some(rate) = profile.rate {
                let (rate, limit) = (format!("{rate}bit"), profile.queue.to_string());
                let bucket = ["root", "tbf", "rate", &rate, "burst", "128kb", "limit", &limit];
                let add = ["qdisc", "add", "dev", INTERFACE];
                run("tc", &[&["-n", &self.namespace(end)][..], &add, &bucket].concat())?;
            }
        }
        Ok(())
    }
}

impl Drop for EmulatedLink {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            eprintln!("haul-lab: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::needs::{Need, met_or_skip};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::thread;

    fn name(of: &str) -> String {
        format!("haul-lab-{of}-{}", std::process::id())
    }

    /// Runs `work` in the namespace of an end. A socket stays in the namespace in which it is
    /// created.
    fn at<T: Send>(link: &EmulatedLink, end: End, work: impl FnOnce() -> T + Send) -> T {
        let inside = File::open(link.file(end)).expect("the namespace is there");
        let done = thread::scope(|scope| {
            let there = scope.spawn(|| {
                rustix::thread::move_into_link_name_space(inside.as_fd(), None).expect("root may");
                work()
            });
            there.join()
        });
        done.expect("no panic")
    }

    /// Sends bytes across the link and returns the shortest round-trip time that the kernel
    /// measured.
    fn cross(link: &EmulatedLink) -> Duration {
        let listener = at(link, End::Far, || TcpListener::bind((End::Far.address(), 0)).expect("a port"));
        let address = listener.local_addr().expect("an address");
        let mut near = at(link, End::Near, || TcpStream::connect(address).expect("connects"));
        let (mut far, peer) = listener.accept().expect("accepts");
        assert_eq!(peer.ip().to_string(), End::Near.address());
        let sent: Vec<u8> = (0..300_000_u32).map(|at| (at / 7) as u8).collect();
        let mut got = Vec::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                near.write_all(&sent).expect("writes");
                near.shutdown(Shutdown::Write).expect("ends");
            });
            far.read_to_end(&mut got).expect("reads");
        });
        assert!(got == sent, "{} bytes came of {}", got.len(), sent.len());
        haul_sys::socket::tcp_facts(&near).expect("TCP").shortest_round_trip
    }

    #[test]
    fn link_adds_its_delay_and_keeps_the_data() {
        if !met_or_skip(&[Need::Links]) {
            return;
        }
        let profile =
            LinkProfile { delay: Duration::from_millis(20), rate: Some(200_000_000), queue: 1 << 20 };
        let link = EmulatedLink::make(&name("far"), profile).expect("a link");
        let round_trip = cross(&link);
        assert!(round_trip >= 2 * profile.delay, "{round_trip:?}");
        let namespace = link.file(End::Far);
        link.close().expect("closes");
        assert!(!namespace.exists());
    }

    #[test]
    fn link_without_delay_needs_no_carrier() {
        if !met_or_skip(&[Need::Links, Need::Program("tc")]) {
            return;
        }
        let profile = LinkProfile { delay: Duration::ZERO, rate: Some(1_000_000_000), queue: 4 << 20 };
        let link = EmulatedLink::make(&name("near"), profile).expect("a link");
        assert!(link.carrier.is_none());
        cross(&link);
        assert!(EmulatedLink::make(&name("near"), profile).is_err(), "of one name there is one at a time");
        link.close().expect("closes");
    }
}
