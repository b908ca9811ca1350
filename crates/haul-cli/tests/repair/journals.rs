//! Journals that haul did not write for the file: anyone who may write to a directory can put one
//! there.

use super::in_place::journals;
use super::{assert_whole, fixture, rot, run, with_state};
use haul_digest::{Algorithm, DigestKey, digest};
use haul_lab::needs::{Need, met_or_skip};
use haul_log::journal::{Chunk, Head, Shape, Writer};
use haul_log::waybill::Moment;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The capability `cap_setuid=ep`, as in the attribute `security.capability`.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

/// Returns the key of the commands in this directory, which an in-place repair created.
fn own_key(dir: &Path) -> DigestKey {
    let secret = fs::read(dir.join("state/haul/key")).unwrap();
    DigestKey::of_journals(&secret.try_into().unwrap())
}

/// Returns the path of the journal of `data/big`.
fn journal_path(dir: &Path) -> PathBuf {
    dir.join("data").join(format!(".haul-journal-{}", digest(Algorithm::Xxh64, b"big")))
}

/// Returns a head for `data/big` as it is now, except for mode and capabilities: a journal with
/// this head asks for both setuid bits and a capability.
fn head(dir: &Path) -> Head {
    let facts = fs::metadata(dir.join("data/big")).unwrap();
    let birth = facts.created().ok().map(|birth| birth.duration_since(std::time::UNIX_EPOCH).unwrap());
    let time = |sec, nsec: i64| Moment { sec, nsec: nsec as u32 };
    let shape = Shape {
        size: facts.len(),
        mtime: time(facts.mtime(), facts.mtime_nsec()),
        atime: time(facts.atime(), facts.atime_nsec()),
    };
    Head {
        inode: facts.ino(),
        birth: birth.map(|birth| time(birth.as_secs() as i64, i64::from(birth.subsec_nanos()))),
        name: b"big".to_vec(),
        mode: 0o6755,
        capability: CAPABILITY.to_vec(),
        before: shape,
        after: shape,
    }
}

/// Writes a journal for `data/big`. It states that the current first bytes are those of the repair,
/// and that `planted` was there before; with `is_half_done`, also that other bytes still have to be
/// written. An undone repair then writes `planted` into the file.
fn plant(dir: &Path, head: &Head, key: &DigestKey, is_half_done: bool) {
    let now = fs::read(dir.join("data/big")).unwrap();
    let mut writer = Writer::new(Vec::new(), head, key).unwrap();
    writer.chunk(&Chunk::new(0, b"planted".repeat(73), &now[..511])).unwrap();
    if is_half_done {
        writer.chunk(&Chunk::new(1024, now[1024..1536].to_vec(), &[7; 512])).unwrap();
    }
    fs::write(journal_path(dir), writer.close().unwrap()).unwrap();
    let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    fs::set_permissions(journal_path(dir), private).unwrap();
}

/// Creates the usual test directory with a key, and with damage in the last object of `data/big`.
fn with_key() -> tempfile::TempDir {
    let home = fixture();
    with_state(home.path());
    damage(home.path());
    assert_eq!(run(home.path(), &["repair", "w", ".", "--from", "a", "--in-place"]).0, Some(0));
    damage(home.path());
    home
}

fn damage(dir: &Path) {
    rot(&dir.join("data/big"), |bytes| bytes[699_999] ^= 1);
}

/// Returns mode and capabilities of `data/big`, as text.
fn privileges(dir: &Path) -> String {
    let script = "stat -c %a data/big; getcap data/big";
    let shown = Command::new("sh").args(["-c", script]).current_dir(dir).output().unwrap();
    String::from_utf8(shown.stdout).unwrap()
}

