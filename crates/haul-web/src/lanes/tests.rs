//! Tests of lanes without HTTP: bodies from memory, and the other end of the socket pair.

use super::*;
use crate::limits::{
    PIECE_BYTES_MAX, PIECE_KEPT_BYTES_MAX, PIECES_AHEAD_MAX, UNREAD_BYTES_MAX, UPLOAD_BYTES_MAX,
};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;

/// A body of these blocks, which then fails, or waits without an end.
struct Blocks {
    blocks: VecDeque<Bytes>,
    fails: bool,
}

impl Blocks {
    fn failing(blocks: &[&[u8]]) -> Blocks {
        Blocks { blocks: blocks.iter().map(|block| Bytes::copy_from_slice(block)).collect(), fails: true }
    }

    fn waiting(blocks: &[&[u8]]) -> Blocks {
        Blocks { fails: false, ..Blocks::failing(blocks) }
    }
}

impl Body for Blocks {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        match self.blocks.pop_front() {
            Some(block) => Poll::Ready(Some(Ok(Frame::data(block)))),
            None if self.fails => Poll::Ready(Some(Err(std::io::ErrorKind::ConnectionReset.into()))),
            None => Poll::Pending,
        }
    }
}

fn whole(bytes: impl Into<Bytes>) -> impl Body<Data = Bytes, Error = Infallible> {
    Full::new(bytes.into())
}

fn quick() -> WebLimits {
    WebLimits {
        poll: Duration::from_millis(20),
        body_stall: Duration::from_millis(50),
        ..WebLimits::default()
    }
}

/// Runs a test with an open lane: its limits, the lane, and the end of the session code.
fn with_lane<F: Future>(limits: WebLimits, test: impl FnOnce(Arc<Use>, StdUnixStream) -> F) -> F::Output {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let lanes = Lanes::new(limits);
        let Opened { id, socket, .. } = lanes.open(Instant::now()).expect("a lane");
        let lane = lanes.lane(&id).expect("it is open");
        test(Arc::new(lane), socket.into()).await
    })
}

/// Returns the bytes of a piece and whether it is the last one, as a browser that takes all of it.
async fn take(lane: &Lane, number: u64) -> Result<Option<(Vec<u8>, bool)>, LaneRefusal> {
    let Some(piece) = lane.get(number).await? else { return Ok(None) };
    let mut bytes = piece.blocks.concat();
    if piece.is_open {
        while let Some(block) = lane.more(number).await {
            bytes.extend_from_slice(&block);
        }
        lane.close(number);
    }
    Ok(Some((bytes, piece.is_last)))
}

fn piece(bytes: &[u8], is_last: bool) -> Option<(Vec<u8>, bool)> {
    Some((bytes.to_vec(), is_last))
}

#[test]
fn uploads_are_put_in_order_whatever_their_order_of_arrival() {
    with_lane(WebLimits::default(), |lane, mut far| async move {
        let later: Vec<_> = [4, 2, 3, 1]
            .map(|number: u64| {
                let lane = lane.clone();
                tokio::spawn(async move {
                    lane.put(number, None, number == 4, whole(vec![number as u8; 3])).await
                })
            })
            .into();
        lane.put(0, None, false, whole(vec![0; 3])).await.expect("taken");
        for upload in later {
            upload.await.expect("no panic").expect("taken");
        }
        let mut read = Vec::new();
        far.read_to_end(&mut read).expect("the direction has ended");
        assert_eq!(read, [[0; 3], [1; 3], [2; 3], [3; 3], [4; 3]].concat());
        assert_eq!(lane.put(5, None, false, whole("x")).await, Err(LaneRefusal::PastTheEnd));
    });
}

