//! A server with one root, and sessions that the engine serves.

use haul_engine::transfer::{self, BoxError, Dial, Offer, SendJob, SimpleObserver};
use haul_lab::browser::{Browser, parse_link};
use haul_net::{Grant, Lane, Listener, Role, Session, Ticket, Uses};
use haul_storage::Name;
use haul_web::{
    CertificateSource, CopyWork, Peers, ServerCopy, Verification, WebLimits, WebListener, WebRoot, WebServer,
    WebSettings,
};
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;

/// A server, stopped on drop.
pub(crate) struct World {
    pub(crate) home: TempDir,
    pub(crate) web: Option<WebServer>,
    pub(crate) log: Arc<Mutex<Vec<String>>>,
    listener: Arc<Listener>,
    serving: Option<JoinHandle<()>>,
    stop: Arc<AtomicBool>,
}

/// Serves one session with the code of the engine.
fn serve(session: &Session, root: &Path, stop: &AtomicBool) {
    let (_, first) = session.next_lane(Duration::from_secs(10)).expect("a lane");
    let role = session.role();
    let offer =
        Offer { may_read: role.may_read(), may_write: role.may_write(), ..Offer::writable(root.into()) };
    let observer = SimpleObserver::default();
    let context = transfer::RunContext { stop, ..observer.run_context() };
    let more = &mut || session.try_next_lane().map(|(_, lane)| lane.into());
    // The client reports a failure.
    let _ = transfer::answer(first.into(), more, &offer, &context);
}

fn echo(session: &Session) {
    let (_, lane) = session.next_lane(Duration::from_secs(10)).expect("a lane");
    let (mut reader, mut writer) = lane.split();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read_some(&mut buffer) {
            Ok(0) => break,
            Ok(read) => writer.write_all(&buffer[..read]).expect("written"),
            // The lane is lost.
            Err(_) => return,
        }
    }
    writer.finish().expect("finished");
}

/// Copies like the server. Returns the numbers of files that arrived and that failed.
fn copy_between(copy: &ServerCopy) -> Result<(u64, u64), String> {
    let directory = format!("/proc/self/fd/{}", copy.directory.as_raw_fd());
    let CopyWork::Send { names, to } = &copy.work else { return Err("not tested here".into()) };
    let source = |name: &Name| Path::new(&directory).join(name.as_os_str());
    let sources = names.iter().map(|name| source(name).into()).collect();
    let job = SendJob { to: to.clone(), ..SendJob::new(sources) };
    let dial = |number: u32| (copy.connect)(number).map_err(BoxError::from);
    let observer = SimpleObserver::default();
    let sent = transfer::send(&dial, &job, &observer.run_context()).map_err(|error| error.to_string())?;
    Ok((sent.summary.done, sent.summary.failed))
}

/// Sends back the waybill and the inode of the directory. If the waybill has the word "wait", it
/// sends lines until the browser takes no more.
fn verify(verification: &Verification, send: &mut dyn FnMut(Vec<u8>) -> bool) {
    let waybill = std::fs::read(format!("/proc/self/fd/{}", verification.waybill.as_raw_fd()));
    let waybill = String::from_utf8(waybill.expect("read")).expect("text");
    while waybill == "wait" && send(b"more\n".to_vec()) {
        thread::sleep(Duration::from_millis(10));
    }
    let directory = haul_sys::stat::stat_fd(&verification.directory).expect("a directory");
    send(format!("{waybill} {}\n", directory.ino).into_bytes());
}

/// Limits with short delays, for tests that cause refusals.
pub(crate) fn limits() -> WebLimits {
    WebLimits {
        wrong_delay: Duration::from_millis(1),
        poll: Duration::from_millis(300),
        ..WebLimits::default()
    }
}

