//! Random command lines and lists, drawn from a seed, and run by the installed tool and by haul. A
//! difference is reduced to the shortest line that still differs, and reported with the seed.

use super::{Outcome, ours, run, theirs};
use crate::differential::Wanted;
use haul_digest::{Algorithm, Blake2bLen, digest};
use haul_lab::random::Random;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

/// Number of lines for each tool. One takes two to six milliseconds.
const LINES: u64 = 150;

const SEED: u64 = 31_415;

/// Names of existing files; the directory `d` is not among them.
const NAMES: [&[u8]; 15] = [
    b"a",
    b"b c",
    b"new\nline",
    b"back\\slash",
    b"it's",
    b"cr\rx",
    b"\xff\xfe",
    b"n\xc3\xa9",
    b"e",
    b"(p) = x",
    b"*s",
    b" lead",
    b"x)",
    b"#r",
    b"large",
];

/// Names without a file, and names with a special meaning.
const OTHER_NAMES: [&[u8]; 8] = [b"nope", b"d", b"-", b"-", b"stdin", b"", b"no pe", b"a/x"];

/// The standard input if it is not a list.
const DATA: &[u8] = b"from a pipe";

/// Name of a list with the same contents as the first one.
const ODD_LIST: &str = "odd 'list'\nof two lines";

/// Algorithms that a list for a tool may contain by mistake.
const STRANGE: [Algorithm; 7] = [
    Algorithm::Md5,
    Algorithm::Sha1,
    Algorithm::Sha256,
    Algorithm::Sha512,
    Algorithm::Blake2b,
    Algorithm::Sm3,
    Algorithm::Blake3,
];

/// One run: the words after the name of the tool, the lines of two lists, and the standard input.
#[derive(Clone, Debug)]
struct Case {
    words: Vec<OsString>,
    lists: [Vec<Vec<u8>>; 2],
    line_end: &'static [u8],
    /// True if the last line has no end.
    is_cut: bool,
    input: Input,
    locale: &'static str,
    /// True if `POSIXLY_CORRECT` is set.
    is_posix: bool,
}

#[derive(Clone, Copy, Debug)]
enum Input {
    Nothing,
    Data,
    /// The first list.
    List,
}

/// A tool with the contents of its lists and its options.
struct Tool {
    name: &'static str,
    algorithms: &'static [Algorithm],
    /// Options for printing.
    options: &'static [&'static str],
    /// Additional options for `-c`.
    checking: &'static [&'static str],
}

const DIGEST_OPTIONS: &[&str] = &[
    "-z", "--zero", "--tag", "--ta", "-b", "-t", "--binary", "--text", "-q", "--st", "-bt", "--", "-w",
    "--check",
];
const CHECK_OPTIONS: &[&str] = &[
    "--quiet",
    "--status",
    "--strict",
    "-w",
    "--warn",
    "--ignore-missing",
    "--stat",
    "--str",
    "--ign",
    "-z",
    "--tag",
];
const CKSUM_OPTIONS: &[&str] = &[
    "-amd5",
    "-a",
    "sm3",
    "-ablake2b",
    "--algorithm=sysv",
    "-absd",
    "-acrc",
    "-asha384",
    "--untagged",
    "--unt",
    "--tag",
    "-z",
    "-l16",
    "-l0",
    "-l7",
    "-l520",
    "--length=256",
    "-b",
    "--quiet",
    "--",
    "-asha1",
    "-asha256",
    "-a",
    "--algorithm=md",
    "--text",
    "--binary",
    "-t",
];

