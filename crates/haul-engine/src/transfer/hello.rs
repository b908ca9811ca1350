//! Start of a session: CONNECT, its answer, and the lanes that join.

use super::frames::{FrameError, Frames};
use super::logged::{self, Logs, Shelf, keeping};
use super::parts::Parts;
use super::receipt::ReceiptError;
use super::report::Watch;
use super::resume::{self, Resume};
use super::sink::{self, Keeping, Missing, Opening, Store};
use super::source::{self, Filter, Operand, Rule, Tree};
use super::space::{self, CheckSpace};
use super::terms::{agree, hold};
use super::wanted::{self, Wanted, relative};
use super::{BoxError, Dial, Joined, Outcome, joining};
use crate::copy::quote;
use crate::log::LogError;
use haul_model::format_size;
use haul_net::{Lane, LaneControl, LaneError};
use haul_proto::{
    Accept, CONTROL, Connect, Features, JobOptions, Join, Keep, LaneId, LogWish, Message, PeerText, Reason,
    Role, SESSION_TOKEN_BYTES, Timing, VERSION, Why, Window, limits,
};
use haul_sys::dir::CWD;
use haul_sys::open::mkdir_at;
use haul_sys::process;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;
use thiserror::Error;

/// Maximum time that the peer may be silent before CONNECT, or its answer, has arrived.
const HELLO_WITHIN: Duration = Duration::from_secs(30);

/// Name of this program on the wire.
pub(super) const AGENT: &str = concat!("haul ", env!("CARGO_PKG_VERSION"));

/// Minimum number of lanes of a job that does not set a number.
pub const LANES_UNASKED_MIN: u32 = 4;

/// Maximum number of lanes of a job that does not set a number.
pub const LANES_UNASKED_MAX: u32 = 16;

/// Round-trip time per lane. On most systems one connection has at most 4 MiB in flight. One lane
/// thus carries about 300 MB/s over 10 ms, and a tenth of that over 100 ms.
const ROUND_TRIP_OF_A_LANE: Duration = Duration::from_millis(10);

/// A job that sends files.
#[derive(Clone, Debug)]
pub struct SendJob {
    /// Paths to send. A directory keeps its last component. A trailing slash sends only its
    /// contents.
    pub sources: Vec<OsString>,
    /// Filter of names beneath the sources.
    pub filter: Filter,
    /// True if directories on other file systems stay empty.
    pub one_file_system: bool,
    /// Options of the job.
    pub options: JobOptions,
    /// Destination directory beneath the peer's root; empty for the root itself.
    pub to: Vec<u8>,
    /// Maximum number of lanes; `None` to choose by the round-trip time.
    pub lanes: Option<u32>,
    /// Maximum number of bytes of objects in flight.
    pub buffers: u64,
    /// Resume settings; `None` if an interrupted job starts from the beginning.
    pub resume: Option<Resume>,
    /// Action if the sink has less space than the job needs.
    pub check_space: CheckSpace,
}

/// A job that fetches files.
#[derive(Clone, Debug)]
pub struct FetchJob {
    /// Paths beneath the peer's root. A trailing slash means the contents, as in
    /// [`SendJob::sources`].
    pub paths: Vec<Vec<u8>>,
    /// Destination directory. It is created if only its last component is missing.
    pub into: OsString,
    /// Rules for names beneath `paths`, in order. The peer applies them.
    pub rules: Vec<Rule>,
    /// Accepted parts of the accepted files; `None` to accept everything.
    pub parts: Option<Arc<Parts>>,
    /// Options of the job.
    pub options: JobOptions,
    /// Maximum number of lanes; `None` to choose by the round-trip time.
    pub lanes: Option<u32>,
    /// Maximum number of bytes of objects in flight.
    pub buffers: u64,
    /// Resume settings; `None` if an interrupted job starts from the beginning.
    pub resume: Option<Resume>,
}

