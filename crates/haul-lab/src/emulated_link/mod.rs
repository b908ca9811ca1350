//! Emulated link between two hosts on this machine: two network namespaces, connected under given
//! [`Conditions`] for each direction.
//!
//! If only a rate and a queue are given, the kernel does all the work: a pair of veth interfaces,
//! and a token bucket if there is a rate. Few kernels are built with netem, which does more. For
//! all other conditions, this program therefore forwards the packets ([`carry`]). Each namespace
//! has a TUN interface. One thread per direction reads packets from one interface and writes them
//! to the other at their due time. Root's threads have priority over the programs under test.
//!
//! The decisions about packets follow from a seed and use neither the packets nor a clock
//! ([`channel`]).

mod bottleneck;
mod carry;
mod channel;
mod codel;
mod conditions;
mod counters;
mod cross;
mod line;
mod loss;
mod packet;
#[cfg(test)]
mod tests;

use crate::tool::{ToolError, run};
use carry::Carrier;
use haul_sys::tunnel::Tunnel;
use std::io;
use std::path::PathBuf;
use std::time::Duration;
use thiserror::Error;

pub use conditions::{BurstLoss, Conditions, CrossTraffic, Discipline, Probability, ProbabilityError};
pub use counters::Counters;

/// Interface of the link in both namespaces.
const INTERFACE: &str = "wan0";

/// Properties of a link that has only a delay and a rate, the same in both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkProfile {
    /// One-way delay: half of the round-trip time.
    pub delay: Duration,
    /// Rate in bits per second; `None` for no limit.
    pub rate: Option<u64>,
    /// Maximum number of queued bytes; packets beyond it are lost.
    pub queue: u64,
}

/// Properties of a link and of its two hosts.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkSettings {
    /// Conditions of the packets that the near end sends.
    pub near: Conditions,
    /// Conditions of the packets that the far end sends.
    pub far: Conditions,
    /// Seed of all losses, delays and other random events.
    pub seed: u64,
    /// MTU in bytes of the interfaces of the link, from 68 to 65,535.
    pub interface_mtu: u32,
    /// Congestion control of TCP between the ends; `None` for the default of the kernel.
    pub congestion: Option<String>,
    /// Maximum size in bytes of the send and receive buffers of TCP, if not the kernel's.
    pub tcp_buffers: Option<u64>,
    /// Forwards the packets in this process even if the kernel could, so that the conditions can
    /// change later.
    pub is_changeable: bool,
}

impl Default for LinkSettings {
    fn default() -> Self {
        Self {
            near: Conditions::default(),
            far: Conditions::default(),
            seed: 1,
            interface_mtu: 1500,
            congestion: None,
            tcp_buffers: None,
            is_changeable: false,
        }
    }
}

impl From<LinkProfile> for LinkSettings {
    fn from(LinkProfile { delay, rate, queue }: LinkProfile) -> Self {
        Conditions { delay, rate, queue, ..Conditions::default() }.into()
    }
}

/// The same conditions in both directions.
impl From<Conditions> for LinkSettings {
    fn from(conditions: Conditions) -> Self {
        Self { near: conditions.clone(), far: conditions, ..Self::default() }
    }
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
    /// The kernel forwards the packets of the link.
    #[error("cannot change or count what the kernel forwards; create the link as changeable")]
    InKernel,
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
    /// Both ends, the near one first.
    pub const BOTH: [End; 2] = [End::Near, End::Far];

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
    pub fn make(name: &str, settings: impl Into<LinkSettings>) -> Result<EmulatedLink, LinkError> {
        let settings = settings.into();
        let mut link = EmulatedLink { name: name.to_owned(), carrier: None, stands: false };
        // If the namespace exists already, another process owns it, and this link must not remove
        // it.
        run("ip", &["netns", "add", &link.namespace(End::Near)])?;
        link.stands = true;
        run("ip", &["netns", "add", &link.namespace(End::Far)])?;
        for end in End::BOTH {
            run("ip", &["-n", &link.namespace(end), "link", "set", "lo", "up"])?;
            if let Some(bytes) = settings.tcp_buffers {
                link.set_tcp_buffers(end, bytes)?;
            }
        }
        if !settings.is_changeable && settings.near.are_plain() && settings.far.are_plain() {
            link.join_in_kernel(&settings)?;
        } else {
            let ends = [link.tunnel(End::Near)?, link.tunnel(End::Far)?];
            link.raise(End::Near, &settings)?;
            link.raise(End::Far, &settings)?;
            link.carrier = Some(Carrier::start(ends, [settings.near, settings.far], settings.seed));
        }
        Ok(link)
    }

