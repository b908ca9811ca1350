//! Lower bound for a copy that is read back from the device.

use super::{BoundConfig, BoundError, End, ObjectQueue, failed, joined, side_by_side};
use haul_model::{ByteRange, Object};
use haul_sys::cache::{self, Advice};
use haul_sys::sparse;
use parking_lot::Mutex;
use std::fs::OpenOptions;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

/// Copies `source` to the new file `sink`, makes it durable, and reads every byte back from the
/// device. Returns the number of bytes of the source.
///
/// Through the page cache, the copying threads hand each object to other threads. These wait until
/// the object is on the device, drop it from the cache and read it, while the next objects are
/// copied. With direct I/O, each thread reads, writes and reads back one object after the other.
/// Many threads run then, so that the device has several requests queued and never waits for one
/// thread.
///
/// # Errors
/// Returns [`BoundError`] if a step fails or if `sink` exists.
pub fn reread(source: &Path, sink: &Path, config: &BoundConfig) -> Result<u64, BoundError> {
    let source = End::open(source, config)?;
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(sink);
    let file = file.map_err(|error| failed("create", sink, error))?;
    let cut = ObjectQueue::of(&source, config)?;
    if !cut.geometry.is_empty() {
        // Allocates the whole length first, because direct writes that extend a file are
        // serialized. A file system that cannot allocate is written without.
        let _ =
            sparse::allocate(&file, ByteRange { start: Default::default(), end: cut.end() }, !config.direct);
    }
    let sink = End::of(sink, file, config)?;
    if config.direct {
        reread_direct(&source, &sink, &cut, config)?;
    } else {
        reread_buffered(&source, &sink, &cut, config)?;
    }
    cache::sync_data(&sink.file).map_err(|error| sink.failed("sync", error))?;
    Ok(cut.geometry.len())
}

fn reread_direct(
    source: &End<'_>,
    sink: &End<'_>,
    cut: &ObjectQueue,
    config: &BoundConfig,
) -> Result<(), BoundError> {
    side_by_side(config.threads, || {
        let mut block = source.block(config.block)?;
        while let Some(object) = cut.take() {
            copy(source, sink, object, &mut block)?;
            sink.read(object, &mut block)?;
        }
        Ok(())
    })
}

fn reread_buffered(
    source: &End<'_>,
    sink: &End<'_>,
    cut: &ObjectQueue,
    config: &BoundConfig,
) -> Result<(), BoundError> {
    let (written, to_prove) = channel();
    let to_prove = Mutex::new(to_prove);
    thread::scope(|scope| {
        let proving = scope.spawn(|| side_by_side(2 * config.threads, || read_back(sink, &to_prove, config)));
        let copied = {
            let written = Mutex::new(written);
            side_by_side(config.threads, || {
                let written = written.lock().clone();
                copy_all(source, sink, cut, config, &written)
            })
            // This drops the last sender, so that the reading threads end with the queue.
        };
        let proved = joined(proving);
        copied.and(proved)
    })
}

fn copy_all(
    source: &End<'_>,
    sink: &End<'_>,
    cut: &ObjectQueue,
    config: &BoundConfig,
    written: &Sender<Object>,
) -> Result<(), BoundError> {
    let mut block = source.block(config.block)?;
    while let Some(object) = cut.take() {
        cut.read_ahead(source, object);
        copy(source, sink, object, &mut block)?;
        // A write-back error occurs again when a thread waits for the data.
        let _ = cache::start_writeback(&sink.file, object.range);
        // The receivers exist as long as a thread writes.
        let _ = written.send(object);
    }
    Ok(())
}

fn read_back(
    sink: &End<'_>,
    to_prove: &Mutex<Receiver<Object>>,
    config: &BoundConfig,
) -> Result<(), BoundError> {
    let mut block = sink.block(config.block)?;
    loop {
        let next = to_prove.lock().recv();
        let Ok(object) = next else { return Ok(()) };
        let waited = cache::wait_writeback(&sink.file, object.range);
        waited.map_err(|error| sink.failed("write back", error))?;
        for advice in [Advice::DontNeed, Advice::WillNeed] {
            cache::advise(&sink.file, object.range, advice)
                .map_err(|error| sink.failed("set cache advice for", error))?;
        }
        sink.read(object, &mut block)?;
    }
}

fn copy(
    source: &End<'_>,
    sink: &End<'_>,
    object: Object,
    block: &mut haul_sys::buffer::AlignedBuffer,
) -> Result<(), BoundError> {
    let mut at = object.range.start.0;
    while at < object.range.end.0 {
        let got = source.read_block(at, object.range.end.0, block)?;
        sink.write_block(at, &block[..got])?;
        at += got as u64;
    }
    Ok(())
}
