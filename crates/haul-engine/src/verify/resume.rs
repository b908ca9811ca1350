//! Resume state of a verification: its progress, in a small file that each write replaces as a
//! whole.
//!
//! ```text
//!  surehaul-verify-state version=2
//!  bound=HEX                                      waybill, root and settings
//!  share=0 next=1234 done=1230 bytes=... seed=...
//!  again=17,801                                   entries before `next` to verify again
//!  blake3=HEX                                     of the lines above
//! ```
//!
//! Verdicts are in the order of the waybill, so one number describes the progress. A second file
//! holds the stamps of the verified files (module [`crate::log`]); a file that changed since is
//! read again. Entries that did not match the waybill are verified again, so their verdicts are
//! reported again. No result is lost with the output of the first run.

use super::{VerdictKind, VerifyObserver};
use crate::log::{DeferredRecord, EarlierStamps, STATE, Stamp, StampFile};
use haul_digest::{Algorithm, digest};
use haul_storage::Stat;
use haul_storage::{Durability, Replacement, Writers, replace_path};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Prefix of the file, in any version.
const MAGIC: &str = "surehaul-verify-state ";

/// Interval between two writes of the state.
const EVERY: Duration = Duration::from_secs(2);

/// Maximum number of entries to verify again; after more of them the recorded progress stops.
const AGAIN_MAX: usize = 1 << 16;

/// Open flag that prevents blocking if the name belongs to a pipe.
const O_NONBLOCK: i32 = 0o4000;

/// Read limit for the file, in bytes; well above the size of a valid state.
const STATE_BYTES_MAX: u64 = 4 << 20;

/// Message about resuming a run.
#[derive(Debug)]
pub enum Resumption {
    /// Number of entries that an earlier run verified; they are skipped.
    GoesOn(u64),
    /// The state cannot be used, for this reason; everything is verified.
    Anew(&'static str),
    /// The state could not be written; this run is not resumable.
    Unsaved(io::Error),
}

/// Location of the state file.
#[derive(Clone, Debug)]
pub enum StateFile {
    /// A file that the user named.
    Named(OsString),
    /// The job directory, as soon as the job is registered.
    OfJob(Arc<DeferredRecord>),
}

impl StateFile {
    /// Returns the path of the file; `None` while it has no location.
    fn path(&self) -> Option<PathBuf> {
        match self {
            StateFile::Named(path) => Some(path.into()),
            StateFile::OfJob(deferred_record) => deferred_record.folder().map(|folder| folder.join(STATE)),
        }
    }

    /// Returns the path of the file, for messages.
    pub(super) fn name(&self) -> OsString {
        self.path().map(PathBuf::into_os_string).unwrap_or_default()
    }

    /// Returns true if an earlier run left the file.
    pub(super) fn is_there(&self) -> bool {
        self.path().is_some_and(|path| fs::symlink_metadata(path).is_ok())
    }

    /// Returns true if the file has a location, or can still get one.
    fn may_be(&self) -> bool {
        match self {
            StateFile::Named(_) => true,
            StateFile::OfJob(deferred_record) => !deferred_record.is_given_up(),
        }
    }
}

/// Returns the path of the stamps that belong to a state file.
fn stamps_of(state: &Path) -> PathBuf {
    let mut path = state.as_os_str().to_owned();
    path.push(".stamps");
    path.into()
}

/// Returns the path of the draft that is renamed to the state file.
fn draft_of(state: &Path) -> PathBuf {
    let mut path = state.as_os_str().to_owned();
    path.push(".new");
    path.into()
}

/// Progress of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct VerifyProgress {
    /// Share of the paths, and the next entry in it, counted over the whole waybill from 0.
    share: u64,
    next: u64,
    /// Number of earlier entries that need no further check.
    done: u64,
    bytes: u64,
    /// Seed of the sample.
    seed: Option<u64>,
    again: BTreeSet<u64>,
}

impl VerifyProgress {
    /// Returns true if an entry was verified before and matched the waybill.
    pub(super) fn is_done(&self, share: u64, entry: u64) -> bool {
        (share, entry) < (self.share, self.next) && !self.again.contains(&entry)
    }

