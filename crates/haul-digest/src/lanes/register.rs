//! Register operations for compression functions: one word of each of several streams, processed in
//! parallel.
//!
//! Each algorithm is written once over [`Register`]. A plain word is a register of one lane, and an
//! array of words is the portable form. [`Pair`] runs two registers interleaved to hide the latency
//! of long dependency chains.

/// Maximum number of lanes of all registers.
pub(super) const MAX_LANES: usize = 32;

/// Word of the algorithm: 32 bits for MD5, SHA-1 and SHA-256, 64 bits for SHA-512.
pub(super) trait Word: Copy {
    /// Zero.
    const ZERO: Self;
    /// Size of a message block in bytes; a block is always 16 words.
    const BLOCK: usize;
    /// Returns the low bits of a stored state word.
    fn from_state(word: u64) -> Self;
    /// Returns the stored form of a state word.
    fn to_state(self) -> u64;
}

impl Word for u32 {
    const ZERO: Self = 0;
    const BLOCK: usize = 64;
    #[inline(always)]
    fn from_state(word: u64) -> Self {
        word as u32
    }
    #[inline(always)]
    fn to_state(self) -> u64 {
        u64::from(self)
    }
}

impl Word for u64 {
    const ZERO: Self = 0;
    const BLOCK: usize = 128;
    #[inline(always)]
    fn from_state(word: u64) -> Self {
        word
    }
    #[inline(always)]
    fn to_state(self) -> u64 {
        self
    }
}

/// One word of each of [`Register::LANES`] streams.
///
/// A value of a register type exists only on a CPU that has its instructions. The two functions
/// that create one without another value ([`Register::gather`] and [`Register::load_block`]) are
/// therefore `unsafe`. Every other operation starts from a value and is safe.
///
/// Every method is `#[inline(always)]`, so that all code is compiled into the one function that has
/// the `target_feature` attribute.
pub(super) trait Register: Copy {
    /// Word in each lane.
    type Word: Word;
    /// Number of streams that run in parallel; at most [`MAX_LANES`].
    const LANES: usize;

    /// Loads `words[i]` into lane `i`.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of this register.
    unsafe fn gather(words: &[Self::Word]) -> Self;

    /// Loads the 16 words of one block of every lane: word `w` of the result holds word `w` of the
    /// block of each lane. That block starts `offset` bytes after the pointer of the lane, at any
    /// alignment.
    ///
    /// # Safety
    ///
    /// The CPU must have the instructions of this register. `at` must have at least
    /// [`Register::LANES`] pointers, and each of the first [`Register::LANES`] must be readable
    /// from `offset` to `offset` plus one block.
    unsafe fn load_block(at: &[*const u8], offset: usize, big_endian: bool) -> [Self; 16];

    /// Stores lane `i` in `words[i]`.
    fn scatter(self, words: &mut [Self::Word]);
    /// Returns a register with the same word in every lane.
    fn splat(self, word: Self::Word) -> Self;
    /// Adds with wrap-around.
    fn add(self, other: Self) -> Self;
    /// Returns `self ^ other`.
    fn xor(self, other: Self) -> Self;
    /// Returns `self ^ b ^ c`.
    fn xor3(self, b: Self, c: Self) -> Self;
    /// Selects bits: `yes` where `self` is set, `no` elsewhere.
    fn choose(self, yes: Self, no: Self) -> Self;
    /// Returns for each bit the value of at least two of the three operands.
    fn majority(self, b: Self, c: Self) -> Self;
    /// Returns `b ^ (self | !c)`, the fourth function of MD5.
    fn or_not_xor(self, b: Self, c: Self) -> Self;
    /// Rotates to the left by `1..=bits - 1`.
    fn rotl(self, bits: u32) -> Self;
    /// Rotates to the right by `1..=bits - 1`.
    fn rotr(self, bits: u32) -> Self;
    /// Shifts to the right; zeros are shifted in.
    fn shr(self, bits: u32) -> Self;
}

