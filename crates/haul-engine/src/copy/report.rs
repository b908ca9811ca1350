//! What a copy tells while it runs. The command line turns these into lines, a bar or JSON.

use super::counter::Counter;
use super::error::CopyError;
use haul_digest::Digest;
use haul_model::{ByteRange, Level};
use std::ffi::OsStr;
use std::time::Duration;

/// The ear of a job. Calls come from any worker, several at a time.
pub trait Report: Sync {
    /// Something failed; the job goes on with the rest, and its exit status is a failure.
    fn failed(&self, error: &CopyError);
    /// Something is worth a line on standard error, but no failure.
    fn warned(&self, warning: &CopyError);
    /// `-v`: one entry was made. `line` is what cp would print, without the newline.
    fn made(&self, line: &OsStr);
    /// A file's digest is known.
    fn hashed(&self, line: &HashLine<'_>);
    /// Whether [`Report::finished`] is to be called: its names cost memory for each file.
    fn wants_figures(&self) -> bool;
    /// A file is finished.
    fn finished(&self, figures: &FileFigures<'_>);
    /// `-i`: asks the user; true for yes.
    fn ask(&self, question: &Question<'_>) -> bool;
}

/// A file's digest, as `--print-hash` tells it.
#[derive(Debug)]
pub struct HashLine<'a> {
    /// The name to print.
    pub name: &'a OsStr,
    /// One digest, or with `--check-tree` one per leaf.
    pub digests: &'a [Digest],
    /// Whether the value is a tree's (mutil marks such lines).
    pub tree: bool,
    /// The range that was copied, where it was not the whole file.
    pub part: Option<ByteRange>,
}

/// What one finished file took.
#[derive(Debug)]
pub struct FileFigures<'a> {
    /// The source, as typed or found.
    pub source: &'a OsStr,
    /// The sink, as typed or built.
    pub sink: &'a OsStr,
    /// Bytes moved.
    pub bytes: u64,
    /// From the opening of the source to the last metadata.
    pub took: Duration,
    /// What was proved of its bytes.
    pub level: Level,
    /// [`Verify::Stream`](super::Verify): the digest of the bytes that were read and handed to the sink, over all of them.
    /// It proves nothing yet; who reads the copy later can compare.
    pub passed: Option<Digest>,
}

/// A question of `-i`, answered by yes or no.
#[derive(Debug)]
pub struct Question<'a> {
    /// What is asked, without the tool's name: `overwrite 'x'? `.
    pub text: &'a OsStr,
}

/// Counters of a running job, read by whoever draws progress. All only grow.
#[derive(Debug, Default)]
pub struct Tally {
    /// Regular files met so far.
    pub files_found: Counter,
    /// Regular files that are through: copied, skipped or failed.
    pub files_done: Counter,
    /// Bytes of the files met so far.
    pub bytes_found: Counter,
    /// Bytes moved, and those of [`Tally::bytes_kept`].
    pub bytes_done: Counter,
    /// Bytes of files that the rules leave as they are, or whose names became links.
    pub bytes_skipped: Counter,
    /// Those of them that an earlier run of the job had moved, or that stood at the sink and are right.
    pub bytes_kept: Counter,
    /// Files that an earlier run of the job had finished.
    pub files_kept: Counter,
    /// Other files that a comparison found complete.
    pub files_same: Counter,
    /// Bytes that were read back from the device and are right.
    pub bytes_reread: Counter,
    /// Bytes that were to be read back from the device and came from the page cache.
    pub bytes_read_back: Counter,
    /// Objects that came back wrong and are right after they were written again.
    pub objects_mended: Counter,
    /// Entries of any kind that failed.
    pub failures: Counter,
    /// Entries known to be there, and directories being read.
    known: Counter,
    /// Those of them whose fate is decided, or that were read to their end.
    met: Counter,
}

impl Tally {
    /// Bytes of the files that are through and did not fail.
    pub fn bytes_through(&self) -> u64 {
        self.bytes_done.get().saturating_add(self.bytes_skipped.get())
    }

    /// Adds to one of the counters.
    pub(crate) fn add(counter: &Counter, amount: u64) {
        counter.add(amount);
    }

    /// Reads one of the counters.
    pub fn get(counter: &Counter) -> u64 {
        counter.get()
    }

    /// More entries are known to be there. Told before any of them is met.
    pub(crate) fn expect(&self, count: usize) {
        self.known.add(count as u64);
    }

    /// One entry's fate is decided, or one directory was read to its end.
    pub(crate) fn met(&self) {
        self.met.add(1);
    }

    /// Whether the whole tree has been met, so that the counts found are final.
    pub fn is_walked(&self) -> bool {
        // What is met was known before: where the number met first equals the number known after it, nothing was
        // left to meet in between. A directory counts until all it holds is known, so nothing comes later.
        let met = self.met.get();
        met > 0 && met == self.known.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_walked_when_the_last_thing_is_met() {
        let tally = Tally::default();
        assert!(!tally.is_walked(), "nothing is known yet");
        tally.expect(1);
        tally.expect(2);
        let walked: Vec<bool> = (0..3)
            .map(|_| {
                tally.met();
                tally.is_walked()
            })
            .collect();
        assert_eq!(walked, [false, false, true]);
    }
}
