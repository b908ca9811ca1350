//! Text form of a record.

use super::{JobRecord, KEPT_MAX, Progress, RecordFlaw, SyncedRange, VERSION};
use haul_digest::{Algorithm, digest};
use haul_model::{Moment, Percent};
use std::fmt::Write;
use std::str::FromStr;

/// Prefix of a record in every version.
const MAGIC: &str = "haul-job version=";

const SUM: &str = "blake3=";

pub(super) fn encode(record: &JobRecord) -> Vec<u8> {
    let mut text = format!("{MAGIC}{VERSION}\n");
    // Writing to a string does not fail.
    let _ = lines(record, &mut text);
    let sum = digest(Algorithm::Blake3, text.as_bytes());
    let _ = writeln!(text, "{SUM}{sum}");
    text.into_bytes()
}

fn lines(record: &JobRecord, text: &mut String) -> std::fmt::Result {
    let Progress { files_done, files_found, bytes_done, bytes_found, is_counting } = record.progress;
    let more = if is_counting { "+" } else { "" };
    writeln!(text, "kind={}", Percent(record.kind.as_bytes()))?;
    writeln!(text, "status={}", record.status)?;
    writeln!(text, "begun={} runs={}", moment(record.begun), record.runs)?;
    let ended = record.ended.map(moment).unwrap_or_default();
    let exit = record.exit.map(|exit| exit.to_string()).unwrap_or_default();
    writeln!(text, "ended={ended} exit={exit}")?;
    writeln!(text, "files={files_done}/{more}{files_found} bytes={bytes_done}/{more}{bytes_found}")?;
    writeln!(text, "boot={}", Percent(record.boot.as_bytes()))?;
    writeln!(text, "cwd={}", Percent(&record.cwd))?;
    for word in &record.words {
        writeln!(text, "word={}", Percent(word))?;
    }
    for kept in record.kept.iter().take(KEPT_MAX) {
        writeln!(text, "kept={}:{}:{}", kept.dev, kept.from, kept.until)?;
    }
    Ok(())
}

fn moment(moment: Moment) -> String {
    format!("{}.{:09}", moment.sec, moment.nsec)
}

pub(super) fn decode(bytes: &[u8]) -> Result<JobRecord, RecordFlaw> {
    let text = std::str::from_utf8(bytes).map_err(|_| RecordFlaw::Damaged)?;
    let (body, sum) = text.rfind(SUM).map(|at| text.split_at(at)).ok_or(RecordFlaw::Damaged)?;
    if sum != format!("{SUM}{}\n", digest(Algorithm::Blake3, body.as_bytes())) {
        return Err(RecordFlaw::Damaged);
    }
    let mut lines = body.lines().peekable();
    let head = lines.next().and_then(|line| line.strip_prefix(MAGIC)).ok_or(RecordFlaw::Damaged)?;
    match head.parse::<u16>() {
        Ok(VERSION) => {}
        Ok(newer) if newer > VERSION => return Err(RecordFlaw::Newer(newer)),
        _ => return Err(RecordFlaw::Damaged),
    }
    fields(&mut lines).ok_or(RecordFlaw::Damaged)
}

/// Decodes all lines between the first and the last. Returns `None` if a line has an invalid form.
fn fields<'a>(lines: &mut std::iter::Peekable<impl Iterator<Item = &'a str>>) -> Option<JobRecord> {
    let mut record = JobRecord {
        kind: String::from_utf8(Percent::decode(value(lines.next()?, "kind")?)?).ok()?,
        status: value(lines.next()?, "status")?.parse().ok()?,
        ..JobRecord::default()
    };
    let (begun, runs) = lines.next()?.split_once(' ')?;
    record.begun = read_moment(value(begun, "begun")?)?;
    record.runs = value(runs, "runs")?.parse().ok()?;
    let (ended, exit) = lines.next()?.split_once(' ')?;
    record.ended = optional(value(ended, "ended")?, read_moment)?;
    record.exit = optional(value(exit, "exit")?, |text| text.parse().ok())?;
    let (files, bytes) = lines.next()?.split_once(' ')?;
    let (files, bytes) = (value(files, "files")?, value(bytes, "bytes")?);
    // The parser of numbers accepts a sign before the digits.
    let is_counting = files.contains('+');
    let counted = |text: &'a str| text.strip_suffix('+').unwrap_or(text);
    let (files_done, files_found) = pair(counted(files))?;
    let (bytes_done, bytes_found) = pair(counted(bytes))?;
    record.progress = Progress { files_done, files_found, bytes_done, bytes_found, is_counting };
    record.boot = String::from_utf8(Percent::decode(value(lines.next()?, "boot")?)?).ok()?;
    record.cwd = Percent::decode(value(lines.next()?, "cwd")?)?;
    while let Some(word) = lines.peek().and_then(|line| value(line, "word")) {
        record.words.push(Percent::decode(word)?);
        lines.next();
    }
    for line in lines {
        record.kept.push(kept(value(line, "kept")?)?);
    }
    (record.kept.len() <= KEPT_MAX).then_some(record)
}

fn value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    line.strip_prefix(name)?.strip_prefix('=')
}

fn pair<N: FromStr>(text: &str) -> Option<(N, N)> {
    let (a, b) = text.split_once('/')?;
    Some((a.parse().ok()?, b.parse().ok()?))
}