macro_rules! word_register {
    ($word:ty) => {
        impl Register for $word {
            type Word = $word;
            const LANES: usize = 1;

            #[inline(always)]
            unsafe fn gather(words: &[$word]) -> Self {
                words[0]
            }
            #[inline(always)]
            unsafe fn load_block(at: &[*const u8], offset: usize, big_endian: bool) -> [Self; 16] {
                // SAFETY: the caller guarantees one block from `offset`, which is 16 words; a byte
                // array has no alignment.
                let bytes = unsafe { &*at[0].add(offset).cast::<[[u8; size_of::<$word>()]; 16]>() };
                let mut block = [0; 16];
                for (word, bytes) in block.iter_mut().zip(bytes) {
                    *word = if big_endian {
                        <$word>::from_be_bytes(*bytes)
                    } else {
                        <$word>::from_le_bytes(*bytes)
                    };
                }
                block
            }
            #[inline(always)]
            fn scatter(self, words: &mut [$word]) {
                words[0] = self;
            }
            #[inline(always)]
            fn splat(self, word: $word) -> Self {
                word
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn xor3(self, b: Self, c: Self) -> Self {
                self ^ (b ^ c)
            }
            #[inline(always)]
            fn choose(self, yes: Self, no: Self) -> Self {
                no ^ (self & (yes ^ no))
            }
            #[inline(always)]
            fn majority(self, b: Self, c: Self) -> Self {
                (self & b) | (c & (self | b))
            }
            #[inline(always)]
            fn or_not_xor(self, b: Self, c: Self) -> Self {
                b ^ (self | !c)
            }
            #[inline(always)]
            fn rotl(self, bits: u32) -> Self {
                self.rotate_left(bits)
            }
            #[inline(always)]
            fn rotr(self, bits: u32) -> Self {
                self.rotate_right(bits)
            }
            #[inline(always)]
            fn shr(self, bits: u32) -> Self {
                self >> bits
            }
        }
    };
}

word_register!(u32);
word_register!(u64);

/// Applies an operation to each lane in plain words. The compiler uses the baseline vectors of the
/// target.
macro_rules! lane_by_lane {
    (|$($name:ident),+| $body:expr) => {{
        let mut out = [Default::default(); N];
        for i in 0..N {
            $(let $name = $name[i];)+
            out[i] = $body;
        }
        out
    }};
}

impl<W, const N: usize> Register for [W; N]
where
    W: Register<Word = W> + Word + Default,
{
    type Word = W;
    const LANES: usize = N;

    #[inline(always)]
    unsafe fn gather(words: &[W]) -> Self {
        let mut out = [W::ZERO; N];
        out.copy_from_slice(&words[..N]);
        out
    }
    #[inline(always)]
    unsafe fn load_block(at: &[*const u8], offset: usize, big_endian: bool) -> [Self; 16] {
        let mut block = [[W::ZERO; N]; 16];
        for lane in 0..N {
            // SAFETY: the caller guarantees for the pointer of lane `lane` the same as the one-lane
            // load requires.
            let words = unsafe { W::load_block(&at[lane..], offset, big_endian) };
            for (row, word) in block.iter_mut().zip(words) {
                row[lane] = word;
            }
        }
        block
    }
    #[inline(always)]
    fn scatter(self, words: &mut [W]) {
        words[..N].copy_from_slice(&self);
    }
    #[inline(always)]
    fn splat(self, word: W) -> Self {
        [word; N]
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        let a = self;
        lane_by_lane!(|a, other| a.add(other))
    }
    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        let a = self;
        lane_by_lane!(|a, other| a.xor(other))
    }
    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        let a = self;
        lane_by_lane!(|a, b, c| a.xor3(b, c))
    }
    #[inline(always)]
    fn choose(self, yes: Self, no: Self) -> Self {
        let a = self;
        lane_by_lane!(|a, yes, no| a.choose(yes, no))
    }
    #[inline(always)]
    fn majority(self, b: Self, c: Self) -> Self {
        let a = self;
        lane_by_lane!(|a, b, c| a.majority(b, c))
    }
    #[inline(always)]
    fn or_not_xor(self, b: Self, c: Self) -> Self {
        let a = self;
        lane_by_lane!(|a, b, c| a.or_not_xor(b, c))
    }
    #[inline(always)]
    fn rotl(self, bits: u32) -> Self {
        let a = self;
        lane_by_lane!(|a| a.rotl(bits))
    }
    #[inline(always)]
    fn rotr(self, bits: u32) -> Self {
        let a = self;
        lane_by_lane!(|a| a.rotr(bits))
    }
    #[inline(always)]
    fn shr(self, bits: u32) -> Self {
        let a = self;
        lane_by_lane!(|a| a.shr(bits))
    }
}

