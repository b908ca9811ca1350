//! Files over HTTP: rights, pages of listings, ranges and names of any bytes.

use crate::world::{World, limits};
use haul_lab::browser::Browser;
use haul_lab::wait_until;
use haul_net::Role;
use haul_web::WebLimits;
use std::io::BufRead as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileExt as _, symlink};
use std::time::Duration;

#[test]
fn listings_show_names_of_any_bytes_in_pages() {
    let world = World::new(Role::Both, limits());
    for name in ["b", "a", "<img src=x onerror=alert(1)>"] {
        world.write(&format!("root/dir/{name}"), name.as_bytes());
    }
    let odd = std::ffi::OsStr::from_bytes(b"\xff/").to_owned();
    std::fs::write(world.path("root/dir").join(std::ffi::OsStr::from_bytes(&odd.as_bytes()[..1])), "odd")
        .expect("written");
    let browser = world.browser();
    let page = browser.get("/tree?root=0&path=dir&max=2").json();
    assert_eq!(page["entries"][0]["name"], "<img src=x onerror=alert(1)>");
    assert_eq!((&page["entries"][0]["kind"], &page["entries"][0]["size"]), (&"file".into(), &28.into()));
    assert!(page["entries"][0]["mtime"].as_i64().is_some_and(|time| time > 1_600_000_000));
    assert_eq!(page["entries"][1]["name"], "a");
    let next = page["next"].as_str().expect("more names follow");
    let page = browser.get(&format!("/tree?root=0&path=dir&max=2&after={next}")).json();
    assert_eq!(page["entries"][0]["name"], "b");
    assert_eq!(page["entries"][1]["name64"], "/w==");
    assert!(page["next"].is_null() && page["entries"][1]["name"].is_null());
    assert_eq!(browser.get("/file?path=dir%2F%ff").body, b"odd");
    let moved = browser.post("/tree/move", "{\"from\":{\"base64\":\"ZGlyL/8=\"},\"to\":\"dir/plain\"}");
    assert_eq!(moved.status, 204, "{moved:?}");
    assert_eq!(std::fs::read(world.path("root/dir/plain")).expect("there"), b"odd");
    for (path, status) in [
        ("/tree?root=1", 404),
        ("/tree?root=x", 400),
        ("/tree?path=none", 404),
        ("/tree?path=..", 400),
        ("/tree?path=%2Fetc", 400),
        ("/tree?path=dir%2Fa", 409),
        ("/tree?max=0", 400),
        ("/tree?max=5001", 400),
        ("/tree?path=%zz", 400),
    ] {
        assert_eq!(browser.get(path).status, status, "{path}");
    }
}

#[test]
fn entries_are_created_renamed_and_deleted() {
    let world = World::new(Role::Both, limits());
    world.write("outside", b"outside");
    symlink("../outside", world.path("root/link")).expect("made");
    let browser = world.browser();
    let post = |path: &str, body: &str| browser.post(path, body).status;
    assert_eq!(post("/tree/folder", "{\"path\":\"new\"}"), 201);
    assert_eq!(post("/tree/folder", "{\"path\":\"new\"}"), 409);
    assert_eq!(post("/tree/folder", "{\"path\":\"new/../../x\"}"), 400);
    assert_eq!(post("/tree/folder", "{\"path\":\".haul-x\"}"), 400);
    world.write("root/new/file", b"file");
    assert_eq!(post("/tree/move", "{\"from\":\"new/file\",\"to\":\"link\"}"), 409);
    assert_eq!(post("/tree/move", "{\"from\":\"new/file\",\"to\":\"new/renamed\"}"), 204);
    assert_eq!(post("/tree/move", "{\"from\":\"new/renamed\",\"to\":\"link\",\"replace\":true}"), 204);
    assert_eq!(std::fs::read(world.path("outside")).expect("untouched"), b"outside");
    assert_eq!(post("/tree/delete", "{\"path\":\"none\"}"), 404);
    world.write("root/new/deep/file", b"file");
    assert_eq!(post("/tree/delete", "{\"path\":\"new\"}"), 409);
    assert_eq!(post("/tree/delete", "{\"path\":\"new\",\"recursive\":true}"), 204);
    assert!(!world.path("root/new").exists());
    assert_eq!(post("/tree/delete", "{\"path\":\"\",\"recursive\":true}"), 400);
    assert!(world.has_logged("deleted an entry in root"));
}

