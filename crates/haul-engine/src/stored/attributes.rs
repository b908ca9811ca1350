//! Digests in extended attributes.

use super::{FindError, StoredFileInfo};
use crate::waybill::moment;
use haul_log::stored::xrootd::XrootdValue;
use haul_log::stored::{STORED_BYTES_MAX, Stored, eos, xrootd};
use haul_log::waybill::Moment;
use haul_storage::{Inode, Stat};
use std::ffi::CString;
use std::fmt::Display;
use std::io;

/// First attribute of this project's format. The names of later pieces end in a period and their
/// number, from 1.
const NAME: &str = "user.surehaul.sums";

/// Prefixes of all attributes with stored digests. EOS has the type of a digest in another
/// attribute that starts with the same name.
pub(super) const PREFIXES: [&str; 3] = ["user.surehaul.", xrootd::ATTRIBUTE_PREFIX, eos::VALUE_ATTRIBUTE];

/// Maximum size of one attribute, in bytes. It fits into a 16 KiB leaf of btrfs, and is a quarter
/// of the limit of XFS. On ext4, all attributes of a file together have 4 KiB.
const PIECE_BYTES: usize = 15 << 10;

/// Error of file systems without user attributes.
const EOPNOTSUPP: i32 = 95;

/// Reason why an attribute was not set.
#[derive(Debug)]
pub(super) enum SetError {
    NoAttributes,
    NoRoom { bytes: usize },
    Other(io::Error),
}

impl SetError {
    fn of(error: io::Error, bytes: usize) -> SetError {
        const E2BIG: i32 = 7;
        const ENOSPC: i32 = 28;
        const ERANGE: i32 = 34;
        match error.raw_os_error() {
            Some(EOPNOTSUPP) => SetError::NoAttributes,
            Some(E2BIG | ENOSPC | ERANGE) => SetError::NoRoom { bytes },
            _ => SetError::Other(error),
        }
    }
}

/// Returns the names of the attributes of a file with stored digests, in any form.
pub(super) fn names(file: &dyn Inode) -> io::Result<Vec<CString>> {
    let mut names = file.attributes()?;
    names.retain(|name| super::is_attribute(name.to_bytes()));
    Ok(names)
}

/// Removes the listed attributes of the forms that take precedence over others: all but that of
/// EOS.
pub(super) fn remove(file: &dyn Inode, names: &[CString]) -> io::Result<()> {
    let eos = eos::VALUE_ATTRIBUTE.as_bytes();
    let mut removed = names.iter().filter(|name| !name.to_bytes().starts_with(eos));
    removed.try_for_each(|name| file.remove_attribute(name).map(drop))
}

/// Replaces the stored value of a file with these attributes. The first piece is removed first and
/// written last, so that an incomplete value is not a value.
pub(super) fn set(file: &dyn Inode, names: &[CString], value: &[u8]) -> Result<(), SetError> {
    let failed = |error| SetError::of(error, value.len());
    if !names.is_empty() {
        clear(file).map_err(failed)?;
    }
    for (number, piece) in value.chunks(PIECE_BYTES).enumerate().rev() {
        if let Err(error) = file.set_attribute(&name(number), piece) {
            // Remove the incomplete value. An error of the removal is less important than the first
            // error.
            let _ = clear_from(file, number + 1);
            return Err(failed(error));
        }
    }
    Ok(())
}

/// Removes the stored value.
fn clear(file: &dyn Inode) -> io::Result<()> {
    file.remove_attribute(&name(0))?;
    clear_from(file, 1)
}

fn clear_from(file: &dyn Inode, first: usize) -> io::Result<()> {
    let mut number = first;
    while file.remove_attribute(&name(number))? {
        number += 1;
    }
    Ok(())
}

/// Returns the stored bytes; `None` if there are none, or if the file system does not support
/// attributes.
pub(super) fn get(file: &dyn Inode) -> io::Result<Option<Vec<u8>>> {
    let Some(mut value) = file.attribute(&name(0))? else { return Ok(None) };
    let mut number = 1;
    // After a full piece there may be another one.
    while value.len() == number * PIECE_BYTES && value.len() < STORED_BYTES_MAX {
        let Some(piece) = file.attribute(&name(number))? else { break };
        value.extend(piece);
        number += 1;
    }
    Ok(Some(value))
}

