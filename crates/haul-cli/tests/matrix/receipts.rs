//! `haul sum`, `verify` and `repair` one after the other: the waybill verifies, damage is found,
//! and a replica repairs it.

use super::copies::{RunResult, ended, haul};
use super::{assert_none, cover, generator, plant, slice};
use crate::faults::fixture::HAUL;
use crate::waybill::{rot, twin};
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::snapshot::{Facets, Snapshot};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::Command;

/// Rows in a slice.
const SLICE: usize = 12;

/// Operands of `haul sum`, in the folder `data`; with `|` names on standard input.
const OPERANDS: [&str; 5] =
    ["-r data", "data/f data/g data/e data/s", "-r data/tree data/f", "|data/f\ndata/s\n", "-r ."];

const SUM: [&[&str]; 7] = [
    &["", "-a md5,sha256", "-a crc32c", "-a blake3", "-a adler32,xxh3-128,sha1"],
    &["--object-size=64K", "", "--object-size=128K"],
    &["", "--leaf", "--leaf=4K", "--leaf=64K"],
    &["", "--direct-read", "--fadvise-read", "--buffer-size=64K"],
    &["", "--threads=1", "--threads=3"],
    &["", "--store=xattr", "--store=tree", "--store=waybill"],
    &["", "--json", "--tag", "--base64", "-z", "--untagged"],
];

const VERIFY: [&[&str]; 6] = [
    &["", "--cached"],
    &["", "--locate"],
    &["", "--sample=100% --seed=7"],
    &["", "--resume=S"],
    &["", "--threads=1", "--threads=3", "--bwlimit=1G"],
    &["", "-v", "-q", "--json", "-v --json", "--progress"],
];

/// ROOT on the command line: none, the root itself, or the first component of all names.
const ROOTS: [&str; 3] = ["", "ROOT", "ROOT/data"];

const DAMAGE: [&str; 6] = ["a flip", "zeros", "a hole", "truncated", "gone", "other bytes and time"];

const REPAIR: [&[&str]; 6] = [
    &["", "--in-place"],
    &["", "--modified --keep-damaged=K", "--keep-damaged=K"],
    &["", "--dry-run"],
    &["", "--cached"],
    &["", "--threads=1", "--threads=3", "--bwlimit=1G"],
    &["", "-q", "--json", "--progress"],
];

/// Operands, the file system, the root and the damage.
const FIRST: usize = 4;

fn sizes() -> Vec<usize> {
    let first = [OPERANDS.len(), FsKind::ALL.len(), ROOTS.len(), DAMAGE.len()];
    first.into_iter().chain(SUM.iter().chain(&VERIFY).chain(&REPAIR).map(|values| values.len())).collect()
}

fn may(row: &[Option<usize>]) -> bool {
    let root = row[2].map(|at| ROOTS[at]);
    // Of names without a first component in common there is none.
    let has_no_component = row[0].is_some_and(|at| OPERANDS[at] == "-r .");
    !(has_no_component && root == Some("ROOT/data"))
}

struct Row {
    values: Vec<usize>,
}

impl Row {
    fn words(&self, from: usize, options: &[&[&'static str]]) -> Vec<&'static str> {
        let words = options.iter().zip(&self.values[from..]).map(|(values, &value)| values[value]);
        words.flat_map(|words| words.split(' ')).filter(|word| !word.is_empty()).collect()
    }

    fn sum(&self) -> Vec<&'static str> {
        self.words(FIRST, &SUM)
    }

    fn verify(&self) -> Vec<&'static str> {
        self.words(FIRST + SUM.len(), &VERIFY)
    }

    fn repair(&self) -> Vec<&'static str> {
        self.words(FIRST + SUM.len() + VERIFY.len(), &REPAIR)
    }

    fn line(&self) -> String {
        let [operands, kind, root, damage] = [0, 1, 2, 3].map(|at| self.values[at]);
        format!(
            "{:?}: sum {} {}; root {:?}; verify {}; {}; repair {}",
            FsKind::ALL[kind],
            self.sum().join(" "),
            OPERANDS[operands],
            ROOTS[root],
            self.verify().join(" "),
            DAMAGE[damage],
            self.repair().join(" ")
        )
    }

