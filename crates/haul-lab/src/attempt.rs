//! Repeats of tests whose precondition can be missed.
//!
//! A test that needs an interrupted job shows nothing if the job finished first. Such a test runs
//! its body with [`attempt`], which repeats the body at most twice, reports each repeat, and then
//! fails. The body returns [`Inconclusive`] if its precondition was not reached. It panics if a
//! postcondition does not hold, and a panic is never retried.

use std::fmt;
use std::io::{self, Write};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

/// Maximum number of runs of a test's body.
const ATTEMPTS: u32 = 3;

/// Longest time that a test waits for an event before it fails. The limit is far above the time of
/// any event on a busy machine. Only a hang reaches it.
pub const TEST_TIMEOUT: Duration = Duration::from_secs(300);

/// Time between two checks for an event that can only be polled.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The reason why an attempt neither passed nor failed: its precondition was not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inconclusive(String);

impl Inconclusive {
    /// Returns an inconclusive result with this reason.
    pub fn new(reason: impl fmt::Display) -> Self {
        Self(reason.to_string())
    }
}

/// Runs `body` until it reaches its precondition, at most three times, and returns its result.
/// Before each repeat, prints `INCONCLUSIVE 2/3 TEST-NAME: REASON` (or `3/3`) to standard error,
/// past the capture of the test harness.
///
/// # Panics
/// Panics if no attempt reached its precondition. A panic of `body` is passed on at once.
#[track_caller]
pub fn attempt<T>(body: impl FnMut() -> Result<T, Inconclusive>) -> T {
    // Unlike `eprintln!`, a write to standard error itself is not captured. A write error is
    // ignored: only the line is lost.
    let tell = |line: &str| drop(writeln!(io::stderr(), "{line}"));
    conclude(attempt_reporting(body, tell))
}

/// Returns the result of the attempt that reached its precondition; panics if there is none.
#[track_caller]
fn conclude<T>(result: Result<T, String>) -> T {
    result.unwrap_or_else(|reason| panic!("inconclusive {ATTEMPTS} times, the last time because: {reason}"))
}

/// Does the same as [`attempt`], but reports a repeat to `tell`. Returns the last reason if no
/// attempt reached its precondition.
fn attempt_reporting<T>(
    mut body: impl FnMut() -> Result<T, Inconclusive>,
    mut tell: impl FnMut(&str),
) -> Result<T, String> {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let mut number = 1;
    loop {
        match body() {
            Ok(done) => return Ok(done),
            Err(Inconclusive(reason)) if number == ATTEMPTS => return Err(reason),
            Err(Inconclusive(reason)) => {
                number += 1;
                tell(&format!("INCONCLUSIVE {number}/{ATTEMPTS} {name}: {reason}"));
            }
        }
    }
}

/// Polls until `holds` returns true.
///
/// # Panics
/// Panics if that takes longer than [`TEST_TIMEOUT`]; the message names `what`.
#[track_caller]
pub fn wait_until(what: impl fmt::Display, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "{what}: not reached within {TEST_TIMEOUT:?}");
        sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    /// Runs a body that reaches its precondition at attempt `number`. Returns its result, the
    /// reported lines and the number of runs.
    fn reached_at(number: u32) -> (Result<u32, String>, Vec<String>, u32) {
        let (mut lines, mut ran) = (Vec::new(), 0);
        let body = || {
            ran += 1;
            if ran < number { Err(Inconclusive::new(format!("reason {ran}"))) } else { Ok(ran) }
        };
        let result = attempt_reporting(body, |line| lines.push(line.to_owned()));
        (result, lines, ran)
    }

    #[test]
    fn body_that_reaches_its_precondition_runs_once_silently() {
        assert_eq!(reached_at(1), (Ok(1), vec![], 1));
    }

    #[test]
    fn each_retry_is_reported_with_number_test_and_reason() {
        let name = thread::current().name().unwrap().to_owned();
        let second = format!("INCONCLUSIVE 2/3 {name}: reason 1");
        let third = format!("INCONCLUSIVE 3/3 {name}: reason 2");
        assert_eq!(reached_at(2), (Ok(2), vec![second.clone()], 2));
        assert_eq!(reached_at(3), (Ok(3), vec![second, third], 3));
    }

    #[test]
    fn a_third_inconclusive_attempt_is_the_last() {
        let (result, lines, ran) = reached_at(4);
        assert_eq!((result, lines.len(), ran), (Err("reason 3".to_owned()), 2, 3));
    }

    #[test]
    fn panic_is_propagated_and_not_retried() {
        let mut ran = 0;
        let body = || -> Result<(), Inconclusive> {
            ran += 1;
            panic!("a postcondition");
        };
        let caught = catch_unwind(AssertUnwindSafe(|| attempt(body)));
        assert_eq!(caught.unwrap_err().downcast_ref::<&str>(), Some(&"a postcondition"));
        assert_eq!(ran, 1);
    }

    #[test]
    #[should_panic(expected = "inconclusive 3 times, the last time because: it was over before")]
    fn inconclusive_test_fails() {
        // Does not call `attempt`: the lines that `attempt` prints count in the report of a run.
        conclude(attempt_reporting(|| Err::<(), _>(Inconclusive::new("it was over before")), |_| ()));
    }

    #[test]
    fn wait_until_polls_until_the_condition_holds() {
        let mut polls = 0;
        wait_until("the third poll", || {
            polls += 1;
            polls == 3
        });
        assert_eq!(polls, 3);
    }
}
