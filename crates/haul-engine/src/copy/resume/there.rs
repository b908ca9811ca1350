//! One object in a resumed job: checks if it already exists at the sink, and logs it.

use super::ObjectAction;
use crate::copy::blocks::Blocks;
use crate::copy::details::Holes;
use crate::copy::error::CopyError;
use crate::copy::report::Tally;
use crate::copy::run::Run;
use haul_model::{ByteOffset, ByteRange, Object};
use std::sync::atomic::Ordering;

impl Run<'_> {
    /// Returns true if an object already exists at the sink, by the log or by a comparison.
    /// Otherwise prepares the sink for the object.
    ///
    /// # Errors
    /// Returns an error if source or sink cannot be read, or if a log entry is false.
    pub(crate) fn is_there(&self, blocks: &mut Blocks, object: Object) -> Result<bool, CopyError> {
        let (Some(log), Some(logged)) = (self.context.log, &self.file.logged) else {
            return Ok(false);
        };
        let object_action = log.object_action(logged, self.plan, object);
        let is_there = match object_action {
            ObjectAction::Copy => return self.file.touch().map(|()| false),
            ObjectAction::Replace => false,
            ObjectAction::Keep => true,
            ObjectAction::Sample(piece) => {
                let holds = self.is_same(blocks, piece)?;
                holds && (log.trusts(logged) || self.is_same(blocks, object.range)?)
            }
            ObjectAction::Prove | ObjectAction::Compare => self.is_same(blocks, object.range)?,
        };
        if !is_there {
            if object_action != ObjectAction::Replace {
                log.differs(&self.context.observer, self.file, logged, object_action)?;
            }
            self.file.touch()?;
            self.delivery.clear(self.file, self.sink_range(object.range), || self.context.is_stopping())?;
            return Ok(false);
        }
        self.delivery.verification.keep();
        let tally = self.context.observer.tally;
        Tally::add(&tally.bytes_done, object.range.len());
        Tally::add(&tally.bytes_kept, object.range.len());
        if object_action == ObjectAction::Compare {
            logged.compared_some.store(true, Ordering::Relaxed);
            // The object may not be durable, so it is logged like a written one.
            self.log(object.range)?;
        }
        Ok(true)
    }

    /// Returns true if a range of the sink equals that of the source. Bytes behind the end of the
    /// sink count as zeros.
    fn is_same(&self, blocks: &mut Blocks, range: ByteRange) -> Result<bool, CopyError> {
        let (block, back) = blocks.two().map_err(|source| self.read_failed(range.start.0, source))?;
        let mut at = range.start.0;
        while at < range.end.0 {
            if self.context.is_stopping() {
                return Err(self.file.interrupted());
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

    /// Records that a range of the plan is correct at the sink. Logs the range if it is a complete
    /// object.
    ///
    /// # Errors
    /// Returns an error if the range cannot be synced.
    pub(crate) fn log(&self, range: ByteRange) -> Result<(), CopyError> {
        let (Some(log), Some(logged)) = (self.context.log, &self.file.logged) else {
            return Ok(());
        };
        let object = self.plan.geometry().object_at(range.start).filter(|object| object.range == range);
        object.map_or(Ok(()), |object| {
            log.written(&self.context.observer, logged, object.index, self.sink_range(range))
        })
    }
}
