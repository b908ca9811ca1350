//! What a copy is to do, resolved from what was typed: no field here is a flag's text.

use super::place::Place;
use super::receipt::Receipt;
use super::resume::JobLog;
use haul_digest::Algorithm;
use haul_model::{ByteLen, ByteOffset, ObjectSize, limits};
use haul_sys::process;
use haul_sys::selinux::Policy;
use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

/// One copy job.
#[derive(Clone, Debug)]
pub struct CopySettings {
    /// What is copied where.
    pub operands: Operands,
    /// What the sinks of [`Operands::Onto`] and [`Operands::Batch`] are beneath; `None` for the working directory.
    pub place: Option<Place>,
    /// Which of cp's rules hold.
    pub rules: CopyRules,
    /// How bytes are moved.
    pub moving: Moving,
    /// What is printed about each file.
    pub print: Print,
}

/// Sources and where they go.
#[derive(Clone, Debug)]
pub enum Operands {
    /// Each source goes into this directory under its own last component (or whole path with `parents`).
    IntoDirectory {
        /// What is copied.
        sources: Vec<OsString>,
        /// The directory, as typed.
        directory: OsString,
        /// `--parents`: the source's whole path is rebuilt beneath the directory.
        parents: bool,
    },
    /// One source becomes exactly this name.
    Onto {
        /// What is copied.
        source: OsString,
        /// The name it gets.
        sink: OsString,
    },
    /// mcp's `--read-stdin`: pairs of names with the ranges to copy.
    Batch(Batch),
}

/// A list of copies that is read as it is worked through. Clones share it: what one took, the others don't see.
#[derive(Clone)]
pub struct Batch(Arc<Mutex<dyn BatchSource>>);

/// Why one line of a batch can't be carried out.
pub type BatchFailure = Box<dyn std::error::Error + Send + Sync>;

/// Where the lines of a batch come from.
pub trait BatchSource: Send {
    /// The next line, or what is wrong with it; `None` at the end of the list. Where a line has to be waited for,
    /// `stopping` is asked meanwhile, and a true from it ends the list.
    fn next(&mut self, stopping: &dyn Fn() -> bool) -> Option<Result<BatchItem, BatchFailure>>;
}

impl Batch {
    /// The list that comes from `source`.
    pub fn new(source: impl BatchSource + 'static) -> Batch {
        Batch(Arc::new(Mutex::new(source)))
    }

    pub(crate) fn next(&self, stopping: &dyn Fn() -> bool) -> Option<Result<BatchItem, BatchFailure>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).next(stopping)
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Batch(..)")
    }
}

impl BatchSource for std::vec::IntoIter<BatchItem> {
    fn next(&mut self, _: &dyn Fn() -> bool) -> Option<Result<BatchItem, BatchFailure>> {
        Iterator::next(self).map(Ok)
    }
}

/// One line of mcp's `--read-stdin`.
#[derive(Clone, Debug)]
pub struct BatchItem {
    /// What is copied.
    pub source: OsString,
    /// The name it gets.
    pub sink: OsString,
    /// Byte ranges as (start, end), end exclusive; empty for the whole file.
    pub ranges: Vec<(u64, u64)>,
    /// What stood at the sink has this name by now: it gets its own back where the copy fails.
    pub backup: Option<OsString>,
}

/// cp's rules: which entries are copied and what of each.
#[derive(Clone, Debug)]
pub struct CopyRules {
    /// `-r`: directories are copied with all they hold.
    pub recursive: bool,
    /// Which symbolic links are followed.
    pub dereference: Dereference,
    /// What of each file's metadata is kept.
    pub preserve: Preserve,
    /// Which security contexts copies get.
    pub contexts: Contexts,
    /// What happens to an existing sink.
    pub existing: Existing,
    /// `-f`: a sink that can't be opened is removed and made anew.
    pub force: bool,
    /// `--remove-destination`: every existing sink is removed before it is written.
    pub remove_destination: bool,
    /// `-u`: a sink as new as its source is left alone.
    pub update: bool,
    /// `-v`: each copied entry is told.
    pub verbose: bool,
    /// `--debug`: how each file's bytes went is told behind its line of `verbose`, and what was left alone.
    pub debug: bool,
    /// `-x`: directories on other file systems are made, but not entered.
    pub one_file_system: bool,
    /// Copies, hard links or symbolic links.
    pub make: Make,
    /// When holes are made in the sink.
    pub sparse: SparseRule,
    /// Whether blocks are shared with the source where the file system can.
    pub reflink: Reflink,
    /// Whether and how an existing sink is kept under another name.
    pub backup: Option<Backup>,
    /// `--attributes-only`: no data is copied.
    pub attributes_only: bool,
    /// `--keep-directory-symlink`: a link at the sink that leads to a directory is copied into like that directory.
    pub keep_directory_symlink: bool,
    /// A file is made where a link at the sink leads to nothing yet (POSIX).
    pub open_dangling: bool,
    /// `--copy-contents`: special files are read instead of made anew, with `-r`.
    pub copy_contents: bool,
    /// `--skip-chmod` (mcp): files keep the permissions they had while being written.
    pub skip_chmod: bool,
    /// Every new file gets these permissions, whatever its source has: install's, which come later.
    pub new_mode: Option<u32>,
    /// The copy is mv's way across file systems: its words are mv's, and what of a file's properties can't be kept is
    /// told without failing it.
    pub moves: bool,
}

