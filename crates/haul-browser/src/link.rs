//! Parts that both directions share: the lane, the queue of events, and the start of a session.

use crate::event::Event;
use crate::frames::FrameReader;
use crate::output::Output;
use haul_digest::Algorithm;
use haul_model::{Level, ObjectSize};
use haul_proto::{
    Accept, Compression, Connect, Features, JobOptions, Keep, Message, Operands, PeerText, Role, Summary,
    Update, VERSION, Verify, Window, check_list,
};
use std::collections::VecDeque;
use std::time::Duration;

/// Name of this program on the wire.
const AGENT: &str = concat!("haul ", env!("CARGO_PKG_VERSION"), " in a browser");

/// Maximum time without an answer to CONNECT.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// Window of a session. Bounds the state of both machines: a tab has less memory than a server,
/// and one lane of 30 ms needs 3 MB in flight for 100 MB/s.
const WINDOW: Window = Window { files: 1024, facts: 4 << 20, bytes: 64 << 20 };

/// Number of events from which on a session accepts no input until the page has taken them.
pub(crate) const EVENTS_MAX: usize = 4096;

/// Settings of a job, chosen by the page.
#[derive(Clone, Debug)]
pub struct JobSettings {
    /// Name of the job, by which the server and the page find the state of an earlier run. Zeros
    /// for a job that never resumes.
    pub job: [u8; 16],
    /// Size of objects.
    pub object: ObjectSize,
    /// Level that a file must reach before it is done.
    pub settle: Level,
    /// Upload: one path, the directory at the server. Download: the paths at the server.
    pub paths: Vec<Box<[u8]>>,
    /// Download: true if the page has files, or parts of files, of an earlier run.
    pub resumes: bool,
    /// Upload: true if the server compares its files with those of the page, and requests only the
    /// objects that differ. The page reads its files to hash them, and its session must have the
    /// right to read.
    pub compares: bool,
}

impl JobSettings {
    /// Returns the options of the job on the wire.
    pub(crate) fn options(&self) -> JobOptions {
        JobOptions {
            object: self.object,
            algorithm: Algorithm::Blake3,
            verify: Verify::Stream,
            settle: self.settle,
            keep: Keep::TIMES,
            update: if self.compares { Update::Object } else { Update::default() },
            ..JobOptions::default()
        }
    }
}

#[derive(Debug)]
enum Phase {
    /// CONNECT was sent.
    Connecting {
        since: Duration,
    },
    Running,
    Over,
}

/// The lane of a session and its queue of events.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) reader: FrameReader,
    pub(crate) output: Output,
    pub(crate) now: Duration,
    events: VecDeque<Event>,
    phase: Phase,
    options: JobOptions,
    needs: Features,
    /// Paths for which CONNECT has no space.
    operands: Vec<Box<[u8]>>,
}

impl Link {
    /// Sends CONNECT.
    ///
    /// # Errors
    /// Returns a message if the paths exceed the limits of a job.
    pub(crate) fn connect(
        role: Role,
        settings: &JobSettings,
        buffers: usize,
        now: Duration,
    ) -> Result<Link, String> {
        let options = settings.options();
        let bytes = settings.paths.iter().map(|path| path.len()).sum();
        check_list(settings.paths.len(), bytes)
            .map_err(|reason| format!("cannot request the paths: {reason}"))?;
        let is_long = role == Role::Sink && !Operands::fit_connect(&settings.paths);
        let needs = if is_long { Features::OPERANDS } else { Features::default() };
        let (inside, operands) =
            if is_long { (Vec::new(), settings.paths.clone()) } else { (settings.paths.clone(), Vec::new()) };
        let connect = Message::Connect(Box::new(Connect {
            offers: needs,
            needs,
            job: settings.job,
            window: WINDOW,
            operands: inside,
            resumes: settings.resumes && role == Role::Sink,
            ..Connect::new(role, options.clone(), PeerText::new(AGENT))
        }));
        connect.check().map_err(|flaw| format!("cannot request the paths: {flaw}"))?;
        let mut output = Output::new(buffers);
        output.push(&connect);
        Ok(Link {
            reader: FrameReader::new(),
            output,
            now,
            events: VecDeque::new(),
            phase: Phase::Connecting { since: now },
            options,
            needs,
            operands,
        })
    }

    /// Checks the answer of the server, sends the paths for which CONNECT has no space, and reports
    /// [`Event::Started`]. Returns the terms and the window.
    ///
    /// # Errors
    /// Returns a message if the server refuses the job, or changes it.
    pub(crate) fn answered(&mut self, message: Message) -> Result<(Accept, Window), String> {
        let accept = match message {
            Message::Accept(accept) => *accept,
            Message::Refuse(reason) => return Err(format!("the server refuses the job: {reason}")),
            other => return Err(format!("cannot start the job: the server sent {}", other.name())),
        };
        let changed = |what| Err(format!("cannot start the job: the server changed {what}"));
        if accept.version != VERSION {
            return changed("the version of the protocol");
        }
        if !self.options.keep.has(accept.options.keep) {
            return changed("the kept metadata");
        }
        let free = |options: &JobOptions| JobOptions { keep: Keep::default(), budget: 0, ..options.clone() };
        if accept.options.compression != Compression::Off || free(&self.options) != free(&accept.options) {
            return changed("the options");
        }
        if !accept.features.has(self.needs) {
            return Err(
                "cannot request more than 256 paths: the server lacks this feature; select folders".into()
            );
        }
        if !self.operands.is_empty() {
            for operands in Operands::split(&self.operands) {
                self.output.push(&Message::Operands(Box::new(operands)));
            }
            self.operands = Vec::new();
        }
        self.phase = Phase::Running;
        self.report(Event::Started { resumes: accept.resumes });
        let window = WINDOW.least(accept.window);
        Ok((accept, window))
    }

    /// Reports the end of the session, once.
    pub(crate) fn end(&mut self, broken: Option<String>, summary: Summary) {
        if !self.is_over() {
            self.phase = Phase::Over;
            self.report(Event::Ended { broken, summary });
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Returns true if the server has not answered CONNECT in time.
    pub(crate) fn is_unanswered(&self) -> bool {
        matches!(self.phase, Phase::Connecting { since } if self.now.saturating_sub(since) >= ANSWER_TIMEOUT)
    }

    pub(crate) fn report(&mut self, event: Event) {
        self.events.push_back(event);
    }

    pub(crate) fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the number of events that the page has not taken.
    pub(crate) fn waiting_events(&self) -> usize {
        self.events.len()
    }
}

/// Message for a lane whose bytes are not valid.
pub(crate) fn damaged(flaw: &haul_proto::Flaw) -> String {
    format!("cannot continue: {flaw}; connect again to resume")
}
