//! All kinds of damage to the data and to the waybill: haul finds each and names it correctly.

use super::{good, pattern, rot, run, tree};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Command;

/// Verifies `data` by a waybill with objects of 64 KiB that was written before `change`. Returns
/// the exit status and the output.
fn after(change: impl FnOnce(&Path), args: &[&str]) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &["sum", "-r", "-a", "blake3,md5", "--object-size", "64K", "--waybill", "w", "data"]);
    change(dir.path());
    let ran = run(dir.path(), &[&["verify", "w"], args].concat());
    assert!(ran.err.is_empty() == args.contains(&"--json"), "{}", ran.err);
    (ran.status, ran.out)
}

#[test]
fn unchanged_data_is_intact_with_and_without_the_page_cache() {
    for args in [&[][..], &["--cached"], &["--threads", "1"], &["--threads", "5"], &["--extra", "data/.."]] {
        assert_eq!(after(|_| (), args), (Some(0), String::new()), "{args:?}");
    }
}

#[test]
fn the_waybill_signature_and_stored_digests_are_not_extra() {
    let moved = |dir: &Path| {
        fs::rename(dir.join("w"), dir.join("data/w")).unwrap();
        symlink("data/w", dir.join("w")).unwrap();
        fs::write(dir.join("data/w.sig"), "a signature").unwrap();
        symlink("data/w.sig", dir.join("w.sig")).unwrap();
        good(dir, &["sum", "--store=tree", "data/small"]);
        assert!(dir.join(".haul/sums/data/small").exists());
    };
    assert_eq!(after(moved, &["--extra", "data/.."]), (Some(0), String::new()));
    let copied = |dir: &Path| {
        moved(dir);
        fs::copy(dir.join("data/w"), dir.join("data/w2")).unwrap();
        fs::create_dir(dir.join("data/.haul")).unwrap();
        fs::write(dir.join("data/.haul/deeper"), "").unwrap();
    };
    let (status, out) = after(copied, &["--extra", "."]);
    let mut lines: Vec<&str> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!((status, lines), (Some(1), vec!["'data/.haul/deeper': extra", "'data/w2': extra"]));
}

#[test]
fn a_flipped_bit_is_reported_as_rot_with_its_object() {
    for object in 0..11 {
        let at = (object * 65_536 + 1234).min(699_999);
        let (status, out) = after(|dir| rot(&dir.join("data/big"), |bytes| bytes[at] ^= 1), &[]);
        let end = ((object + 1) * 65_536).min(700_000);
        let expected = format!("'data/big': rotted: bytes {}-{end}\n", object * 65_536);
        assert_eq!((status, out), (Some(1), expected));
    }
}

/// Name of the damage, function that causes it, and expected output.
type Case = (&'static str, fn(&Path), &'static str);

#[test]
fn each_kind_of_damage_has_its_verdict() {
    let cases: [Case; 13] = [
        (
            "swapped objects",
            |dir| {
                rot(&dir.join("data/big"), |bytes| {
                    let (head, tail) = bytes.split_at_mut(131_072);
                    head[..65_536].swap_with_slice(&mut tail[..65_536]);
                });
            },
            "'data/big': rotted: bytes 0-65536, 131072-196608\n",
        ),
        (
            "neighbours zeroed",
            |dir| rot(&dir.join("data/big"), |bytes| bytes[100_000..140_000].fill(0)),
            "'data/big': rotted: bytes 65536-196608\n",
        ),
        (
            "a hole in place of data",
            |dir| {
                let path = dir.join("data/big");
                let before = fs::metadata(&path).unwrap().modified().unwrap();
                fs::write(&path, &pattern(700_000, 700_001)[..65_536]).unwrap();
                let file = fs::File::options().write(true).open(&path).unwrap();
                file.set_len(700_000).unwrap();
                file.set_modified(before).unwrap();
            },
            "'data/big': rotted: bytes 65536-700000\n",
        ),
        (
            "a file of one object",
            |dir| rot(&dir.join("data/one-object"), |bytes| bytes[65_535] ^= 0x80),
            "'data/one-object': rotted: bytes 0-65536\n",
        ),
        (
            "changed on purpose",
            |dir| fs::write(dir.join("data/small"), pattern(100, 7)).unwrap(),
            "'data/small': modified: different bytes and modification time: bytes 0-100\n",
        ),
        (
            "grown",
            |dir| fs::write(dir.join("data/small"), pattern(101, 7)).unwrap(),
            "'data/small': modified: 100 bytes before, 101 now\n",
        ),
        (
            "cut off",
            |dir| rot(&dir.join("data/big"), |bytes| bytes.truncate(65_536)),
            "'data/big': modified: 700000 bytes before, 65536 now\n",
        ),
        ("gone", |dir| fs::remove_file(dir.join("data/empty")).unwrap(), "'data/empty': missing\n"),
        (
            "another kind",
            |dir| {
                fs::remove_file(dir.join("data/empty")).unwrap();
                fs::create_dir(dir.join("data/empty")).unwrap();
            },
            "'data/empty': modified: different file type\n",
        ),
        (
            "a link in its place",
            |dir| {
                fs::rename(dir.join("data/small"), dir.join("moved")).unwrap();
                symlink("../moved", dir.join("data/small")).unwrap();
            },
            "'data/small': modified: different file type\n",
        ),
        (
            "touched",
            |dir| {
                let file = fs::File::options().write(true).open(dir.join("data/small")).unwrap();
                file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
            },
            "",
        ),
        (
            "a name that needs quoting",
            |dir| fs::remove_file(dir.join("data/sub dir/line\nbreak")).unwrap(),
            "'data/sub dir/line'$'\\n''break': missing\n",
        ),
        (
            "a directory gone",
            |dir| fs::remove_dir_all(dir.join("data/sub dir")).unwrap(),
            "'data/sub dir/back\\slash 100%': missing\n'data/sub dir/line'$'\\n''break': missing\n",
        ),
    ];
    for (name, change, expected) in cases {
        let (status, out) = after(change, &[]);
        let wanted = if expected.is_empty() { Some(0) } else { Some(1) };
        assert_eq!((status, out.as_str()), (wanted, expected), "{name}");
    }
}

