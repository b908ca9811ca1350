//! HTTP/2, which browsers use: requests of a lane share one connection, in any order.

use crate::world::{World, limits};
use bytes::Bytes;
use haul_lab::browser::Browser;
use haul_lab::random::Random;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper::{HeaderMap, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::runtime::Builder;
use tokio_rustls::TlsConnector;

/// A connection of a browser by HTTP/2.
#[derive(Clone)]
struct Connection {
    sender: SendRequest<Full<Bytes>>,
    browser: Arc<Browser>,
}

/// Status, headers and body.
type Answer = (u16, HeaderMap, Bytes);

impl Connection {
    async fn new(browser: Arc<Browser>) -> Connection {
        let stream = TcpStream::connect(browser.host()).await.expect("connected");
        let name = "localhost".try_into().expect("a name");
        let tls = TlsConnector::from(Arc::new(browser.tls(b"h2"))).connect(name, stream).await.expect("TLS");
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(tls)).await.expect("HTTP/2");
        tokio::spawn(connection);
        Connection { sender, browser }
    }

    async fn send(&self, method: &str, path: &str, body: impl Into<Bytes>, ends: bool) -> Answer {
        let host = self.browser.host();
        let mut request = Request::builder()
            .method(method)
            .uri(format!("https://{host}{path}"))
            .header("origin", format!("https://{host}"))
            .header("x-haul-token", self.browser.token());
        if ends {
            request = request.header("x-haul-end", "1");
        }
        let request = request.body(Full::new(body.into())).expect("a request");
        let mut sender = self.sender.clone();
        sender.ready().await.expect("open");
        let (head, body) = sender.send_request(request).await.expect("a response").into_parts();
        (head.status.as_u16(), head.headers, body.collect().await.expect("a body").to_bytes())
    }
}

/// Every upload is larger than the window of its request, and the first one comes last: the later
/// ones must not use the window that it needs.
#[test]
fn uploads_and_pieces_of_a_lane_in_any_order_carry_the_stream() {
    const UPLOADS: u64 = 9;
    const BYTES: usize = 3 << 20;
    let world = World::echoing(limits());
    let mut bytes = vec![0; UPLOADS as usize * BYTES];
    Random::from_seed(3).fill(&mut bytes);
    let bytes = Bytes::from(bytes);
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let connection = Connection::new(world.browser()).await;
        let (status, _, body) = connection.send("POST", "/lane", "{\"root\":0}", false).await;
        assert_eq!(status, 201);
        let lane: serde_json::Value = serde_json::from_slice(&body).expect("JSON");
        let lane = lane["lane"].as_str().expect("an ID").to_owned();
        let uploads: Vec<_> = (0..UPLOADS)
            .rev()
            .map(|number| {
                let (connection, path) = (connection.clone(), format!("/lane/{lane}/{number}"));
                let at = number as usize * BYTES;
                let part = bytes.slice(at..at + BYTES);
                tokio::spawn(
                    async move { connection.send("PUT", &path, part, number + 1 == UPLOADS).await.0 },
                )
            })
            .collect();
        let (mut requests, mut number, mut read) = (VecDeque::new(), 0, Vec::new());
        let is_ended = |headers: &HeaderMap| headers.contains_key("x-haul-end");
        loop {
            while requests.len() < 5 {
                let (connection, path) = (connection.clone(), format!("/lane/{lane}/{number}"));
                requests.push_back(tokio::spawn(async move {
                    loop {
                        let answer = connection.send("GET", &path, "", false).await;
                        if answer.0 != 204 {
                            return answer;
                        }
                    }
                }));
                number += 1;
            }
            let (status, headers, piece) =
                requests.pop_front().expect("five of them").await.expect("no panic");
            assert_eq!(status, 200, "{piece:?}");
            read.extend_from_slice(&piece);
            if is_ended(&headers) {
                break;
            }
        }
        for upload in uploads {
            assert_eq!(upload.await.expect("no panic"), 204);
        }
        assert!(read == bytes, "the bytes differ");
        assert_eq!(connection.send("DELETE", &format!("/lane/{lane}"), "", false).await.0, 204);
        // The name of the host is checked here too.
        let foreign = Request::get("https://evil.example/session").body(Full::default()).expect("a request");
        let refused = connection.sender.clone().send_request(foreign).await.expect("a response");
        assert_eq!(refused.status(), 421);
    });
}