#[test]
fn rights_of_the_ticket_apply_to_files() {
    let requests = [
        ("GET", "/tree", "", Role::Read),
        ("GET", "/file?path=file", "", Role::Read),
        ("POST", "/tree/folder", "{\"path\":\"new\"}", Role::Write),
        ("POST", "/tree/move", "{\"from\":\"file\",\"to\":\"moved\"}", Role::Both),
        ("POST", "/tree/delete", "{\"path\":\"moved\"}", Role::Both),
    ];
    for role in [Role::Read, Role::Write, Role::Both] {
        let world = World::new(role, limits());
        world.write("root/file", b"file");
        let browser = world.browser();
        for (method, path, body, needs) in requests {
            let answer = browser.send(method, path, &[], body.as_bytes());
            let may = role == Role::Both || role == needs;
            assert_eq!(answer.status < 300, may, "{role:?}: {method} {path}: {answer:?}");
            assert!(may || answer.status == 403);
        }
        assert_eq!(world.path("root/file").exists(), role != Role::Both);
    }
    let world = World::with_quota(Role::Both, limits(), Some(1500));
    let browser = world.browser();
    let create = |name: &str| browser.post("/tree/folder", &format!("{{\"path\":\"{name}\"}}")).status;
    assert_eq!((create("a"), create("b"), create("c")), (201, 201, 507));
}

/// Regression: a download by the browser itself needed a cookie, which all ports of the host got.
#[test]
fn an_address_serves_one_file_of_one_session_until_it_expires() {
    let world = World::new(Role::Both, limits());
    world.write("root/file", b"0123456789");
    world.write("root/other", b"other");
    let (browser, stranger) = (world.browser(), world.stranger());
    let issue = |browser: &Browser, path: &str| {
        let answer = browser.post("/file", &format!("{{\"path\":\"{path}\"}}"));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.json()["address"].as_str().expect("an address").to_owned()
    };
    let address = issue(&browser, "file");
    assert!(!address.contains(&browser.token()));
    assert_eq!(stranger.get(&address).body, b"0123456789");
    assert_eq!(stranger.send("GET", &address, &[("range", "bytes=2-4")], b"").body, b"234");
    assert_eq!(stranger.send("HEAD", &address, &[], b"").header("content-length"), Some("10"));
    let other = format!("{address}&path=other");
    assert_eq!(stranger.get(&other).body, b"0123456789", "the address decides");
    for (headers, status) in [
        (&[("origin", "https://evil.example")][..], 403),
        (&[("sec-fetch-site", "same-site")], 403),
        (&[("host", "evil.example:443")], 421),
    ] {
        assert_eq!(stranger.send("GET", &address, headers, b"").status, status, "{headers:?}");
    }
    let token = address.split_once('=').expect("a token").1;
    for path in ["/session", "/tree", "/file?path=file"] {
        assert_eq!(stranger.send("GET", path, &[("x-haul-token", token)], b"").status, 401, "{path}");
    }
    assert_eq!(stranger.send("POST", &address, &[], b"{}").status, 401);
    assert_eq!(stranger.get("/file?token=").status, 401);
    assert_eq!(browser.send("DELETE", "/session", &[], b"").status, 204);
    assert_eq!(stranger.get(&address).status, 401, "it ends with its session");
    let expired = World::new(Role::Both, WebLimits { address_idle: Duration::ZERO, ..limits() });
    assert_eq!(expired.stranger().get(&issue(&expired.browser(), "file")).status, 401);
    let world = World::new(Role::Write, limits());
    assert_eq!(world.browser().post("/file", "{\"path\":\"file\"}").status, 403);
    let long = format!("{{\"path\":\"{}\"}}", "x/".repeat(3000));
    assert_eq!(World::new(Role::Both, limits()).browser().post("/file", &long).status, 400);
}

