//! Behaviour of single tools beyond the random lines: options of later releases, modes, prompts,
//! deliberate differences.

use super::generated::comparable;
use super::{good, ours, run, theirs, words};
use std::fs;
use std::path::Path;

fn files(dir: &Path) {
    fs::write(dir.join("a"), "123456789").unwrap();
    fs::write(dir.join("e"), "").unwrap();
    fs::write(dir.join("large"), (0..3_000_000u32).map(|n| (n ^ n >> 9) as u8).collect::<Vec<_>>()).unwrap();
}

#[test]
fn algorithms_of_later_cksum_releases_are_supported() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let print = |args: &[&str]| good("cksum", dir.path(), args, b"");
    // zlib's CRC-32 of the digits is cbf43926.
    assert_eq!(print(&["-a", "crc32b", "a"]), "3421780262 9 a\n");
    assert_eq!(print(&["-a", "sha2", "-l", "256", "a"]), print(&["-a", "sha256", "a"]));
    let sha3 = "SHA3-256 (e) = a7ffc6f8bf1ed76651c14756a061d662f580ff4de43b49fa82d80a4b80f8434a\n";
    assert_eq!(print(&["-a", "sha3", "-l", "256", "e"]), sha3);
    fs::write(dir.path().join("list"), sha3).unwrap();
    assert_eq!(print(&["-c", "list"]), "e: OK\n");
    for length in ["224", "384", "512"] {
        let list = print(&["-a", "sha3", "-l", length, "a", "large"]);
        assert!(list.starts_with(&format!("SHA3-{length} (a) = ")), "{list}");
        fs::write(dir.path().join("list"), list).unwrap();
        assert_eq!(print(&["-c", "list"]), "a: OK\nlarge: OK\n");
    }
    let (status, _, err) = run(ours("cksum", dir.path()), &words(&["-a", "sha3", "a"]), b"");
    let why = "cksum: --algorithm=sha3 requires specifying --length 224, 256, 384, or 512\n";
    assert_eq!((status, err.as_str()), (Some(1), why));
    let (status, _, err) = run(ours("cksum", dir.path()), &words(&["-a", "sha2", "-l", "128", "a"]), b"");
    let why = "cksum: invalid length: ‘128’\ncksum: digest length for ‘SHA2’ must be 224, 256, 384, or 512\n";
    // The outcome has one character for each byte.
    let why: String = why.bytes().map(char::from).collect();
    assert_eq!((status, err), (Some(1), why));
}

#[test]
fn base64_and_raw_digests_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let print = |args: &[&str]| good("cksum", dir.path(), args, b"");
    assert_eq!(print(&["--base64", "-a", "md5", "a"]), "MD5 (a) = JfnnlDI7RTiF9RgfG2JNCw==\n");
    assert_eq!(print(&["--base64", "--untagged", "-a", "md5", "a"]), "JfnnlDI7RTiF9RgfG2JNCw==  a\n");
    assert_eq!(print(&["--base64", "a"]), "930766865 9 a\n");
    // 930766865 is 377a6011 in hexadecimal; the BSD sum of the digits d16f, the System V sum 01dd.
    for (kind, bytes) in [("crc", "7z`\x11"), ("bsd", "\u{d1}o"), ("sysv", "\x01\u{dd}")] {
        assert_eq!(print(&["--raw", "-a", kind, "a"]), bytes, "{kind}");
    }
    let md5 = good("md5sum", dir.path(), &["a"], b"");
    let raw = print(&["--raw", "-a", "md5", "a"]);
    let hex: String = raw.chars().map(|byte| format!("{:02x}", u32::from(byte))).collect();
    assert_eq!(hex, md5[..32]);
    let (status, out, err) = run(ours("cksum", dir.path()), &words(&["--raw", "a", "e"]), b"");
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(err.starts_with("cksum: the --raw option is not supported with multiple files\n"), "{err}");
}

#[test]
fn base64_digests_are_checked() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let list = good("cksum", dir.path(), &["--base64", "-a", "sm3", "a", "e", "large"], b"");
    fs::write(dir.path().join("list"), &list).unwrap();
    assert_eq!(good("cksum", dir.path(), &["-c", "list"], b""), "a: OK\ne: OK\nlarge: OK\n");
    fs::write(dir.path().join("list"), list.replace('=', "")).unwrap();
    let (status, _, err) = run(ours("cksum", dir.path()), &words(&["-c", "list"]), b"");
    let none = "cksum: list: no properly formatted checksum lines found\n";
    assert_eq!((status, err.as_str()), (Some(1), none));
}

#[test]
fn debug_names_the_hardware() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let (status, out, err) = run(ours("cksum", dir.path()), &words(&["--debug", "a"]), b"");
    assert_eq!((status, out.as_str()), (Some(0), "930766865 9 a\n"));
    assert!(err.starts_with("cksum: using ") && err.ends_with(" hardware support\n"), "{err}");
    let (_, _, err) = run(ours("cksum", dir.path()), &words(&["--debug", "-a", "md5", "a"]), b"");
    assert_eq!(err, "");
}

#[test]
fn a_directory_has_no_crc() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["."][..], &["-a", "bsd", "."], &["-a", "sysv", "."], &["-a", "crc32b", "."]] {
        let (status, out, err) = run(ours("cksum", dir.path()), &words(args), b"");
        assert_eq!(
            (status, out.as_str(), err.as_str()),
            (Some(1), "", "cksum: .: Is a directory\n"),
            "{args:?}"
        );
    }
}