const TOOLS: [Tool; 10] = [
    Tool { name: "md5sum", algorithms: &[Algorithm::Md5], options: DIGEST_OPTIONS, checking: CHECK_OPTIONS },
    Tool {
        name: "sha1sum",
        algorithms: &[Algorithm::Sha1],
        options: DIGEST_OPTIONS,
        checking: CHECK_OPTIONS,
    },
    Tool {
        name: "sha224sum",
        algorithms: &[Algorithm::Sha224],
        options: DIGEST_OPTIONS,
        checking: CHECK_OPTIONS,
    },
    Tool {
        name: "sha512sum",
        algorithms: &[Algorithm::Sha512],
        options: DIGEST_OPTIONS,
        checking: CHECK_OPTIONS,
    },
    Tool {
        name: "b2sum",
        algorithms: &[Algorithm::Blake2b],
        options: &["-l8", "-l16", "--length=256", "-l", "-l520", "-l9", "--tag", "-z", "-b", "-l 8", "-l0x8"],
        checking: CHECK_OPTIONS,
    },
    Tool {
        name: "cksum",
        algorithms: &[Algorithm::Md5, Algorithm::Sha256, Algorithm::Sm3, Algorithm::Blake2b],
        options: CKSUM_OPTIONS,
        checking: CHECK_OPTIONS,
    },
    Tool {
        name: "sum",
        algorithms: &[],
        options: &["-r", "-s", "--sysv", "--sys", "-x", "-rs", "--"],
        checking: &[],
    },
    Tool {
        name: "b3sum",
        algorithms: &[Algorithm::Blake3],
        options: &[
            "--no-names",
            "-l5",
            "--length=100",
            "--raw",
            "--no-mmap",
            "--num-threads=2",
            "--derive-key=x",
            "--tag",
            "--seek=9",
            "--",
        ],
        checking: &["--quiet", "--no-mmap"],
    },
    Tool {
        name: "sha256sum",
        algorithms: &[Algorithm::Sha256],
        options: DIGEST_OPTIONS,
        checking: CHECK_OPTIONS,
    },
    Tool {
        name: "sha384sum",
        algorithms: &[Algorithm::Sha384],
        options: DIGEST_OPTIONS,
        checking: CHECK_OPTIONS,
    },
];

fn sandbox(dir: &Path) {
    for (number, name) in NAMES.iter().enumerate() {
        fs::write(dir.join(OsStr::from_bytes(name)), content(name, number)).unwrap();
    }
    fs::create_dir(dir.join("d")).unwrap();
}

fn content(name: &[u8], number: usize) -> Vec<u8> {
    match name {
        b"e" => Vec::new(),
        b"large" => (0..70_001_u32).map(|at| (at ^ at >> 7) as u8).collect(),
        _ => vec![number as u8; number * 700 + 1],
    }
}

fn pick<'a, T: ?Sized>(random: &mut Random, from: &[&'a T]) -> &'a T {
    from[random.index(from.len())]
}

fn any_name(random: &mut Random) -> &'static [u8] {
    let names: Vec<&[u8]> = NAMES.iter().chain(&OTHER_NAMES).copied().collect();
    pick(random, &names)
}

/// Returns a line of a list about a file, in most cases a correct one.
fn list_line(random: &mut Random, tool: &Tool) -> Vec<u8> {
    const STRAYS: [&[u8]; 5] = [b"junk", b"", b"# remark", b"#", b" "];
    if random.chance(8) {
        return pick(random, &STRAYS).to_vec();
    }
    let name = any_name(random);
    let number = NAMES.iter().position(|known| *known == name);
    let bytes = match number {
        Some(number) => content(name, number),
        // Possible contents of the standard input, or of its rest.
        None => pick(random, &[b"".as_slice(), DATA]).to_vec(),
    };
    let mut algorithm = tool.algorithms[random.index(tool.algorithms.len())];
    if algorithm == Algorithm::Blake2b && random.chance(40) {
        algorithm = Algorithm::Blake2bOf(Blake2bLen::new([1, 2, 32][random.index(3)]).unwrap());
    }
    if random.chance(5) && tool.name != "b3sum" {
        algorithm = STRANGE[random.index(STRANGE.len())];
    }
    let mut text = digest(algorithm, &bytes).to_string();
    if random.chance(15) {
        text = "0".repeat(text.len());
    }
    let escaped = escape(name);
    let before = if escaped.is_some() && random.chance(90) { "\\" } else { "" };
    let name = escaped.unwrap_or_else(|| name.to_vec());
    let mut line = match random.chance(40) {
        true => {
            // Some lines have the format of openssl.
            let (open, close): (&[u8], &[u8]) =
                if random.chance(12) { (b"(", b")= ") } else { (b" (", b") = ") };
            [before.as_bytes(), algorithm.tag().as_bytes(), open, &name, close, text.as_bytes()].concat()
        }
        false => {
            let between = pick(random, &["  ", "  ", "  ", " *", " "]);
            [before.as_bytes(), text.as_bytes(), between.as_bytes(), &name].concat()
        }
    };
    if random.chance(25) {
        damage(random, &mut line);
    }
    line
}

