//! `haul serve --web`: the page, its certificate and link, and transfers over its lanes.

use super::stopped::wait_until;
use super::{Fixture, Server, assert_alike, assert_ended, assert_no_strays, bytes};
use crate::repair::refused::with_a_far_object;
use haul_engine::log::{Settings, SyncPolicy};
use haul_engine::transfer::{self, BoxError, Dial, FetchJob, Resume, SendJob, SimpleObserver};
use haul_lab::browser::Browser;
use haul_lab::needs::{Need, met_or_skip};
use haul_log::objects::Style;
use haul_net::Lane;
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;

/// Starts a server whose ticket is in `ticket.line`. Returns the link too.
pub(super) fn serve(fixture: &Fixture, args: &[&str]) -> (Server, String) {
    let all = [&["--root", "there", "--ticket-file", "ticket.line", "--web=127.0.0.1:0"], args].concat();
    let server = fixture.serve(&all);
    // The first line on standard output is the link, because the ticket is in a file.
    let link = fs::read_to_string(fixture.path("ticket")).unwrap();
    (server, link.trim().to_owned())
}

/// Opens lanes of one session.
struct WebDial {
    browser: Arc<Browser>,
    /// Name of the session, which no other session has.
    name: &'static str,
    /// Number of uploads, each of at most 64 KiB, after which a lane is cut.
    cut_after: Option<u64>,
}

impl Dial for WebDial {
    fn lane(&self, _: u32) -> Result<Box<dyn Lane>, BoxError> {
        let request = format!("{{\"transfer\":\"{}\"}}", self.name);
        Ok(self.browser.lane(&request, self.cut_after)?.into())
    }
}

#[test]
fn a_tree_goes_to_the_server_and_back_over_https() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let (server, link) = serve(&fixture, &[]);
    server.wait_for_log("serving browsers on 127.0.0.1:");
    let browser = Arc::new(Browser::signed_in(&link));
    server.wait_for_log("signed in from 127.0.0.1");
    assert_eq!(browser.get("/session").json()["roots"][0]["name"], "there");
    assert_eq!(browser.get("/jobs").status, 404, "jobs of the user are not for holders of links");
    assert_eq!(browser.post("/tree/folder", "{\"path\":\"in\"}").status, 201);
    let observer = SimpleObserver::default();
    let dial = WebDial { browser: browser.clone(), name: "up", cut_after: None };
    let job = SendJob { to: b"in".to_vec(), ..SendJob::new(vec![fixture.path("data").into()]) };
    let sent = transfer::send(&dial, &job, &observer.run_context()).unwrap();
    assert!(sent.is_whole(), "{sent:?}");
    server.wait_for_log("session");
    assert_alike(&fixture.path("data"), &fixture.path("there/in/data"));
    let job = FetchJob::new(vec![b"in/data".to_vec()], fixture.path("back").into());
    let dial = WebDial { name: "down", ..dial };
    let fetched = transfer::fetch(&dial, &job, &observer.run_context()).unwrap();
    assert!(fetched.is_whole(), "{fetched:?}");
    assert_alike(&fixture.path("data"), &fixture.path("back/data"));
    assert_eq!(browser.get("/file?path=in%2Fdata%2Fsmall").body, bytes(100, 101));
    // The ticket works beside the page.
    assert_ended(&fixture.run(&["send", "--ticket-file", "ticket.line", "data", ":by-ticket"]), 0);
    assert_alike(&fixture.path("data"), &fixture.path("there/by-ticket/data"));
    server.signal(Signal::TERM);
    assert_eq!(server.status(), Some(0));
}

/// The client is that of haul-browser: its WebAssembly module and its JavaScript, under node.
#[test]
fn the_client_of_browsers_transfers_files_over_https() {
    if !met_or_skip(&[Need::Program("node")]) {
        return;
    }
    let browser = Path::new(env!("CARGO_MANIFEST_DIR")).join("../haul-browser");
    let mut client = Command::new("node");
    client
        .arg(browser.join("tests/js/serve.mjs"))
        .arg(env!("CARGO_BIN_EXE_haul"))
        .arg(browser.join("wasm/haul-simd.wasm"));
    let ended = client.output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    assert_eq!(ended.stdout.trim_ascii(), b"ok");
}

