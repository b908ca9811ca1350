//! Objects that the log of a transfer's sink claims, compared with the source.

use super::resumed::{OBJECT, ResumeScenario, facts_in, files_beneath, identity};
use haul_log::objects::Identity;
use std::fs;
use std::path::Path;

/// A logged object.
pub(super) struct Claim {
    /// Path of the file beneath the job's root, and offset of the object in bytes.
    pub(super) place: String,
    /// True if the bytes at the sink equal those of the source. `None` if the logged file no longer
    /// exists, so that no run trusts the entry.
    pub(super) holds: Option<bool>,
}

/// Returns the objects that the log in the job directory `home` claims. `known_by` returns the
/// identity that the log stores for a file of the sink.
pub(super) fn claims(
    scenario: &ResumeScenario,
    home: &Path,
    known_by: impl Fn(&Path) -> Option<Identity>,
) -> Vec<Claim> {
    let there = files_beneath(&scenario.sink());
    let mut claims = Vec::new();
    for (subject, objects) in facts_in(home).iter() {
        let path = String::from_utf8(subject.path.as_bytes().to_vec()).unwrap();
        let found = there.iter().find(|path| known_by(path) == Some(subject.sink));
        // A running job may rename the file at this moment.
        let stands = found.and_then(|found| fs::read(found).ok());
        let source = fs::read(scenario.source().join(path.strip_prefix("data/").unwrap())).unwrap();
        for at in objects.iter().map(|object| (object.0 * OBJECT) as usize) {
            let end = (at + OBJECT as usize).min(source.len());
            let holds = stands.as_ref().map(|stands| stands.get(at..end) == Some(&source[at..end]));
            claims.push(Claim { place: format!("{path} from {at} on"), holds });
        }
    }
    claims
}

/// Returns the number of logged objects of the job. Panics if a logged object differs from the
/// source.
#[track_caller]
pub(super) fn claimed(scenario: &ResumeScenario, what: &str) -> u64 {
    let claims: Vec<Claim> =
        scenario.jobs().iter().flat_map(|home| claims(scenario, home, identity)).collect();
    for Claim { place, holds } in &claims {
        assert_eq!(*holds, Some(true), "{what}: {place}");
    }
    claims.len() as u64
}
