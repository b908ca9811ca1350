//! Settings that a source requests for the object log of the sink.

use crate::Flaw;
use crate::fields::{Body, Fields};

/// Requested settings of the object log at the sink, in the codes of the log. For a value that it
/// does not know, a sink uses its own default. The transferred data does not depend on any of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogRequest {
    /// 1: a log for each file; 2: a log shared by some files; 3: one log for the job; 0: chosen by
    /// the sink.
    pub mechanism: u8,
    /// Number of files that share a log, for mechanism 2.
    pub files: u32,
    /// 1: char; 2: int; 3: enc; 4: binary; 5: bit8; 6: bit64; 0: chosen by the sink.
    pub encoding: u8,
    /// 1: every object is synced by itself; 2: objects are synced in groups; 3: no syncs; 0: chosen
    /// by the sink.
    pub sync: u8,
    /// Part of the state of an earlier run that is compared with the source. 1: nothing; 2: a
    /// sample; 3: all; 0: chosen by the sink.
    pub verify: u8,
}

impl LogRequest {
    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u8(self.mechanism);
        body.u8(self.encoding);
        body.u8(self.sync);
        body.u8(self.verify);
        body.u32(self.files);
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<LogRequest, Flaw> {
        let mechanism = fields.u8("log")?;
        let encoding = fields.u8("log")?;
        let sync = fields.u8("log")?;
        let verify = fields.u8("log")?;
        Ok(LogRequest { mechanism, files: fields.u32("log")?, encoding, sync, verify })
    }
}