#[test]
fn an_upload_resumes_after_its_lanes_were_cut() {
    let fixture = Fixture::new();
    fixture.file("data/large", 48 << 20);
    let (server, link) = serve(&fixture, &[]);
    let browser = Arc::new(Browser::signed_in(&link));
    let resume = Resume {
        peer: b"web".to_vec(),
        state: fixture.path("own-state"),
        command: None,
        settings: Settings { style: Style::DEFAULT, sync: SyncPolicy::Group, wait: true },
        recheck: None,
    };
    let job =
        SendJob { lanes: Some(1), resume: Some(resume), ..SendJob::new(vec![fixture.path("data").into()]) };
    let observer = SimpleObserver::default();
    let dial = WebDial { browser: browser.clone(), name: "first", cut_after: Some(500) };
    let cut = transfer::send(&dial, &job, &observer.run_context()).unwrap();
    assert!(!cut.is_whole());
    assert!(!fixture.path("there/data/large").exists());
    let sent =
        transfer::send(&WebDial { browser, name: "second", cut_after: None }, &job, &observer.run_context())
            .unwrap();
    assert!(sent.is_whole(), "{sent:?} {:?}", observer.failures());
    assert!(sent.reused_bytes >= 4 << 20, "{}", sent.reused_bytes);
    assert_alike(&fixture.path("data"), &fixture.path("there/data"));
    drop(server);
    assert_no_strays(&fixture.path("there"));
}

#[test]
fn a_read_only_share_is_read_only_for_browsers() {
    let fixture = Fixture::new();
    fixture.file("there/file", 100);
    fixture.file("new", 100);
    let (_server, link) = serve(&fixture, &["--read-only"]);
    let browser = Arc::new(Browser::signed_in(&link));
    assert_eq!(browser.get("/tree").json()["entries"][0]["name"], "file");
    assert_eq!(browser.post("/tree/folder", "{\"path\":\"x\"}").status, 403);
    assert_eq!(browser.post("/tree/delete", "{\"path\":\"file\"}").status, 403);
    let dial = WebDial { browser, name: "job", cut_after: None };
    let job = SendJob::new(vec![fixture.path("new").into()]);
    transfer::send(&dial, &job, &SimpleObserver::default().run_context()).unwrap_err();
    assert!(!fixture.path("there/new").exists());
}

/// Returns the SHA-256 of the certificate that the log of a server states.
fn certificate(server: &Server) -> String {
    let line = server.wait_for_log("SHA-256 of the certificate: ");
    line.rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn a_given_certificate_is_used() {
    let fixture = Fixture::new();
    let (server, link) = serve(&fixture, &[]);
    let first = certificate(&server);
    let browser = Browser::signed_in(&link);
    assert_eq!(haul_lab::browser::sha256(&browser.certificate()), first);
    drop(server);
    let own = fixture.path("state/haul/web/certificate.pem");
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o777, 0o600);
    let (server, _) = serve(&fixture, &[]);
    assert_eq!(certificate(&server), first, "the certificate is kept");
    drop(server);
    fs::rename(&own, fixture.path("given.pem")).unwrap();
    let (server, _) = serve(&fixture, &[]);
    let second = certificate(&server);
    assert_ne!(second, first);
    drop(server);
    fs::rename(own, fixture.path("renewed.pem")).unwrap();
    let given = ["--web-cert", "given.pem", "--web-key", "given.pem", "--web-link", "link"];
    let all = [
        &["serve", "--listen=127.0.0.1:0", "--root=there", "--ticket-file=ticket.line", "--web=127.0.0.1:0"]
            [..],
        &given,
    ]
    .concat();
    let server = Server::new(fixture.haul(&all).stderr(std::process::Stdio::piped()).spawn().unwrap());
    assert_eq!(certificate(&server), first);
    // The link is written before sessions are served, but after this line of the log.
    haul_lab::wait_until("the link", || fixture.path("link").exists());
    assert_eq!(fs::metadata(fixture.path("link")).unwrap().mode() & 0o777, 0o600);
    let browser = Browser::signed_in(&fs::read_to_string(fixture.path("link")).unwrap());
    assert!(!fixture.path("state/haul/web/certificate.pem").exists());
    // A file that is changed is used without a restart, if it can be.
    fs::write(fixture.path("given.pem"), "").unwrap();
    let refused = server.wait_for_log("cannot renew the certificate");
    assert!(refused.contains("cannot use given.pem: no certificate in PEM found"), "{refused}");
    fs::rename(fixture.path("renewed.pem"), fixture.path("given.pem")).unwrap();
    server.wait_for_log(&format!("renewed the certificate; its SHA-256 is {second}"));
    let later = Browser::new(browser.host().parse().unwrap());
    assert_eq!(later.get("/").status, 200);
    assert_eq!(haul_lab::browser::sha256(&later.certificate()), second);
    assert_eq!(browser.get("/session").status, 200, "the session continues");
}

