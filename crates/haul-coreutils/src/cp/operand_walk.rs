//! Operands that are not started yet.

use super::directory::{Directory, OperandNames};
use super::ranges::Ranges;
use super::rules::BatchItem;
use std::sync::Arc;

/// The remaining operands, or the remaining parts of one operand.
#[derive(Debug)]
pub(crate) enum OperandWalk {
    /// The next operand and those after it.
    Rows(Rows),
    /// The next range of one file and those after it.
    Parts(Box<LaterParts>),
}

/// The remaining operands.
#[derive(Debug)]
pub(crate) struct Rows {
    pub(crate) target: Arc<Directory>,
    pub(crate) next: usize,
    /// A line of a batch that was read and must wait.
    pub(crate) read: Option<Box<BatchItem>>,
    /// True if each operand waits for the one before it.
    pub(crate) in_order: bool,
    /// True if two operands may have the same sink.
    pub(crate) sinks_collide: bool,
    pub(crate) sink_is_missing: bool,
}

/// The ranges of a line that are not started yet.
#[derive(Debug)]
pub(crate) struct LaterParts {
    pub(crate) item: BatchItem,
    pub(crate) next: usize,
    pub(crate) ranges: Arc<Ranges>,
    pub(crate) names: Arc<OperandNames>,
    pub(crate) target: Arc<Directory>,
    /// The later lines, if they wait for this one.
    pub(crate) after: Option<Box<OperandWalk>>,
}

impl Rows {
    /// Returns a copy of these rows with a line that was read and must wait.
    pub(crate) fn waiting(&self, item: &BatchItem) -> OperandWalk {
        OperandWalk::Rows(Rows { target: self.target.clone(), read: Some(Box::new(item.clone())), ..*self })
    }
}
