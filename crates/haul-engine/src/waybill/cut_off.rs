//! Waybill of an interrupted job, and its use by the next run.
//!
//! While a registered job writes a section, its directory describes the section and the files:
//!
//! ```text
//!  ID/state          offset of the section, and the digest of its first line
//!  ID/state.stamps   stamps of the files of its entries
//!  ID/known          the interrupted section, as far as it was written
//!  ID/known.stamps   stamps of the files of its entries
//! ```
//!
//! The next run moves the section aside as `known`, truncates the waybill there, and rewrites the
//! section from the start. It reuses the digests of files that did not change since
//! ([`super::known`]). If the next run is interrupted before it got as far as the first, `known`
//! stays as it is. So a second interruption does not lose earlier digests.

use crate::log::STATE;
use haul_digest::{Algorithm, Digest, digest};
use haul_log::waybill::{Job, LINE_BYTES_MAX, Reader, Record, TAIL_BYTES, Tail};
use haul_storage::{Durability, Replace, Replacement, Writers, open_parent, replace_path};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

/// Start of a section.
const HEAD: &[u8] = b"surehaul-waybill ";

/// Start of a state file.
const MAGIC: &str = "surehaul-sum-state version=1";

/// Read limit for the state, in bytes; well above the size of a valid state.
const STATE_BYTES_MAX: u64 = 4096;

/// Replacement of the files of a job, whose lock excludes other writers.
const DURABLE: Replacement = Replacement::private(Writers::One, Durability::Data);

/// Files of a job in its directory.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) state: PathBuf,
    pub(super) stamps: PathBuf,
    pub(super) known: PathBuf,
    pub(super) known_stamps: PathBuf,
}

impl Files {
    pub(super) fn of(folder: &Path) -> Files {
        let at = |name: &str| folder.join(name);
        Files {
            state: at(STATE),
            stamps: at("state.stamps"),
            known: at("known"),
            known_stamps: at("known.stamps"),
        }
    }

    /// Removes the files of a finished job. The state is removed first, because it refers to the
    /// others.
    pub(super) fn remove(&self) -> io::Result<()> {
        for path in [&self.state, &self.stamps, &self.known, &self.known_stamps] {
            ignore_not_found(fs::remove_file(path))?;
        }
        Ok(())
    }
}

/// Section of a waybill that a job writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SectionPosition {
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// BLAKE3 digest of its first line, which contains the time and refers to the previous section.
    pub(super) head: Digest,
}

impl SectionPosition {
    /// Reads the section that starts at `offset`.
    pub(super) fn of(waybill: &mut File, offset: u64) -> io::Result<SectionPosition> {
        waybill.seek(SeekFrom::Start(offset))?;
        let mut line = Vec::new();
        BufReader::new(waybill).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        Ok(SectionPosition { offset, head: digest(Algorithm::Blake3, &line) })
    }

    /// Writes the state durably.
    pub(super) fn write(&self, files: &Files) -> io::Result<()> {
        replace_path(&files.state, DURABLE, |out| out.write_all(self.encode().as_bytes()))
    }

    /// Reads the state; returns `None` if there is no valid one.
    fn read(files: &Files) -> io::Result<Option<SectionPosition>> {
        let mut text = String::new();
        let Some(file) = ignore_not_found(File::open(&files.state))? else { return Ok(None) };
        if file.take(STATE_BYTES_MAX).read_to_string(&mut text).is_err() {
            return Ok(None);
        }
        Ok(SectionPosition::decode(&text))
    }

    fn encode(&self) -> String {
        let text = format!("{MAGIC}\noffset={} head={}\n", self.offset, self.head);
        format!("{text}blake3={}\n", digest(Algorithm::Blake3, text.as_bytes()))
    }

    fn decode(text: &str) -> Option<SectionPosition> {
        let (body, sum) = text.rfind("blake3=").map(|at| text.split_at(at))?;
        if sum != format!("blake3={}\n", digest(Algorithm::Blake3, body.as_bytes())) {
            return None;
        }
        let line = body.strip_prefix(MAGIC)?.strip_prefix("\noffset=")?.strip_suffix('\n')?;
        let (offset, head) = line.split_once(" head=")?;
        Some(SectionPosition {
            offset: offset.parse().ok()?,
            head: Digest::from_hex(Algorithm::Blake3, head).ok()?,
        })
    }
}

/// Checks for any bytes that they are the state of a section, or refused, and that an accepted
/// state is the same after it is written and read again.
pub(crate) fn any_state(bytes: &[u8]) {
    for text in crate::sealed::sealed(bytes) {
        if let Some(place) = SectionPosition::decode(&text) {
            assert_eq!(SectionPosition::decode(&place.encode()), Some(place));
        }
    }
}

/// Returns the offset at which to truncate the waybill, because the job rewrites its section;
/// `None` if the waybill stays unchanged. Saves the contents of the section in the job directory,
/// if there is one.
pub(super) fn take_up(waybill: &mut File, files: Option<&Files>, job: &Job) -> io::Result<Option<u64>> {
    if let Some(files) = files
        && let Some(place) = SectionPosition::read(files)?
        && SectionPosition::of(waybill, place.offset)? == place
    {
        let is_last = set_aside(waybill, place.offset, files)?;
        return Ok(is_last.then_some(place.offset));
    }
    if is_closed(waybill)? { Ok(None) } else { unfinished_section(waybill, job) }
}

