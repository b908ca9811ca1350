//! The same digests on every processor: `HAUL_DIGEST_BACKENDS` limits the instructions of haul's
//! own lanes, and `OPENSSL_ia32cap` those of the cryptographic library.

use crate::remote::Fixture;
use haul_digest::Algorithm;
use haul_digest::lanes::{Backend, LaneAlgorithm, backends};
use haul_lab::random::Random;
use std::fs;
use std::process::{Command, Output};

/// Object size of the transfers, so that a file has many objects.
const OBJECT: &str = "--object-size=128K";

/// Value of `OPENSSL_ia32cap` that hides the SHA instructions, AVX2 and AVX-512 (bits of EBX of
/// leaf 7 of CPUID) from the cryptographic library.
const OLD_PROCESSOR: &str = "~0x0:~0xf0230020";

/// Limits on the backends: each one alone, and all without each one. Plain words are always
/// permitted.
fn limits() -> Vec<String> {
    let all = backends();
    let names = |chosen: Vec<Backend>| chosen.into_iter().map(Backend::name).collect::<Vec<_>>().join(",");
    let mut limits: Vec<String> = all.iter().map(|&one| one.name().to_owned()).collect();
    for one in &all {
        let others = names(all.iter().copied().filter(|other| other != one).collect());
        if !others.is_empty() && !limits.contains(&others) {
            limits.push(others);
        }
    }
    limits
}

/// Creates a file of many objects, and files of other lengths in one directory.
fn world() -> Fixture {
    let fixture = Fixture::new();
    let mut random = Random::from_seed(47);
    for (name, len) in
        [("many", 5_000_011), ("a", 0), ("b", 63), ("c", 64), ("d", 4097), ("e", 100_000), ("f", 100_000)]
    {
        fs::create_dir_all(fixture.path("data")).unwrap();
        let mut bytes = vec![0; len];
        random.fill(&mut bytes);
        fs::write(fixture.path("data").join(name), bytes).unwrap();
    }
    fixture
}

fn ended(command: &mut Command, limit: &str) -> Output {
    let output = command.env("HAUL_DIGEST_BACKENDS", limit).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{limit}: {command:?}\n{message}");
    output
}

#[test]
fn sums_are_the_same_with_any_backends() {
    let fixture = world();
    let all: Vec<&str> = Algorithm::ALL.iter().map(|algorithm| algorithm.name()).collect();
    let lanes: Vec<&str> = Algorithm::ALL
        .iter()
        .filter(|one| LaneAlgorithm::of(**one).is_some())
        .map(|one| one.name())
        .collect();
    let mut forms: Vec<Vec<String>> = vec![vec![format!("-a{}", all.join(","))]];
    for name in lanes.into_iter().chain(["blake3"]) {
        forms.push(vec![format!("-a{name}")]);
        forms.push(vec![format!("-a{name}"), "--tree=64K".to_owned()]);
    }
    for form in forms {
        let sum = |limit: &str, library: Option<&str>| {
            let mut command = fixture.haul(&["sum", "-r"]);
            command.args(&form).arg("data").envs(library.map(|value| ("OPENSSL_ia32cap", value)));
            String::from_utf8(ended(&mut command, limit).stdout).unwrap()
        };
        let expected = sum("", None);
        assert_eq!(sum("", Some(OLD_PROCESSOR)), expected, "{form:?}");
        for limit in limits() {
            assert_eq!(sum(&limit, None), expected, "{form:?} {limit}");
        }
    }
}

#[test]
fn copies_verify_with_any_backends() {
    let fixture = world();
    for (number, limit) in limits().into_iter().enumerate() {
        for algorithm in ["sha256", "blake3"] {
            let target = format!("copy-{number}-{algorithm}");
            let hash = format!("--hash-type={algorithm}");
            let mut copy =
                fixture.haul(&["cp", "-r", "--verify", "--print-hash", &hash, "data", target.as_str()]);
            ended(&mut copy, &limit);
            crate::remote::assert_alike(&fixture.path("data"), &fixture.path(&target));
        }
    }
}

/// Regression: the source panicked on processors with SHA instructions and without AVX-512, because
/// it hashed four objects of one file at a time and had two lanes.
#[test]
fn a_file_of_many_objects_is_sent_with_any_backends() {
    let fixture = world();
    let ssh = format!("sh {}", fixture.path("fake-ssh").display());
    for (number, limit) in limits().into_iter().enumerate() {
        for algorithm in LaneAlgorithm::ALL.map(LaneAlgorithm::algorithm) {
            let target = format!("localhost:in-{number}-{algorithm}");
            let words =
                ["send", "-e", &ssh, "--remote-haul", env!("CARGO_BIN_EXE_haul"), OBJECT, "--streams=1"];
            let mut send = fixture.haul(&words);
            ended(send.args(["-a", algorithm.name(), "data/many", &target]), &limit);
            let sent = fixture.path(&format!("there/in-{number}-{algorithm}/many"));
            assert!(fs::read(sent).unwrap() == fs::read(fixture.path("data/many")).unwrap(), "{limit}");
        }
    }
}

#[test]
fn unknown_backends_are_refused_with_the_valid_names() {
    let dir = tempfile::tempdir().unwrap();
    for words in [&["sum", "x"][..], &["cp", "x", "y"], &["--help"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        let output = command
            .args(words)
            .current_dir(dir.path())
            .env("HAUL_DIGEST_BACKENDS", "sse2,avx")
            .output()
            .unwrap();
        assert_eq!((output.status.code(), &*output.stdout), (Some(1), &b""[..]));
        let message = String::from_utf8(output.stderr).unwrap();
        let expected = "haul: cannot limit the instructions of digests by HAUL_DIGEST_BACKENDS: unknown name \
                        'avx': valid names are avx512, avx2, sha-ni, sse2, portable\n";
        assert_eq!(message, expected);
    }
}
