//! Counts of one list, and their summary.

use super::list_reader::List;
use super::resolve::OutputOptions;
use haul_digest::list::Dialect;
use serde::Serialize;
use std::collections::BTreeMap;

/// Counts of lines and of their detected formats.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Lines that are checksums.
    pub(super) claims: u64,
    pub(super) matched: u64,
    pub(super) mismatched: u64,
    pub(super) unreadable: u64,
    /// Missing files, ignored or not.
    pub(super) missing: u64,
    pub(super) malformed: u64,
    /// Those of the malformed lines that look like entries of the list.
    pub(super) damaged: u64,
    /// Lines of algorithms that were not requested.
    pub(super) excluded: u64,
    /// Faults of a bag.
    pub(super) faults: u64,
    /// Lines per name of a checksum that haul does not compute.
    pub(super) foreign: BTreeMap<String, u64>,
    /// Lines per detected format and algorithm.
    pub(super) taken: BTreeMap<(Dialect, String), u64>,
    /// The first missing file.
    pub(super) first_missing: Option<Vec<u8>>,
}

/// Maximum number of distinct names of foreign checksums per list; additional ones count as
/// `others`.
const FOREIGN_NAMES_MAX: usize = 16;

/// One format and algorithm of a list, in JSON.
#[derive(Serialize)]
struct DetectedFormat<'a> {
    format: &'static str,
    algorithm: &'a str,
    lines: u64,
}

impl Tally {
    pub(super) fn add_foreign(&mut self, algorithm: &str) {
        let fits = self.foreign.len() < FOREIGN_NAMES_MAX || self.foreign.contains_key(algorithm);
        *self.foreign.entry(if fits { algorithm } else { "others" }.to_owned()).or_default() += 1;
    }

    /// Returns the number of lines whose checksum haul does not compute.
    pub(super) fn foreign_lines(&self) -> u64 {
        self.foreign.values().sum()
    }

    /// Returns true if the list verified without failure.
    pub(super) fn is_well(&self, output_options: OutputOptions) -> bool {
        let unverified = output_options.ignore_missing && self.matched == 0;
        let lax = self.malformed == 0 || !output_options.strict;
        let bad = self.mismatched + self.unreadable + self.damaged + self.faults + self.foreign_lines();
        self.claims > 0 && bad == 0 && lax && !unverified
    }

    /// Returns the warnings at the end of a list, in md5sum's wording if it has the same warning.
    pub(super) fn warnings(&self, output_options: OutputOptions) -> Vec<String> {
        let mut all = Vec::new();
        let mut warn = |count: u64, one: &str, many: &str| {
            if count > 0 {
                all.push(format!("WARNING: {count} {}", if count == 1 { one } else { many }));
            }
        };
        warn(self.malformed, "line is improperly formatted", "lines are improperly formatted");
        warn(self.unreadable, "listed file could not be read", "listed files could not be read");
        warn(self.mismatched, "computed checksum did NOT match", "computed checksums did NOT match");
        for (name, count) in &self.foreign {
            let one = format!("line has an unsupported checksum: {name}");
            warn(*count, &one, &format!("lines have unsupported checksums: {name}"));
        }
        warn(self.excluded, "line of another algorithm skipped", "lines of other algorithms skipped");
        warn(self.faults, "fault in the bag", "faults in the bag");
        if output_options.ignore_missing && self.claims > 0 && self.matched + self.mismatched == 0 {
            all.push("no file was verified".to_owned());
        }
        all
    }

    /// Returns `plain lines ...: sha256; BSD tags: md5, sha1`. Ambiguous names are left out if the
    /// format has definite ones.
    pub(super) fn detected_format(&self) -> String {
        let mut by_dialect: BTreeMap<Dialect, Vec<&str>> = BTreeMap::new();
        for (dialect, algorithm) in self.taken.keys() {
            by_dialect.entry(*dialect).or_default().push(algorithm);
        }
        for names in by_dialect.values_mut() {
            let is_sure = |name: &&str| !name.contains(" or ");
            if names.iter().any(is_sure) {
                names.retain(is_sure);
            }
        }
        let parts: Vec<String> =
            by_dialect.iter().map(|(dialect, names)| format!("{dialect}: {}", names.join(", "))).collect();
        parts.join("; ")
    }

    /// Returns the JSON record of a list's end.
    pub(super) fn json(&self, list: &List, failure: Option<&str>, remark: &str) -> serde_json::Value {
        let taken: Vec<DetectedFormat<'_>> = self
            .taken
            .iter()
            .map(|((dialect, algorithm), lines)| DetectedFormat {
                format: dialect.name(),
                algorithm,
                lines: *lines,
            })
            .collect();
        let mut record = serde_json::json!({
            "list": list.name.to_string_lossy(),
            "taken_for": taken,
            "lines": self.claims,
            "ok": self.matched,
            "failed": self.mismatched,
            "unreadable": self.unreadable,
            "missing": self.missing,
            "malformed": self.malformed,
            "damaged": self.damaged,
            "not_computed": self.foreign,
            "passed_over": self.excluded,
        });
        if list.is_bag {
            record["bag"] = serde_json::json!({ "faults": self.faults, "detail": remark });
        }
        if let Some(failure) = failure {
            record["error"] = failure.into();
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_passes_only_without_faults() {
        let good = Tally { claims: 2, matched: 2, ..Tally::default() };
        let strict = OutputOptions { strict: true, ..OutputOptions::default() };
        let lenient = OutputOptions { ignore_missing: true, ..OutputOptions::default() };
        assert!(good.is_well(strict));
        let one = |change: fn(&mut Tally)| {
            let mut tally = good.clone();
            change(&mut tally);
            tally
        };
        let foreign = one(|tally| tally.add_foreign("SHAKE128"));
        for bad in [one(|t| t.mismatched = 1), one(|t| t.unreadable = 1), one(|t| t.faults = 1), foreign] {
            assert!(!bad.is_well(OutputOptions::default()), "{bad:?}");
            assert_eq!(bad.warnings(OutputOptions::default()).len(), 1, "{bad:?}");
        }
        assert!(!one(|tally| (tally.malformed, tally.damaged) = (1, 1)).is_well(OutputOptions::default()));
        let malformed = one(|tally| tally.malformed = 1);
        assert!(malformed.is_well(OutputOptions::default()) && !malformed.is_well(strict));
        assert!(!Tally { claims: 1, missing: 1, ..Tally::default() }.is_well(lenient));
        assert!(!Tally::default().is_well(OutputOptions::default()));
    }

    #[test]
    fn stored_unsupported_algorithm_names_are_bounded() {
        let mut tally = Tally::default();
        (0..100).for_each(|number| tally.add_foreign(&format!("X{number}")));
        assert_eq!((tally.foreign.len(), tally.foreign_lines()), (FOREIGN_NAMES_MAX + 1, 100));
    }
}