#[test]
fn both_swapped_files_are_reported() {
    let swap = |dir: &Path| {
        fs::write(dir.join("data/other"), pattern(100, 3)).unwrap();
        let other = fs::File::options().write(true).open(dir.join("data/other")).unwrap();
        other.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
        fs::remove_file(dir.join("w")).unwrap();
        good(dir, &["sum", "-r", "--waybill", "w", "data"]);
        fs::rename(dir.join("data/other"), dir.join("x")).unwrap();
        fs::rename(dir.join("data/small"), dir.join("data/other")).unwrap();
        fs::rename(dir.join("x"), dir.join("data/small")).unwrap();
    };
    let (status, out) = after(swap, &[]);
    assert_eq!(status, Some(1));
    let line =
        |name| format!("'data/{name}': modified: different bytes and modification time: bytes 0-100\n");
    assert_eq!(out, line("other") + &line("small"));
}

/// The files have the same size and the same time, like two files of an archive: only their bytes
/// differ.
#[test]
fn swapped_files_of_equal_size_and_time_are_reported_as_rot() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let names = ["data/one", "data/other", "data/sub/third"];
    fs::create_dir_all(dir.join("data/sub")).unwrap();
    for (seed, name) in (1..).zip(names) {
        fs::write(dir.join(name), pattern(150_000, seed)).unwrap();
        let file = fs::File::options().write(true).open(dir.join(name)).unwrap();
        file.set_modified(std::time::SystemTime::UNIX_EPOCH).unwrap();
    }
    good(dir, &["sum", "-r", "--object-size", "64K", "--waybill", "w", "data"]);
    fs::rename(dir.join(names[0]), dir.join("x")).unwrap();
    fs::rename(dir.join(names[2]), dir.join(names[0])).unwrap();
    fs::rename(dir.join("x"), dir.join(names[2])).unwrap();
    let ran = run(dir, &["verify", "w"]);
    let line = |name| format!("'{name}': rotted: bytes 0-150000\n");
    assert_eq!((ran.status, ran.out), (Some(1), line(names[0]) + &line(names[2])));
}

#[test]
fn links_out_of_the_root_are_not_followed() {
    let out_of = |dir: &Path| {
        // An identical copy is outside: a command that followed the link would find everything
        // intact.
        fs::rename(dir.join("data/sub dir"), dir.join("outside")).unwrap();
        symlink(dir.join("outside"), dir.join("data/sub dir")).unwrap();
    };
    let (status, out) = after(out_of, &["."]);
    let line = "modified: a link in the path leads out of the directory and was not followed";
    let expected =
        format!("'data/sub dir/back\\slash 100%': {line}\n'data/sub dir/line'$'\\n''break': {line}\n");
    assert_eq!((status, out), (Some(1), expected));
}

#[test]
fn later_sections_replace_earlier_ones() {
    let later = |dir: &Path| {
        fs::write(dir.join("data/small"), "new content").unwrap();
        good(dir, &["sum", "--waybill", "w", "data/small"]);
    };
    assert_eq!(after(later, &[]), (Some(0), String::new()));
    let later_and_damaged = |dir: &Path| {
        later(dir);
        fs::write(dir.join("data/small"), "NEW content").unwrap();
        fs::remove_file(dir.join("data/empty")).unwrap();
    };
    let (status, out) = after(later_and_damaged, &["--json"]);
    assert_eq!(status, Some(1));
    assert_eq!(out.lines().filter(|line| line.contains("data/small")).count(), 1, "{out}");
}

