//! Tests of further lanes whose JOIN is late or missing.

use super::misbehaving_peer::Nobody;
use super::pair::{Pair, offer};
use haul_engine::transfer::{Outcome, RunContext, Tally, TransferError, answer};
use haul_lab::misbehaving_peer::{MisbehavingPeer, connect, file_close, frame, new_file, plain, read};
use haul_net::{LaneError, StreamLane};
use haul_proto::{JobOptions, Join, LaneId, Message};
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Timeout, longer than any step takes on a loaded machine.
const LONG: Duration = Duration::from_secs(300);

/// Returns a lane on which half a JOIN has arrived and nothing follows.
fn half_joined() -> (MisbehavingPeer, StreamLane) {
    let (ours, theirs) = StreamLane::pair();
    let mut silent = MisbehavingPeer::at(ours);
    let join = frame(&Message::Join(Join { token: [7; 32], lane: LaneId(1) }));
    silent.writer.write_all(&join[..join.len() / 2]).unwrap();
    (silent, theirs)
}

/// Returns true if the peer has not closed the lane.
fn is_open(lane: &mut MisbehavingPeer) -> bool {
    lane.reader.set_stall(Some(Duration::from_millis(1)));
    matches!(lane.reader.read_some(&mut [0; 16]), Err(LaneError::Stalled { .. }))
}

/// Waits until the peer closes the lane. Returns false if that does not happen in time.
fn is_given_up(mut lane: MisbehavingPeer) -> bool {
    lane.reader.set_stall(Some(LONG));
    !matches!(lane.reader.read_some(&mut [0; 16]), Ok(1..) | Err(LaneError::Stalled { .. }))
}

/// Answers one session whose further lanes come from `lanes`; calls `asked` at each request for a
/// lane.
fn answer_with(
    pair: &Pair,
    first: StreamLane,
    lanes: &Receiver<StreamLane>,
    asked: &mut dyn FnMut(),
) -> Result<Outcome, TransferError> {
    let (stop, tally) = (AtomicBool::new(false), Tally::default());
    let mut more = || {
        asked();
        lanes.try_recv().ok().map(Into::into)
    };
    let run_context = RunContext { stop: &stop, tally: &tally, report: &Nobody, receipt: None };
    answer(first.into(), &mut more, &offer(&pair.sink()), &run_context)
}

/// Regression: the session's timer thread waited for the JOIN. For 30 seconds it neither noticed a
/// stop nor accepted a lane.
#[test]
fn incomplete_join_delays_neither_its_session_nor_later_lanes() {
    let pair = Pair::new();
    let (ours, first) = StreamLane::pair();
    let (give, lanes) = channel();
    let [(mut silent, one), (other, two)] = [half_joined(), half_joined()];
    give.send(one).unwrap();
    give.send(two).unwrap();
    let (tell, asked_again) = channel();
    std::thread::scope(|scope| {
        let pair = &pair;
        let answering = scope.spawn(move || {
            let mut asked = 0;
            answer_with(pair, first, &lanes, &mut || {
                asked += 1;
                // Two requests got a lane that sends nothing; now the session asks for the next
                // lane.
                if asked == 3 {
                    tell.send(is_open(&mut silent)).unwrap();
                }
            })
        });
        let mut peer = MisbehavingPeer::at(ours);
        peer.say(&Message::Connect(Box::new(connect(&JobOptions::default()))), &[]);
        let Message::Accept(accept) = peer.hear() else { panic!("it is accepted") };
        assert_eq!(asked_again.recv_timeout(LONG), Ok(true), "no thread waits for the silent lane");
        // A later lane is accepted: the answer for its file arrives there.
        let (joins, theirs) = StreamLane::pair();
        give.send(theirs).unwrap();
        let mut joins = MisbehavingPeer::at(joins);
        joins.say(&Message::Join(Join { token: accept.token, lane: LaneId(1) }), &[]);
        joins.say(&Message::NewFile(Box::new(new_file(0, b"f", plain(0)))), &[]);
        joins.say(&file_close(0, read(0)), &[]);
        assert!(matches!(joins.hear(), Message::FileDone(_)));
        // The job completes although one lane of its session never sent anything.
        peer.part(1);
        joins.writer.finish().unwrap();
        assert!(answering.join().unwrap().unwrap().is_whole());
    });
    assert!(is_given_up(other), "what never joined ends with the session");
    assert!(pair.sink().join("f").exists());
}

#[test]
fn lanes_above_the_session_maximum_are_closed() {
    let pair = Pair::new();
    let (ours, first) = StreamLane::pair();
    let (give, lanes) = channel();
    let mut silent = Vec::new();
    for _ in 0..offer(&pair.sink()).lanes + 3 {
        let (peer, lane) = half_joined();
        silent.push(peer);
        give.send(lane).unwrap();
    }
    std::thread::scope(|scope| {
        let pair = &pair;
        let answering = scope.spawn(move || answer_with(pair, first, &lanes, &mut || {}));
        let mut peer = MisbehavingPeer::at(ours);
        peer.say(&Message::Connect(Box::new(connect(&JobOptions::default()))), &[]);
        assert!(matches!(peer.hear(), Message::Accept(_)));
        for _ in 0..3 {
            assert!(is_given_up(silent.pop().unwrap()), "there is no room for it");
        }
        peer.part(0);
        assert!(answering.join().unwrap().unwrap().is_whole());
    });
    assert!(silent.into_iter().all(is_given_up));
}
