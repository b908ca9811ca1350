//! The rate of sending: held, or found by a controller.

use crate::config::Rate;
use crate::finder::Finder;
use crate::flight::Outcome;
use crate::rtt::Rtt;
use crate::time::Time;

/// Source of the rate and of the window.
#[derive(Debug)]
pub(crate) enum Control {
    /// Rate in bytes per second.
    Fixed(u64),
    Found(Box<Finder>),
}

impl Control {
    pub(crate) fn new(rate: Rate, now: Time, rtt: &Rtt, seed: u64) -> Self {
        match rate {
            Rate::Fixed(rate) => Control::Fixed(rate.max(1)),
            Rate::Found { max, start } => Control::Found(Box::new(Finder::new(max, start, now, rtt, seed))),
        }
    }

    pub(crate) fn is_held(&self) -> bool {
        matches!(self, Control::Fixed(_))
    }

    /// Rate in bytes per second, above 0.
    pub(crate) fn rate(&self) -> u64 {
        match self {
            Control::Fixed(rate) => *rate,
            Control::Found(finder) => finder.rate(),
        }
    }

    /// Maximum number of bytes in flight.
    pub(crate) fn window(&self, datagram: usize) -> u64 {
        match self {
            Control::Fixed(_) => u64::MAX,
            Control::Found(finder) => finder.window(datagram as u64),
        }
    }

    pub(crate) fn on_outcome(
        &mut self,
        now: Time,
        outcome: &Outcome,
        rtt: &Rtt,
        in_flight: u64,
        delivered: u64,
    ) {
        if let Control::Found(finder) = self {
            finder.on_outcome(now, outcome, rtt, in_flight, delivered);
        }
    }

    /// True if the rate of the path is unknown and a train may measure it.
    pub(crate) fn wants_train(&self) -> bool {
        matches!(self, Control::Found(finder) if finder.wants_train())
    }

    /// Records the start of a train that is long enough to be a queue.
    pub(crate) fn on_long_train(&mut self) {
        if let Control::Found(finder) = self {
            finder.on_long_train();
        }
    }

    /// Takes the peer's measurement of a train in bytes per second.
    pub(crate) fn on_train(&mut self, rate: u64) {
        if let Control::Found(finder) = self {
            finder.on_train(rate);
        }
    }

    /// Nothing was acknowledged for two probe timeouts.
    pub(crate) fn on_silence(&mut self) {
        if let Control::Found(finder) = self {
            finder.on_silence();
        }
    }

    pub(crate) fn delivery_rate(&self) -> u64 {
        match self {
            Control::Fixed(_) => 0,
            Control::Found(finder) => finder.delivery_rate(),
        }
    }

    pub(crate) fn queue(&self) -> u64 {
        match self {
            Control::Fixed(_) => 0,
            Control::Found(finder) => finder.queue(),
        }
    }
}
