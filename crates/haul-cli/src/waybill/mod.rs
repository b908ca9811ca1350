//! `haul waybill`: shows, checks, signs and exports a waybill.

mod export;
mod show;

use crate::console;
use crate::verify::{Output, SignerArgs, told};
use clap::{Parser, Subcommand};
use export::{AdditionalNames, Form};
use haul_digest::Algorithm;
use haul_engine::copy::quote;
use haul_engine::signature;
use haul_engine::verify::{Verdict, VerifyObserver, VerifyTotals, each_current};
use haul_log::waybill::{Entry, Kind, ReadError};
use std::ffi::{OsStr, OsString};
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;

const NAME: &str = "haul waybill";

/// Exit status if something could not be checked.
const EXIT_ERROR: u8 = 2;

/// Show, check, sign or export a waybill (a receipt that the option --waybill writes). To verify
/// the data itself, use 'haul verify'.
#[derive(Debug, Parser)]
#[command(name = "haul waybill", disable_version_flag = true)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the jobs that wrote the waybill, and its entries.
    Show {
        /// Read this waybill.
        file: OsString,
        /// Also print the digests of the files.
        #[arg(long)]
        digests: bool,
    },
    /// Check every line of the waybill, its totals, and the consistency of its digests.
    Check {
        /// Read this waybill.
        file: OsString,
        #[command(flatten)]
        signer: SignerArgs,
    },
    /// Sign the waybill with an SSH key, into WAYBILL.sig; 'haul verify --signer' and 'ssh-keygen
    /// -Y verify -n file' verify the signature.
    Sign {
        /// Sign this waybill.
        file: OsString,
        /// Sign with the private key FILE: Ed25519, or ECDSA on P-256 or P-384, not encrypted. For
        /// any other key, use 'ssh-keygen -Y sign -n file'.
        #[arg(long, value_name = "FILE")]
        key: OsString,
        /// Write the signature to FILE [default: WAYBILL.sig].
        #[arg(long, value_name = "FILE")]
        signature: Option<OsString>,
        /// Replace an existing signature.
        #[arg(long)]
        replace: bool,
    },
    /// Print the digests in a format that other tools check.
    Export {
        /// Read this waybill.
        file: OsString,
        /// Set the format: lines (as md5sum, sha256sum, b3sum ... print and check them), tagged,
        /// bagit (a manifest of payload files) or json.
        #[arg(long, value_enum, default_value_t = Form::Lines)]
        format: Form,
        /// Print digests of algorithm NAME [default: BLAKE3].
        #[arg(short, long, value_name = "NAME")]
        algorithm: Option<String>,
    },
}

/// Runs the command with `args`, which do not include the command's name.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let args = match console::typed::<Args>(NAME, args, EXIT_ERROR) {
        Ok(args) => args,
        Err(status) => return status,
    };
    let never = AtomicBool::new(false);
    let mut output = Output::new(NAME, false, false, &never);
    let done = match &args.command {
        Command::Show { file, digests } => show::show(file, *digests, &mut output),
        Command::Check { file, signer } => check_signed(file, signer, &mut output),
        Command::Sign { file, key, signature, replace } => {
            sign(file, key, signature.as_deref(), *replace, &mut output)
        }
        Command::Export { file, format, algorithm } => {
            export(file, *format, algorithm.as_deref(), &mut output)
        }
    };
    let well = done.unwrap_or_else(|message| {
        eprintln!("{NAME}: {message}");
        false
    });
    if let Some(error) = output.close() {
        return ExitCode::from(console::unwritten(NAME, &error, EXIT_ERROR));
    }
    if well { ExitCode::SUCCESS } else { ExitCode::from(EXIT_ERROR) }
}

