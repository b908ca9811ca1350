//! Parsing and formatting of human-readable sizes.

use thiserror::Error;

/// Reason for a text that is not a size.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SizeError {
    /// The text has no digits, or contains something that is neither a digit nor a unit.
    #[error("'{0}' is not a size: write a whole number, optionally followed by K, M, G, T, P, KiB, MB, ...")]
    Malformed(String),
    /// The size is more than 2^64 - 1 bytes.
    #[error("'{0}' exceeds 2^64 - 1 bytes")]
    TooLarge(String),
}

/// Parses a size in bytes: a whole number of `unit_default` bytes, or with a suffix as in the
/// coreutils. `K` and `KiB` are 1024, `KB` is 1000, and so on up to `P`; `B` alone is one byte.
///
/// # Errors
/// Returns a [`SizeError`] with the text if it is malformed or too large.
pub fn parse_size(text: &str, unit_default: u64) -> Result<u64, SizeError> {
    let malformed = || SizeError::Malformed(text.to_owned());
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, suffix) = text.split_at(digits);
    if number.is_empty() {
        return Err(malformed());
    }
    let number: u64 = number.parse().map_err(|_| SizeError::TooLarge(text.to_owned()))?;
    let unit = unit_of(suffix, unit_default).ok_or_else(malformed)?;
    number.checked_mul(unit).ok_or_else(|| SizeError::TooLarge(text.to_owned()))
}

fn unit_of(suffix: &str, unit_default: u64) -> Option<u64> {
    let mut letters = suffix.chars();
    let power = match letters.next() {
        None => return Some(unit_default),
        Some('B' | 'b') => return letters.next().is_none().then_some(1),
        Some('k' | 'K') => 1,
        Some('m' | 'M') => 2,
        Some('g' | 'G') => 3,
        Some('t' | 'T') => 4,
        Some('p' | 'P') => 5,
        Some(_) => return None,
    };
    let base: u64 = match letters.as_str() {
        "" | "iB" | "ib" => 1024,
        "B" | "b" => 1000,
        _ => return None,
    };
    base.checked_pow(power)
}

/// Formats a count with a comma between each three digits: `3,001`.
pub fn format_count(count: u64) -> String {
    let digits = count.to_string();
    let groups: Vec<&str> = (0..digits.len())
        .filter(|at| *at == 0 || (digits.len() - at).is_multiple_of(3))
        .map(|at| &digits[at..digits.len().min(at + if at == 0 { (digits.len() - 1) % 3 + 1 } else { 3 })])
        .collect();
    groups.join(",")
}

/// Formats a number of bytes in the largest binary unit that leaves at least 1, with one decimal:
/// `3.5 MiB`.
pub fn format_size(bytes: u64) -> String {
    const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_a_comma_between_three_digits() {
        for (count, text) in [
            (0, "0"),
            (12, "12"),
            (999, "999"),
            (1000, "1,000"),
            (12_345, "12,345"),
            (3_001_000, "3,001,000"),
        ] {
            assert_eq!(format_count(count), text);
        }
    }

    #[test]
    fn suffixes_follow_the_coreutils() {
        for (text, bytes) in
            [("0", 0), ("7", 7), ("1K", 1024), ("1kB", 1000), ("2MiB", 2 << 20), ("3G", 3 << 30), ("5B", 5)]
        {
            assert_eq!(parse_size(text, 1), Ok(bytes), "{text}");
        }
        assert_eq!(parse_size("4", 1 << 20), Ok(4 << 20));
    }

    #[test]
    fn malformed_sizes_are_reported() {
        for text in ["", "K", "-1", "1X", "1KiBx", "1 K", "0x10", "1.5G"] {
            assert_eq!(parse_size(text, 1), Err(SizeError::Malformed(text.to_owned())), "{text}");
        }
        assert_eq!(parse_size("99999999999P", 1), Err(SizeError::TooLarge("99999999999P".to_owned())));
        assert_eq!(
            parse_size("18446744073709551616", 1),
            Err(SizeError::TooLarge("18446744073709551616".to_owned()))
        );
    }

    #[test]
    fn sizes_are_written_in_the_largest_unit() {
        assert_eq!(format_size(1023), "1023 B");
        assert_eq!(format_size(3 << 19), "1.5 MiB");
    }
}
