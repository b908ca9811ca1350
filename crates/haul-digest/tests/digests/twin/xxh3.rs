//! XXH3 with 64 and 128 bits, seed 0 and the default secret, from the specification (xxHash's
//! doc/xxhash_spec.md). There is one short form for each range of lengths, and stripes and blocks
//! above 240 bytes. With seed 0, the secret is the same for all lengths, and the terms of the seed
//! vanish.

const SECRET: &str = "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671f\
                      cb79e64eccc0e578825ad07dccff7221b8084674f743248ee03590e6813a264c\
                      3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8a8\
                      fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364ea\
                      c5ac8334d3ebc3c581a0fffa1363eb170ddd51b7f0da49d316552629d4689e2b\
                      16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e";

const P32: [u32; 3] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d];
const P64: [u64; 5] = [
    0x9e37_79b1_85eb_ca87,
    0xc2b2_ae3d_27d4_eb4f,
    0x1656_67b1_9e37_79f9,
    0x85eb_ca77_c2b2_ae63,
    0x27d4_eb2f_1656_67c5,
];
const MX1: u64 = 0x1656_6791_9e37_79f9;
const MX2: u64 = 0x9fb2_1c65_1e98_df25;

fn secret() -> Vec<u8> {
    let digits = SECRET.as_bytes();
    let secret: Vec<u8> = digits
        .chunks_exact(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect();
    assert_eq!(secret.len(), 192);
    secret
}

fn word32(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

fn word64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}

/// Returns the high half of a 128-bit product XOR its low half.
fn folded(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

fn avalanche(value: u64) -> u64 {
    let value = (value ^ value >> 37).wrapping_mul(MX1);
    value ^ value >> 32
}

/// Computes the last step of XXH64.
fn avalanche_xxh64(value: u64) -> u64 {
    let value = (value ^ value >> 33).wrapping_mul(P64[1]);
    let value = (value ^ value >> 29).wrapping_mul(P64[2]);
    value ^ value >> 32
}

/// Mixes two words of input with two words of the secret.
fn mix(data: &[u8], at: usize, secret: &[u8], from: usize) -> u64 {
    folded(word64(data, at) ^ word64(secret, from), word64(data, at + 8) ^ word64(secret, from + 8))
}

pub(super) fn xxh3_64(data: &[u8]) -> u64 {
    let secret = secret();
    let len = data.len();
    match len {
        0 => avalanche_xxh64(word64(&secret, 56) ^ word64(&secret, 64)),
        1..=3 => {
            let combined = combined_1_to_3(data);
            let key = u64::from(word32(&secret, 0) ^ word32(&secret, 4));
            avalanche_xxh64(u64::from(combined) ^ key)
        }
        4..=8 => {
            let (first, last) = (word32(data, 0), word32(data, len - 4));
            let key = word64(&secret, 8) ^ word64(&secret, 16);
            let mut value = key ^ (u64::from(last) | u64::from(first) << 32);
            value ^= value.rotate_left(49) ^ value.rotate_left(24);
            value = value.wrapping_mul(MX2);
            value ^= (value >> 35).wrapping_add(len as u64);
            value = value.wrapping_mul(MX2);
            value ^ value >> 28
        }
        9..=16 => {
            let low = (word64(&secret, 24) ^ word64(&secret, 32)) ^ word64(data, 0);
            let high = (word64(&secret, 40) ^ word64(&secret, 48)) ^ word64(data, len - 8);
            let sum = (len as u64).wrapping_add(low.swap_bytes()).wrapping_add(high);
            avalanche(sum.wrapping_add(folded(low, high)))
        }
        17..=128 => {
            let mut sum = (len as u64).wrapping_mul(P64[0]);
            for round in (0..(len - 1) / 32 + 1).rev() {
                sum = sum.wrapping_add(mix(data, round * 16, &secret, round * 32));
                sum = sum.wrapping_add(mix(data, len - round * 16 - 16, &secret, round * 32 + 16));
            }
            avalanche(sum)
        }
        129..=240 => {
            let mut sum = (len as u64).wrapping_mul(P64[0]);
            for piece in 0..8 {
                sum = sum.wrapping_add(mix(data, piece * 16, &secret, piece * 16));
            }
            sum = avalanche(sum);
            for piece in 8..len / 16 {
                sum = sum.wrapping_add(mix(data, piece * 16, &secret, (piece - 8) * 16 + 3));
            }
            avalanche(sum.wrapping_add(mix(data, len - 16, &secret, 136 - 17)))
        }
        _ => merge(&accumulate(data, &secret), &secret, 11, (len as u64).wrapping_mul(P64[0])),
    }
}

pub(super) fn xxh3_128(data: &[u8]) -> u128 {
    let secret = secret();
    let len = data.len();
    let joined = |low: u64, high: u64| u128::from(high) << 64 | u128::from(low);
    match len {
        0 => joined(
            avalanche_xxh64(word64(&secret, 64) ^ word64(&secret, 72)),
            avalanche_xxh64(word64(&secret, 80) ^ word64(&secret, 88)),
        ),
        1..=3 => {
            let combined = combined_1_to_3(data);
            let turned = combined.swap_bytes().rotate_left(13);
            let low = u64::from(word32(&secret, 0) ^ word32(&secret, 4)) ^ u64::from(combined);
            let high = u64::from(word32(&secret, 8) ^ word32(&secret, 12)) ^ u64::from(turned);
            joined(avalanche_xxh64(low), avalanche_xxh64(high))
        }
        4..=8 => {
            let (first, last) = (word32(data, 0), word32(data, len - 4));
            let key = word64(&secret, 16) ^ word64(&secret, 24);
            let combined = (u64::from(first) | u64::from(last) << 32) ^ key;
            let product = u128::from(combined) * u128::from(P64[0].wrapping_add((len as u64) << 2));
            let (mut low, mut high) = (product as u64, (product >> 64) as u64);
            high = high.wrapping_add(low << 1);
            low ^= high >> 3;
            low = (low ^ low >> 35).wrapping_mul(MX2);
            low ^= low >> 28;
            joined(low, avalanche(high))
        }
        9..=16 => {
            let (first, last) = (word64(data, 0), word64(data, len - 8));
            let low_key = word64(&secret, 32) ^ word64(&secret, 40);
            let high_key = word64(&secret, 48) ^ word64(&secret, 56);
            let product = u128::from(first ^ last ^ low_key) * u128::from(P64[0]);
            let low = (product as u64).wrapping_add((len as u64 - 1) << 54);
            let tail = last ^ high_key;
            let spread = (tail & 0xffff_ffff).wrapping_mul(u64::from(P32[1]) - 1);
            let high = ((product >> 64) as u64).wrapping_add(tail).wrapping_add(spread);
            let low = low ^ high.swap_bytes();
            let last = u128::from(low) * u128::from(P64[1]);
            let high = ((last >> 64) as u64).wrapping_add(high.wrapping_mul(P64[1]));
            joined(avalanche(last as u64), avalanche(high))
        }
        17..=128 => {
            let mut sums = [(len as u64).wrapping_mul(P64[0]), 0];
            for round in (0..(len - 1) / 32 + 1).rev() {
                mix_two(&mut sums, data, round * 16, len - round * 16 - 16, &secret, round * 32);
            }
            finish_middle(sums, len)
        }
        129..=240 => {
            let mut sums = [(len as u64).wrapping_mul(P64[0]), 0];
            for round in 0..4 {
                mix_two(&mut sums, data, round * 32, round * 32 + 16, &secret, round * 32);
            }
            sums = sums.map(avalanche);
            for round in 4..len / 32 {
                mix_two(&mut sums, data, round * 32, round * 32 + 16, &secret, 3 + (round - 4) * 32);
            }
            mix_two(&mut sums, data, len - 16, len - 32, &secret, 136 - 17 - 16);
            finish_middle(sums, len)
        }
        _ => {
            let lanes = accumulate(data, &secret);
            let low = merge(&lanes, &secret, 11, (len as u64).wrapping_mul(P64[0]));
            let high = merge(&lanes, &secret, 192 - 64 - 11, !(len as u64).wrapping_mul(P64[1]));
            joined(low, high)
        }
    }
}

fn combined_1_to_3(data: &[u8]) -> u32 {
    let len = data.len();
    u32::from(data[len - 1]) | (len as u32) << 8 | u32::from(data[0]) << 16 | u32::from(data[len >> 1]) << 24
}

/// Mixes sixteen bytes at one offset into the first sum and sixteen at another into the second,
/// each with the plain words of the other.
fn mix_two(sums: &mut [u64; 2], data: &[u8], one: usize, other: usize, secret: &[u8], from: usize) {
    let plain = |at| word64(data, at).wrapping_add(word64(data, at + 8));
    sums[0] = sums[0].wrapping_add(mix(data, one, secret, from)) ^ plain(other);
    sums[1] = sums[1].wrapping_add(mix(data, other, secret, from + 16)) ^ plain(one);
}

fn finish_middle(sums: [u64; 2], len: usize) -> u128 {
    let low = sums[0].wrapping_add(sums[1]);
    let high = sums[0]
        .wrapping_mul(P64[0])
        .wrapping_add(sums[1].wrapping_mul(P64[3]))
        .wrapping_add((len as u64).wrapping_mul(P64[1]));
    u128::from(0u64.wrapping_sub(avalanche(high))) << 64 | u128::from(avalanche(low))
}

/// Returns the eight lanes after all stripes of 64 bytes.
fn accumulate(data: &[u8], secret: &[u8]) -> [u64; 8] {
    let mut lanes =
        [u64::from(P32[2]), P64[0], P64[1], P64[2], P64[3], u64::from(P32[1]), P64[4], u64::from(P32[0])];
    let stripes_per_block = (secret.len() - 64) / 8;
    let block_bytes = stripes_per_block * 64;
    let full_blocks = (data.len() - 1) / block_bytes;
    for block in 0..full_blocks {
        for stripe in 0..stripes_per_block {
            add_stripe(&mut lanes, data, block * block_bytes + stripe * 64, secret, stripe * 8);
        }
        for (at, lane) in lanes.iter_mut().enumerate() {
            *lane ^= *lane >> 47;
            *lane ^= word64(secret, secret.len() - 64 + at * 8);
            *lane = lane.wrapping_mul(u64::from(P32[0]));
        }
    }
    let rest = data.len() - full_blocks * block_bytes;
    for stripe in 0..(rest - 1) / 64 {
        add_stripe(&mut lanes, data, full_blocks * block_bytes + stripe * 64, secret, stripe * 8);
    }
    add_stripe(&mut lanes, data, data.len() - 64, secret, secret.len() - 64 - 7);
    lanes
}

fn add_stripe(lanes: &mut [u64; 8], data: &[u8], at: usize, secret: &[u8], from: usize) {
    for lane in 0..8 {
        let word = word64(data, at + lane * 8);
        let keyed = word ^ word64(secret, from + lane * 8);
        lanes[lane ^ 1] = lanes[lane ^ 1].wrapping_add(word);
        lanes[lane] = lanes[lane].wrapping_add((keyed & 0xffff_ffff).wrapping_mul(keyed >> 32));
    }
}

fn merge(lanes: &[u64; 8], secret: &[u8], from: usize, start: u64) -> u64 {
    let pairs = (0..4).map(|pair| {
        let (one, other) = (lanes[2 * pair], lanes[2 * pair + 1]);
        folded(one ^ word64(secret, from + pair * 16), other ^ word64(secret, from + pair * 16 + 8))
    });
    avalanche(pairs.fold(start, u64::wrapping_add))
}
