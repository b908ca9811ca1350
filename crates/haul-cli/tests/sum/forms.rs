//! Output formats, ranges, lists of files, and failures of the output itself.

use super::{good, ours, run, words};
use crate::faults::fixture::{RunResult, Running, pasted};
use rustix::process::Signal;
use std::fs::{self, File};
use std::process::{Command, Stdio};

#[test]
fn several_digests_are_printed_for_one_file() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "123456789").unwrap();
    let out =
        good("haul sum", dir.path(), &["-a", "crc32,crc32c", "-a", "crc64nvme,crc16,adler32", "f"], b"");
    let expected = "CRC32 (f) = cbf43926\nCRC32C (f) = e3069283\nCRC64NVME (f) = ae8b14860a799888\n\
                    CRC16 (f) = 906e\nADLER32 (f) = 091e01de\n";
    assert_eq!(out, expected);
    let piped = good("haul sum", dir.path(), &["-a", "crc32", "--untagged"], b"123456789");
    assert_eq!(piped, "cbf43926  -\n");
    let base64 = good("haul sum", dir.path(), &["-a", "crc32", "--base64", "--no-names", "f"], b"");
    assert_eq!(base64, "y/Q5Jg==\n");
}

#[test]
fn untagged_cancels_the_mode_set_by_tag() {
    let dir = tempfile::tempdir().unwrap();
    for options in [&["--untagged"][..], &["--tag", "--untagged"]] {
        let printed = good("cksum", dir.path(), &[&["-a", "md5"], options].concat(), b"123456789");
        assert_eq!(printed, "25f9e794323b453885f5181f1b624d0b  -\n", "{options:?}");
    }
}

#[test]
fn options_select_mode_marks_line_ends_and_names() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("new\nline"), "123456789").unwrap();
    for tool in ["haul sum", "msum"] {
        let print = |options: &[&str]| {
            good(tool, dir.path(), &[&["-a", "crc32"], options, &["new\nline"]].concat(), b"")
        };
        assert_eq!(print(&[]), "\\cbf43926  new\\nline\n");
        assert_eq!(print(&["-b"]), "\\cbf43926 *new\\nline\n");
        assert_eq!(print(&["--binary", "-t"]), print(&["--text"]));
        assert_eq!(print(&["--text"]), print(&[]));
        assert_eq!(print(&["-z"]), "cbf43926  new\nline\0");
        assert_eq!(print(&["--tag", "--zero"]), "CRC32 (new\nline) = cbf43926\0");
        assert_eq!(print(&["--no-names"]), "cbf43926\n");
    }
}

#[test]
fn json_prints_path_size_and_digests() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "123456789").unwrap();
    let out = good("haul sum", dir.path(), &["--json", "-a", "crc32,adler32", "f"], b"");
    let expected =
        "{\"path\":\"f\",\"size\":9,\"digests\":{\"adler32\":\"091e01de\",\"crc32\":\"cbf43926\"}}\n";
    assert_eq!(out, expected);
}

#[test]
fn directories_are_walked_in_order() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["z", "a/2", "a/10", "b/c/d"] {
        let path = dir.path().join("t").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let out = good("haul sum", dir.path(), &["-r", "-a", "crc32", "t/", "t/z"], b"");
    let names: Vec<&str> = out.lines().map(|line| &line[10..]).collect();
    assert_eq!(names, ["t/a/10", "t/a/2", "t/b/c/d", "t/z", "t/z"]);
}

#[test]
fn names_are_read_from_lists() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a b"), "1").unwrap();
    fs::write(dir.path().join("new\nline"), "2").unwrap();
    fs::write(dir.path().join("list"), "a b\n\na b").unwrap();
    let by_list = good("haul sum", dir.path(), &["--files-from", "list"], b"");
    assert_eq!(by_list.lines().count(), 2);
    let by_nul = good("haul sum", dir.path(), &["-0", "--files-from=-"], b"new\nline\0a b\0");
    assert_eq!(by_nul, good("haul sum", dir.path(), &["new\nline", "a b"], b""));
    let long = [vec![b'x'; 70_000], b"\na b\n".to_vec()].concat();
    let (status, out, err) = run(ours("haul sum", dir.path()), &words(&["--files-from=-"]), &long);
    assert_eq!((status, err.as_str()), (Some(1), "haul sum: -:1: line is too long\n"));
    assert_eq!(out, good("haul sum", dir.path(), &["a b"], b""));
    let own = b"a b\n-\na b\n";
    let (status, out, err) = run(ours("haul sum", dir.path()), &words(&["--files-from=-"]), own);
    let why = "a list on standard input cannot name standard input";
    assert_eq!((status, err), (Some(1), format!("haul sum: -:2: {why}\n")));
    assert_eq!(out, by_list);
    let (status, _, err) = run(ours("haul sum", dir.path()), &words(&["--files-from=nope"]), b"");
    assert_eq!((status, err.as_str()), (Some(1), "haul sum: nope: No such file or directory\n"));
}

