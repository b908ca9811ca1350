//! Properties of a new file before it is finished: it is readable for no other user, and does not
//! look complete.

use crate::faults::fixture::{FaultFixture, HOLD, noise, start, write_old};
use haul_lab::needs::{Need, met_or_skip};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

/// Before its first attribute is set, the finished file has all bytes, is accessible to its owner
/// only, and is newer than its source. Only at the very end does it have the mode and the time of
/// the source.
#[test]
fn a_new_file_is_private_until_owned_and_gets_its_time_last() {
    if !met_or_skip(&[Need::Root]) {
        return;
    }
    let Some(fixture) = FaultFixture::new("") else { return };
    let source = fixture.path("source");
    write_old(&source, &noise(70_000));
    chown(&source, Some(1234), Some(2345)).unwrap();
    fs::set_permissions(&source, Permissions::from_mode(0o4755)).unwrap();
    let (view, store) = (fixture.path("view/sink"), fixture.path("store/sink"));
    // Owner, mode and time: three calls. The test checks the file before each of them.
    for passed in 0..3 {
        fixture.rules(&format!("sink setattr .. delay {HOLD} after {passed} times 1"));
        let before = fixture.fired().len();
        let running = start([Path::new("cp"), "-p".as_ref(), &source, &view]);
        haul_lab::wait_until("the held call", || fixture.fired().len() > before);
        let found = fs::metadata(&store).unwrap();
        fixture.release();
        running.end().is_fine();
        assert_eq!(found.len(), 70_000);
        assert!(found.mtime() > 1_500_000_000, "before call {passed} it looks finished");
        let (owner, mode) = (found.uid(), found.mode() & 0o7777);
        match passed {
            0 => assert_eq!((owner, mode), (0, 0o700)),
            1 => assert_eq!((owner, mode), (1234, 0o700)),
            _ => assert_eq!((owner, mode), (1234, 0o4755)),
        }
        let end = fs::metadata(&store).unwrap();
        assert_eq!((end.mtime(), end.uid(), end.mode() & 0o7777), (1_000_000_000, 1234, 0o4755));
        fs::remove_file(&store).unwrap();
    }
}

/// A file is only as long as the data that has arrived: no length is set in advance.
#[test]
fn a_file_being_written_is_shorter_than_its_source() {
    for options in [&[][..], &["--threads=1", "--split-size=1M"], &["--sparse=always"], &["--print-hash"]] {
        let Some(fixture) = FaultFixture::new(&format!("sink write 2097152.. delay {HOLD} times 1")) else {
            return;
        };
        let source = fixture.path("source");
        write_old(&source, &noise(8 << 20));
        let view = fixture.path("view/sink");
        let words = ["cp"].iter().chain(options).map(Path::new);
        let running = start(words.chain([&*source, &*view]));
        fixture.held();
        let len = fs::metadata(fixture.path("store/sink")).unwrap().len();
        fixture.release();
        running.end().is_fine();
        assert!(len < 8 << 20, "{options:?}: {len} bytes");
        assert_eq!(fs::read(fixture.path("store/sink")).unwrap(), noise(8 << 20));
    }
}
