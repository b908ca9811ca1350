//! Tests of checksum lists: a list written in any format is read back, damage is detected, and no
//! input makes the reader panic.

use haul_digest::list::{Claim, Hints, Kind, Line, Reader, escape};
use haul_digest::{Algorithm, Digest};
use proptest::prelude::*;

/// Format of a line, as this test writes it.
#[derive(Clone, Copy, Debug)]
enum Form {
    Plain,
    Starred,
    Upper,
    OneBlank,
    Zero,
    Tagged,
    Openssl,
    Rhash,
    TaggedLittle,
    Mutil,
    MutilTagged,
    Eos,
    Xrdcp,
    Hashdeep,
    Md5deep,
    Cksum,
    Sfv,
    Bag,
    OldBag,
}

const FORMS: [Form; 19] = [
    Form::Plain,
    Form::Starred,
    Form::Upper,
    Form::OneBlank,
    Form::Zero,
    Form::Tagged,
    Form::Openssl,
    Form::Rhash,
    Form::TaggedLittle,
    Form::Mutil,
    Form::MutilTagged,
    Form::Eos,
    Form::Xrdcp,
    Form::Hashdeep,
    Form::Md5deep,
    Form::Cksum,
    Form::Sfv,
    Form::Bag,
    Form::OldBag,
];

/// A line with a name and a digest, and the lines that must precede it. `at` is the offset of the
/// digest.
struct Written {
    before: &'static str,
    line: Vec<u8>,
    at: usize,
    len: usize,
}

impl Form {
    fn hints(self) -> Hints {
        match self {
            Form::Zero => Hints { zero: true, ..Hints::default() },
            Form::Sfv => Hints { kind: Kind::Sfv, ..Hints::default() },
            Form::Bag => Hints::of_manifest("manifest-sha256.txt", true).unwrap(),
            Form::OldBag => Hints::of_manifest("manifest-sha256.txt", false).unwrap(),
            _ => Hints::default(),
        }
    }

    /// Returns the algorithm that this format uses for `wanted`, if it has one.
    fn algorithm(self, wanted: Algorithm) -> Option<Algorithm> {
        let len = wanted.digest_len();
        match self {
            Form::TaggedLittle => Some(Algorithm::Xxh64),
            Form::Eos | Form::Xrdcp => Some(if len == 4 { Algorithm::Adler32 } else { Algorithm::Sha256 }),
            Form::Hashdeep => Some(Algorithm::Md5),
            Form::Md5deep => (len >= 16).then_some(wanted),
            Form::Cksum => Some(Algorithm::Cksum),
            Form::Sfv => Some(Algorithm::Crc32),
            Form::Bag | Form::OldBag => Some(Algorithm::Sha256),
            // Four hexadecimal digits may be a word, so they need a tag.
            Form::Tagged | Form::Openssl | Form::Rhash | Form::MutilTagged => Some(wanted),
            _ => (len >= 4).then_some(wanted),
        }
    }

    /// Returns true if the format can represent this name. A tool that writes names unescaped must
    /// not break the line.
    fn can_hold(self, name: &[u8], digest: &Digest) -> bool {
        let any = |bytes: &[u8]| name.iter().any(|byte| bytes.contains(byte));
        let (first, last) = (name[0], name[name.len() - 1]);
        let breaks = any(b"\n") || last == b'\r';
        let blank = |byte: u8| byte == b' ' || byte == b'\t';
        let decimal = digest.to_string().bytes().all(|digit| digit.is_ascii_digit());
        match self {
            Form::Zero => true,
            Form::OneBlank => !blank(first) && first != b'*' && !(decimal && first.is_ascii_digit()),
            Form::Eos | Form::Xrdcp | Form::Hashdeep | Form::Md5deep | Form::Cksum => !breaks,
            Form::Sfv => {
                !breaks && !blank(last) && !name.iter().all(|&byte| blank(byte)) && !b";#%".contains(&first)
            }
            Form::Bag => {
                !blank(first) && !b"*/~".contains(&first) && !name.windows(2).any(|two| two == b"..")
            }
            // Before version 1.0, a percent sign in a name looks like an encoded line end.
            Form::OldBag => !any(b"%") && Form::Bag.can_hold(name, digest),
            _ => true,
        }
    }

