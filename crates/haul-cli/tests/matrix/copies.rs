//! `haul cp` and `haul mv`, compared with the system's tools.

use super::{assert_none, cover, generator, plant, slice};
use crate::faults::fixture::HAUL;
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::snapshot::{Facets, Snapshot};
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Rows in a slice.
const SLICE: usize = 14;

/// Words of ours and of the system's tool. `W` is the waybill.
type Spelling = (&'static str, &'static str);

/// Words that both take.
const fn both(words: &'static str) -> Spelling {
    (words, words)
}

/// Words that the system's tool lacks.
const fn ours(words: &'static str) -> Spelling {
    (words, "")
}

/// Operands: `A` is the folder of the sources, `B` that of the sink. With `|` they are lines of
/// standard input, and for the system's tool a command each.
const CP_OPERANDS: [&str; 17] = [
    "A/f B/new",
    "A/f B/old",
    "A/f B/newer",
    "A/f B/dir",
    "A/f A/g A/e A/s B/dir",
    "-t B/dir A/f A/g",
    "-T A/tree B/dir",
    "A/tree B/new",
    "A/tree B/dir",
    "A/tree A/g B/dir",
    "A/tree/. B/dir",
    "A/tree/ B/new",
    "A/lf B/new",
    "A/f B/dl",
    "-T A/lf B/dl",
    "A/s B/new",
    "|A/f B/new|A/g B/dir/g|A/s B/dir/old",
];

const CP: [&[Spelling]; 14] = [
    &[
        both("-a"),
        both("-r"),
        both("-rp"),
        both("-rL"),
        both("-dR --preserve=links,xattr"),
        both("-rH --no-preserve=mode"),
        both("-a --no-preserve=xattr,links"),
    ],
    &[
        ours(""),
        ("--resume", "--preserve=mode,timestamps"),
        ("--resume --sync=object", "--preserve=mode,timestamps"),
        ("--resume --sync=none --log-mechanism=file", "--preserve=mode,timestamps"),
        (
            "--resume --verify-resume --log-mechanism=transaction:2 --log-encoding=char",
            "--preserve=mode,timestamps",
        ),
    ],
    &[
        ours(""),
        ours("--verify"),
        ours("--verify=stream"),
        ours("--verify=reread"),
        ours("--verify=hybrid"),
        ours("--verify=none"),
    ],
    &[
        ours(""),
        ours("--waybill=W"),
        ours("--waybill=W --leaf"),
        ours("--waybill=W --leaf=4K --waybill-digests=md5,crc32c"),
    ],
    &[
        ours(""),
        both("-u"),
        ours("--update=all"),
        ("--update=none", "-n"),
        ("--update=none-fail", "-n"),
        both("-n"),
    ],
    &[ours(""), both("-f"), both("--remove-destination"), both("-b"), both("--backup=numbered")],
    &[ours(""), both("-l"), both("-s"), both("--attributes-only")],
    &[
        ours(""),
        ours("--print-hash"),
        ours("--print-hash --hash-type=sha256 --print-src"),
        ours("--print-hash --hash-leaf-size=64 --split-size=64K --check-tree"),
    ],
    &[ours(""), both("--sparse=always"), both("--sparse=never")],
    &[ours(""), both("--reflink=never"), both("--reflink=auto"), both("--reflink=always")],
    &[
        ours(""),
        ours("--direct-read"),
        ours("--direct-write"),
        ours("--direct-read --direct-write"),
        ours("--fadvise-read --fadvise-write"),
        ours("--double-buffer"),
        ours("--split-size=64K --buffer-size=64K"),
    ],
    &[ours(""), ours("--threads=1"), ours("--threads=3")],
    &[ours(""), ours("--json"), both("-v"), ours("--debug"), ours("--print-stats"), ours("--progress")],
    &[ours(""), both("-x"), both("--parents"), both("--strip-trailing-slashes")],
];

const MV_OPERANDS: [&str; 14] = [
    "A/f B/new",
    "A/f B/old",
    "A/f B/newer",
    "A/f B/dir",
    "A/f A/g A/e A/s B/dir",
    "-t B/dir A/f A/g",
    "-T A/tree B/dir",
    "A/tree B/new",
    "A/tree B/dir",
    "A/tree A/g B/dir",
    "A/tree/ B/new",
    "A/lf B/new",
    "A/f B/dl",
    "-T A/lf B/dl",
];