/// Returns the values of a scrape by name. Checks each line of the format.
fn scrape(browser: &Browser, token: &str) -> HashMap<String, u64> {
    let bearer = format!("Bearer {token}");
    let answer = browser.send("GET", "/metrics", &[("authorization", &bearer)], b"");
    assert_eq!(answer.status, 200);
    let text = String::from_utf8(answer.body).unwrap();
    let body = text.strip_suffix("# EOF\n").unwrap();
    let (mut family, mut kind, mut values) = (String::new(), String::new(), HashMap::new());
    for line in body.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["#", "TYPE", name, said] => {
                assert!(name.starts_with("haul_") && ["gauge", "counter", "info"].contains(&said), "{line}");
                (family, kind) = (name.to_owned(), said.to_owned());
            }
            ["#", "UNIT", name, unit] => assert!(name == family && name.ends_with(unit), "{line}"),
            ["#", "HELP", name, ..] => assert!(name == family && line.ends_with('.'), "{line}"),
            _ => {
                // A value of a label can have spaces.
                let (sample, value) = line.rsplit_once(' ').unwrap();
                let suffix = match kind.as_str() {
                    "counter" => "_total",
                    "info" => "_info",
                    _ => "",
                };
                let label = sample.strip_prefix(&format!("{family}{suffix}")).unwrap();
                assert!(label.is_empty() || (label.starts_with('{') && label.ends_with("\"}")), "{line}");
                assert!(values.insert(sample.to_owned(), value.parse().unwrap()).is_none(), "{line}");
            }
        }
    }
    values
}

#[test]
fn counters_follow_the_transfers() {
    let fixture = Fixture::new();
    let (server, link) = serve(&fixture, &["--web-metrics", "token"]);
    let token = fs::read_to_string(fixture.path("token")).unwrap();
    assert_eq!(fs::metadata(fixture.path("token")).unwrap().mode() & 0o777, 0o600);
    let token = token.trim();
    let browser = Arc::new(Browser::signed_in(&link));
    let reader = Browser::new(browser.host().parse().unwrap());
    assert_eq!(scrape(&reader, token)["haul_sessions_total"], 0);
    fs::write(fixture.path("large"), bytes(30 << 20, 1)).unwrap();
    fs::write(fixture.path("small"), bytes(1000, 2)).unwrap();
    let job = SendJob::new(vec![fixture.path("large").into(), fixture.path("small").into()]);
    let sending = {
        let browser = browser.clone();
        thread::spawn(move || {
            let observer = SimpleObserver::default();
            let dial = WebDial { browser, name: "up", cut_after: None };
            transfer::send(&dial, &job, &observer.run_context()).unwrap()
        })
    };
    // Scraped during the transfer: counters never decrease.
    let (mut last, mut was_running) = (0, false);
    while !sending.is_finished() {
        let values = scrape(&reader, token);
        was_running |= values["haul_running_sessions"] == 1 && values["haul_web_lanes{kind=\"http\"}"] > 0;
        let settled = values["haul_settled_bytes_total"];
        assert!(settled >= last && settled <= (30 << 20) + 1000);
        last = settled;
    }
    assert!(was_running);
    let sent = sending.join().unwrap();
    assert!(sent.is_whole(), "{sent:?}");
    haul_lab::wait_until("the end of the session", || scrape(&reader, token)["haul_running_sessions"] == 0);
    let values = scrape(&reader, token);
    for (name, value) in [
        ("haul_sessions_total", 1),
        ("haul_incomplete_sessions_total", 0),
        ("haul_files_total", 2),
        ("haul_failed_files_total", 0),
        ("haul_settled_bytes_total", (30 << 20) + 1000),
        ("haul_lane_received_bytes_total", sent.traffic.sent),
        ("haul_lane_sent_bytes_total", sent.traffic.received),
        ("haul_web_sessions", 1),
    ] {
        assert_eq!(values[name], value, "{name}");
    }
    assert!(values["haul_start_time_seconds"] > 1_700_000_000);
    assert_eq!(browser.get("/metrics").status, 200, "a signed-in browser needs no token");
    drop(server);
}

