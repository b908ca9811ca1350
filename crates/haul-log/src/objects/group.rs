//! Groups of appended object numbers. A group is the addition of one group commit to the log of a
//! file, with one checksum.
//!
//! ```text
//! char    3 17 255 #89abcdef\n                      digits and blanks; the checksum in hexadecimal
//!
//!         +---+--------+--------+-----+-----+
//! int     | n | number | number | ... | CRC |      n: 2 bytes, count of numbers; number: 8 bytes
//! binary  | n | number | number | ... | CRC |      number: 4 bytes
//!         +---+--------+--------+-----+-----+
//! enc     | b | number | number | ... | CRC |      b: 2 bytes, length of the numbers in bytes;
//!         +---+--------+--------+-----+-----+      number: 7 bits a byte, low ones first, the
//!                                                  high bit set if another byte follows
//! ```

use super::seal::{ChecksumContext, SUM_BYTES, number};
use super::{Encoding, GROUP_OBJECTS_MAX};
use haul_model::ObjectIndex;
use std::iter::Peekable;

/// Size of the length field before the numbers, in bytes.
const COUNT_BYTES: usize = 2;

/// Size of `#89abcdef\n` in bytes.
const CHAR_SUM_BYTES: usize = 10;

/// Result of decoding at one position of a region.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// A group and its length in bytes.
    Group(Vec<ObjectIndex>, usize),
    /// Nothing was written here.
    End,
    /// Not a group, or an incomplete one.
    Broken,
}

/// Returns the size of a group without its numbers, in bytes.
pub(super) const fn frame_bytes(encoding: Encoding) -> u64 {
    match encoding {
        Encoding::Char => CHAR_SUM_BYTES as u64,
        _ => (COUNT_BYTES + SUM_BYTES) as u64,
    }
}

/// Returns the maximum size, in bytes, of a number below `blocks`.
pub(super) fn number_bytes_max(encoding: Encoding, blocks: u64) -> u64 {
    number_bytes(encoding, blocks.saturating_sub(1)) as u64
}

fn number_bytes(encoding: Encoding, number: u64) -> usize {
    match encoding {
        Encoding::Char => number.checked_ilog10().map_or(1, |log| log as usize + 1) + 1,
        Encoding::Enc => number.checked_ilog2().map_or(1, |log| log as usize / 7 + 1),
        Encoding::Binary => 4,
        Encoding::Int | Encoding::Bit8 | Encoding::Bit64 => 8,
    }
}

/// Encodes a group of as many of the next `objects` as fit into `room` bytes. Returns `None` if
/// none fits or none is left.
pub(super) fn encode(
    encoding: Encoding,
    seal: ChecksumContext,
    at: u64,
    room: u64,
    objects: &mut Peekable<impl Iterator<Item = ObjectIndex>>,
) -> Option<Vec<u8>> {
    let (mut numbers, mut count) = (Vec::new(), 0_usize);
    let room = room.checked_sub(frame_bytes(encoding))?;
    while count < GROUP_OBJECTS_MAX {
        let fits = |object: &ObjectIndex| (numbers.len() + number_bytes(encoding, object.0)) as u64 <= room;
        let Some(ObjectIndex(object)) = objects.next_if(fits) else { break };
        match encoding {
            Encoding::Char => numbers.extend(format!("{object} ").bytes()),
            Encoding::Enc => put_variable(object, &mut numbers),
            Encoding::Binary => numbers.extend((object as u32).to_le_bytes()),
            Encoding::Int | Encoding::Bit8 | Encoding::Bit64 => numbers.extend(object.to_le_bytes()),
        }
        count += 1;
    }
    if count == 0 {
        return None;
    }
    if encoding == Encoding::Char {
        let sum = seal.sum(at, &numbers);
        numbers.extend(format!("#{sum:08x}\n").bytes());
        return Some(numbers);
    }
    let stated = if encoding == Encoding::Enc { numbers.len() } else { count };
    let mut bytes = Vec::from((stated as u16).to_le_bytes());
    bytes.append(&mut numbers);
    seal.close(at, &mut bytes);
    Some(bytes)
}

/// Decodes the group at the start of `bytes`, which are at offset `at` of their file.
pub(super) fn decode(encoding: Encoding, seal: ChecksumContext, at: u64, bytes: &[u8]) -> Step {
    if bytes.first().is_none_or(|&byte| byte == 0) && bytes.iter().all(|&byte| byte == 0) {
        return Step::End;
    }
    let found = match encoding {
        Encoding::Char => decode_char(seal, at, bytes),
        _ => decode_numbers(encoding, seal, at, bytes),
    };
    found.map_or(Step::Broken, |(objects, len)| Step::Group(objects, len))
}

fn decode_numbers(
    encoding: Encoding,
    seal: ChecksumContext,
    at: u64,
    bytes: &[u8],
) -> Option<(Vec<ObjectIndex>, usize)> {
    let stated = number(bytes.get(..COUNT_BYTES)?) as usize;
    let len = match encoding {
        Encoding::Enc => stated,
        Encoding::Binary => 4 * stated,
        _ => 8 * stated,
    };
    let len = COUNT_BYTES + len + SUM_BYTES;
    let numbers = &seal.open(at, bytes.get(..len)?)?[COUNT_BYTES..];
    let objects = match encoding {
        Encoding::Enc => variables(numbers)?,
        Encoding::Binary => numbers.chunks(4).map(|bytes| ObjectIndex(number(bytes))).collect(),
        _ => numbers.chunks(8).map(|bytes| ObjectIndex(number(bytes))).collect(),
    };
    (!objects.is_empty()).then_some((objects, len))
}

fn decode_char(seal: ChecksumContext, at: u64, bytes: &[u8]) -> Option<(Vec<ObjectIndex>, usize)> {
    // Maximum length of a group: the maximum count of numbers, of 15 digits each.
    let most = 16 * GROUP_OBJECTS_MAX + CHAR_SUM_BYTES;
    let len = 1 + bytes.iter().take(most).position(|&byte| byte == b'\n')?;
    let numbers = &bytes[..len.checked_sub(CHAR_SUM_BYTES)?];
    let expected = format!("#{:08x}\n", seal.sum(at, numbers));
    if bytes[numbers.len()..len] != *expected.as_bytes() {
        return None;
    }
    let words = std::str::from_utf8(numbers).ok()?.split_terminator(' ');
    let objects: Vec<ObjectIndex> =
        words.map(|word| word.parse().ok().map(ObjectIndex)).collect::<Option<_>>()?;
    (!objects.is_empty()).then_some((objects, len))
}

fn put_variable(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Decodes numbers of variable length. Returns `None` if the last one is incomplete or one has more
/// than 63 bits.
fn variables(bytes: &[u8]) -> Option<Vec<ObjectIndex>> {
    let (mut objects, mut number, mut bits) = (Vec::new(), 0_u64, 0);
    for &byte in bytes {
        if bits > 56 {
            return None;
        }
        number |= u64::from(byte & 0x7f) << bits;
        bits += 7;
        if byte < 0x80 {
            objects.push(ObjectIndex(number));
            (number, bits) = (0, 0);
        }
    }
    (bits == 0).then_some(objects)
}

const _: () = assert!(GROUP_OBJECTS_MAX * 8 <= u16::MAX as usize);
