//! Pairs of options of transfers ([covering arrays](crate::matrix)), compared with the system's `cp
//! -a`.

use super::ends::{DIRECTIONS, Direction, transfer};
use super::{Fixture, RunResult};
use crate::matrix::copies::differences;
use crate::matrix::{assert_none, cover, generator, plant, slice};
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::snapshot::{Entry, Facets, Kind, Snapshot};
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// Rows in a slice.
const SLICE: usize = 12;

/// Operands beneath the source. A slash behind a directory means its contents.
const OPERANDS: [&str; 7] = ["tree", "tree/", "f g e s", "tree g", "lf", "lists", "tree f"];

/// State of the sink: without the directory, or with newer and older files of the same names.
const SINKS: [bool; 2] = [false, true];

const OPTIONS: [&[&str]; 14] = [
    &["", "--update", "--update=newer", "--update=missing", "-c", "--update=object"],
    &[
        "",
        "--verify=reread",
        "--verify=hybrid",
        "--verify=none",
        "--verify=sequential",
        "--verify=file-pipeline",
        "--verify=block-pipeline",
    ],
    &["", "--granularity=object", "--granularity=file"],
    &["", "-a md5", "-a crc32c", "-a sha256", "-a xxh3-128"],
    &["--object-size=64K", ""],
    &["", "--inplace"],
    &["", "--delete"],
    &[
        "",
        "--numeric-ids",
        "--no-owner",
        "--no-mode",
        "--no-times",
        "--no-xattrs",
        "--no-acls",
        "--no-hard-links",
        "--no-specials",
    ],
    &["", "--inside-ssh", "--streams=1", "--streams=3", "--plain", "--buffers=8M"],
    &["", "--compress", "--compress=zstd", "--compress=zstd:-3"],
    &["", "--sync=object", "--sync=none", "--log-mechanism=file --log-encoding=char", "--verify-resume"],
    &["", "--waybill=W", "--waybill-there=W2", "--waybill=W --waybill-there=W2"],
    &["", "-q", "-v", "--json"],
    &["", "-n", "--exclude=deep", "--exclude=*.none --include=*"],
];

/// Operands, state of the sink, way and both file systems come before the options.
const FIRST: usize = 5;

fn sizes() -> Vec<usize> {
    let kinds = FsKind::ALL.len();
    [OPERANDS.len(), SINKS.len(), DIRECTIONS.len(), kinds, kinds]
        .into_iter()
        .chain(OPTIONS.iter().map(|values| values.len()))
        .collect()
}

fn words(row: &[Option<usize>]) -> String {
    let options = OPTIONS.iter().zip(&row[FIRST..]);
    let words = options.filter_map(|(values, value)| Some(values[(*value)?]));
    words.filter(|words| !words.is_empty()).collect::<Vec<_>>().join(" ")
}

/// Returns true if the options contradict each other.
fn is_refused(words: &str) -> bool {
    let has = |word: &str| words.split(' ').any(|one| one == word);
    let by_file = has("--verify=sequential") || has("--verify=file-pipeline");
    let by_object = has("--verify=reread") || has("--verify=hybrid") || has("--verify=block-pipeline");
    by_file && has("--granularity=object") || by_object && has("--granularity=file")
}

struct Row {
    values: Vec<usize>,
}

impl Row {
    fn words(&self) -> String {
        words(&self.values.iter().copied().map(Some).collect::<Vec<_>>())
    }

    fn has(&self, word: &str) -> bool {
        self.words().split(' ').any(|one| one == word)
    }

    fn line(&self) -> String {
        let [operands, sink, direction, from, to] = [0, 1, 2, 3, 4].map(|at| self.values[at]);
        let (direction, kinds) = (DIRECTIONS[direction], FsKind::ALL);
        format!(
            "{:?} to {:?}: {direction:?} {} of {:?}, sink planted: {}",
            kinds[from],
            kinds[to],
            self.words(),
            OPERANDS[operands],
            SINKS[sink]
        )
    }

