//! `haul sum -c`: features that the older tools lack.

use super::{good, ours, run, words};
use std::fs;
use std::path::Path;

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) {
    fs::write(dir.join(name), bytes).unwrap();
}

/// Earlier versions reported FAILED for the list of another tool. They also skipped a wrong line
/// with a length other than that of BLAKE3, with status 0.
#[test]
fn lists_of_other_tools_are_detected_and_no_line_is_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "f", "hello\n");
    let check = |list: &str| {
        write(dir, "list", list);
        run(ours("haul sum", dir), &words(&["-c", "list"]), b"")
    };
    for tool in ["md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "b3sum"] {
        let list = good(tool, dir, &["f"], b"");
        let (status, out, err) = check(&list);
        assert_eq!((status, &*out), (Some(0), "f: OK\n"), "{tool}: {err}");
        let first = if list.starts_with('0') { '1' } else { '0' };
        let (status, out, _) = check(&format!("{first}{}", &list[1..]));
        assert_eq!((status, &*out), (Some(1), "f: FAILED\n"), "{tool}");
    }
    let tagged = good("haul sum", dir, &["--tag", "f"], b"");
    let wrong = format!("{tagged}{}  f\n", "0".repeat(32));
    assert_eq!(check(&wrong).1, "f: OK\nf: FAILED\n");
    assert_eq!(check(&wrong).0, Some(1));
    for digits in [8, 16, 30] {
        let (status, out, err) = check(&format!("{tagged}{}  f\n", "0".repeat(digits)));
        assert_eq!((status, &*out), (Some(1), "f: OK\n"), "{digits}");
        assert!(
            err.contains("haul sum: list: 2: cannot detect the algorithm of this checksum; name it with -a"),
            "{err}"
        );
    }
    // An algorithm on the command line is the only one.
    write(dir, "list", good("sha256sum", dir, &["f"], b""));
    let named = run(ours("haul sum", dir), &words(&["-a", "blake3", "-c", "list"]), b"");
    assert_eq!((named.0, &*named.1), (Some(1), "f: FAILED\n"));
}

#[test]
fn every_printed_format_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "small", "small");
    write(dir, "back\\sl\nash", "odd");
    write(dir, "large", (0..9_000_000u32).map(|n| (n ^ n >> 8) as u8).collect::<Vec<_>>());
    let files = ["small", "back\\sl\nash", "large"];
    let all = "adler32,crc32,crc32c,cksum,crc64nvme,crc64xz,crc64eos,crc16,md5,sha1,sha224,sha256,sha384,sha512,\
               sha3-256,sha3-512,blake2b,blake3,xxh32,xxh64,xxh3-64,xxh3-128";
    let forms: [&[&str]; 12] = [
        &["-a", all],
        &["-a", all, "--base64"],
        &["-a", all, "--tree=1M"],
        &["-a", all, "--tree=1M", "--check-tree"],
        &["-a", "md5,sha1", "--offset=3", "--length=2000000"],
        &["-a", "xxh3-64"],
        &["-a", "sha256", "--base64"],
        &["-a", "cksum"],
        &["-b"],
        &["--tag"],
        &["--tree=1M"],
        &["--tree=1M", "--check-tree", "-a", "sha1"],
    ];
    for form in forms {
        // cksum's own lines cannot represent a name with a line break.
        let files = if *form == ["-a", "cksum"] { &files[..1] } else { &files[..] };
        let list = good("haul sum", dir, &[form, files].concat(), b"");
        write(dir, "list", &list);
        let mut check = vec!["-c", "--strict", "--quiet", "list"];
        if form[0] == "-a" && !form[1].contains(',') {
            check.extend(["-a", form[1]]);
        }
        if form.iter().any(|arg| arg.starts_with("--tree")) {
            check.push("--tree=1M");
        }
        if form.contains(&"-a") && form.last() == Some(&"sha1") {
            check.extend(["-a", "sha1"]);
        }
        assert_eq!(good("haul sum", dir, &check, b""), "", "{form:?}\n{list}");
    }
}

#[test]
fn tree_checksums_locate_damage() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut bytes = vec![5; 1000];
    write(dir, "f", &bytes);
    let tree = ["--tree=100", "--check-tree", "-a", "md5"];
    let list = good("haul sum", dir, &[&tree[..], &["f"]].concat(), b"");
    assert!(list.starts_with("#mutil##"), "{list}");
    write(dir, "list", &list);
    let check = words(&["-c", "--tree=100", "-a", "md5", "list"]);
    assert_eq!(run(ours("haul sum", dir), &check, b"").1, "f: OK\n");
    bytes[250] ^= 1;
    bytes[399] ^= 1;
    bytes[999] ^= 1;
    write(dir, "f", &bytes);
    let (status, out, err) = run(ours("haul sum", dir), &check, b"");
    assert_eq!((status, out.as_str()), (Some(1), "f: FAILED,200-300,300-400,900-1000\n"));
    assert_eq!(err, "haul sum: WARNING: 1 computed checksum did NOT match\n");
}

