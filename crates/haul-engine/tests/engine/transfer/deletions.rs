//! Deletion of names that the source lacks: it touches nothing else, however the file system of the
//! sink treats names.

use super::pair::{Pair, Told, Transfer};
use super::small_objects;
use haul_engine::transfer::{Filter, Rule};
use haul_lab::faults::FaultFs;
use haul_lab::needs::{Need, met_or_skip};
use haul_proto::{JobOptions, Keep, Update};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

fn deleting() -> JobOptions {
    JobOptions { delete: true, ..small_objects() }
}

/// Writes files with their names as contents, and their directories.
fn write_all(root: &Path, names: &[&str]) {
    for name in names {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
}

/// Returns the paths of all files beneath a directory.
fn files(root: &Path) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut dirs = vec![root.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                dirs.push(path);
            } else {
                found.insert(path.strip_prefix(root).unwrap().to_str().unwrap().to_owned());
            }
        }
    }
    found
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Transfers `names` in the direction `is_fetch`.
fn transferred(pair: &Pair, names: &[&str], options: &JobOptions, is_fetch: bool) -> Told {
    pair.transfer(&Transfer { names, options, lanes: 2, is_fetch, exclude: None, cut: None })
}

/// Runs `test` for each direction, with a sink that is a view of a directory with these rules. The
/// test gets the pair, that directory, and the direction.
fn on_view(rules: &str, test: impl Fn(&Pair, &Path, bool)) {
    if !met_or_skip(&[Need::Fuse]) {
        return;
    }
    for is_fetch in [false, true] {
        let (pair, store) = (Pair::new(), tempfile::tempdir().unwrap());
        let faults = FaultFs::mount(store.path(), &pair.sink(), rules.parse().unwrap()).unwrap();
        test(&pair, store.path(), is_fetch);
        faults.close();
    }
}

/// Regression: a file that had just been sent was listed in its other spelling, which the source
/// does not have, and was deleted with status 0.
#[test]
fn sent_names_in_another_unicode_form_stay() {
    for rules in ["* name .. decompose", "* name .. decompose\n* name .. fold"] {
        on_view(rules, |pair, store, is_fetch| {
            let names = ["d/caf\u{e9}", "d/\u{c4}/x", "d/\u{c4}/\u{e9}/y", "d/plain"];
            write_all(&pair.source(), &names);
            write_all(store, &["d/stale", "d/A\u{308}/stale", "d/e\u{301}/stale"]);
            let stored = set(&["d/cafe\u{301}", "d/A\u{308}/x", "d/A\u{308}/e\u{301}/y", "d/plain"]);
            // Three files and a directory are deleted by the first run.
            for (update, deleted) in [(Update::Always, 4), (Update::Always, 0), (Update::SizeTime, 0)] {
                let told = transferred(pair, &["d"], &JobOptions { update, ..deleting() }, is_fetch);
                told.is_fine();
                assert_eq!(told.summary().deleted, deleted, "{rules} {update:?} {is_fetch}");
                assert_eq!(files(store), stored, "{rules} {update:?} {is_fetch}");
            }
        });
    }
}

/// Regression: `readme` was refused, because `README` exists, and then `README` was deleted.
/// Neither was left.
#[test]
fn names_that_collide_with_refused_ones_stay() {
    on_view("* name .. fold", |pair, store, is_fetch| {
        write_all(&pair.source(), &["d/readme", "d/docs/new", "d/other"]);
        write_all(store, &["d/README", "d/Docs/old", "d/stale"]);
        let told = transferred(pair, &["d"], &deleting(), is_fetch);
        assert!(told.failures() > 0);
        assert_eq!(told.summary().deleted, 1);
        assert_eq!(files(store), set(&["d/README", "d/Docs/old", "d/other"]));
        assert_eq!(fs::read_to_string(store.join("d/README")).unwrap(), "d/README");
    });
}

