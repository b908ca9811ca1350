//! Congestion controller of a lane that holds a fixed rate.

use quinn_proto::congestion::{Controller, ControllerFactory};
use std::any::Any;
use std::sync::Arc;
use std::time::Instant;

/// Window in bytes that never limits. `quinn-proto` does not pace by a window above 4 GiB, so only
/// the [`Pacer`](crate::Pacer) of the lane decides when datagrams leave.
const WINDOW: u64 = 1 << 40;

/// Controller without reaction to loss and delay.
#[derive(Clone, Copy, Debug)]
pub(super) struct FixedRate;

impl Controller for FixedRate {
    fn on_congestion_event(&mut self, _now: Instant, _sent: Instant, _is_persistent: bool, _lost: u64) {}

    fn on_mtu_update(&mut self, _new_mtu: u16) {}

    fn window(&self) -> u64 {
        WINDOW
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(*self)
    }

    fn initial_window(&self) -> u64 {
        WINDOW
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

impl ControllerFactory for FixedRate {
    fn build(self: Arc<Self>, _now: Instant, _current_mtu: u16) -> Box<dyn Controller> {
        Box::new(*self)
    }
}
