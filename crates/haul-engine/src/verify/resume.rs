//! A verification that goes on where an earlier one ended: how far it came, in a small file that is replaced as a whole.
//!
//! ```text
//!  surehaul-verify-state version=1
//!  bound=HEX                                         what was verified, how, and where
//!  share=0 next=1234 intact=1200 passed=30 bytes=...
//!  again=17,801                                      entries before `next` that are looked at again
//!  blake3=HEX                                        of the lines above
//! ```
//!
//! Verdicts come strictly in the order of the waybill, so one number says how far they came. Entries that were not as the
//! waybill says are verified once more: their verdicts are told again, and nothing that was found is lost with the first
//! run's output.

use super::{Tallied, VerdictKind, VerifyReport};
use haul_digest::{Algorithm, digest};
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

/// What the file begins with, in any version.
const MAGIC: &str = "surehaul-verify-state ";

/// How often it is written.
const EVERY: Duration = Duration::from_secs(2);

/// Entries that are looked at again; after more of them the place stays where it is.
const AGAIN_MAX: usize = 1 << 16;

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

/// How far a verification came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    /// The share of the paths, and the next entry of it, counted over the whole waybill from 0.
    share: u64,
    next: u64,
    intact: u64,
    passed: u64,
    bytes: u64,
    again: BTreeSet<u64>,
}

impl Place {
    /// Whether an entry was verified before, and is as the waybill says.
    pub(super) fn is_done(&self, share: u64, entry: u64) -> bool {
        (share, entry) < (self.share, self.next) && !self.again.contains(&entry)
    }

    fn encode(&self, bound: &str) -> String {
        let Place { share, next, intact, passed, bytes, .. } = self;
        let again: Vec<String> = self.again.iter().map(u64::to_string).collect();
        let mut text = format!("{MAGIC}version=1\nbound={bound}\n");
        text += &format!("share={share} next={next} intact={intact} passed={passed} bytes={bytes}\n");
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
        if head != format!("{MAGIC}version=1") {
            return Err("it is of another version");
        }
        if found != format!("bound={bound}") {
            return Err("it belongs to another waybill, directory, or way to verify");
        }
        let number = |text: &str, name: &str| text.strip_prefix(name)?.strip_prefix('=')?.parse().ok();
        let mut fields = place.split(' ');
        let mut field = |name| fields.next().and_then(|text| number(text, name)).ok_or(TORN);
        let (share, next, intact) = (field("share")?, field("next")?, field("intact")?);
        let (passed, bytes) = (field("passed")?, field("bytes")?);
        let again = again.strip_prefix("again=").ok_or(TORN)?.split(',').filter(|text| !text.is_empty());
        let again = again.map(str::parse).collect::<Result<_, _>>().map_err(|_| TORN)?;
        Ok(Place { share, next, intact, passed, bytes, again })
    }
}

/// The state of a running verification.
#[derive(Debug)]
pub(super) struct Log {
    path: OsString,
    bound: String,
    place: Place,
    /// Bytes read by earlier runs.
    bytes_before: u64,
    saved: Instant,
    /// A verdict was left out, or writing failed: the place moves no further.
    halted: bool,
}

