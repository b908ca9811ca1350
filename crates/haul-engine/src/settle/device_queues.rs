//! Queues of work that waits for storage, one for each device.
//!
//! One worker at a time runs the work of a device, and one more worker waits for that of another
//! device: a device that stalls delays no other.

use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Maximum number of workers of one job: that many devices, less one, may stall at the same time
/// and delay no other.
const WORKERS_MAX: usize = 16;

/// Waiting work of one device.
pub(crate) trait DeviceWork: Default {
    /// Work that one worker runs without a break.
    type Batch;

    /// Returns when a worker is to take the work.
    fn due(&self) -> Due;

    /// Takes all work.
    fn take(&mut self) -> Self::Batch;

    /// Returns true if a thread that adds work must wait first. `is_running` is true while a worker
    /// runs earlier work of the device.
    fn is_full(&self, is_running: bool) -> bool;
}

/// Time at which work is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// There is no work.
    Never,
    /// At this time, or at the end.
    At(Instant),
    /// As soon as a worker is free.
    Now,
}

/// The queues.
#[derive(Debug)]
pub(crate) struct DeviceQueues<Q> {
    state: Mutex<State<Q>>,
    /// Notified when work becomes due sooner, and at the end.
    added: Condvar,
    /// Notified when work was taken or has been run.
    progressed: Condvar,
}

#[derive(Debug)]
struct State<Q> {
    /// Devices that have or had work, and those with a worker.
    devices: BTreeMap<u64, DeviceQueue<Q>>,
    /// Number of workers.
    workers: usize,
    /// Number of workers that run work.
    running: usize,
    /// Device whose work was taken last.
    last: u64,
    end: Option<LeftWork>,
}

#[derive(Debug, Default)]
struct DeviceQueue<Q> {
    waiting: Q,
    has_worker: bool,
}

/// Treatment of the work that is left at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeftWork {
    /// The workers run it.
    Drain,
    /// It stays.
    Stop,
}

/// Answer to a worker.
pub(crate) enum NextWork<'q, Q: DeviceWork> {
    /// Run this work.
    Run(Taken<'q, Q>),
    /// Nothing was due for a while.
    Nothing,
    /// The worker ends.
    Over,
}

/// Work of one device. Another worker can take the next work of the device when this is dropped.
pub(crate) struct Taken<'q, Q: DeviceWork> {
    queues: &'q DeviceQueues<Q>,
    pub(crate) device: u64,
    batch: Option<Q::Batch>,
    needs_worker: bool,
}

impl<Q> Default for DeviceQueues<Q> {
    /// Returns empty queues with one worker.
    fn default() -> DeviceQueues<Q> {
        let state = State { devices: BTreeMap::new(), workers: 1, running: 0, last: 0, end: None };
        DeviceQueues { state: Mutex::new(state), added: Condvar::new(), progressed: Condvar::new() }
    }
}

impl Due {
    /// Returns true if work is taken by `now`.
    pub(crate) fn is_by(self, now: Instant) -> bool {
        match self {
            Due::Never => false,
            Due::At(at) => at <= now,
            Due::Now => true,
        }
    }
}

impl<Q: DeviceWork> State<Q> {
    /// Returns the work that a worker could take, now or later.
    fn without_worker(&self) -> impl Iterator<Item = (u64, Due)> {
        self.devices
            .iter()
            .filter(|(_, device)| !device.has_worker)
            .map(|(id, device)| (*id, device.waiting.due()))
    }

    /// Returns a device whose work is due: each of them has its turn.
    fn ready(&self, now: Instant) -> Option<u64> {
        let is_ready = |due: Due| match self.end {
            None => due.is_by(now),
            Some(LeftWork::Drain) => due != Due::Never,
            Some(LeftWork::Stop) => false,
        };
        let mut ready = self.without_worker().filter(|(_, due)| is_ready(*due)).map(|(id, _)| id);
        let first = ready.next()?;
        Some(if first > self.last { first } else { ready.find(|id| *id > self.last).unwrap_or(first) })
    }

    fn is_full(&self) -> bool {
        self.devices.values().any(|device| device.waiting.is_full(device.has_worker))
    }
}

impl<Q: DeviceWork> DeviceQueues<Q> {
    /// Lets the workers begin, again after an earlier end.
    pub(crate) fn begin(&self) {
        let mut state = self.state.lock();
        (state.workers, state.running, state.end) = (1, 0, None);
    }

