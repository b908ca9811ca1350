//! Places for connections. One peer can take a part of them only, so that others still connect.

use haul_net::address::peer_group;
use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Places of one kind.
pub(crate) struct Places {
    max: usize,
    per_peer_max: usize,
    /// Number of places of each peer that has one.
    taken: Mutex<HashMap<IpAddr, usize>>,
}

/// A place that is taken until this value is dropped.
pub(crate) struct Place {
    places: Arc<Places>,
    peer: IpAddr,
}

impl Places {
    pub(crate) fn new(max: usize, per_peer_max: usize) -> Arc<Places> {
        Arc::new(Places { max, per_peer_max, taken: Mutex::default() })
    }

    /// Takes a place, unless all of them or those of `peer` are taken.
    pub(crate) fn take(self: &Arc<Self>, peer: IpAddr) -> Option<Place> {
        let peer = peer_group(peer);
        let mut taken = self.lock();
        let of_peer = taken.get(&peer).copied().unwrap_or_default();
        if of_peer >= self.per_peer_max || taken.values().sum::<usize>() >= self.max {
            return None;
        }
        taken.insert(peer, of_peer + 1);
        Some(Place { places: Arc::clone(self), peer })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.taken.lock()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.places.lock();
        if let Some(count) = taken.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_takes_a_part_of_the_places() {
        let places = Places::new(3, 2);
        let take = |peer: &str| places.take(peer.parse().expect("an address"));
        let first = take("192.0.2.1");
        let second = take("::ffff:192.0.2.1");
        assert!(first.is_some() && second.is_some() && take("192.0.2.1").is_none());
        let other = take("2001:db8::1");
        assert!(other.is_some() && take("192.0.2.2").is_none(), "all are taken");
        drop((first, second));
        // All addresses of a network of IPv6 are one peer.
        let more = take("2001:db8::2");
        assert!(more.is_some() && take("2001:db8::3").is_none());
        drop((other, more));
        assert!(places.lock().is_empty());
    }
}
