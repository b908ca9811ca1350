//! Formats of an output line.

use super::{base64, personality::Family};
use crate::json;
use haul_digest::list::escape;
use haul_digest::{Algorithm, Digest};
use haul_engine::sum::Sums;
use serde::Serialize;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;

/// Output format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Format {
    /// Shape of a line.
    pub(crate) shape: Shape,
    /// True if lines end with NUL, and names are not escaped.
    pub(crate) zero: bool,
    /// True if digests are in base64.
    pub(crate) base64: bool,
    /// Tool family whose behaviour applies where tools differ.
    pub(crate) family: Family,
}

/// Shape of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `HEX  NAME`, or with `*` before the name.
    Untagged {
        /// True if the line has the star.
        binary: bool,
    },
    /// `VALUE SIZE NAME`, as sum and cksum print it.
    Decimal,
    /// `TAG (NAME) = HEX`.
    Tagged,
    /// The digest alone, in text.
    NoNames,
    /// The digest's bytes alone.
    Raw,
    /// A JSON object.
    Json,
}

/// A name in its output form.
struct Name {
    /// True if a backslash starts the line, because the name has escapes.
    escaped: bool,
    bytes: Vec<u8>,
}

/// One file in JSON.
#[derive(Serialize)]
struct Record<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'a str>,
    /// The name's bytes in base64 if they are not UTF-8.
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
    /// Appends all lines of one file. `named` is false if standard input was read by default.
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
        let numbers = matches!(algorithm, Algorithm::Cksum | Algorithm::Bsd | Algorithm::Sysv);
        let own_form = numbers && !is_tree && !self.base64 && matches!(self.shape, Shape::Untagged { .. });
        if self.shape == Shape::Decimal || own_form {
            return self.decimal_line(path, named, sums, digest, out);
        }
        let name = self.name(path);
        let text = match sums.subtrees.get(number) {
            Some(roots) => roots.iter().map(|root| root.to_string()).collect(),
            None => self.text(&digest),
        };
        if name.escaped {
            out.push(b'\\');
        }
        // Writing to a vector does not fail.
        if let Shape::Untagged { binary } = self.shape {
            let prefix = if algorithm == Algorithm::Xxh3_64 && !self.base64 { "XXH3_" } else { "" };
            let mark = if binary { '*' } else { ' ' };
            let _ = write!(out, "{prefix}{text} {mark}");
            out.extend_from_slice(&name.bytes);
        } else {
            let _ = write!(out, "{} (", algorithm.tag());
            out.extend_from_slice(&name.bytes);
            let _ = write!(out, ") = {text}");
        }
        self.end(out);
    }

    /// Appends `VALUE SIZE[ NAME]`: cksum's size is in bytes, BSD's in blocks of 1,024, System V's
    /// of 512. GNU's tools do not escape the name; `haul sum` does, so that it reads the line back.
    fn decimal_line(&self, path: &OsStr, named: bool, sums: &Sums, digest: Digest, out: &mut Vec<u8>) {
        let (value, len) = (digest.value().unwrap_or(0), sums.range.len());
        let name = match self.family {
            Family::Haul => self.name(path),
            _ => Name { escaped: false, bytes: path.as_bytes().to_vec() },
        };
        if name.escaped {
            out.push(b'\\');
        }
        // Writing to a vector does not fail.
        let _ = match digest.algorithm() {
            Algorithm::Bsd => write!(out, "{value:05} {:5}", len.div_ceil(1024)),
            Algorithm::Sysv => write!(out, "{value} {}", len.div_ceil(512)),
            _ => write!(out, "{value} {len}"),
        };
        if named {
            out.push(b' ');
            out.extend_from_slice(&name.bytes);
        }
        self.end(out);
    }

    /// Returns the name as the tool writes it.
    fn name(&self, path: &OsStr) -> Name {
        let bytes = path.as_bytes();
        let (escaped, bytes) = match self.family {
            _ if self.zero => (None, bytes.to_vec()),
            Family::B3sum => {
                // b3sum prints names as text.
                let text = path.to_string_lossy();
                (escape(text.as_bytes()), text.into_owned().into_bytes())
            }
            _ => (escape(bytes), bytes.to_vec()),
        };
        Name { escaped: escaped.is_some(), bytes: escaped.unwrap_or(bytes) }
    }

    /// Appends the text before the digest in a line with one digest.
    pub(crate) fn before_digest(&self, path: &OsStr, out: &mut Vec<u8>) {
        let name = self.name(path);
        match self.shape {
            Shape::Raw | Shape::NoNames => {}
            _ if name.escaped => out.push(b'\\'),
            _ => {}
        }
        if self.shape == Shape::Tagged {
            out.extend_from_slice(b"BLAKE3 (");
            out.extend_from_slice(&name.bytes);
            out.extend_from_slice(b") = ");
        }
    }

    /// Appends a piece of a digest that is too long for memory.
    pub(crate) fn digest_bytes(&self, bytes: &[u8], out: &mut Vec<u8>) {
        if self.shape == Shape::Raw {
            return out.extend_from_slice(bytes);
        }
        for byte in bytes {
            // Writing to a vector does not fail.
            let _ = write!(out, "{byte:02x}");
        }
    }

    /// Appends the text after the digest.
    pub(crate) fn after_digest(&self, path: &OsStr, out: &mut Vec<u8>) {
        if let Shape::Untagged { .. } = self.shape {
            out.extend_from_slice(b"  ");
            out.extend_from_slice(&self.name(path).bytes);
        }
        if self.shape != Shape::Raw {
            self.end(out);
        }
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
        let _ = json::to_writer(&mut *out, &record);
        self.end(out);
    }

    fn text(&self, digest: &Digest) -> String {
        if self.base64 { base64::encode(digest.as_bytes()) } else { digest.to_string() }
    }

    fn end(&self, out: &mut Vec<u8>) {
        out.push(if self.zero { 0 } else { b'\n' });
    }
}