    fn encode(&self, bound: &str) -> String {
        let VerifyProgress { share, next, done, bytes, seed, .. } = self;
        let again: Vec<String> = self.again.iter().map(u64::to_string).collect();
        let mut text = format!("{MAGIC}version=2\nbound={bound}\n");
        let seed = seed.map_or_else(String::new, |seed| seed.to_string());
        text += &format!("share={share} next={next} done={done} bytes={bytes} seed={seed}\n");
        text += &format!("again={}\n", again.join(","));
        let sum = digest(Algorithm::Blake3, text.as_bytes());
        text + &format!("blake3={sum}\n")
    }

    /// Decodes the output of [`encode`](VerifyProgress::encode) for the same job, or returns the
    /// reason for the refusal.
    fn decode(text: &str, bound: &str) -> Result<VerifyProgress, &'static str> {
        const TORN: &str = "damaged or truncated";
        let (body, sum) = text.rfind("blake3=").map(|at| text.split_at(at)).ok_or(TORN)?;
        if sum != format!("blake3={}\n", digest(Algorithm::Blake3, body.as_bytes())) {
            return Err(TORN);
        }
        let lines: Vec<&str> = body.lines().collect();
        let [head, found, place, again] = lines[..] else { return Err(TORN) };
        if head != format!("{MAGIC}version=2") {
            return Err("unsupported version");
        }
        if found != format!("bound={bound}") {
            return Err("belongs to another waybill, directory or set of options");
        }
        let mut fields = place.split(' ');
        let mut text_of = |name| fields.next()?.strip_prefix(name)?.strip_prefix('=');
        let mut field = |name| text_of(name).and_then(|text| text.parse().ok()).ok_or(TORN);
        let (share, next) = (field("share")?, field("next")?);
        let (done, bytes) = (field("done")?, field("bytes")?);
        let seed = match text_of("seed").ok_or(TORN)? {
            "" => None,
            seed => Some(seed.parse().map_err(|_| TORN)?),
        };
        let again = again.strip_prefix("again=").ok_or(TORN)?.split(',').filter(|text| !text.is_empty());
        let again = again.map(str::parse).collect::<Result<_, _>>().map_err(|_| TORN)?;
        Ok(VerifyProgress { share, next, done, bytes, seed, again })
    }
}

/// Checks for any bytes that they are the resume state of a verification, or refused with a reason,
/// and that an accepted state is the same after it is written and read again.
pub(crate) fn any_state(bytes: &[u8]) {
    const BOUND: &str = "fuzzed";
    for text in crate::sealed::sealed(bytes) {
        match VerifyProgress::decode(&text, BOUND) {
            Ok(progress) => {
                assert!(!progress.is_done(progress.share, progress.next), "it counts from the next entry");
                assert_eq!(VerifyProgress::decode(&progress.encode(BOUND), BOUND), Ok(progress));
            }
            Err(why) => assert!(!why.is_empty()),
        }
    }
}

/// Entries that an earlier run verified.
#[derive(Debug)]
pub(super) struct Earlier {
    place: VerifyProgress,
    stamps: EarlierStamps,
}

impl Earlier {
    /// Returns true if an entry was verified before and matched the waybill, and its file did not
    /// change since.
    pub(super) fn knows(&self, share: u64, entry: u64, path: &[u8], facts: &Stat) -> bool {
        self.place.is_done(share, entry) && self.stamps.knows(entry, path, facts)
    }
}

/// Result of an entry, for the state.
#[derive(Debug)]
pub(super) struct EntryResult<'v> {
    pub(super) share: u64,
    pub(super) entry: u64,
    /// Kind of the verdict; `None` for an entry that was not reached.
    pub(super) kind: Option<&'v VerdictKind>,
    /// True if the entry is verified again regardless of the verdict.
    pub(super) again: bool,
    /// Stamp of the file before it was read.
    pub(super) stamp: Stamp,
}

