//! The request that opens a session of WebTransport: its header fields in QPACK (RFC 9204).
//!
//! The server grants no dynamic table, so fields refer to the static table only. Of this table the
//! names and values are known that such a request has; other fields are read and ignored. With
//! `huffman`, this module uses nothing else of the program, so that a fuzzer can include it alone.

use super::huffman;

/// Number of entries in the static table (RFC 9204 appendix A).
const STATIC_ENTRIES: u64 = 99;

/// Header fields of the request that the server reads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    method: Option<String>,
    scheme: Option<String>,
    protocol: Option<String>,
    authority: Option<String>,
    path: Option<String>,
    origin: Option<String>,
}

/// Error of a header that is not valid QPACK, or repeats a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header of the request is invalid")]
pub(super) struct BadHeader;

impl Request {
    /// Decodes the payload of a HEADERS frame.
    pub(super) fn decode(payload: &[u8]) -> Result<Request, BadHeader> {
        let mut rest = Bytes(payload);
        // The insert count and the base: both are 0 without a dynamic table.
        if (rest.number(8)?, rest.number(7)?) != (0, 0) {
            return Err(BadHeader);
        }
        let mut request = Request::default();
        while let Some(first) = rest.0.first().copied() {
            if first & 0b1100_0000 == 0b1100_0000 {
                let (name, value) = static_field(rest.number(6)?)?;
                request.set(name, value.as_bytes())?;
            } else if first & 0b1101_0000 == 0b0101_0000 {
                let (name, _) = static_field(rest.number(4)?)?;
                let value = rest.text(7)?;
                request.set(name, &value)?;
            } else if first & 0b1110_0000 == 0b0010_0000 {
                let (name, value) = (rest.text(3)?, rest.text(7)?);
                request.set(std::str::from_utf8(&name).map_err(|_| BadHeader)?, &value)?;
            } else {
                // Dynamic table.
                return Err(BadHeader);
            }
        }
        Ok(request)
    }

    fn set(&mut self, name: &str, value: &[u8]) -> Result<(), BadHeader> {
        let field = match name {
            ":method" => &mut self.method,
            ":scheme" => &mut self.scheme,
            ":protocol" => &mut self.protocol,
            ":authority" => &mut self.authority,
            ":path" => &mut self.path,
            "origin" => &mut self.origin,
            _ => return Ok(()),
        };
        let value = std::str::from_utf8(value).map_err(|_| BadHeader)?;
        match field.replace(value.to_owned()) {
            None => Ok(()),
            Some(_) => Err(BadHeader),
        }
    }

    /// Returns true if the request opens a session of WebTransport.
    pub(super) fn is_web_transport(&self) -> bool {
        let fields = [&self.method, &self.scheme, &self.protocol].map(|field| field.as_deref());
        fields == [Some("CONNECT"), Some("https"), Some("webtransport")]
    }

    /// Returns the host that the request names.
    pub(super) fn authority(&self) -> &str {
        self.authority.as_deref().unwrap_or_default()
    }

    /// Returns the page from which the request comes.
    pub(super) fn origin(&self) -> &str {
        self.origin.as_deref().unwrap_or_default()
    }

    /// Returns the ID and the token in the path `/lane/ID?token=TOKEN`.
    pub(super) fn lane(&self) -> Option<(&str, &str)> {
        self.path.as_deref()?.strip_prefix("/lane/")?.split_once("?token=")
    }
}

/// Returns an entry of the static table. The name is empty if no request of WebTransport has it.
fn static_field(index: u64) -> Result<(&'static str, &'static str), BadHeader> {
    Ok(match index {
        0 => (":authority", ""),
        1 => (":path", "/"),
        15 => (":method", "CONNECT"),
        // DELETE to PUT.
        16..=21 => (":method", ""),
        22 => (":scheme", "http"),
        23 => (":scheme", "https"),
        90 => ("origin", ""),
        _ if index < STATIC_ENTRIES => ("", ""),
        _ => return Err(BadHeader),
    })
}

/// Bytes that were not read yet.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], BadHeader> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(BadHeader)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Reads a number that starts in the last `bits` bits of a byte (RFC 7541 section 5.1).
    fn number(&mut self, bits: u32) -> Result<u64, BadHeader> {
        let mask = (1_u64 << bits) - 1;
        let mut number = u64::from(self.take(1)?[0]) & mask;
        if number < mask {
            return Ok(number);
        }
        // No number in a header of this size needs more than four further bytes.
        for shift in [0, 7, 14, 21] {
            let byte = u64::from(self.take(1)?[0]);
            number += (byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(number);
            }
        }
        Err(BadHeader)
    }

    /// Reads a string whose length starts in the last `bits` bits of a byte. The bit before them
    /// tells that it is in the Huffman code.
    fn text(&mut self, bits: u32) -> Result<Vec<u8>, BadHeader> {
        let is_coded = self.0.first().ok_or(BadHeader)? >> bits & 1 == 1;
        let len = usize::try_from(self.number(bits)?).map_err(|_| BadHeader)?;
        let bytes = self.take(len)?;
        if is_coded { huffman::decode(bytes).ok_or(BadHeader) } else { Ok(bytes.to_vec()) }
    }
}

