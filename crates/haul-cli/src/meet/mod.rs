//! `haul meet`: the side that ssh starts. It opens one directory for one session, waits for the
//! lanes, and exits when ssh ends.

mod root;

use crate::interrupt::Interrupt;
use crate::jobs::log_args::{state_of, style_of_words};
use crate::remote::output::LocalNotesReporter;
use crate::remote::policy::PolicyArgs;
use crate::remote::transport::packet_check;
use crate::remote::way::STALL_TIMEOUT;
use crate::remote::words::{
    self, DONE, Direction, EncodedPaths, INSIDE, MARK, OUTSIDE, Reply, Request, UdpRequest,
};
use haul_engine::sum::reason;
use haul_engine::transfer::{self, Logs, Offer, Receipt, RunContext, Tally};
use haul_log::objects::Style;
use haul_net::{
    CHUNK_MAX, CHUNK_MIN, Chunk, Grant, Identity, Lane, Limits, ListenSettings, Listener, Pacer, Rate, Role,
    Session, SocketSettings, StreamLane, Ticket, TicketTable, UDP_BUFFER_MAX, UDP_BUFFER_MIN, UdpSettings,
    Uses,
};
use haul_proto::Keep;
use haul_storage::local::LocalStorage;
use haul_sys::process;
use root::Root;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

const NAME: &str = "haul meet";

/// Time for the client to open its first lane, or to choose the lane inside ssh.
const LANE_TIMEOUT: Duration = Duration::from_secs(120);

/// Time for a session to end cleanly after the client has disconnected.
const EXIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Polling interval for received lines.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Metadata that a user of ssh may keep without options: everything that this user can set, except
/// setuid and setgid bits.
const KEEP_ALL: Keep = Keep(u32::MAX);

/// Command received over the pipe of ssh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PipeCommand {
    Inside,
    Outside,
    Done,
    /// The pipe ended: ssh or the client has died.
    Gone,
}

/// Serves one session. `args`, without the command's name, holds options of the receiver. The login
/// can fix them by a forced command.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let own =
        style_of_words(args).and_then(|(style, others)| Some((PolicyArgs::from_words(&others)?, style)));
    let Some((accept, style)) = own.filter(|_| !io::stdin().is_terminal()) else {
        eprintln!(
            "{NAME}: internal command, started on the remote host by 'haul send' and 'haul fetch'; use one of these"
        );
        return ExitCode::FAILURE;
    };
    match start(accept, style) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{NAME}: {message}");
            ExitCode::FAILURE
        }
    }
}

fn start(accept: PolicyArgs, style: Style) -> Result<bool, String> {
    process::hide_memory()
        .map_err(|error| format!("cannot protect the ticket in memory: {}", reason(&error)))?;
    let interrupt = Interrupt::watch().map_err(|error| format!("cannot watch for signals: {error}"))?;
    let stop = interrupt.flag();
    let stdin = io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let request = match request(&stdin, stop) {
        Ok(request) => request,
        Err(why) => return reply(&Reply::Failure(why), &[]).map(|()| false),
    };
    let root = match paths_of(&request, &stdin, stop).and_then(|paths| root_of(&request, &paths)) {
        Ok(root) => root,
        Err(why) => return reply(&Reply::Failure(why), &[]).map(|()| false),
    };
    let opened = listen(&request);
    let (ticket, closed) = match &opened {
        Ok((_, ticket)) => (Some(ticket.to_line()), None),
        Err(why) => (None, Some(why.clone())),
    };
    let EncodedPaths { in_line: paths, listed, behind } = EncodedPaths::of(&root.paths);
    reply(&Reply::Ready { ticket, closed, address: reached_at(), paths, listed }, &behind)?;
    let offer = Offer {
        root: root.directory.into_os_string(),
        storage: Arc::new(LocalStorage),
        may_read: request.way == Direction::Fetch,
        may_write: request.way == Direction::Send,
        // The peer logged in as this user.
        may_list: true,
        lanes: request.lanes,
        buffers: request.buffers,
        sessions: 1,
        quota: None,
        // The options are for the receiver, which is this side only for `haul send`.
        keep: if request.way == Direction::Send { accept.limit(KEEP_ALL) } else { KEEP_ALL },
        policy: accept.policy(),
        // If this user has no home directory, interrupted jobs start from the beginning.
        logs: state_of(None).map_or(Logs::None, |state| Logs::Own { state, style }),
    };
    let listener = opened.ok().map(|(listener, _)| listener);
    let receipt = receipt_of(&request)?;
    // This process serves only one session.
    offer.sandbox().enter().map_err(|error| format!("cannot confine the session: {}", reason(&error)))?;
    let served = serve(&offer, &request, listener, stdin, receipt.as_ref(), stop);
    // The waybill holds what arrived, however the session ended.
    let closed = receipt.map_or(Ok(None), |receipt| receipt.close());
    let outcome = served?;
    closed.map_err(|error| error.to_string())?;
    Ok(outcome.is_whole())
}

