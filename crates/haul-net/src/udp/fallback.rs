//! Continuation of a lane over its TCP connection where datagrams do not pass.
//!
//! Either end can leave UDP. It stops its association and sends a [`Departure`] over the TCP
//! connection; the other end notices that the connection becomes readable and does the same. From
//! then on the two streams continue over TCP: each end first sends again what the peer does not
//! have, then what its users write. The driver of the association does the former.

use super::UdpRefusal;
use super::carrier::Carrier;
use super::link::{Inner, Link, Stage, nanos};
use crate::lane::{LaneError, StreamControl, StreamLane, StreamReader, StreamWriter, WaitTimeout};
use haul_udp::{Association, Failure, State, Time};
use parking_lot::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Maximum time for which the end of a lane waits for a peer that does not read.
const FINISH: WaitTimeout = WaitTimeout { stall: Some(Duration::from_secs(15)), deadline: None };

/// Bytes that are sent again in one write.
const PIECE_BYTES: usize = 64 << 10;

/// Packets sent before their losses are judged.
const JUDGED_MIN: u64 = 200;

/// Reason why a lane that may fall back uses TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fallback {
    /// No datagram of the peer arrived.
    #[error("UDP is blocked on the path")]
    Blocked,
    /// Datagrams arrived before, and then no more.
    #[error("datagrams stopped arriving")]
    Silent,
    /// Datagrams of a fixed size do not pass.
    #[error("datagrams of this --chunk-size do not arrive")]
    TooLarge,
    /// The path lost more than half of the datagrams.
    #[error("more than half of the datagrams were lost")]
    Lossy,
    /// The server refused UDP.
    #[error("{0}")]
    Refused(UdpRefusal),
    /// The server does not know UDP.
    #[error("the server runs an older version of haul")]
    OlderServer,
}

/// Reasons that an end finds during the association, by their number less 1 in a message.
const REASONS: [Fallback; 4] = [Fallback::Blocked, Fallback::Silent, Fallback::TooLarge, Fallback::Lossy];

/// Limits after which an end leaves UDP. To each of them the end adds 3 round trips.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Time until the first datagram of the peer.
    pub(super) first: Duration,
    /// Time without a datagram of the peer while this end waits for an acknowledgement.
    pub(super) silence: Duration,
    /// Time after which the losses are judged, once.
    pub(super) judgement: Duration,
}

impl Bounds {
    /// Bounds of jobs. An outage of the whole path usually ends sooner than `silence`, and a lane
    /// that falls back in a longer one waits for TCP.
    pub(super) const DEFAULT: Self = Self {
        first: Duration::from_millis(1500),
        silence: Duration::from_secs(5),
        judgement: Duration::from_secs(3),
    };
}

/// Observations of one end. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
struct Observed {
    has_heard: bool,
    age: Time,
    /// Time for which this end has waited for an acknowledgement and heard nothing.
    silence: Time,
    round_trip: Time,
    /// Datagrams sent and lost, unless they have been judged already.
    losses: Option<(u64, u64)>,
}

/// Chooses between UDP and TCP for a lane that may use either, before its request. Below
/// `round_trip_min` several connections of TCP are at least as fast and need less processor time.
pub(super) fn is_worth_udp(round_trip: Duration, round_trip_min: Duration) -> bool {
    round_trip >= round_trip_min
}

/// Returns the reason to leave UDP: nothing arrives, nothing arrives any more, or the path loses so
/// much that it limits UDP only.
fn reason_to_leave(observed: &Observed, bounds: &Bounds) -> Option<Fallback> {
    let Observed { has_heard, age, silence, round_trip, losses } = *observed;
    let after = |bound: Duration| nanos(bound) + 3 * round_trip;
    if !has_heard {
        return (age >= after(bounds.first)).then_some(Fallback::Blocked);
    }
    if silence >= after(bounds.silence) {
        return Some(Fallback::Silent);
    }
    let (sent, lost) = losses.filter(|_| age >= after(bounds.judgement))?;
    (sent >= JUDGED_MIN && lost > sent / 2).then_some(Fallback::Lossy)
}

/// Size in bytes of a [`Departure`].
const DEPARTURE_BYTES: usize = 16;
const MAGIC: [u8; 7] = *b"HAULTCP";

/// Message of an end that leaves UDP.
///
/// ```text
///  at  bytes
///   0      7   "HAULTCP"
///   7      1   reason, 1 to 4
///   8      8   bytes of the stream that arrived in order, from its start on, little-endian
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Departure {
    pub(super) why: Fallback,
    pub(super) received: u64,
}

