//! Reader of one list.

use super::bag;
use super::claim::{Claim, Flaw, Foreign, Line};
use super::damage::{Seen, is_damaged_remark};
use super::digits::Select;
use super::escape::unescape;
use super::fields::{self, Columns};
use super::hint::{Hints, Kind};
use super::plain::{self, is_blank, trim_start};
use super::tagged;

/// Reads the lines of one list in order.
#[derive(Clone, Debug)]
pub struct Reader {
    select: Select,
    kind: Kind,
    zero: bool,
    /// Columns of a hashdeep header.
    columns: Option<Columns>,
    begun: bool,
    armor: Armor,
    seen: Seen,
}

/// Bytes that some Windows editors write before the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Place of a line in relation to signatures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Armor {
    /// Outside of any.
    #[default]
    Outside,
    /// In the header of a signed text, which ends with a blank line.
    Header,
    /// In a signature.
    Signature,
}

/// Fields in the header of a signature or of a signed text.
const ARMOR_HEADERS: [&[u8]; 5] = [b"Charset: ", b"Comment: ", b"Hash: ", b"MessageID: ", b"Version: "];

impl Reader {
    /// Returns a reader with these hints.
    pub fn new(hints: &Hints) -> Reader {
        let select = Select::new(hints);
        let (kind, zero) = (hints.kind.clone(), hints.zero);
        let known = hints.forced.as_ref().unwrap_or(&hints.named);
        let (columns, begun, armor, seen) = (None, false, Armor::Outside, Seen::of(known));
        Reader { select, kind, zero, columns, begun, armor, seen }
    }

    /// Reads the next line, given without its line end.
    pub fn read(&mut self, line: &[u8]) -> Line {
        let line = match line.strip_prefix(BYTE_ORDER_MARK) {
            Some(rest) if !self.begun => rest,
            _ => line,
        };
        self.begun = true;
        let line = if self.zero { line } else { line.strip_suffix(b"\r").unwrap_or(line) };
        if line.contains(&0) {
            return Line::Malformed(if self.is_entry(line) { Flaw::Nul } else { Flaw::NoChecksum });
        }
        if line.iter().all(|&byte| is_blank(byte)) {
            if self.armor == Armor::Header {
                self.armor = Armor::Outside;
            }
            return Line::Remark;
        }
        if let Kind::Bag(rules) = &self.kind {
            return bag::read(rules, &self.select, line);
        }
        let read = self.signature(line).or_else(|| self.remark(line)).unwrap_or_else(|| self.claim(line));
        self.seen.add(&read);
        match read {
            Line::Malformed(Flaw::NoChecksum) if self.is_entry(line) => Line::Malformed(Flaw::Damaged),
            read => read,
        }
    }

    /// Returns true if a line without a readable digest looks like an entry.
    fn is_entry(&self, line: &[u8]) -> bool {
        // These lists have nothing but entries and remarks.
        self.is_sfv()
            || self.columns.is_some()
            || matches!(self.kind, Kind::Bag(_))
            || self.seen.looks_like_an_entry(line)
    }

    /// Reads the lines of a signature, of its header, and of the header of a signed text (RFC 9580,
    /// sections 6 and 7). Any other line ends a signature, also one without an end mark.
    fn signature(&mut self, line: &[u8]) -> Option<Line> {
        let mark = line.strip_prefix(b"-----").and_then(|rest| rest.strip_suffix(b"-----"));
        if let Some(mark) = mark {
            self.armor = match mark {
                b"BEGIN PGP SIGNED MESSAGE" => Armor::Header,
                _ if mark.starts_with(b"BEGIN ") => Armor::Signature,
                _ => Armor::Outside,
            };
            return Some(Line::Remark);
        }
        let is_armor = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/=".contains(byte);
        let is_header = || ARMOR_HEADERS.iter().any(|header| line.starts_with(header));
        let goes_on = match self.armor {
            Armor::Outside => false,
            Armor::Header => is_header(),
            Armor::Signature => line.iter().all(is_armor) || is_header(),
        };
        if !goes_on {
            self.armor = Armor::Outside;
        }
        goes_on.then_some(Line::Remark)
    }

