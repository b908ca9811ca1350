//! Receipts of transfers: both sides write them, they agree, and `haul verify` accepts each for the
//! files of both sides.

use super::{Fixture, RunResult, assert_ended};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Returns the entries of a waybill, sorted. The lines have no checksums, because these chain each
/// line to the previous ones.
fn entries(waybill: &Path) -> Vec<String> {
    let text = fs::read_to_string(waybill).unwrap();
    let mut entries: Vec<String> = Vec::new();
    for line in
        text.lines().filter(|line| !line.starts_with("surehaul-waybill ") && !line.starts_with("end "))
    {
        let line = &line[..line.len() - 9];
        match line.as_bytes()[0] {
            b'0'..=b'9' => entries.last_mut().unwrap().push_str(&format!("\n{line}")),
            _ if line.starts_with("range ") => entries.last_mut().unwrap().push_str(&format!("\n{line}")),
            _ => entries.push(line.to_owned()),
        }
    }
    entries.sort();
    entries
}

#[track_caller]
fn verifies(fixture: &Fixture, waybill: &Path, root: &Path) -> RunResult {
    let ended = fixture.run(&["verify", "--cached", waybill.to_str().unwrap(), root.to_str().unwrap()]);
    assert_ended(&ended, 0);
    ended
}

/// Asserts that the digests that a waybill exports match the files beneath `root`.
#[track_caller]
fn exports(fixture: &Fixture, waybill: &Path, root: &Path) {
    let exported = fixture.run(&["waybill", "export", "-a", "blake3", waybill.to_str().unwrap()]);
    assert_ended(&exported, 0);
    let list = fixture.path("exported.b3");
    fs::write(&list, exported.out).unwrap();
    let list = list.to_str().unwrap().to_owned();
    let checked =
        fixture.haul(&["sum", "-a", "blake3", "--check", &list]).current_dir(root).output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
}

fn only_waybill_in(dir: &Path) -> PathBuf {
    let found: Vec<_> = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

#[test]
fn waybills_of_both_sides_agree_and_verify_both_trees() {
    let fixture = Fixture::new();
    fixture.tree("data");
    std::os::unix::fs::symlink("../out\u{1b}[2J", fixture.path("data/link")).unwrap();
    fs::hard_link(fixture.path("data/big"), fixture.path("data/sub/again")).unwrap();
    for (at, way) in
        [&["--verify=stream"][..], &["--verify=reread", "--inside-ssh"], &["-a", "md5", "--granularity=file"]]
            .iter()
            .enumerate()
    {
        let (here, there) = (format!("here{at}"), format!("there{at}"));
        let target = format!("localhost:in{at}");
        let options = [&["--object-size=64K", "--waybill", &here, "--waybill-there", &there], *way].concat();
        assert_ended(&fixture.over_ssh("send", &[&options[..], &["data", &target]].concat()), 0);
        let (here, there) = (fixture.path(&here), fixture.path(&format!("there/{there}")));
        let tree = fixture.path(&format!("there/in{at}"));
        assert_eq!(entries(&here), entries(&there));
        assert_eq!(entries(&here).len(), 9, "five files, a link, a further name and two directories");
        for waybill in [&here, &there] {
            verifies(&fixture, waybill, &tree);
            verifies(&fixture, waybill, fixture.home.path());
            exports(&fixture, waybill, &tree);
            let shown = fixture.run(&["waybill", "show", waybill.to_str().unwrap()]);
            assert_ended(&shown, 0);
            assert!(shown.out.contains("data/big") && !shown.out.contains('\u{1b}'), "{shown:#?}");
        }
        let level = if way[0] == "--verify=reread" { "level=re-read" } else { "level=verified" };
        let text = fs::read_to_string(&here).unwrap();
        assert_eq!(text.matches(level).count(), 5, "{text}");
        assert!(text.contains("root=. run=haul%20send%20"), "{text}");
        assert_eq!(text.contains(" md5="), at == 2, "{text}");
        let text = fs::read_to_string(&there).unwrap();
        assert!(text.contains(&format!("/there/in{at} run=haul%20meet%20")), "{text}");
    }
}

#[test]
fn waybills_of_both_sides_of_a_fetch_detect_damage() {
    let fixture = Fixture::new();
    fixture.tree("there/data");
    let fetched =
        fixture.over_ssh("fetch", &["--waybill=here", "--waybill-there=there-w", "localhost:data", "in"]);
    assert_ended(&fetched, 0);
    let (here, there) = (fixture.path("here"), fixture.path("there/there-w"));
    assert_eq!(entries(&here), entries(&there));
    verifies(&fixture, &there, &fixture.path("there"));
    verifies(&fixture, &here, &fixture.path("in"));
    let mut bytes = fs::read(fixture.path("in/data/big")).unwrap();
    bytes[300_000] ^= 1;
    fs::write(fixture.path("in/data/big"), bytes).unwrap();
    for waybill in [&here, &there] {
        let ended = fixture.run(&["verify", waybill.to_str().unwrap(), "in"]);
        assert_ended(&ended, 1);
        assert!(ended.out.contains("data/big") || ended.err.contains("data/big"), "{ended:#?}");
    }
}

#[test]
fn a_server_writes_a_waybill_for_each_session() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::create_dir(fixture.path("srv")).unwrap();
    fs::create_dir(fixture.path("bills")).unwrap();
    let server = fixture.serve(&["--root", "srv", "--waybills", "bills"]);
    assert_ended(&fixture.run(&["send", "--ticket-file=ticket", "--waybill=sent", "data", ":in"]), 0);
    server.wait_for_log("transferred");
    let of_server = only_waybill_in(&fixture.path("bills"));
    assert_eq!(entries(&fixture.path("sent")), entries(&of_server));
    verifies(&fixture, &of_server, &fixture.path("srv/in"));
    verifies(&fixture, &of_server, fixture.home.path());
    let text = fs::read_to_string(&of_server).unwrap();
    assert!(text.contains("root=srv/in run=haul%20serve%20"), "{text}");
    fs::remove_file(&of_server).unwrap();
    // A dry run leaves no receipt.
    assert_ended(&fixture.run(&["send", "--ticket-file=ticket", "--dry-run", "data", ":in"]), 0);
    server.wait_for_log("would be sent");
    assert_eq!(fs::read_dir(fixture.path("bills")).unwrap().count(), 0);
    assert_ended(&fixture.run(&["fetch", "--ticket-file=ticket", "--waybill=got", ":in/data", "out"]), 0);
    server.wait_for_log("transferred");
    let of_server = only_waybill_in(&fixture.path("bills"));
    assert_eq!(entries(&fixture.path("got")), entries(&of_server));
    let name = of_server.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(
        name.ends_with(".waybill") && name.as_bytes()[8] == b'T' && name.as_bytes()[16] == b'-',
        "{name}"
    );
}