#[test]
fn downloads_are_attachments_and_have_ranges() {
    let world = World::new(Role::Both, limits());
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|at| (at / 7) as u8).collect();
    world.write("root/caf\u{e9}.html", &bytes);
    let browser = world.browser();
    let path = "/file?path=caf%C3%A9.html";
    let whole = browser.get(path);
    assert_eq!((whole.status, whole.body == bytes), (200, true));
    assert_eq!(whole.header("content-type"), Some("application/octet-stream"));
    assert_eq!(whole.header("content-disposition"), Some("attachment; filename*=UTF-8''caf%C3%A9.html"));
    let tag = whole.header("etag").expect("a tag").to_owned();
    let range = |range: &str, more: &[(&str, &str)]| {
        browser.send("GET", path, &[&[("range", range)], more].concat(), b"")
    };
    let part = range("bytes=300000-699999", &[("if-range", &tag)]);
    assert_eq!((part.status, part.body == bytes[300_000..700_000]), (206, true));
    assert_eq!(part.header("content-range"), Some("bytes 300000-699999/1000000"));
    assert_eq!(range("bytes=-5", &[]).body, bytes[999_995..]);
    assert_eq!(range("bytes=1000000-", &[]).status, 416);
    assert_eq!(range("bytes=0-4", &[("if-range", "\"other\"")]).status, 200);
    let head = browser.send("HEAD", path, &[], b"");
    assert_eq!((head.status, head.header("content-length")), (200, Some("1000000")));
    // Regression: a tag without the change time let a browser join parts of two versions.
    let times =
        std::fs::metadata(world.path("root/caf\u{e9}.html")).expect("there").modified().expect("a time");
    world.write("root/caf\u{e9}.html", &vec![9; bytes.len()]);
    let file = std::fs::File::options().write(true).open(world.path("root/caf\u{e9}.html")).expect("opened");
    file.set_modified(times).expect("set");
    assert_eq!(range("bytes=300000-699999", &[("if-range", &tag)]).status, 200);
    // A file that shrinks meanwhile ends the response early, which the client detects.
    world.write("root/brief", &vec![1; 8 << 20]);
    let mut connection = browser.connect().expect("connected");
    use std::io::{Read as _, Write as _};
    connection.get_mut().write_all(browser.head("GET", "/file?path=brief", &[], 0).as_bytes()).expect("sent");
    let mut first = [0; 100];
    connection.read_exact(&mut first).expect("the response begins");
    std::fs::write(world.path("root/brief"), "").expect("written");
    let mut rest = Vec::new();
    // The end can be an error of TLS, since the server does not announce it.
    let _ = connection.read_to_end(&mut rest);
    assert!(rest.len() < 8 << 20, "{}", rest.len());
    for end in [
        "ended a download of 1000000 bytes from root",
        "ended a download of 400000 bytes from root",
        "lost a download from root after ",
    ] {
        wait_until(end, || world.has_logged(end));
    }
    let ends =
        |words: &str| world.log.lock().expect("a log").iter().filter(|line| line.contains(words)).count();
    // Not the header alone, and not a range that the file has not.
    assert_eq!((ends("download of 1000000 bytes"), ends("lost a download")), (3, 1));
}

/// Regression: a file that was rewritten meanwhile arrived as a complete download of two versions.
#[test]
fn a_download_of_a_file_that_changes_does_not_become_complete() {
    use std::io::Write as _;
    // More than the buffers of the server and of both sockets hold.
    const LEN: u64 = 256 << 20;
    let world = World::new(Role::Both, limits());
    world.write("root/file", b"");
    let file = std::fs::File::options().write(true).open(world.path("root/file")).expect("opened");
    file.set_len(LEN).expect("a sparse file");
    let browser = world.browser();
    for (range, len) in [("", LEN), ("bytes=1000-", LEN - 1000)] {
        let mut connection = browser.connect().expect("connected");
        let head = browser.head("GET", "/file?path=file", &[("range", range)], 0);
        connection.get_mut().write_all(head.as_bytes()).expect("sent");
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            connection.read_line(&mut line).expect("a line of the response");
        }
        let times = file.metadata().expect("metadata").modified().expect("a time");
        file.write_all_at(b"new", 0).expect("written");
        file.set_modified(times).expect("set");
        // The end can be an error of TLS, since the server does not announce it.
        let arrived = std::io::copy(&mut CountedReader(&mut connection), &mut std::io::sink()).expect("read");
        assert!(arrived < len, "{arrived} of {len} bytes");
    }
}

/// Takes an error of the connection for its end.
struct CountedReader<'a>(&'a mut haul_lab::browser::Connection);

impl std::io::Read for CountedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        Ok(self.0.read(buffer).unwrap_or(0))
    }
}

/// Regression: the request was answered with success, and nothing had happened.
#[test]
fn a_move_onto_another_name_of_the_file_removes_the_first_name() {
    let world = World::new(Role::Both, limits());
    world.write("root/one", b"file");
    world.write("root/dir/kept", b"");
    for name in ["two", "dir/three"] {
        std::fs::hard_link(world.path("root/one"), world.path("root").join(name)).expect("linked");
    }
    let browser = world.browser();
    let rename = |from: &str, to: &str, replace: bool| {
        browser
            .post("/tree/move", &format!("{{\"from\":\"{from}\",\"to\":\"{to}\",\"replace\":{replace}}}"))
            .status
    };
    assert_eq!(rename("one", "two", false), 409);
    assert_eq!(rename("one", "one", true), 204);
    assert!(world.path("root/one").exists(), "the only entry of this name");
    assert_eq!(rename("one", "two", true), 204);
    assert!(!world.path("root/one").exists() && world.path("root/two").exists());
    assert_eq!(rename("two", "dir/three", true), 204);
    assert!(!world.path("root/two").exists());
    assert_eq!(std::fs::read(world.path("root/dir/three")).expect("there"), b"file");
    assert_eq!(rename("dir/three", "dir/kept", true), 204);
    assert_eq!(std::fs::read(world.path("root/dir/kept")).expect("there"), b"file");
}
