//! What was typed, and what it means.

use super::from::{FromArgs, Hosts};
use crate::jobs::keeping::StateArgs;
use crate::remote::values;
use crate::verify::{keep_pace, root_of};
use clap::Parser;
use haul_engine::repair::RepairSettings;
use haul_engine::sum::Settings;
use haul_model::limits;
use std::ffi::OsString;

/// Replace damaged bytes, and make missing files, from replicas that verify against a waybill.
///
/// Only what is damaged is replaced, object by object, each from a replica whose own bytes of it are what the waybill says.
/// A file is repaired beside the damaged one, read back, and renamed over it: it is whole then, or as it was. One that has
/// several names, and every one with --in-place, is written into under a journal; if that is cut off, the next repair
/// finishes or undoes it. A repair that was ended goes on where it stopped when the same command is run again; `haul jobs`
/// lists it.
/// A replica may be of another host: damaged bytes alone are fetched, and what comes is believed by the waybill.
/// Exit status: 0 all repaired or nothing to do, 1 something could not be repaired, 2 trouble, also where something is left because a host
/// could not be asked.
#[derive(Debug, Parser)]
#[command(name = "haul repair", disable_version_flag = true)]
pub(super) struct Args {
    /// The waybill.
    #[arg(value_name = "WAYBILL")]
    waybill: OsString,
    /// The damaged data: the directory that the waybill's paths lie beneath, or the first component of all of them [default: the
    /// root that the waybill recorded].
    #[arg(value_name = "ROOT")]
    root: Option<OsString>,
    #[command(flatten)]
    pub(super) from: FromArgs,
    /// Put back files, too, whose size or time says that they were changed; needs --keep-damaged.
    #[arg(long, requires = "keep_damaged")]
    modified: bool,
    /// Write into the damaged files instead of making repaired ones beside them: they stay the same files, and only the
    /// damaged bytes need room, for the journal beside the file.
    #[arg(long)]
    in_place: bool,
    /// Keep what is replaced in this directory, as PATH.START-END; nothing there is overwritten.
    #[arg(long, value_name = "DIR")]
    keep_damaged: Option<OsString>,
    /// Only tell what would be done.
    #[arg(short = 'n', long)]
    pub(super) dry_run: bool,
    /// Let the page cache answer while damage is looked for.
    #[arg(long)]
    cached: bool,
    /// Read at most so many bytes a second while damage is looked for, and let a host that ssh reaches send no more: 50M, 1GB, ...
    #[arg(long, value_name = "RATE")]
    bwlimit: Option<String>,
    /// How many workers look for damage.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// Don't print the summary.
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// One JSON event a line.
    #[arg(long)]
    pub(super) json: bool,
    /// Show a progress bar on a terminal.
    #[arg(long)]
    pub(super) progress: bool,
    #[command(flatten)]
    pub(super) place: StateArgs,
}

impl Args {
    /// What is to be repaired. The error is a message.
    pub(super) fn resolve(&self) -> Result<(RepairSettings, Hosts), String> {
        let mut reading = Settings::new();
        reading.direct = !self.cached;
        reading.drop_before = !self.cached;
        if let Some(threads) = self.threads {
            if !(1..=limits::WORKERS_MAX).contains(&threads) {
                return Err(format!("--threads: 1 to {} are possible", limits::WORKERS_MAX));
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
