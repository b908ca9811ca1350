//! The two 16-bit sums that `sum` prints.

/// BSD's sum: the register is rotated right by one bit, then the byte is added, modulo 2^16.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BsdStream(u16);

impl BsdStream {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |sum, &byte| sum.rotate_right(1).wrapping_add(u16::from(byte)));
    }

    pub(crate) fn value(self) -> u16 {
        self.0
    }
}

/// System V's sum: the sum of the bytes modulo 2^32. [`sysv_close`] converts it into the printed
/// sum.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SysvStream(u32);

impl SysvStream {
    pub(crate) fn update(&mut self, bytes: &[u8]) {
        // 2^24 bytes of 255 stay below 2^32, so the inner sums cannot overflow, and the compiler
        // vectorizes them.
        for piece in bytes.chunks(1 << 24) {
            self.0 = self.0.wrapping_add(piece.iter().map(|&byte| u32::from(byte)).sum());
        }
    }

    /// Returns the sum so far, before folding.
    pub(crate) fn value(self) -> u32 {
        self.0
    }
}

/// Returns the sum of two adjacent ranges from the results of [`SysvStream::value`].
pub(crate) fn sysv_combine(left: u32, right: u32) -> u32 {
    left.wrapping_add(right)
}

/// Returns the printed value: the upper half is added to the lower half, and then the carry of
/// that.
pub(crate) fn sysv_close(sum: u32) -> u16 {
    let once = (sum & 0xffff) + (sum >> 16);
    ((once & 0xffff) + (once >> 16)) as u16
}
