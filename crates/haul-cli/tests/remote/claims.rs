//! What the log of a transfer's sink claims, held against the source.

use super::resumed::{OBJECT, Play, facts_in, files_beneath, identity};
use std::fs;

/// How many objects are logged of the job; panics where one of them is not what the source has.
#[track_caller]
pub(super) fn claimed(play: &Play, what: &str) -> u64 {
    let there = files_beneath(&play.sink());
    let mut claimed = 0;
    for home in play.jobs() {
        for (subject, objects) in facts_in(&home).iter() {
            let path = String::from_utf8(subject.path.as_bytes().to_vec()).unwrap();
            let found = there.iter().find(|path| identity(path) == Some(subject.sink));
            let stands =
                fs::read(found.unwrap_or_else(|| panic!("{what}: the file of {path} is gone"))).unwrap();
            let source = fs::read(play.source().join(path.strip_prefix("data/").unwrap())).unwrap();
            for at in objects.iter().map(|object| (object.0 * OBJECT) as usize) {
                let end = (at + OBJECT as usize).min(source.len());
                assert!(stands.get(at..end) == Some(&source[at..end]), "{what}: {path} from {at} on");
                claimed += 1;
            }
        }
    }
    claimed
}