/// Returns true if the waybill is intact, and signed if a signer is required.
fn check_signed(file: &OsStr, signer: &SignerArgs, output: &mut Output<'_>) -> Result<bool, String> {
    let proof = signer.check(file)?;
    let whole = check(file, output)?;
    if let Some(proof) = proof {
        proof.still_holds(file).map_err(|error| error.to_string())?;
        output.line(told(&proof).as_bytes());
    }
    Ok(whole)
}

/// Signs a waybill if it is intact.
fn sign(
    file: &OsStr,
    key: &OsStr,
    to: Option<&OsStr>,
    replace: bool,
    output: &mut Output<'_>,
) -> Result<bool, String> {
    let totals = each(file, output, &mut |_, _| {})?;
    if totals.flaws > 0 {
        return Err(format!("cannot sign {}: the waybill has flaws", quote(file)));
    }
    let beside = signature::beside(file);
    let to = to.unwrap_or(&beside);
    let (text, key) = signature::sign(file, key).map_err(|error| error.to_string())?;
    signature::write(to, &text, replace).map_err(|error| error.to_string())?;
    output.line(format!("{}: signed by {key}", quote(to)).as_bytes());
    Ok(true)
}

/// Returns true if the waybill is intact.
fn check(file: &OsStr, output: &mut Output<'_>) -> Result<bool, String> {
    let (mut entries, mut files, mut bytes) = (0u64, 0u64, 0u64);
    let totals = each(file, output, &mut |_, entry| {
        entries += 1;
        if let Kind::File(content) = &entry.kind {
            files += 1;
            bytes = bytes.saturating_add(content.size);
        }
    })?;
    if totals.flaws == 0 {
        let size = haul_model::format_size(bytes);
        output.line(format!("whole: {entries} entries, {files} files of {size}").as_bytes());
    }
    Ok(totals.flaws == 0)
}

fn export(
    file: &OsStr,
    form: Form,
    algorithm: Option<&str>,
    output: &mut Output<'_>,
) -> Result<bool, String> {
    let algorithm = Algorithm::parse(algorithm.unwrap_or("blake3")).map_err(|error| error.to_string())?;
    let (mut without, mut line) = (0u64, Vec::new());
    let mut further = AdditionalNames::default();
    let totals = each(file, output, &mut |output, entry| {
        further.meet(&entry, 0);
        line.clear();
        match export::line(&entry, form, algorithm, &mut line) {
            export::Line::There => output.line(&line),
            export::Line::NoDigest => without += 1,
            export::Line::NoFile => {}
        }
    })?;
    let mut round = 0;
    while form != Form::Json && further.left() > 0 {
        visit_again(file, &mut |entry| {
            further.lines(&entry, form, algorithm).iter().for_each(|line| output.line(line));
        })?;
        without += further.left();
        let has_more = further.has_more(round);
        (round, further) = (round + 1, AdditionalNames::default());
        if has_more {
            visit_again(file, &mut |entry| further.meet(&entry, round))?;
        }
    }
    if without > 0 {
        return Err(format!("cannot export {without} files: the waybill has no {algorithm} digest of them"));
    }
    Ok(totals.flaws == 0)
}

/// Receiver that ignores the reports of a second reading; the first reading has reported them.
struct IgnoreReports;

impl VerifyObserver for IgnoreReports {
    fn judged(&mut self, _verdict: &Verdict) {}

    fn flawed(&mut self, _flaw: &ReadError) {}
}

/// Reads the waybill again and passes each entry that no later section replaces.
fn visit_again(file: &OsStr, visit: &mut dyn FnMut(Entry)) -> Result<(), String> {
    let read = each_current(file, &mut IgnoreReports, &mut |_, entry| visit(entry));
    read.map(drop).map_err(|error| error.to_string())
}

/// Passes each entry that no later section replaces.
fn each(
    file: &OsStr,
    output: &mut Output<'_>,
    visit: &mut dyn FnMut(&mut Output<'_>, Entry),
) -> Result<VerifyTotals, String> {
    each_current(file, output, &mut |output, entry| visit(output, entry)).map_err(|error| error.to_string())
}
