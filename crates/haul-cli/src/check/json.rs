//! Records of `haul sum --json`: one object per line.

use crate::sum::base64;
use haul_digest::list::{Claim, Dialect, Flaw, Foreign, Interpretation, Line, Span, StatedChecksum};
use haul_digest::{Algorithm, Digest, DigestError};
use haul_model::ByteRange;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Used fields of a record; fields of later versions are ignored.
#[derive(Deserialize)]
struct Record {
    path: Option<String>,
    path_base64: Option<String>,
    size: Option<u64>,
    range: Option<[u64; 2]>,
    leaves: Option<u64>,
    digests: BTreeMap<String, String>,
    #[serde(default)]
    subtrees: BTreeMap<String, Vec<String>>,
}

/// Parses a line that starts with a brace.
pub(crate) fn read(line: &[u8], forced: Option<&[Algorithm]>) -> Line {
    let record: Record = match serde_json::from_slice(line) {
        Ok(record) => record,
        Err(error) => return Line::Malformed(Flaw::Record(error.to_string())),
    };
    record.claim(forced).unwrap_or_else(Line::Malformed)
}

impl Record {
    fn claim(self, forced: Option<&[Algorithm]>) -> Result<Line, Flaw> {
        let flaw = |text: &str| Flaw::Record(text.to_owned());
        let name = match (self.path, self.path_base64) {
            (Some(path), _) => path.into_bytes(),
            (None, Some(text)) => base64::decode(&text).ok_or_else(|| flaw("path_base64 is not base64"))?,
            (None, None) => return Err(Flaw::NoName),
        };
        if name.is_empty() {
            return Err(Flaw::NoName);
        }
        if name.contains(&0) {
            return Err(Flaw::Nul);
        }
        let range = match self.range {
            Some([start, end]) if start <= end => Some(ByteRange::between(start, end)),
            Some(_) => return Err(Flaw::Range),
            None => None,
        };
        let (mut stated, mut foreign, mut excluded) = (Vec::new(), None, false);
        for (kind, text) in self.digests {
            let Ok(algorithm) = Algorithm::parse(&kind) else {
                foreign = Some(kind);
                continue;
            };
            if forced.is_some_and(|forced| !forced.contains(&algorithm)) {
                excluded = true;
                continue;
            }
            // The roots of the parts are more specific than the root of the file.
            let parts = self.subtrees.get(&kind).filter(|roots| !roots.is_empty());
            let texts = parts.map_or(std::slice::from_ref(&text), Vec::as_slice);
            let digests = texts.iter().map(|text| digest(algorithm, text)).collect::<Result<_, _>>()?;
            stated.push(StatedChecksum { meanings: vec![Interpretation { digests, blocks: None }] });
        }
        if stated.is_empty() {
            return match (foreign, excluded) {
                (_, true) => Ok(Line::Excluded),
                (Some(algorithm), false) => Ok(Line::Foreign(Foreign { algorithm, name })),
                (None, false) => Err(Flaw::NoChecksum),
            };
        }
        let is_tree = range.is_some() || self.leaves.is_some() || !self.subtrees.is_empty();
        let span = if is_tree { Span::Tree(range) } else { Span::File };
        Ok(Line::Claim(Claim { name, dialect: Dialect::Json, stated, size: self.size, span }))
    }
}

/// Parses a hexadecimal digest, or base64 as `--base64` writes it.
fn digest(algorithm: Algorithm, text: &str) -> Result<Digest, DigestError> {
    Digest::from_hex(algorithm, text).or_else(|error| {
        let bytes = base64::decode(text).ok_or(error)?;
        Digest::from_bytes(algorithm, &bytes)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_parsed_and_malformed_records_are_detected() {
        let md5 = "d41d8cd98f00b204e9800998ecf8427e";
        let line = format!(r#"{{"path":"a","size":0,"digests":{{"md5":"{md5}","new":"00"}},"later":1}}"#);
        let Line::Claim(claim) = read(line.as_bytes(), None) else { panic!("a claim") };
        assert_eq!((claim.name.as_slice(), claim.size, claim.span), (&b"a"[..], Some(0), Span::File));
        assert_eq!(claim.stated.len(), 1);
        let line = format!(r#"{{"path_base64":"/w==","size":0,"range":[3,5],"digests":{{"md5":"{md5}"}}}}"#);
        let Line::Claim(claim) = read(line.as_bytes(), None) else { panic!("a claim") };
        assert_eq!(
            (claim.name.as_slice(), claim.span),
            (&b"\xff"[..], Span::Tree(Some(ByteRange::between(3, 5))))
        );
        assert_eq!(read(line.as_bytes(), Some(&[Algorithm::Sha1])), Line::Excluded);
        for (line, flaw) in [
            (r#"{"size":0,"digests":{"md5":"00"}}"#, Flaw::NoName),
            (r#"{"path":"a","digests":{}}"#, Flaw::NoChecksum),
            (r#"{"path":"a","range":[5,3],"digests":{"md5":"00"}}"#, Flaw::Range),
        ] {
            assert_eq!(read(line.as_bytes(), None), Line::Malformed(flaw), "{line}");
        }
        for line in ["{", "{}", r#"{"path":"a","digests":{"md5":"00"}}"#, r#"{"path":3,"digests":{}}"#] {
            assert!(matches!(read(line.as_bytes(), None), Line::Malformed(_)), "{line}");
        }
        assert!(matches!(read(br#"{"path":"a","digests":{"new":"00"}}"#, None), Line::Foreign(_)));
    }
}
