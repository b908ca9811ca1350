//! Where a side's time went: what both sides tell each other at the end, so that each can say what held the job back.

use crate::fields::{Body, Fields};
use crate::limits::LANES_MAX;
use crate::{Flaw, LaneId};
use std::time::Duration;

/// Time of all workers of a side together, told in whole microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Reading or writing files, and making them durable.
    pub storage: Duration,
    /// Computing digests.
    pub hashing: Duration,
    /// Packing and unpacking.
    pub packing: Duration,
    /// Encrypting and decrypting.
    pub crypto: Duration,
    /// Ready to go on and waiting for a processor, whatever with: a part of all other times. Zero where it is not known.
    pub run_delay: Duration,
    /// What each lane waited for the network, at most [`LANES_MAX`] of them.
    pub lanes: Vec<LaneTimes>,
}

/// What a lane waited for the network and the other side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneTimes {
    /// The lane.
    pub lane: LaneId,
    /// Until bytes were taken, the job's rate included.
    pub sending: Duration,
    /// Until bytes came.
    pub receiving: Duration,
}

impl Times {
    /// All but the run delay, which has a field of its own.
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        for time in [self.storage, self.hashing, self.packing, self.crypto] {
            put(body, time);
        }
        let lanes = &self.lanes[..self.lanes.len().min(LANES_MAX as usize)];
        body.count(lanes.len());
        for LaneTimes { lane, sending, receiving } in lanes {
            body.u32(lane.0);
            put(body, *sending);
            put(body, *receiving);
        }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Times, Flaw> {
        let [storage, hashing, packing, crypto] =
            [take(fields)?, take(fields)?, take(fields)?, take(fields)?];
        let count = fields.count(LANES_MAX as usize, "lanes")?;
        let mut lane = || {
            let lane = LaneId(fields.u32("lane")?);
            Ok(LaneTimes { lane, sending: take(fields)?, receiving: take(fields)? })
        };
        let lanes = (0..count).map(|_| lane()).collect::<Result<_, Flaw>>()?;
        Ok(Times { storage, hashing, packing, crypto, run_delay: Duration::ZERO, lanes })
    }
}

pub(super) fn put(body: &mut Body<'_>, time: Duration) {
    body.u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
}

pub(super) fn take(fields: &mut Fields<'_>) -> Result<Duration, Flaw> {
    fields.u64("time").map(Duration::from_micros)
}