/// Limits that an answering side sets.
#[derive(Clone, Debug)]
pub struct Offer {
    /// Root directory. No path leads out of it.
    pub root: OsString,
    /// True if the peer may fetch files.
    pub may_read: bool,
    /// True if the peer may send files.
    pub may_write: bool,
    /// Maximum number of lanes.
    pub lanes: u32,
    /// Maximum number of bytes of objects in flight.
    pub buffers: u64,
    /// Maximum number of bytes that the peer may send; `None` for no limit.
    pub quota: Option<u64>,
    /// Metadata that a job may preserve. Without [`Keep::SETUID`] no program gains rights by it.
    pub keep: Keep,
    /// Location of the logs from which interrupted uploads resume.
    pub logs: Logs,
}

/// Error that prevented a session.
#[derive(Debug, Error)]
pub enum TransferError {
    /// A lane could not be opened.
    #[error("cannot connect to the remote host: {0}")]
    Dial(#[source] BoxError),
    /// The first lane failed.
    #[error("connection failed before the job started: {0}")]
    Lane(#[from] LaneError),
    /// The received message is not an answer.
    #[error("unexpected message from the remote host: {0}; install the same version on both hosts")]
    NotUnderstood(String),
    /// The peer refused the job.
    #[error("refused by the remote host: {0}")]
    Refused(Reason),
    /// The peer runs a version that does not accept long lists.
    #[error(
        "cannot request {asked} paths in one job: the haul of the remote host accepts at most {most}; update it, or use \
         several jobs",
        most = limits::OPERANDS_MAX
    )]
    TooMany {
        /// Number of paths that this job names.
        asked: usize,
    },
    /// This side refused the job.
    #[error("refused: {0}")]
    Denied(Reason),
    /// The peer's answer changes the job.
    #[error(
        "job not started: the remote host changed {0} of the request; install the same version on both hosts"
    )]
    Changed(&'static str),
    /// A local file or directory cannot be opened or created.
    #[error("cannot {doing} '{}': {}", haul_model::Percent(path), crate::sum::reason(source))]
    Here {
        /// Attempted action.
        doing: &'static str,
        /// Path of the file or directory.
        path: Vec<u8>,
        /// Cause.
        source: io::Error,
    },
    /// The waybill of this side cannot be started.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// Another process or session runs the job.
    #[error(transparent)]
    Held(LogError),
    /// The sink has less space than the job needs.
    #[error(
        "nothing sent: the job has {}, and the receiver has {} of free space; free space there, or omit --check-space=refuse",
        format_size(*announced),
        format_size(*room)
    )]
    NoRoom {
        /// Size of the job in bytes.
        announced: u64,
        /// Free space of the sink, or what the quota leaves, in bytes.
        room: u64,
    },
    /// No random bytes for the session token are available.
    #[error("cannot read random bytes from the system")]
    NoRandomness,
}

/// Sends files to the peer.
///
/// # Errors
/// Returns a [`TransferError`] if no session starts. The [`Outcome`] holds failures of files and of
/// the session.
pub fn send(dial: &dyn Dial, job: &SendJob, watch: &Watch<'_>) -> Result<Outcome, TransferError> {
    let operand = |source: &OsString| {
        let operand = Operand::local(source);
        operand.check().map(|()| operand).map_err(|error| here("open", source.as_bytes(), error))
    };
    let operands = job.sources.iter().map(operand).collect::<Result<Vec<_>, _>>()?;
    let watch = &begin_receipt(watch, &job.options, || source::directories(&job.sources), false)?;
    let resume = job.resume.as_ref().filter(|_| resume::is_logged(&job.options));
    let options = JobOptions { budget: space::announced(job), ..job.options.clone() };
    let asked = Asked {
        role: Role::Source,
        options: &options,
        wanted: Wanted::new(std::slice::from_ref(&job.to))?,
        rules: &[],
        job: resume.map_or([0; 16], |resume| resume.job(Role::Source, &job.options, &job.sources)),
        log: resume.map(|resume| resume.wish(watch.receipt.is_some())),
        resumes: false,
    };
    let window = window(job.buffers);
    let (accept, first) = connect(dial, &asked, window)?;
    space::check(job, options.budget, accept.options.budget, watch)?;
    let settings = source_settings(accept.options.clone(), window.least(accept.window), accept.resumes);
    let tree = Tree::new(operands, job.filter.clone(), job.one_file_system);
    let lanes = job.lanes.unwrap_or_else(|| lanes_for(&first.control));
    Ok(beside(dial, &accept, lanes, |more| source::run(settings, vec![first], Some(more), tree, watch)))
}

