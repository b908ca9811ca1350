//! A verification that goes on where an earlier one ended: how far it came, in a small file that is replaced as a whole.
//!
//! ```text
//!  surehaul-verify-state version=2
//!  bound=HEX                                         what was verified, how, and where
//!  share=0 next=1234 done=1230 bytes=... seed=...
//!  again=17,801                                      entries before `next` that are looked at again
//!  blake3=HEX                                        of the lines above
//! ```
//!
//! Verdicts come strictly in the order of the waybill, so one number says how far they came. Beside it stands what each file looked like then
//! ([`crate::log`]'s stamps): one that somebody touched since is read again. Entries that were not as the waybill says are verified once more: their verdicts
//! are told again, and nothing that was found is lost with the first run's output.

use super::{VerdictKind, VerifyReport};
use crate::log::{EarlierStamps, Listing, STATE, Stamp, StampFile};
use haul_digest::{Algorithm, digest};
use haul_sys::Stat;
use haul_sys::open::NO_FOLLOW;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the file begins with, in any version.
const MAGIC: &str = "surehaul-verify-state ";

/// How often it is written.
const EVERY: Duration = Duration::from_secs(2);

/// Entries that are looked at again; after more of them the place stays where it is.
const AGAIN_MAX: usize = 1 << 16;

/// A pipe in the state's place is not waited for.
const O_NONBLOCK: i32 = 0o4000;

/// Far above what so many numbers take.
const STATE_BYTES_MAX: u64 = 4 << 20;

/// What is told about going on.
#[derive(Debug)]
pub enum Resumption {
    /// So many entries were verified before and are passed over.
    GoesOn(u64),
    /// The state can't be used, and why: all is verified.
    Anew(&'static str),
    /// The state could not be written: this run can't be gone on with.
    Unsaved(io::Error),
}

/// Where it is kept how far a verification came.
#[derive(Clone, Debug)]
pub enum StateFile {
    /// In a file that was named.
    Named(OsString),
    /// With the job, as soon as that is listed.
    OfJob(Arc<Listing>),
}

impl StateFile {
    /// The file; `None` while there is no place for it.
    fn path(&self) -> Option<PathBuf> {
        match self {
            StateFile::Named(path) => Some(path.into()),
            StateFile::OfJob(listing) => listing.folder().map(|folder| folder.join(STATE)),
        }
    }

    /// The file, for messages.
    pub(super) fn name(&self) -> OsString {
        self.path().map(PathBuf::into_os_string).unwrap_or_default()
    }

    /// Whether an earlier run left it.
    pub(super) fn is_there(&self) -> bool {
        self.path().is_some_and(|path| fs::symlink_metadata(path).is_ok())
    }

    /// Whether there will be a place for it.
    fn may_be(&self) -> bool {
        match self {
            StateFile::Named(_) => true,
            StateFile::OfJob(listing) => !listing.is_given_up(),
        }
    }
}

/// Where the stamps of the files stand that a state speaks of.
fn stamps_of(state: &Path) -> PathBuf {
    let mut path = state.as_os_str().to_owned();
    path.push(".stamps");
    path.into()
}

/// What a state is written under before it is renamed.
fn draft_of(state: &Path) -> PathBuf {
    let mut path = state.as_os_str().to_owned();
    path.push(".new");
    path.into()
}

/// How far a verification came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The share of the paths, and the next entry of it, counted over the whole waybill from 0.
    share: u64,
    next: u64,
    /// Entries before that one that need not be looked at again.
    done: u64,
    bytes: u64,
    /// What the sample was picked by.
    seed: Option<u64>,
    again: BTreeSet<u64>,
}

impl Place {
    /// Whether an entry was verified before, and was as the waybill says.
    pub(super) fn is_done(&self, share: u64, entry: u64) -> bool {
        (share, entry) < (self.share, self.next) && !self.again.contains(&entry)
    }

    fn encode(&self, bound: &str) -> String {
        let Place { share, next, done, bytes, seed, .. } = self;
        let again: Vec<String> = self.again.iter().map(u64::to_string).collect();
        let mut text = format!("{MAGIC}version=2\nbound={bound}\n");
        let seed = seed.map_or_else(String::new, |seed| seed.to_string());
        text += &format!("share={share} next={next} done={done} bytes={bytes} seed={seed}\n");
        text += &format!("again={}\n", again.join(","));
        let sum = digest(Algorithm::Blake3, text.as_bytes());
        text + &format!("blake3={sum}\n")
    }

