//! Rules of requests: codes, hosts, origins, tokens and limits.

use crate::world::{World, limits};
use haul_lab::browser::{parse_link, read_response};
use haul_lab::wait_until;
use haul_net::{Limits, Role};
use haul_web::WebLimits;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

#[test]
fn a_code_signs_in_once_and_gives_a_token_without_a_cookie() {
    let world = World::new(Role::Both, limits());
    let link = world.link();
    let (address, code) = parse_link(&link);
    assert_eq!(code.len(), 32);
    let browser = haul_lab::browser::Browser::new(address);
    assert_eq!(browser.get("/session").status, 401);
    let answer = browser.sign_in(code);
    assert_eq!(answer.status, 200);
    // A browser sends a cookie to all ports of a host, which can belong to other users.
    assert_eq!(answer.header("set-cookie"), None);
    let congestion = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control").expect("a name");
    assert_eq!(answer.header("x-haul-tcp"), Some(congestion.trim()));
    let mut facts = answer.json();
    let token = facts.as_object_mut().expect("an object").remove("token").expect("a token");
    assert_eq!(token.as_str().map(str::len), Some(64));
    assert_eq!(facts["roots"][0]["name"], "root");
    assert_eq!((&facts["roots"][0]["read"], &facts["roots"][0]["write"]), (&true.into(), &true.into()));
    assert_eq!(facts["certificate"], world.certificate());
    let certificate = browser.certificate();
    let hash = haul_lab::browser::sha256(&certificate);
    assert_eq!(facts["certificate"], hash);
    assert_eq!(browser.get("/session").json(), facts, "a reloaded page continues, and gets no token");
    assert!(world.has_logged("signed in from 127.0.0.1"));
    // The code is used now.
    assert_eq!(world.stranger().sign_in(code).status, 403);
    wait_until("the log", || world.has_logged("wrong code from 127.0.0.1"));
    assert!(!world.log.lock().expect("a log").iter().any(|line| line.contains(code)));
    // A signed-in browser can invite another one.
    let second = browser.post("/code", "");
    assert_eq!(second.status, 201);
    assert_eq!(world.stranger().sign_in(second.json()["code"].as_str().expect("a code")).status, 200);
    assert_eq!(browser.send("DELETE", "/session", &[], b"").status, 204);
    assert_eq!(browser.get("/session").status, 401);
}

#[test]
fn wrong_codes_are_limited() {
    let world = World::new(Role::Both, limits());
    let link = world.link();
    let stranger = world.stranger();
    for code in ["", "0", &"0".repeat(32), &"0".repeat(5000), &parse_link(&link).1[1..]] {
        assert_eq!(stranger.sign_in(code).status, 403);
    }
    assert_eq!(stranger.sign_in("0").status, 429);
    // Others can have the same address, and must not shut out the user with the right code.
    assert_eq!(stranger.sign_in(parse_link(&link).1).status, 200);
}

#[test]
fn the_number_of_sessions_is_limited_and_idle_ones_end() {
    let idle = WebLimits { sessions: 2, ..limits() };
    let world = World::new(Role::Both, idle);
    let (one, _two) = (world.browser(), world.browser());
    let third = world.link();
    assert_eq!(world.stranger().sign_in(parse_link(&third).1).status, 503);
    assert_eq!(one.send("DELETE", "/session", &[], b"").status, 204);
    assert_eq!(world.stranger().sign_in(parse_link(&third).1).status, 200, "the code was not used up");
    let brief = WebLimits { session_idle: Duration::from_millis(30), ..limits() };
    let world = World::new(Role::Both, brief);
    let browser = world.browser();
    wait_until("the end of the session", || world.has_logged("ended"));
    assert_eq!(browser.get("/session").status, 401);
}

/// Requests that change something, with their bodies.
const CHANGES: [(&str, &str, &str); 9] = [
    ("POST", "/tree/folder", "{\"path\":\"new\"}"),
    ("POST", "/tree/move", "{\"from\":\"file\",\"to\":\"new\"}"),
    ("POST", "/tree/delete", "{\"path\":\"file\"}"),
    ("POST", "/file", "{\"path\":\"file\"}"),
    ("POST", "/lane", "{}"),
    ("PUT", "/lane/0/0", "x"),
    ("DELETE", "/lane/0", ""),
    ("POST", "/code", ""),
    ("DELETE", "/session", ""),
];

