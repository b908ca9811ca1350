//! Events of a running copy. The command line turns them into lines, a progress bar or JSON.

use super::counter::Counter;
use super::error::CopyError;
use haul_digest::Digest;
use haul_model::{ByteRange, Level};
use std::ffi::OsStr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Receiver of the events of a job. Any worker calls it, and calls may be concurrent.
pub trait CopyObserver: Sync {
    /// Reports a failure. The job continues with the rest, and its exit status is a failure.
    fn failed(&self, error: &CopyError);
    /// Reports a message for standard error that is not a failure.
    fn warned(&self, warning: &CopyError);
    /// Reports a created entry, for `-v`. `line` is the line that cp would print, without the
    /// newline.
    fn made(&self, line: &OsStr);
    /// Reports the digest of a file.
    fn hashed(&self, line: &HashLine<'_>);
    /// Returns true if [`CopyObserver::finished`] is to be called. Its names cost memory for each
    /// file.
    fn wants_figures(&self) -> bool;
    /// Reports a finished file.
    fn finished(&self, figures: &FileFigures<'_>);
    /// Asks the user, for `-i`. Returns true for yes.
    fn ask(&self, question: &Question<'_>) -> bool;
}

/// The observer of a job and its counters. Failures are counted where they are reported.
#[derive(Clone, Copy)]
pub struct JobObserver<'a> {
    /// Receiver of the events.
    pub report: &'a dyn CopyObserver,
    /// Counters of the job.
    pub tally: &'a Tally,
}

impl JobObserver<'_> {
    /// Reports and counts a failure.
    pub fn fail(&self, error: &CopyError) {
        Tally::add(&self.tally.failures, 1);
        self.report.failed(error);
    }

    /// Reports a message that is not a failure.
    pub fn warn(&self, warning: &CopyError) {
        self.report.warned(warning);
    }
}

/// The digest of a file, as `--print-hash` prints it.
#[derive(Debug)]
pub struct HashLine<'a> {
    /// Name to print.
    pub name: &'a OsStr,
    /// One digest, or one per leaf with `--check-tree`.
    pub digests: &'a [Digest],
    /// True if the value is the root of a tree (mutil marks such lines).
    pub tree: bool,
    /// Range that was copied, if it was not the complete file.
    pub part: Option<ByteRange>,
}

/// Statistics of one finished file.
#[derive(Debug)]
pub struct FileFigures<'a> {
    /// The source, as typed or found.
    pub source: &'a OsStr,
    /// The sink, as typed or built.
    pub sink: &'a OsStr,
    /// Number of bytes copied.
    pub bytes: u64,
    /// Time from opening the source to setting the last metadata.
    pub took: Duration,
    /// Verification level of the bytes.
    pub level: Level,
    /// For [`Verify::Stream`](super::Verify): digest of all bytes that were read and passed to the
    /// sink. It proves nothing yet, but a later reader of the copy can compare it.
    pub passed: Option<Digest>,
}

/// A yes-or-no question of `-i`.
#[derive(Debug)]
pub struct Question<'a> {
    /// Text of the question, without the tool's name: `overwrite 'x'? `.
    pub text: &'a OsStr,
}

/// Counters of a running job, for progress displays. All counters only grow.
#[derive(Debug, Default)]
pub struct Tally {
    /// Regular files found so far.
    pub files_found: Counter,
    /// Finished regular files: copied, skipped or failed.
    pub files_done: Counter,
    /// Bytes of the files found so far.
    pub bytes_found: Counter,
    /// Bytes copied, including [`Tally::bytes_kept`].
    pub bytes_done: Counter,
    /// Bytes of files that the rules leave unchanged, or whose names became links.
    pub bytes_skipped: Counter,
    /// Bytes that an earlier run of the job had copied, or that existed at the sink and are
    /// correct.
    pub bytes_kept: Counter,
    /// Files that an earlier run of the job had finished.
    pub files_kept: Counter,
    /// Other files that a comparison found complete.
    pub files_same: Counter,
    /// Copied files that were not compared with their source afterwards.
    pub files_unverified: Counter,
    /// Bytes that were re-read from the device and are correct.
    pub bytes_reread: Counter,
    /// Bytes that were to be re-read from the device and came from the page cache.
    pub bytes_read_back: Counter,
    /// Objects that were wrong when re-read and are correct after a rewrite.
    pub objects_mended: Counter,
    /// Entries of any type that failed.
    pub failures: Counter,
    /// Entries known to exist, and directories being read.
    known: Counter,
    /// Entries among them that were handled, and directories that were read to their end.
    handled: Counter,
    /// Files that the walk counted ahead of the copy and that were not handled yet. It shrinks too.
    waiting: AtomicU64,
}

impl Tally {
    /// Returns the number of bytes copied and skipped.
    pub fn bytes_through(&self) -> u64 {
        self.bytes_done.get().saturating_add(self.bytes_skipped.get())
    }

    /// Adds to one of the counters.
    pub fn add(counter: &Counter, amount: u64) {
        counter.add(amount);
    }

    /// Reads one of the counters.
    pub fn get(counter: &Counter) -> u64 {
        counter.get()
    }

    /// Adds entries that are known to exist. Must be called before any of them is handled.
    pub fn expect(&self, count: usize) {
        self.known.add(count as u64);
    }

    /// Records that one entry was handled or one directory was read to its end.
    pub fn handled(&self) {
        self.handled.add(1);
    }

    /// Counts a file of `bytes` bytes ahead of its copy. It is known already, and not handled.
    pub fn count_ahead(&self, bytes: u64) {
        self.bytes_found.add(bytes);
        self.files_found.add(1);
        self.waiting.fetch_add(1, Ordering::AcqRel);
    }

    /// Records that the copy takes over a file that was counted ahead. Must be called before the
    /// file is handled.
    pub fn caught_up(&self) {
        self.waiting.fetch_sub(1, Ordering::AcqRel);
    }

    /// Returns the number of files that were counted ahead of the copy and were not handled yet.
    pub fn ahead(&self) -> u64 {
        self.waiting.load(Ordering::Acquire)
    }

    /// Returns true if the complete tree was walked, so that the counts are final.
    pub fn is_walked(&self) -> bool {
        // Every handled or counted entry was known before. If the number of both, which are read
        // first, equals the number known, nothing else was left in between. A file is in at most
        // one of both numbers. A directory counts until all its entries are known, so no entry
        // comes later.
        let handled = self.handled.get();
        let through = handled + self.ahead();
        through > 0 && through == self.known.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walk_is_complete_after_the_last_expected_entry() {
        let tally = Tally::default();
        assert!(!tally.is_walked(), "nothing is known yet");
        tally.expect(1);
        tally.expect(2);
        let walked: Vec<bool> = (0..3)
            .map(|_| {
                tally.handled();
                tally.is_walked()
            })
            .collect();
        assert_eq!(walked, [false, false, true]);
    }

    #[test]
    fn walk_ahead_is_complete_before_its_files_are_handled() {
        let tally = Tally::default();
        tally.expect(3);
        tally.handled();
        let walked: Vec<bool> = [5, 7]
            .map(|bytes| {
                tally.count_ahead(bytes);
                tally.is_walked()
            })
            .to_vec();
        assert_eq!((walked, tally.bytes_found.get(), tally.files_found.get()), (vec![false, true], 12, 2));
        tally.caught_up();
        tally.handled();
        assert!(tally.is_walked() && tally.ahead() == 1);
    }
}
