//! What the log of a transfer's sink claims, held against the source.

use super::resumed::{OBJECT, Play, facts_in, files_beneath, identity};
use haul_log::objects::Identity;
use std::fs;
use std::path::Path;

/// An object that is logged.
pub(super) struct Claim {
    /// The file, beneath the job's root, and the first byte of the object.
    pub(super) place: String,
    /// Whether the sink has what the source has; `None` where the file that is meant stands there no more, so that nobody believes it.
    pub(super) holds: Option<bool>,
}

/// What the log in the folder `home` of a job claims; `known_by` is what it knows a file of the sink by.
pub(super) fn claims(play: &Play, home: &Path, known_by: impl Fn(&Path) -> Option<Identity>) -> Vec<Claim> {
    let there = files_beneath(&play.sink());
    let mut claims = Vec::new();
    for (subject, objects) in facts_in(home).iter() {
        let path = String::from_utf8(subject.path.as_bytes().to_vec()).unwrap();
        let found = there.iter().find(|path| known_by(path) == Some(subject.sink));
        // The job may be running, and the file get its name at this moment.
        let stands = found.and_then(|found| fs::read(found).ok());
        let source = fs::read(play.source().join(path.strip_prefix("data/").unwrap())).unwrap();
        for at in objects.iter().map(|object| (object.0 * OBJECT) as usize) {
            let end = (at + OBJECT as usize).min(source.len());
            let holds = stands.as_ref().map(|stands| stands.get(at..end) == Some(&source[at..end]));
            claims.push(Claim { place: format!("{path} from {at} on"), holds });
        }
    }
    claims
}

/// How many objects are logged of the job; panics where one of them is not what the source has.
#[track_caller]
pub(super) fn claimed(play: &Play, what: &str) -> u64 {
    let claims: Vec<Claim> = play.jobs().iter().flat_map(|home| claims(play, home, identity)).collect();
    for Claim { place, holds } in &claims {
        assert_eq!(*holds, Some(true), "{what}: {place}");
    }
    claims.len() as u64
}
