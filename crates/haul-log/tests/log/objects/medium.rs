//! Simulated folder that loses unsynced data.

use haul_log::objects::Order;
use std::collections::{BTreeMap, BTreeSet};

/// Durable files, and the orders since the last sync.
#[derive(Clone, Debug, Default)]
pub(super) struct Medium {
    pub(super) files: BTreeMap<String, Vec<u8>>,
    pending: Vec<Order>,
}

/// Seeded random numbers (xorshift64*).
#[derive(Clone, Debug)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed | 1)
    }

    /// Returns a number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end.max(1)
    }
}

impl Medium {
    /// Executes orders and makes all of them durable.
    pub(super) fn perform(&mut self, orders: &[Order]) {
        orders.iter().for_each(|order| self.order(order));
        self.order(&Order::Sync);
    }

    /// Executes one order, which becomes durable with the next sync.
    pub(super) fn order(&mut self, order: &Order) {
        if *order == Order::Sync {
            let pending = std::mem::take(&mut self.pending);
            pending.iter().for_each(|order| self.keep(order, 0..usize::MAX));
        } else {
            self.pending.push(order.clone());
        }
    }

    /// Returns a random state after a power loss: any of the pending orders are kept, and writes
    /// are kept whole, from their start or to their end only.
    pub(super) fn crash(&self, dice: &mut Dice) -> Medium {
        let mut left = Medium { files: self.files.clone(), pending: Vec::new() };
        for order in &self.pending {
            let len = if let Order::Write { bytes, .. } = order { bytes.len() } else { 0 };
            match dice.below(5) {
                0 => left.tear_draft(order, dice),
                1 if len > 0 => left.keep(order, 0..dice.below(len)),
                2 if len > 0 => left.keep(order, dice.below(len)..len),
                _ => left.keep(order, 0..usize::MAX),
            }
        }
        left
    }

    /// Returns every possible state after a power loss. Any of the pending orders are kept. Of a
    /// write, the first or the last half may be kept alone. Of the draft of a replacement that is
    /// not kept, half or nothing remains.
    pub(super) fn every_crash(&self) -> Vec<Medium> {
        let mut all = vec![Medium { files: self.files.clone(), pending: Vec::new() }];
        for order in &self.pending {
            let len = if let Order::Write { bytes, .. } = order { bytes.len() } else { 0 };
            let mut parts = vec![(0, usize::MAX)];
            if len > 1 {
                parts.extend([(0, len / 2), (len / 2, len)]);
            }
            let kept = all.iter().flat_map(|left| {
                parts.iter().map(move |(from, to)| {
                    let mut left = left.clone();
                    left.keep(order, *from..*to);
                    left
                })
            });
            let mut more: Vec<Medium> = kept.collect();
            if let Order::Replace { name, parts } = order {
                let bytes = whole(parts);
                let torn = all.iter().cloned().map(|mut left| {
                    left.files.insert(format!("{name}.new"), bytes[..bytes.len() / 2].to_vec());
                    left
                });
                more.extend(torn);
            }
            all.append(&mut more);
        }
        all
    }

    /// Returns the names that exist as long as there is no power loss.
    pub(super) fn names(&self) -> BTreeSet<String> {
        let mut now = Medium { files: self.files.clone(), pending: Vec::new() };
        self.pending.iter().for_each(|order| now.keep(order, 0..usize::MAX));
        now.files.into_keys().collect()
    }

    /// Returns the total length of all files.
    pub(super) fn bytes(&self) -> usize {
        self.files.values().map(Vec::len).sum()
    }

    /// Leaves part of the draft of a replacement that did not happen.
    fn tear_draft(&mut self, order: &Order, dice: &mut Dice) {
        if let Order::Replace { name, parts } = order {
            let bytes = whole(parts);
            self.files.insert(format!("{name}.new"), bytes[..dice.below(bytes.len())].to_vec());
        }
    }

    /// Applies an order; of a write, only the bytes within `part`.
    fn keep(&mut self, order: &Order, part: std::ops::Range<usize>) {
        match order {
            Order::Write { name, at, bytes } => {
                let part = part.start..part.end.min(bytes.len());
                let file = self.files.entry(name.clone()).or_default();
                let (from, to) = (*at as usize + part.start, *at as usize + part.end);
                if file.len() < to && !part.is_empty() {
                    file.resize(to, 0);
                }
                if !part.is_empty() {
                    file[from..to].copy_from_slice(&bytes[part]);
                }
            }
            Order::Replace { name, parts } => {
                self.files.remove(&format!("{name}.new"));
                self.files.insert(name.clone(), whole(parts));
            }
            Order::Remove { name } => {
                self.files.remove(name);
            }
            Order::Sync => {}
        }
    }
}

/// Returns the contents of a file with these parts.
fn whole(parts: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (at, bytes) in parts {
        all.resize(*at as usize, 0);
        all.extend(bytes);
    }
    all
}