#[test]
fn the_waybill_directory_is_configurable() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let home = fixture.home.path().display().to_string();
    for dir in ["srv", "bills"] {
        fs::create_dir(fixture.path(dir)).unwrap();
    }
    let config = |bills: &str| {
        format!(
            "plain = true\nlisten = ['127.0.0.1:0']\nwaybills = '{home}/{bills}'\n[[share]]\nroot = '{home}/srv'\nticket = '{home}/ticket'\n"
        )
    };
    for (bills, words) in [("srv", "open to clients"), ("no", "waybills")] {
        fs::write(fixture.path("bad.toml"), config(bills)).unwrap();
        let ended = fixture.run(&["serve", "--config", "bad.toml"]);
        assert_ended(&ended, 2);
        assert!(ended.err.contains(words), "{ended:#?}");
    }
    fs::write(fixture.path("good.toml"), config("bills")).unwrap();
    let server = fixture.serve_config("good.toml");
    server.wait_for_log("listening");
    let sent = fixture.run(&["send", "--plain", "--ticket-file=ticket", "data", ":"]);
    assert_ended(&sent, 0);
    server.wait_for_log("transferred");
    verifies(&fixture, &only_waybill_in(&fixture.path("bills")), &fixture.path("srv"));
}

#[test]
fn nothing_is_transferred_if_the_waybill_cannot_be_written() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::write(fixture.path("precious"), "not a waybill\n").unwrap();
    let ended = fixture.over_ssh("send", &["--waybill=precious", "data", "localhost:in"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("cannot append to the waybill 'precious'"), "{ended:#?}");
    let ended = fixture.over_ssh("send", &["--waybill-there=no/such/place", "data", "localhost:in"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("cannot write its waybill"), "{ended:#?}");
    assert!(
        ended.err.contains("cannot open the waybill 'no/such/place'"),
        "the remote haul prints the reason: {ended:#?}"
    );
    let ended = fixture.over_ssh("fetch", &["--delete", "--waybill=in/w", "localhost:.", "in/"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("name a file outside this directory"), "{ended:#?}");
    assert!(!fixture.path("there/in/data").exists() && !fixture.path("in/w").exists());
    assert_eq!(fs::read(fixture.path("precious")).unwrap(), b"not a waybill\n");
    fixture.secret("ticket", "haul1x");
    let ended = fixture.run(&["send", "--ticket-file=ticket", "--waybill-there=w", "data", ":"]);
    assert_ended(&ended, 2);
    assert!(ended.err.contains("--waybill-there"), "{ended:#?}");
}

/// The receipt of a job with failures describes the files that arrived.
#[test]
fn the_waybill_of_a_failed_job_is_complete_and_correct() {
    let fixture = Fixture::new();
    fixture.tree("data");
    fs::create_dir_all(fixture.path("there/in/data/big")).unwrap();
    let ended = fixture.over_ssh("send", &["--waybill=here", "--waybill-there=w", "data", "localhost:in"]);
    assert_ended(&ended, 1);
    let (here, there) = (fixture.path("here"), fixture.path("there/w"));
    assert_eq!(entries(&here), entries(&there));
    assert!(!entries(&here).iter().any(|entry| entry.contains("data/big")), "it did not arrive");
    verifies(&fixture, &here, &fixture.path("there/in"));
    assert_ended(&fixture.run(&["waybill", "check", "here"]), 0);
    // A later job adds the new file. The files that it skips are in the section before.
    fs::remove_dir(fixture.path("there/in/data/big")).unwrap();
    let ended = fixture.over_ssh("send", &["--update", "--waybill=here", "data", "localhost:in"]);
    assert_ended(&ended, 0);
    verifies(&fixture, &here, &fixture.path("there/in"));
    let files = |text: &str| text.lines().filter(|line| line.starts_with("file ")).count();
    assert_eq!(files(&fs::read_to_string(&here).unwrap()), 5);
    let mode = fs::metadata(&here).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode & 0o111, 0);
}