#[test]
fn requests_without_the_right_origin_token_or_host_change_nothing() {
    let world = World::new(Role::Both, limits());
    world.write("root/file", b"file");
    let browser = world.browser();
    let other_host = "evil.example:443";
    let (other_token, cookie) = ("0".repeat(64), format!("haul-token={}", browser.token()));
    let forged: [(&str, &str, u16); 9] = [
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://127.0.0.1", 403),
        ("origin", "", 403),
        ("x-haul-token", "", 401),
        ("x-haul-token", &other_token, 401),
        ("sec-fetch-site", "cross-site", 403),
        ("sec-fetch-site", "same-site", 403),
        ("host", other_host, 421),
    ];
    for (method, path, body) in CHANGES {
        for (name, value, status) in forged {
            let answer = browser.send(method, path, &[(name, value)], body.as_bytes());
            assert_eq!(answer.status, status, "{method} {path} with {name}: {value}: {answer:?}");
        }
    }
    assert!(world.path("root/file").exists() && !world.path("root/new").exists());
    wait_until("the log", || world.has_logged("refused a request"));
    for path in ["/session", "/tree", "/file?path=file"] {
        for (name, value) in [("origin", "https://evil.example"), ("sec-fetch-site", "same-site")] {
            assert_eq!(browser.send("GET", path, &[(name, value)], b"").status, 403, "{path}");
        }
        assert_eq!(browser.send("GET", path, &[("host", other_host)], b"").status, 421);
        assert_eq!(world.stranger().get(path).status, 401);
        assert_eq!(world.stranger().send("GET", path, &[("cookie", &cookie)], b"").status, 401);
    }
    // The page itself has no data, but is not served under another name either.
    assert_eq!(browser.send("GET", "/", &[("host", other_host)], b"").status, 421);
    assert_eq!(browser.send("GET", "/", &[("sec-fetch-site", "cross-site")], b"").status, 200);
    assert_eq!(browser.send("POST", "/", &[], b"").status, 404);
    assert_eq!(browser.get("/session").status, 200, "the session continues");
}

#[test]
fn every_response_has_the_protective_headers() {
    let world = World::new(Role::Both, limits());
    world.write("root/file", b"<script>alert(1)</script>");
    let browser = world.browser();
    for path in
        ["/", "/app.js", "/save/worker.js", "/session", "/tree", "/file?path=file", "/nowhere", "/save/none"]
    {
        let answer = browser.get(path);
        let has = |name, part: &str| {
            assert!(answer.header(name).is_some_and(|value| value.contains(part)), "{path}: {name}");
        };
        has("content-security-policy", "default-src 'none'");
        has("content-security-policy", "frame-ancestors 'none'");
        has("x-content-type-options", "nosniff");
        has("referrer-policy", "no-referrer");
        has("cross-origin-opener-policy", "same-origin");
        has("cross-origin-embedder-policy", "require-corp");
        has("cross-origin-resource-policy", "same-origin");
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(!policy.contains("unsafe-inline"), "{policy}");
        assert_eq!(
            policy.contains("sandbox"),
            !matches!(path, "/" | "/app.js" | "/save/worker.js"),
            "{path}"
        );
    }
}

#[test]
fn bodies_and_headers_above_the_limits_are_refused() {
    let world = World::new(Role::Both, limits());
    let browser = world.browser();
    let large = format!("{{\"path\":\"{}\"}}", "x".repeat(100_000));
    assert_eq!(browser.post("/tree/folder", &large).status, 413);
    let long = format!("{{\"path\":\"{}\"}}", "x/".repeat(3000));
    assert_eq!(browser.post("/tree/folder", &long).status, 400);
    for bad in ["", "[]", "{", "{\"path\":1}", "{\"path\":{\"base64\":\"!\"}}"] {
        assert_eq!(browser.post("/tree/folder", bad).status, 400, "{bad}");
    }
    let lane = browser.post("/lane", "").json()["lane"].as_str().expect("an ID").to_owned();
    let head = browser.head("PUT", &format!("/lane/{lane}/0"), &[], (64 << 20) + 1);
    let mut connection = browser.connect().expect("connected");
    connection.get_mut().write_all(head.as_bytes()).expect("sent");
    assert_eq!(read_response(&mut connection, "PUT").expect("a response").status, 413);
    // Headers above the limit end the connection, with a response or without.
    let mut connection = browser.connect().expect("connected");
    let huge = format!("GET / HTTP/1.1\r\nhost: {}\r\nx: {}\r\n\r\n", browser.host(), "x".repeat(1 << 20));
    // The server may close before everything is sent.
    let _ = connection.get_mut().write_all(huge.as_bytes());
    let refused = read_response(&mut connection, "GET");
    assert!(refused.as_ref().map_or(true, |answer| answer.status == 431), "{refused:?}");
}

