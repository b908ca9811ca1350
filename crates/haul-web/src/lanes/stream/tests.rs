//! Tests of the loops without a network.

use super::*;
use crate::access::Access;
use crate::lanes::{Lanes, Opened};
use crate::limits::WebLimits;
use std::future::ready;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{DuplexStream, ReadBuf, ReadHalf, WriteHalf, duplex, split};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

/// A lane in progress, the ends of the browser, and the end of the session code.
struct World {
    lane: Arc<StreamLane>,
    session: Arc<Session>,
    browser: DuplexStream,
    code: UnixStream,
    to_browser: WriteHalf<DuplexStream>,
    from_browser: ReadHalf<DuplexStream>,
}

fn session() -> Arc<Session> {
    let (access, now) = (Access::new(WebLimits::default()), Instant::now());
    let code = access.issue_code(now).expect("a code");
    let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
    access.sign_in(&code, peer, now).expect("random numbers").expect("valid").0
}

/// Runs a test with a lane whose browser and network hold `buffer` bytes in each direction.
fn with_lane<F: Future>(buffer: usize, test: impl FnOnce(World) -> F) -> F::Output {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let lane = StreamLane::new(ours, Instant::now()).expect("a lane").0;
        let (browser, network) = duplex(buffer);
        let (from_browser, to_browser) = split(network);
        let world = World {
            lane: Arc::new(lane),
            session: session(),
            browser,
            code: theirs,
            to_browser,
            from_browser,
        };
        timeout(Duration::from_secs(30), test(world)).await.expect("in time")
    })
}

#[test]
fn bytes_and_the_end_of_each_direction_are_carried() {
    with_lane(1000, |world| async move {
        let World { lane, session, mut browser, mut code, to_browser, from_browser } = world;
        let carried = tokio::spawn(async move {
            lane.carry(&session, to_browser, from_browser, ready(Ok(())), Duration::from_secs(20)).await
        });
        browser.write_all(b"request").await.expect("written");
        browser.shutdown().await.expect("ended");
        let mut read = Vec::new();
        code.read_to_end(&mut read).await.expect("read");
        assert_eq!(read, b"request");
        code.write_all(&[7; 5000]).await.expect("written");
        code.shutdown().await.expect("ended");
        read.clear();
        browser.read_to_end(&mut read).await.expect("read");
        assert_eq!(read, [7; 5000]);
        carried.await.expect("no panic").expect("both directions have ended");
    });
}

#[test]
fn a_receiver_that_takes_nothing_stops_the_sender() {
    with_lane(1000, |world| async move {
        let World { lane, session, mut browser, mut code, to_browser, from_browser } = world;
        let carrier = lane.clone();
        let carried = tokio::spawn(async move {
            carrier.carry(&session, to_browser, from_browser, ready(Ok(())), Duration::from_secs(20)).await
        });
        // Until nothing moves, both ends hold no more than their buffers and one block.
        fill(&mut browser).await;
        fill(&mut code).await;
        assert!(!carried.is_finished());
        // A lane that is aborted ends while its loops wait for the receivers.
        lane.abort();
        carried.await.expect("no panic").expect_err("aborted");
    });
}

/// Writes until the stream takes nothing.
async fn fill(sender: &mut (impl AsyncWrite + Unpin)) {
    let mut written = 0;
    while let Ok(more) = timeout(Duration::from_millis(200), sender.write(&[1; 4096])).await {
        written += more.expect("written");
        assert!(written < 4 << 20, "nothing limits the sender");
    }
}

/// A stream that the browser has reset.
struct Reset;

impl AsyncRead for Reset {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()))
    }
}

