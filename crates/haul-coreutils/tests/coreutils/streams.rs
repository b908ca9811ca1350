//! Tests of files without a length or offsets (/proc, devices and pipes) as source and as sink.

use super::bed::{Place, copy_file, onto, run};
use super::variants::{each, expected, plain};
use haul_coreutils::cp::CopyRules;
use haul_digest::Algorithm;
use haul_engine::copy::{HashForm, Moving, Verify};
use haul_lab::needs::{Need, met_or_skip};
use haul_lab::random::noise;
use haul_model::{ByteLen, ByteOffset};
use rustix::fs::{CWD, Mode, mkfifoat};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::Path;
use std::thread;

/// A file that reports length 0 and has one line.
const PROC_VERSION: &str = "/proc/version";

/// A file that reports the length of a page, as all files of sysfs do, and has one line.
const SYS_FILE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

#[test]
fn file_of_size_zero_with_content_is_read_to_its_end() {
    let (source, version) = (Path::new("/proc/self/status"), Path::new(PROC_VERSION));
    if !met_or_skip(&[Need::Path(PROC_VERSION)]) {
        return;
    }
    let place = Place::new();
    let sink = place.path("sink");
    for (name, moving) in each() {
        copy_file(version, &sink, &moving);
        assert_eq!(fs::read(&sink).unwrap(), fs::read(version).unwrap(), "{name}");
        // The copy is as read-only as the original.
        fs::remove_file(&sink).unwrap();
    }
    copy_file(source, &sink, &plain());
    assert!(fs::read_to_string(&sink).unwrap().contains("VmRSS"));
}

#[test]
fn file_shorter_than_its_size_is_copied_to_its_end() {
    if !met_or_skip(&[Need::Path(SYS_FILE)]) {
        return;
    }
    let source = Path::new(SYS_FILE);
    let expected = fs::read(source).unwrap();
    assert!(expected.len() < fs::metadata(source).unwrap().len() as usize);
    let place = Place::new();
    let sink = place.path("sink");
    for (name, moving) in each() {
        copy_file(source, &sink, &moving);
        assert_eq!(fs::read(&sink).unwrap(), expected, "{name}");
    }
}

#[test]
fn part_of_a_proc_file_is_copied() {
    if !met_or_skip(&[Need::Path(PROC_VERSION)]) {
        return;
    }
    let source = Path::new(PROC_VERSION);
    let place = Place::new();
    let sink = place.path("sink");
    let moving = Moving {
        offset: ByteOffset(3),
        length: Some(ByteLen(5)),
        sink_offset: Some(ByteOffset(0)),
        ..plain()
    };
    copy_file(source, &sink, &moving);
    assert_eq!(fs::read(&sink).unwrap(), &fs::read(source).unwrap()[3..8]);
}

#[test]
fn requested_length_is_read_from_dev_zero() {
    let place = Place::new();
    let sink = place.path("sink");
    for length in [0, 1, 65_536, 1_000_003] {
        for verify in [Verify::No, Verify::ReadBack] {
            let digest = Some((Algorithm::Sha1, HashForm::Plain));
            let moving = Moving { length: Some(ByteLen(length)), verify, digest, ..plain() };
            let told = copy_file("/dev/zero".as_ref(), &sink, &moving);
            let zeros = vec![0; usize::try_from(length).unwrap()];
            assert!(fs::read(&sink).unwrap() == zeros, "{length} {verify:?}");
            assert_eq!(told.hashed[0].digests, expected(&zeros, Algorithm::Sha1, HashForm::Plain).0);
        }
    }
}

#[test]
fn copy_to_dev_null_is_read_and_hashed() {
    let place = Place::new();
    let bytes = place.noise("source", 300_000);
    for algorithm in [Algorithm::Blake3, Algorithm::Md5, Algorithm::Crc32] {
        let moving = Moving { digest: Some((algorithm, HashForm::Plain)), ..plain() };
        let told = copy_file(&place.path("source"), "/dev/null".as_ref(), &moving);
        assert_eq!(told.hashed[0].digests, expected(&bytes, algorithm, HashForm::Plain).0);
        assert_eq!(told.bytes_done, 300_000);
    }
}

#[test]
fn pipe_is_read_until_its_writer_closes() {
    let place = Place::new();
    let (fifo, sink) = (place.path("fifo"), place.path("sink"));
    mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    let bytes = noise(700_001, 3);
    for (name, moving) in each().into_iter().step_by(4) {
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut writer = File::options().write(true).open(&fifo).unwrap();
                bytes.chunks(99_999).for_each(|chunk| writer.write_all(chunk).unwrap());
            });
            copy_file(&fifo, &sink, &moving);
        });
        assert!(fs::read(&sink).unwrap() == bytes, "{name}");
    }
}

#[test]
fn pipe_sink_receives_all_bytes_in_order() {
    let place = Place::new();
    let (source, fifo) = (place.path("source"), place.path("fifo"));
    mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    let bytes = place.noise("source", 700_001);
    for (name, moving) in each().into_iter().step_by(4) {
        let got = thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut got = Vec::new();
                File::open(&fifo).unwrap().read_to_end(&mut got).unwrap();
                got
            });
            let told = run(&onto(&source, &fifo, CopyRules::default(), &moving));
            // A pipe cannot be read back; if read-back is requested, there is a warning.
            let warnings = usize::from(moving.verify == Verify::Reread);
            assert_eq!(
                (told.failed.len(), told.warned.len()),
                (0, warnings),
                "{name}: {:?} {:?}",
                told.failed,
                told.warned
            );
            reader.join().unwrap()
        });
        assert!(got == bytes, "{name}");
    }
}

#[test]
fn closed_pipe_reader_fails_the_copy_only() {
    let place = Place::new();
    let (source, fifo) = (place.path("source"), place.path("fifo"));
    mkfifoat(CWD, &fifo, Mode::RUSR | Mode::WUSR).unwrap();
    place.noise("source", 700_001);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut some = [0; 10];
            File::open(&fifo).unwrap().read_exact(&mut some).unwrap();
        });
        let told = run(&onto(&source, &fifo, CopyRules::default(), &plain()));
        assert_eq!(told.outcome.failures, 1);
        assert!(
            told.failed[0].contains("error writing") && told.failed[0].contains("fifo"),
            "{:?}",
            told.failed
        );
    });
}