    /// Adds work for a device. Never waits.
    pub(crate) fn add<T>(&self, device: u64, add: impl FnOnce(&mut Q) -> T) -> T {
        let mut state = self.state.lock();
        let waiting = &mut state.devices.entry(device).or_default().waiting;
        let before = waiting.due();
        let result = add(waiting);
        if waiting.due() != before {
            self.added.notify_one();
        }
        result
    }

    /// Waits at most `patience` for work that is due.
    pub(crate) fn next(&self, patience: Duration) -> NextWork<'_, Q> {
        let mut state = self.state.lock();
        let begun = Instant::now();
        let (device, now) = loop {
            let now = Instant::now();
            if let Some(device) = state.ready(now) {
                break (device, now);
            }
            if state.end.is_some() {
                return NextWork::Over;
            }
            if now - begun >= patience {
                return NextWork::Nothing;
            }
            let times = state.without_worker().filter_map(|(_, due)| match due {
                Due::At(at) => Some(at),
                _ => None,
            });
            let until = times.fold(begun + patience, Instant::min);
            self.added.wait_until(&mut state, until);
        };
        (state.running, state.last) = (state.running + 1, device);
        let is_last = state.running == state.workers;
        let needs_worker = is_last && state.workers < WORKERS_MAX && state.end.is_none();
        state.workers += usize::from(needs_worker);
        let of_device = state.devices.entry(device).or_default();
        of_device.has_worker = true;
        let batch = Some(of_device.waiting.take());
        if state.without_worker().any(|(_, due)| due != Due::Never) || state.ready(now).is_some() {
            // The wake-up of this worker may have been for that work.
            self.added.notify_one();
        }
        drop(state);
        self.progressed.notify_all();
        NextWork::Run(Taken { queues: self, device, batch, needs_worker })
    }

    /// Ends the workers after they have run all work.
    pub(crate) fn end(&self) {
        self.end_as(LeftWork::Drain);
    }

    /// Ends the workers after their present work.
    pub(crate) fn stop(&self) {
        self.end_as(LeftWork::Stop);
    }

    fn end_as(&self, end: LeftWork) {
        self.state.lock().end = Some(end);
        self.added.notify_all();
    }

    /// Takes the work of all devices that no worker runs.
    pub(crate) fn take_all(&self) -> Vec<Q::Batch> {
        let devices = std::mem::take(&mut self.state.lock().devices);
        devices.into_values().map(|mut device| device.waiting.take()).collect()
    }

    /// Returns true if a thread that adds work must wait first.
    pub(crate) fn is_full(&self) -> bool {
        self.state.lock().is_full()
    }

    /// Waits at most `within` until more work may be added. Returns true if it may.
    pub(crate) fn wait_for_capacity(&self, within: Duration) -> bool {
        let mut state = self.state.lock();
        self.progressed.wait_while_for(&mut state, |state| state.is_full(), within);
        !state.is_full()
    }
}

impl<Q: DeviceWork> Taken<'_, Q> {
    /// Returns the work, once. `start` starts another worker if none is left for other devices, and
    /// returns false if it cannot: other devices then wait for this one.
    pub(crate) fn batch(&mut self, start: impl FnOnce() -> bool) -> Option<Q::Batch> {
        if std::mem::take(&mut self.needs_worker) && !start() {
            self.queues.state.lock().workers -= 1;
        }
        self.batch.take()
    }
}

