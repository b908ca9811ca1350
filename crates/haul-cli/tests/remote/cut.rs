//! Jobs of tests that are cut off where it is meant, however busy the machine is.

use super::resumed::{Play, RATE, RATE_LEAST, Victim, Way, bytes_beneath};
use super::stopped::wait_until;
use std::process::Child;

/// How often a job is begun that ends before it can be cut off.
const ATTEMPTS: u32 = 20;

impl Play {
    /// Begins the job at this rate, and has it ended once it came as far as is meant. Whether it is what is meant then, too: a job may go on, and
    /// come to its end, between the look and its end.
    fn ended_at(&self, rate: u64, is_meant: impl Fn(&Play) -> bool, end: impl FnOnce(&Play, Child)) -> bool {
        let mut child = self.start(&[&format!("--rate={rate}")]);
        let mut over = None;
        wait_until("what is meant", || {
            over = child.try_wait().unwrap();
            over.is_some() || is_meant(self)
        });
        match over {
            Some(status) => assert!(status.success(), "{status}"),
            None => end(self, child),
        }
        self.far_side_is_gone();
        over.is_none() && is_meant(self)
    }

    /// Cuts the job off with objects in its log of files that are not whole. Where one of them became whole at the last moment, the job is gone on
    /// with until the next.
    #[track_caller]
    pub(super) fn cut_off(&self, victim: Victim) {
        let has_objects = |play: &Play| play.durable().1 > 0;
        let is_cut = || self.ended_at(RATE_LEAST, has_objects, |play, child| play.kill(child, victim));
        assert!((0..ATTEMPTS).any(|_| is_cut()), "nothing was ever logged of what was not whole");
    }
}

/// A job that was cut off in the middle with objects in its log.
#[track_caller]
pub(super) fn cut_in_the_middle(way: Way, options: &[&str]) -> Play {
    cut_with(way, options, |_| ()).0
}

/// As [`cut_in_the_middle`], of a job that something was made ready for.
#[track_caller]
pub(super) fn cut_with<T>(way: Way, options: &[&str], ready: impl Fn(&Play) -> T) -> (Play, T) {
    ended_when((way, options), ready, is_in_the_middle, |play, child| play.kill(child, Victim::Both))
}

/// Half of the bytes are there, and objects of what is not whole are logged.
pub(super) fn is_in_the_middle(play: &Play) -> bool {
    bytes_beneath(&play.sink()) >= play.total() / 2 && play.durable().1 > 0
}

/// A job that was ended when it had come as far as is meant, and something that was made ready for it. Where one was over before anybody looked, the
/// next is slower.
#[track_caller]
pub(super) fn ended_when<T>(
    (way, options): (Way, &[&str]),
    ready: impl Fn(&Play) -> T,
    is_meant: impl Fn(&Play) -> bool,
    end: impl Fn(&Play, Child),
) -> (Play, T) {
    let mut rate = RATE;
    for _ in 0..ATTEMPTS {
        let play = Play::new(way, &[&["--sync=object"], options].concat());
        let made = ready(&play);
        if play.ended_at(rate, &is_meant, &end) {
            return (play, made);
        }
        rate = (rate / 4).max(RATE_LEAST);
    }
    panic!("none of {ATTEMPTS} jobs was ended where it was meant to be");
}
