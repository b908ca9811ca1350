//! Property test: a copy with the rules of `-a` equals its source tree, with any method of moving
//! bytes.

use super::bed::{Place, Told, archive, files_of, onto, run};
use super::variants::{any_moving, any_sparse_rule, expected, plain};
use haul_coreutils::cp::CopyRules;
use haul_engine::copy::{Moving, Workers};
use haul_lab::dataset::DataSet;
use haul_lab::random_tree::{RandomTree, every_byte_in_names};
use haul_lab::snapshot::{Facets, Kind, Snapshot};
use proptest::prelude::*;
use rustix::fs::{XattrFlags, lsetxattr};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Returns parameters for trees with file lengths around multiples of objects and pages.
fn tree_for(moving: &Moving, place: &Place) -> RandomTree {
    let object = moving.object.bytes();
    RandomTree {
        entries: 30,
        file_bytes_max: 3 * object.min(256 << 10) + 7,
        edges: vec![0, 1, 4096, object, 2 * object],
        xattrs: keeps_attributes(place),
        ..RandomTree::default()
    }
}

/// Returns true if this file system has user extended attributes and this user may set them on
/// read-only files.
fn keeps_attributes(place: &Place) -> bool {
    if !rustix::process::geteuid().is_root() {
        return false;
    }
    let probe = place.path("probe");
    fs::write(&probe, b"").unwrap();
    lsetxattr(&probe, "user.probe", b"1", XattrFlags::empty()).is_ok()
}

