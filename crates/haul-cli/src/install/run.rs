//! Run of one installation, from the command line to the exit status.

use super::directories;
use super::finish::{set_properties, set_times, strip, stripped};
use super::labels::{self, DirectoryCreator};
use super::options;
use super::resolve::{Invocation, Properties, Resolved, Work, resolve};
use crate::console::{Console, Totals, answer, refuse, say, this_command};
use crate::getopt::backup::BackupEnvironment;
use crate::getopt::context;
use crate::interrupt::Interrupt;
use haul_coreutils::cp::{self, Contexts, CopyRules, CopySettings, Operands, Place, Preserve, Print};
use haul_engine::copy::{CopyObserver, Tally, Verify, Workers, cause, quote};
use haul_storage::local::source_of;
use haul_sys::{CWD, FileKind, Follow, Stat, open, process, selinux, stat};
use std::cell::{Cell, OnceCell};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Mode of a file until its owner is set: accessible only to its creator.
const TEMPORARY_MODE: u32 = 0o600;

/// Smaller files are copied by this thread alone, because other threads take longer to start.
const LARGE_BYTES: u64 = 8 << 20;

/// Block size of a comparison, in bytes.
const BLOCK_BYTES: usize = 64 << 10;

/// Runs the installation of `args`. `tool` is the name that messages start with: `install` or `haul
/// install`.
pub(crate) fn run(tool: &str, args: &[OsString]) -> ExitCode {
    let options_first = std::env::var_os("POSIXLY_CORRECT").is_some();
    let mut warn = |warning: &str| say(tool, &warning);
    let environment = BackupEnvironment::of_process();
    match resolve(args, options_first, &environment, selinux::policy(), &mut warn) {
        Ok(Invocation::Install(resolved)) => execute(tool, &resolved),
        Ok(Invocation::Help) => answer(tool, &options::help(tool)),
        Ok(Invocation::Version) => {
            answer(tool, &format!("{tool} (Surehaul) {}\n", env!("CARGO_PKG_VERSION")))
        }
        Err(error) => refuse(tool, &error, error.has_hint()),
    }
}

fn execute(tool: &str, resolved: &Resolved) -> ExitCode {
    let interrupt = match Interrupt::watch_as(tool) {
        Ok(interrupt) => interrupt,
        Err(error) => {
            say(tool, &format_args!("cannot watch for signals: {error}"));
            return ExitCode::FAILURE;
        }
    };
    // Permissions are set as requested, regardless of the user's umask.
    process::set_umask(0);
    let console = Console::new(tool, resolved.json, &Print::default(), interrupt.flag());
    let (tally, begun) = (Tally::default(), Instant::now());
    let job = Job {
        tool,
        resolved,
        console: &console,
        interrupt: &interrupt,
        tally: &tally,
        failures: Cell::new(0),
        has_list: OnceCell::new(),
    };
    job.work();
    let failures = job.failures.get();
    let interrupted = interrupt.flag().load(Ordering::Relaxed);
    console.summary(&tally, failures, interrupted);
    if interrupted {
        console.say(&format_args!("interrupted: to install all, run: {}", this_command()));
        return interrupt.end();
    }
    let is_verified = resolved.moving.verify != Verify::No;
    let totals = Totals { is_asked: is_verified, is_verified, is_complete: failures == 0 };
    console.totals(&tally, begun.elapsed(), &totals);
    console.close(failures > 0)
}

/// Files that operands of this command copied, by name and inode.
type Created = HashSet<(OsString, (u64, u64))>;

/// Name of a file in an open directory.
pub(super) struct Sink<'a> {
    /// `None` for the working directory, if the directory cannot be opened.
    place: Option<&'a Place>,
    pub(super) name: &'a OsStr,
}

impl Sink<'_> {
    /// Returns the directory that the name is relative to.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.place.map_or(CWD, |place| place.as_fd())
    }

    /// Returns the path for messages.
    pub(super) fn path(&self) -> OsString {
        self.place.map_or_else(|| self.name.to_owned(), |place| place.path_of(self.name))
    }
}

struct Job<'a> {
    tool: &'a str,
    resolved: &'a Resolved,
    console: &'a Console<'a>,
    interrupt: &'a Interrupt,
    tally: &'a Tally,
    failures: Cell<u64>,
    /// True if the policy's list of paths can be read.
    has_list: OnceCell<bool>,
}

