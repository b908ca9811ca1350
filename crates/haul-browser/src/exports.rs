//! Functions that JavaScript calls. One module holds one session and one file hash at a time.
//!
//! JavaScript passes bytes through two buffers of this module: the *argument* for paths, texts and
//! digests, and the *input* for bytes of the lane or of a file. Both belong to this module, which
//! never reads or writes through a pointer: JavaScript does, between two calls. The attribute that
//! exports the names is the only `unsafe` of this crate. Every name starts with `haul_`, so that it
//! replaces no other symbol.
//!
//! Numbers are `f64` where they can exceed 32 bits; JavaScript keeps them below 2^53. `now` is in
//! milliseconds from any fixed moment. A function that can fail returns 0, or -1 if it returns a
//! number, and the reason is the *text*.

pub mod waybill;

use crate::event::{Event, NUMBER_MAX, RECORD_NUMBERS, Record, hex, level_of};
use crate::{Download, JobSettings, KeptFile, Receipt, RecordedFile, Session, Upload, WaybillReader};
use haul_digest::{Blake3File, Blake3Object};
use haul_model::{Level, ObjectIndex, ObjectSize};
use std::cell::RefCell;
use std::time::Duration;

/// Size in bytes of the input buffer.
pub const INPUT_BYTES: usize = 1 << 20;

/// Maximum size in bytes of an argument: the objects of a kept file of 1 TiB in objects of 4 MiB,
/// and all paths of a job.
const ARGUMENT_BYTES_MAX: usize = 64 << 20;

/// Size in bytes of an object in the argument of [`haul_keep`]: its index and its digest.
const KEPT_OBJECT_BYTES: usize = 40;

#[derive(Default)]
struct Core {
    session: Option<Session>,
    argument: Vec<u8>,
    input: Vec<u8>,
    /// Position in the input at which the last call started.
    input_at: usize,
    record: Record,
    kept: Vec<(Vec<u8>, KeptFile)>,
    hash: Option<FileHash>,
    receipt: Option<Receipt>,
    waybill: Option<WaybillReader>,
    /// File of the waybill that was read last.
    recorded: Option<RecordedFile>,
}

struct FileHash {
    file: Blake3File,
    object: Option<(ObjectIndex, Blake3Object)>,
}

thread_local! {
    static CORE: RefCell<Core> = RefCell::default();
}

fn with<T>(work: impl FnOnce(&mut Core) -> T) -> T {
    CORE.with_borrow_mut(work)
}

impl Core {
    /// Returns the first `len` bytes of the argument, or all if it is shorter.
    fn argument(&self, len: u32) -> &[u8] {
        &self.argument[..self.argument.len().min(len as usize)]
    }

    /// Returns the argument as the text of a failure, or success if `ok` is not 0.
    fn result(&self, ok: u32, len: u32) -> Result<(), String> {
        if ok != 0 { Ok(()) } else { Err(String::from_utf8_lossy(self.argument(len)).into_owned()) }
    }

    fn settings(&self, settle: u32, object: f64, len: u32) -> Result<(JobSettings, &[u8]), String> {
        let object =
            ObjectSize::new(object as u64).map_err(|error| format!("cannot start a job: {error}"))?;
        let (job, rest) =
            self.argument(len).split_first_chunk().ok_or("cannot start a job: it has no name")?;
        let settle = level_of(settle).clamp(Level::Verified, Level::Durable);
        let settings =
            JobSettings { job: *job, object, settle, paths: Vec::new(), resumes: false, compares: false };
        Ok((settings, rest))
    }

    /// Records the text of a failure, if there is one. Returns 1 for success.
    fn told(&mut self, result: Result<(), String>) -> u32 {
        match result {
            Ok(()) => 1,
            Err(text) => {
                self.record.text = text;
                0
            }
        }
    }

    fn upload<T: Default>(&mut self, work: impl FnOnce(&mut Upload) -> T) -> T {
        self.session.as_mut().and_then(Session::upload).map(work).unwrap_or_default()
    }

    fn download(&mut self, work: impl FnOnce(&mut Download)) {
        if let Some(download) = self.session.as_mut().and_then(Session::download) {
            work(download);
        }
    }

    fn start_upload(
        &mut self,
        settle: u32,
        object: f64,
        compares: bool,
        len: u32,
        now: Duration,
    ) -> Result<(), String> {
        let (settings, path) = self.settings(settle, object, len)?;
        let settings = JobSettings { paths: vec![path.into()], compares, ..settings };
        self.session = Some(Session::Upload(Box::new(Upload::new(settings, now)?)));
        Ok(())
    }

