//! A second reader of waybills, written from docs/formats/waybill.md alone. It is slow, keeps the
//! complete waybill in memory, and uses no code of the crates that write and read waybills. A
//! waybill that it accepts satisfies every rule of the description.

use crate::repair::refused::crc32;
use blake3::hazmat::{Mode, merge_subtrees_non_root, merge_subtrees_root};
use std::collections::BTreeMap;

/// Number of a line, counted from 1, and the error in it.
pub(crate) type Wrong = (usize, String);

/// Section of one job.
#[derive(Debug)]
pub(crate) struct Section {
    pub(crate) head: Fields,
    pub(crate) entries: Vec<Entry>,
    /// The lines before the closing line, as in the file.
    pub(crate) text: Vec<u8>,
    pub(crate) end: Fields,
}

/// A name, with the lines that belong to it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) tag: String,
    pub(crate) fields: Fields,
    /// Digest of each object by the first algorithm of `of`. Empty for a file of one object.
    pub(crate) objects: Vec<Vec<u8>>,
    /// Digests of the leaves of each object.
    pub(crate) leaves: BTreeMap<u64, Vec<Vec<u8>>>,
    /// START, END, LEVEL.
    pub(crate) ranges: Vec<(u64, u64, String)>,
}

/// The KEY=VALUE fields of a line.
#[derive(Debug)]
pub(crate) struct Fields(BTreeMap<String, String>);

const TAGS: [&str; 8] = ["file", "same", "dir", "link", "fifo", "socket", "char", "block"];
const WAYS: [&str; 3] = ["read-write", "reflink", "server-copy"];
const LEVELS: [&str; 4] = ["received", "verified", "durable", "re-read"];

/// Reads a complete waybill.
pub(crate) fn read(waybill: &[u8]) -> Result<Vec<Section>, Wrong> {
    let mut sections: Vec<Section> = Vec::new();
    let mut open: Option<Section> = None;
    let (mut crc, mut lines) = (0, 0);
    for line in waybill.split_inclusive(|&byte| byte == b'\n') {
        lines += 1;
        let reported = |what: String| (lines, what);
        if line.len() > 262_144 || line.len() < 9 || line.last() != Some(&b'\n') {
            return Err((lines, "it is too long, too short or truncated".to_owned()));
        }
        if line.starts_with(b"surehaul-waybill ") {
            crc = 0;
        }
        let (body, check) = line.split_at(line.len() - 9);
        crc = crc32(crc, body);
        if check != format!("{crc:08x}\n").as_bytes() {
            return Err((lines, "its checksum differs".to_owned()));
        }
        let text = std::str::from_utf8(body).ok().and_then(|text| text.strip_suffix(' '));
        let text = text.ok_or_else(|| reported("it is no text".to_owned()))?;
        match open.take() {
            None => open = Some(begin(text, sections.last()).map_err(reported)?),
            Some(mut section) if text.starts_with("end ") => {
                close(&mut section, text).map_err(reported)?;
                sections.push(section);
                continue;
            }
            Some(mut section) => {
                take(&mut section, text).map_err(reported)?;
                open = Some(section);
            }
        }
        if let Some(section) = &mut open {
            section.text.extend_from_slice(line);
        }
    }
    match open {
        None if !sections.is_empty() => Ok(sections),
        _ => Err((lines + 1, "the closing line is missing".to_owned())),
    }
}

fn begin(text: &str, before: Option<&Section>) -> Result<Section, String> {
    let rest = text.strip_prefix("surehaul-waybill ").ok_or("it begins no section")?;
    let head = Fields::read(rest)?;
    let number = before.map_or(1, |section| section.head.number("section") + 1);
    let after = before.map(|section| section.end.text("blake3"));
    if head.text("version") != "1" || head.number("section") != number || head.get("after") != after {
        return Err("the section does not continue the previous section".to_owned());
    }
    if ["at", "program", "root", "run"].iter().any(|key| head.get(key).is_none()) {
        return Err("a field is missing".to_owned());
    }
    Ok(Section { head, entries: Vec::new(), text: Vec::new(), end: Fields(BTreeMap::new()) })
}

fn close(section: &mut Section, text: &str) -> Result<(), String> {
    section.entries.last().map_or(Ok(()), Entry::is_whole)?;
    let end = Fields::read(&text["end ".len()..])?;
    let files: Vec<&Entry> = section.entries.iter().filter(|entry| entry.tag == "file").collect();
    let counted = [
        ("section", section.head.number("section")),
        ("entries", section.entries.len() as u64),
        ("files", files.len() as u64),
        ("bytes", files.iter().map(|entry| entry.fields.number("size")).sum()),
        ("lines", section.text.iter().filter(|&&byte| byte == b'\n').count() as u64),
    ];
    if let Some((key, found)) = counted.iter().find(|(key, found)| end.number(key) != *found) {
        return Err(format!("{key}: {found} were counted"));
    }
    if end.text("blake3") != blake3::hash(&section.text).to_hex().as_str() {
        return Err("the lines of the section have another digest".to_owned());
    }
    section.end = end;
    Ok(())
}

