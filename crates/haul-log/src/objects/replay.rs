//! Decoder of the object log.

use super::entry::{Extent, Record, Step};
use super::head::{HEAD_BYTES, Head, Kind};
use super::region::{Fault, Form, RegionContents};
use super::seal::ChecksumContext;
use super::{Facts, Flaw, Job, Subject, sheet, volume};
use std::collections::BTreeMap;

/// Result of decoding the files of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Replay {
    /// Objects that the log records as durable.
    pub facts: Facts,
    /// Parts of the log that were rejected, each with the reason.
    pub flaws: Vec<Flaw>,
    /// Log files that [`Log::resume`](super::Log::resume) rewrites and then removes.
    pub names: Vec<String>,
}

/// Decodes the files of a log, given by name.
///
/// Never fails: invalid input adds flaws. An object is returned only if it was logged, as far as a
/// CRC-32C proves that.
pub fn replay(job: &Job, files: &BTreeMap<String, Vec<u8>>) -> Replay {
    let mut reading = Reading { job, files, found: Replay::default() };
    for (name, bytes) in files {
        let flaw = match sort(name) {
            None => Err(Flaw::UnknownFile { name: name.clone() }),
            Some(LogFileKind::Beside) => Ok(()),
            Some(LogFileKind::Sheet) => reading.sheet(name, bytes),
            Some(LogFileKind::Index) => reading.index(name, bytes),
        };
        if !matches!(flaw, Err(Flaw::UnknownFile { .. } | Flaw::Newer { .. })) {
            reading.found.names.push(name.clone());
        }
        reading.found.flaws.extend(flaw.err());
    }
    reading.found
}

/// Returns [`Flaw::Newer`] if a newer version wrote the log file of this name. `beginning` holds at
/// least the first [`HEAD_BYTES`] bytes of the file. Returns `None` for all other files, valid or
/// not.
pub fn newer(name: &str, beginning: &[u8]) -> Option<Flaw> {
    sort(name)?;
    Head::sound(name, beginning).err().filter(|flaw| matches!(flaw, Flaw::Newer { .. }))
}

/// Kind of a log file, derived from its name.
enum LogFileKind {
    Sheet,
    Index,
    /// The log of an index, which is read with the index, or the temporary file of a replacement.
    Beside,
}

fn sort(name: &str) -> Option<LogFileKind> {
    let is_shared = ["universal", "transaction-"].iter().any(|stem| name.starts_with(stem));
    let is_sheet = name.starts_with(sheet::PREFIX);
    match name.rsplit_once('.')? {
        (_, "new") if is_shared || is_sheet => Some(LogFileKind::Beside),
        (_, "log") if is_sheet => Some(LogFileKind::Sheet),
        (_, "log") if is_shared => Some(LogFileKind::Beside),
        (_, "index") if is_shared => Some(LogFileKind::Index),
        _ => None,
    }
}

struct Reading<'a> {
    job: &'a Job,
    files: &'a BTreeMap<String, Vec<u8>>,
    found: Replay,
}

/// A file that an index lists.
struct Member {
    subject: Subject,
    form: Form,
    extents: Vec<Extent>,
}