    /// Changes the conditions of the packets that an end sends from now on.
    ///
    /// # Errors
    /// Returns [`LinkError::InKernel`] if this process does not forward the packets.
    pub fn change(&self, from: End, change: impl FnOnce(&mut Conditions)) -> Result<(), LinkError> {
        let carrier = self.carrier.as_ref().ok_or(LinkError::InKernel)?;
        let mut conditions = carrier.conditions(from as usize);
        change(&mut conditions);
        carrier.change(from as usize, conditions);
        Ok(())
    }

    /// Returns the counters of the packets that an end has sent.
    ///
    /// # Errors
    /// Returns [`LinkError::InKernel`] if this process does not forward the packets.
    pub fn counters(&self, from: End) -> Result<Counters, LinkError> {
        Ok(self.carrier.as_ref().ok_or(LinkError::InKernel)?.counters(from as usize))
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
        let removed = End::BOTH.map(|end| Ok(run("ip", &["netns", "delete", &self.namespace(end)])?));
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
    fn raise(&self, end: End, settings: &LinkSettings) -> Result<(), LinkError> {
        let other = if end == End::Near { End::Far } else { End::Near };
        let namespace = self.namespace(end);
        let addresses = ["addr", "add", end.address(), "peer", other.address(), "dev", INTERFACE];
        run("ip", &[&["-n", &namespace][..], &addresses].concat())?;
        // Without an IPv6 address of its own, the kernel sends no packets of its own.
        run("ip", &["-n", &namespace, "link", "set", INTERFACE, "addrgenmode", "none"])?;
        let mtu = settings.interface_mtu.to_string();
        let up = ["-n", &namespace, "link", "set", INTERFACE, "mtu", &mtu, "txqueuelen", "10000", "up"];
        run("ip", &up)?;
        if let Some(congestion) = &settings.congestion {
            let route = ["route", "change", other.address(), "dev", INTERFACE, "congctl", congestion];
            run("ip", &[&["-n", &namespace][..], &route].concat())?;
        }
        Ok(())
    }

    fn set_tcp_buffers(&self, end: End, bytes: u64) -> Result<(), LinkError> {
        let namespace = self.namespace(end);
        for (name, least) in [("tcp_rmem", 131_072), ("tcp_wmem", 65_536)] {
            let sizes = format!("net.ipv4.{name}=4096 {} {bytes}", bytes.min(least));
            run("ip", &["netns", "exec", &namespace, "sysctl", "-qw", &sizes])?;
        }
        Ok(())
    }

    fn join_in_kernel(&self, settings: &LinkSettings) -> Result<(), LinkError> {
        let [near, far] = End::BOTH.map(|end| self.namespace(end));
        let pair = ["link", "add", INTERFACE, "type", "veth", "peer", "name", INTERFACE, "netns", &far];
        run("ip", &[&["-n", &near][..], &pair].concat())?;
        for (end, conditions) in [(End::Near, &settings.near), (End::Far, &settings.far)] {
            self.raise(end, settings)?;
            if let Some(rate) = conditions.rate {
                let (rate, limit) = (format!("{rate}bit"), conditions.queue.to_string());
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
