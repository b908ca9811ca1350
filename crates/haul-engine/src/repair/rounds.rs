//! Replicas in the order they were given: those of this host are looked into at once, and one of another host is asked for what all before
//! it lack. What it sends stands in a directory of its own ([`super::staging`]) and is one more replica: the waybill says which of its
//! bytes are right.

use super::claim::Claim;
use super::places::Replica;
use super::staging::Staging;
use super::{Done, Repair, RepairError, RepairReport, RepairTally, Why, claim};
use crate::copy::quote;
use crate::sum::{Counters, reason};
use crate::transfer::{Parts, Tally};
use crate::verify::{Verdict, VerdictKind};
use haul_log::waybill::Kind;
use haul_model::{ByteRange, ObjectSize, limits};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How often it is counted what came from another host.
const COUNT_EVERY: Duration = Duration::from_millis(100);

/// Where right bytes may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplicaAt {
    /// A directory of this host that the same paths lie beneath. Only read.
    Here(OsString),
    /// A directory of another host, which [`Remotes`] reach. These bytes tell it apart from others.
    There(Vec<u8>),
}

/// What another host is asked for.
#[derive(Debug)]
pub struct Asked<'a> {
    /// The bytes that are lacking, by paths beneath the replica.
    pub parts: Arc<Parts>,
    /// How files are cut on the way: of each object all comes or nothing.
    pub object: ObjectSize,
    /// Where they are to stand, as [`FetchJob::of_parts`](crate::transfer::FetchJob::of_parts) takes it.
    pub into: &'a OsStr,
    /// What is counted.
    pub tally: &'a Tally,
}

/// What came of asking. Whether the bytes are right is judged by the waybill, whatever is said here.
#[derive(Clone, Debug, Default)]
pub struct Answered {
    /// What did not come, for people.
    pub notes: Vec<String>,
    /// Why the replica could not be asked, or not to the end.
    pub broken: Option<String>,
    /// Bytes that came over the network for it.
    pub received: u64,
}

/// Reaches replicas of other hosts.
pub trait Remotes {
    /// Has the replica of this number send what it is asked for. Returns soon when the repair is to stop.
    fn fetch(&self, replica: usize, asked: &Asked<'_>) -> Answered;
}

/// Nobody is reached.
impl Remotes for () {
    fn fetch(&self, _: usize, _: &Asked<'_>) -> Answered {
        Answered { broken: Some("no other host can be reached".to_owned()), ..Answered::default() }
    }
}

/// Names that are not as the waybill says.
pub(super) type Wanted = HashMap<Vec<u8>, Verdict>;

/// What a round left to the next ones.
struct Later {
    wanted: Wanted,
    /// The bytes that no replica had so far.
    parts: Parts,
    /// The smallest objects among their files, so that little comes that is not needed.
    object: ObjectSize,
}

impl Later {
    fn new() -> Later {
        Later { wanted: Wanted::new(), parts: Parts::default(), object: ObjectSize::DEFAULT }
    }

    fn add(&mut self, claim: &Claim, lost: &[ByteRange], verdict: Verdict) {
        let path = &claim.entry.path;
        self.parts.add(path, lost);
        self.wanted.insert(path.as_bytes().to_vec(), verdict);
        self.object = self.object.min(claim.object());
    }
}

impl Repair<'_> {
    /// Mends what replicas have; `here` are those of this host.
    pub(super) fn rounds(
        &mut self,
        mut wanted: Wanted,
        mut here: Vec<Option<Replica>>,
        staging: &mut Option<Staging>,
        tally: &mut RepairTally,
        report: &mut dyn RepairReport,
    ) -> Result<(), RepairError> {
        let settings = self.settings;
        let given = &settings.replicas[..];
        let mut at = 0;
        loop {
            // Nobody else is asked in a dry run.
            while at < given.len() && (settings.dry_run || matches!(given[at], ReplicaAt::Here(_))) {
                self.replicas[at] = here[at].take();
                at += 1;
            }
            self.is_last_round = at == given.len();
            let later = self.round(&wanted, tally, report)?;
            if later.wanted.is_empty() || self.is_stopped() {
                return Ok(());
            }
            if self.is_last_round {
                self.is_final = true;
                return self.round(&later.wanted, tally, report).map(drop);
            }
            match given.get(at) {
                Some(ReplicaAt::There(id)) if !later.parts.is_empty() => {
                    wanted = self.ask((at, &id[..]), later, staging, tally, report)?;
                    at += 1;
                }
                // No bytes are lacking: names that have none are left.
                _ => (wanted, at) = (later.wanted, given.len()),
            }
        }
    }

