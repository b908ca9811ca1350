//! Sources with random changes at random moments, while they are copied, moved or hashed.
//!
//! Invariant: status 0 means that the copy, or the digest, is that of one state of the source.

use super::fixture::{FaultFixture, HOLD, OPTION_SETS, Running, haul, start, write_old};
use haul_lab::random::{Random, soak_seed};
use haul_lab::wait_until;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// Number of cases of an ordinary run, and of a soak run.
const CASES: [u64; 2] = [60, 1500];

#[derive(Clone, Copy, Debug)]
enum Change {
    Write,
    MapWrite,
    Append,
    Truncate,
    Lengthen,
    Replace,
    Remove,
    Restrict,
    Link,
}

const CHANGES: [Change; 9] = [
    Change::Write,
    Change::MapWrite,
    Change::Append,
    Change::Truncate,
    Change::Lengthen,
    Change::Replace,
    Change::Remove,
    Change::Restrict,
    Change::Link,
];

impl Change {
    fn apply(self, file: &Path, random: &mut Random) {
        let len = fs::metadata(file).map_or(0, |facts| facts.len());
        let at = random.below(len.max(1));
        let open = || File::options().read(true).write(true).open(file).unwrap();
        match self {
            // An earlier change removed the file.
            _ if !file.exists() => {}
            Change::Write => open().write_all_at(&[1; 3000][..1 + random.index(3000)], at).unwrap(),
            Change::MapWrite if len > 0 => map_write(file, at),
            Change::MapWrite => {}
            Change::Append => open().write_all_at(&[2; 5000], len).unwrap(),
            Change::Truncate => open().set_len(at).unwrap(),
            Change::Lengthen => open().set_len(len + 1 + at).unwrap(),
            Change::Replace => {
                let other = file.with_extension("new");
                write_old(&other, &vec![3; random.index(2 << 20)]);
                fs::rename(other, file).unwrap();
            }
            Change::Remove => fs::remove_file(file).unwrap(),
            Change::Restrict => fs::set_permissions(file, Permissions::from_mode(0o640)).unwrap(),
            Change::Link => drop(fs::hard_link(file, file.with_extension("link"))),
        }
    }

    fn keeps_bytes(self) -> bool {
        matches!(self, Change::Restrict | Change::Link)
    }
}

