//! Lanes over WebTransport: admission, transfers and ends.

mod client;

use crate::lanes::{assert_alike, tree};
use crate::world::{World, limits};
use client::{Stream, StreamDial, WebTransport};
use haul_engine::transfer::{self, FetchJob, SendJob, SimpleObserver};
use haul_lab::browser::Browser;
use haul_lab::random::Random;
use haul_lab::wait_until;
use haul_net::{Limits, Role};
use haul_web::WebLimits;
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, ConnectionError, Endpoint, TransportConfig, VarInt};
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;
use wtransport::error::{ConnectingError, StreamReadError};

fn client(world: &World) -> Arc<WebTransport> {
    Arc::new(WebTransport::new(world.browser()))
}

#[test]
fn a_tree_is_uploaded_and_downloaded_over_several_lanes() {
    let world = World::new(Role::Both, limits());
    tree(&world, "data");
    let client = client(&world);
    let dial = StreamDial::new(&client, "up");
    let job = SendJob { lanes: Some(3), ..SendJob::new(vec![world.path("data").into()]) };
    let observer = SimpleObserver::default();
    let sent = transfer::send(&dial, &job, &observer.run_context()).expect("a session");
    assert!(sent.is_whole(), "{sent:?} {:?}", observer.failures());
    assert!(sent.split.is_some(), "both sides ended in order");
    assert_alike(&world.path("data"), &world.path("root/data"));
    let dial = StreamDial::new(&client, "down");
    fs::create_dir(world.path("back")).expect("made");
    let job = FetchJob { lanes: Some(2), ..FetchJob::new(vec![b"data".to_vec()], world.path("back").into()) };
    let fetched = transfer::fetch(&dial, &job, &observer.run_context()).expect("a session");
    assert!(fetched.is_whole(), "{fetched:?} {:?}", observer.failures());
    assert_alike(&world.path("data"), &world.path("back/data"));
}

#[test]
fn lanes_over_http_and_webtransport_serve_one_transfer_together() {
    let world = World::new(Role::Both, limits());
    tree(&world, "data");
    let dial = StreamDial::new(&client(&world), "both").mixed();
    let job = SendJob { lanes: Some(4), ..SendJob::new(vec![world.path("data").into()]) };
    let observer = SimpleObserver::default();
    let sent = transfer::send(&dial, &job, &observer.run_context()).expect("a session");
    assert!(sent.is_whole(), "{sent:?} {:?}", observer.failures());
    assert!(dial.opened() >= 2, "one lane of each kind");
    assert_alike(&world.path("data"), &world.path("root/data"));
}

#[test]
fn a_reset_stream_is_a_lost_lane_and_the_job_resumes() {
    let world = World::new(Role::Both, limits());
    tree(&world, "data");
    let client = client(&world);
    let job = SendJob { lanes: Some(1), ..SendJob::new(vec![world.path("data").into()]) };
    let observer = SimpleObserver::default();
    let dial = StreamDial::new(&client, "first").reset_after(4 << 20);
    let lost = transfer::send(&dial, &job, &observer.run_context());
    assert!(!lost.as_ref().is_ok_and(|sent| sent.is_whole()), "{lost:?}");
    let dial = StreamDial::new(&client, "second");
    let sent = transfer::send(&dial, &job, &observer.run_context()).expect("a session");
    assert!(sent.is_whole(), "{sent:?} {:?}", observer.failures());
    assert_alike(&world.path("data"), &world.path("root/data"));
}

#[test]
fn bytes_return_in_order_and_both_directions_end() {
    let world = World::echoing(limits());
    let client = client(&world);
    let Stream { connection, mut to_server, mut from_server } = client.stream();
    let mut sent = vec![0; 9 << 20];
    Random::from_seed(3).fill(&mut sent);
    let mut read = Vec::new();
    client.run(async {
        let write = async {
            to_server.write_all(&sent).await.expect("written");
            to_server.finish().await.expect("finished");
        };
        let receive = async {
            let mut block = vec![0; 1 << 16];
            while let Some(count) = from_server.read(&mut block).await.expect("read") {
                read.extend_from_slice(&block[..count]);
            }
        };
        tokio::join!(write, receive);
    });
    assert!(read == sent, "the bytes differ");
    assert!(connection.quic_connection().close_reason().is_none(), "the browser closes first");
}

