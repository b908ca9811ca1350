//! The same arguments for the installed tool and for haul: output, messages and status are equal.

use super::{Outcome, ours, run, theirs, words};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

const GNU: [&str; 8] =
    ["md5sum", "sha1sum", "sha224sum", "sha256sum", "sha384sum", "sha512sum", "b2sum", "cksum"];

/// Names that need quoting and escaping.
const ODD_NAMES: [&[u8]; 9] =
    [b"a", b"b c", b"new\nline", b"back\\slash", b"it's", b"cr\rx", b"\xff\xfe", "n\u{e9}".as_bytes(), b"--"];

fn odd_files(dir: &Path) {
    for (number, name) in ODD_NAMES.iter().enumerate() {
        fs::write(dir.join(OsStr::from_bytes(name)), vec![number as u8; number * 1000]).unwrap();
    }
    fs::create_dir(dir.join("d")).unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join("large"), vec![b'x'; (5 << 20) + 3]).unwrap();
}

/// Asserts that both tools have the same result for the same arguments.
fn same(tool: &str, dir: &Path, args: &[&OsStr], input: &[u8]) {
    let Some(reference) = theirs(tool, dir) else { return };
    assert_eq!(run(ours(tool, dir), args, input), run(reference, args, input), "{tool} {args:?}");
}

#[test]
fn a_closed_standard_output_fails_as_in_md5sum() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a"), "a").unwrap();
    fs::create_dir(dir.path().join("bin")).unwrap();
    symlink(env!("CARGO_BIN_EXE_haul"), dir.path().join("bin/md5sum")).unwrap();
    let closed = |tool: &str, name: &str| -> Option<Outcome> {
        theirs(name, dir.path())?;
        let script = format!("{tool} a >&-; echo $?; {tool} --help >&-; echo $?");
        let mut shell = Command::new("sh");
        shell.current_dir(dir.path()).env("LC_ALL", "C.UTF-8");
        let (status, out, err) = run(shell, &words(&["-c", &script]), b"");
        Some((status, out, err.replace(tool, name)))
    };
    let Some(expected) = closed("md5sum", "md5sum") else { return };
    assert_eq!(closed("./bin/md5sum", "md5sum"), Some(expected));
}

#[test]
fn digests_of_unusual_names_and_failures_match_gnu() {
    let dir = tempfile::tempdir().unwrap();
    odd_files(dir.path());
    let mut names: Vec<OsString> = vec!["--".into()];
    names.extend(ODD_NAMES.iter().map(|name| OsStr::from_bytes(name).to_owned()));
    names.extend(["large", "empty", "nope", "no pe", "no'pe", "no\npe", "no$pe", ""].map(OsString::from));
    names.push(OsStr::from_bytes(b"no\xffpe").to_owned());
    let names: Vec<&OsStr> = names.iter().map(OsString::as_os_str).collect();
    for tool in GNU {
        same(tool, dir.path(), &names, b"");
        for option in ["--tag", "-z", "--zero", "--tag --zero"] {
            let args: Vec<&OsStr> = option.split(' ').map(OsStr::new).chain(names.iter().copied()).collect();
            same(tool, dir.path(), &args, b"");
        }
        same(tool, dir.path(), &[], b"from a pipe");
        same(tool, dir.path(), &words(&["-", "a", "-"]), b"from a pipe");
    }
    for tool in GNU.iter().filter(|tool| **tool != "cksum") {
        for args in
            [&["-b", "a"][..], &["-t", "a", "d"], &["--binary", "--text", "a"], &["-bt", "a"], &["-tb", "a"]]
        {
            same(tool, dir.path(), &words(args), b"");
        }
    }
    for kind in
        ["bsd", "sysv", "crc", "md5", "sha1", "sha224", "sha256", "sha384", "sha512", "blake2b", "sm3"]
    {
        for more in [&[][..], &["--untagged"], &["--tag"], &["-z"]] {
            let args = [&["-a", kind][..], more, &["a", "large", "empty", "new\nline", "nope"]].concat();
            same("cksum", dir.path(), &words(&args), b"");
        }
    }
}

#[test]
fn usage_errors_match_gnu() {
    let dir = tempfile::tempdir().unwrap();
    odd_files(dir.path());
    for args in [
        &["--foo"][..],
        &["--foo=3", "a"],
        &["-q"],
        &["-Q", "a"],
        &["--check=3"],
        &["--quiet", "a"],
        &["--strict", "a"],
        &["--status", "a"],
        &["-w", "a"],
        &["--ignore-missing", "a"],
        &["--tag", "-c", "a"],
        &["--tag", "-t", "a"],
        &["-b", "-c", "a"],
        &["-z", "-c", "a"],
    ] {
        for tool in ["md5sum", "sha256sum"] {
            same(tool, dir.path(), &words(args), b"");
        }
    }
    same("cksum", dir.path(), &words(&["-a"]), b"");
    same("cksum", dir.path(), &words(&["--algorithm"]), b"");
}

