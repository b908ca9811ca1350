//! Start of a session: CONNECT, its answer, and the lanes that join.

use super::descriptors::DescriptorGrant;
use super::error::TransferError;
use super::jobs::{AGENT, FetchJob, HANDSHAKE_TIMEOUT, Offer, SendJob, read};
use super::logged::{self, open_log, target};
use super::logs::LogLocation;
use super::opening::{Lanes, beside};
use super::report::RunContext;
use super::resume;
use super::sink::{self, Destination, SinkLog, SinkLogConfig};
use super::source::{self, Filter, Operand, Rule, Tree};
use super::space;
use super::terms::{agree, hold};
use super::wanted::{self, RequestedPaths, relative};
use super::{Dial, Joined, Outcome, joining, listing};
use crate::copy::quote;
use haul_digest::DigestKey;
use haul_model::Level;
use haul_net::{Kind, Lane};
use haul_proto::{
    Accept, CONTROL, Connect, Features, JobOptions, Keep, LogRequest, Message, PeerText, Reason, Role,
    SESSION_TOKEN_BYTES, Timing, VERSION, Why, Window, check_accepted, check_received, limits,
};
use haul_storage::{Dir, open_parent};
use haul_sys::process;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Sends files to the peer.
///
/// # Errors
/// Returns a [`TransferError`] if no session starts. The [`Outcome`] holds failures of files and of
/// the session.
pub fn send(dial: &dyn Dial, job: &SendJob, run_context: &RunContext<'_>) -> Result<Outcome, TransferError> {
    // A sink removes the temporary files of all files that the source no longer offers.
    let offered = if job.forgets { &[][..] } else { &job.sources };
    let mut operands: Vec<Operand> = Vec::new();
    for source in offered {
        let operand = Operand::of_host(&job.storage, source);
        // Many operands may be in one directory.
        if operands.last().is_none_or(|last| last.place_path() != operand.place_path()) {
            operand.check().map_err(|error| here("open", source.as_bytes(), error))?;
        }
        operands.push(operand);
    }
    let run_context = &begin_receipt(run_context, &job.options, || source::directories(&job.sources), false)?;
    let resume = job.resume.as_ref().filter(|_| resume::is_logged(&job.options));
    let options = match job.forgets {
        true => JobOptions { budget: 0, delete: false, ..job.options.clone() },
        false => JobOptions { budget: space::announced(job), ..job.options.clone() },
    };
    let request = Request {
        role: Role::Source,
        options: &options,
        wanted: RequestedPaths::new(std::slice::from_ref(&job.to))?,
        rules: &[],
        job: resume.map_or([0; 16], |resume| resume.job(Role::Source, &job.options, &job.sources)),
        log: resume.map(|resume| resume.log_request(run_context.receipt.is_some())),
        resumes: false,
    };
    let (window, _descriptors) = window(job.buffers, 1, 0).ok_or(TransferError::NoDescriptors)?;
    let (accept, first) = connect(dial, &request, window)?;
    if !job.forgets {
        space::check(job, options.budget, accept.options.budget, run_context)?;
    }
    let (settings, key) = source_settings(&accept, window.least(accept.window), accept.resumes);
    let has_sums = accept.options.keep.has(Keep::STORED_SUMS);
    let tree = Tree::new(operands, job.filter.clone(), job.one_file_system).with_stored_sums(has_sums);
    let lanes = Lanes::of(job.lanes, &first);
    Ok(beside(dial, &accept, lanes, |more| {
        source::run(settings, key, vec![first], Some(more), tree, run_context)
    }))
}