/// Reads the client's request. The error is for the client.
fn request(line: &OwnedFd, stop: &AtomicBool) -> Result<Request, String> {
    let read = words::read_line(line, || stop.load(Ordering::Relaxed));
    let text =
        read.map_err(|error| format!("cannot read the request: {error}"))?.ok_or("no request received")?;
    let not_known = || {
        format!(
            "haul {} does not understand this request; install the same version on both hosts",
            env!("CARGO_PKG_VERSION")
        )
    };
    Request::parse_line(&text).ok_or_else(not_known)
}

/// Returns the requested paths, as typed. The error is for the client.
fn paths_of(request: &Request, line: &OwnedFd, stop: &AtomicBool) -> Result<Vec<Vec<u8>>, String> {
    let told = words::receive_paths(&request.paths, request.listed, line, || stop.load(Ordering::Relaxed));
    let told = told.map_err(|error| format!("cannot read the list of paths: {error}"))?;
    told.ok_or_else(|| "invalid path in the request".to_owned())
}

fn root_of(request: &Request, paths: &[Vec<u8>]) -> Result<Root, String> {
    let home = std::env::var_os("HOME");
    let root = match (request.way, paths) {
        (Direction::Send, [path]) => Root::to_send_to(path, home.as_deref(), request.dry_run),
        (Direction::Send, _) => {
            return Err("invalid request: exactly one destination directory is required".to_owned());
        }
        (Direction::Fetch, _) => Root::to_fetch_from(paths, home.as_deref()),
    };
    root.map_err(|error| error.to_string())
}

/// Returns the requested waybill. A path without a leading slash is relative to the home directory,
/// where ssh starts.
fn receipt_of(request: &Request) -> Result<Option<Receipt>, String> {
    let Some(word) = &request.waybill else { return Ok(None) };
    let path = words::from_words(std::slice::from_ref(word)).and_then(|mut paths| paths.pop());
    let path = path.ok_or("invalid waybill path in the request")?;
    let asked = match request.way {
        Direction::Send => "haul send",
        Direction::Fetch => "haul fetch",
    };
    let mut job = crate::receipt::job(NAME, &haul_engine::waybill::Root::new(OsString::new()));
    job.run = format!("{NAME} (for {asked} of another host)").into_bytes();
    let path = root::expanded(&path, std::env::var_os("HOME").as_deref());
    Ok(Some(Receipt::new(path.into_os_string(), job)))
}

/// Prints one line to standard output and the data after it. Afterwards, standard output belongs to
/// the lane.
fn reply(reply: &Reply, behind: &[u8]) -> Result<(), String> {
    let mut line = Zeroizing::new(MARK.as_bytes().to_vec());
    let body = serde_json::to_vec(reply).map(Zeroizing::new).map_err(|error| error.to_string())?;
    line.extend_from_slice(&body);
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)
        .and_then(|()| out.write_all(behind))
        .and_then(|()| out.flush())
        .map_err(|error| format!("cannot answer: {error}"))
}

/// Returns the address of this host that ssh connected to, from sshd's variable: `CLIENT PORT
/// SERVER PORT`.
fn reached_at() -> Option<String> {
    let told = std::env::var("SSH_CONNECTION").ok()?;
    told.split(' ').nth(2)?.parse::<IpAddr>().ok().map(|address| address.to_string())
}