/// Writes a byte through a shared mapping.
fn map_write(file: &Path, at: u64) {
    let script = "import mmap, sys\nwith open(sys.argv[1], 'r+b') as file: mmap.mmap(file.fileno(), 0)[int(sys.argv[2])] = 4";
    let status = Command::new("python3").args(["-c", script]).arg(file).arg(at.to_string()).status();
    assert!(status.unwrap().success());
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verb {
    Copy,
    Move,
    Sum,
}

/// Returns the verb and the words before the operands.
fn drawn_words(fixture: &FaultFixture, number: u64, random: &mut Random) -> (Verb, Vec<String>) {
    let path = |name: &str| fixture.path(&format!("{name}{number}")).display().to_string();
    let own = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let mut words = match random.below(8) {
        0 => return (Verb::Move, own(&["mv"])),
        1 => return (Verb::Sum, own(&["sum", "-a", ["blake3", "md5", "crc32"][random.index(3)]])),
        2 => vec!["cp".to_owned(), format!("--waybill={}", path("waybill"))],
        3 => vec!["cp".to_owned(), "--resume".to_owned(), format!("--state-dir={}", path("state"))],
        _ => [&["cp".to_owned()][..], &own(OPTION_SETS[random.index(OPTION_SETS.len())])].concat(),
    };
    words.extend(random.chance(50).then(|| "-p".to_owned()));
    (Verb::Copy, words)
}

fn run(fixture: &FaultFixture, number: u64, seed: u64) -> Result<(), String> {
    let random = &mut Random::for_part(seed, number);
    let len = [1, 5000, 200_000, 3 << 20, 6 << 20][random.index(5)] + random.below(4096);
    let name = format!("f{number}");
    let (store, view, sink) = (
        fixture.path("store").join(&name),
        fixture.path("view").join(&name),
        fixture.path(&format!("sink{number}")),
    );
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    random.fill(&mut bytes);
    write_old(&store, &bytes);
    let modified = fs::metadata(&store).unwrap().modified().unwrap();
    let inode = fs::metadata(&store).unwrap().ino();
    let (verb, words) = drawn_words(fixture, number, random);
    let changes: Vec<Change> = (0..=random.below(3)).map(|_| CHANGES[random.index(CHANGES.len())]).collect();
    let restores_time = random.chance(70);
    let at = random.below(len);
    let case = format!(
        "seed {seed}, case {number}: {words:?}, {len} bytes, held at {at}, {changes:?}, time restored: {restores_time}"
    );

    let before = fixture.fired().len();
    fixture.rules(&format!("{name} read {at}.. delay {HOLD} times 1"));
    let operands = [Some(view.as_path()), Some(sink.as_path()).filter(|_| verb != Verb::Sum)];
    let mut running: Running = start(words.iter().map(Path::new).chain(operands.into_iter().flatten()));
    // Some commands read nothing after the drawn offset.
    wait_until("the held read, or the end", || fixture.fired().len() > before || running.has_ended());
    let mut states = vec![bytes];
    for change in &changes {
        change.apply(&store, random);
        states.extend(fs::read(&store).ok());
        if restores_time && store.exists() {
            File::options().write(true).open(&store).unwrap().set_modified(modified).unwrap();
        }
    }
    fixture.release();
    let ended = running.end();
    fixture.rules("");

    let wrong = |what: &str| Err(format!("{case}: {what}: {ended:?}"));
    let found = fs::read(&sink).ok();
    let is_state = |found: &Vec<u8>| states.contains(found);
    match (verb, ended.code) {
        (_, None) => return wrong("a signal ended it"),
        (Verb::Sum, Some(0)) => {
            let digest = ended
                .stdout
                .split_whitespace()
                .find(|word| word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit()));
            let digests = states.iter().enumerate().map(|(number, state)| {
                let file = fixture.path(&format!("content{number}"));
                fs::write(&file, state).unwrap();
                haul([words.iter().map(Path::new).collect::<Vec<_>>(), vec![&*file]].concat())
                    .is_fine()
                    .stdout
                    .clone()
            });
            let digests: Vec<String> = digests.collect();
            if digest.is_none_or(|digest| !digests.iter().any(|line| line.contains(digest))) {
                return wrong("the digest is of no state of the file");
            }
        }
        (Verb::Copy | Verb::Move, Some(0)) => {
            if !found.as_ref().is_some_and(is_state) {
                return wrong("the copy is no state of the file");
            }
            if let Some(waybill) = words.iter().find_map(|word| word.strip_prefix("--waybill=")) {
                let verified = haul(["verify", waybill, fixture.path("").to_str().unwrap()]);
                if verified.code != Some(0) {
                    return wrong(&format!("its waybill does not hold: {verified:?}"));
                }
            }
        }
        _ => {
            let looks_finished = fs::metadata(&sink).is_ok_and(|facts| facts.mtime() != 0);
            if looks_finished && !found.as_ref().is_some_and(is_state) {
                return wrong("a failed copy looks finished");
            }
            if ended.stderr.is_empty() {
                return wrong("it failed without a message");
            }
            if verb == Verb::Move
                && !store.exists()
                && !changes.iter().any(|change| matches!(change, Change::Remove))
            {
                return wrong("a move that failed removed its source");
            }
        }
    }
    // A move keeps a source whose mode or links changed, because the copy lacks this change.
    let is_same = verb != Verb::Move && changes.iter().all(|change| change.keeps_bytes());
    if is_same && fs::metadata(&store).is_ok_and(|facts| facts.ino() == inode) && ended.code != Some(0) {
        return wrong("it failed though no byte changed");
    }
    for left in [store.with_extension("link"), store, sink] {
        let _ = fs::remove_file(left);
    }
    Ok(())
}

#[test]
fn exit_0_means_a_consistent_copy_of_a_changing_source() {
    let Some(fixture) = FaultFixture::new("") else { return };
    let (seed, cases) = soak_seed().map_or((0, CASES[0]), |seed| (seed, CASES[1]));
    let failed: Vec<String> = (0..cases).filter_map(|number| run(&fixture, number, seed).err()).collect();
    assert!(failed.is_empty(), "{} of {cases} cases failed:\n{}", failed.len(), failed.join("\n"));
}
