//! Checksums that judge if bytes have changed.

use haul_digest::tree::TreeHasher;
use haul_digest::{Algorithm, Digest, digest};
use haul_model::ByteLen;

/// A value over bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detector {
    /// The digest of all bytes.
    Whole(Algorithm),
    /// The digests of the blocks, XORed: independent of the order of blocks.
    XorOfBlocks(Algorithm),
    /// The root of the hash tree over the blocks.
    TreeOfBlocks(Algorithm),
}

impl Detector {
    /// Returns the name in tables.
    pub(super) fn name(self) -> String {
        match self {
            Detector::Whole(algorithm) => algorithm.name().to_owned(),
            Detector::XorOfBlocks(algorithm) => format!("xor of {algorithm}s"),
            Detector::TreeOfBlocks(algorithm) => format!("tree of {algorithm}s"),
        }
    }

    /// Returns the algorithm of the values.
    pub(super) fn algorithm(self) -> Algorithm {
        let (Detector::Whole(algorithm)
        | Detector::XorOfBlocks(algorithm)
        | Detector::TreeOfBlocks(algorithm)) = self;
        algorithm
    }

    /// Returns the number of possible values, from the digest length alone.
    pub(super) fn values(self) -> f64 {
        (self.algorithm().digest_len() as f64 * 8.0).exp2()
    }

    /// Returns the value over `bytes` in blocks of `block` bytes; only some judges use the blocks.
    pub(super) fn value(self, bytes: &[u8], block: usize) -> Digest {
        match self {
            Detector::Whole(algorithm) => digest(algorithm, bytes),
            Detector::XorOfBlocks(algorithm) => xor_of_blocks(algorithm, bytes, block),
            Detector::TreeOfBlocks(algorithm) => {
                let mut tree = TreeHasher::new(algorithm, ByteLen(block as u64));
                tree.update(bytes);
                tree.finish()
            }
        }
    }
}

fn xor_of_blocks(algorithm: Algorithm, bytes: &[u8], block: usize) -> Digest {
    let mut sum = vec![0; algorithm.digest_len()];
    for part in bytes.chunks(block) {
        let value = digest(algorithm, part);
        sum.iter_mut().zip(value.as_bytes()).for_each(|(to, from)| *to ^= from);
    }
    Digest::from_bytes(algorithm, &sum).unwrap_or_else(|error| unreachable!("as long as its parts: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn judge_values_match_their_definitions() {
        let bytes: Vec<u8> = (0..=255).collect();
        let of = |part: &[u8]| digest(Algorithm::Crc32c, part).value().unwrap_or_default();
        let xored = Detector::XorOfBlocks(Algorithm::Crc32c).value(&bytes, 100);
        assert_eq!(xored.value(), Some(of(&bytes[..100]) ^ of(&bytes[100..200]) ^ of(&bytes[200..])));
        let leaves: Vec<Digest> = bytes.chunks(100).map(|part| digest(Algorithm::Md5, part)).collect();
        let root = haul_digest::tree::root_of(Algorithm::Md5, &leaves);
        assert_eq!(Detector::TreeOfBlocks(Algorithm::Md5).value(&bytes, 100), root);
        assert_eq!(Detector::Whole(Algorithm::Md5).value(&bytes, 100), digest(Algorithm::Md5, &bytes));
    }
}