#[test]
fn damage_to_a_waybill_is_reported_by_line_and_the_rest_verified() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &["sum", "-r", "--object-size", "64K", "--waybill", "w", "data"]);
    let whole = fs::read(dir.path().join("w")).unwrap();
    rot(&dir.path().join("data/big"), |bytes| bytes[70_000] ^= 4);
    // A bit in the line of an object: only the digest of this object is lost.
    let mut hurt = whole.clone();
    let lines: Vec<usize> = (0..hurt.len()).filter(|&at| hurt[at] == b'\n').collect();
    hurt[lines[3] + 9] ^= 2;
    fs::write(dir.path().join("w"), &hurt).unwrap();
    let ran = run(dir.path(), &["verify", "w"]);
    assert_eq!((ran.status, ran.out.as_str()), (Some(2), "'data/big': rotted: bytes 65536-131072\n"));
    assert!(ran.err.contains("the waybill: line 5: checksum mismatch"), "{}", ran.err);
    let check = run(dir.path(), &["waybill", "check", "w"]);
    assert_eq!((check.status, check.out.as_str()), (Some(2), ""));
    let export = run(dir.path(), &["waybill", "export", "w"]);
    assert!(export.status == Some(2) && export.err.contains("line 5: checksum mismatch"), "{export:?}");
    // In a truncated waybill the remaining entries are verified, and the run is incomplete.
    fs::write(dir.path().join("w"), &whole[..whole.len() - 1]).unwrap();
    let ran = run(dir.path(), &["verify", "w"]);
    assert_eq!(ran.status, Some(2));
    assert!(ran.err.contains("truncated"), "{}", ran.err);
    // A file that is not a waybill.
    fs::write(dir.path().join("w"), "a list\n").unwrap();
    let ran = run(dir.path(), &["verify", "w"]);
    assert_eq!((ran.status, ran.out.as_str()), (Some(2), ""));
    assert!(ran.err.contains("not a waybill") && ran.err.contains("nothing was verified"), "{}", ran.err);
}

