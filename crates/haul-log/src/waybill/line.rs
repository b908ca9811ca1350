//! Format of one line: its limits, and its checksum, which continues that of the previous line.

use std::fmt::Write;

/// Version of the format that is written, and the highest version that is read.
pub const VERSION: u64 = 1;

/// Maximum size of a line in bytes, including its end: two percent-encoded paths and a reserve.
pub const LINE_BYTES_MAX: usize = 256 << 10;

/// Maximum size, in bytes, of a command line that is stored.
pub const RUN_BYTES_MAX: usize = 16 << 10;

/// Maximum number of leaf digests in one line.
pub const LEAVES_PER_LINE: u64 = 64;

/// Tag of the first line of a section.
pub(super) const MAGIC: &str = "surehaul-waybill";

const _: () = assert!(6 * super::PATH_BYTES_MAX + 3 * RUN_BYTES_MAX < LINE_BYTES_MAX);

/// Number of hexadecimal digits of the checksum.
const CHECK_DIGITS: usize = 8;

/// Running CRC-32 of a section: of all its lines so far, each without the digits of its own
/// checksum.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain(u32);

impl Chain {
    /// Appends checksum and line end to the text of a line.
    pub(super) fn seal(&mut self, line: &mut String) {
        line.push(' ');
        self.0 = continued(self.0, line.as_bytes());
        // Writing to a string does not fail.
        let _ = writeln!(line, "{:08x}", self.0);
    }
}

/// The running checksum of a reader, which continues after damage. The checksum in a damaged line
/// may have been the correct one, or the correct one may be that of its text.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Links {
    candidates: [u32; 2],
}

impl Links {
    pub(super) fn to_bytes(self) -> [u8; 8] {
        let [first, second] = self.candidates.map(u64::from);
        (first | second << 32).to_le_bytes()
    }

    pub(super) fn from_bytes(bytes: [u8; 8]) -> Links {
        let both = u64::from_le_bytes(bytes);
        Links { candidates: [both as u32, (both >> 32) as u32] }
    }

    /// Checks a complete line without its end. Returns the text before the checksum, or `None` if
    /// the line is damaged.
    pub(super) fn take<'l>(&mut self, line: &'l [u8]) -> Option<&'l str> {
        let (body, digits) = line.split_at(line.len().saturating_sub(CHECK_DIGITS));
        let computed = self.candidates.map(|before| continued(before, body));
        match parse_sum(digits) {
            Some(stated) if computed.contains(&stated) => {
                self.candidates = [stated; 2];
                body.strip_suffix(b" ").and_then(|text| std::str::from_utf8(text).ok())
            }
            stated => {
                self.candidates = [stated.unwrap_or(computed[1]), computed[0]];
                None
            }
        }
    }
}

/// Returns the checksum in a sealed line, and its text, without checking either.
pub(super) fn stated(line: &[u8]) -> Option<(u32, &str)> {
    let at = line.len().checked_sub(CHECK_DIGITS).filter(|at| *at > 0 && line[at - 1] == b' ')?;
    Some((parse_sum(&line[at..])?, std::str::from_utf8(&line[..at - 1]).ok()?))
}

/// Returns the CRC-32 (ISO-HDLC, as in zlib) that continues from `before` over `bytes`.
pub(super) fn continued(before: u32, bytes: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new_with_initial(before);
    crc.update(bytes);
    crc.finalize()
}

fn parse_sum(digits: &[u8]) -> Option<u32> {
    if digits.len() != CHECK_DIGITS {
        return None;
    }
    let is_digit = |byte: &u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte);
    let text = std::str::from_utf8(digits).ok().filter(|_| digits.iter().all(is_digit))?;
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(lines: &[&str]) -> Vec<String> {
        let mut chain = Chain::default();
        let seal = |line: &&str| {
            let mut line = (*line).to_owned();
            chain.seal(&mut line);
            line.trim_end_matches('\n').to_owned()
        };
        lines.iter().map(seal).collect()
    }

    fn damaged(lines: &[String]) -> Vec<usize> {
        let mut links = Links::default();
        (0..lines.len()).filter(|&at| links.take(lines[at].as_bytes()).is_none()).collect()
    }

    #[test]
    fn one_flipped_bit_damages_one_line() {
        let lines = sealed(&["head", "one", "two", "three"]);
        assert!(damaged(&lines).is_empty());
        for line in 0..lines.len() {
            for bit in 0..lines[line].len() * 8 {
                let mut bytes = lines[line].clone().into_bytes();
                bytes[bit / 8] ^= 1 << (bit % 8);
                let mut links = Links::default();
                for (number, other) in lines.iter().enumerate() {
                    let shown = if number == line { &bytes[..] } else { other.as_bytes() };
                    assert_eq!(
                        links.take(shown).is_none(),
                        number == line,
                        "line {line}, bit {bit}, at {number}"
                    );
                }
            }
        }
    }

    #[test]
    fn moved_lost_and_repeated_lines_are_detected() {
        let lines = sealed(&["head", "one", "two", "three", "four"]);
        let order = |picks: &[usize]| damaged(&picks.iter().map(|&at| lines[at].clone()).collect::<Vec<_>>());
        assert_eq!(order(&[0, 2, 1, 3, 4])[0], 1);
        assert_eq!(order(&[0, 1, 3, 4]), [2]);
        assert_eq!(order(&[0, 1, 1, 2, 3, 4])[0], 2);
    }

    #[test]
    fn line_checksum_is_the_crc32_of_zlib() {
        // python3: zlib.crc32(b"head ") and zlib.crc32(b"one ", of that)
        assert_eq!(continued(continued(0, b"123"), b"456789"), 0xcbf4_3926);
    }
}
