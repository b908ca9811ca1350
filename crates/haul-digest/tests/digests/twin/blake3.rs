//! BLAKE3, from its paper (O'Connor, Aumasson, Neves, Wilcox-O'Hearn, "BLAKE3: one function, fast
//! everywhere", section 2): the tree by recursion, one block after the other.

use haul_digest::Blake3Mode;

const IV: [u32; 8] =
    [0x6a09_e667, 0xbb67_ae85, 0x3c6e_f372, 0xa54f_f53a, 0x510e_527f, 0x9b05_688c, 0x1f83_d9ab, 0x5be0_cd19];

const PERMUTATION: [usize; 16] = [2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8];

const CHUNK_START: u32 = 1;
const CHUNK_END: u32 = 2;
const PARENT: u32 = 4;
const ROOT: u32 = 8;
const KEYED_HASH: u32 = 16;
const DERIVE_KEY_CONTEXT: u32 = 32;
const DERIVE_KEY_MATERIAL: u32 = 64;

const CHUNK_BYTES: usize = 1024;

/// A pending compression. Its output depends on whether the node is the root.
struct Node {
    input: [u32; 8],
    block: [u32; 16],
    counter: u64,
    block_len: u32,
    flags: u32,
}

/// Returns `len` bytes of output, from byte `seek`.
pub(super) fn blake3(mode: &Blake3Mode, bytes: &[u8], seek: u64, len: usize) -> Vec<u8> {
    let (key, flags) = match mode {
        Blake3Mode::Hash => (IV, 0),
        Blake3Mode::Keyed(key) => (words(key).try_into().unwrap(), KEYED_HASH),
        Blake3Mode::DeriveKey(context) => {
            let root = tree(context.as_bytes(), 0, IV, DERIVE_KEY_CONTEXT);
            (words(&root.output(0, 32)).try_into().unwrap(), DERIVE_KEY_MATERIAL)
        }
    };
    tree(bytes, 0, key, flags).output(seek, len)
}

/// Returns the chaining value of a subtree that starts at byte `start`, a multiple of its size.
pub(super) fn inner(bytes: &[u8], start: usize) -> Vec<u8> {
    let node = tree(bytes, (start / CHUNK_BYTES) as u64, IV, 0);
    node.chaining_value().iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// Returns the topmost node over some chunks; `first` is the number of the first chunk.
fn tree(bytes: &[u8], first: u64, key: [u32; 8], flags: u32) -> Node {
    if bytes.len() <= CHUNK_BYTES {
        return chunk(bytes, first, key, flags);
    }
    // The left child spans the largest power of two of whole chunks that leaves at least one byte
    // for the right child.
    let chunks = bytes.len().div_ceil(CHUNK_BYTES);
    let left = chunks.next_power_of_two() / 2;
    let (head, tail) = bytes.split_at(left * CHUNK_BYTES);
    let children = [tree(head, first, key, flags), tree(tail, first + left as u64, key, flags)];
    let values: Vec<u32> = children.iter().flat_map(|child| child.chaining_value()).collect();
    Node { input: key, block: values.try_into().unwrap(), counter: 0, block_len: 64, flags: flags | PARENT }
}

fn chunk(bytes: &[u8], number: u64, key: [u32; 8], flags: u32) -> Node {
    let blocks = bytes.len().div_ceil(64).max(1);
    let mut value = key;
    for block in 0.. {
        let end = bytes.len().min((block + 1) * 64);
        let mut padded = [0; 64];
        padded[..end - block * 64].copy_from_slice(&bytes[block * 64..end]);
        let start = if block == 0 { CHUNK_START } else { 0 };
        let last = block + 1 == blocks;
        let node = Node {
            input: value,
            block: words(&padded).try_into().unwrap(),
            counter: number,
            block_len: (end - block * 64) as u32,
            flags: flags | start | if last { CHUNK_END } else { 0 },
        };
        if last {
            return node;
        }
        value = node.chaining_value();
    }
    unreachable!("a chunk ends")
}

impl Node {
    fn chaining_value(&self) -> [u32; 8] {
        self.compress(self.counter, self.flags)[..8].try_into().unwrap()
    }

    /// Returns the output of the root. The counter is the number of the output block.
    fn output(&self, seek: u64, len: usize) -> Vec<u8> {
        let first = seek / 64;
        let count = (seek + len as u64).div_ceil(64) - first;
        let blocks = (first..first + count).flat_map(|counter| self.compress(counter, self.flags | ROOT));
        let bytes = blocks.flat_map(|word: u32| word.to_le_bytes());
        bytes.skip((seek % 64) as usize).take(len).collect()
    }

    fn compress(&self, counter: u64, flags: u32) -> [u32; 16] {
        let mut v = [0; 16];
        v[..8].copy_from_slice(&self.input);
        v[8..12].copy_from_slice(&IV[..4]);
        v[12] = counter as u32;
        v[13] = (counter >> 32) as u32;
        v[14] = self.block_len;
        v[15] = flags;
        let mut block = self.block;
        for _ in 0..7 {
            round(&mut v, &block);
            block = PERMUTATION.map(|from| block[from]);
        }
        for at in 0..8 {
            v[at] ^= v[at + 8];
            v[at + 8] ^= self.input[at];
        }
        v
    }
}

fn round(v: &mut [u32; 16], m: &[u32; 16]) {
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
    for (number, [a, b, c, d]) in columns_then_diagonals.into_iter().enumerate() {
        for (word, (first, second)) in [(m[2 * number], (16, 12)), (m[2 * number + 1], (8, 7))] {
            v[a] = v[a].wrapping_add(v[b]).wrapping_add(word);
            v[d] = (v[d] ^ v[a]).rotate_right(first);
            v[c] = v[c].wrapping_add(v[d]);
            v[b] = (v[b] ^ v[c]).rotate_right(second);
        }
    }
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}
