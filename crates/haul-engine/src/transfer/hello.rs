//! The beginning of a session: CONNECT, its answer, and the lanes that join.

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

/// How long the other side may be silent before CONNECT, or its answer, is there.
const HELLO_WITHIN: Duration = Duration::from_secs(30);

/// What this program calls itself on the wire.
pub(super) const AGENT: &str = concat!("haul ", env!("CARGO_PKG_VERSION"));

/// Lanes of a job that names no number, at least.
pub const LANES_UNASKED_MIN: u32 = 4;

/// Lanes of a job that names no number, at most.
pub const LANES_UNASKED_MAX: u32 = 16;

/// Round trip for which a lane is opened: what a kernel lets one connection have under way by itself is 4 MiB on most systems, so
/// that one lane carries some 300 MB a second over 10 ms, and a tenth of that over 100.
const ROUND_TRIP_OF_A_LANE: Duration = Duration::from_millis(10);

/// Files to send.
#[derive(Clone, Debug)]
pub struct SendJob {
    /// What is sent. A directory goes by its last component; with a slash at its end, what lies in it goes without it.
    pub sources: Vec<OsString>,
    /// Which names beneath them are left out.
    pub filter: Filter,
    /// Whether directories on other file systems stay empty.
    pub one_file_system: bool,
    /// The job's options.
    pub options: JobOptions,
    /// The directory beneath the other side's root that it all goes to; empty for the root itself.
    pub to: Vec<u8>,
    /// Lanes at most; `None` for as many as the path wants.
    pub lanes: Option<u32>,
    /// Bytes of objects under way at most.
    pub buffers: u64,
    /// How it goes on when it was cut off; `None` where it then begins anew.
    pub resume: Option<Resume>,
    /// What happens if the sink has less room than the job needs.
    pub check_space: CheckSpace,
}

/// Files to fetch.
#[derive(Clone, Debug)]
pub struct FetchJob {
    /// What is wanted, beneath the other side's root. As with [`SendJob::sources`], a slash at the end means the contents.
    pub paths: Vec<Vec<u8>>,
    /// The directory that it all goes to. It is made if only its last component is missing.
    pub into: OsString,
    /// Which names beneath `paths` are taken, in their order; the other side judges by them.
    pub rules: Vec<Rule>,
    /// What is taken of which files, and of no others; `None` for all that comes.
    pub parts: Option<Arc<Parts>>,
    /// The job's options.
    pub options: JobOptions,
    /// Lanes at most; `None` for as many as the path wants.
    pub lanes: Option<u32>,
    /// Bytes of objects under way at most.
    pub buffers: u64,
    /// How it goes on when it was cut off; `None` where it then begins anew.
    pub resume: Option<Resume>,
}

/// What a side that answers allows.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The directory that nothing leads out of.
    pub root: OsString,
    /// Whether files may be fetched.
    pub may_read: bool,
    /// Whether files may be sent here.
    pub may_write: bool,
    /// Lanes at most.
    pub lanes: u32,
    /// Bytes of objects under way at most.
    pub buffers: u64,
    /// Bytes that may be sent here; `None` for any number.
    pub quota: Option<u64>,
    /// What a sender may ask to be kept. Without [`Keep::SETUID`] no program gets rights by it.
    pub keep: Keep,
    /// Where it is kept what of files that are sent here can be gone on with after a session that was cut off.
    pub logs: Logs,
}

/// Why there was no session.
#[derive(Debug, Error)]
pub enum TransferError {
    /// A lane could not be opened.
    #[error("cannot reach the other side: {0}")]
    Dial(#[source] BoxError),
    /// The first lane failed.
    #[error("the connection failed before the job began: {0}")]
    Lane(#[from] LaneError),
    /// What came was no answer.
    #[error("the other side does not speak haul's protocol: {0}")]
    NotUnderstood(String),
    /// The other side said no.
    #[error("the other side refuses: {0}")]
    Refused(Reason),
    /// The other side is of an age that takes no long lists.
    #[error(
        "the haul of the other side takes {most} paths at once at most, and {asked} are asked for; bring it to this version, or \
         ask in several jobs",
        most = limits::OPERANDS_MAX
    )]
    TooMany {
        /// How many paths this job names.
        asked: usize,
    },
    /// This side said no.
    #[error("refused: {0}")]
    Denied(Reason),
    /// The other side answered with terms of its own.
    #[error("the other side wants to change {0}, which it may not; nothing was begun")]
    Changed(&'static str),
    /// Something of this side can't be had.
    #[error("cannot {doing} '{}': {}", haul_model::Percent(path), crate::sum::reason(source))]
    Here {
        /// What was tried.
        doing: &'static str,
        /// With what.
        path: Vec<u8>,
        /// Why.
        source: io::Error,
    },
    /// This side's waybill can't be begun.
    #[error(transparent)]
    Receipt(#[from] ReceiptError),
    /// Another process is at the job.
    #[error(transparent)]
    Held(LogError),
    /// The sink has less room than the job needs.
    #[error(
        "the job has {}, and the sink has room for {}; nothing is sent: free space there, or send without --check-space=refuse",
        format_size(*announced),
        format_size(*room)
    )]
    NoRoom {
        /// Bytes of the job.
        announced: u64,
        /// Free space of the sink, or what is left of the quota, in bytes.
        room: u64,
    },
    /// No randomness for the session's secret.
    #[error("the system gives no random bytes")]
    NoRandomness,
}

