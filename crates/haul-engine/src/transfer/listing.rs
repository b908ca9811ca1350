//! Listings: the names in a directory of the peer, over one lane and without a transfer.

use super::error::TransferError;
use super::jobs::{AGENT, HANDSHAKE_TIMEOUT, Offer, read};
use super::reason::reason;
use super::source::moment;
use super::wanted::{relative, root};
use super::{Dial, Joined, Outcome, RunContext};
use haul_model::{Moment, RelPath};
use haul_proto::limits::ENTRIES_PER_MESSAGE;
use haul_proto::{
    CONTROL, Connect, Entries, EntryKind, Features, JobOptions, ListedEntry, Message, NAME_BYTES_MAX,
    PeerText, Reason, Role, Timing, Why, check_accepted,
};
use haul_storage::{Dir, FileKind, Follow, Name};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Maximum number of names in memory. A directory with more is read again for the next ones.
const NAMES_HELD_MAX: usize = 1 << 16;

/// Attempted action, for reasons.
const DOING: &str = "cannot list the directory";

/// Passes the entries of the directory `path` of the peer whose names come behind `after` to
/// `take`, sorted by the bytes of their names, until it returns false. Returns true if it did.
///
/// Each name is one component that [`check_accepted`] accepts, whatever the peer sends.
///
/// # Errors
/// Returns a [`TransferError`] if the peer does not list the directory, or not to its end.
pub fn list(
    dial: &dyn Dial,
    path: &[u8],
    after: &[u8],
    take: &mut dyn FnMut(ListedEntry) -> bool,
) -> Result<bool, TransferError> {
    let mut lane = Joined::new(CONTROL, dial.lane(0).map_err(TransferError::Dial)?);
    let connect = Connect {
        offers: Features::LISTING,
        needs: Features::LISTING,
        operands: vec![path.into(), after.into()],
        ..Connect::new(Role::Sink, JobOptions::default(), PeerText::new(AGENT))
    };
    let connect = Message::Connect(Box::new(connect));
    connect.check().map_err(|flaw| TransferError::Denied(Reason::new(Why::TooLarge, &flaw.to_string())))?;
    lane.outbox.push(&connect)?;
    lane.outbox.flush()?;
    lane.frames.set_stall(Some(HANDSHAKE_TIMEOUT));
    let mut before: Box<[u8]> = after.into();
    loop {
        let Entries { last, entries } = match read(&mut *lane.frames)? {
            Message::Entries(entries) => *entries,
            Message::KeepAlive => continue,
            Message::Refuse(reason) if reason.why == Why::Feature => return Err(TransferError::NoListing),
            Message::Refuse(reason) => return Err(TransferError::Refused(reason)),
            other => {
                return Err(TransferError::NotUnderstood(format!("{} instead of ENTRIES", other.name())));
            }
        };
        for entry in entries {
            if entry.name <= before {
                return Err(TransferError::NotUnderstood("names in ENTRIES that do not ascend".to_owned()));
            }
            before.clone_from(&entry.name);
            if !take(entry) {
                return Ok(true);
            }
        }
        if last {
            return Ok(false);
        }
    }
}

/// Answers the request for a listing on its lane. `refused` is the reason if the peer may not read.
///
/// # Errors
/// Returns [`TransferError::Denied`] if the directory cannot be listed, or not to its end. The
/// reason was sent to the peer.
pub(super) fn answer(
    mut lane: Joined,
    refused: Option<Reason>,
    request: &Connect,
    offer: &Offer,
    run_context: &RunContext<'_>,
) -> Result<Outcome, TransferError> {
    let mut listed = 0;
    let sent = match refused.map_or_else(|| open(request, offer), Err) {
        Ok((dir, after)) => {
            let keep_alive = Timing::default().keep_alive;
            let (stop, sent) = (run_context.stop, Instant::now());
            Responder { lane: &mut lane, stop, keep_alive, sent }.send(&*dir, after, &mut listed)
        }
        Err(reason) => Err(Failed::Here(reason)),
    };
    match sent {
        // Ignore an error: the peer leaves when it has the last name.
        Ok(()) => drop(lane.outbox.finish()),
        // The peer has enough of the names.
        Err(Failed::Lane(_)) if listed > 0 => {}
        Err(Failed::Lane(error)) => return Err(error.into()),
        Err(Failed::Here(reason)) => {
            // Ignore an error: the listing ends in any case.
            let _ = lane.outbox.push(&Message::Refuse(reason.clone())).and_then(|()| lane.outbox.finish());
            return Err(TransferError::Denied(reason));
        }
    }
    Ok(Outcome { listed: Some(listed), ..Outcome::default() })
}

/// Reason why a listing ends early.
enum Failed {
    /// The lane failed.
    Lane(haul_net::LaneError),
    /// The directory cannot be read, or this side stops.
    Here(Reason),
}

