//! Everything that `haul sum` prints is read back by `haul sum -c` and by `haul check`: all
//! algorithms in all forms. A damaged line of any form fails both.

use super::{Outcome, good, ours, run, words};
use haul_digest::Algorithm;
use haul_lab::random::Random;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Output forms of lines that do not state their algorithm, except as decimal numbers.
const BARE: [&[&str]; 7] = [
    &[],
    &["-b"],
    &["-z"],
    &["--base64"],
    &["--tree=1K"],
    &["--tree=1K", "--check-tree"],
    &["--offset=3", "--length=2000"],
];

/// Output forms of lines that state their algorithm.
const STATED: [&[&str]; 5] =
    [&["--tag"], &["--tag", "--base64"], &["--tag", "-z"], &["--json"], &["--json", "--base64"]];

/// Trees and parts, in combination with the forms that state the algorithm.
const SHAPES: [&[&str]; 3] = [&[], &["--tree=1K", "--check-tree"], &["--offset=3", "--length=2000"]];

/// Names whose lines need escapes or resemble other formats.
const NAMES: [&str; 7] =
    ["small", "back\\sl\nash", "cr\rx", "9 digits", "a (b) = c", " *lead", "#mutil##00000000  x"];

fn sandbox(dir: &Path) {
    for (number, name) in NAMES.iter().enumerate() {
        fs::write(dir.join(name), vec![number as u8; number * 700 + 1]).unwrap();
    }
}

/// Returns the checks of a list in this form: with the algorithm, and without if `states`.
fn checks(algorithm: Option<Algorithm>, form: &[&str], states: bool) -> Vec<Vec<String>> {
    let mut options: Vec<String> = Vec::new();
    if form.iter().any(|word| word.starts_with("--tree")) {
        options.push("--tree=1K".to_owned());
    }
    options.extend(form.contains(&"-z").then(|| "-z".to_owned()));
    let named =
        algorithm.map(|algorithm| [options.clone(), vec![format!("-a{}", algorithm.name())]].concat());
    let all = named.into_iter().chain(states.then_some(options));
    let words = |command: &str, options: &[String]| {
        let command = command.split(' ').map(str::to_owned);
        command.chain(options.iter().cloned()).chain(["list".to_owned()]).collect()
    };
    all.flat_map(|options| [words("check", &options), words("sum -c", &options)]).collect()
}

/// Returns true if lines of this algorithm in a form of [`BARE`] state it.
fn states_itself(algorithm: Algorithm, form: &[&str]) -> bool {
    let is_part = form.iter().any(|word| word.starts_with("--tree") || word.starts_with("--offset"));
    match algorithm {
        Algorithm::Cksum | Algorithm::Bsd | Algorithm::Sysv => !is_part && !form.contains(&"--base64"),
        Algorithm::Xxh3_64 => !form.contains(&"--base64"),
        // Others are recognized by the length of the digest.
        _ => algorithm.is_cryptographic() && form.len() < 2,
    }
}

fn haul(dir: &Path, words: &[String]) -> Outcome {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.current_dir(dir).env("LC_ALL", "C.UTF-8").args(words);
    super::outcome(&command.output().unwrap())
}

/// Prints the digests of files, and returns why the list is not read back, for each check.
fn unread(
    dir: &Path,
    algorithms: &str,
    form: &[&str],
    names: &[&str],
    checks: Vec<Vec<String>>,
) -> Vec<String> {
    let list = good("haul sum", dir, &[&["-a", algorithms], form, &["--"], names].concat(), b"");
    fs::write(dir.join("list"), &list).unwrap();
    let separators = list.matches(if form.contains(&"-z") { '\0' } else { '\n' }).count();
    let mut wrong = Vec::new();
    for words in checks {
        let (status, out, err) = haul(dir, &[&words[..], &["--strict".to_owned()]].concat());
        // One line of JSON has all digests of a file, which `haul sum -c` prints one by one.
        let is_sum_of_json = words[0] == "sum" && form.contains(&"--json");
        let lines = if is_sum_of_json { separators * algorithms.split(',').count() } else { separators };
        if status != Some(0) || out.matches(": OK").count() != lines {
            wrong.push(format!("{algorithms} {form:?} {words:?}: {status:?}\n{out}{err}{list}"));
        }
    }
    wrong
}

