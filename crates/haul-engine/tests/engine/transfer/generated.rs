//! Random transfers from a seed: trees, state of the sink, options, filters and lost lanes.
//!
//! [`Expected`] computes the tree of the sink from docs/options/transfer.md, and not from the code
//! under test. A case that hangs aborts the process and prints its seed.

use super::pair::{Pair, Transfer, keep_all};
use super::updates::{RULES, WAYS};
use haul_digest::Algorithm;
use haul_engine::log::ResumeCheck;
use haul_lab::random::{Random, soak_seed};
use haul_lab::random_tree::RandomTree;
use haul_lab::snapshot::{Entry, Facets, Kind, Snapshot};
use haul_model::ObjectSize;
use haul_proto::{Compression, JobOptions, Unit, Update, Verify};
use rustix::fs::{AtFlags, CWD, Mode, Timespec, Timestamps, mkfifoat, utimensat};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Display;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Number of cases of each test; `HAUL_TRANSFER_CASES=N` sets it.
const CASES: u64 = 250;

/// Smallest object size, in bytes.
const OBJECT: u64 = 64 << 10;

/// Time limit of a case, far longer than a case takes on a loaded machine.
const HANG: Duration = Duration::from_secs(100);

/// Parameters of one transfer.
#[derive(Debug)]
struct Case {
    options: JobOptions,
    lanes: u32,
    is_fetch: bool,
    exclude: Option<&'static str>,
    /// The lane that is aborted, and the number of names that end before.
    cut: Option<(usize, u64)>,
    resume: Option<Option<ResumeCheck>>,
    /// True if the sink begins with a changed copy of the tree.
    has_copy: bool,
}

impl Case {
    fn draw(random: &mut Random) -> Case {
        fn pick<T: Copy>(random: &mut Random, all: &[T]) -> T {
            all[random.index(all.len())]
        }
        let (verify, unit, settle) = pick(random, &WAYS);
        let options = JobOptions {
            object: ObjectSize::new(OBJECT).unwrap(),
            algorithm: pick(
                random,
                &[Algorithm::Blake3, Algorithm::Crc32c, Algorithm::Md5, Algorithm::Xxh3_64],
            ),
            verify,
            unit,
            settle,
            in_order: unit == Unit::File && verify == Verify::Stream,
            compression: pick(random, &[Compression::Off, Compression::Off, Compression::Zstd(1)]),
            keep: keep_all(),
            update: pick(random, &RULES),
            in_place: random.chance(30),
            delete: random.chance(50),
            // An empty operand is deleted from, too.
            delete_all: true,
            max_delete: u64::MAX,
            dry_run: random.chance(5),
            budget: 0,
        };
        let lanes = 1 + u32::try_from(random.below(3)).unwrap();
        let cut = random.chance(40).then(|| (random.index(lanes as usize), 1 + random.below(12)));
        let resumes = pick(random, &[None, Some(ResumeCheck::Sample), Some(ResumeCheck::All)]);
        Case {
            lanes,
            is_fetch: random.chance(50),
            exclude: pick(random, &[None, None, Some("*3"), Some("*4/")]),
            cut,
            resume: random.chance(50).then_some(resumes),
            has_copy: random.chance(80),
            options,
        }
    }

    /// Returns true if the exclusion pattern matches `path`, which is a directory or not, or a
    /// directory above it.
    fn leaves_out(&self, path: &Path, is_dir: bool) -> bool {
        let Some(pattern) = self.exclude else { return false };
        let (end, dirs_only) = (pattern.as_bytes()[1], pattern.ends_with('/'));
        let fits = |path: &Path| path.file_name().is_some_and(|name| name.as_bytes().ends_with(&[end]));
        path.ancestors().enumerate().any(|(above, path)| fits(path) && (above > 0 || is_dir || !dirs_only))
    }