#[test]
fn msum_reads_files_and_ranges_from_standard_input() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("a b"), "0123456789").unwrap();
    let input = b"a%20b\na%20b 2-5,0-10\nbad%zz\na%20b 5-5\n- 0-2\n";
    let (status, out, err) = run(ours("msum", dir.path()), &words(&["--read-stdin"]), input);
    let whole = "781e5e245d69b566979b86e28d23f2c7  a b\n";
    assert_eq!(out, format!("{whole}#mutil#2-5#289dff07669d7a23de0ef88d2f7129e7  a b\n{whole}"));
    let complaint = "not of the form FILE START-END,...";
    let own = "a list on standard input cannot name standard input";
    let reported = format!("msum: -:3: {complaint}\nmsum: -:4: {complaint}\nmsum: -:5: {own}\n");
    assert_eq!((status, err), (Some(1), reported));
}

#[test]
fn tree_digests_match_their_definition() {
    let dir = tempfile::tempdir().unwrap();
    let bytes: Vec<u8> = (0..5 << 10).map(|n| (n >> 3) as u8).collect();
    fs::write(dir.path().join("f"), &bytes).unwrap();
    let hash = |bytes: &[u8]| {
        fs::write(dir.path().join("part"), bytes).unwrap();
        let text = good("haul sum", dir.path(), &["-a", "sha1", "part"], b"");
        (0..20).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect::<Vec<u8>>()
    };
    let leaves: Vec<Vec<u8>> = bytes.chunks(1 << 10).map(hash).collect();
    let pair = |left: &[u8], right: &[u8]| hash(&[left, right].concat());
    let left = pair(&pair(&leaves[0], &leaves[1]), &pair(&leaves[2], &leaves[3]));
    let root: String = pair(&left, &leaves[4]).iter().map(|byte| format!("{byte:02x}")).collect();
    let expected = format!("#mutil##{root}  f\n");
    assert_eq!(good("haul sum", dir.path(), &["-a", "sha1", "--tree=1K", "f"], b""), expected);
    let msum = ["--hash-type=sha1", "--hash-leaf-size=1", "--split-size=1", "f"];
    assert_eq!(good("msum", dir.path(), &msum, b""), expected);
    assert_eq!(
        good("haul sum", dir.path(), &["-a", "sha1", "--tree=1K"], &bytes),
        expected.replace(" f", " -")
    );
}

#[test]
fn combine_joins_checksums_of_blocks() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("whole"), "123456789").unwrap();
    fs::write(dir.path().join("left"), "1234").unwrap();
    fs::write(dir.path().join("right"), "56789").unwrap();
    for algorithm in ["crc32", "crc32c", "crc64nvme", "crc64xz", "crc64eos", "crc16", "adler32"] {
        let value = |file| {
            let line = good("haul sum", dir.path(), &["-a", algorithm, "--no-names", file], b"");
            line.trim_end().to_owned()
        };
        let parts = [format!("{}:4", value("left")), format!("{}:5", value("right"))];
        let args = ["--combine", "-a", algorithm, &parts[0], &parts[1]];
        let expected = format!("{} 9\n", value("whole"));
        assert_eq!(good("haul sum", dir.path(), &args, b""), expected);
        let lines = parts.each_ref().map(|part| part.replace(':', " ")).join("\n");
        assert_eq!(good("haul sum", dir.path(), &args[..3], lines.as_bytes()), expected);
    }
    // cksum prints decimal numbers.
    let halves = good("cksum", dir.path(), &["left", "right"], b"");
    let lines: Vec<String> = halves.lines().map(|line| line.rsplit_once(' ').unwrap().0.to_owned()).collect();
    let joined = good("haul sum", dir.path(), &["--combine", "-a", "cksum"], lines.join("\n").as_bytes());
    assert_eq!(format!("{} whole\n", joined.trim_end()), good("cksum", dir.path(), &["whole"], b""));
    for args in [
        &["-a", "md5", "d41d8cd98f00b204e9800998ecf8427e:0"][..],
        &["-a", "crc32", "123:4"],
        &["-a", "crc32", "x"],
    ] {
        let (status, out, err) =
            run(ours("haul sum", dir.path()), &words(&[&["--combine"], args].concat()), b"");
        assert_eq!((status, out.as_str()), (Some(1), ""));
        assert!(err.starts_with("haul sum: "), "{err}");
    }
}