impl Job<'_> {
    fn work(&self) {
        match &self.resolved.work {
            Work::Directories(names) => names.iter().for_each(|name| self.directory(name)),
            Work::Into { sources, directory, place } => self.gather(sources, directory, place.as_ref()),
            Work::Onto { source, sink } => {
                if self.resolved.makes_directories
                    && let Err(error) = self.with_maker(|maker| directories::make_above(sink, maker))
                {
                    return self.fail(&error);
                }
                // If the directory cannot be opened, the copy reports the reason.
                let held = Place::above(sink).ok();
                let (place, name) =
                    held.as_ref().map_or((None, &**sink), |(place, name)| (Some(place), *name));
                self.file(source, &Sink { place, name }, &HashSet::new());
            }
        }
    }

    fn directory(&self, name: &OsStr) {
        let properties = &self.resolved.properties;
        if let Err(error) = self.with_maker(|maker| directories::install(name, properties, maker)) {
            self.fail(&error);
        }
    }

    fn with_maker<T>(&self, act: impl FnOnce(&DirectoryCreator<'_>) -> T) -> T {
        let policy = match &self.resolved.contexts {
            Contexts::Listed(policy) => Some(&**policy),
            _ => None,
        };
        let tell = |path: &OsStr| self.print_directory(path);
        act(&DirectoryCreator { tell: &tell, warn: &|warning| self.console.say(warning), policy })
    }

    fn gather(&self, sources: &[OsString], directory: &OsStr, place: Option<&Place>) {
        let made;
        let first = sources.first().map_or(OsStr::new(""), |source| last_component(source));
        let place = match place {
            Some(place) => place,
            None => match self.make_target(directory, first) {
                Some(place) => {
                    made = place;
                    &made
                }
                None => return,
            },
        };
        let names: HashSet<&OsStr> = sources.iter().map(|source| last_component(source)).collect();
        let may_collide = names.len() < sources.len();
        let mut created = HashSet::new();
        for source in sources {
            if self.interrupt.flag().load(Ordering::Relaxed) {
                return;
            }
            let sink = Sink { place: Some(place), name: last_component(source) };
            if self.file(source, &sink, &created)
                && may_collide
                && let Ok(standing) = stat::stat_at(sink.dir(), sink.name, Follow::No)
            {
                created.insert((sink.name.to_owned(), standing.identity()));
            }
        }
    }

    /// `-D -t`: creates the target directory of all files. Returns `None` after a reported failure.
    /// Like install, creates only its parents if the `first` file has an empty name.
    fn make_target(&self, directory: &OsStr, first: &OsStr) -> Option<Place> {
        let make = if first.is_empty() { directories::make_above } else { directories::make_all };
        if let Err(error) = self.with_maker(|maker| make(directory, maker)) {
            self.fail(&error);
            return None;
        }
        let opened = Place::open(directory);
        if let Err(error) = &opened {
            let end = directory.as_bytes().iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
            let between: &[u8] = if directory.is_empty() { b"" } else { b"/" };
            let path = [&directory.as_bytes()[..end], between, first.as_bytes()].concat();
            self.fail(&format_args!("cannot open {}: {}", quote(OsStr::from_bytes(&path)), cause(error)));
        }
        opened.ok()
    }

    /// Reports two operands with the same name, which is an error unless the first file is kept as
    /// a numbered backup.
    fn was_just_created(&self, created: &Created, source: &OsStr, found: &Stat, sink: &Sink<'_>) -> bool {
        if created.is_empty() {
            return false;
        }
        let numbered =
            self.resolved.backup.as_ref().is_some_and(|backup| backup.method == cp::BackupMethod::Numbered);
        let Ok(standing) = stat::stat_at(sink.dir(), sink.name, Follow::No) else { return false };
        // The copy reports that both are the same file.
        let is_one = found.identity() == standing.identity();
        if numbered || is_one || !created.contains(&(sink.name.to_owned(), standing.identity())) {
            return false;
        }
        let sink = sink.path();
        self.fail(&format_args!("will not overwrite just-created {} with {}", quote(&sink), quote(source)));
        true
    }

    /// Installs one file, unless an earlier operand created its sink. Returns true if the file was
    /// copied.
    fn file(&self, source: &OsStr, sink: &Sink<'_>, created: &Created) -> bool {
        let found = match stat::stat_at(CWD, source, Follow::Yes) {
            Ok(found) => found,
            Err(error) => {
                self.fail(&format_args!("cannot stat {}: {}", quote(source), cause(&error)));
                return false;
            }
        };
        if found.kind == FileKind::Directory {
            self.fail(&format_args!("omitting directory {}", quote(source)));
            return false;
        }
        let standing = self.resolved.compare.then(|| self.installed(source, &found, sink)).flatten();
        if let Some(file) = standing {
            // As in install, a later operand may replace a file that this command did not copy.
            self.finish(&found, sink, file);
            return false;
        }
        if self.was_just_created(created, source, &found, sink) {
            return false;
        }
        let copied = self.copy(source, sink, found.size);
        copied.map(|file| self.finish(&found, sink, file)).is_some()
    }

    /// Copies one file and returns it open. Returns `None` after a reported failure or an
    /// interruption.
    fn copy(&self, source: &OsStr, sink: &Sink<'_>, size: u64) -> Option<OwnedFd> {
        let resolved = self.resolved;
        let mut moving = resolved.moving.clone();
        if size < LARGE_BYTES {
            moving.workers = Workers::exactly(1);
        }
        let preserve = Preserve { timestamps: resolved.keeps_times, ..Preserve::default() };
        let rules = CopyRules {
            preserve,
            contexts: resolved.contexts.clone(),
            remove_destination: true,
            backup: resolved.backup.clone(),
            verbose: resolved.verbose,
            new_mode: Some(TEMPORARY_MODE),
            ..CopyRules::default()
        };
        let operands = Operands::Onto { source: source.to_owned(), sink: sink.name.to_owned() };
        let place = sink.place.cloned();
        let settings =
            CopySettings { operands, source: None, place, rules, moving, log: None, print: Print::default() };
        let outcome = cp::copy(&settings, self.console, self.tally, self.interrupt.flag());
        self.failures.set(self.failures.get() + outcome.failures);
        outcome.new_file.filter(|_| outcome.failures == 0 && !outcome.interrupted)
    }

    fn finish(&self, source: &Stat, sink: &Sink<'_>, mut file: OwnedFd) {
        let resolved = self.resolved;
        if let Some(program) = &resolved.strip {
            if let Err(failures) = strip(program, sink) {
                return failures.iter().for_each(|failure| self.fail(failure));
            }
            file = match stripped(sink, &file) {
                Ok(file) => file,
                Err(error) => return self.fail(&error),
            };
            if resolved.keeps_times
                && let Err(error) = set_times(sink, &file, source)
            {
                return self.fail(&error);
            }
        }
        let mode = resolved.properties.mode.file;
        if let Err(error) = set_properties(sink, &file, &resolved.properties, mode) {
            self.fail(&error);
        }
        self.label(sink, &file);
    }

    /// Sets the policy's context for the file's path, unless an option requests another.
    fn label(&self, sink: &Sink<'_>, file: &OwnedFd) {
        let Some(policy) = &self.resolved.policy else { return };
        let read = || match policy.read_paths() {
            Ok(()) => true,
            Err(error) => {
                self.console.say(&format_args!("{}: {}", context::NO_LIST, cause(&error)));
                false
            }
        };
        if *self.has_list.get_or_init(read)
            && let Err(warning) = labels::settle(&**policy, sink, file)
        {
            self.console.say(&warning);
        }
    }

    /// `-C`: returns the sink if it has the contents and all properties already.
    fn installed(&self, source: &OsStr, from: &Stat, sink: &Sink<'_>) -> Option<OwnedFd> {
        let Properties { owner, group, mode } = self.resolved.properties;
        let source_name = stat::stat_at(CWD, source, Follow::No).ok()?;
        let to = stat::stat_at(sink.dir(), sink.name, Follow::No).ok()?;
        let are_files = source_name.kind == FileKind::Regular && to.kind == FileKind::Regular;
        let are_plain = (mode.file | source_name.mode | to.mode) & 0o7000 == 0;
        let is_alike = are_files
            && are_plain
            && from.size == to.size
            && to.mode == mode.file
            && to.uid == owner.unwrap_or_else(|| rustix::process::getuid().as_raw())
            && to.gid == group.unwrap_or_else(|| rustix::process::getgid().as_raw())
            && (!matches!(self.resolved.contexts, Contexts::Sources { .. })
                || labels::are_alike(source, sink));
        is_alike.then(|| same_bytes(source, sink, &to)).flatten()
    }

    fn print_directory(&self, path: &OsStr) {
        if self.resolved.verbose {
            let line = format!("{}: creating directory {}", self.tool, quote(path));
            self.console.made(OsStr::new(&line));
        }
    }

    fn fail(&self, error: &dyn Display) {
        self.failures.set(self.failures.get() + 1);
        self.console.failure(error);
    }
}

