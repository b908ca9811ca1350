//! Lines of JSON for a browser, gathered into blocks.

use crate::json;
use haul_web::SendLines;
use parking_lot::Mutex;
use serde::Serialize;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

/// Interval of lines with the progress.
const INTERVAL: Duration = Duration::from_millis(250);

/// Bytes of lines that are sent at once.
const BLOCK_BYTES: usize = 32 << 10;

/// Lines that several threads write.
pub(super) struct Lines<'a> {
    state: Mutex<State<'a>>,
    /// Set to true when the browser takes no more lines.
    pub(super) stop: AtomicBool,
}

struct State<'a> {
    block: Vec<u8>,
    send: SendLines<'a>,
}

impl<'a> Lines<'a> {
    pub(super) fn new(send: SendLines<'a>) -> Lines<'a> {
        Lines { state: Mutex::new(State { block: Vec::new(), send }), stop: AtomicBool::new(false) }
    }

    /// Adds a line.
    pub(super) fn add(&self, event: &impl Serialize) {
        self.write(event, false);
    }

    /// Adds a line, and sends it with all lines before it.
    pub(super) fn send(&self, event: &impl Serialize) {
        self.write(event, true);
    }

    fn write(&self, event: &impl Serialize, is_last: bool) {
        let mut state = self.state.lock();
        // Writing to memory cannot fail, and events have no maps.
        let _ = json::to_writer(&mut state.block, event);
        state.block.push(b'\n');
        if is_last || state.block.len() >= BLOCK_BYTES {
            let block = std::mem::take(&mut state.block);
            if !(state.send)(block) {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Runs `work`, and sends `progress` until it ends.
    pub(super) fn during<T, E: Serialize>(
        &self,
        progress: impl Fn() -> E + Send + Sync,
        work: impl FnOnce() -> T,
    ) -> T {
        thread::scope(|scope| {
            let (ended, end) = mpsc::channel::<()>();
            let report = move || {
                while end.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                    self.send(&progress());
                }
            };
            // Without this thread, the browser sees no progress.
            let _ = thread::Builder::new().name("haul-web-progress".into()).spawn_scoped(scope, report);
            let result = work();
            drop(ended);
            result
        })
    }
}