/// Earlier versions read a hexadecimal value with decimal digits only as decimal: one value in 43.
#[test]
fn ambiguous_cksum_values_are_refused_by_combine() {
    let dir = tempfile::tempdir().unwrap();
    let joined = |parts: &[&str]| {
        let (status, out, err) =
            run(ours("haul sum", dir.path()), &words(&[&["--combine", "-a", "cksum"], parts].concat()), b"");
        if status == Some(0) { out } else { err }
    };
    // 0x12345678 is 305419896, and 0xabcdef01 2882400001.
    let expected = joined(&["305419896:4", "2882400001:5"]);
    assert!(expected.ends_with(" 9\n"), "{expected}");
    assert_eq!(joined(&["12345678:4", "abcdef01:5"]), expected);
    assert_eq!(joined(&["0x12345678:4", "abcdef01:5"]), expected);
    assert_eq!(joined(&["0x12345678:4"]), "305419896 4\n");
    assert_eq!(joined(&["0012345678:4"]), "12345678 4\n");
    assert_eq!(joined(&["12345678:4", "2882400001:5"]), joined(&["00bc614e:4", "abcdef01:5"]));
    let refusal = joined(&["12345678:4", "87654321:5"]);
    assert!(refusal.contains("0x12345678") && refusal.contains("0012345678"), "{refusal}");
}

#[test]
fn failed_writes_are_reported_and_fail() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "f").unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = ours("md5sum", dir.path()).arg("f").stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(output.stderr, b"md5sum: write error\n");
}

#[test]
fn closed_output_ends_the_tool_silently() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), "f").unwrap();
    fs::write(dir.path().join("list"), "d41d8cd98f00b204e9800998ecf8427e  f\n").unwrap();
    for (tool, args) in [("md5sum", &["f", "f"][..]), ("haul sum", &["f"]), ("md5sum", &["-c", "list"])] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output =
            ours(tool, dir.path()).args(args).stdout(writer).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&output.status), Some(13), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{tool} {args:?}");
    }
}

#[test]
fn the_end_of_the_largest_possible_file_is_summed() {
    const LAST: u64 = i64::MAX as u64;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = File::create(dir.path().join("f")).unwrap();
    if file.set_len(LAST).is_err() {
        assert!(
            std::env::var_os("HAUL_REQUIRE_ALL").is_none_or(|value| value != "1"),
            "a file of 2^63 - 1 bytes"
        );
        println!("skipped: needs a file system with files of 2^63 - 1 bytes");
        return;
    }
    std::os::unix::fs::FileExt::write_at(&file, b"the end", LAST - 7).unwrap();
    fs::write(dir.path().join("end"), "the end").unwrap();
    let offset = format!("--offset={}", LAST - 7);
    for algorithm in ["md5", "blake3", "sysv", "crc64nvme"] {
        let whole = good("haul sum", dir.path(), &["-a", algorithm, "--no-names", "end"], b"");
        let part = good("haul sum", dir.path(), &["-a", algorithm, "--no-names", &offset, "f"], b"");
        assert_eq!(part, whole, "{algorithm}");
        let past = good(
            "haul sum",
            dir.path(),
            &["-a", algorithm, "--no-names", &offset, "--length=18446744073709551615", "f"],
            b"",
        );
        assert_eq!(past, whole, "{algorithm}");
    }
    let line = good("msum", dir.path(), &[&offset, "f"], b"");
    assert!(line.starts_with(&format!("#mutil#{}-{LAST}#", LAST - 7)), "{line}");
    fs::write(dir.path().join("list"), &line).unwrap();
    assert_eq!(good("msum", dir.path(), &["-c", "list"], b""), format!("f: OK,{}-{LAST}\n", LAST - 7));
}

