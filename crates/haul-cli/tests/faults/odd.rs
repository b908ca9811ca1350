//! Sources whose metadata is not true: holes where data is, and no length where bytes are.

use super::fixture::{FaultFixture, haul, noise, write_old};
use std::fs::{self, File};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Regression: mounts of virtiofs have reported files with data as one hole. A copy had zeros only.
#[test]
fn false_holes_are_copied_with_their_bytes() {
    let Some(fixture) = FaultFixture::new("victim seek .. hole") else { return };
    let store = fixture.path("store/victim");
    write_old(&store, &noise(5 * MIB));
    File::options().write(true).open(&store).unwrap().set_len(13 * MIB + 1).unwrap();
    let (view, sink, state) = (fixture.path("view/victim"), fixture.path("sink"), fixture.path("state"));
    let (state, waybill) = (format!("--state-dir={}", state.display()), fixture.path("waybill"));
    let waybill = format!("--waybill={}", waybill.display());
    for words in [
        &["cp"][..],
        &["cp", "--threads=1"],
        &["cp", "--resume", &state],
        &["cp", "--verify"],
        &["cp", "--verify=stream"],
        &["cp", "--verify=reread"],
        &["cp", "--print-hash"],
        &["cp", &waybill],
        &["cp", "--sparse=always"],
        &["install"],
        &["mv"],
    ] {
        let _ = fs::remove_file(&sink);
        let bytes = fs::read(&store).unwrap();
        haul(words.iter().map(Path::new).chain([&*view, &*sink])).is_fine();
        assert!(fs::read(&sink).unwrap() == bytes, "{words:?}");
        assert_eq!(store.exists(), words != ["mv"]);
    }
}

/// A document that a server generates when it is read: FUSE reports no byte.
#[test]
fn files_without_a_length_are_read_to_their_end() {
    let Some(fixture) = FaultFixture::new("doc stat .. empty") else { return };
    let bytes = noise(5 * MIB + 3);
    write_old(&fixture.path("store/doc"), &bytes);
    let view = fixture.path("view/doc");
    assert_eq!(fs::metadata(&view).unwrap().len(), 0, "the length is hidden");
    let (list, sink) = (fixture.path("w"), fixture.path("sink"));
    let waybill = format!("--waybill={}", list.display());
    let state = format!("--state-dir={}", fixture.path("state").display());
    for words in [
        &["cp"][..],
        &["cp", "-a"],
        &["cp", "--threads=1", "--print-hash", "--hash-type=md5"],
        &["cp", "--verify"],
        &["cp", "--verify=reread"],
        &["cp", "--resume", &state],
        &["cp", &waybill],
        &["install"],
    ] {
        // The second run finds a complete copy, and the third one a copy that is empty.
        for existing in [None, Some(&bytes[..]), Some(b"")] {
            existing.into_iter().for_each(|bytes| write_old(&sink, bytes));
            haul(words.iter().map(Path::new).chain([&*view, &*sink])).is_fine();
            assert!(fs::read(&sink).unwrap() == bytes, "{words:?}");
            let _ = fs::remove_file(&list);
        }
        fs::remove_file(&sink).unwrap();
    }
}

#[test]
fn digests_of_files_without_a_length_cover_their_bytes() {
    let Some(fixture) = FaultFixture::new("doc stat .. empty") else { return };
    let bytes = noise(5 * MIB + 3);
    write_old(&fixture.path("store/doc"), &bytes);
    for algorithm in ["blake3", "md5", "crc32c", "sha256,adler32"] {
        let sum = |root: &str| {
            let told =
                haul(["sum", "-a", algorithm].map(Path::new).into_iter().chain([&*fixture.path(root)]));
            told.is_fine().stdout.split_whitespace().next().unwrap().to_owned()
        };
        assert_eq!(sum("view/doc"), sum("store/doc"), "{algorithm}");
    }
    let (waybill, view, store) = (fixture.path("w"), fixture.path("view"), fixture.path("store"));
    let words = ["sum", "-r", "--waybill"].map(Path::new);
    haul(words.into_iter().chain([&*waybill, &*view])).is_fine();
    let line = format!("size={} ", bytes.len());
    assert!(fs::read_to_string(&waybill).unwrap().contains(&line), "{line}");
    let verify = |root: &Path| haul([Path::new("verify"), &waybill, root]).code;
    assert_eq!([verify(&view), verify(&store)], [Some(0); 2]);
    let copy = fixture.path("copy");
    fs::create_dir(&copy).unwrap();
    let mut damaged = bytes.clone();
    damaged[70_000] ^= 1;
    write_old(&copy.join("doc"), &damaged);
    let repaired = haul([Path::new("repair"), &waybill, &copy, Path::new("--from"), &view]);
    assert_eq!(repaired.code, Some(0), "{repaired:?}");
    assert!(fs::read(copy.join("doc")).unwrap() == bytes);
    fs::write(store.join("doc"), &bytes[1..]).unwrap();
    assert_eq!(verify(&view), Some(1), "other bytes are found");
}