#[test]
fn settings_of_the_page_that_cannot_work_are_reported() {
    let fixture = Fixture::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = format!("--web={}", taken.local_addr().unwrap());
    for (args, words) in [
        (&["--web", "--once"][..], "--once"),
        (&["--web-cert", "x"], "--web"),
        (&["--web=127.0.0.1:0", "--web-cert", "x"], "--web-key"),
        (&["--web=here"], "--web"),
        (&[taken.as_str()], "use --web=ADDRESS:PORT"),
        (&["--web=127.0.0.1:0", "--web-cert", "x", "--web-key", "x"], "cannot read x"),
        (&["--web=127.0.0.1:0", "--web-link", "none/link"], "cannot write the link"),
        (&["--web=127.0.0.1:0", "--web-metrics", "none/token"], "cannot write the token"),
    ] {
        let all = [&["serve", "--listen=127.0.0.1:0", "--root", "there"], args].concat();
        let ended = fixture.run(&all);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(words), "{words}: {ended:#?}");
    }
}

/// Returns the events of a verification by the page, except for those of its progress.
fn verify(browser: &Browser, query: &str, waybill: &str) -> Vec<Value> {
    events(browser, &format!("/verify?{query}"), waybill)
}

pub(super) fn events(browser: &Browser, path: &str, body: &str) -> Vec<Value> {
    let answer = browser.post(path, body);
    assert_eq!(answer.status, 200, "{answer:?}");
    let lines = std::str::from_utf8(&answer.body).unwrap().lines();
    let events = lines.map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] != "progress").collect()
}

#[test]
fn a_directory_is_verified_for_a_browser_in_the_sandbox() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("data/dir")).unwrap();
    for (name, len) in [("large", 3 << 20), ("dir/small", 5), ("gone", 7)] {
        fixture.file(&format!("data/{name}"), len);
    }
    assert_ended(&fixture.run(&["cp", "-a", "--split-size=1M", "--waybill=w", "data", "there"]), 0);
    let waybill = fs::read_to_string(fixture.path("w")).unwrap();
    let (_server, link) = serve(&fixture, &["--read-only", "--sandbox=auto"]);
    let browser = Browser::signed_in(&link);
    let intact = verify(&browser, "path=", &waybill);
    let summary = intact.last().unwrap();
    assert_eq!((&summary["event"], &summary["intact"]), (&"summary".into(), &5.into()), "{intact:?}");
    assert_eq!((&summary["bytes"], &summary["interrupted"]), (&((3 << 20) + 12).into(), &false.into()));
    // One byte of the second object changes, and the time of the file does not.
    let large = fs::File::options().write(true).open(fixture.path("there/data/large")).unwrap();
    let time = large.metadata().unwrap().modified().unwrap();
    large.write_all_at(b"?!", (1 << 20) + 5).unwrap();
    large.set_modified(time).unwrap();
    fs::remove_file(fixture.path("there/data/gone")).unwrap();
    fs::write(fixture.path("there/data/w"), &waybill).unwrap();
    for (query, body) in [("path=", waybill.as_str()), ("waybill=data%2Fw", "")] {
        let events = verify(&browser, query, body);
        let of = |path: &str| events.iter().find(|event| event["path"] == path).unwrap();
        let large = of("data/large");
        assert_eq!((&large["verdict"], &large["damage"]), (&"rotted".into(), &json!([[1 << 20, 2 << 20]])));
        assert_eq!((&large["size"], &large["object"]), (&(3 << 20).into(), &(1 << 20).into()));
        assert_eq!(large["blake3"].as_str().map(str::len), Some(64));
        assert_eq!(of("data/gone")["verdict"], "missing");
        assert_eq!(of("data/dir/small")["verdict"], "intact");
        let summary = events.last().unwrap();
        let counts = ["intact", "rotted", "missing", "flaws"].map(|name| summary[name].as_u64());
        assert_eq!(counts, [3, 1, 1, 0].map(Some), "{summary}");
    }
    // An object number takes no memory.
    let far = verify(&browser, "path=", &with_a_far_object());
    let summary = far.last().unwrap();
    assert_eq!((&summary["flaws"], &summary["missing"]), (&1.into(), &1.into()), "{far:?}");
    // Names outside the directory are not opened, and other files are no waybills.
    let outside = verify(&browser, "path=data", &waybill);
    assert_eq!(outside.last().unwrap()["missing"], 5, "{outside:?}");
    let noise = verify(&browser, "", "noise\n");
    let message = noise.last().unwrap()["message"].as_str().unwrap();
    assert!(message.starts_with("cannot use the waybill: ") && !message.contains("/proc"), "{message}");
}

