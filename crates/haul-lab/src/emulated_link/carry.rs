//! Packet forwarding from one end of a link to the other; each packet leaves at its due time.

use super::channel::{Channel, Delivery};
use super::conditions::Conditions;
use super::counters::Counters;
use super::packet::{HEADER_BYTES, Packet, damage};
use haul_sys::tunnel::{PACKET_BYTES_MAX, Tunnel, prioritize_thread};
use haul_sys::wait;
use parking_lot::Mutex;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum number of packets read before due packets are written.
const BATCH: usize = 64;

/// Maximum time between two checks of the stop flag if no packet arrives.
const IDLE: Duration = Duration::from_millis(100);

/// Shortest time between two rounds of reading and writing, unless more packets wait than a round
/// takes. Packets of a round share the cost of waking up, and segments of one packet that are due
/// in the same round stay one packet.
const ROUND: Duration = Duration::from_micros(100);

/// Two threads, one per direction, that forward packets until they are stopped.
#[derive(Debug)]
pub(super) struct Carrier {
    stop: Arc<AtomicBool>,
    ways: [Arc<Way>; 2],
    threads: Vec<JoinHandle<io::Result<()>>>,
}

/// State that the thread of a direction shares with other threads.
#[derive(Debug)]
struct Way {
    conditions: Mutex<Conditions>,
    /// Number of changes of the conditions.
    changes: AtomicU64,
    counters: Mutex<Counters>,
}

/// Part of a packet: it and the number of one of its segments.
type Segment = (Rc<Packet>, usize);

impl Carrier {
    /// Starts to forward between two ends, with the conditions of the direction from the first to
    /// the second and of the other direction.
    pub(super) fn start(ends: [Tunnel; 2], conditions: [Conditions; 2], seed: u64) -> Carrier {
        let (stop, ends, begin) = (Arc::new(AtomicBool::new(false)), Arc::new(ends), Instant::now());
        let ways = conditions.map(|conditions| {
            let changes = AtomicU64::new(0);
            Arc::new(Way { conditions: Mutex::new(conditions), changes, counters: Mutex::default() })
        });
        let threads = [0, 1].map(|from| {
            let (stop, ends, way) = (Arc::clone(&stop), Arc::clone(&ends), Arc::clone(&ways[from]));
            let seed = seed ^ (from as u64) << 63;
            thread::spawn(move || carry([&ends[from], &ends[1 - from]], &way, seed, (begin, &stop)))
        });
        Carrier { stop, ways, threads: threads.into() }
    }

    /// Changes the conditions of a direction. Packets that are sent after the call cross the link
    /// under the new conditions.
    pub(super) fn change(&self, direction: usize, conditions: Conditions) {
        let way = &self.ways[direction];
        *way.conditions.lock() = conditions;
        way.changes.fetch_add(1, Ordering::SeqCst);
    }

    /// Returns the conditions of a direction.
    pub(super) fn conditions(&self, direction: usize) -> Conditions {
        self.ways[direction].conditions.lock().clone()
    }

    /// Returns the counters of a direction. A packet that has been received is counted.
    pub(super) fn counters(&self, direction: usize) -> Counters {
        *self.ways[direction].counters.lock()
    }

    /// Stops both threads and returns their first error.
    pub(super) fn stop(self) -> io::Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self
            .threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.fold(Ok(()), Result::and)
    }
}

fn carry(
    [from, to]: [&Tunnel; 2],
    way: &Way,
    seed: u64,
    (begin, stop): (Instant, &AtomicBool),
) -> io::Result<()> {
    // Without the right to it, packets are late while all processors are busy; `late_max` tells.
    let _ = prioritize_thread();
    let mut changes = 0;
    let mut channel = Channel::new(way.conditions.lock().clone(), seed);
    let (mut packet, mut exit) = (vec![0; PACKET_BYTES_MAX], Exit { to, made: Vec::new() });
    while !stop.load(Ordering::Relaxed) {
        let (begun, mut taken) = (begin.elapsed(), 0);
        while taken < BATCH
            && let Some(bytes) = from.read(&mut packet)?
        {
            taken += 1;
            let now = begin.elapsed();
            // After the read: a packet that was sent after a change must find it.
            let changed = way.changes.load(Ordering::SeqCst);
            if changed != changes {
                changes = changed;
                channel.change(now, way.conditions.lock().clone());
            }
            if bytes > HEADER_BYTES
                && let Some(packet) = Packet::parse(&packet[..bytes]).map(Rc::new)
            {
                for segment in 0..packet.segments() {
                    channel.accept(now, (Rc::clone(&packet), segment), packet.form(segment));
                }
            }
        }
        hand_over(&mut channel, &mut exit, way, begin);
        if taken < BATCH {
            thread::sleep((begun + ROUND).saturating_sub(begin.elapsed()));
            let next = channel.next_time().map(|next| next.saturating_sub(begin.elapsed()));
            wait::readable(from, next.unwrap_or(IDLE).min(IDLE))?;
        }
    }
    Ok(())
}

/// Hands all packets that are due to the far end. Counts them before, so that a received packet is
/// always counted.
fn hand_over(channel: &mut Channel<Segment>, exit: &mut Exit<'_>, way: &Way, begin: Instant) {
    let now = begin.elapsed();
    let due: Vec<Delivery<Segment>> = std::iter::from_fn(|| channel.deliver(now)).collect();
    if let Some(first) = due.first() {
        let late = now.saturating_sub(first.due);
        channel.counters_mut().late_max = channel.counters().late_max.max(late);
    }
    *way.counters.lock() = *channel.counters();
    let is_next = |before: &Delivery<Segment>, next: &Delivery<Segment>| {
        let (one, other) = (&before.packet, &next.packet);
        let are_whole = before.damage.is_none() && next.damage.is_none();
        are_whole && Rc::ptr_eq(&one.0, &other.0) && one.1 + 1 == other.1
    };
    for run in due.chunk_by(is_next) {
        // A packet that the far end cannot take is lost, as on a real link.
        if exit.write(run).is_err() {
            channel.counters_mut().undelivered += run.len() as u64;
        }
    }
}

/// The far end.
struct Exit<'a> {
    to: &'a Tunnel,
    /// Buffer for parts of packets.
    made: Vec<u8>,
}

impl Exit<'_> {
    /// Writes successive segments of a packet.
    fn write(&mut self, run: &[Delivery<Segment>]) -> io::Result<()> {
        let (packet, first) = &run[0].packet;
        let segments = *first..*first + run.len();
        let bytes = if run[0].damage.is_none() && segments == (0..packet.segments()) {
            packet.whole()
        } else {
            let bytes = packet.part(segments, &mut self.made);
            if let Some(flip) = run[0].damage {
                damage(bytes, flip);
            }
            bytes
        };
        self.to.write(bytes)
    }
}