/// Two registers interleaved: while one waits for its last result, the other works.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy)]
pub(super) struct Pair<R>(R, R);

#[cfg(target_arch = "x86_64")]
impl<R: Register> Register for Pair<R> {
    type Word = R::Word;
    const LANES: usize = 2 * R::LANES;

    #[inline(always)]
    unsafe fn gather(words: &[R::Word]) -> Self {
        // SAFETY: the caller guarantees the instructions.
        unsafe { Pair(R::gather(words), R::gather(&words[R::LANES..])) }
    }
    #[inline(always)]
    unsafe fn load_block(at: &[*const u8], offset: usize, big_endian: bool) -> [Self; 16] {
        // SAFETY: the caller guarantees the conditions for twice the lanes of `R`; each half of the
        // pointers belongs to one `R`.
        let (low, high) = unsafe {
            (R::load_block(at, offset, big_endian), R::load_block(&at[R::LANES..], offset, big_endian))
        };
        let mut block = [Pair(low[0], high[0]); 16];
        for (pair, (low, high)) in block.iter_mut().zip(low.into_iter().zip(high)) {
            *pair = Pair(low, high);
        }
        block
    }
    #[inline(always)]
    fn scatter(self, words: &mut [R::Word]) {
        self.0.scatter(words);
        self.1.scatter(&mut words[R::LANES..]);
    }
    #[inline(always)]
    fn splat(self, word: R::Word) -> Self {
        Pair(self.0.splat(word), self.1.splat(word))
    }
    #[inline(always)]
    fn add(self, other: Self) -> Self {
        Pair(self.0.add(other.0), self.1.add(other.1))
    }
    #[inline(always)]
    fn xor(self, other: Self) -> Self {
        Pair(self.0.xor(other.0), self.1.xor(other.1))
    }
    #[inline(always)]
    fn xor3(self, b: Self, c: Self) -> Self {
        Pair(self.0.xor3(b.0, c.0), self.1.xor3(b.1, c.1))
    }
    #[inline(always)]
    fn choose(self, yes: Self, no: Self) -> Self {
        Pair(self.0.choose(yes.0, no.0), self.1.choose(yes.1, no.1))
    }
    #[inline(always)]
    fn majority(self, b: Self, c: Self) -> Self {
        Pair(self.0.majority(b.0, c.0), self.1.majority(b.1, c.1))
    }
    #[inline(always)]
    fn or_not_xor(self, b: Self, c: Self) -> Self {
        Pair(self.0.or_not_xor(b.0, c.0), self.1.or_not_xor(b.1, c.1))
    }
    #[inline(always)]
    fn rotl(self, bits: u32) -> Self {
        Pair(self.0.rotl(bits), self.1.rotl(bits))
    }
    #[inline(always)]
    fn rotr(self, bits: u32) -> Self {
        Pair(self.0.rotr(bits), self.1.rotr(bits))
    }
    #[inline(always)]
    fn shr(self, bits: u32) -> Self {
        Pair(self.0.shr(bits), self.1.shr(bits))
    }
}