impl Log {
    /// Reads the state of an earlier run, if there is one. What is no state at all is an error: it is not replaced.
    pub(super) fn open(path: &OsStr, bound: &[u8], report: &mut dyn VerifyReport) -> io::Result<Log> {
        let bound = digest(Algorithm::Blake3, bound).to_string();
        let mut text = Vec::new();
        match File::open(path) {
            Ok(file) => {
                file.take(STATE_BYTES_MAX).read_to_end(&mut text)?;
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let is_ours = text.starts_with(MAGIC.as_bytes()) || MAGIC.as_bytes().starts_with(&text);
        if !is_ours {
            let why = "it is no state of a verification and is left alone; name another file";
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let found = std::str::from_utf8(&text).map_err(|_| "it is damaged or cut off");
        let place = match found.and_then(|text| Place::decode(text, &bound)) {
            _ if text.is_empty() => Place::default(),
            Ok(place) => {
                report.resumption(&Resumption::GoesOn(place.intact + place.passed));
                place
            }
            Err(why) => {
                report.resumption(&Resumption::Anew(why));
                Place::default()
            }
        };
        let (path, bytes_before) = (path.to_owned(), place.bytes);
        Ok(Log { path, bound, place, bytes_before, saved: Instant::now(), halted: false })
    }

    /// Where the earlier run ended.
    pub(super) fn place(&self) -> Place {
        self.place.clone()
    }

    /// What the earlier run found intact, or left out.
    pub(super) fn tally(&self, tallied: &mut Tallied) {
        tallied.intact += self.place.intact;
        tallied.passed += self.place.passed;
        tallied.bytes = self.bytes_before;
    }

    /// Takes the next verdict in order; `None` for an entry that was not reached.
    pub(super) fn note(&mut self, share: u64, entry: u64, kind: Option<&VerdictKind>) {
        let Some(kind) = kind.filter(|_| !self.halted) else {
            self.halted = true;
            return;
        };
        let is_again = self.place.again.contains(&entry);
        match kind {
            VerdictKind::Intact { .. } => self.place.intact += 1,
            VerdictKind::Passed => self.place.passed += 1,
            _ if is_again => {}
            _ if self.place.again.len() < AGAIN_MAX => {
                self.place.again.insert(entry);
            }
            _ => {
                self.halted = true;
                return;
            }
        }
        if matches!(kind, VerdictKind::Intact { .. } | VerdictKind::Passed) {
            self.place.again.remove(&entry);
        }
        (self.place.share, self.place.next) = (self.place.share, self.place.next).max((share, entry + 1));
    }

    /// Writes the state if it was not written lately, or `now`; first all that was told goes out.
    pub(super) fn save(&mut self, bytes: u64, now: bool, report: &mut dyn VerifyReport) {
        if !now && self.saved.elapsed() < EVERY {
            return;
        }
        report.keep();
        self.place.bytes = self.bytes_before + bytes;
        if let Err(error) = self.write() {
            report.resumption(&Resumption::Unsaved(error));
            self.halted = true;
        }
        self.saved = Instant::now();
    }

    fn write(&self) -> io::Result<()> {
        let mut draft = self.path.clone();
        draft.push(".new");
        let mut file = File::create(&draft)?;
        file.write_all(self.place.encode(&self.bound).as_bytes())?;
        file.sync_data()?;
        fs::rename(&draft, &self.path)
    }

    /// All was verified: the next run begins anew.
    pub(super) fn finish(self, report: &mut dyn VerifyReport) {
        match fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                report.resumption(&Resumption::Unsaved(error));
            }
            _ => {}
        }
    }
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
            let [share, next, intact, passed, bytes] = numbers;
            let place = Place { share, next, intact, passed, bytes, again };
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
        let (path, bound) = (OsString::from("unused"), String::new());
        let place = Place::default();
        let mut log = Log { path, bound, place, bytes_before: 0, saved: Instant::now(), halted: false };
        let intact = VerdictKind::Intact { touched: false };
        log.note(0, 0, Some(&intact));
        log.note(0, 1, Some(&VerdictKind::Rotted));
        log.note(0, 2, Some(&VerdictKind::Passed));
        log.note(0, 3, None);
        log.note(0, 4, Some(&intact));
        let done: Vec<u64> = (0..6).filter(|&entry| log.place().is_done(0, entry)).collect();
        assert_eq!(done, [0, 2]);
        assert!(!log.place().is_done(1, 0));
        // The second run: it was repaired meanwhile.
        log.halted = false;
        log.note(0, 1, Some(&intact));
        let place = log.place();
        assert!(place.is_done(0, 1) && !place.is_done(0, 3) && place.again.is_empty());
        assert_eq!((place.intact, place.passed), (2, 1));
        // In a later share all of the first is done.
        log.note(1, 0, Some(&intact));
        assert!(log.place().is_done(0, 3) && log.place().is_done(1, 0) && !log.place().is_done(1, 1));
    }
}
