//! The checksums that a waybill names, computed from their description in docs/formats/waybill.md:
//! from parameters, or by the program that prints the checksum.

use haul_lab::needs::Need;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

/// The programs that the description names.
pub(super) const PROGRAMS: [Need; 6] = [
    Need::Program("b3sum"),
    Need::Program("md5sum"),
    Need::Program("cksum"),
    Need::Program("openssl"),
    Need::Program("xxhsum"),
    Need::Program("sh"),
];

/// Returns the complete description.
pub(super) fn description() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/formats/waybill.md");
    fs::read_to_string(path).unwrap()
}

/// Returns the rows of the tables in the section on checksums, by name of the checksum.
pub(super) fn checksums() -> BTreeMap<String, Vec<String>> {
    let text = description();
    let section = text.split("\n## Checksums\n").nth(1).unwrap().split("\n## ").next().unwrap();
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let cells = |row: &str| -> Vec<String> {
        let cells = row.trim_matches('|').split('|');
        cells.map(|cell| cell.trim().to_owned()).collect()
    };
    rows.map(cells).map(|cells| (cells[0].trim_matches('`').to_owned(), cells)).collect()
}

/// Returns the digest of a file in hexadecimal, computed from the description of the checksum.
pub(super) fn digest(row: &[String], path: &Path) -> String {
    let bytes = fs::read(path).unwrap();
    match row {
        [name, _, _, _, _, _, _] => crc(row, bytes, name == "`cksum`"),
        [_, _, _, tool] if tool.is_empty() => adler32(&bytes),
        [_, bytes, _, tool] => printed(tool, bytes.parse().unwrap(), path),
        _ => panic!("a row of another form: {row:?}"),
    }
}

/// Returns the CRC that a row describes, computed bit by bit.
fn crc(row: &[String], mut bytes: Vec<u8>, counts: bool) -> String {
    let number = |at: usize| u64::from_str_radix(&row[at], 16).unwrap();
    let (width, poly, low_first) = (row[1].parse::<u32>().unwrap(), number(2), row[4] == "low first");
    let mask = u64::MAX >> (64 - width);
    if counts {
        let mut len = bytes.len();
        while len > 0 {
            bytes.push(len as u8);
            len >>= 8;
        }
    }
    let mut register = number(3);
    for byte in bytes {
        for step in 0..8 {
            let place = if low_first { step } else { 7 - step };
            let leaves = register >> (width - 1) ^ u64::from(byte >> place & 1);
            register = register << 1 & mask;
            if leaves == 1 {
                register ^= poly;
            }
        }
    }
    if low_first {
        register = register.reverse_bits() >> (64 - width);
    }
    format!("{:0digits$x}", register ^ number(5), digits = width as usize / 4)
}

fn adler32(bytes: &[u8]) -> String {
    let step = |(a, b): (u32, u32), &byte: &u8| {
        let a = (a + u32::from(byte)) % 65_521;
        (a, (b + a) % 65_521)
    };
    let (a, b) = bytes.iter().fold((1, 0), step);
    format!("{:08x}", b << 16 | a)
}

/// Returns the output of a program for a file on its standard input.
fn printed(tool: &str, bytes: usize, path: &Path) -> String {
    let (command, decimal) = match tool.strip_suffix(", in decimal") {
        Some(command) => (command, true),
        None => (tool, false),
    };
    let command = command.trim_matches('`');
    let mut words = command.split(' ');
    let ran =
        Command::new(words.next().unwrap()).args(words).stdin(File::open(path).unwrap()).output().unwrap();
    let text = String::from_utf8(ran.stdout).unwrap();
    // xxhsum prints XXH3 in the tagged form with the value at the end, or with a prefix before the
    // value.
    let tagged = text.split(" = ").nth(1);
    let value = tagged.or_else(|| text.split_whitespace().next()?.rsplit('_').next());
    let value = value.unwrap_or_else(|| panic!("{command}: nothing was printed")).trim();
    if decimal {
        format!("{:0digits$x}", value.parse::<u64>().unwrap(), digits = 2 * bytes)
    } else {
        value.to_owned()
    }
}
