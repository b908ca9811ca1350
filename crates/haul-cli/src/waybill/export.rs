//! Entries of a waybill in the formats that other tools read.

use crate::json;
use base64::Engine;
use clap::ValueEnum;
use haul_digest::list::escape;
use haul_digest::{Algorithm, Digest};
use haul_log::waybill::{Entry, Kind, RelPath};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;

/// Format of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    /// `HEX  PATH`, escaped as md5sum escapes.
    Lines,
    /// `TAG (PATH) = HEX`.
    Tagged,
    /// A line of a BagIt payload manifest (RFC 8493): the tree is the bag's `data`.
    Bagit,
    /// One JSON object with all that is known, for entries of all kinds.
    Json,
}

/// Result of writing an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line was written.
    There,
    /// A file without the requested digest.
    NoDigest,
    /// Not a file, so that the format has no line for it.
    NoFile,
}

/// One entry in JSON.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    /// The path's bytes if they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    kind: &'static str,
    mode: String,
    /// Seconds since 1970, as a decimal number in a string: a JSON number would lose the last
    /// digits.
    mtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    way: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    level: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    object_size: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    digests: BTreeMap<&'static str, String>,
    /// Target of a link, or of an additional name of a file; in base64 if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_base64: Option<String>,
}

/// Appends the line of an entry, without its end.
pub(super) fn line(entry: &Entry, form: Form, algorithm: Algorithm, out: &mut Vec<u8>) -> Line {
    if form == Form::Json {
        // Strings and numbers always have a JSON form, and a vector takes every write.
        let _ = json::to_writer(out, &record(entry));
        return Line::There;
    }
    let Kind::File(content) = &entry.kind else { return Line::NoFile };
    let Some(digest) = content.digest(algorithm) else { return Line::NoDigest };
    name_line(&entry.path, digest, form, out);
    Line::There
}

/// Appends the line of a file name, in a format for other tools.
fn name_line(path: &RelPath, digest: Digest, form: Form, out: &mut Vec<u8>) {
    match form {
        Form::Bagit => bagit(path.as_bytes(), digest, out),
        _ => checked_by_tools(path.as_bytes(), digest, form, out),
    }
}

/// Additional names of files, by the first name. Formats for other tools have a line for each name;
/// the waybill has the digest once.
#[derive(Debug, Default)]
pub(super) struct AdditionalNames {
    by_first: HashMap<RelPath, Vec<RelPath>>,
    taken: usize,
    /// Number of names, including other rounds.
    met: u64,
}

impl AdditionalNames {
    /// Names per round, which bounds the memory.
    const ROUND: u64 = 1 << 18;

    /// Counts an additional name, and adds it if it belongs to round number `round`.
    pub(super) fn meet(&mut self, entry: &Entry, round: u64) {
        let Kind::Same { first } = &entry.kind else { return };
        if self.met / AdditionalNames::ROUND == round {
            self.by_first.entry(first.clone()).or_default().push(entry.path.clone());
            self.taken += 1;
        }
        self.met += 1;
    }

    /// Returns true if names follow after this round.
    pub(super) fn has_more(&self, round: u64) -> bool {
        self.met > (round + 1) * AdditionalNames::ROUND
    }

    /// Returns the lines of the additional names of this entry's file.
    pub(super) fn lines(&mut self, entry: &Entry, form: Form, algorithm: Algorithm) -> Vec<Vec<u8>> {
        let Kind::File(content) = &entry.kind else { return Vec::new() };
        let Some(digest) = content.digest(algorithm) else { return Vec::new() };
        let names = self.by_first.remove(&entry.path).unwrap_or_default();
        self.taken -= names.len();
        let line = |name: RelPath| {
            let mut line = Vec::new();
            name_line(&name, digest, form, &mut line);
            line
        };
        names.into_iter().map(line).collect()
    }

    /// Returns the number of names in this round without a line.
    pub(super) fn left(&self) -> u64 {
        self.taken as u64
    }
}

fn checked_by_tools(path: &[u8], digest: Digest, form: Form, out: &mut Vec<u8>) {
    let escaped = escape(path);
    let name = escaped.as_deref().unwrap_or(path);
    if escaped.is_some() {
        out.push(b'\\');
    }
    if form == Form::Tagged {
        out.extend_from_slice(format!("{} (", digest.algorithm().tag()).as_bytes());
        out.extend_from_slice(name);
        out.extend_from_slice(format!(") = {digest}").as_bytes());
    } else {
        out.extend_from_slice(format!("{digest}  ").as_bytes());
        out.extend_from_slice(name);
    }
}

/// RFC 8493, 2.1.3: only line ends and percent signs in paths are percent-encoded.
fn bagit(path: &[u8], digest: Digest, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("{digest}  data/").as_bytes());
    for &byte in path {
        match byte {
            b'\n' => out.extend_from_slice(b"%0A"),
            b'\r' => out.extend_from_slice(b"%0D"),
            b'%' => out.extend_from_slice(b"%25"),
            other => out.push(other),
        }
    }
}

fn record(entry: &Entry) -> Record<'_> {
    let encode = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    let either = |bytes: &[u8]| std::str::from_utf8(bytes).err().map(|_| encode(bytes));
    let path = entry.path.as_bytes();
    let target = match &entry.kind {
        Kind::Link { target } => Some(target.as_slice()),
        Kind::Same { first } => Some(first.as_bytes()),
        _ => None,
    };
    let content = if let Kind::File(content) = &entry.kind { Some(content) } else { None };
    let digests = content.into_iter().flat_map(|content| &content.digests);
    let mut mode = String::new();
    let _ = write!(mode, "{:04o}", entry.mode);
    Record {
        path: std::str::from_utf8(path).ok(),
        path_base64: either(path),
        kind: entry.kind.name(),
        mode,
        mtime: entry.mtime.to_decimal(),
        size: content.map(|content| content.size),
        way: content.and_then(|content| content.way).map(|way| way.name()),
        level: content.and_then(|content| content.level).map(|level| level.to_string()),
        object_size: content.and_then(|content| content.objects.as_ref()).map(|objects| objects.size.bytes()),
        digests: digests.map(|digest| (digest.algorithm().name(), digest.to_string())).collect(),
        target: target.and_then(|target| std::str::from_utf8(target).ok()),
        target_base64: target.and_then(either),
    }
}