/// Asserts for any bytes that the fields of a request that is accepted have no more text than its
/// header can contain.
#[cfg_attr(not(test), allow(dead_code, reason = "for the tests here and the fuzzer beside the workspace"))]
pub(super) fn any(bytes: &[u8]) {
    let Ok(request) = Request::decode(bytes) else { return };
    let _ = (request.is_web_transport(), request.lane());
    let Request { method, scheme, protocol, authority, path, origin } = request;
    let size: usize =
        [method, scheme, protocol, authority, path, origin].iter().flatten().map(String::len).sum();
    // A code has at least 5 bits, and the static table has 20 bytes in those fields.
    assert!(size <= bytes.len() * 8 / 5 + 20, "{bytes:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the header of a request in QPACK, with plain strings.
    fn header(fields: &[(&str, &str)]) -> Vec<u8> {
        let mut bytes = vec![0, 0];
        for (name, value) in fields {
            // A literal name: its length starts in 3 bits.
            bytes.extend([0b0010_0111, u8::try_from(name.len() - 7).expect("a longer name")]);
            bytes.extend(name.as_bytes());
            bytes.push(u8::try_from(value.len()).expect("short"));
            bytes.extend(value.as_bytes());
        }
        bytes
    }

    #[test]
    fn static_and_literal_fields_are_read() {
        let mut bytes = vec![0, 0, 0xc0 | 15, 0xc0 | 23];
        // Index 0 with a value in the Huffman code, index 90, and index 1 with plain values.
        bytes.extend([
            0x50,
            0x80 | 12,
            0xf1,
            0xe3,
            0xc2,
            0xe5,
            0xf2,
            0x3a,
            0x6b,
            0xa0,
            0xab,
            0x90,
            0xf4,
            0xff,
        ]);
        bytes.extend([0x5f, 75, 9]);
        bytes.extend(b"https://a");
        bytes.extend([0x51, 16]);
        bytes.extend(b"/lane/1a?token=b");
        bytes.extend(&header(&[("x-unknown", "1"), ("x-unknown", "2"), (":protocol", "webtransport")])[2..]);
        let request = Request::decode(&bytes).expect("valid");
        assert!(request.is_web_transport());
        assert_eq!((request.authority(), request.origin()), ("www.example.com", "https://a"));
        assert_eq!(request.lane(), Some(("1a", "b")));
        for len in 0..bytes.len() {
            // A header that is cut between two fields is valid, and lacks a field.
            if let Ok(part) = Request::decode(&bytes[..len]) {
                assert_ne!(part, request);
            }
        }
    }

    #[test]
    fn requests_of_other_kinds_are_told_apart() {
        let field = |name: u8, value: u8| vec![0, 0, 0xc0 | name, 0xc0 | value];
        for other in [field(17, 23), field(15, 22), field(15, 23), vec![0, 0]] {
            assert!(!Request::decode(&other).expect("valid").is_web_transport());
        }
        assert_eq!(Request::decode(&[0, 0, 0xc1]).expect("valid").lane(), None);
    }

    /// Same check as the fuzzer's, from mutated headers.
    #[test]
    fn changed_headers_are_refused_or_stay_within_their_size() {
        let valid = [
            &[0, 0, 0xc0 | 15, 0xc0 | 23, 0x50, 0x80 | 12][..],
            &[0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff],
            &header(&[(":protocol", "webtransport"), ("x-unknown", "abcdefgh")])[2..],
        ]
        .concat();
        haul_lab::random::fuzz(20_000, |random| any(&random.mutate(&valid)));
    }

    #[test]
    fn invalid_headers_are_refused() {
        let twice = header(&[(":protocol", "webtransport"), (":protocol", "webtransport")]);
        let dynamic: [&[u8]; 5] = [&[1, 0], &[0, 1], &[0, 0, 0x80], &[0, 0, 0x40, 0], &[0, 0, 0x10]];
        let long: [&[u8]; 4] = [
            &[0, 0, 0xff, 36],
            &[0, 0, 0x50, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
            &[0, 0, 0x50, 5, b'a'],
            &[0, 0, 0x50, 0x81, 0],
        ];
        for invalid in dynamic.into_iter().chain(long).chain([&twice[..], &[]]) {
            assert_eq!(Request::decode(invalid), Err(BadHeader), "{invalid:?}");
        }
    }
}