/// Earlier versions reported these files as intact, although nothing of them had been read.
#[test]
fn files_without_a_sampled_object_are_reported_as_passed() {
    let (status, out) = after(|_| (), &["--sample", "0.0001%", "--seed", "1", "--json", "-v"]);
    let count = |word: &str| out.matches(word).count();
    assert_eq!(status, Some(0), "{out}");
    assert_eq!((count(r#""verdict":"passed""#), count(r#""verdict":"intact""#)), (6, 0), "{out}");
    let summary = out.lines().last().unwrap();
    assert!(summary.contains(r#""intact":0,"#) && summary.contains(r#""bytes":0,"#), "{summary}");
}

#[test]
fn a_sample_is_reproducible_by_its_seed() {
    let rotten =
        |dir: &Path| rot(&dir.join("data/big"), |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 1));
    let found = |seed: &str| after(rotten, &["--sample", "30%", "--seed", seed, "--json"]).1;
    let all: Vec<String> = (0..8).map(|seed| found(&seed.to_string())).collect();
    assert_eq!(found("3"), all[3]);
    assert!(all.iter().any(|other| *other != all[0]), "another seed picks other objects");
    let damaged = all.iter().filter(|out| out.contains("\"verdict\":\"rotted\"")).count();
    assert!(damaged >= 6, "of eight samples of eleven objects {damaged} met the damage");
    // A file that the sample skips is not damaged.
    let (status, out) = after(|_| {}, &["--sample", "10"]);
    assert_eq!((status, out.as_str()), (Some(0), ""));
}

#[test]
fn progress_and_quiet_do_not_change_the_verdict() {
    let dir = tempfile::tempdir().unwrap();
    tree(dir.path());
    good(dir.path(), &["sum", "-r", "--waybill", "w", "data"]);
    rot(&dir.path().join("data/small"), |bytes| bytes[0] ^= 1);
    let plain = run(dir.path(), &["verify", "w"]);
    assert_eq!(plain.status, Some(1));
    for (args, is_silent) in
        [(&["--progress"][..], false), (&["-q"], true), (&["--quiet", "--progress"], true)]
    {
        let ran = run(dir.path(), &[&["verify", "w"], args].concat());
        assert_eq!(
            (ran.status, &ran.out, ran.err.is_empty()),
            (plain.status, &plain.out, is_silent),
            "{args:?}"
        );
    }
}

#[test]
fn json_reports_the_same_verdicts() {
    let (status, out) =
        after(|dir| rot(&dir.join("data/big"), |bytes| bytes[0] ^= 1), &["--json", "--verbose"]);
    assert_eq!(status, Some(1));
    let lines: Vec<serde_json::Value> = out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rotted: Vec<_> = lines.iter().filter(|line| line["verdict"] == "rotted").collect();
    assert_eq!(rotted.len(), 1);
    assert_eq!(
        (&rotted[0]["path"], &rotted[0]["damage"]),
        (&"data/big".into(), &serde_json::json!([[0, 65_536]]))
    );
    let summary = lines.last().unwrap();
    assert_eq!(
        (&summary["event"], &summary["intact"], &summary["rotted"]),
        (&"summary".into(), &5.into(), &1.into())
    );
    assert_eq!(summary["bytes"], 700_000 + 65_536 + 100 + 30);
}

/// 766 kB at 500 kB per second take more than 1.5 seconds; a part of that is credit and rounding.
#[test]
fn the_rate_limit_is_respected() {
    let begun = std::time::Instant::now();
    let (status, _) = after(|_| {}, &["--bwlimit", "500KB", "--cached"]);
    let took = begun.elapsed();
    assert_eq!(status, Some(0));
    assert!(took.as_secs_f64() >= 1.2, "766 kB took {took:?}");
}

/// The usual reason is a mistyped directory. After ten thousand missing files this hint would be
/// the last line.
#[test]
fn a_hint_about_the_root_is_printed_if_no_name_exists() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    tree(dir);
    fs::create_dir(dir.join("else where")).unwrap();
    good(dir, &["sum", "-r", "--waybill", "w", "data"]);
    let hint = "no name of the waybill exists in 'else where'; names are relative to ROOT; the waybill was written with ROOT '.'";
    let ran = run(dir, &["verify", "w", "else where"]);
    assert_eq!((ran.status, ran.out.lines().count()), (Some(1), 6), "{ran:?}");
    assert!(ran.err.contains(hint), "{ran:?}");
    let ran = run(dir, &["verify", "-q", "w", "else where"]);
    assert_eq!((ran.status, &*ran.err), (Some(1), ""), "{ran:?}");
    // If a file of the waybill exists, the other files are missing and there is no hint.
    fs::create_dir_all(dir.join("else where/data")).unwrap();
    fs::copy(dir.join("data/small"), dir.join("else where/data/small")).unwrap();
    let ran = run(dir, &["verify", "w", "else where"]);
    assert!(ran.status == Some(1) && !ran.err.contains("no name of"), "{ran:?}");
}

/// The first pass would consume the data, and the second pass would find no error in an empty
/// waybill.
#[test]
fn a_waybill_from_a_pipe_is_refused() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path();
    tree(dir);
    good(dir, &["sum", "-r", "--waybill", "w", "data"]);
    fs::remove_file(dir.join("data/small")).unwrap();
    haul_sys::open::mknod_at(haul_sys::CWD, dir.join("pipe").as_os_str(), haul_sys::FileKind::Fifo, 0o600, 0)
        .unwrap();
    let words =
        "not a regular file, but a waybill is read more than once; save the waybill to a file first\n";
    for command in [&["verify"][..], &["waybill", "check"], &["waybill", "export"]] {
        let script = format!("cat w | '{}' {} /dev/stdin", env!("CARGO_BIN_EXE_haul"), command.join(" "));
        let ran = Command::new("sh").args(["-c", &script]).current_dir(dir).output().unwrap();
        let said = String::from_utf8(ran.stderr).unwrap();
        assert_eq!((ran.status.code(), ran.stdout.is_empty()), (Some(2), true), "{command:?}: {said}");
        assert!(said.ends_with(words), "{command:?}: {said}");
        // No process writes to this pipe.
        let ran = run(dir, &[command, &["pipe"]].concat());
        assert!(
            ran.status == Some(2) && ran.out.is_empty() && ran.err.ends_with(words),
            "{command:?}: {ran:?}"
        );
    }
    let ran = run(dir, &["repair", "pipe", ".", "--from", "data"]);
    assert!(ran.status == Some(2) && ran.err.ends_with(words), "{ran:?}");
    // A regular file is accepted under any name.
    let script = format!("'{}' verify -q /dev/stdin < w", env!("CARGO_BIN_EXE_haul"));
    let ran = Command::new("sh").args(["-c", &script]).current_dir(dir).output().unwrap();
    assert_eq!((ran.status.code(), &*ran.stdout), (Some(1), &b"'data/small': missing\n"[..]), "{ran:?}");
}