const MV: [&[Spelling]; 6] = [
    &[
        ours(""),
        both("-f"),
        both("-n"),
        both("-u"),
        ours("--update=all"),
        ("--update=none", "-n"),
        ("--update=none-fail", "-n"),
    ],
    &[ours(""), both("-b"), both("--backup=numbered"), both("-S .old")],
    &[ours(""), ours("--threads=1"), ours("--threads=3")],
    &[ours(""), ours("--split-size=64K --buffer-size=64K"), ours("--split-size=1")],
    &[ours(""), ours("--json"), both("-v"), ours("--debug"), ours("--print-stats"), ours("--progress")],
    &[ours(""), both("--strip-trailing-slashes")],
];

/// A tool, and all that its command lines are made of.
struct Language {
    tool: &'static str,
    operands: &'static [&'static str],
    options: &'static [&'static [Spelling]],
}

const LANGUAGES: [Language; 2] = [
    Language { tool: "cp", operands: &CP_OPERANDS, options: &CP },
    Language { tool: "mv", operands: &MV_OPERANDS, options: &MV },
];

/// Returns true if the tool refuses a line with these words before it does anything.
fn is_refused(words: &str) -> bool {
    let has =
        |options: &[&str]| options.iter().any(|option| words.split(' ').any(|word| word.starts_with(option)));
    let keeps = has(&["-n", "--update=none"]);
    let is_batch = has(&["|"]);
    has(&["--resume"])
        && (keeps
            || is_batch
            || has(&["-u", "-b", "--backup", "--remove-destination", "-l", "-s", "--attributes-only"])
            || has(&["--no-preserve=mode"])
            || has(&["--print-hash", "--waybill=", "--verify=stream", "--verify=hybrid"]))
        || has(&["-b", "--backup", "-S"]) && keeps
        || has(&["-l"]) && has(&["-s", "--waybill="])
        || has(&["--attributes-only"])
            && (has(&["--print-hash", "--waybill="]) || has(&["--verify"]) && !has(&["--verify=none"]))
        || has(&["--reflink=always"]) && has(&["--sparse=always", "--sparse=never"])
        || has(&["--waybill="]) && is_batch
}

/// A row: operands, the file systems of source and sink, and a value of each option.
struct Row<'a> {
    language: &'a Language,
    values: Vec<usize>,
}

const KINDS: [FsKind; 7] = FsKind::ALL;

impl Language {
    fn sizes(&self) -> Vec<usize> {
        let options = self.options.iter().map(|values| values.len());
        [self.operands.len(), KINDS.len(), KINDS.len()].into_iter().chain(options).collect()
    }

    fn words(&self, row: &[Option<usize>]) -> String {
        let options = self.options.iter().zip(&row[3..]);
        let options = options.filter_map(|(values, value)| Some(values[(*value)?].0));
        let operands = row[0].map(|value| self.operands[value]);
        options.chain(operands).filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn may(&self, row: &[Option<usize>]) -> bool {
        let words = self.words(row);
        // `--parents` needs a directory, and the system's tool refuses the second operand because
        // of the directories that it made for the first.
        let has_no_parents = row[0].is_some_and(|at| {
            let operands = self.operands[at];
            !(operands.starts_with("A/") && operands.split(' ').count() == 2 && operands.ends_with("B/dir"))
        });
        // If the system's tool has moved another name of the file, it replaces a newer file by a
        // link.
        let is_replaced = self.tool == "mv" && words.contains("-u ") && words.contains("A/tree A/g");
        // A clone is made within one file system that shares extents, or not at all.
        let kinds = [row[1], row[2]].map(|at| at.map(|at| KINDS[at]));
        let may_share = kinds.iter().flatten().all(|kind| kind.shares_extents())
            && (kinds[0] == kinds[1] || kinds.contains(&None));
        !(is_refused(&words)
            || is_replaced
            || words.contains("--parents") && has_no_parents
            || words.contains("--reflink=always") && !may_share)
    }

    fn rows(&self, test: u64) -> Vec<Row<'_>> {
        let rows = cover::rows(&mut generator(test), &self.sizes(), &|row| self.may(row));
        rows.into_iter().map(|values| Row { language: self, values }).collect()
    }
}