    /// What [`encode`](Place::encode) wrote for the same job; the error says why not.
    fn decode(text: &str, bound: &str) -> Result<Place, &'static str> {
        const TORN: &str = "it is damaged or cut off";
        let (body, sum) = text.rfind("blake3=").map(|at| text.split_at(at)).ok_or(TORN)?;
        if sum != format!("blake3={}\n", digest(Algorithm::Blake3, body.as_bytes())) {
            return Err(TORN);
        }
        let lines: Vec<&str> = body.lines().collect();
        let [head, found, place, again] = lines[..] else { return Err(TORN) };
        if head != format!("{MAGIC}version=2") {
            return Err("it is of another version");
        }
        if found != format!("bound={bound}") {
            return Err("it belongs to another waybill, directory, or way to verify");
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
        Ok(Place { share, next, done, bytes, seed, again })
    }
}

/// What an earlier run verified.
#[derive(Debug)]
pub(super) struct Earlier {
    place: Place,
    stamps: EarlierStamps,
}

impl Earlier {
    /// Whether an entry was verified before and found as the waybill says, and its file was not touched since.
    pub(super) fn knows(&self, share: u64, entry: u64, path: &[u8], facts: &Stat) -> bool {
        self.place.is_done(share, entry) && self.stamps.knows(entry, path, facts)
    }
}

/// What came of an entry, for the state.
#[derive(Debug)]
pub(super) struct Noted<'v> {
    pub(super) share: u64,
    pub(super) entry: u64,
    /// `None` for an entry that was not reached.
    pub(super) kind: Option<&'v VerdictKind>,
    /// It is looked at again, whatever was found.
    pub(super) again: bool,
    /// What its file looked like before it was read.
    pub(super) stamp: Stamp,
}

/// The state of a running verification.
#[derive(Debug)]
pub(crate) struct Log {
    file: StateFile,
    bound: String,
    place: Place,
    stamps: StampFile,
    /// The files are those of this verification.
    begun: bool,
    /// Bytes read by earlier runs.
    bytes_before: u64,
    saved: Instant,
    /// A verdict was left out, or writing failed: the place moves no further.
    halted: bool,
    /// That it could not be written was told.
    told: bool,
}