/// The second name of a file is not another spelling of the first.
#[test]
fn hard_links_that_the_source_lacks_are_deleted() {
    let pair = Pair::new();
    write_all(&pair.source(), &["d/a"]);
    pair.send(&["d"], &small_objects(), 1).is_fine();
    fs::hard_link(pair.sink().join("d/a"), pair.sink().join("d/b")).unwrap();
    let told = pair.send(&["d"], &JobOptions { update: Update::SizeTime, ..deleting() }, 1);
    told.is_fine();
    assert_eq!((told.summary().deleted, files(&pair.sink())), (1, set(&["d/a"])));
}

/// No one can tell if two names are one entry when inode numbers change whenever they are read.
#[test]
fn without_stable_identities_names_stay_and_are_reported() {
    on_view("", |pair, store, is_fetch| {
        write_all(&pair.source(), &["d/a"]);
        write_all(store, &["d/a", "d/stale"]);
        let dry = JobOptions { dry_run: true, ..deleting() };
        assert_eq!(transferred(pair, &["d"], &dry, is_fetch).summary().deleted, 1);
    });
    on_view("* stat .. renumber", |pair, store, is_fetch| {
        write_all(&pair.source(), &["d/a"]);
        write_all(store, &["d/a", "d/stale"]);
        let dry = JobOptions { dry_run: true, ..deleting() };
        let told = transferred(pair, &["d"], &dry, is_fetch);
        assert_eq!((told.failures(), told.summary().undeleted, told.summary().deleted), (1, 1, 0));
        assert_eq!(files(store), set(&["d/a", "d/stale"]));
    });
    on_view("* list .. renumber", |pair, store, is_fetch| {
        write_all(&pair.source(), &["d/a"]);
        write_all(store, &["d/a", "d/stale"]);
        transferred(pair, &["d"], &deleting(), is_fetch).is_fine();
        assert_eq!(files(store), set(&["d/a"]));
    });
}

/// Regression: a later rule that includes a name let it be deleted beneath an excluded directory.
#[test]
fn nothing_beneath_excluded_directories_is_deleted() {
    let pair = Pair::new();
    write_all(&pair.source(), &["d/kept", "d/sub/x1"]);
    write_all(&pair.sink(), &["d/sub/x2", "d/sub/y", "d/x3", "outside/x"]);
    let rules = [Rule::Exclude("sub/".into()), Rule::Include("x*".into())];
    let told = pair.send_filtered(&["d"], &deleting(), Filter::new(&rules).unwrap());
    told.is_fine();
    assert_eq!(told.summary().deleted, 1);
    assert_eq!(files(&pair.sink()), set(&["d/kept", "d/sub/x2", "d/sub/y", "outside/x"]));
}

/// An operand that is a file, beside one whose contents are sent, once counted as lacking.
#[test]
fn operands_that_are_files_stay() {
    for is_fetch in [false, true] {
        let pair = Pair::new();
        write_all(&pair.source(), &["a/x", "f"]);
        symlink("f", pair.source().join("link")).unwrap();
        write_all(&pair.sink(), &["stale", "f/deep"]);
        fs::remove_dir_all(pair.sink().join("f")).unwrap();
        let told = transferred(&pair, &["a/", "f", "link"], &deleting(), is_fetch);
        told.is_fine();
        assert_eq!(
            (told.summary().deleted, files(&pair.sink())),
            (1, set(&["x", "f", "link"])),
            "{is_fetch}"
        );
    }
}

#[test]
fn where_nothing_is_sent_nothing_is_deleted_unless_asked_for() {
    for (is_fetch, exclude) in [(false, None), (true, None), (false, Some("*"))] {
        for name in ["d", "d/"] {
            let pair = Pair::new();
            fs::create_dir(pair.source().join("d")).unwrap();
            if exclude.is_some() {
                write_all(&pair.source(), &["d/f"]);
            }
            let beneath = if name == "d" { "d/stale" } else { "stale" };
            write_all(&pair.sink(), &[beneath]);
            let send = |options: &JobOptions| {
                // The rule protects excluded names: here the name that is to be deleted.
                let exclude = exclude.map(|_| "f");
                pair.transfer(&Transfer { names: &[name], options, lanes: 1, is_fetch, exclude, cut: None })
            };
            let told = send(&deleting());
            assert_eq!((told.failures(), told.summary().deleted), (0, 0), "{name} {is_fetch}");
            assert!(pair.sink().join(beneath).exists());
            let told = send(&JobOptions { delete_all: true, ..deleting() });
            told.is_fine();
            assert_eq!(told.summary().deleted, 1);
            // Nothing more would be deleted, so an empty directory is no error.
            send(&deleting()).is_fine();
        }
    }
}

