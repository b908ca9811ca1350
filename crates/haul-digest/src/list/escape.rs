//! Names with bytes that would break a line.

/// Returns the name with `\`, LF and CR written as `\\`, `\n` and `\r`, or `None` if it contains
/// none of them. The GNU tools do the same, and mark such a line by a backslash before it.
pub fn escape(name: &[u8]) -> Option<Vec<u8>> {
    if !name.iter().any(|byte| matches!(byte, b'\\' | b'\n' | b'\r')) {
        return None;
    }
    let mut out = Vec::with_capacity(name.len() + 8);
    for &byte in name {
        match byte {
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            _ => out.push(byte),
        }
    }
    Some(out)
}

/// Reverses [`escape`]. Returns `None` if a backslash escapes anything else.
pub fn unescape(name: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(name.len());
    let mut bytes = name.iter();
    while let Some(&byte) = bytes.next() {
        out.push(match byte {
            b'\\' => match bytes.next()? {
                b'n' => b'\n',
                b'r' => b'\r',
                b'\\' => b'\\',
                _ => return None,
            },
            _ => byte,
        });
    }
    Some(out)
}

/// Decodes `%41` for the bytes in `escaped`; everything else stays unchanged.
pub(super) fn unescape_percent(name: &[u8], escaped: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&byte, tail)) = rest.split_first() {
        let code = if byte == b'%' { tail.first_chunk::<2>().and_then(hex_byte) } else { None };
        match code.filter(|code| escaped.contains(code)) {
            Some(code) => {
                out.push(code);
                rest = &tail[2..];
            }
            None => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    out
}

fn hex_byte(digits: &[u8; 2]) -> Option<u8> {
    let value = |digit: u8| char::from(digit).to_digit(16);
    u8::try_from(value(digits[0])? << 4 | value(digits[1])?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn escaped_names_round_trip(name in proptest::collection::vec(1u8..=255, 0..40)) {
            let escaped = escape(&name);
            prop_assert_eq!(escaped.is_some(), name.iter().any(|byte| b"\\\n\r".contains(byte)));
            prop_assert_eq!(unescape(&escaped.unwrap_or(name.clone())), Some(name));
        }
    }

    #[test]
    fn unescape_percent_decodes_only_the_given_bytes() {
        assert_eq!(unescape_percent(b"a%0Ab%0dc%25d", b"\n\r%"), b"a\nb\rc%d");
        assert_eq!(unescape_percent(b"a%0Ab%25d%41%", b"\n\r"), b"a\nb%25d%41%");
        assert_eq!(unescape_percent(b"%+1%zz%2", b"\n\x01%"), b"%+1%zz%2");
        // Decoded once, not twice.
        assert_eq!(unescape_percent(b"%250A", b"\n\r%"), b"%0A");
    }
}
