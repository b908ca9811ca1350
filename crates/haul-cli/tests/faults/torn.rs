//! Sources that are modified in place while they are read, and whose modification time is set back.
//! Only the change time shows the modification. A new mode, owner or name also updates it, which is
//! no error.

use super::fixture::{FaultFixture, HOLD, OPTION_SETS, assert_same_file, haul, noise, start, write_old};
use haul_lab::wait_until;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;

const MIB: u64 = 1 << 20;

/// Starts `haul` with the path of a file of 6 MiB between `words`, calls `change` on the file when
/// half of it was read, and waits for the end.
fn changed_half_way(
    fixture: &FaultFixture,
    name: &str,
    words: (&[&str], &[&str]),
    change: impl FnOnce(&Path),
) -> super::fixture::RunResult {
    let (store, view) = (fixture.path("store").join(name), fixture.path("view").join(name));
    write_old(&store, &noise(6 * MIB));
    let before = fixture.fired().len();
    fixture.rules(&format!("{name} read 3145728.. delay {HOLD} times 1"));
    let running = start(words.0.iter().map(Path::new).chain([&*view]).chain(words.1.iter().map(Path::new)));
    wait_until("the held read", || fixture.fired().len() > before);
    change(&store);
    fixture.release();
    let ended = running.end();
    fixture.rules("");
    ended
}

/// Writes to the start of a file, which was read, and to its end, which was not read. Then sets the
/// modification time back.
fn tear(file: &Path) {
    let modified = fs::metadata(file).unwrap().modified().unwrap();
    let open = File::options().write(true).open(file).unwrap();
    open.write_all_at(b"new", 0).unwrap();
    open.write_all_at(b"new", 6 * MIB - 3).unwrap();
    open.set_modified(modified).unwrap();
}

#[test]
fn a_source_changed_during_the_copy_is_copied_again_or_fails() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let waybill = format!("--waybill={}", fixture.path("waybill").display());
    // A file with a digest cannot be read again for that digest, so that its copy fails.
    let ways: [(&[&str], bool); 8] = [
        (&[], true),
        (&["--sparse=always"], true),
        (&["--direct-read"], true),
        (&["--double-buffer"], true),
        (&["--print-hash"], false),
        (&["--verify"], false),
        (&["--verify=reread"], false),
        (&[&waybill], false),
    ];
    for (number, (way, is_mended)) in ways.into_iter().enumerate() {
        let (name, sink) = (format!("torn{number}"), fixture.path(&format!("copy{number}")));
        let words = [&["cp", "-p", "--threads=1", "--split-size=1M"], way].concat();
        let ended = changed_half_way(&fixture, &name, (&words, &[sink.to_str().unwrap()]), tear);
        if is_mended {
            assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{way:?}");
            assert_same_file(&fixture.path("store").join(&name), &sink);
        } else {
            ended.failed_with(&["the source changed during the copy"]);
        }
    }
}

#[test]
fn a_mode_or_link_change_of_a_source_is_not_a_data_change() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let changes: [fn(&Path); 2] = [
        |file| fs::set_permissions(file, Permissions::from_mode(0o640)).unwrap(),
        |file| fs::hard_link(file, file.with_extension("link")).unwrap(),
    ];
    for (number, (way, change)) in
        OPTION_SETS.iter().flat_map(|way| changes.map(|change| (way, change))).enumerate()
    {
        let (name, sink) = (format!("moved{number}"), fixture.path(&format!("same{number}")));
        let words = [&["cp", "--preserve=timestamps"], *way].concat();
        let ended = changed_half_way(&fixture, &name, (&words, &[sink.to_str().unwrap()]), change);
        assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{way:?}");
        assert!(fs::read(&sink).unwrap() == noise(6 * MIB), "{way:?}");
    }
}

#[test]
fn a_digest_of_a_changing_file_matches_one_state() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let mut number = 0;
    for algorithm in ["blake3", "md5", "xxh128", "crc32"] {
        for threads in ["--threads=1", "--threads=3"] {
            for change in
                [tear, |file: &Path| fs::set_permissions(file, Permissions::from_mode(0o640)).unwrap()]
            {
                number += 1;
                let name = format!("sum{number}");
                let words = ["sum", "-a", algorithm, threads];
                let ended = changed_half_way(&fixture, &name, (&words, &[]), change);
                assert_eq!((ended.code, &*ended.stderr), (Some(0), ""), "{words:?}");
                let again = haul(
                    ["sum", "-a", algorithm]
                        .map(Path::new)
                        .into_iter()
                        .chain([&*fixture.path("view").join(&name)]),
                );
                assert_eq!(ended.stdout, again.is_fine().stdout, "{words:?}");
            }
        }
    }
}

/// As with cp, the contents of the original file are right. A waybill and a resumable job report
/// that the path names another file.
#[test]
fn a_replaced_source_is_reported_if_its_path_is_recorded() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let options = [
        (format!("--waybill={}", fixture.path("waybill").display()), true),
        ("--resume".to_owned(), true),
        ("--threads=1".to_owned(), false),
    ];
    let state = format!("--state-dir={}", fixture.path("state").display());
    for (number, (option, is_told)) in options.iter().enumerate() {
        let (name, sink) = (format!("replaced{number}"), fixture.path(&format!("old{number}")));
        let mut words = vec!["cp", "--preserve=timestamps", option];
        words.extend((option == "--resume").then_some(&*state));
        let replace = |file: &Path| {
            write_old(&file.with_extension("new"), &noise(5 * MIB));
            fs::rename(file.with_extension("new"), file).unwrap();
        };
        let ended = changed_half_way(&fixture, &name, (&words, &[sink.to_str().unwrap()]), replace);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let reported = format!("{name}' was replaced or removed during the copy");
        assert_eq!(
            (ended.stderr.contains(&reported), ended.complaints()),
            (*is_told, usize::from(*is_told)),
            "{ended:?}"
        );
        assert!(fs::read(&sink).unwrap() == noise(6 * MIB));
    }
}