impl Departure {
    fn encode(&self) -> [u8; DEPARTURE_BYTES] {
        let mut bytes = [0; DEPARTURE_BYTES];
        bytes[..7].copy_from_slice(&MAGIC);
        let at = REASONS.iter().position(|known| *known == self.why).unwrap_or_default();
        bytes[7] = at as u8 + 1;
        bytes[8..].copy_from_slice(&self.received.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8; DEPARTURE_BYTES]) -> Option<Self> {
        let (magic, [reason, received @ ..]) = bytes.split_first_chunk::<7>()? else { return None };
        let why = *REASONS.get(usize::from(*reason).checked_sub(1)?)?;
        let received = u64::from_le_bytes(received.try_into().ok()?);
        (*magic == MAGIC).then_some(Self { why, received })
    }
}

/// Describes a recorded message of an end that leaves UDP, in readable form.
///
/// # Errors
/// Returns the reason if the bytes are no such message.
pub fn describe_departure(bytes: &[u8]) -> Result<String, String> {
    let departure = bytes.try_into().ok().and_then(Departure::decode);
    let Departure { why, received } =
        departure.ok_or_else(|| format!("not a departure from UDP: {} bytes", bytes.len()))?;
    Ok(format!("continues over TCP from byte {received} on: {why}"))
}

/// TCP connection of a lane: beside the association, and after it.
#[derive(Debug)]
pub(super) struct Control {
    /// Users read from it only after the peer's departure was received.
    incoming: Mutex<Incoming>,
    /// Users write to it only after the driver has sent everything again.
    writer: Mutex<StreamWriter>,
    pub(super) state: StreamControl,
}

#[derive(Debug)]
struct Incoming {
    reader: StreamReader,
    departure: [u8; DEPARTURE_BYTES],
    /// Received bytes of `departure`.
    len: usize,
}

impl Control {
    pub(super) fn new(lane: StreamLane) -> Self {
        let state = lane.control();
        let (reader, writer) = lane.split();
        let incoming = Incoming { reader, departure: [0; DEPARTURE_BYTES], len: 0 };
        Self { incoming: Mutex::new(incoming), writer: Mutex::new(writer), state }
    }