    fn run(&self) -> Vec<String> {
        let kinds = FsKind::ALL;
        let rooms = [kinds[self.values[3]], kinds[self.values[4]]].map(shared_dir);
        let [Some(from), Some(to)] = rooms else { return vec![] };
        let fixture = Fixture::new();
        let source = from.path().join("source");
        fs::create_dir(&source).unwrap();
        plant::sources(&source);
        let [expected, sink] = ["gnu", "our"].map(|name| {
            let place = to.path().join(name);
            fs::create_dir(&place).unwrap();
            if SINKS[self.values[1]] {
                plant::sink(&place);
            }
            place.join("dir")
        });
        let before = self.has("-n").then(|| look(&sink));
        self.expect(&source, &expected);
        let mut wrong = Vec::new();
        let mut first = None;
        for run in ["first", "second"] {
            let ended = self.transfer(&fixture, &source, &sink);
            if ended.status != Some(0) {
                wrong.push(format!("{run}: {:?}", ended.status));
            }
            if self.has("-q") && ended.err.contains("transferred") {
                wrong.push(format!("{run}: not quiet"));
            }
            if self.has("--json") {
                let total = (run == "first" && before.is_none() && !SINKS[self.values[1]])
                    .then(|| bytes(&Snapshot::take(&expected).unwrap(), self.has("--no-hard-links")));
                let found = miscounts(&ended, total);
                wrong.extend(found.into_iter().map(|what| format!("{run}: {what} miscounted")));
            }
            if let Some(before) = &before {
                if look(&sink) != *before || fixture.path("w").exists() || fixture.path("there/w2").exists() {
                    wrong.push(format!("{run}: the dry run changed something"));
                }
            } else {
                wrong.extend(
                    self.differences(&expected, &sink).into_iter().map(|what| format!("{run}: {what}")),
                );
                self.verify(&fixture, &sink, &mut wrong);
            }
            let now = look(&sink);
            if let (Some(first), Some(now)) = (&first, &now) {
                let facets = Facets::ARCHIVE;
                let facets =
                    Facets { mtime: !self.has("--no-times"), dir_mtime: !self.has("--no-times"), ..facets };
                let changed = Snapshot::diff(first, now, facets, 5);
                let changed = changed.iter().filter(|one| !one.path.as_os_str().is_empty());
                wrong.extend(changed.map(|what| format!("the second run changed {what}")));
            }
            first = now;
            let strays = Command::new("find").arg(to.path()).args(["-name", ".haul-*"]).output().unwrap();
            if !strays.stdout.is_empty() {
                wrong.push(format!("{run}: {}", String::from_utf8_lossy(&strays.stdout)));
            }
            if !wrong.is_empty() {
                wrong.push(format!("{run}: it said {}{}", ended.out, ended.err));
                break;
            }
        }
        wrong
    }

