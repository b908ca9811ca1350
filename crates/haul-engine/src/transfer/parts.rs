//! Parts of files, for a fetch that already has most of their bytes.

use super::source::Rule;
use haul_model::{ByteRange, Geometry, RelPath};
use haul_proto::Runs;
use haul_proto::limits::{RULES_BYTES_MAX, RULES_MAX, RUNS_MAX};
use std::collections::{BTreeSet, HashMap};

/// Ranges of files. A fetch of them receives the objects that overlap these ranges, and nothing of
/// other files.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    files: HashMap<Box<[u8]>, Vec<ByteRange>>,
}

impl Parts {
    /// Adds ranges of a file, by its path beneath the fetched directory.
    pub fn add(&mut self, path: &RelPath, ranges: &[ByteRange]) {
        self.files.entry(path.as_bytes().into()).or_default().extend_from_slice(ranges);
    }

    /// Returns the ranges of the files beneath a directory, by their paths beneath it.
    pub fn beneath(&self, directory: &[u8]) -> Parts {
        let path = |path: &[u8]| Some(path.strip_prefix(directory)?.strip_prefix(b"/")?.into());
        let files = self.files.iter().filter_map(|(name, ranges)| Some((path(name)?, ranges.clone())));
        Parts { files: files.collect() }
    }

    /// Returns true if there are no ranges.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Returns the number of files with ranges.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// Returns the total size of all ranges in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.values().flatten().map(|range| range.len()).sum()
    }

    /// Returns the objects of a file that are not requested; `None` if no object is requested.
    pub(super) fn unwanted(&self, path: &[u8], geometry: Geometry) -> Option<Runs> {
        let object = geometry.object_size().bytes();
        let end_of = |range: &ByteRange| range.end.0.min(geometry.len());
        let met = self.files.get(path)?.iter().filter(|range| range.start.0 < end_of(range));
        let wanted: Runs =
            met.map(|range| (range.start.0 / object, end_of(range).div_ceil(object))).collect();
        if wanted.is_empty() {
            return None;
        }
        let mut unwanted = Runs::of(0, geometry.count());
        unwanted.subtract(&wanted);
        // The source accepts no longer list. All objects after its end are sent.
        unwanted.truncate(RUNS_MAX);
        Some(unwanted)
    }

    /// Returns filter rules with which the source reads few directories besides those of the files.
    /// The rules may match more files, or all files if there are too many to name. The sink rejects
    /// the surplus.
    pub(super) fn rules(&self) -> Vec<Rule> {
        let depth = |path: &[u8]| path.split(|&byte| byte == b'/').count();
        let deepest = self.files.keys().map(|path| depth(path)).max().unwrap_or(0);
        (1..=deepest).rev().find_map(|depth| self.rules_to(depth)).unwrap_or_default()
    }

    /// Returns the rules for the first `depth` components of each path; `None` if they are too many
    /// for a job.
    fn rules_to(&self, depth: usize) -> Option<Vec<Rule>> {
        let everything = "*".to_owned();
        let (mut taken, mut bytes) = (BTreeSet::new(), everything.len());
        for path in self.files.keys() {
            let names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
            let mut way = String::new();
            let mut patterns = Vec::new();
            for (at, name) in names.iter().enumerate().take(depth) {
                way.push('/');
                way.push_str(&as_pattern(name));
                let is_file = at + 1 == names.len();
                patterns.push(if is_file { way.clone() } else { format!("{way}/") });
            }
            if names.len() > depth {
                patterns.push(format!("{way}/**"));
            }
            for pattern in patterns {
                let len = pattern.len();
                bytes += if taken.insert(pattern) { len } else { 0 };
            }
            if taken.len() >= RULES_MAX || bytes > RULES_BYTES_MAX {
                return None;
            }
        }
        Some(std::iter::once(Rule::Exclude(everything)).chain(taken.into_iter().map(Rule::Include)).collect())
    }
}

