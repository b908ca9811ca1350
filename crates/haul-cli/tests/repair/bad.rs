//! Damage that cannot be repaired: the file stays unchanged, byte for byte, and haul reports it.

use super::{assert_whole, fixture, killed_at_each, rot, run};
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::traced;
use std::fs;
use std::os::unix::fs::symlink;

#[test]
fn the_same_damage_in_every_replica_leaves_the_file() {
    let home = fixture();
    let dir = home.path();
    for name in ["data/big", "a/data/big", "b/data/big"] {
        rot(&dir.join(name), |bytes| bytes[70_000] ^= 1);
    }
    rot(&dir.join("data/big"), |bytes| bytes[0] ^= 1);
    let before = fs::read(dir.join("data/big")).unwrap();
    let ended = run(dir, &["repair", "--json", "w", ".", "--from", "a", "--from", "b"]);
    assert_eq!(ended.0, Some(1));
    let events: Vec<serde_json::Value> =
        ended.1.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&events[0]["result"], &events[0]["path"]), (&"left".into(), &"data/big".into()));
    assert_eq!(events[0]["lost"], serde_json::json!([[65_536, 131_072]]));
    assert_eq!((&events[1]["left"], &events[1]["intact"]), (&1.into(), &4.into()));
    assert!(fs::read(dir.join("data/big")).unwrap() == before);
}

#[test]
fn bad_arguments_and_bad_waybills_repair_nothing() {
    let home = fixture();
    let dir = home.path();
    rot(&dir.join("data/big"), |bytes| bytes[0] ^= 1);
    let before = fs::read(dir.join("data/big")).unwrap();
    let whole = fs::read(dir.join("w")).unwrap();
    let mut hurt = whole.clone();
    let middle = hurt.len() / 2;
    hurt[middle] ^= 2;
    fs::write(dir.join("hurt"), hurt).unwrap();
    // Truncated waybills: within a line, and before the closing line.
    fs::write(dir.join("cut"), &whole[..whole.len() - 1]).unwrap();
    let end = whole[..whole.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap();
    fs::write(dir.join("open"), &whole[..=end]).unwrap();
    for args in [
        &["repair", "w", "."][..],
        &["repair", "w", ".", "--from", "none"],
        &["repair", "w", "none", "--from", "a"],
        &["repair", "hurt", ".", "--from", "a"],
        &["repair", "cut", ".", "--from", "a"],
        &["repair", "open", ".", "--from", "a"],
        &["repair", "data/big", ".", "--from", "a"],
        &["repair", "none", ".", "--from", "a"],
    ] {
        let ended = run(dir, args);
        assert_eq!((ended.0, &*ended.1), (Some(2), ""), "{args:?}: {ended:?}");
        assert!(fs::read(dir.join("data/big")).unwrap() == before, "{args:?}");
    }
}

#[test]
fn links_out_of_root_and_replica_are_not_followed() {
    let home = fixture();
    let dir = home.path();
    fs::rename(dir.join("data/sub"), dir.join("moved")).unwrap();
    rot(&dir.join("moved/x y"), |bytes| bytes[0] ^= 1);
    let before = fs::read(dir.join("moved/x y")).unwrap();
    symlink(dir.join("moved"), dir.join("data/sub")).unwrap();
    let ended = run(dir, &["repair", "w", ".", "--from", "a"]);
    assert_eq!(ended.0, Some(1));
    assert!(ended.1.contains("leads out of the directory"), "{ended:?}");
    assert!(fs::read(dir.join("moved/x y")).unwrap() == before);
    // A replica whose correct file is outside the replica is not used.
    fs::remove_file(dir.join("data/sub")).unwrap();
    fs::rename(dir.join("moved"), dir.join("data/sub")).unwrap();
    fs::rename(dir.join("a/data/sub"), dir.join("right")).unwrap();
    symlink(dir.join("right"), dir.join("a/data/sub")).unwrap();
    let ended = run(dir, &["repair", "w", ".", "--from", "a"]);
    assert_eq!(
        ended.1,
        "'data/sub/x y': not repaired: no replica has the correct bytes 0-5000; 'a' has no file of this name\n"
    );
}

#[test]
fn bits_flipped_by_the_storage_are_detected() {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    let home = fixture();
    let dir = home.path();
    rot(&dir.join("data/big"), |bytes| bytes[0] ^= 1);
    let before = fs::read(dir.join("data/big")).unwrap();
    fs::create_dir(dir.join("view")).unwrap();
    fs::create_dir(dir.join("store")).unwrap();
    fs::rename(dir.join("data"), dir.join("store/data")).unwrap();
    let rules = "*haul-repair* write .. flip 300000.3";
    let faults = FaultFs::mount(&dir.join("store"), &dir.join("view"), rules.parse().unwrap()).unwrap();
    let ended = run(dir, &["repair", "w", "view", "--from", "a"]);
    assert_eq!(ended.0, Some(1), "{ended:?}");
    assert!(ended.1.contains("read-back of the repaired file differs in bytes 262144-327680"), "{ended:?}");
    assert!(fs::read(dir.join("store/data/big")).unwrap() == before);
    assert!(!faults.fired().is_empty(), "the fault is real");
    faults.set_rules("*haul-repair* write .. errno ENOSPC".parse().unwrap());
    let ended = run(dir, &["repair", "w", "view", "--from", "a"]);
    assert!(ended.0 == Some(1) && ended.1.contains("No space left on device"), "{ended:?}");
    assert!(fs::read(dir.join("store/data/big")).unwrap() == before);
    let left = fs::read_dir(dir.join("store/data")).unwrap().flatten();
    assert!(left.into_iter().all(|entry| !entry.file_name().to_string_lossy().contains("haul-repair")));
    faults.set_rules("".parse().unwrap());
    assert_eq!(run(dir, &["repair", "w", "view", "--from", "a"]).0, Some(0));
    faults.close();
}

#[test]
fn repair_killed_at_any_call_leaves_the_file_old_or_repaired() {
    if !met_or_skip(&[traced::NEED]) {
        return;
    }
    let home = fixture();
    let dir = home.path();
    let path = dir.join("data/big");
    let right = fs::read(&path).unwrap();
    let damage = || rot(&path, |bytes| bytes[..400_000].fill(7));
    damage();
    let before = fs::read(&path).unwrap();
    let (mut as_it_was, mut whole) = (0, 0);
    let args = ["repair", "w", ".", "--from", "a"];
    let calls = ["pwrite64", "ftruncate", "sync_file_range", "fchmod", "utimensat", "renameat", "fsync"];
    killed_at_each(dir, &args, &calls, damage, |point| {
        let after = fs::read(&path).unwrap();
        assert!(after == before || after == right, "{point}");
        as_it_was += usize::from(after == before);
        whole += usize::from(after == right);
    });
    assert!(as_it_was > 10 && whole > 0, "{as_it_was} as they were, {whole} whole");
    assert!(fs::read(&path).unwrap() == right, "the last run was not killed");
    rot(&path, |bytes| bytes[0] ^= 1);
    assert_eq!(run(dir, &args).0, Some(0), "what was left beside is replaced");
    assert_whole(dir);
}
