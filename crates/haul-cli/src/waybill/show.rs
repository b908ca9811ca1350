//! Readable output of a waybill.

use crate::verify::Output;
use haul_engine::copy::quote;
use haul_engine::sum::reason;
use haul_engine::verify::VerifyObserver;
use haul_log::waybill::{Entry, Kind, Percent, ReadError, Reader, Record, Special};
use haul_model::format_size;
use std::ffi::OsStr;
use std::fmt::Write;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::ffi::OsStrExt;

/// Prints all sections and entries. Returns true if the waybill is intact.
pub(super) fn show(file: &OsStr, digests: bool, output: &mut Output<'_>) -> Result<bool, String> {
    let cannot = |error| format!("cannot open the waybill {}: {}", quote(file), reason(&error));
    let input = BufReader::with_capacity(1 << 20, File::open(file).map_err(cannot)?);
    let mut whole = true;
    for record in Reader::new(input) {
        match record {
            Ok(Record::Section(section)) => {
                let job = &section.job;
                let (run, root) = (Percent(&job.run).to_string(), Percent(&job.root));
                let program = Percent(job.program.as_bytes()).to_string();
                let line = format!(
                    "section {}: {} by {}: {} (root {root})",
                    section.number,
                    job.date(),
                    program.replace("%20", " "),
                    run.replace("%20", " "),
                );
                output.line(line.as_bytes());
            }
            Ok(Record::Entry(entry)) => output.line(line(&entry, digests).as_bytes()),
            Ok(Record::Proven(proven)) => {
                output.line(format!("    bytes {}: {}", proven.range, proven.level).as_bytes());
            }
            Ok(Record::End(end)) => {
                let size = format_size(end.bytes);
                let line = format!("end: {} entries, {} files of {size}", end.entries, end.files);
                output.line(line.as_bytes());
            }
            Ok(Record::Object(_) | Record::Leaves(_)) => {}
            Err(flaw @ ReadError::Flaw(_)) => {
                whole = false;
                output.flawed(&flaw);
            }
            Err(error) => return Err(format!("{}: {error}", quote(file))),
        }
    }
    Ok(whole)
}

fn line(entry: &Entry, digests: bool) -> String {
    let name = quote(OsStr::from_bytes(entry.path.as_bytes()));
    let mut line = format!("  {:<7}{:04o} ", entry.kind.name(), entry.mode);
    // Writing to a string does not fail.
    let _ = match &entry.kind {
        Kind::File(content) => {
            let proven = content.level.map_or("hashed".to_owned(), |level| level.to_string());
            let way = content.way.map_or("in place", |way| way.name());
            let _ = write!(line, "{:>10} {proven:<8} {way:<10} {name}", format_size(content.size));
            let shown = content.digests.iter().filter(|_| digests);
            shown.for_each(|digest| {
                let _ = write!(line, "\n    {} {digest}", digest.algorithm());
            });
            Ok(())
        }
        Kind::Same { first } => {
            write!(line, "{name} is one file with {}", quote(OsStr::from_bytes(first.as_bytes())))
        }
        Kind::Link { target } => write!(line, "{name} -> {}", quote(OsStr::from_bytes(target))),
        Kind::Special(Special::CharDevice(device) | Special::BlockDevice(device)) => {
            write!(line, "{name} (device {device})")
        }
        Kind::Directory | Kind::Special(_) => write!(line, "{name}"),
    };
    line
}