#[test]
fn every_printed_line_is_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    sandbox(dir);
    let mut wrong = Vec::new();
    for &algorithm in Algorithm::ALL {
        for form in BARE {
            let checks = checks(Some(algorithm), form, states_itself(algorithm, form));
            wrong.extend(unread(dir, algorithm.name(), form, &NAMES, checks));
        }
    }
    let all = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect::<Vec<_>>().join(",");
    for form in STATED {
        for shape in SHAPES {
            let form = [form, shape].concat();
            wrong.extend(unread(dir, &all, &form, &NAMES, checks(None, &form, true)));
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
}

/// Changes one character of the digest of a line: another digit, a letter, a missing one, one too
/// many.
fn damaged(random: &mut Random, line: &str, digest: &str) -> String {
    let at = line.rfind(digest).unwrap() + random.index(digest.len());
    let (before, after) = line.split_at(at);
    let old = after.chars().next().unwrap();
    let digit = if old == '0' { "1" } else { "0" };
    match random.index(4) {
        0 => format!("{before}{digit}{}", &after[1..]),
        1 => format!("{before}g{}", &after[1..]),
        2 => format!("{before}{}", &after[1..]),
        _ => format!("{before}{digit}{after}"),
    }
}

#[test]
fn a_damaged_digest_in_any_form_fails() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("f"), "123456789").unwrap();
    fs::write(dir.join("g"), "good").unwrap();
    let mut random = Random::from_seed(8);
    let mut wrong = Vec::new();
    for &algorithm in Algorithm::ALL {
        let name = format!("-a{}", algorithm.name());
        let forms = [BARE[0], BARE[3], BARE[5], STATED[0], STATED[1], STATED[3]];
        for (number, form) in forms.into_iter().enumerate() {
            let list = good("haul sum", dir, &[&[name.as_str()], form, &["f", "g"]].concat(), b"");
            let mut words = vec![name.as_str(), "--no-names", "f"];
            words.extend(form.contains(&"--base64").then_some("--base64"));
            let bare = good("haul sum", dir, &words, b"");
            let (line, other) = list.split_once('\n').unwrap();
            // Three algorithms print decimal numbers.
            let digest = match bare.trim_end() {
                text if line.contains(text) => text,
                _ => line.split(' ').next().unwrap(),
            };
            let states = number >= 3 || states_itself(algorithm, form);
            let line = damaged(&mut random, line, digest);
            // The good line is first or last.
            let list =
                if random.chance(50) { format!("{other}{line}\n") } else { format!("{line}\n{other}") };
            fs::write(dir.join("list"), &list).unwrap();
            for words in checks(Some(algorithm), form, states) {
                let (status, out, err) = haul(dir, &words);
                // Without its leading zero a number is the same one.
                if status != Some(1) && !out.contains("f: OK") {
                    wrong.push(format!("{algorithm} {form:?} {words:?}: {status:?}\n{out}{err}{list}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
}

/// Earlier versions skipped such lines with status 0 beside lines that they could read.
#[test]
fn lines_of_other_formats_are_checked_in_a_mixed_list() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("f"), "123456789").unwrap();
    let print = |words: &[&str]| good("haul sum", dir, &[words, &["f"]].concat(), b"");
    let list = [
        print(&["-ablake3"]),
        print(&["-absd"]),
        print(&["-asysv"]),
        print(&["-acksum"]),
        print(&["-amd5,sha1", "--json"]),
        print(&["-axxh3-64", "--tree=1K", "--check-tree"]),
    ]
    .concat();
    fs::write(dir.join("list"), &list).unwrap();
    for (tool, count) in [("check", 6), ("sum -c", 7)] {
        let words: Vec<String> = tool.split(' ').map(str::to_owned).chain(["list".to_owned()]).collect();
        let (status, out, err) = haul(dir, &words);
        assert_eq!((status, out), (Some(0), "f: OK\n".repeat(count)), "{tool}: {err}");
    }
    fs::write(dir.join("f"), "123456780").unwrap();
    for (tool, count) in [("check", 6), ("sum -c", 7)] {
        let words: Vec<String> = tool.split(' ').map(str::to_owned).chain(["list".to_owned()]).collect();
        let (status, out, err) = haul(dir, &words);
        assert_eq!((status, out.matches("f: FAILED").count()), (Some(1), count), "{tool}: {out}{err}");
    }
}

#[test]
fn remarks_signatures_and_excluded_lines_do_not_fail() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("f"), "123456789").unwrap();
    let lines =
        [good("haul sum", dir, &["-amd5", "f"], b""), good("haul sum", dir, &["-asha1", "--tag", "f"], b"")];
    let signature = "iQEzBAEBCAAdFiEEWJ3RCsm8kmrZ+ZoCVXQLiX0aW2sFAmWf3vAACgkQVXQLiX0a";
    let list = format!(
        "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n# remark\n\n{}SHA1 (f) = 12\n{}\
         -----BEGIN PGP SIGNATURE-----\n\n{signature}\n{}\n=ab12\n-----END PGP SIGNATURE-----\n",
        lines[0],
        lines[1],
        &signature[..64]
    );
    fs::write(dir.join("list"), &list).unwrap();
    for words in [&["check", "-amd5", "list"][..], &["sum", "-c", "-amd5", "list"]] {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let (status, out, err) = haul(dir, &words);
        assert_eq!((status, out.as_str()), (Some(0), "f: OK\n"), "{words:?}: {err}");
    }
    // The damaged line counts if its algorithm is not left out.
    for words in [&["check", "list"][..], &["sum", "-c", "list"]] {
        let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
        let (status, out, err) = haul(dir, &words);
        assert_eq!((status, out.as_str()), (Some(1), "f: OK\nf: OK\n"), "{words:?}: {err}");
        assert!(err.contains("list: 7: improperly formatted checksum line: a sha1 digest has 40"), "{err}");
    }
}

/// Earlier versions waited for the writer of the pipe without a limit.
#[test]
fn a_named_pipe_in_a_list_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    fs::write(dir.join("f"), "123456789").unwrap();
    assert!(Command::new("mkfifo").arg(dir.join("pipe")).status().unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(dir.join("socket")).unwrap();
    let line = good("haul sum", dir, &["-amd5", "f"], b"");
    let list = [line.clone(), line.replace("  f", "  pipe"), line.replace("  f", "  socket")].concat();
    fs::write(dir.join("list"), &list).unwrap();
    // A writer that writes nothing must not hold up the check either.
    for writer in [false, true] {
        let _held =
            writer.then(|| fs::File::options().read(true).write(true).open(dir.join("pipe")).unwrap());
        for (name, words_of) in
            [("haul check", &["list"][..]), ("haul sum", &["-c", "list"]), ("msum", &["-c", "list"])]
        {
            let command = match name {
                "haul check" => {
                    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
                    command.arg("check").current_dir(dir);
                    command
                }
                _ => ours(name, dir),
            };
            let (status, out, err) = run(command, &words(words_of), b"");
            let expected = "f: OK\npipe: FAILED open or read\nsocket: FAILED open or read\n";
            assert_eq!((status, out.as_str()), (Some(1), expected), "{name}");
            assert!(err.contains(&format!("{name}: pipe: not a regular file\n")), "{err}");
            assert!(err.contains(&format!("{name}: socket: not a regular file\n")), "{err}");
        }
    }
}

/// Regression: a list that was truncated in the tag or in the first digits of its last line was
/// good, and the file of that line was not checked.
#[test]
fn a_truncated_list_fails() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    for name in ["first", "second"] {
        fs::write(dir.join(name), name).unwrap();
    }
    let mut wrong = Vec::new();
    let mut cut = |algorithm: Algorithm, form: &[&str], states: bool| {
        let args = [&["-a", algorithm.name()], form, &["--", "first", "second"]].concat();
        let list = good("haul sum", dir, &args, b"");
        let end = if form.contains(&"-z") { '\0' } else { '\n' };
        let begin = list.find(end).unwrap() + 1;
        for at in [1, 2, 4, 6, 8, 12, 20].map(|len| begin + len).into_iter().filter(|at| *at < list.len() - 1)
        {
            fs::write(dir.join("list"), &list[..at]).unwrap();
            for words in checks(Some(algorithm), form, states) {
                let (status, out, err) = haul(dir, &words);
                if status != Some(1) {
                    let last = &list[begin..at];
                    wrong.push(format!("{algorithm} {form:?} {words:?} {last:?}: {status:?}\n{out}{err}"));
                }
            }
        }
    };
    for algorithm in [Algorithm::Blake3, Algorithm::Md5, Algorithm::Crc32c, Algorithm::Cksum, Algorithm::Bsd]
    {
        BARE.into_iter().for_each(|form| cut(algorithm, form, states_itself(algorithm, form)));
        STATED.into_iter().for_each(|form| cut(algorithm, form, true));
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong[..wrong.len().min(5)].join("\n"));
}