#[test]
fn a_repeated_upload_continues_behind_the_bytes_that_were_taken() {
    with_lane(WebLimits::default(), |lane, mut far| async move {
        let cut = lane.put(0, None, false, Blocks::failing(&[b"ab", b"cd"])).await;
        assert_eq!(cut, Err(LaneRefusal::Incomplete));
        assert_eq!(lane.put(0, None, false, Blocks::failing(&[b"abc"])).await, Err(LaneRefusal::Incomplete));
        // The reset of a stream can look like the end of its body.
        let cut = lane.put(0, Some(6), false, whole("abcde")).await;
        assert_eq!(cut, Err(LaneRefusal::Incomplete));
        lane.put(0, Some(6), false, whole("abcdef")).await.expect("taken");
        lane.put(0, None, false, whole("abcdef")).await.expect("it was taken, and is ignored");
        lane.put(1, None, true, whole("gh")).await.expect("taken");
        let mut read = String::new();
        far.read_to_string(&mut read).expect("the direction has ended");
        assert_eq!(read, "abcdefgh");
    });
}

#[test]
fn the_latest_upload_of_a_number_takes_the_turn() {
    with_lane(WebLimits::default(), |lane, mut far| async move {
        let first = lane.clone();
        let first = tokio::spawn(async move { first.put(0, None, false, Blocks::waiting(&[b"abc"])).await });
        let mut read = [0; 3];
        // The first request holds the turn and waits for more of its body.
        let mut far = tokio::task::spawn_blocking(move || far.read_exact(&mut read).map(|()| far))
            .await
            .expect("no panic")
            .expect("three bytes");
        lane.put(0, None, true, whole("abcdef")).await.expect("taken");
        let mut rest = String::new();
        far.read_to_string(&mut rest).expect("the direction has ended");
        assert_eq!(rest, "def");
        // The first one ends when it sends again, or when its body stalls.
        first.abort();
    });
}

#[test]
fn uploads_out_of_bounds_are_refused() {
    with_lane(quick(), |lane, far| async move {
        assert_eq!(lane.put(9, None, false, whole("x")).await, Err(LaneRefusal::TooFarAhead(8)));
        assert_eq!(lane.put(8, None, false, whole("x")).await, Err(LaneRefusal::Waited));
        assert_eq!(lane.put(0, None, false, Blocks::waiting(&[b"x"])).await, Err(LaneRefusal::Stalled));
        // A request with the same number must have the same bytes.
        assert_eq!(lane.put(0, None, false, whole("")).await, Err(LaneRefusal::Differs));
        assert_eq!(lane.put(0, None, false, whole("x")).await, Err(LaneRefusal::Gone));
        drop(far);
    });
    with_lane(WebLimits::default(), |lane, far| async move {
        let far = thread::spawn(move || std::io::copy(&mut &far, &mut std::io::sink()));
        let body = whole(vec![0; UPLOAD_BYTES_MAX as usize + 1]);
        let too_large = lane.put(0, None, false, body).await;
        assert!(matches!(too_large, Err(LaneRefusal::TooLarge(_))), "{too_large:?}");
        far.join().expect("no panic").expect("the lane has ended");
    });
}

#[test]
fn an_upload_to_a_slow_receiver_is_repeated_without_loss() {
    with_lane(quick(), |lane, mut far| async move {
        // More than the socket holds.
        let bytes = random_bytes(1 << 20);
        assert_eq!(lane.put(0, None, false, whole(bytes.clone())).await, Err(LaneRefusal::Waited));
        let reader = thread::spawn(move || {
            let mut read = Vec::new();
            far.read_to_end(&mut read).map(|_| read)
        });
        lane.put(0, None, true, whole(bytes.clone())).await.expect("taken");
        assert_eq!(reader.join().expect("no panic").expect("read"), bytes);
    });
}

