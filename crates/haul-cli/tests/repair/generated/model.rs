//! Model of a repair: the outcome of each entry of a waybill.

use super::world::{self, Claim, Content, EntryContent, Found, Range, Verdict, bytes_at, look};
use std::fs::{self, Metadata};
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Options of the repair.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Options {
    /// `--modified`: also files that a user may have changed on purpose.
    pub(super) modified: bool,
    pub(super) in_place: bool,
}

/// Expected outcome of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExpectedOutcome {
    /// These bytes are replaced, unless they were under another name of the file before.
    Repaired(Vec<Range>),
    /// The name is made, of these bytes.
    Made(Vec<Range>),
    /// It stays as it was.
    Left,
    /// Depends on the outcome of earlier entries; the report must be true in any case.
    Any,
}

/// State of the directories above a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParentState {
    /// Each is a directory, or is missing and can be made.
    Open,
    /// One of them is another kind of file.
    Blocked,
    /// One of them is a symbolic link.
    ByLink,
}

/// Existing file of an entry.
struct There {
    facts: Metadata,
    place: PathBuf,
}

impl There {
    fn identity(&self) -> (u64, u64) {
        world::identity(&self.facts)
    }
}

/// The fates of all entries. The directory `root` in `home` is the damaged one.
pub(super) fn expected_outcomes(
    claims: &[Claim],
    verdicts: &[Verdict],
    home: &Path,
    replicas: &[String],
    options: Options,
) -> Vec<ExpectedOutcome> {
    let root = home.join("root");
    let there: Vec<Option<There>> = claims
        .iter()
        .map(|claim| match look(&root, &claim.path) {
            Found::There(facts, place) => Some(There { facts, place }),
            _ => None,
        })
        .collect();
    let replicas: Vec<PathBuf> = replicas.iter().map(|name| home.join(name)).collect();
    let mut expected_outcomes = vec![ExpectedOutcome::Any; claims.len()];
    // Further names of a file depend on its first one, which a later section may name.
    let is_further = |number: &usize| matches!(claims[*number].what, EntryContent::Same(_));
    let order = (0..claims.len()).filter(|number| !is_further(number));
    for number in order.chain((0..claims.len()).filter(is_further)) {
        let (claim, verdict) = (&claims[number], &verdicts[number]);
        let expected_outcome = match (&claim.what, verdict) {
            (_, Verdict::Intact) => ExpectedOutcome::Any,
            (_, Verdict::Other) => ExpectedOutcome::Left,
            (_, Verdict::Missing) if way(&root, &claim.path) == ParentState::Blocked => ExpectedOutcome::Left,
            (_, Verdict::Missing) if way(&root, &claim.path) == ParentState::ByLink => ExpectedOutcome::Any,
            (EntryContent::File(content), Verdict::Missing) => {
                match can_prove(content, &content.pieces(), &replicas, &claim.path) {
                    true => ExpectedOutcome::Made(world::joined(content.pieces())),
                    false => ExpectedOutcome::Left,
                }
            }
            (EntryContent::File(_), Verdict::Bytes(_) | Verdict::Size) if !options.modified => {
                ExpectedOutcome::Left
            }
            (EntryContent::File(content), _) => {
                let here = there[number].as_ref().unwrap();
                let is_shared = (0..claims.len()).filter(|&other| other != number).any(|other| {
                    there[other].as_ref().is_some_and(|other| other.identity() == here.identity())
                });
                let now = fs::read(&here.place).unwrap();
                let needed: Vec<Range> =
                    content.pieces().into_iter().filter(|&piece| !content.is_right(&now, piece)).collect();
                let is_one = here.facts.nlink() == 1;
                if !can_prove(content, &needed, &replicas, &claim.path) {
                    // A replica may have the bytes under another name of the file.
                    if is_shared { ExpectedOutcome::Any } else { ExpectedOutcome::Left }
                } else if way(&root, &claim.path) == ParentState::ByLink {
                    ExpectedOutcome::Any
                } else if is_one || matches!(verdict, Verdict::Rotted(_)) || (options.in_place && !is_shared)
                {
                    ExpectedOutcome::Repaired(world::joined(needed))
                } else if is_shared {
                    ExpectedOutcome::Any
                } else {
                    // A user may have changed it on purpose under its other name.
                    ExpectedOutcome::Left
                }
            }
            (EntryContent::Same(first), _) => {
                let first = claims.iter().position(|other| other.path == *first).unwrap();
                match verdicts[first] {
                    Verdict::Missing if expected_outcomes[first] == ExpectedOutcome::Left => {
                        ExpectedOutcome::Left
                    }
                    Verdict::Missing => expected_outcomes[first].clone().without_bytes(),
                    _ if there[first].as_ref().is_some_and(|first| first.facts.is_file()) => {
                        ExpectedOutcome::Made(vec![])
                    }
                    _ => ExpectedOutcome::Left,
                }
            }
            (EntryContent::Dir | EntryContent::Link(_), _) => ExpectedOutcome::Made(vec![]),
            (EntryContent::Fifo, _) => ExpectedOutcome::Left,
        };
        expected_outcomes[number] = expected_outcome;
    }
    expected_outcomes
}

impl ExpectedOutcome {
    fn without_bytes(self) -> ExpectedOutcome {
        if let ExpectedOutcome::Made(_) = self { ExpectedOutcome::Made(vec![]) } else { self }
    }
}

/// Returns true if each of the pieces is right in one of the replicas.
fn can_prove(content: &Content, pieces: &[Range], replicas: &[PathBuf], path: &Path) -> bool {
    let files: Vec<Vec<u8>> = replicas.iter().filter_map(|replica| bytes_at(replica, path)).collect();
    // An empty file needs no bytes.
    let mut pieces = pieces.iter().filter(|(start, end)| start < end);
    pieces.all(|&piece| files.iter().any(|bytes| content.is_right(bytes, piece)))
}

fn way(root: &Path, path: &Path) -> ParentState {
    let mut dirs: Vec<&Path> = path.ancestors().skip(1).collect();
    dirs.reverse();
    for dir in dirs {
        match fs::symlink_metadata(root.join(dir)) {
            Ok(facts) if facts.is_dir() => {}
            Ok(facts) if facts.is_symlink() => return ParentState::ByLink,
            Ok(_) => return ParentState::Blocked,
            Err(error) if error.kind() == ErrorKind::NotFound => return ParentState::Open,
            Err(error) => panic!("{}: {error}", dir.display()),
        }
    }
    ParentState::Open
}
