//! Comparison tasks: hash an existing file of the sink, so that the source sends only the
//! differences.
//!
//! The worker waits for the source, which limits the number of digests in flight. No other task
//! runs on its thread.

use super::Side;
use super::incoming::Incoming;
use super::tasks::Compare;
use crate::transfer::meeting::{Asked, Seat};
use crate::transfer::rereader::Rereader;
use haul_model::{ByteLen, Geometry, ObjectIndex};
use haul_proto::sink::{Event, Verdict};
use haul_proto::{FileNumber, Runs, limits};
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

impl Side<'_> {
    /// Runs comparison tasks until the session ends.
    pub(super) fn run_comparing(&self) {
        let mut rereader = Rereader::new(self.recipe, &self.session.spent, &self.session.over);
        while let Some(task) = self.tasks.comparing.next() {
            match task {
                Compare::Whole { file } => self.hash_standing(file, &mut rereader),
                Compare::Objects { file } => self.hash_objects(file, &mut rereader),
            }
        }
    }

    fn hash_standing(&self, file: FileNumber, rereader: &mut Rereader<'_>) {
        let Some(incoming) = self.incoming(file) else { return };
        let found =
            standing(self, &incoming).and_then(|(standing, size)| rereader.whole(&standing, size).ok());
        *incoming.standing_digest.lock().unwrap_or_else(PoisonError::into_inner) = found;
        // A file that cannot be read is sent again.
        let verdict = found.map_or(Verdict::Take { have: Runs::default() }, Verdict::Unless);
        self.handle(self.opened(file, verdict, incoming.facts.size()));
    }

    fn hash_objects(&self, file: FileNumber, rereader: &mut Rereader<'_>) {
        let Some(incoming) = self.incoming(file) else { return };
        let (have, samples) = incoming.compared_by();
        let (standing, sampled) = (incoming.compared(&self.store.places), incoming.sampled());
        if standing.is_none() && sampled.is_none() {
            let take = Verdict::Take { have };
            return self.handle(self.opened(file, take, incoming.facts.size()));
        }
        let total = incoming.facts.size();
        let differing = Verdict::Differing { have: have.clone(), samples: samples.clone() };
        self.handle(self.opened(file, differing, total));
        let geometry = Geometry::new(ByteLen(total), self.options.object);
        let mut next = 0;
        while next < geometry.count() {
            let wanted = self.session.meeting.ask(|machine, now| match machine.digests_wanted(file) {
                _ if machine.is_over() => Asked::Answer(0),
                0 if !machine.is_open(file) => Asked::Answer(0),
                0 => Asked::Wait(Seat::Digests(file), now + Duration::from_secs(1)),
                wanted => Asked::Answer(wanted),
            });
            if wanted == 0 {
                return;
            }
            let count = wanted.min(geometry.count() - next).min(limits::DIGESTS_PER_MESSAGE as u64).min(64);
            let digests = (next..next + count).map(|index| {
                let object = geometry.object(ObjectIndex(index))?;
                let sampled = sampled.as_ref().filter(|_| samples.contains(index));
                let (found, size) = sampled.or(standing.as_ref())?;
                let is_there = object.range.end.0 <= *size && !have.contains(index);
                is_there
                    .then(|| rereader.object(found, object, total).ok().map(|(digest, _)| digest))
                    .flatten()
            });
            let digests = digests.collect();
            self.handle(Event::OwnDigests { file, digests });
            next += count;
        }
    }
}

/// Opens the existing file with the name of an incoming file. Returns it with its size.
fn standing(side: &Side<'_>, incoming: &Incoming) -> Option<(Arc<OwnedFd>, u64)> {
    incoming.standing(&side.store.places).ok().flatten().map(|(file, facts)| (file, facts.size))
}
