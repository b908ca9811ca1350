//! Measurements of the algorithms alone, on data in the CPU caches.

use super::args::Settings;
use super::figure::{DataLocation, Measurement, Method, Rates};
use super::file::fill_from_seed;
use haul_digest::lanes::{Backend, LaneAlgorithm, Streams};
use haul_digest::{Algebra, Algorithm, Assembly, Hasher, PartHasher, PartPlace};
use haul_model::{ByteLen, ByteOffset, ObjectIndex, ObjectSize};
use haul_sys::process::cpu_count;
use parking_lot::Mutex;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Object size for shared work, in bytes: small enough that no worker has much left at the end of
/// the run.
const OBJECT_BYTES: u64 = 1 << 20;

/// Minimum number of bytes per lane and call.
const LANE_BYTES_MIN: usize = 8 << 10;

/// Measures all computations of one algorithm without a file.
pub(super) fn measure(settings: &Settings, algorithm: Algorithm) -> Vec<Measurement> {
    let mut found =
        vec![measured(settings, algorithm, Method::Stream, settings.block, stream(settings, algorithm))];
    if let Some(lanes) = algorithm.lanes() {
        let streams = Streams::new(lanes).width();
        let bytes = (settings.block / streams).max(LANE_BYTES_MIN);
        let method = Method::Lanes { streams, backend: backend_of(lanes, streams) };
        found.push(measured(settings, algorithm, method, bytes, many_streams(settings, lanes, bytes)));
    }
    if algorithm.algebra() == Algebra::Combines {
        let threads = cpu_count();
        let rates = workers(settings, algorithm, threads);
        found.push(measured(settings, algorithm, Method::Workers { threads }, settings.block, rates));
    }
    found
}

fn measured(
    settings: &Settings,
    algorithm: Algorithm,
    method: Method,
    block: usize,
    rates: Rates,
) -> Measurement {
    debug_assert_eq!(rates.runs(), settings.runs as usize);
    let (place, run_bytes, times_reading, cached_share) = (DataLocation::Memory, None, None, None);
    Measurement { algorithm, place, method, rates, block, run_bytes, times_reading, cached_share }
}

/// Returns the backend that the lanes use. Their number of slots is the lane count of their fastest
/// backend. This is therefore the first backend, in order of speed, with this width.
fn backend_of(lanes: LaneAlgorithm, streams: usize) -> Option<Backend> {
    let has_width = |backend: &Backend| {
        Streams::with_backend(lanes, *backend).is_some_and(|alone| alone.width() == streams)
    };
    Backend::ALL.into_iter().find(has_width)
}

/// Measures one stream, fed block by block.
fn stream(settings: &Settings, algorithm: Algorithm) -> Rates {
    let block = noise(settings.block);
    let mut hasher = Hasher::new(algorithm);
    let rates = sampled(settings, || {
        hasher.update(black_box(&block));
        block.len() as u64
    });
    black_box(hasher.finish());
    rates
}

/// Measures all slots, each with its own data.
fn many_streams(settings: &Settings, algorithm: LaneAlgorithm, bytes: usize) -> Rates {
    let mut streams = Streams::new(algorithm);
    let all = noise(bytes * streams.width());
    let inputs: Vec<(usize, &[u8])> = all.chunks_exact(bytes).enumerate().collect();
    let rates = sampled(settings, || {
        streams.update(black_box(&inputs));
        all.len() as u64
    });
    let slots: Vec<usize> = (0..streams.width()).collect();
    black_box(streams.finish_many(&slots));
    rates
}

/// Calls `step`, which returns its number of bytes, until the time of a run has elapsed, for all
/// runs. A first call is not counted, because it creates tables and fills the caches.
fn sampled(settings: &Settings, mut step: impl FnMut() -> u64) -> Rates {
    step();
    let mut one = || {
        let begun = Instant::now();
        let mut bytes = 0;
        loop {
            bytes += step();
            let took = begun.elapsed();
            if took >= settings.memory_time {
                return (bytes, took);
            }
        }
    };
    let runs: Vec<_> = (0..settings.runs).map(|_| one()).collect();
    Rates::of(&runs)
}

/// Measures workers that take the objects of an endless stream in turn and combine their results.
fn workers(settings: &Settings, algorithm: Algorithm, threads: usize) -> Rates {
    let block = noise(settings.block);
    shared_run(algorithm, &block, threads, Duration::ZERO);
    let runs: Vec<_> =
        (0..settings.runs).map(|_| shared_run(algorithm, &block, threads, settings.memory_time)).collect();
    Rates::of(&runs)
}

/// Returns the bytes that workers hash in at least this time, and the time until all work is done
/// and combined.
fn shared_run(algorithm: Algorithm, block: &[u8], threads: usize, at_least: Duration) -> (u64, Duration) {
    let object = ObjectSize::round_up(OBJECT_BYTES);
    let next = AtomicU64::new(0);
    let assembly = Mutex::new(Assembly::new(algorithm, object));
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let work = || {
            while begun.elapsed() < at_least || next.load(Ordering::Relaxed) == 0 {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let offset = ByteOffset(index * object.bytes());
                let mut part = PartHasher::new(algorithm, PartPlace { offset, whole: false });
                let mut left = object.bytes() as usize;
                while left > 0 {
                    let bytes = &block[..left.min(block.len())];
                    part.update(black_box(bytes));
                    left -= bytes.len();
                }
                let part = part.finish();
                assembly.lock().add(ObjectIndex(index), part);
            }
        };
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        work();
        drop(others);
    });
    let bytes = next.into_inner() * object.bytes();
    let assembly = assembly.into_inner();
    // The result is not used: a single object would have to be hashed as a whole file. Only the
    // time of combining counts.
    let _ = black_box(assembly.finish(ByteLen(bytes)));
    (bytes, begun.elapsed())
}

/// Returns pseudorandom bytes, so that no algorithm has an easy input.
fn noise(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    fill_from_seed(&mut bytes, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_hash_at_least_one_object_and_only_whole_objects() {
        for threads in [1, 3] {
            let (bytes, took) = shared_run(Algorithm::Blake3, &noise(4096), threads, Duration::ZERO);
            assert!(bytes >= OBJECT_BYTES && bytes.is_multiple_of(OBJECT_BYTES));
            assert!(took > Duration::ZERO);
        }
    }

    #[test]
    fn lane_backends_are_available_on_this_machine() {
        for lanes in LaneAlgorithm::ALL {
            let backend = backend_of(lanes, Streams::new(lanes).width()).expect("some backend was chosen");
            assert!(backend.is_available());
        }
    }
}