    fn start_download(&mut self, settle: u32, object: f64, len: u32, now: Duration) -> Result<(), String> {
        let (mut settings, mut rest) = self.settings(settle, object, len)?;
        while let Some((length, after)) = rest.split_first_chunk() {
            let length = u32::from_le_bytes(*length) as usize;
            let (path, after) = after.split_at_checked(length).ok_or("cannot start a job: a path is cut")?;
            settings.paths.push(path.into());
            rest = after;
        }
        let kept = std::mem::take(&mut self.kept);
        self.session = Some(Session::Download(Box::new(Download::new(settings, kept, now)?)));
        Ok(())
    }
}

fn borrowed(result: &Result<(), String>) -> Result<(), &str> {
    match result {
        Ok(()) => Ok(()),
        Err(text) => Err(text),
    }
}

fn time(now: f64) -> Duration {
    Duration::from_micros((now * 1e3) as u64)
}

fn number(value: f64) -> u64 {
    (value as u64).min(NUMBER_MAX)
}

/// Returns the argument buffer with space for `len` bytes, at most 64 MiB.
#[unsafe(no_mangle)]
pub extern "C" fn haul_argument(len: u32) -> *mut u8 {
    with(|core| {
        core.argument.resize((len as usize).min(ARGUMENT_BYTES_MAX), 0);
        core.argument.as_mut_ptr()
    })
}

/// Returns the input buffer of [`INPUT_BYTES`].
#[unsafe(no_mangle)]
pub extern "C" fn haul_input_buffer() -> *mut u8 {
    with(|core| {
        core.input.resize(INPUT_BYTES, 0);
        core.input.as_mut_ptr()
    })
}

/// Returns the text of the last event or failure, in UTF-8.
#[unsafe(no_mangle)]
pub extern "C" fn haul_text() -> *const u8 {
    with(|core| core.record.text.as_ptr())
}

/// Returns the length in bytes of the text.
#[unsafe(no_mangle)]
pub extern "C" fn haul_text_len() -> u32 {
    with(|core| core.record.text.len() as u32)
}

/// Returns the eight numbers of the last event.
#[unsafe(no_mangle)]
pub extern "C" fn haul_record() -> *const f64 {
    const { assert!(RECORD_NUMBERS == 8) };
    with(|core| core.record.numbers.as_ptr())
}

/// Starts an upload. The argument is the name of the job (16 bytes) and the server's directory.
/// `settle` is the level of a file: 2 verified, 3 durable. If `compares` is not 0, the server
/// requests only what differs from its files.
#[unsafe(no_mangle)]
pub extern "C" fn haul_upload(settle: u32, object: f64, compares: u32, len: u32, now: f64) -> u32 {
    with(|core| {
        let started = core.start_upload(settle, object, compares != 0, len, time(now));
        core.told(started)
    })
}

/// Adds a file that the page has, for the next [`haul_download`]. The argument is its version (16
/// bytes), its path, and its objects, each with its index (8 bytes, little-endian) and its digest
/// (32 bytes).
#[unsafe(no_mangle)]
pub extern "C" fn haul_keep(is_complete: u32, size: f64, mtime: f64, path_len: u32, len: u32) -> u32 {
    with(|core| {
        let Some((version, rest)) = core.argument(len).split_first_chunk() else { return 0 };
        let Some((path, objects)) = rest.split_at_checked(path_len as usize) else { return 0 };
        let objects = objects.chunks_exact(KEPT_OBJECT_BYTES).filter_map(|object| {
            let (index, digest) = object.split_first_chunk()?;
            Some((u64::from_le_bytes(*index), digest.try_into().ok()?))
        });
        let kept = KeptFile {
            size: number(size),
            mtime,
            version: *version,
            is_complete: is_complete != 0,
            objects: objects.collect(),
        };
        let path = path.to_vec();
        core.kept.push((path, kept));
        1
    })
}

/// Starts a download of the files of [`haul_keep`] and others. The argument is the name of the job
/// (16 bytes), and the paths at the server, each after its length (4 bytes, little-endian).
#[unsafe(no_mangle)]
pub extern "C" fn haul_download(settle: u32, object: f64, len: u32, now: f64) -> u32 {
    with(|core| {
        let started = core.start_download(settle, object, len, time(now));
        core.told(started)
    })
}