/// Which symbolic links in the source are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dereference {
    /// `-P`: none.
    Never,
    /// `-H`: those named on the command line.
    Operands,
    /// `-L`: all.
    Always,
}

/// What of a file's metadata the copy keeps, and whether failing to is an error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Preserve {
    /// Permission bits and ACLs.
    pub mode: bool,
    /// `--no-preserve=mode` was given: new files get the default permissions, not the source's.
    pub explicit_no_mode: bool,
    /// User and group.
    pub ownership: bool,
    /// Access and modification times, to the nanosecond.
    pub timestamps: bool,
    /// Hard links between copied files.
    pub links: bool,
    /// Extended attributes.
    pub xattr: bool,
    /// Failing to keep extended attributes is an error (`--preserve=xattr`, unlike `-a`).
    pub require_xattr: bool,
    /// `-a`: failures to keep what the file system can't hold are not told.
    pub reduce_diagnostics: bool,
}

/// Which security contexts copies get, where the kernel labels files by SELinux.
#[derive(Clone, Debug, Default)]
pub enum Contexts {
    /// Those that the kernel gives them. Where there is no SELinux, a source's is an attribute like others.
    #[default]
    Kernels,
    /// `--context=CTX`: new files get one that the kernel was told for all of this process, and so nobody else's.
    Said,
    /// `-a`, `--preserve=context`, `mv`: their sources'.
    Sources {
        /// Who tells the kernel.
        policy: Arc<dyn Policy>,
        /// What fails here fails the file.
        is_required: bool,
    },
    /// `-Z`: their types are those that the policy's list of paths has for where they stand.
    Listed(Arc<dyn Policy>),
}

impl Contexts {
    /// Whether each copy is labelled by itself.
    pub(crate) fn are_set(&self) -> bool {
        matches!(self, Contexts::Sources { .. } | Contexts::Listed(_))
    }

    /// Whether a source's context is copied like any other attribute.
    pub(crate) fn are_attributes(&self) -> bool {
        matches!(self, Contexts::Kernels)
    }
}

/// What happens to a sink that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Existing {
    /// It is overwritten.
    Overwrite,
    /// `-n`, `--update=none`: it is left alone.
    Keep,
    /// `--update=none-fail`: it is left alone, and that is a failure.
    Refuse,
    /// `-i`: the user is asked.
    Ask,
}

/// What is made at the sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Make {
    /// A copy of the data.
    Copy,
    /// `-l`: a hard link to the source.
    HardLink,
    /// `-s`: a symbolic link to the source.
    SymbolicLink,
}

/// `--sparse`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SparseRule {
    /// Holes of a sparse source become holes.
    Auto,
    /// Every run of zeros long enough becomes a hole.
    Always,
    /// No holes.
    Never,
}

/// `--reflink`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reflink {
    /// Where the file system can.
    Auto,
    /// Or the copy fails.
    Always,
    /// Never.
    Never,
}

/// How an existing sink is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backup {
    /// The naming rule.
    pub method: BackupMethod,
    /// What is added to the name by the simple rule; `~` unless set.
    pub suffix: OsString,
}

/// The naming rules of `--backup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BackupMethod {
    /// `name~`.
    Simple,
    /// `name.~1~`, `name.~2~`, ...
    Numbered,
    /// Numbered where numbered ones exist, simple otherwise.
    Existing,
}