impl Row<'_> {
    /// The words of one of both tools, with the folders in their places.
    fn words(&self, is_ours: bool, folders: &Folders, operands: &str) -> Vec<String> {
        let options =
            self.language.options.iter().zip(&self.values[3..]).map(|(values, &value)| values[value]);
        let options = options.map(|(ours, gnu)| if is_ours { ours } else { gnu });
        let words =
            options.chain([operands]).flat_map(|words| words.split(' ')).filter(|word| !word.is_empty());
        let [a, b] = folders.names();
        words
            .map(|word| match word.split_at(word.len().min(2)) {
                ("A/", rest) => format!("{a}/{rest}"),
                ("B/", rest) => format!("{b}/{rest}"),
                _ => word.replace("=W", &format!("={}", folders.home.join("w").display())),
            })
            .collect()
    }

    fn has(&self, option: &str) -> bool {
        self.line().split(' ').any(|word| word == option)
    }

    /// Returns true if no regular file may be copied, so that the receipt has no entry.
    fn may_copy_nothing(&self) -> bool {
        ["-l", "-s", "-n", "--update=none", "--update=none-fail"].iter().any(|option| self.has(option))
    }

    fn line(&self) -> String {
        let row: Vec<Option<usize>> = self.values.iter().copied().map(Some).collect();
        format!("{} {}", self.language.tool, self.language.words(&row))
    }

    /// Returns the differences.
    fn run(&self) -> Vec<String> {
        let [from, to] = [KINDS[self.values[1]], KINDS[self.values[2]]];
        let (Some(from), Some(to)) = (shared_dir(from), shared_dir(to)) else { return vec![] };
        let home = tempfile::tempdir().unwrap();
        let is_move = self.language.tool == "mv";
        let folders = ["gnu", "our"].map(|name| {
            let source = from.path().join(if is_move { name } else { "one" });
            let sink = to.path().join(format!("{name}-b"));
            if !source.exists() {
                fs::create_dir(&source).unwrap();
                plant::sources(&source);
            }
            fs::create_dir(&sink).unwrap();
            plant::sink(&sink);
            Folders { source, sink, home: home.path().join(name) }
        });
        folders.iter().for_each(|folders| fs::create_dir(&folders.home).unwrap());
        let mut wrong = Vec::new();
        let mut gnu = None;
        for run in ["first", "second"] {
            // A resumed job knows its own target; the system's tool would copy the tree into the
            // first copy.
            let is_new = self.language.operands[self.values[0]].ends_with("B/new");
            let is_finished_job = run == "second" && is_new && self.line().contains("--resume");
            if !is_finished_job {
                gnu = Some(self.gnu(&folders[0]));
            }
            let ended = self.ours(&folders[1]);
            let gnu_status = gnu.as_ref().map(|gnu: &RunResult| gnu.status).unwrap();
            let may_fail = self.has("--update=none-fail") && ended.status == Some(1);
            if ended.status != gnu_status && !may_fail {
                wrong.push(format!(
                    "{run}: {:?}, and not {gnu_status:?}: {}{}",
                    ended.status, ended.out, ended.err
                ));
            }
            if self.has("--json") {
                wrong.extend(
                    miscounts(&ended).into_iter().map(|what| format!("{run}: {what}: {}", ended.out)),
                );
            }
            for place in
                [|folders: &Folders| folders.sink.clone(), |folders: &Folders| folders.source.clone()]
            {
                let [gnu, ours] = folders.each_ref().map(|folders| Snapshot::take(&place(folders)).unwrap());
                // `g` is replaced by a link, or written to if it is the first name that a worker
                // meets.
                let may_be_either = |what: &String| {
                    what.starts_with("\"dir\": mtime") && self.line().ends_with("A/tree A/g B/dir")
                };
                let found = differences(&gnu, &ours).filter(|what| !may_be_either(what));
                wrong.extend(found.map(|what| format!("{run}: gnu against ours: {what}")));
                let is_stray = |path: &Path| {
                    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(".haul-"))
                };
                let strays = ours.entries().filter(|(path, _)| is_stray(path));
                wrong.extend(strays.map(|(path, _)| format!("{run}: {path:?} stays")));
            }
            if self.line().contains("--waybill=") && ended.status != Some(2) {
                let verified = haul(&folders[1].home, &["verify", "--cached", "w"]);
                // The second run may have copied into a directory that the first one made.
                let has_roots = verified.err.contains("different roots");
                let is_empty = self.may_copy_nothing() && verified.err.contains("has no entries");
                if (verified.status != Some(0) || !verified.out.is_empty()) && !has_roots && !is_empty {
                    wrong.push(format!("{run}: the receipt: {verified:?}"));
                }
            }
            if !wrong.is_empty() {
                wrong.push(format!("{run}: it said {}{}", ended.out, ended.err));
                break;
            }
        }
        wrong
    }

    fn ours(&self, folders: &Folders) -> RunResult {
        let operands = self.language.operands[self.values[0]];
        let (operands, input) = match operands.strip_prefix('|') {
            Some(lines) => ("--read-stdin", lines),
            None => (operands, ""),
        };
        let words = self.words(true, folders, operands);
        let [a, b] = folders.names();
        let input = input.replace('|', "\n").replace("A/", &format!("{a}/")).replace("B/", &format!("{b}/"));
        let mut command = Command::new(HAUL);
        command.arg(self.language.tool).args(words);
        in_folders(command, folders, &format!("{input}\n"))
    }

    fn gnu(&self, folders: &Folders) -> RunResult {
        let operands = self.language.operands[self.values[0]];
        let lines = operands.split('|').filter(|line| !line.is_empty());
        let runs = lines.map(|operands| {
            let mut command = Command::new(format!("/usr/bin/{}", self.language.tool));
            command.args(self.words(false, folders, operands));
            in_folders(command, folders, "")
        });
        // The worst of them.
        runs.max_by_key(|run| run.status).unwrap()
    }
}