/// Processes `len` bytes of the input buffer from position `at`. Returns the number of bytes taken.
#[unsafe(no_mangle)]
pub extern "C" fn haul_input(at: u32, len: u32, now: f64) -> u32 {
    with(|core| {
        let Core { session: Some(session), input, .. } = core else { return len };
        let at = (at as usize).min(input.len());
        let end = at.saturating_add(len as usize).min(input.len());
        core.input_at = at;
        session.input(&input[at..end], time(now)) as u32
    })
}

/// Returns the next bytes to send, or null.
#[unsafe(no_mangle)]
pub extern "C" fn haul_output() -> *const u8 {
    with(|core| core.session.as_mut().and_then(Session::output).map_or(std::ptr::null(), <[u8]>::as_ptr))
}

/// Returns the number of bytes at [`haul_output`].
#[unsafe(no_mangle)]
pub extern "C" fn haul_output_len() -> u32 {
    with(|core| core.session.as_mut().and_then(Session::output).map_or(0, |bytes| bytes.len() as u32))
}

/// Removes the bytes that [`haul_output`] returned.
#[unsafe(no_mangle)]
pub extern "C" fn haul_output_sent(now: f64) {
    with(|core| {
        if let Some(session) = &mut core.session {
            session.output_sent(time(now));
        }
    });
}

/// Takes the next event. Returns its kind, or 0. Its numbers and its text are valid until the next
/// call.
#[unsafe(no_mangle)]
pub extern "C" fn haul_next_event() -> u32 {
    with(|core| {
        let Some(event) = core.session.as_mut().and_then(Session::next_event) else { return 0 };
        core.record = event.record();
        if matches!(event, Event::Write { .. }) {
            core.record.numbers[3] += core.input_at as f64;
        }
        core.record.kind
    })
}

/// Returns the number of files that can be offered now.
#[unsafe(no_mangle)]
pub extern "C" fn haul_capacity() -> u32 {
    with(|core| core.upload(|upload| upload.capacity() as u32))
}

/// Offers a file, or a directory if `size` is negative. The argument is its path. Returns its
/// number, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn haul_offer(size: f64, mtime: f64, len: u32, now: f64) -> f64 {
    with(|core| {
        let path = core.argument(len).to_vec();
        let size = (size >= 0.0).then(|| number(size));
        match core.upload(|upload| Some(upload.offer(&path, size, mtime, time(now)))) {
            Some(Ok(number)) => number as f64,
            Some(Err(text)) => {
                core.told(Err(text));
                -1.0
            }
            None => -1.0,
        }
    })
}

/// Reports an entry that the page cannot read. The argument is its path, and then the reason.
#[unsafe(no_mangle)]
pub extern "C" fn haul_unread(path_len: u32, len: u32, now: f64) {
    with(|core| {
        let argument = core.argument(len).to_vec();
        let (path, text) = argument.split_at(argument.len().min(path_len as usize));
        core.upload(|upload| upload.unread(path, &String::from_utf8_lossy(text), time(now)));
    });
}

/// Ends the walk: nothing more is offered.
#[unsafe(no_mangle)]
pub extern "C" fn haul_walk_ended(now: f64) {
    with(|core| core.upload(|upload| upload.walk_ended(time(now))));
}

/// Returns the buffer of a read, or null.
#[unsafe(no_mangle)]
pub extern "C" fn haul_read_buffer(request: u32) -> *mut u8 {
    with(|core| {
        let upload = core.session.as_mut().and_then(Session::upload);
        let buffer = upload.and_then(|upload| upload.read_buffer(request));
        buffer.map_or(std::ptr::null_mut(), <[u8]>::as_mut_ptr)
    })
}

/// Ends a read. If `ok` is 0, the argument is the reason.
#[unsafe(no_mangle)]
pub extern "C" fn haul_read_done(request: u32, ok: u32, len: u32, now: f64) {
    with(|core| {
        let result = core.result(ok, len);
        core.upload(|upload| upload.read_done(request, borrowed(&result), time(now)));
    });
}

/// Answers a check with size and time of the file. If `ok` is 0, the argument is the reason.
#[unsafe(no_mangle)]
pub extern "C" fn haul_checked(request: u32, ok: u32, size: f64, mtime: f64, len: u32, now: f64) {
    with(|core| {
        let result = core.result(ok, len);
        let found = borrowed(&result).map(|()| (number(size), mtime));
        core.upload(|upload| upload.checked(request, found, time(now)));
    });
}

/// Ends a write. If `ok` is 0, the argument is the reason.
#[unsafe(no_mangle)]
pub extern "C" fn haul_written(request: u32, ok: u32, len: u32, now: f64) {
    with(|core| {
        let result = core.result(ok, len);
        core.download(|download| {
            download.written(request, borrowed(&result), time(now));
        });
    });
}