impl Reading<'_> {
    fn sheet(&mut self, name: &str, bytes: &[u8]) -> Result<(), Flaw> {
        let head = self.head(name, bytes, Kind::File)?;
        let at = HEAD_BYTES as u64;
        let absurd = |what| Flaw::Contradictory { name: name.to_owned(), at, what };
        let (serial, member) = match Record::decode(head.seal(), at, bytes) {
            Step::Record(Record::Begin { serial, blocks, extent, subject }, _) => {
                (serial, self.member(head, blocks, extent, *subject).map_err(absurd)?)
            }
            Step::Record(..) => return Err(absurd("an object without a file")),
            Step::Absurd(what) => return Err(absurd(what)),
            Step::End | Step::Broken => return Err(Flaw::Torn { name: name.to_owned(), at }),
        };
        if member.extents[0].offset != sheet::region_at(&member.subject) {
            return Err(absurd("objects overlap other data"));
        }
        self.objects(name, bytes, ChecksumContext { log_id: head.log_id, serial }, &member);
        Ok(())
    }

    fn index(&mut self, name: &str, bytes: &[u8]) -> Result<(), Flaw> {
        let head = self.head(name, bytes, Kind::Index)?;
        let log = volume::log_of_index(name, head.log_id).unwrap_or_default();
        let Some(data) = self.files.get(&log) else {
            return Err(Flaw::LogMissing { name: name.to_owned(), log });
        };
        let shared = self.head(&log, data, Kind::Shared)?;
        if (shared.log_id, shared.encoding) != (head.log_id, head.encoding) {
            let what = "the log does not belong to the index of this name";
            return Err(Flaw::Contradictory { name: log, at: 11, what });
        }
        let (members, ended) = self.members(name, bytes, head);
        for (serial, member) in &members {
            self.objects(&log, data, ChecksumContext { log_id: head.log_id, serial: *serial }, member);
        }
        ended
    }

    /// Returns the incomplete files that an index lists, and the flaw at which decoding stopped.
    fn members(&self, name: &str, bytes: &[u8], head: Head) -> (BTreeMap<u32, Member>, Result<(), Flaw>) {
        let mut members = BTreeMap::new();
        let (mut at, mut past) = (HEAD_BYTES as u64, HEAD_BYTES as u64);
        loop {
            let name = name.to_owned();
            let (record, len) = match Record::decode(head.seal(), at, bytes) {
                Step::Record(record, len) => (record, len as u64),
                Step::End => return (members, Ok(())),
                Step::Broken => return (members, Err(Flaw::Torn { name, at })),
                Step::Absurd(what) => return (members, Err(Flaw::Contradictory { name, at, what })),
            };
            if let Err(what) = self.follow(head, &mut members, &mut past, record) {
                return (members, Err(Flaw::Contradictory { name, at, what }));
            }
            at += len;
        }
    }

    /// Applies a record; `past` is the end of the last allocated region.
    fn follow(
        &self,
        head: Head,
        members: &mut BTreeMap<u32, Member>,
        past: &mut u64,
        record: Record,
    ) -> Result<(), &'static str> {
        let mut take = |extent: Extent| {
            let is_free = extent.offset >= *past;
            *past = extent.end();
            is_free.then_some(extent).ok_or("two files share bytes of the log")
        };
        match record {
            Record::Begin { serial, blocks, extent, subject } => {
                let member = self.member(head, blocks, take(extent)?, *subject)?;
                match members.insert(serial, member) {
                    None => Ok(()),
                    Some(_) => Err("a file is started twice"),
                }
            }
            Record::More { serial, extent } => {
                let member = members.get_mut(&serial).ok_or("a file is continued that was not started")?;
                let extent = take(extent)?;
                if !member.form.allows(extent, member.extents.len()) {
                    return Err("a bit vector has more than one region");
                }
                member.extents.push(extent);
                Ok(())
            }
            Record::End { serial } => {
                members.remove(&serial).map(drop).ok_or("a file is ended that was not started")
            }
        }
    }

    fn member(
        &self,
        head: Head,
        blocks: u64,
        extent: Extent,
        subject: Subject,
    ) -> Result<Member, &'static str> {
        let form = Form { encoding: head.encoding, blocks };
        if blocks == 0 || blocks > head.encoding.objects_max() || blocks != subject.geometry(self.job).count()
        {
            return Err("the number of objects of a file does not match its size");
        }
        if !form.allows(extent, 0) {
            return Err("the size of a region does not match its file");
        }
        Ok(Member { subject, form, extents: vec![extent] })
    }

    fn head(&self, name: &str, bytes: &[u8], kind: Kind) -> Result<Head, Flaw> {
        let head = Head::decode(name, bytes, self.job)?;
        if head.kind == kind {
            return Ok(head);
        }
        let what = "the kind of the file does not match its name";
        Err(Flaw::Contradictory { name: name.to_owned(), at: 10, what })
    }

    /// Adds the objects of a file to the result.
    fn objects(&mut self, name: &str, bytes: &[u8], seal: ChecksumContext, member: &Member) {
        for &extent in &member.extents {
            let RegionContents { objects, fault } = member.form.read(seal, extent, bytes);
            self.found.facts.add(member.subject.clone(), &objects);
            let name = || name.to_owned();
            self.found.flaws.extend(fault.map(|(at, fault)| match fault {
                Fault::Torn => Flaw::Torn { name: name(), at },
                Fault::Damaged => Flaw::Damaged { name: name(), at },
                Fault::Beyond => Flaw::Contradictory { name: name(), at, what: "object number out of range" },
            }));
        }
    }
}