#[test]
fn trees_with_too_many_parts_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    File::create(dir.path().join("hole")).unwrap().set_len(1 << 40).unwrap();
    for algorithm in ["md5", "blake3", "md5,sha1"] {
        let args = words(&["--tree=1", "--check-tree", "-a", algorithm, "hole"]);
        let (status, out, err) = run(ours("haul sum", dir.path()), &args, b"");
        assert_eq!((status, out.as_str()), (Some(1), ""), "{algorithm}");
        let why = "haul sum: hole: too many parts: 1099511627776 exceed the limit of 1048576; choose larger parts\n";
        assert_eq!(err, why, "{algorithm}");
    }
    let stream = vec![0; (1 << 20) + 1];
    let (status, out, err) =
        run(ours("haul sum", dir.path()), &words(&["--tree=1", "--check-tree", "-a", "crc16"]), &stream);
    assert_eq!((status, out.as_str()), (Some(1), ""));
    assert!(err.contains("exceed the limit of 1048576"), "{err}");
}

#[test]
fn tiny_leaves_take_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), (0..5u32 << 20).map(|n| (n >> 7) as u8).collect::<Vec<_>>()).unwrap();
    // A digest for each byte of an object of 4 MiB would take 276 MB, and half as much again while
    // the list grows.
    for algorithm in ["crc32", "md5"] {
        let line = format!("ulimit -v 500000; exec \"$0\" sum --threads=2 --tree=1 -a {algorithm} f");
        let output = Command::new("sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_haul")])
            .current_dir(dir.path())
            .output()
            .unwrap();
        assert!(output.status.success(), "{algorithm}: {output:?}");
    }
}

#[test]
fn invalid_sizes_and_names_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for args in [
        &["-a", "md6"][..],
        &["--tree=0"],
        &["--tree=x"],
        &["--threads=0"],
        &["--threads=many"],
        &["--buffer-size=1Q"],
        &["--object-size=3M"],
        &["--split-size=1", "--hash-leaf-size=3"],
        &["--raw", "a", "b"],
        &["--tag", "--json", "a"],
        &["--direct-read", "--fadvise-read"],
        &["--files-from=-", "a"],
    ] {
        let (status, out, err) = run(ours("haul sum", dir.path()), &words(args), b"");
        assert_eq!((status, out.as_str()), (Some(1), ""), "{args:?}");
        assert!(err.starts_with("haul sum: ") && err.contains("Try 'haul sum --help'"), "{args:?}: {err}");
    }
}

#[test]
fn an_interrupt_exits_130_with_a_command_to_rerun() {
    let dir = tempfile::tempdir().unwrap();
    // A hole of 1 TiB keeps the job running until the signal arrives.
    File::create(dir.path().join("hole")).unwrap().set_len(1 << 40).unwrap();
    let mut command = ours("haul sum", dir.path());
    let ended = interrupted(command.args(["--progress", "-a", "md5", "hole"]));
    assert_eq!((ended.code, &*ended.stdout), (Some(130), ""));
    let (said, advice) = ended.stderr.split_once("run: ").unwrap();
    assert_eq!(said, "haul sum: interrupted; files not listed were not hashed; to hash all, ");
    File::create(dir.path().join("hole")).unwrap();
    let output = pasted(dir.path(), advice);
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "d41d8cd98f00b204e9800998ecf8427e  hole\n");
}

#[test]
fn an_interrupt_ends_the_wait_for_a_pipe_without_data() {
    let dir = tempfile::tempdir().unwrap();
    let made = Command::new("mkfifo").arg(dir.path().join("pipe")).status().unwrap();
    assert!(made.success());
    // The pipe stays open without data: first no process has it open for writing, then one has and
    // writes nothing.
    for writer in [false, true] {
        let _held =
            writer.then(|| File::options().read(true).write(true).open(dir.path().join("pipe")).unwrap());
        let ended = interrupted(ours("haul sum", dir.path()).arg("pipe"));
        assert_eq!((ended.code, &*ended.stdout), (Some(130), ""));
        assert!(ended.stderr.starts_with("haul sum: interrupted"), "{ended:?}");
    }
}

#[test]
fn an_interrupt_kills_a_gnu_named_tool_by_the_signal() {
    let dir = tempfile::tempdir().unwrap();
    File::create(dir.path().join("hole")).unwrap().set_len(1 << 40).unwrap();
    let mut command = ours("md5sum", dir.path());
    let running = Running::new(command.arg("hole"));
    running.has_opened(&dir.path().join("hole"));
    running.signal(Signal::INT);
    let ended = running.end();
    assert_eq!((ended.code, ended.signal), (None, Some(2)));
    assert_eq!((&*ended.stdout, &*ended.stderr), ("", ""));
}

/// Returns the result of a command that is interrupted as soon as it handles the signal.
fn interrupted(command: &mut Command) -> RunResult {
    let running = Running::new(command);
    running.is_ready(Signal::INT, None);
    running.signal(Signal::INT);
    running.end()
}
