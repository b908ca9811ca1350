//! Lists as their tools wrote them, and formats that no installed tool writes.

use super::{check, folder, good, hex, write};
use haul_digest::Algorithm;
use std::fs;

/// Output of rclone 1.60 for a directory with these files: CRC-32, and SHA-256 in base64url.
const RCLONE_CRC32: &str = "8cdc1683  a b\ncbf43926  digits\n00000000  empty\n62d277af  new\u{240a}line\n";
const RCLONE_BASE64: &str = "LXEWQrcmsEQBYnyp-6wy9chTD7GQPMTbAiWHF5IaSIE=  a b\n\
                             FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=  digits\n\
                             47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU=  empty\n";

/// Output of OpenSSL 3.0's `dgst`, without and with `-r`.
const OPENSSL: &str = "MD5(digits)= 25f9e794323b453885f5181f1b624d0b\n\
                       SHA2-256(digits)= 15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225\n\
                       SHA3-256(digits)= 87cd084d190e436f147322b90e7384f6a8e0676c99d21ef519ea718e51d45f9c\n\
                       25f9e794323b453885f5181f1b624d0b *digits\n";

/// Output format of eos-checksum, with EOS's names of algorithms.
const EOS: &str = "path=digits size=9 time=0.00 adler=091e01de\n\
                   path=digits size=9 time=0.00 crc32=cbf43926\n\
                   path=digits size=9 time=0.00 crc32c=e3069283\n\
                   path=a b size=1 time=0.03 md5=9dd4e461268c8034f5c8564e155c67a6\n\
                   path=digits size=9 time=0.00 sha=f7c3bc1d808e04732adf679965ccc34ca7ae3441\n\
                   path=digits size=9 time=0.00 xxhash64=8cb841db40e6ae83\n";

#[test]
fn rclone_lists_are_checked() {
    let dir = folder();
    let dir = dir.path();
    write(dir, "new\nline", "z");
    write(dir, "crc", RCLONE_CRC32);
    let (status, out, err) = check(dir, &["crc"]);
    assert_eq!(
        (status, out.as_str()),
        (Some(0), "a b: OK\ndigits: OK\nempty: OK\nnew\u{e2}\u{90}\u{8a}line: OK\n")
    );
    assert!(err.ends_with("write them: crc32\n"), "{err}");
    write(dir, "base64", RCLONE_BASE64);
    assert_eq!(good(dir, &["base64"]), "base64 lines as rclone and cksum write them: sha256");
}

#[test]
fn openssl_lists_are_checked() {
    let dir = folder();
    write(dir.path(), "list", OPENSSL);
    let taken = good(dir.path(), &["list"]);
    assert_eq!(
        taken,
        "plain lines as md5sum, b3sum and rclone write them: md5; BSD tags: md5, sha256, sha3-256"
    );
}

#[test]
fn eos_lists_are_checked_and_their_sizes_compared() {
    let dir = folder();
    let dir = dir.path();
    write(dir, "list", EOS);
    let taken = good(dir, &["list"]);
    assert_eq!(taken, "eos-checksum's lines: adler32, crc32, crc32c, md5, sha1, xxh64");
    write(dir, "list", "path=digits size=8 time=0.00 adler=091e01de\n");
    let (status, out, _) = check(dir, &["list"]);
    assert_eq!((status, out.as_str()), (Some(1), "digits: FAILED (the list says 8 bytes, the file has 9)\n"));
}

/// uutils writes BLAKE3-256; b3sum since 1.4 writes BLAKE3.
#[test]
fn tags_of_all_tools_are_recognized() {
    let dir = folder();
    let dir = dir.path();
    let mut list = String::new();
    for (tag, algorithm) in [
        ("BLAKE3-256", Algorithm::Blake3),
        ("BLAKE3", Algorithm::Blake3),
        ("BLAKE2b", Algorithm::Blake2b),
        ("BLAKE2B-512", Algorithm::Blake2b),
        ("SHA3-256", Algorithm::Sha3_256),
        ("SHA2-512", Algorithm::Sha512),
        ("SHA-1", Algorithm::Sha1),
        ("XXH128", Algorithm::Xxh3_128),
        ("ADLER32", Algorithm::Adler32),
        ("CRC64NVME", Algorithm::Crc64Nvme),
        ("CRC16", Algorithm::Crc16),
    ] {
        list.push_str(&format!("{tag} (digits) = {}\n", hex(algorithm)));
    }
    write(dir, "list", list);
    let taken = good(dir, &["list"]);
    let expected = "BSD tags: adler32, blake2b, blake3, crc16, crc64nvme, sha1, sha3-256, sha512, xxh3-128";
    assert_eq!(taken, expected);
}

