//! Times as text: decimal seconds for files, as `touch -d @SECONDS` accepts them, and a date for
//! the job, for human readers.

use haul_model::Moment;

const DAY: i64 = 86_400;

/// First and last second with a four-digit year: 0000-01-01 to 9999-12-31.
pub(super) const DATED: std::ops::RangeInclusive<i64> = -62_167_219_200..=253_402_300_799;

/// Parses the output of [`Moment::to_decimal`].
pub(super) fn parse_decimal(text: &str) -> Option<Moment> {
    let (whole, fraction) = text.split_once('.')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let digits = whole.strip_prefix('-').unwrap_or(whole);
    if fraction.len() != 9 || !is_number(fraction) || !is_number(digits) {
        return None;
    }
    let nsec: u32 = fraction.parse().ok()?;
    let sec: i64 = whole.parse().ok()?;
    match (whole.starts_with('-'), nsec) {
        (true, 1..) => Some(Moment { sec: sec.checked_sub(1)?, nsec: 1_000_000_000 - nsec }),
        _ => Some(Moment { sec, nsec }),
    }
}

/// Returns seconds since 1970 in the form `2026-11-21T10:43:25Z` (RFC 3339, UTC). Times without a
/// four-digit year become the nearest one that has it.
pub fn date(seconds: i64) -> String {
    let seconds = seconds.clamp(*DATED.start(), *DATED.end());
    let (days, second) = (seconds.div_euclid(DAY), seconds.rem_euclid(DAY));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Parses a date of the form `2026-11-21T10:43:25Z` into seconds since 1970. Returns `None` if the
/// text is not such a date.
pub fn parse_date(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    let shape = b"dddd-dd-ddTdd:dd:ddZ";
    let fits = |(&byte, &form): (&u8, &u8)| if form == b'd' { byte.is_ascii_digit() } else { byte == form };
    if bytes.len() != shape.len() || !bytes.iter().zip(shape).all(fits) {
        return None;
    }
    let number = |range: std::ops::Range<usize>| text[range].parse::<i64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    let days = days_before_year(year) + day_of_year(year, month, day)?;
    Some(days * DAY + hour * 3600 + minute * 60 + second)
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// Returns the days from 1970-01-01 to the first day of a year from 0 to 10000, in the proleptic
/// Gregorian calendar.
fn days_before_year(year: i64) -> i64 {
    let before = year - 1;
    year * 365 + before.div_euclid(4) - before.div_euclid(100) + before.div_euclid(400) + 1 - 719_528
}

fn month_lengths(year: i64) -> [i64; 12] {
    [31, if is_leap(year) { 29 } else { 28 }, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
}

/// Returns the day of the year, counted from 0, or `None` if the day does not exist.
fn day_of_year(year: i64, month: i64, day: i64) -> Option<i64> {
    let lengths = month_lengths(year);
    let index = usize::try_from(month - 1).ok()?;
    let is_there = (1..=*lengths.get(index)?).contains(&day);
    is_there.then(|| lengths[..index].iter().sum::<i64>() + day - 1)
}

/// Returns year, month and day of a day counted from 1970-01-01, within [`DATED`].
fn civil(days: i64) -> (i64, i64, i64) {
    // An estimate from the mean length of a year is off by at most one year.
    let guess = (days + 719_528) * 400 / 146_097;
    let year = if days_before_year(guess) > days {
        guess - 1
    } else if days_before_year(guess + 1) <= days {
        guess + 1
    } else {
        guess
    };
    let mut day = days - days_before_year(year);
    for (month, length) in (1..).zip(month_lengths(year)) {
        if day < length {
            return (year, month, day + 1);
        }
        day -= length;
    }
    unreachable!("the day lies within the year")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn moments_round_trip(sec in any::<i64>(), nsec in 0u32..1_000_000_000, dated in DATED) {
            let moment = Moment { sec, nsec };
            prop_assert_eq!(parse_decimal(&moment.to_decimal()), Some(moment));
            prop_assert_eq!(parse_date(&date(dated)), Some(dated));
        }
    }

    #[test]
    fn known_moments_are_formatted_and_parsed() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_763_721_805, "2025-11-21T10:43:25Z"),
            (*DATED.start(), "0000-01-01T00:00:00Z"),
            (*DATED.end(), "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(date(seconds), text);
            assert_eq!(parse_date(text), Some(seconds));
        }
        assert_eq!(date(i64::MAX), "9999-12-31T23:59:59Z");
        assert_eq!(Moment { sec: -1, nsec: 500_000_000 }.to_decimal(), "-0.500000000");
        assert_eq!(Moment { sec: -2, nsec: 0 }.to_decimal(), "-2.000000000");
        assert_eq!(parse_decimal("-0.000000001"), Some(Moment { sec: -1, nsec: 999_999_999 }));
    }

    #[test]
    fn malformed_moments_are_refused() {
        for bad in
            ["", "1", "1.5", "1.1234567890", "+1.000000000", "1.-00000000", "--1.000000000", "x.000000000"]
        {
            assert_eq!(parse_decimal(bad), None, "{bad}");
        }
        for bad in [
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-1-01T00:00:00Z",
            "é026-01-01T00:00:0Z",
        ] {
            assert_eq!(parse_date(bad), None, "{bad}");
        }
    }
}