/// Returns a listener for one session, and its ticket. The error is for the client.
fn listen(request: &Request) -> Result<(Listener, Ticket), String> {
    let identity =
        if request.plain { None } else { Some(Identity::generate().map_err(|error| error.to_string())?) };
    let role = match request.way {
        Direction::Send => Role::Write,
        Direction::Fetch => Role::Read,
    };
    let grant = Grant { role, uses: Uses::Once, expires: None };
    let limits =
        Limits { sessions: 1, lanes: u16::try_from(request.lanes).unwrap_or(u16::MAX), ..Limits::default() };
    let settings = ListenSettings {
        socket: SocketSettings {
            congestion: request.congestion.clone(),
            multipath: request.multipath,
            pace: request.rate,
            ..SocketSettings::default()
        },
        limits,
        stall: Some(STALL_TIMEOUT),
        pacer: request.rate.map(|rate| Arc::new(Pacer::new(rate))),
        udp: request.udp.as_ref().map(|udp| udp_settings(udp, request.ports)).transpose()?,
    };
    let (first, last) = request.ports.unwrap_or((0, 0));
    let mut why = String::new();
    for port in first..=last {
        for host in [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)] {
            let tickets = Arc::new(TicketTable::default());
            let at = SocketAddr::new(host, port);
            let listening =
                Listener::start(&[at], identity.as_ref(), Arc::clone(&tickets), settings.clone(), |_| {});
            match listening {
                Ok(listener) => {
                    let addresses = listener.local_addresses().iter().map(|&at| at.into()).collect();
                    let fingerprint = identity.as_ref().map(Identity::fingerprint);
                    let ticket =
                        Ticket::issue(grant, addresses, fingerprint).map_err(|error| error.to_string())?;
                    tickets.insert(ticket.clone());
                    return Ok((listener, ticket));
                }
                Err(error) => why = error.to_string(),
            }
        }
    }
    Err(why)
}

/// Returns the settings for UDP that the client requests. The error is for the client.
fn udp_settings(request: &UdpRequest, ports: Option<(u16, u16)>) -> Result<UdpSettings, String> {
    let chunk = match request.chunk {
        Some(bytes) if (CHUNK_MIN..=CHUNK_MAX).contains(&bytes) => Chunk::Fixed(bytes),
        Some(bytes) => return Err(format!("chunks of {bytes} bytes are not possible")),
        None => UdpSettings::default().chunk,
    };
    let rate = request.rate.map_or(UdpSettings::default().rate, |rate| Rate::Fixed(rate.max(1)));
    let check = packet_check(&request.check)?;
    let buffer_max = request.buffers.unwrap_or(UdpSettings::default().buffer_max);
    if !(UDP_BUFFER_MIN..=UDP_BUFFER_MAX).contains(&buffer_max) {
        return Err(format!("buffers of {buffer_max} bytes are not possible"));
    }
    Ok(UdpSettings { check, chunk, rate, ports, buffer_max, ..UdpSettings::default() })
}

/// Waits for the lanes and serves them until the job or the pipe ends.
fn serve(
    offer: &Offer,
    request: &Request,
    listener: Option<Listener>,
    line: OwnedFd,
    receipt: Option<&Receipt>,
    stop: &AtomicBool,
) -> Result<transfer::Outcome, String> {
    let (words, heard) = channel();
    let input = line.try_clone().map_err(|error| error.to_string())?;
    // The thread ends with the process: no thread waits for its read of the pipe.
    std::thread::Builder::new()
        .spawn(move || listen_to_line(&line, &words))
        .map_err(|error| error.to_string())?;
    match first_lane(listener.as_ref(), &heard, stop)? {
        FirstLane::Inside => {
            drop(listener);
            let output = io::stdout().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
            let mut lane = StreamLane::over_pipes(input, output, Some(STALL_TIMEOUT))
                .map_err(|error| error.to_string())?;
            lane.set_pacer(request.rate.map(|rate| Arc::new(Pacer::new(rate))));
            answer(lane, &mut || None, offer, receipt, stop)
        }
        // The listener stays open for additional lanes.
        FirstLane::Outside(outside) => {
            let (lane, session) = *outside;
            let over = &AtomicBool::new(false);
            std::thread::scope(|scope| {
                let watching = scope.spawn(move || watch_pipe(&heard, stop, over));
                let more = &mut || session.try_next_lane().map(|(_, lane)| lane.into());
                let outcome = answer(lane, more, offer, receipt, stop);
                over.store(true, Ordering::Relaxed);
                // The thread polls `over` and does nothing that can fail.
                let _ = watching.join();
                outcome
            })
        }
    }
}

