//! Random trees, damage and half-broken replicas: output and effects of `haul verify` and `haul
//! repair`, compared with a model.
//!
//! The model has the pristine tree, reads the files itself and computes which entries of the
//! waybill are damaged, in which ranges, and which of them the replicas can prove. Each case also
//! checks that a repair writes neither to an entry that verifies, nor to a replica, nor to a name
//! that the waybill lacks.

mod damage;
mod model;
mod world;

use super::haul;
use crate::differential::Wanted;
use base64::Engine;
use haul_lab::mounts::{FsKind, shared_dir};
use haul_lab::random::{Random, soak_seed};
use haul_lab::random_tree::RandomTree;
use model::{ExpectedOutcome, Options};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};
use world::{Claim, EntryContent, Found, Node, Range, Verdict};

const SEED: u64 = 20_261_125;

/// Cases of a run, and of a soak run.
const CASES: [u64; 2] = [16, 50];

/// File systems of the trees: without and with shared extents.
const FILE_SYSTEMS: [FsKind; 4] = [FsKind::Tmpfs, FsKind::Tmpfs, FsKind::Xfs, FsKind::Btrfs];

#[test]
fn random_damage_is_detected_and_repaired_as_in_the_model() {
    let cases = CASES[usize::from(soak_seed().is_some())];
    let Wanted { seed, cases } = Wanted { seed: SEED, cases }.or_as_the_environment_says();
    let mut wrong = Vec::new();
    for number in 0..cases {
        let kind = FILE_SYSTEMS[number as usize % FILE_SYSTEMS.len()];
        let Some(room) = shared_dir(kind) else { continue };
        let mut random = Random::for_part(seed, number);
        let mut case = Case::drawn(room.path(), &mut random);
        case.run();
        if !case.wrong.is_empty() {
            let told = case.wrong.join("\n  ");
            wrong.push(format!("case {number} on {kind:?}: {:#?}\n  {told}", case.told));
        }
    }
    assert!(wrong.is_empty(), "{} of {cases} cases of seed {seed} differ\n{}", wrong.len(), wrong.join("\n"));
}

/// The directory `root` with the damaged tree `data`, the pristine tree `src` beside it, the
/// waybill `w` and the replicas `r0`, `r1`, ...
struct Case<'a> {
    home: &'a Path,
    random: &'a mut Random,
    claims: Vec<Claim>,
    replicas: Vec<String>,
    options: Options,
    /// Damage and commands of the case, for messages.
    told: Vec<String>,
    /// Differences from the model.
    wrong: Vec<String>,
}