/// State of a running verification.
#[derive(Debug)]
pub(crate) struct Log {
    file: StateFile,
    bound: String,
    place: VerifyProgress,
    stamps: StampFile,
    /// True if the files on disk belong to this verification.
    begun: bool,
    /// Bytes that earlier runs read.
    bytes_before: u64,
    saved: Instant,
    /// True after a missing verdict or a failed write: the recorded progress stops.
    halted: bool,
    /// True if the write error was reported.
    told: bool,
}

impl Log {
    /// Reads the state of an earlier run if there is one.
    ///
    /// If the file is not a state, returns an error; neither the file nor the files next to it are
    /// replaced. `seed` selects the sample unless the earlier run had another seed.
    pub(super) fn open(
        file: StateFile,
        bound: &[u8],
        seed: Option<u64>,
        report: &mut dyn VerifyObserver,
    ) -> io::Result<Log> {
        let bound = digest(Algorithm::Blake3, bound).to_string();
        let text = file.path().map_or_else(|| Ok(Vec::new()), |path| read(&path, "the file"))?;
        if let StateFile::Named(path) = &file {
            let (draft, stamps) = (draft_of(Path::new(path)), stamps_of(Path::new(path)));
            read(&draft, "the file with .new appended to this name")?;
            let [is_draft, are_stamps] = [draft, stamps].map(|path| fs::symlink_metadata(path).is_ok());
            if text.is_empty() && are_stamps && !is_draft {
                return Err(not_ours("the file with .stamps appended to this name"));
            }
        }
        let found = std::str::from_utf8(&text).map_err(|_| "damaged or truncated");
        let anew = VerifyProgress { seed, ..VerifyProgress::default() };
        let place = match found.and_then(|text| VerifyProgress::decode(text, &bound)) {
            _ if text.is_empty() => anew,
            Ok(place) => {
                report.resumption(&Resumption::GoesOn(place.done));
                place
            }
            Err(why) => {
                report.resumption(&Resumption::Anew(why));
                anew
            }
        };
        let (stamps, begun, bytes_before) = (StampFile::default(), place.next > 0, place.bytes);
        Ok(Log {
            file,
            bound,
            place,
            stamps,
            begun,
            bytes_before,
            saved: Instant::now(),
            halted: false,
            told: false,
        })
    }

    /// Returns the entries that the earlier run verified.
    ///
    /// # Errors
    /// Returns an error if the stamps exist and cannot be read.
    pub(super) fn earlier(&self) -> io::Result<Earlier> {
        let path = self.file.path().filter(|_| self.place.next > 0).map(|path| stamps_of(&path));
        let stamps = path.map_or_else(|| Ok(EarlierStamps::none()), |path| EarlierStamps::open(&path))?;
        Ok(Earlier { place: self.place.clone(), stamps })
    }

    /// Returns the seed of the sample.
    pub(super) fn seed(&self) -> Option<u64> {
        self.place.seed
    }

    /// Returns the bytes that earlier runs read.
    pub(super) fn bytes_before(&self) -> u64 {
        self.bytes_before
    }

    /// Records the next verdict in order.
    pub(super) fn note(&mut self, EntryResult { share, entry, kind, again, stamp }: EntryResult<'_>) {
        let Some(kind) = kind.filter(|_| !self.halted) else {
            self.halted = true;
            return;
        };
        let is_read = matches!(kind, VerdictKind::Intact { .. });
        let is_good = is_read || matches!(kind, VerdictKind::Before | VerdictKind::Passed);
        let was_done = self.place.is_done(share, entry);
        if is_good && !again {
            self.place.done += u64::from(!was_done);
            self.place.again.remove(&entry);
        } else {
            if self.place.again.len() >= AGAIN_MAX && !self.place.again.contains(&entry) {
                self.halted = true;
                return;
            }
            self.place.done -= u64::from(was_done);
            self.place.again.insert(entry);
        }
        if is_read && self.file.may_be() && !self.stamps.set(entry, stamp) {
            self.halted = true;
            return;
        }
        (self.place.share, self.place.next) = (self.place.share, self.place.next).max((share, entry + 1));
    }