/// Fetches files from the peer.
///
/// # Errors
/// Same as [`send`].
pub fn fetch(dial: &dyn Dial, job: &FetchJob, watch: &Watch<'_>) -> Result<Outcome, TransferError> {
    if !job.options.dry_run {
        make_if_missing(&job.into).map_err(|error| here("create", job.into.as_bytes(), error))?;
    }
    let watch = &begin_receipt(watch, &job.options, || job.into.clone(), true)?;
    let wanted = Wanted::new(&job.paths)?;
    let number = session_number(&random_token()?);
    let opened = || {
        let store = match Store::open(&job.into, b"", Missing::Fails, number, None) {
            // A dry run creates nothing, not even the destination directory.
            Err(error) if job.options.dry_run && error.kind() == io::ErrorKind::NotFound => {
                is_makeable(&job.into).then(|| Store::absent(number, None)).ok_or(error)
            }
            opened => opened,
        };
        store.map(|store| store.expecting(&job.paths).taking(job.parts.clone()))
    };
    let resume = job.resume.as_ref().filter(|_| resume::is_logged(&job.options));
    let (mut store, mut log, mut name) = (None, None, [0; 16]);
    if let Some(resume) = resume {
        name = resume.job(Role::Sink, &job.options, std::slice::from_ref(&job.into));
        let store = store.insert(opened().map_err(|error| here("open", job.into.as_bytes(), error))?);
        let opening = Opening {
            shelf: Shelf::Own(&resume.state),
            job: name,
            root: Path::new(&job.into),
            options: &job.options,
            settings: resume.settings,
            recheck: resume.recheck,
            target: None,
            command: resume.command,
            stop: watch.stop,
        };
        log = keeping(opening, store, watch)?;
    }
    // If this side has parts of files already, the source must ask before it sends.
    let resumes = job.parts.is_some() || log.as_ref().is_some_and(Keeping::resumes);
    let asked = Asked {
        role: Role::Sink,
        options: &job.options,
        wanted,
        rules: &job.rules,
        job: name,
        log: None,
        resumes,
    };
    let window = window(job.buffers);
    let connected = connect(dial, &asked, window);
    let (accept, first) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            if let (Some(log), Some(store)) = (log, &store) {
                // Ignore an error: the caller reports why there is no session.
                let _ = log.end(store, false);
            }
            return Err(error);
        }
    };
    let owners = [&job.options, &accept.options].map(|options| options.keep.has(Keep::OWNER));
    if owners == [true, false] && process::effective_user() == 0 {
        watch.report.note("the remote host does not send file owners: all files belong to this user; a server needs --keep-owner");
    }
    let store = match store {
        Some(store) => store,
        None => opened().map_err(|error| here("open", job.into.as_bytes(), error))?,
    };
    let settings = sink_settings(accept.options.clone(), window.least(accept.window));
    let store = (store, log);
    let lanes = job.lanes.unwrap_or_else(|| lanes_for(&first.control));
    Ok(beside(dial, &accept, lanes, |more| sink::run(settings, vec![first], Some(more), store, watch)))
}