/// Returns the sink, open, if it has the bytes of the source and still is the file `found`.
fn same_bytes(source: &OsStr, sink: &Sink<'_>, found: &Stat) -> Option<OwnedFd> {
    let open = |dir: BorrowedFd<'_>, name| open::open_source_at(dir, name, Follow::No, false).ok();
    let (a, b) = (open(CWD, source)?, open(sink.dir(), sink.name)?);
    let opened = stat::stat_fd(&b).ok()?;
    if opened.identity() != found.identity() {
        return None;
    }
    let of = |file: &OwnedFd, opened| file.try_clone().ok().map(|file| source_of(file, opened));
    let (a, b_file) = (of(&a, stat::stat_fd(&a).ok()?)?, of(&b, opened)?);
    let (mut block_a, mut block_b) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    for at in (0..).step_by(BLOCK_BYTES) {
        let got = a.read_at(at, &mut block_a).ok()?;
        if b_file.read_at(at, &mut block_b).ok()? != got || block_a[..got] != block_b[..got] {
            return None;
        }
        if got < BLOCK_BYTES {
            break;
        }
    }
    Some(b)
}

fn last_component(path: &OsStr) -> &OsStr {
    let bytes = path.as_bytes();
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |at| at + 1);
    let start = bytes[..end].iter().rposition(|&byte| byte == b'/').map_or(0, |at| at + 1);
    OsStr::from_bytes(&bytes[start..end])
}
