//! One object in a resumed job: checks if it already exists at the sink, and logs it.

use super::ObjectAction;
use crate::copy::blocks::Blocks;
use crate::copy::details::Holes;
use crate::copy::error::CopyError;
use crate::copy::open_copy::OpenCopy;
use crate::copy::report::Tally;
use haul_model::{ByteOffset, ByteRange, Object};

/// Reason why a comparison ends early.
enum Unequal {
    /// The bytes differ.
    Differs,
    /// A file cannot be read, or the job is to stop.
    Failed(CopyError),
}

impl From<CopyError> for Unequal {
    fn from(error: CopyError) -> Unequal {
        Unequal::Failed(error)
    }
}

impl OpenCopy<'_> {
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
            self.delivery.clear(self.file, self.sink_range(object.range), self.context.stop)?;
            return Ok(false);
        }
        self.delivery.verification.keep();
        let tally = self.context.observer.tally;
        Tally::add(&tally.bytes_done, object.range.len());
        Tally::add(&tally.bytes_kept, object.range.len());
        if object_action == ObjectAction::Compare {
            // The object may not be durable, so it is logged like a written one.
            self.log(object.range)?;
        }
        Ok(true)
    }

    /// Returns true if a range of the sink equals that of the source. Bytes behind the end of the
    /// sink count as zeros.
    fn is_same(&self, blocks: &mut Blocks, range: ByteRange) -> Result<bool, CopyError> {
        let (block, back) = blocks.two().map_err(|source| self.read_failed(range.start.0, source))?;
        let read = self.read_source(range, block, |at, bytes| {
            let place = self.plan.in_sink(ByteOffset(at));
            match self.sink_has(place, bytes, &mut back[..bytes.len()], Holes::Zeros)? {
                true => Ok(()),
                false => Err(Unequal::Differs),
            }
        });
        match read {
            Ok(read) => Ok(read == range.len()),
            Err(Unequal::Differs) => Ok(false),
            Err(Unequal::Failed(error)) => Err(error),
        }
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
            log.add_object(&self.context.observer, logged, object.index, self.sink_range(range))
        })
    }
}