/// Answers one session: reads its request from `first`, and does its part within the limits of
/// `offer`. `more` returns additional lanes that have arrived, and does not wait for them.
///
/// # Errors
/// Same as [`send`]. A refusal was also sent to the peer.
pub fn answer(
    first: Lane,
    more: &mut dyn FnMut() -> Option<Lane>,
    offer: &Offer,
    watch: &Watch<'_>,
) -> Result<Outcome, TransferError> {
    let mut first = Joined::new(CONTROL, first);
    first.frames.within(Some(HELLO_WITHIN));
    let asked = match read(&mut first.frames)? {
        Message::Connect(connect) => *connect,
        other => return Err(TransferError::NotUnderstood(format!("{} as the first message", other.name()))),
    };
    first.frames.within(None);
    let token = random_token()?;
    let window = window(offer.buffers);
    let agreed = agree(&asked, offer, window, token);
    let prepared = agreed.and_then(|accept| match asked.role {
        Role::Source => {
            let into = asked.operands.first().map_or(&b""[..], |operand| operand);
            let into = relative(into)?;
            let (number, dry_run) = (session_number(&token), asked.options.dry_run);
            let store = Store::to_fill(&offer.root, &into, dry_run, number, offer.quota);
            let store = store.map_err(|error| {
                let doing = format!("cannot open the directory {}", quote(OsStr::from_bytes(&into)));
                super::reason::reason(&doing, &error)
            })?;
            Ok((accept, Part::Sink(Box::new(store), into)))
        }
        Role::Sink => {
            let root = wanted::root(offer)?;
            let is_told_later = accept.features.has(Features::OPERANDS);
            let operands = if is_told_later { Vec::new() } else { wanted::named(&root, &asked.operands)? };
            let filter = Filter::asked(&asked.rules)
                .map_err(|error| Reason::new(Why::Unsupported, &error.to_string()))?;
            Ok((accept, Part::Source(operands, filter, is_told_later.then_some(root))))
        }
    });
    let prepared = prepared.map_err(|reason| (reason.clone(), TransferError::Denied(reason)));
    let begun = prepared.and_then(|(accept, part)| {
        let is_sink = asked.role == Role::Source;
        let into = asked.operands.first().filter(|_| is_sink);
        let root = || beneath(&offer.root, into.map_or(&b""[..], |into| into));
        // The peer must not learn details of a failure with a local file.
        let told = Reason::new(Why::Io, "cannot write its waybill");
        let watch = begin_receipt(watch, &accept.options, root, is_sink).map_err(|error| (told, error))?;
        let log = match &part {
            Part::Sink(store, into) => {
                let root = PathBuf::from(beneath(&offer.root, into));
                let log = logged::answered(&asked, offer, store, (&root, into), &watch);
                log.map_err(|error| (offer.logs.busy(&error), error))?
            }
            Part::Source(..) => None,
        };
        Ok((accept, part, (watch, log)))
    });
    let (mut accept, part, (watch, log)) = match begun {
        Ok(begun) => begun,
        Err((reason, error)) => {
            // Ignore an error: the job is refused in any case.
            let _ = first.outbox.push(&Message::Refuse(reason)).and_then(|()| first.outbox.finish());
            return Err(error);
        }
    };
    let watch = &watch;
    accept.resumes = log.as_ref().is_some_and(Keeping::resumes);
    if let Part::Sink(store, _) = &part
        && !accept.resumes
    {
        space::lower(&mut accept.options, store);
    }
    let accepted = first.outbox.push(&Message::Accept(Box::new(accept.clone())));
    if let Err(error) = accepted.and_then(|()| first.outbox.flush()) {
        if let (Some(log), Part::Sink(store, _)) = (log, &part) {
            // Ignore an error: the caller reports that the peer is gone.
            let _ = log.end(store, false);
        }
        return Err(error.into());
    }
    let window = window.least(asked.window);
    let terms = joining::Terms { token, lanes: accept.lanes };
    match part {
        Part::Sink(store, _) => {
            let settings = sink_settings(accept.options, window);
            let run = |more: &mut dyn FnMut() -> Option<Joined>| {
                sink::run(settings, vec![first], Some(more), (*store, log), watch)
            };
            Ok(joining::beside(more, terms, run))
        }
        Part::Source(mut operands, filter, later) => {
            if let Some(root) = later {
                first.frames.within(Some(HELLO_WITHIN));
                operands = wanted::heard(&root, &mut first.frames, &mut first.outbox)?;
                first.frames.within(None);
            }
            let settings = source_settings(accept.options, window, asked.resumes);
            let tree = Tree::new(operands, filter, false);
            let run = |more: &mut dyn FnMut() -> Option<Joined>| {
                source::run(settings, vec![first], Some(more), tree, watch)
            };
            Ok(joining::beside(more, terms, run))
        }
    }
}