    /// The damaged file.
    fn victim(&self) -> &'static str {
        if OPERANDS[self.values[0]].starts_with("-r") { "data/tree/sub/x" } else { "data/f" }
    }

    fn run(&self) -> Vec<String> {
        let Some(room) = shared_dir(FsKind::ALL[self.values[1]]) else { return vec![] };
        let home = room.path();
        for place in ["root/data", "r0", "r1/data"] {
            fs::create_dir_all(home.join(place)).unwrap();
        }
        let root = home.join("root");
        plant::sources(&root.join("data"));
        let mut wrong = Vec::new();
        self.summed(home, &mut wrong);
        let copied = Command::new("cp").arg("-a").args([root.join("data"), home.join("r1")]).status();
        assert!(copied.unwrap().success());
        self.verified(home, "the verification", 0, &mut wrong);
        let pristine = Snapshot::take(&root).unwrap();
        self.damage(&root.join(self.victim()));
        let damaged = Snapshot::take(&root).unwrap();
        self.verified(home, "that of the damaged tree", 1, &mut wrong);
        self.repaired(home, &pristine, &damaged, &mut wrong);
        wrong
    }

    fn summed(&self, home: &Path, wrong: &mut Vec<String>) {
        let operands = OPERANDS[self.values[0]];
        let (operands, input) =
            operands.strip_prefix('|').map_or((operands, ""), |list| ("--files-from=-", list));
        let mut command = Command::new(HAUL);
        command
            .env("XDG_STATE_HOME", home.join("state"))
            .args(["sum", "--waybill=../w"])
            .args(self.sum())
            .args(operands.split(' '));
        let RunResult { status, out, err } = ended(command, &home.join("root"), input);
        if status != Some(0) || !err.is_empty() || out.is_empty() {
            wrong.push(format!("the sum: {status:?} {out}{err}"));
        }
        if self.sum().contains(&"--json") {
            let claimed = |line: &str| -> Option<bool> {
                let event: Value = serde_json::from_str(line).ok()?;
                let path = home.join("root").join(event["path"].as_str()?);
                Some(event["size"].as_u64()? == fs::metadata(path).ok()?.len())
            };
            let is_right = out.lines().all(|line| claimed(line) == Some(true));
            let sections = twin::read(&fs::read(home.join("w")).unwrap()).unwrap();
            if !is_right || out.lines().count() != sections[0].entries.len() {
                wrong.push(format!("what it tells of files: {out}"));
            }
        }
        for (algorithm, tool) in [("md5", "md5sum"), ("sha256", "sha256sum")] {
            if self.sum().contains(&"md5,sha256") {
                let exported = haul(home, &["waybill", "export", "-a", algorithm, "w"]);
                let mut check = Command::new(tool);
                check.args(["-c", "--quiet"]);
                let checked = ended(check, &home.join("root"), &exported.out);
                if (checked.status, exported.status) != (Some(0), Some(0)) {
                    wrong.push(format!("{tool}: {exported:?} {checked:?}"));
                }
            }
        }
    }

    /// Verifies, which must end with this status.
    fn verified(&self, home: &Path, what: &str, status: i32, wrong: &mut Vec<String>) {
        let mut args = vec!["verify", "../w"];
        args.extend(self.root_word());
        args.extend(
            self.verify().iter().map(|&word| if word == "--resume=S" { "--resume=../s" } else { word }),
        );
        let ended = haul(&home.join("root"), &args);
        let is_named = ended.out.contains("f\"")
            || ended.out.contains("f'")
            || ended.out.contains("x'")
            || ended.out.contains("x\"");
        if ended.status != Some(status) || (status == 1 && !is_named) || home.join("s").exists() {
            wrong.push(format!("{what}: {ended:?}"));
        }
    }

    fn root_word(&self) -> Option<&'static str> {
        [None, Some("."), Some("./data")][self.values[2]]
    }

    fn damage(&self, victim: &Path) {
        match DAMAGE[self.values[3]] {
            "a flip" => rot(victim, |bytes| bytes[70_000] ^= 1),
            "zeros" => rot(victim, |bytes| bytes[10..100_000].fill(0)),
            "a hole" => rot(victim, |bytes| {
                let len = bytes.len();
                bytes.truncate(3);
                bytes.resize(len, 0);
            }),
            "truncated" => rot(victim, |bytes| bytes.truncate(65_536)),
            "gone" => fs::remove_file(victim).unwrap(),
            _ => fs::write(victim, vec![1; fs::metadata(victim).unwrap().len() as usize]).unwrap(),
        }
    }

    fn repaired(&self, home: &Path, pristine: &Snapshot, damaged: &Snapshot, wrong: &mut Vec<String>) {
        let mut args = vec!["repair", "../w"];
        args.extend(self.root_word());
        args.extend(["--from=../r0", "--from=../r1"]);
        args.extend(self.repair().iter().map(|word| match *word {
            "--keep-damaged=K" => "--keep-damaged=../k",
            word => word,
        }));
        let has = |word: &str| self.repair().contains(&word);
        let is_meant = matches!(DAMAGE[self.values[3]], "truncated" | "other bytes and time");
        // A modified file of several names is replaced only in place.
        let has_names = self.victim() == "data/tree/sub/x";
        let is_left = is_meant && (!has("--modified") || (has_names && !has("--in-place")));
        let ended = haul(&home.join("root"), &args);
        let now = Snapshot::take(&home.join("root")).unwrap();
        if ended.status != Some(i32::from(is_left)) {
            wrong.push(format!("the repair: {ended:?}"));
        }
        let (expected, status) = if is_left || has("--dry-run") { (damaged, 1) } else { (pristine, 0) };
        // A modified file keeps its time, and a missing one gets an inode of its own.
        let facets = Facets {
            mtime: !is_meant,
            dir_mtime: false,
            links: false,
            xattrs: false,
            owner: false,
            ..Facets::ARCHIVE
        };
        let differs = expected.diff(&now, facets, 5);
        if !differs.is_empty() {
            wrong.push(format!("{differs:?} after {ended:?}"));
        }
        let kept = fs::read_dir(home.join("k")).is_ok_and(|mut names| names.next().is_some());
        let is_kept = status == 0
            && DAMAGE[self.values[3]] != "gone"
            && self.repair().iter().any(|word| word.starts_with("--keep"));
        if kept != is_kept {
            wrong.push(format!("kept: {kept}, {ended:?}"));
        }
        let strays = now.entries().filter(|(path, _)| path.to_string_lossy().contains(".haul-"));
        wrong.extend(strays.map(|(path, _)| format!("{path:?} stays")));
        self.verified(home, "the last verification", status, wrong);
    }
}

#[test]
fn each_pair_of_sum_verify_and_repair_options_works() {
    let rows: Vec<Row> =
        cover::rows(&mut generator(4), &sizes(), &may).into_iter().map(|values| Row { values }).collect();
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
