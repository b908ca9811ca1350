//! Comparison tasks: hash an existing file of the sink, so that the source sends only the
//! differences.
//!
//! The worker waits for the source, which limits the number of digests in flight. No other task
//! runs on its thread.

use super::SinkContext;
use super::incoming::IncomingFile;
use super::tasks::Compare;
use crate::transfer::file_hasher::FileHasher;
use crate::transfer::monitor::{Reply, WaitKey};
use haul_model::{ByteLen, Geometry, ObjectIndex};
use haul_proto::sink::{Event, Verdict};
use haul_proto::{FileNumber, Runs, limits};
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

impl SinkContext<'_> {
    /// Runs comparison tasks until the session ends.
    pub(super) fn run_comparing(&self) {
        let mut file_hasher = FileHasher::new(self.hash_plan, &self.session.spent, &self.session.over);
        while let Some(task) = self.tasks.comparing.next() {
            match task {
                Compare::Whole { file } => self.hash_existing(file, &mut file_hasher),
                Compare::Objects { file } => self.hash_objects(file, &mut file_hasher),
            }
        }
    }

    fn hash_existing(&self, file: FileNumber, file_hasher: &mut FileHasher<'_>) {
        let Some(incoming) = self.incoming(file) else { return };
        let found =
            existing(self, &incoming).and_then(|(existing, size)| file_hasher.whole(&existing, size).ok());
        *incoming.existing_digest.lock().unwrap_or_else(PoisonError::into_inner) = found;
        // A file that cannot be read is sent again.
        let verdict = found.map_or(Verdict::Take { have: Runs::default() }, Verdict::UnlessDigest);
        self.handle(self.opened(file, verdict, incoming.facts.size()));
    }

    fn hash_objects(&self, file: FileNumber, file_hasher: &mut FileHasher<'_>) {
        let Some(incoming) = self.incoming(file) else { return };
        let (have, samples) = incoming.comparison();
        let (existing, sampled) = (incoming.compared(&self.destination.dirs), incoming.sampled());
        if existing.is_none() && sampled.is_none() {
            let take = Verdict::Take { have };
            return self.handle(self.opened(file, take, incoming.facts.size()));
        }
        let total = incoming.facts.size();
        let differing = Verdict::Differing { have: have.clone(), samples: samples.clone() };
        self.handle(self.opened(file, differing, total));
        let geometry = Geometry::new(ByteLen(total), self.options.object);
        let mut next = 0;
        while next < geometry.count() {
            let wanted = self.session.monitor.ask(|machine, now| match machine.digests_wanted(file) {
                _ if machine.is_over() => Reply::Ready(0),
                0 if !machine.is_open(file) => Reply::Ready(0),
                0 => Reply::Wait(WaitKey::Digests(file), now + Duration::from_secs(1)),
                wanted => Reply::Ready(wanted),
            });
            if wanted == 0 {
                return;
            }
            let count = wanted.min(geometry.count() - next).min(limits::DIGESTS_PER_MESSAGE as u64).min(64);
            let digests = (next..next + count).map(|index| {
                let object = geometry.object(ObjectIndex(index))?;
                let sampled = sampled.as_ref().filter(|_| samples.contains(index));
                let (found, size) = sampled.or(existing.as_ref())?;
                let is_there = object.range.end.0 <= *size && !have.contains(index);
                is_there
                    .then(|| file_hasher.object(found, object, total).ok().map(|(digest, _)| digest))
                    .flatten()
            });
            let digests = digests.collect();
            self.handle(Event::OwnDigests { file, digests });
            next += count;
        }
    }
}

/// Opens the existing file with the name of an incoming file. Returns it with its size.
fn existing(context: &SinkContext<'_>, incoming: &IncomingFile) -> Option<(Arc<OwnedFd>, u64)> {
    incoming.existing(&context.destination.dirs).ok().flatten().map(|(file, facts)| (file, facts.size))
}