/// Fetches files from the peer.
///
/// # Errors
/// Same as [`send`].
pub fn fetch(
    dial: &dyn Dial,
    job: &FetchJob,
    run_context: &RunContext<'_>,
) -> Result<Outcome, TransferError> {
    if !job.options.dry_run {
        create_if_missing(job).map_err(|error| here("create", job.into.as_bytes(), error))?;
    }
    let run_context = &begin_receipt(run_context, &job.options, || job.into.clone(), true)?;
    let wanted = RequestedPaths::new(&job.paths)?;
    // The peer applies the rules too, but this side does not rely on that.
    // With parts, only requested parts are accepted anyway.
    let rules = if job.parts.is_some() { &[][..] } else { &job.rules };
    let filter = Filter::new(rules)
        .map_err(|error| TransferError::Denied(Reason::new(Why::Unsupported, &error.to_string())))?;
    let number = session_number(&random_token()?);
    let (window, _descriptors) = window(job.buffers, 1, 0).ok_or(TransferError::NoDescriptors)?;
    let opened = || {
        let destination = match Destination::open(&job.into, b"", number, None) {
            // A dry run creates nothing, not even the destination directory.
            Err(error) if job.options.dry_run && error.kind() == io::ErrorKind::NotFound => {
                can_create(&job.into).then(|| Destination::absent(number, None)).ok_or(error)
            }
            opened => opened,
        };
        destination.map(|destination| {
            destination
                .restrict_to_paths(&job.paths, filter.clone())
                .restrict_to_parts(job.parts.clone())
                .accepting(job.policy)
                .keeping(job.options.keep)
        })
    };
    let resume = job.resume.as_ref().filter(|_| resume::is_logged(&job.options));
    let (mut destination, mut log, mut name) = (None, None, [0; 16]);
    if let Some(resume) = resume {
        name = resume.job(Role::Sink, &job.options, std::slice::from_ref(&job.into));
        let destination =
            destination.insert(opened().map_err(|error| here("open", job.into.as_bytes(), error))?);
        let config = SinkLogConfig {
            location: LogLocation::Own(&resume.state),
            job: name,
            root: Path::new(&job.into),
            options: &job.options,
            settings: resume.settings,
            recheck: resume.recheck,
            target: target(LogLocation::Own(&resume.state), Path::new(&job.into), b"", job.options.object),
            command: resume.command,
            stop: run_context.stop,
        };
        log = open_log(config, destination, run_context)?;
    }
    // If this side has parts of files already, the source must ask before it sends.
    let resumes = job.parts.is_some() || log.as_ref().is_some_and(SinkLog::resumes);
    let request = Request {
        role: Role::Sink,
        options: &job.options,
        wanted,
        rules: &job.rules,
        job: name,
        log: None,
        resumes,
    };
    let connected = connect(dial, &request, window);
    let (accept, first) = match connected {
        Ok(connected) => connected,
        Err(error) => {
            if let (Some(log), Some(destination)) = (log, &destination) {
                // Ignore an error: the caller reports why there is no session.
                let _ = log.end(destination, false);
            }
            return Err(error);
        }
    };
    let owners = [&job.options, &accept.options].map(|options| options.keep.has(Keep::OWNER));
    if owners == [true, false] && process::effective_user() == 0 {
        run_context.report.note("the remote host does not send file owners: all files belong to this user; a server needs --keep-owner");
    }
    let destination = match destination {
        Some(destination) => destination,
        None => opened().map_err(|error| here("open", job.into.as_bytes(), error))?,
    };
    let (settings, key) = sink_settings(&accept, window.least(accept.window));
    let lanes = Lanes::of(job.lanes, &first);
    Ok(beside(dial, &accept, lanes, |more| {
        sink::run(settings, key, vec![first], Some(more), destination, log, run_context)
    }))
}