    /// Returns true if the rule keeps `old` where `new` would replace it; `None` if the rule
    /// compares them, and the entry may stay.
    fn keeps(&self, new: &Entry, old: &Entry) -> Option<bool> {
        match (self.options.update, &new.kind, &old.kind) {
            (Update::Missing, ..) => Some(true),
            (Update::Newer, ..) => Some(old.mtime >= new.mtime),
            (Update::Always, ..) => Some(false),
            (_, Kind::File { len: a, digest: x, .. }, Kind::File { len: b, digest: y, .. }) => {
                let is_same = match self.options.update {
                    Update::SizeTime => a == b && new.mtime == old.mtime,
                    _ => (a, x) == (b, y),
                };
                if is_same { None } else { Some(false) }
            }
            _ => Some(false),
        }
    }
}

/// Changes that make a copy differ from its original in every way that matters to a transfer.
fn change(root: &Path, random: &mut Random, count: usize) {
    for number in 0..count {
        let found = Snapshot::take(root).unwrap();
        let all: Vec<(&Path, &Entry)> =
            found.entries().filter(|(path, _)| !path.as_os_str().is_empty()).collect();
        let dirs: Vec<&Path> =
            found.entries().filter(|(_, entry)| entry.kind == Kind::Dir).map(|(path, _)| path).collect();
        let files: Vec<&Path> = all
            .iter()
            .filter(|(_, entry)| matches!(entry.kind, Kind::File { .. }))
            .map(|(path, _)| *path)
            .collect();
        let fresh = root.join(dirs[random.index(dirs.len())]).join(format!("new~{number}"));
        let Some((path, entry)) = all.get(random.index(all.len().max(1))) else { return };
        let path = root.join(path);
        let is_file = matches!(entry.kind, Kind::File { len: 1.., .. });
        let remove = || match entry.kind {
            Kind::Dir => fs::remove_dir_all(&path).unwrap(),
            _ => fs::remove_file(&path).unwrap(),
        };
        match random.below(14) {
            0 => remove(),
            1 => {
                remove();
                fs::write(&path, vec![1; random.index(100)]).unwrap();
            }
            2 => {
                remove();
                symlink("elsewhere", &path).unwrap();
            }
            3 => {
                remove();
                fs::create_dir(&path).unwrap();
                fs::write(path.join("inside"), "inside").unwrap();
            }
            4 => {
                remove();
                mkfifoat(CWD, &path, Mode::RUSR).unwrap();
            }
            5..8 if is_file => {
                let file = File::options().write(true).open(&path).unwrap();
                let len = file.metadata().unwrap().len();
                match random.below(3) {
                    0 => file.set_len(random.below(len)).unwrap(),
                    1 => file.write_all_at(&[7; 40], len).unwrap(),
                    _ => file.write_all_at(&[random.below(256) as u8; 3], random.below(len)).unwrap(),
                }
                if random.chance(50) {
                    move_time(&path, entry, 0);
                }
            }
            8 if !matches!(entry.kind, Kind::Link(_)) => {
                fs::set_permissions(&path, PermissionsExt::from_mode(0o711)).unwrap();
            }
            9 => move_time(&path, entry, 1000 - 2000 * i64::from(random.chance(50))),
            10 => {
                fs::create_dir(&fresh).unwrap();
                for name in ["a3", "b", "c4"] {
                    fs::write(fresh.join(name), name).unwrap();
                }
            }
            11 => fs::write(&fresh, "new").unwrap(),
            12 if !files.is_empty() => {
                fs::hard_link(root.join(files[random.index(files.len())]), &fresh).unwrap();
            }
            13 if files.len() > 1 => {
                let [one, other] = [0; 2].map(|_| root.join(files[random.index(files.len())]));
                if one != other {
                    fs::remove_file(&other).unwrap();
                    fs::hard_link(one, other).unwrap();
                }
            }
            _ => {}
        }
    }
}