#[test]
fn entries_are_copied_between_shares_in_the_sandbox() {
    let fixture = Fixture::new();
    fixture.tree("one/data");
    fs::create_dir_all(fixture.path("two/in")).unwrap();
    symlink("/etc", fixture.path("one/etc")).unwrap();
    let config = "listen = ['127.0.0.1:0']\nidentity = 'identity.pem'\nweb = '127.0.0.1:0'\nweb-link = 'link'\n\
                  sandbox = 'auto'\n[[share]]\nroot = 'one'\naccess = 'read'\nticket = 'one.ticket'\n\
                  [[share]]\nroot = 'two'\nquota = '2M'\nticket = 'two.ticket'\n";
    fs::write(fixture.path("serve.toml"), config).unwrap();
    let server = fixture.serve_config("serve.toml");
    server.wait_for_log("serving browsers on");
    wait_until("the link", || fixture.path("link").exists());
    let link = fs::read_to_string(fixture.path("link")).unwrap();
    let browser = Browser::signed_in(link.trim());
    let copy = |names: &str| {
        let body = format!(r#"{{"root":0,"path":"","names":{names},"to_root":1,"to":"in"}}"#);
        events(&browser, "/copy", &body).pop().unwrap()
    };
    let copied = copy(r#"["data"]"#);
    assert_eq!((&copied["event"], &copied["whole"]), (&"copied".into(), &true.into()), "{copied}");
    assert_eq!((&copied["failed"], &copied["level"]), (&0.into(), &"durable".into()), "{copied}");
    assert_alike(&fixture.path("one/data"), &fixture.path("two/in/data"));
    // Equal files stay, by their digests.
    let inode = || fs::metadata(fixture.path("two/in/data/big")).unwrap().ino();
    let before = inode();
    let again = copy(r#"["data"]"#);
    assert_eq!((&again["whole"], again["same"].as_u64() > Some(0), inode()), (&true.into(), true, before));
    // A link that leads out is not followed, and a quota holds.
    let refused = copy(r#"["etc"]"#);
    assert_eq!((&refused["whole"], &refused["failed"]), (&false.into(), &1.into()), "{refused}");
    fixture.file("one/large", 3 << 20);
    let exceeded = copy(r#"["large"]"#);
    assert_eq!(exceeded["whole"], false, "{exceeded}");
    assert!(!fixture.path("two/in/large").exists());
    server.wait_for_log("started a copy from a directory in one");
}

#[test]
fn entries_are_copied_to_and_from_another_server() {
    let fixture = Fixture::new();
    fixture.tree("there/data");
    fs::create_dir_all(fixture.path("there/back")).unwrap();
    fs::create_dir(fixture.path("far")).unwrap();
    let far = fixture.serve(&["--root", "far"]);
    let ticket = fs::read_to_string(fixture.path("ticket")).unwrap();
    let body = |more: &str| format!(r#"{{"ticket":"{}",{more}}}"#, ticket.trim());
    let (server, link) = serve(&fixture, &["--sandbox=auto", "--web-peers"]);
    let browser = Browser::signed_in(&link);
    assert_eq!(browser.get("/session").json()["peers"], true);
    let send = body(r#""path":"","names":["data"],"to":"in""#);
    let sent = events(&browser, "/copy", &send).pop().unwrap();
    assert_eq!((&sent["whole"], &sent["level"]), (&true.into(), &"durable".into()), "{sent}");
    assert_alike(&fixture.path("there/data"), &fixture.path("far/in/data"));
    let fetch = body(r#""paths":["in/data"],"to":"back""#);
    let fetched = events(&browser, "/fetch", &fetch).pop().unwrap();
    assert_eq!((&fetched["whole"], &fetched["failed"]), (&true.into(), &0.into()), "{fetched}");
    assert_alike(&fixture.path("there/data"), &fixture.path("there/back/data"));
    let lost = events(&browser, "/fetch", &body(r#""paths":["none"],"to":"back""#)).pop().unwrap();
    assert_eq!(lost["whole"], false, "{lost}");
    far.signal(Signal::TERM);
    assert_eq!(far.status(), Some(0));
    let gone = events(&browser, "/copy", &send).pop().unwrap();
    assert!(gone["message"].as_str().is_some_and(|why| why.starts_with("cannot connect")), "{gone}");
    assert_eq!(browser.post("/copy", &send.replace(ticket.trim(), "haul1:x")).status, 400);
    server.signal(Signal::TERM);
    assert_eq!(server.status(), Some(0));
    // Off by default.
    let (_server, link) = serve(&fixture, &[]);
    let browser = Browser::signed_in(&link);
    assert_eq!(browser.get("/session").json()["peers"], false);
    assert_eq!(browser.post("/copy", &send).status, 403);
    assert_eq!(browser.post("/fetch", &fetch).status, 403);
}
