//! Options of `haul repair`, as typed and resolved.

use super::from::{FromArgs, Hosts};
use crate::jobs::log_args::StateArgs;
use crate::remote::values;
use crate::verify::{keep_pace, root_of};
use clap::Parser;
use haul_engine::repair::RepairSettings;
use haul_engine::sum::Settings;
use haul_model::limits;
use std::ffi::OsString;

/// Replace damaged bytes, and create missing files, from replicas that verify against a waybill.
///
/// Replaces only damaged objects, each from a replica whose bytes match the waybill. haul writes
/// the repaired file to a temporary file, reads it back, and renames it over the damaged file: the
/// file is either repaired or unchanged. A file with several names, and every file with --in-place,
/// is repaired in place with a journal. If such a repair is interrupted, the next repair finishes
/// or undoes it. To resume an interrupted repair, run the same command again; 'haul jobs' lists it.
/// A replica may be on another host: haul fetches only damaged bytes, and compares all received
/// bytes with the waybill. No owner, mode, time or attribute comes from a replica.
/// Exit status: 0 all files intact or repaired, 1 some files not repaired, 2 errors, or some files
/// not repaired because a host could not be reached.
#[derive(Debug, Parser)]
#[command(name = "haul repair", disable_version_flag = true)]
pub(super) struct Args {
    /// Verify and repair against the waybill WAYBILL.
    #[arg(value_name = "WAYBILL")]
    waybill: OsString,
    /// Repair the data in ROOT: the directory that the waybill's paths are relative to, or the
    /// first component of all of them [default: the root that the waybill recorded].
    #[arg(value_name = "ROOT")]
    root: Option<OsString>,
    #[command(flatten)]
    pub(super) from: FromArgs,
    /// Also repair files whose size or modification time differs from the waybill; needs
    /// --keep-damaged.
    #[arg(long, requires = "keep_damaged")]
    modified: bool,
    /// Write to the damaged files instead of replacing them. This keeps their inodes, and needs
    /// space only for a journal of the damaged bytes next to each file.
    #[arg(long)]
    in_place: bool,
    /// Accept bytes from replicas that only a checksum verifies which can be forged, such as a CRC.
    #[arg(long)]
    trust_replica: bool,
    /// Keep replaced bytes in DIR, as PATH.START-END; existing files in DIR are not overwritten.
    #[arg(long, value_name = "DIR")]
    keep_damaged: Option<OsString>,
    /// Print only what would be done.
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,
    /// Allow reads from the page cache during the search for damage.
    #[arg(long)]
    cached: bool,
    /// Limit the search for damage, and the data from each host over ssh, to RATE bytes per second,
    /// for example 50M or 1GB.
    #[arg(long, value_name = "RATE")]
    bwlimit: Option<String>,
    /// Search for damage, and repair files, with N workers.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
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
    pub(super) place: StateArgs,
}

impl Args {
    /// Resolves the options. The error is a message.
    pub(super) fn resolve(&self) -> Result<(RepairSettings, Hosts), String> {
        let mut reading = Settings::new();
        reading.direct = !self.cached;
        reading.drop_before = !self.cached;
        if let Some(threads) = self.threads {
            if !(1..=limits::WORKERS_MAX).contains(&threads) {
                return Err(format!("--threads: valid values are 1 to {}", limits::WORKERS_MAX));
            }
            reading.workers = threads;
            reading.block_bytes = Settings::block_bytes_for(threads);
        }
        if let Some(rate) = &self.bwlimit {
            keep_pace(&mut reading, rate)?;
        }
        let rate = self.bwlimit.as_deref().map(|rate| values::rate("--bwlimit", rate)).transpose()?;
        let (replicas, hosts) = self.from.resolve(rate)?;
        let settings = RepairSettings {
            waybill: self.waybill.clone(),
            root: root_of(&self.waybill, self.root.as_deref())?,
            replicas,
            staging: self.from.staging.clone(),
            reading,
            modified: self.modified,
            in_place: self.in_place,
            trust_replica: self.trust_replica,
            state: self.place.resolve().ok(),
            keep: self.keep_damaged.clone(),
            dry_run: self.dry_run,
            resume: None,
        };
        Ok((settings, hosts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::documented;

    #[test]
    fn every_option_is_documented_and_tested() {
        documented::in_document("docs/options/repair.md", documented::typed_by::<Args>());
    }
}