/// Folders of one of both tools.
struct Folders {
    source: PathBuf,
    sink: PathBuf,
    /// The state of jobs and the waybill.
    home: PathBuf,
}

impl Folders {
    /// The names of source and sink in the folder of the source.
    fn names(&self) -> [&str; 2] {
        [self.source.file_name().unwrap().to_str().unwrap(), self.sink.to_str().unwrap()]
    }
}

fn in_folders(mut command: Command, folders: &Folders, input: &str) -> RunResult {
    command.env("XDG_STATE_HOME", folders.home.join("state"));
    ended(command, folders.source.parent().unwrap(), input)
}

#[derive(Debug)]
pub(super) struct RunResult {
    pub(super) status: Option<i32>,
    pub(super) out: String,
    pub(super) err: String,
}

pub(super) fn haul(dir: &Path, args: &[&str]) -> RunResult {
    let mut command = Command::new(HAUL);
    // Outside of the tree that is compared later.
    command.args(args).env("XDG_STATE_HOME", dir.join("../state"));
    ended(command, dir, "")
}

pub(super) fn ended(mut command: Command, dir: &Path, input: &str) -> RunResult {
    command.current_dir(dir).env("LC_ALL", "C.UTF-8");
    for name in ["VERSION_CONTROL", "SIMPLE_BACKUP_SUFFIX", "POSIXLY_CORRECT"] {
        command.env_remove(name);
    }
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that reads no list may have ended before it comes.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let ended = child.wait_with_output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    RunResult { status: ended.status.code(), out: text(ended.stdout), err: text(ended.stderr) }
}