#[test]
fn a_token_opens_its_lane_once_for_a_page_of_this_server() {
    let world = World::echoing(limits());
    let client = client(&world);
    let host = client.browser.host();
    let origin = format!("https://{host}");
    let path = client.path();
    let (lane, token) = path.split_once("?token=").expect("a token");
    assert_eq!(token.len(), 32);
    let zeros = "0".repeat(32);
    let (port, cut) = (host.rsplit_once(':').expect("a port").1, &token[1..]);
    let evil = format!("evil.example:{port}");
    let other_port = format!("https://127.0.0.1:{}", u16::MAX);
    let refused = [
        (&host[..], format!("{lane}?token={zeros}"), Some(&origin[..]), "wrong, used or expired token"),
        (&host, format!("{lane}?token={cut}"), Some(&origin), "wrong, used or expired token"),
        (&host, format!("{lane}?token="), Some(&origin), "wrong, used or expired token"),
        (&host, lane.to_owned(), Some(&origin), "without a lane"),
        (&host, "/".to_owned(), Some(&origin), "without a lane"),
        (&host, format!("/lane/{zeros}?token={token}"), Some(&origin), "unknown lane"),
        (&host, path.clone(), Some("https://evil.example"), "another or no Origin"),
        (&host, path.clone(), Some(&other_port), "another or no Origin"),
        (&host, path.clone(), None, "another or no Origin"),
        (&evil, path.clone(), Some(&origin), "another host name"),
        (&evil, path.clone(), Some("https://evil.example"), "another host name"),
    ];
    for (host, path, origin, why) in refused {
        world.log.lock().expect("a log").clear();
        wait_until("the reason in the log", || {
            let refusal = client.connect_from(host, &path, origin);
            assert!(matches!(refusal, Err(ConnectingError::SessionRejected)), "{host}{path} {origin:?}");
            world.has_logged(why)
        });
    }
    assert!(!world.log.lock().expect("a log").iter().any(|line| line.contains(token)));
    let _open = client.connect(&path).expect("the token was not used up");
    assert!(matches!(client.connect(&path), Err(ConnectingError::SessionRejected)), "used twice");
    // A lane over HTTP has no token, and its requests do not reach a lane over WebTransport.
    let http = client.browser.post("/lane", "").json();
    assert!(http.get("path").is_none());
    let http = http["lane"].as_str().expect("an ID").to_owned();
    assert!(client.connect(&format!("/lane/{http}?token={token}")).is_err());
    assert_eq!(client.browser.get(&format!("{lane}/0")).status, 404);
}

#[test]
fn a_lane_ends_unless_a_browser_connects_in_time() {
    let world = World::echoing(WebLimits { lane_token: Duration::ZERO, lanes: 1, ..limits() });
    let client = client(&world);
    let path = client.path();
    assert!(matches!(client.connect(&path), Err(ConnectingError::SessionRejected)));
    wait_until("space for another lane", || {
        client.browser.post("/lane", "{\"kind\":\"webtransport\"}").status == 201
    });
}

#[test]
fn lanes_of_both_kinds_count_against_one_limit() {
    let world = World::echoing(WebLimits { lanes: 2, ..limits() });
    let client = client(&world);
    let stream = client.stream();
    assert_eq!(client.browser.post("/lane", "").status, 201);
    for request in ["", "{\"kind\":\"webtransport\"}"] {
        assert_eq!(client.browser.post("/lane", request).status, 429);
    }
    assert_eq!(client.browser.post("/lane", "{\"kind\":\"other\"}").status, 400);
    stream.connection.close(0_u32.into(), b"");
    wait_until("the end of the lane", || client.browser.post("/lane", "").status == 201);
}

/// Sends a first block, which the session code sends back.
async fn exchange(stream: &mut Stream) {
    stream.to_server.write_all(b"abc").await.expect("written");
    let mut back = [0; 3];
    stream.from_server.read_exact(&mut back).await.expect("read");
    assert_eq!(&back, b"abc");
}

#[test]
fn the_end_of_a_session_lane_or_server_ends_the_stream_as_lost() {
    for ended in ["session", "lane", "server"] {
        let world = World::echoing(limits());
        let client = client(&world);
        let path = client.path();
        let mut stream = client.open(&path).expect("a lane");
        client.run(exchange(&mut stream));
        let lane = path.split_once('?').expect("a token").0;
        match ended {
            "session" => assert_eq!(client.browser.send("DELETE", "/session", &[], b"").status, 204),
            "lane" => assert_eq!(client.browser.send("DELETE", lane, &[], b"").status, 204),
            _ => drop(world),
        }
        let end = client.run(stream.from_server.read(&mut [0; 16]));
        assert!(matches!(end, Err(StreamReadError::NotConnected)), "{ended}: {end:?}");
    }
}

#[test]
fn a_page_that_closes_its_session_leaves_no_lane() {
    let world = World::echoing(WebLimits { lanes: 1, ..limits() });
    let client = client(&world);
    let mut stream = client.stream();
    client.run(exchange(&mut stream));
    // The end of the stream with the request, as of a page that is closed.
    drop(stream);
    wait_until("space for another lane", || client.browser.post("/lane", "").status == 201);
}

/// Regression: the lane stayed until the session code wrote to it.
#[test]
fn a_browser_that_reads_no_more_loses_its_lane() {
    let world = World::echoing(WebLimits { lanes: 1, ..limits() });
    let client = client(&world);
    let mut stream = client.stream();
    client.run(exchange(&mut stream));
    let Stream { connection, to_server, from_server } = stream;
    from_server.stop(7_u32.into());
    let end = client.run(connection.closed());
    assert!(end.to_string().contains("257"), "H3_GENERAL_PROTOCOL_ERROR: {end}");
    wait_until("space for another lane", || client.browser.post("/lane", "").status == 201);
    drop(to_server);
}

