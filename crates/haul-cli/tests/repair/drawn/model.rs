//! Model of a repair: the outcome of each entry of a waybill.

use super::world::{self, Claim, Content, Found, Range, Verdict, What, bytes_at, look};
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
pub(super) enum Fate {
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
enum Way {
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
pub(super) fn fates(
    claims: &[Claim],
    verdicts: &[Verdict],
    home: &Path,
    replicas: &[String],
    options: Options,
) -> Vec<Fate> {
    let root = home.join("root");
    let there: Vec<Option<There>> = claims
        .iter()
        .map(|claim| match look(&root, &claim.path) {
            Found::There(facts, place) => Some(There { facts, place }),
            _ => None,
        })
        .collect();
    let replicas: Vec<PathBuf> = replicas.iter().map(|name| home.join(name)).collect();
    let mut fates = vec![Fate::Any; claims.len()];
    // Further names of a file depend on its first one, which a later section may name.
    let is_further = |number: &usize| matches!(claims[*number].what, What::Same(_));
    let order = (0..claims.len()).filter(|number| !is_further(number));
    for number in order.chain((0..claims.len()).filter(is_further)) {
        let (claim, verdict) = (&claims[number], &verdicts[number]);
        let fate = match (&claim.what, verdict) {
            (_, Verdict::Intact) => Fate::Any,
            (_, Verdict::Other) => Fate::Left,
            (_, Verdict::Missing) if way(&root, &claim.path) == Way::Blocked => Fate::Left,
            (_, Verdict::Missing) if way(&root, &claim.path) == Way::ByLink => Fate::Any,
            (What::File(content), Verdict::Missing) => {
                match can_prove(content, &content.pieces(), &replicas, &claim.path) {
                    true => Fate::Made(world::joined(content.pieces())),
                    false => Fate::Left,
                }
            }
            (What::File(_), Verdict::Bytes(_) | Verdict::Size) if !options.modified => Fate::Left,
            (What::File(content), _) => {
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
                    if is_shared { Fate::Any } else { Fate::Left }
                } else if way(&root, &claim.path) == Way::ByLink {
                    Fate::Any
                } else if is_one || matches!(verdict, Verdict::Rotted(_)) || (options.in_place && !is_shared)
                {
                    Fate::Repaired(world::joined(needed))
                } else if is_shared {
                    Fate::Any
                } else {
                    // A user may have changed it on purpose under its other name.
                    Fate::Left
                }
            }
            (What::Same(first), _) => {
                let first = claims.iter().position(|other| other.path == *first).unwrap();
                match verdicts[first] {
                    Verdict::Missing if fates[first] == Fate::Left => Fate::Left,
                    Verdict::Missing => fates[first].clone().without_bytes(),
                    _ if there[first].as_ref().is_some_and(|first| first.facts.is_file()) => {
                        Fate::Made(vec![])
                    }
                    _ => Fate::Left,
                }
            }
            (What::Dir | What::Link(_), _) => Fate::Made(vec![]),
            (What::Fifo, _) => Fate::Left,
        };
        fates[number] = fate;
    }
    fates
}

impl Fate {
    fn without_bytes(self) -> Fate {
        if let Fate::Made(_) = self { Fate::Made(vec![]) } else { self }
    }
}

/// Returns true if each of the pieces is right in one of the replicas.
fn can_prove(content: &Content, pieces: &[Range], replicas: &[PathBuf], path: &Path) -> bool {
    let files: Vec<Vec<u8>> = replicas.iter().filter_map(|replica| bytes_at(replica, path)).collect();
    // An empty file needs no bytes.
    let mut pieces = pieces.iter().filter(|(start, end)| start < end);
    pieces.all(|&piece| files.iter().any(|bytes| content.is_right(bytes, piece)))
}

fn way(root: &Path, path: &Path) -> Way {
    let mut dirs: Vec<&Path> = path.ancestors().skip(1).collect();
    dirs.reverse();
    for dir in dirs {
        match fs::symlink_metadata(root.join(dir)) {
            Ok(facts) if facts.is_dir() => {}
            Ok(facts) if facts.is_symlink() => return Way::ByLink,
            Ok(_) => return Way::Blocked,
            Err(error) if error.kind() == ErrorKind::NotFound => return Way::Open,
            Err(error) => panic!("{}: {error}", dir.display()),
        }
    }
    Way::Open
}