/// Returns a pattern that matches the name and few others. A character with a meaning in patterns
/// becomes `?`.
fn as_pattern(name: &[u8]) -> String {
    let Ok(name) = std::str::from_utf8(name) else { return "*".to_owned() };
    let is_plain =
        |sign: char| !sign.is_ascii() || sign.is_ascii_alphanumeric() || "._-+=,@%~:".contains(sign);
    name.chars().map(|sign| if is_plain(sign) { sign } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transfer::Filter;
    use haul_model::{ByteLen, ObjectSize};
    use haul_storage::FileKind;

    fn parts(paths: &[&[u8]]) -> Parts {
        let mut parts = Parts::default();
        for path in paths {
            parts.add(&RelPath::new(path).unwrap(), &[ByteRange::between(0, 1)]);
        }
        parts
    }

    fn geometry(len: u64) -> Geometry {
        Geometry::new(ByteLen(len), ObjectSize::new(65_536).unwrap())
    }

    #[test]
    fn only_objects_that_overlap_a_range_are_requested() {
        let mut parts = Parts::default();
        let ranges = [(70_000, 70_001), (131_071, 131_072), (655_360, 700_000)];
        let ranges = ranges.map(|(start, end)| ByteRange::between(start, end));
        parts.add(&RelPath::new(b"a/b").unwrap(), &ranges);
        let have = |len| parts.unwanted(b"a/b", geometry(len)).map(|have| have.iter().collect::<Vec<_>>());
        assert_eq!(have(700_000), Some(vec![(0, 1), (2, 10)]));
        assert_eq!(have(100_000), Some(vec![(0, 1)]), "a truncated file has the objects up to its end");
        assert_eq!(have(70_000), None, "it ends before all of them");
        assert_eq!(have(0), None);
        assert_eq!(parts.unwanted(b"a", geometry(700_000)), None, "this file was not requested");
        assert_eq!((parts.files(), parts.bytes()), (1, 44_642));
    }

    #[test]
    fn too_many_ranges_are_merged_without_loss() {
        let mut parts = Parts::default();
        let path = RelPath::new(b"a").unwrap();
        let count = 3 * RUNS_MAX as u64;
        let ranges: Vec<ByteRange> =
            (0..count).map(|at| ByteRange::between(at * 131_072, at * 131_072 + 1)).collect();
        parts.add(&path, &ranges);
        let have = parts.unwanted(b"a", geometry(count * 131_072)).unwrap();
        assert_eq!(have.pieces(), RUNS_MAX);
        assert!(ranges.iter().all(|range| !have.contains(range.start.0 / 65_536)));
    }

    #[test]
    fn rules_include_only_the_files_and_their_directories() {
        let files: [&[u8]; 3] = [b"top", b"a/b/c [1]*.dat", b"a/#x/ y!"];
        let rules = parts(&files).rules();
        let filter = Filter::new(&rules).unwrap();
        for file in files {
            assert!(!filter.leaves_out(file, FileKind::Regular), "{file:?}");
            for end in (0..file.len()).filter(|&at| file[at] == b'/') {
                assert!(!filter.leaves_out(&file[..end], FileKind::Directory), "{file:?}");
            }
        }
        for (path, kind) in [
            (&b"other"[..], FileKind::Directory),
            (b"a/b/other", FileKind::Directory),
            (b"a/c", FileKind::Directory),
            (b"a/b/d", FileKind::Regular),
            (b"deep/top", FileKind::Regular),
        ] {
            assert!(filter.leaves_out(path, kind), "{path:?}");
        }
    }

    #[test]
    fn rules_match_names_that_are_not_utf8() {
        let filter = Filter::new(&parts(&[b"a/\xff\xfe/z"]).rules()).unwrap();
        assert!(!filter.leaves_out(b"a/\xff\xfe", FileKind::Directory));
        assert!(!filter.leaves_out(b"a/\xff\xfe/z", FileKind::Regular));
        assert!(filter.leaves_out(b"b", FileKind::Directory));
        assert!(filter.leaves_out(b"a/\xff\xfe/y", FileKind::Regular));
    }

    #[test]
    fn files_above_the_rule_limit_are_matched_by_directory() {
        let names: Vec<String> = (0..5000).map(|number| format!("a/d{}/f{number}", number % 7)).collect();
        let paths: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        let rules = parts(&paths).rules();
        assert_eq!(rules.len(), 1 + 1 + 7 * 2, "{rules:?}");
        let filter = Filter::new(&rules).unwrap();
        assert!(paths.iter().all(|path| !filter.leaves_out(path, FileKind::Regular)));
        assert!(filter.leaves_out(b"b", FileKind::Directory));
        let names: Vec<String> = (0..5000).map(|number| format!("d{number}/f")).collect();
        let paths: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
        assert_eq!(parts(&paths).rules(), [], "all of it is walked");
    }
}
