//! Index of the paths that a waybill lists, each with the last section that lists it. It keeps
//! hashes of one share of the paths at a time.

use haul_log::waybill::{ReadError, Reader, Record, RelPath};
use std::io::BufRead;

/// Number of paths per share; their hashes take 64 MiB.
const PATHS_PER_SHARE: u64 = 4 << 20;

/// Returns the number of shares for this number of entries.
pub(super) fn shares(entries: u64) -> u64 {
    entries.div_ceil(PATHS_PER_SHARE).max(1)
}

/// Paths of one share: 12 bytes of the hash of each path, and the last section that lists it.
#[derive(Debug)]
pub(super) struct Index {
    share: u64,
    shares: u64,
    /// Sorted.
    paths: Vec<([u8; 12], u32)>,
}

impl Index {
    /// Reads the paths of a waybill.
    pub(super) fn of(reader: Reader<impl BufRead>, share: u64, shares: u64) -> Result<Index, ReadError> {
        let mut index = Index { share, shares, paths: Vec::new() };
        let mut section = 0;
        for record in reader {
            match record {
                Ok(Record::Section(_)) => section += 1,
                Ok(Record::Entry(entry)) => {
                    let hash = hash(entry.path.as_bytes());
                    if index.holds(hash) {
                        index.paths.push((hash, section));
                    }
                }
                Ok(_) | Err(ReadError::Flaw(_)) => {}
                Err(error) => return Err(error),
            }
        }
        index.paths.sort_unstable();
        // Keep the last section of each path: it is sorted after the others.
        index.paths.reverse();
        index.paths.dedup_by_key(|(hash, _)| *hash);
        index.paths.reverse();
        Ok(index)
    }

    /// Returns true if an entry of this section is verified in this share: the path belongs to the
    /// share, and no later section lists it.
    pub(super) fn is_current(&self, path: &RelPath, section: u32) -> bool {
        let hash = hash(path.as_bytes());
        self.holds(hash) && self.last_section(hash) == Some(section)
    }

    /// Returns true if a path belongs to this share and no section lists it.
    pub(super) fn is_extraneous(&self, path: &[u8]) -> bool {
        let hash = hash(path);
        self.holds(hash) && self.last_section(hash).is_none()
    }

    /// Returns true if a path belongs to this share, listed or not.
    pub(super) fn is_in_share(&self, path: &[u8]) -> bool {
        self.holds(hash(path))
    }

    fn holds(&self, hash: [u8; 12]) -> bool {
        u64::from(u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]])) % self.shares == self.share
    }

    fn last_section(&self, hash: [u8; 12]) -> Option<u32> {
        let at = self.paths.binary_search_by_key(&hash, |(hash, _)| *hash).ok()?;
        Some(self.paths[at].1)
    }
}

fn hash(path: &[u8]) -> [u8; 12] {
    let digest = haul_digest::digest(haul_digest::Algorithm::Blake3, path);
    let mut hash = [0; 12];
    hash.copy_from_slice(&digest.as_bytes()[..12]);
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_log::waybill::{Entry, Job, Kind, Moment, Tail, Writer};

    fn waybill(sections: &[&[&str]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for paths in sections {
            let tail = Tail::of(&bytes).ok();
            let mut writer = match tail {
                None => Writer::new(&mut bytes, &Job::default()).unwrap(),
                Some(tail) => Writer::append(&mut bytes, &Job::default(), &tail).unwrap(),
            };
            for path in *paths {
                let path = RelPath::new(path.as_bytes()).unwrap();
                let entry = Entry { path, kind: Kind::Directory, mode: 0, mtime: Moment::default() };
                writer.entry(&entry).unwrap();
            }
            writer.close().unwrap();
        }
        bytes
    }

    #[test]
    fn last_section_with_a_path_counts_for_any_number_of_shares() {
        let bytes = waybill(&[&["a", "b", "c"], &["b", "d"], &["b", "c"]]);
        let current = [("a", 1), ("b", 3), ("c", 3), ("d", 2)];
        for shares in 1..5 {
            let indices: Vec<Index> =
                (0..shares).map(|share| Index::of(Reader::new(&bytes[..]), share, shares).unwrap()).collect();
            for (path, last) in current {
                for section in 1..=3 {
                    let rel = RelPath::new(path.as_bytes()).unwrap();
                    let times = indices.iter().filter(|index| index.is_current(&rel, section)).count();
                    assert_eq!(times, usize::from(section == last), "{path} of section {section}");
                }
                assert!(!indices.iter().any(|index| index.is_extraneous(path.as_bytes())));
            }
            assert_eq!(indices.iter().filter(|index| index.is_extraneous(b"e")).count(), 1);
        }
        assert_eq!((shares(0), shares(PATHS_PER_SHARE), shares(PATHS_PER_SHARE + 1)), (1, 1, 2));
    }
}
