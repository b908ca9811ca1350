//! The Huffman code of header fields (RFC 7541 section 5.2 and appendix B).

/// Number of symbols: all bytes, and the end of the string, which must not occur.
const SYMBOLS: usize = 257;

/// Length in bits of the longest code.
const LENGTH_MAX: usize = 30;

/// Length in bits of the code of each symbol. The code is canonical: codes of one length are
/// consecutive numbers in the order of their symbols, so the lengths determine it.
#[rustfmt::skip]
const LENGTHS: [u8; SYMBOLS] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// Codes of one length.
#[derive(Clone, Copy)]
struct Group {
    first_code: u32,
    count: u32,
    /// Place of the first symbol in `Table::symbols`.
    at: usize,
}

struct Table {
    groups: [Group; LENGTH_MAX + 1],
    /// Symbols in the order of their codes.
    symbols: [u16; SYMBOLS],
}

const TABLE: Table = table();

const fn table() -> Table {
    let mut groups = [Group { first_code: 0, count: 0, at: 0 }; LENGTH_MAX + 1];
    let mut symbols = [0; SYMBOLS];
    let (mut length, mut at, mut code) = (1, 0, 0);
    while length <= LENGTH_MAX {
        code <<= 1;
        groups[length] = Group { first_code: code, count: 0, at };
        let mut symbol = 0;
        while symbol < SYMBOLS {
            if LENGTHS[symbol] as usize == length {
                symbols[at] = symbol as u16;
                at += 1;
                code += 1;
                groups[length].count += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    Table { groups, symbols }
}

/// Returns the bytes of a string in this code; `None` if it is no such string.
pub(super) fn decode(coded: &[u8]) -> Option<Vec<u8>> {
    // The shortest code has 5 bits.
    let mut bytes = Vec::with_capacity(coded.len() * 8 / 5);
    let (mut code, mut length) = (0_u32, 0);
    for bit in coded.iter().flat_map(|byte| (0..8).rev().map(move |at| u32::from(byte >> at & 1))) {
        code = code << 1 | bit;
        length += 1;
        let group = TABLE.groups.get(length)?;
        let Some(offset) = code.checked_sub(group.first_code).filter(|offset| *offset < group.count) else {
            continue;
        };
        // The symbol of the end does not fit in a byte.
        bytes.push(u8::try_from(TABLE.symbols[group.at + offset as usize]).ok()?);
        (code, length) = (0, 0);
    }
    // The last byte is filled with the first bits of the end: at most 7 ones.
    (length < 8 && code == (1 << length) - 1).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        let digits = text.split_ascii_whitespace().flat_map(|word| word.as_bytes().chunks(2));
        let byte = |two| u8::from_str_radix(std::str::from_utf8(two).expect("ASCII"), 16).expect("a byte");
        digits.map(byte).collect()
    }

    #[test]
    fn examples_of_rfc_7541_are_decoded() {
        for (coded, text) in [
            ("f1e3 c2e5 f23a 6ba0 ab90 f4ff", "www.example.com"),
            ("a8eb 1064 9cbf", "no-cache"),
            ("9d29 ad17 1863 c78f 0b97 c8e9 ae82 ae43 d3", "https://www.example.com"),
            (
                "94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed \
              4ee5 b106 3d50 07",
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ),
        ] {
            assert_eq!(decode(&hex(coded)).as_deref(), Some(text.as_bytes()), "{text}");
        }
        assert_eq!(decode(&[]), Some(Vec::new()));
    }

    #[test]
    fn the_code_is_complete() {
        let sum: u64 = LENGTHS.iter().map(|length| 1 << (LENGTH_MAX - usize::from(*length))).sum();
        assert_eq!(sum, 1 << LENGTH_MAX);
    }

    #[test]
    fn wrong_ends_are_refused() {
        // A whole byte of padding, padding with a zero, and the end of the string.
        for wrong in ["f1e3 c2e5 f23a 6ba0 ab90 f4ff ff", "a8eb 1064 9cbe", "ffff fffc", "ffff ffff"] {
            assert_eq!(decode(&hex(wrong)), None, "{wrong}");
        }
    }
}