/// Answers one session: reads its request from `first`, and does its part, or lists a directory,
/// within the limits of `offer`. `more` returns additional lanes that have arrived, and does not
/// wait for them.
///
/// # Errors
/// Same as [`send`]. A refusal was also sent to the peer.
pub fn answer(
    first: Box<dyn Lane>,
    more: &mut dyn FnMut() -> Option<Box<dyn Lane>>,
    offer: &Offer,
    run_context: &RunContext<'_>,
) -> Result<Outcome, TransferError> {
    let mut first = Joined::new(CONTROL, first);
    first.frames.set_stall(Some(HANDSHAKE_TIMEOUT));
    let request = match read(&mut *first.frames)? {
        Message::Connect(connect) => *connect,
        other => return Err(TransferError::NotUnderstood(format!("{} as the first message", other.name()))),
    };
    first.frames.set_stall(None);
    let token = random_token()?;
    let udp_lanes = if matches!(first.control.kind(), Kind::Udp | Kind::Quic) { offer.lanes } else { 0 };
    let Some((window, _descriptors)) = window(offer.buffers, offer.sessions, udp_lanes) else {
        let reason = Reason::new(Why::Busy, "the server has too few file descriptors for another session");
        // Ignore an error: the job is refused in any case.
        let _ = first.outbox.push(&Message::Refuse(reason)).and_then(|()| first.outbox.finish());
        return Err(TransferError::NoDescriptors);
    };
    let agreed = agree(&request, offer, window, token);
    if request.needs.has(Features::LISTING) {
        return listing::answer(first, agreed.err(), &request, offer, run_context);
    }
    let prepared = agreed.and_then(|accept| match request.role {
        Role::Source => {
            let into = request.operands.first().map_or(&b""[..], |operand| operand);
            let into = relative(into)?;
            if !into.is_empty() {
                let has_sums = accept.options.keep.has(Keep::STORED_SUMS);
                let checked = if has_sums { check_accepted(&into) } else { check_received(&into) };
                checked.map_err(|fault| Reason::new(Why::Name, &fault.to_string()))?;
            }
            let (number, dry_run) = (session_number(&token), request.options.dry_run);
            let destination = Destination::open_or_create(offer, &into, dry_run, number);
            let destination = destination.map_err(|error| {
                let doing = format!("cannot open the directory {}", quote(OsStr::from_bytes(&into)));
                super::reason::reason(&doing, &error)
            })?;
            let destination =
                destination.accepting(offer.policy).keeping(accept.options.keep).hidden(!offer.may_list);
            Ok((accept, Part::Sink(Box::new(destination), into)))
        }
        Role::Sink => {
            let root = wanted::root(offer)?;
            let is_told_later = accept.features.has(Features::OPERANDS);
            let operands = if is_told_later { Vec::new() } else { wanted::named(&root, &request.operands)? };
            let filter = Filter::from_wire(&request.rules)
                .map_err(|error| Reason::new(Why::Unsupported, &error.to_string()))?;
            Ok((accept, Part::Source(operands, filter, is_told_later.then_some(root))))
        }
    });
    let prepared = prepared.map_err(|reason| (reason.clone(), TransferError::Denied(reason)));
    let begun = prepared.and_then(|(accept, part)| {
        let is_sink = request.role == Role::Source;
        let into = request.operands.first().filter(|_| is_sink);
        let root = || beneath(&offer.root, into.map_or(&b""[..], |into| into));
        // The peer must not learn details of a failure with a local file.
        let told = Reason::new(Why::Io, "cannot write its waybill");
        let run_context =
            begin_receipt(run_context, &accept.options, root, is_sink).map_err(|error| (told, error))?;
        let log = match &part {
            Part::Sink(destination, into) => {
                let root = PathBuf::from(beneath(&offer.root, into));
                let log = logged::open_log_of_upload(&request, offer, destination, &root, into, &run_context);
                log.map_err(|error| (offer.logs.busy(&error), error))?
            }
            Part::Source(..) => None,
        };
        Ok((accept, part, (run_context, log)))
    });
    let (mut accept, part, (run_context, log)) = match begun {
        Ok(begun) => begun,
        Err((reason, error)) => {
            // Ignore an error: the job is refused in any case.
            let _ = first.outbox.push(&Message::Refuse(reason)).and_then(|()| first.outbox.finish());
            return Err(error);
        }
    };
    let run_context = &run_context;
    accept.resumes = log.as_ref().is_some_and(SinkLog::resumes);
    if let Part::Sink(destination, _) = &part
        && !accept.resumes
    {
        space::lower(&mut accept.options, destination);
    }
    let accepted = first.outbox.push(&Message::Accept(Box::new(accept.clone())));
    if let Err(error) = accepted.and_then(|()| first.outbox.flush()) {
        if let (Some(log), Part::Sink(destination, _)) = (log, &part) {
            // Ignore an error: the caller reports that the peer is gone.
            let _ = log.end(destination, false);
        }
        return Err(error.into());
    }
    let window = window.least(request.window);
    let terms = joining::Terms { token, lanes: accept.lanes, has_udp: udp_lanes > 0 };
    match part {
        Part::Sink(destination, _) => {
            let (settings, key) = sink_settings(&accept, window);
            let run = |more: &mut dyn FnMut() -> Option<Joined>| {
                sink::run(settings, key, vec![first], Some(more), *destination, log, run_context)
            };
            Ok(joining::beside(more, terms, run))
        }
        Part::Source(mut operands, filter, later) => {
            if let Some(root) = later {
                first.frames.set_stall(Some(HANDSHAKE_TIMEOUT));
                operands = wanted::receive_operands(&root, &mut *first.frames, &mut *first.outbox)?;
                first.frames.set_stall(None);
            }
            let (settings, key) = source_settings(&accept, window, request.resumes);
            let has_sums = accept.options.keep.has(Keep::STORED_SUMS);
            let tree = Tree::new(operands, filter, false).with_stored_sums(has_sums);
            let run = |more: &mut dyn FnMut() -> Option<Joined>| {
                source::run(settings, key, vec![first], Some(more), tree, run_context)
            };
            Ok(joining::beside(more, terms, run))
        }
    }
}

/// Starts the waybill, if this side writes one of the job. Paths in it are relative to `root`.
fn begin_receipt<'a>(
    run_context: &RunContext<'a>,
    options: &JobOptions,
    root: impl FnOnce() -> OsString,
    is_sink: bool,
) -> Result<RunContext<'a>, TransferError> {
    let receipt = run_context.receipt.filter(|_| !options.dry_run);
    if let Some(receipt) = receipt {
        receipt.begin(&root(), options.delete && is_sink)?;
    }
    Ok(RunContext { receipt, ..*run_context })
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
    Sink(Box<Destination>, Vec<u8>),
    /// Requested operands and filter, or the root for operands that arrive after ACCEPT.
    Source(Vec<Operand>, Filter, Option<Arc<dyn Dir>>),
}