impl Log {
    /// Reads the state of an earlier run, if there is one. What is no state at all is an error: neither it nor what stands under the names
    /// beside it is replaced. `seed` is what this run picks its sample by, unless the earlier one had another.
    pub(super) fn open(
        file: StateFile,
        bound: &[u8],
        seed: Option<u64>,
        report: &mut dyn VerifyReport,
    ) -> io::Result<Log> {
        let bound = digest(Algorithm::Blake3, bound).to_string();
        let text = file.path().map_or_else(|| Ok(Vec::new()), |path| read(&path, "it"))?;
        if let StateFile::Named(path) = &file {
            let (draft, stamps) = (draft_of(Path::new(path)), stamps_of(Path::new(path)));
            read(&draft, "the file of this name with .new behind it")?;
            let [is_draft, are_stamps] = [draft, stamps].map(|path| fs::symlink_metadata(path).is_ok());
            if text.is_empty() && are_stamps && !is_draft {
                return Err(not_ours("the file of this name with .stamps behind it"));
            }
        }
        let found = std::str::from_utf8(&text).map_err(|_| "it is damaged or cut off");
        let anew = Place { seed, ..Place::default() };
        let place = match found.and_then(|text| Place::decode(text, &bound)) {
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

    /// What the earlier run verified.
    ///
    /// # Errors
    /// The stamps of its files are there and can't be read.
    pub(super) fn earlier(&self) -> io::Result<Earlier> {
        let path = self.file.path().filter(|_| self.place.next > 0).map(|path| stamps_of(&path));
        let stamps = path.map_or_else(|| Ok(EarlierStamps::none()), |path| EarlierStamps::open(&path))?;
        Ok(Earlier { place: self.place.clone(), stamps })
    }

    /// What the sample is picked by.
    pub(super) fn seed(&self) -> Option<u64> {
        self.place.seed
    }

    /// Bytes that earlier runs read.
    pub(super) fn bytes_before(&self) -> u64 {
        self.bytes_before
    }

    /// Takes the next verdict in order.
    pub(super) fn note(&mut self, Noted { share, entry, kind, again, stamp }: Noted<'_>) {
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

    /// Writes the state if it was not written lately, or `now`; first all that was told goes out.
    pub(super) fn save(&mut self, bytes: u64, now: bool, report: &mut dyn VerifyReport) {
        if !now && self.saved.elapsed() < EVERY {
            return;
        }
        self.saved = Instant::now();
        let Some(path) = self.file.path() else { return };
        report.keep();
        self.place.bytes = self.bytes_before + bytes;
        if let Err(error) = self.write(&path) {
            self.halted = true;
            // It is tried again every time: there may be room by then.
            if !std::mem::replace(&mut self.told, true) {
                report.resumption(&Resumption::Unsaved(error));
            }
        }
    }

    fn write(&mut self, path: &Path) -> io::Result<()> {
        let draft = draft_of(path);
        let mut options = File::options();
        options.write(true).create(true).truncate(true).custom_flags(NO_FOLLOW);
        let mut file = options.open(&draft)?;
        file.write_all(self.place.encode(&self.bound).as_bytes())?;
        if !self.begun {
            // What belongs to another verification goes, its stamps last: there are none that no state or draft stands beside.
            if_there(fs::remove_file(path))?;
            if_there(fs::remove_file(stamps_of(path)))?;
            self.begun = true;
        }
        // In this order: what a state speaks of is durable.
        self.stamps.write(&stamps_of(path), true)?;
        file.sync_data()?;
        fs::rename(&draft, path)
    }

    /// All was verified: the next run begins anew.
    pub(crate) fn finish(self, report: &mut dyn VerifyReport) {
        let Some(path) = self.file.path().filter(|_| self.begun) else { return };
        // The state last: without it the stamps would be nobody's.
        for path in [&stamps_of(&path), &path] {
            if let Err(error) = if_there(fs::remove_file(path)) {
                report.resumption(&Resumption::Unsaved(error));
            }
        }
    }
}

/// The text of a state, or of as much as was written of one; empty where there is none.
///
/// # Errors
/// It can't be read, or is something else; `what` says so.
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
    let why = format!("{what} is no state of a verification and is left alone; name another file");
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// What is not there need not be removed.
fn if_there(removed: io::Result<()>) -> io::Result<()> {
    removed.or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn places_come_back_and_no_changed_byte_is_taken(
            numbers in any::<[u64; 5]>(),
            again in prop::collection::btree_set(any::<u64>(), 0..9),
            at in any::<prop::sample::Index>(),
        ) {
            let [share, next, done, bytes, seed] = numbers;
            let seed = (seed % 2 == 0).then_some(seed);
            let place = Place { share, next, done, bytes, seed, again };
            let text = place.encode("b");
            prop_assert_eq!(Place::decode(&text, "b"), Ok(place));
            prop_assert!(Place::decode(&text, "c").is_err());
            let at = at.index(text.len());
            prop_assert!(Place::decode(&text[..at], "b").is_err());
            let mut other = text.into_bytes();
            other[at] ^= 1;
            prop_assert!(Place::decode(std::str::from_utf8(&other).unwrap(), "b").is_err());
        }
    }

    #[test]
    fn what_differed_is_looked_at_again_and_nothing_behind_a_gap_counts() {
        let (file, bound) = (StateFile::Named(OsString::from("unused")), String::new());
        let (place, stamps) = (Place::default(), StampFile::default());
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
            log.note(Noted { share, entry, kind, again, stamp: Stamp::default() });
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
        // The second run: one was repaired meanwhile, and another, which was intact, was touched and rotted.
        log.halted = false;
        note(&mut log, 0, 0, Some(&VerdictKind::Rotted), false);
        note(&mut log, 0, 1, Some(&intact), false);
        note(&mut log, 0, 2, Some(&VerdictKind::Before), false);
        note(&mut log, 0, 3, Some(&intact), false);
        assert_eq!((done(&log), log.place.done, log.place.next), (vec![1, 2, 3], 3, 4));
        // In a later share all of the first is done.
        note(&mut log, 1, 0, Some(&intact), false);
        assert!(log.place.is_done(0, 4) && !log.place.is_done(1, 1));
    }
}
