//! OPERANDS: the paths that a sink wants, if a CONNECT cannot hold them.

use super::connect::at_most;
use crate::fields::{Body, Fields};
use crate::limits::{
    OPERANDS_ALL_BYTES_MAX, OPERANDS_ALL_MAX, OPERANDS_BYTES_MAX, OPERANDS_MAX, OPERANDS_PER_MESSAGE,
};
use crate::{Flaw, Reason, Why};
use haul_model::PATH_BYTES_MAX;

/// OPERANDS: some of the paths that a sink wants, in order. The last message ends the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operands {
    /// True if this message ends the list.
    pub last: bool,
    /// At most [`OPERANDS_PER_MESSAGE`] paths. Only the last message can be empty.
    pub paths: Vec<Box<[u8]>>,
}

/// Received part of a list, within its limits.
#[derive(Debug, Default)]
pub struct OperandList {
    paths: Vec<Box<[u8]>>,
    bytes: usize,
    is_whole: bool,
}

impl Operands {
    /// Returns true if a CONNECT can hold these paths.
    pub fn fit_connect(paths: &[Box<[u8]>]) -> bool {
        paths.len() <= OPERANDS_MAX && bytes_of(paths) <= OPERANDS_BYTES_MAX
    }

    /// Splits the paths into messages, of which the last is marked.
    pub fn split(paths: &[Box<[u8]>]) -> impl Iterator<Item = Operands> {
        let mut rest = Some(paths);
        std::iter::from_fn(move || {
            let left = rest.take()?;
            let (now, later) = left.split_at(paths_per_message(left));
            rest = (!later.is_empty()).then_some(later);
            Some(Operands { last: later.is_empty(), paths: now.to_vec() })
        })
    }

    pub(super) fn encode(&self, body: &mut Body<'_>) {
        body.u8(u8::from(self.last));
        body.count(self.paths.len());
        for path in &self.paths {
            body.bytes(path);
        }
    }

    pub(super) fn check(&self) -> Result<(), Flaw> {
        at_most("operands", self.paths.len(), OPERANDS_PER_MESSAGE)?;
        at_most("operands' bytes", bytes_of(&self.paths), OPERANDS_BYTES_MAX)?;
        at_most("operand", self.paths.iter().map(|path| path.len()).max().unwrap_or(0), PATH_BYTES_MAX)?;
        // Refuse empty messages: a peer could otherwise delay the start of a session without end.
        if self.paths.is_empty() && !self.last { Err(Flaw::Value("operands")) } else { Ok(()) }
    }

    pub(super) fn decode(fields: &mut Fields<'_>) -> Result<Operands, Flaw> {
        let last = match fields.u8("operands")? {
            0 => false,
            1 => true,
            _ => return Err(Flaw::Value("operands")),
        };
        let count = fields.count(OPERANDS_PER_MESSAGE, "operands")?;
        let paths =
            (0..count).map(|_| fields.bytes(PATH_BYTES_MAX, "operand")).collect::<Result<Vec<_>, _>>()?;
        let operands = Operands { last, paths };
        operands.check()?;
        Ok(operands)
    }
}

impl OperandList {
    /// Adds the next message. Returns true if the list is complete.
    ///
    /// # Errors
    /// Returns [`Why::TooLarge`] if the list exceeds the limits of a job.
    ///
    /// # Panics
    /// Panics if the list is complete already.
    pub fn take(&mut self, operands: Operands) -> Result<bool, Reason> {
        assert!(!self.is_whole, "nothing is accepted after the last list");
        self.bytes += bytes_of(&operands.paths);
        self.is_whole = operands.last;
        self.paths.extend(operands.paths);
        check_list(self.paths.len(), self.bytes)?;
        Ok(self.is_whole)
    }

    /// Returns the paths.
    pub fn into_paths(self) -> Vec<Box<[u8]>> {
        self.paths
    }
}

/// Checks a complete list against the limits of a job.
///
/// # Errors
/// Returns [`Why::TooLarge`] if the list has more paths or bytes.
pub fn check_list(paths: usize, bytes: usize) -> Result<(), Reason> {
    for (what, len, most) in
        [("paths", paths, OPERANDS_ALL_MAX), ("bytes of paths", bytes, OPERANDS_ALL_BYTES_MAX)]
    {
        if len > most {
            let text =
                format!("a job can request at most {most} {what}; request directories, or use several jobs");
            return Err(Reason::new(Why::TooLarge, &text));
        }
    }
    Ok(())
}

fn bytes_of(paths: &[Box<[u8]>]) -> usize {
    paths.iter().map(|path| path.len()).sum()
}

/// Returns the number of these paths that one message holds; at least one if there is any.
fn paths_per_message(paths: &[Box<[u8]>]) -> usize {
    let mut bytes = 0;
    let fitting = paths.iter().take(OPERANDS_PER_MESSAGE).take_while(|path| {
        bytes += path.len();
        bytes <= OPERANDS_BYTES_MAX
    });
    let some = fitting.count();
    some.max(usize::from(!paths.is_empty()))
}
