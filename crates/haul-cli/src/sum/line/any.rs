//! Lines in every format of `haul check`, for `haul sum -c`: those that
//! [`read_line`](super::read_line) does not read.

use super::Claim;
use crate::check::json;
use haul_digest::Algorithm;
use haul_digest::list::{
    Claim as Listed, Dialect, Flaw, Hints, Interpretation, Line, Reader, Span, StatedChecksum,
};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

/// Reader of one list.
pub(crate) struct AnyReader {
    reader: Reader,
    /// Accepted algorithms; `None` for all.
    forced: Option<Vec<Algorithm>>,
    /// Candidates for a digest without a tag, if the command line names none.
    guessed: Option<Vec<Algorithm>>,
    zero: bool,
}

/// Result of reading a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum AnyLine {
    /// Checksums of one file; never empty.
    Claims(Vec<Claim>),
    /// Nothing to check, or a checksum of an algorithm that was not requested.
    Remark { is_excluded: bool },
    /// A checksum whose algorithm is not known.
    Unknown,
    /// A checksum that haul does not compute.
    Foreign(String),
    /// Neither.
    Malformed(Flaw),
}

impl AnyReader {
    /// Returns a reader of the list with this name.
    pub(crate) fn new(rules: &super::LineRules, list: &OsStr) -> AnyReader {
        let name = Path::new(list).file_name().unwrap_or_default().to_string_lossy();
        let kind = Hints::of_name(&name).kind;
        let (forced, zero) = (rules.tagged.clone(), rules.zero);
        let reader = Reader::new(&Hints { forced: forced.clone(), kind, zero, ..Hints::default() });
        AnyReader { reader, forced, guessed: rules.guess.then(|| rules.untagged.clone()), zero }
    }

    /// Returns true if only this reader reads the line correctly: names without escapes, or roots
    /// of the parts of a tree, whose number depends on their algorithm.
    pub(crate) fn is_only_reader_of(&self, line: &[u8]) -> bool {
        self.zero || self.guessed.is_some() && line.starts_with(super::MUTIL)
    }

    /// Reads the next line, without its end.
    pub(crate) fn read(&mut self, line: &[u8]) -> AnyLine {
        let read = match line.first() {
            Some(b'{') if !self.reader.is_sfv() => json::read(line, self.forced.as_deref()),
            _ => self.reader.read(line),
        };
        match read {
            Line::Claim(listed) => self
                .claims(listed)
                .filter(|claims| !claims.is_empty())
                .map_or(AnyLine::Unknown, AnyLine::Claims),
            Line::Remark => AnyLine::Remark { is_excluded: false },
            Line::Excluded => AnyLine::Remark { is_excluded: true },
            Line::Foreign(foreign) => AnyLine::Foreign(foreign.algorithm),
            Line::Malformed(flaw) => AnyLine::Malformed(flaw),
        }
    }

    /// Returns the claims of a line, or `None` if its digest may be of any algorithm.
    fn claims(&self, listed: Listed) -> Option<Vec<Claim>> {
        let (range, tree) = match listed.span {
            Span::File => (None, false),
            Span::Tree(range) => (range, true),
        };
        let has_tag = !matches!(listed.dialect, Dialect::Plain | Dialect::OneBlank | Dialect::Base64)
            && (listed.dialect != Dialect::Sfv || self.reader.is_sfv());
        let claim = |stated: StatedChecksum| {
            let mut claim = Claim {
                path: OsString::from_vec(listed.name.clone()),
                digests: stated.meanings.first()?.digests.clone(),
                meanings: Vec::new(),
                range,
                tree,
                size: listed.size,
                guessed: false,
            };
            match &self.guessed {
                Some(candidates) if !has_tag => {
                    claim.digests = first_of(candidates, &stated.meanings)?.digests.clone();
                    claim.guessed = true;
                }
                _ if stated.meanings.len() > 1 || stated.meanings[0].blocks.is_some() => {
                    claim.meanings = stated.meanings;
                }
                _ => {}
            }
            Some(claim)
        };
        listed.stated.into_iter().map(claim).collect()
    }
}

/// Returns the meaning whose algorithm comes first among the candidates.
fn first_of<'m>(candidates: &[Algorithm], meanings: &'m [Interpretation]) -> Option<&'m Interpretation> {
    candidates.iter().find_map(|algorithm| meanings.iter().find(|meaning| meaning.algorithm() == *algorithm))
}
