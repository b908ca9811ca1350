//! Options of `haul verify`, as typed and resolved.

use super::signer::SignerArgs;
use crate::jobs::log_args::StateArgs;
use crate::remote::values;
use clap::Parser;
use haul_engine::copy::quote;
use haul_engine::sum::Settings;
use haul_engine::verify::{
    RootError, StateFile, StoredSettings, VerifySettings, recorded_root, resolve_root,
};
use haul_model::limits;
use haul_plan::Pace;
use parking_lot::Mutex;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

/// Read data again and compare it with a waybill, or with digests stored with the files.
///
/// `haul verify DIR` verifies the files in DIR by the digests that `haul sum --store`, XRootD or
/// EOS stored with them.
///
/// Reports each file as intact, modified (different bytes, and a different size or time), rotted
/// (different bytes, but the same size and time) or missing, and prints the byte ranges that
/// differ. To resume an interrupted verification, run the same command again; `haul jobs` lists it.
/// Exit status: 0 all intact, 1 damage, 2 errors.
#[derive(Debug, Parser)]
#[command(name = "haul verify", disable_version_flag = true)]
pub(super) struct Args {
    /// Verify against WAYBILL, or the files in DIR against their stored digests.
    #[arg(value_name = "WAYBILL|DIR")]
    pub(super) waybill: OsString,
    /// Verify the data in ROOT: the directory that the waybill's paths are relative to, or the
    /// first component of all of them [default: the root that the waybill recorded].
    #[arg(value_name = "ROOT")]
    pub(super) root: Option<OsString>,
    /// Allow reads from the page cache; without this option, haul reads from the device.
    #[arg(long)]
    pub(super) cached: bool,
    /// Read only a random sample of about PERCENT of the data, for example 5 or 5%.
    #[arg(long, value_name = "PERCENT")]
    pub(super) sample: Option<String>,
    /// Select the sample with seed N; the same N selects the same sample
    /// [default: the current time].
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    /// Limit reads to RATE bytes per second, for example 50M or 1GB.
    #[arg(long, value_name = "RATE")]
    pub(super) bwlimit: Option<String>,
    /// Read damaged objects again and report the leaves that differ. The waybill must have leaves,
    /// which the option `--leaf` of `haul cp` and `haul sum` records.
    #[arg(long)]
    pub(super) locate: bool,
    /// Keep the progress in FILE instead of the state directory, and resume from FILE if it exists.
    /// haul removes FILE when the verification is complete.
    #[arg(long, value_name = "FILE")]
    pub(super) resume: Option<OsString>,
    /// Also report files that the waybill does not list; they count as damage.
    #[arg(long)]
    pub(super) extra: bool,
    /// Verify with N workers.
    #[arg(long, value_name = "N")]
    pub(super) threads: Option<usize>,
    /// Also report intact files.
    #[arg(short, long)]
    pub(super) verbose: bool,
    /// Do not print the summary.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Print one JSON event per line.
    #[arg(long)]
    pub(super) json: bool,
    /// Show a progress bar on a terminal.
    #[arg(long)]
    pub(super) progress: bool,
    #[command(flatten)]
    pub(super) signer: SignerArgs,
    #[command(flatten)]
    pub(super) place: StateArgs,
}

/// Reference of the verification.
#[derive(Debug)]
pub(super) enum Reference {
    /// A waybill.
    Waybill(VerifySettings),
    /// Digests that are stored with each file.
    Stored(StoredSettings),
}

impl Args {
    /// Resolves the options: a directory means the digests stored in it. The error is a message.
    pub(super) fn meaning(&self) -> Result<Reference, String> {
        let mut all = self.resolve()?;
        if !std::fs::metadata(&self.waybill).is_ok_and(|facts| facts.is_dir()) {
            all.root = root_of(&self.waybill, self.root.as_deref())?;
            return Ok(Reference::Waybill(all));
        }
        if self.root.is_some() {
            return Err(
                "a directory is verified by the digests stored with its files; specify one directory, or a waybill and its root"
                    .to_owned(),
            );
        }
        if self.extra {
            return Err(
                "--extra needs a waybill; files without stored digests are reported as unproven".to_owned()
            );
        }
        if self.locate {
            return Err("--locate needs a waybill with leaves; stored digests cover whole objects".to_owned());
        }
        if self.signer.signer.is_some() || self.resume.is_some() {
            return Err("--signer and --resume need a waybill; they do not support stored digests".to_owned());
        }
        let (root, reading, sample) = (self.waybill.clone(), all.reading, all.sample);
        Ok(Reference::Stored(StoredSettings { root, reading, sample }))
    }