#[test]
fn pieces_are_repeated_until_later_ones_are_requested() {
    with_lane(quick(), |lane, mut far| async move {
        assert_eq!(take(&lane, 0).await, Ok(None), "nothing to send yet");
        for (number, text) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            far.write_all(text.as_bytes()).expect("written");
            let got = loop {
                if let Some(got) = take(&lane, number as u64).await.expect("a piece") {
                    break got;
                }
            };
            assert_eq!(Some(got), piece(text.as_bytes(), false));
        }
        // Five requests can be in flight, so the first piece may still be lost.
        assert_eq!(take(&lane, 0).await, Ok(piece(b"a", false)));
        assert_eq!(take(&lane, 10).await, Err(LaneRefusal::TooFarAhead(4)));
        assert_eq!(take(&lane, 5).await, Ok(None));
        assert_eq!(take(&lane, 0).await, Err(LaneRefusal::NotKept));
        assert_eq!(take(&lane, 1).await, Ok(piece(b"b", false)));
        far.write_all(b"f").expect("written");
        drop(far);
        let (mut bytes, mut is_last) = take(&lane, 5).await.expect("a piece").expect("bytes are there");
        assert_eq!(bytes, b"f");
        if !is_last {
            // The end of the stream was not known yet when the piece started.
            (bytes, is_last) = take(&lane, 6).await.expect("a piece").expect("the end is there");
            assert!(bytes.is_empty() && is_last);
        }
        assert_eq!(take(&lane, 8).await, Err(LaneRefusal::PastTheEnd));
    });
}

#[test]
fn an_open_piece_takes_what_follows_and_ends_when_it_is_requested_again() {
    with_lane(WebLimits::default(), |lane, mut far| async move {
        far.write_all(b"ab").expect("written");
        let first = lane.get(0).await.expect("a piece").expect("bytes are there");
        assert!(first.is_open && !first.is_last);
        // A second one would take bytes of the first one.
        let next = lane.clone();
        let next = tokio::spawn(async move { take(&next, 1).await });
        let mut taken = first.blocks.concat();
        far.write_all(b"cd").expect("written");
        while taken.len() < 4 {
            if let Some(block) = lane.more(0).await {
                taken.extend_from_slice(&block);
            }
        }
        assert_eq!((taken.as_slice(), next.is_finished()), (&b"abcd"[..], false));
        // The connection of the first request was lost: another one gets the same bytes.
        assert_eq!(take(&lane, 0).await, Ok(piece(b"abcd", false)));
        assert_eq!(lane.more(0).await, None, "the first request is over");
        far.write_all(b"ef").expect("written");
        assert_eq!(next.await.expect("no panic"), Ok(piece(b"ef", false)));
    });
}

#[test]
fn large_pieces_are_not_kept() {
    with_lane(WebLimits::default(), |lane, mut far| async move {
        let bytes = random_bytes(3 * PIECE_KEPT_BYTES_MAX);
        let sent = bytes.clone();
        let writer = thread::spawn(move || far.write_all(&sent).map(|()| far));
        let mut taken = Vec::new();
        let mut number = 0;
        while taken.len() < bytes.len() {
            let piece = lane.get(number).await.expect("a piece").expect("bytes are there");
            taken.extend_from_slice(&piece.blocks.concat());
            while let Some(block) = lane.more(number).await {
                taken.extend_from_slice(&block);
            }
            lane.close(number);
            let is_large = lane.download().given.back().expect("given").len > PIECE_KEPT_BYTES_MAX;
            let again = take(&lane, number).await;
            assert_eq!(again == Err(LaneRefusal::NotKept), is_large);
            let memory: usize =
                lane.download().given.iter().flat_map(|given| &given.blocks).map(Bytes::len).sum();
            assert!(memory <= (PIECES_AHEAD_MAX as usize + 1) * PIECE_KEPT_BYTES_MAX, "{memory}");
            number += 1;
        }
        assert!(taken == bytes, "the bytes differ");
        drop(writer.join().expect("no panic").expect("written"));
    });
}

#[test]
fn requests_for_later_pieces_wait_for_their_turn() {
    with_lane(WebLimits::default(), |lane, mut far| async move {
        let bytes = random_bytes(12 << 20);
        let sent = bytes.clone();
        let writer = thread::spawn(move || far.write_all(&sent));
        let mut requests: VecDeque<_> = VecDeque::new();
        let (mut number, mut read) = (0, Vec::new());
        loop {
            while requests.len() < 5 {
                let lane = lane.clone();
                requests.push_back(tokio::spawn(async move { take(&lane, number).await }));
                number += 1;
            }
            let got = requests.pop_front().expect("five of them").await.expect("no panic");
            let (bytes, is_last) = got.expect("a piece").expect("in time");
            read.extend_from_slice(&bytes);
            if is_last {
                break;
            }
        }
        writer.join().expect("no panic").expect("written");
        assert!(read == bytes, "the bytes differ");
    });
}

