//! An object on its way in a job that goes on: there already, or to be brought and logged.

use super::Fate;
use crate::copy::deliver::Holes;
use crate::copy::digesting::Watch;
use crate::copy::error::CopyError;
use crate::copy::lane::Lane;
use crate::copy::pipeline::{Run, Written, interrupted};
use crate::copy::report::Tally;
use haul_model::{ByteLen, ByteOffset, ByteRange, Object};
use std::sync::atomic::Ordering;

impl Run<'_> {
    /// Brings an object to the sink, unless it is there already. One that still waits for its proof is logged after that.
    ///
    /// # Errors
    /// As [`Run::object`]; the log says what does not hold; or the object can't be made durable.
    pub(crate) fn bring(
        &self,
        lane: &mut Lane,
        object: Object,
        watch: &mut impl Watch,
    ) -> Result<Written, CopyError> {
        if self.is_there(lane, object)? {
            return Ok(Written { bytes: object.range.len(), to_prove: None });
        }
        let written = self.object(lane, object.range, watch)?;
        if written.to_prove.is_none() {
            self.log(ByteRange::from_len(object.range.start, ByteLen(written.bytes)))?;
        }
        Ok(written)
    }

    /// Whether an object is at the sink already: the log says so, or a look at both tells. Else the sink is ready for it.
    ///
    /// # Errors
    /// One of both can't be read; or the log says what does not hold.
    fn is_there(&self, lane: &mut Lane, object: Object) -> Result<bool, CopyError> {
        let (Some(log), Some(logged)) = (&self.job.settings.moving.log, &self.file.settle.logged) else {
            return Ok(false);
        };
        let fate = log.fate(logged, self.plan, object);
        let is_there = match fate {
            Fate::Copy => return self.file.touch().map(|()| false),
            Fate::Keep => true,
            Fate::Sample(piece) => {
                let holds = self.is_same(lane, piece)?;
                holds && (log.believes(logged) || self.is_same(lane, object.range)?)
            }
            Fate::Prove | Fate::Compare => self.is_same(lane, object.range)?,
        };
        if !is_there {
            log.differs(self.job, (self.file, logged), fate)?;
            self.file.touch()?;
            self.delivery.clear(self.file, self.sink_range(object.range))?;
            return Ok(false);
        }
        let tally = self.job.tally;
        Tally::add(&tally.bytes_done, object.range.len());
        Tally::add(&tally.bytes_kept, object.range.len());
        if fate == Fate::Compare {
            logged.compared_some.store(true, Ordering::Relaxed);
            // It may not be durable, so it goes into the log as what is written does.
            self.log(object.range)?;
        }
        Ok(true)
    }

    /// Whether a range of the sink holds what the source has there; behind its end it holds zeros.
    fn is_same(&self, lane: &mut Lane, range: ByteRange) -> Result<bool, CopyError> {
        let (block, back) = lane.two_blocks().map_err(|source| self.read_failed(range.start.0, source))?;
        let mut at = range.start.0;
        while at < range.end.0 {
            if self.job.pool.stopping() {
                return Err(interrupted(self.file));
            }
            let wanted = usize::try_from(range.end.0 - at).unwrap_or(usize::MAX).min(block.len());
            let got = self.read(at, &mut block[..], wanted)?;
            if got == 0 {
                return Ok(false);
            }
            let place = self.plan.in_sink(ByteOffset(at));
            if !self.sink_has(place, &block[..got], &mut back[..got], Holes::Zeros)? {
                return Ok(false);
            }
            at += got as u64;
        }
        Ok(true)
    }

    /// A range of the cut is at the sink as it is to be. If it is an object that is logged, that is said.
    ///
    /// # Errors
    /// It can't be made durable.
    pub(crate) fn log(&self, range: ByteRange) -> Result<(), CopyError> {
        let (Some(log), Some(logged)) = (&self.job.settings.moving.log, &self.file.settle.logged) else {
            return Ok(());
        };
        let object = self.plan.geometry().object_at(range.start).filter(|object| object.range == range);
        object.map_or(Ok(()), |object| log.written(self.job, logged, (object.index, self.sink_range(range))))
    }
}