impl<'a> Case<'a> {
    fn drawn(home: &'a Path, random: &'a mut Random) -> Case<'a> {
        let tree = RandomTree {
            entries: 6 + random.index(20),
            file_bytes_max: 200_000,
            edges: vec![0, 1, 1024, 4096, 65_536, 131_072],
            depth_max: 3,
            odd_names: random.chance(50),
            ..RandomTree::default()
        };
        tree.build(&home.join("src"), random.next_u64()).unwrap();
        fs::create_dir(home.join("root")).unwrap();
        let mut case = Case {
            home,
            random,
            claims: vec![],
            replicas: vec![],
            options: Options::default(),
            told: vec![],
            wrong: vec![],
        };
        let leaf = ["", "--leaf", "--leaf=4K", "--leaf=16K"][case.random.index(4)];
        let by_copy = case.random.chance(60);
        let (dir, words) = match by_copy {
            true => ("", "cp -a --split-size=64K --waybill w src root/data"),
            false => ("root", "sum -r -a blake3,md5 --object-size=64K --waybill ../w data"),
        };
        if !by_copy {
            case.copy("root");
        }
        let mut words: Vec<&str> = words.split(' ').collect();
        words.splice(1..1, Some(leaf).filter(|leaf| !leaf.is_empty()));
        case.told.push(words.join(" "));
        let made = haul(&home.join(dir), &words).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        case.claims = world::claims(&home.join("w"), &home.join("src"));
        if case.random.chance(30) {
            case.append(by_copy);
        }
        for number in 0..=case.random.index(3) {
            let name = format!("r{number}");
            fs::create_dir(home.join(&name)).unwrap();
            case.copy(&name);
            case.replicas.push(name);
        }
        case.damage();
        case.options = Options { modified: case.random.chance(30), in_place: case.random.chance(30) };
        case
    }

    /// Changes some files and appends a section about them to the waybill. In a waybill of `haul
    /// cp` they may have further names.
    fn append(&mut self, by_copy: bool) {
        let trees = ["src", "root/data"].map(|tree| self.home.join(tree));
        let is_changed = |random: &mut Random, claim: &&Claim| {
            let facts = fs::metadata(world::in_tree(&trees[0], &claim.path));
            matches!(claim.what, EntryContent::File(_))
                && (by_copy || facts.unwrap().nlink() == 1)
                && random.chance(30)
        };
        let random = &mut *self.random;
        let paths: Vec<PathBuf> = self
            .claims
            .iter()
            .filter(|claim| is_changed(random, claim))
            .map(|claim| claim.path.clone())
            .collect();
        for path in &paths {
            let mut bytes = vec![0; self.random.index(200_000)];
            self.random.fill(&mut bytes);
            for tree in &trees {
                let place = world::in_tree(tree, path);
                fs::write(&place, &bytes).unwrap();
                let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
                fs::File::options().write(true).open(place).unwrap().set_modified(time).unwrap();
            }
        }
        if paths.is_empty() {
            return;
        }
        let leaf = ["--object-size=64K", "--leaf=8K"][self.random.index(2)];
        let mut sum = haul(&self.home.join("root"), &["sum", leaf, "--waybill", "../w", "--"]);
        let made = sum.args(&paths).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        self.told.push(format!("sum {leaf} of {paths:?}"));
        self.claims = world::claims(&self.home.join("w"), &trees[0]);
    }

    /// Copies the pristine tree into a directory, by the system's tool.
    fn copy(&self, into: &str) {
        let into = self.home.join(into).join("data");
        let copied = Command::new("cp").arg("-a").arg(self.home.join("src")).arg(into).status().unwrap();
        assert!(copied.success());
    }

    fn damage(&mut self) {
        let replicas = self.replicas.clone();
        for place in std::iter::once("root").chain(replicas.iter().map(String::as_str)) {
            let most = if place == "root" { 8 } else { [0, 3, 12][self.random.index(3)] };
            for _ in 0..self.random.index(most + 1) + usize::from(place == "root") {
                let tree = self.home.join(place).join("data");
                let done = damage::hurt(self.random, &tree, Path::new("../../src"));
                self.told.extend(done.map(|done| format!("{place}: {done}")));
            }
        }
    }

    fn haul<S: AsRef<str>>(&self, args: &[S]) -> (Option<i32>, String, String) {
        let args: Vec<&str> = args.iter().map(AsRef::as_ref).collect();
        let ended = haul(self.home, &args).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (ended.status.code(), text(ended.stdout), text(ended.stderr))
    }

    fn run(&mut self) {
        let root = self.home.join("root");
        let verdicts = self.verify();
        let expected_outcomes =
            model::expected_outcomes(&self.claims, &verdicts, self.home, &self.replicas, self.options);
        let before = [world::nodes(&root), self.others()];
        let kept: Vec<Option<Vec<u8>>> =
            self.claims.iter().map(|claim| world::bytes_at(&root, &claim.path)).collect();
        let mut words: Vec<String> = ["repair", "--json", "w", "root"].map(String::from).into();
        words.extend(self.replicas.iter().flat_map(|name| ["--from".to_owned(), name.clone()]));
        if self.options.in_place {
            words.push("--in-place".to_owned());
        }
        if self.options.modified {
            words.extend(["--modified", "--keep-damaged", "kept"].map(String::from));
        }
        if self.random.chance(80) {
            words.push("--cached".to_owned());
        }
        self.told.push(words.join(" "));
        let is_none_there = !verdicts.iter().any(|verdict| *verdict != Verdict::Missing);
        if is_none_there {
            // For `haul repair` this is a wrong root.
            let (status, out, err) = self.haul(&words);
            if status != Some(2) || !out.is_empty() || world::nodes(&root) != before[0] {
                self.wrong.push(format!("none of the names is there: {status:?} {out} {err}"));
            }
            return;
        }
        let dry = self.haul(&[&words[..], &["--dry-run".to_owned()]].concat());
        if [world::nodes(&root), self.others()] != before {
            self.wrong.push("the dry run changed something".to_owned());
        }
        let (status, out, err) = self.haul(&words);
        let results = self.results(&out, &verdicts, &expected_outcomes);
        self.compare_dry_run(&dry.1, &out, &expected_outcomes);
        let left = results.values().filter(|result| result.word == "left").count() as u64;
        let ends = Some(i32::from(left > 0));
        // A dry run cannot know the effect of one repair on the next entry.
        let is_clear = results.keys().all(|number| expected_outcomes[*number] != ExpectedOutcome::Any);
        if status != ends || (is_clear && dry.0 != ends) || !err.is_empty() {
            self.wrong.push(format!("status {status:?}, dry {:?}, {left} left: {err}", dry.0));
        }
        self.compare_summary(&out, &verdicts, &results);
        self.compare_kept(&results, &verdicts, &kept);
        self.compare_nodes(&before[0], &results);
        if self.others() != before[1] {
            self.wrong.push("a replica or the pristine tree was changed".to_owned());
        }
        self.told.push("after the repair".to_owned());
        let after = self.verify();
        for (number, verdict) in after.iter().enumerate() {
            let claim = &self.claims[number];
            let is_right = match results.get(&number).map(|result| &*result.word) {
                Some("left") => *verdict != Verdict::Intact,
                Some(_) => *verdict == Verdict::Intact,
                None => *verdict == verdicts[number],
            };
            if !is_right {
                self.wrong.push(format!(
                    "{:?}: {:?} is {verdict:?} after {:?}",
                    claim.path,
                    verdicts[number],
                    results.get(&number)
                ));
            }
        }
        // The same replicas cannot repair more the second time.
        let before = world::nodes(&root);
        let (again, out, _) = self.haul(&words);
        let results = self.results(&out, &after, &vec![ExpectedOutcome::Any; after.len()]);
        let is_done = |result: &Outcome| matches!(&*result.word, "repaired" | "made" | "finished");
        if again != status || results.values().any(is_done) || world::nodes(&root) != before {
            self.wrong.push(format!("the second repair, {again:?} after {status:?}: {out}"));
        }
    }

    /// All but the tree that is repaired.
    fn others(&self) -> BTreeMap<PathBuf, Node> {
        let places = self.replicas.iter().map(String::as_str).chain(["src"]);
        places
            .flat_map(|place| {
                let nodes = world::nodes(&self.home.join(place));
                nodes.into_iter().map(move |(path, node)| (Path::new(place).join(path), node))
            })
            .collect()
    }

    /// Verifies, and compares the output with the model. Returns the model's verdicts.
    fn verify(&mut self) -> Vec<Verdict> {
        let root = self.home.join("root");
        let finely = self.random.chance(50);
        let verdicts: Vec<Verdict> =
            self.claims.iter().map(|claim| Verdict::of(claim, &root, finely)).collect();
        let mut words = vec!["verify", "--json", "-v", "w", "root"];
        words.extend(finely.then_some("--locate"));
        words.extend(self.random.chance(80).then_some("--cached"));
        words.extend([None, Some("--threads=1"), Some("--threads=3")][self.random.index(3)]);
        self.told.push(words.join(" "));
        let (status, out, err) = self.haul(&words);
        let mut told = Vec::new();
        for event in events(&out).filter(|event| event["event"] == "entry") {
            let damage = event["damage"].as_array().map_or(Vec::new(), |all| all.iter().map(range).collect());
            told.push((path_of(&event), event["verdict"].as_str().unwrap().to_owned(), damage));
        }
        let expected: Vec<(PathBuf, String, Vec<Range>)> = self
            .claims
            .iter()
            .zip(&verdicts)
            .map(|(claim, verdict)| {
                (claim.path.clone(), verdict.word().to_owned(), verdict.damage().to_vec())
            })
            .collect();
        for one in told.iter().filter(|one| !expected.contains(one)) {
            self.wrong.push(format!("verify says {one:?}"));
        }
        for one in expected.iter().filter(|one| !told.contains(one)) {
            self.wrong.push(format!("verify should say {one:?}"));
        }
        let summary = last(&out);
        for word in ["intact", "modified", "rotted", "missing"] {
            let count = verdicts.iter().filter(|verdict| verdict.word() == word).count();
            if summary[word] != count as u64 {
                self.wrong.push(format!("{count} are {word}: {summary}"));
            }
        }
        let is_damaged = verdicts.iter().any(|verdict| *verdict != Verdict::Intact);
        if status != Some(i32::from(is_damaged)) {
            self.wrong.push(format!("verify ends with {status:?}: {err}"));
        }
        verdicts
    }

    /// Returns the reported outcome of each entry that was not intact, by the entry's number.
    /// Compares it with the fates.
    fn results(
        &mut self,
        out: &str,
        verdicts: &[Verdict],
        expected_outcomes: &[ExpectedOutcome],
    ) -> BTreeMap<usize, Outcome> {
        let mut results = BTreeMap::new();
        for event in events(out).filter(|event| event["event"] == "entry") {
            let path = path_of(&event);
            let Some(number) = self.claims.iter().position(|claim| claim.path == path) else {
                self.wrong.push(format!("repair tells of {event}"));
                continue;
            };
            let mended = event["mended"].as_array().unwrap().iter();
            let mended = mended.map(|one| (range(&one["range"]), one["from"].as_str().unwrap().to_owned()));
            let outcome = Outcome {
                word: event["result"].as_str().unwrap().to_owned(),
                mended: mended.collect(),
                event,
            };
            if let Some(why) = self.find_mismatch(number, &outcome, &expected_outcomes[number]) {
                self.wrong.push(format!("{path:?}, {:?}: {why}: {}", verdicts[number], outcome.event));
            }
            if results.insert(number, outcome).is_some() || verdicts[number] == Verdict::Intact {
                self.wrong.push(format!("{path:?}: reported although {:?}, or twice", verdicts[number]));
            }
        }
        for (number, verdict) in verdicts.iter().enumerate() {
            if *verdict != Verdict::Intact && !results.contains_key(&number) {
                self.wrong.push(format!("{:?}: {verdict:?}, and no word of it", self.claims[number].path));
            }
        }
        results
    }

    /// Returns a description of the fault of an outcome, if it has one.
    fn find_mismatch(
        &self,
        number: usize,
        outcome: &Outcome,
        expected_outcome: &ExpectedOutcome,
    ) -> Option<String> {
        let is_allowed = match expected_outcome {
            ExpectedOutcome::Any => true,
            ExpectedOutcome::Left => outcome.word == "left",
            ExpectedOutcome::Repaired(_) => matches!(&*outcome.word, "repaired" | "intact"),
            ExpectedOutcome::Made(_) => outcome.word == "made",
        };
        if !is_allowed {
            return Some(format!("should be {expected_outcome:?}"));
        }
        let EntryContent::File(content) = &self.claims[number].what else { return None };
        for (range, from) in &outcome.mended {
            let bytes = world::bytes_at(&self.home.join(from), &self.claims[number].path);
            if !bytes.is_some_and(|bytes| content.is_right(&bytes, *range)) {
                return Some(format!("{from} has no right bytes {range:?}"));
            }
        }
        let mended = world::joined(outcome.mended.iter().map(|(range, _)| *range));
        match expected_outcome {
            ExpectedOutcome::Repaired(needed) | ExpectedOutcome::Made(needed)
                if outcome.word != "intact" && mended != *needed =>
            {
                Some(format!("should be {needed:?}"))
            }
            _ => None,
        }
    }

    fn compare_dry_run(&mut self, dry: &str, real: &str, expected_outcomes: &[ExpectedOutcome]) {
        let lines = |out: &str| -> BTreeMap<PathBuf, Value> {
            let entries = events(out).filter(|event| event["event"] == "entry");
            // An earlier repair can give a name a file of its own, which is then written in place.
            let told = entries.map(|mut event| {
                let fields = event.as_object_mut().unwrap();
                // And a reason names the first obstacle, which may be a directory that the repair
                // makes.
                fields.retain(|field, _| field != "in_place" && field != "reason");
                (path_of(&event), event)
            });
            told.collect()
        };
        let dry = lines(dry);
        for (path, real) in lines(real) {
            let number = self.claims.iter().position(|claim| claim.path == path);
            let is_clear = number.is_some_and(|number| expected_outcomes[number] != ExpectedOutcome::Any)
                && real["result"] != "intact";
            let told = dry.get(&path);
            if is_clear && told != Some(&real) {
                self.wrong.push(format!("the dry run says {told:?}\n   and the real one {real}"));
            }
        }
    }

    fn compare_summary(&mut self, out: &str, verdicts: &[Verdict], results: &BTreeMap<usize, Outcome>) {
        let summary = last(out);
        let told = |word: &str| results.values().filter(|result| result.word == word).count() as u64;
        let intact = verdicts.iter().filter(|verdict| **verdict == Verdict::Intact).count() as u64;
        let bytes: u64 =
            results.values().flat_map(|result| &result.mended).map(|((start, end), _)| end - start).sum();
        let expected = [
            ("intact", intact + told("intact")),
            ("repaired", told("repaired") + told("finished")),
            ("made", told("made")),
            ("left", told("left")),
            ("bytes", bytes),
        ];
        for (word, count) in expected {
            if summary[word] != count {
                self.wrong.push(format!("{word} should be {count}: {summary}"));
            }
        }
    }

    /// Compares the files of `--keep-damaged` with the old bytes.
    fn compare_kept(
        &mut self,
        results: &BTreeMap<usize, Outcome>,
        verdicts: &[Verdict],
        old: &[Option<Vec<u8>>],
    ) {
        for (number, result) in results.iter().filter(|_| self.options.modified) {
            let Some(old) = &old[*number] else { continue };
            let ranges: Vec<Range> = match &verdicts[*number] {
                _ if result.word != "repaired" => vec![],
                Verdict::Rotted(_) => result.mended.iter().map(|(range, _)| *range).collect(),
                _ => vec![(0, old.len() as u64)],
            };
            for (start, end) in ranges.into_iter().filter(|(start, end)| start < end) {
                // A long name is shortened there.
                let place = self.home.join("kept").join(self.claims[*number].path.parent().unwrap());
                let bytes = &old[start as usize..end as usize];
                let end = format!(".{start}-{end}");
                let kept = fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path());
                let mut kept = kept.filter(|path| path.as_os_str().as_bytes().ends_with(end.as_bytes()));
                if !kept.any(|path| fs::read(path).unwrap() == *bytes) {
                    self.wrong.push(format!("{place:?} keeps no {end}: {}", result.event));
                }
            }
        }
    }

    /// Checks that only repaired and made entries differ, and directories only by their times.
    fn compare_nodes(&mut self, before: &BTreeMap<PathBuf, Node>, results: &BTreeMap<usize, Outcome>) {
        let root = self.home.join("root").canonicalize().unwrap();
        let after = world::nodes(&root);
        let mut touched = Vec::new();
        let mut identities = Vec::new();
        for (number, result) in results {
            if !matches!(&*result.word, "repaired" | "made" | "finished") {
                continue;
            }
            let claim = &self.claims[*number];
            let Found::There(facts, place) = world::look(&root, &claim.path) else {
                self.wrong.push(format!("{:?} is not there: {}", claim.path, result.event));
                continue;
            };
            let place = place.strip_prefix(&root).unwrap().to_owned();
            identities.push(world::identity(&facts));
            // The link count is the same under all names of a file.
            identities.extend(before.get(&place).map(|node| node.identity));
            if let EntryContent::File(content) = &claim.what {
                let is_dressed = match before.get(&place) {
                    Some(node) => node.mode == facts.mode(),
                    None => content.mode == facts.mode() & 0o7777 && content.mtime == world::mtime(&facts),
                };
                if !is_dressed {
                    self.wrong.push(format!(
                        "{:?}: mode {:o}, {:?}",
                        claim.path,
                        facts.mode(),
                        facts.modified()
                    ));
                }
            }
            touched.push(place);
        }
        for (path, node) in &after {
            let is_meant = touched.iter().any(|place| place == path)
                || identities.contains(&node.identity)
                || before.get(path).is_some_and(|old| {
                    old == node || (old.is_dir && (old.identity, old.mode) == (node.identity, node.mode))
                })
                || (node.is_dir
                    && !before.contains_key(path)
                    && touched.iter().any(|it| it.starts_with(path)));
            if !is_meant {
                self.wrong.push(format!("{path:?} was changed: {:?} is {node:?} now", before.get(path)));
            }
        }
        for path in before.keys().filter(|path| !after.contains_key(*path)) {
            self.wrong.push(format!("{path:?} was removed"));
        }
    }
}

/// Reported outcome of one entry.
#[derive(Debug)]
struct Outcome {
    word: String,
    /// Ranges, and the replica that each came from.
    mended: Vec<(Range, String)>,
    event: Value,
}

fn events(out: &str) -> impl Iterator<Item = Value> + '_ {
    out.lines().map(|line| serde_json::from_str(line).unwrap())
}

fn last(out: &str) -> Value {
    events(out).last().unwrap_or_default()
}

fn path_of(event: &Value) -> PathBuf {
    match event["path"].as_str() {
        Some(path) => path.into(),
        None => {
            let encoded = event["path_base64"].as_str().unwrap();
            let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
            OsString::from_vec(bytes).into()
        }
    }
}

fn range(value: &Value) -> Range {
    (value[0].as_u64().unwrap(), value[1].as_u64().unwrap())
}