fn escape(name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for &byte in name {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            _ => out.push(byte),
        }
    }
    (out != name).then_some(out)
}

fn damage(random: &mut Random, line: &mut Vec<u8>) {
    const BYTES: &[u8] = b" \t\\()*=-0aZ\r\0n#";
    let byte = BYTES[random.index(BYTES.len())];
    let at = random.index(line.len() + 1);
    match random.index(6) {
        0 if at < line.len() => drop(line.remove(at)),
        1 if at < line.len() => line[at] = byte,
        2 => line.make_ascii_uppercase(),
        3 => line.insert(0, b' '),
        4 => line.insert(0, b'\\'),
        _ => line.insert(at, byte),
    }
}

/// Operands of a check.
const LISTS: [&str; 13] = [
    "list",
    "list",
    "list list2",
    "",
    "-",
    "nope list",
    "d list",
    "list list",
    "list - list2",
    "- list",
    "list2 -",
    "- -",
    "list2 - list2 -",
];

fn draw(random: &mut Random, tool: &Tool) -> Case {
    let list = |random: &mut Random| -> Vec<Vec<u8>> {
        if tool.algorithms.is_empty() {
            return Vec::new();
        }
        (0..1 + random.index(6)).map(|_| list_line(random, tool)).collect()
    };
    let lists = [list(random), list(random)];
    let check = !tool.checking.is_empty() && random.chance(60);
    let mut words: Vec<OsString> = Vec::new();
    if check {
        words.push("-c".into());
    }
    for _ in 0..random.index(4) {
        let options = if check && random.chance(75) { tool.checking } else { tool.options };
        words.push(pick(random, options).into());
    }
    let files: Vec<OsString> = match check {
        true if random.chance(8) => vec![ODD_LIST.into()],
        true => pick(random, &LISTS).split_whitespace().map(OsString::from).collect(),
        false => (0..random.index(4)).map(|_| OsString::from_vec(any_name(random).to_vec())).collect(),
    };
    let input = match check && (files.is_empty() || files.iter().any(|file| file == "-")) {
        true => Input::List,
        false => [Input::Nothing, Input::Data][random.index(2)],
    };
    for file in files {
        let at = if random.chance(30) { random.index(words.len() + 1) } else { words.len() };
        words.insert(at, file);
    }
    let line_end: &[u8] = pick(random, &[b"\n".as_slice(), b"\n", b"\n", b"\r\n"]);
    let locale = pick(random, &["C", "C", "C.UTF-8"]);
    Case { words, lists, line_end, is_cut: random.chance(15), input, locale, is_posix: random.chance(10) }
}

impl Case {
    fn list(&self, number: usize) -> Vec<u8> {
        let lines = self.lists[number].iter();
        let mut bytes: Vec<u8> = lines.flat_map(|line| [line.as_slice(), self.line_end].concat()).collect();
        if self.is_cut {
            bytes.truncate(bytes.len().saturating_sub(self.line_end.len()));
        }
        bytes
    }

