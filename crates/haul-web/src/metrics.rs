//! Counters of the server as OpenMetrics text 1.0.0, which is also readable as the older format of
//! Prometheus.

use crate::access::{NoRandomness, random};
use crate::certificate::hex;
use crate::server::Shared;
use aws_lc_rs::constant_time::verify_slices_are_equal;
use hyper::HeaderMap;
use hyper::header::AUTHORIZATION;
use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Content type of the text.
pub(crate) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// A family of metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metric {
    /// Name without the suffix `_total` of counters; it ends with the unit, if there is one.
    pub name: &'static str,
    /// Meaning, in one line.
    pub help: &'static str,
    /// Meaning of the numbers.
    pub kind: MetricKind,
    /// Unit of the values, such as `bytes`.
    pub unit: Option<&'static str>,
    /// Values, each with the name and the value of its label if there are several.
    pub samples: Vec<(Option<Label>, u64)>,
}

/// Name and value of a label.
pub type Label = (&'static str, Cow<'static, str>);

/// Kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A number that can decrease.
    Gauge,
    /// A number that never decreases while the server runs.
    Counter,
    /// A constant, whose labels have the information.
    Info,
}

impl Metric {
    /// Returns a metric with one value.
    pub fn single(kind: MetricKind, name: &'static str, help: &'static str, value: u64) -> Metric {
        Metric { name, help, kind, unit: None, samples: vec![(None, value)] }
    }

    /// Sets the unit, which must be the end of the name.
    #[must_use]
    pub fn in_unit(self, unit: &'static str) -> Metric {
        debug_assert!(self.name.ends_with(unit), "{} in {unit}", self.name);
        Metric { unit: Some(unit), ..self }
    }
}

/// Function that returns the counters of the sessions.
type Read = Box<dyn Fn() -> Vec<Metric> + Send + Sync>;

/// Counters of a server, and the token for programs that read them.
pub(crate) struct Metrics {
    read: Read,
    token: String,
    start: SystemTime,
}

impl Metrics {
    pub(crate) fn new(read: Read) -> Result<Metrics, NoRandomness> {
        Ok(Metrics { read, token: hex(&random::<16>()?), start: SystemTime::now() })
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Returns true if a request has the token.
    pub(crate) fn permits(&self, headers: &HeaderMap) -> bool {
        let said = headers.get(AUTHORIZATION).and_then(|said| said.as_bytes().strip_prefix(b"Bearer "));
        said.is_some_and(|said| verify_slices_are_equal(said, self.token.as_bytes()).is_ok())
    }

    /// Returns the text with the counters of the sessions and of the web server.
    pub(crate) fn text(&self, shared: &Shared) -> String {
        use MetricKind::{Counter, Gauge, Info};
        let (sessions, [http, webtransport]) = shared.access.counts();
        let start = self.start.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let lanes = [("http", http), ("webtransport", webtransport)];
        let lanes = lanes.into_iter().map(|(kind, count)| (Some(("kind", kind.into())), count as u64));
        let refused = shared.events.refused().into_iter();
        let mut metrics = vec![
            Metric {
                samples: vec![(Some(("version", env!("CARGO_PKG_VERSION").into())), 1)],
                ..Metric::single(Info, "haul_build", "Version of the server.", 1)
            },
            Metric::single(Gauge, "haul_start_time_seconds", "Start of the server since 1970.", start)
                .in_unit("seconds"),
            Metric::single(Gauge, "haul_web_sessions", "Browsers that are signed in.", sessions as u64),
            Metric {
                samples: lanes.collect(),
                ..Metric::single(Gauge, "haul_web_lanes", "Open lanes of browsers.", 0)
            },
            Metric {
                samples: refused.map(|(reason, count)| (Some(("reason", reason.into())), count)).collect(),
                ..Metric::single(Counter, "haul_web_refused", "Refused requests and connections.", 0)
            },
        ];
        metrics.extend((self.read)());
        to_text(&metrics)
    }
}

/// Returns the text of all `metrics`. Names, labels and their meanings are constants without
/// characters that need an escape.
fn to_text(metrics: &[Metric]) -> String {
    let mut text = String::new();
    for Metric { name, help, kind, unit, samples } in metrics {
        let (kind, suffix) = match kind {
            MetricKind::Gauge => ("gauge", ""),
            MetricKind::Counter => ("counter", "_total"),
            MetricKind::Info => ("info", "_info"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# TYPE {name} {kind}");
        if let Some(unit) = unit {
            let _ = writeln!(text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(text, "# HELP {name} {help}");
        for (label, value) in samples {
            let _ = match label {
                Some((label, said)) => {
                    let said = said.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
                    writeln!(text, "{name}{suffix}{{{label}=\"{said}\"}} {value}")
                }
                None => writeln!(text, "{name}{suffix} {value}"),
            };
        }
    }
    text.push_str("# EOF\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_has_its_type_unit_and_samples() {
        let lanes = [("http", 2), ("webtransport", 0)];
        let metrics = [
            Metric::single(MetricKind::Counter, "haul_settled_bytes", "Bytes.", 7).in_unit("bytes"),
            Metric {
                samples: lanes.iter().map(|(kind, count)| (Some(("kind", (*kind).into())), *count)).collect(),
                ..Metric::single(MetricKind::Gauge, "haul_web_lanes", "Lanes.", 0)
            },
            Metric {
                samples: vec![(Some(("version", "1.2".into())), 1)],
                ..Metric::single(MetricKind::Info, "haul", "Version.", 1)
            },
        ];
        let expected = "# TYPE haul_settled_bytes counter\n# UNIT haul_settled_bytes bytes\n\
                        # HELP haul_settled_bytes Bytes.\nhaul_settled_bytes_total 7\n\
                        # TYPE haul_web_lanes gauge\n# HELP haul_web_lanes Lanes.\n\
                        haul_web_lanes{kind=\"http\"} 2\nhaul_web_lanes{kind=\"webtransport\"} 0\n\
                        # TYPE haul info\n# HELP haul Version.\nhaul_info{version=\"1.2\"} 1\n# EOF\n";
        assert_eq!(to_text(&metrics), expected);
    }
}