/// Adds an entry, or a line below an entry.
fn take(section: &mut Section, text: &str) -> Result<(), String> {
    let (tag, rest) = text.split_once(' ').unwrap_or((text, ""));
    if tag.starts_with("x-") {
        return Ok(());
    }
    let last = section.entries.last_mut();
    if tag == "range" {
        return last.ok_or("no file precedes the line")?.take_range(rest);
    }
    if tag.starts_with(|first: char| first.is_ascii_digit()) {
        let file =
            last.filter(|entry| entry.fields.get("of").is_some()).ok_or("no file precedes the line")?;
        return if tag.contains('.') { file.take_leaves(tag, rest) } else { file.take_object(tag, rest) };
    }
    if !TAGS.contains(&tag) {
        return Err("its tag is unknown".to_owned());
    }
    last.map_or(Ok(()), |entry| entry.is_whole())?;
    let entry = Entry {
        tag: tag.to_owned(),
        fields: Fields::read(rest)?,
        objects: Vec::new(),
        leaves: BTreeMap::new(),
        ranges: Vec::new(),
    };
    entry.is_sound()?;
    section.entries.push(entry);
    Ok(())
}

impl Entry {
    /// Returns `Ok` if the required fields of the entry exist and are valid.
    fn is_sound(&self) -> Result<(), String> {
        let paths = [Some("path"), (self.tag == "same").then_some("first")];
        for key in paths.into_iter().flatten() {
            let path = self.fields.bytes(key);
            let parts: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
            let is_bad = |part: &&[u8]| matches!(*part, b"" | b"." | b"..") || part.len() > 1024;
            if path.len() > 32_768 || path.contains(&0) || parts.iter().any(is_bad) {
                return Err(format!("its {key} is refused"));
            }
        }
        let mode = self.fields.text("mode");
        self.mtime();
        let needed: &[&str] = match &*self.tag {
            "file" => &["size"],
            "link" => &["target"],
            "char" | "block" => &["device"],
            _ => &[],
        };
        let is_known =
            |key: &str, words: &[&str]| self.fields.get(key).is_none_or(|word| words.contains(&word));
        let is_sound = mode.len() == 4
            && mode.bytes().all(|digit| matches!(digit, b'0'..=b'7'))
            && needed.iter().all(|key| self.fields.get(key).is_some())
            && is_known("way", &WAYS)
            && is_known("level", &LEVELS);
        if is_sound { Ok(()) } else { Err("its fields make no entry".to_owned()) }
    }

    fn take_object(&mut self, index: &str, rest: &str) -> Result<(), String> {
        self.has_leaves()?;
        let first = rest.split(' ').next().unwrap_or_default();
        if index != self.objects.len().to_string() || rest.split(' ').count() != self.algorithms().len() {
            return Err("objects come in order, with a digest by each algorithm".to_owned());
        }
        self.objects.push(base64(first).ok_or("it is no base64")?);
        Ok(())
    }

    fn take_leaves(&mut self, place: &str, digests: &str) -> Result<(), String> {
        let object = self.objects.len().saturating_sub(1) as u64;
        let (start, end) = self.object(object);
        let leaves = self.leaves.entry(object).or_default();
        if place != format!("{object}.{}", leaves.len()) {
            return Err("leaves come in order below their object".to_owned());
        }
        let bytes = base64(digests).ok_or("it is no base64")?;
        leaves.extend(bytes.chunks(32).map(<[u8]>::to_vec));
        let all = (end - start).div_ceil(self.fields.number("leaf")) as usize;
        let is_full = bytes.len() == 64 * 32 || leaves.len() == all;
        if is_full && leaves.len() <= all { Ok(()) } else { Err("a line has 64 leaves".to_owned()) }
    }

    fn take_range(&mut self, rest: &str) -> Result<(), String> {
        let mut words = rest.split([' ', '-']);
        let mut number = || words.next().and_then(|word| word.parse().ok()).ok_or("it is no range");
        let (start, end) = (number()?, number()?);
        // `re-read` contains a dash.
        let level = rest.split(' ').nth(1).unwrap_or_default();
        let is_sound = start < end && end <= self.fields.number("size") && LEVELS.contains(&level);
        self.ranges.push((start, end, level.to_owned()));
        if is_sound { Ok(()) } else { Err("it is no range of the file".to_owned()) }
    }

    fn algorithms(&self) -> Vec<&str> {
        self.fields.get("of").map_or(Vec::new(), |list| list.split(',').collect())
    }

    /// Returns the number of objects of the file.
    pub(crate) fn count(&self) -> u64 {
        let size = self.fields.number("size");
        self.fields.get("object").map_or(0, |_| size.div_ceil(self.fields.number("object")).max(1))
    }

    /// Returns the start and the end of an object.
    pub(crate) fn object(&self, index: u64) -> (u64, u64) {
        let (size, object) = (self.fields.number("size"), self.fields.number("object"));
        (index * object, ((index + 1) * object).min(size))
    }