#[test]
fn slow_requests_are_ended() {
    let brief = Duration::from_millis(100);
    let world = World::new(Role::Both, WebLimits { request: brief, body_stall: brief, ..limits() });
    let browser = world.browser();
    let lane = browser.post("/lane", "").json()["lane"].as_str().expect("an ID").to_owned();
    for (method, path, status) in
        [("PUT", format!("/lane/{lane}/0"), 503), ("POST", "/tree/folder".to_owned(), 408)]
    {
        let mut connection = browser.connect().expect("connected");
        connection.get_mut().write_all(browser.head(method, &path, &[], 100).as_bytes()).expect("sent");
        connection.get_mut().write_all(b"x").expect("sent");
        let answer = read_response(&mut connection, method).expect("a response");
        assert_eq!(answer.status, status, "{answer:?}");
    }
    // A header that does not end, and a client that never speaks TLS.
    let mut connection = browser.connect().expect("connected");
    connection.get_mut().write_all(b"GET / HTTP/1.1\r\nhost:").expect("sent");
    let mut rest = Vec::new();
    // The end can be a reset.
    let _ = connection.read_to_end(&mut rest);
    let mut silent = TcpStream::connect(parse_link(&world.link()).0).expect("connected");
    assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0);
    assert_eq!(browser.get("/session").status, 200);
}

#[test]
fn connections_above_the_limit_are_closed() {
    let world = World::new(Role::Both, limits());
    let address = parse_link(&world.link()).0;
    let idle: Vec<_> = (0..Limits::default().unauthenticated_per_peer)
        .map(|_| TcpStream::connect(address).expect("connected"))
        .collect();
    wait_until("the refusal of another connection", || {
        let mut more = TcpStream::connect(address).expect("connected");
        more.set_read_timeout(Some(Duration::from_millis(200))).expect("set");
        matches!(more.read(&mut [0]), Ok(0) | Err(_)) && world.has_logged("too many connections")
    });
    drop(idle);
    wait_until("a free connection", || world.stranger().try_send("GET", "/", &[], b"").is_ok());
}

/// Opens a connection from `127.0.0.HOST`.
fn connect_from(host: usize, to: SocketAddr) -> TcpStream {
    let from = SocketAddrV4::new(Ipv4Addr::new(127, 0, 0, u8::try_from(host).expect("a byte")), 0);
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &from).expect("bound");
    connect(&socket, &to).expect("connected");
    socket.into()
}

/// Regression: 128 silent connections of two addresses shut out a third one, and those of others at
/// the address of a session its browser.
#[test]
fn silent_connections_shut_out_nobody() {
    let world = World::new(Role::Both, limits());
    let browser = world.browser();
    let address: SocketAddr = browser.host().parse().expect("an address");
    let Limits { unauthenticated, unauthenticated_per_peer, .. } = Limits::default();
    let silent: Vec<_> =
        (0..unauthenticated).map(|at| connect_from(1 + at / unauthenticated_per_peer, address)).collect();
    for host in [1, 99] {
        let mut connection = browser.connect_over(connect_from(host, address)).expect("connected");
        let head = browser.head("GET", "/session", &[], 0);
        connection.get_mut().write_all(head.as_bytes()).expect("sent");
        assert_eq!(read_response(&mut connection, "GET").expect("a response").status, 200);
    }
    drop(silent);
}

#[test]
fn counters_need_the_token_or_a_session_and_keep_their_format() {
    let world = World::new(Role::Both, limits());
    let (browser, stranger) = (world.browser(), world.stranger());
    let bearer = format!("Bearer {}", world.metrics_token());
    for (headers, status) in [
        (&[][..], 401),
        (&[("authorization", "Bearer ")], 401),
        (&[("authorization", &bearer[1..])], 401),
        (&[("authorization", &bearer[..bearer.len() - 1])], 401),
        (&[("authorization", &bearer)], 200),
        (&[("authorization", &bearer), ("host", "evil.example:443")], 421),
        (&[("authorization", &bearer), ("origin", "https://evil.example")], 403),
    ] {
        assert_eq!(stranger.send("GET", "/metrics", headers, b"").status, status, "{headers:?}");
    }
    assert_eq!(stranger.send("GET", "/session", &[("authorization", &bearer)], b"").status, 401);
    assert_eq!(browser.post("/lane", "").status, 201);
    let answer = browser.get("/metrics");
    assert_eq!((answer.status, answer.header("cache-control")), (200, Some("no-store")));
    let kind = answer.header("content-type").expect("a type");
    assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    let text = String::from_utf8(answer.body).expect("UTF-8");
    assert!(text.ends_with("\n# EOF\n"));
    for line in [
        "haul_web_sessions 1",
        "haul_web_lanes{kind=\"http\"} 1",
        "haul_web_lanes{kind=\"webtransport\"} 0",
        "haul_web_refused_total{reason=\"another host name\"} 1",
        "haul_web_refused_total{reason=\"another or no Origin\"} 1",
    ] {
        assert!(text.lines().any(|known| known == line), "{line}: {text}");
    }
}
