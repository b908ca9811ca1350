//! Features that GNU `cp` lacks: the options of mcp, `--verify`, `--json`.

use super::ours;

#[test]
fn printed_hashes_match_the_sum_tools() {
    let run = ours(
        "cp -r --print-hash t/s z > sums && md5sum -c --quiet sums && cp --print-hash --hash-type=sha256 a y | sha256sum -c --quiet",
    );
    assert_eq!((run.status, run.err.as_str()), (Some(0), ""));
    let run = ours("cp --print-hash --print-src a z");
    assert_eq!(run.out, "2c1743a391305fbf367df8e4f069f9f9  a\n");
}

#[test]
fn tree_hashes_and_parts_are_marked_as_by_mutil() {
    let run = ours("head -c 200000 /dev/zero > big; cp --print-hash --hash-leaf-size=64 big z; md5sum big");
    let lines: Vec<&str> = run.out.lines().collect();
    assert!(lines[0].starts_with("#mutil##") && lines[0].ends_with("  z"), "{}", run.out);
    assert_ne!(lines[0][8..40], lines[1][..32], "a tree's value is its own");
    let run = ours("head -c 200000 /dev/zero > big; cp --print-hash --check-tree --hash-leaf-size=64 big z");
    assert_eq!(run.out.len(), "#mutil##".len() + 4 * 32 + "  z\n".len(), "four leaves: {}", run.out);
    let run = ours("cp --print-hash --offset=1 --length=3 a z; od -c z | head -1");
    let lines: Vec<&str> = run.out.lines().collect();
    assert!(lines[0].starts_with("#mutil#1-4#"), "{}", run.out);
    assert!(lines[1].contains("\\0   l   p   h"), "{}", run.out);
}

/// The list of leaves is kept until the end of the file: a file with too many is not copied.
#[test]
fn file_with_too_many_leaves_to_print_is_refused() {
    let script = "truncate -s 65G big; cp --print-hash --check-tree --hash-leaf-size=64 big z; echo $?; \
         truncate -s 1M big; cp --print-hash --check-tree --hash-leaf-size=64 big z | wc -c";
    let run = ours(script);
    assert!(run.err.contains("more than 1048576 leaves; choose a larger --hash-leaf-size"), "{}", run.err);
    assert_eq!(run.out.trim(), format!("1\n{}", "#mutil##".len() + 16 * 32 + "  z\n".len()));
}

#[test]
fn copying_a_part_keeps_the_rest_of_the_sink() {
    assert_eq!(ours("cp --offset=1 --length=2 a b; cat b").out, "blpvo");
    assert_eq!(ours("cp --dst-offset=3 a b; cat b").out, "braalpha");
    assert_eq!(ours("cp --offset=1 --dst-offset=0 --length=1 a b; cat b").out, "lravo");
    assert_eq!(ours("cp --length=2 a b; cat b").out, "alavo");
    assert_eq!(ours("cp --offset=0 --length=2 a b; cat b").out, "alavo");
    assert_eq!(ours("cp --offset=0 a new; cp --offset=0 empty b; cat new b").out, "alphabravo");
    assert_eq!(ours("cp --length=2 a z; cat z").out, "al");
}

/// Regression test: the hole before the first byte counted as bytes to be stored.
#[test]
fn a_large_part_at_a_far_offset_needs_only_its_own_space() {
    let run = ours(
        "head -c 9000000 /dev/zero | tr '\\0' x > big; d=$(mktemp -d -p /dev/shm)
         for sink in far $d/far; do
             cp --dst-offset=1T big $sink; stat -c %s $sink; tail -c 9000000 $sink | cmp - big
         done; rm -r $d far",
    );
    let len = (1_u64 << 40) + 9_000_000;
    assert_eq!((run.out, run.err.as_str()), (format!("{len}\n{len}\n"), ""));
}

/// Regression test: the file system of the link was synced, and the file was recorded as durable.
#[test]
fn a_resumable_copy_through_a_link_syncs_the_file_system_of_the_file() {
    let run = ours(
        "d=$(mktemp -d -p /dev/shm); touch $d/sink; ln -s $d/sink link
         cp --resume --state-dir=$PWD/state a link; cat $d/sink; rm -r $d",
    );
    assert_eq!((run.out.as_str(), run.err.as_str()), ("alpha", ""));
}

/// In earlier versions, with holes, a new file got the length of the offset.
#[test]
fn an_offset_beyond_the_end_copies_nothing() {
    for sparse in ["never", "auto", "always"] {
        for source in ["a", "holes"] {
            let script = format!(
                "truncate -s 1M holes; for at in 5 1M 2M; do cp --sparse={sparse} --offset=$at {source} z$at; done; \
                 cp --sparse={sparse} --offset=2M {source} b; cp --sparse={sparse} --offset=2M --dst-offset=9 {source} y; \
                 stat -c %s z5 z1M z2M y; cat b"
            );
            let first = if source == "a" { "0" } else { "1048576" };
            assert_eq!(ours(&script).out, format!("{first}\n0\n0\n0\nbravo"), "{sparse} {source}");
        }
    }
}

#[test]
fn a_batch_is_read_from_standard_input() {
    let run =
        ours("printf 'a z\\n\\nb y 0-2,3-5\\ntwo%%20words w\\n' | mcp --read-stdin; cat z y w | od -An -c");
    assert_eq!((run.status, run.err.as_str()), (Some(0), ""));
    assert!(run.out.contains("a   l   p   h   a   b   r  \\0   v   o   b   1"), "{}", run.out);
    let run = ours("printf 'one\\na z\\n' | mcp --read-stdin; s=$?; cat z; exit $s");
    assert_eq!((run.status, run.out.as_str()), (Some(1), "alpha"));
    assert!(run.err.starts_with("mcp: standard input, line 1: expected two names"), "{}", run.err);
}

