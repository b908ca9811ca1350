//! Tests of bytes from no writer, with correct checksums: invalid values are rejected and never
//! used.

use crate::flaws;
use haul_log::waybill::{LINE_BYTES_MAX, Reader, Record};
use proptest::prelude::*;
use std::io::{self, BufReader, Read};

const HEAD: &str = "surehaul-waybill version=1 section=1 at=2026-11-21T10:43:25Z program=x root=. run=x";

/// Returns lines with correct checksums, by the rule in the format's description.
pub(crate) fn sealed(lines: &[&str]) -> Vec<u8> {
    let (mut bytes, mut sum) = (Vec::new(), 0);
    for line in lines {
        if line.starts_with("surehaul-waybill") {
            sum = 0;
        }
        let mut crc = crc32(sum);
        crc.update(line.as_bytes());
        crc.update(b" ");
        sum = crc.finalize();
        bytes.extend_from_slice(format!("{line} {sum:08x}\n").as_bytes());
    }
    bytes
}

fn crc32(before: u32) -> crc32fast::Hasher {
    crc32fast::Hasher::new_with_initial(before)
}

/// Returns the flaw of a line that follows a valid head.
fn said(line: &str) -> String {
    let found = flaws(&sealed(&[HEAD, line]));
    let (number, text) = found.first().cloned().unwrap_or_default();
    assert_eq!(number, 2, "{line}: {found:?}");
    text
}

#[test]
fn escaping_paths_are_refused_with_a_reason() {
    for (path, reason) in [
        ("/etc/passwd", "it is absolute"),
        ("%2Fetc/passwd", "it is absolute"),
        ("a/../../b", "it contains '..'"),
        ("%2E%2E/b", "it contains '..'"),
        ("a//b", "a component of it is empty or '.'"),
        ("./a", "a component of it is empty or '.'"),
        ("a%00b", "it contains a NUL byte"),
        ("", "it is empty"),
    ] {
        let facts = "mode=0644 mtime=0.000000000";
        let text = said(&format!("file path={path} size=1 {facts}"));
        assert_eq!(text, format!("invalid path: {reason}"), "{path}");
        let text = said(&format!("same path=a first={path} {facts}"));
        assert_eq!(text, format!("invalid first: {reason}"), "{path}");
    }
    let long = format!("dir path={} mode=0755 mtime=0.000000000", "x".repeat(2000));
    assert!(said(&long).contains("exceeds"));
}

#[test]
fn invalid_values_are_refused_by_field() {
    let facts = "path=a mode=0644 mtime=0.000000000";
    for (line, field) in [
        (format!("file {facts} size=-1"), "size"),
        (format!("file {facts} size=01"), "size"),
        (format!("file {facts} size=9223372036854775808"), "size"),
        (format!("file {facts} size=1 blake3=00"), "blake3"),
        (format!("file {facts} size=1 level=perfect"), "level"),
        (format!("file {facts} size=1 way=magic"), "way"),
        (format!("file {facts} size=1 object=5 of=md5"), "object"),
        (format!("file {facts} size=1 object=65536 of=md5,md5"), "of"),
        (format!("file {facts} size=1 object=65536 of=rot13"), "of"),
        (format!("file {facts} size=1 object=65536 of=md5 leaf=131072"), "leaf"),
        ("file path=a size=1 mode=9999 mtime=0.000000000".to_owned(), "mode"),
        ("file path=a size=1 mode=0644 mtime=0".to_owned(), "mtime"),
        ("file path=a%zz size=1 mode=0644 mtime=0.000000000".to_owned(), "path"),
        (format!("link {facts} target="), "target"),
        (format!("link {facts} target=a%00"), "target"),
        (format!("char {facts} device=x"), "device"),
    ] {
        assert_eq!(said(&line), format!("invalid value of field '{field}'"), "{line}");
    }
    assert_eq!(said(&format!("file {facts}")), "missing field 'size'");
    assert_eq!(said(&format!("file {facts} size=1 size=2")), "duplicate field, or too many fields");
    assert_eq!(said(&format!("file {facts} size=1 word")), "the line contains a word that is not a field");
    assert_eq!(said("0 AAAA"), "misplaced line: no file with objects precedes the line");
    assert_eq!(said("range 0-1 durable"), "misplaced line: no file precedes the range");
    assert_eq!(said("directory path=a"), "unknown kind of line");
    let past = sealed(&[HEAD, &format!("file {facts} size=10"), "range 5-11 durable"]);
    assert_eq!(flaws(&past)[0], (3, "misplaced line: the range exceeds the end of the file".into()));
}