/// How bytes are moved.
#[derive(Clone, Debug)]
pub struct Moving {
    /// Worker threads.
    pub workers: Workers,
    /// Size of an object: larger files are split over workers.
    pub object: ObjectSize,
    /// Bytes per read and write; `None` lets the engine choose by the way it takes.
    pub block: Option<usize>,
    /// Reads go past the page cache.
    pub direct_read: bool,
    /// Writes go past the page cache.
    pub direct_write: bool,
    /// The source is dropped from the page cache behind the reader.
    pub fadvise_read: bool,
    /// The sink is written back and dropped from the page cache behind the writer.
    pub fadvise_write: bool,
    /// Reading of one block overlaps writing of another (io_uring); `None` lets the engine choose.
    pub double_buffer: Option<bool>,
    /// Digest of each file, from the same read.
    pub digest: Option<(Algorithm, HashForm)>,
    /// The waybill of the job, with digests from the same read.
    pub receipt: Option<Arc<Receipt>>,
    /// The log of the job, where it can be gone on with.
    pub log: Option<Arc<JobLog>>,
    /// How the copy is compared with what was read.
    pub verify: Verify,
    /// Each file and directory is made durable as it is finished, for file systems that can't be made so as a whole.
    pub sync_each: bool,
    /// First byte of each source file to copy.
    pub offset: ByteOffset,
    /// Most bytes of each source file to copy.
    pub length: Option<ByteLen>,
    /// Where the first copied byte goes; `None` for the same offset.
    pub sink_offset: Option<ByteOffset>,
}

/// How many worker threads there are: a number, or as many as the process may run at once. That is asked of the system
/// when it is first needed: for one small file it never is, and the answer, which control groups have a say in, takes a
/// dozen system calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Workers(Option<usize>);

impl Workers {
    /// As many as this process may run at once.
    pub fn granted() -> Workers {
        Workers::default()
    }

    /// This many, as far as they are within 1 and [`limits::WORKERS_MAX`].
    pub fn exactly(workers: usize) -> Workers {
        Workers(Some(workers.clamp(1, limits::WORKERS_MAX)))
    }

    /// The number, from 1 to [`limits::WORKERS_MAX`].
    pub fn count(self) -> usize {
        static GRANTED: LazyLock<usize> =
            LazyLock::new(|| process::cpu_count().clamp(1, limits::WORKERS_MAX));
        self.0.unwrap_or_else(|| *GRANTED)
    }
}

/// The form of a file's digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HashForm {
    /// The algorithm's own value, which every other tool prints.
    Plain,
    /// msum's hash tree with leaves of this many bytes.
    Tree(ObjectSize),
    /// The values of the tree's leaves, one after the other (`--check-tree`).
    Leaves(ObjectSize),
}

/// Whether and how the copy is compared with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verify {
    /// Not at all.
    No,
    /// Every byte is hashed between read and write (CRC-64/NVME unless another digest is asked for), and the digest is told.
    /// Nothing is compared: in a local copy the buffer that is written is the buffer that was read.
    Stream,
    /// Each object is read back through the page cache right after it was written, and compared.
    ReadBack,
    /// Each object is brought to the device, dropped from the page cache, read back and compared while others are
    /// copied; one that differs is written again, a few times.
    Reread,
    /// [`Verify::Stream`] for files that fit into free memory, [`Verify::Reread`] for larger ones (FIVER-Hybrid).
    Hybrid,
}

impl Verify {
    /// Whether it is about bytes that are written, so that sharing the source's blocks would prove nothing.
    pub(crate) fn needs_bytes(self) -> bool {
        matches!(self, Verify::Stream | Verify::Reread | Verify::Hybrid)
    }
}

/// What is printed about each file.
#[derive(Clone, Copy, Debug, Default)]
pub struct Print {
    /// Its digest, on standard output.
    pub hash: bool,
    /// Bytes, seconds and rate, on standard error.
    pub stats: bool,
    /// The source's name instead of the sink's in both.
    pub source_name: bool,
}

impl Default for CopyRules {
    /// `cp` without options.
    fn default() -> CopyRules {
        CopyRules {
            recursive: false,
            dereference: Dereference::Always,
            preserve: Preserve::default(),
            contexts: Contexts::Kernels,
            existing: Existing::Overwrite,
            force: false,
            remove_destination: false,
            update: false,
            verbose: false,
            debug: false,
            one_file_system: false,
            make: Make::Copy,
            sparse: SparseRule::Auto,
            reflink: Reflink::Auto,
            backup: None,
            attributes_only: false,
            keep_directory_symlink: false,
            open_dangling: false,
            copy_contents: false,
            skip_chmod: false,
            new_mode: None,
            moves: false,
        }
    }
}

impl Moving {
    /// The size of the objects that a receipt keeps: never smaller than a leaf of a tree that is printed beside it.
    pub fn receipt_object(&self) -> ObjectSize {
        super::digesting::object_size(self)
    }

    /// The measured defaults for so many workers.
    pub fn with(workers: Workers) -> Moving {
        Moving {
            workers,
            object: ObjectSize::DEFAULT,
            block: None,
            direct_read: false,
            direct_write: false,
            fadvise_read: false,
            fadvise_write: false,
            double_buffer: None,
            digest: None,
            receipt: None,
            log: None,
            verify: Verify::No,
            sync_each: false,
            offset: ByteOffset(0),
            length: None,
            sink_offset: None,
        }
    }
}
