//! Number of lanes of a job, and their opening beside its work.

use super::{BoxError, Dial, Joined};
use haul_net::LaneControl;
use haul_proto::{Accept, Join, LaneId, Message};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Minimum number of lanes of a job that does not set a number.
pub const DEFAULT_LANES_MIN: u32 = 4;

/// Maximum number of lanes of a job that does not set a number.
pub const DEFAULT_LANES_MAX: u32 = 16;

/// Round-trip time per lane. On most systems one connection has at most 4 MiB in flight. One lane
/// thus carries about 300 MB/s over 10 ms, and a tenth of that over 100 ms.
const ROUND_TRIP_PER_LANE: Duration = Duration::from_millis(10);

/// Number of lanes of a job.
pub(super) enum Lanes {
    Fixed(u32),
    /// One lane fills the path, unless it changes its transport.
    Found(Arc<dyn LaneControl>),
}

impl Lanes {
    /// Returns the requested number, or the number for the transport and the round-trip time of the
    /// first lane.
    pub(super) fn of(requested: Option<u32>, first: &Joined) -> Lanes {
        match requested {
            None if first.control.fills_path() => Lanes::Found(first.control.clone()),
            None => Lanes::Fixed(lanes_of_round_trip(first.control.round_trip().unwrap_or_default())),
            Some(lanes) => Lanes::Fixed(lanes),
        }
    }

    fn count(&self) -> u32 {
        match self {
            Lanes::Fixed(lanes) => *lanes,
            Lanes::Found(first) if first.fills_path() => 1,
            Lanes::Found(first) => lanes_of_round_trip(first.round_trip().unwrap_or_default()),
        }
    }
}

fn lanes_of_round_trip(round_trip: Duration) -> u32 {
    let wanted = round_trip.as_micros() / ROUND_TRIP_PER_LANE.as_micros();
    u32::try_from(wanted).unwrap_or(u32::MAX).clamp(DEFAULT_LANES_MIN, DEFAULT_LANES_MAX)
}

/// Runs `work` and meanwhile opens as many lanes as both sides want, all concurrently. Each takes
/// three round trips, and nothing waits for them. The first lane can do the job alone, only more
/// slowly. A lane that cannot be opened is ignored, and opening stops when the work is done.
pub(super) fn beside<T>(
    dial: &dyn Dial,
    accept: &Accept,
    lanes: Lanes,
    work: impl FnOnce(&mut dyn FnMut() -> Option<Joined>) -> T,
) -> T {
    let (give, take) = channel();
    thread::scope(|scope| {
        let mut number = 1;
        let mut open_missing = || {
            while number < lanes.count().min(accept.lanes) {
                let (give, lane) = (give.clone(), number);
                let open = move || {
                    let joined = dial.lane(lane).and_then(|joined| -> Result<_, BoxError> {
                        let mut lane = Joined::new(LaneId(lane), joined);
                        lane.outbox.push(&Message::Join(Join { token: accept.token, lane: lane.id }))?;
                        lane.outbox.flush()?;
                        Ok(lane)
                    });
                    if let Ok(lane) = joined {
                        // Ignore an error: if the work is done, the lane ends here.
                        let _ = give.send(lane);
                    }
                };
                // Without a thread, the session uses the lanes that it has.
                let is_opening = thread::Builder::new().spawn_scoped(scope, open).is_ok();
                number = if is_opening { number + 1 } else { accept.lanes };
            }
        };
        open_missing();
        let done = work(&mut || {
            open_missing();
            take.try_recv().ok()
        });
        dial.give_up();
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_net::{Fallback, Kind, LaneStats, PacketStats};
    use std::net::SocketAddr;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A lane over UDP with a round trip of 89 ms.
    #[derive(Debug, Default)]
    struct Datagrams {
        has_left: AtomicBool,
    }

    impl LaneControl for Datagrams {
        fn abort(&self) {}

        fn stats(&self) -> LaneStats {
            LaneStats::default()
        }

        fn kind(&self) -> Kind {
            Kind::Udp
        }

        fn peer(&self) -> Option<SocketAddr> {
            None
        }

        fn cipher(&self) -> &'static str {
            "none"
        }

        fn round_trip(&self) -> Option<Duration> {
            Some(Duration::from_millis(89))
        }

        fn packets(&self) -> Option<PacketStats> {
            Some(PacketStats::default())
        }

        fn fallback(&self) -> Option<Fallback> {
            self.has_left.load(Ordering::Relaxed).then_some(Fallback::Silent)
        }
    }

    #[test]
    fn the_usual_number_of_lanes_follows_when_the_first_leaves_udp() {
        let first = Arc::new(Datagrams::default());
        let lanes = Lanes::Found(first.clone());
        assert_eq!(lanes.count(), 1);
        first.has_left.store(true, Ordering::Relaxed);
        assert_eq!(lanes.count(), 8);
    }

    #[test]
    fn lane_count_grows_with_the_round_trip_time() {
        for (millis, lanes) in [(0, 4), (30, 4), (50, 5), (89, 8), (200, 16), (5000, 16)] {
            assert_eq!(lanes_of_round_trip(Duration::from_millis(millis)), lanes, "{millis} ms");
        }
    }
}