#[test]
fn lost_lanes_do_not_look_like_ended_ones() {
    // The stream is reset: the session code must not find the end of the direction.
    with_lane(1000, |world| async move {
        let World { lane, session, to_browser, code, .. } = world;
        let carried = lane.carry(&session, to_browser, Reset, ready(Ok(())), Duration::from_secs(20)).await;
        assert_eq!(carried.expect_err("reset").kind(), io::ErrorKind::ConnectionReset);
        let end = code.try_read(&mut [0]).expect_err("no end yet");
        assert_eq!(end.kind(), io::ErrorKind::WouldBlock);
    });
    // The lane is aborted: the browser must not find the end of the direction.
    with_lane(1000, |world| async move {
        let World { lane, session, mut browser, to_browser, from_browser, code } = world;
        lane.abort();
        let mut to_browser = to_browser;
        let carried =
            lane.carry(&session, &mut to_browser, from_browser, ready(Ok(())), Duration::from_secs(20)).await;
        carried.expect_err("aborted");
        let end = timeout(Duration::from_millis(50), browser.read(&mut [0])).await;
        assert!(end.is_err(), "the direction was ended: {end:?}");
        drop((to_browser, code));
    });
    // The browser does not end its direction after the session code has ended its own.
    with_lane(1000, |world| async move {
        let World { lane, session, browser, mut code, to_browser, from_browser } = world;
        code.shutdown().await.expect("ended");
        let carried =
            lane.carry(&session, to_browser, from_browser, ready(Ok(())), Duration::from_millis(10)).await;
        assert_eq!(carried.expect_err("too late").kind(), io::ErrorKind::TimedOut);
        drop(browser);
    });
}

/// Regression: the time counted from the last write of the session code, whose bytes were still on
/// their way.
#[test]
fn a_browser_has_time_after_it_has_all_bytes() {
    with_lane(1000, |world| async move {
        let World { lane, session, mut browser, mut code, to_browser, from_browser } = world;
        let (taken, is_taken) = oneshot::channel();
        let taken_all = async { is_taken.await.map_err(io::Error::other) };
        let carried = tokio::spawn(async move {
            lane.carry(&session, to_browser, from_browser, taken_all, Duration::ZERO).await
        });
        code.write_all(b"last").await.expect("written");
        code.shutdown().await.expect("ended");
        let mut read = Vec::new();
        browser.read_to_end(&mut read).await.expect("read");
        assert_eq!(read, b"last");
        for _ in 0..3 {
            browser.write_all(b"x").await.expect("written");
            code.read_exact(&mut [0]).await.expect("the lane is still there");
        }
        taken.send(()).expect("the lane waits for this");
        let end = carried.await.expect("no panic").expect_err("no time is left");
        assert_eq!(end.kind(), io::ErrorKind::TimedOut);
    });
}

/// Regression: nothing happened until the session code wrote again.
#[test]
fn a_lane_is_lost_when_the_browser_takes_no_more() {
    with_lane(1000, |world| async move {
        let World { lane, session, browser, code, to_browser, from_browser } = world;
        let stopped = ready(Err(io::ErrorKind::BrokenPipe.into()));
        let carried = lane.carry(&session, to_browser, from_browser, stopped, Duration::from_secs(20)).await;
        assert_eq!(carried.expect_err("stopped").kind(), io::ErrorKind::BrokenPipe);
        drop((browser, code));
    });
}

#[test]
fn bytes_extend_the_session() {
    with_lane(1000, |world| async move {
        let World { lane, session, mut browser, code, to_browser, from_browser } = world;
        let early = Instant::now();
        session.extend(early.checked_sub(Duration::from_secs(3600)).expect("a time"));
        browser.write_all(b"x").await.expect("written");
        browser.shutdown().await.expect("ended");
        drop(code);
        let _ =
            lane.carry(&session, to_browser, from_browser, ready(Ok(())), Duration::from_millis(10)).await;
        assert!(session.idle_time(Instant::now()) < Duration::from_secs(3600));
    });
}

#[test]
fn a_token_works_once_until_it_expires() {
    let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let limits = WebLimits::default();
        let (lanes, now) = (Lanes::new(limits), Instant::now());
        let open = || lanes.open_stream(now).expect("a lane");
        let Opened { id, token, socket: _one } = open();
        let token = token.expect("a token");
        assert!(lanes.connect("0", &token, now).is_none(), "another lane");
        for wrong in ["", &token[1..], &format!("{token}0"), &"0".repeat(32)] {
            assert!(lanes.connect(&id, wrong, now).expect("there").is_none(), "{wrong}");
        }
        let just_valid = now + limits.lane_token - Duration::from_millis(1);
        assert!(lanes.connect(&id, &token, just_valid).expect("there").is_some());
        assert!(lanes.connect(&id, &token, just_valid).expect("there").is_none(), "used");
        let Opened { id: late, token, socket: _two } = open();
        let expiry = now + limits.lane_token;
        assert!(lanes.connect(&late, &token.expect("a token"), expiry).expect("there").is_none());
        // The lane that a browser uses stays, the other one ends.
        lanes.abort_idle(expiry);
        assert!(lanes.connect(&late, "", now).is_none());
        assert!(lanes.connect(&id, "", now).is_some());
    });
}