#[test]
fn at_most_the_given_number_of_names_is_deleted() {
    for is_fetch in [false, true] {
        let pair = Pair::new();
        write_all(&pair.source(), &["d/f"]);
        write_all(&pair.sink(), &["d/1", "d/2", "d/3", "d/e/4"]);
        let told = transferred(&pair, &["d"], &JobOptions { max_delete: 2, ..deleting() }, is_fetch);
        assert_eq!(told.failures(), 0, "the outcome is not whole");
        assert_eq!((told.summary().deleted, told.summary().over_limit), (2, 3), "{is_fetch}");
        assert_eq!(files(&pair.sink()).len(), 3);
        transferred(&pair, &["d"], &JobOptions { max_delete: 3, ..deleting() }, is_fetch).is_fine();
        assert_eq!(files(&pair.sink()), set(&["d/f"]));
    }
}

#[test]
fn names_of_own_files_are_never_deleted() {
    let pair = Pair::new();
    write_all(&pair.source(), &["d/f"]);
    let own = ["d/.haul/sums/f", "d/.haul-0123456789abcdef-1", "d/gone/.HAUL-x"];
    write_all(&pair.sink(), &own);
    write_all(&pair.sink(), &["d/gone/f", "d/.haulier"]);
    let told = pair.send(&["d"], &deleting(), 1);
    told.is_fine();
    assert_eq!(told.summary().deleted, 2);
    assert_eq!(files(&pair.sink()), own.iter().chain(&["d/f"]).map(|name| (*name).to_owned()).collect());
}

/// Regression: temporary files of an earlier run of the job kept a directory that the source had no
/// longer. Those without logged objects, as a killed run leaves them, stayed indefinitely.
#[test]
fn directories_with_leftovers_of_the_job_are_deleted() {
    let pair = Pair::resuming(None);
    write_all(&pair.source(), &["t/f"]);
    fs::create_dir(pair.source().join("t/gone")).unwrap();
    fs::write(pair.source().join("t/gone/large"), vec![5; 24 << 20]).unwrap();
    assert!(pair.send_stopped(&["t"], &deleting(), 0).was_stopped());
    let gone = pair.sink().join("t/gone");
    let temporary = files(&gone).into_iter().find(|name| name.starts_with(".haul-")).expect("it was stopped");
    let (of_job, _) = temporary.rsplit_once('-').unwrap();
    fs::write(gone.join(format!("{of_job}-0123456789abcdef")), b"no object of it is logged").unwrap();
    fs::remove_dir_all(pair.source().join("t/gone")).unwrap();
    let told = pair.send(&["t"], &deleting(), 1);
    told.is_fine();
    assert_eq!((told.summary().deleted, files(&pair.sink())), (1, set(&["t/f"])));
    assert!(!gone.exists());
}

/// A directory with more names to delete than are removed together.
#[test]
fn large_directories_are_deleted_in_groups() {
    let pair = Pair::new();
    let options = JobOptions { keep: Keep::default(), ..deleting() };
    write_all(&pair.source(), &["d/kept"]);
    fs::create_dir(pair.sink().join("d")).unwrap();
    (0..17_500).for_each(|name| fs::write(pair.sink().join(format!("d/{name}")), "").unwrap());
    for name in 0..1200 {
        fs::write(pair.source().join(format!("d/{name}")), "").unwrap();
    }
    let told = pair.send(&["d"], &options, 1);
    told.is_fine();
    assert_eq!(told.summary().deleted, 16_300);
    assert_eq!(files(&pair.sink()).len(), 1201);
}
