//! A waybill whose job was cut off, taken up by the next run of that job.
//!
//! While a job that is listed writes a section, its folder says which section that is and what the files looked like:
//!
//! ```text
//!  ID/state          where the section begins, and the digest of its first line
//!  ID/state.stamps   what the files of its entries looked like
//!  ID/known          the section that was cut off, as far as it came
//!  ID/known.stamps   what the files of its entries looked like
//! ```
//!
//! The next run sets the section aside as `known`, cuts the waybill where it began and writes it anew from the start, with the digests of files that nobody
//! touched since ([`super::known`]). If that run is cut off before it came as far as the first, `known` stays as it is: what was hashed once is not lost by
//! being cut off twice.

use crate::log::STATE;
use haul_digest::{Algorithm, Digest, digest};
use haul_log::waybill::{Job, LINE_BYTES_MAX, Reader, Record, TAIL_BYTES, Tail};
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// What a section begins with.
const HEAD: &[u8] = b"surehaul-waybill ";

/// What a state begins with.
const MAGIC: &str = "surehaul-sum-state version=1";

/// Far above what a state takes.
const STATE_BYTES_MAX: u64 = 4096;

/// A job's files below its folder.
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

    /// The job came to its end: nothing is to be gone on with. The state goes first, which speaks of the others.
    pub(super) fn remove(&self) -> io::Result<()> {
        for path in [&self.state, &self.stamps, &self.known, &self.known_stamps] {
            if_there(fs::remove_file(path))?;
        }
        Ok(())
    }
}

/// Which section of a waybill a job writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Its first byte.
    pub(super) offset: u64,
    /// BLAKE3 of its first line: it names the time, and the section before.
    pub(super) head: Digest,
}

impl Place {
    /// The section that begins there.
    pub(super) fn of(waybill: &mut File, offset: u64) -> io::Result<Place> {
        waybill.seek(SeekFrom::Start(offset))?;
        let mut line = Vec::new();
        BufReader::new(waybill).take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut line)?;
        Ok(Place { offset, head: digest(Algorithm::Blake3, &line) })
    }

    /// Writes the state, durably.
    pub(super) fn write(&self, files: &Files) -> io::Result<()> {
        let text = format!("{MAGIC}\noffset={} head={}\n", self.offset, self.head);
        let text = format!("{text}blake3={}\n", digest(Algorithm::Blake3, text.as_bytes()));
        let draft = files.state.with_extension("new");
        let mut file = make(&draft)?;
        file.write_all(text.as_bytes())?;
        file.sync_data()?;
        fs::rename(&draft, &files.state)
    }

    /// What the state says; `None` where there is none that is whole.
    fn read(files: &Files) -> io::Result<Option<Place>> {
        let mut text = String::new();
        let Some(file) = if_there(File::open(&files.state))? else { return Ok(None) };
        if file.take(STATE_BYTES_MAX).read_to_string(&mut text).is_err() {
            return Ok(None);
        }
        Ok(Place::decode(&text))
    }

    fn decode(text: &str) -> Option<Place> {
        let (body, sum) = text.rfind("blake3=").map(|at| text.split_at(at))?;
        if sum != format!("blake3={}\n", digest(Algorithm::Blake3, body.as_bytes())) {
            return None;
        }
        let line = body.strip_prefix(MAGIC)?.strip_prefix("\noffset=")?.strip_suffix('\n')?;
        let (offset, head) = line.split_once(" head=")?;
        Some(Place { offset: offset.parse().ok()?, head: Digest::from_hex(Algorithm::Blake3, head).ok()? })
    }
}

/// Where the waybill is to be cut because the job writes its section anew; `None` where it is to be left as it is. What the section holds is set
/// aside in the job's folder, if the job has one.
pub(super) fn take_up(waybill: &mut File, files: Option<&Files>, job: &Job) -> io::Result<Option<u64>> {
    if let Some(files) = files
        && let Some(place) = Place::read(files)?
        && Place::of(waybill, place.offset)? == place
    {
        let is_last = set_aside(waybill, place.offset, files)?;
        return Ok(is_last.then_some(place.offset));
    }
    if is_closed(waybill)? { Ok(None) } else { begun_by(waybill, job) }
}

/// Whether the waybill ends as one to which can be appended; an empty one does.
fn is_closed(waybill: &mut File) -> io::Result<bool> {
    let size = waybill.metadata()?.len();
    waybill.seek(SeekFrom::Start(size.saturating_sub(TAIL_BYTES as u64)))?;
    let mut bytes = Vec::new();
    waybill.take(TAIL_BYTES as u64).read_to_end(&mut bytes)?;
    Ok(size == 0 || Tail::of(&bytes).is_ok())
}

/// Copies a section into the job's folder, unless what lies there came further. Whether it is the waybill's last.
fn set_aside(waybill: &mut File, offset: u64, files: &Files) -> io::Result<bool> {
    let draft = files.known.with_extension("new");
    let mut copy = BufWriter::with_capacity(1 << 18, make(&draft)?);
    waybill.seek(SeekFrom::Start(offset))?;
    let mut lines = BufReader::with_capacity(1 << 18, waybill);
    let (mut line, mut bytes, mut is_last) = (Vec::new(), 0, true);
    loop {
        line.clear();
        (&mut lines).take(LINE_BYTES_MAX as u64 + 1).read_until(b'\n', &mut line)?;
        // What is no line is where the run was cut off.
        if !line.ends_with(b"\n") {
            break;
        }
        if bytes > 0 && line.starts_with(HEAD) {
            is_last = false;
            break;
        }
        copy.write_all(&line)?;
        bytes += line.len() as u64;
    }
    let copy = copy.into_inner().map_err(io::IntoInnerError::into_error)?;
    let before = if_there(fs::metadata(&files.known))?.map_or(0, |facts| facts.len());
    if bytes < before {
        fs::remove_file(&draft)?;
        if_there(fs::remove_file(&files.stamps))?;
        return Ok(is_last);
    }
    copy.sync_data()?;
    // In this order: stamps of a run before can't speak for what this one hashed anew, for no file gets an older change time again.
    fs::rename(&draft, &files.known)?;
    if_there(fs::rename(&files.stamps, &files.known_stamps))?;
    Ok(is_last)
}

/// Where a section begins that was cut off and that the same command began: no receipt yet, and the command writes it again. `None` for all else.
fn begun_by(waybill: &mut File, job: &Job) -> io::Result<Option<u64>> {
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

fn make(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600).custom_flags(haul_sys::open::NO_FOLLOW);
    options.open(path)
}

/// `None` where the file is not there.
fn if_there<T>(done: io::Result<T>) -> io::Result<Option<T>> {
    match done {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_comes_back_and_no_changed_byte_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::of(dir.path());
        assert_eq!(Place::read(&files).unwrap(), None);
        let place = Place { offset: 77, head: digest(Algorithm::Blake3, b"head") };
        place.write(&files).unwrap();
        assert_eq!(Place::read(&files).unwrap(), Some(place));
        let text = fs::read(&files.state).unwrap();
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            fs::write(&files.state, &other).unwrap();
            assert_eq!(Place::read(&files).unwrap(), None, "{at}");
            fs::write(&files.state, &text[..at]).unwrap();
            assert_eq!(Place::read(&files).unwrap(), None, "{at}");
        }
    }

    #[test]
    fn what_came_further_stays_aside() {
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
        // Cut off between the two renames: the stamps stay.
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
