//! What a source wishes of the object log that the sink keeps.

use crate::Flaw;
use crate::fields::{Body, Fields};

/// How the sink is to keep its object log, in the log's own codes. A sink that does not know a value takes its own default for it: nothing of
/// what is transferred depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogWish {
    /// 1 a log for each file, 2 for some files together, 3 for all of the job; 0 as the sink likes.
    pub mechanism: u8,
    /// How many files share a log, for mechanism 2.
    pub files: u32,
    /// 1 char, 2 int, 3 enc, 4 binary, 5 bit8, 6 bit64; 0 as the sink likes.
    pub encoding: u8,
    /// 1 every object is made durable by itself, 2 in groups, 3 nothing is; 0 as the sink likes.
    pub sync: u8,
    /// What an earlier run left is held against the source: 1 nothing of it, 2 a sample, 3 all; 0 as the sink sees fit.
    pub verify: u8,
}

impl LogWish {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u8(self.mechanism);
        body.u8(self.encoding);
        body.u8(self.sync);
        body.u8(self.verify);
        body.u32(self.files);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<LogWish, Flaw> {
        let mechanism = fields.u8("log")?;
        let encoding = fields.u8("log")?;
        let sync = fields.u8("log")?;
        let verify = fields.u8("log")?;
        Ok(LogWish { mechanism, files: fields.u32("log")?, encoding, sync, verify })
    }
}
