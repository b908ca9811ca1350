//! Tool that the command acts as: its default digest, its output format, and its name in messages.

use haul_digest::Algorithm;

/// A tool, by the name that the binary was called by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Personality {
    /// Name in messages.
    pub(crate) name: &'static str,
    /// Tool family, which decides defaults and behaviour.
    pub(crate) family: Family,
    /// Default algorithm.
    pub(crate) algorithm: Algorithm,
}

/// Families of tools that behave alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Family {
    /// `haul sum`.
    Haul,
    /// `md5sum`, `sha256sum`, `b2sum`, ...: one digest each.
    Coreutils,
    /// `cksum`: a CRC unless `-a` says otherwise.
    Cksum,
    /// `sum`: BSD's or System V's.
    Sum,
    /// `b3sum`.
    B3sum,
    /// `msum`.
    Msum,
}

impl Personality {
    /// Returns the tool with this name; `haul sum` for an unknown name.
    pub(crate) fn of(name: &str) -> Personality {
        let known = |name, family, algorithm| Personality { name, family, algorithm };
        match name {
            "md5sum" => known("md5sum", Family::Coreutils, Algorithm::Md5),
            "sha1sum" => known("sha1sum", Family::Coreutils, Algorithm::Sha1),
            "sha224sum" => known("sha224sum", Family::Coreutils, Algorithm::Sha224),
            "sha256sum" => known("sha256sum", Family::Coreutils, Algorithm::Sha256),
            "sha384sum" => known("sha384sum", Family::Coreutils, Algorithm::Sha384),
            "sha512sum" => known("sha512sum", Family::Coreutils, Algorithm::Sha512),
            "b2sum" => known("b2sum", Family::Coreutils, Algorithm::Blake2b),
            "cksum" => known("cksum", Family::Cksum, Algorithm::Cksum),
            "sum" => known("sum", Family::Sum, Algorithm::Bsd),
            "b3sum" => known("b3sum", Family::B3sum, Algorithm::Blake3),
            "msum" => known("msum", Family::Msum, Algorithm::Md5),
            _ => known("haul sum", Family::Haul, Algorithm::Blake3),
        }
    }

    /// Returns true for a tool of GNU's coreutils.
    pub(crate) fn is_gnus(self) -> bool {
        matches!(self.family, Family::Coreutils | Family::Cksum | Family::Sum)
    }

    /// Returns true if lines that start with `#mutil#` are checksums to the tool; for other tools
    /// they are remarks.
    pub(crate) fn reads_mutil_lines(self) -> bool {
        matches!(self.family, Family::Haul | Family::Msum)
    }

    /// Returns the name of the digest in a message about a line: `MD5 ` for msum, empty for `haul
    /// sum`.
    pub(crate) fn line_kind(self) -> String {
        match self.family {
            Family::Msum => format!("{} ", self.algorithm.tag()),
            _ => String::new(),
        }
    }
}
