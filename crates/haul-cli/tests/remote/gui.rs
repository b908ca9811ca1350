//! `haul gui`: the page on this host, and the browser of the desktop.

use super::{Fixture, Server, TEST_TIMEOUT, assert_ended};
use haul_lab::browser::Browser;
use rustix::process::Signal;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use std::time::{Duration, Instant};

/// Starts `haul gui` by `command`. Returns the link too.
fn opened(fixture: &Fixture, command: Command) -> (Server, String) {
    let server = fixture.serve_by(command);
    let link = fs::read_to_string(fixture.path("ticket")).unwrap();
    (server, link.trim().to_owned())
}

/// Returns `haul gui ARGS` without a desktop.
fn without_desktop(fixture: &Fixture, args: &[&str]) -> Command {
    let mut command = fixture.haul(&[&["gui"], args].concat());
    command.env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    command
}

#[test]
fn the_page_opens_in_the_browser_of_the_desktop() {
    let fixture = Fixture::new();
    fixture.tree("there/data");
    fs::create_dir(fixture.path("bin")).unwrap();
    // Keeps its argument, and the contents and the mode of that file.
    let opener = "#!/bin/sh\nset -e\nhere=${0%/*}\nprintf %s \"$1\" > \"$here/file\"\ncp -p \"$1\" \"$here/new\"\nmv \"$here/new\" \"$here/page\"\n";
    fs::write(fixture.path("bin/xdg-open"), opener).unwrap();
    fs::set_permissions(fixture.path("bin/xdg-open"), fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = fixture.haul(&["gui", "--port=0", "--state-dir=kept", "there"]);
    let path = std::env::var("PATH").unwrap();
    command.env("DISPLAY", ":0").env("PATH", format!("{}:{path}", fixture.path("bin").display()));
    let (server, link) = opened(&fixture, command);
    let page = fixture.path("bin/page");
    let begun = Instant::now();
    while !page.exists() {
        assert!(begun.elapsed() < TEST_TIMEOUT, "no browser was opened");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(fs::read_to_string(&page).unwrap().contains(&format!("url={link}\"")));
    assert_eq!(fs::metadata(&page).unwrap().permissions().mode() & 0o777, 0o600);
    let file = fs::read_to_string(fixture.path("bin/file")).unwrap();
    assert!(file.contains("/kept/web/") && !file.contains(&link[link.find('#').unwrap()..]), "{file}");
    let browser = Browser::signed_in(&link);
    assert_eq!(browser.get("/file?path=data%2Fsmall").body.len(), 100);
    assert_eq!(browser.post("/tree/folder", "{\"path\":\"new\"}").status, 201);
    // The jobs of this user, whose state directory has its usual place.
    fixture.file("kept-file", 100);
    assert_ended(&fixture.run(&["cp", "--resume", "kept-file", "copy"]), 0);
    let jobs = browser.get("/jobs").json()["jobs"].clone();
    assert_eq!(jobs.as_array().map(Vec::len), Some(1), "{jobs}");
    assert_eq!((&jobs[0]["status"], &jobs[0]["words"][0]), (&"finished".into(), &"cp".into()), "{jobs}");
    server.signal(Signal::TERM);
    assert_eq!(server.status(), Some(0));
    assert!(!fs::exists(file).unwrap(), "the file with the link remains");
}

#[test]
fn a_page_without_a_desktop_prints_its_link() {
    let fixture = Fixture::new();
    fixture.tree("there/data");
    let (server, link) =
        opened(&fixture, without_desktop(&fixture, &["--read-only", "--port=0", "--sandbox=off", "there"]));
    server.wait_for_log("--sandbox=off");
    server.wait_for_log("no desktop found; open the link above in a browser");
    let browser = Browser::signed_in(&link);
    assert_eq!(browser.get("/file?path=data%2Fsmall").body.len(), 100);
    assert_eq!(browser.post("/tree/folder", "{\"path\":\"new\"}").status, 403);
    let quiet = ["--no-browser", "-q", "--port=0", "there/data", "there"];
    let (quiet, link) = opened(&fixture, without_desktop(&fixture, &quiet));
    let roots = Browser::signed_in(&link).get("/session").json()["roots"].clone();
    assert_eq!(roots.as_array().map(Vec::len), Some(2), "{roots}");
    quiet.signal(Signal::TERM);
    assert_eq!(quiet.log.iter().collect::<Vec<_>>(), Vec::<String>::new());
    assert_eq!(quiet.status(), Some(0));
}

/// The home directory has the state directory in it, which no browser may read.
#[test]
fn a_served_home_directory_keeps_its_state_in_the_runtime_directory() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.path("run")).unwrap();
    let mut command = without_desktop(&fixture, &["--port=0", "there"]);
    command.env("XDG_STATE_HOME", fixture.path("there/.local/state"));
    command.env("XDG_RUNTIME_DIR", fixture.path("run"));
    let (server, _) = opened(&fixture, command);
    server.wait_for_log("serving browsers on 127.0.0.1:");
    assert!(fixture.path("run/haul/web/certificate.pem").exists());
    assert!(!fixture.path("there/.local").exists());
}

#[test]
fn a_page_that_cannot_start_reports_the_reason() {
    let fixture = Fixture::new();
    let run = |args: &[&str]| fixture.run(&[&["gui", "--no-browser"], args].concat());
    for (args, reason) in [
        (&["nowhere"][..], "cannot serve 'nowhere': No such file or directory"),
        (&["fake-ssh"], "cannot serve 'fake-ssh': it is not a directory"),
        (&["--sandbox=often"], "invalid value 'often'"),
        (&["--port=99999"], "invalid value '99999'"),
    ] {
        let ended = run(args);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(reason), "{ended:?}");
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ended = run(&[&format!("--port={port}"), "there"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("Address already in use"), "{ended:?}");
    let ended = fixture.run(&["serve", "--listen", &format!("127.0.0.1:{port}"), "--root", "there"]);
    assert_ended(&ended, 2);
    let line = format!("cannot listen on 127.0.0.1:{port}: Address already in use");
    assert!(ended.err.contains(&line) && ended.err.matches("cannot listen").count() == 1, "{ended:?}");
}
