//! Copies between directories of the server: rights, names, and directories within each other.

use crate::world::{World, limits};
use haul_net::Role;
use std::os::unix::fs::symlink;

#[test]
fn entries_are_copied_to_another_directory() {
    let world = World::new(Role::Both, limits());
    world.write("root/from/dir/inner", b"inner");
    world.write("root/from/file", b"file");
    world.write("outside", b"outside");
    symlink("file", world.path("root/from/link")).expect("made");
    // Refused by the receiver, as in any transfer.
    symlink("../../outside", world.path("root/from/out")).expect("made");
    std::fs::create_dir(world.path("root/to")).expect("made");
    let browser = world.browser();
    let body = r#"{"path":"from","names":["dir",{"base64":"ZmlsZQ=="},"link","out"],"to":"to"}"#;
    let copied = browser.post("/copy", body);
    assert_eq!((copied.status, copied.header("content-type")), (200, Some("application/x-ndjson")));
    assert_eq!(String::from_utf8_lossy(&copied.body), "Ok((4, 1))");
    let read = |path: &str| std::fs::read(world.path(path)).expect("there");
    assert_eq!((read("root/to/dir/inner"), read("root/to/file")), (b"inner".to_vec(), b"file".to_vec()));
    let link = std::fs::read_link(world.path("root/to/link")).expect("a link");
    assert_eq!(link.to_str(), Some("file"));
    assert!(!world.path("root/to/out").exists());
    assert!(world.has_logged("started a copy from a directory in root"));
}

#[test]
fn copies_out_of_bounds_are_refused() {
    let world = World::new(Role::Both, limits());
    world.write("root/dir/inner/file", b"file");
    let fifo = world.path("root/fifo");
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    symlink("..", world.path("root/up")).expect("made");
    let browser = world.browser();
    for (body, status) in [
        (r#"{"path":"","names":["dir"],"to":"dir"}"#, 409),
        (r#"{"path":"","names":["dir"],"to":"dir/inner"}"#, 409),
        (r#"{"path":"dir","names":["inner"],"to":"dir"}"#, 409),
        (r#"{"path":"","names":["fifo"],"to":"dir"}"#, 409),
        (r#"{"path":"","names":["none"],"to":"dir"}"#, 404),
        (r#"{"path":"","names":[],"to":"dir"}"#, 400),
        (r#"{"path":"","names":["dir/inner"],"to":"dir"}"#, 400),
        (r#"{"path":"","names":[".."],"to":"dir"}"#, 400),
        (r#"{"path":"","names":[".haul-x"],"to":"dir"}"#, 400),
        (r#"{"path":"up","names":["outside"],"to":"dir"}"#, 403),
        (r#"{"path":"dir","names":["inner"],"to":"up"}"#, 403),
        (r#"{"path":"dir","names":["inner"],"to":"none"}"#, 404),
        (r#"{"path":"dir","names":["inner"],"to_root":1,"to":""}"#, 404),
    ] {
        assert_eq!(browser.post("/copy", body).status, status, "{body}");
    }
    let body = r#"{"path":"dir","names":["inner"],"to":""}"#;
    for role in [Role::Read, Role::Write] {
        let world = World::new(role, limits());
        world.write("root/dir/inner/file", b"file");
        assert_eq!(world.browser().post("/copy", body).status, 403, "{role:?}");
    }
}