#[test]
fn every_copy_method_gives_the_same_bytes() {
    let mut script = String::from("head -c 9000001 /dev/urandom > big; status=0\n");
    for options in [
        "--threads=1",
        "--threads=4 --split-size=1",
        "--split-size=64K --buffer-size=4K",
        "--direct-read",
        "--direct-write",
        "--direct-read --direct-write --buffer-size=1",
        "--fadvise-read --fadvise-write",
        "--double-buffer",
        "--double-buffer --print-hash",
        "--verify",
        "--verify=stream",
        "--verify=reread --split-size=1 --threads=3",
        "--verify=hybrid --threads=1",
        "--verify --print-hash --hash-type=blake3 --threads=3 --split-size=1",
        "--sparse=always",
        "--skip-chmod -p",
    ] {
        script.push_str(&format!("rm -f z; cp {options} big z > /dev/null && cmp big z || status=1\n"));
    }
    script.push_str("exit $status");
    let run = ours(&script);
    assert_eq!((run.status, run.err.as_str()), (Some(0), ""));
}

#[test]
fn json_prints_each_event_on_a_line() {
    let run = ours("cp -rv --json --print-hash t/s no z");
    assert_eq!(run.status, Some(1));
    let run = ours("mkdir z; cp -r --json --print-hash t/s no z");
    let events: Vec<serde_json::Value> =
        run.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let count = |name: &str| events.iter().filter(|event| event["event"] == name).count();
    assert_eq!((count("file"), count("hash"), count("error"), count("summary")), (3, 3, 1, 1), "{}", run.out);
    let last = events.last().unwrap();
    assert_eq!((&last["files"], &last["failures"]), (&3.into(), &1.into()));
}

#[test]
fn verify_stream_reports_the_digest_without_claiming_proof() {
    // The digest is always that of the complete file: with objects of several workers, with one
    // block, and in order.
    for options in ["--split-size=1", "--split-size=1 --threads=1", "--split-size=64", "--double-buffer"] {
        let run = ours(&format!(
            "head -c 9000001 /dev/urandom > big; for f in big empty a; do
                cp --json --verify=stream {options} $f z.$f; haul sum -a crc64nvme $f; done"
        ));
        let lines: Vec<&str> = run.out.lines().collect();
        assert_eq!(lines.len(), 9, "{options}: {} {}", run.out, run.err);
        for told in lines.chunks(3) {
            let file: serde_json::Value = serde_json::from_str(told[0]).unwrap();
            assert_eq!((&file["event"], &file["proof"]), (&"file".into(), &"received".into()), "{options}");
            assert_eq!(file["passed"]["algorithm"], "crc64nvme");
            let digest = file["passed"]["digest"].as_str().unwrap();
            assert!(told[2].starts_with(&format!("{digest}  ")), "{options}: {told:?}");
        }
    }
    let run = ours("cp --print-stats --verify=stream a z; b3sum a");
    assert!(run.err.contains(", crc64nvme of the copied bytes: "), "{}", run.err);
    let run = ours("cp --json --verify=stream --waybill w a z; b3sum a");
    let lines: Vec<&str> = run.out.lines().collect();
    assert!(lines[0].contains(&format!("\"digest\":\"{}\"", &lines[2][..64])), "the waybill's: {}", run.out);
    for verify in ["none", "cached", "reread"] {
        let run = ours(&format!("cp --json --verify={verify} a z"));
        assert!(!run.out.contains("copied bytes"), "{verify}: {}", run.out);
    }
}

#[test]
fn invalid_option_values_are_refused() {
    for (options, message) in [
        ("--threads=0", "cp: --threads: 0 is outside 1 to 1024"),
        ("--split-size=x", "cp: --split-size: 'x' is not a size"),
        ("--hash-type=md6", "cp: "),
        ("--verify=disk", "cp: invalid argument"),
        ("--attributes-only --verify", "cp: cannot combine --attributes-only with --verify"),
    ] {
        let run = ours(&format!("cp {options} a z; test -e z && echo made"));
        assert!(run.err.contains(message), "{options}: {}", run.err);
        assert!(!run.out.contains("made"), "{options}");
    }
}

#[test]
fn print_stats_names_the_file_and_its_size() {
    let run = ours("cp --print-stats a z");
    let seconds = run.err.strip_prefix("cp: 'z': 5 bytes in ").and_then(|rest| rest.split(' ').next());
    assert!(seconds.is_some_and(|seconds| seconds.parse::<f64>().is_ok()), "{}", run.err);
    assert!(run.err.contains("\ncp: total: 1 file, 5 bytes in "), "{}", run.err);
    let run = ours("cp --print-stats a b no d; cp --print-stats no d");
    assert_eq!(run.err.matches("cp: total: 2 files, 10 bytes in ").count(), 1, "{}", run.err);
    assert_eq!(run.err.matches("total").count(), 1, "nothing was found: {}", run.err);
}

#[test]
fn help_and_version_exit_0() {
    for option in ["--help", "--version"] {
        let run = ours(&format!("cp {option}"));
        assert_eq!(run.status, Some(0));
        assert!(run.err.is_empty() && run.out.contains("cp"), "{option}: {}", run.out);
    }
}