    fn incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock()
    }

    fn writer(&self) -> MutexGuard<'_, StreamWriter> {
        self.writer.lock()
    }

    /// Receives the peer's departure.
    fn receive(&self, timeout: WaitTimeout) -> Result<Departure, LaneError> {
        let mut incoming = self.incoming();
        let Incoming { reader, departure, len } = &mut *incoming;
        reader.set_timeout(timeout);
        while *len < DEPARTURE_BYTES {
            match reader.read_some(&mut departure[*len..])? {
                0 => return Err(LaneError::Ended),
                bytes => *len += bytes,
            }
        }
        Departure::decode(departure).ok_or(LaneError::Unexpected)
    }

    /// Takes the peer's departure if it has arrived. Never waits.
    pub(super) fn try_receive(&self) -> Result<Option<Departure>, LaneError> {
        match self.receive(WaitTimeout::until(Instant::now())) {
            Ok(departure) => Ok(Some(departure)),
            Err(LaneError::Stalled { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads bytes of the stream.
    pub(super) fn read(&self, buffer: &mut [u8], timeout: WaitTimeout) -> Result<usize, LaneError> {
        let mut incoming = self.incoming();
        incoming.reader.set_timeout(timeout);
        incoming.reader.read_some(buffer)
    }

    /// Writes bytes of the stream.
    pub(super) fn write(&self, parts: &[&[u8]], timeout: WaitTimeout) -> Result<(), LaneError> {
        let mut writer = self.writer();
        writer.set_timeout(timeout);
        writer.write_all_vectored(parts)
    }

    /// Ends this direction of the stream.
    pub(super) fn finish(&self) -> Result<(), LaneError> {
        let mut writer = self.writer();
        writer.set_timeout(FINISH);
        writer.finish()
    }
}

impl<C: Carrier> Link<C> {
    /// Leaves UDP if the rules say so.
    pub(super) fn judge(&self, inner: &mut Inner<C>, now: Time) {
        let Some(bounds) = self.bounds.filter(|_| inner.may_leave()) else { return };
        let Some(association) = inner.association.association() else { return };
        let why = match association.state() {
            State::Failed(Failure::ChunkTooLarge { .. }) => Some(Fallback::TooLarge),
            State::Failed(Failure::NeverAnswered) => Some(Fallback::Blocked),
            State::Failed(Failure::Died) => Some(Fallback::Silent),
            State::Open if !association.is_complete() => {
                let is_due = !inner.is_judged && now >= self.judgement_at(inner, bounds);
                let waits_since = association.is_flushing().then(|| inner.waits_since.unwrap_or(now));
                let observed = Observed {
                    has_heard: association.has_heard(),
                    age: now,
                    silence: waits_since
                        .map_or(0, |since| association.silent_for(now).min(now.saturating_sub(since))),
                    round_trip: self.round_trip,
                    losses: is_due.then(|| {
                        let stats = association.stats();
                        (stats.packets_sent, stats.packets_lost.saturating_sub(stats.losses_spurious))
                    }),
                };
                inner.waits_since = waits_since;
                inner.is_judged |= is_due;
                reason_to_leave(&observed, &bounds)
            }
            _ => None,
        };
        if let Some(why) = why {
            inner.leave(why);
        }
    }

    fn judgement_at(&self, inner: &Inner<C>, bounds: Bounds) -> Time {
        if inner.is_judged { Time::MAX } else { nanos(bounds.judgement) + 3 * self.round_trip }
    }

    /// Returns the next moment at which [`Link::judge`] can find a reason.
    pub(super) fn next_judgement(&self, inner: &Inner<C>, now: Time) -> Option<Time> {
        let bounds = self.bounds.filter(|_| inner.may_leave())?;
        let association = inner.association.association()?;
        if association.state() != State::Open || association.is_complete() {
            return None;
        }
        let after = |since: Time, bound: Duration| since + nanos(bound) + 3 * self.round_trip;
        let silence = inner
            .waits_since
            .map(|since| after(since.max(now.saturating_sub(association.silent_for(now))), bounds.silence));
        let first = (!association.has_heard()).then(|| after(0, bounds.first));
        [first, silence, Some(self.judgement_at(inner, bounds))].into_iter().flatten().min()
    }

    /// Reads the TCP connection after it became readable: the peer leaves UDP, or has ended.
    pub(super) fn read_control(&self, control: &Control) {
        let received = control.try_receive();
        let mut inner = self.lock();
        match received {
            Ok(None) => {}
            Ok(Some(departure)) => {
                inner.peer_departure = Some(departure);
                if inner.may_leave() {
                    inner.leave(departure.why);
                }
            }
            Err(LaneError::Unexpected) => {
                inner.error.get_or_insert(super::UdpError::BadDeparture);
                inner.association.close(self.now(), super::wire::CODE_ABORTED);
            }
            Err(_) => inner.peer_left = Some(self.now()),
        }
        self.notify(inner);
    }

    /// Continues the streams of a lane that has left UDP.
    pub(super) fn continue_over(&self, control: &Control) {
        let (own, peer) = {
            let inner = self.lock();
            (inner.departure, inner.peer_departure)
        };
        let Some(own) = own else { return };
        let continued = self.exchange(control, own, peer);
        if let Err(error) = continued {
            let error = match error {
                LaneError::Unexpected => super::UdpError::BadDeparture,
                _ => super::UdpError::Disconnected,
            };
            let mut inner = self.lock();
            if !inner.is_aborted {
                inner.error.get_or_insert(error);
            }
        }
        self.wake_all();
    }

    /// Sends the departure of this end and takes that of the peer, which is judged first if it has
    /// arrived: a peer that sent an impossible one may have closed the connection.
    fn exchange(&self, control: &Control, own: Departure, peer: Option<Departure>) -> Result<(), LaneError> {
        if let Some(peer) = peer {
            drop(self.resume_from(peer)?);
        }
        // The users of the lane limit the time.
        let timeout = WaitTimeout::default();
        let mut writer = control.writer();
        writer.set_timeout(timeout);
        let written = writer.write_all(&own.encode());
        let peer = match (peer, written) {
            (Some(peer), written) => written.map(|()| peer)?,
            (None, Ok(())) => control.receive(timeout)?,
            (None, Err(error)) => {
                // What the peer said before it closed the connection is the reason.
                control.try_receive()?.map_or(Ok(()), |peer| self.resume_from(peer).map(drop))?;
                return Err(error);
            }
        };
        let mut inner = self.resume_from(peer)?;
        inner.stage = Stage::Repeating;
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        loop {
            piece.clear();
            let association = inner.association.association_mut();
            let taken =
                association.map(|association| association.take_unacknowledged(PIECE_BYTES, &mut piece));
            if taken.is_none_or(|taken| taken == 0) {
                break;
            }
            self.notify(inner);
            writer.write_all(&piece)?;
            inner = self.lock();
        }
        // Users that write from now on wait for the lock of the writer.
        inner.stage = Stage::Tcp;
        let is_finishing = inner.association.association().is_some_and(Association::is_finishing);
        self.notify(inner);
        writer.set_timeout(FINISH);
        if is_finishing { writer.finish() } else { Ok(()) }
    }

    /// Continues behind the bytes that the peer has.
    fn resume_from(&self, peer: Departure) -> Result<std::sync::MutexGuard<'_, Inner<C>>, LaneError> {
        let mut inner = self.lock();
        let association = inner.association.association_mut();
        let is_possible = association.is_some_and(|association| association.resume_from(peer.received));
        if is_possible { Ok(inner) } else { Err(LaneError::Unexpected) }
    }
}

impl<C: Carrier> Inner<C> {
    fn may_leave(&self) -> bool {
        let is_over = self.is_aborted || self.error.is_some() || self.peer_left.is_some();
        // TCP does not help against any other failure.
        let is_path = match self.association.state() {
            State::Open | State::Finished => true,
            State::Failed(failure) => {
                matches!(failure, Failure::ChunkTooLarge { .. } | Failure::NeverAnswered | Failure::Died)
            }
        };
        self.stage == Stage::Datagrams && !is_over && is_path
    }

    fn leave(&mut self, why: Fallback) {
        let Some(association) = self.association.association_mut() else { return };
        self.departure = Some(Departure { why, received: association.leave() });
        self.stage = Stage::Leaving;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_udp::Time;
    use proptest::prelude::*;

    const MILLI: Time = 1_000_000;

    fn found(change: impl FnOnce(&mut Observed)) -> Option<Fallback> {
        let mut observed = Observed { has_heard: true, age: 60_000 * MILLI, ..Observed::default() };
        change(&mut observed);
        reason_to_leave(&observed, &Bounds::DEFAULT)
    }

    #[test]
    fn udp_is_left_where_it_does_not_pass() {
        assert_eq!(found(|_| {}), None);
        let blocked = |age: Time, round_trip: Time| {
            found(|seen| {
                let (age, round_trip) = (age * MILLI, round_trip * MILLI);
                *seen = Observed { has_heard: false, age, round_trip, ..*seen };
            })
        };
        assert_eq!(blocked(1499, 0), None);
        assert_eq!(blocked(1500, 0), Some(Fallback::Blocked));
        assert_eq!(blocked(1799, 100), None);
        assert_eq!(blocked(1800, 100), Some(Fallback::Blocked));
        assert_eq!(found(|seen| seen.silence = 4999 * MILLI), None);
        assert_eq!(found(|seen| seen.silence = 5000 * MILLI), Some(Fallback::Silent));
        let losses =
            |sent, lost, age| found(|seen| (seen.losses, seen.age) = (Some((sent, lost)), age * MILLI));
        assert_eq!(losses(1000, 501, 3000), Some(Fallback::Lossy));
        assert_eq!(losses(1000, 501, 2999), None, "the controller may still find the rate");
        assert_eq!(losses(1000, 500, 3000), None);
        assert_eq!(losses(100, 90, 3000), None, "too few to judge");
    }

    #[test]
    fn near_hosts_use_tcp() {
        let min = Duration::from_millis(1);
        assert!(!is_worth_udp(Duration::from_micros(999), min) && is_worth_udp(min, min));
        assert!(is_worth_udp(Duration::ZERO, Duration::ZERO));
    }

    proptest! {
        #[test]
        fn departures_round_trip(at in 0..4_usize, received: u64) {
            let departure = Departure { why: REASONS[at], received };
            prop_assert_eq!(Departure::decode(&departure.encode()), Some(departure));
        }

        #[test]
        fn bytes_other_than_a_departure_are_refused(bytes: [u8; DEPARTURE_BYTES], at in 0..8_usize, other: u8) {
            prop_assert_eq!(Departure::decode(&bytes), None);
            let mut departure = Departure { why: Fallback::Silent, received: 5 }.encode();
            prop_assume!(departure[at] != other && (at < 7 || other == 0 || other > 4));
            departure[at] = other;
            prop_assert_eq!(Departure::decode(&departure), None);
        }
    }
}