/// Returns the counts of the summary that contradict the events.
fn miscounts(ended: &RunResult) -> Vec<&'static str> {
    let events: Result<Vec<Value>, _> = ended.out.lines().map(serde_json::from_str).collect();
    let Ok(events) = events else { return vec!["no JSON"] };
    let Some(summary) = events.last().filter(|last| last["event"] == "summary") else {
        return vec!["no summary"];
    };
    let of = |kind: &'static str| events.iter().filter(move |event| event["event"] == kind);
    let count = |name: &str| summary[name].as_u64().unwrap_or_default();
    let bytes: u64 = of("file").map(|event| event["bytes"].as_u64().unwrap()).sum();
    let checks = [
        (count("files") == of("file").count() as u64, "files"),
        // Files of an earlier run have no event in this one.
        (count("bytes") == bytes || count("bytes_kept") > 0, "bytes"),
        (count("bytes") + count("bytes_skipped") == count("bytes_met") || count("failures") > 0, "bytes met"),
        (count("failures") == of("error").count() as u64, "failures"),
        ((count("failures") > 0) == (ended.status != Some(0)), "status"),
    ];
    checks.into_iter().filter(|(is_right, _)| !is_right).map(|(_, what)| what).collect()
}

/// Returns the differences between two sinks, but for times that each copy got when it was made.
pub(crate) fn differences(gnu: &Snapshot, ours: &Snapshot) -> impl Iterator<Item = String> {
    const LATELY: i64 = 1_600_000_000;
    let is_lately = |tree: &Snapshot, path: &Path| tree.get(path).is_some_and(|entry| entry.mtime.0 > LATELY);
    let all = gnu.diff(ours, Facets::ARCHIVE, 20).into_iter();
    let reported = all.filter(|difference| {
        let path = &difference.path;
        !(difference.what.starts_with("mtime") && is_lately(gnu, path) && is_lately(ours, path))
    });
    reported.map(|difference| difference.to_string()).collect::<Vec<_>>().into_iter()
}

#[test]
fn each_pair_of_cp_options_matches_the_system() {
    each_row(&LANGUAGES[0], 1);
}

#[test]
fn each_pair_of_mv_options_matches_the_system() {
    each_row(&LANGUAGES[1], 2);
}

fn each_row(language: &Language, test: u64) {
    let rows = slice(language.rows(test), SLICE);
    let mut wrong = Vec::new();
    for row in &rows {
        let found = row.run();
        if !found.is_empty() {
            let [from, to] = [1, 2].map(|at| KINDS[row.values[at]]);
            wrong.push(format!("{from:?} to {to:?}: {}\n  {}", row.line(), found.join("\n  ")));
        }
    }
    assert_none(&wrong, rows.len());
}

/// Refused before anything is done. `mv` is left out: as the system's tool, it tries a rename
/// first.
#[test]
fn conflicting_option_pairs_are_refused_and_change_nothing() {
    let Some(room) = shared_dir(FsKind::Tmpfs) else { return };
    let mut wrong = Vec::new();
    let mut count = 0;
    {
        let language = &LANGUAGES[0];
        let folders = Folders {
            source: room.path().join(language.tool),
            sink: room.path().join(format!("{}-b", language.tool)),
            home: room.path().join(format!("{}-home", language.tool)),
        };
        for folder in [&folders.source, &folders.sink, &folders.home] {
            fs::create_dir(folder).unwrap();
        }
        plant::sources(&folders.source);
        plant::sink(&folders.sink);
        let before = [Snapshot::take(&folders.source).unwrap(), Snapshot::take(&folders.sink).unwrap()];
        let sizes = language.sizes();
        for (one, other) in
            (0..sizes.len()).flat_map(|one| (one + 1..sizes.len()).map(move |other| (one, other)))
        {
            for (a, b) in (0..sizes[one]).flat_map(|a| (0..sizes[other]).map(move |b| (a, b))) {
                let mut pair = vec![None; sizes.len()];
                (pair[one], pair[other]) = (Some(a), Some(b));
                if !is_refused(&language.words(&pair)) {
                    continue;
                }
                count += 1;
                let values = pair.iter().map(|value| value.unwrap_or(0)).collect();
                let row = Row { language, values };
                let ended = row.ours(&folders);
                let after =
                    [Snapshot::take(&folders.source).unwrap(), Snapshot::take(&folders.sink).unwrap()];
                let is_refused = ended.status == Some(1) && ended.out.is_empty() && !ended.err.is_empty();
                if !is_refused || after != before || fs::read_dir(&folders.home).unwrap().count() > 0 {
                    wrong.push(format!("{}: {ended:?}", row.line()));
                }
            }
        }
    }
    assert!(count > 60, "{count}");
    assert_none(&wrong, count);
}
