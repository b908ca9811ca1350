//! Damage is detected, and reported once for each line.

use super::{DIGITS, check, folder, hex, run_with, write};
use haul_digest::{Algorithm, digest};
use haul_lab::random::Random;
use std::fs;

#[test]
fn a_changed_digit_in_any_digest_is_detected() {
    let dir = folder();
    let dir = dir.path();
    let mut random = Random::from_seed(11);
    let mut lines = Vec::new();
    for &algorithm in Algorithm::ALL {
        let mut text = hex(algorithm).into_bytes();
        let at = random.index(text.len());
        text[at] = if text[at] == b'0' { b'1' } else { b'0' };
        let text = String::from_utf8(text).unwrap();
        lines.push(format!("{} (digits) = {text}", algorithm.tag()));
        if text.len() >= 8 {
            lines.push(format!("{text}  digits"));
        }
    }
    write(dir, "list", lines.join("\n"));
    let (status, out, err) = check(dir, &["list"]);
    assert_eq!(status, Some(1));
    assert_eq!(out, "digits: FAILED\n".repeat(lines.len()), "{err}");
    assert!(err.contains(&format!("WARNING: {} computed checksums did NOT match", lines.len())), "{err}");
}

#[test]
fn changed_files_are_detected_among_many() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut list = String::new();
    let name = |number: usize| format!("f{number:04}");
    for number in 0..3000 {
        let bytes = number.to_string();
        list.push_str(&format!("{}  {}\n", digest(Algorithm::Sha256, bytes.as_bytes()), name(number)));
        write(dir, &name(number), bytes);
    }
    write(dir, "list", &list);
    write(dir, &name(0), "other");
    write(dir, &name(1777), "other");
    fs::remove_file(dir.join(name(2000))).unwrap();
    let (status, out, err) = check(dir, &["--quiet", "list"]);
    assert_eq!(status, Some(1));
    assert_eq!(out, "f0000: FAILED\nf1777: FAILED\nf2000: FAILED open or read\n");
    assert_eq!(
        err,
        "haul check: f2000: No such file or directory\n\
         haul check: list: detected as plain lines as md5sum, b3sum and rclone write them: sha256\n\
         haul check: WARNING: 1 listed file could not be read\n\
         haul check: WARNING: 2 computed checksums did NOT match\n"
    );
}

#[test]
fn bad_lines_are_counted_and_reported_with_line_numbers() {
    let dir = folder();
    let dir = dir.path();
    let md5 = hex(Algorithm::Md5);
    let list = format!(
        "junk\n{md5}  digits\n# remark\n\n{md5}\nSHA1 (digits) = {md5}\n\\{md5}  a\\q\nMD5 (digits) = {md5}"
    );
    let (status, out, err) = run_with(dir, &["-w".as_ref(), "-".as_ref()], list.as_bytes());
    assert_eq!((status, out.as_str()), (Some(1), "digits: OK\ndigits: OK\n"));
    let said: Vec<&str> = err.lines().collect();
    assert_eq!(
        said,
        [
            "haul check: 'standard input': 1: improperly formatted checksum line: no checksum",
            "haul check: 'standard input': 5: improperly formatted checksum line: no file name",
            "haul check: 'standard input': 6: improperly formatted checksum line: a sha1 digest has 40 hexadecimal digits, not 32",
            "haul check: 'standard input': 7: improperly formatted checksum line: unknown escape sequence in the name",
            "haul check: 'standard input': detected as plain lines as md5sum, b3sum and rclone write them: md5; BSD tags: md5",
            "haul check: WARNING: 4 lines are improperly formatted",
        ]
    );
    // Lines that look like checksums fail and are reported without an option; others need one.
    write(dir, "list", &list);
    let (status, _, err) = check(dir, &["list"]);
    assert_eq!(
        (status, err.matches(": improperly formatted checksum line: ").count()),
        (Some(1), 3),
        "{err}"
    );
    write(dir, "list", format!("junk\n{md5}  digits\n# remark\n\n"));
    assert_eq!(check(dir, &["list"]).0, Some(0));
    assert_eq!(check(dir, &["--strict", "list"]).0, Some(1));
}

/// Earlier versions skipped the value without its leading zero.
#[test]
fn a_damaged_file_in_an_sfv_list_is_found_without_a_leading_zero() {
    let dir = folder();
    let dir = dir.path();
    // The CRC-32 of these bytes starts with a zero.
    let bytes = (0u32..)
        .map(|number| number.to_string())
        .find(|text| digest(Algorithm::Crc32, text.as_bytes()).to_string().starts_with('0'));
    let bytes = bytes.unwrap();
    let crc = digest(Algorithm::Crc32, bytes.as_bytes()).to_string();
    write(dir, "x", &bytes);
    write(
        dir,
        "list.sfv",
        format!("; by hand\ndigits {}\nx {}\n", hex(Algorithm::Crc32), crc.trim_start_matches('0')),
    );
    assert_eq!(check(dir, &["list.sfv"]).1, "digits: OK\nx: OK\n");
    write(dir, "x", "damaged");
    let (status, out, _) = check(dir, &["list.sfv"]);
    assert_eq!((status, out.as_str()), (Some(1), "digits: OK\nx: FAILED\n"));
}

#[test]
fn the_differing_digest_of_several_is_named() {
    let dir = folder();
    let dir = dir.path();
    let (md5, sha256) = (digest(Algorithm::Md5, DIGITS), digest(Algorithm::Sha256, b"other"));
    write(
        dir,
        "list",
        format!("%%%% HASHDEEP-1.0\n%%%% size,md5,sha256,filename\n9,{md5},{sha256},digits\n"),
    );
    let (status, out, _) = check(dir, &["list"]);
    assert_eq!((status, out.as_str()), (Some(1), "digits: FAILED (differs in sha256)\n"));
}

/// A list may have any contents: lines that are not checksums are reported, and the program ends
/// only with its own result.
#[test]
fn a_list_of_arbitrary_bytes_fails_without_panic() {
    let dir = folder();
    let heads: [&[u8]; 8] = [
        b"",
        b"{\"path\":\"",
        b"#mutil#",
        b"%%%% size,md5,filename\n",
        b"MD5 (",
        b"; \n",
        b"path=",
        b"00000000  ",
    ];
    let mut random = Random::from_seed(5);
    for round in 0..48 {
        let mut list = Vec::new();
        for _ in 0..40 {
            list.extend_from_slice(heads[random.index(heads.len())]);
            let mut tail = vec![0; random.index(60)];
            random.fill(&mut tail);
            list.extend_from_slice(&tail);
            list.push(b'\n');
        }
        let zero = if round % 2 == 0 { &["-z", "-w"][..] } else { &["--json"] };
        let args: Vec<&std::ffi::OsStr> = zero.iter().map(std::ffi::OsStr::new).collect();
        let (status, _, err) = run_with(dir.path(), &args, &list);
        assert_eq!(status, Some(1), "round {round}: {err}");
        assert!(!err.contains("panicked"), "round {round}: {err}");
    }
}
