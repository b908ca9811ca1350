//! Parsers of option values: sizes, rates, times, ports.

use haul_engine::copy::quote;
use haul_engine::transfer::LEVELS;
use haul_log::waybill::parse_date;
use haul_model::parse_size;
use haul_proto::Compression;
use std::ffi::OsStr;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Parses a number of bytes, at least one.
pub(crate) fn bytes(option: &str, text: &str) -> Result<u64, String> {
    match parse_size(text, 1) {
        Ok(0) => Err(format!("{option}: must be at least one byte")),
        Ok(bytes) => Ok(bytes),
        Err(error) => Err(format!("{option}: {error}")),
    }
}

/// Parses a number of bytes per second, at least one. A bare number below 1024 is refused, because
/// `5` usually means megabytes.
pub(crate) fn rate(option: &str, text: &str) -> Result<u64, String> {
    let rate = bytes(option, text)?;
    let is_bare = text.bytes().all(|byte| byte.is_ascii_digit());
    if is_bare && rate < 1024 {
        return Err(format!(
            "{option}: {text} means {rate} bytes per second; write {text}M for {text} MiB per second, or {text}B to confirm"
        ));
    }
    Ok(rate)
}

/// Level of `zstd` without a level: the default of the zstd command.
const ZSTD_LEVEL: i8 = 3;

/// Parses `auto`, `none`, `zstd`, or `zstd:LEVEL`.
pub(crate) fn compression(text: &str) -> Result<Compression, String> {
    match text.split_once(':') {
        None if text == "auto" => Ok(Compression::Auto),
        None if text == "none" => Ok(Compression::Off),
        None if text == "zstd" => Ok(Compression::Zstd(ZSTD_LEVEL)),
        Some(("zstd", level)) => {
            let level = level.parse().ok().filter(|level| LEVELS.contains(level));
            level.map(Compression::Zstd).ok_or_else(|| {
                format!("--compress: the level must be from {} to {}", LEVELS.start(), LEVELS.end())
            })
        }
        _ => {
            let shown = quote(OsStr::new(text));
            Err(format!("--compress: must be auto, zstd, zstd:LEVEL or none, not {shown}"))
        }
    }
}

/// Parses a range of ports, `50000-50100`, or one port.
pub(crate) fn ports(option: &str, text: &str) -> Result<(u16, u16), String> {
    let wrong =
        || format!("{option}: {} is not a range of ports such as 50000-50100", quote(OsStr::new(text)));
    let number = |text: &str| text.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(wrong);
    let (first, last) = match text.split_once('-') {
        Some((first, last)) => (number(first)?, number(last)?),
        None => (number(text)?, number(text)?),
    };
    if first > last { Err(wrong()) } else { Ok((first, last)) }
}

/// Parses a duration, such as `90s`, `30m`, `2h`, `7d`, `2w`; at most a hundred years.
pub(crate) fn time(option: &str, text: &str) -> Result<Duration, String> {
    duration(text).ok_or_else(|| {
        format!("{option}: {} is not a duration such as 90s, 30m, 2h or 7d", quote(OsStr::new(text)))
    })
}

/// Parses an end time: after `30m`, `2h`, `7d`, or a date, `2026-12-31` or `2026-12-31T18:00:00Z`
/// (UTC).
pub(crate) fn end(text: &str, now: SystemTime) -> Result<SystemTime, String> {
    let wrong = || {
        let shown = quote(OsStr::new(text));
        format!(
            "--expires: {shown} is neither a duration such as 90s, 30m, 2h or 7d, nor a date such as 2026-12-31 (UTC)"
        )
    };
    let end = match duration(text) {
        Some(after) => now.checked_add(after).ok_or_else(wrong)?,
        None => {
            let full = if text.contains('T') { text.to_owned() } else { format!("{text}T00:00:00Z") };
            let seconds = parse_date(&full).ok_or_else(wrong)?;
            let since = u64::try_from(seconds).map_err(|_| wrong())?;
            UNIX_EPOCH + Duration::from_secs(since)
        }
    };
    if end <= now {
        return Err(format!("--expires: {} is in the past", quote(OsStr::new(text))));
    }
    Ok(end)
}

/// Parses `90s`, `30m`, `2h`, `7d`, `2w`; at most a hundred years.
fn duration(text: &str) -> Option<Duration> {
    let unit = match text.as_bytes().last()? {
        b's' => 1,
        b'm' => 60,
        b'h' => 3600,
        b'd' => 86_400,
        b'w' => 7 * 86_400,
        _ => return None,
    };
    let digits = &text[..text.len() - 1];
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let seconds = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (seconds <= 100 * 366 * 86_400).then(|| Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_is_a_duration_or_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        let seconds =
            |text: &str| end(text, now).map(|end| end.duration_since(now).expect("later").as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("2h"), Ok(7200));
        assert_eq!(seconds("2w"), Ok(14 * 86_400));
        // 2001-09-09T01:46:40Z is the billionth second.
        assert_eq!(seconds("2001-09-10"), Ok(86_400 - 6400));
        assert_eq!(seconds("2001-09-09T01:46:41Z"), Ok(1));
        for wrong in ["", "2", "h", "-2h", "2 h", "1.5h", "2001-13-01", "tomorrow", "99999999999w", "ä"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert!(seconds("0s").expect_err("over").contains("in the past"));
        assert!(seconds("1999-01-01").expect_err("over").contains("in the past"));
    }

    #[test]
    fn ports_are_a_number_or_a_range() {
        assert_eq!(ports("--ports", "50000-50100"), Ok((50_000, 50_100)));
        assert_eq!(ports("--ports", "7433"), Ok((7433, 7433)));
        for wrong in ["", "0", "2-1", "1-", "-1", "65536", "a"] {
            assert!(ports("--ports", wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_zstd_compression_takes_a_level() {
        assert_eq!(compression("auto"), Ok(Compression::Auto));
        assert_eq!(compression("none"), Ok(Compression::Off));
        assert_eq!(compression("zstd"), Ok(Compression::Zstd(3)));
        assert_eq!(compression("zstd:-7"), Ok(Compression::Zstd(-7)));
        assert_eq!(compression("zstd:19"), Ok(Compression::Zstd(19)));
        for wrong in ["", "zstd:", "zstd:20", "zstd:-8", "zstd:300", "auto:3", "gzip", "ZSTD", "zstd:\u{1b}"]
        {
            let error = compression(wrong).expect_err(wrong);
            assert!(error.starts_with("--compress: ") && !error.contains('\u{1b}'), "{error}");
        }
    }

    #[test]
    fn durations_need_a_unit() {
        assert_eq!(time("--log-age", "14d"), Ok(Duration::from_secs(14 * 86_400)));
        assert!(time("--log-age", "14").expect_err("no unit").starts_with("--log-age: "));
    }

    #[test]
    fn a_rate_of_zero_is_refused() {
        assert_eq!(bytes("--rate", "10M"), Ok(10 << 20));
        assert!(bytes("--rate", "0").expect_err("nothing").starts_with("--rate: "));
    }

    #[test]
    fn a_rate_below_1024_without_a_unit_is_refused() {
        for (text, expected) in [("10M", 10 << 20), ("1024", 1024), ("5B", 5), ("1k", 1024)] {
            assert_eq!(rate("--rate", text), Ok(expected));
        }
        for text in ["5", "1023"] {
            let error = rate("--rate", text).expect_err(text);
            assert!(error.contains(&format!("write {text}M")), "{error}");
        }
    }
}