enum FirstLane {
    Inside,
    Outside(Box<(StreamLane, Session)>),
}

/// Returns the first lane of the session, or the choice of the lane inside ssh.
fn first_lane(
    listener: Option<&Listener>,
    heard: &Receiver<PipeCommand>,
    stop: &AtomicBool,
) -> Result<FirstLane, String> {
    let begun = Instant::now();
    let mut session: Option<Session> = None;
    while begun.elapsed() < LANE_TIMEOUT && !stop.load(Ordering::Relaxed) {
        match heard.try_recv() {
            Ok(PipeCommand::Inside) => return Ok(FirstLane::Inside),
            Ok(PipeCommand::Done | PipeCommand::Gone) | Err(TryRecvError::Disconnected) => {
                return Err("the client disconnected".to_owned());
            }
            Ok(PipeCommand::Outside) | Err(TryRecvError::Empty) => {}
        }
        if let Some(open) = session.take() {
            match open.next_lane(POLL_INTERVAL) {
                Some((_, lane)) => return Ok(FirstLane::Outside(Box::new((lane, open)))),
                None => session = Some(open),
            }
        } else if let Some(listener) = listener {
            session = listener.next_session_within(POLL_INTERVAL);
        } else {
            std::thread::sleep(POLL_INTERVAL);
        }
    }
    Err("the client opened no connection".to_owned())
}

fn answer(
    first: StreamLane,
    more: &mut dyn FnMut() -> Option<Box<dyn Lane>>,
    offer: &Offer,
    receipt: Option<&Receipt>,
    stop: &AtomicBool,
) -> Result<transfer::Outcome, String> {
    let tally = Tally::default();
    let run_context = RunContext { stop, tally: &tally, report: &LocalNotesReporter { tool: NAME }, receipt };
    transfer::answer(first.into(), more, offer, &run_context).map_err(|error| error.to_string())
}

/// Forwards the commands of the pipe, up to the command after which the pipe belongs to a lane.
fn listen_to_line(line: &OwnedFd, words: &Sender<PipeCommand>) {
    loop {
        let word = match words::read_line(line, || false) {
            Ok(Some(text)) if *text == INSIDE.as_bytes() => PipeCommand::Inside,
            Ok(Some(text)) if *text == OUTSIDE.as_bytes() => PipeCommand::Outside,
            Ok(Some(text)) if *text == DONE.as_bytes() => PipeCommand::Done,
            _ => PipeCommand::Gone,
        };
        if words.send(word).is_err() || word != PipeCommand::Outside {
            return;
        }
    }
}

/// Stops the session if the pipe ends before the last command.
fn watch_pipe(heard: &Receiver<PipeCommand>, stop: &AtomicBool, over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        match heard.recv_timeout(POLL_INTERVAL) {
            Ok(PipeCommand::Outside) | Err(RecvTimeoutError::Timeout) => {}
            Ok(PipeCommand::Done) => return,
            Ok(PipeCommand::Inside | PipeCommand::Gone) | Err(RecvTimeoutError::Disconnected) => {
                stop.store(true, Ordering::Relaxed);
                return exit_after_timeout(over);
            }
        }
    }
}

/// Waits for a stopped session to end cleanly, and exits the process after a timeout, because no
/// other process would end it.
fn exit_after_timeout(over: &AtomicBool) {
    let begun = Instant::now();
    while !over.load(Ordering::Relaxed) {
        if begun.elapsed() > EXIT_TIMEOUT {
            std::process::exit(1);
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}