    /// Writes the state if the last write is at least two seconds old, or if `now` is true. First
    /// flushes the reported verdicts.
    pub(super) fn save(&mut self, bytes: u64, now: bool, report: &mut dyn VerifyObserver) {
        if !now && self.saved.elapsed() < EVERY {
            return;
        }
        self.saved = Instant::now();
        let Some(path) = self.file.path() else { return };
        report.keep();
        self.place.bytes = self.bytes_before + bytes;
        if let Err(error) = self.write(&path) {
            self.halted = true;
            // Each later call retries, because space may be free by then.
            if !std::mem::replace(&mut self.told, true) {
                report.resumption(&Resumption::Unsaved(error));
            }
        }
    }

    fn write(&mut self, path: &Path) -> io::Result<()> {
        // The path of the draft is that of `draft_of`.
        let state = Replacement { writers: Writers::One, mode: 0o666, durability: Durability::Data };
        let written = replace_path(path, state, |draft| {
            draft.write_all(self.place.encode(&self.bound).as_bytes())?;
            if !self.begun {
                // Delete the state of another verification, its stamps last: stamps without a state
                // or draft next to them must not exist.
                ignore_not_found(fs::remove_file(path))?;
                ignore_not_found(fs::remove_file(stamps_of(path)))?;
                self.begun = true;
            }
            // This order makes the stamps durable before the state that relies on them.
            self.stamps.write(&stamps_of(path), true)
        });
        if written.is_err() && self.begun && fs::symlink_metadata(path).is_err() {
            // Without a state, the next run would take the stamps for a file of the user. Entries
            // without stamps are read again. The first error is reported.
            let _ = fs::remove_file(stamps_of(path));
        }
        written
    }

    /// Deletes the state after a complete verification: the next run starts from the beginning.
    pub(crate) fn finish(self, report: &mut dyn VerifyObserver) {
        let Some(path) = self.file.path().filter(|_| self.begun) else { return };
        // Delete the state last: stamps without a state would belong to no run.
        for path in [&stamps_of(&path), &path] {
            if let Err(error) = ignore_not_found(fs::remove_file(path)) {
                report.resumption(&Resumption::Unsaved(error));
            }
        }
    }
}

