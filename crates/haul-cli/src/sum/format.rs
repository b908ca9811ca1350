//! The forms of a line of output.

use super::line::escape;
use super::{base64, personality::Family};
use haul_digest::{Algorithm, Digest};
use haul_engine::sum::Sums;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// The form of a line.
    pub(crate) shape: Shape,
    /// Lines end with NUL, and names are not escaped.
    pub(crate) zero: bool,
    /// Digests are in base64.
    pub(crate) base64: bool,
    /// Whose habits decide where tools differ.
    pub(crate) family: Family,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `HEX  NAME`, or with `*` before the name.
    Untagged {
        /// Whether the star stands there.
        binary: bool,
    },
    /// `TAG (NAME) = HEX`.
    Tagged,
    /// The digest alone, in text.
    NoNames,
    /// The digest's bytes alone.
    Raw,
    /// A JSON object.
    Json,
}

/// One file in JSON.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    /// The name's bytes in base64 where they are no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_base64: Option<String>,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<[u64; 2]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    leaves: Option<u64>,
    digests: BTreeMap<&'static str, String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    subtrees: BTreeMap<&'static str, Vec<String>>,
}

impl Format {
    /// All lines for one file. `named` is false where the standard input was read without being asked for.
    pub(crate) fn lines(&self, path: &OsStr, named: bool, sums: &Sums, out: &mut Vec<u8>) {
        if self.shape == Shape::Json {
            return self.json(path, sums, out);
        }
        for (number, digest) in sums.digests.iter().enumerate() {
            match self.shape {
                Shape::Raw => out.extend_from_slice(digest.as_bytes()),
                Shape::NoNames => {
                    out.extend_from_slice(self.text(digest).as_bytes());
                    self.end(out);
                }
                _ => self.named_line(path, named, sums, number, *digest, out),
            }
        }
    }

    fn named_line(
        &self,
        path: &OsStr,
        named: bool,
        sums: &Sums,
        number: usize,
        digest: Digest,
        out: &mut Vec<u8>,
    ) {
        let algorithm = digest.algorithm();
        let is_tree = sums.partial || sums.leaves > 1;
        if is_tree {
            out.extend_from_slice(b"#mutil#");
            if sums.partial {
                out.extend_from_slice(sums.range.to_string().as_bytes());
            }
            out.push(b'#');
        }
        let decimal = algorithm == Algorithm::Cksum && !is_tree && !self.base64;
        // cksum's own lines are the one form in which names stay as they are.
        let verbatim = self.zero || (decimal && matches!(self.shape, Shape::Untagged { .. }));
        let escaped = if verbatim { None } else { escape(path.as_bytes()) };
        let name = escaped.as_deref().unwrap_or(path.as_bytes());
        let text = match sums.subtrees.get(number) {
            Some(roots) => roots.iter().map(|root| root.to_string()).collect(),
            None => self.text(&digest),
        };
        if escaped.is_some() {
            out.push(b'\\');
        }
        match self.shape {
            Shape::Untagged { .. } if decimal => {
                // Writing to a vector does not fail.
                let _ = write!(out, "{} {}", digest.value().unwrap_or(0), sums.range.len());
                if named {
                    out.push(b' ');
                    out.extend_from_slice(name);
                }
            }
            Shape::Untagged { binary }
                if !(algorithm == Algorithm::Xxh3_64 && self.family == Family::Xxhsum) =>
            {
                let prefix = if algorithm == Algorithm::Xxh3_64 && !self.base64 { "XXH3_" } else { "" };
                let mark = if binary { '*' } else { ' ' };
                let _ = write!(out, "{prefix}{text} {mark}");
                out.extend_from_slice(name);
            }
            _ => {
                let _ = write!(out, "{} (", algorithm.tag());
                out.extend_from_slice(name);
                let _ = write!(out, ") = {text}");
            }
        }
        self.end(out);
    }

    fn json(&self, path: &OsStr, sums: &Sums, out: &mut Vec<u8>) {
        let name = |digest: &Digest| digest.algorithm().name();
        let subtrees = sums.digests.iter().zip(&sums.subtrees);
        let record = Record {
            path: path.to_str(),
            path_base64: path.to_str().is_none().then(|| base64::encode(path.as_bytes())),
            size: sums.range.len(),
            range: sums.partial.then_some([sums.range.start.0, sums.range.end.0]),
            leaves: (sums.leaves > 1).then_some(sums.leaves),
            digests: sums.digests.iter().map(|digest| (name(digest), self.text(digest))).collect(),
            subtrees: subtrees
                .map(|(digest, roots)| (name(digest), roots.iter().map(|root| self.text(root)).collect()))
                .collect(),
        };
        // Strings and numbers always have a JSON form, and a vector takes every write.
        let _ = serde_json::to_writer(&mut *out, &record);
        self.end(out);
    }

    fn text(&self, digest: &Digest) -> String {
        if self.base64 { base64::encode(digest.as_bytes()) } else { digest.to_string() }
    }

    fn end(&self, out: &mut Vec<u8>) {
        out.push(if self.zero { 0 } else { b'\n' });
    }
}
