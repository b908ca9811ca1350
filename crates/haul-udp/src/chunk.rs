//! Search for the largest datagram that passes (RFC 8899, "Packetization Layer Path MTU
//! Discovery").
//!
//! Probes of all usual sizes leave at once; then a binary search between the largest size that
//! passed and the smallest that did not.

use crate::time::{SECOND, Time};

/// Size of UDP payload that every path is assumed to carry (RFC 9000, section 14).
pub const DATAGRAM_MIN: usize = 1200;
/// Maximum size of UDP payload over IPv4 (RFC 768).
pub const DATAGRAM_MAX: usize = 65_507;

/// UDP payload of usual maximum transmission units: tunnels, 1,500 with IPv6 and IPv4, and 9,000.
const USUAL: [usize; 7] = [1280, 1372, 1452, 1472, 4052, 8952, 8972];
/// Attempts for each size.
const TRIES: u8 = 3;
/// The search ends if the range is not larger than this.
const NEAR: usize = 16;
/// Time until a finished search starts again.
const AGAIN: u64 = 600 * SECOND;
/// Number of large datagrams lost in a row, while smaller ones arrive or none arrives, after which
/// the path is regarded as a black hole for them.
const HOLE: u64 = 24;

#[derive(Clone, Debug)]
pub(crate) struct ChunkSearch {
    /// Datagram size in use, in bytes of UDP payload.
    pub(crate) size: usize,
    /// Largest size that passed.
    pub(crate) works: usize,
    /// The size is set by the user.
    fixed: Option<usize>,
    max: usize,
    /// Smallest size that did not pass.
    fails: usize,
    /// Sizes to probe, with attempts left.
    todo: Vec<(usize, u8)>,
    /// Sizes of probes in flight, with attempts left.
    flying: Vec<(usize, u8)>,
    next_search: Time,
    /// Large datagrams lost since one arrived.
    lost: u64,
    /// Time of the first of them.
    lost_since: Time,
    /// True while the path is searched for a size that works in place of the fixed one.
    is_suspect: bool,
}

impl ChunkSearch {
    pub(crate) fn fixed(size: usize, now: Time) -> Self {
        Self { fixed: Some(size), size, ..Self::found(DATAGRAM_MIN, now) }
    }

    pub(crate) fn found(max: usize, now: Time) -> Self {
        let max = max.clamp(DATAGRAM_MIN, DATAGRAM_MAX);
        let mut search = Self {
            size: DATAGRAM_MIN,
            works: 0,
            fixed: None,
            max,
            fails: max + 1,
            todo: Vec::new(),
            flying: Vec::new(),
            next_search: now + AGAIN,
            lost: 0,
            lost_since: now,
            is_suspect: false,
        };
        search.begin(DATAGRAM_MIN);
        search
    }

    fn begin(&mut self, from: usize) {
        self.fails = self.max + 1;
        self.todo =
            USUAL.iter().filter(|size| **size > from && **size < self.max).map(|s| (*s, TRIES)).collect();
        if self.max > from {
            self.todo.push((self.max, TRIES));
        }
    }

    /// Returns the size of the next probe.
    pub(crate) fn next_probe(&self) -> Option<usize> {
        self.todo.first().map(|(size, _)| *size)
    }

    /// Records that the probe of [`ChunkSearch::next_probe`] left.
    pub(crate) fn probe_sent(&mut self) {
        let (size, tries) = self.todo.remove(0);
        self.flying.push((size, tries - 1));
    }

    /// Removes the next probe if it is useless by now.
    fn tidy(&mut self) {
        let (works, fails) = (self.works, self.fails);
        self.todo.retain(|(size, _)| *size > works && *size < fails);
    }

    /// Records the arrival of a datagram.
    pub(crate) fn arrived(&mut self, now: Time, size: usize, is_probe: bool) {
        if is_probe {
            self.flying.retain(|(flying, _)| *flying != size);
        }
        if size > DATAGRAM_MIN && size >= self.size / 2 {
            self.lost = 0;
        }
        self.works = self.works.max(size);
        if self.fixed.is_some_and(|fixed| size >= fixed) {
            // The path was down, or lost much, and carries this size again.
            self.end_suspicion();
        }
        if self.fixed.is_none() {
            self.size = self.size.max(self.works.min(self.max));
        }
        self.refine(now);
    }

    /// Records the loss of a probe.
    pub(crate) fn probe_lost(&mut self, now: Time, size: usize) {
        if let Some(at) = self.flying.iter().position(|(flying, _)| *flying == size) {
            let (size, tries) = self.flying.remove(at);
            if tries > 0 {
                self.todo.push((size, tries));
            } else {
                self.fails = self.fails.min(size);
            }
        }
        self.refine(now);
    }

    fn refine(&mut self, now: Time) {
        self.tidy();
        let low = if self.fixed.is_some() { self.works } else { self.works.max(self.size) };
        if self.todo.is_empty() && self.flying.is_empty() {
            self.next_search = now + AGAIN;
            if self.fails <= self.max && self.fails > low + NEAR {
                self.todo.push((low + (self.fails - low) / 2, TRIES));
            }
        }
    }

    /// Ends the search for a size that works in place of the fixed one.
    fn end_suspicion(&mut self) {
        self.is_suspect = false;
        self.fails = self.max + 1;
        self.todo.clear();
        self.flying.clear();
    }

    /// Records the loss of datagrams larger than [`DATAGRAM_MIN`]. Returns an error with the
    /// largest size that works if datagrams of a fixed size do not pass: 24 in a row are lost, and
    /// a search that began after such a loss has found only smaller sizes.
    pub(crate) fn large_lost(&mut self, now: Time, count: u64, rtt: u64) -> Result<(), usize> {
        if count == 0 || self.size <= DATAGRAM_MIN {
            return Ok(());
        }
        if self.lost == 0 {
            self.lost_since = now;
        }
        self.lost += count;
        let is_hole = self.lost >= HOLE && now - self.lost_since > 2 * rtt;
        if !is_hole {
            return Ok(());
        }
        match self.fixed {
            None => self.fall_back(now),
            Some(fixed) if !self.is_suspect => {
                // Find what works, to name it. An outage of the path ends the same way as a black
                // hole begins; only what arrives after it tells them apart.
                self.is_suspect = true;
                self.max = fixed - 1;
                self.works = 0;
                self.lost = 0;
                self.begin(DATAGRAM_MIN);
            }
            Some(_) if self.todo.is_empty() && self.flying.is_empty() && self.works > 0 => {
                return Err(self.works);
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Uses the smallest size again after a timeout, and searches again.
    pub(crate) fn fall_back(&mut self, now: Time) {
        if self.fixed.is_none() && self.size > DATAGRAM_MIN {
            self.size = DATAGRAM_MIN;
            self.works = 0;
            self.lost = 0;
            self.flying.clear();
            self.begin(DATAGRAM_MIN);
            self.next_search = now + AGAIN;
        }
    }

    /// Starts a new search if the last is old.
    pub(crate) fn on_time(&mut self, now: Time) {
        if now >= self.next_search && self.fixed.is_none() {
            self.next_search = now + AGAIN;
            self.begin(self.size);
        }
    }
}
