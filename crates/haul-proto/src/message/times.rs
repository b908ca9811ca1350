//! Time statistics of a side. Both sides exchange them at the end, so that each can report the
//! bottleneck of the job.

use crate::fields::{Body, Fields};
use crate::limits::LANES_MAX;
use crate::{Flaw, LaneId};
use std::time::Duration;

/// Total time of all workers of a side; on the wire in whole microseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Reading, writing and syncing files.
    pub storage: Duration,
    /// Computing digests.
    pub hashing: Duration,
    /// Packing and unpacking.
    pub packing: Duration,
    /// Encrypting and decrypting.
    pub crypto: Duration,
    /// Waiting for a CPU while runnable. This is a part of all other times. Zero if unknown.
    pub run_delay: Duration,
    /// Time that each lane waited for the network; at most [`LANES_MAX`] lanes.
    pub lanes: Vec<LaneTimes>,
}

/// Time that a lane waited for the network and the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneTimes {
    /// The lane.
    pub lane: LaneId,
    /// Waiting until the network accepted bytes, including waits for the rate limit of the job.
    pub sending: Duration,
    /// Waiting until bytes arrived.
    pub receiving: Duration,
}

impl Times {
    /// Appends all times except the run delay, which has its own field.
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