/// Returns `Some(None)` for an empty text, otherwise the result of `read`; `None` if `read` fails.
fn optional<T>(text: &str, read: impl FnOnce(&str) -> Option<T>) -> Option<Option<T>> {
    if text.is_empty() { Some(None) } else { read(text).map(Some) }
}

fn read_moment(text: &str) -> Option<Moment> {
    let (sec, nsec) = text.split_once('.')?;
    let nsec = nsec.parse().ok().filter(|&nsec: &u32| nsec < 1_000_000_000)?;
    Some(Moment { sec: sec.parse().ok()?, nsec })
}

fn kept(text: &str) -> Option<SyncedRange> {
    let mut parts = text.splitn(3, ':');
    let dev = parts.next()?.parse().ok()?;
    Some(SyncedRange { dev, from: parts.next()?.parse().ok()?, until: parts.next()?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Status, nanoseconds};
    use proptest::prelude::*;

    fn any_record() -> impl Strategy<Value = JobRecord> {
        let moments = (any::<i64>(), 0..1_000_000_000_u32).prop_map(|(sec, nsec)| Moment { sec, nsec });
        let words = prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6);
        let ranges = prop::collection::vec((any::<u64>(), any::<i64>(), any::<i64>()), 0..4);
        let status = prop::sample::select(Status::NAMES.map(|(_, status)| status).to_vec());
        let ends = (prop::option::of(moments.clone()), prop::option::of(any::<u8>()));
        let texts = ("[a-z]{1,8}", "\\PC{0,12}");
        (moments, words, ranges, status, ends, texts, any::<[u64; 4]>(), any::<u32>()).prop_map(
            |(begun, words, ranges, status, (ended, exit), (kind, boot), [a, b, c, d], runs)| JobRecord {
                kind,
                cwd: words.concat(),
                words,
                begun,
                runs,
                status,
                progress: Progress {
                    files_done: a,
                    files_found: b,
                    bytes_done: c,
                    bytes_found: d,
                    is_counting: runs % 2 == 1,
                },
                ended,
                exit,
                boot,
                kept: ranges
                    .into_iter()
                    .map(|(dev, from, until)| SyncedRange { dev, from: from.into(), until: until.into() })
                    .collect(),
            },
        )
    }

    proptest! {
        #[test]
        fn records_round_trip_and_changed_bytes_are_refused(
            record in any_record(), at in any::<prop::sample::Index>(), bit in 0..8_u32,
        ) {
            let bytes = record.encode();
            prop_assert_eq!(JobRecord::decode(&bytes), Ok(record));
            let at = at.index(bytes.len());
            prop_assert_eq!(JobRecord::decode(&bytes[..at]), Err(RecordFlaw::Damaged));
            let mut other = bytes;
            other[at] ^= 1 << bit;
            prop_assert_eq!(JobRecord::decode(&other), Err(RecordFlaw::Damaged));
        }

        #[test]
        fn arbitrary_bytes_are_refused_as_a_record(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(JobRecord::decode(&bytes).is_err());
        }
    }

    /// Regression test: earlier versions rejected a record of a job that still found files, and
    /// then compared everything.
    #[test]
    fn unfinished_total_is_a_number_to_earlier_versions() {
        let progress = Progress {
            files_done: 3,
            files_found: 12,
            bytes_done: 4096,
            bytes_found: 70_000,
            is_counting: true,
        };
        let record = JobRecord { progress, ..JobRecord::default() };
        let text = String::from_utf8(record.encode()).unwrap();
        let line = "files=3/+12 bytes=4096/+70000";
        assert!(text.lines().any(|found| found == line), "{text}");
        assert_eq!(pair("3/+12"), Some((3_u64, 12_u64)));
        let (body, _) = text.split_once(SUM).unwrap();
        let body = body.replace(line, "files=3/12+ bytes=4096/70000+");
        let sum = digest(Algorithm::Blake3, body.as_bytes());
        assert_eq!(JobRecord::decode(format!("{body}{SUM}{sum}\n").as_bytes()), Ok(record));
    }

    #[test]
    fn newer_record_error_names_its_version() {
        let text = "haul-job version=9\nall=new\n";
        let sum = digest(Algorithm::Blake3, text.as_bytes());
        let newer = format!("{text}blake3={sum}\n");
        assert_eq!(JobRecord::decode(newer.as_bytes()), Err(RecordFlaw::Newer(9)));
        let told = RecordFlaw::Newer(9).to_string();
        assert!(told.contains("version 9") && told.contains("newer haul"), "{told}");
    }

    #[test]
    fn change_time_range_covers_files_of_one_device() {
        let at = |sec, nsec| Moment { sec, nsec };
        let range = SyncedRange { dev: 5, from: nanoseconds(at(10, 7)), until: nanoseconds(at(12, 0)) };
        let record = JobRecord { kept: vec![range], ..JobRecord::default() };
        assert!(record.keeps(5, at(10, 7)) && record.keeps(5, at(11, 999_999_999)));
        assert!(!record.keeps(5, at(10, 6)) && !record.keeps(5, at(12, 0)) && !record.keeps(6, at(11, 0)));
        assert!(!JobRecord::default().keeps(5, at(11, 0)));
    }
}
