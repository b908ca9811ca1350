//! The check whether a block consists of zeros.

/// Number of bytes that are combined before a check: four 512-bit registers, which saves branches.
const FOLD: usize = 256;

/// Returns true if every byte is zero. Checks the first bytes before the rest, because data seldom
/// starts with zeros.
pub fn is_zero(bytes: &[u8]) -> bool {
    let mut chunks = bytes.chunks_exact(FOLD);
    let whole = chunks.all(|chunk| {
        let mut any = [0_u64; 8];
        for lane in chunk.chunks_exact(64) {
            for (any, word) in any.iter_mut().zip(lane.chunks_exact(8)) {
                *any |= u64::from_ne_bytes(word.try_into().expect("chunks_exact gives eight bytes"));
            }
        }
        any.iter().fold(0, |a, b| a | b) == 0
    });
    whole && bytes[bytes.len() - bytes.len() % FOLD..].iter().all(|&byte| byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn is_zero_matches_the_naive_check(
            len in 0_usize..2_000, skip in 0_usize..70, spot in any::<prop::sample::Index>(), bit in 0_u8..8,
            dirty in any::<bool>(),
        ) {
            let mut bytes = vec![0_u8; len + skip];
            if dirty && len > 0 {
                bytes[skip + spot.index(len)] = 1 << bit;
            }
            let looked_at = &bytes[skip..];
            prop_assert_eq!(is_zero(looked_at), looked_at.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_single_bit_anywhere_is_not_zero() {
        for len in [1, 2, 255, 256, 257, 511, 512, 513, 4096] {
            let mut bytes = vec![0_u8; len];
            assert!(is_zero(&bytes));
            for at in 0..len {
                bytes[at] = 0x80;
                assert!(!is_zero(&bytes), "byte {at} of {len}");
                bytes[at] = 0;
            }
        }
        assert!(is_zero(&[]));
    }
}