/// Reads a state file, which may be incomplete; returns no bytes if it does not exist.
///
/// # Errors
/// Returns an error if the file cannot be read or is not a state; `what` names it in the message.
fn read(path: &Path, what: &str) -> io::Result<Vec<u8>> {
    let file = match File::options().read(true).custom_flags(O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut text = Vec::new();
    if file.metadata()?.is_file() {
        file.take(STATE_BYTES_MAX).read_to_end(&mut text)?;
        if text.starts_with(MAGIC.as_bytes()) || MAGIC.as_bytes().starts_with(&text) {
            return Ok(text);
        }
    }
    Err(not_ours(what))
}

fn not_ours(what: &str) -> io::Error {
    let why = format!("{what} is not the state of a verification and stays unchanged; use another file");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Treats a missing file as removed.
fn ignore_not_found(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_lab::faults::{FaultFs, Rules};
    use haul_lab::needs::{Need, met_or_skip};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn resume_state_round_trips_and_changed_bytes_are_refused(
            numbers in any::<[u64; 5]>(),
            again in prop::collection::btree_set(any::<u64>(), 0..9),
            at in any::<prop::sample::Index>(),
        ) {
            let [share, next, done, bytes, seed] = numbers;
            let seed = (seed % 2 == 0).then_some(seed);
            let place = VerifyProgress { share, next, done, bytes, seed, again };
            let text = place.encode("b");
            prop_assert_eq!(VerifyProgress::decode(&text, "b"), Ok(place));
            prop_assert!(VerifyProgress::decode(&text, "c").is_err());
            let at = at.index(text.len());
            prop_assert!(VerifyProgress::decode(&text[..at], "b").is_err());
            let mut other = text.into_bytes();
            other[at] ^= 1;
            prop_assert!(VerifyProgress::decode(std::str::from_utf8(&other).unwrap(), "b").is_err());
        }
    }

    /// Messages about resuming.
    #[derive(Default)]
    struct Told(Vec<String>);

    impl VerifyObserver for Told {
        fn judged(&mut self, _verdict: &super::super::Verdict) {}
        fn flawed(&mut self, _flaw: &haul_log::waybill::ReadError) {}
        fn resumption(&mut self, resumption: &Resumption) {
            self.0.push(format!("{resumption:?}"));
        }
    }

    /// Stamps without a state would make the next run refuse the state's name.
    #[test]
    fn state_that_cannot_be_written_leaves_nothing_and_is_written_later() {
        if !met_or_skip(&[Need::Fuse]) {
            return;
        }
        for fault in [
            "s.new create .. errno ENOSPC",
            "s.new write .. errno ENOSPC",
            "s.new fsync .. errno EIO",
            "s.new rename .. errno EIO",
            "s.stamps write .. errno ENOSPC",
            "s.stamps fsync .. errno EIO",
        ] {
            let dir = tempfile::tempdir().unwrap();
            let [store, view] = ["store", "view"].map(|name| dir.path().join(name));
            for place in [&store, &view] {
                fs::create_dir(place).unwrap();
            }
            let names = || {
                let names = fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().file_name());
                names.collect::<BTreeSet<_>>()
            };
            let faults = FaultFs::mount(&store, &view, fault.parse().unwrap()).unwrap();
            let file = || StateFile::Named(view.join("s").into());
            let mut told = Told::default();
            let mut log = Log::open(file(), b"waybill", None, &mut told).unwrap();
            let kind = Some(&VerdictKind::Intact { touched: false });
            log.note(EntryResult { share: 0, entry: 0, kind, again: false, stamp: Stamp::default() });
            log.save(1, true, &mut told);
            assert!(told.0.len() == 1 && told.0[0].starts_with("Unsaved"), "{fault}: {:?}", told.0);
            assert!(names().is_empty(), "{fault}: {:?}", names());
            let mut next = Told::default();
            Log::open(file(), b"waybill", None, &mut next).unwrap();
            assert!(next.0.is_empty(), "{fault}: {:?}", next.0);
            faults.set_rules(Rules::default());
            log.save(1, true, &mut told);
            drop(log);
            Log::open(file(), b"waybill", None, &mut next).unwrap();
            assert_eq!(next.0, ["GoesOn(1)"], "{fault}");
            faults.close();
        }
    }

    #[test]
    fn differences_are_rechecked_and_entries_after_a_gap_do_not_count() {
        let (file, bound) = (StateFile::Named(OsString::from("unused")), String::new());
        let (place, stamps) = (VerifyProgress::default(), StampFile::default());
        let mut log = Log {
            file,
            bound,
            place,
            stamps,
            begun: false,
            bytes_before: 0,
            saved: Instant::now(),
            halted: false,
            told: false,
        };
        let note = |log: &mut Log, share, entry, kind: Option<&VerdictKind>, again| {
            log.note(EntryResult { share, entry, kind, again, stamp: Stamp::default() });
        };
        let intact = VerdictKind::Intact { touched: false };
        note(&mut log, 0, 0, Some(&intact), false);
        note(&mut log, 0, 1, Some(&VerdictKind::Rotted), false);
        note(&mut log, 0, 2, Some(&VerdictKind::Passed), false);
        note(&mut log, 0, 3, Some(&intact), true);
        note(&mut log, 0, 4, None, false);
        note(&mut log, 0, 5, Some(&intact), false);
        let done = |log: &Log| Vec::from_iter((0..7).filter(|&entry| log.place.is_done(0, entry)));
        assert_eq!((done(&log), log.place.done), (vec![0, 2], 2));
        assert!(!log.place.is_done(1, 0));
        // Second run: one file was repaired meanwhile; another, which was intact, changed and
        // rotted.
        log.halted = false;
        note(&mut log, 0, 0, Some(&VerdictKind::Rotted), false);
        note(&mut log, 0, 1, Some(&intact), false);
        note(&mut log, 0, 2, Some(&VerdictKind::Before), false);
        note(&mut log, 0, 3, Some(&intact), false);
        assert_eq!((done(&log), log.place.done, log.place.next), (vec![1, 2, 3], 3, 4));
        // A later share implies that the first share is complete.
        note(&mut log, 1, 0, Some(&intact), false);
        assert!(log.place.is_done(0, 4) && !log.place.is_done(1, 1));
    }
}