    /// Returns `Ok` if all leaves of the last object exist and result in its digest.
    fn has_leaves(&self) -> Result<(), String> {
        let Some(last) = (self.objects.len() as u64).checked_sub(1) else { return Ok(()) };
        self.leaves_make(last, false, &self.objects[last as usize])
    }

    fn leaves_make(&self, object: u64, is_root: bool, digest: &[u8]) -> Result<(), String> {
        if self.fields.get("leaf").is_none() {
            return Ok(());
        }
        let (start, end) = self.object(object);
        let none = Vec::new();
        let leaves = self.leaves.get(&object).unwrap_or(&none);
        if leaves.len() as u64 != (end - start).div_ceil(self.fields.number("leaf")) {
            return Err(format!("leaves of object {object} are missing"));
        }
        if self.algorithms()[0] == "blake3" && joined(leaves, is_root) != digest {
            return Err(format!("the leaves of object {object} don't make its digest"));
        }
        Ok(())
    }

    /// Returns `Ok` if all lines of the entry exist and its digests are consistent.
    fn is_whole(&self) -> Result<(), String> {
        self.has_leaves()?;
        if self.tag != "file" || self.fields.get("object").is_none() {
            return Ok(());
        }
        let root = self.fields.get("blake3").map(hex);
        if self.count() == 1 {
            return root.map_or(Ok(()), |root| self.leaves_make(0, true, &root));
        }
        if self.objects.len() as u64 != self.count() {
            return Err("objects are missing".to_owned());
        }
        match root.filter(|_| self.algorithms()[0] == "blake3") {
            Some(root) if joined(&self.objects, true) != root => {
                Err("the objects don't make the file's digest".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// Returns the modification time in nanoseconds since 1970.
    pub(crate) fn mtime(&self) -> i128 {
        let text = self.fields.text("mtime");
        let (seconds, nanoseconds) = text.split_once('.').expect("a point");
        assert!(nanoseconds.len() == 9 && nanoseconds.bytes().all(|byte| byte.is_ascii_digit()), "{text}");
        // Without the point the two parts form one number.
        format!("{seconds}{nanoseconds}").parse().expect("a number")
    }
}

impl Fields {
    fn read(text: &str) -> Result<Fields, String> {
        let mut fields = BTreeMap::new();
        for word in text.split(' ') {
            let (key, value) = word.split_once('=').ok_or("a word is no field")?;
            if fields.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(format!("duplicate field {key}"));
            }
        }
        Ok(Fields(fields))
    }

    pub(crate) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns a required field. Without this field the waybill is invalid, and the test fails.
    #[track_caller]
    pub(crate) fn text(&self, key: &str) -> &str {
        self.get(key).unwrap_or_else(|| panic!("no field {key}: {self:?}"))
    }

    #[track_caller]
    pub(crate) fn number(&self, key: &str) -> u64 {
        let text = self.text(key);
        let number: u64 = text.parse().unwrap_or_else(|error| panic!("{key}={text}: {error}"));
        assert_eq!(number.to_string(), text, "{key} has no leading zeros");
        number
    }

    /// Returns the bytes of a percent-encoded field.
    #[track_caller]
    pub(crate) fn bytes(&self, key: &str) -> Vec<u8> {
        let mut rest = self.text(key).as_bytes();
        let mut bytes = Vec::new();
        while let Some((&first, more)) = rest.split_first() {
            rest = more;
            if first == b'%' {
                bytes.push(hex(std::str::from_utf8(&rest[..2]).unwrap())[0]);
                rest = &rest[2..];
            } else {
                bytes.push(first);
            }
        }
        bytes
    }

    /// Returns all keys and values.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

/// Returns the value of a BLAKE3 subtree from the values of its parts. The left child has the
/// largest power of two of the parts that leaves one for the right child.
fn joined(values: &[Vec<u8>], is_root: bool) -> Vec<u8> {
    if let [only] = values {
        return only.clone();
    }
    let (left, right) = values.split_at(values.len().next_power_of_two() / 2);
    let [left, right] = [left, right].map(|side| <[u8; 32]>::try_from(joined(side, false)).unwrap());
    if is_root {
        merge_subtrees_root(&left, &right, Mode::Hash).as_bytes().to_vec()
    } else {
        merge_subtrees_non_root(&left, &right, Mode::Hash).to_vec()
    }
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

/// Decodes RFC 4648, section 4, without padding.
fn base64(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut held) = (Vec::new(), 0u32, 0);
    for letter in text.bytes() {
        let value = match letter {
            b'A'..=b'Z' => letter - b'A',
            b'a'..=b'z' => letter - b'a' + 26,
            b'0'..=b'9' => letter - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, held) = (bits << 6 | u32::from(value), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
            bits &= (1 << held) - 1;
        }
    }
    // The remaining bits are less than a byte, and are zero.
    (bits == 0).then_some(bytes)
}
