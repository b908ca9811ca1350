//! Cursor over several slices as if they were one.

use std::io::IoSlice;

/// Maximum number of slices passed to one call: a header, a payload, and some more.
const AT_ONCE: usize = 16;

/// Unwritten rest of some slices.
pub(crate) struct Slices<'a> {
    parts: &'a [&'a [u8]],
    /// Bytes of the first part that are written.
    done: usize,
}

impl<'a> Slices<'a> {
    pub(crate) fn new(parts: &'a [&'a [u8]]) -> Self {
        let mut slices = Self { parts, done: 0 };
        slices.skip_empty();
        slices
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Returns the number of remaining bytes.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len()).sum::<usize>() - self.done
    }

    /// Passes the next slices to `write`, at most `limit` bytes in total, and advances by the
    /// number of bytes that it accepted.
    pub(crate) fn advance<E>(
        &mut self,
        limit: usize,
        write: impl FnOnce(&[IoSlice<'_>]) -> Result<usize, E>,
    ) -> Result<usize, E> {
        let mut next = [IoSlice::new(&[]); AT_ONCE];
        let (mut count, mut room, mut done) = (0, limit, self.done);
        for (slot, part) in next.iter_mut().zip(self.parts) {
            let part = &part[done..];
            let part = &part[..part.len().min(room)];
            *slot = IoSlice::new(part);
            (count, room, done) = (count + 1, room - part.len(), 0);
            if room == 0 {
                break;
            }
        }
        let taken = write(&next[..count])?;
        self.consume(taken);
        Ok(taken)
    }

    fn consume(&mut self, mut bytes: usize) {
        while let Some((first, rest)) = self.parts.split_first() {
            let left = first.len() - self.done;
            if bytes < left {
                self.done += bytes;
                return;
            }
            bytes -= left;
            (self.parts, self.done) = (rest, 0);
        }
        assert!(bytes == 0, "no call consumes more bytes than it was given");
    }

    fn skip_empty(&mut self) {
        self.consume(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_bytes_pass_once_and_in_order(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..40),
            limit in 1_usize..50,
            greed in 1_usize..50,
        ) {
            let views: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
            let mut slices = Slices::new(&views);
            let mut passed = Vec::new();
            while !slices.is_empty() {
                let before = slices.len();
                let taken = slices.advance(limit, |given| {
                    let given: Vec<u8> = given.iter().flat_map(|slice| slice.iter().copied()).collect();
                    assert!(!given.is_empty() && given.len() <= limit);
                    let taken = greed.min(given.len());
                    passed.extend_from_slice(&given[..taken]);
                    Ok::<_, ()>(taken)
                });
                prop_assert_eq!(before - slices.len(), taken.expect("taken"));
            }
            prop_assert_eq!(passed, parts.concat());
        }
    }
}