fn name(piece: usize) -> CString {
    let name = if piece == 0 { NAME.to_owned() } else { format!("{NAME}.{piece}") };
    CString::new(name).unwrap_or_else(|_| unreachable!("the name holds no NUL"))
}

/// Sets one attribute for each digest that XRootD supports.
pub(super) fn set_xrootd(file: &dyn Inode, known: &StoredFileInfo<'_>) -> Result<(), SetError> {
    let mtime = known.facts.mtime.sec;
    let delay = known.now.saturating_sub(mtime).clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    for &digest in known.digests {
        let Some(value) = (XrootdValue { digest, mtime, delay }).encode() else { continue };
        let named = xrootd::name_of(digest.algorithm()).unwrap_or_default();
        put(file, &format!("{}{named}", xrootd::ATTRIBUTE_PREFIX), &value)?;
    }
    Ok(())
}

/// Sets the only value that EOS has for a file. The algorithm name is written first. A value whose
/// length does not match its algorithm is rejected, so no mixture is accepted.
pub(super) fn set_eos(file: &dyn Inode, known: &StoredFileInfo<'_>) -> Result<(), SetError> {
    for &digest in known.digests {
        if let Some(named) = eos::name_of(digest.algorithm()) {
            let old = file.remove_attribute(&c_name(eos::VALUE_ATTRIBUTE));
            old.map_err(|error| SetError::of(error, 0))?;
            put(file, eos::TYPE_ATTRIBUTE, named.as_bytes())?;
            return put(file, eos::VALUE_ATTRIBUTE, &eos::encode(digest));
        }
    }
    Ok(())
}

fn put(file: &dyn Inode, name: &str, value: &[u8]) -> Result<(), SetError> {
    file.set_attribute(&c_name(name), value).map_err(|error| SetError::of(error, value.len()))
}

fn c_name(name: &str) -> CString {
    CString::new(name).unwrap_or_else(|_| unreachable!("the name holds no NUL"))
}

/// Returns the digests that XRootD or EOS stored. XRootD's values for another modification time are
/// used only if there are no others.
pub(super) fn get_foreign(file: &dyn Inode, facts: &Stat) -> Result<Option<Stored>, FindError> {
    let unread = |source| FindError::Read { what: "checksum", source };
    let flawed = |name: &str, flaw: &dyn Display| FindError::Flawed(format!("{name}: {flaw}"));
    let mut found: Option<Stored> = None;
    for algorithm in xrootd::algorithms() {
        let named = xrootd::name_of(algorithm).unwrap_or_default();
        let attribute = format!("{}{named}", xrootd::ATTRIBUTE_PREFIX);
        let Some(bytes) = file.attribute(&c_name(&attribute)).map_err(unread)? else { continue };
        let value = XrootdValue::decode(algorithm, &bytes).map_err(|flaw| flawed(&attribute, &flaw))?;
        let (is, was) = (moment(facts), value.mtime);
        // XRootD stores whole seconds.
        let mtime = if is.sec == was { is } else { Moment { sec: was, nsec: 0 } };
        match &mut found {
            Some(stored) if stored.mtime == mtime => stored.digests.push(value.digest),
            Some(stored) if stored.mtime == is => {}
            _ => found = Some(Stored { size: facts.size, mtime, digests: vec![value.digest], objects: None }),
        }
    }
    if found.is_some() {
        return Ok(found);
    }
    let Some(value) = file.attribute(&c_name(eos::VALUE_ATTRIBUTE)).map_err(unread)? else { return Ok(None) };
    let Some(kind) = file.attribute(&c_name(eos::TYPE_ATTRIBUTE)).map_err(unread)? else { return Ok(None) };
    let digest = eos::decode(&kind, &value).map_err(|flaw| flawed(eos::VALUE_ATTRIBUTE, &flaw))?;
    // EOS stores no time with a value, so the value counts for the file's current time.
    Ok(Some(Stored { size: facts.size, mtime: moment(facts), digests: vec![digest], objects: None }))
}
