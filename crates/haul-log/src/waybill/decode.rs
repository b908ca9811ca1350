//! Decoder of the lines of a waybill.

use super::facts::{
    Content, CopyMethod, End, Entry, Job, Kind, LeafRun, ObjectDigests, Objects, Proven, Section, Special,
};
use super::fields::{Fields, bytes, number, octal};
use super::flaw::FlawKind;
use super::{LEAVES_PER_LINE, RUN_BYTES_MAX, time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use haul_digest::{Algorithm, Digest};
use haul_model::{ByteRange, LeafSize, Level, ObjectIndex, ObjectSize};
use haul_model::{PATH_BYTES_MAX, PathError, RelPath};

/// Exclusive upper bound of file sizes on every file system.
const SIZE_END: u64 = 1 << 63;

/// Tags of the lines of entries.
pub(super) const ENTRY_TAGS: [&str; 8] = ["file", "same", "dir", "link", "fifo", "socket", "char", "block"];

/// All levels, lowest first.
const LEVELS: [Level; 4] = [Level::Received, Level::Verified, Level::Durable, Level::Reread];

/// Decodes the head of a section, except for its version, which is already checked.
pub(super) fn section(fields: &Fields<'_>) -> Result<Section, FlawKind> {
    let job = Job {
        run: fields.must("run", |text| bytes(text).filter(|run| run.len() <= RUN_BYTES_MAX))?,
        program: fields.must("program", |text| bytes(text).and_then(|text| String::from_utf8(text).ok()))?,
        at: fields.must("at", time::parse_date)?,
        root: fields.must("root", bytes)?,
    };
    let after = fields.maybe("after", |hex| Digest::from_hex(Algorithm::Blake3, hex).ok())?;
    Ok(Section { number: section_number(fields)?, after, job })
}

/// Returns the number of a section. The greatest number has no successor, so it is none.
fn section_number(fields: &Fields<'_>) -> Result<u64, FlawKind> {
    fields.must("section", |text| number(text).filter(|number| *number < u64::MAX))
}

/// Decodes an entry with the given tag.
pub(super) fn entry(tag: &str, fields: &Fields<'_>) -> Result<Entry, FlawKind> {
    let device = || fields.must("device", number);
    let kind = match tag {
        "file" => Kind::File(content(fields)?),
        "same" => Kind::Same { first: path(fields, "first")? },
        "dir" => Kind::Directory,
        "link" => {
            let is_target = |target: &Vec<u8>| {
                !target.is_empty() && target.len() <= PATH_BYTES_MAX && !target.contains(&0)
            };
            Kind::Link { target: fields.must("target", |text| bytes(text).filter(is_target))? }
        }
        "fifo" => Kind::Special(Special::Fifo),
        "socket" => Kind::Special(Special::Socket),
        "char" => Kind::Special(Special::CharDevice(device()?)),
        "block" => Kind::Special(Special::BlockDevice(device()?)),
        _ => return Err(FlawKind::UnknownRecord),
    };
    let mode = fields.must("mode", octal)?;
    let mtime = fields.must("mtime", time::parse_decimal)?;
    Ok(Entry { path: path(fields, "path")?, kind, mode, mtime })
}

fn path(fields: &Fields<'_>, field: &'static str) -> Result<RelPath, FlawKind> {
    let text = fields.get(field).ok_or(FlawKind::MissingField(field))?;
    if text.len() > 3 * PATH_BYTES_MAX {
        return Err(FlawKind::Path { field, fault: PathError::TooLong });
    }
    let decoded = bytes(text).ok_or(FlawKind::BadField(field))?;
    RelPath::new(&decoded).map_err(|fault| FlawKind::Path { field, fault })
}

fn content(fields: &Fields<'_>) -> Result<Content, FlawKind> {
    let mut digests = Vec::new();
    for (key, value) in fields.pairs() {
        if let Some(algorithm) = named(key) {
            let digest = Digest::from_hex(algorithm, value).ok();
            digests.push(digest.ok_or(FlawKind::BadField(algorithm.name()))?);
        }
    }
    Ok(Content {
        size: fields.must("size", |text| number(text).filter(|size| *size < SIZE_END))?,
        digests,
        way: fields.maybe("way", |text| CopyMethod::ALL.into_iter().find(|way| way.name() == text))?,
        level: fields.maybe("level", level)?,
        objects: objects(fields)?,
    })
}

/// Parses an algorithm by its canonical name only: for other programs its aliases can mean other
/// algorithms.
fn named(name: &str) -> Option<Algorithm> {
    Algorithm::parse(name).ok().filter(|algorithm| algorithm.name() == name)
}

fn objects(fields: &Fields<'_>) -> Result<Option<Objects>, FlawKind> {
    let Some(size) =
        fields.maybe("object", |text| number(text).and_then(|size| ObjectSize::new(size).ok()))?
    else {
        return Ok(None);
    };
    let algorithms = fields.must("of", |list| {
        let mut algorithms = Vec::new();
        for name in list.split(',') {
            let algorithm = named(name)?;
            if algorithms.contains(&algorithm) {
                return None;
            }
            algorithms.push(algorithm);
        }
        Some(algorithms)
    })?;
    let leaf = fields.maybe("leaf", |text| number(text).and_then(|bytes| LeafSize::new(bytes, size).ok()))?;
    Ok(Some(Objects { size, algorithms, leaf }))
}

fn level(text: &str) -> Option<Level> {
    LEVELS.into_iter().find(|level| level.to_string() == text)
}

/// Decodes `INDEX BASE64 ...`.
pub(super) fn object(text: &str, objects: &Objects) -> Result<ObjectDigests, FlawKind> {
    let mut words = text.split(' ');
    let index = words.next().and_then(number).ok_or(FlawKind::BadField("object"))?;
    let mut digests = Vec::with_capacity(objects.algorithms.len());
    for &algorithm in &objects.algorithms {
        let mut bytes = Vec::with_capacity(algorithm.digest_len());
        let word = words.next().filter(|word| word.len() <= 2 * haul_digest::DIGEST_BYTES_MAX);
        let decoded = word.is_some_and(|word| STANDARD_NO_PAD.decode_vec(word, &mut bytes).is_ok());
        let digest = Digest::from_bytes(algorithm, &bytes).ok().filter(|_| decoded);
        digests.push(digest.ok_or(FlawKind::BadField(algorithm.name()))?);
    }
    match words.next() {
        None => Ok(ObjectDigests { index: ObjectIndex(index), digests }),
        Some(_) => Err(FlawKind::BadField("object")),
    }
}

/// Decodes `INDEX.FIRST BASE64`.
pub(super) fn leaves(text: &str, objects: &Objects) -> Result<LeafRun, FlawKind> {
    let bad = FlawKind::BadField("leaf");
    let (place, digests) = text.split_once(' ').ok_or(bad.clone())?;
    let (object, first) = place.split_once('.').ok_or(bad.clone())?;
    let (object, first) = (number(object).ok_or(bad.clone())?, number(first).ok_or(bad.clone())?);
    let algorithm = *objects.algorithms.first().ok_or(bad.clone())?;
    let len = algorithm.digest_len();
    let bytes = STANDARD_NO_PAD.decode(digests).map_err(|_| bad.clone())?;
    if bytes.is_empty() || bytes.len() % len != 0 || (bytes.len() / len) as u64 > LEAVES_PER_LINE {
        return Err(bad);
    }
    let digests = bytes.chunks_exact(len).map(|bytes| Digest::from_bytes(algorithm, bytes));
    let digests = digests.collect::<Result<_, _>>().map_err(|_| bad)?;
    Ok(LeafRun { object: ObjectIndex(object), first, digests })
}

/// Decodes `START-END LEVEL`, the text after the word `range`.
pub(super) fn proven(text: &str) -> Result<Proven, FlawKind> {
    let bad = || FlawKind::BadField("range");
    let (range, word) = text.split_once(' ').ok_or_else(bad)?;
    let (start, end) = range.split_once('-').ok_or_else(bad)?;
    let (start, end) = (number(start).ok_or_else(bad)?, number(end).ok_or_else(bad)?);
    if start >= end || end > SIZE_END {
        return Err(bad());
    }
    let level = level(word.split(' ').next().unwrap_or_default()).ok_or_else(bad)?;
    Ok(Proven { range: ByteRange::between(start, end), level })
}

/// Decodes the closing line.
pub(super) fn end(fields: &Fields<'_>) -> Result<End, FlawKind> {
    Ok(End {
        section: section_number(fields)?,
        entries: fields.must("entries", number)?,
        files: fields.must("files", number)?,
        bytes: fields.must("bytes", number)?,
        lines: fields.must("lines", number)?,
        digest: fields.must("blake3", |hex| Digest::from_hex(Algorithm::Blake3, hex).ok())?,
    })
}