    /// Returns true if the list is SFV, by its name or by a comment.
    pub fn is_sfv(&self) -> bool {
        self.kind == Kind::Sfv
    }

    /// Reads lines that their first character identifies.
    fn remark(&mut self, line: &[u8]) -> Option<Line> {
        // Names in SFV may start with anything except its comment character.
        if self.is_sfv()
            && line[0] != b';'
            && let Some(claim) = plain::read_sfv(&self.select, line, true)
        {
            return Some(claim);
        }
        if let Some(header) = line.strip_prefix(b"%%%% ") {
            self.columns = Columns::read(header).or(self.columns.take());
            return Some(Line::Remark);
        }
        if let Some(rest) = line.strip_prefix(b"#mutil#") {
            let (line, escaped) = plain::read_mutil(&self.select, rest);
            return Some(self.named(line, escaped));
        }
        if line[0] == b';' && is_damaged_remark(line) {
            return Some(Line::Malformed(Flaw::Damaged));
        }
        if line[0] == b';' {
            self.kind = Kind::Sfv;
            return Some(Line::Remark);
        }
        if line[0] != b'#' {
            return None;
        }
        Some(if is_damaged_remark(line) { Line::Malformed(Flaw::Damaged) } else { Line::Remark })
    }

    fn claim(&self, line: &[u8]) -> Line {
        let select = &self.select;
        let is_sfv = self.is_sfv();
        let row = || self.columns.as_ref()?.row(select, line);
        let whole = row().or_else(|| fields::read_eos(select, line));
        let whole = whole.or_else(|| if is_sfv { plain::read_sfv(select, line, true) } else { None });
        if let Some(line) = whole {
            return line;
        }
        let line = trim_start(line);
        let marked = line.strip_prefix(b"\\").filter(|_| !self.zero);
        let body = marked.unwrap_or(line);
        // A number may also be a digest in hexadecimal: a claim of another form is preferred to an
        // algorithm that was not requested.
        let mut cksum = fields::read_cksum(select, body);
        let excluded = cksum.take_if(|line| *line == Line::Excluded);
        let read = tagged::read(select, body, false)
            .or_else(|| fields::read_xrdcp(select, body))
            .or(cksum)
            .or_else(|| fields::read_md5deep(select, body))
            .or_else(|| plain::read(select, body))
            .or_else(|| plain::read_sfv(select, body, is_sfv))
            .or_else(|| (is_sfv || self.seen.sfv).then(|| plain::read_short_sfv(select, body)).flatten())
            .or(excluded);
        self.named(read.unwrap_or(Line::Malformed(Flaw::NoChecksum)), marked.is_some())
    }