    /// Runs the command.
    fn transfer(&self, fixture: &Fixture, source: &Path, sink: &Path) -> RunResult {
        let [source, sink] = [source, sink].map(|path| path.to_str().unwrap());
        let direction = DIRECTIONS[self.values[2]];
        let host =
            |path: &str, is_far: bool| if is_far { format!("localhost:{path}") } else { path.to_owned() };
        let sources = match OPERANDS[self.values[0]] {
            "lists" => {
                let names = ["f", "tree", "lf"]
                    .map(|name| host(&format!("{source}/{name}"), direction == Direction::Fetch));
                fs::write(fixture.path("list"), names.join("\0")).unwrap();
                vec![format!("--files-from={}", fixture.path("list").display()), "-0".to_owned()]
            }
            operands => {
                let named = |name: &str| host(&format!("{source}/{name}"), direction == Direction::Fetch);
                operands.split(' ').map(named).collect()
            }
        };
        let words = self.words();
        let words = words.split(' ').filter(|word| !word.is_empty());
        let mut args: Vec<String> = words.map(|word| word.replace("=W", "=w")).collect();
        args.extend(sources);
        args.extend(["--outside-links", "--system-xattrs"].map(String::from));
        if direction == Direction::Send {
            args.push("--setuid".to_owned());
        }
        if !self.has("--no-specials") {
            args.push("--specials".to_owned());
        }
        args.push(host(sink, direction == Direction::Send));
        let command = if direction == Direction::Send { "send" } else { "fetch" };
        fixture.over_ssh(command, &args.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Makes the expected sink.
    fn expect(&self, source: &Path, expected: &Path) {
        let operands = match OPERANDS[self.values[0]] {
            "lists" => "f tree lf",
            "tree/" => "tree/.",
            operands => operands,
        };
        fs::create_dir_all(expected).unwrap();
        let rule = if self.has("--update=newer") {
            "-u"
        } else if self.has("--update=missing") {
            "-n"
        } else {
            "--remove-destination"
        };
        let mut copy = Command::new("/usr/bin/cp");
        copy.args(["-a", rule]).args(operands.split(' ').map(|name| source.join(name))).arg(expected);
        assert!(copy.status().unwrap().success());
        let below = if operands == "tree/." { expected.to_owned() } else { expected.join("tree") };
        let goes = |name: &str| operands.split(' ').any(|operand| operand == name);
        if goes("tree") || goes("tree/.") {
            if self.has("--no-specials") {
                remove(&below.join("pipe"));
            }
            if self.has("--exclude=deep") {
                remove(&below.join("sub/deep"));
            }
            for entry in fs::read_dir(&below).unwrap().filter(|_| self.has("--delete")) {
                let entry = entry.unwrap();
                if fs::symlink_metadata(source.join("tree").join(entry.file_name())).is_err() {
                    remove(&entry.path());
                }
            }
        }
        // Set-id bits are kept only by request, and only with the owner.
        if DIRECTIONS[self.values[2]] == Direction::Fetch || self.has("--no-owner") {
            for path in [expected.join("g"), below.join("g")] {
                let Ok(facts) = fs::symlink_metadata(&path) else { continue };
                fs::set_permissions(&path, PermissionsExt::from_mode(facts.mode() & 0o1777)).unwrap();
            }
        }
    }

    /// Returns the differences between the sink and the expected one, but for the directory itself,
    /// which is not sent.
    fn differences(&self, expected: &Path, sink: &Path) -> Vec<String> {
        let (Some(expected), Some(sink)) = (look(expected), look(sink)) else {
            return vec!["there is no sink".to_owned()];
        };
        let is_kept = |what: &str| match what.split(' ').next().unwrap_or_default() {
            word if word.starts_with("mtime") => !self.has("--no-times"),
            word if word.starts_with("mode") => !self.has("--no-mode"),
            word if word.starts_with("owner") => !self.has("--no-owner"),
            word if word.starts_with("xattr") => !self.has("--no-xattrs"),
            word if word.starts_with("same") || word.starts_with("link") => !self.has("--no-hard-links"),
            _ => true,
        };
        let all = differences(&expected, &sink);
        let all = all.filter(|line| !line.starts_with("\"\": "));
        all.filter(|line| is_kept(line.split_once("\": ").map_or(line.as_str(), |(_, what)| what))).collect()
    }

    /// Verifies the receipts.
    fn verify(&self, fixture: &Fixture, sink: &Path, wrong: &mut Vec<String>) {
        let words = self.words();
        for (option, waybill) in [("--waybill=W", "w"), ("--waybill-there=W2", "there/w2")] {
            if !words.contains(option) {
                continue;
            }
            let verified = fixture.run(&["verify", "--cached", waybill, sink.to_str().unwrap()]);
            if verified.status != Some(0) || !verified.out.is_empty() {
                wrong.push(format!("the receipt {waybill}: {verified:?}"));
            }
        }
    }
}

/// Returns the counts of the summary that contradict the events, or the `total` that was sent.
fn miscounts(ended: &RunResult, total: Option<u64>) -> Vec<&'static str> {
    let events: Result<Vec<Value>, _> = ended.out.lines().map(serde_json::from_str).collect();
    let Ok(events) = events else { return vec!["no JSON"] };
    let Some(summary) = events.last().filter(|last| last["event"] == "summary") else {
        return vec!["no summary"];
    };
    let reported = |word: &str| events.iter().filter(|event| event["result"] == word).count() as u64;
    let checks = [
        (summary["sent"] == reported("sent"), "sent"),
        (summary["same"] == reported("the same"), "same"),
        (summary["failed"] == reported("failed"), "failed"),
        (summary["deleted"] == reported("deleted") || reported("deleted") == 0, "deleted"),
        (total.is_none_or(|total| summary["bytes"] == total), "bytes"),
    ];
    checks.into_iter().filter(|(is_right, _)| !is_right).map(|(_, what)| what).collect()
}

/// Bytes of the files of a tree: of each name, or of each file.
fn bytes(tree: &Snapshot, each_name: bool) -> u64 {
    let is_counted =
        |path: &Path, entry: &Entry| each_name || entry.same_as.as_ref().is_none_or(|first| *first == *path);
    let files = tree.entries().filter(|(path, entry)| is_counted(path, entry));
    let len = |kind: &Kind| if let Kind::File { len, .. } = kind { *len } else { 0 };
    files.map(|(_, entry)| len(&entry.kind)).sum()
}

/// Removes a name, and gives its directory the time that it had.
fn remove(path: &Path) {
    let parent = fs::File::open(path.parent().unwrap()).unwrap();
    let time = parent.metadata().unwrap().modified().unwrap();
    let is_dir = path.is_dir() && !path.is_symlink();
    if is_dir { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
    parent.set_modified(time).unwrap();
}

fn look(place: &Path) -> Option<Snapshot> {
    place.exists().then(|| Snapshot::take(place).unwrap())
}

#[test]
fn each_pair_of_transfer_options_transfers_the_tree() {
    // The system's tool replaces a newer file by a link to the other name of the file.
    let is_replaced = |row: &[Option<usize>]| {
        row[0].is_some_and(|at| OPERANDS[at] == "tree g") && words(row).contains("--update=newer")
    };
    let may = |row: &[Option<usize>]| !(is_refused(&words(row)) || is_replaced(row));
    let rows: Vec<Row> =
        cover::rows(&mut generator(3), &sizes(), &may).into_iter().map(|values| Row { values }).collect();
    let rows = slice(rows, SLICE);
    let mut wrong = Vec::new();
    for row in &rows {
        let found = row.run();
        if !found.is_empty() {
            wrong.push(format!("{}\n  {}", row.line(), found.join("\n  ")));
        }
    }
    assert_none(&wrong, rows.len());
}

#[test]
fn conflicting_transfer_options_are_refused_and_change_nothing() {
    let fixture = Fixture::new();
    fixture.tree("data");
    let into = fixture.path("into");
    for direction in DIRECTIONS {
        for words in [
            "--verify=sequential --granularity=object",
            "--verify=file-pipeline --granularity=object",
            "--verify=block-pipeline --granularity=file",
            "--verify=reread --granularity=file",
            "--verify=hybrid --granularity=file",
            "-c --update",
            "--numeric-ids --no-owner",
            "-q -v",
            "--inside-ssh --ports=50000-50010",
        ] {
            let options: Vec<&str> = words.split(' ').collect();
            let ended = transfer(&fixture, direction, &options, &fixture.path("data"), &into);
            let is_refused = ended.status == Some(2) && ended.out.is_empty() && !ended.err.is_empty();
            assert!(is_refused && !into.exists(), "{direction:?} {words}: {ended:?}");
        }
    }
}