/// Regression: the number of the section after this one overflowed.
#[test]
fn the_greatest_section_number_is_refused() {
    let last = HEAD.replace("section=1", "section=18446744073709551615");
    let found = flaws(&sealed(&[&last, "dir path=d mode=0755 mtime=0.000000000", HEAD]));
    assert_eq!(found[0], (1, "invalid value of field 'section'".into()), "{found:?}");
}

#[test]
fn objects_that_contradict_their_file_are_found() {
    let crc = |bytes: &[u8]| haul_digest::digest(haul_digest::Algorithm::Crc32, bytes).to_string();
    let data = [7u8; 70_000];
    let file = |root: String| {
        format!("file path=a size=70000 mode=0644 mtime=0.000000000 object=65536 of=crc32 crc32={root}")
    };
    let base64 = |bytes: &[u8]| {
        use base64::Engine as _;
        let digest = haul_digest::digest(haul_digest::Algorithm::Crc32, bytes);
        base64::engine::general_purpose::STANDARD_NO_PAD.encode(digest.as_bytes())
    };
    let (zero, one) = (format!("0 {}", base64(&data[..65_536])), format!("1 {}", base64(&data[65_536..])));
    let line =
        |root: String, objects: [&str; 2]| flaws(&sealed(&[HEAD, &file(root), objects[0], objects[1]]));
    // Only the end is missing.
    assert_eq!(line(crc(&data), [&zero, &one]).len(), 1);
    let found = line(crc(b"other"), [&zero, &one]);
    assert_eq!(found[0], (4, "the crc32 digest of a does not match the digests of its objects".to_owned()));
    let misplaced = "misplaced line: objects are out of order, or repeated";
    assert_eq!(line(crc(&data), [&one, &zero])[0], (3, misplaced.to_owned()));
    assert_eq!(line(crc(&data), [&zero, &zero])[0], (4, misplaced.to_owned()));
    let next = "dir path=d mode=0755 mtime=0.000000000";
    let missing = "only 1 of 2 object lines of a before this line";
    assert_eq!(line(crc(&data), [&zero, next])[0], (4, missing.to_owned()));
}

#[test]
fn newer_versions_are_refused_and_newer_fields_are_skipped() {
    let newer = sealed(&["surehaul-waybill version=2 shape=unknown"]);
    let found = flaws(&newer);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].1.contains("unsupported waybill version 2 (this program supports up to 1)"),
        "{found:?}"
    );
    let lines = [
        &format!("{HEAD} colour=blue"),
        "file path=a size=1 mode=0644 mtime=0.000000000 blake9=00 owner=who",
        "x-note anything at all",
    ];
    let found = flaws(&sealed(&lines));
    assert_eq!(found, [(4, "truncated: the waybill ends without a closing line".to_owned())]);
}

#[test]
fn input_that_is_not_a_waybill_is_refused_with_one_flaw() {
    for bytes in [
        &b""[..],
        b"\n",
        b"surehaul",
        b"hello world 00000000\n",
        &[0xff; 100],
        b"surehaul-waybill version=1\n",
    ] {
        let found = flaws(bytes);
        assert_eq!(found.len(), 1, "{bytes:?}");
        assert!(found[0].1.contains("not a waybill"), "{found:?}");
    }
}

/// An endless line takes no more memory than the longest valid line.
#[test]
fn overlong_lines_are_skipped() {
    struct Endless(u64);
    impl Read for Endless {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let now = buffer.len().min(usize::try_from(self.0).unwrap());
            buffer[..now].fill(b'x');
            self.0 -= now as u64;
            Ok(now)
        }
    }
    let head = sealed(&[HEAD]);
    let input = BufReader::new(head.as_slice().chain(Endless(64 << 20)).chain(&b"\nmore\n"[..]));
    let found: Vec<String> =
        Reader::new(input).filter_map(Result::err).map(|error| error.to_string()).collect();
    assert_eq!(found[0], format!("line 2: the line is longer than {LINE_BYTES_MAX} bytes"));
    assert_eq!(found.len(), 3, "{found:?}");
}