#[test]
fn list_checking_matches_md5sum() {
    let dir = tempfile::tempdir().unwrap();
    odd_files(dir.path());
    let zeros = "0".repeat(32);
    let names: Vec<&OsStr> = ODD_NAMES.iter().map(|name| OsStr::from_bytes(name)).collect();
    let Some(reference) = theirs("md5sum", dir.path()) else { return };
    let mut all = vec![OsStr::new("--")];
    all.extend(names);
    let good = {
        let mut command = reference;
        command.args(&all).output().unwrap().stdout
    };
    let md5_a = "d41d8cd98f00b204e9800998ecf8427e";
    let bad = format!("junk\n# remark\n\n{zeros}  a\n{zeros}  nope\n{zeros}  d\n{zeros} *no pe\n");
    let lists: Vec<(&str, Vec<u8>)> = vec![
        ("good", good.clone()),
        ("mixed", [good.clone(), bad.clone().into_bytes()].concat()),
        ("junk", b"junk\n".to_vec()),
        ("void", Vec::new()),
        ("remarks", b"# a\n\n#b\n".to_vec()),
        ("missing", format!("{zeros}  nope\n").into_bytes()),
        ("some-missing", format!("{zeros}  nope\n{md5_a}  a\n").into_bytes()),
        ("crlf", format!("{md5_a}  a\r\n{md5_a} *empty\r\n").into_bytes()),
        ("tagged", format!("MD5 (a) = {md5_a}\nMD5 (b) c) = {zeros}\nSHA1 (a) = {zeros}\n").into_bytes()),
        ("nul", format!("MD5\0(a) = {md5_a}\nMD5\0 (a) = {md5_a}\nMD5 (a\0b) = {md5_a}\n").into_bytes()),
        ("openssl", format!("MD5(a)= {md5_a}\n").into_bytes()),
        ("upper", format!("{}  a\n", md5_a.to_uppercase()).into_bytes()),
        ("escaped", format!("\\{md5_a}  a\n").into_bytes()),
        ("bad-escape", format!("\\{md5_a}  a\\q\n").into_bytes()),
        ("end-escape", format!("\\{md5_a}  a\\\n").into_bytes()),
        ("spaces", format!("  {md5_a}  a\n\t{md5_a}  a").into_bytes()),
        ("single", format!("{md5_a} a\n{md5_a} *b c\n").into_bytes()),
        ("single-late", format!("{md5_a}  a\n{md5_a} a\n").into_bytes()),
        ("short", format!("{}  a\n", &md5_a[1..]).into_bytes()),
        ("long", format!("{md5_a}0  a\n").into_bytes()),
        ("no-hex", format!("{}  a\n", md5_a.replace('d', "g")).into_bytes()),
        ("no-name", format!("{md5_a}  \n{md5_a} \n{md5_a}\n").into_bytes()),
        ("binary", (0..6000u32).map(|n| ((n * n) >> 3) as u8).collect()),
    ];
    for (name, bytes) in &lists {
        fs::write(dir.path().join(name), bytes).unwrap();
        for options in [
            "-c",
            "-cw",
            "-c --strict",
            "-c --quiet",
            "-c --status",
            "-c --ignore-missing",
            "-c -w --strict --ignore-missing",
        ] {
            let mut args: Vec<&OsStr> = options.split(' ').map(OsStr::new).collect();
            args.push(OsStr::new(name));
            same("md5sum", dir.path(), &args, b"");
        }
        same("md5sum", dir.path(), &words(&["-c"]), bytes);
        same("cksum", dir.path(), &words(&["-c", name]), b"");
        same("cksum", dir.path(), &words(&["-a", "md5", "-c", name]), b"");
        same("sha1sum", dir.path(), &words(&["-c", name]), b"");
    }
    same("md5sum", dir.path(), &words(&["-c", "mixed", "no-list", "d", "good", "missing"]), b"");
    same("md5sum", dir.path(), &words(&["-c", "--quiet", "mixed", "single", "good"]), b"");
    fs::write(dir.path().join("of-stdin"), format!("{md5_a}  -\n")).unwrap();
    same("md5sum", dir.path(), &words(&["-c", "of-stdin"]), b"");
}

