//! Features that GNU `install` lacks, behaviour that cannot be compared, and deliberate
//! differences.

use super::ours;

#[test]
fn new_files_are_private_until_their_owner_is_set() {
    let run = ours(
        "mkfifo in; umask 0; install -m 777 -o 1 in z & exec 3> in; printf some >&3
         n=0; until [ -e z ] || [ $n = 6000 ]; do n=$((n+1)); sleep 0.01; done
         stat -c '%a %u' z; exec 3>&-; wait; stat -c '%a %u' z",
    );
    let lines: Vec<&str> = run.out.lines().collect();
    assert_eq!(lines[0], "600 0", "{run:?}");
    assert!(lines[1].starts_with("777 "), "{run:?}");
}

/// GNU's child process prints again what its parent has not printed yet. haul reports a program
/// that cannot be run once.
#[test]
fn a_strip_program_that_cannot_run_is_reported_and_cleaned_up() {
    let run = ours("install -s --strip-program=no-such-program a z; ls z");
    let lines: Vec<&str> = run.err.lines().collect();
    assert!(lines.contains(&"install: cannot run 'no-such-program': No such file or directory"), "{run:?}");
    assert!(lines.contains(&"install: strip process terminated abnormally"), "{run:?}");
    assert_eq!(run.out, "");
}

#[test]
fn symbols_are_stripped() {
    let run = ours(
        "echo 'int main(void) { return 0; }' > prog.c; cc -g -o prog prog.c; install -s prog z; s=$?
         test $(stat -c %s z) -lt $(stat -c %s prog) && echo smaller; ./z && echo runs; exit $s",
    );
    assert_eq!((run.status, run.out.as_str()), (Some(0), "smaller\nruns\n"), "{run:?}");
}

#[test]
fn install_verify_copies_large_files_and_compare_skips_them() {
    let run = ours(
        "head -c 20000001 /dev/urandom > big; install --verify --threads=3 big z && cmp big z; stat -c %a z
         install -Cv big z",
    );
    assert_eq!((run.status, run.out.as_str(), run.err.as_str()), (Some(0), "755\n", ""));
}

#[test]
fn events_are_json_lines() {
    let run = ours("install --json a no d; install --debug a z");
    assert!(run.out.contains(r#"{"event":"file","source":"a","sink":"d/a","bytes":5"#), "{}", run.out);
    assert!(run.out.contains(r#"{"event":"error","message":"cannot stat 'no': No such file or directory"}"#));
    assert!(run.out.contains(r#""failures":1"#), "{}", run.out);
    assert!(run.out.ends_with("'a' -> 'z'\n"), "{}", run.out);
}

#[test]
fn haul_install_behaves_as_install() {
    let run = ours("haul install -dv q; install --help | head -1; install --version");
    assert!(
        run.out.starts_with("haul install: creating directory 'q'\nUsage: install [OPTION]... [-T] SOURCE DEST\ninstall (Surehaul)"),
        "{}",
        run.out
    );
}