#[test]
fn planted_journals_change_nothing_and_the_file_is_repaired() {
    if !met_or_skip(&[Need::Program("getcap")]) {
        return;
    }
    type Plant = fn(&Path);
    let plants: [(&str, &str, Plant); 6] = [
        ("another key", "or not written with the key of this user", |dir| {
            plant(dir, &head(dir), &DigestKey::of_journals(&[0; 32]), true);
        }),
        ("the key is lost", "the state directory has no key", |dir| {
            plant(dir, &head(dir), &own_key(dir), true);
            fs::remove_file(dir.join("state/haul/key")).unwrap();
        }),
        ("another inode", "the journal belongs to another file", |dir| {
            let head = Head { inode: head(dir).inode + 1, ..head(dir) };
            plant(dir, &head, &own_key(dir), true);
        }),
        ("another name", "the journal belongs to another file", |dir| {
            plant(dir, &Head { name: b"one".to_vec(), ..head(dir) }, &own_key(dir), true);
        }),
        ("version 1", "version 1 is not authenticated", |dir| {
            plant(dir, &head(dir), &own_key(dir), true);
            rot(&journal_path(dir), |bytes| bytes[8] = 1);
        }),
        ("version 3", "unsupported version 3", |dir| {
            plant(dir, &head(dir), &own_key(dir), true);
            rot(&journal_path(dir), |bytes| bytes[8] = 3);
        }),
    ];
    for (what, reason, plant) in plants {
        for more in [&[][..], &["--in-place"]] {
            let home = with_key();
            let dir = home.path();
            plant(dir);
            let bytes = fs::read(journal_path(dir)).unwrap();
            let ended = run(dir, &[&["repair", "w", ".", "--from", "a"], more].concat());
            assert_eq!(ended.0, Some(0), "{what}: {ended:?}");
            assert!(ended.2.contains(reason), "{what}: {ended:?}");
            assert_eq!(privileges(dir), "644\n", "{what}");
            let [aside] = &journals(&dir.join("data"))[..] else { panic!("{what}: one journal") };
            assert!(aside.ends_with(".untrusted") && ended.2.contains(aside), "{what}: {ended:?}");
            assert!(fs::read(dir.join("data").join(aside)).unwrap() == bytes, "{what}: it is kept");
            fs::remove_file(dir.join("data").join(aside)).unwrap();
            assert_whole(dir);
        }
    }
}

/// The control of the test above: the same journal with the right key is used. Even so it grants
/// nothing that the waybill does not have.
#[test]
fn own_journals_are_used_and_grant_no_privileges() {
    if !met_or_skip(&[Need::Program("getcap")]) {
        return;
    }
    for is_half_done in [true, false] {
        let home = with_key();
        let dir = home.path();
        plant(dir, &head(dir), &own_key(dir), is_half_done);
        // Without a replica the file keeps what the journal restored.
        fs::create_dir(dir.join("none")).unwrap();
        let ended = run(dir, &["repair", "w", ".", "--from", "none"]);
        assert_eq!(ended.0, Some(1), "{ended:?}");
        assert!(ended.1.starts_with("'data/big': interrupted repair undone\n"), "{ended:?}");
        assert!(fs::read(dir.join("data/big")).unwrap().starts_with(b"planted"));
        assert_eq!(privileges(dir), "644\n");
        assert!(ended.2.contains("removed the capabilities of the file; set them again"), "{ended:?}");
        assert!(journals(&dir.join("data")).is_empty());
        assert_eq!(run(dir, &["repair", "w", ".", "--from", "a"]).0, Some(0));
        assert_whole(dir);
    }
}

#[test]
fn an_unusable_state_directory_is_reported_and_does_not_stop_the_repair() {
    let home = with_key();
    let dir = home.path();
    let key = dir.join("state/haul/key");
    let public = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    fs::set_permissions(&key, public).unwrap();
    let ended = run(dir, &["repair", "w", ".", "--from", "a", "--in-place"]);
    assert_eq!(ended.0, Some(0), "{ended:?}");
    let reason = "cannot authenticate journals of in-place repairs: refusing to use the key ";
    assert!(ended.2.contains(reason) && ended.2.contains("remove the file to get a new key"), "{ended:?}");
    assert_whole(dir);
    assert_eq!(fs::metadata(&key).unwrap().len(), 32, "the key is left as it is");
}
