//! Existing data at a sink that must not be lost: files with several names, files that cannot be
//! opened, files that other processes create meanwhile, and names of incomplete copies.

use super::ours;

/// Returns shell code that waits for a condition, for at most a minute.
fn until(condition: &str) -> String {
    format!("n=0; until {condition} || [ $n = 6000 ]; do n=$((n+1)); sleep 0.01; done;")
}

/// Shell code that creates two large sources, and defines a check that a sink equals one of them
/// and is not a mixture.
const TWO_SOURCES: &str = "mkdir ms md
    head -c 3000000 /dev/zero | tr '\\0' x > ms/x; head -c 2000000 /dev/zero | tr '\\0' y > ms/y
    whole() { cmp -s $1 ms/x || cmp -s $1 ms/y || echo $1 is mixed; }\n";

#[test]
fn linked_sinks_never_mix_two_sources() {
    for make in [
        "printf old > md/x; ln md/x md/y",
        "printf old > md/y; ln -s y md/x",
        "ln -s sub/y md/x; mkdir md/sub; printf old > md/sub/y; ln md/sub/y md/y",
    ] {
        let script = format!(
            "{TWO_SOURCES} {make}
             for round in 1 2 3 4 5 6 7 8; do
               cp -rT --threads=2 --split-size=256K --buffer-size=16K ms md || echo failed; whole md/x; whole md/y
             done"
        );
        let run = ours(&script);
        assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "", ""), "{make}");
    }
}

#[test]
fn force_does_not_remove_a_file_if_descriptors_run_out() {
    let run = ours(
        "for n in $(seq 3 40); do
           (ulimit -n $n; cp -f a b) 2> /dev/null; s=$?
           case \"$s $(cat b)\" in '0 alpha') printf bravo > b;; *' bravo') ;; *) echo \"with $n: $s\"; printf bravo > b;; esac
         done",
    );
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "", ""));
}

#[test]
fn a_file_created_by_another_process_is_not_overwritten() {
    let script = format!(
        "mkdir src; mkfifo src/p; for n in 1 2 3 4 5 6 7 8; do printf ours > src/f$n; done
         cp -r --copy-contents --threads=1 src z 2> said & p=$!
         {} for n in 1 2 3 4 5 6 7 8; do [ -e z/f$n ] || printf theirs > z/f$n; done
         made=$(grep -l theirs z/f* | wc -l); printf x > src/p; wait $p; s=$?
         [ $made = $(grep -l theirs z/f* | wc -l) ] || echo overwritten
         [ $made = $(grep -c 'cannot create regular file .* File exists' said) ] || cat said
         [ $made = 0 ] || [ $s = 1 ] || echo $s",
        until("ls -l /proc/$p/fd | grep -q src/p$")
    );
    let run = ours(&script);
    assert_eq!((run.status, run.out.as_str()), (Some(0), ""), "{}", run.err);
}

#[test]
fn an_answer_after_a_signal_overwrites_nothing() {
    let script = format!(
        "mkfifo in; cp -i a b < in 2> said & p=$!; exec 3> in
         {} kill -TERM $p; sleep 0.2; (trap '' PIPE; printf 'y\\n' >&3) 2> /dev/null; wait $p; s=$?; cat b; exit $s",
        until("grep -q overwrite said")
    );
    let run = ours(&script);
    assert_eq!((run.status, run.out.as_str()), (Some(143), "bravo"), "{}", run.err);
}

#[test]
fn links_to_an_interrupted_copy_are_removed() {
    let script = format!(
        "mkdir s; truncate -s 512G s/big; ln s/big s/h
         cp -a --sparse=always --threads=2 s z 2> said & p=$!
         {} kill -TERM $p; wait $p; s=$?; ls z; grep -c 'is incomplete' said; rm -f s/big s/h; exit $s",
        until("[ -e z/big -a -e z/h ]")
    );
    let run = ours(&script);
    assert_eq!((run.status, run.out.as_str()), (Some(143), "2\n"), "{}", run.err);
}

#[test]
fn links_to_a_copy_of_a_file_that_changed_are_removed() {
    let script = format!(
        "mkdir s; truncate -s 6G s/big; ln s/big s/h
         cp -a --sparse=always --threads=2 s z 2> said & p=$!
         {} printf x >> s/big; wait $p; s=$?; ls z | wc -l
         grep -c 'the source changed during the copy' said; grep -c \"removed 'z/.*', a link to 'z/.*', which is incomplete\" said
         rm -f s/big s/h z/big z/h; exit $s",
        until("[ -e z/big -a -e z/h ]")
    );
    let run = ours(&script);
    assert_eq!((run.status, run.out.as_str()), (Some(1), "1\n1\n1\n"), "{}", run.err);
}