    /// Returns the settings of the verification, except for the root. The error is a message.
    pub(super) fn resolve(&self) -> Result<VerifySettings, String> {
        if self.threads.is_some_and(|threads| !(1..=limits::WORKERS_MAX).contains(&threads)) {
            return Err(format!("--threads: valid values are 1 to {}", limits::WORKERS_MAX));
        }
        let mut reading = match (self.cached, self.threads) {
            (false, threads) => Settings::from_device(threads),
            (true, None) => Settings::new(),
            (true, Some(threads)) => Settings::for_workers(threads),
        };
        if let Some(rate) = &self.bwlimit {
            keep_pace(&mut reading, rate)?;
        }
        if self.resume.is_some() && self.sample.is_some() && self.seed.is_none() {
            return Err(
                "--resume with --sample needs --seed N: the same N to resume, a new N for each scrub"
                    .to_owned(),
            );
        }
        let sample =
            self.sample.as_deref().map(|text| share(text).map(|share| (share, self.seed()))).transpose()?;
        Ok(VerifySettings {
            waybill: self.waybill.clone(),
            root: OsString::new(),
            reading,
            sample,
            extra: self.extra,
            locate: self.locate,
            resume: self.resume.clone().map(StateFile::Named),
            any_seed: self.seed.is_none(),
        })
    }

    fn seed(&self) -> u64 {
        let now = || SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        self.seed.unwrap_or_else(now)
    }
}

/// Returns the directory that the names of a waybill are relative to: the typed one, else the one
/// that the waybill recorded. The error is a message.
pub(crate) fn root_of(waybill: &OsStr, typed: Option<&OsStr>) -> Result<OsString, String> {
    match typed {
        Some(typed) => Ok(resolve_root(waybill, typed)),
        None => recorded_root(waybill).or_else(|error| match error {
            RootError::Several => Err(format!("{}: {error}", quote(waybill))),
            // The job itself reports the flaws of the waybill.
            RootError::Unread(_) | RootError::None => Ok(".".into()),
        }),
    }
}

/// Limits reads to `rate` bytes per second. The error is a message.
pub(crate) fn keep_pace(reading: &mut Settings, rate: &str) -> Result<(), String> {
    let rate = values::rate("--bwlimit", rate)?;
    // The pace delays each read; small reads keep a low rate even.
    let each = usize::try_from(rate / 8).unwrap_or(usize::MAX);
    reading.block_bytes = each.clamp(4096, reading.block_bytes) / 4096 * 4096;
    reading.pace = Some(Arc::new(Mutex::new(Pace::new(rate))));
    Ok(())
}

/// Parses a percentage to a share from 0 to 1.
fn share(text: &str) -> Result<f64, String> {
    let percent: Option<f64> = text.strip_suffix('%').unwrap_or(text).parse().ok();
    let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0);
    let percent = percent.ok_or_else(|| {
        format!("--sample: invalid percentage '{text}'; valid values are above 0 and up to 100")
    })?;
    Ok(percent / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/verify.md", documented::typed_by::<Args>());
    }

    #[test]
    fn shares_are_percentages() {
        assert_eq!(share("5"), Ok(0.05));
        assert_eq!(share("12.5%"), Ok(0.125));
        assert_eq!(share("100%"), Ok(1.0));
        for bad in ["0", "-1", "101", "x", "", "%", "nan", "inf"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn low_rates_use_small_blocks() {
        let block = |rate: &str| {
            let args = Args::try_parse_from(["haul verify", "w", "--bwlimit", rate]).unwrap();
            args.resolve().map(|settings| settings.reading.block_bytes)
        };
        assert_eq!(block("10K"), Ok(4096));
        assert_eq!(block("1M"), Ok(128 << 10));
        assert!(block("0").is_err() && block("fast").is_err());
    }
}