#[test]
fn a_full_piece_ends_and_the_next_one_continues() {
    with_lane(WebLimits::default(), |lane, mut far| async move {
        far.write_all(b"a").expect("written");
        let first = lane.get(0).await.expect("a piece").expect("a byte is there");
        assert_eq!((first.blocks.concat().as_slice(), first.is_open), (&b"a"[..], true));
        // As if it had that many bytes already.
        lane.download().given.back_mut().expect("given").len = PIECE_BYTES_MAX - 3;
        far.write_all(b"bcdefgh").expect("written");
        let mut more = Vec::new();
        while more.len() < 3 {
            more.extend_from_slice(&lane.more(0).await.unwrap_or_default());
        }
        assert_eq!((more.as_slice(), lane.more(0).await), (&b"bcd"[..], None));
        lane.close(0);
        assert_eq!(take(&lane, 1).await, Ok(piece(b"efgh", false)));
    });
}

#[test]
fn a_client_that_takes_nothing_ends_its_piece() {
    let limits = WebLimits { lane_idle: Duration::from_millis(50), ..WebLimits::default() };
    with_lane(limits, |lane, mut far| async move {
        let lane = Arc::into_inner(lane).expect("no other reference");
        far.write_all(b"a").expect("written");
        let first = lane.get(0).await.expect("a piece").expect("a byte is there");
        assert!(first.is_open);
        let writer = thread::spawn(move || far.write_all(&vec![7; UNREAD_BYTES_MAX]).map(|()| far));
        let mut blocks = lane.blocks(first);
        // The writer returns once the lane has read all: more blocks than the channel holds.
        let _far = tokio::task::spawn_blocking(|| writer.join()).await.expect("no panic");
        while !blocks.is_closed() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut len = 0;
        while let Some(block) = blocks.recv().await {
            len += block.len();
        }
        assert!(len < UNREAD_BYTES_MAX, "{len} bytes of the piece");
    });
}

#[test]
fn memory_for_unread_bytes_is_limited() {
    with_lane(quick(), |lane, mut far| async move {
        far.set_write_timeout(Some(Duration::from_millis(200))).expect("set");
        let block = vec![7; 1 << 16];
        let mut written = 0;
        while far.write(&block).is_ok_and(|more| {
            written += more;
            true
        }) {
            assert!(written <= 2 * UNREAD_BYTES_MAX + (8 << 20), "nothing limits the sender");
        }
        assert!(written >= UNREAD_BYTES_MAX);
        // Once pieces are taken, more is read.
        let (first, _) = take(&lane, 0).await.expect("a piece").expect("bytes are there");
        assert!(first.len() >= UNREAD_BYTES_MAX, "{}", first.len());
    });
}

#[test]
fn idle_and_ended_lanes_are_aborted_and_their_number_is_limited() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let lanes = Lanes::new(WebLimits { lanes: 2, ..quick() });
        let now = Instant::now();
        let Opened { id: one, socket, .. } = lanes.open(now).expect("a lane");
        let mut far = StdUnixStream::from(socket);
        let Opened { id: two, socket: _far, .. } = lanes.open(now).expect("a lane");
        assert!(matches!(lanes.open(now), Err(OpenRefusal::TooMany(2))));
        let late = now + 2 * WebLimits::default().lane_idle;
        let used = lanes.lane(&one).expect("open");
        lanes.abort_idle(late);
        assert!(lanes.lane(&two).is_none() && lanes.lane(&one).is_some());
        drop(used);
        assert!(lanes.abort(&one) && !lanes.abort(&one));
        let ended = tokio::task::spawn_blocking(move || far.read(&mut [0]));
        assert_eq!(ended.await.expect("no panic").expect("an end"), 0);
        lanes.open(now).expect("there is space again");
        lanes.abort_all();
    });
}

/// Returns bytes that do not repeat within a piece.
fn random_bytes(len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    haul_lab::random::Random::from_seed(7).fill(&mut bytes);
    bytes
}
