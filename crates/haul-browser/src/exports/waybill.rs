//! Functions of waybills: one that is written, and one that is read.

use super::{number, with};
use crate::event::hex;
use crate::{Item, Receipt, ReceiptContent, ReceiptEntry, WaybillReader};
use haul_model::{ByteLen, Geometry, ObjectIndex, ObjectSize};

/// Starts a waybill of a job that started `at` milliseconds since 1970. The argument is the
/// directory that its paths are relative to, and then a description of the job. The text is the
/// first line.
#[unsafe(no_mangle)]
pub extern "C" fn haul_waybill_begin(at: f64, root_len: u32, len: u32) -> u32 {
    with(|core| {
        let argument = core.argument(len);
        let (root, run) = argument.split_at(argument.len().min(root_len as usize));
        let begun = Receipt::new(at, root, run).map(|mut receipt| {
            core.record.text = receipt.take();
            core.receipt = Some(receipt);
        });
        core.told(begun)
    })
}

/// Adds a file of the waybill, or a directory if `size` is negative. The argument is its path, and
/// then the digest of a file (32 bytes) if it is known. If `object` is not 0, it is the size of an
/// object, and the digests of all objects follow. The text is its lines.
#[unsafe(no_mangle)]
pub extern "C" fn haul_waybill_entry(
    size: f64,
    mtime: f64,
    level: u32,
    object: f64,
    path_len: u32,
    len: u32,
) -> u32 {
    with(|core| {
        let argument = core.argument(len).to_vec();
        let (path, digests) = argument.split_at(argument.len().min(path_len as usize));
        let content = (size >= 0.0).then(|| content_of(number(size), object, digests));
        let Some(receipt) = &mut core.receipt else { return 0 };
        let added = receipt.add(ReceiptEntry { path, content, mtime, level });
        let lines = receipt.take();
        core.record.text = lines;
        core.told(added.map_err(|error| format!("cannot write the waybill: {error}")))
    })
}

/// Returns the contents of a file from the digests in the argument of [`haul_waybill_entry`].
fn content_of(size: u64, object: f64, digests: &[u8]) -> ReceiptContent {
    let mut digests: Vec<[u8; 32]> = digests.as_chunks().0.to_vec();
    let object = ObjectSize::new(object as u64).ok();
    let count = object.map_or(0, |object| Geometry::new(ByteLen(size), object).count());
    let has_digest = digests.len() as u64 > count;
    let digest = has_digest.then(|| digests.remove(0));
    ReceiptContent { size, digest, objects: object.map(|object| (object, digests)) }
}

/// Closes the waybill. The text is its last line.
#[unsafe(no_mangle)]
pub extern "C" fn haul_waybill_end() -> u32 {
    with(|core| {
        let Some(receipt) = core.receipt.take() else { return 0 };
        let closed = receipt.close().map(|line| core.record.text = line);
        core.told(closed)
    })
}

/// Starts to read the waybill in the argument.
#[unsafe(no_mangle)]
pub extern "C" fn haul_waybill_open(len: u32) {
    with(|core| {
        let mut waybill = std::mem::take(&mut core.argument);
        waybill.truncate(len as usize);
        (core.waybill, core.recorded) = (Some(WaybillReader::new(waybill)), None);
    });
}

/// Reads the next item of the waybill, and returns its kind. 0: the end. 1: a file; the text is its
/// path, and the numbers are its size, its time in milliseconds since 1970, the size of its objects
/// or 0, and 1 if the path is UTF-8. 2: a section starts. 3: damage, which the text describes.
#[unsafe(no_mangle)]
pub extern "C" fn haul_waybill_next() -> u32 {
    with(|core| {
        core.recorded = None;
        let item = core.waybill.as_mut().and_then(Iterator::next);
        let (kind, text) = match item {
            None => {
                core.waybill = None;
                (0, String::new())
            }
            Some(Item::Section) => (2, String::new()),
            Some(Item::Flaw(text)) => (3, text),
            Some(Item::File(file)) => {
                let is_text = std::str::from_utf8(&file.path).is_ok();
                let text = String::from_utf8_lossy(&file.path).into_owned();
                let numbers = [
                    file.size as f64,
                    file.mtime,
                    file.object_bytes.unwrap_or(0) as f64,
                    f64::from(u8::from(is_text)),
                ];
                core.record.numbers[..numbers.len()].copy_from_slice(&numbers);
                core.recorded = Some(file);
                (1, text)
            }
        };
        core.record.text = text;
        kind
    })
}

/// Returns the BLAKE3 of the last file as the text, or of one of its objects if `index` is not
/// negative. Returns 0 if the waybill does not have it.
#[unsafe(no_mangle)]
pub extern "C" fn haul_waybill_digest(index: f64) -> u32 {
    with(|core| {
        let file = core.recorded.as_ref();
        let digest = file.and_then(|file| {
            if index < 0.0 { file.digest.as_ref() } else { file.object(ObjectIndex(number(index))) }
        });
        let Some(digest) = digest else { return 0 };
        core.record.text = hex(digest.as_bytes());
        1
    })
}