fn move_time(path: &Path, entry: &Entry, seconds: i64) {
    let time = Timespec { tv_sec: entry.mtime.0 + seconds, tv_nsec: entry.mtime.1 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
}

/// The sink's tree after a completed job.
#[derive(Default)]
struct Expected {
    /// Alternatives for each entry: any of them is correct.
    entries: BTreeMap<PathBuf, Vec<Entry>>,
    /// Names that are one file at the source and must be one file at the sink too.
    groups: HashMap<PathBuf, BTreeSet<PathBuf>>,
    /// Names that are not touched.
    untouched: BTreeSet<PathBuf>,
    failing: u64,
    deleted: u64,
}

impl Expected {
    fn of(case: &Case, source: &Snapshot, sink: Option<&Snapshot>) -> Expected {
        let mut all = Expected::default();
        let old = |path: &Path| sink.and_then(|sink| sink.get(path));
        let is_alone =
            |path: &Path| source.entries().all(|(_, other)| other.same_as.as_deref() != Some(path));
        let mut blocked: Vec<&Path> = Vec::new();
        for (path, new) in source.entries() {
            if case.leaves_out(path, new.kind == Kind::Dir) {
                continue;
            }
            if blocked.iter().any(|above| path.starts_with(above)) {
                all.failing += 1;
                continue;
            }
            let mut wanted = vec![new.clone()];
            match old(path) {
                _ if new.kind == Kind::Dir && old(path).is_none_or(|old| old.kind == Kind::Dir) => {
                    if let Some(old) = old(path) {
                        wanted = vec![with_attributes_of(new, old)];
                    }
                }
                Some(old) if new.kind == Kind::Dir => {
                    blocked.push(path);
                    all.untouched.insert(path.to_owned());
                    all.failing += 1;
                    wanted = vec![old.clone()];
                }
                Some(old) => match case.keeps(new, old) {
                    Some(true) => {
                        wanted = vec![old.clone()];
                        all.untouched.insert(path.to_owned());
                    }
                    _ if old.kind == Kind::Dir => {
                        all.failing += 1;
                        wanted = vec![old.clone()];
                    }
                    same => {
                        let is_in_place = case.options.in_place
                            && matches!((&new.kind, &old.kind), (Kind::File { .. }, Kind::File { .. }));
                        // A file with several names is written beside them until it has lost the
                        // others.
                        if is_in_place {
                            wanted.push(with_attributes_of(new, old));
                        }
                        match (same, case.options.update) {
                            // The entry stays as it is.
                            (None, Update::SizeTime) if new.same_as.is_none() && is_alone(path) => {
                                wanted = vec![old.clone()];
                            }
                            (None, Update::SizeTime) => wanted.push(old.clone()),
                            // The inode stays, and gets everything except the bytes.
                            (None, _) => wanted.push(with_attributes_of(new, old)),
                            _ => {}
                        }
                        all.join(path, new);
                    }
                },
                None => all.join(path, new),
            }
            all.entries.insert(path.to_owned(), wanted);
        }
        // Any name of a file may be the one that was compared, or written in place.
        for names in all.groups.values().filter(|names| names.len() > 1) {
            let any: Vec<Entry> = names.iter().flat_map(|name| all.entries[name].clone()).collect();
            names.iter().for_each(|name| {
                all.entries.insert(name.clone(), any.clone());
            });
        }
        all.keep_the_rest(case, source, sink);
        all
    }

    fn join(&mut self, path: &Path, new: &Entry) {
        let first = new.same_as.clone().unwrap_or_else(|| path.to_owned());
        self.groups.entry(first).or_default().insert(path.to_owned());
    }

    /// Adds the entries of the sink that the source lacks or excludes.
    fn keep_the_rest(&mut self, case: &Case, source: &Snapshot, sink: Option<&Snapshot>) {
        let rest: Vec<(&Path, &Entry)> = sink
            .into_iter()
            .flat_map(Snapshot::entries)
            .filter(|(path, _)| !self.entries.contains_key(*path))
            .collect();
        // Deeper entries come first.
        for (path, entry) in rest.into_iter().rev() {
            let lies_in = |other: &Path| other.parent() == Some(path);
            // Deletion is limited to directories that were sent: an entry with a directory's name
            // at the source keeps its contents.
            let nearest = path.ancestors().find_map(|above| source.get(above));
            let was_sent = nearest.is_some_and(|nearest| nearest.kind == Kind::Dir);
            let stays = !case.options.delete
                || !was_sent
                || source.get(path).is_some()
                // The source does not learn the kind of a name, and decides as if the name were a
                // directory.
                || case.leaves_out(path, true)
                || self.entries.keys().any(|other| lies_in(other));
            if stays {
                self.entries.insert(path.to_owned(), vec![entry.clone()]);
                self.untouched.insert(path.to_owned());
            } else {
                self.deleted += 1;
            }
        }
    }

    fn compare(
        &self,
        case: &Case,
        sink: &Snapshot,
        before: &BTreeMap<PathBuf, u64>,
        after: &BTreeMap<PathBuf, u64>,
    ) -> Vec<String> {
        let mut found = Vec::new();
        let facets = Facets { links: false, ..Facets::ARCHIVE };
        for (path, wanted) in &self.entries {
            let Some(entry) = sink.get(path) else {
                found.push(format!("{path:?} is missing: {:?}", wanted[0].kind));
                continue;
            };
            // Another name of this inode was compared, and the inode got the attributes of that
            // name.
            let is_shared = self.untouched.contains(path)
                && matches!(case.options.update, Update::Digest | Update::Object)
                && before
                    .iter()
                    .any(|(other, inode)| before.get(path) == Some(inode) && !self.untouched.contains(other));
            let facets = if is_shared { Facets::CONTENT } else { facets };
            let differences: Vec<String> =
                wanted.iter().map(|wanted| wanted.differences(entry, facets).join(", ")).collect();
            if differences.iter().all(|difference| !difference.is_empty()) {
                found.push(format!("{path:?} (wanted against found): {}", differences.join("; or ")));
            }
            if self.untouched.contains(path) && before.get(path) != after.get(path) {
                found.push(format!("{path:?} is another inode, and should not be touched"));
            }
        }
        for (path, entry) in sink.entries().filter(|(path, _)| !self.entries.contains_key(*path)) {
            found.push(format!("{path:?} should not exist: {:?}", entry.kind));
        }
        let loses_links =
            case.cut.is_some() && matches!(case.options.update, Update::Missing | Update::Newer);
        let mut owners: HashMap<u64, &PathBuf> = HashMap::new();
        for (first, names) in &self.groups {
            let inodes: BTreeSet<u64> = names.iter().filter_map(|name| after.get(name).copied()).collect();
            if inodes.len() > 1 && !loses_links {
                found.push(format!("{names:?} are one file at the source and {} at the sink", inodes.len()));
            }
            for inode in inodes {
                if let Some(other) = owners.insert(inode, first) {
                    found.push(format!(
                        "{first:?} and {other:?} are two files at the source and one at the sink"
                    ));
                }
            }
        }
        found
    }
}

/// Returns `new` with the attributes that only `old` has: an existing inode keeps them.
fn with_attributes_of(new: &Entry, old: &Entry) -> Entry {
    let mut all = new.clone();
    for (name, value) in &old.xattrs {
        all.xattrs.entry(name.clone()).or_insert_with(|| value.clone());
    }
    all
}

fn inodes(root: &Path, snapshot: &Snapshot) -> BTreeMap<PathBuf, u64> {
    let inode = |path: &Path| fs::symlink_metadata(root.join(path)).unwrap().ino();
    snapshot.entries().map(|(path, _)| (path.to_owned(), inode(path))).collect()
}

/// Runs the case of a seed. Returns an error message if the result is wrong.
fn run(seed: u64) -> Result<(), String> {
    let mut random = Random::from_seed(seed);
    let case = Case::draw(&mut random);
    let pair = match case.resume {
        Some(recheck) => Pair::resuming(recheck),
        None => Pair::new(),
    };
    let tree = RandomTree {
        entries: 4 + random.index(12),
        file_bytes_max: 140 << 10,
        edges: vec![0, 1, OBJECT, 2 * OBJECT],
        xattrs: true,
        ..RandomTree::default()
    };
    let [from, to] = [pair.source().join("t"), pair.sink().join("t")];
    tree.build(&from, seed).unwrap();
    if case.has_copy {
        tree.build(&to, seed).unwrap();
        let count = random.index(10);
        change(&to, &mut random, count);
    }
    let count = random.index(4);
    change(&from, &mut random, count);
    // The second round runs on the result of the first one.
    let rounds = 1 + u64::from(random.chance(30));
    for round in 1..=rounds {
        let cut = case.cut.filter(|_| round == 1);
        let found = run_once(&pair, &case, cut);
        if !found.is_empty() {
            return Err(format!("round {round}: {}\n{case:?}", found.join("\n")));
        }
    }
    Ok(())
}

/// Runs a case until its session is not broken. Returns the differences to the expected result.
fn run_once(pair: &Pair, case: &Case, cut: Option<(usize, u64)>) -> Vec<String> {
    let [from, to] = [pair.source().join("t"), pair.sink().join("t")];
    let source = Snapshot::take(&from).unwrap();
    let old = to.exists().then(|| Snapshot::take(&to).unwrap());
    let before = old.as_ref().map(|old| inodes(&to, old)).unwrap_or_default();
    let expected = Expected::of(case, &source, old.as_ref());
    let Case { options, lanes, is_fetch, exclude, .. } = case;
    let mut transfer =
        Transfer { names: &["t"], options, lanes: *lanes, is_fetch: *is_fetch, exclude: *exclude, cut };
    let mut told = pair.transfer(&transfer);
    let mut found = Vec::new();
    let was_broken = told.is_broken();
    if was_broken {
        if cut.is_none() {
            found.push("a session without a lost lane broke".to_owned());
        }
        transfer.cut = None;
        told = pair.transfer(&transfer);
        if told.is_broken() {
            found.push("the second run broke".to_owned());
        }
    }
    if options.dry_run {
        let now = to.exists().then(|| Snapshot::take(&to).unwrap());
        if now != old {
            found.push("a dry run changed the sink".to_owned());
        }
    } else if found.is_empty() {
        let now = Snapshot::take(&to).unwrap();
        found.extend(expected.compare(case, &now, &before, &inodes(&to, &now)));
        let summary = told.summary();
        if summary.failed != expected.failing {
            found.push(format!("{} names failed, {} expected", summary.failed, expected.failing));
        }
        if !was_broken && summary.deleted != expected.deleted {
            found.push(format!("{} names were deleted, {} expected", summary.deleted, expected.deleted));
        }
    }
    if Snapshot::take(&from).unwrap() != source {
        found.push("the source changed".to_owned());
    }
    if expected.failing == 0 {
        pair.nothing_is_left_over();
        if !pair.jobs().is_empty() {
            found.push(format!("jobs are left: {:?}", pair.jobs()));
        }
    }
    if !found.is_empty() {
        found.push(told.to_string());
    }
    found
}

/// Runs a case. Returns an error if it panics; aborts the process if it does not end.
pub(super) fn watched<T>(case: impl Display, run: impl FnOnce() -> T) -> std::thread::Result<T> {
    let (done, is_done) = channel::<()>();
    let text = format!("the transfer of {case} does not end");
    let watchdog = std::thread::spawn(move || {
        if is_done.recv_timeout(HANG) == Err(RecvTimeoutError::Timeout) {
            eprintln!("{text}");
            std::process::abort();
        }
    });
    let result = std::panic::catch_unwind(AssertUnwindSafe(run));
    drop(done);
    watchdog.join().unwrap();
    result
}

/// Runs the cases of one of 4 parts, and fails with all seeds that went wrong.
fn run_part(part: u64) {
    let cases = std::env::var("HAUL_TRANSFER_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    let base = soak_seed().unwrap_or(0) << 20;
    let mut failed = Vec::new();
    for seed in (0..cases).map(|number| base + number * 4 + part) {
        match watched(format!("seed {seed}"), || run(seed)) {
            Ok(Ok(())) => {}
            Ok(Err(wrong)) => failed.push(format!("seed {seed}: {wrong}")),
            Err(_) => failed.push(format!("seed {seed}: it panicked")),
        }
    }
    assert!(failed.is_empty(), "{} of {cases} cases failed:\n{}", failed.len(), failed.join("\n\n"));
}

#[test]
fn random_transfer_creates_the_expected_tree_0() {
    run_part(0);
}

#[test]
fn random_transfer_creates_the_expected_tree_1() {
    run_part(1);
}

#[test]
fn random_transfer_creates_the_expected_tree_2() {
    run_part(2);
}

#[test]
fn random_transfer_creates_the_expected_tree_3() {
    run_part(3);
}

/// `HAUL_TRANSFER_SEED=N` runs one case alone.
#[test]
fn random_transfer_with_a_given_seed_succeeds() {
    let seed = std::env::var("HAUL_TRANSFER_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(1);
    run(seed).unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}"));
}
