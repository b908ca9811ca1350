//! BLAKE2b without a key, from RFC 7693: the mixing function (section 3.1), the compression (3.2)
//! and the padding (3.3).

const IV: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

/// Message schedule. Rounds 10 and 11 repeat rounds 0 and 1.
const SIGMA: [[usize; 16]; 10] = [
    [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
    [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
    [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
    [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
    [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
    [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
    [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
    [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
    [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
];

/// Returns a digest of `len` bytes, 1 to 64.
pub(super) fn blake2b(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut state = IV;
    state[0] ^= 0x0101_0000 ^ len as u64;
    let blocks = bytes.len().div_ceil(128).max(1);
    for block in 0..blocks {
        let last = block + 1 == blocks;
        let end = if last { bytes.len() } else { (block + 1) * 128 };
        let mut padded = [0; 128];
        padded[..end - block * 128].copy_from_slice(&bytes[block * 128..end]);
        compress(&mut state, &padded, end as u128, last);
    }
    state.iter().flat_map(|word| word.to_le_bytes()).take(len).collect()
}

fn compress(state: &mut [u64; 8], block: &[u8; 128], count: u128, last: bool) {
    let words: Vec<u64> =
        block.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())).collect();
    let mut v = [0; 16];
    v[..8].copy_from_slice(state);
    v[8..].copy_from_slice(&IV);
    v[12] ^= count as u64;
    v[13] ^= (count >> 64) as u64;
    if last {
        v[14] = !v[14];
    }
    for round in 0..12 {
        let order = &SIGMA[round % 10];
        let columns_then_diagonals = [
            [0, 4, 8, 12],
            [1, 5, 9, 13],
            [2, 6, 10, 14],
            [3, 7, 11, 15],
            [0, 5, 10, 15],
            [1, 6, 11, 12],
            [2, 7, 8, 13],
            [3, 4, 9, 14],
        ];
        for (number, at) in columns_then_diagonals.into_iter().enumerate() {
            mix(&mut v, at, words[order[2 * number]], words[order[2 * number + 1]]);
        }
    }
    for at in 0..8 {
        state[at] ^= v[at] ^ v[at + 8];
    }
}

fn mix(v: &mut [u64; 16], [a, b, c, d]: [usize; 4], x: u64, y: u64) {
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(x);
    v[d] = (v[d] ^ v[a]).rotate_right(32);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(24);
    v[a] = v[a].wrapping_add(v[b]).wrapping_add(y);
    v[d] = (v[d] ^ v[a]).rotate_right(16);
    v[c] = v[c].wrapping_add(v[d]);
    v[b] = (v[b] ^ v[c]).rotate_right(63);
}