#[test]
fn b3sum_modes_match_the_original() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let key = [b'k'; 32];
    for (args, input) in [
        (&["--keyed", "a", "large", "e"][..], &key[..]),
        (&["--keyed", "--raw", "a"], &key),
        (&["--keyed", "-l", "200", "nope", "a", "."], &key),
        (&["--keyed", "-", "a"], &key),
        (&["--keyed", "a"], &key[1..]),
        (&["--keyed", "a"], &[b'k'; 33]),
        (&["--derive-key", "a context", "a", "large"], b""),
        (&["--derive-key", "", "-l", "1000", "--no-names", "a"], b""),
        (&["-l", "0", "a"], b""),
        (&["-l", "100000", "large", "-"], b"data"),
        (&["-l", "3", "back\\slash", "a"], b""),
        (&["-l=5", "a"], b""),
        (&["-l", "x", "a", "e"], b""),
        (&["--num-threads", "x", "a"], b""),
        (&["--num-threads", "0", "a"], b""),
        (&["--raw", "a", "e"], b""),
        (&["--raw", "--tag", "a"], b""),
        (&["--no-names", "--tag", "--seek=7", "a"], b""),
        (&["--tag", "a", "e", "-"], b"data"),
        (&["--seek", "x", "a"], b""),
        (&["--quiet", "a"], b""),
        (&["--no-such", "a"], b""),
        (&["-c", "--tag", "a"], b""),
        (&["--no-names", "--no-names", "a"], b""),
    ] {
        let Some(original) = theirs("b3sum", dir.path()) else { return };
        let args = words(args);
        let (expected, found) = (run(original, &args, input), run(ours("b3sum", dir.path()), &args, input));
        assert_eq!(comparable("b3sum", found), comparable("b3sum", expected), "{args:?}");
    }
    let whole = good("b3sum", dir.path(), &["-l", "100", "--no-names", "a"], b"");
    let tail = good("b3sum", dir.path(), &["--seek", "30", "-l", "70", "--no-names", "a"], b"");
    assert_eq!(whole[60..], tail);
}

#[test]
fn b3sum_tags_are_printed_and_checked() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    let list = good("b3sum", dir.path(), &["--tag", "e", "a"], b"");
    let first = "BLAKE3 (e) = af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262\n";
    assert!(list.starts_with(first), "{list}");
    fs::write(dir.path().join("list"), list).unwrap();
    assert_eq!(good("b3sum", dir.path(), &["-c", "list"], b""), "e: OK\na: OK\n");
    assert_eq!(good("b3sum", dir.path(), &["--tag", "-l", "4", "e"], b""), "BLAKE3 (e) = af1349b9\n");
    for args in
        [&["-c", "--seek=3", "list"][..], &["-c", "--tag", "list"], &["--keyed", "--derive-key", "x", "a"]]
    {
        let (status, out, err) = run(ours("b3sum", dir.path()), &words(args), b"");
        assert_eq!((status, out.as_str()), (Some(2), ""), "{args:?}");
        assert!(err.contains(" cannot be used with "), "{err}");
    }
}

#[test]
fn help_and_version_go_to_standard_output() {
    let dir = tempfile::tempdir().unwrap();
    for tool in ["md5sum", "b2sum", "cksum", "sum", "b3sum", "msum"] {
        assert!(good(tool, dir.path(), &["--help"], b"").contains("--help"), "{tool}");
        assert!(good(tool, dir.path(), &["--version"], b"").starts_with(&format!("{tool} (Surehaul) ")));
    }
}

#[test]
fn own_options_work_with_the_names_of_the_originals() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    for tool in ["md5sum", "sha512sum", "b2sum", "cksum", "sum"] {
        let plain = good(tool, dir.path(), &["large", "a"], b"");
        for options in
            [&["--threads=1"][..], &["--threads", "3", "--buffer-size=1"], &["--fadvise-read", "--progress"]]
        {
            assert_eq!(
                good(tool, dir.path(), &[options, &["large", "a"]].concat(), b""),
                plain,
                "{tool} {options:?}"
            );
        }
        let (status, _, err) = run(ours(tool, dir.path()), &words(&["--threads=0", "a"]), b"");
        assert_eq!(status, Some(1));
        assert!(err.contains("invalid number of threads '0'"), "{err}");
    }
    assert_eq!(
        good("msum", dir.path(), &["--double-buffer", "a"], b""),
        good("md5sum", dir.path(), &["a"], b"")
    );
}

#[test]
fn the_last_of_quiet_status_and_warn_wins_for_msum() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    fs::write(dir.path().join("list"), "junk\nd41d8cd98f00b204e9800998ecf8427e  e\n").unwrap();
    let reported = "msum: WARNING: 1 line is improperly formatted\n";
    let named = format!("msum: list: 1: improperly formatted MD5 checksum line\n{reported}");
    for (options, out, err) in [
        (["--status", "--quiet"], "", reported),
        (["--quiet", "--warn"], "e: OK\n", named.as_str()),
        (["--warn", "--status"], "", ""),
    ] {
        let args = words(&["-c", options[0], options[1], "list"]);
        assert_eq!(
            run(ours("msum", dir.path()), &args, b""),
            (Some(0), out.to_owned(), err.to_owned()),
            "{options:?}"
        );
    }
}

#[test]
fn read_options_do_not_change_digests() {
    let dir = tempfile::tempdir().unwrap();
    files(dir.path());
    for tool in ["haul sum", "msum"] {
        let plain = good(tool, dir.path(), &["large", "a", "e"], b"");
        for options in [
            &["--threads=1"][..],
            &["--num-threads=3", "--buffer-size=64K"],
            &["--fadvise-read"],
            &["--direct-read", "--threads", "2"],
        ] {
            let all = [options, &["large", "a", "e"]].concat();
            assert_eq!(good(tool, dir.path(), &all, b""), plain, "{tool} {options:?}");
        }
    }
}