/// Request for CONNECT.
struct Request<'a> {
    role: Role,
    options: &'a JobOptions,
    wanted: RequestedPaths,
    rules: &'a [Rule],
    job: [u8; 16],
    log: Option<LogRequest>,
    resumes: bool,
}

/// Connects over the first lane.
fn connect(
    dial: &dyn Dial,
    request: &Request<'_>,
    window: Window,
) -> Result<(Accept, Joined), TransferError> {
    let mut first = Joined::new(CONTROL, dial.lane(0).map_err(TransferError::Dial)?);
    // Request the feature only if the job needs it, because an old peer refuses unknown features.
    let needs = if request.wanted.is_long() { Features::OPERANDS } else { Features::default() };
    let connect = Message::Connect(Box::new(Connect {
        versions: (VERSION, VERSION),
        offers: needs.with(Features::SHORT_BLOCKS),
        needs,
        role: request.role,
        job: request.job,
        options: request.options.clone(),
        window,
        operands: request.wanted.in_connect(),
        agent: PeerText::new(AGENT),
        rules: request.rules.iter().map(Rule::to_wire).collect(),
        log: request.log,
        resumes: request.resumes,
    }));
    connect.check().map_err(|flaw| TransferError::Denied(Reason::new(Why::TooLarge, &flaw.to_string())))?;
    first.outbox.push(&connect)?;
    first.outbox.flush()?;
    first.frames.set_stall(Some(HANDSHAKE_TIMEOUT));
    let accept = match read(&mut *first.frames)? {
        Message::Accept(accept) => *accept,
        Message::Refuse(reason) if reason.why == Why::Feature && request.wanted.is_long() => {
            return Err(TransferError::TooMany { requested: request.wanted.count() });
        }
        Message::Refuse(reason) => return Err(TransferError::Refused(reason)),
        other => return Err(TransferError::NotUnderstood(format!("{} instead of an answer", other.name()))),
    };
    first.frames.set_stall(None);
    hold(request.options, &accept.options).map_err(TransferError::Changed)?;
    if !accept.features.has(needs) {
        return Err(TransferError::TooMany { requested: request.wanted.count() });
    }
    request.wanted.send(&mut *first.outbox)?;
    Ok((accept, first))
}

fn source_settings(
    accept: &Accept,
    window: Window,
    awaits_answers: bool,
) -> (haul_proto::source::Settings, DigestKey) {
    let (options, timing, retries) = (accept.options.clone(), Timing::default(), limits::RETRIES_MAX);
    (
        haul_proto::source::Settings { options, window, timing, retries, awaits_answers },
        DigestKey::derive(&accept.token),
    )
}

fn sink_settings(accept: &Accept, window: Window) -> (haul_proto::sink::Settings, DigestKey) {
    let (options, timing, retries) = (accept.options.clone(), Timing::default(), limits::RETRIES_MAX);
    let short_blocks = accept.features.has(Features::SHORT_BLOCKS);
    let settings = haul_proto::sink::Settings { options, window, timing, retries, short_blocks };
    (settings, DigestKey::derive(&accept.token))
}

/// Returns the window of a session: as many files as its descriptors allow, and `buffers` bytes.
/// The descriptors are reserved until the grant is dropped. Returns `None` if too few are left for
/// one of `sessions` sessions.
fn window(buffers: u64, sessions: usize, udp_lanes: u32) -> Option<(Window, DescriptorGrant)> {
    let usual = Window::default();
    let grant = DescriptorGrant::reserve(usual.files, sessions, udp_lanes)?;
    Some((Window { files: grant.files, facts: usual.facts, bytes: buffers.max(1) }, grant))
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

/// Creates the destination directory of a fetch, if only its last component is missing. Its name is
/// durable if the files of the job are to be.
pub(super) fn create_if_missing(job: &FetchJob) -> io::Result<()> {
    match std::fs::create_dir(&job.into) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Ok(()) if job.options.settle >= Level::Durable => {
            let (above, _) = open_parent(Path::new(&job.into))?;
            above.sync()
        }
        made => made,
    }
}

/// Returns true if the parent directory, in which [`create_if_missing`] would make it, exists.
fn can_create(path: &OsStr) -> bool {
    let above = Path::new(path).parent();
    above.is_some_and(|above| above.as_os_str().is_empty() || above.is_dir())
}

fn here(doing: &'static str, path: &[u8], source: io::Error) -> TransferError {
    TransferError::Local { doing, path: path.to_vec(), source }
}