    fn write(self, name: &[u8], digest: &Digest) -> Written {
        let hex = digest.to_string();
        let tag = digest.algorithm().tag();
        let escaped = escape(name);
        let (mark, shown) = (if escaped.is_some() { "\\" } else { "" }, escaped.as_deref().unwrap_or(name));
        let percent = |also: &str| {
            let encode = |&byte: &u8| match byte {
                b'\n' | b'\r' => format!("%{byte:02X}").into_bytes(),
                byte if also.as_bytes().contains(&byte) => format!("%{byte:02x}").into_bytes(),
                byte => vec![byte],
            };
            name.iter().flat_map(encode).collect::<Vec<u8>>()
        };
        let (before, head, text, gap, name, tail) = match self {
            Form::Plain => ("", mark.to_owned(), hex, "  ", shown.to_vec(), String::new()),
            Form::Starred => ("", mark.to_owned(), hex, " *", shown.to_vec(), String::new()),
            Form::Upper => ("", mark.to_owned(), hex.to_uppercase(), "  ", shown.to_vec(), "\r".into()),
            Form::OneBlank => ("", mark.to_owned(), hex, " ", shown.to_vec(), String::new()),
            Form::Zero => ("", String::new(), hex, "  ", name.to_vec(), String::new()),
            Form::Mutil => ("", format!("#mutil##{mark}"), hex, "  ", shown.to_vec(), String::new()),
            Form::Md5deep => ("", "       123  ".into(), hex, "  ", name.to_vec(), String::new()),
            Form::Cksum => (
                "",
                String::new(),
                digest.value().unwrap().to_string(),
                " 123 ",
                name.to_vec(),
                String::new(),
            ),
            Form::Hashdeep => {
                let head = "%%%% HASHDEEP-1.0\n%%%% size,md5,filename\n## Invoked from: /\n";
                (head, "123,".into(), hex, ",", name.to_vec(), String::new())
            }
            Form::Bag => ("", String::new(), hex, " ", percent("%"), String::new()),
            Form::OldBag => ("", String::new(), hex, "  ", percent(""), String::new()),
            Form::Xrdcp => {
                let short = hex.trim_start_matches('0').to_owned();
                let kind = digest.algorithm().name();
                let text = if digest.value().is_some() { short } else { hex };
                let text = if text.is_empty() { "0".to_owned() } else { text };
                ("", format!("{kind}: "), text, " ", name.to_vec(), " 123".into())
            }
            // The other formats begin with the name.
            _ => return self.write_name_first(mark, shown, name, digest, &hex, tag),
        };
        let mut line = head.clone().into_bytes();
        line.extend_from_slice(text.as_bytes());
        line.extend_from_slice(gap.as_bytes());
        line.extend_from_slice(&name);
        line.extend_from_slice(tail.as_bytes());
        Written { before, line, at: head.len(), len: text.len() }
    }

    fn write_name_first(
        self,
        mark: &str,
        shown: &[u8],
        name: &[u8],
        digest: &Digest,
        hex: &str,
        tag: &str,
    ) -> Written {
        let little = || {
            let mut bytes = digest.as_bytes().to_vec();
            bytes.reverse();
            Digest::from_bytes(digest.algorithm(), &bytes).unwrap().to_string()
        };
        let (head, name, gap, text) = match self {
            Form::Tagged => (format!("{mark}{tag} ("), shown, ") = ".into(), hex.to_owned()),
            Form::Openssl => (format!("{mark}{tag}("), shown, ")= ".into(), hex.to_owned()),
            Form::Rhash => (format!("{mark}{tag:<9} ("), shown, ") = ".into(), hex.to_owned()),
            Form::TaggedLittle => (format!("{mark}{tag}_LE ("), shown, ") = ".into(), little()),
            Form::MutilTagged => (format!("#mutil##{mark}{tag} ("), shown, ") = ".into(), hex.to_owned()),
            Form::Eos => {
                let kind = digest.algorithm().name();
                ("path=".to_owned(), name, format!(" size=123 time=0.01 {kind}="), hex.to_owned())
            }
            Form::Sfv => (String::new(), name, " ".into(), hex.to_uppercase()),
            _ => unreachable!("{self:?} has the digest first"),
        };
        let mut line = head.into_bytes();
        line.extend_from_slice(name);
        line.extend_from_slice(gap.as_bytes());
        let at = line.len();
        line.extend_from_slice(text.as_bytes());
        Written { before: "", line, at, len: text.len() }
    }
}

