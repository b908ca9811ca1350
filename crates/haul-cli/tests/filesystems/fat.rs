//! Properties of vfat and exFAT, emulated by a FUSE file system, because the kernel of a test
//! machine may lack their drivers. Names that differ only in case are one name, and some bytes are
//! invalid in names. Modes are accepted and not stored, and times have a coarse resolution. There
//! are no owners, links, devices, attributes or holes.

use crate::faults::fixture::{FaultFixture, assert_unfinished, haul, noise, write_old};
use std::fs;
use std::path::Path;

/// vfat as its driver behaves for root: a change of owner is refused or, with the mount option
/// `quiet`, ignored like a change of mode.
const VFAT: &str = "* name .. fold\n* chmod .. drop\n* chown .. drop\n* stat .. coarse 2000\n* xattr .. errno ENOTSUP\n\
     * mknod .. errno EPERM\n* symlink .. errno EPERM\n* link .. errno EPERM\n* allocate .. errno ENOTSUP\n\
     * seek .. errno ENOSYS\n*:* create .. errno EINVAL\n*<* create .. errno EINVAL\n*\\** create .. errno EINVAL\n\
     *\\?* create .. errno EINVAL";

/// vfat reports success for a mode and then returns another one. In earlier versions haul treated
/// such a move as incomplete and kept its source.
#[test]
fn a_move_to_a_file_system_that_drops_modes_succeeds() {
    let Some(fixture) = FaultFixture::new("* chmod .. drop\n* chown .. drop") else { return };
    let (source, sink) = (fixture.path("source"), fixture.path("view/sink"));
    fs::create_dir(&source).unwrap();
    for (name, mode) in [("a", 0o644), ("b", 0o755), ("c", 0o4711)] {
        write_old(&source.join(name), &noise(9000));
        fs::set_permissions(source.join(name), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    haul([Path::new("mv"), &source, &sink]).is_fine();
    assert!(!source.exists());
    assert_eq!(fs::read(fixture.path("store/sink/c")).unwrap(), noise(9000));
}

/// One of several operands fails. The times of the others were truncated, but they have arrived.
#[test]
fn a_partly_failed_move_accepts_truncated_times() {
    let Some(fixture) = FaultFixture::new("*victim write .. errno EIO\n* stat .. coarse 2000") else {
        return;
    };
    let names = ["one", "victim", "three"].map(|name| fixture.path(name));
    for path in &names {
        write_old(path, &noise(70_000));
        let odd = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_000_000_001_234);
        fs::File::options().write(true).open(path).unwrap().set_modified(odd).unwrap();
    }
    fs::create_dir(fixture.path("view/d")).unwrap();
    let words = ["mv".into(), "-t".into(), fixture.path("view/d")];
    let ended = haul(words.iter().chain(&names));
    ended.failed_with(&["error writing", "victim", "Input/output error"]);
    assert_eq!(ended.complaints(), 1, "{ended:?}");
    assert_eq!(names.map(|path| path.exists()), [false, true, false]);
    assert_unfinished(&fixture.path("store/d/victim"));
}

/// GNU `mv` moves both and keeps the bytes of the last one. haul overwrites no moved file with
/// another of the same command.
#[test]
fn two_names_equal_at_the_sink_lose_no_data() {
    for len in [5, 70_000, 9 << 20] {
        let Some(fixture) = FaultFixture::new(VFAT) else { return };
        let names = ["name", "NAME"].map(|name| fixture.path(name));
        write_old(&names[0], &noise(len));
        write_old(&names[1], &noise(len + 1)[1..]);
        fs::create_dir(fixture.path("view/d")).unwrap();
        let ended = haul(["mv".into(), "-t".into(), fixture.path("view/d")].iter().chain(&names));
        let at_source = names.iter().filter_map(|path| fs::read(path).ok());
        let at_sink =
            fs::read_dir(fixture.path("store/d")).unwrap().map(|e| fs::read(e.unwrap().path()).unwrap());
        let all: Vec<Vec<u8>> = at_source.chain(at_sink).collect();
        for bytes in [noise(len), noise(len + 1)[1..].to_vec()] {
            assert!(all.contains(&bytes), "{len}: bytes are lost: {ended:?}");
        }
        assert_eq!(ended.code, Some(1), "{len}: {ended:?}");
    }
}

/// A file of more than 4 GiB fails at the limit, on vfat with EFBIG. The limit of this test is
/// lower.
#[test]
fn a_file_above_the_size_limit_fails_alone() {
    let Some(fixture) = FaultFixture::new("* write 1048576.. errno EFBIG\n* truncate 1048577.. errno EFBIG")
    else {
        return;
    };
    crate::faults::fixture::tree_with_victim(&fixture.path("tree"), 3 << 20);
    let ended = haul([Path::new("cp"), "-a".as_ref(), &fixture.path("tree"), &fixture.path("view/sink")]);
    ended.failed_with(&["error writing", "sink/victim", "File too large"]);
    assert_eq!(ended.complaints(), 1, "{ended:?}");
    crate::faults::fixture::others_are_whole(&fixture.path("tree"), &fixture.path("store/sink"));
    assert_unfinished(&fixture.path("store/sink/victim"));
}