/// Sends files to the other side.
///
/// # Errors
/// [`TransferError`] where there was no session. Failures of files, and a session that broke, are in the [`Outcome`].
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

/// Fetches files from the other side.
///
/// # Errors
/// As [`send`].
pub fn fetch(dial: &dyn Dial, job: &FetchJob, watch: &Watch<'_>) -> Result<Outcome, TransferError> {
    if !job.options.dry_run {
        make_if_missing(&job.into).map_err(|error| here("make", job.into.as_bytes(), error))?;
    }
    let watch = &begin_receipt(watch, &job.options, || job.into.clone(), true)?;
    let wanted = Wanted::new(&job.paths)?;
    let number = session_number(&random_token()?);
    let opened = || {
        let store = match Store::open(&job.into, b"", Missing::Fails, number, None) {
            // A dry run makes nothing, not even the directory that all would go to.
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
    // Who has some of a file already is asked before any of it comes.
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
                // Why there is no session is what is told.
                let _ = log.end(store, false);
            }
            return Err(error);
        }
    };
    let owners = [&job.options, &accept.options].map(|options| options.keep.has(Keep::OWNER));
    if owners == [true, false] && process::effective_user() == 0 {
        watch.report.note("the peer does not send the owners of files (a server needs --keep-owner): all files are this user's");
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

/// Answers one session: reads what it asks on `first`, and does its part as far as `offer` allows. `more` gives further lanes
/// as they come, and does not wait for them.
///
/// # Errors
/// As [`send`]; a refusal was told to the other side as well.
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
        other => return Err(TransferError::NotUnderstood(format!("{} came first", other.name()))),
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
        // What is wrong with a file of this host is not for the other side to know.
        let told = Reason::new(Why::Io, "no waybill can be written there");
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
            // Whether it hears that or not, it is refused.
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
            // That the other side is gone is what is told.
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

/// Begins the waybill, if this side writes one of the job; paths in it are relative to `root`.
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

/// A directory beneath the root that is opened, for people to read.
fn beneath(root: &OsStr, path: &[u8]) -> OsString {
    let root = root.as_bytes();
    let slash: &[u8] = if path.is_empty() || root.ends_with(b"/") { b"" } else { b"/" };
    OsString::from_vec([root, slash, path].concat())
}

/// What the answering side will be.
enum Part {
    /// Where it goes to, and the directory beneath the root that was asked for.
    Sink(Box<Store>, Vec<u8>),
    /// What is wanted of it, or the root that it lies beneath where it is told later.
    Source(Vec<Operand>, Filter, Option<Arc<OwnedFd>>),
}

/// What CONNECT asks for.
struct Asked<'a> {
    role: Role,
    options: &'a JobOptions,
    wanted: Wanted,
    rules: &'a [Rule],
    job: [u8; 16],
    log: Option<LogWish>,
    resumes: bool,
}

/// Connects by the first lane.
fn connect(dial: &dyn Dial, asked: &Asked<'_>, window: Window) -> Result<(Accept, Joined), TransferError> {
    let mut first = Joined::new(CONTROL, dial.lane(0).map_err(TransferError::Dial)?);
    // Asked for only where it is needed: who does not know it says so, and all else goes on.
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

/// How many lanes the path of the first one wants.
fn lanes_for(first: &LaneControl) -> u32 {
    lanes_of_round_trip(first.tcp().map_or(Duration::ZERO, |tcp| tcp.shortest_round_trip))
}

fn lanes_of_round_trip(round_trip: Duration) -> u32 {
    let wanted = round_trip.as_micros() / ROUND_TRIP_OF_A_LANE.as_micros();
    u32::try_from(wanted).unwrap_or(u32::MAX).clamp(LANES_UNASKED_MIN, LANES_UNASKED_MAX)
}

/// Does the work of a session while as many further lanes are opened as both sides want, all at once: each takes three round
/// trips, and nothing waits for them. The first lane does the job as well, only slower, so that what can't be opened is left,
/// and what is not open when the work is done is given up.
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
                    // Where the work is over by now, the lane ends here.
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

/// The next message of a lane on which nothing but the hello was said.
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

/// As many files under way as descriptors allow, and as many bytes as are asked for.
fn window(buffers: u64) -> Window {
    // Best effort: what can't be raised is kept to.
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

/// What tells a session's temporary names from others'. Nobody learns the token from it who may not see the directory.
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
