//! Packet forwarding from one end of a link to the other; each packet leaves at its due time.

use super::LinkProfile;
use super::shape::{HEADER_BYTES, Shape, wire_bytes};
use haul_sys::tunnel::{PACKET_BYTES_MAX, Tunnel};
use haul_sys::wait;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Maximum number of packets read before due packets are written.
const BATCH: usize = 64;

/// Maximum time between two checks of the stop flag if no packet arrives.
const IDLE: Duration = Duration::from_millis(100);

/// Two threads, one per direction, that forward packets until they are stopped.
#[derive(Debug)]
pub(super) struct Carrier {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

impl Carrier {
    pub(super) fn start(ends: [Tunnel; 2], profile: LinkProfile) -> Carrier {
        let (stop, ends) = (Arc::new(AtomicBool::new(false)), Arc::new(ends));
        let threads = [(0, 1), (1, 0)].map(|(from, to)| {
            let (stop, ends) = (Arc::clone(&stop), Arc::clone(&ends));
            thread::spawn(move || carry(&ends[from], &ends[to], Shape::new(profile), &stop))
        });
        Carrier { stop, threads: threads.into() }
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

fn carry(from: &Tunnel, to: &Tunnel, mut shape: Shape, stop: &AtomicBool) -> io::Result<()> {
    let begin = Instant::now();
    let mut queue: VecDeque<(Duration, Vec<u8>)> = VecDeque::new();
    let mut packet = vec![0; PACKET_BYTES_MAX];
    while !stop.load(Ordering::Relaxed) {
        let mut taken = 0;
        while taken < BATCH
            && let Some(bytes) = from.read(&mut packet)?
        {
            taken += 1;
            let packet = &packet[..bytes];
            if bytes > HEADER_BYTES
                && let Some(due) = shape.due(begin.elapsed(), wire_bytes(packet))
            {
                queue.push_back((due, packet.to_vec()));
            }
        }
        let now = begin.elapsed();
        while queue.front().is_some_and(|(due, _)| *due <= now)
            && let Some((_, packet)) = queue.pop_front()
        {
            // A packet that the far end cannot take is lost, as on a real link.
            let _ = to.write(&packet);
        }
        if taken < BATCH {
            let next = queue.front().map(|(due, _)| due.saturating_sub(begin.elapsed()));
            wait::readable(from, next.unwrap_or(IDLE).min(IDLE))?;
        }
    }
    Ok(())
}
