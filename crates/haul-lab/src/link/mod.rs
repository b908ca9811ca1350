//! A link between two hosts of this machine: two network namespaces, joined by a way of a given delay and rate.
//!
//! Without a delay the kernel does all of it (a pair of veth interfaces, and a token bucket where there is a rate). Few kernels
//! are built with the delay of netem, so that with one this program carries the packets ([`carry`]): each namespace has a TUN
//! interface, a thread a direction takes what comes out of one and puts it into the other when its time has come. It wants
//! to run ahead of what it carries for: start it by `chrt -f 20`.

mod carry;
mod shape;

use crate::tool::{ToolError, run};
use carry::Carrier;
use haul_sys::tunnel::Tunnel;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

/// The interface of the link, in either namespace.
const INTERFACE: &str = "wan0";

/// Bytes of one packet, as on Ethernet.
const MTU: &str = "1500";

/// What a link is like, in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// How long a byte is under way: half of a round trip.
    pub delay: Duration,
    /// Bits a second that pass; `None` for as many as this machine carries.
    pub rate: Option<u64>,
    /// Bytes that wait at its beginning at most; what comes more is lost.
    pub queue: u64,
}

/// One end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The first.
    Near,
    /// The second.
    Far,
}

/// Why there is no link.
#[derive(Debug, Error)]
pub enum LinkError {
    /// A program that makes or removes it.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// The interface that this program carries for could not be made.
    #[error("no TUN interface in {namespace}: {source}")]
    Tunnel {
        /// In which namespace.
        namespace: String,
        /// What the system said.
        source: io::Error,
    },
    /// The packets could not be carried any more.
    #[error("the link broke: {0}")]
    Carry(io::Error),
}

/// A link that stands. Close it; dropping it takes it down as a last resort and can only print what went wrong.
#[derive(Debug)]
pub struct Link {
    name: String,
    carrier: Option<Carrier>,
    stands: bool,
}

impl End {
    /// Its address.
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

impl Link {
    /// Makes the namespaces `NAME-a` and `NAME-b` and the way between them. Of one name there is one at a time.
    ///
    /// # Errors
    /// [`LinkError`]; nothing of it is left then.
    pub fn make(name: &str, way: Way) -> Result<Link, LinkError> {
        let mut link = Link { name: name.to_owned(), carrier: None, stands: false };
        // Where this name is taken it is somebody else's to take down.
        run("ip", &["netns", "add", &link.namespace(End::Near)])?;
        link.stands = true;
        run("ip", &["netns", "add", &link.namespace(End::Far)])?;
        for end in [End::Near, End::Far] {
            run("ip", &["-n", &link.namespace(end), "link", "set", "lo", "up"])?;
        }
        if way.delay.is_zero() {
            link.join_in_kernel(way)?;
        } else {
            let ends = [link.tunnel(End::Near)?, link.tunnel(End::Far)?];
            link.raise(End::Near)?;
            link.raise(End::Far)?;
            link.carrier = Some(Carrier::start(ends, way));
        }
        Ok(link)
    }

    /// The name of an end's namespace, as `ip netns` knows it.
    pub fn namespace(&self, end: End) -> String {
        format!("{}-{}", self.name, end.letter())
    }

    /// Takes it down; whatever still runs at its ends has no network any more.
    ///
    /// # Errors
    /// [`LinkError::Carry`] if it broke before, [`LinkError::Tool`] if something of it can't be removed.
    pub fn close(mut self) -> Result<(), LinkError> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<(), LinkError> {
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

    /// Gives an end its address and sets it going.
    fn raise(&self, end: End) -> Result<(), LinkError> {
        let other = if end == End::Near { End::Far } else { End::Near };
        let namespace = self.namespace(end);
        let addresses = ["addr", "add", end.address(), "peer", other.address(), "dev", INTERFACE];
        run("ip", &[&["-n", &namespace][..], &addresses].concat())?;
        let up = ["-n", &namespace, "link", "set", INTERFACE, "mtu", MTU, "txqueuelen", "10000", "up"];
        Ok(run("ip", &up)?)
    }

    fn join_in_kernel(&self, way: Way) -> Result<(), LinkError> {
        let [near, far] = [End::Near, End::Far].map(|end| self.namespace(end));
        let pair = ["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", &far];
        run("ip", &[&["-n", &near][..], &pair].concat())?;
        for end in [End::Near, End::Far] {
            self.raise(end)?;
            if let Some(rate) = way.rate {
                let (rate, limit) = (format!("{rate}bit"), way.queue.to_string());
                let bucket = ["root", "tbf", "rate", &rate, "burst", "128kb", "limit", &limit];
                let add = ["qdisc", "add", "dev", INTERFACE];
                run("tc", &[&["-n", &self.namespace(end)][..], &add, &bucket].concat())?;
            }
        }
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
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

    /// Does something at an end: sockets stay where they are made.
    fn at<T: Send>(link: &Link, end: End, work: impl FnOnce() -> T + Send) -> T {
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

    /// Sends bytes across and gives the shortest round trip that the kernel saw.
    fn cross(link: &Link) -> Duration {
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
    fn what_crosses_a_link_takes_its_time_and_is_whole() {
        if !met_or_skip(&[Need::Links]) {
            return;
        }
        let way = Way { delay: Duration::from_millis(20), rate: Some(200_000_000), queue: 1 << 20 };
        let link = Link::make(&name("far"), way).expect("a link");
        let round_trip = cross(&link);
        assert!(round_trip >= 2 * way.delay, "{round_trip:?}");
        let namespace = link.file(End::Far);
        link.close().expect("closes");
        assert!(!namespace.exists());
    }

    #[test]
    fn a_link_without_delay_is_the_kernels() {
        if !met_or_skip(&[Need::Links, Need::Program("tc")]) {
            return;
        }
        let way = Way { delay: Duration::ZERO, rate: Some(1_000_000_000), queue: 4 << 20 };
        let link = Link::make(&name("near"), way).expect("a link");
        assert!(link.carrier.is_none());
        cross(&link);
        assert!(Link::make(&name("near"), way).is_err(), "of one name there is one at a time");
        link.close().expect("closes");
    }
}