#[test]
fn refused_lists_match_b3sum() {
    let dir = tempfile::tempdir().unwrap();
    odd_files(dir.path());
    let a = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
    for list in [
        format!("{a}  a\n{a}  d\n{a}  nope\n{}0  a\n{a}  empty", &a[..63]),
        format!("\u{feff}{a}  a\n{a}  a\n"),
        format!("{a}  a\r\n"),
        format!("# remark\n\n{a}  a\n"),
        format!("{}  a\n{a} *a\n{a} a\n{a}\t a\n{a}   a\n", a.to_uppercase()),
        format!("{a}\u{e9} a\n{a} \u{e9}a\n{a}  \u{e9}\n\u{e9}a\n{}\u{e9}0  a\n", &a[..61]),
        format!("\\{a}  a\\n\n\\{a}  a\\q\n\\{a}  a\\\n\\{a}  cr\\rx\n"),
        String::new(),
        format!("{a}  empty\r\n\r\n{a}  empty\r\r\n{a}  \r\nBLAKE3 (empty) = {a}\r\n"),
        format!("{a}  a\0b\n{a}  empty\n{a}  \u{fffd}\n"),
        format!("{a}  empty\nBLAKE3 (a  b) = {a}\nBLAKE3 (a) = {}\nBLAKE3(a) = {a}\n", &a[1..]),
        format!("{a}  empty\n{a}  a\n\u{e9}\n"),
    ] {
        fs::write(dir.path().join("list"), &list).unwrap();
        same("b3sum", dir.path(), &words(&["-c", "list"]), b"");
        same("b3sum", dir.path(), &words(&["--quiet", "-c", "list"]), b"");
        same("b3sum", dir.path(), &words(&["-c"]), list.as_bytes());
        same("b3sum", dir.path(), &words(&["-c", "list", "list"]), b"");
        same("b3sum", dir.path(), &words(&["-c", "list", "no-list", "list"]), b"");
    }
    // A line that is not text ends the run without a count.
    fs::write(dir.path().join("list"), [format!("{a}  a\n").as_bytes(), b"\xff\n"].concat()).unwrap();
    same("b3sum", dir.path(), &words(&["-c", "list"]), b"");
}

#[test]
fn b3sum_prints_the_same_digests() {
    let dir = tempfile::tempdir().unwrap();
    odd_files(dir.path());
    for args in [
        &["a", "b c", "back\\slash", "new\nline", "cr\rx", "large", "empty"][..],
        &[],
        &["--no-names", "a", "large"],
        &["--raw", "large"],
    ] {
        same("b3sum", dir.path(), &words(args), b"in");
    }
}

/// Asserts that a shell line has the same result with both tools. The tools are found by name, with
/// or without haul's directory in front of the path.
fn alike(dir: &Path, line: &str) {
    let bin = dir.join("bin");
    if !bin.exists() {
        fs::create_dir(&bin).unwrap();
        for tool in ["md5sum", "sha256sum", "cksum", "sum"] {
            symlink(env!("CARGO_BIN_EXE_haul"), bin.join(tool)).unwrap();
        }
    }
    let path = std::env::var("PATH").unwrap();
    let said = [path.clone(), format!("{}:{path}", bin.display())].map(|path| {
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).current_dir(dir).env("LC_ALL", "C").env("PATH", path);
        let output = shell.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        (output.status.code(), text(output.stdout), text(output.stderr))
    });
    assert_eq!(said[1], said[0], "{line}");
}

/// Earlier versions printed messages without a cause or with another one, and returned status 0 if
/// a message could not be written.
#[test]
fn closed_standard_streams_are_handled_as_by_gnu() {
    let dir = tempfile::tempdir().unwrap();
    odd_files(dir.path());
    fs::write(dir.path().join("a"), "hi\n").unwrap();
    for line in [
        "sha256sum a > good; (cat good; echo junk) > junk; sed 's/^./z/' good > none",
        "md5sum <&-",
        "md5sum a - <&-",
        "md5sum a <&-",
        "sha256sum --tag <&-",
        "cksum -a md5 <&-",
        "sum <&-",
        "sum -s <&-",
        "md5sum -c <&-",
        "sha256sum -c - good <&-",
        "md5sum < .",
        "md5sum a > /dev/full",
        "md5sum -z a > /dev/full",
        "cksum a > /dev/full",
        "md5sum --help > /dev/full",
        "sha256sum -c good > /dev/full",
        "md5sum a >&-",
        "cksum a >&-",
        "sha256sum -c good <&- 2>&-",
        "sha256sum -c junk <&- 2>&-",
        "sha256sum -c junk 2>/dev/full",
        "sha256sum -c none 2>&-",
        "sha256sum a <&- >&- 2>&-",
        "sha256sum --status -c good <&- >&-",
    ] {
        alike(dir.path(), line);
    }
}