    /// Goes through what is wanted once. In a round that is not the last, files that lack bytes are left for later, and so is what is
    /// made without bytes: a directory gets its time when all that is missing in it is there. Two kinds of entries are left for the final round:
    /// a file that is another entry as well, because a replica may have its bytes under the other name, and a further name, because a later section
    /// may have the first one.
    fn round(
        &mut self,
        wanted: &Wanted,
        tally: &mut RepairTally,
        report: &mut dyn RepairReport,
    ) -> Result<Later, RepairError> {
        let mut later = Later::new();
        let settings = self.settings;
        let gone_through = claim::each(
            || settings.reader(),
            wanted,
            |claim| {
                if self.is_stopped() {
                    return;
                }
                let path = &claim.entry.path;
                let Some(verdict) = wanted.get(path.as_bytes()) else { return };
                let is_name =
                    verdict.kind == VerdictKind::Missing && !matches!(claim.entry.kind, Kind::File(_));
                if is_name && !self.is_last_round {
                    later.wanted.insert(path.as_bytes().to_vec(), verdict.clone());
                    return;
                }
                let (outcome, verdict) = self.settle(&claim, verdict, report);
                match &outcome.done {
                    Done::Left(Why::Stopped) => return,
                    Done::Left(Why::NoSource { lost, .. }) if !self.is_last_round => {
                        return later.add(&claim, lost, verdict);
                    }
                    Done::Left(Why::NoSource { .. } | Why::NotAsked(_))
                        if !self.is_final && self.is_several_entries(path) =>
                    {
                        later.wanted.insert(path.as_bytes().to_vec(), verdict);
                        return;
                    }
                    Done::Left(_) if !self.is_final && is_name => {
                        later.wanted.insert(path.as_bytes().to_vec(), verdict);
                        return;
                    }
                    Done::Left(_) => {}
                    _ => self.replicas.iter().flatten().for_each(|replica| replica.forget(path)),
                }
                self.note_directory(&outcome);
                tally.count(&outcome);
                report.settled(&outcome);
            },
        );
        gone_through.map_err(|source| RepairError::Refused(settings.waybill.clone(), source))?;
        Ok(later)
    }

    /// Asks a replica of another host for what is lacking; gives what is wanted still. What an earlier run left of it comes first.
    fn ask(
        &mut self,
        (number, id): (usize, &[u8]),
        mut later: Later,
        staging: &mut Option<Staging>,
        tally: &mut RepairTally,
        report: &mut dyn RepairReport,
    ) -> Result<Wanted, RepairError> {
        let settings = self.settings;
        let base = settings.staging.as_ref().unwrap_or(&settings.root);
        let staged = match staging.take() {
            Some(staging) => Ok(staging),
            None => Staging::open(base),
        };
        let place = staged.and_then(|staged| staging.insert(staged).place(id));
        let place = match place {
            Ok(place) => place,
            Err(error) => {
                let reason = reason(&error);
                let why =
                    format!("what it sends can't stand in {}: {reason}; say --staging DIR", quote(base));
                report.unreached(number, &why);
                tally.unreached += 1;
                return Ok(later.wanted);
            }
        };
        self.replicas[number] = Some(place.replica);
        if place.was_there {
            later = self.round(&later.wanted, tally, report)?;
        }
        let Later { wanted, parts, object } = later;
        if parts.is_empty() || self.is_stopped() {
            return Ok(wanted);
        }
        report.asks(number, parts.files(), parts.bytes());
        let counts = Tally::default();
        let asked = Asked { parts: Arc::new(parts), object, into: &place.path, tally: &counts };
        let answered = counted(&counts, self.counters, || self.remotes.fetch(number, &asked));
        tally.received += answered.received;
        answered.notes.iter().for_each(|note| report.heard(number, note));
        if let Some(why) = answered.broken.filter(|_| !self.is_stopped()) {
            report.unreached(number, &why);
            tally.unreached += 1;
        }
        Ok(wanted)
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

impl Claim {
    /// How the file is cut on its way from another host: as the waybill cuts it, and finer where it keeps leaves.
    fn object(&self) -> ObjectSize {
        let Kind::File(content) = &self.entry.kind else { return ObjectSize::DEFAULT };
        match &content.objects {
            Some(objects) if objects.leaf.is_some() => ObjectSize::round_up(limits::OBJECT_BYTES_MIN),
            Some(objects) => objects.size,
            None => ObjectSize::DEFAULT,
        }
    }
}

/// Does `work`, and adds what it counts to what the repair counts.
fn counted<T>(tally: &Tally, counters: &Counters, work: impl FnOnce() -> T) -> T {
    let (done, over) = channel::<()>();
    thread::scope(|scope| {
        scope.spawn(move || {
            let (mut found, mut through) = (0, 0);
            loop {
                let is_over = over.recv_timeout(COUNT_EVERY) != Err(RecvTimeoutError::Timeout);
                let (found_now, through_now) =
                    (tally.bytes_found.load(Ordering::Relaxed), tally.bytes_done.load(Ordering::Relaxed));
                counters.found_bytes(found_now - found);
                counters.done_bytes(through_now - through);
                (found, through) = (found_now, through_now);
                if is_over {
                    return;
                }
            }
        });
        let ended = work();
        drop(done);
        ended
    })
}
