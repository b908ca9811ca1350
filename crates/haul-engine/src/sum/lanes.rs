use super::order::SumError;
use super::settings::{Recipe, Settings};
use haul_digest::tree::TreeShape;
use haul_digest::{Algorithm, Digest};
use haul_model::ByteOffset;
use haul_sys::buffer::AlignedBuffer;
pub(super) struct LaneHands { block_bytes: usize, block: Option<AlignedBuffer> }
impl LaneHands {
    pub(super) fn new(s: &Settings) -> LaneHands { LaneHands { block_bytes: s.block_bytes, block: None } }
    pub(super) fn block(&mut self) -> Result<&mut [u8], SumError> {
        if self.block.is_none() { self.block = Some(AlignedBuffer::new(self.block_bytes).map_err(SumError::Open)?); }
        match &mut self.block { Some(b) => Ok(b), None => unreachable!() }
    }
    pub(super) fn may_take(&self, _: &Recipe) -> bool { false }
    pub(super) fn leaves_in_lanes(&self, _: &Recipe, _: TreeShape, _: usize) -> Option<usize> { None }
    pub(super) fn hash_leaves(&mut self, _: Algorithm, _: TreeShape, _: std::ops::Range<u64>, _: impl FnMut(ByteOffset, &mut [u8]) -> Result<(), SumError>) -> Result<Vec<Digest>, SumError> { Ok(vec![]) }
}