/// Starts the waybill, if this side writes one of the job. Paths in it are relative to `root`.
fn begin_receipt<'a>(
    watch: &Watch<'a>,
    options: &JobOptions,
    root: impl FnOnce() -> OsString,
    is_sink: bool,
) -> Result<Watch<'a>, TransferError> {
    let receipt = watch.receipt.filter(|_| !options.dry_run);
    if let Some(receipt) = receipt {
        receipt.begin(&root(), options.delete && is_sink)?;
    }
    Ok(Watch { receipt, ..*watch })
}

/// Returns the path of a directory beneath the root, for messages.
fn beneath(root: &OsStr, path: &[u8]) -> OsString {
    let root = root.as_bytes();
    let slash: &[u8] = if path.is_empty() || root.ends_with(b"/") { b"" } else { b"/" };
    OsString::from_vec([root, slash, path].concat())
}

/// Role of the answering side.
enum Part {
    /// Destination, and the requested directory beneath the root.
    Sink(Box<Store>, Vec<u8>),
    /// Requested operands and filter, or the root for operands that arrive after ACCEPT.
    Source(Vec<Operand>, Filter, Option<Arc<OwnedFd>>),
}

/// Request for CONNECT.
struct Asked<'a> {
    role: Role,
    options: &'a JobOptions,
    wanted: Wanted,
    rules: &'a [Rule],
    job: [u8; 16],
    log: Option<LogWish>,
    resumes: bool,
}

/// Connects over the first lane.
fn connect(dial: &dyn Dial, asked: &Asked<'_>, window: Window) -> Result<(Accept, Joined), TransferError> {
    let mut first = Joined::new(CONTROL, dial.lane(0).map_err(TransferError::Dial)?);
    // Request the feature only if the job needs it, because an old peer refuses unknown features.
    let needs = if asked.wanted.is_long() { Features::OPERANDS } else { Features::default() };
    let connect = Message::Connect(Box::new(Connect {
        versions: (VERSION, VERSION),
        offers: needs,
        needs,
        role: asked.role,
        job: asked.job,
        options: asked.options.clone(),
        window,
        operands: asked.wanted.in_connect(),
        agent: PeerText::new(AGENT),
        rules: asked.rules.iter().map(Rule::to_wire).collect(),
        log: asked.log,
        resumes: asked.resumes,
    }));
    connect.check().map_err(|flaw| TransferError::Denied(Reason::new(Why::TooLarge, &flaw.to_string())))?;
    first.outbox.push(&connect)?;
    first.outbox.flush()?;
    first.frames.within(Some(HELLO_WITHIN));
    let accept = match read(&mut first.frames)? {
        Message::Accept(accept) => *accept,
        Message::Refuse(reason) if reason.why == Why::Feature && asked.wanted.is_long() => {
            return Err(TransferError::TooMany { asked: asked.wanted.count() });
        }
        Message::Refuse(reason) => return Err(TransferError::Refused(reason)),
        other => return Err(TransferError::NotUnderstood(format!("{} instead of an answer", other.name()))),
    };
    first.frames.within(None);
    hold(asked.options, &accept.options).map_err(TransferError::Changed)?;
    if !accept.features.has(needs) {
        return Err(TransferError::TooMany { asked: asked.wanted.count() });
    }
    asked.wanted.tell(&mut first.outbox)?;
    Ok((accept, first))
}

/// Returns the number of lanes for the round-trip time of the first lane.
fn lanes_for(first: &LaneControl) -> u32 {
    lanes_of_round_trip(first.tcp().map_or(Duration::ZERO, |tcp| tcp.shortest_round_trip))
}

fn lanes_of_round_trip(round_trip: Duration) -> u32 {
    let wanted = round_trip.as_micros() / ROUND_TRIP_OF_A_LANE.as_micros();
    u32::try_from(wanted).unwrap_or(u32::MAX).clamp(LANES_UNASKED_MIN, LANES_UNASKED_MAX)
}

