//! Orders to hash files, without those that an earlier run hashed.

use super::{EarlierDigests, Root};
use crate::sum::{Order, Orders, Source, Sums, WalkTag, Work};
use haul_storage::FileKind;
use std::ffi::OsStr;

/// Identification of a result, with the result itself if it is known without reading.
#[derive(Debug)]
pub struct OrderTag {
    /// Identification by the walk.
    pub walked: WalkTag,
    /// Unchanged digests of the file from the earlier run.
    pub sums: Option<Box<Sums>>,
}

/// Orders that first look up each file in the earlier digests.
#[derive(Debug)]
pub struct ReusingOrders<O> {
    orders: O,
    known: Option<(EarlierDigests, Root)>,
}

impl<O> ReusingOrders<O> {
    /// Wraps `orders`; the paths in `known` are relative to the root.
    pub fn new(orders: O, known: Option<(EarlierDigests, Root)>) -> ReusingOrders<O> {
        ReusingOrders { orders, known }
    }

    fn find(&mut self, path: &OsStr, source: &Source) -> Option<Box<Sums>> {
        let (known, root) = self.known.as_mut()?;
        let facts = source.stat().ok().flatten().filter(|facts| facts.kind == FileKind::Regular)?;
        known.find(&root.path_of(path).ok()?, &facts)
    }
}

impl<O: Orders<Ticket = WalkTag>> Orders for ReusingOrders<O> {
    type Ticket = OrderTag;

    fn next(&mut self) -> Option<Order<OrderTag>> {
        let Order { ticket: walked, work } = self.orders.next()?;
        let sums = match (&walked, &work) {
            (WalkTag::File(path), Work::Hash(task)) => self.find(path, &task.source),
            _ => None,
        };
        let work = if sums.is_some() { Work::Nothing } else { work };
        Some(Order { ticket: OrderTag { walked, sums }, work })
    }

    fn ready(&self) -> bool {
        self.orders.ready()
    }
}