impl From<haul_net::LaneError> for Failed {
    fn from(error: haul_net::LaneError) -> Failed {
        Failed::Lane(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Failed {
        Failed::Here(reason(DOING, &error))
    }
}

/// Opens the requested directory, by the rules for the paths of a fetch. Returns also the name
/// behind which the listing starts.
fn open(request: &Connect, offer: &Offer) -> Result<(Arc<dyn Dir>, Vec<u8>), Reason> {
    let ([directory] | [directory, _], Role::Sink) = (&request.operands[..], request.role) else {
        return Err(Reason::new(Why::Protocol, "a listing is of one directory"));
    };
    let after = request.operands.get(1).map_or(&b""[..], |after| after);
    if after.len() > NAME_BYTES_MAX {
        return Err(Reason::new(Why::Name, "the name is too long"));
    }
    let path = relative(directory)?;
    let root = root(offer)?;
    if path.is_empty() {
        return Ok((root, after.to_vec()));
    }
    let path = RelPath::new(&path).map_err(|fault| Reason::new(Why::Name, &fault.to_string()))?;
    let dir = root.beneath(&path, Follow::Yes).map_err(|error| reason(DOING, &error))?;
    Ok((dir, after.to_vec()))
}

/// Sends a listing on a lane.
struct Responder<'a> {
    lane: &'a mut Joined,
    stop: &'a AtomicBool,
    /// Time without a message after which the peer gets a KEEPALIVE.
    keep_alive: Duration,
    /// Time of the last message.
    sent: Instant,
}

impl Responder<'_> {
    /// Sends the entries behind `after`, and counts them in `listed`.
    fn send(&mut self, dir: &dyn Dir, mut after: Vec<u8>, listed: &mut u64) -> Result<(), Failed> {
        loop {
            let (names, has_more) = dir.list()?.names_behind(&after, NAMES_HELD_MAX, |name| {
                self.proceed()?;
                Ok::<_, Failed>(check_accepted(name).is_ok())
            })?;
            let mut rest = &names[..];
            loop {
                let (now, later) = rest.split_at(rest.len().min(ENTRIES_PER_MESSAGE));
                let last = later.is_empty() && !has_more;
                if last || !now.is_empty() {
                    let mut entries = Vec::with_capacity(now.len());
                    for name in now {
                        self.proceed()?;
                        entries.push(entry(dir, name));
                    }
                    self.push(&Message::Entries(Box::new(Entries { last, entries })))?;
                    *listed += now.len() as u64;
                }
                rest = later;
                if rest.is_empty() {
                    break;
                }
            }
            match names.last() {
                Some(name) if has_more => after = name.as_bytes().to_vec(),
                _ => return Ok(()),
            }
        }
    }

    /// Fails if this side stops, and sends a KEEPALIVE if it is time: reading a large directory can
    /// take minutes.
    fn proceed(&mut self) -> Result<(), Failed> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Failed::Here(Why::Stopped.into()));
        }
        if self.sent.elapsed() >= self.keep_alive { self.push(&Message::KeepAlive) } else { Ok(()) }
    }

    fn push(&mut self, message: &Message) -> Result<(), Failed> {
        self.lane.outbox.push(message)?;
        self.lane.outbox.flush()?;
        self.sent = Instant::now();
        Ok(())
    }
}

/// Returns an entry with its metadata as far as it can be read.
fn entry(dir: &dyn Dir, name: &Name) -> ListedEntry {
    let facts = dir.stat_at(name, Follow::No);
    let name = name.as_bytes().into();
    match facts {
        Ok(facts) => ListedEntry {
            name,
            kind: match facts.kind {
                FileKind::Regular => EntryKind::File,
                FileKind::Directory => EntryKind::Directory,
                FileKind::Symlink => EntryKind::Symlink,
                FileKind::Fifo => EntryKind::Fifo,
                FileKind::Socket => EntryKind::Socket,
                FileKind::CharDevice | FileKind::BlockDevice => EntryKind::Device,
                FileKind::Unknown => EntryKind::Unknown,
            },
            size: facts.size,
            mtime: moment(facts.mtime),
            mode: facts.mode,
        },
        Err(_) => ListedEntry { name, kind: EntryKind::Unknown, size: 0, mtime: Moment::default(), mode: 0 },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use haul_net::StreamLane;
    use haul_storage::Create;
    use haul_storage::memory::MemoryStorage;

    /// Without KEEPALIVE, the peer gives up while a large directory is read.
    #[test]
    fn reading_sends_keepalives_until_it_stops() {
        let dir = MemoryStorage::new(1).root();
        for name in ["a", "b", "c"] {
            dir.sink(&Name::new(name).unwrap(), Create::New { mode: 0o600 }).unwrap();
        }
        let (ours, theirs) = StreamLane::pair();
        let (mut ours, mut theirs) = (Joined::new(CONTROL, ours.into()), Joined::new(CONTROL, theirs.into()));
        let (stop, mut listed) = (AtomicBool::new(false), 0);
        let mut responder =
            Responder { lane: &mut ours, stop: &stop, keep_alive: Duration::ZERO, sent: Instant::now() };
        assert!(responder.send(&*dir, b"a".to_vec(), &mut listed).is_ok() && listed == 2);
        // One for each name that is read, and one for each that is sent.
        for _ in 0..5 {
            assert!(matches!(read(&mut *theirs.frames), Ok(Message::KeepAlive)));
        }
        let Ok(Message::Entries(entries)) = read(&mut *theirs.frames) else { panic!("the names follow") };
        let names: Vec<&[u8]> = entries.entries.iter().map(|entry| &*entry.name).collect();
        assert!(entries.last && names == [b"b", b"c"], "{names:?}");
        stop.store(true, Ordering::Relaxed);
        let ended = responder.send(&*dir, Vec::new(), &mut listed);
        assert!(matches!(ended, Err(Failed::Here(Reason { why: Why::Stopped, .. }))) && listed == 2);
    }
}