impl World {
    /// Waits until the log has `count` lines with `words`.
    pub(crate) fn wait_for_lines(&self, words: &str, count: usize) {
        let lines = || self.log.lock().expect("a log").iter().filter(|line| line.contains(words)).count();
        while lines() < count {
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Starts a server for a root with these rights.
    pub(crate) fn new(role: Role, limits: WebLimits) -> World {
        World::with_quota(role, limits, None)
    }

    pub(crate) fn with_quota(role: Role, limits: WebLimits, quota: Option<u64>) -> World {
        World::start(role, limits, quota, serve)
    }

    /// Starts a server whose sessions send back all bytes of their first lane.
    pub(crate) fn echoing(limits: WebLimits) -> World {
        World::start(Role::Both, limits, None, |session, _, _| echo(session))
    }

    /// Same as [`echoing`](Self::echoing), with a bound socket.
    pub(crate) fn echoing_at(socket: WebListener, limits: WebLimits) -> World {
        World::start_at(socket, Role::Both, limits, None, |session, _, _| echo(session))
    }

    /// Starts a server with these functions for other servers, which write to `log`.
    pub(crate) fn with_peers(peers: Peers, log: Arc<Mutex<Vec<String>>>) -> World {
        let socket = WebListener::bind("127.0.0.1:0".parse().expect("an address")).expect("it listens");
        World::start_with(socket, (Role::Both, limits(), None), Some(peers), log, serve)
    }

    fn start(
        role: Role,
        limits: WebLimits,
        quota: Option<u64>,
        serve: fn(&Session, &Path, &AtomicBool),
    ) -> World {
        let socket = WebListener::bind("127.0.0.1:0".parse().expect("an address")).expect("it listens");
        World::start_at(socket, role, limits, quota, serve)
    }

    fn start_at(
        socket: WebListener,
        role: Role,
        limits: WebLimits,
        quota: Option<u64>,
        serve: fn(&Session, &Path, &AtomicBool),
    ) -> World {
        World::start_with(socket, (role, limits, quota), None, Arc::default(), serve)
    }

    fn start_with(
        socket: WebListener,
        (role, limits, quota): (Role, WebLimits, Option<u64>),
        peers: Option<Peers>,
        log: Arc<Mutex<Vec<String>>>,
        serve: fn(&Session, &Path, &AtomicBool),
    ) -> World {
        let home = tempfile::tempdir().expect("a folder");
        let root = home.path().join("root");
        std::fs::create_dir(&root).expect("made");
        let grant = Grant { role, uses: Uses::Lasting, expires: None };
        let address = "127.0.0.1:0".parse().expect("an address");
        let (listener, ticket): (Listener, Ticket) =
            Listener::with_ticket(&[address], grant).expect("it listens");
        let listener = Arc::new(listener);
        let (heard, ended) = (log.clone(), log.clone());
        let copied = log.clone();
        let settings = WebSettings {
            roots: vec![WebRoot {
                name: "root".into(),
                path: root.clone().into(),
                role,
                ticket: ticket.id(),
                quota,
                expires: None,
                confine: Arc::new(|| Ok(())),
            }],
            gateway: listener.gateway(),
            certificate: CertificateSource::SelfSigned { file: None, names: vec!["127.0.0.1".into()] },
            hosts: vec!["127.0.0.1".into(), "localhost".into()],
            limits,
            metrics: Box::new(Vec::new),
            jobs: None,
            peers,
            copy: Arc::new(move |copy, send| {
                let ended = format!("{:?}", copy_between(copy));
                copied.lock().expect("a log").push("a copy ended".into());
                send(ended.into_bytes());
            }),
            verify: Arc::new(move |verification, send| {
                verify(verification, send);
                ended.lock().expect("a log").push("a verification ended".into());
            }),
            on_event: Box::new(move |event| heard.lock().expect("a log").push(event.to_string())),
        };
        let (web, note) = WebServer::start(socket, settings).expect("it starts");
        assert_eq!(note, None);
        let stop = Arc::<AtomicBool>::default();
        let (inside, stopped) = (listener.clone(), stop.clone());
        let serving = thread::spawn(move || {
            thread::scope(|scope| {
                while !stopped.load(Ordering::Relaxed) {
                    let Some(session) = inside.next_session_within(Duration::from_millis(20)) else {
                        continue;
                    };
                    let (root, stopped) = (&root, &stopped);
                    scope.spawn(move || serve(&session, root, stopped));
                }
            });
        });
        World { home, web: Some(web), log, listener, serving: Some(serving), stop }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// Writes a file, with its directories.
    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        std::fs::write(path, bytes).expect("written");
    }

    fn web(&self) -> &WebServer {
        self.web.as_ref().expect("it runs")
    }

    /// Returns a new link.
    pub(crate) fn link(&self) -> String {
        self.web().link().expect("a code")
    }

    /// Returns a browser that has signed in.
    pub(crate) fn browser(&self) -> Arc<Browser> {
        Arc::new(Browser::signed_in(&self.link()))
    }

    /// Returns a browser that has not signed in.
    pub(crate) fn stranger(&self) -> Browser {
        Browser::new(parse_link(&self.link()).0)
    }

    pub(crate) fn metrics_token(&self) -> String {
        self.web().metrics_token().to_owned()
    }

    pub(crate) fn certificate(&self) -> String {
        self.web().certificate()
    }

    /// Returns true if the log has a line with these words.
    pub(crate) fn has_logged(&self, words: &str) -> bool {
        self.log.lock().expect("a log").iter().any(|line| line.contains(words))
    }
}

impl Drop for World {
    fn drop(&mut self) {
        drop(self.web.take());
        self.stop.store(true, Ordering::Relaxed);
        self.listener.stop();
        if let Some(serving) = self.serving.take() {
            let ended = serving.join();
            assert!(ended.is_ok() || thread::panicking(), "a session panicked");
        }
    }
}

/// Opens the lanes of one transfer by a browser.
pub(crate) struct WebDial {
    pub(crate) browser: Arc<Browser>,
    pub(crate) transfer: &'static str,
    /// Number of uploads after which each lane is cut.
    pub(crate) cut_after: Option<u64>,
}

impl Dial for WebDial {
    fn lane(&self, _: u32) -> Result<Box<dyn Lane>, BoxError> {
        let request = format!("{{\"root\":0,\"transfer\":{:?}}}", self.transfer);
        Ok(self.browser.lane(&request, self.cut_after)?.into())
    }
}