    /// Returns the line with its name unescaped.
    fn named(&self, line: Line, escaped: bool) -> Line {
        if !escaped || self.zero {
            return line;
        }
        let named = match &line {
            Line::Claim(claim) => unescape(&claim.name),
            Line::Foreign(foreign) => unescape(&foreign.name),
            _ => return line,
        };
        match (line, named) {
            (Line::Claim(claim), Some(name)) => Line::Claim(Claim { name, ..claim }),
            (Line::Foreign(foreign), Some(name)) => Line::Foreign(Foreign { name, ..foreign }),
            _ => Line::Malformed(Flaw::Escape),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::list::{Dialect, Span};
    use crate::{Algorithm, Digest, digest};
    use haul_model::ByteRange;

    fn read_all(hints: &Hints, text: &str) -> Vec<Line> {
        let mut reader = Reader::new(hints);
        text.lines().map(|line| reader.read(line.as_bytes())).collect()
    }

    /// Returns dialect, first algorithm and name of a claim.
    fn told(line: &Line) -> (Dialect, Algorithm, String) {
        let Line::Claim(claim) = line else { panic!("no claim: {line:?}") };
        let name = String::from_utf8(claim.name.clone()).unwrap();
        (claim.dialect, claim.stated[0].meanings[0].algorithm(), name)
    }

    fn one(text: &str) -> (Dialect, Algorithm, String) {
        told(&read_all(&Hints::default(), text)[0])
    }

    #[test]
    fn every_line_format_is_detected() {
        let hex = |algorithm| digest(algorithm, b"123456789").to_string();
        let (md5, xxh64) = (hex(Algorithm::Md5), hex(Algorithm::Xxh64));
        let little: String = xxh64.as_bytes().rchunks(2).map(|pair| String::from_utf8_lossy(pair)).collect();
        for (line, dialect, algorithm, name) in [
            (format!("{md5}  a b"), Dialect::Plain, Algorithm::Md5, "a b"),
            (format!("{md5} *a"), Dialect::Plain, Algorithm::Md5, "a"),
            (format!("  {md5}  a\r"), Dialect::Plain, Algorithm::Md5, "a"),
            (format!("\\{md5}  a\\nb\\\\"), Dialect::Plain, Algorithm::Md5, "a\nb\\"),
            (format!("{}  a", hex(Algorithm::Blake3)), Dialect::Plain, Algorithm::Sha256, "a"),
            (format!("MD5 (a) b) = {md5}"), Dialect::Tagged, Algorithm::Md5, "a) b"),
            (format!("MD5(a)= {md5}"), Dialect::Tagged, Algorithm::Md5, "a"),
            (format!("MD5   (a) = {md5}"), Dialect::Tagged, Algorithm::Md5, "a"),
            (format!("\\MD5 (a\\n) = {md5}"), Dialect::Tagged, Algorithm::Md5, "a\n"),
            (format!("BLAKE3-256 (x) = {}", hex(Algorithm::Blake3)), Dialect::Tagged, Algorithm::Blake3, "x"),
            (
                "SHA2-256 (x) = FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=".into(),
                Dialect::Tagged,
                Algorithm::Sha256,
                "x",
            ),
            (
                "FeKw08M4keuw8e9gnsQZQgwg4yDOlMZfvIwzEkSOsiU=  x".into(),
                Dialect::Base64,
                Algorithm::Sha256,
                "x",
            ),
            (format!("XXH3_{}  x", hex(Algorithm::Xxh3_64)), Dialect::Xxhsum, Algorithm::Xxh3_64, "x"),
            (format!("XXH64_LE (x) = {little}"), Dialect::Xxhsum, Algorithm::Xxh64, "x"),
            ("930766865 9 digits of it".into(), Dialect::Cksum, Algorithm::Cksum, "digits of it"),
            ("091e01de digits".into(), Dialect::OneBlank, Algorithm::Adler32, "digits"),
            ("adler32: 91e01de /tmp/a b 9".into(), Dialect::Xrdcp, Algorithm::Adler32, "/tmp/a b"),
            ("crc32: 377a6011 /tmp/x 9".into(), Dialect::Xrdcp, Algorithm::Cksum, "/tmp/x"),
            (
                "path=/a b size=9 x size=9 time=0.00 adler=091e01de".into(),
                Dialect::Eos,
                Algorithm::Adler32,
                "/a b size=9 x",
            ),
            ("path=x size=9 time=1.25 crc32=cbf43926".into(), Dialect::Eos, Algorithm::Crc32, "x"),
            (format!("         9  {md5}  digits"), Dialect::Md5deep, Algorithm::Md5, "digits"),
            (format!("#mutil##{md5}{md5}  t"), Dialect::Mutil, Algorithm::Sha256, "t"),
            (format!("#mutil#5-9#\\{md5}  t\\n"), Dialect::Mutil, Algorithm::Md5, "t\n"),
            ("a b.rar CBF43926".into(), Dialect::Sfv, Algorithm::Adler32, "a b.rar"),
        ] {
            assert_eq!(one(&line), (dialect, algorithm, name.to_owned()), "{line}");
        }
        // The little-endian tag states the same number.
        let Line::Claim(claim) = &read_all(&Hints::default(), &format!("XXH64_LE (x) = {little}"))[0] else {
            panic!("a claim")
        };
        assert_eq!(claim.stated[0].meanings[0].digests, [digest(Algorithm::Xxh64, b"123456789")]);
        let Line::Claim(claim) = &read_all(&Hints::default(), &format!("#mutil#5-9#{md5}  t"))[0] else {
            panic!("a claim")
        };
        assert_eq!(claim.span, Span::Tree(Some(ByteRange::between(5, 9))));
    }

    #[test]
    fn sum_and_cksum_lines_are_distinguished_by_format() {
        let algorithms = |text: &str| -> Vec<(Algorithm, u64)> {
            let Line::Claim(claim) = &read_all(&Hints::default(), text)[0] else { panic!("{text}") };
            let meanings = claim.stated[0].meanings.iter();
            meanings.map(|meaning| (meaning.algorithm(), meaning.blocks.unwrap().unit)).collect()
        };
        assert_eq!(algorithms("930766865 9 x"), [(Algorithm::Cksum, 1), (Algorithm::Crc32, 1)]);
        assert_eq!(algorithms("477 1 x")[0], (Algorithm::Cksum, 1));
        assert!(matches!(read_all(&Hints::default(), "930766865 9")[0], Line::Malformed(Flaw::NoName)));
        let Line::Claim(claim) = &read_all(&Hints::default(), "00790079 a b")[0] else { panic!("a claim") };
        assert_eq!(claim.dialect, Dialect::OneBlank);
    }

    #[test]
    fn hashdeep_rows_follow_their_header() {
        let (md5, sha256) = (digest(Algorithm::Md5, b""), digest(Algorithm::Sha256, b""));
        let text = format!(
            "%%%% HASHDEEP-1.0\n%%%% size,md5,tiger,sha256,filename\n## Invoked from: /\n## $ hashdeep\n## \n\
             0,{md5},0672665140a491bb35040aa9943d769a47be83fef2126e50,{sha256},./a,b\n0,{md5},x\n"
        );
        let lines = read_all(&Hints::default(), &text);
        assert!(lines[..5].iter().all(|line| *line == Line::Remark));
        let Line::Claim(claim) = &lines[5] else { panic!("{:?}", lines[5]) };
        assert_eq!(
            (claim.dialect, claim.size, claim.name.as_slice()),
            (Dialect::Hashdeep, Some(0), &b"./a,b"[..])
        );
        let digests: Vec<Digest> = claim.stated.iter().map(|stated| stated.meanings[0].digests[0]).collect();
        assert_eq!(digests, [md5, sha256]);
        assert!(matches!(lines[6], Line::Malformed(_)), "{:?}", lines[6]);
    }

    /// Regression test: `haul check` treated such lines as comments or headers and gave no verdict.
    #[test]
    fn sfv_names_may_start_with_markers_of_other_formats() {
        for name in ["# a", "#mutil#b", "%%%% size,md5,filename", "{c", "MD5 (d) = "] {
            let line = format!("{name} 12345678\n");
            for (hints, text) in
                [(Hints::of_name("x.sfv"), line.clone()), (Hints::default(), format!("; by\n{line}"))]
            {
                let lines = read_all(&hints, &text);
                let expected = (Dialect::Sfv, Algorithm::Crc32, name.trim_end().to_owned());
                assert_eq!(told(lines.last().unwrap()), expected, "{text}");
            }
        }
        let lines = read_all(&Hints::of_name("x.sfv"), "; a deadbeef\n# no checksum\n");
        assert_eq!(lines, [Line::Remark, Line::Remark]);
    }

    #[test]
    fn sfv_is_detected_by_comments_or_file_name() {
        let lines = read_all(&Hints::default(), "; Generated by x\ndeadbeef 12345678\nb c  0000ABCD  \n");
        assert_eq!(told(&lines[1]), (Dialect::Sfv, Algorithm::Crc32, "deadbeef".to_owned()));
        assert_eq!(told(&lines[2]), (Dialect::Sfv, Algorithm::Crc32, "b c".to_owned()));
        let lines = read_all(&Hints::of_name("x.sfv"), "deadbeef 12345678\n");
        assert_eq!(told(&lines[0]).2, "deadbeef");
    }

    /// Regression: a value without its leading zeros was no checksum, and its file was not checked.
    #[test]
    fn sfv_values_may_lack_leading_zeros_and_other_lines_are_damaged() {
        let lines =
            read_all(&Hints::of_name("x.sfv"), "a b 123abc\nc 0\nd 123456789\ne 12345g78\nf\n\n; g\n");
        for (line, number, name) in [(&lines[0], "00123abc", "a b"), (&lines[1], "00000000", "c")] {
            assert_eq!(told(line), (Dialect::Sfv, Algorithm::Crc32, name.to_owned()));
            let Line::Claim(claim) = line else { panic!("a claim") };
            assert_eq!(claim.stated[0].meanings[0].digests[0].to_string(), number);
        }
        assert!(lines[2..5].iter().all(|line| *line == Line::Malformed(Flaw::Damaged)), "{lines:?}");
        assert_eq!(lines[5..], [Line::Remark, Line::Remark]);
        // A list without a name shows by its lines that it is SFV.
        let lines = read_all(&Hints::default(), "a.rar 1234567\nb.rar 12345678\na.rar 1234567\n");
        assert_eq!(lines[0], Line::Malformed(Flaw::NoChecksum));
        assert_eq!(told(&lines[2]).0, Dialect::Sfv);
    }

    #[test]
    fn signatures_are_remarks_and_end_with_the_next_entry() {
        let md5 = digest(Algorithm::Md5, b"");
        let base64 = "iQEzBAEBCAAdFiEEWJ3RCsm8kmrZ+ZoCVXQLiX0aW2sFAmWf3vAACgkQVXQLiX0a";
        let signed = format!(
            "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{md5}  a\n-----BEGIN PGP SIGNATURE-----\n\
             Version: 1\n\n{}\n{base64}\n=abcd\n-----END PGP SIGNATURE-----\n{md5}  b\n",
            &base64[..64]
        );
        let lines = read_all(&Hints::default(), &signed);
        let claims: Vec<usize> = (0..lines.len()).filter(|&at| lines[at] != Line::Remark).collect();
        assert_eq!(claims, [3, 11], "{lines:?}");
        // Without its end mark a signature hides no entry.
        let lines =
            read_all(&Hints::default(), &format!("-----BEGIN PGP SIGNATURE-----\n{base64}\n{md5}  a\n"));
        assert_eq!(told(&lines[2]).2, "a");
        let lines = read_all(
            &Hints::default(),
            &format!("-----BEGIN PGP SIGNATURE-----\n{}z  a\n", &md5.to_string()[1..]),
        );
        assert_eq!(lines[1], Line::Malformed(Flaw::Damaged));
        // The header of a signed text ends before its first line.
        let text = format!("-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA256\n\n{md5}\n");
        assert_eq!(read_all(&Hints::default(), &text)[3], Line::Malformed(Flaw::NoName));
        // A signature of Ed25519 is as long as a SHA-512 in base64.
        let signature = format!("{}==", "Aa0+".repeat(21) + "Aa");
        assert_eq!(read_all(&Hints::default(), &signature)[0], Line::Malformed(Flaw::NoChecksum));
    }

    /// Regression: several leaves after `XXH3_` were no checksum.
    #[test]
    fn several_leaves_of_xxh3_are_read() {
        let one = digest(Algorithm::Xxh3_64, b"a");
        let line = format!("#mutil##XXH3_{one}{one}  t");
        let Line::Claim(claim) = &read_all(&Hints::default(), &line)[0] else { panic!("a claim") };
        assert_eq!(claim.stated[0].meanings[0].digests, [one, one]);
        let hints = Hints { forced: forced_sha1(), ..Hints::default() };
        assert_eq!(read_all(&hints, &line)[0], Line::Excluded);
    }

    #[test]
    fn decimal_lines_of_other_algorithms_are_excluded() {
        let hints = Hints { forced: forced_sha1(), ..Hints::default() };
        for line in
            ["930766865 9 a", "477 1 a", "00477     1 a", "SHA256 (a) = 1234", "path=a size=9 time=0 md5=12"]
        {
            assert_eq!(read_all(&hints, line)[0], Line::Excluded, "{line}");
        }
    }

    #[test]
    fn bag_manifest_names_are_decoded() {
        let hints = |encodes| Hints::of_manifest("manifest-md5.txt", encodes).unwrap();
        let md5 = digest(Algorithm::Md5, b"");
        let text = format!("{md5} data/a%0Ab%25\n{md5}\t  *data/x\n{md5}  ../x\n");
        let lines = read_all(&hints(true), &text);
        assert_eq!(told(&lines[0]), (Dialect::BagIt, Algorithm::Md5, "data/a\nb%".to_owned()));
        assert_eq!(told(&lines[1]).2, "data/x");
        assert_eq!(lines[2], Line::Malformed(Flaw::OutsideBag));
        assert_eq!(told(&read_all(&hints(false), &text)[0]).2, "data/a\nb%25");
        let foreign = Hints::of_manifest("manifest-whirlpool.txt", true).unwrap();
        assert!(
            matches!(&read_all(&foreign, "00 data/x")[0], Line::Foreign(f) if f.algorithm == "whirlpool")
        );
    }

    #[test]
    fn unsupported_algorithms_are_reported_by_name() {
        for (line, algorithm) in [
            ("SHAKE128 (f) = 1aca6b9e651b5f20079a305ca8f86d39", "SHAKE128"),
            ("SHAKE-256(f)= 1aca6b9e651b5f20079a305ca8f86d39", "SHAKE-256"),
            (
                "GOST12-256 (f) = 84da1066a0205e1446ec4a858ed2314b6233e5790ba5999dde8cd35d5d39f002",
                "GOST12-256",
            ),
            ("path=f size=9 time=0.00 hwh64=0011223344556677", "hwh64"),
        ] {
            let Line::Foreign(foreign) = &read_all(&Hints::default(), line)[0] else { panic!("{line}") };
            assert_eq!((foreign.algorithm.as_str(), foreign.name.as_slice()), (algorithm, &b"f"[..]));
        }
    }

    #[test]
    fn malformed_lines_are_reported_with_a_reason() {
        let md5 = "60b725f10c9c85c70d97880dfe8191b3";
        let flaw = |line: &str| match &read_all(&Hints::default(), line)[..] {
            [Line::Malformed(flaw)] => flaw.clone(),
            other => panic!("{line}: {other:?}"),
        };
        for line in ["junk", "junk and more", "feed me  now", "a\0b"] {
            assert_eq!(flaw(line), Flaw::NoChecksum, "{line}");
        }
        for line in [&format!("{}  a", &md5[1..]), &format!("x{md5}  a"), &format!("#{}  a", &md5[1..])] {
            assert_eq!(flaw(line), Flaw::Damaged, "{line}");
        }
        assert_eq!(flaw(md5), Flaw::NoName);
        assert_eq!(flaw(&format!("{md5}  ")), Flaw::NoName);
        assert_eq!(flaw(&format!("MD5 () = {md5}")), Flaw::NoName);
        assert_eq!(flaw(&format!("\\{md5}  a\\q")), Flaw::Escape);
        assert_eq!(flaw(&format!("{md5}  a\0b")), Flaw::Nul);
        assert_eq!(flaw(&format!("#mutil#9-5#{md5}  t")), Flaw::Range);
        assert!(matches!(flaw(&format!("SHA1 (a) = {md5}")), Flaw::Digest(_)));
        for line in ["", "   ", "# remark", "\r"] {
            assert_eq!(Reader::new(&Hints::default()).read(line.as_bytes()), Line::Remark, "{line:?}");
        }
    }

    #[test]
    fn lines_of_unrequested_algorithms_are_skipped() {
        let md5 = digest(Algorithm::Md5, b"");
        let sha1 = digest(Algorithm::Sha1, b"");
        let hints = Hints { forced: forced_sha1(), ..Hints::default() };
        let text = format!("{md5}  a\n{sha1}  a\nMD5 (a) = {md5}\nSHA1 (a) = {sha1}\njunk\n");
        let lines = read_all(&hints, &text);
        assert_eq!((&lines[0], &lines[2]), (&Line::Excluded, &Line::Excluded));
        assert_eq!((told(&lines[1]).1, told(&lines[3]).1), (Algorithm::Sha1, Algorithm::Sha1));
        assert!(matches!(lines[4], Line::Malformed(_)));
    }

    fn forced_sha1() -> Option<Vec<Algorithm>> {
        crate::list::forced("sha1")
    }

    #[test]
    fn nul_terminated_lines_allow_any_name() {
        let md5 = digest(Algorithm::Md5, b"");
        let hints = Hints { zero: true, ..Hints::default() };
        let Line::Claim(claim) = Reader::new(&hints).read(format!("{md5}  a\nb\\n\r").as_bytes()) else {
            panic!("a claim")
        };
        assert_eq!(claim.name, b"a\nb\\n\r");
    }
}
