//! The client under test, with a record of every call and its result. The same calls to the
//! WebAssembly module must have the same results.

use haul_browser::{Download, Event, JobSettings, KeptFile, Record, Session, Upload};
use haul_model::{Level, ObjectSize};
use std::collections::VecDeque;
use std::time::Duration;

/// A call, its arguments and its results.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) call: &'static str,
    pub(crate) numbers: Vec<f64>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) returned: f64,
    pub(crate) output: Vec<u8>,
    pub(crate) events: Vec<Record>,
}

pub(crate) struct Client {
    session: Session,
    now: f64,
    pub(crate) events: VecDeque<Event>,
    /// Bytes to the server.
    pub(crate) outbox: Vec<u8>,
    pub(crate) steps: Vec<Step>,
}

pub(crate) const JOB: [u8; 16] = *b"job of the tests";

pub(crate) fn settings(object: u64, paths: &[&str]) -> JobSettings {
    JobSettings {
        job: JOB,
        object: ObjectSize::new(object).unwrap(),
        settle: Level::Durable,
        paths: paths.iter().map(|path| path.as_bytes().into()).collect(),
        resumes: false,
        compares: false,
    }
}

fn time(now: f64) -> Duration {
    Duration::from_micros((now * 1e3) as u64)
}

impl Client {
    pub(crate) fn upload(object: u64, to: &str) -> Client {
        let upload = Upload::new(settings(object, &[to]), time(0.0)).expect("valid settings");
        let bytes = [&JOB[..], to.as_bytes()].concat();
        Client::of(Session::Upload(Box::new(upload)), "upload", vec![3.0, object as f64], bytes)
    }

    pub(crate) fn download(object: u64, paths: &[&str], kept: Vec<(Vec<u8>, KeptFile)>) -> Client {
        let steps: Vec<Step> = kept.iter().map(|(path, kept)| keep_step(path, kept)).collect();
        let download = Download::new(settings(object, paths), kept, time(0.0)).expect("valid settings");
        let mut bytes = JOB.to_vec();
        for path in paths {
            bytes.extend_from_slice(&(path.len() as u32).to_le_bytes());
            bytes.extend_from_slice(path.as_bytes());
        }
        let session = Session::Download(Box::new(download));
        let mut client = Client::of(session, "download", vec![3.0, object as f64], bytes);
        client.steps.splice(0..0, steps);
        client
    }

    fn of(session: Session, call: &'static str, numbers: Vec<f64>, bytes: Vec<u8>) -> Client {
        let mut client =
            Client { session, now: 0.0, events: VecDeque::new(), outbox: Vec::new(), steps: Vec::new() };
        client.record(call, numbers, bytes, 1.0);
        client
    }

    /// Drains the session after a call and records everything.
    fn record(&mut self, call: &'static str, mut numbers: Vec<f64>, bytes: Vec<u8>, returned: f64) {
        let mut output = Vec::new();
        while let Some(piece) = self.session.output() {
            output.extend_from_slice(piece);
            self.session.output_sent(time(self.now));
        }
        let events: Vec<Event> = std::iter::from_fn(|| self.session.next_event()).collect();
        numbers.push(self.now);
        self.outbox.extend_from_slice(&output);
        let records = events.iter().map(Event::record).collect();
        self.steps.push(Step { call, numbers, bytes, returned, output, events: records });
        self.events.extend(events);
    }

    fn tick_of_clock(&mut self) -> Duration {
        self.now += 1.0;
        time(self.now)
    }

    /// Passes in bytes of the server. Returns the number of bytes taken.
    pub(crate) fn input(&mut self, bytes: &[u8]) -> usize {
        let now = self.tick_of_clock();
        let taken = self.session.input(bytes, now);
        self.record("input", vec![], bytes.to_vec(), taken as f64);
        taken
    }

    pub(crate) fn capacity(&mut self) -> usize {
        self.session.upload().map_or(0, |upload| upload.capacity())
    }

    pub(crate) fn offer(&mut self, path: &[u8], size: Option<u64>, mtime: f64) -> Result<u64, String> {
        let now = self.tick_of_clock();
        let offered = self.session.upload().expect("an upload").offer(path, size, mtime, now);
        let returned = offered.as_ref().map_or(-1.0, |number| *number as f64);
        self.record("offer", vec![size.map_or(-1.0, |size| size as f64), mtime], path.to_vec(), returned);
        offered
    }

    pub(crate) fn walk_ended(&mut self) {
        let now = self.tick_of_clock();
        self.session.upload().expect("an upload").walk_ended(now);
        self.record("walk_ended", vec![], vec![], 0.0);
    }

    pub(crate) fn read_done(&mut self, request: u32, result: Result<&[u8], &str>) {
        let now = self.tick_of_clock();
        let upload = self.session.upload().expect("an upload");
        let (ok, bytes) = match result {
            Ok(bytes) => {
                upload.read_buffer(request).expect("a read").copy_from_slice(bytes);
                (1.0, bytes)
            }
            Err(text) => (0.0, text.as_bytes()),
        };
        assert!(upload.read_done(request, result.map(drop), now));
        self.record("read_done", vec![f64::from(request), ok], bytes.to_vec(), 0.0);
    }

    pub(crate) fn checked(&mut self, request: u32, size: u64, mtime: f64) {
        let now = self.tick_of_clock();
        self.session.upload().expect("an upload").checked(request, Ok((size, mtime)), now);
        self.record("checked", vec![f64::from(request), 1.0, size as f64, mtime], vec![], 0.0);
    }

    pub(crate) fn written(&mut self, request: u32, result: Result<(), &str>) {
        let now = self.tick_of_clock();
        self.session.download().expect("a download").written(request, result, now);
        let text = result.err().unwrap_or_default().as_bytes().to_vec();
        self.record("written", vec![f64::from(request), f64::from(u8::from(result.is_ok()))], text, 0.0);
    }

    pub(crate) fn synced(&mut self, file: u64, level: u32) {
        let now = self.tick_of_clock();
        self.session.download().expect("a download").synced(file, Ok(level), now);
        self.record("synced", vec![file as f64, f64::from(level)], vec![], 0.0);
    }

    pub(crate) fn finished(&mut self, file: u64, result: Result<u32, &str>) {
        let now = self.tick_of_clock();
        self.session.download().expect("a download").finished(file, result, now);
        let text = result.err().unwrap_or_default().as_bytes().to_vec();
        self.record("finished", vec![file as f64, f64::from(result.unwrap_or(0))], text, 0.0);
    }

    /// Lets `ms` milliseconds pass.
    pub(crate) fn tick(&mut self, ms: f64) {
        self.now += ms;
        self.session.tick(time(self.now));
        self.record("tick", vec![], vec![], 0.0);
    }

    pub(crate) fn lane_lost(&mut self) {
        let now = self.tick_of_clock();
        self.session.lane_lost(now);
        self.record("lane_lost", vec![], vec![], 0.0);
    }

    pub(crate) fn stop(&mut self) {
        let now = self.tick_of_clock();
        self.session.stop(now);
        self.record("stop", vec![], vec![], 0.0);
    }
}

fn keep_step(path: &[u8], kept: &KeptFile) -> Step {
    let mut bytes = [&kept.version[..], path].concat();
    for (index, digest) in &kept.objects {
        bytes.extend_from_slice(&index.to_le_bytes());
        bytes.extend_from_slice(digest);
    }
    let complete = f64::from(u8::from(kept.is_complete));
    let numbers = vec![complete, kept.size as f64, kept.mtime, path.len() as f64];
    Step { call: "keep", numbers, bytes, returned: 1.0, output: vec![], events: vec![] }
}