fn read(form: Form, written: &Written) -> Line {
    let mut reader = Reader::new(&form.hints());
    for line in written.before.lines() {
        assert_eq!(reader.read(line.as_bytes()), Line::Remark);
    }
    reader.read(&written.line)
}

/// Returns true if one of the meanings of the line's first checksum is this digest.
fn means(claim: &Claim, digest: &Digest) -> bool {
    claim.stated[0].meanings.iter().any(|meaning| meaning.digests == [*digest])
}

fn names() -> impl Strategy<Value = Vec<u8>> {
    let hard = proptest::sample::select(vec![
        &b"a"[..],
        b" ",
        b"*",
        b"\\",
        b"\n",
        b"\r",
        b"(",
        b")",
        b") = ",
        b" = ",
        b",",
        b"%0A",
        b"%",
        b"/",
        b".",
        b"#",
        b";",
        b"{",
        b"path=",
        b" size=1",
        b"00",
        b"7 ",
        b"cbf43926",
        b"\t",
        b"-",
        b":",
        b"XXH3_",
        b"\xff",
        "ä".as_bytes(),
    ]);
    let any_byte = (1u8..=255).prop_map(|byte| vec![byte]);
    let piece = prop_oneof![3 => hard.prop_map(<[u8]>::to_vec), 1 => any_byte];
    proptest::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat())
}

fn cases() -> impl Strategy<Value = (Form, Vec<u8>, Digest)> {
    let form = proptest::sample::select(FORMS.to_vec());
    let algorithm = proptest::sample::select(Algorithm::ALL.to_vec());
    let bytes = prop_oneof![9 => proptest::collection::vec(any::<u8>(), 64), 1 => Just(vec![0; 64])];
    let case = (form, algorithm, names(), bytes).prop_map(|(form, wanted, name, bytes)| {
        let algorithm = form.algorithm(wanted)?;
        let digest = Digest::from_bytes(algorithm, &bytes[..algorithm.digest_len()]).ok()?;
        form.can_hold(&name, &digest).then_some((form, name, digest))
    });
    case.prop_filter_map("a name the form can hold", |case| case)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn written_lines_are_read_back((form, name, digest) in cases()) {
        let written = form.write(&name, &digest);
        let shown = String::from_utf8_lossy(&written.line).into_owned();
        match read(form, &written) {
            Line::Claim(claim) => {
                prop_assert_eq!(&claim.name, &name, "{}", shown);
                prop_assert!(means(&claim, &digest), "{}: {:?}", shown, claim);
            }
            other => prop_assert!(false, "{shown:?}: {other:?}"),
        }
    }

    #[test]
    fn changed_digit_never_yields_the_same_digest((form, name, digest) in cases(), place in any::<prop::sample::Index>(), by in 1u8..10) {
        let mut written = form.write(&name, &digest);
        let at = written.at + place.index(written.len);
        let changed = match written.line[at] {
            digit @ b'0'..=b'9' => (digit - b'0' + by) % 10 + b'0',
            letter => letter & 0x20 | (b'A' + ((letter | 0x20) - b'a' + by % 5 + 1) % 6),
        };
        prop_assume!(changed != written.line[at]);
        written.line[at] = changed;
        if let Line::Claim(claim) = read(form, &written) {
            prop_assert!(!means(&claim, &digest), "{:?}", String::from_utf8_lossy(&written.line));
        }
    }

    #[test]
    fn reader_returns_only_well_formed_claims(
        lines in proptest::collection::vec((proptest::sample::select(vec![
            "", "%%%% ", "%%%% size,md5,filename", "#mutil#", "#mutil##", "MD5 (", "\\", "path=", "; ", "00000000  ",
            "adler32: ", "9 9 ", "XXH64_LE (a) = ", "CRC32 (", "\u{feff}",
        ]), proptest::collection::vec(any::<u8>(), 0..80)), 1..6),
        form in proptest::sample::select(FORMS.to_vec()),
    ) {
        let mut reader = Reader::new(&form.hints());
        for (head, tail) in &lines {
            let line = [head.as_bytes(), tail].concat();
            if let Line::Claim(claim) = reader.read(&line) {
                prop_assert!(!claim.name.is_empty() && !claim.name.contains(&0) && !claim.stated.is_empty());
                for stated in &claim.stated {
                    prop_assert!(stated.meanings.iter().all(|meaning| !meaning.digests.is_empty()));
                }
            }
        }
    }
}
