//! Test jobs that are interrupted at a defined point, even on a busy machine.

use super::resumed::{Direction, KilledSide, RATE, RATE_LEAST, ResumeScenario, bytes_beneath};
use super::stopped::wait_until;
use std::process::Child;

/// Maximum number of attempts to interrupt a job before it finishes.
const ATTEMPTS: u32 = 20;

impl ResumeScenario {
    /// Starts the job at `rate` bytes per second and calls `end` when `is_meant` first returns
    /// true. Returns true if the condition still holds afterwards: a job may continue, and finish,
    /// between the check and the call.
    fn ended_at(
        &self,
        rate: u64,
        is_meant: impl Fn(&ResumeScenario) -> bool,
        end: impl FnOnce(&ResumeScenario, Child),
    ) -> bool {
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
        self.wait_for_remote_exit();
        over.is_none() && is_meant(self)
    }

    /// Interrupts the job while its log holds objects of incomplete files. If these files complete
    /// at the last moment, resumes the job and tries again.
    #[track_caller]
    pub(super) fn cut_off(&self, victim: KilledSide) {
        let has_objects = |scenario: &ResumeScenario| scenario.durable().1 > 0;
        let is_cut =
            || self.ended_at(RATE_LEAST, has_objects, |scenario, child| scenario.kill(child, victim));
        assert!((0..ATTEMPTS).any(|_| is_cut()), "nothing was ever logged of what was not whole");
    }
}

/// Returns a job that was interrupted in the middle, with objects in its log.
#[track_caller]
pub(super) fn cut_in_the_middle(direction: Direction, options: &[&str]) -> ResumeScenario {
    cut_with(direction, options, |_| ()).0
}

/// Does the same as [`cut_in_the_middle`] after calling `ready` on the job.
#[track_caller]
pub(super) fn cut_with<T>(
    direction: Direction,
    options: &[&str],
    ready: impl Fn(&ResumeScenario) -> T,
) -> (ResumeScenario, T) {
    ended_when((direction, options), ready, is_in_the_middle, |scenario, child| {
        scenario.kill(child, KilledSide::Both);
    })
}

/// Returns true if the sink holds half of the bytes and the log holds objects of incomplete files.
pub(super) fn is_in_the_middle(scenario: &ResumeScenario) -> bool {
    bytes_beneath(&scenario.sink()) >= scenario.total() / 2 && scenario.durable().1 > 0
}

/// Returns a job that `end` ended when `is_meant` held, and the result of `ready`. If a job
/// finishes before that, the next job runs at a quarter of the rate, but at least at `RATE_LEAST`.
#[track_caller]
pub(super) fn ended_when<T>(
    (direction, options): (Direction, &[&str]),
    ready: impl Fn(&ResumeScenario) -> T,
    is_meant: impl Fn(&ResumeScenario) -> bool,
    end: impl Fn(&ResumeScenario, Child),
) -> (ResumeScenario, T) {
    let mut rate = RATE;
    for _ in 0..ATTEMPTS {
        let scenario = ResumeScenario::new(direction, &[&["--sync=object"], options].concat());
        let made = ready(&scenario);
        if scenario.ended_at(rate, &is_meant, &end) {
            return (scenario, made);
        }
        rate = (rate / 4).max(RATE_LEAST);
    }
    panic!("none of {ATTEMPTS} jobs was ended where it was meant to be");
}