proptest! {
    /// For any words in lines with correct checksums, reading ends and reports the flaws.
    #[test]
    fn arbitrary_lines_never_panic(lines in proptest::collection::vec("(file |dir |end |range |0 |0\\.0 |x-|same )?[a-z0-9=%/. -]{0,60}", 0..12), tail in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut all = vec![HEAD];
        all.extend(lines.iter().map(String::as_str));
        let mut bytes = sealed(&all);
        bytes.extend(tail);
        prop_assert!(!flaws(&bytes).is_empty());
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(!flaws(&bytes).is_empty());
    }

    /// Random combinations of the format's own fields.
    #[test]
    fn likely_lines_never_panic(words in proptest::collection::vec(proptest::sample::select(vec![
        "path=a", "size=70000", "size=9223372036854775807", "size=0", "mode=0644", "mtime=0.000000000", "object=65536", "object=1099511627776",
        "of=blake3", "of=md5,crc32", "leaf=1024", "first=b", "target=c", "device=9", "level=durable", "way=reflink", "crc32=00000000",
    ]), 0..9), tag in proptest::sample::select(vec!["file", "same", "dir", "link", "char"]), below in proptest::collection::vec(proptest::sample::select(vec![
        "0 AAAAAA", "1 AAAAAA", "0 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "0.0 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "18446744073709551615 AAAAAA",
        "0.18446744073709551615 AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "range 0-1 durable", "range 0-18446744073709551615 durable",
    ]), 0..5)) {
        let line = format!("{tag} {}", words.join(" "));
        let mut all = vec![HEAD, &line];
        all.extend(below);
        prop_assert!(!flaws(&sealed(&all)).is_empty());
    }
}

/// After a damaged line, the number of the next object once was arbitrary, and readers that keep
/// the objects of a file in a list ran out of memory.
#[test]
fn a_damaged_line_hides_no_more_objects_than_it_could_hold() {
    let value = |at: u64| {
        use base64::Engine as _;
        let digest = haul_digest::digest(haul_digest::Algorithm::Blake3, &at.to_le_bytes());
        base64::engine::general_purpose::STANDARD_NO_PAD.encode(digest.as_bytes())
    };
    let file = "file path=a size=4611686018427387904 mode=0644 mtime=0.000000000 object=65536 of=blake3";
    let read = |damaged: &str, leaf: &str, below: &[String]| {
        let file = format!("{file}{leaf}");
        let head = sealed(&[HEAD, &file]);
        let below: Vec<&str> = [HEAD, &file].into_iter().chain(below.iter().map(String::as_str)).collect();
        // The damaged line repeats the checksum of the line before it; the next line continues it.
        let sum = std::str::from_utf8(&head[head.len() - 9..]).unwrap();
        let mut bytes = head.clone();
        bytes.extend(format!("{damaged} {sum}").as_bytes());
        bytes.extend(&sealed(&below)[head.len()..]);
        let found: Vec<u64> = Reader::new(&bytes[..])
            .filter_map(|record| match record.ok()? {
                Record::Object(found) => Some(found.index.0),
                Record::Leaves(found) => Some(found.object.0),
                _ => None,
            })
            .collect();
        found
    };
    let object = |at: u64| format!("{at} {}", value(at));
    let line = object(0);
    assert_eq!(read(&line, "", &[object(1), object(2)]), [1, 2], "one object is lost");
    assert_eq!(read(&line, "", &[object(3)]), [0_u64; 0]);
    assert_eq!(read(&line, "", &[object(1 << 45)]), [0_u64; 0]);
    assert_eq!(read(&line, "", &[object(1), object(3), object(5), object(6)]), [1, 3], "not for each line");
    let leaves = |at: u64| format!("{at}.0 {}", value(at));
    assert_eq!(read(&line, " leaf=65536", &[leaves(0), object(1), leaves(1)]), [0, 1, 1]);
    assert_eq!(read(&line, " leaf=65536", &[leaves(1 << 45)]), [0_u64; 0]);
    // A line that is too long may have held many.
    let long = "x".repeat(LINE_BYTES_MAX);
    assert_eq!(read(&long, "", &[object(4000)]), [4000]);
    assert_eq!(read(&long, "", &[object(10_000)]), [0_u64; 0]);
}