#[test]
fn unsupported_algorithms_are_named_and_fail() {
    let dir = folder();
    let dir = dir.path();
    let shake = "SHAKE128 (digits) = 1aca6b9e651b5f20079a305ca8f86d39\n";
    write(dir, "list", format!("{shake}MD5 (digits) = {}\n", hex(Algorithm::Md5)));
    let (status, out, err) = check(dir, &["list"]);
    assert_eq!(
        (status, out.as_str()),
        (Some(1), "digits: NOT CHECKED, SHAKE128 is not supported\ndigits: OK\n")
    );
    assert!(err.contains("WARNING: 1 line has an unsupported checksum: SHAKE128"), "{err}");
    write(dir, "list", shake);
    let (status, _, err) = check(dir, &["list"]);
    assert_eq!(status, Some(1));
    assert!(!err.contains("no properly formatted"), "{err}");
}

#[test]
fn eight_digit_values_are_tried_with_each_algorithm() {
    let dir = folder();
    let dir = dir.path();
    for algorithm in
        [Algorithm::Adler32, Algorithm::Crc32, Algorithm::Crc32c, Algorithm::Cksum, Algorithm::Xxh32]
    {
        write(dir, "list", format!("{}  digits\n", hex(algorithm)));
        let taken = good(dir, &["list"]);
        assert!(taken.ends_with(&format!(": {algorithm}")), "{taken}");
    }
    // crc32 alone is that of zlib or, for XRootD, that of POSIX.
    for algorithm in [Algorithm::Crc32, Algorithm::Cksum] {
        write(dir, "list", format!("CRC32 (digits) = {}\n", hex(algorithm)));
        assert_eq!(good(dir, &["list"]), format!("BSD tags: {algorithm}"));
        write(dir, "list.crc32", format!("{}  digits\n", hex(algorithm)));
        assert!(good(dir, &["list.crc32"]).ends_with(&format!(": {algorithm}")));
        assert!(good(dir, &["-a", "crc32", "list.crc32"]).ends_with(&format!(": {algorithm}")));
    }
    // A list with POSIX checksums is not one of zlib if the option requests zlib's by an
    // unambiguous name.
    write(dir, "list", format!("{}  digits\n", hex(Algorithm::Cksum)));
    assert_eq!(check(dir, &["-a", "zcrc32", "list"]).0, Some(1));
    assert_eq!(check(dir, &["-a", "cksum", "list"]).0, Some(0));
}

#[test]
fn the_format_is_detected_for_each_line_of_a_mixed_list() {
    let dir = folder();
    let dir = dir.path();
    let list = [
        format!("{}  digits", hex(Algorithm::Blake3)),
        format!("{}  digits", hex(Algorithm::Sha256)),
        format!("{} *digits\r", hex(Algorithm::Sha3_256)),
        "# a remark".into(),
        String::new(),
        format!("MD5 (digits) = {}", hex(Algorithm::Md5)),
        "930766865 9 digits".into(),
        "adler32: 91e01de digits 9".into(),
        format!("XXH3_{}  digits", hex(Algorithm::Xxh3_64)),
        format!("{}  digits", hex(Algorithm::Adler32)),
        format!("{}  digits", hex(Algorithm::Crc32c)),
        format!("#mutil##{}  digits", hex(Algorithm::Md5)),
        format!(r#"{{"path":"digits","size":9,"digests":{{"sha1":"{}"}}}}"#, hex(Algorithm::Sha1)),
    ];
    write(dir, "list", list.join("\n"));
    let (status, out, err) = check(dir, &["--strict", "list"]);
    assert_eq!((status, out.lines().count()), (Some(0), 11), "{out}{err}");
    for part in [
        "sha256, sha3-256",
        "BSD tags: md5",
        "cksum's lines: cksum",
        "xxhsum's own lines: xxh3-64",
        "haul's JSON: sha1",
    ] {
        assert!(err.contains(part), "{part}: {err}");
    }
}

/// Windows ends lines with CR and LF, and its editors start texts with a byte order mark.
#[test]
fn lists_with_crlf_and_byte_order_mark_are_checked() {
    let dir = folder();
    let dir = dir.path();
    for (name, line, taken) in [
        (
            "md5",
            format!("{} *digits", hex(Algorithm::Md5)),
            "plain lines as md5sum, b3sum and rclone write them: md5",
        ),
        ("tags", format!("SHA256 (digits) = {}", hex(Algorithm::Sha256)), "BSD tags: sha256"),
        ("list.sfv", format!("digits {}", hex(Algorithm::Crc32).to_uppercase()), "SFV: crc32"),
    ] {
        for mark in ["", "\u{feff}"] {
            write(dir, name, format!("{mark}{line}\r\n{line}\r\n"));
            assert_eq!(good(dir, &["--strict", name]), taken, "{mark:?}");
            let (_, out, _) = check(dir, &[name]);
            assert_eq!(out, "digits: OK\ndigits: OK\n", "{name} {mark:?}");
        }
    }
}

#[test]
fn values_without_leading_zeros_need_a_known_algorithm() {
    let dir = folder();
    let dir = dir.path();
    write(dir, "list", "91e01de digits\n");
    assert_eq!(check(dir, &["list"]).0, Some(1));
    assert_eq!(good(dir, &["-a", "adler32", "list"]), "one-blank lines as XRootD writes them: adler32");
    fs::rename(dir.join("list"), dir.join("list.adler32")).unwrap();
    good(dir, &["list.adler32"]);
}