/// Runs `work` and meanwhile opens as many lanes as both sides want, all concurrently. Each takes
/// three round trips, and nothing waits for them. The first lane can do the job alone, only more
/// slowly. A lane that cannot be opened is ignored, and opening stops when the work is done.
fn beside<T>(
    dial: &dyn Dial,
    accept: &Accept,
    lanes: u32,
    work: impl FnOnce(&mut dyn FnMut() -> Option<Joined>) -> T,
) -> T {
    let (give, take) = channel();
    thread::scope(|scope| {
        for number in 1..lanes.min(accept.lanes) {
            let give = give.clone();
            let open = move || {
                let joined = dial.lane(number).and_then(|lane| -> Result<_, BoxError> {
                    let mut lane = Joined::new(LaneId(number), lane);
                    lane.outbox.push(&Message::Join(Join { token: accept.token, lane: lane.id }))?;
                    lane.outbox.flush()?;
                    Ok(lane)
                });
                if let Ok(lane) = joined {
                    // Ignore an error: if the work is done, the lane ends here.
                    let _ = give.send(lane);
                }
            };
            if thread::Builder::new().spawn_scoped(scope, open).is_err() {
                // The session uses the lanes that it has.
                break;
            }
        }
        let done = work(&mut || take.try_recv().ok());
        dial.give_up();
        done
    })
}

/// Returns the next message of a lane during the handshake.
pub(super) fn read(frames: &mut Frames) -> Result<Message, TransferError> {
    match frames.next() {
        Ok(Some(message)) => Ok(message),
        Ok(None) => Err(TransferError::Lane(LaneError::Ended)),
        Err(FrameError::Lane(error)) => Err(TransferError::Lane(error)),
        Err(FrameError::Flaw(flaw)) => Err(TransferError::NotUnderstood(flaw.to_string())),
    }
}

fn source_settings(options: JobOptions, window: Window, asks: bool) -> haul_proto::source::Settings {
    let (timing, tries) = (Timing::default(), limits::TRIES_MAX);
    haul_proto::source::Settings { options, window, timing, tries, asks }
}

fn sink_settings(options: JobOptions, window: Window) -> haul_proto::sink::Settings {
    haul_proto::sink::Settings { options, window, timing: Timing::default(), tries: limits::TRIES_MAX }
}

/// Returns the window: as many files as the descriptor limit allows, and `buffers` bytes.
fn window(buffers: u64) -> Window {
    // If the limit cannot be raised, use the current one.
    let limit = process::raise_open_file_limit().unwrap_or_else(|_| process::open_file_limit());
    let most = u32::try_from(limit / 3).unwrap_or(u32::MAX);
    let usual = Window::default();
    Window { files: usual.files.min(most).max(1), facts: usual.facts, bytes: buffers.max(1) }
}

fn random_token() -> Result<[u8; SESSION_TOKEN_BYTES], TransferError> {
    let mut token = [0; SESSION_TOKEN_BYTES];
    aws_lc_rs::rand::fill(&mut token).map_err(|_| TransferError::NoRandomness)?;
    Ok(token)
}

/// Returns the number in a session's temporary names. It does not reveal the token.
fn session_number(token: &[u8; SESSION_TOKEN_BYTES]) -> u64 {
    let hash = haul_digest::digest(haul_digest::Algorithm::Blake3, token);
    let mut number = [0; 8];
    number.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(number)
}

fn make_if_missing(path: &OsStr) -> io::Result<()> {
    match mkdir_at(CWD, path, 0o777) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Returns true if the parent directory, in which [`make_if_missing`] would make it, exists.
fn is_makeable(path: &OsStr) -> bool {
    let above = Path::new(path).parent();
    above.is_some_and(|above| above.as_os_str().is_empty() || above.is_dir())
}

fn here(doing: &'static str, path: &[u8], source: io::Error) -> TransferError {
    TransferError::Here { doing, path: path.to_vec(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paths_want_more_lanes() {
        for (millis, lanes) in [(0, 4), (30, 4), (50, 5), (89, 8), (200, 16), (5000, 16)] {
            assert_eq!(lanes_of_round_trip(Duration::from_millis(millis)), lanes, "{millis} ms");
        }
    }
}