impl<Q: DeviceWork> Drop for Taken<'_, Q> {
    /// Lets another worker take the next work of the device, also after a panic.
    fn drop(&mut self) {
        let mut state = self.queues.state.lock();
        state.running -= 1;
        if let Some(device) = state.devices.get_mut(&self.device) {
            device.has_worker = false;
            if device.waiting.due() == Due::Never {
                state.devices.remove(&self.device);
            } else {
                // This worker may not look again, after a panic.
                self.queues.added.notify_one();
            }
        }
        drop(state);
        self.queues.progressed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    const LONG: Duration = Duration::from_secs(600);

    /// Numbers, due at once or at a time.
    #[derive(Default)]
    struct Numbers(Vec<u32>, Option<Instant>);

    impl DeviceWork for Numbers {
        type Batch = Vec<u32>;

        fn due(&self) -> Due {
            match (self.0.is_empty(), self.1) {
                (true, _) => Due::Never,
                (false, Some(at)) => Due::At(at),
                (false, None) => Due::Now,
            }
        }

        fn take(&mut self) -> Vec<u32> {
            std::mem::take(&mut self.0)
        }

        fn is_full(&self, is_running: bool) -> bool {
            self.0.len() >= if is_running { 2 } else { 3 }
        }
    }

    fn push(queues: &DeviceQueues<Numbers>, device: u64, number: u32) {
        queues.add(device, |numbers| numbers.0.push(number));
    }

    #[track_caller]
    fn taken(queues: &DeviceQueues<Numbers>) -> (Taken<'_, Numbers>, Vec<u32>, bool) {
        let NextWork::Run(mut taken) = queues.next(LONG) else { panic!("there is work") };
        let mut needs = false;
        let batch = taken.batch(|| {
            needs = true;
            true
        });
        (taken, batch.unwrap(), needs)
    }

    #[test]
    fn work_of_a_device_stays_in_order_and_other_devices_do_not_wait() {
        let queues = DeviceQueues::default();
        push(&queues, 1, 10);
        push(&queues, 1, 11);
        let (first, numbers, needs) = taken(&queues);
        assert_eq!((first.device, numbers, needs), (1, vec![10, 11], true));
        push(&queues, 1, 12);
        push(&queues, 2, 20);
        // The other worker must not take the work behind that which is being run.
        let (other, numbers, _) = taken(&queues);
        assert_eq!((other.device, numbers), (2, vec![20]));
        drop(first);
        let (later, numbers, _) = taken(&queues);
        assert_eq!((later.device, numbers), (1, vec![12]));
        drop((later, other));
        push(&queues, 2, 21);
        queues.end();
        assert_eq!(taken(&queues).1, [21], "the queues drain before their end");
        assert!(matches!(queues.next(LONG), NextWork::Over) && queues.state.lock().devices.is_empty());
    }

    #[test]
    fn work_is_taken_when_it_is_due_or_left_at_a_stop() {
        let queues = DeviceQueues::default();
        let later = |seconds| Instant::now() + Duration::from_secs(seconds);
        queues.add(1, |numbers| *numbers = Numbers(vec![1], Some(later(600))));
        assert!(matches!(queues.next(Duration::ZERO), NextWork::Nothing));
        thread::scope(|scope| {
            let waiting = scope.spawn(|| taken(&queues).1);
            queues.add(2, |numbers| *numbers = Numbers(vec![2], Some(Instant::now())));
            assert_eq!(waiting.join().unwrap(), [2]);
        });
        assert_eq!(queues.add(1, DeviceWork::take), [1]);
        push(&queues, 3, 4);
        queues.stop();
        assert!(matches!(queues.next(LONG), NextWork::Over));
        assert_eq!(queues.take_all().concat(), [4]);
        queues.begin();
        push(&queues, 1, 5);
        assert_eq!(taken(&queues).1, [5]);
    }

    #[test]
    fn adding_waits_while_one_device_has_too_much_work() {
        let queues = DeviceQueues::default();
        (0..3).for_each(|number| push(&queues, 1, number));
        assert!(queues.is_full() && !queues.wait_for_capacity(Duration::ZERO));
        let (running, ..) = taken(&queues);
        (0..2).for_each(|number| push(&queues, 1, number));
        assert!(queues.is_full(), "earlier work is being run");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| queues.wait_for_capacity(LONG));
            drop(running);
            assert!(waiting.join().unwrap());
        });
    }

    /// Each of two workers can be woken for the work of the other.
    #[test]
    fn no_wake_up_is_lost_between_workers() {
        let queues: DeviceQueues<Numbers> = DeviceQueues::default();
        let sum = Mutex::new(0_u64);
        let work = || {
            while let NextWork::Run(mut taken) = queues.next(LONG) {
                let batch = taken.batch(|| true).unwrap();
                *sum.lock() += batch.iter().map(|number| u64::from(*number)).sum::<u64>();
            }
        };
        thread::scope(|scope| {
            let workers = [(); 3].map(|()| scope.spawn(work));
            for number in 0..3000 {
                push(&queues, u64::from(number % 5), number);
                while number % 100 == 0 && *sum.lock() != (0..=u64::from(number)).sum::<u64>() {
                    thread::yield_now();
                }
            }
            queues.end();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
        });
        assert_eq!(sum.into_inner(), (0..3000).sum::<u64>());
    }
}