/// Returns true if the end of the waybill allows appending; true for an empty file.
fn is_closed(waybill: &mut File) -> io::Result<bool> {
    let size = waybill.metadata()?.len();
    waybill.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES as u64)))?;
    let mut bytes = Vec::new();
    waybill.take(TAIL_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(size == 0 || Tail::of(&bytes).is_ok())
}

/// Copies a section to the job directory, unless the existing copy is longer. Returns true if it is
/// the last section of the waybill.
fn set_aside(waybill: &mut File, offset: u64, files: &Files) -> io::Result<bool> {
    let (bytes, is_last) = section_bytes(waybill, offset)?;
    let before = ignore_not_found(fs::metadata(&files.known))?.map_or(0, |facts| facts.len());
    if bytes < before {
        ignore_not_found(fs::remove_file(&files.stamps))?;
        return Ok(is_last);
    }
    waybill.seek(SeekFrom::Start(offset))?;
    let mut section = BufReader::with_capacity(1 << 18, waybill).take(bytes);
    // Rename in this order. If only the first rename happens, the old stamps cannot match files
    // that this run hashed again, because no file gets an older change time.
    replace_path(&files.known, DURABLE, |out| io::copy(&mut section, out).map(drop))?;
    let (dir, stamps) = open_parent(&files.stamps)?;
    let (known_dir, known_stamps) = open_parent(&files.known_stamps)?;
    ignore_not_found(dir.rename(&stamps, &*known_dir, &known_stamps, Replace::Yes))?;
    Ok(is_last)
}

/// Returns the length of the complete lines of the section at `offset`, and true if no section
/// follows.
fn section_bytes(waybill: &mut File, offset: u64) -> io::Result<(u64, bool)> {
    waybill.seek(SeekFrom::Start(offset))?;
    let mut lines = BufReader::with_capacity(1 << 18, waybill);
    let (mut line, mut bytes) = (Vec::new(), 0);
    loop {
        line.clear();
        (&mut lines).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
        // An incomplete line marks the point of the interruption.
        if !line.ends_with(b"\n") {
            return Ok((bytes, true));
        }
        if bytes > 0 && line.starts_with(HEAD) {
            return Ok((bytes, false));
        }
        bytes += line.len() as u64;
    }
}

/// Returns the offset of an unfinished last section that the same command wrote. It is not a
/// receipt yet, and the command rewrites it. Returns `None` otherwise.
fn unfinished_section(waybill: &mut File, job: &Job) -> io::Result<Option<u64>> {
    waybill.seek(SeekFrom::Start(0))?;
    let mut reader = Reader::new(BufReader::with_capacity(1 << 18, waybill));
    let mut open = None;
    while let Some(record) = reader.next() {
        match record {
            Ok(Record::Section(section)) => {
                let is_ours = section.job.run == job.run && section.job.root == job.root;
                open = is_ours.then_some(reader.mark().offset());
            }
            Ok(Record::End(_)) => open = None,
            _ => {}
        }
    }
    Ok(open)
}

/// Converts "not found" to `None`.
fn ignore_not_found<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn saved_position_round_trips_and_changed_bytes_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::of(dir.path());
        assert_eq!(SectionPosition::read(&files).unwrap(), None);
        let place = SectionPosition { offset: 77, head: digest(Algorithm::Blake3, b"head") };
        place.write(&files).unwrap();
        assert_eq!(SectionPosition::read(&files).unwrap(), Some(place));
        let text = fs::read(&files.state).unwrap();
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            fs::write(&files.state, &other).unwrap();
            assert_eq!(SectionPosition::read(&files).unwrap(), None, "{at}");
            fs::write(&files.state, &text[..at]).unwrap();
            assert_eq!(SectionPosition::read(&files).unwrap(), None, "{at}");
        }
    }

    #[test]
    fn section_of_an_interrupted_run_is_set_aside() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::of(dir.path());
        let waybill = dir.path().join("w");
        let aside = |bytes: &str, stamps: Option<&str>| {
            fs::write(&waybill, bytes).unwrap();
            if let Some(stamps) = stamps {
                fs::write(&files.stamps, stamps).unwrap();
            }
            let is_last = set_aside(&mut File::open(&waybill).unwrap(), 4, &files).unwrap();
            let kept = |path: &Path| fs::read_to_string(path).unwrap_or_default();
            (is_last, kept(&files.known), kept(&files.known_stamps), files.stamps.exists())
        };
        let found =
            |is_last, known: &str, stamps: &str| (is_last, known.to_owned(), stamps.to_owned(), false);
        assert_eq!(aside("end\nhead\none\ntwo\nthr", Some("2")), found(true, "head\none\ntwo\n", "2"));
        // Interrupted between the two renames: the stamps stay.
        assert_eq!(aside("end\nhead\none\ntwo\nthr", None), found(true, "head\none\ntwo\n", "2"));
        assert_eq!(aside("end\nhead\none\n", Some("1")), found(true, "head\none\ntwo\n", "2"));
        assert_eq!(
            aside("end\nhead\none\ntwo\nmore\n", Some("3")),
            found(true, "head\none\ntwo\nmore\n", "3")
        );
        let more = "end\nhead\none\ntwo\nmore\nend\nsurehaul-waybill x\nother\n";
        assert_eq!(aside(more, None), found(false, "head\none\ntwo\nmore\nend\n", "3"));
        let zeros = format!("end\nhead\n{}", "\0".repeat(2 * LINE_BYTES_MAX));
        assert!(aside(&zeros, None).0);
    }
}