    /// Returns the results of both tools if they differ.
    fn difference(&self, tool: &str, dir: &Path) -> Option<(Outcome, Outcome)> {
        // If a list on the standard input names the standard input, b3sum waits for its own lock.
        if tool == "b3sum" && self.lists[0].iter().any(|line| line.contains(&b'-')) {
            return None;
        }
        fs::write(dir.join("list"), self.list(0)).unwrap();
        fs::write(dir.join("list2"), self.list(1)).unwrap();
        fs::write(dir.join(ODD_LIST), self.list(0)).unwrap();
        let input = match self.input {
            Input::Nothing => Vec::new(),
            Input::Data => DATA.to_vec(),
            Input::List => self.list(0),
        };
        let words: Vec<&OsStr> = self.words.iter().map(OsString::as_os_str).collect();
        let (mut original, mut own) = (theirs(tool, dir)?, ours(tool, dir));
        for command in [&mut original, &mut own] {
            command.env("LC_ALL", self.locale);
            if self.is_posix {
                command.env("POSIXLY_CORRECT", "1");
            }
        }
        let (original, own) = (run(original, &words, &input), run(own, &words, &input));
        let (original, own) = (comparable(tool, original), comparable(tool, own));
        (original != own && !self.is_meant(tool, &original)).then_some((original, own))
    }

    /// Returns true if docs/options/sums.md lists the difference.
    fn is_meant(&self, tool: &str, original: &Outcome) -> bool {
        let has = |word: &str| self.words.iter().any(|other| other == word);
        let any_line = |test: &dyn Fn(&Vec<u8>) -> bool| self.lists.iter().flatten().any(test);
        let digits = |line: &Vec<u8>| {
            let mut words = line.split(|byte| !byte.is_ascii_hexdigit());
            words.any(|word| word.len() == 64)
        };
        match tool {
            // 64 digits are also the base64 of 48 bytes, which coreutils 9.1 does not read.
            "cksum" if has("-asha384") && has("-c") && any_line(&digits) => true,
            // A directory has no CRC. coreutils 9.1 prints that of an empty file if the CPU has
            // carry-less multiplication.
            // The original compares the digests with other bytes of the output.
            "b3sum" => has("-c") && has("--seek=9"),
            "cksum" => has("d") && original.1.contains("4294967295 0 d"),
            // The list of kinds is longer now.
            _ => false,
        }
    }

    /// Returns all cases with one word or line less than this one.
    fn shorter(&self) -> Vec<Case> {
        let mut all = Vec::new();
        for at in 0..self.words.len() {
            let mut case = self.clone();
            case.words.remove(at);
            all.push(case);
        }
        for list in 0..2 {
            for at in 0..self.lists[list].len() {
                let mut case = self.clone();
                case.lists[list].remove(at);
                all.push(case);
            }
        }
        all
    }
}

/// Returns the result without deliberate differences: the text of usage messages outside the
/// coreutils.
pub(super) fn comparable(tool: &str, (status, out, err): Outcome) -> Outcome {
    let err = match tool {
        "b3sum" if err.contains("try '--help'") || err.contains("Try 'b3sum --help'") => "usage".to_owned(),
        _ => err,
    };
    (status, out, err)
}

/// Returns the shortest case that still differs, as a message with both results.
fn shrunk(tool: &str, dir: &Path, mut case: Case, mut seen: (Outcome, Outcome)) -> String {
    let shorter = |case: &Case| {
        let mut all = case.shorter().into_iter();
        all.find_map(|case| case.difference(tool, dir).map(|seen| (case, seen)))
    };
    while let Some(found) = shorter(&case) {
        (case, seen) = found;
    }
    let (original, own) = seen;
    let show = |(status, out, err): &Outcome| format!("{status:?} out {out:?} err {err:?}");
    format!("{tool} {case:?}\n  original {}\n  own      {}", show(&original), show(&own))
}

#[test]
fn random_command_lines_and_lists_behave_as_the_originals() {
    let Wanted { seed, cases } = Wanted { seed: SEED, cases: LINES }.or_as_the_environment_says();
    let dir = tempfile::tempdir().unwrap();
    sandbox(dir.path());
    let mut wrong = Vec::new();
    for (number, tool) in TOOLS.iter().enumerate() {
        if theirs(tool.name, dir.path()).is_none() {
            continue;
        }
        for line in 0..cases {
            let part = number as u64 * cases + line;
            let case = draw(&mut Random::for_part(seed, part), tool);
            if let Some(seen) = case.difference(tool.name, dir.path()) {
                wrong.push(format!("seed {seed} part {part}: {}", shrunk(tool.name, dir.path(), case, seen)));
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ\n{}", wrong.len(), wrong.join("\n"));
}
