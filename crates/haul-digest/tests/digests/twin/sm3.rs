//! SM3, from GB/T 32905-2016: the padding (5.2), the expansion of a block (5.3.2) and the
//! compression (5.3.3).

const IV: [u32; 8] =
    [0x7380_166f, 0x4914_b2b9, 0x1724_42d7, 0xda8a_0600, 0xa96f_30bc, 0x1631_38aa, 0xe38d_ee4d, 0xb0fb_0e4e];

pub(super) fn sm3(bytes: &[u8]) -> Vec<u8> {
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    while padded.len() % 64 != 56 {
        padded.push(0);
    }
    padded.extend_from_slice(&(bytes.len() as u64 * 8).to_be_bytes());
    let state = padded.chunks_exact(64).fold(IV, compress);
    state.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn compress(state: [u32; 8], block: &[u8]) -> [u32; 8] {
    let mut w: Vec<u32> =
        block.chunks_exact(4).map(|word| u32::from_be_bytes(word.try_into().unwrap())).collect();
    for j in 16..68 {
        let x = w[j - 16] ^ w[j - 9] ^ w[j - 3].rotate_left(15);
        let p1 = x ^ x.rotate_left(15) ^ x.rotate_left(23);
        w.push(p1 ^ w[j - 13].rotate_left(7) ^ w[j - 6]);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = state;
    for j in 0..64u32 {
        let t: u32 = if j < 16 { 0x79cc_4519 } else { 0x7a87_9d8a };
        let turned = a.rotate_left(12);
        let ss1 = turned.wrapping_add(e).wrapping_add(t.rotate_left(j % 32)).rotate_left(7);
        let ss2 = ss1 ^ turned;
        let (ff, gg) = match j < 16 {
            true => (a ^ b ^ c, e ^ f ^ g),
            false => ((a & b) | (a & c) | (b & c), (e & f) | (!e & g)),
        };
        let at = j as usize;
        let tt1 = ff.wrapping_add(d).wrapping_add(ss2).wrapping_add(w[at] ^ w[at + 4]);
        let tt2 = gg.wrapping_add(h).wrapping_add(ss1).wrapping_add(w[at]);
        (d, c, b, a) = (c, b.rotate_left(9), a, tt1);
        (h, g, f, e) = (g, f.rotate_left(19), e, tt2 ^ tt2.rotate_left(9) ^ tt2.rotate_left(17));
    }
    let next = [a, b, c, d, e, f, g, h];
    std::array::from_fn(|at| next[at] ^ state[at])
}
