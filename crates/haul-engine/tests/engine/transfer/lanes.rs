//! Tests of opening the lanes of a job.

use super::pair::offer;
use haul_engine::transfer::{BoxError, Dial, SendJob, SimpleObserver, answer, send};
use haul_net::{Lane, StreamLane};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Timeout, longer than any step takes on a loaded machine.
const LONG: Duration = Duration::from_secs(300);

/// Waits for a condition. Returns true if it became true in time.
fn comes(mut holds: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > LONG {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Regression: each further lane costs three round trips. Eight lanes that were opened one after
/// the other before the work took two seconds at 89 ms.
#[test]
fn job_starts_before_additional_lanes_open_concurrently() {
    let home = tempfile::tempdir().expect("a folder");
    let [source, sink] = ["from", "to"].map(|name| home.path().join(name));
    for dir in [&source, &sink] {
        std::fs::create_dir(dir).expect("a folder");
    }
    std::fs::write(source.join("first"), b"at once").expect("writes");
    let (give, take) = channel();
    let give = Mutex::new(give);
    // For each further lane: whether the first file existed, and whether the other lane was being
    // opened too.
    let (asked, seen) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
    let dial = |number: u32| -> Result<StreamLane, BoxError> {
        if number > 0 {
            asked.lock().unwrap().push(number);
            let has_begun = comes(|| sink.join("first").exists());
            let are_both_asked = comes(|| asked.lock().unwrap().len() == 2);
            seen.lock().unwrap().push((has_begun, are_both_asked));
        }
        let (ours, theirs) = StreamLane::pair();
        give.lock().unwrap().send(theirs)?;
        Ok(ours)
    };
    let job = SendJob { lanes: Some(3), ..SendJob::new(vec![source.join("first").into()]) };
    let ends = [SimpleObserver::default(), SimpleObserver::default()];
    let (offer, there) = (&offer(&sink), &ends[1]);
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let first = take.recv_timeout(LONG).expect("a first lane");
            answer(first.into(), &mut || take.try_recv().ok().map(Into::into), offer, &there.run_context())
        });
        let sent = send(&dial, &job, &ends[0].run_context()).expect("a session");
        assert!(sent.is_whole(), "{sent:?}");
        assert!(answering.join().expect("no panic").expect("a session").is_whole());
    });
    assert_eq!(seen.into_inner().unwrap(), [(true, true); 2]);
}

/// Dialer whose further lanes come only when the job wants no more of them.
struct Hanging {
    give: Mutex<Sender<StreamLane>>,
    /// Channel that reports a blocked lane, and the channel that releases it.
    hangs: Mutex<Sender<u32>>,
    over: (Mutex<Option<Sender<()>>>, Mutex<Receiver<()>>),
    /// True for each blocked lane that was given up.
    were_given_up: Mutex<Vec<bool>>,
}

impl Dial for Hanging {
    fn lane(&self, number: u32) -> Result<Box<dyn Lane>, BoxError> {
        if number > 0 {
            self.hangs.lock().unwrap().send(number)?;
            // The side that gives up drops the other end.
            let waited = self.over.1.lock().unwrap().recv_timeout(LONG);
            let is_given_up = waited == Err(std::sync::mpsc::RecvTimeoutError::Disconnected);
            self.were_given_up.lock().unwrap().push(is_given_up);
            return Err("it never came".into());
        }
        let (ours, theirs) = StreamLane::pair();
        self.give.lock().unwrap().send(theirs)?;
        Ok(ours.into())
    }

    fn give_up(&self) {
        self.over.0.lock().unwrap().take();
    }
}

/// Regression: a finished job waited for every lane that was still being opened.
#[test]
fn job_finishes_on_open_lanes_and_gives_up_hanging_ones() {
    let home = tempfile::tempdir().expect("a folder");
    let [source, sink] = ["from", "to"].map(|name| home.path().join(name));
    for dir in [&source, &sink] {
        std::fs::create_dir(dir).expect("a folder");
    }
    std::fs::write(source.join("file"), vec![7; 3 << 20]).expect("writes");
    let (give, take) = channel();
    let (hangs, hanging) = channel();
    let (end, over) = channel();
    let dial = Hanging {
        give: give.into(),
        hangs: hangs.into(),
        over: (Some(end).into(), over.into()),
        were_given_up: Mutex::default(),
    };
    let job = SendJob { lanes: Some(3), ..SendJob::new(vec![source.join("file").into()]) };
    let ends = [SimpleObserver::default(), SimpleObserver::default()];
    let (offer, there) = (&offer(&sink), &ends[1]);
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || {
            let first = take.recv_timeout(LONG).expect("a first lane");
            answer(first.into(), &mut || None, offer, &there.run_context())
        });
        let sent = send(&dial, &job, &ends[0].run_context()).expect("a session");
        assert!(sent.is_whole(), "{sent:?}");
        assert!(answering.join().expect("no panic").expect("a session").is_whole());
    });
    let mut asked: Vec<u32> = hanging.try_iter().collect();
    asked.sort_unstable();
    assert_eq!(asked, [1, 2]);
    assert_eq!(dial.were_given_up.into_inner().unwrap(), [true, true]);
    assert_eq!(std::fs::read(sink.join("file")).expect("it arrived"), vec![7; 3 << 20]);
}