/// Returns an endpoint for connections without requests, and the configuration for them. The last
/// byte of its address is `host`.
fn plain(browser: &Browser, host: u8) -> (Endpoint, ClientConfig) {
    let endpoint = Endpoint::client(([127, 0, 0, host], 0).into()).expect("a socket");
    let tls = QuicClientConfig::try_from(browser.tls(b"h3")).expect("TLS 1.3");
    (endpoint, ClientConfig::new(Arc::new(tls)))
}

#[test]
fn connections_without_a_request_are_limited_and_end() {
    // All handshakes fit into this time also on a slow machine.
    let world = World::echoing(WebLimits { request: Duration::from_secs(10), ..limits() });
    let client = client(&world);
    let path = client.path();
    let address: SocketAddr = client.browser.host().parse().expect("an address");
    client.run(async {
        let peers = [2, 3].map(|host| plain(&client.browser, host));
        let connect = async |peer: usize| {
            let (endpoint, config) = &peers[peer];
            endpoint.connect_with(config.clone(), address, "localhost").expect("configured").await
        };
        let mut idle = Vec::new();
        for _ in 0..Limits::default().unauthenticated_per_peer {
            let connection = connect(0).await.expect("connected, with a proof of the address if necessary");
            // A stream whose start never ends.
            let (mut stream, _) = connection.open_bi().await.expect("a stream");
            stream.write_all(&[0x01]).await.expect("written");
            idle.push((connection, stream));
        }
        // Regression: one peer took all places.
        let refused = connect(0).await.expect_err("too many of one peer");
        assert!(matches!(&refused, ConnectionError::ConnectionClosed(_)), "{refused}");
        connect(1).await.expect("another peer is connected").close(VarInt::from_u32(0), b"");
        for (connection, _) in idle {
            let end = connection.closed().await;
            let ConnectionError::ApplicationClosed(close) = &end else { panic!("{end}") };
            assert_eq!(close.error_code, VarInt::from_u32(0x101));
        }
    });
    assert!(world.has_logged("too many connections"));
    let _open = client.connect(&path).expect("there is space again");
}

#[test]
fn a_connection_that_is_not_webtransport_is_refused() {
    let world = World::echoing(limits());
    let client = client(&world);
    let address: SocketAddr = client.browser.host().parse().expect("an address");
    client.run(async {
        let (endpoint, config) = plain(&client.browser, 1);
        // GET, by the static table of QPACK, gets 404 (index 27). Other bytes end the connection.
        for (request, answer) in [
            (&[0x01, 4, 0, 0, 0xc0 | 17, 0xc0 | 23][..], Some([0x01, 3, 0, 0, 0xc0 | 27])),
            (&[0x01, 3, 0, 0, 0x80], None),
            (&[0x00, 0], None),
        ] {
            let connection =
                endpoint.connect_with(config.clone(), address, "localhost").expect("configured").await;
            let connection = connection.expect("connected");
            let (mut to_server, mut from_server) = connection.open_bi().await.expect("a stream");
            to_server.write_all(request).await.expect("written");
            let got = from_server.read_to_end(100).await;
            assert_eq!(got.ok().as_deref(), answer.as_ref().map(|answer| &answer[..]));
            connection.close(VarInt::from_u32(0), b"");
        }
    });
}

/// Regression: such connections stayed until the server ended, and used up the limit of those
/// without a lane.
#[test]
fn a_client_that_takes_no_answer_is_disconnected() {
    let world = World::echoing(limits());
    let client = client(&world);
    let address: SocketAddr = client.browser.host().parse().expect("an address");
    client.run(async {
        let (endpoint, mut config) = plain(&client.browser, 1);
        let mut transport = TransportConfig::default();
        transport.stream_receive_window(VarInt::from_u32(0));
        config.transport_config(Arc::new(transport));
        let connection = endpoint.connect_with(config, address, "localhost").expect("configured").await;
        let connection = connection.expect("connected");
        let (mut to_server, _from_server) = connection.open_bi().await.expect("a stream");
        to_server.write_all(&[0x01, 4, 0, 0, 0xc0 | 17, 0xc0 | 23]).await.expect("written");
        let end = connection.closed().await;
        assert!(matches!(&end, ConnectionError::ApplicationClosed(_)), "{end}");
    });
}

#[test]
fn without_a_free_udp_port_the_server_uses_https_only() {
    let (taken, listener) = (0..100)
        .find_map(|_| {
            let taken = UdpSocket::bind("127.0.0.1:0").expect("a port");
            let listener = haul_web::WebListener::bind(taken.local_addr().expect("an address")).ok()?;
            Some((taken, listener))
        })
        .expect("a port that is free for TCP");
    let world = World::echoing_at(listener, limits());
    assert!(world.has_logged("cannot use WebTransport"), "{:?}", world.log);
    let browser = world.browser();
    assert_eq!(browser.get("/session").json()["webtransport"], false);
    assert_eq!(browser.post("/lane", "{\"kind\":\"webtransport\"}").status, 404);
    assert_eq!(browser.post("/lane", "").status, 201);
    drop(taken);
    let world = World::echoing(limits());
    assert_eq!(world.browser().get("/session").json()["webtransport"], true);
}
