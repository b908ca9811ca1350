//! `--read-stdin` of mcp: lists that are processed while they are written, lines with the same
//! sink, and ranges of one file.

use super::ours;

/// Returns shell code that waits for a condition, for at most a minute.
fn until(condition: &str) -> String {
    format!("n=0; until {condition} || [ $n = 6000 ]; do n=$((n+1)); sleep 0.01; done;")
}

#[test]
fn lines_are_copied_before_the_list_ends() {
    let script = format!(
        "mkfifo list; mcp --read-stdin < list & p=$!; exec 3> list; printf 'a z\\n' >&3
         {} cat z; printf 'one\\nb y\\n' >&3; {} cat y; exec 3>&-; wait $p",
        until("[ -s z ]"),
        until("[ -s y ]")
    );
    let run = ours(&script);
    assert_eq!((run.status, run.out.as_str()), (Some(1), "alphabravo"));
    assert!(run.err.starts_with("mcp: standard input, line 2: expected two names"), "{}", run.err);
}

#[test]
fn a_signal_ends_the_wait_for_the_next_line() {
    let script = format!(
        "mkfifo list; mcp --read-stdin < list & p=$!; exec 3> list; printf 'a z\\n' >&3
         {} kill -TERM $p; wait $p; s=$?; exec 3>&-; exit $s",
        until("[ -s z ]")
    );
    assert_eq!(ours(&script).status, Some(143));
}

#[test]
fn the_last_line_for_a_sink_wins() {
    let run = ours(
        "head -c 3000000 /dev/zero | tr '\\0' x > x; head -c 2000000 /dev/zero | tr '\\0' y > y
         for round in 1 2 3 4 5; do
           rm -f o; printf 'x o\\ny ./o\\n' | mcp --read-stdin --threads=4 --split-size=256K; cmp y o
           printf 'y o\\nx ./o\\n' | mcp --read-stdin --threads=4 --split-size=256K; cmp x o
         done
         ln -s o l; ln o h
         for round in 1 2 3 4 5; do
           printf 'x o\\ny l\\n' | mcp --read-stdin --threads=4 --split-size=256K; cmp y o
           printf 'y o\\nx h\\n' | mcp --read-stdin --threads=4 --split-size=256K; cmp x o
         done",
    );
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "", ""));
}

#[test]
fn backups_keep_each_copy_of_lines_with_the_same_sink() {
    let run =
        ours("printf 'a o\\nb ./o\\nc o\\n' | mcp --read-stdin --backup=t --threads=4; cat o o.~1~ o.~2~");
    assert_eq!((run.status, run.out.as_str()), (Some(0), "charlie\nalphabravo"));
}

#[test]
fn the_decision_for_the_first_range_applies_to_all_ranges() {
    let kept = ours("touch -d 2030-01-01 b; printf 'a b 0-2,3-5\\n' | mcp -u --read-stdin; cat b");
    assert_eq!((kept.status, kept.out.as_str()), (Some(0), "bravo"));
    let newer = ours("printf 'new b 0-2,3-5\\n' | mcp -u --read-stdin; cat b");
    assert_eq!((newer.status, newer.out.as_str()), (Some(0), "neaer"));
    let run = ours("printf 'a b 0-2,3-5\\na z 0-2,3-5\\n' | mcp -n --read-stdin; cat b z | tr '\\0' _");
    assert_eq!((run.status, run.out.as_str()), (Some(0), "bravoal_ha"));
    let same = ours("printf 'a ./a 0-2,3-5\\n' | mcp --read-stdin; s=$?; cat a; exit $s");
    assert_eq!((same.status, same.out.as_str()), (Some(1), "alpha"));
    assert_eq!(same.err, "mcp: 'a' and './a' are the same file");
    let reported = ours("printf 'a z 0-2,3-5\\n' | mcp -v --read-stdin");
    assert_eq!(reported.out, "'a' -> 'z'\n");
}

/// Regression test: the second range began where the first one had ended.
#[test]
fn ranges_of_a_file_have_their_own_bytes_in_a_pipe() {
    let run = ours(
        "printf abcdefghijklmnopqrstuvwxyz > letters; mkfifo pipe; cat pipe &
         printf 'letters pipe 2-5,10-14\\n' | mcp --read-stdin; s=$?; wait; exit $s",
    );
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "cdeklmn", ""));
}

#[test]
fn ranges_of_one_file_do_not_truncate_each_other() {
    let run = ours(
        "for round in 1 2 3 4 5 6; do
           rm -f z; printf 'holes z 500000-1048576,0-500000\\n' | mcp -p --read-stdin --threads=4; cmp holes z
           rm -f z; printf 'holes z 499999-500004,0-4096,500004-1048576,4096-499999\\n' |
             mcp --read-stdin --sparse=always --threads=4; cmp holes z
         done
         printf 'holes z 0-1,1-1048576\\n' | mcp -p --read-stdin; cmp holes z
         [ \"$(stat -c %y holes)\" = \"$(stat -c %y z)\" ] || echo 'times differ'
         printf 'holes w 0-1048576,1048576-2000000\\n' | mcp --read-stdin; cmp holes w
         [ $(stat -c %Y w) -gt 1500000000 ] || echo 'the time is that of an unfinished file'",
    );
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "", ""));
}

#[test]
fn read_stdin_conflicts_with_interactive() {
    let run = ours("printf 'a b\\ny\\n' | mcp -i --read-stdin; s=$?; cat b; exit $s");
    assert_eq!((run.status, run.out.as_str()), (Some(1), "bravo"));
    assert!(run.err.contains("cannot combine --read-stdin with --interactive"), "{}", run.err);
}

#[test]
fn a_directory_is_not_copied_into_itself() {
    let run = ours("printf 't t/s/into\\n' | mcp -r --read-stdin; find t/s/into | wc -l");
    assert!(run.err.contains("cannot copy a directory, 't', into itself, 't/s/into'"), "{}", run.err);
    assert!(run.out.trim().parse::<u32>().unwrap() < 40, "{}", run.out);
}