/// Checks that each file's digest was reported once and equals the digest of the whole file.
fn check_digests(told: &Told, moving: &Moving, root: &Path, tree: &Snapshot) {
    let Some((algorithm, form)) = moving.digest else {
        assert_eq!(told.hashed, []);
        return;
    };
    // A file with several names is copied once, under whichever name comes first.
    let first_name = |path: &Path| {
        let relative = path.strip_prefix(root).unwrap();
        tree.get(relative).unwrap().same_as.clone().unwrap_or_else(|| relative.to_owned())
    };
    let heard: BTreeSet<PathBuf> = told.hashed.iter().map(|line| first_name(&line.name)).collect();
    let files: BTreeSet<PathBuf> = files_of(tree).into_iter().map(|(path, _)| path).collect();
    assert_eq!((heard, told.hashed.len()), (files.clone(), files.len()));
    for line in &told.hashed {
        let (digests, is_tree) = expected(&fs::read(&line.name).unwrap(), algorithm, form);
        assert_eq!(line.digests, digests, "{algorithm} {form:?} of {:?}", line.name);
        assert_eq!((line.tree, line.part), (is_tree, None), "{:?}", line.name);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_tree_is_copied_unchanged_with_any_options(
        seed in any::<u64>(),
        moving in any_moving(),
        sparse in any_sparse_rule(),
    ) {
        let place = Place::new();
        let (source, sink) = (place.path("source"), place.path("sink"));
        tree_for(&moving, &place).build(&source, seed).unwrap();
        let moving = Moving { sparse, ..moving };
        let told = run(&onto(&source, &sink, archive(), &moving));
        told.is_fine();
        let [before, after] = [&source, &sink].map(|root| Snapshot::take(root).unwrap());
        before.assert_same(&after, Facets::ARCHIVE);
        check_digests(&told, &moving, &source, &before);
        let bytes: u64 = files_of(&before).iter().map(|(_, len)| len).sum();
        prop_assert_eq!(told.finished.iter().map(|(_, bytes)| bytes).sum::<u64>(), bytes);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, max_shrink_iters: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn tree_copied_over_another_merges_and_replaces_files(
        seeds in any::<[u64; 2]>(),
        moving in any_moving(),
    ) {
        let place = Place::new();
        let [source, sink] = ["source", "sink"].map(|name| place.path(name));
        // Plain names repeat, so that files replace files. Kinds that cannot replace each other are
        // left out.
        let tree = RandomTree {
            fifos: false, links: false, hard_links: false, odd_names: false, depth_max: 0, xattrs: false, modes: false,
            ..tree_for(&moving, &place)
        };
        for (root, seed) in [(&source, seeds[0]), (&sink, seeds[1])] {
            tree.build(root, seed).unwrap();
        }
        let more = RandomTree { entries: 45, ..tree.clone() };
        more.build(&place.path("more"), seeds[1]).unwrap();
        for number in 30..45 {
            fs::rename(place.path("more").join(format!("e{number}")), sink.join(format!("e{number}"))).unwrap();
        }
        let old = Snapshot::take(&sink).unwrap();
        let rules = CopyRules { force: true, ..archive() };
        run(&onto(&source, &sink, rules, &moving)).is_fine();
        let [before, after] = [&source, &sink].map(|root| Snapshot::take(root).unwrap());
        for (path, entry) in after.entries().filter(|(path, _)| *path != Path::new("")) {
            let expected = before.get(path).or(old.get(path)).unwrap();
            let Kind::File { len, digest, .. } = &entry.kind else { panic!("{path:?} {entry:?}") };
            let Kind::File { len: old_len, digest: old_digest, .. } = &expected.kind else { panic!("{path:?}") };
            prop_assert_eq!((len, digest, entry.mtime), (old_len, old_digest, expected.mtime), "{:?}", path);
        }
        prop_assert_eq!(after.entries().count(), 46);
    }
}

#[test]
fn names_with_every_byte_are_kept() {
    let place = Place::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    every_byte_in_names(&source).unwrap();
    run(&onto(&source, &sink, archive(), &plain())).is_fine();
    let [before, after] = [&source, &sink].map(|root| Snapshot::take(root).unwrap());
    before.assert_same(&after, Facets::ARCHIVE);
}

#[test]
fn workers_share_a_large_directory_without_loss() {
    let place = Place::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    // Needs several directory reads and several batches, the last one not full.
    DataSet::Small { dirs: 1, files: 2345, bytes: 10 }.build(&source, 4, 1).unwrap();
    run(&onto(&source, &sink, archive(), &Moving { workers: Workers::exactly(5), ..plain() })).is_fine();
    let [before, after] = [&source, &sink].map(|root| Snapshot::take(root).unwrap());
    before.assert_same(&after, Facets::ARCHIVE);
}

#[test]
fn large_and_small_files_are_copied_by_any_number_of_workers() {
    let place = Place::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    DataSet::Small { dirs: 3, files: 600, bytes: 100 }.build(&source, 4, 1).unwrap();
    for number in 0..4 {
        place.noise(&format!("source/d0000{}/large{number}", number % 3), (9 + number) * 65_536 + 1);
    }
    for workers in [1, 2, 5] {
        let sink = sink.with_extension(format!("{workers}"));
        run(&onto(&source, &sink, archive(), &Moving { workers: Workers::exactly(workers), ..plain() }))
            .is_fine();
        let [before, after] = [&source, &sink].map(|root| Snapshot::take(root).unwrap());
        before.assert_same(&after, Facets::ARCHIVE);
    }
}

#[test]
fn tree_deeper_than_path_max_is_copied() {
    let place = Place::new();
    let (source, sink) = (place.path("source"), place.path("sink"));
    // 40 names of 200 bytes: twice the maximum path length of a system call.
    let name = "d".repeat(200);
    fs::create_dir(&source).unwrap();
    let mut at = rustix::fs::open(&source, rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
    for _ in 0..40 {
        rustix::fs::mkdirat(&at, &*name, 0o755.into()).unwrap();
        at = rustix::fs::openat(&at, &*name, rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    let file = rustix::fs::openat(&at, "leaf", flags, 0o644.into()).unwrap();
    rustix::io::write(&file, b"deep").unwrap();
    run(&onto(&source, &sink, archive(), &plain())).is_fine();

    let mut at = rustix::fs::open(&sink, rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
    for _ in 0..40 {
        at = rustix::fs::openat(&at, &*name, rustix::fs::OFlags::DIRECTORY, 0.into()).unwrap();
    }
    let leaf = rustix::fs::openat(&at, "leaf", rustix::fs::OFlags::RDONLY, 0.into()).unwrap();
    let mut bytes = [0; 8];
    assert_eq!(rustix::io::read(&leaf, &mut bytes).unwrap(), 4);
    assert_eq!(&bytes[..4], b"deep");
}
