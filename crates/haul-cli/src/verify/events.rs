//! Results of a verification as JSON: one event a line.

use super::output::{resume_message, words};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use haul_digest::Algorithm;
use haul_engine::sum::Counters;
use haul_engine::verify::{Resumption, Verdict, VerifyTotals};
use haul_log::waybill::ReadError;
use haul_model::LeafSize;
use serde::Serialize;

/// One line.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "lowercase")]
pub(crate) enum Event<'a> {
    Entry {
        #[serde(skip_serializing_if = "Option::is_none")]
        path: Option<&'a str>,
        /// The name's bytes if they are not UTF-8.
        #[serde(skip_serializing_if = "Option::is_none")]
        path_base64: Option<String>,
        verdict: &'static str,
        #[serde(skip_serializing_if = "Option::is_none")]
        detail: Option<String>,
        /// Recorded size in bytes, if the waybill records a regular file.
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        /// Size in bytes of the objects with digests of their own.
        #[serde(skip_serializing_if = "Option::is_none")]
        object: Option<u64>,
        /// Recorded digest, in hexadecimal digits.
        #[serde(skip_serializing_if = "Option::is_none")]
        blake3: Option<String>,
        /// Ranges of bytes that differ, with exclusive ends.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        damage: Vec<[u64; 2]>,
        /// True if a repair in place was interrupted.
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        half_repaired: bool,
        /// The size of the leaves that the damage was narrowed down to.
        #[serde(skip_serializing_if = "Option::is_none")]
        leaf: Option<u64>,
        /// Reason why some ranges of the damage are whole objects.
        #[serde(skip_serializing_if = "Option::is_none")]
        whole_objects: Option<String>,
    },
    /// The waybill's signature is valid.
    Signature {
        #[serde(skip_serializing_if = "Option::is_none")]
        signer: Option<&'a str>,
        key: &'a str,
    },
    /// Resumes an earlier run.
    Resume {
        message: String,
    },
    Flaw {
        message: String,
    },
    Progress {
        files: u64,
        bytes: u64,
        /// Total number of bytes, as far as known.
        total: u64,
    },
    Summary {
        intact: u64,
        /// The part of `intact` that an earlier run verified.
        before: u64,
        modified: u64,
        rotted: u64,
        missing: u64,
        extra: u64,
        unproven: u64,
        passed: u64,
        flaws: u64,
        bytes: u64,
        /// The part of `bytes` that earlier runs read.
        bytes_before: u64,
        interrupted: bool,
    },
    /// Nothing, or no more, can be verified.
    Error {
        message: String,
    },
}

impl<'a> Event<'a> {
    pub(crate) fn entry(verdict: &'a Verdict, half_repaired: bool) -> Event<'a> {
        let (word, detail) = words(&verdict.kind);
        let name = verdict.path.as_bytes();
        let path = std::str::from_utf8(name).ok();
        let recorded = verdict.recorded.as_ref();
        let located = verdict.located.as_ref();
        Event::Entry {
            path,
            path_base64: path.is_none().then(|| STANDARD.encode(name)),
            verdict: word,
            detail,
            size: recorded.map(|content| content.size),
            object: recorded.and_then(|content| Some(content.objects.as_ref()?.size.bytes())),
            blake3: recorded
                .and_then(|content| content.digest(Algorithm::Blake3))
                .map(|digest| digest.to_string()),
            damage: verdict.damage.iter().map(|range| [range.start.0, range.end.0]).collect(),
            half_repaired,
            leaf: located.and_then(|located| located.leaf).map(LeafSize::bytes),
            whole_objects: located.and_then(|located| located.whole.as_ref()).map(ToString::to_string),
        }
    }

    pub(crate) fn flaw(flaw: &ReadError) -> Event<'static> {
        Event::Flaw { message: flaw.to_string() }
    }

    pub(crate) fn resumption(told: &Resumption) -> Event<'static> {
        Event::Resume { message: resume_message(told) }
    }

    pub(crate) fn progress(counters: &Counters) -> Event<'static> {
        let (files, bytes) = counters.through();
        Event::Progress { files, bytes, total: counters.known().1 }
    }

    pub(crate) fn summary(totals: &VerifyTotals, interrupted: bool) -> Event<'static> {
        Event::Summary {
            intact: totals.intact,
            before: totals.before,
            modified: totals.modified,
            rotted: totals.rotted,
            missing: totals.missing,
            extra: totals.extra,
            unproven: totals.unproven,
            passed: totals.passed,
            flaws: totals.flaws,
            bytes: totals.bytes,
            bytes_before: totals.bytes_before,
            interrupted,
        }
    }
}