/// Ends a sync at this level. If `level` is 0, it failed, and the argument is the reason.
#[unsafe(no_mangle)]
pub extern "C" fn haul_synced(file: f64, level: u32, len: u32, now: f64) {
    with(|core| {
        let result = core.result(level, len);
        let result = borrowed(&result).map(|()| level);
        core.download(|download| download.synced(number(file), result, time(now)));
    });
}

/// Ends a file or a directory at this level. If `level` is 0, it failed, and the argument is the
/// reason.
#[unsafe(no_mangle)]
pub extern "C" fn haul_finished(file: f64, level: u32, len: u32, now: f64) {
    with(|core| {
        let result = core.result(level, len);
        let result = borrowed(&result).map(|()| level);
        core.download(|download| download.finished(number(file), result, time(now)));
    });
}

/// Reports the time: at least once a second.
#[unsafe(no_mangle)]
pub extern "C" fn haul_tick(now: f64) {
    with(|core| {
        if let Some(session) = &mut core.session {
            session.tick(time(now));
        }
    });
}

/// Reports that the lane is lost.
#[unsafe(no_mangle)]
pub extern "C" fn haul_lane_lost(now: f64) {
    with(|core| {
        if let Some(session) = &mut core.session {
            session.lane_lost(time(now));
        }
    });
}

/// Stops the job at the request of the user.
#[unsafe(no_mangle)]
pub extern "C" fn haul_stop(now: f64) {
    with(|core| {
        if let Some(session) = &mut core.session {
            session.stop(time(now));
        }
    });
}

/// Returns the number of bytes of an upload that the server has verified.
#[unsafe(no_mangle)]
pub extern "C" fn haul_settled_bytes() -> f64 {
    with(|core| core.upload(|upload| upload.settled_bytes() as f64))
}

/// Starts the digest of a file of `size` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn haul_hash_begin(size: f64, object: f64) -> u32 {
    with(|core| {
        let object = ObjectSize::new(object as u64).map_err(|error| format!("cannot hash: {error}"));
        let begun = object.map(|object| {
            core.hash = Some(FileHash { file: Blake3File::new(number(size), object), object: None });
        });
        core.told(begun)
    })
}

/// Starts an object of the file.
#[unsafe(no_mangle)]
pub extern "C" fn haul_hash_object(index: f64) -> u32 {
    with(|core| {
        let Some(hash) = &mut core.hash else { return 0 };
        let index = ObjectIndex(number(index));
        hash.object = hash.file.hasher(index).map(|hasher| (index, hasher));
        u32::from(hash.object.is_some())
    })
}

/// Hashes the first `len` bytes of the input buffer.
#[unsafe(no_mangle)]
pub extern "C" fn haul_hash_update(len: u32) {
    with(|core| {
        let Core { hash: Some(FileHash { object: Some((_, hasher)), .. }), input, .. } = core else { return };
        hasher.update(&input[..input.len().min(len as usize)]);
    });
}

/// Ends the object and adds it to the file. The text is its digest in hexadecimal digits. Returns 0
/// if it does not have all its bytes.
#[unsafe(no_mangle)]
pub extern "C" fn haul_hash_object_end() -> u32 {
    with(|core| {
        let Some(FileHash { file, object }) = &mut core.hash else { return 0 };
        let Some((index, hasher)) = object.take() else { return 0 };
        if file.range(index).map(haul_model::ByteRange::len) != Some(hasher.fed()) {
            return core.told(Err("cannot hash the object: its length differs".into()));
        }
        let digest = hasher.finish();
        file.add(index, &digest);
        core.record.text = hex(digest.as_bytes());
        1
    })
}

/// Adds an object by its digest (32 bytes in the argument), which another worker computed.
#[unsafe(no_mangle)]
pub extern "C" fn haul_hash_merge(index: f64) -> u32 {
    with(|core| {
        let Ok(digest) = core.argument(32).try_into() else { return 0 };
        let Some(hash) = &mut core.hash else { return 0 };
        u32::from(hash.file.add_bytes(ObjectIndex(number(index)), digest))
    })
}

/// Ends the file. The text is its digest in hexadecimal digits. Returns 0 if objects are missing.
#[unsafe(no_mangle)]
pub extern "C" fn haul_hash_end() -> u32 {
    with(|core| {
        let digest = core.hash.take().and_then(|hash| hash.file.finish().ok());
        match digest {
            Some(digest) => {
                core.record.text = hex(digest.as_bytes());
                1
            }
            None => core.told(Err("cannot hash the file: objects are missing".into())),
        }
    })
}