#[test]
fn ignore_missing_skips_missing_files() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "f", "123456789");
    let list = good("haul sum", dir, &["f"], b"");
    write(dir, "list", [list.clone(), list.replace("  f", "  gone")].concat());
    for tool in ["haul sum", "msum"] {
        let check = ["-c", "-a", "blake3", "--ignore-missing", "list"];
        assert_eq!(good(tool, dir, &check, b""), "f: OK\n", "{tool}");
        let told = run(ours(tool, dir), &words(&["-c", "-a", "blake3", "list"]), b"");
        assert_eq!((told.0, told.1.as_str()), (Some(1), "f: OK\ngone: FAILED open or read\n"), "{tool}");
    }
}

#[test]
fn listed_ranges_are_checked_alone() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "f", "0123456789");
    let list = good("msum", dir, &["--offset=2", "--length=3", "f"], b"");
    // The MD5 of "234".
    assert_eq!(list, "#mutil#2-5#289dff07669d7a23de0ef88d2f7129e7  f\n");
    write(dir, "list", &list);
    write(dir, "f", "xx234xxxx");
    assert_eq!(good("msum", dir, &["-c", "list"], b""), "f: OK,2-5\n");
    write(dir, "f", "xx2x4xxxx");
    assert_eq!(run(ours("msum", dir), &words(&["-c", "list"]), b"").1, "f: FAILED,2-5\n");
}

#[test]
fn a_list_with_several_algorithms_is_checked() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "a", "");
    write(
        dir,
        "list",
        "MD5 (a) = d41d8cd98f00b204e9800998ecf8427e\r\n\
         BLAKE3-256 (a) = af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262\n\
         SHA1 (a) = da39a3ee5e6b4b0d3255bfef95601890afd80709\n\
         ADLER32 (a) = 00000001\n\
         XXH64 (a) = ef46db3751d8e999\n\
         af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262  a\n",
    );
    assert_eq!(good("haul sum", dir, &["-c", "list"], b""), "a: OK\n".repeat(6));
    let (status, out, err) = run(ours("haul sum", dir), &words(&["-a", "md5", "-cw", "list"]), b"");
    assert_eq!((status, out.as_str()), (Some(0), "a: OK\n"));
    assert_eq!(err.lines().count(), 6, "{err}");
    assert!(err.starts_with("haul sum: list: 2: improperly formatted checksum line\n"), "{err}");
    let json = good("haul sum", dir, &["-c", "--json", "list"], b"");
    assert_eq!(json.lines().count(), 6);
    assert!(json.lines().all(|line| line.contains("\"status\":\"ok\"")), "{json}");
}

/// In earlier versions the scheduling of the workers decided which of them got the data.
#[test]
fn a_list_on_standard_input_can_name_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    write(dir, "f", "123456789");
    let input = good("md5sum", dir, &["f"], b"");
    let of = |bytes: &[u8]| good("md5sum", dir, &[], bytes);
    let no_lines = "'standard input': no properly formatted checksum lines found\n";
    for tool in ["md5sum", "msum"] {
        let check = |args: &[&str], input: &str| run(ours(tool, dir), &words(args), input.as_bytes());
        for _ in 0..20 {
            // Before the list is read, the line gets all of the input.
            write(dir, "list", [input.repeat(40), of(input.as_bytes())].concat());
            let (status, out, err) = check(&["-c", "list", "-"], &input);
            assert_eq!((status, out), (Some(1), "f: OK\n".repeat(40) + "-: OK\n"));
            assert!(err.ends_with(no_lines), "{err}");
            // After the list no input is left.
            write(dir, "list", of(b""));
            let (status, out, err) = check(&["-c", "-", "list"], &input.repeat(40));
            assert_eq!((status, out), (Some(0), "f: OK\n".repeat(40) + "-: OK\n"), "{err}");
            let (status, out, _) = check(&["-c", "-", "-"], &input);
            assert_eq!((status, out.as_str()), (Some(1), "f: OK\n"));
            // The list cannot contain its own digest.
            let (status, out, err) = check(&["-c"], &[of(b""), input.clone()].concat());
            assert_eq!((status, out.as_str()), (Some(0), "f: OK\n"));
            assert_eq!(err, format!("{tool}: WARNING: 1 line is improperly formatted\n"));
        }
    }
}
